//! The context of one callback: what may be asked and done while it runs.

use super::api::{is_ok, optional, required};
use super::names::REDISLOCK_APPLY;
use super::string::Str;
use redis_module::raw;
use redislock_core::Db;
use std::ffi::{CStr, CString, c_char, c_int, c_long};
use std::marker::PhantomData;

/// The context that the server made for the callback that runs now.
#[derive(Clone, Copy)]
pub(crate) struct Ctx<'a> {
    raw: *mut raw::RedisModuleCtx,
    _callback: PhantomData<&'a ()>,
}

/// What the server says of itself and of the caller.
#[derive(Clone, Copy)]
pub(crate) struct Flags(c_int);

impl Flags {
    fn has(self, flag: u32) -> bool {
        self.0 & flag as c_int != 0
    }

    /// Whether this server is the primary.
    pub(crate) fn is_primary(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_MASTER)
    }

    /// Whether a dump or the AOF is being loaded.
    pub(crate) fn is_loading(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_LOADING)
    }

    /// Whether the command came from this replica's primary.
    pub(crate) fn is_replicated(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_REPLICATED)
    }

    /// Whether the caller can't be blocked: it stands in a transaction or a script, or another module calls.
    pub(crate) fn denies_blocking(self) -> bool {
        self.has(
            raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING
                | raw::REDISMODULE_CTX_FLAGS_LUA
                | raw::REDISMODULE_CTX_FLAGS_MULTI,
        )
    }

    /// Whether a script or a function calls.
    pub(crate) fn is_script(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_LUA)
    }

    /// Whether this server is a node of a cluster.
    pub(crate) fn is_cluster(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_CLUSTER)
    }
}

impl<'a> Ctx<'a> {
    /// # Safety
    /// `raw` is the context that the server passed to the callback which runs now, and `'a` ends with it.
    pub(super) unsafe fn from_raw(raw: *mut raw::RedisModuleCtx) -> Self {
        Self { raw, _callback: PhantomData }
    }

    pub(super) fn raw(self) -> *mut raw::RedisModuleCtx {
        self.raw
    }

    pub(crate) fn flags(self) -> Flags {
        // SAFETY: a living context.
        Flags(unsafe { required!(RedisModule_GetContextFlags)(self.raw) })
    }

    /// The number of the caller's connection, where a client that is connected calls.
    pub(crate) fn connection(self) -> Option<u64> {
        // SAFETY: a living context; without a struct to fill in, the call only says whether the client is there.
        unsafe {
            let id = required!(RedisModule_GetClientId)(self.raw);
            is_ok(required!(RedisModule_GetClientInfoById)(std::ptr::null_mut(), id)).then_some(id)
        }
    }

    pub(crate) fn db(self) -> Db {
        // SAFETY: a living context.
        Db(unsafe { required!(RedisModule_GetSelectedDb)(self.raw) }.unsigned_abs())
    }

    pub(crate) fn select(self, db: Db) {
        let Ok(db) = c_int::try_from(db.0) else { return };
        // SAFETY: a living context. A database that does not exist is not selected, and then nothing is found there.
        unsafe { required!(RedisModule_SelectDb)(self.raw, db) };
    }

    pub(crate) fn log(self, level: &CStr, text: &str) {
        write_log(self.raw, level, text);
    }

    /// Sends a record to replicas and into the AOF, in the unit of what runs now.
    pub(crate) fn replicate_record(self, key: Str<'_>, record: &[u8]) {
        // SAFETY: `s` takes a string of the server, `b` a pointer and a length.
        unsafe {
            required!(RedisModule_Replicate)(
                self.raw,
                REDISLOCK_APPLY.as_ptr(),
                c"sb".as_ptr(),
                key.raw(),
                record.as_ptr().cast::<c_char>(),
                record.len(),
            );
        }
    }

    /// Publishes a keyspace event, for those who subscribed to it, and for other modules.
    pub(crate) fn notify(self, class: c_int, event: &CStr, key: Str<'_>) {
        // SAFETY: a living context and string.
        unsafe { required!(RedisModule_NotifyKeyspaceEvent)(self.raw, class, event.as_ptr(), key.raw()) };
    }

    /// Tells those who WATCH or track the key that it has changed.
    pub(crate) fn signal_modified(self, key: Str<'_>) {
        // SAFETY: a living context and string.
        unsafe { required!(RedisModule_SignalModifiedKey)(self.raw, key.raw()) };
    }

    /// Whether nothing may be sent to replicas now: a pause, a failover, a shutdown.
    pub(crate) fn must_not_replicate() -> bool {
        // SAFETY: takes nothing.
        unsafe { required!(RedisModule_AvoidReplicaTraffic)() != 0 }
    }

    /// Keys positions are asked for, rather than the command itself.
    pub(crate) fn asks_for_keys(self) -> bool {
        // SAFETY: a living context.
        unsafe { required!(RedisModule_IsKeysPositionRequest)(self.raw) != 0 }
    }

    /// Says that the argument at this position is a key.
    pub(crate) fn key_at(self, position: usize) {
        let Ok(position) = c_int::try_from(position) else { return };
        // SAFETY: a living context that asks for keys.
        unsafe { required!(RedisModule_KeyAtPos)(self.raw, position) };
    }

    pub(crate) fn reply_int(self, value: i64) {
        // SAFETY: a living context.
        unsafe { required!(RedisModule_ReplyWithLongLong)(self.raw, value) };
    }

    pub(crate) fn reply_null(self) {
        // SAFETY: a living context.
        unsafe { required!(RedisModule_ReplyWithNull)(self.raw) };
    }

    pub(crate) fn reply_bytes(self, bytes: &[u8]) {
        // SAFETY: the bytes are copied.
        unsafe {
            required!(RedisModule_ReplyWithStringBuffer)(
                self.raw,
                bytes.as_ptr().cast::<c_char>(),
                bytes.len(),
            );
        }
    }

    pub(crate) fn reply_status(self, text: &CStr) {
        // SAFETY: the text is copied.
        unsafe { required!(RedisModule_ReplyWithSimpleString)(self.raw, text.as_ptr()) };
    }

    pub(crate) fn reply_array(self, len: usize) {
        // SAFETY: a living context.
        unsafe { required!(RedisModule_ReplyWithArray)(self.raw, c_long::try_from(len).unwrap_or(0)) };
    }

    /// Begins a map of so many pairs: a flat array for RESP2, and on servers whose modules know no maps.
    pub(crate) fn reply_map(self, pairs: usize) {
        match optional!(RedisModule_ReplyWithMap) {
            Some(reply) => {
                // SAFETY: a living context.
                unsafe { reply(self.raw, c_long::try_from(pairs).unwrap_or(0)) };
            }
            None => self.reply_array(2 * pairs),
        }
    }

    /// Answers with an error. It begins with its code.
    pub(crate) fn reply_error(self, text: &str) {
        let line: Vec<u8> =
            text.bytes().map(|byte| if byte.is_ascii_control() { b' ' } else { byte }).collect();
        if let Ok(line) = CString::new(line) {
            // SAFETY: the text is copied.
            unsafe { required!(RedisModule_ReplyWithError)(self.raw, line.as_ptr()) };
        }
    }

    pub(crate) fn wrong_arity(self) {
        // SAFETY: a living context.
        unsafe { required!(RedisModule_WrongArity)(self.raw) };
    }

    /// The field of a section of INFO, where it is there.
    pub(crate) fn server_info(self, section: &CStr, fields: &[&CStr]) -> Vec<Option<String>> {
        // SAFETY: the data is given back below, and the field's text is copied before.
        unsafe {
            let data = required!(RedisModule_GetServerInfo)(self.raw, section.as_ptr());
            let found = fields
                .iter()
                .map(|field| {
                    let text = required!(RedisModule_ServerInfoGetFieldC)(data, field.as_ptr());
                    (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
                })
                .collect();
            required!(RedisModule_FreeServerInfo)(self.raw, data);
            found
        }
    }

    pub(crate) fn set_options(self, options: u32) {
        // SAFETY: a living context.
        unsafe { required!(RedisModule_SetModuleOptions)(self.raw, options as c_int) };
    }

    /// Adds a command of the old kind: flags and key positions. Returns whether the server took it.
    pub(super) fn create_command(
        self,
        name: &CStr,
        handler: raw::RedisModuleCmdFunc,
        flags: &CStr,
        keys: (c_int, c_int, c_int),
    ) -> bool {
        // SAFETY: the texts are copied; the handler is a function.
        is_ok(unsafe {
            required!(RedisModule_CreateCommand)(
                self.raw,
                name.as_ptr(),
                handler,
                flags.as_ptr(),
                keys.0,
                keys.1,
                keys.2,
            )
        })
    }
}

/// Writes to the server's log where no context is at hand.
pub(crate) fn log_detached(level: &str, text: &str) {
    if let Ok(level) = CString::new(level) {
        write_log(std::ptr::null_mut(), &level, text);
    }
}

/// The text is an argument of the format, never the format itself.
fn write_log(ctx: *mut raw::RedisModuleCtx, level: &CStr, text: &str) {
    let line: Vec<u8> = text.bytes().map(|byte| if byte.is_ascii_control() { b'?' } else { byte }).collect();
    if let (Some(log), Ok(line)) = (optional!(RedisModule_Log), CString::new(line)) {
        // SAFETY: a context or none; `%s` takes the line.
        unsafe { log(ctx, level.as_ptr(), c"%s".as_ptr(), line.as_ptr()) };
    }
}
