//! Which locks were contended lately.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Moment;

const SLOTS: usize = 512;

/// How long a lock counts as contended.
const MEMORY: Duration = Duration::from_secs(5);

/// Remembers by a hash of the key, in a table of fixed size however many keys there are. Two keys that share a slot
/// cost a round trip now and then, never correctness.
pub(crate) struct Contention {
    slots: [AtomicU64; SLOTS],
    hasher: RandomState,
    zero: Moment,
}

impl Contention {
    pub(crate) fn new() -> Self {
        // Zero in a slot means never, so that the clock starts beyond what is remembered.
        Self { slots: [const { AtomicU64::new(0) }; SLOTS], hasher: RandomState::new(), zero: Moment::now() }
    }

    fn slot(&self, key: &[Vec<u8>]) -> &AtomicU64 {
        let index = self.hasher.hash_one(key) % SLOTS as u64;
        &self.slots[usize::try_from(index).unwrap_or(0)]
    }

    fn millis(&self, now: Moment) -> u64 {
        let millis = (now.since(self.zero) + MEMORY).as_millis();
        u64::try_from(millis).unwrap_or(u64::MAX)
    }

    pub(crate) fn met(&self, key: &[Vec<u8>], now: Moment) {
        self.slot(key).store(self.millis(now), Ordering::Relaxed);
    }

    pub(crate) fn is_likely(&self, key: &[Vec<u8>], now: Moment) -> bool {
        let met = self.slot(key).load(Ordering::Relaxed);
        met > 0 && u128::from(self.millis(now).saturating_sub(met)) < MEMORY.as_millis()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contended_key_is_remembered_for_a_while() {
        let contention = Contention::new();
        let (key, now) = ([b"k".to_vec()], Moment::now());
        assert!(!contention.is_likely(&key, now));
        contention.met(&key, now);
        assert!(contention.is_likely(&key, now));
        assert!(!contention.is_likely(&key, now.after(MEMORY)));
    }
}
