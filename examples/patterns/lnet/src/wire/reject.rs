//! Private data of a connection manager's REJ: `struct kib_rej` of `lnet/klnds/o2iblnd/o2iblnd-idl.h`.

use std::fmt;

use super::bytes::{ByteOrder, Reader, Writer};
use super::error::WireError;
use super::message::{ConnectionParameters, MAGIC, VERSION_1, VERSION_2, order_of};

/// Why a connection is refused: `IBLND_REJECT_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RejectReason {
    /// The other end's own request is under way, and wins.
    ConnRace,
    /// No memory, or too many connections.
    NoResources,
    /// Anything else.
    Fatal,
    /// A version that is not known there.
    ConnUncompat,
    /// From another incarnation than the one that is known there, or to one.
    ConnStale,
    /// Too many fragments.
    RdmaFrags,
    /// Too deep a queue.
    MsgQueueSize,
    /// No such service.
    InvalidSrvId,
    /// The node is not ready yet.
    Early,
    /// A number without a name.
    Unknown(u8),
}

const NAMES: [(RejectReason, &str); 9] = [
    (RejectReason::ConnRace, "lost a connection race"),
    (RejectReason::NoResources, "no resources"),
    (RejectReason::Fatal, "fatal error"),
    (RejectReason::ConnUncompat, "incompatible version"),
    (RejectReason::ConnStale, "stale"),
    (RejectReason::RdmaFrags, "too many fragments"),
    (RejectReason::MsgQueueSize, "queue too deep"),
    (RejectReason::InvalidSrvId, "no such service"),
    (RejectReason::Early, "too early"),
];

impl RejectReason {
    /// Of a number, from 1.
    pub fn from_number(number: u8) -> Self {
        let named = usize::from(number).checked_sub(1).and_then(|at| NAMES.get(at));
        named.map_or(RejectReason::Unknown(number), |(reason, _)| *reason)
    }

    /// Its number.
    pub fn number(self) -> u8 {
        match self {
            RejectReason::Unknown(number) => number,
            named => NAMES.iter().position(|(reason, _)| *reason == named).map_or(0, |at| at as u8 + 1),
        }
    }
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(reason, _)| reason == self) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "reason {}", self.number()),
        }
    }
}

/// Why a connection is refused, and what would be accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reject {
    /// The version to speak.
    pub version: u16,
    /// The reason.
    pub why: RejectReason,
    /// Of version 0x12: the incarnation there, and what it would accept.
    pub terms: Option<(u64, ConnectionParameters)>,
}

impl Reject {
    /// Bytes.
    pub const BYTES: usize = 24;

    /// Reads what `kiblnd_rejected` (`o2iblnd_cb.c`) reads.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let order = order_of(bytes)?;
        let mut reader = Reader::new(bytes, order);
        reader.u32()?;
        let version = reader.u16()?;
        if version != VERSION_1 && version != VERSION_2 {
            return Err(WireError::Version(version));
        }
        let why = RejectReason::from_number(reader.u8()?);
        let mut terms = || -> Result<_, WireError> {
            reader.u8()?;
            Ok((reader.u64()?, ConnectionParameters::decode(&mut reader)?))
        };
        Ok(Reject { version, why, terms: if version == VERSION_2 { terms().ok() } else { None } })
    }

    /// Its bytes.
    pub fn encode(&self, order: ByteOrder) -> [u8; Reject::BYTES] {
        let mut bytes = [0; Reject::BYTES];
        let mut writer = Writer::new(&mut bytes, order);
        writer.u32(MAGIC);
        writer.u16(self.version);
        writer.u8(self.why.number());
        writer.u8(0);
        if let Some((incarnation, parameters)) = &self.terms {
            writer.u64(*incarnation);
            parameters.encode(&mut writer);
        }
        bytes
    }
}
