//! The entry point: the one function that the server finds by its name.

use super::api;
use super::context::{Ctx, log_detached};
use super::names::{REDISLOCK_MODULE, REDISLOCK_VERSION};
use super::shield::shield;
use super::string::Argv;
use redis_module::raw;
use std::ffi::c_int;

/// Called by the server when the module is loaded, with the arguments of `loadmodule`.
///
/// # Safety
/// Only the server calls it, once, with its own context and arguments.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the server looks for this name")]
pub unsafe extern "C" fn RedisModule_OnLoad(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the server's context. This fills in the API pointers, before which nothing can be allocated.
    let status = unsafe {
        raw::Export_RedisModule_Init(
            ctx,
            REDISLOCK_MODULE.as_ptr(),
            REDISLOCK_VERSION as c_int,
            raw::REDISMODULE_APIVER_1 as c_int,
        )
    };
    if status as isize != raw::REDISMODULE_OK {
        return raw::REDISMODULE_ERR as c_int;
    }
    let refused = raw::REDISMODULE_ERR as c_int;
    shield("load", refused, || {
        if let Some(name) = api::missing() {
            log_detached(
                "warning",
                &format!("redislock is not loaded: this server lacks {name} (6.2.2 or later)"),
            );
            return refused;
        }
        // SAFETY: the server's context and arguments for this callback.
        let (ctx, args) = unsafe { (Ctx::from_raw(ctx), Argv::from_raw(argv, argc)) };
        match crate::load(ctx, args) {
            Ok(()) => raw::REDISMODULE_OK as c_int,
            Err(why) => {
                ctx.log(c"warning", &format!("redislock is not loaded: {why}"));
                refused
            }
        }
    })
}
