//! One round of votes, and when it is settled.

use crate::clock::Moment;
use crate::fence::Fence;
use crate::vote::{Vote, Votes};

/// How many of the configured nodes make a majority.
///
/// It comes from the configured number alone. Were it taken from the nodes that can be reached, two clients that
/// reach different nodes would each find a majority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quorum {
    nodes: usize,
}

impl Quorum {
    /// The quorum of so many configured nodes, at least one.
    pub(crate) const fn of(nodes: usize) -> Self {
        assert!(nodes > 0);
        Self { nodes }
    }

    /// How many nodes are configured.
    pub(crate) const fn nodes(self) -> usize {
        self.nodes
    }

    /// How many votes win: half of the nodes, rounded down, and one.
    pub(crate) const fn size(self) -> usize {
        self.nodes / 2 + 1
    }
}

/// Where a round stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Open,
    Won,
    /// The votes that are still out can no longer make a quorum.
    Lost,
}

/// The votes of one round.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    quorum: Quorum,
    /// Before the first request was sent: what validity is counted from.
    pub(crate) started: Moment,
    votes: Vec<Option<Vote>>,
}

impl Round {
    pub(crate) fn new(quorum: Quorum, started: Moment) -> Self {
        Self { quorum, started, votes: vec![None; quorum.nodes()] }
    }

    pub(crate) fn record(&mut self, node: usize, vote: Vote) {
        self.votes[node] = Some(vote);
    }

    /// Takes a vote back, because the node is asked again.
    pub(crate) fn reopen(&mut self, node: usize) {
        self.votes[node] = None;
    }

    pub(crate) fn vote(&self, node: usize) -> Option<&Vote> {
        self.votes[node].as_ref()
    }

    pub(crate) fn standing(&self) -> Standing {
        let granted = self.granted().count();
        let against = self.votes.iter().flatten().count() - granted;
        if granted >= self.quorum.size() {
            Standing::Won
        } else if against > self.quorum.nodes() - self.quorum.size() {
            Standing::Lost
        } else {
            Standing::Open
        }
    }

    /// The nodes that granted, with their fences.
    pub(crate) fn granted(&self) -> impl Iterator<Item = (usize, Fence)> {
        self.votes.iter().enumerate().filter_map(|(node, vote)| match vote {
            Some(Vote::Granted(fence)) => Some((node, *fence)),
            _ => None,
        })
    }

    /// Whether so many nodes denied that no majority can grant.
    pub(crate) fn is_denied(&self) -> bool {
        self.too_many(|vote| matches!(vote, Vote::Denied))
    }

    /// Whether so many nodes are out of reach that no majority could have granted.
    pub(crate) fn is_out_of_reach(&self) -> bool {
        self.too_many(|vote| matches!(vote, Vote::Unreachable(_)))
    }

    fn too_many(&self, against: impl Fn(&Vote) -> bool) -> bool {
        let count = self.votes.iter().flatten().filter(|vote| against(vote)).count();
        count > self.quorum.nodes() - self.quorum.size()
    }

    pub(crate) fn votes(&self) -> Votes {
        Votes(self.votes.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::vote::{NodeError, NodeErrorKind};

    fn vote(kind: u8) -> Option<Vote> {
        match kind {
            0 => None,
            1 => Some(Vote::Granted(Fence::new(1))),
            2 => Some(Vote::Denied),
            _ => Some(Vote::Unreachable(NodeError::new(NodeErrorKind::Timeout, "no answer"))),
        }
    }

    #[test]
    fn b65_majority_is_of_the_configured_nodes() {
        let sizes: Vec<_> = (1..=7).map(|nodes| Quorum::of(nodes).size()).collect();
        assert_eq!(sizes, [1, 2, 2, 3, 3, 4, 4]);
    }

    proptest! {
        #[test]
        fn b65_a_round_is_won_by_half_and_one_and_lost_when_that_is_out_of_reach(
            kinds in proptest::collection::vec(0u8..4, 1..8),
        ) {
            let mut round = Round::new(Quorum::of(kinds.len()), Moment::since_boot(Duration::ZERO));
            for (node, kind) in kinds.iter().enumerate() {
                if let Some(vote) = vote(*kind) {
                    round.record(node, vote);
                }
            }
            let count = |wanted: u8| kinds.iter().filter(|kind| **kind == wanted).count();
            let (granted, open) = (count(1), count(0));
            let expected = if 2 * granted > kinds.len() {
                Standing::Won
            } else if 2 * (granted + open) > kinds.len() {
                Standing::Open
            } else {
                Standing::Lost
            };
            prop_assert_eq!(round.standing(), expected);
        }
    }
}
