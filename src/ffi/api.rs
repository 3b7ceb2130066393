//! The server's API: what every supported server has, and what may be missing.
//!
//! The pointers are filled in by name when the module is loaded; one that the server does not know stays empty.
//! [`missing`] is asked once, before anything else, and a server that lacks a required one refuses the module.

use redis_module::raw;

/// The pointer of an API function that [`missing`] has found on this server.
macro_rules! required {
    ($name:ident) => {{
        // SAFETY: the pointers are written while the module loads, on the main thread, and only read afterwards.
        #[allow(unused_unsafe, reason = "some callers are unsafe already")]
        let pointer = unsafe { redis_module::raw::$name };
        pointer.expect(concat!(stringify!($name), " was there when the module was loaded"))
    }};
}

/// The pointer of an API function that newer servers have.
macro_rules! optional {
    ($name:ident) => {{
        // SAFETY: the pointers are written while the module loads, on the main thread, and only read afterwards.
        #[allow(unused_unsafe, reason = "some callers are unsafe already")]
        let pointer = unsafe { redis_module::raw::$name };
        pointer
    }};
}

pub(crate) use {optional, required};

macro_rules! first_missing {
    ($($name:ident),* $(,)?) => {{
        let found = [$((stringify!($name), optional!($name).is_some())),*];
        found.into_iter().find(|(_, found)| !found).map(|(name, _)| name)
    }};
}

/// The first function of those that the module can't do without which this server lacks.
pub(crate) fn missing() -> Option<&'static str> {
    first_missing!(
        RedisModule_Alloc,
        RedisModule_AvoidReplicaTraffic,
        RedisModule_BlockClient,
        RedisModule_Call,
        RedisModule_CallReplyArrayElement,
        RedisModule_CallReplyStringPtr,
        RedisModule_CallReplyType,
        RedisModule_CloseKey,
        RedisModule_CreateCommand,
        RedisModule_CreateDataType,
        RedisModule_CreateString,
        RedisModule_CreateTimer,
        RedisModule_DeleteKey,
        RedisModule_DigestAddLongLong,
        RedisModule_DigestAddStringBuffer,
        RedisModule_DigestEndSequence,
        RedisModule_EmitAOF,
        RedisModule_Free,
        RedisModule_FreeCallReply,
        RedisModule_FreeServerInfo,
        RedisModule_FreeString,
        RedisModule_GetBlockedClientHandle,
        RedisModule_GetBlockedClientPrivateData,
        RedisModule_GetClientId,
        RedisModule_GetClientInfoById,
        RedisModule_GetContextFlags,
        RedisModule_GetSelectedDb,
        RedisModule_GetServerInfo,
        RedisModule_InfoAddFieldULongLong,
        RedisModule_InfoAddSection,
        RedisModule_IsKeysPositionRequest,
        RedisModule_KeyAtPos,
        RedisModule_KeyType,
        RedisModule_LoadStringBuffer,
        RedisModule_LoadUnsigned,
        RedisModule_Log,
        RedisModule_LogIOError,
        RedisModule_ModuleTypeGetType,
        RedisModule_ModuleTypeGetValue,
        RedisModule_ModuleTypeSetValue,
        RedisModule_NotifyKeyspaceEvent,
        RedisModule_OpenKey,
        RedisModule_RegisterCommandFilter,
        RedisModule_RegisterInfoFunc,
        RedisModule_Replicate,
        RedisModule_ReplyWithArray,
        RedisModule_ReplyWithCallReply,
        RedisModule_ReplyWithError,
        RedisModule_ReplyWithLongLong,
        RedisModule_ReplyWithNull,
        RedisModule_ReplyWithSimpleString,
        RedisModule_ReplyWithStringBuffer,
        RedisModule_SaveStringBuffer,
        RedisModule_SaveUnsigned,
        RedisModule_SelectDb,
        RedisModule_ServerInfoGetFieldC,
        RedisModule_SetAbsExpire,
        RedisModule_SetDisconnectCallback,
        RedisModule_SetModuleOptions,
        RedisModule_SignalModifiedKey,
        RedisModule_StopTimer,
        RedisModule_StringPtrLen,
        RedisModule_SubscribeToKeyspaceEvents,
        RedisModule_SubscribeToServerEvent,
        RedisModule_UnblockClient,
        RedisModule_UnregisterCommandFilter,
        RedisModule_WrongArity,
    )
}

/// Whether a call went well.
pub(crate) fn is_ok(status: std::ffi::c_int) -> bool {
    status as isize == raw::REDISMODULE_OK
}
