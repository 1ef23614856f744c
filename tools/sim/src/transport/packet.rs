//! RoCE v2 packets: as the engines handle them, and as bytes.
//!
//! Between the functions of one process a [`Packet`] travels as it is. [`Packet::encode`] and [`Packet::decode`] are
//! for wires that lead outside and for captures.

use etherparse::{EtherType, Ethernet2Header, IpDscp, IpEcn, IpNumber, Ipv4Header, SingleVlanHeader, UdpHeader};
use mlx5_prm::ib;
use mlx5_prm::layout::Layout;

pub use super::header::{
    Aeth, AtomicEth, Deth, Gid, Mac, Nak, Reth, Route, Syndrome, gid_of_ipv4, is_group, mac_of_group, mapped_ipv4,
};
use super::icrc;
use super::opcode::{Opcode, Transport};
use super::psn::Psn;

/// UDP destination port of RoCE v2. IBTA annex A17.
pub const UDP_PORT: u16 = 4791;
/// The default partition, full membership: the only one on Ethernet.
pub const DEFAULT_PKEY: u16 = 0xffff;
/// Most bytes a packet's payload has.
pub const MAX_PAYLOAD: usize = 4096;

/// Bytes of the largest frame that are not payload: Ethernet and its check sum, IPv6, UDP, BTH, RETH with immediate,
/// ICRC.
pub(crate) const FRAME_OVERHEAD: usize =
    Ethernet2Header::LEN + 4 + ib::Grh::SIZE + UdpHeader::LEN + ib::Bth::SIZE + LONGEST_EXTENDED + icrc::LEN;
const LONGEST_EXTENDED: usize = ib::Reth::SIZE + ib::ImmDt::SIZE;

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
    /// The bit of its frame that is flipped on the way, and that the checks where it arrives notice: it is dropped
    /// there.
    pub flipped: Option<u32>,
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
    pub(super) fn has_xrceth(&self) -> bool {
        self.transport == Transport::Xrc && self.opcode.message().is_some()
    }

    /// Bytes of all extended headers.
    fn extended_len(&self) -> usize {
        let deth = if self.transport == Transport::Ud { ib::Deth::SIZE } else { 0 };
        let xrceth = if self.has_xrceth() { ib::Xrceth::SIZE } else { 0 };
        deth + xrceth + self.opcode.extended_len()
    }

    /// The IP header as what is written in front of a received datagram: 40 bytes, of which IPv4 fills the last 20.
    /// IBTA annex A17.
    pub fn global_header(&self) -> [u8; ib::Grh::SIZE] {
        let mut header = [0; ib::Grh::SIZE];
        let payload = UdpHeader::LEN + self.transport_len();
        match self.route.ipv4_header(payload) {
            Some(ipv4) => header[ib::Grh::SIZE - Ipv4Header::MIN_LEN..].copy_from_slice(&ipv4.to_bytes()),
            None => header.copy_from_slice(self.route.ipv6_header(payload).as_bytes()),
        }
        header
    }

    /// Appends the packet to `frame` as the bytes of an Ethernet frame, without its check sequence.
    pub fn encode(&self, frame: &mut Vec<u8>) {
        let start = frame.len();
        let udp_len = UdpHeader::LEN + self.transport_len();
        self.route.encode_ethernet(frame);
        let ip = frame.len();
        match self.route.ipv4_header(udp_len) {
            Some(header) => frame.extend_from_slice(&header.to_bytes()),
            None => frame.extend_from_slice(self.route.ipv6_header(udp_len).as_bytes()),
        }
        // No UDP checksum: the ICRC covers everything. IBTA annex A17.
        let (source_port, length) = (self.route.sport, udp_len as u16);
        let udp = UdpHeader { source_port, destination_port: UDP_PORT, length, checksum: 0 };
        frame.extend_from_slice(&udp.to_bytes());
        frame.extend_from_slice(self.bth().as_bytes());
        self.encode_extended(frame);
        frame.extend_from_slice(&self.payload);
        frame.extend_from_slice(&[0; 3][..self.pad()]);
        let icrc = icrc::compute(&frame[ip..]);
        frame.extend_from_slice(&icrc.to_le_bytes());
        debug_assert_eq!(frame.len() - start, self.frame_len());
        if let Some(bit) = self.flipped {
            flip(&mut frame[start..], bit);
        }
    }

    /// Bytes of the whole frame, without its check sequence.
    pub fn frame_len(&self) -> usize {
        let tag = self.route.tag.map_or(0, |_| SingleVlanHeader::LEN);
        let ip = if self.route.is_ipv4() { Ipv4Header::MIN_LEN } else { ib::Grh::SIZE };
        Ethernet2Header::LEN + tag + ip + UdpHeader::LEN + self.transport_len()
    }

    /// Bytes after the UDP header.
    fn transport_len(&self) -> usize {
        ib::Bth::SIZE + self.extended_len() + self.payload.len() + self.pad() + icrc::LEN
    }

    /// Bytes that make the payload a multiple of four.
    fn pad(&self) -> usize {
        self.payload.len().wrapping_neg() & 3
    }

    fn bth(&self) -> ib::Bth {
        let mut bth = ib::Bth::ZERO;
        // "Migrated" is the only path state there is on RoCE.
        bth.w().service(self.transport.service()).operation(self.opcode.operation()).se(self.solicited).mig_req(true);
        bth.w().pad_cnt(self.pad() as u8).p_key(self.pkey).fecn(self.fecn).becn(self.becn);
        bth.w().dest_qp(self.dest_qpn & Psn::MASK).ack_req(self.ack_request).psn(self.psn.number());
        bth
    }

    fn encode_extended(&self, frame: &mut Vec<u8>) {
        if self.has_xrceth() {
            let mut xrceth = ib::Xrceth::ZERO;
            xrceth.w().xrcsrq(self.xrc_srqn & Psn::MASK);
            frame.extend_from_slice(xrceth.as_bytes());
        }
        if self.transport == Transport::Ud {
            frame.extend_from_slice(ib::Deth::from(self.deth).as_bytes());
        }
        if self.opcode.has_reth() {
            frame.extend_from_slice(ib::Reth::from(self.reth).as_bytes());
        }
        if self.opcode.has_aeth() {
            frame.extend_from_slice(ib::Aeth::from(self.aeth).as_bytes());
        }
        if self.opcode.has_immediate() {
            let mut header = ib::ImmDt::ZERO;
            header.w().imm_dt(self.immediate);
            frame.extend_from_slice(header.as_bytes());
        }
        if self.opcode.has_ieth() {
            let mut header = ib::Ieth::ZERO;
            header.w().r_key(self.immediate);
            frame.extend_from_slice(header.as_bytes());
        }
        if self.opcode.has_atomic() {
            frame.extend_from_slice(ib::AtomicEth::from(self.atomic).as_bytes());
        }
        if self.opcode.has_atomic_ack() {
            let mut header = ib::AtomicAckEth::ZERO;
            header.w().orig_rem_dt(self.atomic_ack);
            frame.extend_from_slice(header.as_bytes());
        }
    }
}

impl Route {
    fn encode_ethernet(&self, frame: &mut Vec<u8>) {
        let ip = if self.is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 };
        let ether_type = if self.tag.is_some() { EtherType::VLAN_TAGGED_FRAME } else { ip };
        let ethernet = Ethernet2Header { source: self.src_mac, destination: self.dst_mac, ether_type };
        frame.extend_from_slice(&ethernet.to_bytes());
        if let Some(tag) = self.tag {
            frame.extend_from_slice(&tag.to_be_bytes());
            frame.extend_from_slice(&ip.0.to_be_bytes());
        }
    }

    /// The IPv4 header of a packet with `payload` bytes after it; `None` where IPv6 is spoken.
    fn ipv4_header(&self, payload: usize) -> Option<Ipv4Header> {
        let mut header = Ipv4Header {
            dscp: IpDscp::try_new(self.tclass >> 2).unwrap_or_default(),
            ecn: IpEcn::try_new(self.tclass & 3).unwrap_or_default(),
            total_len: (Ipv4Header::MIN_LEN + payload) as u16,
            dont_fragment: true,
            time_to_live: self.hop_limit,
            protocol: IpNumber::UDP,
            source: mapped_ipv4(&self.src)?,
            destination: mapped_ipv4(&self.dst)?,
            ..Ipv4Header::default()
        };
        header.header_checksum = header.calc_header_checksum();
        Some(header)
    }

    fn ipv6_header(&self, payload: usize) -> ib::Grh {
        let mut header = ib::Grh::default();
        header.w().t_class(self.tclass).flow_label(self.flow_label & 0xf_ffff).pay_len(payload as u16);
        header.w().nxt_hdr(IpNumber::UDP.0).hop_lmt(self.hop_limit).sgid(&self.src).dgid(&self.dst);
        header
    }
}

/// Flips bit `bit`, counted modulo the frame's length.
pub(crate) fn flip(frame: &mut [u8], bit: u32) {
    if !frame.is_empty() {
        let bit = bit as usize % (frame.len() * 8);
        frame[bit / 8] ^= 0x80 >> (bit % 8);
    }
}
