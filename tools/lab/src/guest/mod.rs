//! A Linux guest and the commands that run in it.

mod builder;
mod channel;
mod error;
mod initramfs;
mod kernel_log;
mod logs;
mod monitor;
mod qemu;
mod running;

pub use builder::{GuestBuilder, ShellError};
pub use error::{Evidence, GuestError};
pub use kernel_log::{KernelLog, KernelRecord};
pub use running::{Guest, Job, Output, Paused};
