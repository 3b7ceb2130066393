//! Grants that were told a moment ago, until it is sure that their clients were still there to hear them.
//!
//! The server may know that a connection is over and close it only at the end of this turn of its loop: the answer
//! is then dropped on the floor, and nobody says so. And the write of the answer may fail, in that same moment. So a
//! connection that closes between the telling and the next thing that happens has not heard, and its lock is handed
//! on. One that closes later has: it may have begun its work.

use crate::alarm;
use crate::ffi::command_filter::{self, Filter};
use crate::ffi::main_thread::MainThread;
use crate::waiting::Claim;
use redislock_core::{Grant, Note};

static TOLD: MainThread<Vec<Told>> = MainThread::new(Vec::new());

/// Sees the next command, so long as something was told before it.
static FILTER: MainThread<Option<Filter>> = MainThread::new(None);

struct Told {
    client: u64,
    claim: Claim,
    grant: Grant,
}

/// A grant was told to this connection.
pub(crate) fn told(client: u64, claim: Claim, grant: Grant) {
    TOLD.borrow().push(Told { client, claim, grant });
    let mut filter = FILTER.borrow();
    if filter.is_none() {
        *filter = command_filter::add();
        alarm::owe_next_turn();
    }
}

/// A connection has closed. Returns what it was told in vain.
pub(crate) fn closed(client: u64) -> Vec<Note> {
    let mut told = TOLD.borrow();
    let unheard = told.extract_if(.., |told| told.client == client);
    unheard
        .map(|Told { claim, grant, .. }| Note::Untold { keys: claim.keys, owner: claim.owner, grant })
        .collect()
}

/// A command begins: whoever was told before it has heard.
pub(crate) fn command_begins() {
    TOLD.borrow().clear();
}

/// The next turn of the server's loop has come: whoever was told in the last one has heard.
pub(crate) fn believe() {
    TOLD.borrow().clear();
    if let Some(filter) = FILTER.borrow().take() {
        filter.remove();
    }
}
