//! The naive model: a list of holders, a list of waiters, everything computed anew at each step.

use super::op::{ANY, Kind, Part, Wish};
use std::collections::BTreeSet;
use std::vec::Vec;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Holder {
    pub(super) key: u8,
    pub(super) owner: u8,
    pub(super) kind: Kind,
    pub(super) holds: u32,
    pub(super) deadline: u64,
    pub(super) since: u64,
    pub(super) session: Option<u8>,
    /// Which grant it was, and the token it came with, once that is known.
    pub(super) grant: usize,
    pub(super) fence: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Waiting {
    pub(super) id: usize,
    pub(super) wish: Wish,
    pub(super) since: u64,
    pub(super) until: Option<u64>,
    pub(super) upgrade: bool,
}

/// What somebody is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Granted {
        grant: usize,
        holds: u32,
        upgraded: Option<u32>,
    },
    Refused,
    Queued(usize),
    Replaced,
    Wrong(Why),
    /// The fence of a holder.
    Fence(u64),
    /// Holds left, or how many were revoked.
    Count(u32),
    /// The owner holds nothing.
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    Held(u64),
    Hold(u32),
    NotUpgraded,
    WrongType,
    Waits,
    Deadlock,
    QueueFull,
    Ahead,
    /// The model does not say whether: something was stuck before.
    Unsure,
}

enum Judged {
    Fresh,
    Nest { holds: u32, upgrade: bool },
    Refuse,
    Ended,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    pub(super) now: u64,
    pub(super) holders: Vec<Holder>,
    /// All waiters in the order of their places.
    pub(super) line: Vec<Waiting>,
    pub(super) foreign: BTreeSet<u8>,
    pub(super) told: Vec<(usize, Said)>,
    pub(super) max_waiters: usize,
    ids: usize,
    grants: usize,
}

impl Model {
    pub(super) fn new(max_waiters: usize) -> Self {
        Self { max_waiters, ..Self::default() }
    }

    pub(super) fn holder(&self, key: u8, owner: u8) -> Option<&Holder> {
        self.holders.iter().find(|holder| holder.key == key && holder.owner == owner)
    }

    fn holder_mut(&mut self, key: u8, owner: u8) -> Option<&mut Holder> {
        self.holders.iter_mut().find(|holder| holder.key == key && holder.owner == owner)
    }

    pub(super) fn line_of(&self, key: u8) -> impl Iterator<Item = &Waiting> {
        self.line.iter().filter(move |waiting| waiting.wish.keys.contains(&key))
    }

    /// Gives a grant the token that the engine chose.
    pub(super) fn reveal(&mut self, grant: usize, fence: u64) {
        for holder in self.holders.iter_mut().filter(|holder| holder.grant == grant && holder.fence == 0) {
            holder.fence = fence;
        }
    }

    /// Before anything else at this time: waits that ended before are over, and all are served.
    pub(super) fn catch_up(&mut self) {
        self.end_waits(|until, now| until < now);
        self.serve();
    }

    /// After everything at this time.
    pub(super) fn wind_up(&mut self) {
        self.serve();
        self.end_waits(|until, now| until <= now);
        self.serve();
    }

    fn end_waits(&mut self, over: impl Fn(u64, u64) -> bool) {
        let now = self.now;
        while let Some(index) = self.line.iter().position(|w| w.until.is_some_and(|until| over(until, now))) {
            let waiting = self.line.remove(index);
            self.told.push((waiting.id, Said::Refused));
        }
    }

    /// Serves everyone who can be served, the first of them first, until nobody can.
    pub(super) fn serve(&mut self) {
        loop {
            let now = self.now;
            self.holders.retain(|holder| holder.deadline > now);
            let next = (0..self.line.len()).find_map(|index| Some((index, self.turn(index)?)));
            let Some((index, decision)) = next else { return };
            let waiting = self.line.remove(index);
            let said = match decision {
                Err(said) => said,
                Ok(judged) => self.carry_out(&waiting.wish, &judged),
            };
            self.told.push((waiting.id, said));
        }
    }

    fn turn(&self, index: usize) -> Option<Result<Judged, Said>> {
        let Waiting { wish, upgrade, .. } = &self.line[index];
        let is_first = |key: &u8| self.line[..index].iter().all(|ahead| !ahead.wish.keys.contains(key));
        if !wish.keys.iter().any(is_first) {
            return None;
        }
        if *upgrade
            && !self.foreign.contains(&wish.keys[0])
            && self.holder(wish.keys[0], wish.owner).is_none()
        {
            return Some(Err(Said::Refused));
        }
        match self.judge(wish, false) {
            Err(why) => Some(Err(Said::Wrong(why))),
            Ok(Judged::Ended) => Some(Err(Said::Refused)),
            Ok(Judged::Refuse) => None,
            Ok(judged) => wish.keys.iter().all(is_first).then_some(Ok(judged)),
        }
    }

    fn blocked(&self, key: u8, kind: Kind) -> bool {
        let mut count = 1;
        let mut least = ANY;
        for holder in self.holders.iter().filter(|holder| holder.key == key) {
            let Kind::Together(limit) = holder.kind else { return true };
            least = least.min(limit);
            count += 1;
        }
        match kind {
            Kind::Alone => count > 1,
            Kind::Together(limit) => count > least.min(limit),
        }
    }

    fn judge(&self, wish: &Wish, newcomer: bool) -> Result<Judged, Why> {
        for key in &wish.keys {
            if self.foreign.contains(key) {
                return Err(Why::WrongType);
            }
            if let Some(holder) = self.holder(*key, wish.owner) {
                let Some(hold) = wish.nests else { return Err(Why::Held(holder.fence)) };
                return self.judge_nest(holder, wish.kind, hold);
            }
        }
        if matches!(wish.nests, Some(Some(hold)) if hold > 1) {
            return Ok(Judged::Ended);
        }
        let in_line = newcomer && wish.keys.iter().any(|key| self.line_of(*key).next().is_some());
        if in_line || wish.keys.iter().any(|key| self.blocked(*key, wish.kind)) {
            return Ok(Judged::Refuse);
        }
        Ok(Judged::Fresh)
    }

    fn judge_nest(&self, holder: &Holder, kind: Kind, hold: Option<u32>) -> Result<Judged, Why> {
        let upgrade = kind == Kind::Alone && holder.kind != Kind::Alone;
        match hold {
            Some(hold) if hold == holder.holds && upgrade => return Err(Why::NotUpgraded),
            Some(hold) if hold == holder.holds => return Ok(Judged::Nest { holds: hold, upgrade: false }),
            Some(hold) if hold != holder.holds + 1 => return Err(Why::Hold(holder.holds)),
            _ => {}
        }
        let others = self.holders.iter().filter(|other| other.key == holder.key).count() - 1;
        if upgrade && others > 0 {
            return Ok(Judged::Refuse);
        }
        Ok(Judged::Nest { holds: holder.holds + 1, upgrade })
    }

    fn carry_out(&mut self, wish: &Wish, judged: &Judged) -> Said {
        let deadline = self.now + wish.ttl;
        match judged {
            Judged::Fresh => {
                self.grants += 1;
                for key in &wish.keys {
                    self.holders.push(Holder {
                        key: *key,
                        owner: wish.owner,
                        kind: wish.kind,
                        holds: 1,
                        deadline,
                        since: self.now,
                        session: wish.session,
                        grant: self.grants,
                        fence: 0,
                    });
                }
                Said::Granted { grant: self.grants, holds: 1, upgraded: None }
            }
            Judged::Nest { holds, upgrade } => {
                self.grants += usize::from(*upgrade);
                let grants = self.grants;
                let Some(holder) = self.holder_mut(wish.keys[0], wish.owner) else { unreachable!() };
                holder.holds = *holds;
                holder.deadline = holder.deadline.max(deadline);
                holder.session = wish.session.or(holder.session);
                let mut upgraded = None;
                if *upgrade {
                    if let Kind::Together(limit) = holder.kind {
                        upgraded = Some(limit);
                    }
                    holder.kind = Kind::Alone;
                    holder.grant = grants;
                    holder.fence = 0;
                }
                Said::Granted { grant: holder.grant, holds: *holds, upgraded }
            }
            Judged::Refuse | Judged::Ended => Said::Refused,
        }
    }

    pub(super) fn ask(&mut self, wish: &Wish) -> Said {
        let judged = match self.judge(wish, true) {
            Err(why) => return Said::Wrong(why),
            Ok(judged) => judged,
        };
        match (&judged, wish.wait) {
            (Judged::Refuse, Some(wait)) => self.queue(wish, wait),
            _ => self.carry_out(wish, &judged),
        }
    }

    fn queue(&mut self, wish: &Wish, wait: Option<u64>) -> Said {
        let until = wait.map(|wait| self.now + wait);
        self.ids += 1;
        let id = self.ids;
        let touches = |other: &Waiting| {
            other.wish.owner == wish.owner && other.wish.keys.iter().any(|key| wish.keys.contains(key))
        };
        if let Some(index) = self.line.iter().position(touches) {
            let old = &mut self.line[index];
            let set = |keys: &Vec<u8>| keys.iter().copied().collect::<BTreeSet<_>>();
            if set(&old.wish.keys) != set(&wish.keys) || old.wish.kind != wish.kind {
                return Said::Wrong(Why::Waits);
            }
            self.told.push((old.id, Said::Replaced));
            *old = Waiting { id, wish: wish.clone(), until, since: old.since, upgrade: old.upgrade };
            return Said::Queued(id);
        }
        if self.line.len() >= self.max_waiters {
            return Said::Wrong(Why::QueueFull);
        }
        let upgrade = self.holder(wish.keys[0], wish.owner).is_some();
        let waiting = Waiting { id, wish: wish.clone(), since: self.now, until, upgrade };
        let was_stuck = !self.stuck().is_empty();
        let place = if upgrade { 0 } else { self.line.len() };
        self.line.insert(place, waiting);
        if was_stuck {
            return Said::Wrong(Why::Unsure);
        }
        if !self.stuck().is_empty() {
            self.line.remove(place);
            return Said::Wrong(Why::Deadlock);
        }
        Said::Queued(id)
    }

    pub(super) fn new_id(&mut self) -> usize {
        self.ids += 1;
        self.ids
    }

    /// Queues a request without asking whether it may wait.
    pub(super) fn force(&mut self, wish: &Wish) {
        self.ids += 1;
        let upgrade = self.holder(wish.keys[0], wish.owner).is_some();
        let waiting = Waiting { id: self.ids, wish: wish.clone(), since: self.now, until: None, upgrade };
        self.line.insert(if upgrade { 0 } else { self.line.len() }, waiting);
    }

    /// Who waits for ever, even if every owner gives back all it has as soon as it waits for nothing.
    pub(super) fn stuck(&self) -> Vec<usize> {
        let mut world = self.clone();
        loop {
            world.serve();
            let waits = |owner| world.line.iter().any(|waiting| waiting.wish.owner == owner);
            let Some(free) = world.holders.iter().map(|holder| holder.owner).find(|owner| !waits(*owner))
            else {
                return world.line.iter().map(|waiting| waiting.id).collect();
            };
            world.holders.retain(|holder| holder.owner != free);
        }
    }

    pub(super) fn renew(&mut self, key: u8, owner: u8, ttl: u64, session: Option<u8>) -> Said {
        if self.foreign.contains(&key) {
            return Said::Wrong(Why::WrongType);
        }
        let now = self.now;
        let Some(holder) = self.holder_mut(key, owner) else { return Said::Nothing };
        holder.deadline = now + ttl;
        holder.session = session.or(holder.session);
        Said::Fence(holder.fence)
    }

    pub(super) fn release(&mut self, key: u8, owner: u8, part: Part) -> Said {
        if self.foreign.contains(&key) {
            return Said::Wrong(Why::WrongType);
        }
        if part == Part::All
            && let Some(index) =
                self.line.iter().position(|w| w.wish.owner == owner && w.wish.keys.contains(&key))
        {
            let waiting = self.line.remove(index);
            self.told.push((waiting.id, Said::Refused));
        }
        let Some(holder) = self.holder_mut(key, owner) else { return Said::Nothing };
        match part {
            Part::Nth(hold) if hold == holder.holds + 1 => return Said::Count(holder.holds),
            Part::Nth(hold) if hold != holder.holds => return Said::Wrong(Why::Hold(holder.holds)),
            Part::All => holder.holds = 0,
            Part::One | Part::Nth(_) => holder.holds -= 1,
        }
        let left = holder.holds;
        self.holders.retain(|holder| holder.holds > 0);
        Said::Count(left)
    }

    pub(super) fn raise(&mut self, key: u8, owner: u8, token: u64, too_far: bool) -> Said {
        if self.foreign.contains(&key) {
            return Said::Wrong(Why::WrongType);
        }
        let Some(holder) = self.holder_mut(key, owner) else { return Said::Nothing };
        if too_far {
            return Said::Wrong(Why::Ahead);
        }
        holder.fence = holder.fence.max(token);
        Said::Fence(holder.fence)
    }

    pub(super) fn downgrade(&mut self, key: u8, owner: u8) -> Said {
        if self.foreign.contains(&key) {
            return Said::Wrong(Why::WrongType);
        }
        let Some(holder) = self.holder_mut(key, owner) else { return Said::Nothing };
        if holder.kind == Kind::Alone {
            holder.kind = Kind::Together(ANY);
        }
        Said::Fence(holder.fence)
    }

    pub(super) fn break_lock(&mut self, key: u8, owner: Option<u8>) -> Said {
        if self.foreign.contains(&key) {
            return Said::Wrong(Why::WrongType);
        }
        let before = self.holders.len();
        self.holders.retain(|holder| holder.key != key || owner.is_some_and(|owner| owner != holder.owner));
        Said::Count((before - self.holders.len()) as u32)
    }

    pub(super) fn delete(&mut self, key: u8) {
        self.foreign.remove(&key);
        self.holders.retain(|holder| holder.key != key);
    }

    pub(super) fn overwrite(&mut self, key: u8) {
        self.delete(key);
        self.foreign.insert(key);
    }

    pub(super) fn rename(&mut self, from: u8, to: u8) {
        let foreign = self.foreign.contains(&from);
        self.delete(to);
        self.holders.iter_mut().filter(|holder| holder.key == from).for_each(|holder| holder.key = to);
        if foreign {
            self.foreign.remove(&from);
            self.foreign.insert(to);
        }
    }

    /// Keys 0 and 1 are `a` and `b` in database 0, 2 and 3 in database 1.
    pub(super) fn swap(&mut self) {
        self.holders.iter_mut().for_each(|holder| holder.key ^= 2);
        self.foreign = self.foreign.iter().map(|key| key ^ 2).collect();
    }

    pub(super) fn close(&mut self, session: u8) {
        self.holders.retain(|holder| holder.session != Some(session));
    }

    /// Removes a waiter; the one that it was.
    pub(super) fn leave(&mut self, nth: usize) -> Option<usize> {
        let index = nth.checked_rem(self.line.len())?;
        Some(self.line.remove(index).id)
    }

    pub(super) fn take_back(&mut self, keys: &[u8], owner: u8, fence: u64, upgraded: Option<u32>) {
        for key in keys {
            let Some(holder) = self.holder_mut(*key, owner).filter(|holder| holder.fence == fence) else {
                continue;
            };
            if let Some(limit) = upgraded
                && holder.kind == Kind::Alone
            {
                holder.kind = Kind::Together(limit);
                self.serve();
            }
            self.release(*key, owner, Part::One);
            self.serve();
        }
    }
}
