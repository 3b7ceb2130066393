//! Who waits for what: one line a key, first in, first out.
//!
//! Volatile, and bounded by the engine. A waiter is taken out of its lines in constant time, whoever stands around
//! it: a release costs the same behind ten waiters or ten thousand. To find a line by its key, or the waiting
//! request of an owner, costs the logarithm of how many there are.

use crate::key::{Db, Key, KeyBuf};
use crate::lock::Mode;
use crate::owner::Owner;
use crate::request::{Ask, Form};
use crate::session::Session;
use crate::time::{Millis, Ttl};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use slab::Slab;

/// One waiting request. A request that takes over another's place has a new id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WaiterId {
    index: u32,
    turn: u64,
}

/// A request that waits.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct Waiter {
    turn: u64,
    owner: Owner,
    ttl: Ttl,
    mode: Mode,
    session: Option<Session>,
    form: Form,
    /// The owner holds the key, shared, and waits to stand alone.
    upgrade: bool,
    since: Millis,
    until: Option<Millis>,
    /// Its place in the line of each key, in the order in which the keys were named.
    places: Vec<usize>,
    /// This wait alone does not say what its owner waits for: it is for several keys, or one of several.
    entangled: bool,
}

impl Waiter {
    /// Who waits.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Alone or together.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Since when it waits.
    #[must_use]
    pub fn since(&self) -> Millis {
        self.since
    }

    /// When its wait ends; `None` without limit.
    #[must_use]
    pub fn until(&self) -> Option<Millis> {
        self.until
    }

    /// Whether the owner holds the key, shared, and waits to stand alone.
    #[must_use]
    pub fn is_upgrade(&self) -> bool {
        self.upgrade
    }

    pub(crate) fn ask(&self) -> Ask<'_> {
        Ask {
            owner: self.owner.as_bytes(),
            ttl: self.ttl,
            mode: self.mode,
            session: self.session,
            form: self.form,
        }
    }
}

/// The waiters of one key.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct Line {
    key: KeyBuf,
    head: Option<usize>,
    tail: Option<usize>,
    len: usize,
    due: Option<Millis>,
    /// How many of its waiters are entangled.
    entangled: usize,
}

impl Line {
    /// How many wait.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a line without waiters does not exist")]
    pub fn len(&self) -> usize {
        self.len
    }
}

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
struct Place {
    waiter: usize,
    line: usize,
    ahead: Option<usize>,
    behind: Option<usize>,
}

/// All lines of the server.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub struct Queue {
    waiters: Slab<Waiter>,
    places: Slab<Place>,
    lines: Slab<Line>,
    by_key: BTreeMap<Db, BTreeMap<Box<[u8]>, usize>>,
    by_owner: BTreeMap<Owner, BTreeSet<usize>>,
    timeouts: BTreeSet<(Millis, usize)>,
    dues: BTreeSet<(Millis, usize)>,
    turns: u64,
}

impl Queue {
    /// How many wait in the whole server.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// The line of a key, where one waits.
    #[must_use]
    pub fn line(&self, key: Key<'_>) -> Option<&Line> {
        self.line_index(key).map(|line| &self.lines[line])
    }

    fn line_index(&self, key: Key<'_>) -> Option<usize> {
        self.by_key.get(&key.db)?.get(key.name).copied()
    }

    /// Those who wait for a key, in order.
    pub fn waiters(&self, key: Key<'_>) -> impl Iterator<Item = (WaiterId, &Waiter)> {
        let head = self.line(key).and_then(|line| line.head);
        core::iter::successors(head, |place| self.places[*place].behind)
            .map(|place| self.entry(self.places[place].waiter))
    }

    /// The waiter with this id, while it waits.
    #[must_use]
    pub fn get(&self, id: WaiterId) -> Option<&Waiter> {
        self.waiters.get(id.index as usize).filter(|waiter| waiter.turn == id.turn)
    }

    /// The keys that a waiter waits for, in the order in which it named them.
    pub fn keys(&self, id: WaiterId) -> impl Iterator<Item = Key<'_>> {
        let places = self.get(id).map_or(&[][..], |waiter| &waiter.places);
        places.iter().map(|place| self.lines[self.places[*place].line].key.as_key())
    }

    /// Every waiter, in no order that means something.
    pub fn iter(&self) -> impl Iterator<Item = (WaiterId, &Waiter)> {
        self.waiters.iter().map(|(index, _)| self.entry(index))
    }

    /// Every key that is waited for.
    pub fn lines(&self) -> impl Iterator<Item = Key<'_>> {
        self.lines.iter().map(|(_, line)| line.key.as_key())
    }

    fn entry(&self, index: usize) -> (WaiterId, &Waiter) {
        let waiter = &self.waiters[index];
        (WaiterId { index: u32::try_from(index).unwrap_or(u32::MAX), turn: waiter.turn }, waiter)
    }

    /// The waiting requests of an owner.
    pub(crate) fn of_owner(&self, owner: &[u8]) -> impl Iterator<Item = (WaiterId, &Waiter)> {
        self.by_owner.get(owner).into_iter().flatten().map(|index| self.entry(*index))
    }

    pub(crate) fn waits(&self, owner: &[u8]) -> bool {
        self.by_owner.contains_key(owner)
    }

    /// How many owners wait.
    pub(crate) fn owners(&self) -> usize {
        self.by_owner.len()
    }

    /// The name under which this owner waits, if it does.
    pub(crate) fn waiting_owner(&self, owner: &[u8]) -> Option<&Owner> {
        self.by_owner.get_key_value(owner).map(|(owner, _)| owner)
    }

    /// Every owner that waits.
    pub(crate) fn waiting_owners(&self) -> impl Iterator<Item = &Owner> {
        self.by_owner.keys()
    }

    /// Whether somebody in the line of this key waits for anything else.
    pub(crate) fn is_entangled(&self, key: Key<'_>) -> bool {
        self.line(key).is_some_and(|line| line.entangled > 0)
    }

    fn entangle(&mut self, waiter: usize, entangled: bool) {
        let waiter = &mut self.waiters[waiter];
        if core::mem::replace(&mut waiter.entangled, entangled) == entangled {
            return;
        }
        for place in &waiter.places {
            let count = &mut self.lines[self.places[*place].line].entangled;
            if entangled {
                *count += 1;
            } else {
                *count -= 1;
            }
        }
    }

    /// Who stands at the head of the line.
    pub(crate) fn head(&self, key: Key<'_>) -> Option<WaiterId> {
        self.waiters(key).next().map(|(id, _)| id)
    }

    /// Whether a waiter stands at the head of every line that it stands in.
    pub(crate) fn leads(&self, id: WaiterId) -> bool {
        self.get(id)
            .is_some_and(|waiter| waiter.places.iter().all(|place| self.places[*place].ahead.is_none()))
    }

    /// Queues a request behind all others, or an upgrade ahead of them.
    pub(crate) fn push(
        &mut self,
        keys: &[Key<'_>],
        ask: &Ask<'_>,
        upgrade: bool,
        since: Millis,
        until: Option<Millis>,
    ) -> WaiterId {
        let turn = self.next_turn();
        let owner = Owner::checked(ask.owner);
        let index = self.waiters.insert(Waiter {
            turn,
            owner: owner.clone(),
            ttl: ask.ttl,
            mode: ask.mode,
            session: ask.session,
            form: ask.form,
            upgrade,
            since,
            until,
            places: Vec::new(),
            entangled: false,
        });
        self.waiters[index].places = keys.iter().map(|key| self.stand(index, *key, upgrade)).collect();
        self.timeouts.extend(until.map(|until| (until, index)));
        let of_owner = self.by_owner.entry(owner).or_default();
        let others = of_owner.len();
        let only = of_owner.first().copied().filter(|_| others == 1);
        of_owner.insert(index);
        self.entangle(index, keys.len() > 1 || others > 0);
        if let Some(only) = only {
            self.entangle(only, true);
        }
        self.entry(index).0
    }

    /// Takes over the place of a waiting request: the same owner asks the same from another connection.
    pub(crate) fn replace(&mut self, id: WaiterId, ask: &Ask<'_>, until: Option<Millis>) -> WaiterId {
        let index = id.index as usize;
        let turn = self.next_turn();
        let waiter = &mut self.waiters[index];
        self.timeouts.extend(until.map(|until| (until, index)));
        if let Some(old) = core::mem::replace(&mut waiter.until, until)
            && Some(old) != until
        {
            self.timeouts.remove(&(old, index));
        }
        waiter.turn = turn;
        waiter.ttl = ask.ttl;
        waiter.session = ask.session;
        waiter.form = ask.form;
        self.entry(index).0
    }

    fn next_turn(&mut self) -> u64 {
        self.turns += 1;
        self.turns
    }

    fn stand(&mut self, waiter: usize, key: Key<'_>, first: bool) -> usize {
        let line = self.line_index(key).unwrap_or_else(|| {
            let line = self.lines.insert(Line {
                key: key.to_buf(),
                head: None,
                tail: None,
                len: 0,
                due: None,
                entangled: 0,
            });
            self.by_key.entry(key.db).or_default().insert(key.name.into(), line);
            line
        });
        let ends = &mut self.lines[line];
        ends.len += 1;
        let (ahead, behind) = if first { (None, ends.head) } else { (ends.tail, None) };
        let place = self.places.insert(Place { waiter, line, ahead, behind });
        self.link(line, ahead, Some(place));
        self.link(line, Some(place), behind);
        place
    }

    /// Makes two places neighbours; a missing one is the end of the line.
    fn link(&mut self, line: usize, ahead: Option<usize>, behind: Option<usize>) {
        match ahead {
            Some(place) => self.places[place].behind = behind,
            None => self.lines[line].head = behind,
        }
        match behind {
            Some(place) => self.places[place].ahead = ahead,
            None => self.lines[line].tail = ahead,
        }
    }

    /// Takes a waiter out of all its lines. Returns the keys of those that still have waiters: whoever stood behind
    /// may be next.
    pub(crate) fn remove(&mut self, id: WaiterId) -> Vec<KeyBuf> {
        if self.get(id).is_none() {
            return Vec::new();
        }
        let index = id.index as usize;
        self.entangle(index, false);
        let waiter = self.waiters.remove(index);
        if let Some(until) = waiter.until {
            self.timeouts.remove(&(until, index));
        }
        if let Some(of_owner) = self.by_owner.get_mut(waiter.owner.as_bytes()) {
            of_owner.remove(&index);
            let only = of_owner.first().copied().filter(|_| of_owner.len() == 1);
            if of_owner.is_empty() {
                self.by_owner.remove(waiter.owner.as_bytes());
            }
            if let Some(only) = only {
                self.entangle(only, self.waiters[only].places.len() > 1);
            }
        }
        waiter.places.into_iter().filter_map(|place| self.leave(place)).collect()
    }

    fn leave(&mut self, place: usize) -> Option<KeyBuf> {
        let Place { line, ahead, behind, .. } = self.places.remove(place);
        self.link(line, ahead, behind);
        self.lines[line].len -= 1;
        if self.lines[line].len > 0 {
            return Some(self.lines[line].key.clone());
        }
        let Line { key, due, .. } = self.lines.remove(line);
        if let Some(due) = due {
            self.dues.remove(&(due, line));
        }
        if let Some(names) = self.by_key.get_mut(&key.db) {
            names.remove(&key.name);
            if names.is_empty() {
                self.by_key.remove(&key.db);
            }
        }
        None
    }

    /// Sets when the line must be looked at next: when the first lease of its lock ends.
    pub(crate) fn set_due(&mut self, key: Key<'_>, due: Option<Millis>) {
        let Some(index) = self.line_index(key) else { return };
        let line = &mut self.lines[index];
        if line.due == due {
            return;
        }
        if let Some(old) = core::mem::replace(&mut line.due, due) {
            self.dues.remove(&(old, index));
        }
        self.dues.extend(due.map(|due| (due, index)));
    }

    /// When something is next to be done: a lease with waiters behind it ends, or a wait.
    #[must_use]
    pub fn next_due(&self) -> Option<Millis> {
        let due = self.dues.first().map(|(due, _)| *due);
        let timeout = self.timeouts.first().map(|(until, _)| *until);
        due.into_iter().chain(timeout).min()
    }

    /// The lines whose locks must be looked at, at `now`, earliest first.
    pub(crate) fn due(&self, now: Millis) -> impl Iterator<Item = Key<'_>> {
        let due = self.dues.iter().take_while(move |(due, _)| *due <= now);
        due.map(|(_, line)| self.lines[*line].key.as_key())
    }

    /// A waiter whose time is up at `now`.
    pub(crate) fn timed_out(&self, now: Millis) -> Option<WaiterId> {
        let (_, index) = self.timeouts.first().filter(|(until, _)| *until <= now)?;
        Some(self.entry(*index).0)
    }

    /// The databases whose lines have this name.
    pub(crate) fn named(&self, name: &[u8]) -> Vec<KeyBuf> {
        let has = self.by_key.iter().filter(|(_, names)| names.contains_key(name));
        has.map(|(db, _)| KeyBuf { db: *db, name: name.into() }).collect()
    }

    /// The keys of a database that are waited for; of all databases for `None`.
    pub(crate) fn keys_in(&self, db: Option<Db>) -> Vec<KeyBuf> {
        let lines = self.lines.iter().map(|(_, line)| &line.key);
        lines.filter(|key| db.is_none_or(|db| key.db == db)).cloned().collect()
    }
}

#[cfg(test)]
impl Queue {
    /// Checks that every part of the queue says the same.
    pub(crate) fn audit(&self) {
        let mut places = 0;
        for (index, line) in &self.lines {
            assert_eq!(self.line_index(line.key.as_key()), Some(index));
            let standing: Vec<_> = self.waiters(line.key.as_key()).collect();
            assert_eq!(standing.len(), line.len);
            assert!(line.len > 0, "a line without waiters");
            assert_eq!(line.due.is_some(), line.due.is_some_and(|due| self.dues.contains(&(due, index))));
            places += line.len;
        }
        assert_eq!(places, self.places.len());
        assert_eq!(self.by_key.values().map(BTreeMap::len).sum::<usize>(), self.lines.len());
        assert_eq!(self.by_owner.values().map(BTreeSet::len).sum::<usize>(), self.waiters.len());
        assert_eq!(self.dues.len(), self.lines.iter().filter(|(_, line)| line.due.is_some()).count());
        assert_eq!(self.timeouts.len(), self.waiters.iter().filter(|(_, w)| w.until.is_some()).count());
        for (_, waiter) in &self.waiters {
            let again = self.by_owner[&waiter.owner].len() > 1;
            assert_eq!(waiter.entangled, waiter.places.len() > 1 || again);
        }
        for (_, line) in &self.lines {
            let entangled = self.waiters(line.key.as_key()).filter(|(_, waiter)| waiter.entangled).count();
            assert_eq!(line.entangled, entangled);
        }
    }
}
