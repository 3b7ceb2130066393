//! The key that a lock lives at: a name in one of the server's databases.

use alloc::boxed::Box;
use core::fmt;

/// The number of a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Db(pub u32);

/// A key, borrowed from a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key<'a> {
    /// The database.
    pub db: Db,
    /// The name: any bytes, also none.
    pub name: &'a [u8],
}

impl Key<'_> {
    /// The same key, to be kept.
    #[must_use]
    pub fn to_buf(self) -> KeyBuf {
        KeyBuf { db: self.db, name: self.name.into() }
    }
}

impl fmt::Debug for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.db.0, self.name.escape_ascii())
    }
}

/// A key that is kept beyond the request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyBuf {
    /// The database.
    pub db: Db,
    /// The name.
    pub name: Box<[u8]>,
}

impl KeyBuf {
    /// The same key, borrowed.
    #[must_use]
    pub fn as_key(&self) -> Key<'_> {
        Key { db: self.db, name: &self.name }
    }

    /// Follows what lies here when two databases change places.
    pub(crate) fn swap(&mut self, one: Db, other: Db) {
        if self.db == one {
            self.db = other;
        } else if self.db == other {
            self.db = one;
        }
    }
}
