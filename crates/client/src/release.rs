//! Giving a lock back.

use std::sync::Arc;

use redis::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use crate::clock::Moment;
use crate::command::{Holds, released};
use crate::error::Error;
use crate::holding::Holding;
use crate::link::{AskedFrom, Link};
use crate::locker::Core;
use crate::round::{Round, Standing};
use crate::vote::{NodeError, NodeErrorKind, Vote};

/// What came of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Released {
    /// The lock was given back and is free for the next one.
    Freed,
    /// One nested hold was given back; so many are left.
    Nested(u32),
    /// The owner held nothing any more: the lock had lapsed, or was taken away, before the release. Work done in
    /// the meantime may have overlapped with another holder's, unless fences were checked. A release whose answer was
    /// lost, and that had to be sent again, looks the same.
    NotHeld,
}

/// One hold that a guard stands for, and how far giving it back has come.
pub(crate) struct Hold {
    pub(crate) holding: Arc<Holding>,
    progress: watch::Sender<Progress>,
}

#[derive(Clone, Debug, Default)]
enum Progress {
    #[default]
    Held,
    Releasing,
    /// The number of the hold stays the same however often its release is sent.
    Failed(u32, Error),
    Done(Released),
    /// The hold was given to another guard.
    Moved,
}

impl Hold {
    pub(crate) fn new(holding: Arc<Holding>) -> Arc<Self> {
        Arc::new(Self { holding, progress: watch::Sender::default() })
    }

    /// Gives the hold away without releasing it.
    pub(crate) fn moved(&self) {
        self.progress.send_replace(Progress::Moved);
    }

    /// Starts the release unless it is under way or done. It goes on by itself, whoever waits for it.
    pub(crate) fn start(self: &Arc<Self>) {
        let mut nth = None;
        let starts = self.progress.send_if_modified(|progress| match progress {
            Progress::Held => {
                *progress = Progress::Releasing;
                true
            }
            Progress::Failed(number, _) => {
                nth = Some(*number);
                *progress = Progress::Releasing;
                true
            }
            Progress::Releasing | Progress::Done(_) | Progress::Moved => false,
        });
        if starts {
            let hold = self.clone();
            self.holding.core.start(async move { hold.release(nth).await });
        }
    }

    /// Waits for the outcome of the release that was started last.
    pub(crate) async fn outcome(&self) -> Result<Released, Error> {
        let mut progress = self.progress.subscribe();
        let settled = progress
            .wait_for(|progress| !matches!(progress, Progress::Held | Progress::Releasing))
            .await
            .map_err(|_| Error::Closed)?;
        match &*settled {
            Progress::Done(released) => Ok(*released),
            Progress::Failed(_, error) => Err(error.clone()),
            _ => Err(Error::Configuration("this hold was handed over to another guard".into())),
        }
    }

    async fn release(self: Arc<Self>, nth: Option<u32>) {
        let holding = &self.holding;
        let mut holds = holding.holds.lock().await;
        let nth = nth.unwrap_or(*holds);
        let last = nth <= 1;
        if last {
            // From here on nothing renews the lease.
            let was_held = holding.lease().release();
            if was_held {
                holding.core.keeper.watch(holding.clone());
                holding.tell();
            }
            holding.end_claim();
        }
        *holds = nth.saturating_sub(1);
        let what = if holding.reentrant { Holds::Nth(nth) } else { Holds::All };
        let outcome = round(&holding.core, holding, what, last).await;
        let outcome_name = if outcome.is_ok() { "released" } else { "failed" };
        metrics::counter!("redislock_releases_total", "outcome" => outcome_name).increment(1);
        self.progress.send_replace(match outcome {
            Ok(released) => Progress::Done(released),
            Err(error) => Progress::Failed(nth, error),
        });
    }
}

/// Sends the release to every node, and answers with the quorum.
async fn round(core: &Arc<Core>, holding: &Holding, holds: Holds, last: bool) -> Result<Released, Error> {
    let mut round = Round::new(core.quorum, Moment::now());
    let limit = Instant::now() + core.surroundings.node_timeout;
    let mut answers = send(core, holding, holds, last);
    let mut left = None;
    while round.standing() == Standing::Open {
        let Ok(Some((node, answer))) = timeout_at(limit, answers.recv()).await else { break };
        round.record(
            node,
            match answer {
                Ok(Some(holds)) => {
                    left = left.max(Some(holds));
                    Vote::Granted(holding.fence)
                }
                Ok(None) => Vote::Denied,
                Err(error) => Vote::Unreachable(error),
            },
        );
    }
    match round.standing() {
        Standing::Won => Ok(left.filter(|left| *left > 0).map_or(Released::Freed, Released::Nested)),
        _ if round.is_denied() => Ok(Released::NotHeld),
        _ => Err(Error::NoQuorum { votes: round.votes() }),
    }
}

/// The holds left at a node, or `None` where it had none to give back.
type Answer = Result<Option<u32>, NodeError>;

/// Sends the release to every node. What is not answered is sent again in the background for as long as the lease may
/// run.
fn send(
    core: &Arc<Core>,
    holding: &Holding,
    holds: Holds,
    last: bool,
) -> mpsc::UnboundedReceiver<(usize, Answer)> {
    let (sender, answers) = mpsc::unbounded_channel();
    let until = Instant::now() + holding.lease().ttl().as_duration();
    // The first node last: where others wait it is the one whose queue hands on, and by then the rest should be free.
    for node in (0..core.quorum.nodes()).rev() {
        let (link, sender) = (core.link_for(&holding.terms, node).clone(), sender.clone());
        if was_never_asked(&link, holding) {
            let error = NodeError::new(NodeErrorKind::Connection, "was out of reach all the time");
            let _ = sender.send((node, Err(error)));
            continue;
        }
        let command = [holding.terms.release(&holding.owner, holds)];
        let (claim, again) = (holding.claim(), core.clone());
        let from = if holding.first_asked.is_some() { AskedFrom::Here } else { AskedFrom::Elsewhere };
        core.start(async move {
            // A newer guard of the same owner would fall to a release that is sent again.
            let wanted = || !last || !again.is_claimed(&claim);
            let answer = match link.insist(&command, until, from, wanted).await {
                Ok(replies) => released(replies.first().unwrap_or(&Value::Okay)),
                Err(error) => {
                    debug!(node = %link.node(), %error, "not released");
                    Err(error)
                }
            };
            let _ = sender.send((node, answer));
        });
    }
    answers
}

/// A node that was out of reach all the time has nothing to release, and costs nothing.
fn was_never_asked(link: &Link, holding: &Holding) -> bool {
    match (link.out_of_reach_since(), holding.first_asked) {
        (Some(since), Some(asked)) => since < asked,
        _ => false,
    }
}
