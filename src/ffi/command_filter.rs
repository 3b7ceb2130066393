//! A look at each command before it runs, for as long as it is needed.

use super::api::required;
use super::detached;
use super::shield::shield;
use redis_module::raw;

/// A filter that is in place.
pub(crate) struct Filter(*mut raw::RedisModuleCommandFilter);

/// Has [`crate::told::believe`] called before each command. `None` where the server can't.
pub(crate) fn add() -> Option<Filter> {
    let mut filter = None;
    detached::with(|ctx| {
        let flags = raw::REDISMODULE_CMDFILTER_NOSELF as i32;
        // SAFETY: a living context; the callback is a function.
        let raw = unsafe { required!(RedisModule_RegisterCommandFilter)(ctx.raw(), Some(before), flags) };
        filter = (!raw.is_null()).then_some(Filter(raw));
    });
    filter
}

impl Filter {
    /// Takes it away. Never from its own callback.
    pub(crate) fn remove(self) {
        // SAFETY: a living context of the module that the filter is of; it is removed once.
        detached::with(|ctx| unsafe {
            required!(RedisModule_UnregisterCommandFilter)(ctx.raw(), self.0);
        });
    }
}

unsafe extern "C" fn before(_filter: *mut raw::RedisModuleCommandFilterCtx) {
    shield("command filter", (), crate::told::believe);
}
