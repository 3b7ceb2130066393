//! Ties between leases and connections: which leases end when a connection closes.

use crate::key::{Db, Key, KeyBuf};
use crate::owner::Owner;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
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

/// Which lease ends with which connection.
///
/// The lease names its connection too, so that the tie follows a lock that is renamed; a tie stands where both say
/// the same. What only one of them says is a leftover: of a lock that was deleted, or of a time before this server
/// was the one to decide.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Ties {
    by_session: BTreeMap<Session, BTreeSet<(KeyBuf, Owner)>>,
    by_key: BTreeMap<Db, BTreeMap<Box<[u8]>, Owners>>,
}

/// The tied leases of one key.
type Owners = BTreeMap<Owner, Session>;

impl Ties {
    /// The connection that this owner's lease of the key is tied to.
    pub(crate) fn of(&self, key: Key<'_>, owner: &[u8]) -> Option<Session> {
        self.at(key)?.get(owner).copied()
    }

    fn at(&self, key: Key<'_>) -> Option<&Owners> {
        self.by_key.get(&key.db)?.get(key.name)
    }

    /// Ties a lease to this connection, and to no other.
    pub(crate) fn tie(&mut self, session: Session, key: Key<'_>, owner: &[u8]) {
        if self.of(key, owner) == Some(session) {
            return;
        }
        self.untie(key, owner);
        let names = self.by_key.entry(key.db).or_default();
        names.entry(key.name.into()).or_default().insert(Owner::checked(owner), session);
        self.by_session.entry(session).or_default().insert((key.to_buf(), Owner::checked(owner)));
    }

    pub(crate) fn untie(&mut self, key: Key<'_>, owner: &[u8]) {
        let Some(session) = self.cut(key, owner) else { return };
        if let Some(leases) = self.by_session.get_mut(&session) {
            leases.remove(&(key.to_buf(), Owner::checked(owner)));
            if leases.is_empty() {
                self.by_session.remove(&session);
            }
        }
    }

    fn cut(&mut self, key: Key<'_>, owner: &[u8]) -> Option<Session> {
        let names = self.by_key.get_mut(&key.db)?;
        let owners = names.get_mut(key.name)?;
        let session = owners.remove(owner);
        if owners.is_empty() {
            names.remove(key.name);
        }
        if names.is_empty() {
            self.by_key.remove(&key.db);
        }
        session
    }

    /// Takes out what is tied to a connection that has closed.
    pub(crate) fn close(&mut self, session: Session) -> BTreeSet<(KeyBuf, Owner)> {
        let leases = self.by_session.remove(&session).unwrap_or_default();
        for (key, owner) in &leases {
            self.cut(key.as_key(), owner.as_bytes());
        }
        leases
    }

    pub(crate) fn has(&self, session: Session) -> bool {
        self.by_session.contains_key(&session)
    }

    /// Whether a lease of this key is tied.
    pub(crate) fn has_key(&self, key: Key<'_>) -> bool {
        self.at(key).is_some()
    }

    /// Every tie of this key.
    pub(crate) fn of_key(&self, key: Key<'_>) -> Vec<(Owner, Session)> {
        let owners = self.at(key).into_iter().flatten();
        owners.map(|(owner, session)| (owner.clone(), *session)).collect()
    }

    /// The keys of this name, in whichever database, that have ties.
    pub(crate) fn named(&self, name: &[u8]) -> Vec<KeyBuf> {
        let has = self.by_key.iter().filter(|(_, names)| names.contains_key(name));
        has.map(|(db, _)| KeyBuf { db: *db, name: name.into() }).collect()
    }

    /// The keys of a database that have ties; of all databases for `None`.
    pub(crate) fn keys_in(&self, db: Option<Db>) -> Vec<KeyBuf> {
        let inside = self.by_key.iter().filter(|(other, _)| db.is_none_or(|db| db == **other));
        inside
            .flat_map(|(db, names)| names.keys().map(|name| KeyBuf { db: *db, name: name.clone() }))
            .collect()
    }

    pub(crate) fn clear(&mut self) {
        self.by_session.clear();
        self.by_key.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_session.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_session.values().map(BTreeSet::len).sum()
    }

    pub(crate) fn swap(&mut self, one: Db, other: Db) {
        if one == other {
            return;
        }
        let (at_one, at_other) = (self.by_key.remove(&one), self.by_key.remove(&other));
        self.by_key.extend(at_one.map(|names| (other, names)));
        self.by_key.extend(at_other.map(|names| (one, names)));
        for leases in self.by_session.values_mut() {
            *leases = core::mem::take(leases)
                .into_iter()
                .map(|(mut key, owner)| {
                    key.swap(one, other);
                    (key, owner)
                })
                .collect();
        }
    }
}

#[cfg(test)]
impl Ties {
    /// Checks that both indexes say the same.
    pub(crate) fn audit(&self) {
        let mut ties = 0;
        for (db, names) in &self.by_key {
            assert!(!names.is_empty());
            for (name, owners) in names {
                assert!(!owners.is_empty());
                for (owner, session) in owners {
                    let entry = (KeyBuf { db: *db, name: name.clone() }, owner.clone());
                    assert!(
                        self.by_session[session].contains(&entry),
                        "a tie that its connection does not know"
                    );
                    ties += 1;
                }
            }
        }
        assert_eq!(ties, self.len());
        assert!(self.by_session.values().all(|leases| !leases.is_empty()));
    }
}
