//! Grants that were told a moment ago, until it is sure that their clients were still there to hear them.
//!
//! The server may know that a connection is over and close it only at the end of this turn of its loop: the answer
//! is then dropped on the floor, and nobody says so. And the write of the answer may fail, in that same moment. So a
//! connection that closes between the telling and the next thing that happens has not heard, and its lock is handed
//! on. One that closes later has: it may have begun its work.
//!
//! The next thing is a command, or the next turn. Redis 6.2 does not tell of turns; a timer ends the waiting there, in
//! time, since connections that end by themselves are closed at the end of a turn.

use crate::alarm;
use crate::ffi::command_filter::{self, Filter};
use crate::ffi::event_loop;
use crate::ffi::main_thread::MainThread;
use crate::waiting::Claim;
use redislock_core::{Grant, Note};

static TOLD: MainThread<Vec<Told>> = MainThread::new(Vec::new());

static LOOKOUT: MainThread<Option<Lookout>> = MainThread::new(None);

/// After how many ticks of the server in which nobody was told anything, about a second, it looks out no longer.
const QUIET: u32 = 10;

struct Told {
    client: u64,
    claim: Claim,
    grant: Grant,
}

/// What looks out for the next thing that happens. It costs each command and each turn a little, so it is there only
/// while waiters are being told.
struct Lookout {
    commands: Option<Filter>,
    turns: bool,
    quiet: u32,
}

/// Looks out for what happens next. Returns whether [`alarm::before_sleep`] and [`alarm::after_sleep`] will be called.
pub(crate) fn look_out() -> bool {
    let mut lookout = LOOKOUT.borrow();
    let lookout = lookout.get_or_insert_with(|| Lookout {
        commands: command_filter::add(),
        turns: event_loop::watch_turns(),
        quiet: 0,
    });
    lookout.quiet = 0;
    lookout.turns
}

/// A grant was told to this connection.
pub(crate) fn told(client: u64, claim: Claim, grant: Grant) {
    let first = {
        let mut told = TOLD.borrow();
        told.push(Told { client, claim, grant });
        told.len() == 1
    };
    if !look_out() && first {
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

/// The next thing happens, a command or a turn: whoever was told before it has heard.
pub(crate) fn believe() {
    TOLD.borrow().clear();
}

/// The server's own tick. Returns whether [`rest`] should be called, from a timer.
pub(crate) fn tick() -> bool {
    LOOKOUT.borrow().as_mut().is_some_and(|lookout| {
        lookout.quiet += 1;
        lookout.quiet >= QUIET
    })
}

/// Ends the looking out when it has been quiet.
pub(crate) fn rest() {
    let mut lookout = LOOKOUT.borrow();
    let Some(Lookout { commands, turns, .. }) = lookout.take_if(|lookout| lookout.quiet >= QUIET) else {
        return;
    };
    if let Some(filter) = commands {
        filter.remove();
    }
    if turns {
        event_loop::ignore_turns();
        alarm::turns_unseen();
    }
}
