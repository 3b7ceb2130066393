//! State that only the main thread touches.

use std::cell::{RefCell, RefMut};

/// A cell that callbacks of the server share. They all run on its main thread, or on one that holds the server's
/// global lock, so never two at a time; one that is called from within another finds the cell taken.
pub(crate) struct MainThread<T>(RefCell<T>);

// SAFETY: the server runs callbacks one at a time. The one that may run elsewhere, `free`, touches no cell.
unsafe impl<T> Sync for MainThread<T> {}
// SAFETY: as above: what is inside never leaves the threads that hold the server's lock.
unsafe impl<T> Send for MainThread<T> {}

impl<T> MainThread<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(RefCell::new(value))
    }

    /// The value, for as long as the guard lives. A nested callback must not ask for what its caller holds.
    pub(crate) fn borrow(&self) -> RefMut<'_, T> {
        self.0.borrow_mut()
    }
}
