//! A lock that is held: what its guards, the watchdog and a release share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tracing::{debug, warn};

use crate::attempt::Ties;
use crate::clock::Moment;
use crate::command::Terms;
use crate::error::LossReason;
use crate::fence::Fence;
use crate::guard::Guard;
use crate::keeper::watch_sessions;
use crate::lease::{Due, Lease, Tenure};
use crate::locker::{Claim, Core};
use crate::owner::Owner;

pub(crate) struct Holding {
    pub(crate) id: u64,
    pub(crate) core: Arc<Core>,
    pub(crate) terms: Arc<Terms>,
    pub(crate) owner: Owner,
    pub(crate) fence: Fence,
    pub(crate) since: Moment,
    /// Nothing was asked of any node for this lock before; `None` where that is not known.
    pub(crate) first_asked: Option<Moment>,
    /// Holds are numbered, so that each can be given back by itself.
    pub(crate) reentrant: bool,
    /// How many holds of this owner stand. One at a time is taken or given back.
    pub(crate) holds: tokio::sync::Mutex<u32>,
    claimed: AtomicBool,
    /// Whether the figures count it as held.
    counted: AtomicBool,
    lease: Mutex<Lease>,
    /// Told when the lease is lost, released, or has a new deadline.
    changed: watch::Sender<()>,
}

impl Holding {
    pub(crate) fn new(
        core: Arc<Core>,
        terms: Arc<Terms>,
        owner: Owner,
        fence: Fence,
        reentrant: bool,
        first_asked: Option<Moment>,
        lease: Lease,
    ) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        metrics::gauge!("redislock_held").increment(1);
        Arc::new(Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            core,
            terms,
            owner,
            fence,
            since: Moment::now(),
            first_asked,
            reentrant,
            holds: tokio::sync::Mutex::new(1),
            claimed: AtomicBool::new(true),
            counted: AtomicBool::new(true),
            lease: Mutex::new(lease),
            changed: watch::Sender::new(()),
        })
    }

    /// The first guard of a lock that was just granted, with all that watches over it. `ties` are the session
    /// connections that the grants came over.
    pub(crate) fn guarded(self: Arc<Self>, ties: Ties) -> Guard {
        let core = &self.core;
        core.set_holding(&self.claim(), &self);
        core.keeper.watch(self.clone());
        if self.terms.session {
            let links = (0..core.quorum.nodes()).map(|node| core.session_link(node).clone()).collect();
            core.surroundings.runtime.spawn(watch_sessions(Arc::downgrade(&self), links, ties));
        }
        Guard::new(self)
    }

    pub(crate) fn lease(&self) -> MutexGuard<'_, Lease> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn claim(&self) -> Claim {
        (self.terms.keys.clone(), self.owner.clone())
    }

    /// Gives up the claim that came with the grant.
    pub(crate) fn end_claim(&self) {
        self.tell_end();
        if self.claimed.swap(false, Ordering::AcqRel) {
            self.core.give_up_claim(&self.claim());
        }
    }

    /// Tells the figures of the end, once: a guard may be kept for long after its lock was released or lost.
    fn tell_end(&self) {
        if self.counted.swap(false, Ordering::AcqRel) {
            metrics::gauge!("redislock_held").decrement(1);
            metrics::histogram!("redislock_held_seconds")
                .record(Moment::now().since(self.since).as_secs_f64());
            debug!(key = self.terms.name(), owner = %self.owner, fence = %self.fence, "lock no longer held");
        }
    }

    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    pub(crate) fn tell(&self) {
        self.changed.send_replace(());
    }

    /// The lease was lost; this is called once for each.
    pub(crate) fn report_loss(&self, reason: &LossReason) {
        let name = match reason {
            LossReason::Lapsed => "lapsed",
            LossReason::Taken { .. } => "taken",
            LossReason::MaxHold => "max_hold",
            LossReason::SessionEnded => "session_ended",
        };
        metrics::counter!("redislock_lost_total", "reason" => name).increment(1);
        warn!(key = self.terms.name(), owner = %self.owner, fence = %self.fence, %reason, "lock lost");
        self.tell_end();
        self.tell();
    }

    /// Why the lease is lost, if it is. The clock decides, whether or not the watchdog has come to look.
    pub(crate) fn loss(&self) -> Option<LossReason> {
        let mut lease = self.lease();
        if let Due::Lost(reason) = lease.due(Moment::now()) {
            drop(lease);
            self.report_loss(&reason);
            return Some(reason);
        }
        match lease.tenure() {
            Tenure::Lost(reason) => Some(reason.clone()),
            Tenure::Held | Tenure::Released => None,
        }
    }

    /// Ends the lease from a reason that came from outside, and tells about it the first time.
    pub(crate) fn lose(&self, reason: LossReason) {
        let was_held = {
            let mut lease = self.lease();
            let was_held = *lease.tenure() == Tenure::Held;
            lease.lose(reason.clone());
            was_held
        };
        if was_held {
            self.report_loss(&reason);
        }
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.end_claim();
    }
}
