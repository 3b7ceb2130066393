//! The fencing token.

use std::fmt;

/// A fencing token: an integer that rises with every grant of a lock.
///
/// Send it along with every write that the lock protects, and have the resource refuse a token that is lower than
/// the highest it has seen. That is what keeps a holder that was paused past its lease from doing harm.
///
/// ```
/// use redislock_client::Fence;
///
/// let (earlier, later) = (Fence::new(41), Fence::new(42));
/// assert!(later > earlier);
/// assert_eq!(later.get(), 42);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(u64);

impl Fence {
    /// A fence from its number, as another process was told it.
    ///
    /// ```
    /// assert_eq!(redislock_client::Fence::new(7).to_string(), "7");
    /// ```
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number, below 2^53.
    ///
    /// ```
    /// assert_eq!(redislock_client::Fence::new(7).get(), 7);
    /// ```
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
