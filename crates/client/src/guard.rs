//! A lock that is held.

use std::fmt;
use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{Cmd, Value, cmd};
use tokio::time::sleep;

use crate::clock::Moment;
use crate::command::renewal_vote;
use crate::error::{Error, LossReason};
use crate::fence::Fence;
use crate::handover::Handover;
use crate::holding::Holding;
use crate::keeper::apply_vote;
use crate::lease::{Tenure, Verdict};
use crate::owner::Owner;
use crate::release::{Hold, Released};
use crate::ttl::Ttl;
use crate::vote::{Vote, Votes};

/// A server's reply to a command of your own.
pub use redis::Value as Reply;

/// A held lock, or one hold of it.
///
/// **What it guarantees.** While [`is_lost`](Self::is_lost) says no, no other guard for the same lock does, as long as
/// the clocks of the machines concerned run at the same rate to within one percent, and the nodes keep what they
/// acknowledged (or stay away for the longest ttl after a restart that lost some of it). The answer comes from this machine's own clock, which also
/// counts the time that the process or the machine was stopped.
///
/// **What it does not.** Between asking and acting any time may pass. Whatever must never be written by two holders
/// has to check the [`fence`](Self::fence).
///
/// Dropping the guard releases it in the background and never blocks; [`release`](Self::release) also tells what came
/// of it.
#[must_use = "a guard that is dropped releases the lock"]
pub struct Guard {
    hold: Arc<Hold>,
}

impl Guard {
    pub(crate) fn new(holding: Arc<Holding>) -> Self {
        Self { hold: Hold::new(holding) }
    }

    fn holding(&self) -> &Arc<Holding> {
        &self.hold.holding
    }

    /// The fencing token of the grant: higher than that of every earlier grant of this lock.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server(|url| async move {
    /// # let locker = redislock_client::Locker::builder().node(&url)?.build()?;
    /// let first = locker.lock("k").acquire().await?;
    /// let earlier = first.fence();
    /// first.release().await?;
    /// let second = locker.lock("k").acquire().await?;
    /// assert!(second.fence() > earlier);
    /// # second.release().await?;
    /// # Ok(()) });
    /// ```
    pub fn fence(&self) -> Fence {
        self.holding().fence
    }

    /// The owner that holds the lock.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server(|url| async move {
    /// # let locker = redislock_client::Locker::builder().node(&url)?.build()?;
    /// let (one, two) = (locker.lock("x").acquire().await?, locker.lock("y").acquire().await?);
    /// assert_ne!(one.owner(), two.owner());
    /// # one.release().await?;
    /// # two.release().await?;
    /// # Ok(()) });
    /// ```
    pub fn owner(&self) -> &Owner {
        &self.holding().owner
    }

    /// The keys that are locked, one unless several were asked for at once.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server(|url| async move {
    /// # let locker = redislock_client::Locker::builder().node(&url)?.build()?;
    /// let guard = locker.lock("k").acquire().await?;
    /// assert_eq!(guard.keys().collect::<Vec<_>>(), [b"k"]);
    /// # guard.release().await?;
    /// # Ok(()) });
    /// ```
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.holding().terms.keys.iter().map(Vec::as_slice)
    }

    /// How long the lock may still be relied on, by this machine's clock: what is left of the lease, counted from
    /// before it was asked for, less a hundredth of the ttl and 2 ms. Zero once it is lost or released.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server(|url| async move {
    /// # let locker = redislock_client::Locker::builder().node(&url)?.build()?;
    /// use std::time::Duration;
    ///
    /// let guard = locker.lock("k").ttl(Duration::from_secs(10)).acquire().await?;
    /// assert!(guard.validity() <= Duration::from_millis(9898));
    /// # guard.release().await?;
    /// # Ok(()) });
    /// ```
    pub fn validity(&self) -> Duration {
        self.holding().lease().left(Moment::now())
    }

    /// Whether the lock must no longer be relied on. Asks the clock, not a server: it is right even where the watchdog
    /// was kept from running.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server(|url| async move {
    /// # let locker = redislock_client::Locker::builder().node(&url)?.build()?;
    /// use std::time::Duration;
    ///
    /// let ttl = Duration::from_millis(30);
    /// let guard = locker.lock("k").ttl(ttl).without_watchdog().acquire().await?;
    /// assert!(!guard.is_lost());
    /// std::thread::sleep(ttl);
    /// assert!(guard.is_lost());
    /// # Ok(()) });
    /// ```
    pub fn is_lost(&self) -> bool {
        self.loss().is_some()
    }

    /// Why the lock was lost, if it was.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server(|url| async move {
    /// # let locker = redislock_client::Locker::builder().node(&url)?.build()?;
    /// let guard = locker.lock("k").acquire().await?;
    /// assert_eq!(guard.loss(), None);
    /// # guard.release().await?;
    /// # Ok(()) });
    /// ```
    pub fn loss(&self) -> Option<LossReason> {
        self.holding().loss()
    }

    /// Ends when the lock is lost, with the reason; while the server's lease still has the drift allowance to run,
    /// where time ended it. Never ends for a lock that was released.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server(|url| async move {
    /// # let locker = redislock_client::Locker::builder().node(&url)?.build()?;
    /// let guard = locker.lock("k").acquire().await?;
    /// tokio::select! {
    ///     reason = guard.lost() => eprintln!("stop: {reason}"),
    ///     () = async { /* the work */ } => {}
    /// }
    /// # guard.release().await?;
    /// # Ok(()) });
    /// ```
    pub async fn lost(&self) -> LossReason {
        let holding = self.holding();
        let mut changes = holding.changes();
        loop {
            changes.borrow_and_update();
            if let Some(reason) = holding.loss() {
                return reason;
            }
            if *holding.lease().tenure() == Tenure::Released {
                return pending().await;
            }
            tokio::select! {
                _ = changes.changed() => {}
                () = sleep(self.validity()) => {}
            }
        }
    }

    /// Runs work for as long as the lock is held: when it is lost, the work's future is dropped at its next await
    /// point. Whenever the work is to run on, the clock is asked first.
    ///
    /// # Errors
    /// [`Error::Lost`] with the reason.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server(|url| async move {
    /// # let locker = redislock_client::Locker::builder().node(&url)?.build()?;
    /// let guard = locker.lock("k").acquire().await?;
    /// let sum = guard.run(async { 1 + 1 }).await?;
    /// assert_eq!(sum, 2);
    /// # guard.release().await?;
    /// # Ok(()) });
    /// ```
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Error> {
        let (mut lost, mut work) = (pin!(self.lost()), pin!(work));
        poll_fn(|context| {
            if let Some(reason) = self.loss() {
                return Poll::Ready(Err(Error::Lost(reason)));
            }
            if let Poll::Ready(reason) = lost.as_mut().poll(context) {
                return Poll::Ready(Err(Error::Lost(reason)));
            }
            work.as_mut().poll(context).map(Ok)
        })
        .await
    }

    /// Renews the lease by hand, with the ttl that it has: exactly so long from now. Answers with the new validity.
    ///
    /// # Errors
    /// [`Error::Lost`] when the lock is no longer held; it is never won back. [`Error::NoQuorum`] when too few nodes
    /// answered: the lease runs on to its old deadline, and asking again is right.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server(|url| async move {
    /// # let locker = redislock_client::Locker::builder().node(&url)?.build()?;
    /// let guard = locker.lock("k").without_watchdog().acquire().await?;
    /// let validity = guard.renew().await?;
    /// assert!(validity <= guard.validity() + std::time::Duration::from_secs(1));
    /// # guard.release().await?;
    /// # Ok(()) });
    /// ```
    pub async fn renew(&self) -> Result<Duration, Error> {
        self.renew_with(None).await
    }

    /// Renews the lease with another ttl, which the watchdog then keeps to. A shorter one shortens the lease.
    ///
    /// # Errors
    /// As [`renew`](Self::renew); [`Error::Configuration`] for a ttl out of range.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server(|url| async move {
    /// # let locker = redislock_client::Locker::builder().node(&url)?.build()?;
    /// use std::time::Duration;
    ///
    /// let guard = locker.lock("k").ttl(Duration::from_secs(60)).acquire().await?;
    /// guard.renew_for(Duration::from_secs(5)).await?;
    /// assert!(guard.validity() < Duration::from_secs(5));
    /// # guard.release().await?;
    /// # Ok(()) });
    /// ```
    pub async fn renew_for(&self, ttl: Duration) -> Result<Duration, Error> {
        self.renew_with(Some(Ttl::new(ttl)?)).await
    }

    async fn renew_with(&self, ttl: Option<Ttl>) -> Result<Duration, Error> {
        let holding = self.holding();
        if let Some(reason) = holding.loss() {
            return Err(Error::Lost(reason));
        }
        let (id, ttl, nodes) = {
            let mut lease = holding.lease();
            if *lease.tenure() == Tenure::Released {
                return Err(Error::Configuration("this lock has been released".into()));
            }
            let (id, ttl) = lease.begin_renewal(Moment::now(), ttl);
            (id, ttl, lease.standing_nodes().collect::<Vec<_>>())
        };
        holding.core.keeper.watch(holding.clone());
        // A release from another task may come before it; then nothing is sent.
        let command = || {
            let held = holding.lease().is_held();
            held.then(|| holding.terms.renew(&holding.owner, ttl, false)).into_iter().collect::<Vec<_>>()
        };
        let limit = holding.core.surroundings.limit(ttl);
        let calls = nodes.into_iter().map(|node| {
            let link = &holding.core.links[node];
            async move { (node, link.call_with(command, limit).await) }
        });
        let mut calls: FuturesUnordered<_> = calls.collect();
        let mut votes = vec![None; holding.core.quorum.nodes()];
        while let Some((node, answer)) = calls.next().await {
            let vote = match answer {
                Ok(replies) => replies.first().map_or(Vote::Denied, renewal_vote),
                Err(error) => Vote::Unreachable(error),
            };
            votes[node] = Some(vote.clone());
            match apply_vote(holding, id, node, vote) {
                Verdict::Open => {}
                Verdict::Renewed => {
                    holding.core.keeper.watch(holding.clone());
                    return Ok(self.validity());
                }
                Verdict::Failed => break,
                Verdict::Lost(reason) => return Err(Error::Lost(reason)),
            }
        }
        match holding.loss() {
            Some(reason) => Err(Error::Lost(reason)),
            None => Err(Error::NoQuorum { votes: Votes(votes) }),
        }
    }

    /// Runs a command on the server if, at that instant, this owner still holds the lock, and answers with its reply: a
    /// holder that was paused or cut off cannot write what the server holds. Redis 7.0 and later; one node, one key.
    ///
    /// # Errors
    /// [`Error::Lost`] when the lock is not held: nothing ran. [`Error::Rejected`] when the server refuses the command,
    /// [`Error::NoQuorum`] when it was not answered: then it may have run. [`Error::Configuration`] with several nodes
    /// or keys, where no single instant exists.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server(|url| async move {
    /// # let locker = redislock_client::Locker::builder().node(&url)?.build()?;
    /// let guard = locker.lock("stock:7:lock").acquire().await?;
    /// let left = guard.guarded(["DECR", "stock:7"]).await?;
    /// assert_eq!(left, redislock_client::Reply::Int(-1));
    /// # guard.release().await?;
    /// # Ok(()) });
    /// ```
    pub async fn guarded<A: AsRef<[u8]>>(
        &self,
        command: impl IntoIterator<Item = A>,
    ) -> Result<Reply, Error> {
        self.guarded_replies(&[self.guarded_command(command)?]).await?.pop().unwrap_or(Ok(Value::Nil))
    }

    /// As [`guarded`](Self::guarded) for several commands, sent in one piece: one round trip for all of them. Each is
    /// checked by itself, at the instant in which it runs. Answers with a reply for each; one that the server refuses
    /// for what it is ([`Error::Rejected`]) keeps the others from nothing.
    ///
    /// # Errors
    /// [`Error::Lost`] when the lock is not held: none of them ran. [`Error::LostMidway`] when the lease ended between
    /// two of them: it tells how many ran. What must be written as a whole is one command, such as `MSET`.
    /// [`Error::NoQuorum`] when they were not answered: then they may have run. [`Error::Configuration`] with several
    /// nodes or keys.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server(|url| async move {
    /// # let locker = redislock_client::Locker::builder().node(&url)?.build()?;
    /// use redislock_client::{Error, Reply};
    ///
    /// let guard = locker.lock("stock:7:lock").acquire().await?;
    /// let writes = [vec!["DECRBY", "stock:7", "2"], vec!["RPUSH", "orders:7", "alice"]];
    /// let replies = guard.guarded_all(&writes).await?;
    /// assert_eq!(replies, [Ok(Reply::Int(-2)), Ok(Reply::Int(1))]);
    ///
    /// // Once the lock is gone, nothing of it runs.
    /// locker.break_lock("stock:7:lock", None, None).await?;
    /// assert!(matches!(guard.guarded_all(&writes).await, Err(Error::Lost(_))));
    /// # Ok(()) });
    /// ```
    pub async fn guarded_all<C, A>(
        &self,
        commands: impl IntoIterator<Item = C>,
    ) -> Result<Vec<Result<Reply, Error>>, Error>
    where
        C: IntoIterator<Item = A>,
        A: AsRef<[u8]>,
    {
        let commands: Vec<_> =
            commands.into_iter().map(|command| self.guarded_command(command)).collect::<Result<_, _>>()?;
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        self.guarded_replies(&commands).await
    }

    fn guarded_command<A: AsRef<[u8]>>(&self, command: impl IntoIterator<Item = A>) -> Result<Cmd, Error> {
        let holding = self.holding();
        let ([key], [_]) = (&holding.terms.keys[..], &holding.core.links[..]) else {
            return Err(Error::Configuration("a guarded command needs one node and one key".into()));
        };
        let mut guarded = cmd("LOCK.GUARD").arg(key).arg(holding.owner.as_bytes()).take();
        for part in command {
            guarded.arg(part.as_ref());
        }
        Ok(guarded)
    }

    /// Sends guarded commands to the only node. The lock is lost with the first that was not run for want of it.
    async fn guarded_replies(&self, commands: &[Cmd]) -> Result<Vec<Result<Reply, Error>>, Error> {
        let holding = self.holding();
        if let Some(reason) = holding.loss() {
            return Err(Error::Lost(reason));
        }
        let limit = holding.core.surroundings.node_timeout;
        let replies = holding.core.links[0].call(commands, limit).await;
        let replies = replies
            .map_err(|error| Error::NoQuorum { votes: Votes(vec![Some(Vote::Unreachable(error))]) })?;
        if let Some(ran) = replies.iter().position(was_not_held) {
            let reason = LossReason::Taken { votes: Votes(vec![Some(Vote::Denied)]) };
            holding.lose(reason.clone());
            return Err(match ran {
                0 => Error::Lost(reason),
                ran => Error::LostMidway { ran, reason },
            });
        }
        Ok(replies.into_iter().map(rejected_as_error).collect())
    }

    /// Gives the lock back, and tells what came of it. The watchdog stops at once. The release is sent to every node,
    /// answered with the quorum, and goes on in the background where a node does not answer, even if this future is
    /// dropped. Calling it again waits for the same outcome, and after an error tries again, which is harmless: it can
    /// only ever end this owner's hold.
    ///
    /// # Errors
    /// [`Error::NoQuorum`] when too few nodes answered. The lock then ends by its ttl at the latest.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server(|url| async move {
    /// # let locker = redislock_client::Locker::builder().node(&url)?.build()?;
    /// use redislock_client::Released;
    ///
    /// let guard = locker.lock("k").acquire().await?;
    /// assert_eq!(guard.release().await?, Released::Freed);
    /// # Ok(()) });
    /// ```
    pub async fn release(&self) -> Result<Released, Error> {
        self.hold.start();
        self.hold.outcome().await
    }

    /// Makes a handover of the guard: what another task, or another process, needs to go on holding the lock with
    /// [`Locker::take_over`](crate::Locker::take_over). Nothing renews the lease meanwhile, and this guard is spent: it
    /// neither renews nor releases any more.
    ///
    /// # Errors
    /// [`Error::Lost`] when there is nothing to hand over any more; [`Error::Configuration`] when other holds of the
    /// same owner stand here.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server(|url| async move {
    /// # let locker = redislock_client::Locker::builder().node(&url)?.build()?;
    /// let guard = locker.lock("k").acquire().await?;
    /// let fence = guard.fence();
    /// let handover = guard.hand_over().await?;
    /// let guard = locker.take_over(handover).await?;
    /// assert_eq!(guard.fence(), fence);
    /// # guard.release().await?;
    /// # Ok(()) });
    /// ```
    pub async fn hand_over(&self) -> Result<Handover, Error> {
        let holding = self.holding();
        let holds = holding.holds.lock().await;
        if *holds != 1 {
            return Err(Error::Configuration(format!(
                "{holds} holds of this owner stand, only one can be handed over"
            )));
        }
        if let Some(reason) = holding.loss() {
            return Err(Error::Lost(reason));
        }
        let ttl = {
            let mut lease = holding.lease();
            lease.release();
            lease.ttl()
        };
        holding.core.keeper.watch(holding.clone());
        holding.end_claim();
        self.hold.moved();
        Ok(Handover {
            keys: holding.terms.keys.clone(),
            owner: holding.owner.clone(),
            fence: holding.fence,
            ttl,
            session: holding.terms.session,
        })
    }
}

fn was_not_held(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if error.code() == "NOTHELD")
}

fn rejected_as_error(reply: Value) -> Result<Reply, Error> {
    match reply {
        Value::ServerError(error) => {
            let message = format!("{} {}", error.code(), error.details().unwrap_or_default());
            Err(Error::Rejected { node: 0, message })
        }
        reply => Ok(reply),
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.hold.start();
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("key", &self.holding().terms.name())
            .field("owner", self.owner())
            .field("fence", &self.fence())
            .field("validity", &self.validity())
            .finish()
    }
}
