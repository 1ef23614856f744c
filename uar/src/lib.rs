//! The user access region (UAR): the doorbell registers by which software notifies a ConnectX of new work, and the
//! doorbell records in memory that hold the producer and consumer indices.
//!
//! # Contract
//! * All stores of the driver to doorbell registers, all its barriers, and their `unsafe` code are in this crate.
//! * Nothing panics, blocks, allocates or makes a system call. Only [`Shared`] takes a lock: a spin lock, for one ring.
//! * A doorbell belongs to one thread at a time (`&mut self`); a [`Shared`] one can be cloned for several threads.
//! * Numbers are in host byte order; all registers and records of the card are big-endian.
//!
//! # Map
//! [`barrier`]: the memory barriers between CPU and card. [`mmio`]: register cells and the layout of a UAR page.
//! [`record`]: doorbell records, each with its own type, so that a send counter cannot be stored in a receive record.
//! [`SendDoorbell`] with [`Plain`], [`BlueFlame`] and [`Shared`]: doorbells of send queues. [`CqDoorbell`] and
//! [`EqDoorbell`]: doorbells that arm completion and event queues.
#![no_std]

extern crate alloc;

pub mod barrier;
mod doorbell;
mod events;
pub mod mmio;
pub mod record;
mod shared;
mod sync;

pub use doorbell::{BlueFlame, Plain, SendDoorbell};
pub use events::{Arm, CqDoorbell, EqDoorbell};
pub use mmio::{UarPage, Wqebb};
pub use record::{CqRecord, ReceiveRecord, SendRecord};
pub use shared::Shared;
