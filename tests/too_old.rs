//! A server that is too old refuses the module, and says why.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use redislock_testkit::{module_path, server_binary};

#[test]
fn redis_5_refuses_the_module_with_a_line_that_says_why() {
    let dir = folder();
    // It listens in its folder alone, so that nothing can be in its way.
    let mut server = Command::new(server_binary("redis-5.0"))
        .args(["--port", "0", "--unixsocket", "socket", "--save", "", "--loadmodule"])
        .arg(module_path())
        .current_dir(&dir)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the server can be run");
    let end = Instant::now() + Duration::from_secs(30);
    while server.try_wait().expect("a child can be waited for").is_none() {
        if Instant::now() > end {
            server.kill().expect("a child can be killed");
            panic!("Redis 5 has loaded the module");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = server.wait_with_output().expect("it has ended");
    let log = String::from_utf8_lossy(&output.stdout);
    assert!(log.contains("redislock is not loaded: this server lacks RedisModule_"), "{log}");
    assert!(log.contains("(6.2.2 or later)"), "{log}");
    // The server ends in order, as with any module that does not load.
    assert!(output.status.code().is_some() && !log.contains("BUG REPORT"), "{}: {log}", output.status);
    std::fs::remove_dir_all(dir).expect("the folder is there");
}

/// A folder that nobody else uses.
fn folder() -> std::path::PathBuf {
    let dir = std::env::temp_dir().join(format!("redislock-too-old-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a temporary folder");
    dir
}
