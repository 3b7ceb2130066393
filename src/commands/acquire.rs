//! LOCK.ACQUIRE: take a lock.

use super::take::take;
use super::{Access, Call, Command, Keys, Param, Reply, Spec};
use crate::args::Args;
use crate::error::Error;
use redislock_core::{Ask, Form};

pub(super) struct Acquire;

impl Command for Acquire {
    const SPEC: Spec = Spec {
        name: c"LOCK.ACQUIRE",
        summary: c"Takes a lock and returns its fencing token, or Null when others hold it or wait for it.",
        complexity: c"O(1); O(log N) with N shared holders or N waiting requests",
        flags: c"write deny-oom",
        categories: c"lock write",
        arity: -4,
        keys: Keys::First,
        access: Access::Write,
        params: &[Param::KEY, Param::OWNER, Param::TTL, Param::SHARED, Param::WAIT, Param::SESSION],
    };

    fn run(call: &Call<'_>, args: &mut Args<'_>) -> Result<Reply, Error> {
        let (key, owner, ttl) = (args.key()?, args.owner()?, args.ttl()?);
        let options = args.options(&["SHARED", "LIMIT", "WAIT", "SESSION"])?;
        let session = call.session(options.session)?;
        let ask = Ask { owner, ttl, mode: options.mode(), session, form: Form::Acquire };
        take(call, &[key], &ask, options.wait)
    }
}
