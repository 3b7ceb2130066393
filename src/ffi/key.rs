//! One open key.

use super::api::required;
use super::context::Ctx;
use super::data_type;
use super::string::Str;
use redis_module::raw;
use redislock_core::Lock;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// What lies at an open key.
pub(crate) enum Content<'k> {
    Empty,
    Lock(&'k mut Lock),
    Other,
}

/// A key that is open, for as long as the callback runs at the most.
pub(crate) struct OpenKey<'a> {
    raw: *mut raw::RedisModuleKey,
    content: Found,
    _ctx: PhantomData<Ctx<'a>>,
}

#[derive(Clone, Copy)]
enum Found {
    Empty,
    Lock(NonNull<Lock>),
    Other,
}

impl<'a> OpenKey<'a> {
    /// Opens a key to change it. One that the server has expired is empty.
    pub(crate) fn for_writing(ctx: Ctx<'a>, name: Str<'_>) -> Self {
        Self::open(ctx, name, raw::REDISMODULE_READ | raw::REDISMODULE_WRITE)
    }

    /// Opens a key to look at it.
    pub(crate) fn for_reading(ctx: Ctx<'a>, name: Str<'_>) -> Self {
        Self::open(ctx, name, raw::REDISMODULE_READ)
    }

    /// Opens a key to look at it, without touching when it was last used and without ending it when it is over.
    pub(crate) fn for_peeking(ctx: Ctx<'a>, name: Str<'_>) -> Self {
        let quiet = raw::REDISMODULE_OPEN_KEY_NOTOUCH | raw::REDISMODULE_OPEN_KEY_NOEFFECTS;
        Self::open(ctx, name, raw::REDISMODULE_READ | quiet)
    }

    fn open(ctx: Ctx<'a>, name: Str<'_>, mode: u32) -> Self {
        // SAFETY: a living context and string. Reading a missing key gives null, which the API takes for an empty key.
        let raw = unsafe { required!(RedisModule_OpenKey)(ctx.raw(), name.raw(), mode as i32) };
        Self { raw, content: Self::look(raw), _ctx: PhantomData }
    }

    fn look(key: *mut raw::RedisModuleKey) -> Found {
        // SAFETY: an open key, or null. A value of our type is what `put` made of a box.
        unsafe {
            let ours = data_type::handle();
            if !ours.is_null() && required!(RedisModule_ModuleTypeGetType)(key) == ours {
                let value = required!(RedisModule_ModuleTypeGetValue)(key).cast::<Lock>();
                return NonNull::new(value).map_or(Found::Other, Found::Lock);
            }
            match required!(RedisModule_KeyType)(key) as isize {
                raw::REDISMODULE_KEYTYPE_EMPTY => Found::Empty,
                _ => Found::Other,
            }
        }
    }

    pub(crate) fn content(&mut self) -> Content<'_> {
        match self.content {
            Found::Empty => Content::Empty,
            Found::Other => Content::Other,
            // SAFETY: the value lives in the key until `remove`, and only this handle reaches it while it is open.
            Found::Lock(mut lock) => Content::Lock(unsafe { lock.as_mut() }),
        }
    }

    /// Puts a lock into the empty key.
    pub(crate) fn put(&mut self, lock: Lock) {
        debug_assert!(matches!(self.content, Found::Empty), "a lock is put where nothing is");
        let value = data_type::value_of(lock);
        // SAFETY: a key open for writing; the server owns the value from now on and gives it back to `free`.
        unsafe {
            required!(RedisModule_ModuleTypeSetValue)(
                self.raw,
                data_type::handle(),
                value.as_ptr().cast::<c_void>(),
            )
        };
        self.content = Found::Lock(value);
    }

    /// Deletes the key.
    pub(crate) fn remove(&mut self) {
        self.content = Found::Empty;
        // SAFETY: a key open for writing.
        unsafe { required!(RedisModule_DeleteKey)(self.raw) };
    }

    /// Sets the native TTL to end at this wall time, in milliseconds since 1970.
    pub(crate) fn expire_at(&mut self, wall: u64) {
        let at = i64::try_from(wall).unwrap_or(i64::MAX);
        // SAFETY: a key open for writing.
        unsafe { required!(RedisModule_SetAbsExpire)(self.raw, at) };
    }
}

impl Drop for OpenKey<'_> {
    fn drop(&mut self) {
        // SAFETY: opened by `open`, closed once; null is allowed.
        unsafe { required!(RedisModule_CloseKey)(self.raw) };
    }
}
