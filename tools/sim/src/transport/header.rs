//! Content of a packet's headers. Their wire format is declared in [`mlx5_prm::ib`].

use mlx5_prm::ib::{self, AethSyndrome, NakCode};

use super::psn::Psn;

/// A MAC address.
pub type Mac = [u8; 6];
/// A global identifier: an IPv6 address, or an IPv4-mapped one. IBTA A17.4.1.1.
pub type Gid = [u8; 16];

/// The IPv4 address inside a mapped GID (`::ffff:a.b.c.d`); `None` for any other GID.
pub fn mapped_ipv4(gid: &Gid) -> Option<[u8; 4]> {
    let number = u128::from_be_bytes(*gid);
    (number >> 32 == 0xffff).then_some((number as u32).to_be_bytes())
}

/// The GID of an IPv4 address.
pub fn gid_of_ipv4(address: [u8; 4]) -> Gid {
    let mut gid = [0; 16];
    gid[10..12].fill(0xff);
    gid[12..].copy_from_slice(&address);
    gid
}

/// Whether this is a multicast address, of IPv6 or IPv4-mapped.
pub fn is_group(gid: &Gid) -> bool {
    gid[0] == 0xff || mapped_ipv4(gid).is_some_and(|address| address[0] >> 4 == 0xe)
}

/// The MAC address of a multicast group: 23 bits of an IPv4 address (RFC 1112), 32 bits of an IPv6 address (RFC 2464).
pub fn mac_of_group(gid: &Gid) -> Mac {
    let [.., a, b, c, d] = *gid;
    if mapped_ipv4(gid).is_some() { [1, 0, 0x5e, b & 0x7f, c, d] } else { [0x33, 0x33, a, b, c, d] }
}

/// Addresses and header fields of a packet below the transport: Ethernet, IP and UDP. IBTA A17.3.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Route {
    /// Destination MAC.
    pub dst_mac: Mac,
    /// Source MAC.
    pub src_mac: Mac,
    /// Source GID. The packet is IPv4 if both GIDs are IPv4-mapped.
    pub src: Gid,
    /// Destination GID.
    pub dst: Gid,
    /// UDP source port.
    pub sport: u16,
    /// IP hop limit or time to live.
    pub hop_limit: u8,
    /// IP traffic class or type of service.
    pub tclass: u8,
    /// IPv6 flow label, 20 bits; IPv4 has none.
    pub flow_label: u32,
    /// IEEE 802.1Q tag, if any: priority in the upper three bits, VLAN in the lower twelve.
    pub tag: Option<u16>,
}

impl Route {
    /// Whether the packet is IPv4.
    pub fn is_ipv4(&self) -> bool {
        mapped_ipv4(&self.src).is_some() && mapped_ipv4(&self.dst).is_some()
    }

    /// The VLAN. A tag with VLAN 0 has only a priority.
    pub fn vlan(&self) -> Option<u16> {
        self.tag.map(|tag| tag & 0xfff).filter(|vlan| *vlan != 0)
    }
}

/// First UDP source port of RoCE packets: `r_roce_min_src_udp_port`. The last one is 0xffff.
pub(crate) const FIRST_SOURCE_PORT: u16 = 0xc000;

/// UDP source port of queue pair `qpn`: `chosen` by its path or work request; if that is 0, derived from its number.
/// IBTA A17.3.2.1.
pub(crate) fn source_port(chosen: u16, qpn: u32) -> u16 {
    if chosen == 0 { FIRST_SOURCE_PORT | qpn as u16 & !FIRST_SOURCE_PORT } else { chosen }
}

/// RDMA extended transport header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reth {
    /// Remote address.
    pub va: u64,
    /// Remote key.
    pub rkey: u32,
    /// Length of the whole message in bytes.
    pub len: u32,
}

/// ACK extended transport header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Aeth {
    /// ACK, RNR NAK or NAK, see [`Syndrome`].
    pub syndrome: u8,
    /// Message sequence number (MSN): messages completed by the responder, 24 bits.
    pub msn: u32,
}

/// Atomic extended transport header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AtomicEth {
    /// Remote address.
    pub va: u64,
    /// Remote key.
    pub rkey: u32,
    /// Swap or add operand.
    pub swap_add: u64,
    /// Compare operand.
    pub compare: u64,
}

/// Datagram extended transport header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Deth {
    /// Queue key.
    pub qkey: u32,
    /// Source QP number, 24 bits.
    pub src_qpn: u32,
}

/// Meaning of an [`Aeth::syndrome`]. IBTA 9.7.5 "AETH Syndrome Field".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syndrome {
    /// ACK, with a credit count.
    Ack(u8),
    /// RNR NAK, with its timer code. IBTA 9.7.5.2.8.
    ReceiverNotReady(u8),
    /// NAK.
    Nak(Nak),
    /// Reserved.
    Reserved(u8),
}

/// NAK codes. IBTA 9.7.5 "NAK Codes".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nak {
    /// PSN sequence error: an earlier packet is missing.
    PsnSequence,
    /// Invalid request.
    InvalidRequest,
    /// Remote access error. IBTA 9.7.5.2.4.
    RemoteAccess,
    /// Remote operational error.
    RemoteOperation,
    /// The target of a dynamic connection asks for a handshake first: the model's own code.
    HandshakeNeeded,
    /// Any other code.
    Other(u8),
}

impl Syndrome {
    /// ACK with an invalid credit count.
    pub const ACK: Syndrome = Syndrome::Ack(ib::CREDITS_INVALID);

    /// From [`Aeth::syndrome`].
    pub const fn from_number(number: u8) -> Self {
        let low = number & 0x1f;
        match AethSyndrome::from_number(number as u32 >> 5) {
            AethSyndrome::Ack => Syndrome::Ack(low),
            AethSyndrome::RnrNak => Syndrome::ReceiverNotReady(low),
            AethSyndrome::Nak => Syndrome::Nak(match NakCode::from_number(low as u32) {
                NakCode::PsnSequenceError => Nak::PsnSequence,
                NakCode::InvalidRequest => Nak::InvalidRequest,
                NakCode::RemoteAccessError => Nak::RemoteAccess,
                NakCode::RemoteOperationalError => Nak::RemoteOperation,
                _ if low == Nak::HANDSHAKE_NEEDED => Nak::HandshakeNeeded,
                NakCode::InvalidRdRequest | NakCode::Unknown(_) => Nak::Other(low),
            }),
            AethSyndrome::Unknown(_) => Syndrome::Reserved(number),
        }
    }

    /// To [`Aeth::syndrome`].
    pub const fn number(self) -> u8 {
        let (kind, value) = match self {
            Syndrome::Ack(credits) => (AethSyndrome::Ack, credits),
            Syndrome::ReceiverNotReady(timer) => (AethSyndrome::RnrNak, timer),
            Syndrome::Nak(nak) => (AethSyndrome::Nak, nak.number()),
            Syndrome::Reserved(number) => return number,
        };
        (kind.number() as u8) << 5 | value & 0x1f
    }
}

impl Nak {
    /// IBTA reserves it.
    const HANDSHAKE_NEEDED: u8 = 0x1f;

    /// The code on the wire.
    const fn number(self) -> u8 {
        let code = match self {
            Nak::PsnSequence => NakCode::PsnSequenceError,
            Nak::InvalidRequest => NakCode::InvalidRequest,
            Nak::RemoteAccess => NakCode::RemoteAccessError,
            Nak::RemoteOperation => NakCode::RemoteOperationalError,
            Nak::HandshakeNeeded => return Nak::HANDSHAKE_NEEDED,
            Nak::Other(code) => return code,
        };
        code.number() as u8
    }
}

impl From<Reth> for ib::Reth {
    fn from(reth: Reth) -> Self {
        let mut header = ib::Reth::ZERO;
        header.w().va(reth.va).r_key(reth.rkey).dma_len(reth.len);
        header
    }
}

impl From<ib::Reth> for Reth {
    fn from(header: ib::Reth) -> Self {
        Reth { va: header.va(), rkey: header.r_key(), len: header.dma_len() }
    }
}

impl From<Aeth> for ib::Aeth {
    fn from(aeth: Aeth) -> Self {
        let mut header = ib::Aeth::ZERO;
        let syndrome = AethSyndrome::from_number(u32::from(aeth.syndrome >> 5));
        header.w().syndrome(syndrome).value(aeth.syndrome & 0x1f).msn(aeth.msn & Psn::MASK);
        header
    }
}

impl From<ib::Aeth> for Aeth {
    fn from(header: ib::Aeth) -> Self {
        let syndrome = (header.syndrome().number() as u8) << 5 | header.value();
        Aeth { syndrome, msn: header.msn() }
    }
}

impl From<AtomicEth> for ib::AtomicEth {
    fn from(atomic: AtomicEth) -> Self {
        let mut header = ib::AtomicEth::ZERO;
        header.w().va(atomic.va).r_key(atomic.rkey).swap_or_add_dt(atomic.swap_add).cmp_dt(atomic.compare);
        header
    }
}

impl From<ib::AtomicEth> for AtomicEth {
    fn from(header: ib::AtomicEth) -> Self {
        let (swap_add, compare) = (header.swap_or_add_dt(), header.cmp_dt());
        AtomicEth { va: header.va(), rkey: header.r_key(), swap_add, compare }
    }
}

impl From<Deth> for ib::Deth {
    fn from(deth: Deth) -> Self {
        let mut header = ib::Deth::ZERO;
        header.w().q_key(deth.qkey).src_qp(deth.src_qpn & Psn::MASK);
        header
    }
}

impl From<ib::Deth> for Deth {
    fn from(header: ib::Deth) -> Self {
        Deth { qkey: header.q_key(), src_qpn: header.src_qp() }
    }
}
