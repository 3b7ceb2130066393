//! What the commands that take locks have in common.

use super::{Call, Reply};
use crate::error::Error;
use crate::ffi::Str;
use crate::step::Step;
use crate::waiting::Claim;
use redislock_core::{Answer, Ask, Key, Millis, Owner, Wait};

/// Asks the core, and blocks the caller where the request waits.
pub(super) fn take<'a>(
    call: &Call<'a>,
    names: &[Str<'a>],
    ask: &Ask<'_>,
    wait: Option<u64>,
) -> Result<Reply, Error> {
    let mut step = Step::of_command(call.ctx, names.first().copied())?;
    // Where nothing may block, to wait means to try.
    let wait = wait.filter(|_| !call.ctx.flags().denies_blocking());
    let wait = wait.map(|wait| Wait { until: (wait > 0).then(|| Millis(step.now().at.0 + wait)) });
    let one;
    let many: Vec<Key<'_>>;
    let keys = match names {
        [name] => {
            one = [step.key(*name)];
            &one[..]
        }
        names => {
            many = names.iter().map(|name| step.key(*name)).collect();
            &many[..]
        }
    };
    let (engine, port, now) = step.parts();
    match engine.acquire(port, now, keys, ask, wait)? {
        Answer::Granted(grant) => Ok(Reply::Grant(grant, ask.form)),
        Answer::Refused(_) => Ok(Reply::Null),
        Answer::Queued(id) => {
            let claim = Claim {
                keys: keys.iter().copied().map(Key::to_buf).collect(),
                owner: Owner::new(ask.owner).ok_or(Error::Owner)?,
                form: ask.form,
            };
            let state = step.state();
            if !state.waiting.block(call.ctx, id, claim) {
                state.engine.forget(id);
                return Err(Error::Refused("ERR the server can't block this client"));
            }
            Ok(Reply::Sent)
        }
    }
}
