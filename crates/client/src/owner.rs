//! Who holds a lock.

use std::fmt;
use std::sync::Arc;

use crate::error::Error;

/// The longest owner that the server takes, in bytes.
const MAX_BYTES: usize = 512;

/// The identity of one logical holder: one task, thread or request.
///
/// Where none is given, every acquisition gets its own, so that two tasks never pass for each other. Give one where
/// a task takes several locks (deadlock detection then sees that they belong together), or takes one again while
/// it holds it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner(Arc<[u8]>);

impl Owner {
    /// An owner from 128 random bits, written as 32 hexadecimal digits.
    ///
    /// ```
    /// use redislock_client::Owner;
    ///
    /// assert_ne!(Owner::random(), Owner::random());
    /// ```
    pub fn random() -> Self {
        Self(format!("{:032x}", rand::random::<u128>()).into_bytes().into())
    }

    /// An owner of your own making: any 1 to 512 bytes.
    ///
    /// # Errors
    /// [`Error::Configuration`] for no bytes, and for more than 512.
    ///
    /// ```
    /// use redislock_client::Owner;
    ///
    /// assert_eq!(Owner::new("worker-7/request-12")?.as_bytes(), b"worker-7/request-12");
    /// assert!(Owner::new("").is_err());
    /// # Ok::<(), redislock_client::Error>(())
    /// ```
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, Error> {
        let bytes = bytes.as_ref();
        if bytes.is_empty() || bytes.len() > MAX_BYTES {
            return Err(Error::Configuration(format!(
                "owner must be between 1 and {MAX_BYTES} bytes, not {}",
                bytes.len()
            )));
        }
        Ok(Self(bytes.into()))
    }

    /// The bytes, as the server stores and compares them.
    ///
    /// ```
    /// assert_eq!(redislock_client::Owner::random().as_bytes().len(), 32);
    /// ```
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// As text, with what is not printable ASCII escaped.
impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.escape_ascii().fmt(f)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({self})")
    }
}
