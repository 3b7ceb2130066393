//! Commands that the module runs itself.

use super::api::{optional, required};
use super::context::Ctx;
use super::main_thread::MainThread;
use super::string::{Argv, Str};
use redis_module::raw;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::null_mut;

/// Whether this node of a cluster serves the key: a read of it is not sent elsewhere.
pub(crate) fn serves(ctx: Ctx<'_>, key: Str<'_>) -> bool {
    // SAFETY: a living context; `s` takes the key. The reply is given back.
    unsafe {
        let reply = required!(RedisModule_Call)(ctx.raw(), c"EXISTS".as_ptr(), c"s".as_ptr(), key.raw());
        let serves = !reply.is_null();
        if serves {
            required!(RedisModule_FreeCallReply)(reply);
        }
        serves
    }
}

/// Whether the cluster that this node belongs to serves its slots.
pub(crate) fn cluster_is_up(ctx: Ctx<'_>) -> bool {
    // SAFETY: a living context; `c` takes a C string. The reply is given back after its text was looked at.
    unsafe {
        let reply = required!(RedisModule_Call)(
            ctx.raw(),
            c"CLUSTER".as_ptr(),
            c"c".as_ptr(),
            c"INFO".as_ptr().cast::<c_char>(),
        );
        if reply.is_null() {
            return true;
        }
        let up = text(reply).is_none_or(|info| info.contains("cluster_state:ok"));
        required!(RedisModule_FreeCallReply)(reply);
        up
    }
}

/// A setting of the server, as CONFIG GET shows it; `None` where it can't be asked.
pub(crate) fn server_setting(ctx: Ctx<'_>, name: &CStr) -> Option<String> {
    // SAFETY: a living context; `c` takes a C string. The reply is given back after its text was copied.
    unsafe {
        let format = c"cc".as_ptr();
        let reply = required!(RedisModule_Call)(
            ctx.raw(),
            c"CONFIG".as_ptr(),
            format,
            c"GET".as_ptr(),
            name.as_ptr().cast::<c_char>(),
        );
        if reply.is_null() {
            return None;
        }
        let value = second_text(reply);
        required!(RedisModule_FreeCallReply)(reply);
        value
    }
}

/// # Safety
/// `reply` is a living reply.
unsafe fn second_text(reply: *mut raw::RedisModuleCallReply) -> Option<String> {
    // SAFETY: the caller's promise; an element lives as long as its array, and null is checked.
    unsafe {
        let element = required!(RedisModule_CallReplyArrayElement)(reply, 1);
        if element.is_null() { None } else { text(element) }
    }
}

/// # Safety
/// `reply` is a living reply.
unsafe fn text(reply: *mut raw::RedisModuleCallReply) -> Option<String> {
    // SAFETY: the caller's promise; the text lives as long as its reply, and null is checked.
    unsafe {
        let mut len = 0;
        let text = required!(RedisModule_CallReplyStringPtr)(reply, &raw mut len);
        (!text.is_null())
            .then(|| String::from_utf8_lossy(std::slice::from_raw_parts(text.cast::<u8>(), len)).into_owned())
    }
}

/// Whether this server can run a command with its caller's rights. What judges commands came with that, in 7.0.
pub(crate) fn can_run_as_caller() -> bool {
    optional!(RedisModule_ACLCheckCommandPermissions).is_some()
}

/// A user who may do everything but what an administrator does.
static COMMONER: MainThread<*mut raw::RedisModuleUser> = MainThread::new(null_mut());

fn commoner() -> *mut raw::RedisModuleUser {
    let mut commoner = COMMONER.borrow();
    if commoner.is_null() {
        // SAFETY: the texts are copied. The user is never given back, as the module is never unloaded.
        unsafe {
            *commoner = required!(RedisModule_CreateModuleUser)(c"redislock-commoner".as_ptr());
            for rule in [c"allkeys", c"allchannels", c"allcommands", c"-@admin"] {
                required!(RedisModule_SetModuleUserACL)(*commoner, rule.as_ptr());
            }
        }
    }
    *commoner
}

/// Whether a command, with its arguments, is one for administrators. One that the server does not know is not.
pub(crate) fn is_admin(args: Argv<'_>, first: usize) -> bool {
    let command = args.raw_from(first);
    let Ok(count) = c_int::try_from(command.len()) else { return false };
    let Some(check) = optional!(RedisModule_ACLCheckCommandPermissions) else { return false };
    // SAFETY: a living user, and arguments that the call only reads.
    let refused =
        unsafe { check(commoner(), command.as_ptr().cast_mut(), count) } != raw::REDISMODULE_OK as c_int;
    refused && std::io::Error::last_os_error().raw_os_error() == Some(libc::EACCES)
}

/// Runs a command as the caller's own, and answers with its reply: with the caller's rights, what a script may not
/// run refused, and the server's memory limit minded.
///
/// # Errors
/// The server gave no reply, for this reason.
pub(crate) fn run_as_caller(ctx: Ctx<'_>, args: Argv<'_>, first: usize) -> std::io::Result<()> {
    let name = args.get(first).and_then(|name| CString::new(name.as_bytes()).ok()).unwrap_or_default();
    let rest = args.raw_from(first + 1);
    // SAFETY: a living context; `v` takes an array of strings and its length. The reply is given back.
    unsafe {
        let reply = required!(RedisModule_Call)(
            ctx.raw(),
            name.as_ptr(),
            c"!v0SMCE".as_ptr(),
            rest.as_ptr(),
            rest.len(),
        );
        if reply.is_null() {
            return Err(std::io::Error::last_os_error());
        }
        if is_denied(reply) {
            ctx.reply_error(
                "NOPERM this user has no permission for the guarded command, its keys or its channels",
            );
        } else {
            required!(RedisModule_ReplyWithCallReply)(ctx.raw(), reply);
        }
        required!(RedisModule_FreeCallReply)(reply);
    }
    Ok(())
}

/// Whether the caller has no right to the command, on a server that has another code for that in calls (7.0).
///
/// # Safety
/// `reply` is a living reply.
unsafe fn is_denied(reply: *mut raw::RedisModuleCallReply) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        required!(RedisModule_CallReplyType)(reply) == raw::REDISMODULE_REPLY_ERROR as c_int
            && text(reply).is_some_and(|error| error.starts_with("ERR acl verification failed"))
    }
}

/// Says where the keys of a guarded command are, as far as the server can tell, and what it does to them.
pub(crate) fn name_keys(ctx: Ctx<'_>, args: Argv<'_>, first: usize) {
    let command = args.raw_from(first);
    let Ok(count) = c_int::try_from(command.len()) else { return };
    // 6.2 asks before it knows that arguments are missing, and would look for a command that is not there.
    if count == 0 {
        return;
    }
    let argv = command.as_ptr().cast_mut();
    let (mut found, mut flags) = (0, null_mut());
    // SAFETY: a living context and arguments, which the calls only read. The lists are ours, as long as `found` says,
    // and given back.
    unsafe {
        let positions =
            match (optional!(RedisModule_GetCommandKeysWithFlags), optional!(RedisModule_GetCommandKeys)) {
                (Some(find), _) => find(ctx.raw(), argv, count, &raw mut found, &raw mut flags),
                (None, Some(find)) => find(ctx.raw(), argv, count, &raw mut found),
                (None, None) => null_mut(),
            };
        for index in 0..usize::try_from(found).unwrap_or(0) {
            let position = c_int::try_from(first).unwrap_or(0) + *positions.add(index);
            match optional!(RedisModule_KeyAtPosWithFlags) {
                Some(name) if !flags.is_null() => name(ctx.raw(), position, *flags.add(index)),
                _ => required!(RedisModule_KeyAtPos)(ctx.raw(), position),
            }
        }
        for list in [positions, flags] {
            if !list.is_null() {
                required!(RedisModule_Free)(list.cast::<c_void>());
            }
        }
    }
}
