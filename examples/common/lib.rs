//! What the examples share.

pub mod exchange;
