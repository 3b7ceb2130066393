//! The kernel's clocks.

use std::io;

/// Reads a clock: seconds and nanoseconds.
pub(crate) fn read(clock: libc::clockid_t) -> io::Result<(i64, i64)> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the struct is written to, and nothing else.
    match unsafe { libc::clock_gettime(clock, &raw mut time) } {
        0 => Ok((time.tv_sec, time.tv_nsec)),
        _ => Err(io::Error::last_os_error()),
    }
}
