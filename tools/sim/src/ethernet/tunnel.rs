//! Frames and packets in tunnels: VXLAN (RFC 7348), GENEVE (RFC 8926), GRE (RFC 2784, 2890), IP in IP (RFC 2003, 4213).

use etherparse::{ether_type, ip_number};

use super::{HEADER, Headers};

/// UDP's destination ports of VXLAN and GENEVE.
const VXLAN_PORT: u16 = 4789;
const GENEVE_PORT: u16 = 6081;
/// Bytes of UDP's header, of VXLAN's, and of GENEVE's and GRE's without options.
const UDP: usize = 8;
const VXLAN: usize = 8;
const GENEVE: usize = 8;
const GRE: usize = 4;
/// VXLAN's flag: the network identifier is valid.
const HAS_VNI: u8 = 0x08;
/// GRE's flags: checksum, key and sequence number, of four bytes each. All others, and its version, are 0.
const GRE_WORDS: [u16; 3] = [0x8000, 0x2000, 0x1000];
/// Protocol types of what is inside: a frame, or a packet of IP.
const FRAME: u16 = 0x6558;
const IPV4: u16 = ether_type::IPV4.0;
const IPV6: u16 = ether_type::IPV6.0;

/// The ports of VXLAN: its own, which is always one, and those that commands added. PRM "ADD_VXLAN_UDP_DPORT".
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VxlanPorts([Option<u16>; 7]);

impl VxlanPorts {
    /// Whether it is one of VXLAN.
    pub(crate) fn contains(&self, port: u16) -> bool {
        port == VXLAN_PORT || self.0.contains(&Some(port))
    }

    /// Adds a port, if there are less than `most` with it. Returns false if not.
    pub(crate) fn add(&mut self, port: u16, most: u8) -> bool {
        if self.contains(port) {
            return true;
        }
        let added = usize::from(most).saturating_sub(1).min(self.0.len());
        let free = self.0[..added].iter_mut().find(|place| place.is_none());
        free.map(|place| *place = Some(port)).is_some()
    }

    /// Removes a port. Returns false if it is none.
    pub(crate) fn remove(&mut self, port: u16) -> bool {
        let place = self.0.iter_mut().find(|place| **place == Some(port));
        place.map(|place| *place = None).is_some() || port == VXLAN_PORT
    }
}

/// A frame or a packet in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tunnel {
    /// VXLAN network identifier.
    pub vni: Option<u32>,
    /// Offset of what is inside.
    pub inner_at: usize,
    /// It is a frame, otherwise a packet of IP.
    pub is_frame: bool,
    /// Its headers, with their offsets in the outer frame.
    pub inner: Headers,
}

impl Tunnel {
    /// The tunnel that the frame, whose headers are given, is of.
    pub fn of(frame: &[u8], headers: &Headers, ports: &VxlanPorts) -> Option<Tunnel> {
        let ip = headers.ip.filter(|ip| !ip.is_fragment)?;
        let at = ip.at + ip.header_len;
        match (ip.protocol, headers.l4) {
            (protocol, _) if protocol == ip_number::GRE.0 => gre(frame, at),
            (protocol, _) if protocol == ip_number::IPV4.0 => packet(frame, at, IPV4),
            (protocol, _) if protocol == ip_number::IPV6.0 => packet(frame, at, IPV6),
            (_, Some(l4)) if l4.is_tcp => None,
            (_, Some(l4)) if ports.contains(l4.destination_port) => vxlan(frame, l4.at + UDP),
            (_, Some(l4)) if l4.destination_port == GENEVE_PORT => geneve(frame, l4.at + UDP),
            _ => None,
        }
    }
}

fn vxlan(frame: &[u8], at: usize) -> Option<Tunnel> {
    let header = frame.get(at..at + VXLAN)?;
    let vni = u32::from_be_bytes([0, header[4], header[5], header[6]]);
    let tunnel = inside(frame, at + VXLAN, FRAME).filter(|_| header[0] & HAS_VNI != 0)?;
    Some(Tunnel { vni: Some(vni), ..tunnel })
}

fn geneve(frame: &[u8], at: usize) -> Option<Tunnel> {
    let header = frame.get(at..at + GENEVE)?;
    let (version, options) = (header[0] >> 6, usize::from(header[0] & 0x3f) * 4);
    let kind = u16::from_be_bytes([header[2], header[3]]);
    inside(frame, at + GENEVE + options, kind).filter(|_| version == 0)
}

fn gre(frame: &[u8], at: usize) -> Option<Tunnel> {
    let header = frame.get(at..at + GRE)?;
    let (flags, kind) = (u16::from_be_bytes([header[0], header[1]]), u16::from_be_bytes([header[2], header[3]]));
    let words = GRE_WORDS.iter().filter(|word| flags & **word != 0).count();
    let is_known = flags & !GRE_WORDS.iter().sum::<u16>() == 0;
    inside(frame, at + GRE + 4 * words, kind).filter(|_| is_known)
}

/// What is inside, of a protocol type.
fn inside(frame: &[u8], at: usize, kind: u16) -> Option<Tunnel> {
    match kind {
        FRAME => {
            let bytes = frame.get(at..).filter(|bytes| bytes.len() >= HEADER)?;
            Some(Tunnel { vni: None, inner_at: at, is_frame: true, inner: Headers::of(bytes).moved(at) })
        }
        IPV4 | IPV6 => packet(frame, at, kind),
        _ => None,
    }
}

/// A packet of IP inside.
fn packet(frame: &[u8], at: usize, ether_type: u16) -> Option<Tunnel> {
    let inner = Headers::of_packet(frame.get(at..)?, ether_type).moved(at);
    inner.ip?;
    Some(Tunnel { vni: None, inner_at: at, is_frame: false, inner })
}
