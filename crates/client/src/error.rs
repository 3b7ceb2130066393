//! What can go wrong, in answers that a program can act on.

use std::fmt;
use std::time::Duration;

use crate::fence::Fence;
use crate::ttl::Ttl;
use crate::vote::Votes;

/// Why a request gave no lock, or a held lock could not be renewed or released.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Somebody else holds the lock: a majority of the nodes answered, and no majority granted.
    #[error("the lock is held by another owner ({votes})")]
    Refused {
        /// Every node's vote.
        votes: Votes,
    },
    /// The wait ended before the lock was granted.
    #[error("the lock was not granted in {waited:?}: {}", last_state(.votes))]
    TimedOut {
        /// How long the request waited, in whole milliseconds.
        waited: Duration,
        /// The votes of the last round, empty where the request was still queued.
        votes: Votes,
    },
    /// Too few nodes answered for a majority.
    #[error("no quorum could be reached ({votes})")]
    NoQuorum {
        /// Every node's vote.
        votes: Votes,
    },
    /// A majority granted, but too late for anything of the lease to be trusted. Everything was released.
    #[error("a lease of {ttl} was used up after {spent:?}: the nodes are too slow for so short a ttl")]
    TooSlow {
        /// The ttl asked for.
        ttl: Ttl,
        /// The time from before the first request to the last vote.
        spent: Duration,
    },
    /// The given owner holds this lock already. Use a reentrant request to nest holds.
    #[error("this owner holds the lock already, with fence {fence}")]
    Held {
        /// The fence of the standing hold.
        fence: Fence,
    },
    /// The wait would have closed a circle of owners that wait for one another.
    #[error("deadlock: {0}")]
    Deadlock(String),
    /// The same owner asked for the same lock from elsewhere, and that newer request took over the place.
    #[error("replaced: {0}")]
    Replaced(String),
    /// The lock is no longer held.
    #[error("the lock is lost: {0}")]
    Lost(LossReason),
    /// The lock was no longer held when only a part of several guarded commands had run.
    #[error("the lock is lost: {reason}; the first {ran} of the guarded commands ran, the others did not")]
    LostMidway {
        /// How many ran, from the first on.
        ran: usize,
        /// Why the lock was lost.
        reason: LossReason,
    },
    /// The server says that the request itself is wrong (an argument, the type of the key, access rules, a module
    /// that is not loaded). Asking again cannot help.
    #[error("node {node} rejected the request: {message}", node = node + 1)]
    Rejected {
        /// The index of the node, from 0, in the order of configuration.
        node: usize,
        /// The server's own words.
        message: String,
    },
    /// The request or the configuration is wrong; no server was asked.
    #[error("{0}")]
    Configuration(String),
    /// The locker's runtime has shut down.
    #[error("the runtime of this locker has shut down")]
    Closed,
}

/// How a request stood when its time was up.
fn last_state(votes: &Votes) -> String {
    match votes.iter().count() {
        0 => "it is held by another owner, and this request was still in the queue".to_owned(),
        _ => votes.to_string(),
    }
}

impl Error {
    /// Whether the same request may succeed later: true when the lock was held, the time too short, the nodes out
    /// of reach or a deadlock broken; false when the request itself is wrong.
    ///
    /// ```
    /// use redislock_client::{Error, Votes};
    ///
    /// assert!(Error::Refused { votes: Votes::default() }.is_retryable());
    /// assert!(!Error::Configuration("no nodes".into()).is_retryable());
    /// ```
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Refused { .. }
            | Self::TimedOut { .. }
            | Self::NoQuorum { .. }
            | Self::TooSlow { .. }
            | Self::Deadlock(_)
            | Self::Lost(_) => true,
            // Of several commands some ran already, and would run again.
            Self::LostMidway { .. }
            | Self::Held { .. }
            | Self::Replaced(_)
            | Self::Rejected { .. }
            | Self::Configuration(_)
            | Self::Closed => false,
        }
    }
}

/// Why a held lock was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossReason {
    /// Its time ended: no renewal by a majority came in time.
    Lapsed,
    /// So many nodes say that this owner holds nothing that no majority is left: it was revoked, lapsed, or was
    /// lost with a server.
    Taken {
        /// Every node's vote.
        votes: Votes,
    },
    /// The maximum hold was reached.
    MaxHold,
    /// The connection that the lock was tied to has ended.
    SessionEnded,
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lapsed => f.write_str("its time ended"),
            Self::Taken { votes } => write!(f, "a majority no longer grants it ({votes})"),
            Self::MaxHold => f.write_str("the maximum hold was reached"),
            Self::SessionEnded => f.write_str("the connection that it was tied to has ended"),
        }
    }
}
