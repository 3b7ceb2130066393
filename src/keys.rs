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
}

impl Open<'_> {
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
        let open =
            Open { db: key.db, key: OpenKey::for_writing(self.ctx, name.as_str()), name, changed: false };
        match self.first {
            None => self.first.insert(open),
            Some(_) => {
                self.rest.push(open);
                self.rest.last_mut().expect("just pushed")
            }
        }
    }

    fn close(&mut self, open: Open<'a>) -> Name<'a> {
        let Open { db, name, key, changed } = open;
        drop(key);
        if changed {
            self.select(db);
            self.ctx.signal_modified(name.as_str());
        }
        name
    }

    fn close_all(&mut self) {
        if let Some(open) = self.first.take() {
            self.close(open);
        }
        for open in std::mem::take(&mut self.rest) {
            self.close(open);
        }
    }

    fn take(&mut self, key: Key<'_>) -> Option<Open<'a>> {
        if self.first.as_ref().is_some_and(|open| open.is(key)) {
            return self.first.take();
        }
        let index = self.rest.iter().position(|open| open.is(key))?;
        Some(self.rest.swap_remove(index))
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
        let foreign = may_be_foreign
            && matches!(open.key.content(), Content::Empty)
            && !serves(ctx, open.name.as_str());
        match open.key.content() {
            Content::Lock(lock) => Slot::Held(lock),
            Content::Other => Slot::Foreign,
            Content::Empty if foreign => Slot::Elsewhere,
            Content::Empty => Slot::Free,
        }
    }

    fn create(&mut self, key: Key<'_>, lock: Lock) {
        let open = self.open(key);
        open.key.put(lock);
        open.changed = true;
    }

    fn free(&mut self, key: Key<'_>) {
        let open = self.open(key);
        events::own_deletion(|| open.key.remove());
        open.changed = true;
    }

    fn record(&mut self, key: Key<'_>, owner: &[u8], change: Change, event: Event, counter: Fence) {
        self.open(key);
        self.select(key.db);
        // Other modules hear of the event and may do as they like with the key, so it is closed before.
        let Some(mut open) = self.take(key) else { return };
        let offset = self.offset;
        encode_record(&mut self.record, &Record { counter, owner, change }, offset);
        self.ctx.replicate_record(open.name.as_str(), &self.record);
        let mut freed = true;
        if let Content::Lock(lock) = open.key.content() {
            freed = false;
            if moves_deadline(change, event) {
                let latest = clock::native_end(lock.latest(), offset);
                open.key.expire_at(latest);
            }
        }
        open.changed = event != Event::Mirrored;
        let name = self.close(open);
        if let Some(event) = event_name(event) {
            self.ctx.notify(raw::REDISMODULE_NOTIFY_MODULE, event, name.as_str());
        }
        if freed {
            self.ctx.notify(raw::REDISMODULE_NOTIFY_GENERIC, c"del", name.as_str());
        }
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
