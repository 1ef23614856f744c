//! The mlx5 wire: every command, context, capability page, WQE, CQE, EQE and the init segment, as the PRM
//! (Programmer's Reference Manual) prints it, under the PRM's names.
//!
//! # Contract
//! * No `unsafe`, no I/O, no state: layouts, their tables, and nothing else. `no_std`.
//! * Reading never panics, whatever the bytes: numbers convert to enumerations that keep what they do not know.
//! * A setter given a value too wide for its field panics and names the field; nothing is ever cut silently.
//! * Every layout is compared with the kernel's headers by a test of tools/lab.
//!
//! # Map
//! [`layout`](mod@layout): how a layout is declared. [`cmd`]: firmware commands and the command queue. [`ctx`]: contexts.
//! [`caps`]: capability pages. [`wqe`], [`cqe`], [`eqe`]: queue entries. [`init_seg`]: the start of BAR 0.
//! [`reg`]: registers. [`decode`]: print any layout.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

#[doc(hidden)]
pub use zerocopy;

#[macro_use]
pub mod layout;

pub mod caps;
pub mod cmd;
pub mod cqe;
pub mod ctx;
pub mod decode;
pub mod eqe;
pub mod init_seg;
pub mod reg;
pub mod registry;
pub mod values;
pub mod wqe;
