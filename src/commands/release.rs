//! LOCK.RELEASE: give holds back.

use super::{Access, Call, Command, Keys, Param, ParamKind, Reply, Spec};
use crate::args::Args;
use crate::error::Error;
use redislock_core::Portion;

pub(super) struct Release;

impl Command for Release {
    const SPEC: Spec = Spec {
        name: c"LOCK.RELEASE",
        summary: c"Gives a hold back, or all of them; returns the holds left, or Null when it is not held.",
        complexity: c"O(1), however many wait; O(log N) with N shared holders",
        flags: c"write fast",
        categories: c"lock write fast",
        arity: -3,
        keys: Keys::First,
        access: Access::Remove,
        params: &[
            Param::KEY,
            Param::OWNER,
            Param::new("holds", ParamKind::OneOf(&[Param::HOLD, Param::word("all", "ALL")])).optional(),
        ],
    };

    fn run(call: &Call<'_>, args: &mut Args<'_>) -> Result<Reply, Error> {
        let (name, owner) = (args.key()?, args.owner()?);
        let options = args.options(&["HOLD", "ALL"])?;
        let portion = match options.hold {
            Some(hold) => Portion::Nth(hold),
            None if options.all => Portion::All,
            None => Portion::One,
        };
        let mut step = call.step(name)?;
        let key = step.key(name);
        let (engine, port, now) = step.parts();
        Ok(Reply::number(engine.release(port, now, key, owner, portion)?))
    }
}
