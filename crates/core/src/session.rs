//! Ties between leases and connections: which leases end when a connection closes.

use crate::key::{Db, Key, KeyBuf};
use crate::owner::Owner;
use alloc::collections::{BTreeMap, BTreeSet};
use core::num::NonZeroU64;

/// A connection, by the number that its server gave it and never gives again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Session(NonZeroU64);

impl Session {
    /// The connection with this number; `None` for 0, which stands for no connection at all.
    #[must_use]
    pub fn new(id: u64) -> Option<Self> {
        NonZeroU64::new(id).map(Self)
    }
}

/// For each connection, the leases that may be tied to it. The lease itself says whether it still is: an entry here
/// is only where to look, and may be stale (a key that was renamed away, a lease that was lost with a database).
#[derive(Debug, Default)]
pub(crate) struct Ties(BTreeMap<Session, BTreeSet<(KeyBuf, Owner)>>);

impl Ties {
    pub(crate) fn tie(&mut self, session: Session, key: Key<'_>, owner: &[u8]) {
        self.0.entry(session).or_default().insert((key.to_buf(), Owner::checked(owner)));
    }

    pub(crate) fn untie(&mut self, session: Session, key: Key<'_>, owner: &[u8]) {
        if let Some(leases) = self.0.get_mut(&session) {
            leases.remove(&(key.to_buf(), Owner::checked(owner)));
            if leases.is_empty() {
                self.0.remove(&session);
            }
        }
    }

    /// Takes out what may be tied to a connection that has closed.
    pub(crate) fn close(&mut self, session: Session) -> BTreeSet<(KeyBuf, Owner)> {
        self.0.remove(&session).unwrap_or_default()
    }

    pub(crate) fn has(&self, session: Session) -> bool {
        self.0.contains_key(&session)
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.0.values().map(BTreeSet::len).sum()
    }

    pub(crate) fn swap(&mut self, one: Db, other: Db) {
        for leases in self.0.values_mut() {
            *leases = core::mem::take(leases)
                .into_iter()
                .map(|(mut key, owner)| {
                    if key.db == one {
                        key.db = other;
                    } else if key.db == other {
                        key.db = one;
                    }
                    (key, owner)
                })
                .collect();
        }
    }
}
