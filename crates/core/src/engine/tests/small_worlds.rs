//! Small worlds.
