//! What is asked for.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tracing::{Instrument, debug_span};

use crate::attempt::{Prize, Replicas, Wish, acquire};
use crate::clock::Moment;
use crate::command::{Mode, Terms};
use crate::error::Error;
use crate::guard::Guard;
use crate::holding::Holding;
use crate::lease::{Lease, Watchdog};
use crate::locker::Locker;
use crate::owner::Owner;
use crate::ttl::{Ttl, Wait};
use crate::validity::validity;

/// The longest that a watchdog holds on where no other maximum is set: the longest lease that a server grants by
/// default. A guard that was leaked, or whose task hangs, gives the lock up then.
pub(crate) const MAX_HOLD: Duration = Duration::from_secs(24 * 60 * 60);

/// A request for a lock: how, for how long, and for whom. It does nothing until [`try_acquire`](Self::try_acquire),
/// [`acquire`](Self::acquire) or [`acquire_within`](Self::acquire_within) is awaited, and can be used again.
///
/// Dropping the future of an acquisition withdraws it: whatever was granted, or is granted late, is released in the
/// background.
#[derive(Clone)]
#[must_use = "a request does nothing until it is told to acquire"]
pub struct LockRequest {
    locker: Locker,
    keys: Vec<Vec<u8>>,
    mode: Mode,
    session: bool,
    ttl: Duration,
    owner: Option<Owner>,
    reentrant: bool,
    watchdog: bool,
    max_hold: Duration,
    replicas: Option<Replicas>,
}

impl LockRequest {
    pub(crate) fn new(locker: Locker, keys: Vec<Vec<u8>>) -> Self {
        Self {
            ttl: locker.core.default_ttl,
            locker,
            keys,
            mode: Mode::Exclusive,
            session: false,
            owner: None,
            reentrant: false,
            watchdog: true,
            max_hold: MAX_HOLD,
            replicas: None,
        }
    }

    /// The length of the lease; the locker's default where not set. With the watchdog on this is not how long the lock
    /// can be held, but how long it stays locked after its holder died.
    ///
    /// Durations are rounded up to whole milliseconds.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server(|url| async move {
    /// # let locker = redislock_client::Locker::builder().node(&url)?.build()?;
    /// use std::time::Duration;
    ///
    /// let guard = locker.lock("k").ttl(Duration::from_secs(2)).try_acquire().await?;
    /// assert!(guard.validity() < Duration::from_secs(2));
    /// # guard.release().await?;
    /// # Ok(()) });
    /// ```
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// The owner to hold it for, instead of one that is made for each acquisition. All locks of one task may have the
    /// same owner; two tasks must not.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server(|url| async move {
    /// # let locker = redislock_client::Locker::builder().node(&url)?.build()?;
    /// use redislock_client::{Error, Owner};
    ///
    /// let task = Owner::random();
    /// let guard = locker.lock("k").owner(&task).try_acquire().await?;
    /// // The same owner again is told so, and gets no second guard.
    /// let again = locker.lock("k").owner(&task).try_acquire().await;
    /// assert_eq!(again.unwrap_err(), Error::Held { fence: guard.fence() });
    /// # guard.release().await?;
    /// # Ok(()) });
    /// ```
    pub fn owner(mut self, owner: &Owner) -> Self {
        self.owner = Some(owner.clone());
        self
    }

    /// Lets the owner take the lock again while it holds it. Each guard is one hold, and the lock is free when the last
    /// one is released. Needs an [`owner`](Self::owner); holds are counted in this locker.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server(|url| async move {
    /// # let locker = redislock_client::Locker::builder().node(&url)?.build()?;
    /// use redislock_client::{Owner, Released};
    ///
    /// let request = locker.lock("k").owner(&Owner::random()).reentrant();
    /// let outer = request.try_acquire().await?;
    /// let inner = request.try_acquire().await?;
    /// assert_eq!(inner.fence(), outer.fence());
    /// assert_eq!(inner.release().await?, Released::Nested(1));
    /// assert_eq!(outer.release().await?, Released::Freed);
    /// # Ok(()) });
    /// ```
    pub fn reentrant(mut self) -> Self {
        self.reentrant = true;
        self
    }

    /// Stands together with other shared holders, but with no exclusive one.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server(|url| async move {
    /// # let locker = redislock_client::Locker::builder().node(&url)?.build()?;
    /// let one = locker.lock("k").shared().try_acquire().await?;
    /// let two = locker.lock("k").shared().try_acquire().await?;
    /// assert!(locker.lock("k").try_acquire().await.is_err());
    /// # one.release().await?;
    /// # two.release().await?;
    /// # Ok(()) });
    /// ```
    pub fn shared(mut self) -> Self {
        self.mode = Mode::Shared;
        self
    }

    /// Stands together with other holders as long as they are no more than `places`, this one included: a semaphore.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server(|url| async move {
    /// # let locker = redislock_client::Locker::builder().node(&url)?.build()?;
    /// let one = locker.lock("k").limit(2).try_acquire().await?;
    /// let two = locker.lock("k").limit(2).try_acquire().await?;
    /// assert!(locker.lock("k").limit(2).try_acquire().await.is_err());
    /// # one.release().await?;
    /// # two.release().await?;
    /// # Ok(()) });
    /// ```
    pub fn limit(mut self, places: u32) -> Self {
        self.mode = Mode::Limited(places);
        self
    }

    /// Ties the lease to a connection of this locker as well: it ends the moment that connection closes, as when this
    /// process dies. The price is that a broken link loses the lock at once, too.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server(|url| async move {
    /// # let locker = redislock_client::Locker::builder().node(&url)?.build()?;
    /// let guard = locker.lock("k").session().try_acquire().await?;
    /// assert!(!guard.is_lost());
    /// # guard.release().await?;
    /// # Ok(()) });
    /// ```
    pub fn session(mut self) -> Self {
        self.session = true;
        self
    }

    /// Leaves renewing to you: without the watchdog the lock ends by its ttl, unless [`Guard::renew`] is called.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server(|url| async move {
    /// # let locker = redislock_client::Locker::builder().node(&url)?.build()?;
    /// use std::time::Duration;
    /// use redislock_client::LossReason;
    ///
    /// let ttl = Duration::from_millis(50);
    /// let guard = locker.lock("k").ttl(ttl).without_watchdog().try_acquire().await?;
    /// assert_eq!(guard.lost().await, LossReason::Lapsed);
    /// # Ok(()) });
    /// ```
    pub fn without_watchdog(mut self) -> Self {
        self.watchdog = false;
        self
    }

    /// The longest that the lock is held, whatever the watchdog does; 24 hours where not set. At its end the guard is
    /// lost with [`LossReason::MaxHold`](crate::LossReason::MaxHold), and the lock is free within one ttl.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server(|url| async move {
    /// # let locker = redislock_client::Locker::builder().node(&url)?.build()?;
    /// use std::time::Duration;
    /// use redislock_client::LossReason;
    ///
    /// let request = locker.lock("k").ttl(Duration::from_millis(300));
    /// let guard = request.max_hold(Duration::from_millis(500)).try_acquire().await?;
    /// assert_eq!(guard.lost().await, LossReason::MaxHold);
    /// # Ok(()) });
    /// ```
    pub fn max_hold(mut self, longest: Duration) -> Self {
        self.max_hold = longest;
        self
    }

    /// Counts a node's grant only when so many of its replicas have it within this time. Too few: it is released, and
    /// the error's votes say so. This narrows the window in which a failover loses the lock; it does not close it,
    /// since a replica that has not acknowledged may be the one that is promoted.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server(|url| async move {
    /// # let locker = redislock_client::Locker::builder().node(&url)?.build()?;
    /// use std::time::Duration;
    /// use redislock_client::Error;
    ///
    /// // This server has no replica.
    /// let request = locker.lock("k").acknowledged_by(1, Duration::from_millis(20));
    /// assert!(matches!(request.try_acquire().await, Err(Error::NoQuorum { .. })));
    /// # Ok(()) });
    /// ```
    pub fn acknowledged_by(mut self, replicas: usize, within: Duration) -> Self {
        self.replicas = Some(Replicas { count: replicas, within });
        self
    }

    /// Takes the lock if it can be had now. One round trip to the quorum.
    ///
    /// # Errors
    /// [`Error::Refused`] when somebody else holds it, [`Error::NoQuorum`] when too few nodes answer within the node
    /// timeout, [`Error::TooSlow`] when nothing of the lease is left, [`Error::Held`] when the given owner holds it,
    /// [`Error::Rejected`] and [`Error::Configuration`] when the request is wrong. After any of them nothing is held,
    /// and what a node may have granted is released in the background.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server(|url| async move {
    /// # let locker = redislock_client::Locker::builder().node(&url)?.build()?;
    /// use redislock_client::Error;
    ///
    /// let guard = locker.lock("k").try_acquire().await?;
    /// assert!(matches!(locker.lock("k").try_acquire().await, Err(Error::Refused { .. })));
    /// # guard.release().await?;
    /// # Ok(()) });
    /// ```
    pub async fn try_acquire(&self) -> Result<Guard, Error> {
        self.acquire_with(Wait::Try).await
    }

    /// Takes the lock, waiting for it without limit: in the queue of the first node that can be reached, first come,
    /// first served, without polling. While no quorum can be reached it goes on trying.
    ///
    /// # Errors
    /// As [`acquire_within`](Self::acquire_within), but never [`Error::TimedOut`] or [`Error::NoQuorum`].
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server(|url| async move {
    /// # let locker = redislock_client::Locker::builder().node(&url)?.build()?;
    /// let guard = locker.lock("k").acquire().await?;
    /// # guard.release().await?;
    /// # Ok(()) });
    /// ```
    pub async fn acquire(&self) -> Result<Guard, Error> {
        self.acquire_with(Wait::Unlimited).await
    }

    /// Takes the lock, waiting for it at most so long. A limit of zero is a try.
    ///
    /// # Errors
    /// [`Error::TimedOut`] when it was not granted in time, [`Error::NoQuorum`] when too few nodes could be reached
    /// all the while, [`Error::Deadlock`] when waiting would close a circle of owners, and what
    /// [`try_acquire`](Self::try_acquire) lists. After any of them nothing is held.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server(|url| async move {
    /// # let locker = redislock_client::Locker::builder().node(&url)?.build()?;
    /// use std::time::Duration;
    /// use redislock_client::Error;
    ///
    /// let guard = locker.lock("k").acquire().await?;
    /// let late = locker.lock("k").acquire_within(Duration::from_millis(20)).await;
    /// assert!(matches!(late, Err(Error::TimedOut { .. })));
    /// # guard.release().await?;
    /// # Ok(()) });
    /// ```
    pub async fn acquire_within(&self, limit: Duration) -> Result<Guard, Error> {
        self.acquire_with(Wait::up_to(limit)).await
    }

    async fn acquire_with(&self, wait: Wait) -> Result<Guard, Error> {
        let terms = Arc::new(self.terms()?);
        let ttl = Ttl::new(self.ttl)?;
        // A ttl within the drift allowance can never be valid, however fast the nodes are.
        if validity(ttl, Duration::ZERO).is_none() {
            return Err(Error::TooSlow { ttl, spent: Duration::ZERO });
        }
        let name = terms.name();
        let span = debug_span!("redislock.acquire", key = name, ttl = %ttl);
        let began = Moment::now();
        let outcome = async {
            if self.reentrant {
                self.reenter(terms, ttl, wait).await
            } else {
                self.take(terms, ttl, wait, None).await
            }
        };
        let outcome = outcome.instrument(span).await;
        let label = outcome_label(&outcome);
        metrics::counter!("redislock_acquisitions_total", "outcome" => label).increment(1);
        let spent = Moment::now().since(began).as_secs_f64();
        metrics::histogram!("redislock_acquire_seconds", "outcome" => label).record(spent);
        outcome
    }

    fn terms(&self) -> Result<Terms, Error> {
        let wrong = |what: &str| Err(Error::Configuration(what.into()));
        if matches!(self.mode, Mode::Limited(0)) {
            return wrong("a limit must be at least 1");
        }
        if self.keys.is_empty() {
            return wrong("a request names at least one key");
        }
        if self.keys.len() > 1 && (self.reentrant || self.mode != Mode::Exclusive) {
            return wrong("several keys at once are taken exclusively and are not reentrant");
        }
        if self.reentrant && self.owner.is_none() {
            return wrong("a reentrant request needs an owner");
        }
        Ok(Terms { keys: self.keys.clone(), mode: self.mode, session: self.session })
    }

    fn wish(&self, terms: Arc<Terms>, ttl: Ttl, wait: Wait, nth: Option<u32>) -> Wish {
        Wish { terms, ttl, wait, owner: self.owner.clone(), nth, replicas: self.replicas }
    }

    async fn take(&self, terms: Arc<Terms>, ttl: Ttl, wait: Wait, nth: Option<u32>) -> Result<Guard, Error> {
        let core = &self.locker.core;
        let prize = acquire(core, self.wish(terms.clone(), ttl, wait, nth)).await?;
        Ok(self.guard(terms, ttl, prize))
    }

    /// Adds a hold to what the owner has here, or takes the first one.
    async fn reenter(&self, terms: Arc<Terms>, ttl: Ttl, wait: Wait) -> Result<Guard, Error> {
        let core = &self.locker.core;
        let claim = self.owner.clone().map(|owner| (terms.keys.clone(), owner));
        let standing = claim.as_ref().and_then(|claim| core.holding(claim));
        let Some(holding) = standing.filter(|holding| holding.loss().is_none()) else {
            return self.take(terms, ttl, wait, Some(1)).await;
        };
        let mut holds = holding.holds.lock().await;
        if *holds == 0 {
            drop(holds);
            return self.take(terms, ttl, wait, Some(1)).await;
        }
        let prize = acquire(core, self.wish(terms, ttl, wait, Some(*holds + 1))).await?;
        core.give_up_claim(&holding.claim());
        *holds += 1;
        holding.lease().reentered(ttl, prize.won.started);
        core.keeper.watch(holding.clone());
        drop(holds);
        Ok(Guard::new(holding))
    }

    fn guard(&self, terms: Arc<Terms>, ttl: Ttl, prize: Prize) -> Guard {
        let core = &self.locker.core;
        let Prize { won, owner, ties } = prize;
        let watchdog = Watchdog { renews: self.watchdog, until: won.started.after(self.max_hold) };
        let lease = Lease::new(core.quorum, ttl, won.started, won.denied, watchdog);
        let first_asked = Some(won.started);
        let holding = Holding::new(core.clone(), terms, owner, won.fence, self.reentrant, first_asked, lease);
        holding.guarded(ties)
    }
}

impl fmt::Debug for LockRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<_> = self.keys.iter().map(|key| key.escape_ascii().to_string()).collect();
        f.debug_struct("LockRequest").field("keys", &keys).field("ttl", &self.ttl).finish_non_exhaustive()
    }
}

fn outcome_label(outcome: &Result<Guard, Error>) -> &'static str {
    match outcome {
        Ok(_) => "granted",
        Err(Error::Refused { .. }) => "refused",
        Err(Error::TimedOut { .. }) => "timed_out",
        Err(Error::NoQuorum { .. }) => "no_quorum",
        Err(Error::TooSlow { .. }) => "too_slow",
        Err(Error::Deadlock(_)) => "deadlock",
        Err(_) => "error",
    }
}
