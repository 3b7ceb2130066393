//! A context that outlives callbacks: for setting timers where the server passes none.

use super::api::optional;
use super::context::Ctx;
use super::main_thread::MainThread;
use redis_module::raw;
use std::ptr::null_mut;

static CONTEXT: MainThread<*mut raw::RedisModuleCtx> = MainThread::new(null_mut());

/// Gets the context. Returns whether the server gave one.
pub(crate) fn start(ctx: Ctx<'_>) -> bool {
    let Some(make) = optional!(RedisModule_GetDetachedThreadSafeContext) else { return false };
    // SAFETY: a living context. The new one is never given back, as the module is never unloaded.
    let context = unsafe { make(ctx.raw()) };
    *CONTEXT.borrow() = context;
    !context.is_null()
}

/// Runs something with the context.
pub(crate) fn with(f: impl FnOnce(Ctx<'_>)) {
    let context = *CONTEXT.borrow();
    if !context.is_null() {
        // SAFETY: the context lives for good, and all callbacks run where the server's lock is held.
        f(unsafe { Ctx::from_raw(context) });
    }
}
