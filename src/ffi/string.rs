//! Strings of the server, as arguments come in them.

use super::api::required;
use redis_module::raw;
use std::ffi::c_char;
use std::marker::PhantomData;
use std::slice;

/// A string that the server owns for as long as `'a`.
#[derive(Clone, Copy)]
pub(crate) struct Str<'a> {
    raw: *mut raw::RedisModuleString,
    bytes: &'a [u8],
}

impl<'a> Str<'a> {
    /// # Safety
    /// `raw` is a string that lives, unchanged, for `'a`.
    pub(super) unsafe fn from_raw(raw: *mut raw::RedisModuleString) -> Self {
        let mut len = 0;
        // SAFETY: the caller's promise.
        let bytes = unsafe {
            let pointer = required!(RedisModule_StringPtrLen)(raw, &raw mut len);
            slice::from_raw_parts(pointer.cast::<u8>(), len)
        };
        Self { raw, bytes }
    }

    pub(crate) fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    pub(super) fn raw(&self) -> *mut raw::RedisModuleString {
        self.raw
    }
}

/// The arguments of a command.
#[derive(Clone, Copy)]
pub(crate) struct Argv<'a> {
    raw: &'a [*mut raw::RedisModuleString],
}

impl<'a> Argv<'a> {
    /// # Safety
    /// `argv` points to `argc` strings that live, unchanged, for `'a`.
    pub(super) unsafe fn from_raw(argv: *mut *mut raw::RedisModuleString, argc: std::ffi::c_int) -> Self {
        let argc = usize::try_from(argc).unwrap_or(0);
        // SAFETY: the caller's promise.
        let raw = if argc == 0 { &[][..] } else { unsafe { slice::from_raw_parts(argv, argc) } };
        Self { raw }
    }

    pub(crate) fn len(&self) -> usize {
        self.raw.len()
    }

    pub(crate) fn get(&self, index: usize) -> Option<Str<'a>> {
        // SAFETY: the promise of `from_raw`.
        self.raw.get(index).map(|raw| unsafe { Str::from_raw(*raw) })
    }

    pub(super) fn raw_from(&self, index: usize) -> &'a [*mut raw::RedisModuleString] {
        self.raw.get(index..).unwrap_or(&[])
    }
}

/// A string that this module made, and gives back when it is dropped.
pub(crate) struct OwnedStr {
    raw: *mut raw::RedisModuleString,
    _not_send: PhantomData<*mut ()>,
}

impl OwnedStr {
    /// A string of these bytes, which may contain NUL.
    pub(crate) fn new(bytes: &[u8]) -> Self {
        // SAFETY: the bytes are copied. A string made without a context is not managed by one.
        let raw = unsafe {
            required!(RedisModule_CreateString)(
                std::ptr::null_mut(),
                bytes.as_ptr().cast::<c_char>(),
                bytes.len(),
            )
        };
        Self { raw, _not_send: PhantomData }
    }

    pub(crate) fn as_str(&self) -> Str<'_> {
        // SAFETY: it lives as long as `self`, and nobody changes it.
        unsafe { Str::from_raw(self.raw) }
    }
}

impl Drop for OwnedStr {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and given back once.
        unsafe { required!(RedisModule_FreeString)(std::ptr::null_mut(), self.raw) };
    }
}
