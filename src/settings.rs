//! Settings: arguments of `loadmodule` on every server, and CONFIG where the server knows settings of modules.

use crate::args::decimal;
use crate::ffi::config::Number;
use crate::ffi::string::Argv;
use std::sync::atomic::{AtomicU64, Ordering};

/// The longest lease that can be asked for, in milliseconds.
static MAX_TTL: AtomicU64 = AtomicU64::new(86_400_000);

/// How many requests may wait in the whole server.
static MAX_WAITERS: AtomicU64 = AtomicU64::new(10_000);

/// A thousand years: far beyond any lease, and far from where a time would overflow.
const TTL_BOUND: i64 = 31_536_000_000_000;

/// Every setting.
pub(crate) static NUMBERS: &[Number] = &[
    Number {
        name: c"max-ttl",
        min: 1,
        max: TTL_BOUND,
        get: || get(&MAX_TTL),
        set: |value| set(&MAX_TTL, value),
    },
    Number {
        name: c"max-waiters",
        min: 0,
        max: 1_000_000,
        get: || get(&MAX_WAITERS),
        set: |value| set(&MAX_WAITERS, value),
    },
];

fn get(setting: &AtomicU64) -> i64 {
    setting.load(Ordering::Relaxed).cast_signed()
}

fn set(setting: &AtomicU64, value: i64) {
    setting.store(value.cast_unsigned(), Ordering::Relaxed);
}

/// The longest lease that can be asked for, in milliseconds.
pub(crate) fn max_ttl() -> u64 {
    MAX_TTL.load(Ordering::Relaxed)
}

/// How many requests may wait in the whole server.
pub(crate) fn max_waiters() -> usize {
    usize::try_from(MAX_WAITERS.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
}

/// Reads the arguments of `loadmodule`: names and values in turn. All are checked before any is set.
pub(crate) fn read_arguments(args: Argv<'_>) -> Result<(), String> {
    let mut chosen: Vec<(&Number, i64)> = Vec::new();
    for index in (0..args.len()).step_by(2) {
        let word = |index| args.get(index).map(|word| String::from_utf8_lossy(word.as_bytes()).into_owned());
        let name = word(index).unwrap_or_default();
        let number = NUMBERS
            .iter()
            .find(|number| number.name.to_bytes().eq_ignore_ascii_case(name.as_bytes()))
            .ok_or_else(|| format!("unknown setting '{name}' (there are max-ttl and max-waiters)"))?;
        if chosen.iter().any(|(other, _)| other.name == number.name) {
            return Err(format!("setting '{name}' is given twice"));
        }
        let value = word(index + 1).ok_or_else(|| format!("setting '{name}' has no value"))?;
        let value = decimal(value.as_bytes())
            .and_then(|value| i64::try_from(value).ok())
            .filter(|value| (number.min..=number.max).contains(value))
            .ok_or_else(|| format!("setting '{name}' must be between {} and {}", number.min, number.max))?;
        chosen.push((number, value));
    }
    for (number, value) in chosen {
        (number.set)(value);
    }
    Ok(())
}
