//! What the examples share.

pub mod exchange;
pub mod pingpong;
pub mod station;
