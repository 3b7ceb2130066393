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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_stay_below_2_to_the_53() {
        assert_eq!(Fence::new(Fence::MAX.get()), Some(Fence::MAX));
        assert_eq!(Fence::new(1 << 53), None);
        assert_eq!(Fence::new(u64::MAX), None);
    }

    #[test]
    fn the_next_token_is_the_higher_of_counter_and_clock() {
        let mut counter = Counter::default();
        assert_eq!(counter.next(0), Fence::new(1));
        assert_eq!(counter.next(70), Fence::new(70));
        counter.raise(Fence(70));
        counter.raise(Fence(30));
        assert_eq!(counter.last(), Fence(70));
        assert_eq!(counter.next(70), Fence::new(71));
        counter.raise(Fence::MAX);
        assert_eq!(counter.next(0), None);
        assert_eq!(Counter::default().next(u64::MAX), None);
    }

    #[test]
    fn the_ceiling_is_a_leap_year_ahead_of_the_clock_or_what_was_seen() {
        assert_eq!(Counter::default().ceiling(5), Fence(5 + 366 * 86_400 * 1_000_000));
        assert_eq!(Counter::default().ceiling(u64::MAX), Fence::MAX);
        assert_eq!(Counter(Fence::MAX).ceiling(5), Fence::MAX);
    }
}
