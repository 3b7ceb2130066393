//! The same locks for programs without async.
//!
//! A [`Locker`] has a thread of its own, on which watchdogs run. Its calls block the thread that makes them, and must
//! not be made from async code.
//!
//! ```
//! # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server_blocking(|url| {
//! use std::time::Duration;
//! use redislock_client::blocking::Locker;
//!
//! let locker = Locker::new(redislock_client::Locker::builder().node(&url)?)?;
//! let request = locker.lock("orders:42").ttl(Duration::from_secs(10));
//! let guard = locker.acquire_within(&request, Duration::from_secs(5))?;
//! println!("held with fence {}", guard.fence());
//! guard.release()?;
//! # Ok(()) });
//! ```

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::{Error, Handover, LockRequest, LockerBuilder, LossReason, Released};

/// How long the last handle waits for releases that are under way.
const DRAIN: Duration = Duration::from_secs(2);

/// A [`Locker`](crate::Locker) whose calls block. Clones are handles to the same one; when the last handle and the last
/// guard are dropped, releases that are under way are waited for, at most two seconds.
#[derive(Clone, Debug)]
pub struct Locker {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    locker: crate::Locker,
    runtime: Runtime,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = self.runtime.block_on(async { timeout(DRAIN, self.locker.drain()).await });
    }
}

impl Locker {
    /// Makes a locker from settings.
    ///
    /// # Errors
    /// [`Error::Configuration`] as [`LockerBuilder::build`] has it, and when no thread can be started.
    ///
    /// ```
    /// use redislock_client::blocking::Locker;
    ///
    /// assert!(Locker::new(redislock_client::Locker::builder()).is_err(), "a locker needs a node");
    /// ```
    pub fn new(settings: LockerBuilder) -> Result<Self, Error> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("redislock")
            .enable_all()
            .build()
            .map_err(|error| Error::Configuration(format!("no thread can be started: {error}")))?;
        let locker = {
            let _here = runtime.enter();
            settings.build()?
        };
        Ok(Self { shared: Arc::new(Shared { locker, runtime }) })
    }

    /// A request for the lock that `key` names, to be given to one of the calls below.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server_blocking(|url| {
    /// # let locker = redislock_client::blocking::Locker::new(redislock_client::Locker::builder().node(&url)?)?;
    /// let reader = locker.lock("report").shared();
    /// let guard = locker.acquire(&reader)?;
    /// # guard.release()?;
    /// # Ok(()) });
    /// ```
    pub fn lock(&self, key: impl AsRef<[u8]>) -> LockRequest {
        self.shared.locker.lock(key)
    }

    /// A request for several locks at once, as [`crate::Locker::lock_all`].
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server_blocking(|url| {
    /// # let locker = redislock_client::blocking::Locker::new(redislock_client::Locker::builder().node(&url)?)?;
    /// let guard = locker.acquire(&locker.lock_all(["from", "to"]))?;
    /// # guard.release()?;
    /// # Ok(()) });
    /// ```
    pub fn lock_all<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> LockRequest {
        self.shared.locker.lock_all(keys)
    }

    /// Takes the lock if it can be had now.
    ///
    /// # Errors
    /// As [`LockRequest::try_acquire`].
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server_blocking(|url| {
    /// # let locker = redislock_client::blocking::Locker::new(redislock_client::Locker::builder().node(&url)?)?;
    /// let guard = locker.try_acquire(&locker.lock("k"))?;
    /// assert!(locker.try_acquire(&locker.lock("k")).is_err());
    /// # Ok(()) });
    /// ```
    pub fn try_acquire(&self, request: &LockRequest) -> Result<Guard, Error> {
        self.guard(request.try_acquire())
    }

    /// Takes the lock, waiting for it without limit.
    ///
    /// # Errors
    /// As [`LockRequest::acquire`].
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server_blocking(|url| {
    /// # let locker = redislock_client::blocking::Locker::new(redislock_client::Locker::builder().node(&url)?)?;
    /// let guard = locker.acquire(&locker.lock("k"))?;
    /// assert!(!guard.is_lost());
    /// # Ok(()) });
    /// ```
    pub fn acquire(&self, request: &LockRequest) -> Result<Guard, Error> {
        self.guard(request.acquire())
    }

    /// Takes the lock, waiting for it at most so long.
    ///
    /// # Errors
    /// As [`LockRequest::acquire_within`].
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server_blocking(|url| {
    /// # let locker = redislock_client::blocking::Locker::new(redislock_client::Locker::builder().node(&url)?)?;
    /// use std::time::Duration;
    ///
    /// let guard = locker.acquire_within(&locker.lock("k"), Duration::from_secs(1))?;
    /// # Ok(()) });
    /// ```
    pub fn acquire_within(&self, request: &LockRequest, limit: Duration) -> Result<Guard, Error> {
        self.guard(request.acquire_within(limit))
    }

    /// Goes on holding what another guard handed over.
    ///
    /// # Errors
    /// As [`crate::Locker::take_over`].
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server_blocking(|url| {
    /// # let locker = redislock_client::blocking::Locker::new(redislock_client::Locker::builder().node(&url)?)?;
    /// let handover = locker.acquire(&locker.lock("k"))?.hand_over()?;
    /// let guard = locker.take_over(handover)?;
    /// # Ok(()) });
    /// ```
    pub fn take_over(&self, handover: Handover) -> Result<Guard, Error> {
        self.guard(self.shared.locker.take_over(handover))
    }

    fn guard(&self, taken: impl Future<Output = Result<crate::Guard, Error>>) -> Result<Guard, Error> {
        let guard = self.shared.runtime.block_on(taken)?;
        Ok(Guard { guard, shared: self.shared.clone() })
    }
}

/// A held lock. What asks the clock only ([`fence`](crate::Guard::fence), [`validity`](crate::Guard::validity),
/// [`is_lost`](crate::Guard::is_lost) and the like) is that of [`crate::Guard`].
#[derive(Debug)]
#[must_use = "a guard that is dropped releases the lock"]
pub struct Guard {
    guard: crate::Guard,
    shared: Arc<Shared>,
}

impl Guard {
    /// Waits until the lock is lost, at most so long; `None` when it still stands then.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server_blocking(|url| {
    /// # let locker = redislock_client::blocking::Locker::new(redislock_client::Locker::builder().node(&url)?)?;
    /// use std::time::Duration;
    ///
    /// let guard = locker.acquire(&locker.lock("k"))?;
    /// assert_eq!(guard.lost_within(Duration::from_millis(10)), None);
    /// # Ok(()) });
    /// ```
    pub fn lost_within(&self, limit: Duration) -> Option<LossReason> {
        self.shared.runtime.block_on(async { timeout(limit, self.guard.lost()).await.ok() })
    }

    /// Renews the lease by hand; as [`crate::Guard::renew`].
    ///
    /// # Errors
    /// As [`crate::Guard::renew`].
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server_blocking(|url| {
    /// # let locker = redislock_client::blocking::Locker::new(redislock_client::Locker::builder().node(&url)?)?;
    /// let guard = locker.acquire(&locker.lock("k").without_watchdog())?;
    /// assert!(!guard.renew()?.is_zero());
    /// # Ok(()) });
    /// ```
    pub fn renew(&self) -> Result<Duration, Error> {
        self.shared.runtime.block_on(self.guard.renew())
    }

    /// Renews the lease with another ttl; as [`crate::Guard::renew_for`].
    ///
    /// # Errors
    /// As [`crate::Guard::renew_for`].
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server_blocking(|url| {
    /// # let locker = redislock_client::blocking::Locker::new(redislock_client::Locker::builder().node(&url)?)?;
    /// use std::time::Duration;
    ///
    /// let guard = locker.acquire(&locker.lock("k"))?;
    /// assert!(guard.renew_for(Duration::from_secs(5))? < Duration::from_secs(5));
    /// # Ok(()) });
    /// ```
    pub fn renew_for(&self, ttl: Duration) -> Result<Duration, Error> {
        self.shared.runtime.block_on(self.guard.renew_for(ttl))
    }

    /// Gives the lock back, and tells what came of it; as [`crate::Guard::release`].
    ///
    /// # Errors
    /// As [`crate::Guard::release`].
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server_blocking(|url| {
    /// # let locker = redislock_client::blocking::Locker::new(redislock_client::Locker::builder().node(&url)?)?;
    /// use redislock_client::Released;
    ///
    /// assert_eq!(locker.acquire(&locker.lock("k"))?.release()?, Released::Freed);
    /// # Ok(()) });
    /// ```
    pub fn release(&self) -> Result<Released, Error> {
        self.shared.runtime.block_on(self.guard.release())
    }

    /// Makes a handover of the guard; as [`crate::Guard::hand_over`].
    ///
    /// # Errors
    /// As [`crate::Guard::hand_over`].
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server_blocking(|url| {
    /// # let locker = redislock_client::blocking::Locker::new(redislock_client::Locker::builder().node(&url)?)?;
    /// let handover = locker.acquire(&locker.lock("k"))?.hand_over()?;
    /// assert_eq!(handover.keys, [b"k"]);
    /// # Ok(()) });
    /// ```
    pub fn hand_over(&self) -> Result<Handover, Error> {
        self.shared.runtime.block_on(self.guard.hand_over())
    }
}

impl Deref for Guard {
    type Target = crate::Guard;

    fn deref(&self) -> &crate::Guard {
        &self.guard
    }
}
