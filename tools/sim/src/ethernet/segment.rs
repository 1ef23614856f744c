//! Large send offload (LSO): divides a TCP or UDP packet into frames. PRM "Ethernet Segment".

use super::{Ip, Layer, Layers};

/// TCP flags for the last segment only: FIN, PSH; and for the first only: CWR.
const LAST_ONLY: u8 = 0x01 | 0x08;
const FIRST_ONLY: u8 = 0x80;
/// Offsets of sequence number and flags in a TCP header.
const SEQUENCE: usize = 4;
const FLAGS: usize = 13;
/// Offset of the length in a UDP header.
const UDP_LENGTH: usize = 4;
/// Offsets of length and identification in an IPv4 header, and of the payload length in an IPv6 header.
const IPV4_LENGTH: usize = 2;
const IPV4_ID: usize = 4;
const IPV6_LENGTH: usize = 4;

/// Why a packet cannot be segmented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Indivisible {
    /// There is no TCP or UDP header, or the header does not end with it.
    Headers,
    /// The segment size is 0.
    Size,
}

/// The segments of a packet. Each is made when it is asked for: with a long header and a small size, all of them need a
/// thousand times the memory of the packet.
#[derive(Debug)]
pub(crate) struct Segments {
    packet: Vec<u8>,
    layers: Layers,
    /// Offset of the UDP header in front of the payload.
    udp: Option<usize>,
    header_len: usize,
    size: usize,
    checks_tunnel: bool,
    count: usize,
    next: usize,
}

impl Segments {
    /// Divides what `packet` has behind its header into segments of at most `size` bytes, each after a copy of the
    /// header, whose layers are given. Sets lengths, identifications, sequence number and flags of each segment, and
    /// always inserts checksums; that of UDP around a tunnel only if `checks_tunnel`, as it may be the same for all
    /// segments. The length of the UDP header in front of the payload stays: drivers set it to that of a segment, and
    /// make all segments equal (mlx5e_udp_gso_handle_tx_skb, and Linux's GSO_PARTIAL for UDP).
    pub(crate) fn new(
        layers: Layers,
        packet: Vec<u8>,
        header_len: usize,
        size: usize,
        checks_tunnel: bool,
    ) -> Result<Self, Indivisible> {
        if size == 0 {
            return Err(Indivisible::Size);
        }
        let l4 = layers.inner.as_ref().unwrap_or(&layers.outer).l4;
        let l4 = l4.filter(|l4| l4.at + l4.header_len == header_len).ok_or(Indivisible::Headers)?;
        let count = packet.len().saturating_sub(header_len).div_ceil(size).max(1);
        let udp = (!l4.is_tcp).then_some(l4.at);
        Ok(Segments { packet, layers, udp, header_len, size, checks_tunnel, count, next: 0 })
    }

    /// Of a UDP packet, the length in its header; and whether it is that of each segment.
    pub(crate) fn udp_length(&self) -> Option<(u16, bool)> {
        const UDP_HEADER: usize = 8;
        let length =
            self.packet.get(self.udp? + UDP_LENGTH..)?.first_chunk().map(|length| u16::from_be_bytes(*length))?;
        let payload = self.packet.len() - self.header_len;
        Some((length, usize::from(length) == self.size + UDP_HEADER && payload == self.count * self.size))
    }
}

impl Iterator for Segments {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        if self.next == self.count {
            return None;
        }
        let (number, size) = (self.next, self.size);
        self.next += 1;
        let (header, payload) = self.packet.split_at(self.header_len);
        let part = &payload[number * size..payload.len().min((number + 1) * size)];
        let mut frame = [header, part].concat();
        let outer = set_lengths(&mut frame, &self.layers.outer, number as u16);
        if let Some(udp) = outer.l4.filter(|l4| !l4.is_tcp && self.layers.inner.is_some()) {
            let len = frame.len() - udp.at;
            put(&mut frame[udp.at..], UDP_LENGTH, len as u16);
        }
        let inner = self.layers.inner.map(|inner| set_lengths(&mut frame, &inner, number as u16));
        if let Some(tcp) = inner.unwrap_or(outer).l4.filter(|l4| l4.is_tcp) {
            set_tcp(&mut frame[tcp.at..], (number * size) as u32, number == 0, self.next == self.count);
        }
        if let Some(inner) = inner {
            inner.insert_checksums(&mut frame, true, true);
        }
        outer.insert_checksums(&mut frame, true, inner.is_none() || self.checks_tunnel);
        Some(frame)
    }
}

/// Sets the length of a layer's packet, which ends with the frame, and IPv4's identification.
fn set_lengths(frame: &mut [u8], layer: &Layer, number: u16) -> Layer {
    let ip = Ip { len: frame.len() - layer.ip.at, ..layer.ip };
    set_ip(&mut frame[ip.at..], ip.is_v4, ip.len, number);
    Layer { ip, ..*layer }
}

fn set_ip(packet: &mut [u8], is_v4: bool, len: usize, number: u16) {
    if is_v4 {
        put(packet, IPV4_LENGTH, len as u16);
        let id = u16::from_be_bytes([packet[IPV4_ID], packet[IPV4_ID + 1]]);
        put(packet, IPV4_ID, id.wrapping_add(number));
    } else {
        const FIXED: usize = 40;
        put(packet, IPV6_LENGTH, (len - FIXED) as u16);
    }
}

fn set_tcp(packet: &mut [u8], offset: u32, is_first: bool, is_last: bool) {
    if let Some(sequence) = packet[SEQUENCE..].first_chunk_mut::<4>() {
        *sequence = u32::from_be_bytes(*sequence).wrapping_add(offset).to_be_bytes();
    }
    if !is_first {
        packet[FLAGS] &= !FIRST_ONLY;
    }
    if !is_last {
        packet[FLAGS] &= !LAST_ONLY;
    }
}

fn put(bytes: &mut [u8], at: usize, number: u16) {
    bytes[at..at + 2].copy_from_slice(&number.to_be_bytes());
}
