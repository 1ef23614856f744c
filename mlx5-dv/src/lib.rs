//! A polled-mode userspace driver for ConnectX (mlx5) network cards.
//!
//! The driver brings a function up by its own firmware commands, keeps queues in memory that the card reads and writes,
//! and rings the doorbells itself. After set-up, messages need no system call, lock or allocation.
//!
//! # Contract
//! * The crate never panics because of data from a device: everything read from it is checked first.
//! * Every wait has a deadline. A dead or removed card ends every wait with an error.
//! * [`access`], [`Device`] and the objects may be used from any thread; a queue belongs to one thread at a time.
//! * Control calls (open, create, connect, modify, query, destroy) block and may allocate; posting, ringing doorbells
//!   and polling do neither.
//! * Memory that the card may still write is never freed: if it cannot be unmapped, it is leaked.
//!
//! # Map
//! [`discovery`]: lists cards and parses device strings. [`access`]: how a function is reached, and bring-up.
//! [`Device`]: an open card. [`memory`]: DMA memory. [`objects`]: protection domains, keys, queues and so on.
//! [`queue`]: the hot path. [`clock`]: the clock of all waits.
//!
//! # Logs
//! Logging uses `tracing`, and never on the hot path. Each firmware command is a span: target `mlx5_dv::command`, level
//! DEBUG (see [`access::trace`]); [`TracingDump`](access::trace::TracingDump) prints commands as events of the same
//! target. Each state transition of a queue pair is a span around its command: target `mlx5_dv::qp`, level DEBUG, name
//! `transition`, fields `qpn`, `service`, `from`, `to` and, after a failure, `error`. All other events have their
//! module as target: `mlx5_dv::access` for bring-up, events and background failures, `mlx5_dv::objects` for objects
//! that could not be destroyed, `mlx5_dv::queue` for queues that could not be reset, `mlx5_dv::memory` for missing huge
//! pages. The death of a card is an ERROR; a feature that is not available is a WARN.
//!
//! # Features
//! `serde`: [`queue::Peer`] and [`queue::RemoteAddress`] implement serde's traits, by their text or their bytes.

// Waits use the clock: see clippy.toml.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod access;
mod caps;
pub mod clock;
mod counters;
mod deadline;
mod device;
pub mod discovery;
mod error;
mod events;
pub mod kernel;
mod lock;
pub mod memory;
mod net;
pub mod objects;
pub mod queue;
#[cfg(feature = "serde")]
mod serde_form;
mod setters;
mod timestamp;

pub use access::Options;
pub use caps::{AtomicOrder, CapPage, Caps, RawPage};
pub use counters::{PcieCounters, PortCounters, Traffic, VportCounters};
pub use device::Device;
pub use error::{CommandError, CommandErrorKind, CqStatus, Death, Error, Invalid, MappingKind, StateError};
pub use events::{Event, EventQueue, Events};
pub use net::{Adapter, AddressError, Gid, LinkInfo, Mac, MacError, PortInfo, Promiscuous, address_of, gid_of};
pub use timestamp::{ClockRate, RealTime, Timestamp};
