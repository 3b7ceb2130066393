//! several
