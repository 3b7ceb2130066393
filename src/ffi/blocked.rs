//! Blocked clients: exactly one unblocking each, whatever happened.

use super::api::required;
use super::context::Ctx;
use super::shield::shield;
use crate::waiting::{self, Delivery};
use redis_module::raw;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

/// The handle of a blocked client. It is good until it is unblocked, also when its connection has closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Blocked(*mut raw::RedisModuleBlockedClient);

impl Blocked {
    /// Blocks the caller. No timeout of the server's: where one elapses in the tick of an unblocking, some servers
    /// never answer. The timeout callback is there for CLIENT UNBLOCK alone, and `may_unblock` leaves it out.
    pub(crate) fn block(ctx: Ctx<'_>, may_unblock: bool) -> Option<Self> {
        let timeout: raw::RedisModuleCmdFunc = if may_unblock { Some(unblocked) } else { None };
        // SAFETY: a living context of a command whose caller may be blocked.
        let handle =
            unsafe { required!(RedisModule_BlockClient)(ctx.raw(), Some(reply), timeout, Some(free), 0) };
        if handle.is_null() {
            return None;
        }
        // SAFETY: the handle was just made.
        unsafe { required!(RedisModule_SetDisconnectCallback)(handle, Some(disconnected)) };
        Some(Self(handle))
    }

    /// Ends the blocking. The delivery is answered in the same turn of the loop, and comes back through
    /// [`waiting::done`].
    pub(crate) fn unblock(self, delivery: Delivery) {
        let data = Box::into_raw(Box::new(delivery)).cast::<c_void>();
        // SAFETY: the handle is unblocked once, since `waiting` forgets it before; the data goes back to `free`.
        unsafe { required!(RedisModule_UnblockClient)(self.0, data) };
    }

    /// Ends the blocking of a client that is gone, or was answered otherwise.
    pub(crate) fn unblock_silently(self) {
        // SAFETY: as in `unblock`; without data `free` is not called.
        unsafe { required!(RedisModule_UnblockClient)(self.0, null_mut()) };
    }
}

unsafe extern "C" fn reply(
    ctx: *mut raw::RedisModuleCtx,
    _argv: *mut *mut raw::RedisModuleString,
    _argc: c_int,
) -> c_int {
    shield("reply of a waiter", (), || {
        // SAFETY: the server's context for this callback; the data is what `unblock` gave, and is not freed yet.
        unsafe {
            let data = required!(RedisModule_GetBlockedClientPrivateData)(ctx).cast::<Delivery>();
            if let Some(delivery) = data.as_mut() {
                waiting::deliver(Ctx::from_raw(ctx), delivery);
            }
        }
    });
    raw::REDISMODULE_OK as c_int
}

unsafe extern "C" fn free(_ctx: *mut raw::RedisModuleCtx, data: *mut c_void) {
    shield("end of a waiter", (), || {
        // SAFETY: the data is what `unblock` gave, and comes back once.
        waiting::done(*unsafe { Box::from_raw(data.cast::<Delivery>()) });
    });
}

unsafe extern "C" fn unblocked(
    ctx: *mut raw::RedisModuleCtx,
    _argv: *mut *mut raw::RedisModuleString,
    _argc: c_int,
) -> c_int {
    shield("CLIENT UNBLOCK", (), || {
        // SAFETY: the server's context for this callback.
        let handle = unsafe { required!(RedisModule_GetBlockedClientHandle)(ctx) };
        // SAFETY: as above.
        waiting::unblocked(unsafe { Ctx::from_raw(ctx) }, Blocked(handle));
    });
    raw::REDISMODULE_OK as c_int
}

unsafe extern "C" fn disconnected(ctx: *mut raw::RedisModuleCtx, handle: *mut raw::RedisModuleBlockedClient) {
    // SAFETY: the server's context for this callback.
    shield("disconnect", (), || waiting::disconnected(unsafe { Ctx::from_raw(ctx) }, Blocked(handle)));
}
