//! LOCK.BREAK: take a lock away.

use super::{Access, Call, Command, Keys, Param, ParamKind, Reply, Spec};
use crate::args::Args;
use crate::error::Error;
use redislock_core::Owner;

pub(super) struct Break;

impl Command for Break {
    const SPEC: Spec = Spec {
        name: c"LOCK.BREAK",
        summary: c"Revokes all holders of a lock, or one, or one grant of it; returns how many.",
        complexity: c"O(N) with N holders",
        flags: c"write",
        categories: c"lock write dangerous",
        arity: -2,
        keys: Keys::First,
        access: Access::Remove,
        params: &[
            Param::KEY,
            Param::new(
                "whose",
                ParamKind::Block(&[Param::OWNER, Param::new("fence", ParamKind::Integer).optional()]),
            )
            .optional(),
        ],
    };

    fn run(call: &Call<'_>, args: &mut Args<'_>) -> Result<Reply, Error> {
        let name = args.key()?;
        let owner = args.next().map(|owner| owner.as_bytes());
        if owner.is_some_and(|owner| !Owner::is_valid(owner)) {
            return Err(Error::Owner);
        }
        let fence = if args.position() < call.argv.len() { Some(args.fence("fence")?) } else { None };
        args.end()?;
        let mut step = call.step(name)?;
        let key = step.key(name);
        let (engine, port, now) = step.parts();
        Ok(Reply::Int(engine.revoke(port, now, key, owner, fence)? as u64))
    }
}
