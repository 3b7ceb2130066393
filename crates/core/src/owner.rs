//! Owners: the bytes that name one logical holder.

use alloc::boxed::Box;
use core::borrow::Borrow;
use core::cmp::Ordering;
use core::fmt;

/// The most bytes that an owner may have.
pub const OWNER_MAX: usize = 512;

/// The name of one logical holder: 1 to [`OWNER_MAX`] bytes of any value, compared byte by byte.
#[derive(Clone)]
pub struct Owner(Name);

/// How many bytes lie inline: what fits beside the length where a pointer and its length would need the room anyhow.
/// A UUID or 128 bits in hexadecimal do.
const INLINE_MAX: usize = 38;

/// Most names are short, and a lock with its holder is then one piece of memory.
#[derive(Clone)]
enum Name {
    Short { len: u8, bytes: [u8; INLINE_MAX] },
    Long(Box<[u8]>),
}

impl Owner {
    /// An owner of these bytes; `None` when there are none or too many.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        Self::is_valid(bytes).then(|| Self::checked(bytes))
    }

    /// Whether these bytes can name an owner.
    #[must_use]
    pub fn is_valid(bytes: &[u8]) -> bool {
        (1..=OWNER_MAX).contains(&bytes.len())
    }

    /// An owner of bytes whose length was checked when the request was read.
    pub(crate) fn checked(name: &[u8]) -> Self {
        debug_assert!(Self::is_valid(name), "an owner that no parser let through");
        let mut bytes = [0; INLINE_MAX];
        match (bytes.get_mut(..name.len()), u8::try_from(name.len())) {
            (Some(start), Ok(len)) => {
                start.copy_from_slice(name);
                Self(Name::Short { len, bytes })
            }
            _ => Self(Name::Long(name.into())),
        }
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Name::Short { len, bytes } => &bytes[..usize::from(*len)],
            Name::Long(bytes) => bytes,
        }
    }

    /// How many bytes of memory it takes beside itself.
    pub(crate) fn heap(&self) -> usize {
        match &self.0 {
            Name::Short { .. } => 0,
            Name::Long(bytes) => bytes.len(),
        }
    }
}

impl PartialEq for Owner {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Owner {}

impl PartialOrd for Owner {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Owner {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl Borrow<[u8]> for Owner {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_bytes().escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::{INLINE_MAX, OWNER_MAX, Owner};

    #[test]
    fn short_and_long_names_are_the_same_kind_of_thing() {
        assert_eq!(size_of::<Owner>(), 40);
        for len in [1, INLINE_MAX, INLINE_MAX + 1, OWNER_MAX] {
            let name = alloc::vec![b'x'; len];
            let owner = Owner::new(&name).expect("within the bounds");
            assert_eq!(owner.as_bytes(), name);
            assert_eq!(owner.heap(), if len > INLINE_MAX { len } else { 0 });
        }
        assert!(Owner::new(b"").is_none());
        assert!(Owner::new(&[0; OWNER_MAX + 1]).is_none());
        assert!(Owner::new(b"ab") < Owner::new(b"b"));
        assert!(Owner::new(b"a") < Owner::new(b"a\0"));
    }
}
