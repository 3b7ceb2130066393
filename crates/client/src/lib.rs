//! Distributed locks over one or several Redis (or Valkey) servers that load the `redislock` module.
//!
//! ```
//! # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server(|url| async move {
//! use std::time::Duration;
//! use redislock_client::Locker;
//!
//! let locker = Locker::builder().node(&url)?.build()?;
//! let guard = locker
//!     .lock("orders:42")
//!     .ttl(Duration::from_secs(10))
//!     .acquire_within(Duration::from_secs(5))
//!     .await?;
//! // The work ends when the lock is lost, and names its fence wherever it writes.
//! guard.run(async { println!("writing with fence {}", guard.fence()) }).await?;
//! guard.release().await?;
//! # Ok(()) });
//! ```
//!
//! # What is guaranteed, and what is not
//!
//! | nodes | two valid guards at once | the lock survives | fences rise |
//! |---|---|---|---|
//! | **one server** | never, while it [keeps what it acknowledged](#keeping-what-was-acknowledged) | nothing: while the server is down nobody gets the lock | always on that server |
//! | **a primary with replicas** (Sentinel, cluster) | possible after a failover, since replication is asynchronous: a grant that the new primary never saw is granted again. [`acknowledged_by`](LockRequest::acknowledged_by) and `min-replicas-to-write` make that rarer; nothing prevents it yet | the loss of the primary | as far as the new primary has seen them; otherwise as well as the servers' clocks agree |
//! | **N independent servers**, three or five | never, while a majority [keeps what it acknowledged](#keeping-what-was-acknowledged) and clocks run at the same rate to within one percent | the loss of a minority | always: see below |
//!
//! In every row *valid* means [`Guard::is_lost`] saying no at that moment. Nothing that a lock service does can stop a
//! program between asking and acting: what must never be written by two holders has to check the [`Fence`].
//!
//! # Keeping what was acknowledged
//!
//! A server that comes back without its last second of data does not know what it granted in it, and grants it again.
//! Two things prevent that today:
//!
//! * `appendonly yes` with `appendfsync always`: what was acknowledged is on disk. Every grant pays for a write to it.
//! * Keep a server that was restarted away from its clients for the longest ttl in use (start it on another port, or
//!   behind a closed firewall, and let them in afterwards): by then every lease that it may have forgotten has ended. The
//!   same goes for a replica that was promoted, where the failover is in your hands.
//!
//! A setting `quarantine yes`, with which the module does the latter by itself, is planned but not there yet: a
//! server that is given it does not start.
//!
//! # The critique of Redlock, point by point
//!
//! Locks over independent Redis servers have been criticised, with good reasons. What this crate makes of each:
//!
//! * **"A paused client writes after its lease ended."** True of every lease. A guard judges its validity by a clock
//!   that counts pauses and suspend, at each look and at each step of [`Guard::run`], so that a resumed program learns
//!   of the loss before it goes on; the instant between the look and the write is left. For that there is the fence:
//!   a resource that refuses a fence lower than the highest it has seen is safe whatever the pause. Data in the same
//!   Redis can be written with [`Guard::guarded`], which checks and writes in one step.
//! * **"Redlock has no fencing tokens: random owner ids have no order."** Here every grant has one, and over several
//!   nodes they are ordered, too (next section).
//! * **"It depends on wall clocks: a jump ends a lease early."** Leases run on steady clocks in the servers, and
//!   validity on the boot clock here. A step of the wall clock moves neither. What remains is the *rate* of clocks: a
//!   hundredth of the ttl and 2 ms are taken off for it ([`drift`]). A clock that is off by more than a percent breaks
//!   the guarantee of the table; fences still hold.
//! * **"Delays in the network eat the lease."** Validity counts from before the first request of the winning round
//!   ([`validity`]), however long the answers took. A grant that comes too late to be trusted is a failure, and is
//!   released.
//! * **"A server that restarts without its last second of data grants again."** It does, unless it runs with
//!   `appendfsync always` or is kept away from its clients for a while
//!   ([above](#keeping-what-was-acknowledged)). Without either there is no guarantee over a restart, on one node or on
//!   five.
//! * **"For efficiency it is too heavy, for correctness not safe enough."** For efficiency use one node, with one round
//!   trip to take a lock and one to give it back. For correctness use fences, whatever the number of nodes; more nodes
//!   make the lock available when one fails, not safer than its assumptions.
//!
//! # Why fences rise over several nodes
//!
//! A guard is handed out with fence *F* once a majority of the nodes has *F* or more on record: it is the highest that a
//! majority granted, written back with `LOCK.FENCE` where a node had less. (In the ordinary case all nodes settle on a
//! proposal that travels with the request, which saves the second round trip.) A later guard needs grants from a
//! majority of its own. Two majorities of the same configured nodes share one, and that one has *F* on record: it
//! granted the later lock afterwards, since until then it was held, and every node grants above all that it has on
//! record. The later fence is the highest of its majority, so it is higher than *F*.
//!
//! The assumption is that nodes keep what they acknowledged, or stay away until every lease that they may have forgotten
//! has ended. After the latter, fences fall back on the clocks of the servers.
//!
//! # Waiting
//!
//! [`LockRequest::acquire`] queues inside the server, first come, first served, and is granted in the moment of the
//! release or lapse; nothing polls. Over several nodes the queue is at the first node that can be reached, which is the
//! same for all who reach it; its grant is then confirmed by a majority in one more round trip. Where clients disagree
//! about the first node, or several attempts split the votes, all is released and tried again after a pause with full
//! jitter: then the order is that of luck.
//!
//! # Sharing, several keys, guarded writes
//!
//! ```
//! # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server(|url| async move {
//! use redislock_client::{Locker, Reply};
//!
//! let locker = Locker::builder().node(&url)?.build()?;
//!
//! // Readers and writers: shared holders stand together, a writer stands alone and is not passed by later readers.
//! let (one, two) = (locker.lock("catalogue").shared(), locker.lock("catalogue").shared());
//! let readers = (one.acquire().await?, two.acquire().await?);
//! assert!(locker.lock("catalogue").try_acquire().await.is_err());
//! drop(readers);
//!
//! // A semaphore: no more than three at once.
//! let place = locker.lock("uploads").limit(3).acquire().await?;
//! place.release().await?;
//!
//! // Several keys: all or none, in whatever order others name them.
//! let both = locker.lock_all(["account:1", "account:2"]).acquire().await?;
//! both.release().await?;
//!
//! // Guarded: the server writes only while this owner holds the lock; one command, or several in one piece.
//! let guard = locker.lock("stock:lock").acquire().await?;
//! guard.guarded(["SET", "stock", "5"]).await?;
//! let replies = guard.guarded_all([vec!["DECR", "stock"], vec!["RPUSH", "orders", "alice"]]).await?;
//! assert_eq!(replies, [Ok(Reply::Int(4)), Ok(Reply::Int(1))]);
//! guard.release().await?;
//! # Ok(()) });
//! ```
//!
//! Guarded commands need one node and one key, since over several there is no instant in which all could be checked.
//! There, whatever is written checks the [`Fence`].
//!
//! # Features
//!
//! * `blocking`: a front without async (module `blocking`)
//! * `tls`: `rediss://` nodes
//! * `cli`: the program `redislock`; on by default, so that `cargo install` makes it
//!
//! A library or an application does without the program and what only it needs:
//!
//! ```toml
//! redislock-client = { version = "0.1", default-features = false }
//! ```
//!
//! # Observing
//!
//! Spans and events go to [`tracing`](https://docs.rs/tracing), figures to the [`metrics`](https://docs.rs/metrics)
//! facade: `redislock_acquisitions_total`, `redislock_acquire_seconds`, `redislock_held`, `redislock_held_seconds`,
//! `redislock_renewals_total`, `redislock_lost_total`, `redislock_releases_total` and
//! `redislock_waits_held_back_total`.

mod acquisition;
mod attempt;
mod backoff;
#[cfg(feature = "blocking")]
pub mod blocking;
mod clock;
mod command;
mod contention;
mod error;
mod fence;
mod guard;
mod handover;
mod holding;
mod inspect;
mod keeper;
mod lease;
mod link;
mod locker;
mod node;
mod owner;
mod release;
mod request;
mod round;
#[cfg(test)]
mod simulation;
mod ttl;
mod validity;
mod vote;

pub use clock::Moment;
pub use error::{Error, LossReason};
pub use fence::Fence;
pub use guard::{Guard, Reply};
pub use handover::Handover;
pub use inspect::{HolderInfo, LockInfo, PerNode, WaiterInfo};
pub use locker::{Locker, LockerBuilder};
pub use node::Node;
pub use owner::Owner;
pub use release::Released;
pub use request::LockRequest;
pub use ttl::Ttl;
pub use validity::{drift, validity};
pub use vote::{NodeError, NodeErrorKind, Vote, Votes};
