//! LOCK.WAITERS: who waits for a lock.

use super::info::mode_name;
use super::{Access, Call, Command, Keys, Param, Reply, Spec};
use crate::args::Args;
use crate::error::Error;
use crate::ffi::OpenKey;
use crate::ffi::key::Content;
use crate::{clock, state};
use redislock_core::{Fault, Key, Waiter};

pub(super) struct Waiters;

impl Command for Waiters {
    const SPEC: Spec = Spec {
        name: c"LOCK.WAITERS",
        summary: c"Shows the requests that wait for a lock, in order.",
        complexity: c"O(N) with N waiting requests, or as many as COUNT says",
        flags: c"readonly",
        categories: c"lock read",
        arity: -2,
        keys: Keys::First,
        access: Access::Read,
        params: &[Param::KEY, Param::number("n", "COUNT").optional()],
    };

    fn run(call: &Call<'_>, args: &mut Args<'_>) -> Result<Reply, Error> {
        let name = args.key()?;
        let count = args.options(&["COUNT"])?.count;
        if matches!(OpenKey::for_reading(call.ctx, name).content(), Content::Other) {
            return Err(Fault::WrongType.into());
        }
        let most = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX);
        let now = clock::now().0.at;
        let state = state::borrow();
        let key = Key { db: call.ctx.db(), name: name.as_bytes() };
        let waiters: Vec<&Waiter> =
            state.engine.queue().waiters(key).map(|(_, waiter)| waiter).take(most).collect();
        let ctx = call.ctx;
        ctx.reply_array(waiters.len());
        for waiter in waiters {
            ctx.reply_map(4);
            ctx.reply_bytes(b"owner");
            ctx.reply_bytes(waiter.owner().as_bytes());
            ctx.reply_bytes(b"mode");
            ctx.reply_bytes(mode_name(waiter.mode()));
            ctx.reply_bytes(b"waited");
            ctx.reply_int(now.since(waiter.since()).try_into().unwrap_or(i64::MAX));
            ctx.reply_bytes(b"timeout");
            ctx.reply_int(waiter.until().map_or(-1, |until| until.since(now).try_into().unwrap_or(i64::MAX)));
        }
        Ok(Reply::Sent)
    }
}
