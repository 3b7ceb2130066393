//! The one encoding of a lock: for RDB and DUMP, for replicas and the AOF, and for tests.
//!
//! Integers are little-endian base-128 with a continuation bit (LEB128); byte strings carry their length before
//! them; times are wall time in milliseconds since 1970. What is tied to a connection is not encoded.
//!
//! ```text
//! lock    = version holders:int holder*                        in the order of their owners
//! record  = version counter:int (0 owner | 1 holder)
//! holder  = owner mode:int holds:int fence:int deadline:int since:int
//! mode    = 0 exclusive | 1 shared without limit | n + 1 shared with limit n
//! ```

use crate::engine::Change;
use crate::fence::Fence;
use crate::lock::{Holds, Lease, Limit, Lock, Mode};
use crate::owner::Owner;
use crate::time::{Millis, Offset};
use alloc::vec::Vec;
use core::fmt;

#[cfg(test)]
mod tests;

/// The version of the encoding that this build writes, and the newest that it reads.
pub const VERSION: u8 = 1;

/// What became of one holder, as it travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The highest token that the writer had seen.
    pub counter: Fence,
    /// Who.
    pub owner: &'a [u8],
    /// What it is now.
    pub change: Change,
}

/// Bytes that are no lock and no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// Written by a build with a newer encoding.
    Version(u8),
    /// They end too early.
    Truncated,
    /// They go on after the end.
    Trailing,
    /// This field is out of its range.
    Invalid(&'static str),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => {
                write!(
                    f,
                    "encoding version {version} is newer than {VERSION}, the newest that this build reads"
                )
            }
            Self::Truncated => write!(f, "the bytes end too early"),
            Self::Trailing => write!(f, "the bytes go on after the end"),
            Self::Invalid(field) => write!(f, "invalid {field}"),
        }
    }
}

impl core::error::Error for DecodeError {}

/// Encodes a lock.
#[must_use]
pub fn encode_lock(lock: &Lock, offset: Offset) -> Vec<u8> {
    let mut out = alloc::vec![VERSION];
    put_int(&mut out, lock.len() as u64);
    for (owner, lease) in lock.iter() {
        put_holder(&mut out, owner.as_bytes(), lease, offset);
    }
    out
}

/// Decodes a lock.
///
/// # Errors
/// [`DecodeError`], for everything that [`encode_lock`] does not write.
pub fn decode_lock(bytes: &[u8], offset: Offset) -> Result<Lock, DecodeError> {
    let mut cursor = Cursor::open(bytes)?;
    let holders = cursor.int()?;
    let mut lock: Option<Lock> = None;
    let mut last: &[u8] = &[];
    for _ in 0..holders {
        let (owner, lease) = cursor.holder(offset)?;
        // In one order only, so that equal locks are equal bytes, and nobody is there twice.
        if owner <= last {
            return Err(DecodeError::Invalid("owner: it is out of order"));
        }
        last = owner;
        match &mut lock {
            None => lock = Some(Lock::new(Owner::checked(owner), lease)),
            Some(lock) => {
                if lock.is_exclusive() || lease.mode == Mode::Exclusive {
                    return Err(DecodeError::Invalid("mode: an exclusive holder stands alone"));
                }
                lock.set(owner, lease);
            }
        }
    }
    cursor.end()?;
    lock.ok_or(DecodeError::Invalid("holders: there are none"))
}

/// Encodes a record into `out`, which is cleared before.
pub fn encode_record(out: &mut Vec<u8>, record: &Record<'_>, offset: Offset) {
    out.clear();
    out.push(VERSION);
    put_int(out, record.counter.get());
    match &record.change {
        Change::Gone => {
            put_int(out, 0);
            put_bytes(out, record.owner);
        }
        Change::Held(lease) => {
            put_int(out, 1);
            put_holder(out, record.owner, lease, offset);
        }
    }
}

/// Decodes a record.
///
/// # Errors
/// [`DecodeError`], for everything that [`encode_record`] does not write.
pub fn decode_record(bytes: &[u8], offset: Offset) -> Result<Record<'_>, DecodeError> {
    let mut cursor = Cursor::open(bytes)?;
    let counter = cursor.fence("counter")?;
    let (owner, change) = match cursor.int()? {
        0 => (cursor.owner()?, Change::Gone),
        1 => {
            let (owner, lease) = cursor.holder(offset)?;
            (owner, Change::Held(lease))
        }
        _ => return Err(DecodeError::Invalid("kind of record")),
    };
    cursor.end()?;
    Ok(Record { counter, owner, change })
}

fn put_int(out: &mut Vec<u8>, mut value: u64) {
    let mut bytes = [0; 10];
    let mut len = 0;
    while value >= 0x80 {
        bytes[len] = (value & 0x7f) as u8 | 0x80;
        value >>= 7;
        len += 1;
    }
    bytes[len] = value as u8;
    out.extend_from_slice(&bytes[..=len]);
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_int(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_holder(out: &mut Vec<u8>, owner: &[u8], lease: &Lease, offset: Offset) {
    put_bytes(out, owner);
    put_int(
        out,
        match lease.mode {
            Mode::Exclusive => 0,
            Mode::Shared(limit) => limit.get().map_or(1, |limit| u64::from(limit) + 1),
        },
    );
    put_int(out, u64::from(lease.holds.get()));
    put_int(out, lease.fence.get());
    put_int(out, offset.to_wall(lease.deadline));
    put_int(out, offset.to_wall(lease.since));
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn open(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        match bytes.split_first() {
            None => Err(DecodeError::Truncated),
            Some((0, _)) => Err(DecodeError::Invalid("version")),
            Some((version, _)) if *version > VERSION => Err(DecodeError::Version(*version)),
            Some((_, rest)) => Ok(Self(rest)),
        }
    }

    fn int(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or(DecodeError::Truncated)?;
            self.0 = rest;
            let bits = u64::from(byte & 0x7f);
            // One way only to write a number: what would not fit, and a last byte that adds nothing, are refused.
            if bits << shift >> shift != bits || (*byte == 0 && shift > 0) {
                return Err(DecodeError::Invalid("integer"));
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::Invalid("integer"))
    }

    fn owner(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = usize::try_from(self.int()?).map_err(|_| DecodeError::Truncated)?;
        let (owner, rest) = self.0.split_at_checked(len).ok_or(DecodeError::Truncated)?;
        self.0 = rest;
        Owner::is_valid(owner).then_some(owner).ok_or(DecodeError::Invalid("owner"))
    }

    fn fence(&mut self, field: &'static str) -> Result<Fence, DecodeError> {
        Fence::new(self.int()?).ok_or(DecodeError::Invalid(field))
    }

    /// A wall time that a server can count with, which knows signed numbers only.
    fn time(&mut self, offset: Offset, field: &'static str) -> Result<Millis, DecodeError> {
        let wall = self.int()?;
        i64::try_from(wall).map_err(|_| DecodeError::Invalid(field))?;
        Ok(offset.to_steady(wall))
    }

    fn holder(&mut self, offset: Offset) -> Result<(&'a [u8], Lease), DecodeError> {
        let owner = self.owner()?;
        let small = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        let mode = match self.int()? {
            0 => Mode::Exclusive,
            1 => Mode::Shared(Limit::NONE),
            limit => Mode::Shared(Limit::new(small(limit - 1)).ok_or(DecodeError::Invalid("limit"))?),
        };
        let holds = Holds::new(small(self.int()?)).ok_or(DecodeError::Invalid("hold count"))?;
        let fence = self.fence("fence")?;
        let deadline = self.time(offset, "deadline")?;
        let since = self.time(offset, "start of the lease")?;
        Ok((owner, Lease { mode, holds, fence, deadline, since, session: None }))
    }

    fn end(&self) -> Result<(), DecodeError> {
        if self.0.is_empty() { Ok(()) } else { Err(DecodeError::Trailing) }
    }
}
