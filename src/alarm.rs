//! The one timer of the module, and the drain that it calls.
//!
//! Events leave notes and grant nothing, since a write in the middle of another command would become part of it.
//! The drain grants, from a timer of 0 ms that fires in the same turn of the server's loop, or from one that is set
//! to the earliest deadline with somebody waiting behind it; and it knows when the server must not write.

use crate::clock;
use crate::ffi::Ctx;
use crate::ffi::detached;
use crate::ffi::inner_call::server_setting;
use crate::ffi::main_thread::MainThread;
use crate::ffi::timer::Timer;
use crate::step::Step;
use redislock_core::{Millis, Verdict};

static ALARM: MainThread<Option<(Timer, Millis)>> = MainThread::new(None);

/// How long to wait before asking again whether the server may write, in milliseconds.
const AGAIN: u64 = 5;

/// Gets a context for timers that are set where none is at hand.
pub(crate) fn start(ctx: Ctx<'_>) -> Result<(), String> {
    if detached::start(ctx) { Ok(()) } else { Err("the server gives no context for timers".to_owned()) }
}

/// Calls for a drain in this turn of the server's loop.
pub(crate) fn owe() {
    set(Millis(0), Millis(0));
}

/// Calls for a drain at `due`, unless there will be one before.
pub(crate) fn set(due: Millis, now: Millis) {
    let mut alarm = ALARM.borrow();
    if alarm.as_ref().is_some_and(|(_, armed)| *armed <= due) {
        return;
    }
    detached::with(|ctx| {
        if let Some((timer, _)) = alarm.take() {
            timer.stop(ctx);
        }
        *alarm = Some((Timer::start(ctx, due.since(now)), due));
    });
}

/// The timer has fired.
pub(crate) fn fired(ctx: Ctx<'_>) {
    *ALARM.borrow() = None;
    drain(ctx);
}

/// Does everything that is due, as far as the server lets us.
pub(crate) fn drain(ctx: Ctx<'_>) {
    let may_write = may_write(ctx);
    let flags = ctx.flags();
    let mut step = Step::begin(ctx, None);
    let (engine, keys, now) = step.parts();
    if flags.is_loading() {
        return;
    }
    if !flags.is_primary() {
        engine.abdicate(&Verdict::Unblocked);
    } else if may_write {
        engine.drain(keys, now);
    } else {
        engine.lapse_waits(now.at);
        drop(step);
        set(Millis(now.at.0 + AGAIN), now.at);
    }
}

/// Drains if a deadline has passed that the timer, which runs on wall time, has missed.
pub(crate) fn second_look(ctx: Ctx<'_>) {
    let due = crate::state::borrow().engine.next_due();
    if due.is_some_and(|due| due <= clock::now().0.at) {
        drain(ctx);
    }
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
    let fields = ctx.server_info(c"persistence", &[c"rdb_last_bgsave_status", c"aof_last_write_status"]);
    let failed = |field: &Option<String>| field.as_deref().is_some_and(|status| status != "ok");
    let is = |name, value: &str| server_setting(ctx, name).is_some_and(|setting| setting == value);
    let dump_stops = failed(&fields[0]) && is(c"stop-writes-on-bgsave-error", "yes") && !is(c"save", "");
    !dump_stops && !failed(&fields[1])
}
