//! The header of dynamically connected requests. How DC looks on the wire is not public: this one is the model's own,
//! and DC works between models alone. Its transport has a number that IBTA leaves to manufacturers.
//!
//! Each request names the connection and where its PSNs begin. A connection opens in one of two ways:
//!
//! * with its first request that arrives;
//! * by a handshake: [`Opcode::Connect`](super::Opcode::Connect) takes the first PSN, and no request is sent before it
//!   is acknowledged. An initiator does so if its context says so. A target may insist on it: it executes nothing of a
//!   connection without, and answers [`Nak::HandshakeNeeded`](super::header::Nak); the initiator then opens another, by
//!   a handshake.
//!
//! Nothing is said at its end; a target forgets a connection when the same initiator opens another.

use super::psn::Psn;

/// What each request of a dynamically connected initiator carries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dceth {
    /// Access key of the target.
    pub access_key: u64,
    /// The initiator, 24 bits.
    pub dci: u32,
    /// Number of the connection: higher than those of all earlier ones of the initiator's function.
    pub connection: u32,
    /// PSN of the connection's first request.
    pub first: Psn,
}

impl Dceth {
    /// Length in bytes.
    pub const SIZE: usize = 20;

    /// Its bytes.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..8].copy_from_slice(&self.access_key.to_be_bytes());
        for (to, number) in bytes[8..].chunks_exact_mut(4).zip([self.dci, self.connection, self.first.number()]) {
            to.copy_from_slice(&number.to_be_bytes());
        }
        bytes
    }

    /// From the start of `bytes`.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (key, rest) = bytes.split_first_chunk()?;
        let (dci, rest) = rest.split_first_chunk()?;
        let (connection, rest) = rest.split_first_chunk()?;
        let [dci, connection, first] = [*dci, *connection, *rest.first_chunk()?].map(u32::from_be_bytes);
        let dci = dci & Psn::MASK;
        Some(Dceth { access_key: u64::from_be_bytes(*key), dci, connection, first: Psn::new(first) })
    }
}
