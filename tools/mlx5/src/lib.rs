//! The parts of the command line `mlx5` that need no card: decoding of kernel logs and hex. A library for tests and
//! fuzzers.

pub mod fields;
pub mod hex;
pub mod kernel_log;
pub mod named;
pub mod perftest;
