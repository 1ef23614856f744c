//! What depends on the processor: the instructions of barriers and BlueFlame stores, by disassembly, and what driver
//! and card do on aarch64.

mod aarch64;
#[path = "../common/mod.rs"]
mod common;
mod disassembly;
#[cfg(target_arch = "x86_64")]
mod x86_64;
