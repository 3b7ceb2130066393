//! What persists: the holders of one key.

use crate::fence::Fence;
use crate::owner::Owner;
use crate::session::Session;
use crate::time::Millis;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use core::num::NonZeroU32;

/// The most holds that one holder may nest, and the greatest limit.
pub const HOLDS_MAX: u32 = i32::MAX as u32;

/// How many nested holds a holder has: 1 to [`HOLDS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holds(NonZeroU32);

impl Holds {
    /// The first hold.
    pub const ONE: Self = Self(NonZeroU32::MIN);

    /// This many holds; `None` for none or too many.
    #[must_use]
    pub fn new(count: u32) -> Option<Self> {
        NonZeroU32::new(count).filter(|count| count.get() <= HOLDS_MAX).map(Self)
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0.get()
    }

    pub(crate) fn more(self) -> Option<Self> {
        Self::new(self.get() + 1)
    }

    /// One hold less; `None` when this was the last.
    pub(crate) fn less(self) -> Option<Self> {
        Self::new(self.get() - 1)
    }
}

/// How many shared holders may stand together: 1 to [`HOLDS_MAX`], or without limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Limit(NonZeroU32);

impl Limit {
    /// Without limit: plain SHARED.
    pub const NONE: Self = Self(NonZeroU32::MAX);

    /// At most this many; `None` when out of range.
    #[must_use]
    pub fn new(count: u32) -> Option<Self> {
        NonZeroU32::new(count).filter(|count| count.get() <= HOLDS_MAX).map(Self)
    }

    /// The number, where a limit is set.
    #[must_use]
    pub fn get(self) -> Option<u32> {
        (self != Self::NONE).then_some(self.0.get())
    }

    /// Whether this many holders stay within the limit.
    #[must_use]
    pub fn allows(self, holders: usize) -> bool {
        holders as u64 <= u64::from(self.0.get())
    }
}

/// Whether a holder stands alone or together with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Alone.
    Exclusive,
    /// Together with other shared holders, as many as the limit says.
    Shared(Limit),
}

/// The time-bounded right of one holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Alone or together.
    pub mode: Mode,
    /// The nested holds.
    pub holds: Holds,
    /// The fencing token.
    pub fence: Fence,
    /// When it ends: at this point it is no longer held.
    pub deadline: Millis,
    /// When the holder came to hold.
    pub since: Millis,
    /// The connection that it ends with, if it is tied to one. Volatile: never encoded.
    pub session: Option<Session>,
}

impl Lease {
    /// Whether it still runs at `now`.
    #[must_use]
    pub fn runs(&self, now: Millis) -> bool {
        now < self.deadline
    }
}

/// The holders of one key: at least one. A key that nobody holds has no lock, so none is empty.
///
/// Nearly always there is one holder, and it lies inline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock(Holders);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Holders {
    One(Owner, Lease),
    /// Two or more, all shared.
    Many(Box<Many>),
}

/// A crowd of shared holders, with what must be known of it at once: who ends first and last, the smallest limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Many {
    leases: BTreeMap<Owner, Lease>,
    deadlines: BTreeSet<(Millis, Owner)>,
    limits: BTreeMap<Limit, usize>,
}

impl Many {
    fn insert(&mut self, owner: Owner, lease: Lease) {
        if let Some(old) = self.leases.insert(owner.clone(), lease) {
            self.strike(owner.clone(), old);
        }
        self.deadlines.insert((lease.deadline, owner));
        if let Mode::Shared(limit) = lease.mode {
            *self.limits.entry(limit).or_default() += 1;
        }
    }

    fn remove(&mut self, owner: &[u8]) {
        if let Some((owner, lease)) = self.leases.remove_entry(owner) {
            self.strike(owner, lease);
        }
    }

    /// Strikes a lease off what is known of the crowd at once.
    fn strike(&mut self, owner: Owner, lease: Lease) {
        self.deadlines.remove(&(lease.deadline, owner));
        if let Mode::Shared(limit) = lease.mode
            && let Some(count) = self.limits.get_mut(&limit)
        {
            *count -= 1;
            if *count == 0 {
                self.limits.remove(&limit);
            }
        }
    }
}

impl Lock {
    /// A lock with its first holder.
    #[must_use]
    pub fn new(owner: Owner, lease: Lease) -> Self {
        Self(Holders::One(owner, lease))
    }

    /// How many hold it: at least one.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a lock without holders does not exist")]
    pub fn len(&self) -> usize {
        match &self.0 {
            Holders::One(..) => 1,
            Holders::Many(many) => many.leases.len(),
        }
    }

    /// The lease of this owner, also one that has ended.
    #[must_use]
    pub fn get(&self, owner: &[u8]) -> Option<&Lease> {
        match &self.0 {
            Holders::One(holder, lease) => (holder.as_bytes() == owner).then_some(lease),
            Holders::Many(many) => many.leases.get(owner),
        }
    }

    /// All holders, in no order that means something.
    pub fn iter(&self) -> impl Iterator<Item = (&Owner, &Lease)> {
        let (one, many) = match &self.0 {
            Holders::One(owner, lease) => (Some((owner, lease)), None),
            Holders::Many(many) => (None, Some(many.leases.iter())),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// When the first lease ends.
    #[must_use]
    pub fn earliest(&self) -> Millis {
        match &self.0 {
            Holders::One(_, lease) => lease.deadline,
            Holders::Many(many) => many.deadlines.first().map_or(Millis(0), |(deadline, _)| *deadline),
        }
    }

    /// When the last lease ends: what PTTL shows.
    #[must_use]
    pub fn latest(&self) -> Millis {
        match &self.0 {
            Holders::One(_, lease) => lease.deadline,
            Holders::Many(many) => many.deadlines.last().map_or(Millis(0), |(deadline, _)| *deadline),
        }
    }

    /// Whether it is held by one that stands alone.
    #[must_use]
    pub fn is_exclusive(&self) -> bool {
        matches!(&self.0, Holders::One(_, lease) if lease.mode == Mode::Exclusive)
    }

    /// The smallest limit of its holders.
    #[must_use]
    pub fn limit(&self) -> Limit {
        match &self.0 {
            Holders::One(_, Lease { mode: Mode::Shared(limit), .. }) => *limit,
            Holders::One(..) => Limit::NONE,
            Holders::Many(many) => many.limits.keys().next().copied().unwrap_or(Limit::NONE),
        }
    }

    /// Whether one more holder of this mode could stand beside those that hold it now.
    #[must_use]
    pub fn admits(&self, mode: Mode) -> bool {
        match mode {
            Mode::Exclusive => false,
            Mode::Shared(limit) => {
                !self.is_exclusive() && limit.min(self.limit()).allows(self.len().saturating_add(1))
            }
        }
    }

    /// One whose lease has ended at `now`.
    #[must_use]
    pub(crate) fn lapsed(&self, now: Millis) -> Option<&Owner> {
        match &self.0 {
            Holders::One(owner, lease) => (!lease.runs(now)).then_some(owner),
            Holders::Many(many) => {
                many.deadlines.first().filter(|(deadline, _)| *deadline <= now).map(|(_, owner)| owner)
            }
        }
    }

    /// Makes `owner` a holder with this lease, or gives the holder that it is a new one.
    ///
    /// An exclusive lease stands alone: whoever else is here is gone after it.
    pub fn set(&mut self, owner: &[u8], lease: Lease) {
        match &mut self.0 {
            Holders::One(holder, old) if holder.as_bytes() == owner => *old = lease,
            holders if lease.mode == Mode::Exclusive => *holders = Holders::One(Owner::checked(owner), lease),
            Holders::Many(many) => many.insert(Owner::checked(owner), lease),
            Holders::One(_, Lease { mode: Mode::Exclusive, .. }) => {
                self.0 = Holders::One(Owner::checked(owner), lease);
            }
            Holders::One(holder, old) => {
                let mut many = Many::default();
                many.insert(holder.clone(), *old);
                many.insert(Owner::checked(owner), lease);
                self.0 = Holders::Many(Box::new(many));
            }
        }
    }

    /// Takes one of several holders out. The last one can't be taken out: then the lock itself goes.
    ///
    /// Returns whether others are left. When not, nothing has changed, and the caller drops the lock.
    #[must_use]
    pub(crate) fn remove(&mut self, owner: &[u8]) -> bool {
        let Holders::Many(many) = &mut self.0 else { return false };
        many.remove(owner);
        if many.leases.len() == 1
            && let Some((holder, lease)) = many.leases.pop_first()
        {
            self.0 = Holders::One(holder, lease);
        }
        true
    }

    /// About how many bytes of memory it takes.
    #[must_use]
    pub fn footprint(&self) -> usize {
        size_of::<Self>()
            + match &self.0 {
                Holders::One(holder, _) => holder.heap(),
                Holders::Many(many) => {
                    let entry = size_of::<Owner>() * 2 + size_of::<Lease>() + size_of::<Millis>();
                    size_of::<Many>()
                        + many.leases.keys().map(|holder| entry + 2 * holder.heap()).sum::<usize>()
                }
            }
    }
}

#[cfg(test)]
mod tests;
