//! Durations as the server counts them: whole milliseconds.

use std::fmt;
use std::time::Duration;

use crate::error::Error;

/// The largest number of milliseconds that every client's number type holds.
const MAX_MILLIS: u64 = (1 << 53) - 1;

/// The length of a lease, in whole milliseconds, at least one.
///
/// The server has a bound of its own (`max-ttl`, one day by default) and answers an error beyond it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl(u64);

impl Ttl {
    /// A ttl from a duration, rounded **up** to whole milliseconds, so that a lease is never shorter than asked.
    ///
    /// # Errors
    /// [`Error::Configuration`] for zero, and for more than 2^53 - 1 milliseconds.
    ///
    /// ```
    /// use std::time::Duration;
    /// use redislock_client::Ttl;
    ///
    /// assert_eq!(Ttl::new(Duration::from_nanos(1))?.millis(), 1);
    /// assert_eq!(Ttl::new(Duration::from_micros(1_000_001))?.millis(), 1001);
    /// assert!(Ttl::new(Duration::ZERO).is_err());
    /// # Ok::<(), redislock_client::Error>(())
    /// ```
    pub fn new(duration: Duration) -> Result<Self, Error> {
        match millis_rounded_up(duration) {
            millis @ 1..=MAX_MILLIS => Ok(Self(millis)),
            _ => Err(Error::Configuration(format!(
                "ttl must be between 1 and {MAX_MILLIS} milliseconds, not {duration:?}"
            ))),
        }
    }

    /// The ttl in milliseconds.
    pub const fn millis(self) -> u64 {
        self.0
    }

    /// The ttl as a duration.
    pub const fn as_duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl fmt::Display for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

/// How long a request may wait for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Not at all.
    Try,
    /// At most so long, counted from the call.
    UpTo(Duration),
    /// Until it is granted.
    Unlimited,
}

impl Wait {
    /// A wait of no length is a try; the server's zero, which means without limit, is never made from a duration.
    pub(crate) fn up_to(limit: Duration) -> Self {
        if limit.is_zero() { Self::Try } else { Self::UpTo(limit) }
    }
}

/// `WAIT` for what is left of a wait: at least 1, since the server reads 0 as 'without limit', and no more than
/// the server accepts.
pub(crate) fn wait_millis(left: Duration) -> u64 {
    millis_rounded_up(left).clamp(1, MAX_MILLIS)
}

pub(crate) fn millis_rounded_up(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b10_durations_round_up_and_never_to_zero() {
        for (nanos, millis) in [(1, 1), (999_000, 1), (1_000_000, 1), (1_000_001, 2), (1_500_000_000, 1500)] {
            assert_eq!(Ttl::new(Duration::from_nanos(nanos)).unwrap().millis(), millis);
        }
        assert!(Ttl::new(Duration::ZERO).is_err());
        assert!(Ttl::new(Duration::MAX).is_err());
    }

    #[test]
    fn b12_a_tiny_wait_stays_finite_and_a_huge_one_is_clamped() {
        assert_eq!(wait_millis(Duration::from_micros(500)), 1);
        assert_eq!(wait_millis(Duration::ZERO), 1);
        assert_eq!(wait_millis(Duration::MAX), MAX_MILLIS);
        assert_eq!(Wait::up_to(Duration::ZERO), Wait::Try);
        assert_eq!(Wait::up_to(Duration::from_nanos(1)), Wait::UpTo(Duration::from_nanos(1)));
    }
}
