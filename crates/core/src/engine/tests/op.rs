//! What can happen to a world, in plain numbers that the model and the engine both understand.

use std::vec::Vec;

/// Alone, or together with at most so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    Alone,
    Together(u32),
}

/// Without limit.
pub(super) const ANY: u32 = u32::MAX;

/// A request to hold.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Wish {
    pub(super) owner: u8,
    pub(super) keys: Vec<u8>,
    pub(super) kind: Kind,
    pub(super) ttl: u64,
    /// For how long it waits: not at all, without limit, so long.
    pub(super) wait: Option<Option<u64>>,
    pub(super) session: Option<u8>,
    /// Whether it nests, and which hold it says it is.
    pub(super) nests: Option<Option<u32>>,
}

/// How much is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    One,
    Nth(u32),
    All,
}

/// A token to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// So far above the counter.
    Above(u64),
    /// So far below it.
    Below(u64),
    /// Further above than the clock allows.
    TooFar,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Ask(Wish),
    Renew {
        owner: u8,
        key: u8,
        ttl: u64,
        session: Option<u8>,
    },
    Release {
        owner: u8,
        key: u8,
        part: Part,
    },
    Raise {
        owner: u8,
        key: u8,
        token: Token,
    },
    Downgrade {
        owner: u8,
        key: u8,
    },
    Break {
        key: u8,
        owner: Option<u8>,
    },
    /// Behind the engine's back.
    Delete {
        key: u8,
    },
    Overwrite {
        key: u8,
    },
    Rename {
        from: u8,
        to: u8,
    },
    SwapDatabases,
    /// A connection closes.
    Close {
        session: u8,
    },
    /// A waiter's client is gone.
    Forget {
        nth: usize,
    },
    /// A waiter is told to stop waiting.
    Dismiss {
        nth: usize,
    },
    /// A hand-off, one of the latest, could not be told.
    Untold {
        nth: usize,
    },
    /// Time passes; nobody looks.
    Pass {
        millis: u64,
    },
    /// The alarm goes off.
    Drain,
}
