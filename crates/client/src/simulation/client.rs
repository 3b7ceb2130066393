//! A simulated client: the real acquisition and lease, on a clock of its own.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::node::{Command, Nanos, Reply, Sender, nanos};
use crate::acquisition::{Acquisition, Action, Answer, Ask, Now, Plan, Won};
use crate::clock::Moment;
use crate::error::Error;
use crate::fence::Fence;
use crate::lease::{Due, Lease, RenewalId, Verdict, Watchdog};
use crate::round::Quorum;
use crate::ttl::{Ttl, Wait};
use crate::vote::{NodeError, NodeErrorKind, Vote};

/// A request that leaves a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outgoing {
    pub(super) node: usize,
    pub(super) owner: u64,
    pub(super) sender: Sender,
    pub(super) command: Command,
    /// Whether the client waits for the answer no longer than the node timeout.
    pub(super) timed: bool,
}

/// What a client has come to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Milestone {
    Won(u64),
    Failed(Error),
    Lost,
}

enum Phase {
    Idle { until: Nanos },
    Acquiring(Box<Acquisition<StdRng>>),
    Holding { lease: Lease, release_at: Nanos, renewals: Vec<(u64, RenewalId)> },
}

pub(super) struct Client {
    id: usize,
    quorum: Quorum,
    rate: f64,
    wall: u64,
    rng: StdRng,
    phase: Phase,
    epoch: u64,
    owners: u64,
    /// The request that is queued somewhere.
    queued: Option<u64>,
    serial: u64,
    ttl: Ttl,
    seen: u64,
    pub(super) node_timeout: Duration,
    pub(super) paused_until: Nanos,
    /// Only waits that are long enough, since faults are over and this client must get its turn.
    pub(super) patient: bool,
}

impl Client {
    pub(super) fn new(id: usize, quorum: Quorum, rate: f64, wall: u64, seed: u64) -> Self {
        Self {
            id,
            quorum,
            rate,
            wall,
            rng: StdRng::seed_from_u64(seed),
            phase: Phase::Idle { until: 0 },
            epoch: 0,
            owners: 0,
            queued: None,
            serial: 0,
            ttl: Ttl::new(Duration::from_secs(1)).expect("in range"),
            seen: 0,
            node_timeout: Duration::from_millis(50),
            paused_until: 0,
            patient: false,
        }
    }

    fn clock(&self, now: Nanos) -> Moment {
        Moment::since_boot(Duration::from_nanos((now as f64 * self.rate) as u64))
    }

    fn now(&self, now: Nanos) -> Now {
        let wall = self.wall + now / 1000;
        Now { moment: self.clock(now), fence: Fence::new(wall.max(self.seen + 1)) }
    }

    fn owner(&self) -> u64 {
        self.owners * 1000 + self.id as u64
    }

    /// Whether code of this client would find its guard valid at this moment.
    pub(super) fn believes(&self, now: Nanos) -> bool {
        match &self.phase {
            Phase::Holding { lease, .. } => !lease.left(self.clock(now)).is_zero(),
            _ => false,
        }
    }

    /// When this client wants to be woken, in true time.
    pub(super) fn wake_at(&self, now: Nanos) -> Option<Nanos> {
        let in_true_time = |moment: Moment| {
            let wait = moment.since(self.clock(now));
            now + (nanos(wait) as f64 / self.rate) as Nanos + 1000
        };
        match &self.phase {
            Phase::Idle { until } => Some((*until).max(now + 1000)),
            Phase::Acquiring(acquisition) => acquisition.wake_at().map(in_true_time),
            Phase::Holding { lease, release_at, .. } => {
                let lease = lease.wake_at().map(in_true_time);
                lease.into_iter().chain([(*release_at).max(now + 1000)]).min()
            }
        }
    }

    pub(super) fn wake(&mut self, now: Nanos, out: &mut Vec<Outgoing>) -> Option<Milestone> {
        match &mut self.phase {
            Phase::Idle { until } if *until <= now => self.begin(now, out),
            Phase::Idle { .. } => None,
            Phase::Acquiring(_) => {
                self.drive(now, out, |acquisition, now, actions| acquisition.woken(now, actions))
            }
            Phase::Holding { .. } => self.tend(now, out),
        }
    }

    pub(super) fn reply(
        &mut self,
        now: Nanos,
        node: usize,
        sender: Sender,
        reply: Option<Reply>,
        out: &mut Vec<Outgoing>,
    ) -> Option<Milestone> {
        if sender.epoch != self.epoch {
            return None;
        }
        if let Some(Reply::Fence(fence) | Reply::Held(fence)) = reply {
            self.seen = self.seen.max(fence);
        }
        if let Phase::Holding { lease, renewals, .. } = &mut self.phase {
            let (_, id) = *renewals.iter().find(|(serial, _)| *serial == sender.serial)?;
            let moment = Moment::since_boot(Duration::from_nanos((now as f64 * self.rate) as u64));
            return match lease.vote(moment, id, node, vote(reply), &mut self.rng) {
                Verdict::Lost(_) => self.lost(now, out),
                _ => None,
            };
        }
        let answer = answer(reply);
        self.drive(now, out, |acquisition, now, actions| {
            acquisition.answer(now, node, sender.serial, answer, actions)
        })
    }

    fn begin(&mut self, now: Nanos, out: &mut Vec<Outgoing>) -> Option<Milestone> {
        self.epoch += 1;
        self.owners += 1;
        self.ttl = Ttl::new(Duration::from_millis(self.rng.random_range(300..3000))).expect("in range");
        let wait = match self.rng.random_range(0..4) {
            _ if self.patient => Wait::Unlimited,
            0 => Wait::Try,
            1 => Wait::Unlimited,
            _ => Wait::UpTo(Duration::from_millis(self.rng.random_range(1..5000))),
        };
        let plan = Plan {
            quorum: self.quorum,
            ttl: self.ttl,
            wait,
            node_timeout: self.node_timeout,
            lead: Duration::from_millis(self.rng.random_range(0..50)),
            sole_owner: true,
            optimistic: self.rng.random(),
            confirm: false,
            suspect: vec![false; self.quorum.nodes()],
        };
        let mut actions = Vec::new();
        let rng = StdRng::seed_from_u64(self.rng.random());
        let (acquisition, _) = Acquisition::start(plan, rng, self.now(now), &mut actions);
        self.phase = Phase::Acquiring(Box::new(acquisition));
        self.carry_out(actions, out);
        None
    }

    fn drive(
        &mut self,
        now: Nanos,
        out: &mut Vec<Outgoing>,
        step: impl FnOnce(&mut Acquisition<StdRng>, Now, &mut Vec<Action>) -> Option<Result<Won, Error>>,
    ) -> Option<Milestone> {
        let time = self.now(now);
        let Phase::Acquiring(acquisition) = &mut self.phase else { return None };
        let mut actions = Vec::new();
        let outcome = step(acquisition, time, &mut actions);
        self.carry_out(actions, out);
        match outcome? {
            Ok(won) => {
                let hold = Duration::from_millis(self.rng.random_range(1..2 * self.ttl.millis()));
                let until = self.clock(now).after(Duration::from_secs(3600));
                let watchdog = Watchdog { renews: self.rng.random(), until };
                let lease = Lease::new(self.quorum, self.ttl, won.started, won.denied, watchdog);
                let release_at = now + nanos(hold);
                self.phase = Phase::Holding { lease, release_at, renewals: Vec::new() };
                Some(Milestone::Won(won.fence.get()))
            }
            Err(error) => {
                self.rest(now);
                Some(Milestone::Failed(error))
            }
        }
    }

    fn tend(&mut self, now: Nanos, out: &mut Vec<Outgoing>) -> Option<Milestone> {
        let moment = self.clock(now);
        let (owner, epoch, client) = (self.owner(), self.epoch, self.id);
        let Phase::Holding { lease, release_at, renewals } = &mut self.phase else { return None };
        match lease.due(moment) {
            Due::Lost(_) => return self.lost(now, out),
            Due::Renew => {
                let (id, ttl) = lease.begin_renewal(moment, None);
                self.serial += 1;
                let serial = 1_000_000 + self.serial;
                renewals.push((serial, id));
                let sender = Sender { client, epoch, serial };
                let command = Command::Renew { ttl: ttl.as_duration(), propose: None };
                for node in lease.standing_nodes() {
                    out.push(Outgoing { node, owner, sender, command, timed: true });
                }
            }
            Due::Nothing => {}
        }
        if *release_at <= now {
            lease.release();
            self.release_all(out);
            self.rest(now);
        }
        None
    }

    fn lost(&mut self, now: Nanos, out: &mut Vec<Outgoing>) -> Option<Milestone> {
        self.release_all(out);
        self.rest(now);
        Some(Milestone::Lost)
    }

    fn rest(&mut self, now: Nanos) {
        self.phase = Phase::Idle { until: now + nanos(Duration::from_millis(self.rng.random_range(0..500))) };
    }

    fn release_all(&self, out: &mut Vec<Outgoing>) {
        for node in 0..self.quorum.nodes() {
            out.push(self.outgoing(node, 0, Command::Release, false));
        }
    }

    fn outgoing(&self, node: usize, serial: u64, command: Command, timed: bool) -> Outgoing {
        let sender = Sender { client: self.id, epoch: self.epoch, serial };
        Outgoing { node, owner: self.owner(), sender, command, timed }
    }

    fn carry_out(&mut self, actions: Vec<Action>, out: &mut Vec<Outgoing>) {
        let ttl = self.ttl.as_duration();
        for action in actions {
            out.push(match action {
                Action::NewOwner => {
                    self.owners += 1;
                    continue;
                }
                Action::Withdraw { node } => {
                    let serial = self.queued.take().unwrap_or(0);
                    self.outgoing(node, 0, Command::Withdraw { serial }, false)
                }
                Action::Release { node } => self.outgoing(node, 0, Command::Release, false),
                Action::Send { node, serial, ask } => {
                    let number = |propose: Option<Fence>| propose.map(Fence::get);
                    let command = match ask {
                        Ask::Take { propose } => Command::Take { ttl, propose: number(propose) },
                        Ask::Queue { millis } => {
                            self.queued = Some(serial);
                            let wait = (millis > 0).then(|| Duration::from_millis(millis));
                            Command::Queue { ttl, wait }
                        }
                        Ask::Confirm { propose } => Command::Renew { ttl, propose: number(propose) },
                        Ask::Raise { to } => Command::Raise { to: to.get() },
                        Ask::Ping => Command::Ping,
                    };
                    self.outgoing(node, serial, command, !matches!(ask, Ask::Queue { .. }))
                }
            });
        }
    }
}

fn unreachable() -> NodeError {
    NodeError::new(NodeErrorKind::Timeout, "no answer")
}

fn answer(reply: Option<Reply>) -> Answer {
    match reply {
        Some(Reply::Fence(fence)) => Answer::Granted(Fence::new(fence)),
        Some(Reply::Null) => Answer::Denied,
        Some(Reply::Held(fence)) => Answer::Held(Fence::new(fence)),
        Some(Reply::Replaced) => Answer::Replaced("REPLACED".into()),
        Some(Reply::Pong) => Answer::Alive,
        Some(Reply::Quarantine) => Answer::Failed(NodeError::new(NodeErrorKind::Quarantine, "QUARANTINE")),
        None => Answer::Failed(unreachable()),
    }
}

fn vote(reply: Option<Reply>) -> Vote {
    match reply {
        Some(Reply::Fence(fence)) => Vote::Granted(Fence::new(fence)),
        Some(Reply::Null) => Vote::Denied,
        _ => Vote::Unreachable(unreachable()),
    }
}
