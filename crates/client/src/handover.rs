//! Passing a held lock on to another task or process.

use std::sync::Arc;

use crate::attempt::Ties;
use crate::clock::Moment;
use crate::command::{Mode, Terms, renewal_vote};
use crate::error::{Error, LossReason};
use crate::fence::Fence;
use crate::guard::Guard;
use crate::holding::Holding;
use crate::lease::{Lease, Watchdog};
use crate::locker::Locker;
use crate::owner::Owner;
use crate::request::MAX_HOLD;
use crate::round::{Round, Standing};
use crate::ttl::Ttl;
use crate::vote::Vote;

/// A held lock on its way: its keys, owner, fence and ttl. Another process can put it together from these.
///
/// It is worth what the lease is worth: whoever takes it over must do so before the lease ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handover {
    /// The keys that are locked.
    pub keys: Vec<Vec<u8>>,
    /// The owner that holds them.
    pub owner: Owner,
    /// The fence of the grant.
    pub fence: Fence,
    /// The ttl that the lease is renewed with.
    pub ttl: Ttl,
    /// Whether the lease is tied to a connection. The tie moves to the one who takes over.
    pub session: bool,
}

impl Locker {
    /// Goes on holding what another guard handed over: renews the lease at a majority, and watches over it.
    ///
    /// # Errors
    /// [`Error::Lost`] when a majority says that this owner holds nothing any more, [`Error::NoQuorum`] when too few
    /// nodes answered.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server(|url| async move {
    /// # let locker = redislock_client::Locker::builder().node(&url)?.build()?;
    /// use redislock_client::Handover;
    ///
    /// let handover = locker.lock("k").acquire().await?.hand_over().await?;
    /// // ... its parts travel to another process ...
    /// let Handover { keys, owner, fence, ttl, session } = handover;
    /// let there = Handover { keys, owner, fence, ttl, session };
    /// let guard = locker.take_over(there).await?;
    /// assert!(!guard.is_lost());
    /// # guard.release().await?;
    /// # Ok(()) });
    /// ```
    pub async fn take_over(&self, handover: Handover) -> Result<Guard, Error> {
        let core = &self.core;
        let Handover { keys, owner, fence, ttl, session } = handover;
        if keys.is_empty() {
            return Err(Error::Configuration("a handover names at least one key".into()));
        }
        let terms = Arc::new(Terms { keys, mode: Mode::Exclusive, session });
        let commands = [terms.renew(&owner, ttl, session)];
        let mut round = Round::new(core.quorum, Moment::now());
        let limit = core.surroundings.limit(ttl);
        let ties = Ties::new(core.quorum.nodes());
        let calls = (0..core.quorum.nodes()).map(|node| {
            let (link, commands) = (core.link_for(&terms, node), &commands);
            async move { link.call_tied(commands, limit).await }
        });
        for (node, answer) in futures_util::future::join_all(calls).await.into_iter().enumerate() {
            let vote = match answer {
                Ok((epoch, replies)) => {
                    ties.set(node, epoch);
                    replies.first().map_or(Vote::Denied, renewal_vote)
                }
                Err(error) => Vote::Unreachable(error),
            };
            round.record(node, vote);
        }
        if round.standing() != Standing::Won {
            return Err(match round.is_denied() {
                true => Error::Lost(LossReason::Taken { votes: round.votes() }),
                false => Error::NoQuorum { votes: round.votes() },
            });
        }
        let denied = (0..core.quorum.nodes()).map(|node| round.vote(node) == Some(&Vote::Denied)).collect();
        let watchdog = Watchdog { renews: true, until: round.started.after(MAX_HOLD) };
        let lease = Lease::new(core.quorum, ttl, round.started, denied, watchdog);
        let claim = (terms.keys.clone(), owner.clone());
        core.claim(&claim);
        let holding = Holding::new(core.clone(), terms, owner, fence, false, None, lease);
        Ok(holding.guarded(ties))
    }
}
