//! The watchdog: renews what is held, and notices what has lapsed.
//!
//! One task serves all guards of a locker. What falls due at about the same time travels together, one pipeline a
//! node, over the connection that every request shares.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tracing::debug;

use crate::attempt::Ties;
use crate::clock::Moment;
use crate::command::renewal_vote;
use crate::error::LossReason;
use crate::holding::Holding;
use crate::lease::{Due, RenewalId, Tenure, Verdict};
use crate::link::Link;
use crate::ttl::Ttl;
use crate::vote::Vote;

/// How long the keeper rests between two looks, so that renewals gather.
const GATHERING: Duration = Duration::from_millis(5);

/// How many renewals travel in one piece.
const BATCH: usize = 256;

/// The door to the task, which starts with the first guard.
pub(crate) struct Keeper {
    runtime: Handle,
    sender: Mutex<Option<mpsc::UnboundedSender<Arc<Holding>>>>,
}

impl Keeper {
    pub(crate) fn new(runtime: Handle) -> Self {
        Self { runtime, sender: Mutex::new(None) }
    }

    /// Looks after a lock from now on; to be called again when its lease has become shorter.
    pub(crate) fn watch(&self, holding: Arc<Holding>) {
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = sender.get_or_insert_with(|| {
            let (sender, receiver) = mpsc::unbounded_channel();
            self.runtime.spawn(Rounds::new(receiver).run());
            sender
        });
        // It fails only while the runtime shuts down, when nothing is renewed any more.
        let _ = sender.send(holding);
    }
}

struct Rounds {
    receiver: mpsc::UnboundedReceiver<Arc<Holding>>,
    /// What is held, and when it is to be looked at next: other entries of the agenda are out of date.
    held: HashMap<u64, (Arc<Holding>, Moment)>,
    agenda: BinaryHeap<Reverse<(Moment, u64)>>,
}

/// One renewal under way.
struct Renewal {
    holding: Arc<Holding>,
    id: RenewalId,
    ttl: Ttl,
}

impl Rounds {
    fn new(receiver: mpsc::UnboundedReceiver<Arc<Holding>>) -> Self {
        Self { receiver, held: HashMap::new(), agenda: BinaryHeap::new() }
    }

    async fn run(mut self) {
        loop {
            let next = self.agenda.peek().map(|Reverse((moment, _))| *moment);
            let rest = next.map(|next| next.since(Moment::now()).max(GATHERING));
            tokio::select! {
                holding = self.receiver.recv() => match holding {
                    Some(holding) => self.note(holding),
                    // The locker is gone, and so are its guards.
                    None => return,
                },
                () = sleep(rest.unwrap_or_default()), if rest.is_some() => self.look(),
            }
        }
    }

    /// Looks at this lock when its lease says so.
    fn note(&mut self, holding: Arc<Holding>) {
        let wake_at = holding.lease().wake_at();
        match wake_at {
            Some(moment) => {
                self.agenda.push(Reverse((moment, holding.id)));
                self.held.insert(holding.id, (holding, moment));
            }
            None => {
                self.held.remove(&holding.id);
            }
        }
    }

    /// Does all that is due.
    fn look(&mut self) {
        let now = Moment::now();
        let mut renewals = Vec::new();
        while let Some(Reverse((moment, id))) = self.agenda.peek().copied() {
            if moment > now {
                break;
            }
            self.agenda.pop();
            let Some((holding, noted)) = self.held.get(&id) else { continue };
            if *noted == moment {
                let holding = holding.clone();
                renewals.extend(tend(&holding, now));
                self.note(holding);
            }
        }
        send(renewals);
    }
}

fn tend(holding: &Arc<Holding>, now: Moment) -> Option<Renewal> {
    let mut lease = holding.lease();
    match lease.due(now) {
        Due::Nothing => None,
        Due::Lost(reason) => {
            drop(lease);
            holding.report_loss(&reason);
            None
        }
        Due::Renew => {
            let (id, ttl) = lease.begin_renewal(now, None);
            Some(Renewal { holding: holding.clone(), id, ttl })
        }
    }
}

fn send(renewals: Vec<Renewal>) {
    let Some(first) = renewals.first() else { return };
    let core = first.holding.core.clone();
    let renewals = Arc::new(renewals);
    for (node, link) in core.links.iter().enumerate() {
        let concerned: Vec<_> = (0..renewals.len())
            .filter(|index| {
                renewals[*index].holding.lease().standing_nodes().any(|standing| standing == node)
            })
            .collect();
        for chunk in concerned.chunks(BATCH) {
            let task = renew(node, link.clone(), renewals.clone(), chunk.to_vec());
            core.surroundings.runtime.spawn(task);
        }
    }
}

/// Renews many leases at one node. What was released before it is this request's turn is left out: a release that is
/// sent is followed by no renewal, which could fit what the same owner gets next.
async fn renew(node: usize, link: Arc<Link>, renewals: Arc<Vec<Renewal>>, chunk: Vec<usize>) {
    let mut chunk: Vec<_> = chunk.into_iter().map(|index| &renewals[index]).collect();
    let ttls = chunk.iter().map(|renewal| renewal.ttl);
    let limit = ttls.min().map(|ttl| chunk[0].holding.core.surroundings.limit(ttl)).unwrap_or_default();
    let commands = || {
        chunk.retain(|renewal| renewal.holding.lease().is_held());
        let renew =
            |renewal: &&Renewal| renewal.holding.terms.renew(&renewal.holding.owner, renewal.ttl, false);
        chunk.iter().map(renew).collect::<Vec<_>>()
    };
    let answers = link.call_with(commands, limit).await;
    for (index, renewal) in chunk.into_iter().enumerate() {
        let vote = match &answers {
            Ok(answers) => answers.get(index).map_or(Vote::Denied, renewal_vote),
            Err(error) => Vote::Unreachable(error.clone()),
        };
        apply_vote(&renewal.holding, renewal.id, node, vote);
    }
}

/// Tells the lease of a vote, and the guards of what came of it.
pub(crate) fn apply_vote(holding: &Arc<Holding>, id: RenewalId, node: usize, vote: Vote) -> Verdict {
    let verdict = holding.lease().vote(Moment::now(), id, node, vote, &mut rand::rng());
    match &verdict {
        Verdict::Open => {}
        Verdict::Renewed => {
            metrics::counter!("redislock_renewals_total", "outcome" => "renewed").increment(1);
            holding.tell();
        }
        Verdict::Failed => {
            metrics::counter!("redislock_renewals_total", "outcome" => "failed").increment(1);
            debug!(key = holding.terms.name(), "renewal failed, to be tried again");
            // The retry comes earlier than the keeper has noted.
            holding.core.keeper.watch(holding.clone());
        }
        Verdict::Lost(reason) => {
            metrics::counter!("redislock_renewals_total", "outcome" => "lost").increment(1);
            holding.report_loss(reason);
        }
    }
    verdict
}

/// Loses a session-bound lock when the connections that it is tied to end.
pub(crate) async fn watch_sessions(holding: Weak<Holding>, links: Vec<Arc<Link>>, ties: Ties) {
    let mut changes: Vec<_> = links.iter().map(|link| link.changes()).collect();
    loop {
        let Some(held) = holding.upgrade() else { return };
        if *held.lease().tenure() != Tenure::Held {
            return;
        }
        let stands =
            |(node, link): &(usize, &Arc<Link>)| ties.get(*node).is_some_and(|tie| link.epoch() == Some(tie));
        if links.iter().enumerate().filter(stands).count() < held.core.quorum.size() {
            held.lose(LossReason::SessionEnded);
            return;
        }
        drop(held);
        let any =
            futures_util::future::select_all(changes.iter_mut().map(|change| Box::pin(change.changed())));
        if any.await.0.is_err() {
            return;
        }
    }
}
