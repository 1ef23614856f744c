//! Headers behind those of IP and UDP that flow entries match: GRE (RFC 2890), ICMP (RFC 792, 4443), MPLS (RFC 3032),
//! GENEVE (RFC 8926), VXLAN-GPE, GTP-U (3GPP TS 29.281), the BTH of RoCE (IBTA 9.2).
//!
//! A header that is cut off or of another version is none.

use etherparse::{IpNumber, ip_number};

use crate::ethernet::Headers;

/// EtherType of MPLS.
const MPLS: u16 = 0x8847;
/// UDP's destination ports.
const GTPU_PORT: u16 = 2152;
const VXLAN_GPE_PORT: u16 = 4790;
const ROCE_PORT: u16 = 4791;
const GENEVE_PORT: u16 = 6081;
/// Bytes of UDP's header.
const UDP: usize = 8;

/// What IP carries, if it is `protocol` and no fragment.
fn of_protocol<'a>(frame: &'a [u8], headers: &Headers, protocol: IpNumber) -> Option<&'a [u8]> {
    let ip = headers.ip.filter(|ip| ip.protocol == protocol.0 && !ip.is_fragment)?;
    frame.get(ip.at + ip.header_len..ip.at + ip.len)
}

/// What a datagram to `port` carries.
fn of_port<'a>(frame: &'a [u8], headers: &Headers, port: u16) -> Option<&'a [u8]> {
    let to = headers.l4.filter(|l4| !l4.is_tcp)?.destination_port;
    of_protocol(frame, headers, ip_number::UDP).filter(|_| to == port)?.get(UDP..)
}

/// The 24 bits from byte `at` on.
fn three(bytes: &[u8; 8], at: usize) -> u32 {
    u32::from_be_bytes([0, bytes[at], bytes[at + 1], bytes[at + 2]])
}

/// GRE.
pub(super) struct Gre {
    pub has_checksum: bool,
    /// `None`: it has none.
    pub key: Option<u32>,
    pub has_sequence: bool,
    pub protocol: u16,
}

impl Gre {
    pub fn of(frame: &[u8], headers: &Headers) -> Option<Gre> {
        let bytes = of_protocol(frame, headers, ip_number::GRE)?;
        let [flags, version, kind @ ..]: [u8; 4] = *bytes.first_chunk()?;
        let has = |bit: u8| flags & bit != 0;
        let key_at = if has(0x80) { 8 } else { 4 };
        let key = match has(0x20) {
            true => Some(u32::from_be_bytes(*bytes.get(key_at..)?.first_chunk()?)),
            false => None,
        };
        let gre = Gre { has_checksum: has(0x80), key, has_sequence: has(0x10), protocol: u16::from_be_bytes(kind) };
        Some(gre).filter(|_| version & 7 == 0)
    }
}

/// GENEVE.
pub(super) struct Geneve {
    pub vni: u32,
    pub protocol: u16,
    /// In words of four bytes.
    pub options_len: u8,
    pub is_oam: bool,
}

impl Geneve {
    pub fn of(frame: &[u8], headers: &Headers) -> Option<Geneve> {
        let bytes: &[u8; 8] = of_port(frame, headers, GENEVE_PORT)?.first_chunk()?;
        let geneve = Geneve {
            vni: three(bytes, 4),
            protocol: u16::from_be_bytes([bytes[2], bytes[3]]),
            options_len: bytes[0] & 0x3f,
            is_oam: bytes[1] & 0x80 != 0,
        };
        Some(geneve).filter(|_| bytes[0] >> 6 == 0)
    }
}

/// VXLAN-GPE.
pub(super) struct VxlanGpe {
    pub vni: u32,
    pub next_protocol: u8,
}

impl VxlanGpe {
    pub fn of(frame: &[u8], headers: &Headers) -> Option<VxlanGpe> {
        let bytes: &[u8; 8] = of_port(frame, headers, VXLAN_GPE_PORT)?.first_chunk()?;
        Some(VxlanGpe { vni: three(bytes, 4), next_protocol: bytes[3] })
    }
}

/// GTP-U: version 1 of GTP, with protocol type 1.
pub(super) struct Gtpu {
    pub message_type: u8,
    pub teid: u32,
}

impl Gtpu {
    pub fn of(frame: &[u8], headers: &Headers) -> Option<Gtpu> {
        let bytes: &[u8; 8] = of_port(frame, headers, GTPU_PORT)?.first_chunk()?;
        let teid = u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        Some(Gtpu { message_type: bytes[1], teid }).filter(|_| bytes[0] >> 4 == 3)
    }
}

/// Type and code of ICMP, of the IP version of the headers.
pub(super) fn icmp(frame: &[u8], headers: &Headers) -> Option<[u8; 2]> {
    let number = if headers.ip?.is_v4 { ip_number::ICMP } else { ip_number::IPV6_ICMP };
    of_protocol(frame, headers, number)?.first_chunk().copied()
}

/// The first label stack entry of MPLS over Ethernet: label, traffic class, bottom of stack, time to live.
pub(super) fn mpls(frame: &[u8], headers: &Headers) -> Option<[u8; 4]> {
    frame.get(headers.payload_at..).filter(|_| headers.ether_type == MPLS)?.first_chunk().copied()
}

/// Destination queue pair of a RoCE packet.
pub(super) fn bth_destination_qp(frame: &[u8], headers: &Headers) -> Option<u32> {
    let bytes = of_port(frame, headers, ROCE_PORT)?.first_chunk()?;
    Some(three(bytes, 5))
}

/// Security parameter index of ESP.
pub(super) fn esp_spi(headers: &Headers) -> Option<u32> {
    headers.spi.filter(|_| headers.ip.is_some_and(|ip| ip.protocol == ip_number::ENCAPSULATING_SECURITY_PAYLOAD.0))
}
