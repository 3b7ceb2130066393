//! Locks as bytes: for dumps, and for the AOF when it is rewritten.

use crate::{clock, state};
use redislock_core::record::{DecodeError, Record, decode_lock, encode_lock, encode_record};
use redislock_core::{Change, Lock, Mode};

/// Reads a lock from a dump or payload.
pub(crate) fn load(bytes: &[u8]) -> Result<Lock, DecodeError> {
    let lock = decode_lock(bytes, clock::now().1)?;
    for (_, lease) in lock.iter() {
        state::saw(lease.fence);
    }
    Ok(lock)
}

/// Writes a lock for a dump or payload.
pub(crate) fn save(lock: &Lock) -> Vec<u8> {
    encode_lock(lock, clock::now().1)
}

/// Writes a lock as records, one for each holder.
pub(crate) fn rewrite(lock: &Lock, mut emit: impl FnMut(&[u8])) {
    let (offset, counter) = (clock::now().1, state::last_fence());
    let mut bytes = Vec::new();
    for (owner, lease) in lock.iter() {
        let record = Record { counter, owner: owner.as_bytes(), change: Change::Held(*lease) };
        encode_record(&mut bytes, &record, offset);
        emit(&bytes);
    }
}

/// A mode as one number, for digests.
pub(crate) fn mode_number(mode: Mode) -> i64 {
    match mode {
        Mode::Exclusive => -1,
        Mode::Shared(limit) => limit.get().map_or(0, i64::from),
    }
}
