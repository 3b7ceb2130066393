//! Judging what many threads believed to hold, and when.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Instant;

/// How a lock was held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Alone.
    Exclusive,
    /// Together with other shared holders.
    Shared,
}

/// One recorded hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldId(usize);

/// A record of holds from many threads.
///
/// A hold is the time in which its owner may act: from when it had the answer, to when it sent the release or when its
/// own clock told it that the lease may be over, whichever was first.
#[derive(Debug, Default)]
pub struct HistoryChecker {
    holds: Mutex<Vec<Hold>>,
}

#[derive(Clone, Debug)]
struct Hold {
    key: String,
    owner: String,
    mode: Mode,
    fence: i64,
    from: Instant,
    until: Instant,
}

impl HistoryChecker {
    /// An empty record.
    pub fn new() -> Self {
        Self::default()
    }

    fn holds(&self) -> std::sync::MutexGuard<'_, Vec<Hold>> {
        self.holds.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Records a grant: when its answer was there, and when its owner would stop by itself.
    pub fn granted(
        &self,
        key: &str,
        owner: &str,
        mode: Mode,
        fence: i64,
        granted_at: Instant,
        valid_until: Instant,
    ) -> HoldId {
        let mut holds = self.holds();
        let (key, owner) = (key.to_owned(), owner.to_owned());
        holds.push(Hold { key, owner, mode, fence, from: granted_at, until: valid_until });
        HoldId(holds.len() - 1)
    }

    /// Records a renewal that was confirmed.
    ///
    /// # Panics
    /// When the hold is from another checker.
    pub fn renewed(&self, hold: HoldId, valid_until: Instant) {
        self.holds()[hold.0].until = valid_until;
    }

    /// Records that the owner stopped: `at` is from before it sent the release, or when it learned of the loss.
    ///
    /// # Panics
    /// When the hold is from another checker.
    pub fn released(&self, hold: HoldId, at: Instant) {
        let mut holds = self.holds();
        let until = &mut holds[hold.0].until;
        *until = at.min(*until);
    }

    /// How many grants were recorded.
    pub fn len(&self) -> usize {
        self.holds().len()
    }

    /// Whether none was.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What is wrong with the record: an exclusive holder that overlaps another one, or a fence that does not rise.
    pub fn violations(&self) -> Vec<String> {
        let mut by_key: HashMap<String, Vec<Hold>> = HashMap::new();
        for hold in self.holds().iter() {
            by_key.entry(hold.key.clone()).or_default().push(hold.clone());
        }
        by_key.into_values().flat_map(violations_of_key).collect()
    }

    /// Asserts that nothing is wrong with the record.
    ///
    /// # Panics
    /// When something is.
    #[track_caller]
    pub fn check(&self) {
        let violations = self.violations();
        assert!(violations.is_empty(), "of {} grants:\n{}", self.len(), violations.join("\n"));
    }
}

fn violations_of_key(mut holds: Vec<Hold>) -> Vec<String> {
    let mut found = Vec::new();
    // The clock of a Debug line is hard to read: times are told from the first grant.
    let Some(start) = holds.iter().map(|hold| hold.from).min() else { return found };
    let told = |hold: &Hold| {
        let ms = |at: Instant| at.saturating_duration_since(start).as_secs_f64() * 1e3;
        let Hold { owner, mode, fence, from, until, .. } = hold;
        format!("{owner:?} ({mode:?}, fence {fence}, {:.3} to {:.3} ms)", ms(*from), ms(*until))
    };
    holds.sort_by_key(|hold| hold.fence);
    for pair in holds.windows(2) {
        if pair[0].fence == pair[1].fence {
            found.push(format!(
                "{}: one fence twice: {} and {}",
                pair[0].key,
                told(&pair[0]),
                told(&pair[1])
            ));
        }
    }
    // A grant that was over when its answer came was never acted on, and its place in time is unknown.
    holds.retain(|hold| hold.from < hold.until);
    holds.sort_by_key(|hold| hold.from);
    // Of the holds before: the one that lasts longest, and the highest fence, of exclusive ones and of all.
    let mut longest: [Option<&Hold>; 2] = [None; 2];
    let mut highest: [Option<&Hold>; 2] = [None; 2];
    for hold in &holds {
        // A shared hold is compared with exclusive ones, an exclusive one with all.
        let which = usize::from(hold.mode == Mode::Exclusive);
        if let Some(before) = longest[which].filter(|before| before.until > hold.from) {
            found.push(format!("{}: two holders at a time: {} and {}", hold.key, told(before), told(hold)));
        }
        if let Some(before) = highest[which].filter(|before| before.fence >= hold.fence) {
            found.push(format!(
                "{}: a fence that does not rise: {} and then {}",
                hold.key,
                told(before),
                told(hold)
            ));
        }
        for among in if hold.mode == Mode::Exclusive { 0..2 } else { 1..2 } {
            if longest[among].is_none_or(|before| before.until < hold.until) {
                longest[among] = Some(hold);
            }
            if highest[among].is_none_or(|before| before.fence < hold.fence) {
                highest[among] = Some(hold);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Holds as (mode, fence, from, until), and the violation expected, or "".
    fn check(holds: &[(Mode, i64, u64, u64)], expected: &str) {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let history = HistoryChecker::new();
        for (mode, fence, from, until) in holds {
            history.granted("k", &format!("owner {fence}"), *mode, *fence, at(*from), at(*until));
        }
        let violations = history.violations().join("\n");
        assert_eq!(violations.is_empty(), expected.is_empty(), "{holds:?}: {violations}");
        assert!(violations.contains(expected), "{holds:?}: {violations}");
    }

    #[test]
    fn judges_overlap_and_fences() {
        use Mode::{Exclusive, Shared};
        check(&[], "");
        check(&[(Exclusive, 1, 0, 10), (Exclusive, 2, 10, 20)], "");
        check(&[(Exclusive, 1, 0, 11), (Exclusive, 2, 10, 20)], "two holders at a time");
        check(
            &[(Exclusive, 1, 0, 30), (Exclusive, 2, 10, 10), (Exclusive, 3, 20, 40)],
            "two holders at a time",
        );
        check(&[(Exclusive, 2, 0, 10), (Exclusive, 1, 10, 20)], "a fence that does not rise");
        check(&[(Exclusive, 2, 0, 10), (Exclusive, 2, 10, 20)], "one fence twice");
        check(&[(Shared, 2, 0, 10), (Shared, 1, 5, 20), (Exclusive, 3, 20, 21)], "");
        check(&[(Shared, 1, 0, 10), (Shared, 2, 5, 8), (Exclusive, 3, 9, 21)], "two holders at a time");
        check(&[(Shared, 5, 0, 10), (Exclusive, 3, 10, 21)], "a fence that does not rise");
        check(&[(Exclusive, 3, 0, 10), (Shared, 4, 9, 21)], "two holders at a time");
        check(&[(Exclusive, 1, 10, 5)], "");
    }

    #[test]
    fn a_release_shortens_and_a_renewal_moves() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let history = HistoryChecker::new();
        let first = history.granted("k", "A", Mode::Exclusive, 1, at(0), at(100));
        history.released(first, at(10));
        history.released(first, at(50));
        let second = history.granted("k", "B", Mode::Exclusive, 2, at(10), at(20));
        history.renewed(second, at(40));
        history.granted("other", "B", Mode::Exclusive, 1, at(10), at(20));
        history.check();
        history.granted("k", "C", Mode::Exclusive, 3, at(39), at(50));
        assert_eq!(history.violations().len(), 1);
    }
}
