//! redislock-client

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
