//! One-shot timers of the server.

use super::api::required;
use super::context::Ctx;
use super::shield::shield;
use redis_module::raw;
use std::ffi::c_void;
use std::ptr::null_mut;

/// A timer that has not fired yet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Timer(raw::RedisModuleTimerID);

/// The longest time that a timer runs, in milliseconds. Some servers reckon with the microseconds of the next timer in
/// 32 bits, and from half an hour on take it for one that is due: they would spin. Whoever waits longer waits again.
const LONGEST: i64 = 1_000_000;

/// What a timer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bell {
    /// The earliest deadline.
    Alarm,
    /// The end of this turn of the server's loop.
    Turn,
}

impl Timer {
    /// Calls [`crate::alarm::fired`] after so many milliseconds, or earlier; after 0, in the same turn of the server's
    /// loop.
    pub(crate) fn start(ctx: Ctx<'_>, bell: Bell, millis: u64) -> Self {
        let period = i64::try_from(millis).unwrap_or(LONGEST).min(LONGEST);
        let callback: raw::RedisModuleTimerProc = match bell {
            Bell::Alarm => Some(alarm),
            Bell::Turn => Some(turn),
        };
        // SAFETY: a living context; no data.
        Self(unsafe { required!(RedisModule_CreateTimer)(ctx.raw(), period, callback, null_mut()) })
    }

    /// Stops it. Never from its own callback, where it is gone already.
    pub(crate) fn stop(self, ctx: Ctx<'_>) {
        // SAFETY: a living context. A timer that is gone is not found.
        unsafe { required!(RedisModule_StopTimer)(ctx.raw(), self.0, null_mut()) };
    }
}

unsafe extern "C" fn alarm(ctx: *mut raw::RedisModuleCtx, _data: *mut c_void) {
    // SAFETY: the server's context for this callback.
    shield("alarm", (), || crate::alarm::fired(unsafe { Ctx::from_raw(ctx) }, Bell::Alarm));
}

unsafe extern "C" fn turn(ctx: *mut raw::RedisModuleCtx, _data: *mut c_void) {
    // SAFETY: the server's context for this callback.
    shield("turn", (), || crate::alarm::fired(unsafe { Ctx::from_raw(ctx) }, Bell::Turn));
}
