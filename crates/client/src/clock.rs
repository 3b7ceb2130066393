//! The clock that validity is judged by.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A moment on this machine's boot clock, which goes on counting while the machine is suspended.
///
/// `std::time::Instant` stands still during suspend on Linux, so a laptop that sleeps past its lease would wake
/// up believing that it still holds the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

impl Moment {
    /// The present moment.
    ///
    /// ```
    /// use redislock_client::Moment;
    ///
    /// let earlier = Moment::now();
    /// assert!(Moment::now() >= earlier);
    /// ```
    pub fn now() -> Self {
        let time = clock_gettime(ClockId::Boottime);
        Self(Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0)))
    }

    /// A moment of a simulated clock.
    #[cfg(test)]
    pub(crate) const fn since_boot(duration: Duration) -> Self {
        Self(duration)
    }

    /// How much time has passed since `earlier`; zero when `earlier` is not earlier.
    ///
    /// ```
    /// use redislock_client::Moment;
    ///
    /// let now = Moment::now();
    /// assert!(now.since(now).is_zero());
    /// ```
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// The moment `duration` after this one, or the end of time where that is later than can be told.
    pub(crate) fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}
