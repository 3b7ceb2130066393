//! redislock: distributed locks that Redis itself understands.
//!
//! A module for the server: native commands that take, renew, nest and release locks, atomically and without
//! scripts. This crate is a thin shell. What a lock is and who gets it is decided in `redislock-core`; here arguments
//! are read, the core is asked, and its decisions are carried out in the server. The commands are described in
//! `docs/commands.md`, the design in `ARCHITECTURE.md`.

mod alarm;
mod args;
mod clock;
mod commands;
mod error;
mod events;
mod ffi;
mod inbox;
mod keys;
mod persistence;
mod settings;
mod slot;
mod state;
mod step;
mod told;
mod waiting;

pub use ffi::load::RedisModule_OnLoad;

/// Rust's allocations are the server's, so that INFO MEMORY and `maxmemory` count them.
#[cfg(not(test))]
#[global_allocator]
static ALLOCATOR: redis_module::alloc::RedisAlloc = redis_module::alloc::RedisAlloc;

/// Registers everything with the server that loads the module, or says why it can't be.
fn load(ctx: ffi::Ctx<'_>, args: ffi::string::Argv<'_>) -> Result<(), String> {
    settings::read_arguments(args)?;
    state::start(ctx)?;
    let took = |what: &str, took: bool| if took { Ok(()) } else { Err(format!("the server refuses {what}")) };
    ctx.set_options(
        redis_module::raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS
            | redis_module::raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED,
    );
    took("the data type 'redislock'", ffi::data_type::register(ctx))?;
    commands::register(ctx)?;
    took("the settings", ffi::config::register(ctx, settings::NUMBERS))?;
    took("the INFO section", ffi::info::register(ctx))?;
    took("the event subscriptions", ffi::events::subscribe(ctx))
}
