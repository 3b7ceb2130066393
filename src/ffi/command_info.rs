//! Commands as the server knows them: handler, flags, keys, and where it can be told, documentation.

use super::api::{is_ok, optional};
use super::context::Ctx;
use super::names::REDISLOCK_CATEGORY;
use super::shield::shield;
use super::string::Argv;
use crate::commands::{Access, Call, Command, Keys, Param, ParamKind, Spec};
use redis_module::raw;
use std::ffi::{CString, c_char, c_int};
use std::ptr::{null, null_mut};

/// Adds the ACL category of all commands, where the server knows such.
pub(crate) fn add_category(ctx: Ctx<'_>) -> bool {
    // SAFETY: a living context; the name is copied.
    optional!(RedisModule_AddACLCategory)
        .is_none_or(|add| is_ok(unsafe { add(ctx.raw(), REDISLOCK_CATEGORY.as_ptr()) }))
}

/// Adds a command. Returns whether the server took it.
pub(crate) fn create<C: Command>(ctx: Ctx<'_>) -> bool {
    let spec = &C::SPEC;
    let keys = match spec.keys {
        Keys::None => (0, 0, 0),
        Keys::First | Keys::Guarded => (1, 1, 1),
        // The first of the keys, for servers that ask no further; the others are found by asking the command.
        Keys::Counted => (2, 2, 1),
    };
    if !ctx.create_command(spec.name, Some(entry::<C>), spec.flags, keys) {
        return false;
    }
    let Some(get) = optional!(RedisModule_GetCommand) else { return true };
    // SAFETY: a living context; the command was just made.
    let command = unsafe { get(ctx.raw(), spec.name.as_ptr()) };
    // SAFETY: the server copies what it is given.
    let categorized = optional!(RedisModule_SetCommandACLCategories)
        .is_none_or(|set| is_ok(unsafe { set(command, spec.categories.as_ptr()) }));
    categorized && describe(command, spec)
}

unsafe extern "C" fn entry<C: Command>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the server's context and arguments for this callback.
    let (ctx, args) = unsafe { (Ctx::from_raw(ctx), Argv::from_raw(argv, argc)) };
    if !shield("a command", false, || {
        Call::new(ctx, args).run::<C>();
        true
    }) {
        ctx.reply_error("ERR redislock: internal error, see the server's log");
    }
    raw::REDISMODULE_OK as c_int
}

static INFO_VERSION: raw::RedisModuleCommandInfoVersion = raw::RedisModuleCommandInfoVersion {
    version: 1,
    sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
    sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
    sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
};

/// Tells the server what COMMAND INFO and COMMAND DOCS show, where it can be told.
fn describe(command: *mut raw::RedisModuleCommand, spec: &Spec) -> bool {
    let Some(set) = optional!(RedisModule_SetCommandInfo) else { return true };
    let mut keys = key_specs(spec);
    let params = arguments(spec.params);
    let info = raw::RedisModuleCommandInfo {
        version: &raw const INFO_VERSION,
        summary: spec.summary.as_ptr(),
        complexity: spec.complexity.as_ptr(),
        since: c"0.1.0".as_ptr(),
        history: null_mut(),
        tips: null(),
        arity: spec.arity,
        key_specs: keys.as_mut_ptr(),
        args: params,
    };
    // SAFETY: the server copies all of it; the lists end with zeros.
    let status = unsafe { set(command, &raw const info) };
    free_arguments(spec.params, params);
    is_ok(status)
}

fn key_specs(spec: &Spec) -> Vec<raw::RedisModuleCommandKeySpec> {
    // SAFETY: a key spec of zeros ends the list, and is a base to fill in.
    let zero = || unsafe { std::mem::zeroed::<raw::RedisModuleCommandKeySpec>() };
    let mut specs = Vec::new();
    if spec.keys != Keys::None {
        let mut one = zero();
        one.flags = u64::from(match spec.access {
            Access::Read => raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS,
            Access::Write => raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_UPDATE,
            Access::Remove => raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_DELETE,
        });
        one.begin_search_type = raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX;
        one.bs.index.pos = 1;
        match spec.keys {
            Keys::Counted => {
                one.find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_KEYNUM;
                one.fk.keynum.keynumidx = 0;
                one.fk.keynum.firstkey = 1;
                one.fk.keynum.keystep = 1;
            }
            Keys::None | Keys::First | Keys::Guarded => {
                one.find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE;
                one.fk.range.lastkey = 0;
                one.fk.range.keystep = 1;
                one.fk.range.limit = 0;
            }
        }
        if spec.keys == Keys::Guarded {
            // The rest is found by asking the command.
            one.flags |= u64::from(raw::REDISMODULE_CMD_KEY_INCOMPLETE);
        }
        specs.push(one);
    }
    specs.push(zero());
    specs
}

fn argument(param: &Param) -> raw::RedisModuleCommandArg {
    // SAFETY: an argument of zeros is a base to fill in.
    let mut argument = unsafe { std::mem::zeroed::<raw::RedisModuleCommandArg>() };
    argument.name = owned(param.name);
    argument.key_spec_index = -1;
    argument.type_ = match param.kind {
        ParamKind::Key => {
            argument.key_spec_index = 0;
            raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY
        }
        ParamKind::Text => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING,
        ParamKind::Integer => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER,
        ParamKind::Word => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN,
        ParamKind::Block(params) => {
            argument.subargs = arguments(params);
            raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK
        }
        ParamKind::OneOf(params) => {
            argument.subargs = arguments(params);
            raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF
        }
    };
    if !param.token.is_empty() {
        argument.token = owned(param.token);
    }
    if param.optional {
        argument.flags |= raw::REDISMODULE_CMD_ARG_OPTIONAL as c_int;
    }
    if param.multiple {
        argument.flags |= raw::REDISMODULE_CMD_ARG_MULTIPLE as c_int;
    }
    argument
}

/// A list of arguments, with one of zeros at its end, to be given back to [`free_arguments`].
fn arguments(params: &[Param]) -> *mut raw::RedisModuleCommandArg {
    let mut arguments: Vec<_> = params.iter().map(argument).collect();
    // SAFETY: an argument of zeros ends the list.
    arguments.push(unsafe { std::mem::zeroed() });
    Box::leak(arguments.into_boxed_slice()).as_mut_ptr()
}

/// Gives a list back.
fn free_arguments(params: &[Param], list: *mut raw::RedisModuleCommandArg) {
    // SAFETY: made by `arguments` of the same parameters, and given back once.
    let arguments = unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(list, params.len() + 1)) };
    for (param, argument) in params.iter().zip(arguments) {
        for text in [argument.name, argument.token] {
            if !text.is_null() {
                // SAFETY: made by `owned`, and given back once.
                drop(unsafe { CString::from_raw(text.cast_mut()) });
            }
        }
        if let ParamKind::Block(inner) | ParamKind::OneOf(inner) = param.kind {
            free_arguments(inner, argument.subargs);
        }
    }
}

fn owned(text: &str) -> *const c_char {
    CString::new(text).map_or(null(), |text| text.into_raw().cast_const())
}
