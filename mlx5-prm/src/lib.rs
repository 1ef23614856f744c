//! The mlx5 wire as the PRM (Programmer's Reference Manual) prints it, under the PRM's names: every firmware command the
//! public headers know, with all that it carries; capability pages, registers, WQEs, CQEs and EQEs.
//!
//! ```
//! use mlx5_prm::ctx::Eqc;
//! use mlx5_prm::decode::Dump;
//! use mlx5_prm::layout::Layout;
//!
//! let mut eqc = Eqc::default();
//! eqc.w().log_eq_size(7).uar_page(0x21).oi(true);
//! assert_eq!(eqc.log_eq_size(), 7);
//! assert_eq!(eqc.as_bytes()[0x0c..0x10], [7, 0, 0, 0x21]);
//! println!("{}", Dump::of(&eqc));
//! ```
//!
//! # Contract
//! * No `unsafe`, no I/O, no state: layouts, their tables, and what can be said of bytes by these. `no_std`.
//! * Reading never panics, whatever the bytes: numbers convert to enumerations that keep what they do not know, and
//!   bytes that are too few give `None`.
//! * A setter given a value too wide for its field panics and names the field; nothing is ever cut silently. What comes
//!   from a user or a device is checked before.
//! * Fields that overlap, leave their layout, cross a dword or exceed their type do not compile.
//! * A layout is what lies on the wire, no more: most need no second type that says what they mean.
//! * Every layout and every named value is compared with the kernel's and rdma-core's headers by the C compiler, and
//!   with what their drivers declare for themselves, in a test of tools/lab (`layouts`). What none of them has is on a
//!   list there, with the reason.
//!
//! # Map
//! | module | holds |
//! | --- | --- |
//! | [`layout`](mod@layout) | how a layout is declared, and what its table says: start here |
//! | [`cmd`] | firmware commands, the entries of the command queue, mailboxes, statuses |
//! | [`ctx`] | contexts: what the card keeps of each object |
//! | [`flow`] | flow tables: match parameters, entries, destinations, header changes |
//! | [`obj`] | general objects |
//! | [`caps`] | capability pages |
//! | [`mod@reg`] | registers behind `ACCESS_REGISTER` |
//! | [`wqe`], [`cqe`], [`eqe`] | entries of work, completion and event queues |
//! | [`init_seg`] | the start of BAR 0 |
//! | [`ib`] | InfiniBand packets: transport headers and management datagrams |
//! | [`values`](mod@values) | named values that several layouts share |
//! | [`limits`] | which capability bounds which field of a command, and the check of a command against a card |
//! | [`decode`] | print any layout, and any command with what its fields say lies in it; find set bits that no field covers |
//! | [`registry`] | all layouts and all enumerations, as tables |
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
pub mod flow;
pub mod ib;
pub mod init_seg;
pub mod limits;
pub mod obj;
pub mod reg;
pub mod registry;
pub mod values;
pub mod wqe;
