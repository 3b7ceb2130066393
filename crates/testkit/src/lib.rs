//! Real servers of every supported version on loopback, and the means to trouble them.
//!
//! A test starts a [`Server`] (or a [`Cluster`]), talks to it through a [`Client`] that can also look at raw bytes,
//! and causes faults: [`Server::kill9`], [`Server::stop_signal`], a [`Proxy`] between the two, a [`Clock`] that steps.
//! [`every_server!`](crate::every_server) makes one test a server version out of one body.
//!
//! ```no_run
//! use redislock_testkit::{Server, cmd, every_server};
//!
//! every_server! {
//!     fn a_lock_is_exclusive(version) {
//!         let server = Server::start(version);
//!         let mut client = server.connect();
//!         assert!(cmd!(client, "LOCK.ACQUIRE", "k", "A", 1000).int() > 0);
//!         cmd!(client, "LOCK.ACQUIRE", "k", "B", 1000).nil();
//!     }
//! }
//! # fn main() {}
//! ```

mod builder;
mod client;
mod clock;
mod cluster;
mod history;
mod lock;
mod module;
mod port;
mod process;
mod proxy;
mod replication;
mod reply;
mod server;
mod version;
mod wait;
mod waiting;

pub use builder::{Builder, Fsync};
pub use client::{Arg, Client};
pub use clock::Clock;
pub use cluster::{Cluster, slot_of};
pub use history::{HistoryChecker, HoldId, Mode};
pub use lock::{Holder, LockInfo};
pub use module::{build_module_with, module_path};
pub use proxy::Proxy;
pub use replication::{follow, promote, wait_in_sync};
pub use reply::Reply;
pub use server::Server;
pub use version::{Version, on_every_server, server_binary};
pub use wait::{Outcome, eventually, now_ms};
pub use waiting::{holders, until_blocked, until_waiting, waiters};
