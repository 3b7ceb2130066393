//! The module's section of INFO.

use super::api::{is_ok, required};
use super::context::Ctx;
use super::shield::shield;
use redis_module::raw;
use std::ffi::{CStr, c_int};

/// Registers the section.
pub(crate) fn register(ctx: Ctx<'_>) -> bool {
    // SAFETY: a living context; the callback is a function.
    is_ok(unsafe { required!(RedisModule_RegisterInfoFunc)(ctx.raw(), Some(info)) })
}

/// The section that is being written.
pub(crate) struct Section(*mut raw::RedisModuleInfoCtx);

impl Section {
    pub(crate) fn field(&mut self, name: &CStr, value: u64) {
        // SAFETY: the server's context for this callback; the name is copied.
        unsafe { required!(RedisModule_InfoAddFieldULongLong)(self.0, name.as_ptr(), value) };
    }
}

unsafe extern "C" fn info(ctx: *mut raw::RedisModuleInfoCtx, for_crash_report: c_int) {
    // After a crash nothing of ours is to be trusted, least of all a borrowed cell.
    if for_crash_report != 0 {
        return;
    }
    shield("INFO", (), || {
        // SAFETY: the server's context for this callback; the section has the module's own name.
        if is_ok(unsafe { required!(RedisModule_InfoAddSection)(ctx, std::ptr::null()) }) {
            crate::state::write_info(&mut Section(ctx));
        }
    });
}
