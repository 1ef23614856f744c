//! A polled-mode userspace driver for ConnectX (mlx5) network cards.
//!
//! The driver brings a function up by firmware commands of its own, keeps queues in memory that the card reads and
//! writes, and rings the card's doorbells itself. After set-up no system call, no lock and no allocation is made per
//! message.
//!
//! # Contract
//! * Nothing here panics on what a device says: whatever is read from it is checked first.
//! * Every wait has a deadline. A card that died or vanished ends every wait with an error.
//! * [`access`], [`Device`] and the objects may be used from any thread; queues belong to one thread at a time.
//! * Control calls (open, create, modify, query, destroy) block and may allocate; [`queue`] does neither.
//! * Memory that the card may still write is never released: if it cannot be taken back, it is leaked.
//!
//! # Map
//! [`discovery`]: which cards there are, and device strings. [`access`]: how a function is reached, and bring-up.
//! [`Device`]: an opened card. [`memory`]: memory the card may use. [`objects`]: protection domains, keys, queues and
//! so on. [`queue`]: the hot path. [`clock`]: the time that waits go by.
//!
//! # Logs
//! By `tracing`, nothing of it on the hot path. Each firmware command is a span of target `mlx5_dv::command`, level
//! DEBUG (see [`access::trace`]); [`TracingDump`](access::trace::TracingDump) prints commands as events of the same
//! target. Each step of a queue pair from state to state is a span of target `mlx5_dv::qp`, level DEBUG, name
//! `transition`, around its command; its fields are `qpn`, `service`, `from`, `to` and, where it failed, `error`.
//! All else has its module as target: `mlx5_dv::access` for bring-up, events and what went wrong in the background,
//! `mlx5_dv::objects` for objects that could not be destroyed, `mlx5_dv::memory` for huge pages that were not to be
//! had. A death of the card is an ERROR, a feature done without a WARN.

// Waits go by the clock: see clippy.toml.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod access;
mod caps;
pub mod clock;
mod counters;
mod deadline;
mod device;
pub mod discovery;
mod error;
pub mod kernel;
mod lock;
pub mod memory;
mod net;
pub mod objects;
pub mod queue;

pub use access::Options;
pub use caps::{CapPage, Caps, RawPage};
pub use counters::{PortCounters, Traffic, VportCounters};
pub use device::Device;
pub use error::{CommandError, CommandErrorKind, CqStatus, Death, Error, Invalid, MappingKind, StateError};
pub use net::{Adapter, Gid, LinkInfo, Mac, MacError, PortInfo};
