//! LOCK.RENEW: let a lease start anew.

use super::{Access, Call, Command, Keys, Param, Reply, Spec};
use crate::args::Args;
use crate::error::Error;

pub(super) struct Renew;

impl Command for Renew {
    const SPEC: Spec = Spec {
        name: c"LOCK.RENEW",
        summary: c"Lets a lease run exactly ttl from now and returns its fencing token, or Null when it is not held.",
        complexity: c"O(1); O(log N) with N shared holders",
        flags: c"write fast",
        categories: c"lock write fast",
        arity: -4,
        keys: Keys::First,
        access: Access::Write,
        params: &[Param::KEY, Param::OWNER, Param::TTL, Param::SESSION],
    };

    fn run(call: &Call<'_>, args: &mut Args<'_>) -> Result<Reply, Error> {
        let (name, owner, ttl) = (args.key()?, args.owner()?, args.ttl()?);
        let session = call.session(args.options(&["SESSION"])?.session)?;
        let mut step = call.step(name)?;
        let key = step.key(name);
        let (engine, port, now) = step.parts();
        Ok(Reply::fence(engine.renew(port, now, key, owner, ttl, session)?))
    }
}
