//! LOCK.REENTER: take a lock, or nest in it.

use super::take::take;
use super::{Access, Call, Command, Keys, Param, Reply, Spec};
use crate::args::Args;
use crate::error::Error;
use redislock_core::{Ask, Form};

pub(super) struct Reenter;

impl Command for Reenter {
    const SPEC: Spec = Spec {
        name: c"LOCK.REENTER",
        summary: c"Takes a lock, or adds a hold to one's own; returns the hold count and the fencing token, or Null.",
        complexity: c"O(1); O(log N) with N shared holders or N waiting requests",
        flags: c"write deny-oom",
        categories: c"lock write",
        arity: -4,
        keys: Keys::First,
        access: Access::Write,
        params: &[
            Param::KEY,
            Param::OWNER,
            Param::TTL,
            Param::SHARED,
            Param::WAIT,
            Param::SESSION,
            Param::HOLD.optional(),
        ],
    };

    fn run(call: &Call<'_>, args: &mut Args<'_>) -> Result<Reply, Error> {
        let (key, owner, ttl) = (args.key()?, args.owner()?, args.ttl()?);
        let options = args.options(&["SHARED", "LIMIT", "WAIT", "SESSION", "HOLD"])?;
        let session = call.session(options.session)?;
        let form = Form::Reenter { hold: options.hold };
        take(call, &[key], &Ask { owner, ttl, mode: options.mode(), session, form }, options.wait)
    }
}
