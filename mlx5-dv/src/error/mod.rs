//! What can go wrong on the control path, as values.

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

/// Any failure of a control call. Its display is one sentence, with the fix in it where there is one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A device string that names nothing.
    #[error(transparent)]
    DeviceName(#[from] crate::discovery::DeviceNameError),
    /// A firmware command failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The device cannot be reached.
    #[error("cannot open {device}: {reason}{}", fix_text(fix))]
    Refused {
        /// The device string.
        device: String,
        /// What stands in the way.
        reason: String,
        /// The line that removes it, where there is one.
        fix: Option<String>,
        /// The system's own error.
        #[source]
        source: Option<io::Error>,
    },
    /// A system call or a message to the device's server failed.
    #[error("{doing} failed")]
    Io {
        /// What was being done.
        doing: String,
        /// The system's own error.
        #[source]
        source: io::Error,
    },
    /// Memory could not be had or shown to the device.
    #[error("{reason}{}", fix_text(fix))]
    Memory {
        /// What was asked for, and why it is not to be had.
        reason: String,
        /// The line that makes room.
        fix: Option<String>,
        /// The system's own error.
        #[source]
        source: Option<io::Error>,
    },
    /// The card lacks a capability.
    #[error("the card cannot do this: {what} (capability {capability})")]
    Unsupported {
        /// What was asked for.
        what: String,
        /// The PRM name of the capability that would allow it.
        capability: &'static str,
    },
    /// The state of a queue pair forbids the call.
    #[error(transparent)]
    State(#[from] StateError),
    /// A completion queue is broken: no completion will come any more. Destroy it and its queue pairs.
    #[error("CQ {cqn:#x} is broken: {status:?}")]
    CompletionQueue {
        /// Its number.
        cqn: u32,
        /// What the card says of it.
        status: CqStatus,
    },
    /// An argument that can never work.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The device answered what it must not.
    #[error("invalid response from device: {what} is {given:#x}{}{}", limit_text(limit), detail_text(detail))]
    InvalidResponse {
        /// The field of the response, by its PRM name, or what was counted.
        what: &'static str,
        /// Its value.
        given: u64,
        /// What this driver accepts, where that is a range.
        limit: Option<RangeInclusive<u64>>,
        /// What else is known, and what to do; may be empty.
        detail: String,
    },
    /// The card did not become ready in time.
    #[error("{what} took longer than {} ms", limit.as_millis())]
    Timeout {
        /// What was waited for.
        what: String,
        /// How long.
        limit: Duration,
    },
    /// The card is dead or gone.
    #[error(transparent)]
    Dead(#[from] Death),
    /// Not part of this version.
    #[error("{what} is not built yet; {instead}")]
    NotBuilt {
        /// What was asked for.
        what: String,
        /// What to do today.
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

/// Why a card no longer answers. Once known, every wait ends with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Death {
    /// Registers read as all ones: the card was unplugged, lost its link, or is in reset.
    #[error("the card vanished: its registers read as all ones; check the slot and `dmesg`, then open it again")]
    Vanished,
    /// The health buffer names a fatal syndrome.
    #[error(
        "the card's firmware died: health syndrome {syndrome} (ext_synd {ext_synd:#x}); reset the card and open it again"
    )]
    Health {
        /// `synd` of the health buffer.
        syndrome: HealthSyndrome,
        /// `ext_synd` of the health buffer.
        ext_synd: u16,
    },
    /// The function was turned off from the card's side.
    #[error("the card turned the function off (its NIC interface is disabled); reset the card and open it again")]
    Disabled,
    /// The health counter stood still.
    #[error(
        "the card's health counter stood still for {} ms: its firmware stopped, or a software card got no processor; \
         reset the card and open it again",
        after.as_millis()
    )]
    CounterStill {
        /// How long it stood still.
        after: Duration,
    },
    /// The kernel's driver took the function away from this process.
    #[error(
        "the kernel's driver let the card go (unbound, removed or being recovered); check `dmesg`, then open it again"
    )]
    Released,
    /// What serves the device went away.
    #[error("the device's server is gone ({reason}); start it again, then open the device again")]
    ServerGone {
        /// What the connection said.
        reason: String,
    },
    /// The device was closed while something still waited for it.
    #[error("the device was closed")]
    Closed,
}

impl Death {
    /// The death of a device whose server answers with `error`, where that is about the connection and not about what
    /// was asked.
    pub(crate) fn hung_up(error: &io::Error) -> Option<Self> {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, NotConnected, TimedOut, UnexpectedEof};
        let lost = matches!(error.kind(), BrokenPipe | ConnectionReset | NotConnected | TimedOut | UnexpectedEof);
        lost.then(|| Death::ServerGone { reason: error.to_string() })
    }
}

/// A firmware command that did not succeed.
#[derive(Debug, thiserror::Error)]
#[error("{opcode}{} failed: {kind}", about(*op_mod, object))]
pub struct CommandError {
    /// The command.
    pub opcode: Opcode,
    /// Its `op_mod`.
    pub op_mod: u16,
    /// What it was about, such as `CQ 0x43`; empty where there is nothing to name.
    pub object: String,
    /// How it failed.
    pub kind: CommandErrorKind,
}

/// How a command failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommandErrorKind {
    /// Firmware refused it.
    #[error("status {status} ({:#x}), syndrome {syndrome:#x}: {}{}", status.number(), status.meaning(), because(reason))]
    Status {
        /// `status` of the output.
        status: CmdStatus,
        /// `syndrome` of the output: firmware's own number for the reason.
        syndrome: u32,
        /// What of the command is beyond the card's capabilities; empty where they explain nothing.
        reason: String,
    },
    /// It never reached firmware.
    #[error("not delivered: {} ({:#x})", .0, .0.number())]
    Delivery(DeliveryStatus),
    /// The reply carries another command's token or a wrong signature.
    #[error("the reply is damaged: {0}")]
    Damaged(String),
    /// No reply before the deadline.
    #[error("no reply within {} ms; its slot stays closed until firmware answers", .0.as_millis())]
    Timeout(Duration),
    /// No slot became free before the deadline.
    #[error("no command slot became free within {} ms: earlier commands were never answered", .0.as_millis())]
    NoSlot(Duration),
    /// The card is dead or gone.
    #[error("{0}")]
    Dead(#[source] Death),
    /// The way to the card failed: a system call, or memory for mailboxes.
    #[error("{doing} failed")]
    Io {
        /// What was being done.
        doing: String,
        /// The system's own error.
        #[source]
        source: io::Error,
    },
    /// The command or its reply has an impossible length.
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
    /// The status firmware answered, where it answered one.
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
}

impl Error {
    /// A response whose `what` is `given`, outside of `limit`; `detail` says what else is known.
    pub(crate) fn response(
        what: &'static str,
        given: u64,
        limit: impl Into<Option<RangeInclusive<u64>>>,
        detail: impl Into<String>,
    ) -> Self {
        Error::InvalidResponse { what, given, limit: limit.into(), detail: detail.into() }
    }

    /// `source`, met while `doing`: a death where it says that the device's server is gone.
    pub fn io(doing: impl Into<String>, source: io::Error) -> Self {
        match Death::hung_up(&source) {
            Some(death) => Error::Dead(death),
            None => Error::Io { doing: doing.into(), source },
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
}

/// A call that the state of a queue pair forbids.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("QP {qpn:#x} is in {state}, and {call} needs {wanted}{}", missing(missing_calls))]
pub struct StateError {
    /// Its number.
    pub qpn: u32,
    /// The state it is in.
    pub state: QpState,
    /// What was called.
    pub call: &'static str,
    /// The state, or states, that the call needs.
    pub wanted: &'static str,
    /// The calls, with what they ask for, that lead there; none where there is no way but reset.
    pub missing_calls: &'static [&'static str],
}

fn missing(calls: &[&str]) -> String {
    if calls.is_empty() { String::new() } else { format!("; first call {}", calls.join(", then ")) }
}

/// How the card says a completion queue is. PRM `cqc.status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CqStatus {
    /// Well.
    Ok,
    /// A completion came when it was full: it is lost, and so is the queue.
    Overflow,
    /// The card could not write it.
    WriteFailure,
    /// A number without a name here.
    Unknown(u8),
}
