//! Records from elsewhere: what a primary or the AOF says is so.

use super::{Change, Engine, Keyspace, Slot};
use crate::key::Key;
use crate::lock::Lock;
use crate::owner::Owner;
use crate::record::Record;
use crate::request::Fault;

impl Engine {
    /// Makes a key what a record says. No setting is checked, no clock read, nobody served.
    ///
    /// # Errors
    /// [`Fault::WrongType`], when the key holds a value of another type.
    pub fn apply<K: Keyspace>(
        &mut self,
        keys: &mut K,
        key: Key<'_>,
        record: &Record<'_>,
    ) -> Result<(), Fault> {
        self.counter.raise(record.counter);
        match (keys.find(key), record.change) {
            (Slot::Foreign, _) => return Err(Fault::WrongType),
            (Slot::Elsewhere, _) => return Err(Fault::Elsewhere),
            (Slot::Held(lock), Change::Held(lease)) => lock.set(record.owner, lease),
            (Slot::Free, Change::Held(lease)) => {
                keys.create(key, Lock::new(Owner::checked(record.owner), lease))
            }
            (Slot::Free, Change::Gone) => {}
            (Slot::Held(lock), Change::Gone) => {
                if lock.get(record.owner).is_some() && !lock.remove(record.owner) {
                    keys.free(key);
                }
            }
        }
        if let Change::Held(lease) = record.change {
            self.counter.raise(lease.fence);
        }
        Ok(())
    }
}
