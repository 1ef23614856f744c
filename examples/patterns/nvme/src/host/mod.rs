//! The host: connects to subsystems, and gives them commands.

mod connector;
mod controller;
mod io;
mod queue;

pub use connector::{Host, HostOptions};
pub use controller::{Controller, ControllerOptions, Discovered};
pub use io::{IoQueue, Namespace};
pub use queue::{Completed, DataPlacement, Unfinished};
