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
