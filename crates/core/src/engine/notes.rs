//! What is learned where nothing may be written, and done where it may.
//!
//! Events (a key deleted, a connection closed, a grant that could not be told) only leave a note. One drain, at a
//! moment when this server may write, works the notes off in their order, and then looks at the clock.

use super::{Change, Engine, Event, Keyspace, Slot};
use crate::deadlock;
use crate::key::{Db, Key, KeyBuf};
use crate::lock::Lease;
use crate::owner::Owner;
use crate::queue::WaiterId;
use crate::request::{Fault, Grant, Portion, Verdict};
use crate::session::Session;
use crate::time::{Millis, Now};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Something to be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The lock at this key may have changed by other means than our commands.
    Key(KeyBuf),
    /// The same, in whichever database.
    Name(Box<[u8]>),
    /// The same, for all keys of a database, or of all.
    Database(Option<Db>),
    /// A lock has come to this key from elsewhere: its ties are to be found here from now on.
    Arrived(KeyBuf),
    /// Somebody has set or removed the native TTL of this lock.
    Mirror(KeyBuf),
    /// A connection has closed.
    Closed(Session),
    /// This wait may have closed a circle through keys that the step that began it did not reach.
    Circle(WaiterId),
    /// A grant that could not be told: it is taken back, and the lock handed on.
    Untold {
        /// The keys that were granted.
        keys: Vec<KeyBuf>,
        /// To whom.
        owner: Owner,
        /// What it would have been told.
        grant: Grant,
    },
}

impl Note {
    /// Follows a lock into the database that has changed places with its own. What is said of a line stays.
    fn swap(&mut self, one: Db, other: Db) {
        match self {
            Self::Arrived(key) | Self::Mirror(key) => key.swap(one, other),
            Self::Untold { keys, .. } => keys.iter_mut().for_each(|key| key.swap(one, other)),
            Self::Key(_) | Self::Name(_) | Self::Database(_) | Self::Closed(_) | Self::Circle(_) => {}
        }
    }
}

impl Engine {
    /// Leaves a note, unless it can be seen at once that nothing will come of it. Returns whether a drain is owed.
    pub fn note(&mut self, note: Note) -> bool {
        let matters = match &note {
            Note::Key(key) => self.queue.line(key.as_key()).is_some() || self.ties.has_key(key.as_key()),
            Note::Name(name) => !self.named(name).is_empty(),
            Note::Database(_) => !self.queue.is_empty() || !self.ties.is_empty(),
            Note::Closed(session) => self.ties.has(*session) || self.has_notes(),
            Note::Arrived(_) | Note::Mirror(_) | Note::Circle(_) | Note::Untold { .. } => true,
        };
        if matters && self.notes.back() != Some(&note) {
            self.notes.push_back(note);
        }
        matters
    }

    /// Whether notes wait to be worked off.
    #[must_use]
    pub fn has_notes(&self) -> bool {
        !self.notes.is_empty()
    }

    /// When the next lease with waiters behind it, or the next wait, ends.
    #[must_use]
    pub fn next_due(&self) -> Option<Millis> {
        self.queue.next_due()
    }

    /// Works all notes off and does what is due at `now`. Only where this server may write.
    ///
    /// A wait that ends in the very millisecond in which the lock becomes free is granted; one that ended before is
    /// not, however late this comes.
    pub fn drain<K: Keyspace>(&mut self, keys: &mut K, now: Now) {
        self.settle(keys, now);
        while let Some(key) = self.due_within_reach(keys, now) {
            self.serve(keys, now, key.as_key());
        }
        self.lapse_waits(now.at);
        self.settle(keys, now);
    }

    fn due_within_reach<K: Keyspace>(&self, keys: &K, now: Now) -> Option<KeyBuf> {
        self.queue.due(now.at).find(|key| keys.reaches(*key)).map(Key::to_buf)
    }

    /// What is owed before anything else may be decided: waits that ended before `now` are over, and notes are
    /// worked off. So no request comes between an event and its drain: a lease whose connection has closed, or a
    /// grant that could not be told, is not there to be renewed.
    pub(super) fn settle<K: Keyspace>(&mut self, keys: &mut K, now: Now) {
        if let Some(before) = now.at.0.checked_sub(1) {
            self.lapse_waits(Millis(before));
        }
        // Taken as a whole: working a note off calls on requests, and those find nothing to settle.
        let mut beyond_reach = VecDeque::new();
        while !self.notes.is_empty() {
            for note in core::mem::take(&mut self.notes) {
                if !self.work_off(keys, now, &note) {
                    beyond_reach.push_back(note);
                }
            }
        }
        self.notes = beyond_reach;
    }

    /// Ends every wait whose time is up. This writes nothing, so it may be done at any time.
    pub fn lapse_waits(&mut self, now: Millis) {
        while let Some(id) = self.queue.timed_out(now) {
            self.dismiss(id, Verdict::Refused);
        }
    }

    /// Ends one wait with this answer. Whoever stood behind is noted.
    pub fn dismiss(&mut self, id: WaiterId, verdict: Verdict) {
        if self.forget(id) {
            self.answer(id, verdict);
        }
    }

    /// Ends one wait without an answer, since nobody is there to hear it. Returns whether it still waited.
    pub fn forget(&mut self, id: WaiterId) -> bool {
        if self.queue.get(id).is_none() {
            return false;
        }
        self.stats.refusals += 1;
        for key in self.queue.remove(id) {
            self.note(Note::Key(key));
        }
        true
    }

    /// Ends every wait with this answer, and forgets every tie and note: this server no longer decides.
    pub fn abdicate(&mut self, verdict: &Verdict) {
        let ids: Vec<WaiterId> = self.queue.iter().map(|(id, _)| id).collect();
        for id in ids {
            self.dismiss(id, verdict.clone());
        }
        self.notes.clear();
        self.ties.clear();
    }

    /// Two databases have changed places. Those who wait stay in theirs, and are judged by what it holds now; ties
    /// go with the locks.
    pub fn swapped(&mut self, one: Db, other: Db) {
        self.ties.swap(one, other);
        for note in &mut self.notes {
            note.swap(one, other);
        }
        self.note(Note::Database(Some(one)));
        self.note(Note::Database(Some(other)));
    }

    /// Does what a note calls for. Returns whether that is all done: keys may be beyond the reach of this step.
    fn work_off<K: Keyspace>(&mut self, keys: &mut K, now: Now, note: &Note) -> bool {
        match note {
            Note::Key(key) => return self.look_at_all(keys, now, [key.clone()].into()),
            Note::Name(name) => return self.look_at_all(keys, now, self.named(name)),
            Note::Database(db) => {
                let mut names = self.queue.keys_in(*db);
                names.extend(self.ties.keys_in(*db));
                return self.look_at_all(keys, now, names);
            }
            Note::Closed(session) => return self.close(keys, now, *session),
            Note::Circle(id) => return self.break_circle(keys, now, *id),
            Note::Arrived(key) | Note::Mirror(key) if !keys.reaches(key.as_key()) => return false,
            Note::Untold { keys: names, .. } if !names.iter().all(|key| keys.reaches(key.as_key())) => {
                return false;
            }
            Note::Arrived(key) => {
                self.adopt(keys, key.as_key());
                self.look_at(keys, now, key.as_key());
            }
            Note::Mirror(key) => self.mirror(keys, now, key.as_key()),
            Note::Untold { keys: names, owner, grant } => {
                for key in names {
                    self.take_back(keys, now, key.as_key(), owner.as_bytes(), *grant);
                }
            }
        }
        true
    }

    /// Refuses a wait that has closed a circle. Returns whether that could be said.
    fn break_circle<K: Keyspace>(&mut self, keys: &mut K, now: Now, id: WaiterId) -> bool {
        let Some(waiter) = self.queue.get(id) else { return true };
        let found = deadlock::search_around(&self.queue, keys, now.at, waiter.owner().as_bytes());
        if let Some(circle) = found.circle {
            self.stats.deadlocks += 1;
            self.dismiss(id, Verdict::Fault(Fault::Deadlock(circle)));
            return true;
        }
        !found.blind
    }

    /// The keys of this name that are waited for, or whose leases are tied.
    fn named(&self, name: &[u8]) -> Vec<KeyBuf> {
        let mut keys = self.queue.named(name);
        keys.extend(self.ties.named(name));
        keys
    }

    /// Returns whether all of them were within reach.
    fn look_at_all<K: Keyspace>(&mut self, keys: &mut K, now: Now, names: Vec<KeyBuf>) -> bool {
        let (near, far): (Vec<_>, Vec<_>) = names.into_iter().partition(|key| keys.reaches(key.as_key()));
        for key in near {
            self.look_at(keys, now, key.as_key());
        }
        far.is_empty()
    }

    /// Comes to terms with whatever lies at a key now: ties of leases that are gone are gone too, and the line is
    /// served.
    fn look_at<K: Keyspace>(&mut self, keys: &mut K, now: Now, key: Key<'_>) {
        for (owner, session) in self.ties.of_key(key) {
            let tied = |lease: &Lease| lease.session == Some(session);
            if !matches!(keys.find(key), Slot::Held(lock) if lock.get(owner.as_bytes()).is_some_and(tied)) {
                self.ties.untie(key, owner.as_bytes());
            }
        }
        self.changed(keys, now, key);
    }

    /// Finds the ties of a lock that came here by RENAME or MOVE.
    fn adopt<K: Keyspace>(&mut self, keys: &mut K, key: Key<'_>) {
        let Slot::Held(lock) = keys.find(key) else { return };
        for (owner, lease) in lock.iter() {
            if let Some(session) = lease.session {
                self.ties.tie(session, key, owner.as_bytes());
            }
        }
    }

    /// Sets the native TTL right again, here and on replicas: no lease is changed by it.
    fn mirror<K: Keyspace>(&mut self, keys: &mut K, now: Now, key: Key<'_>) {
        self.freshen(keys, now, key);
        let Slot::Held(lock) = keys.find(key) else { return };
        let last = lock.iter().max_by_key(|(_, lease)| lease.deadline);
        let Some((owner, lease)) = last.map(|(owner, lease)| (owner.clone(), *lease)) else { return };
        keys.record(key, owner.as_bytes(), Change::Held(lease), Event::Mirrored, self.counter.last());
    }

    /// Ends the leases that were tied to a connection. Returns whether all of them were within reach.
    fn close<K: Keyspace>(&mut self, keys: &mut K, now: Now, session: Session) -> bool {
        let leases = self.ties.close(session);
        let (near, far): (Vec<_>, Vec<_>) =
            leases.into_iter().partition(|(key, _)| keys.reaches(key.as_key()));
        for (key, owner) in &far {
            self.ties.tie(session, key.as_key(), owner.as_bytes());
        }
        for (key, owner) in &near {
            let key = key.as_key();
            let tied = |lease: &Lease| lease.session == Some(session);
            if matches!(keys.find(key), Slot::Held(lock) if lock.get(owner.as_bytes()).is_some_and(tied)) {
                self.end(keys, key, owner.as_bytes(), Event::Closed);
            }
        }
        // Not before all have ended: an upgrade would be granted to a holder that goes, too.
        for (key, _) in &near {
            self.changed(keys, now, key.as_key());
        }
        far.is_empty()
    }

    /// Undoes a grant that could not be told, if it still stands: the hold, and with an upgrade the mode.
    fn take_back<K: Keyspace>(&mut self, keys: &mut K, now: Now, key: Key<'_>, owner: &[u8], grant: Grant) {
        let Ok(Some(lease)) = self.lease(keys, now, key, owner) else { return };
        if lease.fence != grant.fence {
            return;
        }
        if let Some(limit) = grant.upgraded {
            self.share(keys, now, key, owner, limit);
        }
        let _ = self.release(keys, now, key, owner, Portion::One);
    }
}
