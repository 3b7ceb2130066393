//! What a holder may do with its lease, and an operator with anyone's.

use super::{Engine, Event, Keyspace, Slot};
use crate::fence::Fence;
use crate::key::Key;
use crate::lock::{Lease, Limit, Mode};
use crate::owner::Owner;
use crate::request::{Fault, Portion, Verdict};
use crate::session::Session;
use crate::time::{Now, Ttl};
use alloc::vec::Vec;

impl Engine {
    /// The running lease of an owner; `None` when it holds none.
    ///
    /// # Errors
    /// [`Fault::WrongType`].
    pub fn lease<K: Keyspace>(
        &mut self,
        keys: &mut K,
        now: Now,
        key: Key<'_>,
        owner: &[u8],
    ) -> Result<Option<Lease>, Fault> {
        self.settle(keys, now);
        self.freshen(keys, now, key);
        match keys.find(key) {
            Slot::Foreign => Err(Fault::WrongType),
            Slot::Elsewhere => Err(Fault::Elsewhere),
            Slot::Free => Ok(None),
            Slot::Held(lock) => {
                let lease = lock.get(owner).copied();
                Ok(lease.map(|lease| Lease { session: self.tie(key, owner, &lease), ..lease }))
            }
        }
    }

    /// Lets the lease of a holder run exactly `ttl` from now, and ties it to a connection where one is given.
    /// `None` when the owner holds no running lease: nothing revives one.
    ///
    /// # Errors
    /// [`Fault::WrongType`].
    pub fn renew<K: Keyspace>(
        &mut self,
        keys: &mut K,
        now: Now,
        key: Key<'_>,
        owner: &[u8],
        ttl: Ttl,
        session: Option<Session>,
    ) -> Result<Option<Fence>, Fault> {
        let Some(old) = self.lease(keys, now, key, owner)? else { return Ok(None) };
        let lease = Lease { deadline: now.at.after(ttl), session: session.or(old.session), ..old };
        self.put(keys, key, owner, lease, Event::Renewed);
        self.watch(keys, key);
        Ok(Some(lease.fence))
    }

    /// Gives holds back, and hands the lock on with the last. Returns the holds left; `None` when the owner holds
    /// nothing.
    ///
    /// # Errors
    /// [`Fault::WrongType`], and [`Fault::Hold`] when the named hold is neither the last one nor the one before.
    pub fn release<K: Keyspace>(
        &mut self,
        keys: &mut K,
        now: Now,
        key: Key<'_>,
        owner: &[u8],
        portion: Portion,
    ) -> Result<Option<u32>, Fault> {
        let lease = self.lease(keys, now, key, owner)?;
        if portion == Portion::All {
            self.withdraw(keys, now, key, owner);
        }
        let Some(lease) = lease else { return Ok(None) };
        let holds = lease.holds;
        let left = match portion {
            Portion::One => holds.less(),
            Portion::All => None,
            Portion::Nth(hold) if hold == holds => holds.less(),
            // This hold was given back already: the answer once more.
            Portion::Nth(hold) if Some(hold) == holds.more() => return Ok(Some(holds.get())),
            Portion::Nth(_) => return Err(Fault::Hold { has: holds }),
        };
        match left {
            Some(left) => self.put(keys, key, owner, Lease { holds: left, ..lease }, Event::Released),
            None => self.end(keys, key, owner, Event::Released),
        }
        self.changed(keys, now, key);
        Ok(Some(left.map_or(0, |left| left.get())))
    }

    /// Takes back the waiting request of an owner for a key.
    fn withdraw<K: Keyspace>(&mut self, keys: &mut K, now: Now, key: Key<'_>, owner: &[u8]) {
        let own = self.queue.of_owner(owner).map(|(id, _)| id);
        let Some(id) = own.into_iter().find(|id| self.queue.keys(*id).any(|waited| waited == key)) else {
            return;
        };
        self.answer(id, Verdict::Refused);
        self.stats.refusals += 1;
        for key in self.queue.remove(id) {
            self.serve(keys, now, key.as_key());
        }
    }

    /// Raises a holder's token, and the counter, to at least `token`. Returns the token now; `None` when the owner
    /// holds nothing.
    ///
    /// # Errors
    /// [`Fault::WrongType`], and [`Fault::Ahead`] for a token that the counter has not passed and that is too far
    /// ahead of the clock.
    pub fn raise<K: Keyspace>(
        &mut self,
        keys: &mut K,
        now: Now,
        key: Key<'_>,
        owner: &[u8],
        token: Fence,
    ) -> Result<Option<Fence>, Fault> {
        let Some(old) = self.lease(keys, now, key, owner)? else { return Ok(None) };
        let ceiling = self.counter.ceiling(now.wall_micros);
        if token > ceiling {
            return Err(Fault::Ahead(ceiling));
        }
        let fence = old.fence.max(token);
        self.counter.raise(fence);
        if fence != old.fence {
            self.put(keys, key, owner, Lease { fence, ..old }, Event::Fenced);
        }
        Ok(Some(fence))
    }

    /// Makes an exclusive holder a shared one, without a gap; readers at the head of the line join. Returns its
    /// token, which stays; `None` when the owner holds nothing.
    ///
    /// # Errors
    /// [`Fault::WrongType`].
    pub fn downgrade<K: Keyspace>(
        &mut self,
        keys: &mut K,
        now: Now,
        key: Key<'_>,
        owner: &[u8],
    ) -> Result<Option<Fence>, Fault> {
        let Some(old) = self.lease(keys, now, key, owner)? else { return Ok(None) };
        self.share(keys, now, key, owner, Limit::NONE);
        Ok(Some(old.fence))
    }

    /// Makes an exclusive holder a shared one with this limit; whoever can join now does.
    pub(super) fn share<K: Keyspace>(
        &mut self,
        keys: &mut K,
        now: Now,
        key: Key<'_>,
        owner: &[u8],
        limit: Limit,
    ) {
        let Slot::Held(lock) = keys.find(key) else { return };
        let Some(old) = lock.get(owner).copied().filter(|lease| lease.mode == Mode::Exclusive) else {
            return;
        };
        let session = self.tie(key, owner, &old);
        self.put(keys, key, owner, Lease { mode: Mode::Shared(limit), session, ..old }, Event::Downgraded);
        self.changed(keys, now, key);
    }

    /// Takes the lock away from all its holders, or from one, or from one grant of it. Returns from how many.
    ///
    /// # Errors
    /// [`Fault::WrongType`].
    pub fn revoke<K: Keyspace>(
        &mut self,
        keys: &mut K,
        now: Now,
        key: Key<'_>,
        owner: Option<&[u8]>,
        fence: Option<Fence>,
    ) -> Result<usize, Fault> {
        self.settle(keys, now);
        self.freshen(keys, now, key);
        let lock = match keys.find(key) {
            Slot::Foreign => return Err(Fault::WrongType),
            Slot::Elsewhere => return Err(Fault::Elsewhere),
            Slot::Free => return Ok(0),
            Slot::Held(lock) => lock,
        };
        let matches = |lease: &Lease| fence.is_none_or(|fence| lease.fence == fence);
        let owners: Vec<Owner> = match owner {
            Some(owner) => lock
                .get(owner)
                .filter(|lease| matches(lease))
                .map(|_| Owner::checked(owner))
                .into_iter()
                .collect(),
            None => {
                lock.iter().filter(|(_, lease)| matches(lease)).map(|(holder, _)| holder.clone()).collect()
            }
        };
        for owner in &owners {
            self.end(keys, key, owner.as_bytes(), Event::Revoked);
        }
        self.changed(keys, now, key);
        Ok(owners.len())
    }
}
