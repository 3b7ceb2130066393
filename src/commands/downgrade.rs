//! LOCK.DOWNGRADE: from exclusive to shared.

use super::{Access, Call, Command, Keys, Param, Reply, Spec};
use crate::args::Args;
use crate::error::Error;

pub(super) struct Downgrade;

impl Command for Downgrade {
    const SPEC: Spec = Spec {
        name: c"LOCK.DOWNGRADE",
        summary: c"Makes an exclusive lock a shared one, without a gap; returns its fencing token, or Null.",
        complexity: c"O(1) and O(log N) for each waiting reader that joins",
        flags: c"write fast",
        categories: c"lock write fast",
        arity: 3,
        keys: Keys::First,
        access: Access::Write,
        params: &[Param::KEY, Param::OWNER],
    };

    fn run(call: &Call<'_>, args: &mut Args<'_>) -> Result<Reply, Error> {
        let (name, owner) = (args.key()?, args.owner()?);
        args.end()?;
        let mut step = call.step(name)?;
        let key = step.key(name);
        let (engine, port, now) = step.parts();
        Ok(Reply::fence(engine.downgrade(port, now, key, owner)?))
    }
}
