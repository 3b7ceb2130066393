//! Fencing tokens, and the counter that they come from.

/// A fencing token: an integer below 2^53, so that every client's number type holds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fence(u64);

impl Fence {
    /// The greatest token.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// The token with this number; `None` from 2^53 on.
    #[must_use]
    pub fn new(number: u64) -> Option<Self> {
        (number <= Self::MAX.0).then_some(Self(number))
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }
}

/// The highest token that this data set has seen. Tokens come from here, and only rise.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counter(Fence);

impl Counter {
    /// How far ahead of the clock a token from outside may take the counter: 366 days, in microseconds. Without a
    /// bound one request could use all numbers up.
    pub const LEAP_MAX: u64 = 366 * 24 * 3600 * 1_000_000;

    /// The highest token seen.
    #[must_use]
    pub fn last(self) -> Fence {
        self.0
    }

    /// The token of the next grant: above every one seen, and no lower than the clock, so that a counter that was
    /// lost falls back on it. `None` when the numbers are used up.
    pub(crate) fn next(self, wall_micros: u64) -> Option<Fence> {
        Fence::new((self.0.0 + 1).max(wall_micros))
    }

    /// Takes note of a token that was seen.
    pub fn raise(&mut self, seen: Fence) {
        self.0 = self.0.max(seen);
    }

    /// The greatest token that a coordinator may write at this time.
    #[must_use]
    pub fn ceiling(self, wall_micros: u64) -> Fence {
        self.0.max(Fence(wall_micros.saturating_add(Self::LEAP_MAX).min(Fence::MAX.0)))
    }
}
