//! Carries out an acquisition: sends what the state machine asks for, and tells it what comes back.

use std::future::{Future, pending, ready};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use rand::SeedableRng;
use rand::rngs::StdRng;
use redis::{Cmd, Value, cmd};
use tokio::task::coop::unconstrained;
use tokio::time::{Instant, sleep, timeout};
use tracing::debug;

use crate::acquisition::{Acquisition, Action, Answer, Ask, Now, Plan, Won};
use crate::clock::Moment;
use crate::command::{Holds, Terms, answer};
use crate::error::Error;
use crate::fence::Fence;
use crate::link::AskedFrom;
use crate::locker::{Claim, Core};
use crate::owner::Owner;
use crate::ttl::{Ttl, Wait};
use crate::vote::{NodeError, NodeErrorKind};

/// How many replicas must have a grant, and how long they are waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replicas {
    pub(crate) count: usize,
    pub(crate) within: Duration,
}

/// What one acquisition is for.
#[derive(Clone)]
pub(crate) struct Wish {
    pub(crate) terms: Arc<Terms>,
    pub(crate) ttl: Ttl,
    pub(crate) wait: Wait,
    /// `None` where each attempt makes its own.
    pub(crate) owner: Option<Owner>,
    /// Which hold of a nested lock this is.
    pub(crate) nth: Option<u32>,
    pub(crate) replicas: Option<Replicas>,
}

/// What was won, and for whom.
pub(crate) struct Prize {
    pub(crate) won: Won,
    pub(crate) owner: Owner,
    pub(crate) ties: Ties,
}

/// The session connections of the nodes that granted. Nodes that the quorum did not wait for add theirs later.
#[derive(Clone)]
pub(crate) struct Ties(Arc<Mutex<Vec<Option<u64>>>>);

impl Ties {
    pub(crate) fn new(nodes: usize) -> Self {
        Self(Arc::new(Mutex::new(vec![None; nodes])))
    }

    pub(crate) fn set(&self, node: usize, connection: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[node] = Some(connection);
    }

    pub(crate) fn get(&self, node: usize) -> Option<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[node]
    }
}

struct Reply {
    node: usize,
    serial: u64,
    answer: Answer,
    tie: Option<u64>,
}

impl Reply {
    fn note_tie(&self, ties: &Ties) {
        if let (Answer::Granted(_), Some(connection)) = (&self.answer, self.tie) {
            ties.set(self.node, connection);
        }
    }
}

type Exchange = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// One acquisition under way. Dropping it releases whatever was asked for.
pub(crate) struct Attempt {
    core: Arc<Core>,
    wish: Wish,
    machine: Acquisition<StdRng>,
    owner: Owner,
    claim: Claim,
    exchanges: FuturesUnordered<Exchange>,
    queued: Option<Exchange>,
    queued_since: Moment,
    /// Whether the queued request is undone when it is dropped.
    undoes: Arc<AtomicBool>,
    ties: Ties,
    node_timeout: Duration,
    over: bool,
    /// Nobody wants the lock any more.
    dropped: bool,
}

/// Acquires, or says why not.
pub(crate) async fn acquire(core: &Arc<Core>, wish: Wish) -> Result<Prize, Error> {
    let (mut attempt, first) = Attempt::start(core.clone(), wish);
    let outcome = match first {
        Some(outcome) => outcome,
        None => attempt.run().await,
    };
    attempt.finish(outcome)
}

impl Attempt {
    fn start(core: Arc<Core>, wish: Wish) -> (Self, Option<Result<Won, Error>>) {
        let now = core.now();
        let node_timeout = core.surroundings.limit(wish.ttl);
        let likely = core.contention.is_likely(&wish.terms.keys, now.moment);
        let plan = Plan {
            quorum: core.quorum,
            ttl: wish.ttl,
            wait: wish.wait,
            node_timeout,
            lead: core.lead(),
            sole_owner: wish.owner.is_none(),
            optimistic: core.quorum.nodes() == 1 || !likely,
            confirm: wish.terms.session || wish.replicas.is_some(),
            suspect: core.links.iter().map(|link| link.is_suspect()).collect(),
        };
        let owner = wish.owner.clone().unwrap_or_else(Owner::random);
        let claim = (wish.terms.keys.clone(), owner.clone());
        core.claim(&claim);
        let mut actions = Vec::new();
        let rng = StdRng::from_rng(&mut rand::rng());
        let (machine, first) = Acquisition::start(plan, rng, now, &mut actions);
        let mut this = Self {
            ties: Ties::new(core.quorum.nodes()),
            core,
            wish,
            machine,
            owner,
            claim,
            exchanges: FuturesUnordered::new(),
            queued: None,
            queued_since: now.moment,
            undoes: Arc::new(AtomicBool::new(true)),
            node_timeout,
            over: false,
            dropped: false,
        };
        this.carry_out(actions);
        (this, first)
    }

    async fn run(&mut self) -> Result<Won, Error> {
        loop {
            let wake = self.machine.wake_at().map(|moment| moment.since(Moment::now()));
            let queued = async {
                match &mut self.queued {
                    Some(exchange) => exchange.await,
                    None => pending().await,
                }
            };
            let mut actions = Vec::new();
            let outcome = tokio::select! {
                Some(reply) = self.exchanges.next() => self.take(reply, &mut actions),
                reply = queued => {
                    self.queued = None;
                    self.take_queued(reply, &mut actions)
                }
                () = sleep(wake.unwrap_or_default()), if wake.is_some() => {
                    self.machine.woken(self.core.now(), &mut actions)
                }
            };
            self.carry_out(actions);
            if let Some(outcome) = outcome {
                return outcome;
            }
        }
    }

    fn take(&mut self, reply: Reply, actions: &mut Vec<Action>) -> Option<Result<Won, Error>> {
        match &reply.answer {
            Answer::Granted(fence) | Answer::Held(fence) => self.core.saw(*fence),
            Answer::Denied => self.core.contention.met(&self.wish.terms.keys, Moment::now()),
            _ => {}
        }
        reply.note_tie(&self.ties);
        let Now { moment, fence } = self.core.now();
        self.machine.answer(Now { moment, fence }, reply.node, reply.serial, reply.answer, actions)
    }

    fn take_queued(&mut self, reply: Reply, actions: &mut Vec<Action>) -> Option<Result<Won, Error>> {
        let now = Moment::now();
        // It stood in line: the next one for this lock had better queue at once.
        if now.since(self.queued_since) > self.core.surroundings.node_timeout / 20 {
            self.core.contention.met(&self.wish.terms.keys, now);
        }
        self.take(reply, actions)
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send { node, serial, ask: Ask::Queue { millis } } => {
                    self.queued_since = Moment::now();
                    self.undoes = Arc::new(AtomicBool::new(true));
                    self.queued = Some(self.queue(node, serial, millis));
                }
                Action::Send { node, serial, ask } => self.begin(self.exchange(node, serial, ask)),
                Action::Withdraw { .. } => self.withdraw(),
                Action::Release { node } => self.release(node),
                Action::NewOwner => self.change_owner(),
            }
        }
    }

    /// Gives up the queued request. A given owner goes on asking: what undoes this request could come late, and undo
    /// what the owner got meanwhile. Should it be granted late, the owner is told that it holds.
    fn withdraw(&mut self) {
        self.undoes.store(self.wish.owner.is_none() || self.dropped, Ordering::Release);
        self.queued = None;
    }

    /// Sends a request right away. Were that left to the first look for answers, a release that follows could
    /// overtake it.
    fn begin(&mut self, mut exchange: Exchange) {
        let _here = self.core.surroundings.runtime.enter();
        self.exchanges.push(match unconstrained(&mut exchange).now_or_never() {
            Some(reply) => Box::pin(ready(reply)),
            None => exchange,
        });
    }

    fn change_owner(&mut self) {
        self.core.give_up_claim(&self.claim);
        self.owner = Owner::random();
        self.claim.1 = self.owner.clone();
        self.core.claim(&self.claim);
        self.ties = Ties::new(self.core.quorum.nodes());
    }

    fn commands(&self, ask: Ask) -> Vec<Cmd> {
        let (terms, owner, ttl) = (&self.wish.terms, &self.owner, self.wish.ttl);
        let raise = |fence: Option<Fence>| fence.into_iter().flat_map(|fence| terms.raise(owner, fence));
        match ask {
            Ask::Take { propose } => {
                let take = terms.take(owner, ttl, self.wish.nth, None);
                [take].into_iter().chain(raise(propose)).collect()
            }
            Ask::Queue { millis } => vec![terms.take(owner, ttl, self.wish.nth, Some(millis))],
            Ask::Confirm { propose } => {
                let renew = terms.renew(owner, ttl, terms.session);
                [renew].into_iter().chain(raise(propose)).collect()
            }
            Ask::Raise { to } => terms.raise(owner, to).collect(),
            Ask::Ping => vec![cmd("PING")],
        }
    }

    /// One request that is answered at once, or fails by the node timeout.
    fn exchange(&self, node: usize, serial: u64, ask: Ask) -> Exchange {
        let grants = matches!(ask, Ask::Take { .. } | Ask::Confirm { .. });
        let commands = self.commands(ask);
        if let (true, Some(replicas)) = (grants, self.wish.replicas) {
            return self.replicated(node, serial, commands, replicas);
        }
        if grants && self.wish.terms.session {
            return self.tied(node, serial, commands);
        }
        let (link, limit) = (self.core.links[node].clone(), self.node_timeout);
        let (core, sent) = (self.core.clone(), self.core.now().fence);
        Box::pin(async move {
            let answer = match link.call(&commands, limit).await {
                Ok(_) if ask == Ask::Ping => Answer::Alive,
                Ok(replies) => {
                    if let (Ask::Take { .. }, Answer::Granted(own)) =
                        (ask, answer(node, replies.get(..1).unwrap_or_default()))
                    {
                        core.saw_clock(own, sent);
                    }
                    answer(node, &replies)
                }
                Err(error) => Answer::Failed(error),
            };
            Reply { node, serial, answer, tie: None }
        })
    }

    /// A request over the connection that session-bound locks are tied to.
    fn tied(&self, node: usize, serial: u64, commands: Vec<Cmd>) -> Exchange {
        let (link, limit) = (self.core.session_link(node).clone(), self.node_timeout);
        Box::pin(async move {
            let (answer, tie) = match link.call_tied(&commands, limit).await {
                Ok((epoch, replies)) => (answer(node, &replies), Some(epoch)),
                Err(error) => (Answer::Failed(error), None),
            };
            Reply { node, serial, answer, tie }
        })
    }

    /// A request whose grant counts once so many replicas have it. `WAIT` covers what its own connection wrote, and
    /// blocks it: so all of it goes over a connection apart.
    fn replicated(&self, node: usize, serial: u64, mut commands: Vec<Cmd>, replicas: Replicas) -> Exchange {
        let link = self.core.links[node].clone();
        let undo = self.undo();
        let limit = self.core.surroundings.node_timeout + replicas.within;
        commands.push(cmd("WAIT").arg(replicas.count).arg(crate::ttl::wait_millis(replicas.within)).take());
        Box::pin(async move {
            let exchange = async { link.lane().await?.exchange(&commands, undo).await };
            let answer = match timeout(limit, exchange).await {
                Ok(Ok(mut replies)) => {
                    let acknowledged = replies.pop();
                    acknowledge(answer(node, &replies), acknowledged.as_ref(), replicas)
                }
                Ok(Err(error)) => Answer::Failed(error),
                Err(_) => Answer::Failed(NodeError::new(
                    NodeErrorKind::Timeout,
                    format!("no answer within {limit:?}"),
                )),
            };
            Reply { node, serial, answer, tie: None }
        })
    }

    /// A request that waits in the server, over a connection of its own.
    fn queue(&self, node: usize, serial: u64, millis: u64) -> Exchange {
        let link = self.core.links[node].clone();
        let commands = self.commands(Ask::Queue { millis });
        let (undo, undoes) = (self.undo(), self.undoes.clone());
        Box::pin(async move {
            let exchange = async { link.lane().await?.undone_if(undoes).exchange(&commands, undo).await };
            let answer = match exchange.await {
                Ok(replies) => answer(node, &replies),
                Err(error) => Answer::Failed(error),
            };
            Reply { node, serial, answer, tie: None }
        })
    }

    /// What a failed attempt is undone with. A nested hold is given back alone.
    fn undo(&self) -> Cmd {
        let holds = self.wish.nth.filter(|nth| *nth > 1).map_or(Holds::All, Holds::Nth);
        self.wish.terms.release(&self.owner, holds)
    }

    /// Sees to it that what this owner holds at a node is released there, for as long as it could be held.
    fn release(&self, node: usize) {
        let link = self.core.link_for(&self.wish.terms, node).clone();
        let (core, claim, undo) = (self.core.clone(), self.claim.clone(), [self.undo()]);
        let until = Instant::now() + self.wish.ttl.as_duration();
        self.core.start(async move {
            let wanted = || !core.is_claimed(&claim);
            if let Err(error) = link.insist(&undo, until, AskedFrom::Here, wanted).await {
                debug!(node = %link.node(), %error, "what was left of an attempt was not released");
            }
        });
    }

    /// The claim of a prize stays, for the guard to give up.
    fn finish(mut self, outcome: Result<Won, Error>) -> Result<Prize, Error> {
        self.over = true;
        self.await_stragglers();
        let won = outcome?;
        self.core.claim(&self.claim);
        Ok(Prize { won, owner: self.owner.clone(), ties: self.ties.clone() })
    }

    /// Lets the nodes answer that the quorum did not wait for, so that one that never does is noticed. Requests over
    /// connections apart are undone instead: a later release goes another way and could overtake them.
    fn await_stragglers(&mut self) {
        let mut stragglers = std::mem::take(&mut self.exchanges);
        if !stragglers.is_empty() && self.wish.replicas.is_none() {
            let ties = self.ties.clone();
            self.core.surroundings.runtime.spawn(async move {
                while let Some(reply) = stragglers.next().await {
                    reply.note_tie(&ties);
                }
            });
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.over {
            self.dropped = true;
            let mut actions = Vec::new();
            self.machine.cancel(&mut actions);
            // The requests end before the releases are sent, which come after them on the same connections.
            self.exchanges = FuturesUnordered::new();
            self.carry_out(actions);
        }
        self.core.give_up_claim(&self.claim);
    }
}

fn acknowledge(answer: Answer, acknowledged: Option<&Value>, wanted: Replicas) -> Answer {
    let count = match acknowledged {
        Some(Value::Int(count)) => usize::try_from(*count).unwrap_or(0),
        _ => 0,
    };
    match answer {
        Answer::Granted(_) if count < wanted.count => Answer::Failed(NodeError::new(
            NodeErrorKind::NotReplicated,
            format!("acknowledged by {count} of {} replicas within {:?}", wanted.count, wanted.within),
        )),
        answer => answer,
    }
}
