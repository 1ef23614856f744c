//! A software ConnectX: a PCI function that a driver cannot tell from a real card by its registers, commands, queues
//! and packets, for tests and development without hardware.
//!
//! # Contract
//! * **No input panics.** Input from clients and from the wire is checked before use. A driver's error becomes a
//!   command status, an error completion, or an ignored access. Where a real card would ignore it silently, it also
//!   becomes a [violation](strict::Violation) recorded by [strict mode](strict).
//! * **One thread.** A [`Card`](card::Card) has one device thread that owns all its [functions](function::Function).
//!   Everything else reaches them by messages through a [`FunctionHandle`](card::FunctionHandle), by stores to UAR
//!   pages, and by frames on the wire. Functions have no locks; [`Dma`](dma::Dma), [`Strict`](strict::Strict) and
//!   [`Faults`](fault::Faults) are shared between threads.
//! * **Time.** The model reads no clock: a [`SteppedCard`](card::SteppedCard) gets the time with each step, and a
//!   [`World`](world::World) gives cards, cables and their clients virtual time on one thread, the same in every run of
//!   a seed. The device thread of a [`Card`](card::Card) uses the wall clock. With work to do the thread spins;
//!   without, it first yields, then sleeps up to a millisecond at a time. A doorbell is a plain store: no system call,
//!   and a delay of at most that millisecond.
//! * **Addresses.** All memory is accessed by IOVA, in ranges that the client has mapped, and only while bus mastering
//!   is enabled.
//! * **Not evidence by itself.** It decodes with [`mlx5_prm`], as our driver does. That the layouts are those of a card
//!   is checked independently: by the C compiler on the kernel's headers, and by unmodified Linux drivers on this
//!   model.
//!
//! # Where to find what
//! | PRM chapter | module |
//! | --- | --- |
//! | PCI Express interface, MSI-X | [`pci`] |
//! | Initialization segment, UAR pages, doorbells | [`bar`] |
//! | Command interface, HCA bring-up, pages, health | [`firmware`], with the capabilities in [`profile`] |
//! | Objects: PD, MKEY, UMEM, EQ, CQ, QP, DCT, SRQ and RMP, XRCD, SQ, RQ, RQT, TIR, TIS | [`objects`] |
//! | Flow tables, receive side scaling | [`steering`] |
//! | WQEs, CQEs, EQEs: queue processing | [`engine`] |
//! | Transport: RoCE v2 packets | [`transport`] |
//! | Ports, Ethernet | [`wire`] |
//!
//! Data is below behaviour, and imports run down only: serve, card, bar, firmware, engine, then [`function`] and its
//! [`objects`], and what those are made of. `Function` owns all state of a PCI function; firmware and engines own none.
//!
//! Further modules: [`card`] (builder, and the device thread), [`world`] (virtual time), [`dma`] (the client's memory),
//! [`serve`] (vfio-user, in process), [`fault`] (fault injection), [`strict`] (strict mode).
//!
//! # First steps
//! [`Card::builder`](card::Card::builder) makes a card, [`serve::vfio_user::serve`] a socket for QEMU's
//! `vfio-user-pci`, and [`serve::in_process`] describes clients in the same process.
#![forbid(unsafe_code)]

pub mod bar;
pub mod card;
pub mod dma;
pub mod engine;
pub mod ethernet;
pub mod fault;
pub mod firmware;
pub mod function;
mod lock;
pub mod objects;
pub mod pci;
pub mod profile;
pub mod serve;
pub mod steering;
pub mod strict;
mod table;
pub mod transport;
pub mod wire;
pub mod world;
