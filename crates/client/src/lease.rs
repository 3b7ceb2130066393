//! What a holder knows about its lease: a state machine without input and output.

use std::time::Duration;

use rand::{Rng, RngExt};

use crate::clock::Moment;
use crate::error::LossReason;
use crate::round::{Quorum, Round, Standing};
use crate::ttl::Ttl;
use crate::validity::{drift, validity};
use crate::vote::Vote;

/// How often the watchdog renews: a third of the ttl leaves time for two more tries.
const RENEWALS_PER_TTL: u32 = 3;

/// The longest pause before a failed renewal is tried again, as a part of the ttl.
const RETRY_PART: u32 = 20;

/// Which renewal a vote belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RenewalId(u64);

/// How the watchdog treats a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Watchdog {
    pub(crate) renews: bool,
    /// The end of the maximum hold.
    pub(crate) until: Moment,
}

/// The state of the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tenure {
    Held,
    /// Given back, or being given back: nothing is renewed any more.
    Released,
    Lost(LossReason),
}

/// What is to be done now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    Renew,
    Lost(LossReason),
}

/// What a vote has led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The renewal is still out, or was overtaken.
    Open,
    Renewed,
    /// No majority answered; the lease runs on to its deadline.
    Failed,
    Lost(LossReason),
}

#[derive(Clone, Debug)]
struct Renewal {
    id: RenewalId,
    ttl: Ttl,
    round: Round,
}

/// A lease over the nodes that granted it.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    quorum: Quorum,
    ttl: Ttl,
    valid_until: Moment,
    watchdog: Watchdog,
    renew_at: Moment,
    /// Nodes that said that this owner holds nothing there. They are not asked again: were they, a lock that this
    /// owner lost could come back unnoticed.
    gone: Vec<bool>,
    tenure: Tenure,
    renewals: Vec<Renewal>,
    next_id: u64,
}

impl Lease {
    /// A lease that was won with a round started at `started`. `denied` are the nodes that did not grant it.
    pub(crate) fn new(
        quorum: Quorum,
        ttl: Ttl,
        started: Moment,
        denied: Vec<bool>,
        watchdog: Watchdog,
    ) -> Self {
        let valid = ttl.as_duration().saturating_sub(drift(ttl));
        Self {
            quorum,
            ttl,
            valid_until: started.after(valid).min(watchdog.until),
            watchdog,
            renew_at: started.after(ttl.as_duration() / RENEWALS_PER_TTL),
            gone: denied,
            tenure: Tenure::Held,
            renewals: Vec::new(),
            next_id: 0,
        }
    }

    pub(crate) fn ttl(&self) -> Ttl {
        self.ttl
    }

    pub(crate) fn tenure(&self) -> &Tenure {
        &self.tenure
    }

    /// What is left of the lease; zero when it is lost or released. Decided by the clock alone: what the servers
    /// answer can only make it shorter.
    pub(crate) fn left(&self, now: Moment) -> Duration {
        match self.tenure {
            Tenure::Held => self.valid_until.since(now),
            Tenure::Released | Tenure::Lost(_) => Duration::ZERO,
        }
    }

    /// Nodes that may still hold the lease for us.
    pub(crate) fn standing_nodes(&self) -> impl Iterator<Item = usize> {
        self.gone.iter().enumerate().filter_map(|(node, gone)| (!gone).then_some(node))
    }

    /// Whether it was neither released nor found to be lost.
    pub(crate) fn is_held(&self) -> bool {
        self.tenure == Tenure::Held
    }

    /// When [`Self::due`] wants to be called next; `None` when there is nothing left to watch.
    pub(crate) fn wake_at(&self) -> Option<Moment> {
        match self.tenure {
            Tenure::Held if self.watchdog.renews => Some(self.valid_until.min(self.renew_at)),
            Tenure::Held => Some(self.valid_until),
            Tenure::Released | Tenure::Lost(_) => None,
        }
    }

    /// What is to be done at `now`. A loss is told once.
    pub(crate) fn due(&mut self, now: Moment) -> Due {
        if self.tenure != Tenure::Held {
            return Due::Nothing;
        }
        if now >= self.valid_until {
            let reason = if now >= self.watchdog.until { LossReason::MaxHold } else { LossReason::Lapsed };
            self.lose(reason.clone());
            return Due::Lost(reason);
        }
        if self.watchdog.renews && now >= self.renew_at { Due::Renew } else { Due::Nothing }
    }

    /// Starts a renewal with the ttl as it is, or with another one from now on.
    ///
    /// A shorter ttl counts from this moment: the servers may cut the lease even if their answers get lost.
    pub(crate) fn begin_renewal(&mut self, now: Moment, ttl: Option<Ttl>) -> (RenewalId, Ttl) {
        if let Some(ttl) = ttl.filter(|ttl| *ttl != self.ttl) {
            self.ttl = ttl;
            self.renewals.clear();
            let valid = ttl.as_duration().saturating_sub(drift(ttl));
            self.valid_until = self.valid_until.min(now.after(valid));
        }
        // A renewal whose votes nobody awaited any more.
        let ttl = self.ttl.as_duration();
        self.renewals.retain(|renewal| now.since(renewal.round.started) < ttl);
        let id = RenewalId(self.next_id);
        self.next_id += 1;
        self.renew_at = now.after(self.ttl.as_duration() / RENEWALS_PER_TTL);
        let mut round = Round::new(self.quorum, now);
        for (node, _) in self.gone.iter().enumerate().filter(|(_, gone)| **gone) {
            round.record(node, Vote::Denied);
        }
        self.renewals.push(Renewal { id, ttl: self.ttl, round });
        (id, self.ttl)
    }

    /// A node has answered a renewal.
    pub(crate) fn vote(
        &mut self,
        now: Moment,
        id: RenewalId,
        node: usize,
        vote: Vote,
        rng: &mut impl Rng,
    ) -> Verdict {
        if self.tenure != Tenure::Held {
            return Verdict::Open;
        }
        if vote == Vote::Denied {
            self.gone[node] = true;
        }
        let Some(index) = self.renewals.iter().position(|renewal| renewal.id == id) else {
            return Verdict::Open;
        };
        self.renewals[index].round.record(node, vote);
        let round = &self.renewals[index].round;
        if self.gone.iter().filter(|gone| **gone).count() > self.quorum.nodes() - self.quorum.size() {
            let reason = LossReason::Taken { votes: round.votes() };
            self.lose(reason.clone());
            return Verdict::Lost(reason);
        }
        match round.standing() {
            Standing::Open => Verdict::Open,
            Standing::Won => {
                let renewal = self.renewals.remove(index);
                self.renewed(now, &renewal)
            }
            Standing::Lost => {
                self.renewals.remove(index);
                let pause = self.ttl.as_duration().mul_f64(rng.random::<f64>()) / RETRY_PART;
                self.renew_at = self.renew_at.min(now.after(pause));
                Verdict::Failed
            }
        }
    }

    fn renewed(&mut self, now: Moment, renewal: &Renewal) -> Verdict {
        let started = renewal.round.started;
        let Some(left) = validity(renewal.ttl, now.since(started)) else { return Verdict::Failed };
        // A lease that has ended here stays ended, even if the servers still renewed it.
        if now >= self.valid_until {
            return Verdict::Failed;
        }
        self.valid_until = self.valid_until.max(now.after(left)).min(self.watchdog.until);
        Verdict::Renewed
    }

    /// A hold was added with a round started at `started`: the lease is the longer of what was left and `ttl`.
    pub(crate) fn reentered(&mut self, ttl: Ttl, started: Moment) {
        let valid = started.after(ttl.as_duration().saturating_sub(drift(ttl)));
        self.valid_until = self.valid_until.max(valid).min(self.watchdog.until);
        if ttl > self.ttl {
            self.ttl = ttl;
            self.renewals.clear();
        }
    }

    /// The holder gives the lock back. True the first time.
    pub(crate) fn release(&mut self) -> bool {
        let held = self.tenure == Tenure::Held;
        if held {
            self.tenure = Tenure::Released;
            self.renewals.clear();
        }
        held
    }

    /// The lease is lost for a reason that came from outside.
    pub(crate) fn lose(&mut self, reason: LossReason) {
        if self.tenure == Tenure::Held {
            self.tenure = Tenure::Lost(reason);
            self.renewals.clear();
        }
    }
}
