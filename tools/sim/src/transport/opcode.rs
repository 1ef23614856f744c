//! Supported transports and opcodes of [`mlx5_prm::ib`]. IBTA 9.2 "Operation Code (OpCode)"; XRC: annex A14.
//!
//! Masked atomics are NVIDIA's, and how they look on the wire is not public. Here they have numbers that IBTA leaves to
//! manufacturers, a RETH, and the operands as payload; the response to one of eight bytes is the standard one, which is
//! documented. So masked atomics work between models alone, and a capture shows an unknown opcode. The same holds for
//! the handshake of dynamic connections.

use mlx5_prm::ib::{Aeth, AtomicAckEth, AtomicEth, BthOperation, BthService, Ieth, ImmDt, Reth};
use mlx5_prm::layout::Layout;

/// Of an extended opcode, the low bits of the operation; the transport is in the high ones.
const LOG_EXTENDED: u32 = 2;
const EXTENDED_MASK: u8 = (1 << LOG_EXTENDED) - 1;

/// Transport service of a packet: the three high bits of the opcode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Transport {
    /// Reliable connection.
    Rc = BthService::Rc.number() as u8,
    /// Unreliable connection.
    Uc = BthService::Uc.number() as u8,
    /// Unreliable datagram.
    Ud = BthService::Ud.number() as u8,
    /// Extended reliable connection.
    Xrc = BthService::Xrc.number() as u8,
    /// Dynamically connected.
    Dc = DC,
}

/// A service that IBTA leaves to manufacturers: that of dynamically connected packets is not public.
const DC: u8 = 6;

impl Transport {
    /// Every transport.
    pub const ALL: [Transport; 5] = [Transport::Rc, Transport::Uc, Transport::Ud, Transport::Xrc, Transport::Dc];

    /// The transport and opcode of a packet; `None` for an unsupported combination.
    pub fn split(service: BthService, operation: BthOperation) -> Option<(Self, Opcode)> {
        let number = operation.number() as u8;
        let (transport, opcode) = match service {
            BthService::ManufacturerSpecific => (number >> LOG_EXTENDED, Opcode::EXTENDED | number & EXTENDED_MASK),
            _ => (service.number() as u8, number),
        };
        let transport = Self::ALL.into_iter().find(|known| *known as u8 == transport)?;
        let opcode = Opcode::from_number(opcode)?;
        transport.has(opcode).then_some((transport, opcode))
    }

    /// Service and operation in the BTH.
    pub const fn in_header(self, opcode: Opcode) -> (BthService, BthOperation) {
        let number = opcode as u8;
        if number & Opcode::EXTENDED == 0 {
            return (BthService::from_number(self as u32), BthOperation::from_number(number as u32));
        }
        let operation = (self as u8) << LOG_EXTENDED | number & EXTENDED_MASK;
        (BthService::ManufacturerSpecific, BthOperation::from_number(operation as u32))
    }

    /// The opcode in the BTH.
    pub const fn number(self, opcode: Opcode) -> u8 {
        let (service, operation) = self.in_header(opcode);
        (service.number() << 5 | operation.number()) as u8
    }

    /// Whether IBTA says how a packet of this opcode looks.
    pub const fn is_public(self, opcode: Opcode) -> bool {
        !matches!(self, Transport::Dc) && opcode as u8 & Opcode::EXTENDED == 0 && !opcode.is_unsupported()
    }

    /// Whether this transport has packets with this opcode.
    pub const fn has(self, opcode: Opcode) -> bool {
        use Opcode::*;
        match self {
            Transport::Dc => !opcode.is_unsupported(),
            Transport::Rc | Transport::Xrc => !matches!(opcode, Connect),
            Transport::Uc => (opcode as u8) <= WriteOnlyImm as u8,
            Transport::Ud => matches!(opcode, SendOnly | SendOnlyImm),
        }
    }

    /// Whether packets are acknowledged.
    pub const fn is_reliable(self) -> bool {
        matches!(self, Transport::Rc | Transport::Xrc | Transport::Dc)
    }
}

/// Operation of a packet: the five low bits of the opcode, the same in every transport that has it; with
/// [`EXTENDED`](Self::EXTENDED), one of the manufacturer's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Opcode {
    /// First packet of a send.
    SendFirst = BthOperation::SendFirst.number() as u8,
    /// Middle packet of a send.
    SendMiddle = BthOperation::SendMiddle.number() as u8,
    /// Last packet of a send.
    SendLast = BthOperation::SendLast.number() as u8,
    /// Last packet of a send with immediate.
    SendLastImm = BthOperation::SendLastImm.number() as u8,
    /// Only packet of a send.
    SendOnly = BthOperation::SendOnly.number() as u8,
    /// Only packet of a send with immediate.
    SendOnlyImm = BthOperation::SendOnlyImm.number() as u8,
    /// First packet of an RDMA write.
    WriteFirst = BthOperation::WriteFirst.number() as u8,
    /// Middle packet of an RDMA write.
    WriteMiddle = BthOperation::WriteMiddle.number() as u8,
    /// Last packet of an RDMA write.
    WriteLast = BthOperation::WriteLast.number() as u8,
    /// Last packet of an RDMA write with immediate.
    WriteLastImm = BthOperation::WriteLastImm.number() as u8,
    /// Only packet of an RDMA write.
    WriteOnly = BthOperation::WriteOnly.number() as u8,
    /// Only packet of an RDMA write with immediate.
    WriteOnlyImm = BthOperation::WriteOnlyImm.number() as u8,
    /// RDMA read request.
    ReadRequest = BthOperation::ReadRequest.number() as u8,
    /// First packet of a read's response.
    ReadResponseFirst = BthOperation::ReadResponseFirst.number() as u8,
    /// Middle packet of a read's response.
    ReadResponseMiddle = BthOperation::ReadResponseMiddle.number() as u8,
    /// Last packet of a read's response.
    ReadResponseLast = BthOperation::ReadResponseLast.number() as u8,
    /// Only packet of a read's response.
    ReadResponseOnly = BthOperation::ReadResponseOnly.number() as u8,
    /// Acknowledgement, positive or negative.
    Acknowledge = BthOperation::Acknowledge.number() as u8,
    /// Response to an atomic.
    AtomicAcknowledge = BthOperation::AtomicAcknowledge.number() as u8,
    /// Compare and swap.
    CompareSwap = BthOperation::CompareSwap.number() as u8,
    /// Fetch and add.
    FetchAdd = BthOperation::FetchAdd.number() as u8,
    /// Last packet of a send that invalidates a key.
    SendLastInval = BthOperation::SendLastInval.number() as u8,
    /// Only packet of a send that invalidates a key.
    SendOnlyInval = BthOperation::SendOnlyInval.number() as u8,
    /// Reserved.
    Reserved15 = 0x15,
    /// Reserved.
    Reserved18 = 0x18,
    /// Reserved.
    Reserved19 = 0x19,
    /// Reserved.
    Reserved1A = 0x1a,
    /// Reserved.
    Reserved1B = 0x1b,
    /// Reserved, or FLUSH.
    Reserved1C = 0x1c,
    /// Reserved, or ATOMIC WRITE.
    Reserved1D = 0x1d,
    /// Reserved.
    Reserved1E = 0x1e,
    /// Reserved.
    Reserved1F = 0x1f,
    /// Masked compare and swap.
    MaskedCompareSwap = Opcode::EXTENDED,
    /// Masked fetch and add.
    MaskedFetchAdd = Opcode::EXTENDED + 1,
    /// Response to a masked atomic that has not eight bytes.
    MaskedAcknowledge = Opcode::EXTENDED + 2,
    /// Opens a dynamic connection.
    Connect = Opcode::EXTENDED + 3,
}

/// The message a request packet belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// A send.
    Send,
    /// An RDMA write.
    Write,
    /// An RDMA read.
    Read,
    /// An atomic.
    Atomic,
    /// The handshake of a dynamic connection.
    Connect,
    /// An operation that is reserved or not supported: what follows the BTH is taken for payload.
    Unsupported,
}

impl Opcode {
    /// Bit of the manufacturer's operations.
    pub const EXTENDED: u8 = 1 << 5;
    /// Every opcode.
    pub const ALL: [Opcode; 36] = {
        use Opcode::*;
        [
            SendFirst,
            SendMiddle,
            SendLast,
            SendLastImm,
            SendOnly,
            SendOnlyImm,
            WriteFirst,
            WriteMiddle,
            WriteLast,
            WriteLastImm,
            WriteOnly,
            WriteOnlyImm,
            ReadRequest,
            ReadResponseFirst,
            ReadResponseMiddle,
            ReadResponseLast,
            ReadResponseOnly,
            Acknowledge,
            AtomicAcknowledge,
            CompareSwap,
            FetchAdd,
            SendLastInval,
            SendOnlyInval,
            Reserved15,
            Reserved18,
            Reserved19,
            Reserved1A,
            Reserved1B,
            Reserved1C,
            Reserved1D,
            Reserved1E,
            Reserved1F,
            MaskedCompareSwap,
            MaskedFetchAdd,
            MaskedAcknowledge,
            Connect,
        ]
    };

    /// From its number.
    fn from_number(number: u8) -> Option<Self> {
        const BY_NUMBER: [Option<Opcode>; 64] = {
            let (mut table, mut i) = ([None; 64], 0);
            while i < Opcode::ALL.len() {
                table[Opcode::ALL[i] as usize] = Some(Opcode::ALL[i]);
                i += 1;
            }
            table
        };
        BY_NUMBER.get(usize::from(number)).copied().flatten()
    }

    /// Whether it is reserved or not supported: a responder refuses it. IBTA 9.9.3.1.3, responder class C.
    pub const fn is_unsupported(self) -> bool {
        matches!(self as u8, 0x15 | 0x18..=0x1f)
    }

    /// The message a request is part of; `None` for a response.
    pub const fn message(self) -> Option<Message> {
        use Opcode::*;
        match self {
            SendFirst | SendMiddle | SendLast | SendLastImm | SendOnly | SendOnlyImm | SendLastInval
            | SendOnlyInval => Some(Message::Send),
            WriteFirst | WriteMiddle | WriteLast | WriteLastImm | WriteOnly | WriteOnlyImm => Some(Message::Write),
            ReadRequest => Some(Message::Read),
            CompareSwap | FetchAdd | MaskedCompareSwap | MaskedFetchAdd => Some(Message::Atomic),
            Connect => Some(Message::Connect),
            Reserved15 | Reserved18 | Reserved19 | Reserved1A | Reserved1B | Reserved1C | Reserved1D | Reserved1E
            | Reserved1F => Some(Message::Unsupported),
            ReadResponseFirst | ReadResponseMiddle | ReadResponseLast | ReadResponseOnly | Acknowledge
            | AtomicAcknowledge | MaskedAcknowledge => None,
        }
    }

    /// Whether it is the first packet of a message, or of a read response.
    pub const fn begins(self) -> bool {
        use Opcode::*;
        !matches!(
            self,
            SendMiddle
                | SendLast
                | SendLastImm
                | SendLastInval
                | WriteMiddle
                | WriteLast
                | WriteLastImm
                | ReadResponseMiddle
                | ReadResponseLast
        )
    }

    /// Whether it is the last packet of a message, or of a read response.
    pub const fn ends(self) -> bool {
        use Opcode::*;
        !matches!(self, SendFirst | SendMiddle | WriteFirst | WriteMiddle | ReadResponseFirst | ReadResponseMiddle)
    }

    /// Whether a RETH follows the BTH.
    pub const fn has_reth(self) -> bool {
        use Opcode::*;
        matches!(self, WriteFirst | WriteOnly | WriteOnlyImm | ReadRequest) || self.is_masked_atomic()
    }

    /// Whether an AETH follows the BTH.
    pub const fn has_aeth(self) -> bool {
        use Opcode::*;
        matches!(self, ReadResponseFirst | ReadResponseLast | ReadResponseOnly)
            || matches!(self, Acknowledge | AtomicAcknowledge | MaskedAcknowledge)
    }

    /// Whether ImmDt follows.
    pub const fn has_immediate(self) -> bool {
        use Opcode::*;
        matches!(self, SendLastImm | SendOnlyImm | WriteLastImm | WriteOnlyImm)
    }

    /// Whether an IETH, the R_Key to invalidate, follows.
    pub const fn has_ieth(self) -> bool {
        matches!(self, Opcode::SendLastInval | Opcode::SendOnlyInval)
    }

    /// Whether it requests a masked atomic: its operands are the payload.
    pub const fn is_masked_atomic(self) -> bool {
        matches!(self, Opcode::MaskedCompareSwap | Opcode::MaskedFetchAdd)
    }

    /// Whether an AtomicETH follows.
    pub const fn has_atomic(self) -> bool {
        matches!(self, Opcode::CompareSwap | Opcode::FetchAdd)
    }

    /// Whether an AtomicAckETH follows the AETH.
    pub const fn has_atomic_ack(self) -> bool {
        matches!(self, Opcode::AtomicAcknowledge)
    }

    /// Whether it may carry payload.
    pub const fn has_payload(self) -> bool {
        !matches!(
            self,
            Opcode::ReadRequest
                | Opcode::Acknowledge
                | Opcode::AtomicAcknowledge
                | Opcode::CompareSwap
                | Opcode::FetchAdd
                | Opcode::Connect
        )
    }

    /// Length in bytes of the extended headers after the BTH.
    pub const fn extended_len(self) -> usize {
        // Every frame is asked several times.
        const BY_NUMBER: [u8; 64] = {
            let (mut table, mut i) = ([0; 64], 0);
            while i < Opcode::ALL.len() {
                table[Opcode::ALL[i] as usize] = Opcode::ALL[i].sum_of_extended() as u8;
                i += 1;
            }
            table
        };
        BY_NUMBER[self as usize % BY_NUMBER.len()] as usize
    }

    const fn sum_of_extended(self) -> usize {
        Reth::SIZE * self.has_reth() as usize
            + Aeth::SIZE * self.has_aeth() as usize
            + ImmDt::SIZE * self.has_immediate() as usize
            + Ieth::SIZE * self.has_ieth() as usize
            + AtomicEth::SIZE * self.has_atomic() as usize
            + AtomicAckEth::SIZE * self.has_atomic_ack() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_back() {
        let mut known = 0;
        for number in 0..=255 {
            let header = (BthService::from_number(number >> 5), BthOperation::from_number(number & 0x1f));
            if let Some((transport, opcode)) = Transport::split(header.0, header.1) {
                assert_eq!(transport.in_header(opcode), header);
                known += 1;
            }
        }
        assert_eq!(
            known,
            23 + 9 + 12 + 2 + 23 + 9 + 23 + 3 * 3 + 1,
            "RC, UC, UD, XRC, DC; 9 that RC and XRC reserve; masked atomics of RC, XRC and DC; a handshake"
        );
    }

    #[test]
    fn a_message_has_one_begin_and_one_end() {
        for opcode in Opcode::ALL {
            let name = format!("{opcode:?}");
            assert_eq!(opcode.begins(), !(name.contains("Middle") || name.contains("Last")), "{name}");
            assert_eq!(opcode.ends(), !(name.contains("Middle") || name.contains("First")), "{name}");
        }
    }
}
