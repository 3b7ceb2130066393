//! How the program ends, and what it says then.

use std::process::ExitCode;

use redislock_client::Error;
use serde_json::json;

/// The request or the configuration is wrong (EX_USAGE).
pub(crate) const USAGE: u8 = 64;
/// No quorum could be reached (EX_UNAVAILABLE).
pub(crate) const UNAVAILABLE: u8 = 69;
/// Something of the system failed (EX_SOFTWARE).
pub(crate) const SOFTWARE: u8 = 70;
/// Not granted in time (EX_TEMPFAIL).
pub(crate) const NOT_GRANTED: u8 = 75;
/// Lost while the command ran.
pub(crate) const LOST: u8 = 76;
/// The command could not be run, or was not found, as shells have it.
pub(crate) const NOT_RUN: u8 = 126;
pub(crate) const NOT_FOUND: u8 = 127;
/// Shells add the number of the signal that ended a command.
pub(crate) const SIGNALLED: u8 = 128;

pub(crate) fn code(error: &Error) -> u8 {
    match error {
        Error::NoQuorum { .. } => UNAVAILABLE,
        Error::Lost(_) | Error::LostMidway { .. } => LOST,
        error if error.is_retryable() => NOT_GRANTED,
        Error::Held { .. } | Error::Replaced(_) => NOT_GRANTED,
        _ => USAGE,
    }
}

/// Says what went wrong, and gives the exit status.
pub(crate) fn failed(as_json: bool, error: &Error) -> ExitCode {
    let code = code(error);
    report(as_json, &error.to_string(), code);
    ExitCode::from(code)
}

pub(crate) fn report(as_json: bool, message: &str, code: u8) {
    if as_json {
        eprintln!("{}", json!({ "event": "error", "message": message, "code": code }));
    } else {
        eprintln!("redislock: {message}");
    }
}
