//! Time, links and faults of the simulated world, and what is checked in it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::client::{Client, Milestone, Outgoing};
use super::node::{Nanos, Node, Reply, Sender, nanos};
use crate::round::Quorum;

/// Longer than any lease that a simulated client asks for, whatever the clocks do.
const QUARANTINE: Duration = Duration::from_millis(3100);

/// Microseconds since 1970 when the simulated world begins.
const EPOCH: u64 = 1_700_000_000_000_000;

/// How soon a message is sent again over a link that was cut.
const RETRANSMISSION: Nanos = 100_000_000;

/// Which faults a world has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Faults {
    pub(super) network: bool,
    pub(super) crashes: bool,
    pub(super) pauses: bool,
    pub(super) skew: bool,
    /// Restarted nodes remember nothing, and sit out no quarantine either.
    pub(super) forget: bool,
}

impl Faults {
    pub(super) const NONE: Self =
        Self { network: false, crashes: false, pauses: false, skew: false, forget: false };
    pub(super) const ALL: Self =
        Self { network: true, crashes: true, pauses: true, skew: true, forget: false };
}

/// What came of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct History {
    pub(super) wins: u64,
    pub(super) lost: u64,
    pub(super) violations: Vec<String>,
    /// Clients that never won after all faults were over.
    pub(super) starved: Vec<usize>,
}

enum Event {
    Request(Outgoing),
    Reply {
        node: usize,
        sender: Sender,
        reply: Option<Reply>,
    },
    /// The client has waited long enough.
    Timeout {
        node: usize,
        sender: Sender,
    },
    Wake {
        client: usize,
        token: u64,
    },
    Settle {
        node: usize,
        token: u64,
    },
    Fault,
    Restart(usize),
    Heal,
}

pub(super) struct World {
    rng: StdRng,
    faults: Faults,
    now: Nanos,
    sequence: u64,
    agenda: BinaryHeap<Reverse<(Nanos, u64)>>,
    events: HashMap<u64, Event>,
    nodes: Vec<Node>,
    clients: Vec<Client>,
    cut: HashSet<(usize, usize)>,
    /// When the last message arrived on a link: a connection keeps order.
    arrivals: HashMap<(usize, usize), Nanos>,
    /// Requests that have had their one answer.
    answered: HashSet<(usize, usize, u64, u64)>,
    /// The wake-up that counts, of each client and of each node; earlier ones were replaced.
    wake_tokens: HashMap<usize, u64>,
    settle_tokens: HashMap<usize, u64>,
    highest: u64,
    healed: bool,
    served: HashSet<usize>,
    history: History,
}

impl World {
    pub(super) fn new(nodes: usize, clients: usize, faults: Faults, seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let rate = |rng: &mut StdRng| if faults.skew { rng.random_range(0.996..1.004) } else { 1.0 };
        let wall = |rng: &mut StdRng| EPOCH + if faults.skew { rng.random_range(0..2_000_000) } else { 0 };
        let quorum = Quorum::of(nodes);
        let nodes = (0..nodes).map(|_| Node::new(rate(&mut rng), wall(&mut rng))).collect();
        let clients = (0..clients)
            .map(|id| Client::new(id, quorum, rate(&mut rng), wall(&mut rng), rng.random()))
            .collect();
        Self {
            rng,
            faults,
            now: 0,
            sequence: 0,
            agenda: BinaryHeap::new(),
            events: HashMap::new(),
            nodes,
            clients,
            cut: HashSet::new(),
            arrivals: HashMap::new(),
            answered: HashSet::new(),
            wake_tokens: HashMap::new(),
            settle_tokens: HashMap::new(),
            highest: 0,
            healed: false,
            served: HashSet::new(),
            history: History::default(),
        }
    }

    /// Runs for so long with faults, and for as long again without.
    pub(super) fn run(mut self, length: Duration) -> History {
        for client in 0..self.clients.len() {
            self.at(0, Event::Wake { client, token: 0 });
        }
        self.at(0, Event::Fault);
        self.at(nanos(length), Event::Heal);
        while let Some(Reverse((time, sequence))) = self.agenda.pop() {
            if time > 2 * nanos(length) {
                break;
            }
            self.now = self.now.max(time);
            let event = self.events.remove(&sequence).expect("on the agenda once");
            self.handle(event);
            self.check_holders();
        }
        let served = &self.served;
        self.history.starved = (0..self.clients.len()).filter(|client| !served.contains(client)).collect();
        self.history
    }

    fn at(&mut self, time: Nanos, event: Event) {
        self.sequence += 1;
        self.agenda.push(Reverse((time.max(self.now), self.sequence)));
        self.events.insert(self.sequence, event);
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Request(request) => self.request_arrives(request),
            Event::Reply { node, sender, reply } => self.reply_arrives(node, sender, reply),
            Event::Timeout { node, sender } => self.answered(node, sender, None),
            Event::Wake { client, token } => self.wake(client, token),
            Event::Settle { node, token } => {
                if self.settle_tokens.get(&node) == Some(&token) {
                    self.settle(node);
                }
            }
            Event::Fault => self.fault(),
            Event::Restart(node) => {
                let keeps = !self.faults.forget && self.rng.random();
                let quarantine = (!self.faults.forget).then_some(QUARANTINE);
                self.nodes[node].restart(self.now, keeps, quarantine);
            }
            Event::Heal => {
                self.healed = true;
                self.cut.clear();
                for client in &mut self.clients {
                    client.patient = true;
                }
            }
        }
    }

    fn wake(&mut self, client: usize, token: u64) {
        if self.wake_tokens.get(&client).is_some_and(|current| *current != token) {
            return;
        }
        if self.clients[client].paused_until > self.now {
            return self.at(self.clients[client].paused_until, Event::Wake { client, token });
        }
        let mut out = Vec::new();
        let milestone = self.clients[client].wake(self.now, &mut out);
        self.after_step(client, milestone, out);
    }

    fn request_arrives(&mut self, request: Outgoing) {
        let (node, sender) = (request.node, request.sender);
        if self.cut.contains(&(sender.client, node)) {
            return self.at(self.now + RETRANSMISSION, Event::Request(request));
        }
        if !self.nodes[node].up {
            return self.answer_later(node, sender, None);
        }
        if self.nodes[node].frozen_until > self.now {
            return self.at(self.nodes[node].frozen_until, Event::Request(request));
        }
        self.settle(node);
        let reply = self.nodes[node].run(self.now, request.owner, sender, request.command);
        if let Some(reply) = reply {
            self.answer_later(node, sender, Some(reply));
        }
        self.settle(node);
    }

    fn settle(&mut self, node: usize) {
        if !self.nodes[node].up {
            return;
        }
        let next = if self.nodes[node].frozen_until > self.now {
            Some(self.nodes[node].frozen_until)
        } else {
            let (replies, next) = self.nodes[node].settle(self.now);
            for (sender, reply) in replies {
                self.answer_later(node, sender, Some(reply));
            }
            next
        };
        if let Some(next) = next {
            let token = self.sequence + 1;
            self.settle_tokens.insert(node, token);
            self.at(next, Event::Settle { node, token });
        }
    }

    fn answer_later(&mut self, node: usize, sender: Sender, reply: Option<Reply>) {
        let time = self.now + self.delay();
        self.at(time, Event::Reply { node, sender, reply });
    }

    fn reply_arrives(&mut self, node: usize, sender: Sender, reply: Option<Reply>) {
        if self.cut.contains(&(sender.client, node)) {
            self.at(self.now + RETRANSMISSION, Event::Reply { node, sender, reply });
        } else {
            self.answered(node, sender, reply);
        }
    }

    fn answered(&mut self, node: usize, sender: Sender, reply: Option<Reply>) {
        let id = sender.client;
        if self.clients[id].paused_until > self.now {
            return self.at(self.clients[id].paused_until, Event::Reply { node, sender, reply });
        }
        if sender.serial == 0 || !self.answered.insert((id, node, sender.epoch, sender.serial)) {
            return;
        }
        let mut out = Vec::new();
        let milestone = self.clients[id].reply(self.now, node, sender, reply, &mut out);
        self.after_step(id, milestone, out);
    }

    fn after_step(&mut self, id: usize, milestone: Option<Milestone>, out: Vec<Outgoing>) {
        for request in out {
            self.transmit(id, request);
        }
        match milestone {
            Some(Milestone::Won(fence)) => self.won(id, fence),
            Some(Milestone::Lost) => self.history.lost += 1,
            Some(Milestone::Failed(_)) | None => {}
        }
        if let Some(time) = self.clients[id].wake_at(self.now) {
            let token = self.sequence + 1;
            self.wake_tokens.insert(id, token);
            self.at(time, Event::Wake { client: id, token });
        }
    }

    fn transmit(&mut self, id: usize, request: Outgoing) {
        let (node, sender) = (request.node, request.sender);
        if request.timed {
            let timeout = self.now + nanos(self.clients[id].node_timeout);
            self.at(timeout, Event::Timeout { node, sender });
        }
        let stale = self.faults.network && !self.healed && self.rng.random_ratio(1, 100);
        let mut arrival = self.now + self.delay();
        if stale {
            // Left over in a connection that broke: it arrives late, and out of order.
            arrival += nanos(Duration::from_millis(self.rng.random_range(0..3000)));
        } else {
            let last = self.arrivals.entry((id, node)).or_default();
            arrival = arrival.max(*last + 1);
            *last = arrival;
        }
        self.at(arrival, Event::Request(request));
    }

    fn delay(&mut self) -> Nanos {
        let slow = self.faults.network && !self.healed && self.rng.random_ratio(1, 20);
        let micros = if slow { 1_000..200_000 } else { 100..3_000 };
        self.rng.random_range(micros) * 1000
    }

    fn fault(&mut self) {
        if self.healed {
            return;
        }
        let node = self.rng.random_range(0..self.nodes.len());
        let client = self.rng.random_range(0..self.clients.len());
        let length = nanos(Duration::from_millis(self.rng.random_range(1..4000)));
        match self.rng.random_range(0..5) {
            0 if self.faults.network => {
                self.cut.insert((client, node));
            }
            1 if self.faults.network => self.cut.clear(),
            2 if self.faults.crashes && self.nodes[node].up => {
                for sender in self.nodes[node].crash() {
                    self.answer_later(node, sender, None);
                }
                self.at(self.now + length, Event::Restart(node));
            }
            3 if self.faults.pauses => self.clients[client].paused_until = self.now + length,
            4 if self.faults.pauses => self.nodes[node].frozen_until = self.now + length,
            _ => {}
        }
        let pause = nanos(Duration::from_millis(self.rng.random_range(1..1500)));
        self.at(self.now + pause, Event::Fault);
    }

    fn won(&mut self, id: usize, fence: u64) {
        self.history.wins += 1;
        if self.healed {
            self.served.insert(id);
        }
        if fence <= self.highest {
            let violation = format!("at {}: fence {fence} after {}", self.now, self.highest);
            self.history.violations.push(violation);
        }
        self.highest = self.highest.max(fence);
    }

    fn check_holders(&mut self) {
        let holders: Vec<_> =
            (0..self.clients.len()).filter(|id| self.clients[*id].believes(self.now)).collect();
        if holders.len() > 1 && self.history.violations.len() < 3 {
            let violation = format!("at {}: {holders:?} hold together", self.now);
            self.history.violations.push(violation);
        }
    }
}
