//! Header fields of a frame that steering, checksums and segmentation use, and their offsets.

use etherparse::{
    EtherType, IpNumber, Ipv6ExtensionsSlice, LaxLinkExtSlice, LaxNetSlice, LaxSlicedPacket, LinkSlice, TransportSlice,
    ip_number,
};

use super::{HEADER, S_VLAN, TAG};

/// A frame's headers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Headers {
    pub destination: [u8; 6],
    pub source: [u8; 6],
    /// The outer VLAN tag.
    pub tag: Option<Tag>,
    /// The VLAN tag inside it.
    pub second_tag: Option<Tag>,
    /// EtherType after the tags.
    pub ether_type: u16,
    /// Offset of what follows it.
    pub payload_at: usize,
    pub ip: Option<Ip>,
    pub l4: Option<L4>,
    /// Security parameter index, of AH or ESP.
    pub spi: Option<u32>,
}

/// A VLAN tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tag {
    /// S-VLAN tag (802.1ad).
    pub is_service: bool,
    /// Tag control information: priority, drop eligibility, VLAN.
    pub tci: u16,
}

/// The IP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ip {
    pub is_v4: bool,
    /// Offset of its first byte.
    pub at: usize,
    /// Length in bytes, with extension headers.
    pub header_len: usize,
    /// Length of the packet with this header in bytes, as far as it is in the frame.
    pub len: usize,
    /// An IPv4 address is in the last four bytes.
    pub source: [u8; 16],
    pub destination: [u8; 16],
    /// Protocol after the extension headers.
    pub protocol: u8,
    pub dscp: u8,
    pub ecn: u8,
    /// Time to live, or hop limit.
    pub hop_limit: u8,
    pub is_fragment: bool,
    /// Length of IPv4's header with options, in words of four bytes; 0 for IPv6.
    pub ihl: u8,
    /// Flow label of IPv6, 20 bits; 0 for IPv4.
    pub flow_label: u32,
}

/// The TCP or UDP header. A fragment has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct L4 {
    pub is_tcp: bool,
    /// Offset of its first byte.
    pub at: usize,
    /// Length in bytes.
    pub header_len: usize,
    pub source_port: u16,
    pub destination_port: u16,
    /// TCP flags, NS to FIN; 0 for UDP.
    pub tcp_flags: u16,
    /// Sequence and acknowledgement number of TCP; 0 for UDP.
    pub tcp_sequence: u32,
    pub tcp_acknowledgement: u32,
}

impl Headers {
    /// Parses a frame. Truncated or invalid headers are left out, with everything after them.
    pub fn of(frame: &[u8]) -> Headers {
        let mut headers = Headers::default();
        let Ok(sliced) = LaxSlicedPacket::from_ethernet(frame) else { return headers };
        let Some(LinkSlice::Ethernet2(link)) = &sliced.link else { return headers };
        (headers.destination, headers.source) = (link.destination(), link.source());
        headers.ether_type = link.ether_type().0;
        let mut at = HEADER;
        for extension in &sliced.link_exts {
            let LaxLinkExtSlice::Vlan(vlan) = extension else { return headers };
            let bytes = vlan.slice();
            let is_service = headers.ether_type == S_VLAN;
            let tag = Tag { is_service, tci: u16::from_be_bytes([bytes[0], bytes[1]]) };
            if headers.tag.replace(headers.tag.unwrap_or(tag)).is_some() {
                headers.second_tag.get_or_insert(tag);
            }
            headers.ether_type = vlan.ether_type().0;
            at += TAG;
        }
        headers.with_network(frame, &sliced, at)
    }

    /// Parses a packet of IPv4 or IPv6, as its EtherType says.
    pub fn of_packet(packet: &[u8], ether_type: u16) -> Headers {
        let headers = Headers { ether_type, ..Headers::default() };
        headers.with_network(packet, &LaxSlicedPacket::from_ether_type(EtherType(ether_type), packet), 0)
    }

    /// Adds the network header at `at`, and what follows.
    fn with_network(self, frame: &[u8], sliced: &LaxSlicedPacket<'_>, at: usize) -> Headers {
        let mut headers = Headers { payload_at: at, ..self };
        let authentication = match &sliced.net {
            Some(LaxNetSlice::Ipv4(packet)) => {
                headers.ip = Some(ipv4(packet, at));
                packet.extensions().auth.map(|header| header.spi())
            }
            Some(LaxNetSlice::Ipv6(packet)) => {
                headers.ip = Some(ipv6(packet, at));
                authenticated(packet.extensions())
            }
            _ => None,
        };
        let Some(ip) = &mut headers.ip else { return headers };
        if let Some(spi) = authentication {
            // A card treats packets with an authentication header (AH) as an unknown protocol, and parses no further.
            ip.protocol = ip_number::AUTH.0;
            headers.spi = Some(spi);
            return headers;
        }
        if ip.protocol == ip_number::ENCAPSULATING_SECURITY_PAYLOAD.0 && !ip.is_fragment {
            headers.spi =
                frame.get(ip.at + ip.header_len..).and_then(<[u8]>::first_chunk).copied().map(u32::from_be_bytes);
        }
        headers.l4 = sliced.transport.as_ref().and_then(|transport| l4(transport, ip.at + ip.header_len));
        headers
    }

    /// With offsets that are larger by `by`.
    pub fn moved(mut self, by: usize) -> Headers {
        self.payload_at += by;
        self.ip = self.ip.map(|ip| Ip { at: ip.at + by, ..ip });
        self.l4 = self.l4.map(|l4| L4 { at: l4.at + by, ..l4 });
        self
    }

    /// Whether the destination is a multicast or broadcast address.
    pub fn is_group(&self) -> bool {
        self.destination[0] & 1 != 0
    }
}

/// Security parameter index of the authentication header (AH) among `extensions`.
///
/// Not by etherparse's own iterator over them: where a packet ends amid an extension, or a header is not in its place,
/// that reads the header behind the end of the slice (etherparse 0.21).
fn authenticated(extensions: &Ipv6ExtensionsSlice<'_>) -> Option<u32> {
    let (mut next, mut rest) = (extensions.first_header()?, extensions.slice());
    loop {
        let (number, units) = (rest.first()?, usize::from(*rest.get(1)?));
        let len = match next {
            ip_number::AUTH => return rest.get(4..)?.first_chunk().copied().map(u32::from_be_bytes),
            ip_number::IPV6_FRAG => 8,
            _ => (units + 1) * 8,
        };
        (next, rest) = (IpNumber(*number), rest.get(len..)?);
    }
}

fn ipv4(packet: &etherparse::LaxIpv4Slice, at: usize) -> Ip {
    let header = packet.header();
    let authentication = packet.extensions().auth.map_or(0, |auth| auth.slice().len());
    let header_len = header.slice().len() + authentication;
    let payload = packet.payload();
    let wide = |[a, b, c, d]: [u8; 4]| [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d];
    Ip {
        is_v4: true,
        at,
        header_len,
        len: header_len + payload.payload.len(),
        source: wide(header.source()),
        destination: wide(header.destination()),
        protocol: payload.ip_number.0,
        dscp: header.dcp().value(),
        ecn: header.ecn().value(),
        hop_limit: header.ttl(),
        is_fragment: payload.fragmented,
        ihl: header.ihl(),
        flow_label: 0,
    }
}

fn ipv6(packet: &etherparse::LaxIpv6Slice, at: usize) -> Ip {
    let header = packet.header();
    let header_len = header.slice().len() + packet.extensions().slice().len();
    let payload = packet.payload();
    Ip {
        is_v4: false,
        at,
        header_len,
        len: header_len + payload.payload.len(),
        source: header.source(),
        destination: header.destination(),
        protocol: payload.ip_number.0,
        dscp: header.traffic_class() >> 2,
        ecn: header.traffic_class() & 3,
        hop_limit: header.hop_limit(),
        is_fragment: payload.fragmented,
        ihl: 0,
        flow_label: header.flow_label().value(),
    }
}

fn l4(transport: &TransportSlice, at: usize) -> Option<L4> {
    match transport {
        TransportSlice::Tcp(tcp) => Some(L4 {
            is_tcp: true,
            at,
            header_len: tcp.header_len(),
            source_port: tcp.source_port(),
            destination_port: tcp.destination_port(),
            tcp_flags: {
                let bytes = tcp.header_slice();
                u16::from_be_bytes([bytes[12] & 1, bytes[13]])
            },
            tcp_sequence: tcp.sequence_number(),
            tcp_acknowledgement: tcp.acknowledgment_number(),
        }),
        TransportSlice::Udp(udp) => Some(L4 {
            is_tcp: false,
            at,
            header_len: udp.header_len(),
            source_port: udp.source_port(),
            destination_port: udp.destination_port(),
            tcp_flags: 0,
            tcp_sequence: 0,
            tcp_acknowledgement: 0,
        }),
        _ => None,
    }
}

impl L4 {
    /// Its protocol number.
    pub fn protocol(&self) -> u8 {
        if self.is_tcp { ip_number::TCP.0 } else { ip_number::UDP.0 }
    }

    /// Offset of its checksum.
    pub fn checksum_at(&self) -> usize {
        self.at + if self.is_tcp { 16 } else { 6 }
    }
}
