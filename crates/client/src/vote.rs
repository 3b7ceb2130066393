//! What one node answers in a round.

use std::fmt;

use crate::fence::Fence;

/// One node's answer in a round. Three answers, never one bool: a node that refuses and a node that cannot be
/// reached call for different things.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Vote {
    /// The node granted, with its own fence.
    Granted(Fence),
    /// The node answered that somebody else holds the lock (or, to a renewal, that this owner does not).
    Denied,
    /// The node gave no answer that counts.
    Unreachable(NodeError),
}

impl fmt::Display for Vote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted(fence) => write!(f, "granted (fence {fence})"),
            Self::Denied => f.write_str("denied"),
            Self::Unreachable(error) => write!(f, "unreachable: {error}"),
        }
    }
}

/// Every node's vote in one round, in the order in which the nodes were configured; `None` where the round was
/// settled before that node answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Votes(pub(crate) Vec<Option<Vote>>);

impl Votes {
    /// The votes in the order of the configured nodes.
    ///
    /// ```
    /// use redislock_client::Votes;
    ///
    /// assert_eq!(Votes::default().iter().count(), 0);
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = Option<&Vote>> {
        self.0.iter().map(Option::as_ref)
    }
}

impl fmt::Display for Votes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (node, vote) in self.0.iter().enumerate() {
            let comma = if node == 0 { "" } else { ", " };
            match vote {
                Some(vote) => write!(f, "{comma}node {}: {vote}", node + 1)?,
                None => write!(f, "{comma}node {}: not awaited", node + 1)?,
            }
        }
        Ok(())
    }
}

/// Why a node gave no answer that counts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct NodeError {
    /// The kind of failure.
    pub kind: NodeErrorKind,
    /// What the server or the system said.
    pub message: String,
}

impl NodeError {
    pub(crate) fn new(kind: NodeErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

/// Kinds of failure of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeErrorKind {
    /// No connection could be made, or it broke.
    Connection,
    /// No answer within the node timeout.
    Timeout,
    /// The server cannot serve writes at present: loading, a replica, too few replicas, out of memory and the like.
    Unavailable,
    /// The server's queue of waiters is full.
    QueueFull,
    /// The server makes no new holders for a while after a start that may have lost grants.
    Quarantine,
    /// Fewer replicas acknowledged the grant than were asked for; the grant was released.
    NotReplicated,
    /// This node is another configured node under a second name: its vote counts once.
    Duplicate,
    /// The answer was of no known shape.
    Protocol,
}
