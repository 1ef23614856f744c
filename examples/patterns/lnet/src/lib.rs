//! Lustre's network driver for RDMA, o2iblnd, in user space: a pattern to copy.
//!
//! [`Lnet`] is an interface of a node on an LNet network. It connects to peers when there is something for them, takes
//! [`Payload`]s for its PUTs and GETs, and tells what peers want:
//!
//! ```no_run
//! use mlx5_dv::objects::{AccessFlags, MemoryRegion};
//! use mlx5_lnet::{Event, Lnet, Match, Options, Payload};
//!
//! # type Failure = Box<dyn std::error::Error>;
//! # fn f(device: &std::sync::Arc<mlx5_dv::Device>, neighbours: mlx5_neighbours::Neighbours) -> Result<(), Failure> {
//! let mut lnet = Lnet::new(device, Some(neighbours), Options::new("10.0.0.4@o2ib".parse()?))?;
//! let region = MemoryRegion::allocate(lnet.pd(), 1 << 20, AccessFlags::LOCAL_WRITE)?;
//! let payload = Payload::new(vec![region.buffer(0..1 << 20)?])?;
//! let fetched = lnet.get("10.0.0.1@o2ib".parse()?, Match { portal: 50, ..Match::default() }, payload)?;
//! loop {
//!     match lnet.poll()? {
//!         Some(Event::Done { transfer, payload, result }) if transfer == fetched => {
//!             println!("{} bytes are in {payload:?}", result?);
//!             return Ok(());
//!         }
//!         Some(Event::Incoming { request, .. }) => lnet.refuse(request, mlx5_lnet::status::ENOENT)?,
//!         _ => {}
//!     }
//! }
//! # }
//! ```
//!
//! # Contract
//! * Nothing that a peer sends causes a panic, or disturbs the connection of another.
//! * Nothing waits forever: what is under way for longer than [`Options::timeout`] fails with its connection.
//! * Memory of a transfer belongs to it until [`Event::Done`] or [`Event::Answered`] brings it back, then no peer
//!   reaches it any more.
//! * An [`Lnet`] belongs to one thread, and works only while it is polled.
//!
//! Everything here is safe code on [`mlx5_dv`]; it knows no work queue entries. README.md says what it does not do.
#![forbid(unsafe_code)]

mod credits;
mod keys;
mod net;
mod nid;
mod payload;
mod plan;

pub mod ping;
pub mod status;
pub mod wire;

pub use credits::CreditError;
pub use keys::KeyKind;
pub use net::{
    Event, Failure, Lnet, LnetError, Match, Options, PORT, PeerHealth, Refused, RefusedReason, RequestId, Statistics,
    TransferError, TransferId,
};
pub use nid::{BadNid, Nid};
pub use payload::{BadPayload, Payload, TRANSFER_BYTES};
pub use plan::PlanError;
