//! redislock-client

mod acquisition;
mod backoff;
mod clock;
mod error;
mod fence;
mod lease;
mod owner;
mod round;
#[cfg(test)]
mod simulation;
mod ttl;
mod validity;
mod vote;

pub use clock::Moment;
pub use error::{Error, LossReason};
pub use fence::Fence;
pub use owner::Owner;
pub use ttl::Ttl;
pub use validity::{drift, validity};
pub use vote::{NodeError, NodeErrorKind, Vote, Votes};
