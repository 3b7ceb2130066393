//! Servers, lockers and looks at the servers, for the tests of this crate.
#![allow(dead_code, unreachable_pub, reason = "each test file is a crate of its own and uses its own part")]

use std::time::Duration;

use redislock_client::{Locker, LockerBuilder};
use redislock_testkit::{Builder, Proxy, Server, Version, cmd};

include!("module.rs");

pub const MS: Duration = Duration::from_millis(1);

/// A node timeout that a busy machine doesn't reach by itself.
pub const PATIENT: Duration = Duration::from_millis(1500);

pub fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub fn module() -> std::path::PathBuf {
    module_under_test()
}

pub fn settings(version: Version) -> Builder {
    Server::builder(version).module(module_under_test())
}

pub fn server() -> Server {
    settings(Version::Redis70).start()
}

pub fn servers(count: usize) -> Vec<Server> {
    (0..count).map(|_| server()).collect()
}

pub fn builder<'a>(servers: impl IntoIterator<Item = &'a Server>) -> LockerBuilder {
    Locker::builder()
        .nodes(servers.into_iter().map(Server::url))
        .expect("their URLs are good")
        .node_timeout(PATIENT)
}

pub fn locker<'a>(servers: impl IntoIterator<Item = &'a Server>) -> Locker {
    builder(servers).build().expect("a locker")
}

pub fn proxies(servers: &[Server]) -> Vec<Proxy> {
    servers.iter().map(|server| Proxy::new(server.addr())).collect()
}

pub fn locker_behind(proxies: &[Proxy]) -> Locker {
    let builder = Locker::builder().nodes(proxies.iter().map(Proxy::url)).expect("their URLs are good");
    builder.node_timeout(PATIENT).build().expect("a locker")
}

/// Whether somebody holds or waits for the key.
pub fn is_locked(server: &Server, key: &str) -> bool {
    !matches!(server.connect().cmd(&["LOCK.INFO", key]), redislock_testkit::Reply::Nil)
}

/// Whether another owner would get the key at this server.
pub fn is_free(server: &Server, key: &str) -> bool {
    let mut client = server.connect();
    let free = client.cmd(&["LOCK.ACQUIRE", key, "probe", "1000"]) != redislock_testkit::Reply::Nil;
    if free {
        cmd!(client, "LOCK.RELEASE", key, "probe");
    }
    free
}

/// How often the command was called at this server.
pub fn calls(server: &Server, command: &str) -> u64 {
    let reply = server.connect().cmd(&["INFO", "commandstats"]);
    let info = reply.text();
    let name = format!("cmdstat_{command}:calls=").to_lowercase();
    let line = info.lines().find_map(|line| line.to_lowercase().strip_prefix(&name).map(str::to_owned));
    line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or(0)
}

/// Waits until it holds, at most so long.
pub async fn eventually(within: Duration, what: &str, holds: impl Fn() -> bool) {
    let end = std::time::Instant::now() + within;
    while !holds() {
        assert!(std::time::Instant::now() < end, "not within {within:?}: {what}");
        tokio::time::sleep(ms(5)).await;
    }
}

/// The memory of this process.
pub fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
