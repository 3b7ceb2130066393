//! No panic crosses the border to the server, which would not survive it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

static PANICS: AtomicU64 = AtomicU64::new(0);

/// How many panics were caught since the module was loaded. Each is a bug.
pub(crate) fn panics() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

/// Runs a callback. A panic in it becomes a line in the log and `otherwise`.
///
/// State that a panic may have left half-changed is safe to go on with: the core decides before it changes, and a
/// borrow of the state that unwinds is given back.
pub(crate) fn shield<T>(place: &str, otherwise: T, callback: impl FnOnce() -> T) -> T {
    let guarded = || {
        #[cfg(feature = "inject-panics")]
        inject(place);
        callback()
    };
    catch_unwind(AssertUnwindSafe(guarded)).unwrap_or_else(|panic| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        let what = panic
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no message");
        super::context::log_detached("warning", &format!("a bug in {place}, caught: {what}"));
        otherwise
    })
}

/// Panics where the environment asks for it.
#[cfg(feature = "inject-panics")]
fn inject(place: &str) {
    static WANTED: once_cell::sync::OnceCell<Option<String>> = once_cell::sync::OnceCell::new();
    let wanted = WANTED.get_or_init(|| std::env::var("REDISLOCK_PANIC").ok());
    assert!(wanted.as_deref() != Some(place), "injected");
}
