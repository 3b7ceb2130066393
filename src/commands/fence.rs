//! LOCK.FENCE: raise a holder's token, for coordinators over several servers.

use super::{Access, Call, Command, Keys, Param, ParamKind, Reply, Spec};
use crate::args::Args;
use crate::error::Error;

pub(super) struct SetFence;

impl Command for SetFence {
    const SPEC: Spec = Spec {
        name: c"LOCK.FENCE",
        summary:
            c"Raises a holder's fencing token to at least this one; returns it, or Null when it is not held.",
        complexity: c"O(1); O(log N) with N shared holders",
        flags: c"write fast",
        categories: c"lock write fast",
        arity: 4,
        keys: Keys::First,
        access: Access::Write,
        params: &[Param::KEY, Param::OWNER, Param::new("token", ParamKind::Integer)],
    };

    fn run(call: &Call<'_>, args: &mut Args<'_>) -> Result<Reply, Error> {
        let (name, owner, token) = (args.key()?, args.owner()?, args.fence("token")?);
        args.end()?;
        let mut step = call.step(name)?;
        let key = step.key(name);
        let (engine, port, now) = step.parts();
        Ok(Reply::fence(engine.raise(port, now, key, owner, token)?))
    }
}
