//! LOCK.GUARD: run a command only while its owner holds the lock.

use super::{Access, Call, Command, Keys, Param, ParamKind, Reply, Spec};
use crate::args::Args;
use crate::error::Error;
use crate::ffi::inner_call::{can_run_as_caller, is_admin, name_keys, run_as_caller};

pub(super) struct Guard;

/// Where the inner command begins.
const INNER: usize = 3;

impl Command for Guard {
    const SPEC: Spec = Spec {
        name: c"LOCK.GUARD",
        summary: c"Runs a command if, at this instant, the owner holds the lock; its reply is the reply.",
        complexity: c"O(1) and that of the command",
        flags: c"write getkeys-api",
        categories: c"lock write",
        arity: -4,
        keys: Keys::Guarded,
        access: Access::Write,
        params: &[
            Param::KEY,
            Param::OWNER,
            Param::new("command", ParamKind::Text),
            Param::new("arg", ParamKind::Text).many().optional(),
        ],
    };

    fn run(call: &Call<'_>, args: &mut Args<'_>) -> Result<Reply, Error> {
        let (name, owner) = (args.key()?, args.owner()?);
        if !can_run_as_caller() {
            return Err(Error::Refused("ERR LOCK.GUARD needs Redis 7.0 or later, or Valkey"));
        }
        if is_nested(call) {
            return Err(Error::Refused("ERR LOCK.GUARD can't guard a LOCK.GUARD"));
        }
        if is_admin(call.argv, INNER) {
            return Err(Error::Refused("ERR LOCK.GUARD can't guard a command for administrators"));
        }
        let held = {
            let mut step = call.step(name)?;
            let key = step.key(name);
            let (engine, port, now) = step.parts();
            engine.lease(port, now, key, owner)?.is_some()
        };
        if !held {
            return Err(Error::Refused("NOTHELD this owner does not hold the lock, and nothing was run"));
        }
        // The step is over: the inner command may be one of the module's own.
        run_as_caller(call.ctx, call.argv, INNER).map(|()| Reply::Sent).map_err(Error::Inner)
    }

    /// A guard within a guard has no keys to look for: it is refused. To look would go as deep as a caller likes.
    fn find_keys(call: &Call<'_>) {
        // 6.2 asks before it knows that arguments are missing.
        if call.argv.len() > 1 {
            call.ctx.key_at(1);
        }
        if !is_nested(call) {
            name_keys(call.ctx, call.argv, INNER);
        }
    }
}

fn is_nested(call: &Call<'_>) -> bool {
    let inner = call.argv.get(INNER);
    inner.is_some_and(|inner| inner.as_bytes().eq_ignore_ascii_case(Guard::SPEC.name.to_bytes()))
}
