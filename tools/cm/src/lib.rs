//! RDMA connection manager over RoCE v2: connects queue pairs by IP address and port, as `rdma_cm` does.
//!
//! [`ConnectionManager`] is the same for all functions. On one that the program owns it speaks the protocol itself, on
//! queue pair 1, without a kernel. On one of the kernel's (`devx:`) the kernel does, by `/dev/infiniband/rdma_cm`
//! (`modprobe rdma_ucm`).
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use mlx5_cm::{ConnectionManager, Event, Parameters, Route};
//! use mlx5_dv::objects::Pd;
//! use mlx5_dv::queue::{Connection, ConnectionOptions};
//!
//! # type Failure = Box<dyn std::error::Error>;
//! # fn f(device: &std::sync::Arc<mlx5_dv::Device>, neighbours: mlx5_neighbours::Neighbours) -> Result<(), Failure> {
//! let mut manager = ConnectionManager::new(device, Some(neighbours))?;
//! let mut connection = Connection::new(&Pd::alloc(device)?, ConnectionOptions::default())?;
//! let parameters = Parameters::new(connection.queue_pair().qpn(), 0).private_data(b"hello");
//! manager.connect("10.0.0.3:7174".parse()?, Route::default(), &parameters)?;
//! let (id, event) = manager.wait(Duration::from_secs(30))?;
//! if let Event::ConnectResponse { .. } = event {
//!     let (rtr, rts) = manager.attributes(id)?;
//!     connection.connect_by(&rtr, &rts)?;
//!     manager.ready(id, &[])?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`Machine`] is the protocol (IBTA chapter 12, annex A11), without input and output: its state depends only on
//! messages, calls and time. Messages are those of Linux's `rdma_cm`: the C compiler checks their layouts against the
//! kernel's headers, and in the lab `rping`, `ucmatose` and `udaddy` on Linux's connection manager are the other end,
//! in both roles.
//!
//! [`poll`](ConnectionManager::poll) never blocks; [`fd`](ConnectionManager::fd) and
//! [`prepare_sleep`](ConnectionManager::prepare_sleep) are for loops that sleep on several descriptors. [`Group`] joins
//! a multicast group.
//!
//! # Contract
//! * No message causes a panic. A message only changes connections to its sender.
//! * Nothing waits forever: a message without an answer is retransmitted a limited number of times, then reported; a
//!   request that the program does not answer in time is rejected. [`Config`] limits the number of connections and
//!   requests.
//! * Received private data is padded with zeros to the size of its field, as the protocol does not carry its length.
//! * A [`ConnectionManager`] is used by one thread at a time and has no thread of its own: it only works during `poll`
//!   and `wait`. Every wait has a deadline.
//!
//! Not supported: alternate paths (LAP and APR are ignored); redirection; service IDs other than those of IP ports. On
//! `devx:` the kernel's interface has no private data in RTU, DREQ and DREP, no reasons of rejection but the program's,
//! no UC, and no choice of path MTU, hop limit and service level: the calls say so.
#![forbid(unsafe_code)]

mod error;
mod group;
mod gsi;
mod kernel;
mod machine;
mod manager;
mod message;
mod owned;
mod path;

pub use error::ManagerError;
pub use group::{Group, UDP_QKEY};
pub use machine::{Agreed, CallError, Config, ConnectionId, Event, Machine, Parameters, Path, Route, State, Transmit};
pub use manager::ConnectionManager;
pub use message::{Gid, Malformed, Message, Service, address_of, gid_of};
pub use mlx5_prm::ib::{CmRejectReason, CmSidrStatus, CmTransport, RdmaPortSpace};
