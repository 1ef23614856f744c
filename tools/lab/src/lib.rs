//! The lab: boots Debian's own, unmodified Linux in QEMU and lets it judge the
//! software ConnectX and the driver.
//!
//! [`Lab::ready`] fetches QEMU, a kernel and the RDMA clients the first time it is called, into `<target dir>/lab`,
//! from the package mirror this machine's apt already uses. Nothing outside that folder is written and no privilege is
//! needed. [`Guest::builder`] boots a guest, [`Guest::run`] runs a command in it. [`headers`] fetches no more than the
//! C headers that judge the layouts, [`Aarch64::ready`] a compiler and an emulator for the other processor,
//! [`Tshark::ready`] a dissector, [`Scapy::ready`] another one, which knows the ICRC.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! let guest = mlx5_lab::Guest::builder("first").boot()?;
//! let pci = guest.check("lspci -nn", Duration::from_secs(10))?;
//! println!("{pci}");
//! guest.power_off()?;
//! # Ok::<(), mlx5_lab::GuestError>(())
//! ```
//!
//! Contract: no call panics, and every call ends: each wait has a deadline. A
//! guest is killed when its [`Guest`] is dropped, and powers itself off when the
//! process that started it disappears. At most two guests run at a time on a
//! machine; a third waits for its turn.
//!
//! Environment: `MLX5_LAB=skip`, at build time, sets the `cfg` `lab_skipped`, under which this package's tests are
//! ignored; `MLX5_LAB_LONG=1` asks tests for their long form ([`rounds`]); `MLX5_LAB_MIRROR=URI` names a Debian mirror
//! where the machine's apt names none.

#![forbid(unsafe_code)]

mod binaries;
mod cross;
mod error;
mod folder;
mod guest;
mod lab;
mod lock;
mod logs;
mod model;
mod process;
mod progress;
mod root;
mod scapy;
mod setup;
mod tshark;
mod verbs;

pub use binaries::{BinariesError, Build};
pub use cross::Aarch64;
pub use error::LabError;
pub use guest::{Evidence, Guest, GuestBuilder, GuestError, Job, KernelLog, KernelRecord, Output, ShellError};
pub use lab::{Headers, KernelHeaders, Lab, headers};
pub use logs::log_file;
pub use model::{Model, ModelError};
pub use scapy::Scapy;
pub use tshark::Tshark;
pub use verbs::verbs_program;

/// How often a test does what it repeats: `short`, or `long` if `MLX5_LAB_LONG=1` asks for the long form.
pub fn rounds(short: usize, long: usize) -> usize {
    let is_long = std::env::var_os("MLX5_LAB_LONG").is_some_and(|value| value == "1");
    if is_long { long } else { short }
}
