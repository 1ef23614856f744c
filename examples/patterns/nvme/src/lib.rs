//! NVMe over RDMA in user space: a host (initiator) and a target, a pattern to copy.
//!
//! [`Host`] connects to a subsystem of any target, such as Linux's `nvmet-rdma`; each of its [`IoQueue`]s belongs to
//! one thread, which submits and polls without a system call. [`Target`] serves namespaces to any host, such as
//! Linux's `nvme-rdma`.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use mlx5_nvme::{ControllerOptions, Host, HostOptions};
//!
//! # type Failure = Box<dyn std::error::Error>;
//! # fn f(device: &std::sync::Arc<mlx5_dv::Device>, neighbours: mlx5_neighbours::Neighbours) -> Result<(), Failure> {
//! let mut host = Host::new(device, Some(neighbours), HostOptions::default())?;
//! let mut controller = host.connect("10.0.0.1:4420".parse()?, "nqn.2014-08.example:disk", ControllerOptions::default())?;
//! let namespace = controller.namespaces(&mut host)?.first().copied().ok_or("no namespace")?;
//! let mut queue = controller.io_queue(&mut host)?;
//! let mut buffers = queue.buffers(1, 4096)?;
//! let mut buffer = buffers.pop().ok_or("a buffer")?;
//! buffer.write(0, b"hello");
//! queue.write(&namespace, 0, buffer, 1)?;
//! let done = queue.wait(Duration::from_secs(1))?;
//! assert!(done.status.is_success());
//! # Ok(())
//! # }
//! ```
//!
//! # What it shows
//! * Queues connected by the RDMA connection manager ([`mlx5_cm`]), with private data of their own.
//! * Data where the remote finds it: in the capsule, by a standing key, or by a key registered for each I/O
//!   ([`DataPlacement`]), which the remote invalidates with its answer.
//! * Ownership: a buffer belongs to the queue from submission to completion, and comes back with it, also when the
//!   connection breaks.
//! * A target whose memory is bounded: a command waits while there are no chunks for its data.
//!
//! Everything here is safe code on [`mlx5_dv`]; it knows no work queue entries.
//!
//! Not supported: authentication, TLS, metadata and protection information, reservations, several SGL descriptors, and
//! asymmetric namespace access.
#![forbid(unsafe_code)]

mod buffer;
mod error;
mod host;
mod link;
mod status;
mod target;

pub mod wire;

pub use buffer::{HEADROOM, IoBuffer};
pub use error::{HostError, Refused, SubmitError, TargetError};
pub use host::{
    Completed, Controller, ControllerOptions, DataPlacement, Discovered, Host, HostOptions, IoQueue, Namespace,
    Unfinished,
};
pub use mlx5_files::FileQueue;
pub use status::Status;
pub use target::{Disk, FileDisk, RamDisk, Target, TargetOptions, TargetStatistics};
pub use wire::DISCOVERY;

/// The port that NVMe over RDMA has by default.
pub const PORT: u16 = wire::port::NVME;
