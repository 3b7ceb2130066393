//! Deadlocks.
