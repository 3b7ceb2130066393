//! LOCK.MRELEASE: give several locks back.

use super::{Access, Call, Command, Keys, Param, Reply, Spec};
use crate::args::Args;
use crate::error::Error;
use crate::step::Step;
use redislock_core::Portion;

pub(super) struct MRelease;

impl Command for MRelease {
    const SPEC: Spec = Spec {
        name: c"LOCK.MRELEASE",
        summary: c"Gives a hold of each of several keys back; the holds left or Null for each.",
        complexity: c"O(K) for K keys",
        flags: c"write fast getkeys-api",
        categories: c"lock write fast",
        arity: -4,
        keys: Keys::Counted,
        access: Access::Remove,
        params: &[Param::NUMKEYS, Param::KEYS, Param::OWNER],
    };

    fn run(call: &Call<'_>, args: &mut Args<'_>) -> Result<Reply, Error> {
        let (names, owner) = (args.keys(Self::SPEC.behind_keys())?, args.owner()?);
        args.options(&[])?;
        let mut step = Step::of_command(call.ctx, names.first().copied())?;
        step.judge_all(&names, owner)?;
        let release = names.iter().map(|name| {
            let key = step.key(*name);
            let (engine, port, now) = step.parts();
            Ok(Reply::number(engine.release(port, now, key, owner, Portion::One)?))
        });
        Ok(Reply::Array(release.collect::<Result<_, Error>>()?))
    }
}
