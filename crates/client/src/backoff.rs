//! Pauses between attempts.

use std::time::Duration;

use rand::{Rng, RngExt};

/// Full jitter: every pause is drawn evenly from zero to a ceiling that doubles with each attempt. Of two clients
/// that split a vote, one is then likely to come back while the other still pauses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    attempts: u32,
}

impl Backoff {
    pub(crate) const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, attempts: 0 }
    }

    pub(crate) fn next(&mut self, rng: &mut impl Rng) -> Duration {
        let ceiling = self.first.saturating_mul(1 << self.attempts.min(20)).min(self.longest);
        self.attempts = self.attempts.saturating_add(1);
        ceiling.mul_f64(rng.random())
    }

    pub(crate) fn reset(&mut self) {
        self.attempts = 0;
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    #[test]
    fn pauses_spread_below_a_ceiling_that_grows_and_then_stays() {
        let mut rng = StdRng::seed_from_u64(1);
        let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(80));
        let pauses: Vec<_> = (0..200).map(|_| backoff.next(&mut rng)).collect();
        assert!(pauses[0] <= Duration::from_millis(10));
        assert!(pauses.iter().all(|pause| *pause <= Duration::from_millis(80)));
        assert!(pauses.iter().filter(|pause| **pause < Duration::from_millis(40)).count() > 50);
        backoff.reset();
        assert!(backoff.next(&mut rng) <= Duration::from_millis(10));
    }
}
