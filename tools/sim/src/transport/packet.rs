//! RoCE v2 packets: as the engines handle them, and as bytes.
//!
//! Between the functions of one process a [`Packet`] travels as it is. [`Packet::encode`] and [`Packet::decode`] are for
//! wires that lead outside and for captures. Decoding any bytes never panics; what is no whole, intact packet is
//! an error, and every packet that encodes decodes to itself.

use thiserror::Error;

use super::icrc;
use super::opcode::{Opcode, Transport};
use super::psn::Psn;

/// UDP destination port of RoCE v2.
pub const UDP_PORT: u16 = 4791;
/// The default partition, full membership: the only one on Ethernet.
pub const DEFAULT_PKEY: u16 = 0xffff;
/// Most bytes a packet's payload has.
pub const MAX_PAYLOAD: usize = 4096;

/// Bytes of the largest frame that are not payload: Ethernet and its check sum, IPv6, UDP, BTH, RETH with immediate, ICRC.
pub(crate) const FRAME_OVERHEAD: usize = ETHERNET + 4 + IPV6 + UDP + BTH + 20 + icrc::LEN;

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP: usize = 8;
const BTH: usize = 12;
const DETH: usize = 8;
const XRCETH: usize = 4;
/// Bytes of a VLAN tag.
const TAG: usize = 4;
const ETHERTYPE_TAG: u16 = 0x8100;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const PROTOCOL_UDP: u8 = 17;

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
    pub const ACK: Syndrome = Syndrome::Ack(0x1f);

    /// From [`Aeth::syndrome`].
    pub const fn from_number(number: u8) -> Self {
        let low = number & 0x1f;
        match number >> 5 {
            0 => Syndrome::Ack(low),
            1 => Syndrome::ReceiverNotReady(low),
            3 => Syndrome::Nak(match low {
                0 => Nak::PsnSequence,
                1 => Nak::InvalidRequest,
                2 => Nak::RemoteAccess,
                3 => Nak::RemoteOperation,
                other => Nak::Other(other),
            }),
            _ => Syndrome::Reserved(number),
        }
    }

    /// To [`Aeth::syndrome`].
    pub const fn number(self) -> u8 {
        match self {
            Syndrome::Ack(credits) => credits & 0x1f,
            Syndrome::ReceiverNotReady(timer) => 0x20 | timer & 0x1f,
            Syndrome::Nak(nak) => {
                0x60 | match nak {
                    Nak::PsnSequence => 0,
                    Nak::InvalidRequest => 1,
                    Nak::RemoteAccess => 2,
                    Nak::RemoteOperation => 3,
                    Nak::Other(code) => code & 0x1f,
                }
            }
            Syndrome::Reserved(number) => number,
        }
    }
}

/// A packet. Of the extended headers, those are meaningful that transport and opcode have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// Ethernet, IP, UDP.
    pub route: Route,
    /// Its transport.
    pub transport: Transport,
    /// What it is.
    pub opcode: Opcode,
    /// Solicited event.
    pub solicited: bool,
    /// Acknowledgement wanted.
    pub ack_request: bool,
    /// Forward congestion was seen (`fecn`).
    pub fecn: bool,
    /// Backward congestion notification (`becn`).
    pub becn: bool,
    /// Partition key.
    pub pkey: u16,
    /// The queue pair it is for, 24 bits.
    pub dest_qpn: u32,
    /// Sequence number.
    pub psn: Psn,
    /// The shared receive queue it is for, 24 bits: XRC's header, of requests.
    pub xrc_srqn: u32,
    /// Datagram header: UD's.
    pub deth: Deth,
    /// RDMA header.
    pub reth: Reth,
    /// ACK header.
    pub aeth: Aeth,
    /// Immediate data, or the key to invalidate.
    pub immediate: u32,
    /// Atomic header.
    pub atomic: AtomicEth,
    /// What an atomic found in memory.
    pub atomic_ack: u64,
    /// Data, without padding.
    pub payload: Vec<u8>,
    /// The bit of its frame that is flipped on the way, and that the checks where it arrives notice: it is dropped there.
    pub flipped: Option<u32>,
}

/// Why bytes are no packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// Another protocol: not RoCE v2 at all.
    #[error("not a RoCE v2 packet")]
    NotRoce,
    /// Lengths of the headers contradict the frame's.
    #[error("the packet's lengths contradict each other")]
    Length,
    /// The IPv4 header's checksum is wrong.
    #[error("wrong IPv4 header checksum")]
    IpChecksum,
    /// The ICRC is wrong.
    #[error("wrong ICRC")]
    Icrc,
    /// An opcode of a transport that is not spoken here, or a reserved one.
    #[error("opcode {0:#04x} is none of RC, UC, UD or XRC")]
    Opcode(u8),
    /// BTH version other than 0, or payload in a packet that has none.
    #[error("malformed transport headers")]
    Malformed,
}

impl Packet {
    /// A packet of a reliable connection, without extended headers and payload.
    pub fn new(opcode: Opcode, route: Route, dest_qpn: u32, psn: Psn) -> Self {
        Packet {
            route,
            transport: Transport::Rc,
            opcode,
            solicited: false,
            ack_request: false,
            fecn: false,
            becn: false,
            pkey: DEFAULT_PKEY,
            dest_qpn: dest_qpn & Psn::MASK,
            psn,
            xrc_srqn: 0,
            deth: Deth::default(),
            reth: Reth::default(),
            aeth: Aeth::default(),
            immediate: 0,
            atomic: AtomicEth::default(),
            atomic_ack: 0,
            payload: Vec::new(),
            flipped: None,
        }
    }

    /// Whether XRC's header follows the BTH.
    fn has_xrceth(&self) -> bool {
        self.transport == Transport::Xrc && self.opcode.message().is_some()
    }

    /// Bytes of all extended headers.
    fn extended_len(&self) -> usize {
        let deth = if self.transport == Transport::Ud { DETH } else { 0 };
        let xrceth = if self.has_xrceth() { XRCETH } else { 0 };
        deth + xrceth + self.opcode.extended_len()
    }

    /// The IP header as what is written in front of a received datagram: 40 bytes, of which IPv4 fills the last 20.
    pub fn global_header(&self) -> [u8; 40] {
        let mut ip = Vec::with_capacity(IPV6);
        self.encode_ip(&mut ip, UDP + self.transport_len());
        let mut header = [0; 40];
        header[IPV6 - ip.len()..].copy_from_slice(&ip);
        header
    }

    /// Appends the packet to `frame` as the bytes of an Ethernet frame, without its check sequence.
    pub fn encode(&self, frame: &mut Vec<u8>) {
        let start = frame.len();
        let (pad, transport) = (self.pad(), self.transport_len());
        self.encode_ethernet(frame);
        let ip = frame.len();
        self.encode_ip(frame, UDP + transport);
        frame.extend_from_slice(&self.route.sport.to_be_bytes());
        frame.extend_from_slice(&UDP_PORT.to_be_bytes());
        frame.extend_from_slice(&((UDP + transport) as u16).to_be_bytes());
        frame.extend_from_slice(&[0, 0]); // no UDP checksum: the ICRC covers everything
        self.encode_bth(frame, pad);
        self.encode_extended(frame);
        frame.extend_from_slice(&self.payload);
        frame.extend_from_slice(&[0; 3][..pad]);
        let icrc = icrc::compute(&frame[ip..]);
        frame.extend_from_slice(&icrc.to_le_bytes());
        debug_assert_eq!(frame.len() - start, self.frame_len());
        if let Some(bit) = self.flipped {
            flip(&mut frame[start..], bit);
        }
    }

    /// Bytes of the whole frame, without its check sequence.
    pub fn frame_len(&self) -> usize {
        let tag = self.route.tag.map_or(0, |_| TAG);
        ETHERNET + tag + if self.route.is_ipv4() { IPV4 } else { IPV6 } + UDP + self.transport_len()
    }

    /// Bytes after the UDP header.
    fn transport_len(&self) -> usize {
        BTH + self.extended_len() + self.payload.len() + self.pad() + icrc::LEN
    }

    /// Bytes that make the payload a multiple of four.
    fn pad(&self) -> usize {
        self.payload.len().wrapping_neg() & 3
    }

    fn encode_ethernet(&self, frame: &mut Vec<u8>) {
        frame.extend_from_slice(&self.route.dst_mac);
        frame.extend_from_slice(&self.route.src_mac);
        if let Some(tag) = self.route.tag {
            frame.extend_from_slice(&ETHERTYPE_TAG.to_be_bytes());
            frame.extend_from_slice(&tag.to_be_bytes());
        }
        let ethertype = if self.route.is_ipv4() { ETHERTYPE_IPV4 } else { ETHERTYPE_IPV6 };
        frame.extend_from_slice(&ethertype.to_be_bytes());
    }

    fn encode_ip(&self, frame: &mut Vec<u8>, payload: usize) {
        let route = &self.route;
        if let (Some(src), Some(dst)) = (mapped_ipv4(&route.src), mapped_ipv4(&route.dst)) {
            let mut header = [0; IPV4];
            header[0] = 0x45;
            header[1] = route.tclass;
            header[2..4].copy_from_slice(&((IPV4 + payload) as u16).to_be_bytes());
            header[6] = 0x40; // don't fragment
            header[8] = route.hop_limit;
            header[9] = PROTOCOL_UDP;
            header[12..16].copy_from_slice(&src);
            header[16..20].copy_from_slice(&dst);
            let checksum = !ones_sum(&header);
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
            frame.extend_from_slice(&header);
        } else {
            let first = 6 << 28 | u32::from(route.tclass) << 20 | route.flow_label & 0xf_ffff;
            frame.extend_from_slice(&first.to_be_bytes());
            frame.extend_from_slice(&(payload as u16).to_be_bytes());
            frame.extend_from_slice(&[PROTOCOL_UDP, route.hop_limit]);
            frame.extend_from_slice(&route.src);
            frame.extend_from_slice(&route.dst);
        }
    }

    fn encode_bth(&self, frame: &mut Vec<u8>, pad: usize) {
        // The migration bit stands for "migrated", the only path state there is on RoCE.
        let opcode = self.transport.number(self.opcode);
        frame.extend_from_slice(&[opcode, u8::from(self.solicited) << 7 | 1 << 6 | (pad as u8) << 4]);
        frame.extend_from_slice(&self.pkey.to_be_bytes());
        let marks = u32::from(self.fecn) << 31 | u32::from(self.becn) << 30;
        frame.extend_from_slice(&(marks | self.dest_qpn & Psn::MASK).to_be_bytes());
        frame.extend_from_slice(&(u32::from(self.ack_request) << 31 | self.psn.number()).to_be_bytes());
    }

    fn encode_extended(&self, frame: &mut Vec<u8>) {
        if self.has_xrceth() {
            frame.extend_from_slice(&(self.xrc_srqn & Psn::MASK).to_be_bytes());
        }
        if self.transport == Transport::Ud {
            frame.extend_from_slice(&self.deth.qkey.to_be_bytes());
            frame.extend_from_slice(&(self.deth.src_qpn & Psn::MASK).to_be_bytes());
        }
        if self.opcode.has_reth() {
            frame.extend_from_slice(&self.reth.va.to_be_bytes());
            frame.extend_from_slice(&self.reth.rkey.to_be_bytes());
            frame.extend_from_slice(&self.reth.len.to_be_bytes());
        }
        if self.opcode.has_aeth() {
            let aeth = u32::from(self.aeth.syndrome) << 24 | self.aeth.msn & Psn::MASK;
            frame.extend_from_slice(&aeth.to_be_bytes());
        }
        if self.opcode.has_immediate() || self.opcode.has_ieth() {
            frame.extend_from_slice(&self.immediate.to_be_bytes());
        }
        if self.opcode.has_atomic() {
            frame.extend_from_slice(&self.atomic.va.to_be_bytes());
            frame.extend_from_slice(&self.atomic.rkey.to_be_bytes());
            frame.extend_from_slice(&self.atomic.swap_add.to_be_bytes());
            frame.extend_from_slice(&self.atomic.compare.to_be_bytes());
        }
        if self.opcode.has_atomic_ack() {
            frame.extend_from_slice(&self.atomic_ack.to_be_bytes());
        }
    }

    /// The packet that is the Ethernet frame `frame` (without its check sequence; padding after the IP packet is ignored).
    pub fn decode(frame: &[u8]) -> Result<Packet, DecodeError> {
        let mut route = Route::default();
        let mut ethernet = Reader(frame);
        route.dst_mac = ethernet.take().ok_or(DecodeError::NotRoce)?;
        route.src_mac = ethernet.take().ok_or(DecodeError::NotRoce)?;
        let mut ethertype = ethernet.u16().ok_or(DecodeError::NotRoce)?;
        if ethertype == ETHERTYPE_TAG {
            route.tag = ethernet.u16();
            ethertype = ethernet.u16().ok_or(DecodeError::NotRoce)?;
        }
        let ip = ethernet.0;
        let header = match ethertype {
            ETHERTYPE_IPV4 => decode_ipv4(ip, &mut route)?,
            ETHERTYPE_IPV6 => decode_ipv6(ip, &mut route)?,
            _ => return Err(DecodeError::NotRoce),
        };
        let (ip, udp) = header;
        let mut udp = Reader(udp);
        route.sport = udp.u16().ok_or(DecodeError::NotRoce)?;
        if udp.u16() != Some(UDP_PORT) {
            return Err(DecodeError::NotRoce);
        }
        let len = usize::from(udp.u16().ok_or(DecodeError::Length)?);
        udp.u16().ok_or(DecodeError::Length)?;
        let transport = udp.0;
        if len != UDP + transport.len() || transport.len() < BTH + icrc::LEN {
            return Err(DecodeError::Length);
        }
        let (covered, stored) = ip.split_at(ip.len() - icrc::LEN);
        if icrc::compute(covered).to_le_bytes() != stored {
            return Err(DecodeError::Icrc);
        }
        decode_transport(&transport[..transport.len() - icrc::LEN], route)
    }
}

/// Flips bit `bit`, counted modulo the frame's length.
pub(crate) fn flip(frame: &mut [u8], bit: u32) {
    if !frame.is_empty() {
        let bit = bit as usize % (frame.len() * 8);
        frame[bit / 8] ^= 0x80 >> (bit % 8);
    }
}

/// Whether the frame is RoCE v2, by its addresses alone; tells transport packets from what belongs to Ethernet queues.
pub fn is_roce(frame: &[u8]) -> bool {
    let mut route = Route::default();
    let is_tagged = frame.get(12..ETHERNET) == Some(&ETHERTYPE_TAG.to_be_bytes());
    let Some(frame) = frame.get(if is_tagged { TAG } else { 0 }..) else { return false };
    let udp = match frame.get(12..ETHERNET) {
        Some([0x08, 0x00]) => decode_ipv4(&frame[ETHERNET..], &mut route),
        Some([0x86, 0xdd]) => decode_ipv6(&frame[ETHERNET..], &mut route),
        _ => return false,
    };
    udp.is_ok_and(|(_, udp)| udp.get(2..4) == Some(&UDP_PORT.to_be_bytes()))
}

/// Checks an IPv4 header; the packet cut to its length, and what follows the header.
fn decode_ipv4<'a>(ip: &'a [u8], route: &mut Route) -> Result<(&'a [u8], &'a [u8]), DecodeError> {
    let header = ip.get(..IPV4).ok_or(DecodeError::NotRoce)?;
    // Options, fragments and other protocols are none of ours.
    if header[0] != 0x45 || header[9] != PROTOCOL_UDP || header[6] & 0x3f != 0 || header[7] != 0 {
        return Err(DecodeError::NotRoce);
    }
    if ones_sum(header) != 0xffff {
        return Err(DecodeError::IpChecksum);
    }
    let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let ip = ip.get(..len).filter(|ip| ip.len() >= IPV4 + UDP).ok_or(DecodeError::Length)?;
    route.tclass = ip[1];
    route.hop_limit = ip[8];
    route.src = gid_of_ipv4([ip[12], ip[13], ip[14], ip[15]]);
    route.dst = gid_of_ipv4([ip[16], ip[17], ip[18], ip[19]]);
    Ok((ip, &ip[IPV4..]))
}

/// Checks an IPv6 header; the packet cut to its length, and what follows the header.
fn decode_ipv6<'a>(ip: &'a [u8], route: &mut Route) -> Result<(&'a [u8], &'a [u8]), DecodeError> {
    let mut header = Reader(ip);
    let first = header.u32().ok_or(DecodeError::NotRoce)?;
    let len = header.u16().ok_or(DecodeError::NotRoce)?;
    let [protocol, hop_limit] = header.take().ok_or(DecodeError::NotRoce)?;
    if first >> 28 != 6 || protocol != PROTOCOL_UDP {
        return Err(DecodeError::NotRoce);
    }
    route.tclass = (first >> 20) as u8;
    route.flow_label = first & 0xf_ffff;
    route.hop_limit = hop_limit;
    route.src = header.take().ok_or(DecodeError::NotRoce)?;
    route.dst = header.take().ok_or(DecodeError::NotRoce)?;
    // Mapped addresses (RFC 4291, 2.5.5.2) stand for IPv4 in GIDs: a header with them would be sent on as another one.
    if route.is_ipv4() {
        return Err(DecodeError::NotRoce);
    }
    let ip = ip.get(..IPV6 + usize::from(len)).filter(|ip| ip.len() >= IPV6 + UDP).ok_or(DecodeError::Length)?;
    Ok((ip, &ip[IPV6..]))
}

/// The packet whose BTH starts `bytes`, which end where the ICRC begins.
fn decode_transport(bytes: &[u8], route: Route) -> Result<Packet, DecodeError> {
    let mut reader = Reader(bytes);
    let [number, flags] = reader.take().ok_or(DecodeError::Length)?;
    let (transport, opcode) = Transport::split(number).ok_or(DecodeError::Opcode(number))?;
    if flags & 0x0f != 0 {
        return Err(DecodeError::Malformed);
    }
    let pkey = reader.u16().ok_or(DecodeError::Length)?;
    let qpn = reader.u32().ok_or(DecodeError::Length)?;
    let psn = reader.u32().ok_or(DecodeError::Length)?;
    let mut packet = Packet::new(opcode, route, qpn, Psn::new(psn));
    packet.transport = transport;
    packet.pkey = pkey;
    packet.solicited = flags >> 7 != 0;
    packet.ack_request = psn >> 31 != 0;
    packet.fecn = qpn >> 31 != 0;
    packet.becn = qpn >> 30 & 1 != 0;
    decode_extended(&mut reader, &mut packet).ok_or(DecodeError::Length)?;
    let pad = usize::from(flags >> 4 & 3);
    let len = reader.0.len().checked_sub(pad).ok_or(DecodeError::Length)?;
    if len > MAX_PAYLOAD || (len > 0 && !opcode.has_payload()) {
        return Err(DecodeError::Malformed);
    }
    packet.payload.extend_from_slice(&reader.0[..len]);
    Ok(packet)
}

fn decode_extended(reader: &mut Reader, packet: &mut Packet) -> Option<()> {
    let opcode = packet.opcode;
    if packet.has_xrceth() {
        packet.xrc_srqn = reader.u32()? & Psn::MASK;
    }
    if packet.transport == Transport::Ud {
        packet.deth = Deth { qkey: reader.u32()?, src_qpn: reader.u32()? & Psn::MASK };
    }
    if opcode.has_reth() {
        packet.reth = Reth { va: reader.u64()?, rkey: reader.u32()?, len: reader.u32()? };
    }
    if opcode.has_aeth() {
        let aeth = reader.u32()?;
        packet.aeth = Aeth { syndrome: (aeth >> 24) as u8, msn: aeth & Psn::MASK };
    }
    if opcode.has_immediate() || opcode.has_ieth() {
        packet.immediate = reader.u32()?;
    }
    if opcode.has_atomic() {
        packet.atomic =
            AtomicEth { va: reader.u64()?, rkey: reader.u32()?, swap_add: reader.u64()?, compare: reader.u64()? };
    }
    if opcode.has_atomic_ack() {
        packet.atomic_ack = reader.u64()?;
    }
    Some(())
}

/// The ones' complement sum of an IPv4 header.
fn ones_sum(header: &[u8]) -> u16 {
    let sum: u32 = header.chunks_exact(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// Big-endian numbers, one after the other.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }
    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }
    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }
    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn route(v4: bool) -> Route {
        let gid = |last| {
            if v4 {
                gid_of_ipv4([10, 0, 0, last])
            } else {
                [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0xff, 0xfe, 0, 0, last]
            }
        };
        Route {
            dst_mac: [2, 0, 0, 0, 0, 2],
            src_mac: [2, 0, 0, 0, 0, 1],
            src: gid(1),
            dst: gid(2),
            sport: 0xc123,
            hop_limit: 64,
            tclass: 0x62,
            flow_label: if v4 { 0 } else { 0xabcde },
            tag: None,
        }
    }

    fn encoded(packet: &Packet) -> Vec<u8> {
        let mut frame = Vec::new();
        packet.encode(&mut frame);
        frame
    }

    /// Written out by hand from the headers' definitions; the ICRC is checked against cards' packets in `icrc`.
    #[test]
    fn golden_send_only() {
        let mut packet = Packet::new(Opcode::SendOnlyImm, route(true), 0x123456, Psn::new(0xabcdef));
        packet.immediate = 0x11223344;
        packet.solicited = true;
        packet.ack_request = true;
        packet.payload = vec![1, 2, 3, 4, 5];
        let frame = encoded(&packet);
        let expected = [
            2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, // Ethernet
            0x45, 0x62, 0, 56, 0, 0, 0x40, 0, 64, 17, 0x26, 0x51, 10, 0, 0, 1, 10, 0, 0, 2, // IPv4
            0xc1, 0x23, 0x12, 0xb7, 0, 36, 0, 0, // UDP
            5, 0xf0, 0xff, 0xff, 0, 0x12, 0x34, 0x56, 0x80, 0xab, 0xcd, 0xef, // BTH: three bytes of padding
            0x11, 0x22, 0x33, 0x44, 1, 2, 3, 4, 5, 0, 0, 0,
        ];
        assert_eq!(frame[..expected.len()], expected);
        assert_eq!(frame.len(), expected.len() + 4);
        assert_eq!(Packet::decode(&frame), Ok(packet));
    }

    #[test]
    fn a_tag_stands_between_addresses_and_type() {
        let plain = Packet::new(Opcode::Acknowledge, route(true), 7, Psn::new(9));
        let mut tagged = plain.clone();
        tagged.route.tag = Some(0x6007);
        let (plain, frame) = (encoded(&plain), encoded(&tagged));
        assert_eq!(frame[..12], plain[..12]);
        assert_eq!((&frame[12..16], &frame[16..]), (&[0x81, 0, 0x60, 7][..], &plain[12..]));
    }

    #[test]
    fn an_ipv6_header_with_ipv4_addresses_is_no_roce() {
        let mut frame = encoded(&Packet::new(Opcode::SendOnly, route(false), 1, Psn::default()));
        for (at, last) in [(ETHERNET + 8, 1), (ETHERNET + 24, 2)] {
            frame[at..at + 16].copy_from_slice(&gid_of_ipv4([10, 0, 0, last]));
        }
        let end = frame.len() - icrc::LEN;
        let crc = icrc::compute(&frame[ETHERNET..end]);
        frame[end..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Packet::decode(&frame), Err(DecodeError::NotRoce));
        assert!(!is_roce(&frame));
    }

    #[test]
    fn each_bit_of_the_invariant_part_is_covered() {
        let mut packet = Packet::new(Opcode::WriteOnly, route(false), 7, Psn::new(9));
        packet.reth = Reth { va: 0x1000, rkey: 0x200, len: 3 };
        packet.payload = vec![9, 8, 7];
        let frame = encoded(&packet);
        for bit in (ETHERNET + IPV6 + UDP) * 8..frame.len() * 8 {
            let mut damaged = frame.clone();
            damaged[bit / 8] ^= 0x80 >> (bit % 8);
            let variant = bit / 8 == ETHERNET + IPV6 + UDP + 4; // FECN, BECN, reserved
            assert_eq!(Packet::decode(&damaged).is_ok(), variant, "bit {bit}");
        }
    }

    #[test]
    fn a_flipped_bit_is_in_the_bytes() {
        let mut packet = Packet::new(Opcode::Acknowledge, route(true), 7, Psn::new(9));
        let whole = encoded(&packet);
        packet.flipped = Some(8 * 50 + 3);
        let frame = encoded(&packet);
        assert_eq!((whole[50] ^ frame[50], Packet::decode(&frame)), (0x10, Err(DecodeError::Icrc)));
    }

    prop_compose! {
        fn any_packet()(
            index in 0..Opcode::ALL.len(), transport in proptest::sample::select(&Transport::ALL[..]),
            srqn in 0..1u32 << 24, deth: (u32, u32), v4: bool, tag: Option<u16>, flags: [bool; 4],
            qpn in 0..1u32 << 24, psn: u32,
            reth: (u64, u32, u32), aeth: (u8, u32), immediate: u32, atomic: (u64, u32, u64, u64), atomic_ack: u64,
            payload in proptest::collection::vec(any::<u8>(), 0..300),
        ) -> Packet {
            let opcode = Opcode::ALL[index];
            let mut packet = Packet::new(opcode, Route { tag, ..route(v4) }, qpn, Psn::new(psn));
            if transport.has(opcode) { packet.transport = transport; }
            if packet.has_xrceth() { packet.xrc_srqn = srqn; }
            if packet.transport == Transport::Ud { packet.deth = Deth { qkey: deth.0, src_qpn: deth.1 & Psn::MASK }; }
            [packet.solicited, packet.ack_request, packet.fecn, packet.becn] = flags;
            if opcode.has_reth() { packet.reth = Reth { va: reth.0, rkey: reth.1, len: reth.2 }; }
            if opcode.has_aeth() { packet.aeth = Aeth { syndrome: aeth.0, msn: aeth.1 & Psn::MASK }; }
            if opcode.has_immediate() || opcode.has_ieth() { packet.immediate = immediate; }
            if opcode.has_atomic() {
                packet.atomic = AtomicEth { va: atomic.0, rkey: atomic.1, swap_add: atomic.2, compare: atomic.3 };
            }
            if opcode.has_atomic_ack() { packet.atomic_ack = atomic_ack; }
            if opcode.has_payload() { packet.payload = payload; }
            packet
        }
    }

    proptest! {
        #[test]
        fn what_encodes_decodes_to_itself(packet in any_packet()) {
            let mut frame = encoded(&packet);
            prop_assert!(is_roce(&frame));
            prop_assert_eq!(Packet::decode(&frame), Ok(packet.clone()));
            frame.extend_from_slice(&[0; 7]); // Ethernet padding
            prop_assert_eq!(Packet::decode(&frame), Ok(packet));
        }

        #[test]
        fn decoding_any_bytes_is_no_panic(frame in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Packet::decode(&frame);
            is_roce(&frame);
        }

        #[test]
        fn decoding_a_broken_packet_is_no_panic(packet in any_packet(), cut: usize, at: usize, value: u8) {
            let mut frame = encoded(&packet);
            frame.truncate(cut % (frame.len() + 1));
            if !frame.is_empty() {
                let at = at % frame.len();
                frame[at] = value;
            }
            let _ = Packet::decode(&frame);
        }
    }
}
