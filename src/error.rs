//! Errors as a caller sees them: a code, and what to do.

use redislock_core::{Circle, Fault, OWNER_MAX};
use std::fmt;

/// Why a request was not served. Nothing has changed then.
#[derive(Debug)]
pub(crate) enum Error {
    /// Too few or too many arguments.
    Arity,
    /// An argument is out of its range.
    Range { name: &'static str, min: u64, max: u64, unit: &'static str },
    /// An owner is empty or too long.
    Owner,
    /// This word is no option of the command.
    UnknownOption(Vec<u8>),
    /// An option is given twice.
    Repeated(&'static str),
    /// An option has no value.
    NoValue(&'static str),
    /// Two arguments that don't go together.
    Contradiction(&'static str),
    /// A key is named twice.
    KeyTwice,
    /// What was asked can't be done here.
    Refused(&'static str),
    /// A guarded command that the server would not run.
    Inner(std::io::Error),
    /// What the core says.
    Fault(Fault),
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arity => write!(f, "ERR wrong number of arguments"),
            Self::Range { name, min, max, unit } => {
                write!(f, "ERR {name} must be between {min} and {max}{unit}")
            }
            Self::Owner => write!(f, "ERR owner must be between 1 and {OWNER_MAX} bytes"),
            Self::UnknownOption(word) => write!(f, "ERR unknown option '{}'", excerpt(word)),
            Self::Repeated(option) => write!(f, "ERR option {option} is given twice"),
            Self::NoValue(option) => write!(f, "ERR option {option} has no value"),
            Self::Contradiction(text) => write!(f, "ERR {text}"),
            Self::KeyTwice => write!(f, "ERR a key is named twice"),
            Self::Refused(text) => write!(f, "{text}"),
            Self::Inner(error) => write!(f, "ERR the guarded command can't be run here: {error}"),
            Self::Fault(fault) => write_fault(f, fault),
        }
    }
}

fn write_fault(f: &mut fmt::Formatter<'_>, fault: &Fault) -> fmt::Result {
    match fault {
        Fault::Held(fence) => write!(
            f,
            "HELD {} this owner holds the lock already: LOCK.REENTER nests, LOCK.RENEW confirms",
            fence.get()
        ),
        Fault::Hold { has } => write!(f, "ERR HOLD does not fit: this owner has {} holds", has.get()),
        Fault::NotUpgraded => {
            write!(f, "ERR HOLD does not fit: this owner has that hold already, but shared")
        }
        Fault::HoldsFull => write!(f, "ERR hold count must be between 1 and {}", redislock_core::HOLDS_MAX),
        Fault::WrongType => write!(f, "WRONGTYPE Operation against a key holding the wrong kind of value"),
        Fault::Elsewhere => write!(f, "TRYAGAIN this node no longer serves the slot of the key"),
        Fault::Waits => write!(f, "ERR this owner waits for the key already, with a different request"),
        Fault::Deadlock(circle) => write_circle(f, circle),
        Fault::QueueFull => write!(f, "QUEUEFULL as many requests wait as max-waiters allows"),
        Fault::Ahead(most) => {
            write!(f, "ERR token must be at most {}, 366 days ahead of this server's clock", most.get())
        }
        Fault::Exhausted => write!(f, "ERR fencing tokens exhausted"),
    }
}

fn write_circle(f: &mut fmt::Formatter<'_>, circle: &Circle) -> fmt::Result {
    write!(f, "DEADLOCK the wait would close a circle:")?;
    for owner in circle.owners() {
        write!(f, " '{}' waits for", excerpt(owner.as_bytes()))?;
    }
    match circle.owners().first() {
        Some(first) => write!(f, " '{}'", excerpt(first.as_bytes())),
        None => Ok(()),
    }
}

/// The beginning of some bytes, as text for a message.
fn excerpt(bytes: &[u8]) -> String {
    let end = bytes.len().min(64);
    let more = if bytes.len() > end { "..." } else { "" };
    format!("{}{more}", bytes[..end].escape_ascii())
}
