//! LOCK.MACQUIRE: take several locks, all or none.

use super::take::take;
use super::{Access, Call, Command, Keys, Param, Reply, Spec};
use crate::args::Args;
use crate::error::Error;
use redislock_core::{Ask, Form, Mode};

pub(super) struct MAcquire;

impl Command for MAcquire {
    const SPEC: Spec = Spec {
        name: c"LOCK.MACQUIRE",
        summary:
            c"Takes several locks at once, all or none, under one fencing token; Null when one can't be had.",
        complexity: c"O(K) for K keys; O(K log N) with N waiting requests",
        flags: c"write deny-oom getkeys-api",
        categories: c"lock write",
        arity: -5,
        keys: Keys::Counted,
        access: Access::Write,
        params: &[Param::NUMKEYS, Param::KEYS, Param::OWNER, Param::TTL, Param::WAIT, Param::SESSION],
    };

    fn run(call: &Call<'_>, args: &mut Args<'_>) -> Result<Reply, Error> {
        let (keys, owner, ttl) = (args.keys(Self::SPEC.behind_keys())?, args.owner()?, args.ttl()?);
        let options = args.options(&["WAIT", "SESSION"])?;
        let session = call.session(options.session)?;
        let ask = Ask { owner, ttl, mode: Mode::Exclusive, session, form: Form::Acquire };
        take(call, &keys, &ask, options.wait)
    }
}
