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

impl Timer {
    /// Calls [`crate::alarm::fired`] after so many milliseconds; after 0, in the same turn of the server's loop.
    pub(crate) fn start(ctx: Ctx<'_>, millis: u64) -> Self {
        let period = i64::try_from(millis).unwrap_or(i64::MAX).min(i64::from(i32::MAX));
        // SAFETY: a living context; no data.
        Self(unsafe { required!(RedisModule_CreateTimer)(ctx.raw(), period, Some(fire), null_mut()) })
    }

    /// Stops it. Never from its own callback, where it is gone already.
    pub(crate) fn stop(self, ctx: Ctx<'_>) {
        // SAFETY: a living context. A timer that is gone is not found.
        unsafe { required!(RedisModule_StopTimer)(ctx.raw(), self.0, null_mut()) };
    }
}

unsafe extern "C" fn fire(ctx: *mut raw::RedisModuleCtx, _data: *mut c_void) {
    // SAFETY: the server's context for this callback.
    shield("timer", (), || crate::alarm::fired(unsafe { Ctx::from_raw(ctx) }));
}
