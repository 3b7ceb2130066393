//! Keys in memory, with everything that was told about them.

use crate::engine::{Change, Event, Keyspace, Slot};
use crate::fence::Fence;
use crate::key::{Db, Key, KeyBuf};
use crate::lock::Lock;
use crate::owner::Owner;
use std::collections::BTreeMap;
use std::vec::Vec;

/// What lies at a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Lock(Lock),
    Foreign,
    /// Another node serves the key.
    Elsewhere,
}

/// One thing told to the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) key: KeyBuf,
    pub(super) owner: Owner,
    pub(super) change: Change,
    pub(super) event: Event,
    pub(super) counter: Fence,
}

/// A keyspace that checks what it is asked to do.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    pub(super) slots: BTreeMap<KeyBuf, Content>,
    pub(super) told: Vec<Told>,
    /// How often a key was looked up.
    pub(super) finds: usize,
    /// The first letter of the keys that are beyond reach.
    pub(super) far: Option<u8>,
}

impl Memory {
    pub(super) fn lock(&self, key: Key<'_>) -> Option<&Lock> {
        match self.slots.get(&key.to_buf()) {
            Some(Content::Lock(lock)) => Some(lock),
            _ => None,
        }
    }

    pub(super) fn delete(&mut self, key: Key<'_>) {
        self.slots.remove(&key.to_buf());
    }

    pub(super) fn overwrite(&mut self, key: Key<'_>) {
        self.slots.insert(key.to_buf(), Content::Foreign);
    }

    pub(super) fn rename(&mut self, from: Key<'_>, to: Key<'_>) -> bool {
        let Some(content) = self.slots.remove(&from.to_buf()) else { return false };
        self.slots.insert(to.to_buf(), content);
        true
    }

    pub(super) fn swap(&mut self, one: Db, other: Db) {
        let slots = core::mem::take(&mut self.slots);
        self.slots.extend(slots.into_iter().map(|(mut key, content)| {
            key.swap(one, other);
            (key, content)
        }));
    }
}

impl Keyspace for Memory {
    fn reaches(&self, key: Key<'_>) -> bool {
        self.far.is_none_or(|far| !key.name.starts_with(&[far]))
    }

    fn find(&mut self, key: Key<'_>) -> Slot<'_> {
        self.finds += 1;
        assert!(self.reaches(key), "a key beyond reach was touched: {key:?}");
        match self.slots.get_mut(&key.to_buf()) {
            None => Slot::Free,
            Some(Content::Lock(lock)) => Slot::Held(lock),
            Some(Content::Foreign) => Slot::Foreign,
            Some(Content::Elsewhere) => Slot::Elsewhere,
        }
    }

    fn create(&mut self, key: Key<'_>, lock: Lock) {
        let before = self.slots.insert(key.to_buf(), Content::Lock(lock));
        assert_eq!(before, None, "a lock was put where something was");
    }

    fn free(&mut self, key: Key<'_>) {
        let before = self.slots.remove(&key.to_buf());
        assert!(matches!(before, Some(Content::Lock(_))), "a lock was dropped where none was: {before:?}");
    }

    fn record(&mut self, key: Key<'_>, owner: &[u8], change: Change, event: Event, counter: Fence) {
        let lease = self.lock(key).and_then(|lock| lock.get(owner)).copied();
        match change {
            Change::Held(told) => assert_eq!(lease, Some(told), "a record of what is not so"),
            Change::Gone => assert_eq!(lease, None, "a record of someone who is still there"),
        }
        self.told.push(Told { key: key.to_buf(), owner: Owner::checked(owner), change, event, counter });
    }
}
