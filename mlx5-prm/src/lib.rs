//! The mlx5 hardware interface under the names of the PRM (Programmer's Reference Manual): every firmware command in
//! the public headers with its contexts, capability pages, registers, WQEs, CQEs and EQEs.
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
//! * No `unsafe`, no I/O, no state; `no_std`.
//! * Reading never panics: enumerations keep unknown numbers, and too few bytes give `None`.
//! * A setter panics if the value is too wide for its field, and names the field; it never truncates. Check values from
//!   users and devices before.
//! * Fields that overlap, exceed their layout or their type, or cross a dword do not compile.
//! * A layout describes bytes, not meaning; most need no second type for that.
//! * A test of tools/lab (`layouts`) compares every layout and every named value with the headers of the kernel and
//!   rdma-core by the C compiler, and with declarations in their drivers. What none of them declares is listed there
//!   with the reason.
//!
//! # Map
//! | module | holds |
//! | --- | --- |
//! | [`layout`](mod@layout) | how layouts are declared, and their tables: start here |
//! | [`cmd`] | firmware commands, command queue entries, mailboxes, statuses |
//! | [`ctx`] | contexts of objects |
//! | [`flow`] | flow tables: match parameters, entries, destinations, header changes |
//! | [`obj`] | general objects |
//! | [`caps`] | capability pages |
//! | [`mod@reg`] | registers behind `ACCESS_REGISTER` |
//! | [`wqe`], [`cqe`], [`eqe`] | entries of work, completion and event queues |
//! | [`init_seg`] | the start of BAR 0 |
//! | [`ib`] | InfiniBand packets: transport headers and management datagrams |
//! | [`values`](mod@values) | named values shared by several layouts |
//! | [`limits`] | which capability bounds which field of a command, and the check of a command against a card |
//! | [`decode`] | printing of layouts and commands; detection of set bits that no field covers |
//! | [`registry`] | tables of all layouts and all enumerations |
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
