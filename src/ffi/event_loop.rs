//! The server's event loop, where modules can see it: from Redis 7.0 on.

use super::api::{is_ok, optional, required};
use super::detached;
use super::shield::shield;
use redis_module::raw;
use std::ffi::c_void;
use std::ptr::null_mut;

const LOOP: raw::RedisModuleEvent =
    raw::RedisModuleEvent { id: raw::REDISMODULE_EVENT_EVENTLOOP, dataver: 1 };

/// Whether [`wake`] works on this server.
pub(crate) fn can_wake() -> bool {
    optional!(RedisModule_EventLoopAddOneShot).is_some()
}

/// Has the loop come round at once. Without it, a timer set where the loop is about to sleep is seen only when
/// something else wakes it, since some servers ask for the next timer before.
pub(crate) fn wake() {
    if let Some(add) = optional!(RedisModule_EventLoopAddOneShot) {
        // SAFETY: the callback is a function, and needs no data.
        unsafe { add(Some(woken), null_mut()) };
    }
}

unsafe extern "C" fn woken(_data: *mut c_void) {}

/// Has [`crate::alarm::before_sleep`] called before the loop sleeps, and right before the server looks at clients that
/// were unblocked, and [`crate::alarm::after_sleep`] after it. Returns whether the server can.
pub(crate) fn watch_turns() -> bool {
    subscribe(Some(turned))
}

/// Ends what [`watch_turns`] began. Never from an event's callback.
pub(crate) fn ignore_turns() {
    subscribe(None);
}

fn subscribe(callback: raw::RedisModuleEventCallback) -> bool {
    let mut done = false;
    // SAFETY: a living context; the callback is a function, or none.
    detached::with(|ctx| unsafe {
        done = is_ok(required!(RedisModule_SubscribeToServerEvent)(ctx.raw(), LOOP, callback));
    });
    done
}

unsafe extern "C" fn turned(
    _ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    sub: u64,
    _data: *mut c_void,
) {
    match sub {
        raw::REDISMODULE_SUBEVENT_EVENTLOOP_BEFORE_SLEEP => {
            shield("end of a turn", (), crate::alarm::before_sleep);
        }
        raw::REDISMODULE_SUBEVENT_EVENTLOOP_AFTER_SLEEP => {
            shield("turn of the loop", (), crate::alarm::after_sleep);
        }
        _ => {}
    }
}
