//! One entry for every request: decide first, change then.

mod acquire;
mod apply;
mod holder;
mod notes;
mod serve;

#[cfg(test)]
mod tests;

pub use notes::Note;

use crate::fence::{Counter, Fence};
use crate::key::Key;
use crate::lock::{Lease, Lock};
use crate::queue::{Queue, WaiterId};
use crate::request::Verdict;
use crate::session::{Session, Ties};
use crate::time::{Millis, Now};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// What lies at a key.
#[derive(Debug)]
pub enum Slot<'a> {
    /// Nothing.
    Free,
    /// A lock.
    Held(&'a mut Lock),
    /// A value of another type, which is left alone.
    Foreign,
    /// Nothing, and nothing may be put there: another node serves the key.
    Elsewhere,
}

/// The keys that hold locks: the one port to the outside.
pub trait Keyspace {
    /// Whether this step may touch the key. What is to be done at any other waits for a drain that reaches it.
    fn reaches(&self, key: Key<'_>) -> bool;
    /// What lies at the key now.
    fn find(&mut self, key: Key<'_>) -> Slot<'_>;
    /// Puts a lock where nothing is.
    fn create(&mut self, key: Key<'_>, lock: Lock);
    /// Drops the lock at the key: nobody holds it any more.
    fn free(&mut self, key: Key<'_>);
    /// Tells the world what became of one holder, after the change: replicas and the AOF get the record, the key's
    /// native TTL is set to the lock's latest deadline, those who watch the key learn of it.
    fn record(&mut self, key: Key<'_>, owner: &[u8], change: Change, event: Event, counter: Fence);
}

/// What became of a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It holds, and so.
    Held(Lease),
    /// It holds no longer.
    Gone,
}

/// Why it came so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A new grant, also by hand-off and by upgrade.
    Granted,
    /// One more hold.
    Reentered,
    /// A lease that starts anew.
    Renewed,
    /// One or all holds given back.
    Released,
    /// From exclusive to shared.
    Downgraded,
    /// A higher token.
    Fenced,
    /// The lease ended by time.
    Lapsed,
    /// An operator took it away.
    Revoked,
    /// The connection that it was tied to has closed.
    Closed,
    /// A record that shows others what is so already.
    Mirrored,
}

/// What the shell must do for a waiter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Tell it, and once: it waits no longer.
    Answer(WaiterId, Verdict),
}

/// What has happened since the module was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// New grants, hand-offs and upgrades included.
    pub grants: u64,
    /// Requests to hold that were refused, waits that ended without a grant included.
    pub refusals: u64,
    /// Grants to a request that had waited.
    pub handoffs: u64,
    /// Locks given back in full.
    pub releases: u64,
    /// Leases that were found to have ended by time.
    pub lapses: u64,
    /// Leases that an operator took away.
    pub revocations: u64,
    /// Leases that ended with their connection.
    pub closures: u64,
    /// Waits that would have closed a circle.
    pub deadlocks: u64,
}

/// All that the locks of one server need beside the keys themselves.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub struct Engine {
    counter: Counter,
    queue: Queue,
    ties: Ties,
    notes: VecDeque<Note>,
    effects: Vec<Effect>,
    stats: Stats,
    max_waiters: usize,
}

impl Engine {
    /// An engine that lets this many requests wait.
    #[must_use]
    pub fn new(max_waiters: usize) -> Self {
        Self { max_waiters, ..Self::default() }
    }

    /// Lets this many requests wait from now on. Those that wait already stay.
    pub fn set_max_waiters(&mut self, max_waiters: usize) {
        self.max_waiters = max_waiters;
    }

    /// The highest token seen.
    #[must_use]
    pub fn last_fence(&self) -> Fence {
        self.counter.last()
    }

    /// Takes note of a token that was seen elsewhere: in a dump, in a payload.
    pub fn saw(&mut self, fence: Fence) {
        self.counter.raise(fence);
    }

    /// Who waits.
    #[must_use]
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// How many leases are tied to a connection.
    #[must_use]
    pub fn tied(&self) -> usize {
        self.ties.len()
    }

    /// What has happened so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Takes out what is to be done for waiters, in the order in which it was decided.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        core::mem::take(&mut self.effects)
    }

    fn answer(&mut self, waiter: WaiterId, verdict: Verdict) {
        self.effects.push(Effect::Answer(waiter, verdict));
    }

    /// The connection that this lease ends with, if it still is tied to one.
    #[must_use]
    pub fn tie(&self, key: Key<'_>, owner: &[u8], lease: &Lease) -> Option<Session> {
        lease.session.filter(|session| self.ties.of(key, owner) == Some(*session))
    }

    fn retie(&mut self, key: Key<'_>, owner: &[u8], session: Option<Session>) {
        match session {
            Some(session) => self.ties.tie(session, key, owner),
            None => self.ties.untie(key, owner),
        }
    }

    /// Gives a holder another lease, and tells.
    fn put<K: Keyspace>(&mut self, keys: &mut K, key: Key<'_>, owner: &[u8], lease: Lease, event: Event) {
        let Slot::Held(lock) = keys.find(key) else { return };
        lock.set(owner, lease);
        self.retie(key, owner, lease.session);
        keys.record(key, owner, Change::Held(lease), event, self.counter.last());
    }

    /// Ends the lease of a holder, and tells.
    fn end<K: Keyspace>(&mut self, keys: &mut K, key: Key<'_>, owner: &[u8], event: Event) {
        let Slot::Held(lock) = keys.find(key) else { return };
        if lock.get(owner).is_none() {
            return;
        }
        if !lock.remove(owner) {
            keys.free(key);
        }
        self.retie(key, owner, None);
        match event {
            Event::Released => self.stats.releases += 1,
            Event::Lapsed => self.stats.lapses += 1,
            Event::Revoked => self.stats.revocations += 1,
            Event::Closed => self.stats.closures += 1,
            _ => {}
        }
        keys.record(key, owner, Change::Gone, event, self.counter.last());
    }

    /// Ends every lease of the key whose time is over.
    fn lapse<K: Keyspace>(&mut self, keys: &mut K, now: Millis, key: Key<'_>) {
        loop {
            let Slot::Held(lock) = keys.find(key) else { return };
            let Some(owner) = lock.lapsed(now).cloned() else { return };
            self.end(keys, key, owner.as_bytes(), Event::Lapsed);
        }
    }

    /// Brings a key up to date before a request is judged: what has ended is gone, and who waits comes first.
    fn freshen<K: Keyspace>(&mut self, keys: &mut K, now: Now, key: Key<'_>) {
        if self.queue.line(key).is_some() {
            self.serve(keys, now, key);
        } else {
            self.lapse(keys, now.at, key);
        }
    }

    /// Looks once more at the line of a key whose lock has changed.
    fn changed<K: Keyspace>(&mut self, keys: &mut K, now: Now, key: Key<'_>) {
        if self.queue.line(key).is_some() {
            self.serve(keys, now, key);
        }
    }
}
