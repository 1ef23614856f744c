//! RDMA connection manager over RoCE v2: connects queue pairs by IP address and port, as `rdma_cm` does, without a
//! kernel.
//!
//! [`Machine`] is the protocol (IBTA chapter 12, annex A11), without input and output: a function of messages, calls
//! and time.
//! Messages are those of Linux's `rdma_cm`: the C compiler checks their layouts on the kernel's headers. A run against
//! Linux's connection manager is still to be made.
//!
//! # Contract
//! * No message causes a panic, and none changes a connection to another remote than its sender.
//! * Everything ends: each message that waits for an answer is sent again some times, then reported; a program that
//!   does not answer in time rejects. What is there is bounded by [`Config`].
//! * Private data comes padded with zeros to what a message has room for, as everywhere with this protocol.
//!
//! Not supported: alternate paths (LAP, APR are ignored), redirection, and service IDs other than those of IP ports.
#![forbid(unsafe_code)]

mod machine;
mod message;

pub use machine::{Agreed, CallError, Config, ConnectionId, Event, Machine, Parameters, Path, Route, State, Transmit};
pub use message::{Gid, Malformed, Message, Service, address_of, gid_of};
pub use mlx5_prm::ib::{CmRejectReason, CmSidrStatus, CmTransport, RdmaPortSpace};
