//! Errors of guests.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use crate::error::LabError;

/// Logs of a guest, for error messages.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// The folder with the guest's logs.
    pub logs: PathBuf,
    /// The end of the console's and of QEMU's output.
    pub tail: String,
}

impl Evidence {
    /// Whether the kernel met a breakpoint that is not its own. While it rewrites instructions that processors run, it
    /// puts breakpoints there; with several processors on threads of their own, QEMU's emulator may run one that is
    /// gone already. It is rare, and happens on busy hosts.
    pub(super) fn shows_emulator_fault(&self) -> bool {
        self.tail.contains("Oops: int3")
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "logs in {}, ending:\n{}", self.logs.display(), self.tail)
    }
}

/// Why a guest could not be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GuestError {
    /// The lab is not set up.
    #[error("the lab is not ready")]
    Lab(#[from] LabError),
    /// An invalid value in the configuration.
    #[error("{what}")]
    Configuration {
        /// What is wrong with it.
        what: String,
    },
    /// QEMU does not start.
    #[error("cannot start QEMU")]
    Start(#[source] io::Error),
    /// The guest did not boot.
    #[error("the guest did not come up: {reason}; {evidence}")]
    Boot {
        /// The cause.
        reason: String,
        /// Its logs.
        evidence: Box<Evidence>,
    },
    /// The guest has ended: it panicked, powered off, or QEMU crashed.
    #[error("the guest ended while {doing}; {evidence}")]
    Ended {
        /// What was being done.
        doing: String,
        /// Its logs.
        evidence: Box<Evidence>,
    },
    /// A command took too long and was killed.
    #[error(
        "`{command}` did not end within {} s and was killed; its output ends:\n{output}\n{evidence}",
        .after.as_secs_f32()
    )]
    Timeout {
        /// The command.
        command: String,
        /// Its time limit.
        after: Duration,
        /// The end of its output.
        output: String,
        /// The guest's logs.
        evidence: Box<Evidence>,
    },
    /// A command that must succeed failed.
    #[error("`{command}` ended with status {}; its output ends:\n{output}\n{evidence}", .status)]
    Failed {
        /// The command.
        command: String,
        /// Its exit status.
        status: i32,
        /// The end of its output.
        output: String,
        /// The guest's logs.
        evidence: Box<Evidence>,
    },
    /// The guest did not power off in time and was killed.
    #[error("the guest did not power off; {evidence}")]
    PowerOff {
        /// Its logs.
        evidence: Box<Evidence>,
    },
    /// The connection to the guest broke.
    #[error("cannot talk to the guest")]
    Channel(#[source] io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_breakpoint_of_nobody_is_the_emulators_fault() {
        let evidence = |tail: &str| Evidence { logs: PathBuf::new(), tail: tail.to_owned() };
        assert!(evidence("[console]\n[    4.66] Oops: int3: 0000 [#1] PREEMPT SMP NOPTI\n").shows_emulator_fault());
        assert!(!evidence("[console]\n[    4.66] Oops: general protection fault\n").shows_emulator_fault());
    }
}
