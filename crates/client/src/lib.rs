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
//! | **one server** | never, while it keeps what it acknowledged: `appendfsync always`, or `quarantine yes` | nothing: while the server is down nobody gets the lock | always on that server |
//! | **a primary with replicas** (Sentinel, cluster) | possible after a failover, since replication is asynchronous: a grant that the new primary never saw is granted again. [`acknowledged_by`](LockRequest::acknowledged_by) and `min-replicas-to-write` make that rarer, `quarantine yes` on the replicas prevents it | the loss of the primary | as far as the new primary has seen them; otherwise as well as the servers' clocks agree |
//! | **N independent servers**, three or five | never, while a majority keeps what it acknowledged (or sits out its quarantine) and clocks run at the same rate to within one percent | the loss of a minority | always: see below |
//!
//! In every row *valid* means [`Guard::is_lost`] saying no at that moment. Nothing that a lock service does can stop a
//! program between asking and acting: what must never be written by two holders has to check the [`Fence`].
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
//!   `appendfsync always` or `quarantine yes`. Without either there is no guarantee over a restart, on one node or on
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
//! The assumption is that nodes keep what they acknowledged, or sit out a quarantine that outlasts every lease that they
//! may have forgotten. After the latter, fences fall back on the clocks of the servers.
//!
//! # Waiting
//!
//! [`LockRequest::acquire`] queues inside the server, first come, first served, and is granted in the moment of the
//! release or lapse; nothing polls. Over several nodes the queue is at the first node that can be reached, which is the
//! same for all who reach it; its grant is then confirmed by a majority in one more round trip. Where clients disagree
//! about the first node, or several attempts split the votes, all is released and tried again after a pause with full
//! jitter: then the order is that of luck.
//!
//! # Features
//!
//! * `blocking`: a front without async (module `blocking`)
//! * `tls`: `rediss://` nodes
//! * `cli`: the program `redislock`
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
