//! The data type: what the server asks of a value.
//!
//! All callbacks run on the main thread or in a forked child, but for `free`, which may run on a thread of its own
//! and so touches nothing but the value.

use super::api::required;
use super::context::Ctx;
use super::names::{REDISLOCK_APPLY, REDISLOCK_ENCODING, REDISLOCK_TYPE};
use super::shield::shield;
use super::string::Str;
use crate::persistence;
use redis_module::raw;
use redislock_core::Lock;
use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::{NonNull, null_mut};
use std::slice;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

static HANDLE: AtomicPtr<raw::RedisModuleType> = AtomicPtr::new(null_mut());

/// How many locks there are in memory. `free` counts too, on whichever thread it runs.
static LOCKS: AtomicUsize = AtomicUsize::new(0);

/// Whether there is any lock at all, which spares other commands' events a look.
pub(crate) fn any() -> bool {
    LOCKS.load(Ordering::Relaxed) > 0
}

/// A lock as a value of the type. The server owns it from now on, and gives it back to `free`.
pub(super) fn value_of(lock: Lock) -> NonNull<Lock> {
    LOCKS.fetch_add(1, Ordering::Relaxed);
    NonNull::from(Box::leak(Box::new(lock)))
}

/// The type, as the server knows it; null before it is registered.
pub(super) fn handle() -> *mut raw::RedisModuleType {
    HANDLE.load(Ordering::Relaxed)
}

/// Registers the type. Returns whether the server took it.
pub(crate) fn register(ctx: Ctx<'_>) -> bool {
    let mut methods = raw::RedisModuleTypeMethods {
        version: u64::from(raw::REDISMODULE_TYPE_METHOD_VERSION),
        rdb_load: Some(rdb_load),
        rdb_save: Some(rdb_save),
        aof_rewrite: Some(aof_rewrite),
        mem_usage: Some(mem_usage),
        digest: Some(digest),
        free: Some(free),
        aux_load: Some(aux_load),
        aux_save: Some(aux_save),
        aux_save_triggers: raw::REDISMODULE_AUX_BEFORE_RDB as c_int,
        free_effort: Some(free_effort),
        unlink: Some(unlink),
        copy: None, // a lease can't have two places
        defrag: None,
        mem_usage2: None,
        free_effort2: None,
        unlink2: None,
        copy2: None, // a lease can't have two places
        aux_save2: Some(aux_save),
    };
    // SAFETY: the name is copied, and so are the methods.
    let handle = unsafe {
        required!(RedisModule_CreateDataType)(
            ctx.raw(),
            REDISLOCK_TYPE.as_ptr(),
            REDISLOCK_ENCODING as c_int,
            &raw mut methods,
        )
    };
    HANDLE.store(handle, Ordering::Relaxed);
    !handle.is_null()
}

/// # Safety
/// `value` is what [`value_of`] made of a lock, and nobody changes it meanwhile.
unsafe fn lock<'a>(value: *const c_void) -> &'a Lock {
    // SAFETY: the caller's promise.
    unsafe { &*value.cast::<Lock>() }
}

fn log_io(io: *mut raw::RedisModuleIO, text: &str) {
    if let Ok(text) = CString::new(text) {
        // SAFETY: a living io; `%s` takes the text.
        unsafe { required!(RedisModule_LogIOError)(io, c"warning".as_ptr(), c"%s".as_ptr(), text.as_ptr()) };
    }
}

fn is_too_new(io: *mut raw::RedisModuleIO, encoding: c_int) -> bool {
    let newest = REDISLOCK_ENCODING as c_int;
    if encoding > newest {
        log_io(
            io,
            &format!(
                "redislock: encoding {encoding} was written by a newer build; this one reads up to {newest}. \
                 Load a newer module."
            ),
        );
    }
    encoding > newest
}

unsafe extern "C" fn rdb_load(io: *mut raw::RedisModuleIO, encoding: c_int) -> *mut c_void {
    shield("rdb_load", null_mut(), || {
        if is_too_new(io, encoding) {
            return null_mut();
        }
        let mut len = 0;
        // SAFETY: a living io. The buffer is ours, and given back after it was read.
        let loaded = unsafe {
            let buffer = required!(RedisModule_LoadStringBuffer)(io, &raw mut len);
            if buffer.is_null() {
                return null_mut();
            }
            let loaded = persistence::load(slice::from_raw_parts(buffer.cast::<u8>(), len));
            required!(RedisModule_Free)(buffer.cast::<c_void>());
            loaded
        };
        match loaded {
            Ok(lock) => value_of(lock).as_ptr().cast::<c_void>(),
            Err(error) => {
                log_io(io, &format!("redislock: a lock can't be read: {error}"));
                null_mut()
            }
        }
    })
}

unsafe extern "C" fn rdb_save(io: *mut raw::RedisModuleIO, value: *mut c_void) {
    shield("rdb_save", (), || {
        // SAFETY: the server passes a value of our type.
        let bytes = persistence::save(unsafe { lock(value) });
        // SAFETY: a living io; the bytes are copied.
        unsafe { required!(RedisModule_SaveStringBuffer)(io, bytes.as_ptr().cast::<c_char>(), bytes.len()) };
    });
}

unsafe extern "C" fn aof_rewrite(
    io: *mut raw::RedisModuleIO,
    key: *mut raw::RedisModuleString,
    value: *mut c_void,
) {
    shield("aof_rewrite", (), || {
        // SAFETY: the server passes a value of our type.
        persistence::rewrite(unsafe { lock(value) }, |record| {
            // SAFETY: a living io; `s` takes the key, `b` a pointer and a length.
            unsafe {
                required!(RedisModule_EmitAOF)(
                    io,
                    REDISLOCK_APPLY.as_ptr(),
                    c"sb".as_ptr(),
                    key,
                    record.as_ptr().cast::<c_char>(),
                    record.len(),
                );
            }
        });
    });
}

unsafe extern "C" fn mem_usage(value: *const c_void) -> usize {
    // SAFETY: the server passes a value of our type.
    shield("mem_usage", 0, || unsafe { lock(value) }.footprint())
}

/// Times are left out: each server keeps its own steady clock.
unsafe extern "C" fn digest(md: *mut raw::RedisModuleDigest, value: *mut c_void) {
    shield("digest", (), || {
        // SAFETY: the server passes a value of our type.
        for (owner, lease) in unsafe { lock(value) }.iter() {
            let limit = persistence::mode_number(lease.mode);
            // SAFETY: a living digest; the bytes are copied.
            unsafe {
                let bytes = owner.as_bytes();
                required!(RedisModule_DigestAddStringBuffer)(
                    md,
                    bytes.as_ptr().cast::<c_char>(),
                    bytes.len(),
                );
                required!(RedisModule_DigestAddLongLong)(md, limit);
                required!(RedisModule_DigestAddLongLong)(md, i64::from(lease.holds.get()));
                required!(RedisModule_DigestAddLongLong)(md, lease.fence.get().cast_signed());
                required!(RedisModule_DigestEndSequence)(md);
            }
        }
    });
}

unsafe extern "C" fn free(value: *mut c_void) {
    // SAFETY: the server gives a value back once. A lock is no more than memory, so any thread may drop it.
    shield("free", (), || drop(unsafe { Box::from_raw(value.cast::<Lock>()) }));
    LOCKS.fetch_sub(1, Ordering::Relaxed);
}

unsafe extern "C" fn free_effort(_key: *mut raw::RedisModuleString, value: *const c_void) -> usize {
    // SAFETY: the server passes a value of our type.
    shield("free_effort", 1, || unsafe { lock(value) }.len())
}

unsafe extern "C" fn unlink(key: *mut raw::RedisModuleString, _value: *const c_void) {
    // SAFETY: the key's name lives for the callback.
    shield("unlink", (), || crate::events::unlinked(unsafe { Str::from_raw(key) }.as_bytes()));
}

unsafe extern "C" fn aux_save(io: *mut raw::RedisModuleIO, _when: c_int) {
    shield("aux_save", (), || {
        // SAFETY: a living io.
        unsafe { required!(RedisModule_SaveUnsigned)(io, crate::state::last_fence().get()) };
    });
}

unsafe extern "C" fn aux_load(io: *mut raw::RedisModuleIO, encoding: c_int, _when: c_int) -> c_int {
    shield("aux_load", raw::REDISMODULE_ERR as c_int, || {
        if is_too_new(io, encoding) {
            return raw::REDISMODULE_ERR as c_int;
        }
        // SAFETY: a living io.
        let counter = unsafe { required!(RedisModule_LoadUnsigned)(io) };
        match redislock_core::Fence::new(counter) {
            Some(counter) => {
                crate::state::saw(counter);
                raw::REDISMODULE_OK as c_int
            }
            None => {
                log_io(io, "redislock: the fence counter is out of range");
                raw::REDISMODULE_ERR as c_int
            }
        }
    })
}
