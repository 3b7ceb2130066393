//! Subscriptions: what the server tells without being asked.

use super::api::{is_ok, required};
use super::context::Ctx;
use super::shield::shield;
use super::string::Str;
use crate::events;
use redis_module::raw;
use redislock_core::Db;
use std::ffi::{CStr, c_char, c_int, c_void};

/// Subscribes to everything that may move a lock, or end a wait.
pub(crate) fn subscribe(ctx: Ctx<'_>) -> bool {
    let server: [(u64, u64, raw::RedisModuleEventCallback); 6] = [
        (raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED, 1, Some(role_changed)),
        (raw::REDISMODULE_EVENT_FLUSHDB, 1, Some(flushed)),
        (raw::REDISMODULE_EVENT_LOADING, 1, Some(loading)),
        (raw::REDISMODULE_EVENT_CLIENT_CHANGE, 1, Some(client_changed)),
        (raw::REDISMODULE_EVENT_CRON_LOOP, 1, Some(cron)),
        (raw::REDISMODULE_EVENT_SWAPDB, 1, Some(swapped)),
    ];
    let server = server.into_iter().all(|(id, dataver, callback)| {
        let event = raw::RedisModuleEvent { id, dataver };
        // SAFETY: a living context; the callback is a function.
        is_ok(unsafe { required!(RedisModule_SubscribeToServerEvent)(ctx.raw(), event, callback) })
    });
    // SAFETY: a living context; the callback is a function.
    let keys = is_ok(unsafe {
        required!(RedisModule_SubscribeToKeyspaceEvents)(
            ctx.raw(),
            raw::REDISMODULE_NOTIFY_GENERIC,
            Some(key_event),
        )
    });
    server && keys
}

unsafe extern "C" fn key_event(
    ctx: *mut raw::RedisModuleCtx,
    _class: c_int,
    event: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    shield("keyspace event", (), || {
        // SAFETY: the server's context, text and key for this callback.
        let (ctx, event, key) = unsafe { (Ctx::from_raw(ctx), CStr::from_ptr(event), Str::from_raw(key)) };
        events::key_event(ctx, event.to_bytes(), key);
    });
    raw::REDISMODULE_OK as c_int
}

unsafe extern "C" fn role_changed(
    ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    sub: u64,
    _data: *mut c_void,
) {
    // SAFETY: the server's context for this callback.
    let ctx = unsafe { Ctx::from_raw(ctx) };
    shield("role change", (), || {
        events::role_changed(ctx, sub == raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_MASTER)
    });
}

unsafe extern "C" fn flushed(
    ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    sub: u64,
    data: *mut c_void,
) {
    shield("flush", (), || {
        // SAFETY: the server passes this struct with this event.
        let db = unsafe { (*data.cast::<raw::RedisModuleFlushInfo>()).dbnum };
        if sub == raw::REDISMODULE_SUBEVENT_FLUSHDB_END {
            // SAFETY: the server's context for this callback.
            events::flushed(unsafe { Ctx::from_raw(ctx) }, u32::try_from(db).ok().map(Db));
        }
    });
}

unsafe extern "C" fn loading(
    ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    sub: u64,
    _data: *mut c_void,
) {
    let over =
        matches!(sub, raw::REDISMODULE_SUBEVENT_LOADING_ENDED | raw::REDISMODULE_SUBEVENT_LOADING_FAILED);
    if over {
        // SAFETY: the server's context for this callback.
        shield("loading", (), || events::loaded(unsafe { Ctx::from_raw(ctx) }));
    }
}

unsafe extern "C" fn client_changed(
    ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    sub: u64,
    data: *mut c_void,
) {
    if sub == raw::REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED {
        shield("closed connection", (), || {
            // SAFETY: the server passes this struct with this event.
            let id = unsafe { (*data.cast::<raw::RedisModuleClientInfo>()).id };
            // SAFETY: the server's context for this callback.
            events::closed(unsafe { Ctx::from_raw(ctx) }, id);
        });
    }
}

unsafe extern "C" fn cron(
    ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    _sub: u64,
    _data: *mut c_void,
) {
    // SAFETY: the server's context for this callback.
    shield("cron", (), || events::cron(unsafe { Ctx::from_raw(ctx) }));
}

unsafe extern "C" fn swapped(
    ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    _sub: u64,
    data: *mut c_void,
) {
    shield("SWAPDB", (), || {
        // SAFETY: the server passes this struct with this event.
        let (one, other) = unsafe {
            let info = &*data.cast::<raw::RedisModuleSwapDbInfo>();
            (info.dbnum_first, info.dbnum_second)
        };
        // SAFETY: the server's context for this callback.
        events::swapped(unsafe { Ctx::from_raw(ctx) }, Db(one.unsigned_abs()), Db(other.unsigned_abs()));
    });
}
