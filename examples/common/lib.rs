//! Code shared by the examples.

pub mod exchange;
pub mod host;
pub mod managed;
pub mod pingpong;
pub mod rsockets;
pub mod stack;
