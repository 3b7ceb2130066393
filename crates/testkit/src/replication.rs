//! Primaries and replicas.

use std::time::Duration;

use crate::client::Client;
use crate::server::Server;
use crate::wait::eventually;

const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until the replica has applied all that the primary has sent out by now.
///
/// # Panics
/// When that takes more than half a minute.
#[track_caller]
pub fn wait_in_sync(primary: &Server, replica: &Server) {
    let mut source = primary.connect();
    let wanted = number(&mut source, "master_repl_offset");
    let mut target = replica.connect();
    eventually(PATIENCE, || {
        target.info("master_link_status").as_deref() == Some("up")
            // Asked each time: the first replica makes its primary begin a new history.
            && target.info("master_replid") == source.info("master_replid")
            && number(&mut target, "slave_repl_offset") >= wanted
    });
}

#[track_caller]
fn number(client: &mut Client, field: &str) -> i64 {
    client.info(field).and_then(|text| text.parse().ok()).unwrap_or(-1)
}

/// Makes a replica a primary.
///
/// # Panics
/// When it refuses.
#[track_caller]
pub fn promote(replica: &Server) {
    let mut client = replica.connect();
    client.cmd(&["REPLICAOF", "NO", "ONE"]).ok();
    eventually(PATIENCE, || client.info("role").as_deref() == Some("master"));
}

/// Makes a server a replica of another one, and waits until it has everything.
///
/// # Panics
/// When it refuses, or takes more than half a minute.
#[track_caller]
pub fn follow(replica: &Server, primary: &Server) {
    let port = primary.port().to_string();
    let mut client = replica.connect();
    if let Some(password) = primary.password() {
        client.cmd(&["CONFIG", "SET", "masterauth", password]).ok();
    }
    client.cmd(&["REPLICAOF", "127.0.0.1", &port]).ok();
    wait_in_sync(primary, replica);
}
