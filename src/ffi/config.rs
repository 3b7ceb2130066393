//! Settings as CONFIG knows them, on servers that know settings of modules.

use super::api::{is_ok, optional};
use super::context::Ctx;
use super::shield::shield;
use redis_module::raw;
use std::ffi::{CStr, c_char, c_int, c_longlong, c_void};

/// A number that can be read and set while the server runs.
pub(crate) struct Number {
    pub(crate) name: &'static CStr,
    pub(crate) min: i64,
    pub(crate) max: i64,
    pub(crate) get: fn() -> i64,
    pub(crate) set: fn(i64),
}

/// Registers settings with their present values as defaults, and takes what the configuration file says of them.
/// Returns whether the server took them; one that knows no such thing has nothing against it.
pub(crate) fn register(ctx: Ctx<'_>, numbers: &'static [Number]) -> bool {
    let (Some(add), Some(load)) =
        (optional!(RedisModule_RegisterNumericConfig), optional!(RedisModule_LoadConfigs))
    else {
        return true;
    };
    numbers.iter().all(|number| {
        let data = std::ptr::from_ref(number).cast_mut().cast::<c_void>();
        // SAFETY: a living context; the name is copied; the data is static.
        is_ok(unsafe {
            add(
                ctx.raw(),
                number.name.as_ptr(),
                (number.get)(),
                raw::REDISMODULE_CONFIG_DEFAULT,
                number.min,
                number.max,
                Some(get),
                Some(set),
                None,
                data,
            )
        })
        // SAFETY: a living context.
    }) && is_ok(unsafe { load(ctx.raw()) })
}

unsafe extern "C" fn get(_name: *const c_char, data: *mut c_void) -> c_longlong {
    // SAFETY: the data that `register` gave.
    shield("CONFIG GET", 0, || (unsafe { &*data.cast::<Number>() }.get)())
}

unsafe extern "C" fn set(
    _name: *const c_char,
    value: c_longlong,
    data: *mut c_void,
    _error: *mut *mut raw::RedisModuleString,
) -> c_int {
    shield("CONFIG SET", raw::REDISMODULE_ERR as c_int, || {
        // SAFETY: the data that `register` gave.
        (unsafe { &*data.cast::<Number>() }.set)(value);
        raw::REDISMODULE_OK as c_int
    })
}
