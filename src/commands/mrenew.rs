//! LOCK.MRENEW: let the leases of several keys start anew.

use super::{Access, Call, Command, Keys, Param, Reply, Spec};
use crate::args::Args;
use crate::error::Error;
use crate::step::Step;

pub(super) struct MRenew;

impl Command for MRenew {
    const SPEC: Spec = Spec {
        name: c"LOCK.MRENEW",
        summary:
            c"Lets the leases of several keys run exactly ttl from now; a fencing token or Null for each.",
        complexity: c"O(K) for K keys",
        flags: c"write fast getkeys-api",
        categories: c"lock write fast",
        arity: -5,
        keys: Keys::Counted,
        access: Access::Write,
        params: &[Param::NUMKEYS, Param::KEYS, Param::OWNER, Param::TTL, Param::SESSION],
    };

    fn run(call: &Call<'_>, args: &mut Args<'_>) -> Result<Reply, Error> {
        let (names, owner, ttl) = (args.keys(Self::SPEC.behind_keys())?, args.owner()?, args.ttl()?);
        let session = call.session(args.options(&["SESSION"])?.session)?;
        let mut step = Step::of_command(call.ctx, names.first().copied())?;
        step.judge_all(&names, owner)?;
        let renew = names.iter().map(|name| {
            let key = step.key(*name);
            let (engine, port, now) = step.parts();
            Ok(Reply::fence(engine.renew(port, now, key, owner, ttl, session)?))
        });
        Ok(Reply::Array(renew.collect::<Result<_, Error>>()?))
    }
}
