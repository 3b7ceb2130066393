//! Owners: the bytes that name one logical holder.

use alloc::boxed::Box;
use core::borrow::Borrow;
use core::fmt;

/// The most bytes that an owner may have.
pub const OWNER_MAX: usize = 512;

/// The name of one logical holder: 1 to [`OWNER_MAX`] bytes of any value, compared byte by byte.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner(Box<[u8]>);

impl Owner {
    /// An owner of these bytes; `None` when there are none or too many.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        Self::is_valid(bytes).then(|| Self(bytes.into()))
    }

    /// Whether these bytes can name an owner.
    #[must_use]
    pub fn is_valid(bytes: &[u8]) -> bool {
        (1..=OWNER_MAX).contains(&bytes.len())
    }

    /// An owner of bytes whose length was checked when the request was read.
    pub(crate) fn checked(bytes: &[u8]) -> Self {
        debug_assert!(Self::is_valid(bytes), "an owner that no parser let through");
        Self(bytes.into())
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Borrow<[u8]> for Owner {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}
