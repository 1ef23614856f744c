//! Errors of the control path.

use std::io;
use std::ops::RangeInclusive;
use std::time::Duration;

use mlx5_prm::cmd::{CmdStatus, DeliveryStatus, Opcode};
use mlx5_prm::init_seg::HealthSyndrome;
use mlx5_prm::values::QpState;

mod invalid;
#[cfg(test)]
mod tests;

pub use invalid::{Invalid, MappingKind};

/// Any failure of a control call. The message is one sentence and contains the fix, if there is one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A string that is not a device string.
    #[error(transparent)]
    DeviceName(#[from] crate::discovery::DeviceNameError),
    /// A firmware command failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The device cannot be opened.
    #[error("cannot open {device}: {reason}{}", fix_text(fix))]
    Refused {
        /// The device string.
        device: String,
        /// The obstacle.
        reason: String,
        /// The command that removes it, if there is one.
        fix: Option<String>,
        /// The system error.
        #[source]
        source: Option<io::Error>,
    },
    /// A system call, or a request to the device's server, failed.
    #[error("{doing} failed")]
    Io {
        /// The operation.
        doing: String,
        /// The system error.
        #[source]
        source: io::Error,
    },
    /// Memory could not be allocated or mapped for the device.
    #[error("{reason}{}", fix_text(fix))]
    Memory {
        /// What was requested, and why it failed.
        reason: String,
        /// The command that fixes it, if there is one.
        fix: Option<String>,
        /// The system error.
        #[source]
        source: Option<io::Error>,
    },
    /// The card lacks a capability.
    #[error("the card cannot do this: {what} (capability {capability})")]
    Unsupported {
        /// The requested feature.
        what: String,
        /// PRM name of the missing capability.
        capability: &'static str,
    },
    /// The queue pair's state does not allow the call.
    #[error(transparent)]
    State(#[from] StateError),
    /// A completion queue failed: it reports no more completions. Destroy it and its queue pairs.
    #[error("CQ {cqn:#x} is broken: {status:?}")]
    CompletionQueue {
        /// Its number.
        cqn: u32,
        /// Its status.
        status: CqStatus,
    },
    /// An invalid argument.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The device returned an invalid response.
    #[error("invalid response from device: {what} is {given:#x}{}{}", limit_text(limit), detail_text(detail))]
    InvalidResponse {
        /// The PRM name of the response field, or what was counted.
        what: &'static str,
        /// Its value.
        given: u64,
        /// The accepted range, if there is one.
        limit: Option<RangeInclusive<u64>>,
        /// Further details, and what to do; may be empty.
        detail: String,
    },
    /// The card missed a deadline.
    #[error("{what} took longer than {} ms", limit.as_millis())]
    Timeout {
        /// What was waited for.
        what: String,
        /// The time limit.
        limit: Duration,
    },
    /// The card is dead or gone.
    #[error(transparent)]
    Dead(#[from] Death),
    /// Not implemented in this version.
    #[error("{what} is not implemented; {instead}")]
    NotImplemented {
        /// The requested feature.
        what: String,
        /// What to use instead.
        instead: String,
    },
}

fn fix_text(fix: &Option<String>) -> String {
    fix.as_ref().map_or_else(String::new, |fix| format!("; to fix it: {fix}"))
}

fn limit_text(limit: &Option<RangeInclusive<u64>>) -> String {
    limit.as_ref().map_or_else(String::new, |limit| match limit.clone().into_inner() {
        (least, most) if least == most => format!(", and must be {least:#x}"),
        (least, u64::MAX) => format!(", and must be at least {least:#x}"),
        (least, most) => format!(", and must be {least:#x} to {most:#x}"),
    })
}

fn detail_text(detail: &str) -> String {
    if detail.is_empty() { String::new() } else { format!(": {detail}") }
}

/// Why a card stopped responding. Once known, it ends every wait.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Death {
    /// Registers read as all ones: the card was removed, lost its link, or is in reset.
    #[error("the card vanished: its registers read as all ones; check the slot and `dmesg`, then open it again")]
    Vanished,
    /// The health buffer reports a fatal syndrome.
    #[error(
        "the card's firmware failed: health syndrome {syndrome} (ext_synd {ext_synd:#x}); reset the card and open it again"
    )]
    Health {
        /// `synd` of the health buffer.
        syndrome: HealthSyndrome,
        /// `ext_synd` of the health buffer.
        ext_synd: u16,
    },
    /// The card disabled the function.
    #[error("the card disabled the function (nic_interface); reset the card and open it again")]
    Disabled,
    /// The health counter stopped.
    #[error(
        "the card's health counter stood still for {} ms: its firmware stopped, or a software card got no CPU time; \
         reset the card and open it again",
        after.as_millis()
    )]
    CounterStill {
        /// How long it has not changed.
        after: Duration,
    },
    /// The bus reported an error of the card that cannot be corrected.
    #[error(
        "the bus reported an error of the card that cannot be corrected (PCI Express AER); check `dmesg`, then open it \
         again"
    )]
    BusError,
    /// The kernel's driver released the device.
    #[error(
        "the kernel's driver released the card (unbound, removed or in recovery); check `dmesg`, then open it again"
    )]
    Released,
    /// The server of the device ended.
    #[error("the device's server is gone ({reason}); start it again, then open the device again")]
    ServerGone {
        /// The error of the connection.
        reason: String,
    },
    /// The device was closed during a wait.
    #[error("the device was closed")]
    Closed,
    /// The card is dead, but may still read and write memory: its buffers are not given back, and their memory is not
    /// freed.
    #[error("{cause}; its DMA could not be stopped ({reason}), so the memory that it has is not freed")]
    NotStopped {
        /// Why it is dead.
        cause: Box<Death>,
        /// Why its DMA could not be stopped.
        reason: String,
    },
}

impl Death {
    /// Whether what the card was given may be freed.
    fn frees_memory(&self) -> bool {
        !matches!(self, Death::NotStopped { .. })
    }

    /// `ServerGone` if `error` means that the server's connection is lost, rather than that a request failed.
    pub(crate) fn connection_lost(error: &io::Error) -> Option<Self> {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, NotConnected, TimedOut, UnexpectedEof};
        let lost = matches!(error.kind(), BrokenPipe | ConnectionReset | NotConnected | TimedOut | UnexpectedEof);
        lost.then(|| Death::ServerGone { reason: error.to_string() })
    }
}

/// A failed firmware command.
#[derive(Debug, thiserror::Error)]
#[error("{opcode}{} failed: {kind}", about(*op_mod, object))]
pub struct CommandError {
    /// The command.
    pub opcode: Opcode,
    /// Its `op_mod`.
    pub op_mod: u16,
    /// The object that it concerned, such as `CQ 0x43`; may be empty.
    pub object: String,
    /// The cause.
    pub kind: CommandErrorKind,
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommandErrorKind {
    /// Firmware returned an error status.
    #[error("status {status} ({:#x}), syndrome {syndrome:#x}: {}{}", status.number(), status.meaning(), because(reason))]
    Status {
        /// `status` of the output.
        status: CmdStatus,
        /// `syndrome` of the output: firmware's number for the cause.
        syndrome: u32,
        /// Fields of the command that exceed the card's capabilities; empty if that explains nothing.
        reason: String,
    },
    /// The command was not delivered to firmware.
    #[error("not delivered: {} ({:#x})", .0, .0.number())]
    Delivery(DeliveryStatus),
    /// The reply carries another command's token or a wrong signature.
    #[error("the reply is damaged: {0}")]
    Damaged(String),
    /// No reply before the deadline.
    #[error("no reply within {} ms; its slot stays quarantined until firmware replies", .0.as_millis())]
    Timeout(Duration),
    /// No slot became free before the deadline.
    #[error("no command slot became free within {} ms: earlier commands got no reply", .0.as_millis())]
    NoSlot(Duration),
    /// The card is dead or gone.
    #[error("{0}")]
    Dead(#[source] Death),
    /// Reaching the card failed: a system call, or memory for mailboxes.
    #[error("{doing} failed")]
    Io {
        /// The operation.
        doing: String,
        /// The system error.
        #[source]
        source: io::Error,
    },
    /// The command or its reply has an invalid length.
    #[error("{0}")]
    Length(String),
}

fn about(op_mod: u16, object: &str) -> String {
    let op_mod = if op_mod == 0 { String::new() } else { format!(" (op_mod {op_mod:#x})") };
    let object = if object.is_empty() { String::new() } else { format!(" of {object}") };
    op_mod + &object
}

fn because(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!("; beyond its capabilities: {reason}") }
}

impl CommandError {
    /// Firmware's status, if it returned one.
    pub fn status(&self) -> Option<CmdStatus> {
        match self.kind {
            CommandErrorKind::Status { status, .. } => Some(status),
            _ => None,
        }
    }

    /// Whether the card is dead or gone.
    pub fn is_dead(&self) -> bool {
        matches!(self.kind, CommandErrorKind::Dead(_))
    }

    /// Whether the card may have carried the command out, though it has not replied: what the command named must not
    /// be freed.
    pub(crate) fn may_be_done(&self) -> bool {
        self.status().is_none() && !self.frees_memory()
    }

    /// Whether the card is dead, and its DMA has stopped: what it was given may be freed.
    pub(crate) fn frees_memory(&self) -> bool {
        matches!(&self.kind, CommandErrorKind::Dead(death) if death.frees_memory())
    }
}

impl Error {
    /// An invalid response: `what` is `given`, not in `limit`; `detail` adds what is known.
    pub(crate) fn response(
        what: &'static str,
        given: u64,
        limit: impl Into<Option<RangeInclusive<u64>>>,
        detail: impl Into<String>,
    ) -> Self {
        Error::InvalidResponse { what, given, limit: limit.into(), detail: detail.into() }
    }

    /// `source` occurred while `doing`. Whatever its kind, it says nothing about the card.
    pub fn io(doing: impl Into<String>, source: io::Error) -> Self {
        Error::Io { doing: doing.into(), source }
    }

    /// `source` is what the device, or the server that it is in, answered while `doing`: a `Death` if the server is
    /// gone.
    pub(crate) fn of_device(doing: impl Into<String>, source: io::Error) -> Self {
        match Death::connection_lost(&source) {
            Some(death) => Error::Dead(death),
            None => Error::io(doing, source),
        }
    }

    /// Whether the card is dead or gone.
    pub fn is_dead(&self) -> bool {
        match self {
            Error::Dead(_) => true,
            Error::Command(error) => error.is_dead(),
            _ => false,
        }
    }

    /// See [`CommandError::may_be_done`].
    pub(crate) fn may_be_done(&self) -> bool {
        matches!(self, Error::Command(error) if error.may_be_done())
    }

    /// Whether the card is dead, and its DMA has stopped: what it was given may be freed.
    pub(crate) fn frees_memory(&self) -> bool {
        match self {
            Error::Dead(death) => death.frees_memory(),
            Error::Command(error) => error.frees_memory(),
            _ => false,
        }
    }
}

/// A call that the queue pair's state does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("QP {qpn:#x} is in {state}, and {call} needs {wanted}{}", missing(missing_calls))]
pub struct StateError {
    /// Its number.
    pub qpn: u32,
    /// Its state.
    pub state: QpState,
    /// The call.
    pub call: &'static str,
    /// The state, or states, that the call requires.
    pub wanted: &'static str,
    /// The calls, with their arguments, that lead to that state; empty if only a reset helps.
    pub missing_calls: &'static [&'static str],
}

fn missing(calls: &[&str]) -> String {
    if calls.is_empty() { String::new() } else { format!("; first call {}", calls.join(", then ")) }
}

/// Status of a completion queue. PRM `cqc.status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CqStatus {
    /// Working.
    Ok,
    /// Overflow: a completion arrived while it was full. The completion is lost and the queue is unusable.
    Overflow,
    /// The card could not write a CQE.
    WriteFailure,
    /// A status not known here.
    Unknown(u8),
}
