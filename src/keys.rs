//! The server's keys as the core's port: find, create, free, and tell the world.

use crate::ffi::inner_call::serves;
use crate::ffi::key::Content;
use crate::ffi::string::OwnedStr;
use crate::ffi::{Ctx, OpenKey, Str};
use crate::slot::slot_of;
use crate::{clock, events};
use redis_module::raw;
use redislock_core::record::{Record, encode_record};
use redislock_core::{Change, Db, Event, Fence, Key, Keyspace, Lock, Offset, Slot};
use std::ffi::CStr;

/// How many keys are kept open at a time, when a step touches many.
const OPEN_MAX: usize = 16;

/// The keys that one step works on.
pub(crate) struct Keys<'a> {
    ctx: Ctx<'a>,
    offset: Offset,
    home: Db,
    selected: Db,
    is_cluster: bool,
    /// The key that the command names first. Its name need not be copied.
    named: Option<Str<'a>>,
    first: Option<Open<'a>>,
    rest: Vec<Open<'a>>,
    record: Vec<u8>,
}

struct Open<'a> {
    db: Db,
    name: Name<'a>,
    key: OpenKey<'a>,
    changed: bool,
    /// Nobody holds the lock any more. Until the key is closed it waits for its next holder: a hand-off is then one
    /// change of a value, and not the end of one key and the birth of another.
    vacant: bool,
    news: News,
}

/// What is to be told of a key, in order, when it is closed: those who hear of it may do as they like with the key.
#[derive(Default)]
struct News {
    first: Option<&'static CStr>,
    more: Vec<&'static CStr>,
}

impl News {
    fn add(&mut self, event: &'static CStr) {
        match self.first {
            None => self.first = Some(event),
            Some(_) => self.more.push(event),
        }
    }
}

/// A key that was closed, and what is to be told of it.
struct Closed<'a> {
    db: Db,
    name: Name<'a>,
    news: News,
    deleted: bool,
}

impl Open<'_> {
    fn content(&mut self) -> Content<'_> {
        if self.vacant { Content::Empty } else { self.key.content() }
    }

    /// Whether it is this key. Mostly the core names it by the very bytes that it was opened with.
    fn is(&self, key: Key<'_>) -> bool {
        let name = self.name.as_str().as_bytes();
        self.db == key.db && (std::ptr::eq(name, key.name) || name == key.name)
    }
}

enum Name<'a> {
    Argument(Str<'a>),
    Own(OwnedStr),
}

impl Name<'_> {
    fn as_str(&self) -> Str<'_> {
        match self {
            Self::Argument(name) => *name,
            Self::Own(name) => name.as_str(),
        }
    }
}

impl<'a> Keys<'a> {
    /// The keys for a step in this context. `named` is the argument that names its first key, and `record` a buffer.
    pub(crate) fn new(ctx: Ctx<'a>, offset: Offset, named: Option<Str<'a>>, record: Vec<u8>) -> Self {
        let home = ctx.db();
        let is_cluster = events::is_cluster();
        Self { ctx, offset, home, selected: home, is_cluster, named, first: None, rest: Vec::new(), record }
    }

    /// Closes all keys, and gives the buffer back.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.close_all();
        self.select(self.home);
        std::mem::take(&mut self.record)
    }

    fn select(&mut self, db: Db) {
        if self.selected != db {
            self.ctx.select(db);
            self.selected = db;
        }
    }

    fn open(&mut self, key: Key<'_>) -> &mut Open<'a> {
        if self.first.as_ref().is_some_and(|open| open.is(key)) {
            return self.first.as_mut().expect("just seen");
        }
        if let Some(index) = self.rest.iter().position(|open| open.is(key)) {
            return &mut self.rest[index];
        }
        if self.rest.len() >= OPEN_MAX {
            self.close_all();
        }
        self.select(key.db);
        let name = match self.named.filter(|named| named.as_bytes().as_ptr() == key.name.as_ptr()) {
            Some(named) => Name::Argument(named),
            None => Name::Own(OwnedStr::new(key.name)),
        };
        let open = Open {
            db: key.db,
            key: OpenKey::for_writing(self.ctx, name.as_str()),
            name,
            changed: false,
            vacant: false,
            news: News::default(),
        };
        match self.first {
            None => self.first.insert(open),
            Some(_) => {
                self.rest.push(open);
                self.rest.last_mut().expect("just pushed")
            }
        }
    }

    fn close(&mut self, open: Open<'a>) -> Closed<'a> {
        let Open { db, name, mut key, changed, vacant, news } = open;
        self.select(db);
        if vacant {
            events::own_deletion(|| key.remove());
        }
        drop(key);
        if changed {
            self.ctx.signal_modified(name.as_str());
        }
        Closed { db, name, news, deleted: vacant }
    }

    /// Closes every key, and only then tells of any: whoever hears may change them.
    fn close_all(&mut self) {
        let first = self.first.take().map(|open| self.close(open));
        let rest = std::mem::take(&mut self.rest);
        let rest: Vec<Closed<'a>> = rest.into_iter().map(|open| self.close(open)).collect();
        for closed in first.into_iter().chain(rest) {
            self.tell(&closed);
        }
    }

    fn tell(&mut self, closed: &Closed<'a>) {
        self.select(closed.db);
        let name = closed.name.as_str();
        for event in closed.news.first.iter().chain(&closed.news.more) {
            self.ctx.notify(raw::REDISMODULE_NOTIFY_MODULE, event, name);
        }
        if closed.deleted {
            self.ctx.notify(raw::REDISMODULE_NOTIFY_GENERIC, c"del", name);
        }
    }
}

impl Keyspace for Keys<'_> {
    /// While a command runs on a node of a cluster, newer servers look for every key in the slot of the command.
    fn reaches(&self, key: Key<'_>) -> bool {
        let named = self.named.filter(|_| self.is_cluster);
        named.is_none_or(|named| slot_of(named.as_bytes()) == slot_of(key.name))
    }

    fn find(&mut self, key: Key<'_>) -> Slot<'_> {
        // A command was sent to the right node, or the server would have answered it otherwise. Others may have
        // moved away. While a slot moves, a lock that is still here is served here.
        let may_be_foreign = self.is_cluster && self.named.is_none_or(|named| named.as_bytes() != key.name);
        let ctx = self.ctx;
        let open = self.open(key);
        let foreign =
            may_be_foreign && matches!(open.content(), Content::Empty) && !serves(ctx, open.name.as_str());
        match open.content() {
            Content::Lock(lock) => Slot::Held(lock),
            Content::Other => Slot::Foreign,
            Content::Empty if foreign => Slot::Elsewhere,
            Content::Empty => Slot::Free,
        }
    }

    fn create(&mut self, key: Key<'_>, lock: Lock) {
        let open = self.open(key);
        open.vacant = false;
        open.changed = true;
        match open.key.content() {
            Content::Lock(old) => *old = lock,
            Content::Empty | Content::Other => open.key.put(lock),
        }
    }

    fn free(&mut self, key: Key<'_>) {
        let open = self.open(key);
        open.vacant = true;
        open.changed = true;
    }

    fn record(&mut self, key: Key<'_>, owner: &[u8], change: Change, event: Event, counter: Fence) {
        let (ctx, offset) = (self.ctx, self.offset);
        encode_record(&mut self.record, &Record { counter, owner, change }, offset);
        self.select(key.db);
        let record = std::mem::take(&mut self.record);
        let open = self.open(key);
        ctx.replicate_record(open.name.as_str(), &record);
        if moves_deadline(change, event)
            && let Content::Lock(lock) = open.content()
        {
            let latest = clock::native_end(lock.latest(), offset);
            open.key.expire_at(latest);
        }
        open.changed |= event != Event::Mirrored;
        if let Some(event) = event_name(event) {
            open.news.add(event);
        }
        self.record = record;
    }
}

/// Whether the latest deadline of the lock may be another one than before.
fn moves_deadline(change: Change, event: Event) -> bool {
    match change {
        Change::Gone => true,
        Change::Held(_) => !matches!(event, Event::Released | Event::Downgraded | Event::Fenced),
    }
}

fn event_name(event: Event) -> Option<&'static CStr> {
    Some(match event {
        Event::Granted => c"lock.granted",
        Event::Reentered => c"lock.reentered",
        Event::Renewed => c"lock.renewed",
        Event::Released => c"lock.released",
        Event::Downgraded => c"lock.downgraded",
        Event::Fenced => c"lock.fenced",
        Event::Lapsed => c"lock.lapsed",
        Event::Revoked => c"lock.revoked",
        Event::Closed => c"lock.closed",
        Event::Mirrored => return None,
    })
}
