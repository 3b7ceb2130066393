//! Requests to hold: one judgement for newcomers and waiters, one key and several.

use super::{Change, Engine, Event, Keyspace, Note, Slot};
use crate::deadlock::{self, Circle, Found};
use crate::fence::Fence;
use crate::key::Key;
use crate::lock::{Holds, Lease, Lock, Mode};
use crate::owner::Owner;
use crate::queue::WaiterId;
use crate::request::{Answer, Ask, Fault, Form, Grant, Refusal, Verdict, Wait};
use crate::time::Now;

/// What a request would come to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Judgement {
    Grant(Plan),
    Refuse(Refusal),
}

/// How a request is granted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Plan {
    /// The owner becomes a holder.
    Fresh,
    /// The holder gets so many holds.
    Nest(Holds),
    /// The shared holder gets so many holds, and stands alone from now on, under a new token.
    Upgrade(Holds),
}

/// Who asks: someone who just came, or the one whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Newcomer,
    Next,
}

impl Engine {
    /// A request to hold a key, or all of several keys or none.
    ///
    /// Granted when it can stand beside the holders and nobody waits before it; a holder that nests is granted past
    /// the line. Otherwise refused, or queued with `wait`. Several keys are asked for alone and without nesting.
    ///
    /// # Errors
    /// Every [`Fault`] that names the request's own mistake, [`Fault::WrongType`], and with `wait` also
    /// [`Fault::Waits`], [`Fault::QueueFull`] and [`Fault::Deadlock`]. Nothing has changed then.
    pub fn acquire<K: Keyspace>(
        &mut self,
        keys: &mut K,
        now: Now,
        names: &[Key<'_>],
        ask: &Ask<'_>,
        wait: Option<Wait>,
    ) -> Result<Answer, Fault> {
        self.settle(keys, now);
        for key in names {
            self.freshen(keys, now, *key);
        }
        match (self.judge(keys, now, names, ask, Turn::Newcomer)?, wait) {
            (Judgement::Grant(plan), _) => {
                let grant = self.grant(keys, now, names, ask, plan)?;
                if !matches!(plan, Plan::Fresh) {
                    // The owner may wait for its own upgrade, with a hold count that is no longer the next one.
                    self.changed(keys, now, names[0]);
                }
                Ok(Answer::Granted(grant))
            }
            (Judgement::Refuse(refusal), Some(wait)) if refusal != Refusal::Ended => {
                self.enqueue(keys, now, names, ask, wait).map(Answer::Queued)
            }
            (Judgement::Refuse(refusal), _) => {
                self.stats.refusals += 1;
                Ok(Answer::Refused(refusal))
            }
        }
    }

    /// What the request would come to, all keys together: a mistake at any of them before a refusal at another.
    pub(super) fn judge<K: Keyspace>(
        &self,
        keys: &mut K,
        now: Now,
        names: &[Key<'_>],
        ask: &Ask<'_>,
        turn: Turn,
    ) -> Result<Judgement, Fault> {
        let mut judgement = Judgement::Grant(Plan::Fresh);
        for key in names {
            let one = self.judge_one(keys, now, *key, ask, turn)?;
            if matches!(judgement, Judgement::Grant(_)) {
                judgement = one;
            }
        }
        Ok(judgement)
    }

    fn judge_one<K: Keyspace>(
        &self,
        keys: &mut K,
        now: Now,
        key: Key<'_>,
        ask: &Ask<'_>,
        turn: Turn,
    ) -> Result<Judgement, Fault> {
        let lock = match keys.find(key) {
            Slot::Foreign => return Err(Fault::WrongType),
            Slot::Elsewhere => return Err(Fault::Elsewhere),
            Slot::Free => None,
            Slot::Held(lock) => Some(lock),
        };
        if let Some(lock) = &lock
            && let Some(lease) = lock.get(ask.owner)
        {
            return match ask.form {
                Form::Acquire => Err(Fault::Held(lease.fence)),
                Form::Reenter { hold } => {
                    nest(lease, lock.len(), lock.earliest().since(now.at), ask.mode, hold)
                }
            };
        }
        if matches!(ask.form, Form::Reenter { hold: Some(hold) } if hold != Holds::ONE) {
            return Ok(Judgement::Refuse(Refusal::Ended));
        }
        if let Some(lock) = lock
            && !lock.admits(ask.mode)
        {
            return Ok(Judgement::Refuse(Refusal::Held { left: lock.earliest().since(now.at) }));
        }
        if turn == Turn::Newcomer && self.queue.line(key).is_some() {
            return Ok(Judgement::Refuse(Refusal::Line));
        }
        Ok(Judgement::Grant(Plan::Fresh))
    }

    /// Carries a plan out.
    pub(super) fn grant<K: Keyspace>(
        &mut self,
        keys: &mut K,
        now: Now,
        names: &[Key<'_>],
        ask: &Ask<'_>,
        plan: Plan,
    ) -> Result<Grant, Fault> {
        match plan {
            Plan::Fresh => {
                let fence = self.next_fence(now)?;
                let lease = Lease {
                    mode: ask.mode,
                    holds: Holds::ONE,
                    fence,
                    deadline: now.at.after(ask.ttl),
                    since: now.at,
                    session: ask.session,
                };
                for key in names {
                    self.join(keys, *key, ask.owner, lease);
                }
                Ok(Grant { fence, holds: Holds::ONE, upgraded: None })
            }
            Plan::Nest(holds) => self.nest(keys, now, names[0], ask, holds, None),
            Plan::Upgrade(holds) => {
                let fence = self.next_fence(now)?;
                self.nest(keys, now, names[0], ask, holds, Some(fence))
            }
        }
    }

    fn next_fence(&mut self, now: Now) -> Result<Fence, Fault> {
        let fence = self.counter.next(now.wall_micros).ok_or(Fault::Exhausted)?;
        self.counter.raise(fence);
        self.stats.grants += 1;
        Ok(fence)
    }

    fn join<K: Keyspace>(&mut self, keys: &mut K, key: Key<'_>, owner: &[u8], lease: Lease) {
        match keys.find(key) {
            Slot::Held(lock) => lock.set(owner, lease),
            Slot::Free => keys.create(key, Lock::new(Owner::checked(owner), lease)),
            Slot::Foreign | Slot::Elsewhere => return,
        }
        self.retie(key, owner, lease.session);
        keys.record(key, owner, Change::Held(lease), Event::Granted, self.counter.last());
    }

    /// One more hold, or the same one again; with a token, an upgrade.
    fn nest<K: Keyspace>(
        &mut self,
        keys: &mut K,
        now: Now,
        key: Key<'_>,
        ask: &Ask<'_>,
        holds: Holds,
        upgrade: Option<Fence>,
    ) -> Result<Grant, Fault> {
        let Slot::Held(lock) = keys.find(key) else { return Err(Fault::WrongType) };
        let Some(old) = lock.get(ask.owner).copied() else { return Err(Fault::WrongType) };
        let lease = Lease {
            mode: if upgrade.is_some() { Mode::Exclusive } else { old.mode },
            holds,
            fence: upgrade.unwrap_or(old.fence),
            deadline: old.deadline.max(now.at.after(ask.ttl)),
            since: old.since,
            session: ask.session.or(self.tie(key, ask.owner, &old)),
        };
        let event = if upgrade.is_some() { Event::Granted } else { Event::Reentered };
        self.put(keys, key, ask.owner, lease, event);
        self.watch(keys, key);
        let upgraded = match old.mode {
            Mode::Shared(limit) if upgrade.is_some() => Some(limit),
            _ => None,
        };
        Ok(Grant { fence: lease.fence, holds, upgraded })
    }

    fn enqueue<K: Keyspace>(
        &mut self,
        keys: &mut K,
        now: Now,
        names: &[Key<'_>],
        ask: &Ask<'_>,
        wait: Wait,
    ) -> Result<WaiterId, Fault> {
        if let Some(own) = self.own_request(names, ask)? {
            let id = self.queue.replace(own, ask, wait.until);
            self.answer(own, Verdict::Replaced);
            return Ok(id);
        }
        if self.queue.len() >= self.max_waiters {
            return Err(Fault::QueueFull);
        }
        let holds = matches!(keys.find(names[0]), Slot::Held(lock) if lock.get(ask.owner).is_some());
        // Two that hold and want to stand alone wait for each other, however large the crowd around them is.
        let rival = self.queue.waiters(names[0]).next().filter(|(_, first)| holds && first.is_upgrade());
        let rival = rival.map(|(_, first)| Circle::pair(ask.owner, first.owner()));
        let found = match rival {
            Some(circle) => Found { circle: Some(circle), blind: false },
            None => deadlock::search(&self.queue, keys, now.at, names, ask, holds),
        };
        if let Some(circle) = found.circle {
            self.stats.deadlocks += 1;
            return Err(Fault::Deadlock(circle));
        }
        let id = self.queue.push(names, ask, holds, now.at, wait.until);
        if found.blind {
            self.note(Note::Circle(id));
        }
        for key in names {
            self.watch(keys, *key);
        }
        Ok(id)
    }

    /// The waiting request of the same owner for one of these keys, if it asks the same.
    fn own_request(&self, names: &[Key<'_>], ask: &Ask<'_>) -> Result<Option<WaiterId>, Fault> {
        for (id, waiter) in self.queue.of_owner(ask.owner) {
            let shared = self.queue.keys(id).filter(|key| names.contains(key)).count();
            if shared == 0 {
                continue;
            }
            let same =
                shared == names.len() && self.queue.keys(id).count() == shared && waiter.mode() == ask.mode;
            return if same { Ok(Some(id)) } else { Err(Fault::Waits) };
        }
        Ok(None)
    }
}

/// A holder asks again: one more hold, the same hold again, or an upgrade.
fn nest(
    lease: &Lease,
    holders: usize,
    left: u64,
    mode: Mode,
    hold: Option<Holds>,
) -> Result<Judgement, Fault> {
    let upgrade = mode == Mode::Exclusive && lease.mode != Mode::Exclusive;
    let next = lease.holds.more();
    if let Some(hold) = hold
        && Some(hold) != next
    {
        return match hold == lease.holds {
            true if upgrade => Err(Fault::NotUpgraded),
            true => Ok(Judgement::Grant(Plan::Nest(hold))),
            false => Err(Fault::Hold { has: lease.holds }),
        };
    }
    let next = next.ok_or(Fault::HoldsFull)?;
    Ok(match upgrade {
        true if holders == 1 => Judgement::Grant(Plan::Upgrade(next)),
        true => Judgement::Refuse(Refusal::Held { left }),
        false => Judgement::Grant(Plan::Nest(next)),
    })
}
