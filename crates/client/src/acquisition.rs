//! One acquisition over N nodes, from the first request to the guard: a state machine without input and output.
//!
//! Time and answers come in, requests go out. The shell sends them, and promises that every request other than
//! [`Ask::Queue`] is answered, by the node timeout at the latest. The simulation drives the same machine.

use std::time::Duration;

use rand::Rng;

use crate::backoff::Backoff;
use crate::clock::Moment;
use crate::error::Error;
use crate::fence::Fence;
use crate::round::{Quorum, Round, Standing};
use crate::ttl::{Ttl, Wait, millis_rounded_up, wait_millis};
use crate::validity::validity;
use crate::vote::{NodeError, NodeErrorKind, Vote, Votes};

/// The part of a ttl that may have passed since a queued request was sent before its grant is confirmed by a
/// renewal. The moment of a grant in the queue is not known, only that it came after the request.
const UNCONFIRMED_PART: u32 = 10;

/// How many pings in a row the only node may leave unanswered while a request is queued there.
const UNANSWERED_PINGS_ALONE: u32 = 5;

/// What is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) quorum: Quorum,
    pub(crate) ttl: Ttl,
    pub(crate) wait: Wait,
    /// No answer that counts takes longer.
    pub(crate) node_timeout: Duration,
    /// By how much the nodes' clocks were lately ahead of ours when a request arrived.
    pub(crate) lead: Duration,
    /// The owner was made for this acquisition, so whatever it holds comes from here.
    pub(crate) sole_owner: bool,
    /// Ask all nodes at once before queueing. Right where nobody else is likely to want the lock: it saves a round
    /// trip, but disturbs a hand-off that is under way.
    pub(crate) optimistic: bool,
    /// Always confirm a grant from a queue by a renewal, which goes over another connection.
    pub(crate) confirm: bool,
    /// Nodes that are known to be out of reach, and so are not queued at first.
    pub(crate) suspect: Vec<bool>,
}

/// The present, as the machine needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) moment: Moment,
    /// Microseconds since 1970 by this client's wall clock, or one past the highest fence that this client has
    /// seen, whichever is more.
    pub(crate) fence: Fence,
}

/// A request to one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Take the lock, without waiting. With a proposal the holder's fence is raised to it in the same breath.
    Take { propose: Option<Fence> },
    /// Queue for the lock: for so many milliseconds, or (0) without limit.
    Queue { millis: u64 },
    /// Restart the lease of what this owner holds, and raise its fence.
    Confirm { propose: Option<Fence> },
    /// Raise the fence of what this owner holds.
    Raise { to: Fence },
    /// Say that you are there.
    Ping,
}

/// A node's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Granted(Fence),
    Denied,
    /// This owner holds the lock already.
    Held(Fence),
    /// A newer request of this owner has taken over the place in the queue.
    Replaced(String),
    Alive,
    Failed(NodeError),
    /// An answer that ends the acquisition whatever other nodes say.
    Final(Error),
}

/// What the shell is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Send {
        node: usize,
        serial: u64,
        ask: Ask,
    },
    /// Give up the queued request at this node.
    Withdraw {
        node: usize,
    },
    /// Release whatever this owner holds or gets at this node.
    Release {
        node: usize,
    },
    /// Go on with a fresh owner. The releases of an attempt that failed may arrive late, after the next attempt has
    /// been granted: then they must not fit it.
    NewOwner,
}

/// A lock that was won.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Won {
    pub(crate) fence: Fence,
    /// Before the first request of the winning round.
    pub(crate) started: Moment,
    /// The nodes that have said that this owner does not hold there.
    pub(crate) denied: Vec<bool>,
}

#[derive(Debug)]
enum State {
    /// A round is out. `home` is the node whose queue granted, where there was one: the others are then asked again
    /// for a moment if they do not grant, since the previous holder's release may still be on its way to them, or a
    /// connection just being made.
    Round {
        round: Round,
        home: Option<usize>,
    },
    /// The quorum has granted; its highest fence is being written back.
    Raising {
        round: Round,
        fence: Fence,
        raised: Vec<Option<bool>>,
    },
    /// Queued at one node. Nodes passed over in this pass are marked.
    Queued {
        home: usize,
        since: Moment,
        ping_at: Moment,
        passed: Vec<Option<NodeError>>,
    },
    /// Everything is released; the next attempt starts at `until`.
    Pausing {
        until: Moment,
    },
    Over,
}

#[derive(Debug)]
pub(crate) struct Acquisition<R> {
    plan: Plan,
    rng: R,
    begun: Moment,
    state: State,
    serial: u64,
    /// The serial of the request that is out at each node, whose answer counts.
    awaited: Vec<Option<u64>>,
    ping: Option<u64>,
    unanswered_pings: u32,
    /// Nodes that may have given something to this owner since the last release.
    asked: Vec<bool>,
    /// Nodes that were asked to take the lock more than once since then: what this owner holds there may come from an
    /// answer that was lost.
    repeated: Vec<bool>,
    /// When to ask a node again that did not grant during a hand-off.
    again_at: Vec<Option<Moment>>,
    backoff: Backoff,
    nudges: Backoff,
    held: Option<Fence>,
    last_votes: Votes,
    /// Whether enough nodes answered lately for a quorum, or the one that the request is queued at.
    last_answered: bool,
}

type Step = Option<Result<Won, Error>>;

impl<R: Rng> Acquisition<R> {
    /// Starts: the first requests are in `out`.
    pub(crate) fn start(plan: Plan, rng: R, now: Now, out: &mut Vec<Action>) -> (Self, Step) {
        let nodes = plan.quorum.nodes();
        let mut this = Self {
            backoff: Backoff::new(plan.node_timeout / 4, plan.node_timeout.saturating_mul(2)),
            nudges: Backoff::new(plan.node_timeout / 64, plan.node_timeout / 4),
            rng,
            begun: now.moment,
            state: State::Over,
            serial: 0,
            awaited: vec![None; nodes],
            ping: None,
            unanswered_pings: 0,
            asked: vec![false; nodes],
            repeated: vec![false; nodes],
            again_at: vec![None; nodes],
            held: None,
            last_votes: Votes::default(),
            last_answered: false,
            plan,
        };
        let step = if this.plan.wait == Wait::Try || this.plan.optimistic {
            this.begin_round(now, None, out);
            None
        } else {
            let passed = this.passed_at_first();
            this.enqueue(now, passed, out)
        };
        (this, step)
    }

    /// An answer has come in.
    pub(crate) fn answer(
        &mut self,
        now: Now,
        node: usize,
        serial: u64,
        answer: Answer,
        out: &mut Vec<Action>,
    ) -> Step {
        if self.ping == Some(serial) {
            self.ping = None;
            return self.ping_answer(now, node, answer, out);
        }
        if self.awaited[node] != Some(serial) {
            return None;
        }
        self.awaited[node] = None;
        if let Answer::Final(error) = answer {
            return self.fail(error, out);
        }
        match &self.state {
            State::Round { .. } => self.round_answer(now, node, answer, out),
            State::Raising { .. } => self.raise_answer(now, node, answer, out),
            State::Queued { home, .. } if *home == node => self.queue_answer(now, node, answer, out),
            _ => None,
        }
    }

    /// When [`Self::woken`] wants to be called next.
    pub(crate) fn wake_at(&self) -> Option<Moment> {
        match &self.state {
            State::Round { .. } => self.again_at.iter().flatten().min().copied(),
            State::Queued { ping_at, .. } => {
                let give_up = self.deadline().map(|deadline| deadline.after(self.plan.node_timeout));
                give_up.into_iter().chain([*ping_at]).min()
            }
            State::Pausing { until } => Some(*until),
            State::Raising { .. } | State::Over => None,
        }
    }

    /// Time has passed.
    pub(crate) fn woken(&mut self, now: Now, out: &mut Vec<Action>) -> Step {
        match &self.state {
            State::Round { .. } => {
                self.ask_again(now, out);
                None
            }
            State::Queued { home, ping_at, .. } => {
                let (home, ping_at) = (*home, *ping_at);
                if self
                    .deadline()
                    .is_some_and(|deadline| deadline.after(self.plan.node_timeout) <= now.moment)
                {
                    out.push(Action::Withdraw { node: home });
                    let error = self.out_of_time(now);
                    return self.fail(error, out);
                }
                if ping_at <= now.moment {
                    self.send_ping(now, home, out);
                }
                None
            }
            State::Pausing { until } if *until <= now.moment => {
                let passed = vec![None; self.plan.quorum.nodes()];
                self.enqueue(now, passed, out)
            }
            _ => None,
        }
    }

    /// The caller no longer wants the lock: releases whatever was asked for.
    pub(crate) fn cancel(&mut self, out: &mut Vec<Action>) {
        if let State::Queued { home, .. } = self.state {
            out.push(Action::Withdraw { node: home });
        }
        self.release_asked(out);
        self.state = State::Over;
    }

    fn deadline(&self) -> Option<Moment> {
        match self.plan.wait {
            Wait::Try => Some(self.begun),
            Wait::UpTo(limit) => Some(self.begun.after(limit)),
            Wait::Unlimited => None,
        }
    }

    fn passed_at_first(&self) -> Vec<Option<NodeError>> {
        let suspect = |suspect: &bool| {
            suspect.then(|| NodeError::new(NodeErrorKind::Connection, "did not answer lately"))
        };
        if self.plan.suspect.iter().all(|suspect| *suspect) {
            vec![None; self.plan.quorum.nodes()]
        } else {
            self.plan.suspect.iter().map(suspect).collect()
        }
    }

    fn send(&mut self, node: usize, ask: Ask, out: &mut Vec<Action>) {
        self.serial += 1;
        self.awaited[node] = Some(self.serial);
        self.repeated[node] |= self.asked[node] && matches!(ask, Ask::Take { .. } | Ask::Queue { .. });
        self.asked[node] = true;
        out.push(Action::Send { node, serial: self.serial, ask });
    }

    /// The fence that all nodes are asked to settle on, so that in the ordinary case no second round is needed to write
    /// the highest one back. For that it has to be above what each node makes from its own clock. It should not be
    /// much more: a node that forgets its counter falls back on its clock.
    fn proposal(&self, now: Now) -> Option<Fence> {
        let lead = u64::try_from(self.plan.lead.as_micros()).unwrap_or(0);
        (self.plan.quorum.nodes() > 1).then(|| Fence::new(now.fence.get().saturating_add(lead)))
    }

    fn begin_round(&mut self, now: Now, home: Option<usize>, out: &mut Vec<Action>) {
        let propose = self.proposal(now);
        self.again_at.fill(None);
        self.nudges.reset();
        for node in 0..self.plan.quorum.nodes() {
            let ask = if home == Some(node) { Ask::Confirm { propose } } else { Ask::Take { propose } };
            self.send(node, ask, out);
        }
        self.state = State::Round { round: Round::new(self.plan.quorum, now.moment), home };
    }

    fn round_answer(&mut self, now: Now, node: usize, answer: Answer, out: &mut Vec<Action>) -> Step {
        let vote = match answer {
            Answer::Granted(fence) => Vote::Granted(fence),
            Answer::Held(_) if self.plan.sole_owner || self.repeated[node] => {
                let ask = Ask::Confirm { propose: self.proposal(now) };
                self.send(node, ask, out);
                return None;
            }
            Answer::Held(fence) => {
                self.held = self.held.max(Some(fence));
                Vote::Denied
            }
            Answer::Failed(error) => Vote::Unreachable(error),
            Answer::Denied | Answer::Replaced(_) | Answer::Alive | Answer::Final(_) => Vote::Denied,
        };
        let State::Round { round, home } = &mut self.state else { return None };
        let patience_ends = round.started.after(self.plan.node_timeout);
        let granted = matches!(vote, Vote::Granted(_));
        if !granted && home.is_some_and(|home| home != node) && now.moment < patience_ends {
            self.again_at[node] = Some(now.moment.after(self.nudges.next(&mut self.rng)));
        }
        round.record(node, vote);
        self.settle_round(now, out)
    }

    fn settle_round(&mut self, now: Now, out: &mut Vec<Action>) -> Step {
        let State::Round { round, .. } = &self.state else { return None };
        match round.standing() {
            Standing::Open => None,
            Standing::Won => self.quorum_granted(now, out),
            Standing::Lost if self.again_at.iter().any(Option::is_some) => None,
            Standing::Lost => self.round_lost(now, out),
        }
    }

    fn ask_again(&mut self, now: Now, out: &mut Vec<Action>) {
        let propose = self.proposal(now);
        for node in 0..self.again_at.len() {
            if self.again_at[node].is_some_and(|at| at <= now.moment) {
                self.again_at[node] = None;
                if let State::Round { round, .. } = &mut self.state {
                    round.reopen(node);
                }
                self.send(node, Ask::Take { propose }, out);
            }
        }
    }

    fn quorum_granted(&mut self, now: Now, out: &mut Vec<Action>) -> Step {
        let State::Round { round, .. } = std::mem::replace(&mut self.state, State::Over) else { return None };
        let fence = round.granted().map(|(_, fence)| fence).max()?;
        let raised: Vec<_> = (0..self.plan.quorum.nodes())
            .map(|node| match round.vote(node) {
                Some(Vote::Granted(own)) if *own >= fence => Some(true),
                Some(Vote::Granted(_)) | None => None,
                Some(_) => Some(false),
            })
            .collect();
        for (node, own) in round.granted().collect::<Vec<_>>() {
            if own < fence {
                self.send(node, Ask::Raise { to: fence }, out);
            }
        }
        self.state = State::Raising { round, fence, raised };
        self.settle_raise(now, out)
    }

    fn raise_answer(&mut self, now: Now, node: usize, answer: Answer, out: &mut Vec<Action>) -> Step {
        let State::Raising { round, fence, raised } = &mut self.state else { return None };
        let to = *fence;
        match answer {
            Answer::Granted(own) => {
                round.record(node, Vote::Granted(own));
                if own >= to {
                    raised[node] = Some(true);
                } else {
                    self.send(node, Ask::Raise { to }, out);
                }
            }
            Answer::Failed(error) => {
                round.record(node, Vote::Unreachable(error));
                raised[node] = Some(false);
            }
            _ => {
                round.record(node, Vote::Denied);
                raised[node] = Some(false);
            }
        }
        self.settle_raise(now, out)
    }

    fn settle_raise(&mut self, now: Now, out: &mut Vec<Action>) -> Step {
        let State::Raising { round, fence, raised } = &self.state else { return None };
        let against = raised.iter().filter(|raised| **raised == Some(false)).count();
        let quorum = self.plan.quorum;
        if raised.iter().filter(|raised| **raised == Some(true)).count() >= quorum.size() {
            let spent = now.moment.since(round.started);
            if validity(self.plan.ttl, spent).is_none() {
                return self.too_slow(now, spent, out);
            }
            let denied = (0..quorum.nodes()).map(|node| round.vote(node) == Some(&Vote::Denied)).collect();
            let won = Won { fence: *fence, started: round.started, denied };
            self.state = State::Over;
            return Some(Ok(won));
        }
        if against > quorum.nodes() - quorum.size() {
            return self.round_lost(now, out);
        }
        None
    }

    fn too_slow(&mut self, now: Now, spent: Duration, out: &mut Vec<Action>) -> Step {
        let error = Error::TooSlow { ttl: self.plan.ttl, spent };
        if !self.time_left(now) {
            return self.fail(error, out);
        }
        self.release_asked(out);
        self.pause(now);
        None
    }

    fn round_lost(&mut self, now: Now, out: &mut Vec<Action>) -> Step {
        let (State::Round { round, .. } | State::Raising { round, .. }) = &self.state else { return None };
        self.last_votes = round.votes();
        self.last_answered = !round.is_out_of_reach();
        let first_try = matches!(self.state, State::Round { home: None, .. });
        if let Some(fence) = self.held {
            return self.fail(Error::Held { fence }, out);
        }
        if !self.time_left(now) {
            let error = self.out_of_time(now);
            return self.fail(error, out);
        }
        self.release_asked(out);
        if first_try && self.last_answered {
            let passed = vec![None; self.plan.quorum.nodes()];
            return self.enqueue(now, passed, out);
        }
        self.pause(now);
        None
    }

    fn time_left(&self, now: Now) -> bool {
        self.deadline().is_none_or(|deadline| now.moment < deadline)
    }

    fn out_of_time(&self, now: Now) -> Error {
        let votes = self.last_votes.clone();
        match (self.last_answered, self.plan.wait) {
            (false, _) => Error::NoQuorum { votes },
            (true, Wait::Try) => Error::Refused { votes },
            (true, _) => Error::TimedOut { waited: self.waited(now), votes },
        }
    }

    /// For people, to whom a part of a millisecond says nothing.
    fn waited(&self, now: Now) -> Duration {
        Duration::from_millis(millis_rounded_up(now.moment.since(self.begun)))
    }

    /// No pause outlasts the wait: what is left of it is enough for one more attempt.
    fn pause(&mut self, now: Now) {
        let pause = now.moment.after(self.backoff.next(&mut self.rng));
        let until = self.deadline().map_or(pause, |deadline| pause.min(deadline));
        self.awaited.fill(None);
        self.state = State::Pausing { until };
    }

    /// Queues at the first node that has not been passed over.
    fn enqueue(&mut self, now: Now, passed: Vec<Option<NodeError>>, out: &mut Vec<Action>) -> Step {
        let Some(home) = passed.iter().position(Option::is_none) else {
            self.last_votes = Votes(passed.into_iter().map(|error| error.map(Vote::Unreachable)).collect());
            self.last_answered = false;
            return self.queue_nowhere(now, out);
        };
        let millis = match self.deadline() {
            None => 0,
            Some(deadline) => wait_millis(deadline.since(now.moment)),
        };
        self.awaited.fill(None);
        self.send(home, Ask::Queue { millis }, out);
        let ping_at = now.moment.after(self.plan.node_timeout);
        self.ping = None;
        self.unanswered_pings = 0;
        self.state = State::Queued { home, since: now.moment, ping_at, passed };
        None
    }

    fn queue_nowhere(&mut self, now: Now, out: &mut Vec<Action>) -> Step {
        if !self.time_left(now) {
            let error = self.out_of_time(now);
            return self.fail(error, out);
        }
        self.pause(now);
        None
    }

    fn queue_answer(&mut self, now: Now, node: usize, answer: Answer, out: &mut Vec<Action>) -> Step {
        let State::Queued { since, .. } = &self.state else { return None };
        let since = *since;
        let prompt = now.moment.since(since) <= self.plan.ttl.as_duration() / UNCONFIRMED_PART;
        match answer {
            Answer::Granted(fence) if self.plan.quorum.nodes() == 1 && prompt && !self.plan.confirm => {
                let mut round = Round::new(self.plan.quorum, since);
                round.record(node, Vote::Granted(fence));
                self.state = State::Round { round, home: Some(node) };
                self.settle_round(now, out)
            }
            Answer::Granted(_) => {
                self.begin_round(now, Some(node), out);
                None
            }
            Answer::Held(_) if self.plan.sole_owner || self.repeated[node] => {
                self.begin_round(now, Some(node), out);
                None
            }
            Answer::Held(fence) => {
                self.asked[node] = false;
                self.fail(Error::Held { fence }, out)
            }
            // Nobody else has this owner: an earlier request of ours, held up in a broken connection, arrived late.
            Answer::Replaced(message) if self.plan.sole_owner => {
                self.home_failed(now, node, NodeError::new(NodeErrorKind::Connection, message), out)
            }
            Answer::Replaced(message) => {
                self.asked[node] = false;
                self.fail(Error::Replaced(message), out)
            }
            Answer::Failed(error) => self.home_failed(now, node, error, out),
            Answer::Denied | Answer::Alive | Answer::Final(_) => {
                self.asked[node] = false;
                self.fail(Error::TimedOut { waited: self.waited(now), votes: Votes::default() }, out)
            }
        }
    }

    /// The node whose queue we stand in is out of reach: queue at the next one. A plain lock has no next one, and asks
    /// the same node again after a pause; a given owner then takes over its old place if the server still has it.
    fn home_failed(&mut self, now: Now, node: usize, error: NodeError, out: &mut Vec<Action>) -> Step {
        let State::Queued { home, passed, .. } = &mut self.state else { return None };
        if *home != node {
            return None;
        }
        let mut passed = std::mem::take(passed);
        passed[node] = Some(error);
        out.push(Action::Withdraw { node });
        if self.plan.sole_owner || self.plan.quorum.nodes() > 1 {
            self.release_asked(out);
        }
        self.enqueue(now, passed, out)
    }

    /// One node among several loses the queue as soon as it fails to answer. The only node keeps it for longer, since
    /// leaving it means losing the place in line.
    fn ping_answer(&mut self, now: Now, node: usize, answer: Answer, out: &mut Vec<Action>) -> Step {
        let Answer::Failed(error) = answer else {
            self.unanswered_pings = 0;
            self.last_answered = true;
            return None;
        };
        self.unanswered_pings += 1;
        let bearable = if self.plan.quorum.nodes() == 1 { UNANSWERED_PINGS_ALONE } else { 0 };
        if self.unanswered_pings <= bearable {
            return None;
        }
        self.home_failed(now, node, error, out)
    }

    fn send_ping(&mut self, now: Now, home: usize, out: &mut Vec<Action>) {
        if let State::Queued { ping_at, .. } = &mut self.state {
            *ping_at = now.moment.after(self.plan.node_timeout.saturating_mul(2));
        }
        if self.ping.is_none() {
            self.serial += 1;
            self.ping = Some(self.serial);
            out.push(Action::Send { node: home, serial: self.serial, ask: Ask::Ping });
        }
    }

    fn fail(&mut self, error: Error, out: &mut Vec<Action>) -> Step {
        self.release_asked(out);
        self.state = State::Over;
        Some(Err(error))
    }

    /// Releases at every node that was asked, whatever it answered: a reply may have been lost. Where a given owner
    /// turned out to hold the lock by another request, only what is known to come from this one is released.
    fn release_asked(&mut self, out: &mut Vec<Action>) {
        for node in 0..self.asked.len() {
            let vote = match &self.state {
                State::Round { round, .. } | State::Raising { round, .. } => round.vote(node),
                _ => None,
            };
            let granted_here = matches!(vote, Some(Vote::Granted(_)));
            // The only node there is has just said that there is nothing to release.
            let denied_alone = self.plan.quorum.nodes() == 1 && vote == Some(&Vote::Denied);
            if self.asked[node] && !denied_alone && (self.held.is_none() || granted_here) {
                out.push(Action::Release { node });
            }
        }
        if self.plan.sole_owner {
            out.push(Action::NewOwner);
        }
        self.asked.fill(false);
        self.repeated.fill(false);
        self.awaited.fill(None);
        self.again_at.fill(None);
    }
}
