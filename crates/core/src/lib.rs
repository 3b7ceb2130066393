//! The lock itself: every decision of redislock, and nothing else.
//!
//! This crate knows no clock, no socket, no thread and no Redis. Time is an argument ([`Now`]), the keys that hold
//! locks are reached through a port ([`Keyspace`]), answers to waiters are values ([`Effect`]), contention is an
//! outcome ([`Answer::Refused`]) and never an error. The module around it is a thin shell that carries out what is
//! decided here, so that whatever can be asked of a lock can be tested in microseconds and searched exhaustively.
//!
//! - [`Lock`] is what persists: who holds one key, and for how long.
//! - [`Queue`] is volatile: who waits for which keys, in which order.
//! - [`Engine`] brings both together: one method a request, each atomic: it decides first and changes then.
//! - [`record`] is the one encoding of a lock, for RDB, DUMP, replicas and the AOF alike.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod deadlock;
mod engine;
mod fence;
mod key;
mod lock;
mod owner;
mod queue;
pub mod record;
mod request;
mod session;
mod time;

pub use deadlock::Circle;
pub use engine::{Change, Effect, Engine, Event, Keyspace, Note, Slot, Stats};
pub use fence::{Counter, Fence};
pub use key::{Db, Key, KeyBuf};
pub use lock::{HOLDS_MAX, Holds, Lease, Limit, Lock, Mode};
pub use owner::{OWNER_MAX, Owner};
pub use queue::{Line, Queue, Waiter, WaiterId};
pub use request::{Answer, Ask, Fault, Form, Grant, Portion, Refusal, Verdict, Wait};
pub use session::Session;
pub use time::{Millis, Now, Offset, Ttl};
