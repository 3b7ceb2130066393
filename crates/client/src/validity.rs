//! For how long a grant may be trusted.

use std::time::Duration;

use crate::ttl::Ttl;

/// What is taken off every lease for clocks that run at different rates: a hundredth of the ttl and 2 ms.
///
/// ```
/// use std::time::Duration;
/// use redislock_client::{Ttl, drift};
///
/// let ttl = Ttl::new(Duration::from_secs(10))?;
/// assert_eq!(drift(ttl), Duration::from_millis(102));
/// # Ok::<(), redislock_client::Error>(())
/// ```
pub fn drift(ttl: Ttl) -> Duration {
    ttl.as_duration() / 100 + Duration::from_millis(2)
}

/// What is left of a lease of `ttl` when `spent` has passed since before the first request was sent; `None` when
/// nothing that could be trusted is left.
///
/// ```
/// use std::time::Duration;
/// use redislock_client::{Ttl, validity};
///
/// let ttl = Ttl::new(Duration::from_secs(10))?;
/// assert_eq!(validity(ttl, Duration::from_secs(1)), Some(Duration::from_millis(8898)));
/// assert_eq!(validity(ttl, Duration::from_secs(10)), None);
/// # Ok::<(), redislock_client::Error>(())
/// ```
pub fn validity(ttl: Ttl, spent: Duration) -> Option<Duration> {
    let left = ttl.as_duration().checked_sub(spent)?.checked_sub(drift(ttl))?;
    (!left.is_zero()).then_some(left)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn b61_drift_is_subtracted(millis in 1u64..=1_000_000_000, part in 0.0f64..2.0) {
            let ttl = Ttl::new(Duration::from_millis(millis)).unwrap();
            let spent = ttl.as_duration().mul_f64(part);
            match validity(ttl, spent) {
                Some(left) => prop_assert!(left + spent + drift(ttl) == ttl.as_duration() && !left.is_zero()),
                None => prop_assert!(spent + drift(ttl) >= ttl.as_duration()),
            }
        }

        #[test]
        fn b61_no_arithmetic_wraps(millis in any::<u64>(), spent in any::<u64>()) {
            if let Ok(ttl) = Ttl::new(Duration::from_millis(millis)) {
                let left = validity(ttl, Duration::from_nanos(spent)).unwrap_or_default();
                prop_assert!(left <= ttl.as_duration());
            }
        }
    }

    #[test]
    fn b61_lifetimes_of_one_or_two_milliseconds_are_never_valid() {
        for millis in [1, 2] {
            assert_eq!(validity(Ttl::new(Duration::from_millis(millis)).unwrap(), Duration::ZERO), None);
        }
    }
}
