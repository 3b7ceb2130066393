//! A simulated server: the commands that the coordinator uses, on a clock of its own.

use std::collections::VecDeque;
use std::time::Duration;

/// Nanoseconds.
pub(super) type Nanos = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sender {
    pub(super) client: usize,
    pub(super) epoch: u64,
    pub(super) serial: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Command {
    Take {
        ttl: Duration,
        propose: Option<u64>,
    },
    Queue {
        ttl: Duration,
        wait: Option<Duration>,
    },
    Renew {
        ttl: Duration,
        propose: Option<u64>,
    },
    Raise {
        to: u64,
    },
    Ping,
    Release,
    /// The connection of this queued request is closed.
    Withdraw {
        serial: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Fence(u64),
    Null,
    Held(u64),
    Pong,
    Quarantine,
    Replaced,
}

#[derive(Clone, Copy, Debug)]
struct Holder {
    owner: u64,
    deadline: Nanos,
    fence: u64,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    owner: u64,
    ttl: Duration,
    ends: Option<Nanos>,
    sender: Sender,
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    /// How fast this node's clock runs.
    rate: f64,
    /// By how many microseconds its wall clock differs.
    offset: u64,
    holder: Option<Holder>,
    queue: VecDeque<Waiter>,
    /// Waiters whose place a newer request took.
    replaced: Vec<Sender>,
    /// Connections that were closed: what was under way in them may still be granted, but does not wait.
    closed: Vec<Sender>,
    counter: u64,
    quarantine_until: Nanos,
    pub(super) up: bool,
    pub(super) frozen_until: Nanos,
}

impl Node {
    pub(super) fn new(rate: f64, offset: u64) -> Self {
        Self {
            rate,
            offset,
            holder: None,
            queue: VecDeque::new(),
            replaced: Vec::new(),
            closed: Vec::new(),
            counter: 0,
            quarantine_until: 0,
            up: true,
            frozen_until: 0,
        }
    }

    fn clock(&self, now: Nanos) -> Nanos {
        (now as f64 * self.rate) as Nanos
    }

    /// When, in true time, this node's clock shows `local`; a moment later rather than earlier.
    fn true_time(&self, local: Nanos) -> Nanos {
        (local as f64 / self.rate) as Nanos + 1000
    }

    /// Dies. Returns the requests whose connections break with it.
    pub(super) fn crash(&mut self) -> Vec<Sender> {
        self.up = false;
        self.queue.drain(..).map(|waiter| waiter.sender).collect()
    }

    /// Restarts with all that was acknowledged, or with nothing: then in quarantine for so long, or at once.
    pub(super) fn restart(&mut self, now: Nanos, keeps: bool, quarantine: Option<Duration>) {
        self.up = true;
        if !keeps {
            self.holder = None;
            self.counter = 0;
            if let Some(quarantine) = quarantine {
                self.quarantine_until = self.clock(now) + nanos(quarantine);
            }
        }
    }

    fn next_fence(&mut self, now: Nanos) -> u64 {
        self.counter = (self.counter + 1).max(self.offset + self.clock(now) / 1000);
        self.counter
    }

    fn grant(&mut self, now: Nanos, owner: u64, ttl: Duration) -> u64 {
        let fence = self.next_fence(now);
        self.holder = Some(Holder { owner, deadline: self.clock(now) + nanos(ttl), fence });
        fence
    }

    /// Ends what has ended, and hands on. Returns the answers to waiters, and when to look again.
    pub(super) fn settle(&mut self, now: Nanos) -> (Vec<(Sender, Reply)>, Option<Nanos>) {
        let clock = self.clock(now);
        let mut replies: Vec<_> = self.replaced.drain(..).map(|sender| (sender, Reply::Replaced)).collect();
        if self.holder.is_some_and(|holder| holder.deadline <= clock) {
            self.holder = None;
        }
        self.queue.retain(|waiter| {
            let over = waiter.ends.is_some_and(|ends| ends <= clock);
            if over {
                replies.push((waiter.sender, Reply::Null));
            }
            !over
        });
        if self.holder.is_none()
            && clock >= self.quarantine_until
            && let Some(waiter) = self.queue.pop_front()
        {
            let fence = self.grant(now, waiter.owner, waiter.ttl);
            replies.push((waiter.sender, Reply::Fence(fence)));
        }
        let ends = self.queue.iter().filter_map(|waiter| waiter.ends);
        let deadline = self.holder.filter(|_| !self.queue.is_empty()).map(|holder| holder.deadline);
        let next = ends.chain(deadline).min().map(|local| self.true_time(local).max(now + 1000));
        (replies, next)
    }

    /// Runs one command of `owner`; `None` where the answer comes later, or never.
    pub(super) fn run(&mut self, now: Nanos, owner: u64, sender: Sender, command: Command) -> Option<Reply> {
        let mine = self.holder.filter(|holder| holder.owner == owner);
        match command {
            Command::Ping => Some(Reply::Pong),
            Command::Take { ttl, propose } => match (mine, self.holder) {
                (Some(holder), _) => Some(Reply::Held(holder.fence)),
                (None, Some(_)) => Some(Reply::Null),
                (None, None) if self.clock(now) < self.quarantine_until => Some(Reply::Quarantine),
                (None, None) => {
                    self.grant(now, owner, ttl);
                    Some(self.raise(owner, propose.unwrap_or(0)))
                }
            },
            Command::Queue { ttl, wait } => match (mine, self.holder) {
                (Some(holder), _) => Some(Reply::Held(holder.fence)),
                _ if self.clock(now) < self.quarantine_until => Some(Reply::Quarantine),
                (None, None) => Some(Reply::Fence(self.grant(now, owner, ttl))),
                (None, Some(_)) if self.closed.contains(&sender) => None,
                (None, Some(_)) => {
                    let ends = wait.map(|wait| self.clock(now) + nanos(wait));
                    let older = self.queue.iter().filter(|waiter| waiter.owner == owner);
                    self.replaced.extend(older.map(|waiter| waiter.sender));
                    self.queue.retain(|waiter| waiter.owner != owner);
                    self.queue.push_back(Waiter { owner, ttl, ends, sender });
                    None
                }
            },
            Command::Renew { ttl, propose } => {
                if mine.is_none() {
                    return Some(Reply::Null);
                }
                let deadline = self.clock(now) + nanos(ttl);
                self.holder = self.holder.map(|holder| Holder { deadline, ..holder });
                Some(self.raise(owner, propose.unwrap_or(0)))
            }
            Command::Raise { to } => Some(self.raise(owner, to)),
            Command::Release => {
                self.queue.retain(|waiter| waiter.owner != owner);
                if mine.is_some() {
                    self.holder = None;
                }
                Some(Reply::Null)
            }
            Command::Withdraw { serial } => {
                let closed = Sender { serial, ..sender };
                self.queue.retain(|waiter| waiter.sender != closed);
                self.closed.push(closed);
                None
            }
        }
    }

    fn raise(&mut self, owner: u64, to: u64) -> Reply {
        match &mut self.holder {
            Some(holder) if holder.owner == owner => {
                holder.fence = holder.fence.max(to);
                self.counter = self.counter.max(holder.fence);
                Reply::Fence(holder.fence)
            }
            _ => Reply::Null,
        }
    }
}

pub(super) fn nanos(duration: Duration) -> Nanos {
    duration.as_nanos() as Nanos
}
