//! The only unsafe code of the module: everything that crosses the border to the server.
//!
//! What the rest of the module sees of the server are the safe types of this folder. They rest on three rules:
//! - A [`Ctx`] is made by the server for one callback, and lives no longer.
//! - Everything but the `free` callback of the data type runs on the main thread, or while it stands still.
//! - No panic crosses the border: every callback runs behind [`shield`].

pub(crate) mod api;
pub(crate) mod blocked;
pub(crate) mod clock;
pub(crate) mod command_filter;
pub(crate) mod command_info;
pub(crate) mod config;
pub(crate) mod context;
pub(crate) mod data_type;
pub(crate) mod detached;
pub(crate) mod event_loop;
pub(crate) mod events;
pub(crate) mod info;
pub(crate) mod inner_call;
pub(crate) mod key;
pub(crate) mod load;
pub(crate) mod main_thread;
pub(crate) mod shield;
pub(crate) mod string;
pub(crate) mod timer;

pub(crate) use context::Ctx;
pub(crate) use key::OpenKey;
pub(crate) use string::Str;

/// The names that others know the module by, from its C header.
pub(crate) mod names {
    include!(concat!(env!("OUT_DIR"), "/redislock.rs"));
}
