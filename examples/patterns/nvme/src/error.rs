//! Errors.

use std::net::SocketAddr;
use std::time::Duration;

use mlx5_cm::{CmRejectReason, ManagerError};
use mlx5_dv::queue::{RefusedReason, WorkError};

use crate::buffer::IoBuffer;
use crate::status::Status;
use crate::wire::CmStatus;

/// What a [`Host`](crate::Host), its controllers and queues may fail with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The card, or the driver, failed.
    #[error(transparent)]
    Device(#[from] mlx5_dv::Error),
    /// The connection manager failed.
    #[error(transparent)]
    Manager(#[from] ManagerError),
    /// A work request was not posted.
    #[error("queue {queue}: {reason}")]
    Post {
        /// The queue.
        queue: u16,
        /// Why.
        reason: RefusedReason,
    },
    /// The target refuses a queue.
    #[error("{remote} refuses queue {queue}: {}", refusal(.reason, .status))]
    Rejected {
        /// The queue.
        queue: u16,
        /// The target.
        remote: SocketAddr,
        /// The connection manager's reason.
        reason: CmRejectReason,
        /// The target's own reason.
        status: Option<CmStatus>,
    },
    /// The target does not answer.
    #[error("{remote} does not answer: is a target listening there, and is the network up?")]
    Unreachable {
        /// The target.
        remote: SocketAddr,
    },
    /// A command was not answered in time.
    #[error("queue {queue}: no answer to {command} within {} s", .after.as_secs_f64())]
    Timeout {
        /// The queue.
        queue: u16,
        /// The command.
        command: &'static str,
        /// The time limit.
        after: Duration,
    },
    /// The target failed a command of the set-up.
    #[error("{command} failed: {status}{hint}")]
    Failed {
        /// The command.
        command: &'static str,
        /// How.
        status: Status,
        /// What else the target says.
        hint: String,
    },
    /// A command of the set-up was not submitted.
    #[error("{command} was not submitted: {reason}")]
    NotSubmitted {
        /// The command.
        command: &'static str,
        /// Why.
        reason: SubmitError,
    },
    /// An invalid option.
    #[error("{what} is {given}: it must be {least} to {most}")]
    Option {
        /// The option.
        what: &'static str,
        /// Its value.
        given: u64,
        /// The minimum.
        least: u64,
        /// The maximum.
        most: u64,
    },
    /// A work request failed: the queue's connection is broken. Connect again.
    #[error("queue {queue} is broken: {error}")]
    Broken {
        /// The queue.
        queue: u16,
        /// The first failure.
        error: WorkError,
    },
    /// The target has ended the connection. Connect again.
    #[error("queue {queue}: the target has disconnected")]
    Disconnected {
        /// The queue.
        queue: u16,
    },
    /// The target sent an invalid message.
    #[error("queue {queue}: the target broke the protocol: {what}")]
    Protocol {
        /// The queue.
        queue: u16,
        /// What it did.
        what: String,
    },
    /// The target cannot do what is needed.
    #[error("the target cannot serve this host: {what}")]
    Unsupported {
        /// What it lacks.
        what: &'static str,
    },
    /// All I/O queues that the target gives are in use.
    #[error("the target gives {granted} I/O queues, and all are in use")]
    NoMoreQueues {
        /// Queues that it gives.
        granted: u16,
    },
}

impl HostError {
    /// Whether this end's card is dead or gone: connecting again by it is in vain.
    pub fn is_dead_device(&self) -> bool {
        matches!(self, HostError::Device(error) | HostError::Manager(ManagerError::Device(error)) if error.is_dead())
    }
}

fn refusal(reason: &CmRejectReason, status: &Option<CmStatus>) -> String {
    match status {
        Some(status) => format!("{status} (connection manager: {reason})"),
        None => reason.to_string(),
    }
}

/// A command that was not submitted, with its buffer.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct Refused {
    /// The buffer, back again.
    pub buffer: Option<IoBuffer>,
    /// Why.
    pub reason: SubmitError,
}

/// Why a command was not submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// As many commands as the queue has room for are under way: poll first.
    #[error("all {depth} commands of queue {queue} are under way: poll first")]
    Full {
        /// The queue.
        queue: u16,
        /// Its depth.
        depth: usize,
    },
    /// The connection is broken or ended.
    #[error("the connection of queue {queue} is broken: connect again")]
    Broken {
        /// The queue.
        queue: u16,
    },
    /// The buffer's length is not what the command can transfer.
    #[error("{len} bytes: a transfer has whole blocks of {block} bytes, and {most} bytes at most")]
    Length {
        /// Bytes of the buffer.
        len: usize,
        /// Bytes of a logical block.
        block: u32,
        /// Longest transfer in bytes.
        most: usize,
    },
    /// More blocks than a command can name, or none.
    #[error("{blocks} blocks: a command names 1 to 65536")]
    Blocks {
        /// Blocks.
        blocks: u32,
    },
    /// The buffer's region does not let the remote in.
    #[error("the buffer's region does not grant the remote {0}; register it so, or use DataPlacement::FastKey")]
    Access(&'static str),
    /// The work request was refused.
    #[error(transparent)]
    Post(#[from] RefusedReason),
}

/// Errors of [`Target`](crate::Target).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// The card, or the driver, failed.
    #[error(transparent)]
    Device(#[from] mlx5_dv::Error),
    /// The connection manager failed.
    #[error(transparent)]
    Manager(#[from] ManagerError),
    /// An invalid option.
    #[error("{what} is {given}: {mend}")]
    Option {
        /// The option.
        what: &'static str,
        /// Its value.
        given: String,
        /// What it must be.
        mend: &'static str,
    },
    /// A disk could not be opened.
    #[error("{path}: {error}")]
    Disk {
        /// Its file.
        path: String,
        /// Why.
        error: std::io::Error,
    },
}
