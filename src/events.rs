//! What happens to locks and waiters by other hands than our commands'.
//!
//! Nothing is decided here, since these callbacks run in the middle of other commands: they leave notes.

use crate::alarm;
use crate::ffi::data_type;
use crate::ffi::key::Content;
use crate::ffi::{Ctx, OpenKey, Str};
use crate::inbox::{self, Message};
use crate::step::Step;
use crate::{state, told};
use redislock_core::{Db, Key, KeyBuf, Note, Session, Verdict};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// How many wait, and how many leases are tied to connections. With none of either, most events mean nothing.
static WAITERS: AtomicUsize = AtomicUsize::new(0);
static TIED: AtomicUsize = AtomicUsize::new(0);

/// Whether this server is the primary.
static PRIMARY: AtomicBool = AtomicBool::new(true);

/// Whether this server is a node of a cluster. That is decided when it starts.
static CLUSTER: AtomicBool = AtomicBool::new(false);

/// How many lines are looked at in a tick of the server, for slots that have moved.
const LINES_A_TICK: usize = 500;

/// How many were looked at in this round.
static LOOKED_AT: AtomicUsize = AtomicUsize::new(0);

/// Whether it is the module itself that deletes a key now.
static OWN: AtomicBool = AtomicBool::new(false);

/// The database that a key has just left by MOVE.
static MOVED_FROM: AtomicU32 = AtomicU32::new(0);

/// Says how much there is that events may matter for.
pub(crate) fn expect(waiters: usize, tied: usize) {
    WAITERS.store(waiters, Ordering::Relaxed);
    TIED.store(tied, Ordering::Relaxed);
}

/// Whether anyone waits, or would be told of the end of a connection.
fn anyone_cares() -> bool {
    WAITERS.load(Ordering::Relaxed) > 0 || TIED.load(Ordering::Relaxed) > 0
}

/// Runs a deletion of the module's own, which is no news.
pub(crate) fn own_deletion(delete: impl FnOnce()) {
    OWN.store(true, Ordering::Relaxed);
    delete();
    OWN.store(false, Ordering::Relaxed);
}

/// Whether this server is the primary.
pub(crate) fn is_primary() -> bool {
    PRIMARY.load(Ordering::Relaxed)
}

/// Whether this server is a node of a cluster.
pub(crate) fn is_cluster() -> bool {
    CLUSTER.load(Ordering::Relaxed)
}

/// Takes note of what this server is when the module is loaded.
pub(crate) fn start(ctx: Ctx<'_>) {
    let flags = ctx.flags();
    PRIMARY.store(flags.is_primary(), Ordering::Relaxed);
    CLUSTER.store(flags.is_cluster(), Ordering::Relaxed);
}

fn note(note: Note) {
    inbox::post(Message::Note(note));
}

/// A lock left its key: deleted, expired, evicted, overwritten, moved or renamed. Which database is not said.
pub(crate) fn unlinked(name: &[u8]) {
    if anyone_cares() && !OWN.load(Ordering::Relaxed) {
        note(Note::Name(name.into()));
    }
}

/// Something happened to a key.
pub(crate) fn key_event(ctx: Ctx<'_>, event: &[u8], key: Str<'_>) {
    look_at_event(ctx, event, key);
    // Valkey 8.1 tells of the arrival on the caller's own connection, and leaves it in the other database then
    // (valkey-io/valkey#4024). After COPY too, where nothing tells which one it came from.
    match event {
        b"move_from" => MOVED_FROM.store(ctx.db().0, Ordering::Relaxed),
        b"move_to" => ctx.select(Db(MOVED_FROM.load(Ordering::Relaxed))),
        _ => {}
    }
}

fn look_at_event(ctx: Ctx<'_>, event: &[u8], key: Str<'_>) {
    let arrived = matches!(event, b"rename_to" | b"move_to" | b"restore");
    // A payload brings its own deadline, whatever time to live was said with it.
    let mirror = matches!(event, b"expire" | b"persist" | b"restore");
    if !(arrived || mirror) || !data_type::any() {
        return;
    }
    let flags = ctx.flags();
    if flags.is_loading() || !flags.is_primary() {
        return;
    }
    if !matches!(OpenKey::for_peeking(ctx, key).content(), Content::Lock(_)) {
        return;
    }
    let key = Key { db: ctx.db(), name: key.as_bytes() }.to_buf();
    if arrived {
        note(Note::Arrived(key.clone()));
    }
    if mirror {
        note(Note::Mirror(key));
    }
}

/// A connection has closed.
pub(crate) fn closed(_ctx: Ctx<'_>, id: u64) {
    told::closed(id).into_iter().for_each(note);
    if TIED.load(Ordering::Relaxed) > 0
        && let Some(session) = Session::new(id)
    {
        note(Note::Closed(session));
    }
}

/// This server has become the primary, or a replica.
pub(crate) fn role_changed(ctx: Ctx<'_>, primary: bool) {
    PRIMARY.store(primary, Ordering::Relaxed);
    if !primary {
        let mut step = Step::begin(ctx, None);
        step.state().engine.abdicate(&Verdict::Unblocked);
    }
}

/// A database was emptied, or all of them.
pub(crate) fn flushed(_ctx: Ctx<'_>, db: Option<Db>) {
    if anyone_cares() {
        note(Note::Database(db));
    }
}

/// A dump or AOF was loaded: every key may be another.
pub(crate) fn loaded(_ctx: Ctx<'_>) {
    if anyone_cares() {
        note(Note::Database(None));
    }
}

/// Two databases have changed places.
pub(crate) fn swapped(ctx: Ctx<'_>, one: Db, other: Db) {
    Step::begin(ctx, None).state().engine.swapped(one, other);
}

/// The server's own tick.
pub(crate) fn cron(ctx: Ctx<'_>) {
    if anyone_cares() && is_cluster() {
        look_for_moved_slots();
    }
    alarm::second_look(ctx);
}

/// Slots move without a word. A line whose slot has gone is told so when it is looked at: some lines a tick, one after
/// the other, so that a node with many is not held up.
fn look_for_moved_slots() {
    let from = LOOKED_AT.load(Ordering::Relaxed);
    let state = state::borrow();
    let keys: Vec<KeyBuf> =
        state.engine.queue().lines().skip(from).take(LINES_A_TICK).map(Key::to_buf).collect();
    drop(state);
    LOOKED_AT.store(if keys.len() < LINES_A_TICK { 0 } else { from + LINES_A_TICK }, Ordering::Relaxed);
    keys.into_iter().map(Note::Key).for_each(note);
}
