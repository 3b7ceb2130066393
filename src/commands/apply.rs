//! LOCK.APPLY: a record from this server's primary, or from the AOF. For nobody else.

use super::{Access, Call, Command, Keys, Param, ParamKind, Reply, Spec};
use crate::args::Args;
use crate::error::Error;
use crate::ffi::key::Content;
use crate::ffi::{Ctx, OpenKey, Str};
use crate::{clock, state};
use redislock_core::record::{DecodeError, Record, decode_record};
use redislock_core::{Change, Event, Fence, Key, Keyspace, Lock, Offset, Slot};

pub(super) struct Apply;

impl Command for Apply {
    const SPEC: Spec = Spec {
        name: c"LOCK.APPLY",
        summary: c"Internal: carries what became of a holder to replicas and into the AOF.",
        complexity: c"O(1); O(log N) with N shared holders",
        flags: c"write fast",
        categories: c"lock write fast",
        arity: 3,
        keys: Keys::First,
        access: Access::Write,
        params: &[Param::KEY, Param::new("record", ParamKind::Text)],
    };

    fn run(call: &Call<'_>, args: &mut Args<'_>) -> Result<Reply, Error> {
        let flags = call.ctx.flags();
        if !flags.is_replicated() && !flags.is_loading() {
            return Err(Error::Refused("ERR LOCK.APPLY is internal: it is for replication and the AOF"));
        }
        let (name, bytes) = (args.key()?, args.next().ok_or(Error::Arity)?);
        let offset = clock::now().1;
        let record = match decode_record(bytes.as_bytes(), offset) {
            Ok(record) => record,
            Err(error) => return Err(unreadable(call.ctx, &error)),
        };
        apply(call.ctx, name, &record, offset)?;
        Ok(Reply::Int(1))
    }
}

/// A lock that can't be read must not be lost in silence. The server ignores the errors that a command of its AOF
/// gives, so it stops here, as it does for a command that it does not know.
fn unreadable(ctx: Ctx<'_>, error: &DecodeError) -> Error {
    ctx.log(c"warning", &format!("redislock: a record can't be read: {error}"));
    if ctx.flags().is_loading() {
        ctx.log(
            c"warning",
            "redislock: the AOF holds locks that this build can't read. Load a newer module.",
        );
        std::process::exit(1);
    }
    Error::Refused("ERR the record can't be read, see the server's log")
}

/// Makes the key what the record says, and its native TTL what the lock says.
fn apply(ctx: Ctx<'_>, name: Str<'_>, record: &Record<'_>, offset: Offset) -> Result<(), Error> {
    let key = Key { db: ctx.db(), name: name.as_bytes() };
    let mut told = Told(OpenKey::for_writing(ctx, name));
    state::borrow().engine.apply(&mut told, key, record)?;
    if let Slot::Held(lock) = told.find(key) {
        let latest = clock::native_end(lock.latest(), offset);
        told.0.expire_at(latest);
    }
    drop(told);
    ctx.signal_modified(name);
    Ok(())
}

/// The key that a record is about. What becomes of it is no news to tell: it is what was told.
struct Told<'a>(OpenKey<'a>);

impl Keyspace for Told<'_> {
    fn reaches(&self, _key: Key<'_>) -> bool {
        true
    }

    fn find(&mut self, _key: Key<'_>) -> Slot<'_> {
        match self.0.content() {
            Content::Empty => Slot::Free,
            Content::Lock(lock) => Slot::Held(lock),
            Content::Other => Slot::Foreign,
        }
    }

    fn create(&mut self, _key: Key<'_>, lock: Lock) {
        self.0.put(lock);
    }

    fn free(&mut self, _key: Key<'_>) {
        self.0.remove();
    }

    fn record(&mut self, _key: Key<'_>, _owner: &[u8], _change: Change, _event: Event, _counter: Fence) {}
}
