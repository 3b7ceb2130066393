//! The way to one node: a shared connection that comes back by itself, and connections apart for what blocks.

mod identity;
mod lane;
mod wire;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rand::rngs::ThreadRng;
use redis::{Cmd, PushInfo, PushKind, Value, cmd};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::coop::unconstrained;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tracing::{debug, warn};

use crate::backoff::Backoff;
use crate::clock::Moment;
use crate::node::Node;
use crate::ttl::Ttl;
use crate::vote::{NodeError, NodeErrorKind};

pub(crate) use identity::Identities;
use wire::Wire;

/// How soon a broken connection is tried again, at most.
const FIRST_RECONNECT: Duration = Duration::from_millis(20);
const LONGEST_RECONNECT: Duration = Duration::from_secs(1);

/// How long a node that stopped answering keeps its connection. In that time it may be swapped in again, and answers
/// in order; after it the connection is taken for dead.
const SILENCE: Duration = Duration::from_secs(10);

/// What all links of a locker share.
pub(crate) struct Surroundings {
    pub(crate) runtime: Handle,
    pub(crate) node_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    /// One permit for each request that may wait in a server at the same time.
    pub(crate) waits: Arc<Semaphore>,
    pub(crate) identities: Identities,
}

impl Surroundings {
    /// The longest that a node is waited for, on behalf of a lease: small beside the ttl.
    pub(crate) fn limit(&self, ttl: Ttl) -> Duration {
        self.node_timeout.min(ttl.as_duration() / 4)
    }
}

/// What a link is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// All that is answered at once.
    Shared,
    /// Locks that end with the connection.
    Session,
}

/// Where the request came from that is now to be undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AskedFrom {
    Here,
    /// Another process, which may reach nodes that we do not.
    Elsewhere,
}

pub(crate) struct Link {
    index: usize,
    node: Node,
    purpose: Purpose,
    surroundings: Arc<Surroundings>,
    state: Mutex<State>,
    /// Whose turn it is to send. While the first connection is being made, requests line up here, and a release that
    /// follows a request stays behind it.
    turn: tokio::sync::Mutex<()>,
    /// Told at every connection made or lost.
    changed: watch::Sender<()>,
    idle_lanes: Mutex<Vec<Wire>>,
    /// Set with the first connection to the node, of whichever kind. The node's links share it.
    reached: Arc<AtomicBool>,
}

#[derive(Default)]
struct State {
    wire: Option<Wire>,
    /// Counts connections, so that an error of an old one does not end the new one.
    epoch: u64,
    connecting: bool,
    /// Why there is no connection, once that is known. Until the first attempt has ended, calls wait for it.
    error: Option<NodeError>,
    /// The node left a request unanswered, and nothing has come since: only a probe is sent.
    silent: bool,
    /// Since when nothing has been sent but attempts to connect, and probes.
    out_of_reach_since: Option<Moment>,
}

impl Link {
    pub(crate) fn new(index: usize, node: Node, surroundings: Arc<Surroundings>) -> Arc<Self> {
        Self::unconnected(index, node, Purpose::Shared, surroundings, Arc::default())
    }

    /// The connection of session-bound locks, beside this one.
    pub(crate) fn for_sessions(&self) -> Arc<Self> {
        let (node, reached) = (self.node.clone(), self.reached.clone());
        Self::unconnected(self.index, node, Purpose::Session, self.surroundings.clone(), reached)
    }

    fn unconnected(
        index: usize,
        node: Node,
        purpose: Purpose,
        surroundings: Arc<Surroundings>,
        reached: Arc<AtomicBool>,
    ) -> Arc<Self> {
        Arc::new(Self {
            index,
            node,
            purpose,
            surroundings,
            state: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            changed: watch::Sender::new(()),
            idle_lanes: Mutex::default(),
            reached,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn node(&self) -> &Node {
        &self.node
    }

    /// Whether the node is known to be out of reach at present.
    pub(crate) fn is_suspect(&self) -> bool {
        let state = self.state();
        state.silent || state.error.is_some()
    }

    /// Since when the node has been out of reach without a break: what was meant for it from then on was never sent.
    pub(crate) fn out_of_reach_since(&self) -> Option<Moment> {
        self.state().out_of_reach_since
    }

    /// The number of the present connection; `None` while there is none.
    pub(crate) fn epoch(&self) -> Option<u64> {
        let state = self.state();
        state.wire.as_ref().map(|_| state.epoch)
    }

    /// Wakes at every connection made or lost.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Sends commands in one piece and awaits their answers, no longer than `limit`. A node that is known to be out of
    /// reach costs nothing.
    pub(crate) async fn call(
        self: &Arc<Self>,
        commands: &[Cmd],
        limit: Duration,
    ) -> Result<Vec<Value>, NodeError> {
        self.call_with(|| commands, limit).await
    }

    /// As [`call`](Self::call), with commands that are decided upon in the moment in which they are sent: whatever is
    /// decided later is sent later.
    pub(crate) async fn call_with<C: AsRef<[Cmd]>>(
        self: &Arc<Self>,
        commands: impl FnOnce() -> C,
        limit: Duration,
    ) -> Result<Vec<Value>, NodeError> {
        if self.state().silent {
            return Err(NodeError::new(NodeErrorKind::Timeout, "has not answered lately"));
        }
        self.call_within(limit, commands).await.map(|(_, answers)| answers)
    }

    /// As [`call`](Self::call), and tells over which connection.
    pub(crate) async fn call_tied(
        self: &Arc<Self>,
        commands: &[Cmd],
        limit: Duration,
    ) -> Result<(u64, Vec<Value>), NodeError> {
        self.call_within(limit, || commands).await
    }

    async fn call_within<C: AsRef<[Cmd]>>(
        self: &Arc<Self>,
        limit: Duration,
        commands: impl FnOnce() -> C,
    ) -> Result<(u64, Vec<Value>), NodeError> {
        match timeout(limit, self.exchange(commands)).await {
            Ok(answers) => answers,
            Err(_) => {
                self.fell_silent();
                Err(NodeError::new(NodeErrorKind::Timeout, format!("no answer within {limit:?}")))
            }
        }
    }

    async fn exchange<C: AsRef<[Cmd]>>(
        self: &Arc<Self>,
        commands: impl FnOnce() -> C,
    ) -> Result<(u64, Vec<Value>), NodeError> {
        let mut turn = Some(self.turn.lock().await);
        let (epoch, mut wire) = self.wire().await?;
        let commands = commands();
        if commands.as_ref().is_empty() {
            return Ok((epoch, Vec::new()));
        }
        // The first poll puts the commands in the connection's own queue; then it is the next one's turn. It must not
        // fail to do so only because this task has done much already.
        let mut sending = pin!(unconstrained(wire.send(commands.as_ref())));
        let answers = poll_fn(|context| {
            let progress = sending.as_mut().poll(context);
            turn = None;
            progress
        });
        match answers.await {
            Ok(answers) => {
                if wire::has_left_primary(&self.node, &answers) {
                    self.broken(
                        epoch,
                        NodeError::new(NodeErrorKind::Unavailable, "is no longer the primary"),
                    );
                }
                Ok((epoch, answers))
            }
            Err(error) => {
                let error = connection_error(&error);
                self.broken(epoch, error.clone());
                Err(error)
            }
        }
    }

    /// Sends commands and sees to it that they are answered: over the next connections, too, until `until`, as long
    /// as they are `wanted`. A node that was never reached has nothing of what was asked for from here: requests are
    /// sent in turn, so that all earlier ones have failed by then.
    pub(crate) async fn insist(
        self: &Arc<Self>,
        commands: &[Cmd],
        until: Instant,
        asked: AskedFrom,
        wanted: impl Fn() -> bool,
    ) -> Result<Vec<Value>, NodeError> {
        let mut changes = self.changes();
        loop {
            changes.borrow_and_update();
            let error = match timeout_at(until, self.exchange(|| commands)).await {
                Ok(Ok((_, answers))) => return Ok(answers),
                Ok(Err(error)) => error,
                Err(_) => return Err(NodeError::new(NodeErrorKind::Timeout, "no answer in time")),
            };
            if asked == AskedFrom::Here && !self.reached.load(Ordering::Acquire) {
                return Err(error);
            }
            tokio::select! {
                _ = changes.changed() => {}
                () = sleep_until(until) => return Err(error),
            }
            if !wanted() {
                return Err(error);
            }
        }
    }

    /// The present connection. Waits for the first one, but for no later one.
    async fn wire(self: &Arc<Self>) -> Result<(u64, Wire), NodeError> {
        let mut changes = self.changes();
        loop {
            changes.borrow_and_update();
            {
                let mut state = self.state();
                if let Some(wire) = &state.wire {
                    return Ok((state.epoch, wire.clone()));
                }
                self.start_connecting(&mut state);
                if let Some(error) = &state.error {
                    return Err(error.clone());
                }
            }
            if changes.changed().await.is_err() {
                return Err(NodeError::new(NodeErrorKind::Connection, "the locker is gone"));
            }
        }
    }

    fn start_connecting(self: &Arc<Self>, state: &mut State) {
        if !state.connecting {
            state.connecting = true;
            let link = Arc::downgrade(self);
            self.surroundings.runtime.spawn(reconnect(link));
        }
    }

    /// This connection has ended.
    fn broken(self: &Arc<Self>, epoch: u64, error: NodeError) {
        let mut state = self.state();
        if state.epoch != epoch || state.wire.is_none() {
            return;
        }
        debug!(node = %self.node, %error, "connection lost");
        state.wire = None;
        state.silent = false;
        state.error = Some(error);
        state.out_of_reach_since.get_or_insert_with(Moment::now);
        if self.purpose == Purpose::Shared {
            self.start_connecting(&mut state);
        }
        drop(state);
        self.changed.send_replace(());
    }

    /// A request was not answered in time. The connection stays, since what was sent on it is executed in order, and
    /// a release that follows a late grant must come after it.
    fn fell_silent(self: &Arc<Self>) {
        let mut state = self.state();
        let Some(wire) = state.wire.clone() else {
            state.error.get_or_insert(NodeError::new(NodeErrorKind::Timeout, "no connection yet"));
            return;
        };
        if !std::mem::replace(&mut state.silent, true) {
            state.out_of_reach_since = Some(Moment::now());
            let probe = probe(Arc::downgrade(self), state.epoch, wire);
            self.surroundings.runtime.spawn(probe);
        }
    }

    async fn connect(&self) -> Result<(Wire, Option<mpsc::UnboundedReceiver<PushInfo>>), NodeError> {
        let (pushes, receiver) = match self.purpose {
            Purpose::Shared => (None, None),
            Purpose::Session => {
                let (sender, receiver) = mpsc::unbounded_channel();
                (Some(sender), Some(receiver))
            }
        };
        let limit = self.surroundings.connect_timeout;
        let mut wire = match timeout(limit, Wire::open(&self.node, limit, pushes)).await {
            Ok(Ok(wire)) => wire,
            Ok(Err(error)) => return Err(connection_error(&error)),
            Err(_) => {
                let message = format!("no connection within {limit:?}");
                return Err(NodeError::new(NodeErrorKind::Timeout, message));
            }
        };
        if self.purpose == Purpose::Shared {
            self.surroundings.identities.check(self.index, &mut wire, limit).await?;
        }
        Ok((wire, receiver))
    }

    fn connected(self: &Arc<Self>, wire: Wire) -> u64 {
        self.reached.store(true, Ordering::Release);
        let mut state = self.state();
        state.epoch += 1;
        state.wire = Some(wire);
        state.connecting = false;
        state.error = None;
        state.silent = false;
        state.out_of_reach_since = None;
        let epoch = state.epoch;
        drop(state);
        debug!(node = %self.node, "connected");
        self.changed.send_replace(());
        epoch
    }
}

/// Connects, again and again, until it works or nobody wants the link any more.
async fn reconnect(link: Weak<Link>) {
    let mut backoff = Backoff::new(FIRST_RECONNECT, LONGEST_RECONNECT);
    while let Some(link) = link.upgrade() {
        match link.connect().await {
            Ok((wire, pushes)) => {
                let epoch = link.connected(wire);
                if let Some(pushes) = pushes {
                    link.surroundings.runtime.spawn(watch_end(Arc::downgrade(&link), epoch, pushes));
                }
                return;
            }
            Err(error) => {
                let first = {
                    let mut state = link.state();
                    state.out_of_reach_since.get_or_insert_with(Moment::now);
                    state.error.replace(error.clone()).is_none()
                };
                if first {
                    warn!(node = %link.node, %error, "no connection");
                }
                link.changed.send_replace(());
            }
        }
        drop(link);
        let pause = backoff.next(&mut ThreadRng::default());
        sleep(pause).await;
    }
}

/// Waits for the end of a connection that locks are tied to.
async fn watch_end(link: Weak<Link>, epoch: u64, mut pushes: mpsc::UnboundedReceiver<PushInfo>) {
    while let Some(push) = pushes.recv().await {
        if push.kind == PushKind::Disconnection {
            break;
        }
    }
    if let Some(link) = link.upgrade() {
        link.broken(epoch, NodeError::new(NodeErrorKind::Connection, "the connection has ended"));
    }
}

/// Asks a silent node for a sign of life.
async fn probe(link: Weak<Link>, epoch: u64, mut wire: Wire) {
    let answer = timeout(SILENCE, wire.send(&[cmd("PING")])).await;
    let Some(link) = link.upgrade() else { return };
    match answer {
        Ok(Ok(_)) => {
            let mut state = link.state();
            state.silent = false;
            state.out_of_reach_since = None;
        }
        Ok(Err(error)) => link.broken(epoch, connection_error(&error)),
        Err(_) => {
            let message = format!("no answer within {SILENCE:?}");
            link.broken(epoch, NodeError::new(NodeErrorKind::Timeout, message));
        }
    }
}

fn connection_error(error: &redis::RedisError) -> NodeError {
    // Some of the redis crate's messages have several lines.
    let message = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    NodeError::new(NodeErrorKind::Connection, message)
}
