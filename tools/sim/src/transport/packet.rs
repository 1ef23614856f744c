//! RoCE v2 packets, as the engines use them and as bytes.
//!
//! Between functions of one process a [`Packet`] is not encoded. [`Packet::encode`] and [`Packet::decode`] serve
//! uplinks and captures.

use etherparse::{EtherType, Ethernet2Header, IpDscp, IpEcn, IpNumber, Ipv4Header, SingleVlanHeader, UdpHeader};
use mlx5_prm::ib;
use mlx5_prm::layout::Layout;

use super::dynamic::Dceth;
pub use super::header::{
    Aeth, AtomicEth, Deth, Gid, Mac, Nak, Reth, Route, Syndrome, gid_of_ipv4, is_group, mac_of_group, mapped_ipv4,
};
use super::icrc;
use super::opcode::{Opcode, Transport};
use super::psn::Psn;

/// UDP destination port of RoCE v2. IBTA A17.3.2.2.
pub const UDP_PORT: u16 = 4791;
/// The default P_Key, full membership: the only one on RoCE. IBTA A17.4.7, 10.9.1.2.
pub const DEFAULT_PKEY: u16 = 0xffff;
/// Maximum payload of a packet in bytes.
pub const MAX_PAYLOAD: usize = 4096;

/// Maximum of a frame's bytes that are not payload: Ethernet with FCS, IPv6, UDP, BTH, RETH, immediate, ICRC.
pub(crate) const FRAME_OVERHEAD: usize =
    Ethernet2Header::LEN + 4 + ib::Grh::SIZE + UdpHeader::LEN + ib::Bth::SIZE + LONGEST_EXTENDED + icrc::LEN;
const LONGEST_EXTENDED: usize = ib::Reth::SIZE + ib::ImmDt::SIZE;

/// A packet. Of the extended headers, only those that its transport and opcode have are meaningful.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// Ethernet, IP, UDP.
    pub route: Route,
    /// Its transport.
    pub transport: Transport,
    /// Its operation.
    pub opcode: Opcode,
    /// Solicited event.
    pub solicited: bool,
    /// AckReq bit: an acknowledgement is requested.
    pub ack_request: bool,
    /// Forward congestion was seen (`fecn`).
    pub fecn: bool,
    /// Backward congestion notification (`becn`).
    pub becn: bool,
    /// Partition key.
    pub pkey: u16,
    /// Destination QP number, 24 bits.
    pub dest_qpn: u32,
    /// Packet sequence number.
    pub psn: Psn,
    /// Destination XRC SRQ number, 24 bits: XRCETH of requests.
    pub xrc_srqn: u32,
    /// DETH, of UD.
    pub deth: Deth,
    /// Of requests of DC.
    pub dc: Dceth,
    /// RETH.
    pub reth: Reth,
    /// AETH.
    pub aeth: Aeth,
    /// Immediate data (ImmDt), or the R_Key to invalidate (IETH).
    pub immediate: u32,
    /// AtomicETH.
    pub atomic: AtomicEth,
    /// AtomicAckETH: the original value in memory.
    pub atomic_ack: u64,
    /// Payload without padding.
    pub payload: Vec<u8>,
    /// A bit of its frame flipped by fault injection. The receiver's checks detect it and drop the packet.
    pub flipped: Option<u32>,
}

impl Packet {
    /// An RC packet without extended headers and payload.
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
            dc: Dceth::default(),
            reth: Reth::default(),
            aeth: Aeth::default(),
            immediate: 0,
            atomic: AtomicEth::default(),
            atomic_ack: 0,
            payload: Vec::new(),
            flipped: None,
        }
    }

    /// Whether an XRCETH follows the BTH.
    pub(super) fn has_xrceth(&self) -> bool {
        let is_request = self.opcode.message().is_some() && !self.opcode.is_unsupported();
        self.transport == Transport::Xrc && is_request
    }

    /// Whether a DCETH follows the BTH.
    pub(super) fn has_dceth(&self) -> bool {
        self.transport == Transport::Dc && self.opcode.message().is_some()
    }

    /// Length of all extended headers in bytes.
    fn extended_len(&self) -> usize {
        let deth = if self.transport == Transport::Ud { ib::Deth::SIZE } else { 0 };
        let xrceth = if self.has_xrceth() { ib::Xrceth::SIZE } else { 0 };
        let dceth = if self.has_dceth() { Dceth::SIZE } else { 0 };
        deth + xrceth + dceth + self.opcode.extended_len()
    }

    /// The IP header in front of a received UD message: 40 bytes, of which IPv4 uses the last 20. IBTA A17.4.5.2.
    pub fn global_header(&self) -> [u8; ib::Grh::SIZE] {
        let mut header = [0; ib::Grh::SIZE];
        let payload = UdpHeader::LEN + self.transport_len();
        match self.route.ipv4_header(payload) {
            Some(ipv4) => header[ib::Grh::SIZE - Ipv4Header::MIN_LEN..].copy_from_slice(&ipv4.to_bytes()),
            None => header.copy_from_slice(self.route.ipv6_header(payload).as_bytes()),
        }
        header
    }

    /// Appends the packet to `frame` as an Ethernet frame without FCS.
    pub fn encode(&self, frame: &mut Vec<u8>) {
        let start = frame.len();
        let udp_len = UdpHeader::LEN + self.transport_len();
        self.route.encode_ethernet(frame);
        let ip = frame.len();
        match self.route.ipv4_header(udp_len) {
            Some(header) => frame.extend_from_slice(&header.to_bytes()),
            None => frame.extend_from_slice(self.route.ipv6_header(udp_len).as_bytes()),
        }
        // The UDP checksum is 0. IBTA A17.3.2.4.
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

    /// Length of the frame in bytes, without FCS.
    pub fn frame_len(&self) -> usize {
        let tag = self.route.tag.map_or(0, |_| SingleVlanHeader::LEN);
        let ip = if self.route.is_ipv4() { Ipv4Header::MIN_LEN } else { ib::Grh::SIZE };
        Ethernet2Header::LEN + tag + ip + UdpHeader::LEN + self.transport_len()
    }

    /// Length after the UDP header in bytes.
    fn transport_len(&self) -> usize {
        ib::Bth::SIZE + self.extended_len() + self.payload.len() + self.pad() + icrc::LEN
    }

    /// Padding that makes the payload a multiple of four. IBTA 9.2.
    fn pad(&self) -> usize {
        self.payload.len().wrapping_neg() & 3
    }

    fn bth(&self) -> ib::Bth {
        let mut bth = ib::Bth::ZERO;
        // MigReq is always 1 on RoCE: there is no path migration.
        let (service, operation) = self.transport.in_header(self.opcode);
        bth.w().service(service).operation(operation).se(self.solicited).mig_req(true);
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
        if self.has_dceth() {
            frame.extend_from_slice(&self.dc.encode());
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

    /// The IPv4 header of a packet with `payload` bytes after it; `None` for IPv6. IBTA A17.3.1.1.
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

/// Flips bit `bit` of the frame, modulo its length.
pub(crate) fn flip(frame: &mut [u8], bit: u32) {
    if !frame.is_empty() {
        let bit = bit as usize % (frame.len() * 8);
        frame[bit / 8] ^= 0x80 >> (bit % 8);
    }
}
