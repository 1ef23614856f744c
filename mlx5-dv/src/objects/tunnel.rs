//! Frames in tunnels: which tunnels, where their headers are, what a card can do inside of them.

use mlx5_prm::caps::PerProtocolNetworkingOffloadCaps;

use super::inline_headers::{ETHERNET, SERVICE_VLAN, VLAN};

/// Bytes of a VLAN tag, and of the headers of IPv6, UDP, VXLAN, GENEVE and GRE without options or extensions.
const TAG: usize = 4;
const IPV6_HEADER: usize = 40;
const UDP_HEADER: usize = 8;
const VXLAN_HEADER: usize = 8;
const GENEVE_HEADER: usize = 8;
const GRE_HEADER: usize = 4;
/// EtherTypes, and GRE's and GENEVE's protocol types: a frame, or a packet of IP.
const FRAME: u16 = 0x6558;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// Protocol numbers.
const IPV4_IN_IP: u8 = 4;
const TCP: u8 = 6;
const UDP: u8 = 17;
const IPV6_IN_IP: u8 = 41;
const GRE: u8 = 47;
/// Extension headers of IPv6 before the transport header: hop by hop, routing, destination options.
const EXTENSIONS: [u8; 3] = [0, 43, 60];
/// UDP's destination ports.
pub(super) const VXLAN_PORT: u16 = 4789;
const GENEVE_PORT: u16 = 6081;
/// GRE's flags: checksum, key and sequence number.
const GRE_WORDS: [u16; 3] = [0x8000, 0x2000, 0x1000];
/// Unit of the offsets in an Ethernet segment. PRM "Ethernet Segment", `swp_outer_l4_offset`.
const WORD: usize = 2;

/// The most bytes of headers that a packet in a tunnel may have: the inner transport header begins where a byte counts
/// words up to, and may have 60 bytes.
pub(crate) const MOST_TUNNEL_HEADERS: usize = u8::MAX as usize * WORD + 60;

/// A kind of tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TunnelKind {
    /// VXLAN, at UDP's port 4789, or another of its ports. RFC 7348.
    Vxlan,
    /// GENEVE. RFC 8926.
    Geneve,
    /// GRE, of frames or packets. RFC 2784.
    Gre,
    /// IPv4 or IPv6 in IPv4 or IPv6. RFC 2003, RFC 4213.
    IpInIp,
}

impl TunnelKind {
    /// The capability that a card announces whose own parser looks into such tunnels.
    pub fn capability(self) -> &'static str {
        match self {
            TunnelKind::Vxlan => "tunnel_stateless_vxlan",
            TunnelKind::Geneve => "tunnel_stateless_geneve_tx",
            TunnelKind::Gre => "tunnel_stateless_gre",
            TunnelKind::IpInIp => "tunnel_stateless_ip_over_ip",
        }
    }
}

bitflags::bitflags! {
    /// What a card can do inside of tunnels.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct TunnelOffloads: u8 {
        const VXLAN = 1;
        const GENEVE = 2;
        const GRE = 4;
        const IP_IN_IP = 8;
        /// Checksums at offsets that the work request gives.
        const TOLD_CHECKSUMS = 16;
        /// Large sends with such offsets.
        const TOLD_LARGE_SENDS = 32;
    }
}

impl TunnelOffloads {
    pub(crate) fn of(caps: &PerProtocolNetworkingOffloadCaps) -> Self {
        let mut all = TunnelOffloads::empty();
        all.set(TunnelOffloads::VXLAN, caps.tunnel_stateless_vxlan());
        all.set(TunnelOffloads::GENEVE, caps.tunnel_stateless_geneve_tx());
        all.set(TunnelOffloads::GRE, caps.tunnel_stateless_gre());
        let ip_in_ip = caps.tunnel_stateless_ip_over_ip() || caps.tunnel_stateless_ip_over_ip_tx();
        all.set(TunnelOffloads::IP_IN_IP, ip_in_ip);
        all.set(TunnelOffloads::TOLD_CHECKSUMS, caps.swp() && caps.swp_csum());
        all.set(TunnelOffloads::TOLD_LARGE_SENDS, caps.swp() && caps.swp_lso());
        all
    }

    /// Whether the card's own parser looks into such tunnels.
    pub(crate) fn looks_into(self, kind: TunnelKind) -> bool {
        self.contains(match kind {
            TunnelKind::Vxlan => TunnelOffloads::VXLAN,
            TunnelKind::Geneve => TunnelOffloads::GENEVE,
            TunnelKind::Gre => TunnelOffloads::GRE,
            TunnelKind::IpInIp => TunnelOffloads::IP_IN_IP,
        })
    }
}

/// A network header, and the transport header behind it, as an Ethernet segment says where they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LayerOffsets {
    /// In words of two bytes.
    pub l3: u8,
    pub is_v6: bool,
    /// 0 for none.
    pub l4: u8,
    pub is_udp: bool,
}

/// Where the headers of a frame in a tunnel are, as [`of`](Self::of) finds them. A flow's frames have the same, as long
/// as their headers have the same lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TunnelHeaders {
    kind: TunnelKind,
    pub(crate) outer: LayerOffsets,
    pub(crate) inner: LayerOffsets,
    end: u16,
}

impl TunnelHeaders {
    /// Those of a frame that starts with `start`, if it is in a tunnel, and `start` has the inner network header and,
    /// if it is followed by TCP or UDP, all of that header. The inner packet may be a fragment, or of another protocol.
    pub fn of(start: &[u8]) -> Option<Self> {
        Self::of_ports(start, &[])
    }

    /// As [`of`](Self::of), where datagrams to these UDP ports are VXLAN, too: those of
    /// [`VxlanPort`](super::VxlanPort)s.
    pub fn of_ports(start: &[u8], vxlan: &[u16]) -> Option<Self> {
        let ethernet = ethernet(start, 0)?;
        let outer = ip(start, ethernet)?;
        let (kind, at, protocol) = inside(start, &outer, vxlan)?;
        let (at, protocol) = if protocol == FRAME { self::ethernet(start, at)? } else { (at, protocol) };
        let inner = ip(start, (at, protocol))?;
        let (inner_l4, end) = match inner.protocol {
            Some(TCP | UDP) => (Some(inner.end), transport_end(start, &inner)?),
            _ => (None, inner.end),
        };
        let outer_l4 = (outer.protocol == Some(UDP)).then_some(outer.end);
        let end = u16::try_from(end).ok()?;
        Some(TunnelHeaders { kind, outer: outer.offsets(outer_l4)?, inner: inner.offsets(inner_l4)?, end })
    }

    /// The tunnel.
    pub fn kind(&self) -> TunnelKind {
        self.kind
    }

    /// Bytes of all headers, up to the end of the inner transport header; of the inner network header if no TCP or UDP
    /// follows.
    #[expect(clippy::len_without_is_empty, reason = "headers are never empty")]
    pub fn len(&self) -> usize {
        self.end.into()
    }

    /// Offsets of the outer network header, of UDP's behind it, of the inner network header, and of TCP's or UDP's
    /// behind that; 0 for one that is not there.
    pub fn offsets(&self) -> [usize; 4] {
        [self.outer.l3, self.outer.l4, self.inner.l3, self.inner.l4].map(|words| usize::from(words) * WORD)
    }

    /// Whether the inner packet is one of TCP or UDP, and no fragment.
    pub fn has_transport(&self) -> bool {
        self.inner.l4 != 0
    }
}

/// A network header.
struct Network {
    at: usize,
    is_v6: bool,
    /// Offset of what follows.
    end: usize,
    /// Its protocol; `None` in a fragment.
    protocol: Option<u8>,
}

impl Network {
    /// With a transport header at `l4`. `None` if an offset is odd, or too large for an Ethernet segment.
    fn offsets(&self, l4: Option<usize>) -> Option<LayerOffsets> {
        let word = |at: usize| u8::try_from(at / WORD).ok().filter(|_| at.is_multiple_of(WORD));
        let (l3, l4) = (word(self.at)?, word(l4.unwrap_or(0))?);
        Some(LayerOffsets { l3, is_v6: self.is_v6, l4, is_udp: l4 != 0 && self.protocol == Some(UDP) })
    }
}

fn byte(bytes: &[u8], at: usize) -> Option<u8> {
    bytes.get(at).copied()
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([byte(bytes, at)?, byte(bytes, at + 1)?]))
}

/// End of the Ethernet header at `at` with its VLAN tags, two at most, and the EtherType.
fn ethernet(bytes: &[u8], at: usize) -> Option<(usize, u16)> {
    let mut end = at + ETHERNET;
    for _ in 0..2 {
        match be16(bytes, end - 2)? {
            VLAN | SERVICE_VLAN => end += TAG,
            kind => return Some((end, kind)),
        }
    }
    Some((end, be16(bytes, end - 2)?))
}

/// The network header of an EtherType.
fn ip(bytes: &[u8], (at, kind): (usize, u16)) -> Option<Network> {
    match kind {
        IPV4 => {
            let first = byte(bytes, at)?;
            let len = usize::from(first & 0xf) * 4;
            let is_whole = be16(bytes, at + 6)? & 0x3fff == 0;
            let protocol = byte(bytes, at + 9).filter(|_| is_whole);
            (first >> 4 == 4 && len >= 20 && bytes.len() >= at + len).then_some(Network {
                at,
                is_v6: false,
                end: at + len,
                protocol,
            })
        }
        IPV6 => {
            let (mut next, mut end) = (byte(bytes, at + 6)?, at + IPV6_HEADER);
            while EXTENSIONS.contains(&next) {
                let len = (usize::from(byte(bytes, end + 1)?) + 1) * 8;
                (next, end) = (byte(bytes, end)?, end + len);
            }
            /// The extension header of fragments.
            const FRAGMENT: u8 = 44;
            let protocol = Some(next).filter(|next| *next != FRAGMENT);
            (byte(bytes, at)? >> 4 == 6 && bytes.len() >= end).then_some(Network { at, is_v6: true, end, protocol })
        }
        _ => None,
    }
}

/// The tunnel behind its outer network header: its kind, and where what it carries begins, with the protocol type.
fn inside(bytes: &[u8], outer: &Network, vxlan: &[u16]) -> Option<(TunnelKind, usize, u16)> {
    let at = outer.end;
    match outer.protocol? {
        IPV4_IN_IP => Some((TunnelKind::IpInIp, at, IPV4)),
        IPV6_IN_IP => Some((TunnelKind::IpInIp, at, IPV6)),
        GRE => {
            let flags = be16(bytes, at)?;
            let words = GRE_WORDS.iter().filter(|word| flags & **word != 0).count();
            let is_known = flags & !GRE_WORDS.iter().sum::<u16>() == 0;
            let kind = be16(bytes, at + 2)?;
            is_known.then_some((TunnelKind::Gre, at + GRE_HEADER + 4 * words, kind))
        }
        UDP => match be16(bytes, at + 2)? {
            port if port == VXLAN_PORT || vxlan.contains(&port) => {
                Some((TunnelKind::Vxlan, at + UDP_HEADER + VXLAN_HEADER, FRAME))
            }
            GENEVE_PORT => {
                let at = at + UDP_HEADER;
                let options = usize::from(byte(bytes, at)? & 0x3f) * 4;
                Some((TunnelKind::Geneve, at + GENEVE_HEADER + options, be16(bytes, at + 2)?))
            }
            _ => None,
        },
        _ => None,
    }
}

/// End of the transport header behind a network header, if `bytes` have all of it.
fn transport_end(bytes: &[u8], network: &Network) -> Option<usize> {
    /// Bytes of TCP's header without options.
    const TCP_HEADER: usize = 20;
    let at = network.end;
    let (len, least) = match network.protocol {
        Some(UDP) => (UDP_HEADER, UDP_HEADER),
        _ => (usize::from(byte(bytes, at + 12)? >> 4) * 4, TCP_HEADER),
    };
    (len >= least && bytes.len() >= at + len).then_some(at + len)
}
