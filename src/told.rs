//! Grants that were told a moment ago, until it is sure that their clients were still there to hear them.
//!
//! The server may know that a connection is over and close it only at the end of this turn of its loop: the answer
//! is then dropped on the floor, and nobody says so. And the write of the answer may fail, in that same moment. So a
//! connection that closes between the telling and the next thing that happens has not heard, and its lock is handed
//! on. One that closes later has: it may have begun its work.
//!
//! The next thing is a command, or the next turn. Where the server tells of neither in time, Redis 6.2, connections
//! that end by themselves are closed at the end of a turn, and so after the timer that ends the waiting here.

use crate::alarm;
use crate::ffi::command_filter::{self, Filter};
use crate::ffi::event_loop;
use crate::ffi::main_thread::MainThread;
use crate::waiting::Claim;
use redislock_core::{Grant, Note};

static TOLD: MainThread<Vec<Told>> = MainThread::new(Vec::new());

static LOOKOUT: MainThread<Option<Lookout>> = MainThread::new(None);

struct Told {
    client: u64,
    claim: Claim,
    grant: Grant,
}

/// What looks out for the next thing that happens.
struct Lookout {
    commands: Option<Filter>,
    turns: bool,
}

/// A grant was told to this connection.
pub(crate) fn told(client: u64, claim: Claim, grant: Grant) {
    TOLD.borrow().push(Told { client, claim, grant });
    let mut lookout = LOOKOUT.borrow();
    if lookout.is_none() {
        *lookout = Some(Lookout { commands: command_filter::add(), turns: event_loop::watch_turns() });
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

/// The server's loop begins a turn: whoever was told in the last one has heard.
pub(crate) fn turn_begins() {
    TOLD.borrow().clear();
}

/// As [`turn_begins`], from a timer: nothing need be looked out for any more.
pub(crate) fn believe() {
    TOLD.borrow().clear();
    let Some(Lookout { commands, turns }) = LOOKOUT.borrow().take() else { return };
    if let Some(filter) = commands {
        filter.remove();
    }
    if turns {
        event_loop::ignore_turns();
    }
}
