//! Free ports of loopback, unique across test processes.

use std::fs::{File, OpenOptions};
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::sync::atomic::{AtomicU32, Ordering};

/// Below the ports that the system gives to outgoing connections, and so is the cluster bus at 10000 above.
const FIRST: u32 = 11_000;
const COUNT: u32 = 11_000;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A port that no other test process takes while this lives, also while its server is down.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) number: u16,
    /// Locked; the system lets go when the process ends, however it ends.
    _lock: File,
}

impl Port {
    pub(crate) fn take() -> Port {
        // SAFETY: getuid has no preconditions and cannot fail.
        let user = unsafe { libc::getuid() };
        let dir = std::env::temp_dir().join(format!("redislock-ports-{user}"));
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).expect("a folder for port locks");
        let start = std::process::id().wrapping_mul(97);
        for _ in 0..COUNT {
            let offset = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
            let number = u16::try_from(FIRST + offset).expect("the range is below 65536");
            let lock = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .open(dir.join(number.to_string()))
                .expect("a port lock");
            // SAFETY: the descriptor is open for as long as `lock` lives.
            let taken = unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0;
            if !taken && is_free(number) && is_free(number + 10_000) {
                return Port { number, _lock: lock };
            }
        }
        panic!("no free port from {FIRST} to {}", FIRST + COUNT - 1);
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}
