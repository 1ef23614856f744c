//! Transports and opcodes. InfiniBand Architecture Specification, "Base Transport Header", "OpCode"; XRC: its annex A14.

/// The transport service a packet belongs to: the three high bits of the opcode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Transport {
    /// Reliable connection.
    Rc = 0,
    /// Unreliable connection.
    Uc = 1,
    /// Unreliable datagram.
    Ud = 3,
    /// Extended reliable connection.
    Xrc = 5,
}

impl Transport {
    /// Every transport.
    pub const ALL: [Transport; 4] = [Transport::Rc, Transport::Uc, Transport::Ud, Transport::Xrc];

    /// The transport and opcode on the wire; `None` for a pair that does not exist.
    pub fn split(number: u8) -> Option<(Self, Opcode)> {
        let transport = Self::ALL.into_iter().find(|transport| *transport as u8 == number >> 5)?;
        let opcode = Opcode::from_number(number & 0x1f)?;
        transport.has(opcode).then_some((transport, opcode))
    }

    /// The number on the wire.
    pub const fn number(self, opcode: Opcode) -> u8 {
        (self as u8) << 5 | opcode as u8
    }

    /// Whether packets of this kind exist in this transport.
    pub const fn has(self, opcode: Opcode) -> bool {
        use Opcode::*;
        match self {
            Transport::Rc | Transport::Xrc => true,
            Transport::Uc => (opcode as u8) <= WriteOnlyImm as u8,
            Transport::Ud => matches!(opcode, SendOnly | SendOnlyImm),
        }
    }

    /// Whether what arrives is acknowledged.
    pub const fn is_reliable(self) -> bool {
        matches!(self, Transport::Rc | Transport::Xrc)
    }
}

/// What a packet is: the five low bits of the opcode, the same in every transport that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Opcode {
    /// First packet of a send.
    SendFirst = 0x00,
    /// Middle packet of a send.
    SendMiddle = 0x01,
    /// Last packet of a send.
    SendLast = 0x02,
    /// Last packet of a send with immediate.
    SendLastImm = 0x03,
    /// Only packet of a send.
    SendOnly = 0x04,
    /// Only packet of a send with immediate.
    SendOnlyImm = 0x05,
    /// First packet of an RDMA write.
    WriteFirst = 0x06,
    /// Middle packet of an RDMA write.
    WriteMiddle = 0x07,
    /// Last packet of an RDMA write.
    WriteLast = 0x08,
    /// Last packet of an RDMA write with immediate.
    WriteLastImm = 0x09,
    /// Only packet of an RDMA write.
    WriteOnly = 0x0a,
    /// Only packet of an RDMA write with immediate.
    WriteOnlyImm = 0x0b,
    /// RDMA read request.
    ReadRequest = 0x0c,
    /// First packet of a read's response.
    ReadResponseFirst = 0x0d,
    /// Middle packet of a read's response.
    ReadResponseMiddle = 0x0e,
    /// Last packet of a read's response.
    ReadResponseLast = 0x0f,
    /// Only packet of a read's response.
    ReadResponseOnly = 0x10,
    /// Acknowledgement, positive or negative.
    Acknowledge = 0x11,
    /// Response to an atomic.
    AtomicAcknowledge = 0x12,
    /// Compare and swap.
    CompareSwap = 0x13,
    /// Fetch and add.
    FetchAdd = 0x14,
    /// Last packet of a send that invalidates a key.
    SendLastInval = 0x16,
    /// Only packet of a send that invalidates a key.
    SendOnlyInval = 0x17,
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
}

impl Opcode {
    /// Every opcode.
    pub const ALL: [Opcode; 23] = {
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
        ]
    };

    /// From the five low bits; `None` for one that is reserved.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0x00..=0x14 => Some(Self::ALL[number as usize]),
            0x16 => Some(Opcode::SendLastInval),
            0x17 => Some(Opcode::SendOnlyInval),
            _ => None,
        }
    }

    /// The message a request is part of; `None` for a response.
    pub const fn message(self) -> Option<Message> {
        use Opcode::*;
        match self {
            SendFirst | SendMiddle | SendLast | SendLastImm | SendOnly | SendOnlyImm | SendLastInval
            | SendOnlyInval => Some(Message::Send),
            WriteFirst | WriteMiddle | WriteLast | WriteLastImm | WriteOnly | WriteOnlyImm => Some(Message::Write),
            ReadRequest => Some(Message::Read),
            CompareSwap | FetchAdd => Some(Message::Atomic),
            ReadResponseFirst | ReadResponseMiddle | ReadResponseLast | ReadResponseOnly | Acknowledge
            | AtomicAcknowledge => None,
        }
    }

    /// Whether it begins a message (or a read's response).
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

    /// Whether it ends a message (or a read's response).
    pub const fn ends(self) -> bool {
        use Opcode::*;
        !matches!(self, SendFirst | SendMiddle | WriteFirst | WriteMiddle | ReadResponseFirst | ReadResponseMiddle)
    }

    /// Whether a RETH follows the BTH.
    pub const fn has_reth(self) -> bool {
        use Opcode::*;
        matches!(self, WriteFirst | WriteOnly | WriteOnlyImm | ReadRequest)
    }

    /// Whether an AETH follows the BTH.
    pub const fn has_aeth(self) -> bool {
        use Opcode::*;
        matches!(self, ReadResponseFirst | ReadResponseLast | ReadResponseOnly | Acknowledge | AtomicAcknowledge)
    }

    /// Whether immediate data follow.
    pub const fn has_immediate(self) -> bool {
        use Opcode::*;
        matches!(self, SendLastImm | SendOnlyImm | WriteLastImm | WriteOnlyImm)
    }

    /// Whether an IETH, the key to invalidate, follows.
    pub const fn has_ieth(self) -> bool {
        matches!(self, Opcode::SendLastInval | Opcode::SendOnlyInval)
    }

    /// Whether an AtomicETH follows.
    pub const fn has_atomic(self) -> bool {
        matches!(self, Opcode::CompareSwap | Opcode::FetchAdd)
    }

    /// Whether an AtomicAckETH follows the AETH.
    pub const fn has_atomic_ack(self) -> bool {
        matches!(self, Opcode::AtomicAcknowledge)
    }

    /// Whether it may carry data.
    pub const fn has_payload(self) -> bool {
        !matches!(
            self,
            Opcode::ReadRequest
                | Opcode::Acknowledge
                | Opcode::AtomicAcknowledge
                | Opcode::CompareSwap
                | Opcode::FetchAdd
        )
    }

    /// Bytes of the extended headers after the BTH.
    pub const fn extended_len(self) -> usize {
        16 * self.has_reth() as usize
            + 4 * (self.has_aeth() as usize + self.has_immediate() as usize + self.has_ieth() as usize)
            + 28 * self.has_atomic() as usize
            + 8 * self.has_atomic_ack() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_back() {
        for opcode in Opcode::ALL {
            assert_eq!(Opcode::from_number(opcode as u8), Some(opcode));
        }
        assert_eq!((0..=255).filter(|n| Opcode::from_number(*n).is_some()).count(), Opcode::ALL.len());
        for number in 0..=255 {
            if let Some((transport, opcode)) = Transport::split(number) {
                assert_eq!(transport.number(opcode), number);
            }
        }
        let known = (0..=255).filter(|n| Transport::split(*n).is_some()).count();
        assert_eq!(known, 23 + 12 + 2 + 23, "RC, UC, UD, XRC");
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
