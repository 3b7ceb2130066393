//! Time as the core sees it: points on a steady clock that the caller reads, and lengths between them.

use core::num::NonZeroU64;

/// A point on the server's steady clock, in milliseconds. It never goes back, and it counts suspend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Millis(pub u64);

impl Millis {
    /// The point `ttl` later. It stops at the end of the number range, which no accepted `ttl` reaches.
    #[must_use]
    pub fn after(self, ttl: Ttl) -> Self {
        Self(self.0.saturating_add(ttl.get()))
    }

    /// How many milliseconds it is from `earlier` to here; 0 when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// The length of a lease, in milliseconds: never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ttl(NonZeroU64);

impl Ttl {
    /// A length of `millis` milliseconds; `None` for zero, since an endless or an ended lease can't be asked for.
    #[must_use]
    pub fn new(millis: u64) -> Option<Self> {
        NonZeroU64::new(millis).map(Self)
    }

    /// The length in milliseconds.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

/// The moment at which a request is decided, read once by the caller.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// The steady clock: leases and waits run on it.
    pub at: Millis,
    /// Wall time in microseconds since 1970: fences start from it.
    pub wall_micros: u64,
}

/// What must be added to the steady clock to get wall time at this moment. Records carry wall time, so that another
/// server, or this one after a restart, can make its own steady time of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offset(pub i64);

impl Offset {
    /// Wall time, in milliseconds since 1970, of a point on the steady clock.
    #[must_use]
    pub fn to_wall(self, at: Millis) -> u64 {
        at.0.saturating_add_signed(self.0)
    }

    /// The point on the steady clock of a wall time.
    #[must_use]
    pub fn to_steady(self, wall: u64) -> Millis {
        Millis(wall.saturating_add_signed(self.0.saturating_neg()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_length_is_never_zero_and_a_point_never_wraps() {
        assert_eq!(Ttl::new(0), None);
        let longest = Ttl::new(u64::MAX).unwrap();
        assert_eq!(longest.get(), u64::MAX);
        assert_eq!(Millis(5).after(longest), Millis(u64::MAX));
        assert_eq!(Millis(5).since(Millis(7)), 0);
        assert_eq!(Millis(7).since(Millis(5)), 2);
    }

    #[test]
    fn no_offset_wraps() {
        for offset in [Offset(i64::MIN), Offset(-1), Offset(0), Offset(1), Offset(i64::MAX)] {
            for point in [0, 1, u64::MAX - 1, u64::MAX] {
                let _ = (offset.to_wall(Millis(point)), offset.to_steady(point));
            }
        }
        assert_eq!(Offset(-5).to_wall(Millis(3)), 0);
        assert_eq!(Offset(5).to_steady(3), Millis(0));
    }

    proptest! {
        #[test]
        fn wall_and_steady_time_are_inverse(at in 1_u64 << 42..1 << 52, offset in -(1_i64 << 41)..1 << 52) {
            prop_assert_eq!(Offset(offset).to_steady(Offset(offset).to_wall(Millis(at))), Millis(at));
        }
    }
}
