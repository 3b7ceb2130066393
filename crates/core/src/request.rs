//! What can be asked of a lock, and what can come of it.

use crate::deadlock::Circle;
use crate::fence::Fence;
use crate::lock::{Holds, Limit, Mode};
use crate::session::Session;
use crate::time::{Millis, Ttl};

/// A request to hold one key, or several at once.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Who asks: 1 to 512 bytes.
    pub owner: &'a [u8],
    /// The length of the lease, from the moment of its grant.
    pub ttl: Ttl,
    /// Alone or together.
    pub mode: Mode,
    /// The connection that the lease shall end with.
    pub session: Option<Session>,
    /// Whether a holder may nest.
    pub form: Form,
}

/// Whether a request nests when its owner holds the lock already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// It doesn't: that owner is told that it holds.
    Acquire,
    /// It does, and may say which hold this is, so that it can be sent again.
    Reenter {
        /// The number of this hold.
        hold: Option<Holds>,
    },
}

/// The wish to wait where a request can't be granted.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    /// When the wait ends; `None` waits without limit.
    pub until: Option<Millis>,
}

/// How much a holder gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Portion {
    /// One hold.
    One,
    /// This very hold, so that it can be sent again.
    Nth(Holds),
    /// Every hold, and the waiting request too.
    All,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The caller holds.
    Granted(Grant),
    /// The caller does not hold, and nothing has changed.
    Refused(Refusal),
    /// The request waits, and its verdict comes as an effect.
    Queued(crate::queue::WaiterId),
}

/// A lock that was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The fencing token.
    pub fence: Fence,
    /// The holds of the owner, this one included.
    pub holds: Holds,
    /// The limit that the owner had as a shared holder, when this grant was its upgrade.
    pub upgraded: Option<Limit>,
}

/// Why a request was not granted. Contention, not an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Others hold, the first of them for so many milliseconds more.
    Held {
        /// Milliseconds until the first lease ends.
        left: u64,
    },
    /// Others wait, and nobody passes them.
    Line,
    /// The hold that was to be nested in has ended.
    Ended,
}

/// A request that was wrong, or that can't be served. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The owner holds already, with this fence.
    Held(Fence),
    /// The hold count does not fit the hold that was named.
    Hold {
        /// The holds that the owner has.
        has: Holds,
    },
    /// The holder is shared, and the hold that was named is one that it has: not the one of this upgrade.
    NotUpgraded,
    /// No further hold can be counted.
    HoldsFull,
    /// The key holds a value of another type.
    WrongType,
    /// Another node serves the key.
    Elsewhere,
    /// The owner waits for the key already, with a different request.
    Waits,
    /// The wait would close a circle.
    Deadlock(Circle),
    /// As many wait as may wait.
    QueueFull,
    /// A token too far ahead of the clock: it may be this one at the most.
    Ahead(Fence),
    /// No tokens are left.
    Exhausted,
}

/// What a waiter is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It holds.
    Granted(Grant),
    /// It was not granted: its time is up, its request was withdrawn, or what it wanted to upgrade has ended.
    Refused,
    /// It can't be served.
    Fault(Fault),
    /// The same owner asked again elsewhere.
    Replaced,
    /// The server is no longer the one to ask: it is a replica now.
    Unblocked,
}
