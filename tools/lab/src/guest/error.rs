//! What can go wrong with a guest.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use crate::error::LabError;

/// What to look at when a guest misbehaves.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// The folder with the guest's logs.
    pub logs: PathBuf,
    /// The end of the console and of what QEMU said.
    pub tail: String,
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
    /// The lab is not there.
    #[error("the lab is not ready")]
    Lab(#[from] LabError),
    /// A value of the builder makes no sense.
    #[error("{what}")]
    Configuration {
        /// What is wrong with it.
        what: String,
    },
    /// QEMU does not start.
    #[error("cannot start QEMU")]
    Start(#[source] io::Error),
    /// The guest did not come up.
    #[error("the guest did not come up: {reason}; {evidence}")]
    Boot {
        /// What happened instead.
        reason: String,
        /// What to look at.
        evidence: Box<Evidence>,
    },
    /// The guest is gone: it panicked, powered off, or QEMU crashed.
    #[error("the guest ended while {doing}; {evidence}")]
    Ended {
        /// What was being done.
        doing: String,
        /// What to look at.
        evidence: Box<Evidence>,
    },
    /// A command took too long, and was killed.
    #[error(
        "`{command}` did not end within {} s and was killed; its output ends:\n{output}\n{evidence}",
        .after.as_secs_f32()
    )]
    Timeout {
        /// The command.
        command: String,
        /// The time it had.
        after: Duration,
        /// The end of its output.
        output: String,
        /// What to look at.
        evidence: Box<Evidence>,
    },
    /// A command failed that was not expected to.
    #[error("`{command}` ended with status {}; its output ends:\n{output}\n{evidence}", .status)]
    Failed {
        /// The command.
        command: String,
        /// Its exit status.
        status: i32,
        /// The end of its output.
        output: String,
        /// What to look at.
        evidence: Box<Evidence>,
    },
    /// The guest did not power off in time, and was killed.
    #[error("the guest did not power off; {evidence}")]
    PowerOff {
        /// What to look at.
        evidence: Box<Evidence>,
    },
    /// The connection to the guest broke.
    #[error("cannot talk to the guest")]
    Channel(#[source] io::Error),
}
