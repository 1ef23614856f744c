//! A software ConnectX: a PCI function that a driver cannot tell from a card by its registers, commands, queues and
//! packets, for tests and development without one.
//!
//! # Contract
//! * **Nobody's input panics.** What a client or the wire sends is checked before it is used. A driver's mistake
//!   becomes a command status, an error completion, an ignored access, and, where silicon would swallow it in silence,
//!   a [violation](strict::Violation) in the record of [strict mode](strict).
//! * **One thread.** A [`Card`](card::Card) has one device thread that owns all its [functions](function::Function).
//!   Everything else reaches them by messages through a [`FunctionHandle`](card::FunctionHandle), by stores to UAR
//!   pages, and by frames on the wire. There is no lock inside; [`Dma`](dma::Dma), [`Strict`](strict::Strict) and
//!   [`Faults`](fault::Faults) are shared, and say so.
//! * **Time.** The model reads no clock: a [`SteppedCard`](card::SteppedCard) is told the time with each step, and a
//!   [`World`](world::World) gives cards, cables and their clients virtual time on one thread, the same in every run of
//!   a seed. The device thread of a [`Card`](card::Card) goes by the wall clock. With work to do the thread spins;
//!   without, it yields for a moment, then sleeps up to a millisecond at a time. A doorbell is a plain store: no system
//!   call, and at worst that millisecond until it is seen.
//! * **Addresses.** All memory is reached by IOVA through what the client mapped, and only while bus mastering is on.
//! * **It is its own witness only.** It decodes with [`mlx5_prm`], as our driver does. That the layouts are a card's is
//!   judged elsewhere: by the C compiler on the kernel's headers, and by unmodified Linux driving this model.
//!
//! # Where to find what
//! | PRM chapter | module |
//! | --- | --- |
//! | PCI Express interface, MSI-X | [`pci`] |
//! | Initialization segment, UAR pages, doorbells | [`bar`] |
//! | Command interface, HCA bring-up, pages, health | [`firmware`], with the capabilities in [`profile`] |
//! | Objects: PD, MKEY, UMEM, EQ, CQ, QP, SQ, RQ | [`objects`] |
//! | Flow tables, receive side scaling | [`steering`] |
//! | WQEs, CQEs, EQEs: queues at work | [`engine`] |
//! | Transport: RoCE v2 packets | [`transport`] |
//! | Ports, Ethernet | [`wire`] |
//!
//! Data lies below, behaviour above, and imports run down only: serve, card, bar, firmware, engine, then what a
//! [`function`] is, its [`objects`], and what those are made of. `Function` owns all state of a PCI function; firmware
//! and engines own none.
//!
//! Beside the chapters: [`card`] (what to build, and the device thread), [`world`] (virtual time), [`dma`] (the
//! client's memory), [`serve`] (vfio-user, in process), [`fault`] (what can be made to go wrong), [`strict`] (what must
//! not).
//!
//! # First steps
//! [`Card::builder`](card::Card::builder) for a card, [`serve::vfio_user::serve`] for a socket that QEMU's
//! `vfio-user-pci` plugs in, [`serve::in_process`] for a client in the same process.
#![forbid(unsafe_code)]

pub mod bar;
pub mod card;
pub mod dma;
pub mod engine;
mod ethernet;
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
