//! Parses faults, for command lines.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use mlx5_prm::cmd::Opcode;
use thiserror::Error;

use super::{Fault, FrameFate, Times};

/// A fault and its number of times: `KIND[:ARGUMENT]...[*TIMES]`; without a number, always.
///
/// | text | fault |
/// | --- | --- |
/// | `status:OPCODE:STATUS[:SYNDROME]` | [`Fault::CommandStatus`] |
/// | `swallow:OPCODE` | [`Fault::CommandSwallowed`] |
/// | `delivery:OPCODE:STATUS` | [`Fault::DeliveryStatus`] |
/// | `late:OPCODE:MILLISECONDS` | [`Fault::CommandLate`] |
/// | `token:OPCODE`, `signature:OPCODE` | [`Fault::BadToken`], [`Fault::BadSignature`] |
/// | `event-lost:TYPE` | [`Fault::EventLost`] |
/// | `health:SYNDROME`, `health-counter` | [`Fault::Health`], [`Fault::HealthCounterStopped`] |
/// | `pages:COUNT` | [`Fault::PageRequest`] |
/// | `removal` | [`Fault::SurpriseRemoval`] |
/// | `cqe:QPN:SYNDROME[:VENDOR_SYNDROME]` | [`Fault::CompletionError`] |
/// | `cqe-opcode:QPN:OPCODE` | [`Fault::CqeOpcode`] |
/// | `loss:P%`, `duplicate:P%`, `reorder:P%`, `corrupt:P%` | [`Fault::Frame`] |
///
/// Opcodes are PRM names or numbers. Numbers are decimal, or hexadecimal with `0x`. `any` means all.
///
/// ```
/// use mlx5_sim::fault::{Fault, Injection, Times};
/// let injection: Injection = "status:CREATE_CQ:3:0x62bbc6*2".parse().unwrap();
/// assert_eq!(injection.times, Times::Count(2));
/// assert_eq!(injection.fault, Fault::CommandStatus { opcode: Some(0x400), status: 3, syndrome: 0x62bbc6 });
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Injection {
    /// The fault.
    pub fault: Fault,
    /// How often it occurs.
    pub times: Times,
}

/// Why text is not a fault.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ParseFaultError {
    /// Unknown kind of fault.
    #[error("unknown fault `{0}`; faults are {kinds}; {SYNTAX}", kinds = KINDS.join(", "))]
    Kind(String),
    /// Too few or too many arguments.
    #[error("`{0}` has too few or too many arguments; {SYNTAX}")]
    Count(String),
    /// An argument is invalid.
    #[error("`{text}` is not a valid {what}; {SYNTAX}")]
    Argument {
        /// The argument.
        text: String,
        /// What it should be.
        what: &'static str,
    },
}

/// How faults are written, for error messages.
const SYNTAX: &str = "write KIND[:ARGUMENT]...[*TIMES], such as loss:1%, late:CREATE_CQ:50, cqe:any:0x12, removal, \
                      health:1 or status:CREATE_CQ:3:0x62bbc6*2";

impl FromStr for Injection {
    type Err = ParseFaultError;

    fn from_str(text: &str) -> Result<Self, ParseFaultError> {
        let (fault, times) = match text.rsplit_once('*') {
            Some((fault, times)) => (fault, Times::Count(number(times, "number of times")?)),
            None => (text, Times::Always),
        };
        if times == Times::Count(0) {
            return Err(ParseFaultError::Argument { text: "0".into(), what: "number of times" });
        }
        let parts: Vec<_> = fault.split(':').collect();
        Ok(Injection { fault: fault_of(text, parts[0], &parts[1..])?, times })
    }
}

fn fault_of(text: &str, kind: &str, arguments: &[&str]) -> Result<Fault, ParseFaultError> {
    Ok(match (kind, arguments) {
        ("status", [opcode, status, rest @ ..]) if rest.len() <= 1 => Fault::CommandStatus {
            opcode: opcode_of(opcode)?,
            status: status_of(status)?,
            syndrome: rest.first().map_or(Ok(0), |syndrome| number(syndrome, "syndrome"))?,
        },
        ("swallow", [opcode]) => Fault::CommandSwallowed { opcode: opcode_of(opcode)? },
        ("delivery", [opcode, status]) => {
            Fault::DeliveryStatus { opcode: opcode_of(opcode)?, status: number(status, "delivery status")? }
        }
        ("late", [opcode, by]) => Fault::CommandLate {
            opcode: opcode_of(opcode)?,
            by: Duration::from_millis(number::<u32>(by, "number of milliseconds")?.into()),
        },
        ("token", [opcode]) => Fault::BadToken { opcode: opcode_of(opcode)? },
        ("signature", [opcode]) => Fault::BadSignature { opcode: opcode_of(opcode)? },
        ("event-lost", [event_type]) => Fault::EventLost { event_type: any(event_type, "event type")? },
        ("health", [syndrome]) => Fault::Health { syndrome: number(syndrome, "syndrome")? },
        ("health-counter", []) => Fault::HealthCounterStopped,
        ("pages", [pages]) => Fault::PageRequest { pages: number(pages, "number of pages")? },
        ("removal", []) => Fault::SurpriseRemoval,
        ("cqe", [qpn, syndrome, rest @ ..]) if rest.len() <= 1 => Fault::CompletionError {
            qpn: any(qpn, "queue pair number")?,
            syndrome: number(syndrome, "syndrome")?,
            vendor_syndrome: rest.first().map_or(Ok(0), |vendor| number(vendor, "vendor syndrome"))?,
        },
        ("cqe-opcode", [qpn, opcode]) => Fault::CqeOpcode {
            qpn: any(qpn, "queue pair number")?,
            opcode: number::<u8>(opcode, "opcode of a completion")?,
        },
        ("loss", [share]) => frame(FrameFate::Lost, share)?,
        ("duplicate", [share]) => frame(FrameFate::Duplicated, share)?,
        ("reorder", [share]) => frame(FrameFate::Reordered, share)?,
        // Bit 0 is a placeholder: `Faults::frame` chooses the bit at random.
        ("corrupt", [share]) => frame(FrameFate::Corrupted(0), share)?,
        _ if KINDS.contains(&kind) => return Err(ParseFaultError::Count(text.into())),
        _ => return Err(ParseFaultError::Kind(kind.into())),
    })
}

/// A command status other than 0, which is success and no fault.
fn status_of(text: &str) -> Result<u8, ParseFaultError> {
    match number(text, "status")? {
        0 => Err(ParseFaultError::Argument { text: text.into(), what: "status" }),
        status => Ok(status),
    }
}

const KINDS: [&str; 17] = [
    "status",
    "swallow",
    "delivery",
    "late",
    "token",
    "signature",
    "event-lost",
    "health",
    "health-counter",
    "pages",
    "removal",
    "cqe",
    "cqe-opcode",
    "loss",
    "duplicate",
    "reorder",
    "corrupt",
];

fn frame(fate: FrameFate, share: &str) -> Result<Fault, ParseFaultError> {
    let wrong = || ParseFaultError::Argument { text: share.into(), what: "share between 0% and 100%" };
    let percent: f64 = share.strip_suffix('%').and_then(|number| number.parse().ok()).ok_or_else(wrong)?;
    if !(0.0..=100.0).contains(&percent) {
        return Err(wrong());
    }
    Ok(Fault::Frame { fate, per_million: (percent * 10_000.0).round() as u32 })
}

fn opcode_of(text: &str) -> Result<Option<u16>, ParseFaultError> {
    let named = Opcode::ALL.iter().find(|opcode| opcode.prm_name() == Some(text));
    match named.and_then(|opcode| u16::try_from(opcode.number()).ok()) {
        Some(opcode) => Ok(Some(opcode)),
        None => any(text, "opcode"),
    }
}

fn any<T: TryFrom<i64>>(text: &str, what: &'static str) -> Result<Option<T>, ParseFaultError> {
    if text == "any" { Ok(None) } else { number(text, what).map(Some) }
}

fn number<T: TryFrom<i64>>(text: &str, what: &'static str) -> Result<T, ParseFaultError> {
    let value = match text.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    let wrong = |text: &dyn Display| ParseFaultError::Argument { text: text.to_string(), what };
    value.and_then(|value| T::try_from(value).ok()).ok_or_else(|| wrong(&text))
}
