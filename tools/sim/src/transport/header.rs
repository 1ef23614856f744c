//! What a packet's headers say, apart from how they lie on the wire: that is declared in [`mlx5_prm::ib`].

use mlx5_prm::ib::{self, AethSyndrome, NakCode};

use super::psn::Psn;

/// An Ethernet address.
pub type Mac = [u8; 6];
/// A global identifier: an IPv6 address, or an IPv4 address mapped into one.
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

/// Whether this is a group's address: an IPv6 one, or an IPv4 one in IPv6's form.
pub fn is_group(gid: &Gid) -> bool {
    gid[0] == 0xff || mapped_ipv4(gid).is_some_and(|address| address[0] >> 4 == 0xe)
}

/// The address that frames to a group carry: 23 bits of an IPv4 one (RFC 1112), 32 bits of an IPv6 one (RFC 2464).
pub fn mac_of_group(gid: &Gid) -> Mac {
    let [.., a, b, c, d] = *gid;
    if mapped_ipv4(gid).is_some() { [1, 0, 0x5e, b & 0x7f, c, d] } else { [0x33, 0x33, a, b, c, d] }
}

/// Where a packet goes, and with which marks: Ethernet, IP and UDP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Route {
    /// Destination MAC.
    pub dst_mac: Mac,
    /// Source MAC.
    pub src_mac: Mac,
    /// Source GID. IPv4 is spoken where both GIDs are mapped ones.
    pub src: Gid,
    /// Destination GID.
    pub dst: Gid,
    /// UDP source port.
    pub sport: u16,
    /// IP hop limit, or time to live.
    pub hop_limit: u8,
    /// IP traffic class, or type of service.
    pub tclass: u8,
    /// IPv6 flow label, 20 bits; IPv4 has none.
    pub flow_label: u32,
    /// The tag of IEEE 802.1Q, if there is one: priority in the upper three bits, VLAN in the lower twelve.
    pub tag: Option<u16>,
}

impl Route {
    /// Whether the packet is IPv4.
    pub fn is_ipv4(&self) -> bool {
        mapped_ipv4(&self.src).is_some() && mapped_ipv4(&self.dst).is_some()
    }

    /// The VLAN; a tag of VLAN 0 only says the priority.
    pub fn vlan(&self) -> Option<u16> {
        self.tag.map(|tag| tag & 0xfff).filter(|vlan| *vlan != 0)
    }
}

/// RDMA extended transport header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reth {
    /// Remote address.
    pub va: u64,
    /// Remote key.
    pub rkey: u32,
    /// Bytes of the whole message.
    pub len: u32,
}

/// ACK extended transport header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Aeth {
    /// ACK, RNR NAK or NAK, see [`Syndrome`].
    pub syndrome: u8,
    /// Messages that the responder completed, 24 bits.
    pub msn: u32,
}

/// Atomic extended transport header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AtomicEth {
    /// Remote address.
    pub va: u64,
    /// Remote key.
    pub rkey: u32,
    /// To be swapped in, or added.
    pub swap_add: u64,
    /// To be compared with.
    pub compare: u64,
}

/// Datagram extended transport header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Deth {
    /// Queue key.
    pub qkey: u32,
    /// The queue pair that sends, 24 bits.
    pub src_qpn: u32,
}

/// What an [`Aeth::syndrome`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syndrome {
    /// Acknowledged, with a credit count.
    Ack(u8),
    /// No receive was posted; wait for this timer code's time.
    ReceiverNotReady(u8),
    /// Refused.
    Nak(Nak),
    /// Reserved.
    Reserved(u8),
}

/// Why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nak {
    /// An earlier packet is missing.
    PsnSequence,
    /// The request is not one that this queue pair takes.
    InvalidRequest,
    /// The key does not allow it.
    RemoteAccess,
    /// The responder failed on its own account.
    RemoteOperation,
    /// Any other code.
    Other(u8),
}

impl Syndrome {
    /// Acknowledged; the credit count means nothing.
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
    /// The code on the wire.
    const fn number(self) -> u8 {
        let code = match self {
            Nak::PsnSequence => NakCode::PsnSequenceError,
            Nak::InvalidRequest => NakCode::InvalidRequest,
            Nak::RemoteAccess => NakCode::RemoteAccessError,
            Nak::RemoteOperation => NakCode::RemoteOperationalError,
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
