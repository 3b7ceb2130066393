//! When the module acts by itself: two timers, and the drain that they call.
//!
//! Events leave notes and grant nothing, since a write in the middle of another command would become part of it.
//! The drain grants: from a timer of 0 ms that fires in the same turn of the server's loop, or from one that is set
//! to the earliest deadline with somebody waiting behind it; and it knows when the server must not write. Waiters
//! are told of their answers here too, whoever decided them.

use crate::clock;
use crate::ffi::Ctx;
use crate::ffi::inner_call::{cluster_is_up, server_setting};
use crate::ffi::main_thread::MainThread;
use crate::ffi::timer::{Bell, Timer};
use crate::ffi::{detached, event_loop};
use crate::state::{self, State};
use crate::step::Step;
use crate::{inbox, told};
use redislock_core::{Engine, Fault, Millis, Now, Verdict, WaiterId};
use std::sync::atomic::{AtomicBool, Ordering};

/// The timer for the earliest deadline, and that deadline.
static ALARM: MainThread<Option<(Timer, Millis)>> = MainThread::new(None);

/// The timer for the end of this turn of the server's loop.
static TURN: MainThread<Option<Timer>> = MainThread::new(None);

/// Whether the server's loop may be past the point, in this turn, where it looks at unblocked clients: commands of
/// clients that were just unblocked run there. Then it must come round again at once.
static LATE: AtomicBool = AtomicBool::new(true);

/// Whether the server's loop was told not to sleep before that timer.
static AWAKE: AtomicBool = AtomicBool::new(false);

/// Until when the server need not be asked again whether it would take a write.
static HOLD_OFF: MainThread<Millis> = MainThread::new(Millis(0));

/// How long to wait before asking again whether the server may write, in milliseconds.
const AGAIN: u64 = 5;

/// How often to look, in milliseconds, for the end of a connection that somebody waits for, on a server whose loop
/// can't be woken: it would sleep on, for up to a tenth of a second.
const LOOK: u64 = 3;

/// Gets a context for timers that are set where none is at hand.
pub(crate) fn start(ctx: Ctx<'_>) -> Result<(), String> {
    if detached::start(ctx) { Ok(()) } else { Err("the server gives no context for timers".to_owned()) }
}

/// Calls for a drain in this turn of the server's loop.
pub(crate) fn owe() {
    let mut turn = TURN.borrow();
    if turn.is_none() {
        detached::with(|ctx| *turn = Some(Timer::start(ctx, Bell::Turn, 0)));
    }
}

/// The same, where the server's loop may be about to sleep.
pub(crate) fn owe_awake() {
    owe();
    if !AWAKE.swap(true, Ordering::Relaxed) {
        event_loop::wake();
    }
}

/// Calls for a drain in the next turn of the server's loop. A timer that was set by a timer may take until the next
/// millisecond, and holds up those behind it, so both are set anew.
pub(crate) fn owe_next_turn() {
    let (mut turn, mut alarm) = (TURN.borrow(), ALARM.borrow());
    detached::with(|ctx| {
        let due = alarm.take().map(|(timer, due)| {
            timer.stop(ctx);
            due
        });
        if let Some(late) = turn.take() {
            late.stop(ctx);
        }
        *turn = Some(Timer::start(ctx, Bell::Turn, 0));
        *alarm = due.map(|due| (Timer::start(ctx, Bell::Alarm, due.since(clock::now().0.at)), due));
    });
}

/// Sees to it that there is a drain when something is next to be done, and that waiters are told in this turn.
pub(crate) fn expect(state: &State, now: Millis) {
    if state.waiting.owes_answers() {
        if !told::look_out() {
            owe();
        } else if LATE.load(Ordering::Relaxed) {
            event_loop::wake();
        }
    }
    let mut due = if state.engine.has_notes() { Some(now) } else { state.engine.next_due() };
    if state.engine.tied() > 0 && !state.engine.queue().is_empty() && !event_loop::can_wake() {
        let look = Millis(now.0 + LOOK);
        due = Some(due.map_or(look, |due| due.min(look)));
    }
    match due.map(|due| due.max(*HOLD_OFF.borrow())) {
        None => {}
        Some(due) if due <= now => owe(),
        Some(due) => set(due, now),
    }
}

fn set(due: Millis, now: Millis) {
    let mut alarm = ALARM.borrow();
    if alarm.as_ref().is_some_and(|(_, armed)| *armed <= due) {
        return;
    }
    detached::with(|ctx| {
        if let Some((timer, _)) = alarm.take() {
            timer.stop(ctx);
        }
        *alarm = Some((Timer::start(ctx, Bell::Alarm, due.since(now)), due));
    });
}

/// A timer has fired.
pub(crate) fn fired(ctx: Ctx<'_>, bell: Bell) {
    match bell {
        Bell::Alarm => *ALARM.borrow() = None,
        Bell::Turn => *TURN.borrow() = None,
    }
    AWAKE.store(false, Ordering::Relaxed);
    told::believe();
    told::rest();
    drain(ctx);
}

/// The server's loop is about to sleep, and looks at unblocked clients before.
pub(crate) fn before_sleep() {
    LATE.store(true, Ordering::Relaxed);
    let mut state = state::borrow();
    if state.waiting.owes_answers() {
        state.waiting.tell();
    }
}

/// Turns are not told of any more.
pub(crate) fn turns_unseen() {
    LATE.store(true, Ordering::Relaxed);
}

/// The server's loop has slept, and begins a turn.
pub(crate) fn after_sleep() {
    LATE.store(false, Ordering::Relaxed);
    told::believe();
}

/// Does everything that is due, as far as the server lets us, and tells waiters of it.
fn drain(ctx: Ctx<'_>) {
    let now = clock::now().0;
    if !is_due(&now) {
        let mut state = state::borrow();
        state.waiting.tell();
        return expect(&state, now.at);
    }
    let flags = ctx.flags();
    let asks = now.at >= *HOLD_OFF.borrow();
    let is_down = asks && flags.is_cluster() && !cluster_is_up(ctx);
    let may_write = asks && !is_down && may_write(ctx);
    let mut step = Step::begin(ctx, None);
    let (engine, keys, now) = step.parts();
    if flags.is_loading() {
        hold_off(now);
    } else if !flags.is_primary() {
        engine.abdicate(&Verdict::Unblocked);
    } else if is_down {
        send_elsewhere(engine);
        hold_off(now);
    } else if may_write {
        engine.drain(keys, now);
    } else {
        engine.lapse_waits(now.at);
        hold_off(now);
    }
    let state = step.state();
    state.carry_out();
    state.waiting.tell();
}

/// Whether there is more to do than to tell what was decided.
fn is_due(now: &Now) -> bool {
    let state = state::borrow();
    !inbox::is_empty() || state.engine.has_notes() || state.engine.next_due().is_some_and(|due| due <= now.at)
}

/// Ends every wait on a node whose cluster is down: it serves nobody, and its clients must look around.
fn send_elsewhere(engine: &mut Engine) {
    let ids: Vec<WaiterId> = engine.queue().iter().map(|(id, _)| id).collect();
    for id in ids {
        engine.dismiss(id, Verdict::Fault(Fault::Elsewhere));
    }
}

fn hold_off(now: Now) {
    let mut until = HOLD_OFF.borrow();
    if *until <= now.at {
        *until = Millis(now.at.0 + AGAIN);
    }
}

/// Drains if something is due that the timers, which run on wall time, have missed: a stepped clock delays them.
pub(crate) fn second_look(ctx: Ctx<'_>) {
    make_up(ctx);
    if told::tick() {
        owe();
    }
}

fn make_up(ctx: Ctx<'_>) {
    let turn = TURN.borrow().take();
    if turn.is_none() && !is_due(&clock::now().0) {
        return;
    }
    AWAKE.store(false, Ordering::Relaxed);
    let alarm = ALARM.borrow().take().map(|(timer, _)| timer);
    for timer in turn.into_iter().chain(alarm) {
        timer.stop(ctx);
    }
    told::believe();
    drain(ctx);
}

/// Whether this server would take a write from a client now.
fn may_write(ctx: Ctx<'_>) -> bool {
    let flags = ctx.flags();
    flags.is_primary()
        && !flags.is_loading()
        && !Ctx::must_not_replicate()
        && has_enough_replicas(ctx)
        && persists(ctx)
}

/// Where `min-replicas-to-write` is set, whether so many are well.
fn has_enough_replicas(ctx: Ctx<'_>) -> bool {
    let good = ctx.server_info(c"replication", &[c"min_slaves_good_slaves"]).pop().flatten();
    let Some(good) = good.and_then(|good| good.parse::<u64>().ok()) else { return true };
    let wanted = server_setting(ctx, c"min-replicas-to-write").and_then(|wanted| wanted.parse::<u64>().ok());
    wanted.is_none_or(|wanted| good >= wanted)
}

/// Whether no failed save or AOF write makes the server refuse writes.
fn persists(ctx: Ctx<'_>) -> bool {
    let fields = [c"rdb_last_bgsave_status", c"aof_enabled", c"aof_last_write_status"];
    let fields = ctx.server_info(c"persistence", &fields);
    let [dump, aof, log] =
        [0, 1, 2].map(|index| fields.get(index).and_then(Option::as_deref).unwrap_or("ok"));
    let is = |name, value: &str| server_setting(ctx, name).is_some_and(|setting| setting == value);
    let dump_stops = dump != "ok" && is(c"stop-writes-on-bgsave-error", "yes") && !is(c"save", "");
    let log_stops = aof == "1" && log != "ok";
    !dump_stops && !log_stops
}
