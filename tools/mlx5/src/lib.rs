//! What the command line `mlx5` does that needs no card: kernel logs and hex into fields. A library, so that tests and
//! fuzzers reach it without a process.

pub mod fields;
pub mod kernel_log;
pub mod named;
