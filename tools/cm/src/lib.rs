//! RDMA connection manager over RoCE v2: connects queue pairs by IP address and port, as `rdma_cm` does, without a
//! kernel.
//!
//! [`ConnectionManager`] is one on a function that the program owns, by its queue pair 1:
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
//! [`Machine`] is the protocol (IBTA chapter 12, annex A11), without input and output: a function of messages, calls
//! and time. Messages are those of Linux's `rdma_cm`: the C compiler checks their layouts on the kernel's headers, and
//! `rping` on Linux's connection manager is the other end in the lab, in both roles. Datagram services (SIDR) are
//! checked only against this crate itself.
//!
//! # Contract
//! * No message causes a panic, and none changes a connection to another remote than its sender.
//! * Everything ends: each message that waits for an answer is sent again some times, then reported; a program that
//!   does not answer in time rejects. What is there is bounded by [`Config`].
//! * Private data comes padded with zeros to what a message has room for, as everywhere with this protocol.
//! * A [`ConnectionManager`] belongs to one thread at a time and has none of its own: it works while it is polled or
//!   waited for. Every wait has a deadline.
//!
//! Not supported: functions that the kernel's driver keeps (`devx:`), whose queue pair 1 is the kernel's; alternate
//! paths (LAP, APR are ignored), redirection, and service IDs other than those of IP ports.
#![forbid(unsafe_code)]

mod gsi;
mod machine;
mod manager;
mod message;

pub use machine::{Agreed, CallError, Config, ConnectionId, Event, Machine, Parameters, Path, Route, State, Transmit};
pub use manager::{ConnectionManager, ManagerError};
pub use message::{Gid, Malformed, Message, Service, address_of, gid_of};
pub use mlx5_prm::ib::{CmRejectReason, CmSidrStatus, CmTransport, RdmaPortSpace};
