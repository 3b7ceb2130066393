//! Waiting for what takes a while.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What a polled closure gives: whether it is done, and with what.
pub trait Outcome {
    /// What is there when it is done.
    type Value;

    /// The value, when it is done.
    fn done(self) -> Option<Self::Value>;
}

impl Outcome for bool {
    type Value = ();

    fn done(self) -> Option<()> {
        self.then_some(())
    }
}

impl<T> Outcome for Option<T> {
    type Value = T;

    fn done(self) -> Option<T> {
        self
    }
}

/// Asks `poll` every two milliseconds until it gives `true` or `Some`; returns what it gave.
///
/// # Panics
/// When that doesn't happen within the time.
#[track_caller]
pub fn eventually<O: Outcome>(within: Duration, poll: impl FnMut() -> O) -> O::Value {
    match poll_until(Instant::now() + within, poll) {
        Some(value) => value,
        None => panic!("did not happen within {within:?}"),
    }
}

pub(crate) fn poll_until<O: Outcome>(end: Instant, mut poll: impl FnMut() -> O) -> Option<O::Value> {
    loop {
        if let Some(value) = poll().done() {
            return Some(value);
        }
        if Instant::now() >= end {
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Milliseconds of this machine's wall clock since 1970.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    u64::try_from(since.as_millis()).expect("the clock is before the year 500 million")
}
