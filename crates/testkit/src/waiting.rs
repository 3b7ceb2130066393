//! Looking at who holds a lock and who waits for it.

use std::time::Duration;

use crate::client::{Arg, Client};
use crate::cmd;
use crate::reply::Reply;
use crate::server::Server;
use crate::wait::eventually;

const PATIENCE: Duration = Duration::from_secs(30);

/// The owners that wait for a key of database 0, in order.
///
/// # Panics
/// When the server refuses.
#[track_caller]
pub fn waiters(client: &mut Client, key: impl Arg) -> Vec<String> {
    let line = cmd!(client, "LOCK.WAITERS", key);
    line.array().iter().map(|waiter| lossy(waiter.field("owner"))).collect()
}

/// The owners that hold a key of database 0.
///
/// # Panics
/// When the server refuses.
#[track_caller]
pub fn holders(client: &mut Client, key: impl Arg) -> Vec<String> {
    let info = cmd!(client, "LOCK.INFO", key);
    if info == Reply::Nil {
        return Vec::new();
    }
    let holders = info.field("holders").array().iter();
    holders.map(|holder| lossy(holder.field("owner"))).collect()
}

/// Waits until so many requests wait for a key of database 0.
///
/// # Panics
/// When that takes more than half a minute.
#[track_caller]
pub fn until_waiting(server: &Server, key: impl Arg, count: usize) {
    let mut client = server.connect();
    eventually(PATIENCE, || waiters(&mut client, &key).len() == count);
}

/// Waits until so many clients are blocked in the server, whatever they wait for.
///
/// # Panics
/// When that takes more than half a minute.
#[track_caller]
pub fn until_blocked(server: &Server, count: usize) {
    let mut client = server.connect();
    let count = count.to_string();
    eventually(PATIENCE, || client.info("blocked_clients").as_deref() == Some(&count));
}

fn lossy(owner: &Reply) -> String {
    String::from_utf8_lossy(owner.bytes()).into_owned()
}
