//! LOCK.INFO: who holds a lock.

use super::{Access, Call, Command, Keys, Param, Reply, Spec};
use crate::args::Args;
use crate::error::Error;
use crate::ffi::key::Content;
use crate::ffi::{Ctx, OpenKey};
use crate::{clock, state};
use redislock_core::{Fault, Key, Lease, Limit, Millis, Mode, Owner, Session};

pub(super) struct Info;

impl Command for Info {
    const SPEC: Spec = Spec {
        name: c"LOCK.INFO",
        summary:
            c"Shows the mode, the holders and the number of waiters of a lock; Null when there are none.",
        complexity: c"O(N) with N holders",
        flags: c"readonly",
        categories: c"lock read",
        arity: 2,
        keys: Keys::First,
        access: Access::Read,
        params: &[Param::KEY],
    };

    fn run(call: &Call<'_>, args: &mut Args<'_>) -> Result<Reply, Error> {
        let name = args.key()?;
        args.end()?;
        let now = clock::now().0.at;
        let key = Key { db: call.ctx.db(), name: name.as_bytes() };
        let state = state::borrow();
        let waiters = state.engine.queue().line(key).map_or(0, redislock_core::Line::len);
        let mut open = OpenKey::for_reading(call.ctx, name);
        let holders: Vec<Shown<'_>> = match open.content() {
            Content::Other => return Err(Fault::WrongType.into()),
            Content::Empty => Vec::new(),
            // What has ended is not held, whatever still lies in memory.
            Content::Lock(lock) => lock
                .iter()
                .filter(|(_, lease)| lease.runs(now))
                .map(|(owner, lease)| Shown {
                    owner,
                    lease,
                    tied: state.engine.tie(key, owner.as_bytes(), lease),
                })
                .collect(),
        };
        if holders.is_empty() && waiters == 0 {
            return Ok(Reply::Null);
        }
        reply(call.ctx, &holders, waiters, now);
        Ok(Reply::Sent)
    }
}

/// A holder, and the connection that its lease ends with.
struct Shown<'l> {
    owner: &'l Owner,
    lease: &'l Lease,
    tied: Option<Session>,
}

fn reply(ctx: Ctx<'_>, holders: &[Shown<'_>], waiters: usize, now: Millis) {
    let limits = holders.iter().filter_map(|shown| match shown.lease.mode {
        Mode::Shared(limit) => Some(limit),
        Mode::Exclusive => None,
    });
    let limit = limits.min().and_then(Limit::get);
    ctx.reply_map(if limit.is_some() { 4 } else { 3 });
    ctx.reply_bytes(b"mode");
    ctx.reply_bytes(match holders.first() {
        None => b"free",
        Some(shown) => mode_name(shown.lease.mode),
    });
    if let Some(limit) = limit {
        ctx.reply_bytes(b"limit");
        ctx.reply_int(i64::from(limit));
    }
    ctx.reply_bytes(b"waiters");
    ctx.reply_int(waiters.try_into().unwrap_or(i64::MAX));
    ctx.reply_bytes(b"holders");
    ctx.reply_array(holders.len());
    for shown in holders {
        reply_holder(ctx, shown, now);
    }
}

fn reply_holder(ctx: Ctx<'_>, Shown { owner, lease, tied }: &Shown<'_>, now: Millis) {
    ctx.reply_map(6);
    ctx.reply_bytes(b"owner");
    ctx.reply_bytes(owner.as_bytes());
    let fields: [(&[u8], u64); 5] = [
        (b"holds", u64::from(lease.holds.get())),
        (b"fence", lease.fence.get()),
        (b"ttl", lease.deadline.since(now).saturating_sub(1)),
        (b"held", now.since(lease.since)),
        (b"session", u64::from(tied.is_some())),
    ];
    for (name, value) in fields {
        ctx.reply_bytes(name);
        ctx.reply_int(value.try_into().unwrap_or(i64::MAX));
    }
}

/// A mode as replies name it.
pub(super) fn mode_name(mode: Mode) -> &'static [u8] {
    match mode {
        Mode::Exclusive => b"exclusive",
        Mode::Shared(_) => b"shared",
    }
}
