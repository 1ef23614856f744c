//! The user access region (UAR): the page of registers by which software tells a ConnectX that there is work, and the
//! doorbell records in memory that say how much.
//!
//! # Contract
//! * Every store to a register and every barrier of the driver is here; all `unsafe` of the register side is here.
//! * Nothing panics, blocks, allocates or calls the system. Only [`Shared`] takes a lock, a spin lock, for one ring.
//! * A doorbell belongs to one thread at a time (`&mut self`); a [`Shared`] one may be cloned among threads.
//! * Numbers are in the host's order; they travel big-endian, as all of the card's registers and records do.
//!
//! # Map
//! [`barrier`]: which stores must be seen before which, and the instruction that makes it so. [`mmio`]: register cells
//! and the page's map. [`record`]: doorbell records, one type each, so that a send counter cannot land in the receive
//! record. [`SendDoorbell`] with [`Plain`], [`BlueFlame`] and [`Shared`]: how a send queue rings. [`CqDoorbell`] and
//! [`EqDoorbell`]: how completion and event queues are armed.
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
