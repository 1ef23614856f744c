//! The lab boots unmodified Debian Linux in QEMU, as an independent check of the software ConnectX and the driver.
//!
//! [`Lab::ready`] fetches QEMU, a kernel and RDMA clients the first time, into `<target dir>/lab`, from the package
//! mirror that this machine's apt uses. It writes nothing outside that folder and needs no privileges.
//! [`Guest::builder`] boots a guest, [`Guest::run`] runs a command in it. [`headers`] fetches only the C headers
//! against which layouts are checked, [`Aarch64::ready`] a compiler and an emulator for aarch64, [`Tshark::ready`] a
//! packet dissector, [`Scapy::ready`] another one, which checks ICRCs.
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
//! Contract: no call panics, and every wait has a deadline. A guest is killed when its [`Guest`] is dropped, and powers
//! itself off when the process that started it disappears. At most two guests run at a time on a machine; a third one
//! waits.
//!
//! Environment: `MLX5_LAB=skip`, at build time, sets the `cfg` `lab_skipped`, with which this package's tests are
//! ignored. `MLX5_LAB_LONG=1` selects the long form of tests ([`rounds`]). `MLX5_LAB_MIRROR=URI` names a Debian mirror
//! if the machine's apt has none.

#![forbid(unsafe_code)]

mod binaries;
pub mod ceph;
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
mod software;
mod tshark;
mod verbs;

pub use binaries::{BinariesError, Build};
pub use cross::Aarch64;
pub use error::LabError;
pub use guest::{Evidence, Guest, GuestBuilder, GuestError, Job, KernelLog, KernelRecord, Output, Paused, ShellError};
pub use lab::{Headers, KernelHeaders, Lab, headers, set_up};
pub use logs::log_file;
pub use model::{Model, ModelError};
pub use scapy::Scapy;
pub use software::Software;
pub use tshark::Tshark;
pub use verbs::verbs_program;

/// Number of repetitions of a test: `short`, or `long` with `MLX5_LAB_LONG=1`.
pub fn rounds(short: usize, long: usize) -> usize {
    let is_long = std::env::var_os("MLX5_LAB_LONG").is_some_and(|value| value == "1");
    if is_long { long } else { short }
}
