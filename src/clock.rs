//! The steady clock: wall time when the module was loaded, plus all time since, suspend included.
//!
//! Leases run on it, so that a stepped wall clock neither ends nor stretches one. Wall time is made of it only at the
//! border: in records, in dumps and in the native TTL.

use once_cell::sync::OnceCell;
use redislock_core::{Millis, Now, Offset};
use std::io;
use std::sync::atomic::{AtomicI64, Ordering};

static CLOCK: OnceCell<Clock> = OnceCell::new();

/// How far wall time may drift from the offset in use before a new one is taken, in microseconds. Below it, a point
/// in time always becomes the same wall time again, however often it is written and read.
const DRIFT: i64 = 2_000;

struct Clock {
    /// Wall time minus boot time when the module was loaded, in microseconds.
    start: i64,
    /// Milliseconds from steady to wall time.
    offset: AtomicI64,
}

/// Starts the clock.
pub(crate) fn start() -> io::Result<()> {
    CLOCK.get_or_try_init(|| {
        let start = micros(libc::CLOCK_REALTIME)? - micros(libc::CLOCK_BOOTTIME)?;
        Ok::<_, io::Error>(Clock { start, offset: AtomicI64::new(0) })
    })?;
    Ok(())
}

fn micros(clock: libc::clockid_t) -> io::Result<i64> {
    crate::ffi::clock::read(clock).map(|(seconds, nanos)| seconds * 1_000_000 + nanos / 1_000)
}

/// The moment, and what makes wall time of it.
pub(crate) fn now() -> (Now, Offset) {
    let clock = CLOCK.get().expect("the clock starts when the module is loaded");
    // Both clocks could be read when the module was loaded, and the kernel does not forget a clock.
    let steady = micros(libc::CLOCK_BOOTTIME).unwrap_or(0) + clock.start;
    let wall = micros(libc::CLOCK_REALTIME).unwrap_or(steady);
    let mut offset = clock.offset.load(Ordering::Relaxed);
    if (wall - steady - offset * 1_000).abs() > DRIFT {
        offset = (wall - steady).div_euclid(1_000);
        clock.offset.store(offset, Ordering::Relaxed);
    }
    let at = Millis(u64::try_from(steady / 1_000).unwrap_or(0));
    (Now { at, wall_micros: u64::try_from(wall).unwrap_or(0) }, Offset(offset))
}

/// The native TTL, as a wall time, that ends where a lease ends: the server lets a key live through its last millisecond.
pub(crate) fn native_end(deadline: Millis, offset: Offset) -> u64 {
    offset.to_wall(deadline).saturating_sub(1)
}
