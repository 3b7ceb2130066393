//! A wall clock that a test can step, for servers started with [`Builder::clock`](crate::Builder::clock).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};

use tempfile::TempDir;

/// Built by build.rs.
const LIBRARY: &str = env!("REDISLOCK_CLOCK_LIBRARY");

/// The wall clock of some servers, kept apart from the real one by an offset. Their monotonic clocks stay real.
#[derive(Debug)]
pub struct Clock {
    dir: TempDir,
    file: File,
    offset_ms: AtomicI64,
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock {
    /// A clock that shows the real time, so far.
    ///
    /// # Panics
    /// When its file can't be written.
    pub fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("redislock-clock-").tempdir().expect("a temporary folder");
        let file = File::create(dir.path().join("offset")).expect("a file for the clock");
        let clock = Clock { dir, file, offset_ms: AtomicI64::new(0) };
        clock.set(0);
        clock
    }

    /// The file that servers on this clock have mapped.
    pub fn file(&self) -> PathBuf {
        self.dir.path().join("offset")
    }

    /// How far it is ahead of the real time, in milliseconds.
    pub fn offset_ms(&self) -> i64 {
        self.offset_ms.load(Ordering::SeqCst)
    }

    /// Sets it to the real time plus `offset_ms`, at once, for running servers too.
    ///
    /// # Panics
    /// When that is more than 292 years off, or the file can't be written.
    pub fn set(&self, offset_ms: i64) {
        let nanos = offset_ms.checked_mul(1_000_000).expect("an offset below 292 years");
        self.offset_ms.store(offset_ms, Ordering::SeqCst);
        self.file.write_all_at(&nanos.to_ne_bytes(), 0).expect("the clock can be set");
    }

    /// Steps it by `step_ms`, back when that is negative.
    ///
    /// # Panics
    /// As [`set`](Clock::set).
    pub fn step(&self, step_ms: i64) {
        self.set(self.offset_ms() + step_ms);
    }
}

/// The environment that puts a process on the clock kept in `file`.
pub(crate) fn environment(file: &Path) -> [(String, String); 2] {
    let file = file.display().to_string();
    [("LD_PRELOAD".to_owned(), LIBRARY.to_owned()), ("REDISLOCK_CLOCK".to_owned(), file)]
}
