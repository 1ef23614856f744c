//! TCP segments that large receive offload can join. PRM "Large Receive Offload".

use std::ops::Range;

use super::{Headers, checksum};

/// TCP flags: PSH, and ACK; segments with others are not joined.
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
/// The four bytes before the numbers of a timestamp option that is aligned as all systems send it: two NOPs, kind 8,
/// length 10. RFC 7323, appendix A.
const TIMESTAMP: [u8; 4] = [1, 1, 8, 10];
/// Lengths of headers without options, and of a TCP header with a timestamp alone.
const IPV4: usize = 20;
const IPV6: usize = 40;
const TCP: usize = 20;
const TCP_WITH_TIMESTAMP: usize = 32;

/// A TCP segment without anything that would be lost if it were joined to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segment {
    pub flow: Flow,
    pub sequence: u32,
    pub ack: u32,
    pub window: u16,
    pub is_pushed: bool,
    /// Time to live, or hop limit.
    pub ttl: u8,
    /// Value and echo reply of the timestamp option.
    pub timestamp: Option<(u32, u32)>,
    /// Offset of the TCP header in the frame.
    pub tcp_at: usize,
    /// Its data in the frame.
    pub data: Range<usize>,
}

/// What the segments of a flow that can be joined have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Flow {
    macs: [u8; 12],
    tag: Option<u16>,
    /// Of IPv4 version, type of service, and flags; of IPv6 version, traffic class, flow label.
    ip: [u8; 4],
    addresses: [[u8; 16]; 2],
    ports: [u16; 2],
}

impl Segment {
    /// The segment in a frame, if it can be joined: nothing but TCP's ACK and PSH flags and its timestamp option, no IP
    /// options or fragments, right checksums, nothing behind the data.
    pub fn of(frame: &[u8], headers: &Headers) -> Option<Segment> {
        let (ip, l4) = (headers.ip?, headers.l4.filter(|l4| l4.is_tcp)?);
        let is_plain_tag = headers.second_tag.is_none() && headers.tag.is_none_or(|tag| !tag.is_service);
        let is_plain_ip = ip.header_len == if ip.is_v4 { IPV4 } else { IPV6 } && !ip.is_fragment;
        let has_end = ip.at + ip.len == frame.len() && declared_len(frame, ip.at, ip.is_v4)? == ip.len;
        let verdict = checksum::verify(frame, headers);
        if !(is_plain_tag && is_plain_ip && has_end && verdict.l3_ok && verdict.l4_ok) {
            return None;
        }
        let tcp = frame.get(l4.at..l4.at + l4.header_len)?;
        let number = |at: usize| tcp.get(at..)?.first_chunk().copied().map(u32::from_be_bytes);
        let flags = tcp[13];
        // The byte before has the header's length and, in its lowest bit, a flag.
        if flags & !PSH != ACK || tcp[12] & 0xf != 0 {
            return None;
        }
        let timestamp = match l4.header_len {
            TCP => None,
            TCP_WITH_TIMESTAMP if tcp[TCP..].starts_with(&TIMESTAMP) => Some((number(24)?, number(28)?)),
            _ => return None,
        };
        let start = frame.get(ip.at..ip.at + 8)?;
        let ip_start = if ip.is_v4 { [start[0], start[1], start[6], start[7]] } else { *start.first_chunk()? };
        Some(Segment {
            flow: Flow {
                macs: *frame.first_chunk()?,
                tag: headers.tag.map(|tag| tag.tci),
                ip: ip_start,
                addresses: [ip.source, ip.destination],
                ports: [l4.source_port, l4.destination_port],
            },
            sequence: number(4)?,
            ack: number(8)?,
            window: u16::from_be_bytes([tcp[14], tcp[15]]),
            is_pushed: flags & PSH != 0,
            ttl: ip.hop_limit,
            timestamp,
            tcp_at: l4.at,
            data: l4.at + l4.header_len..frame.len(),
        })
    }

    /// Whether it is of IPv4.
    pub fn is_v4(&self) -> bool {
        self.flow.ip[0] >> 4 == 4
    }

    /// Moves its offsets where a VLAN tag was taken out of the frame.
    pub fn without_tag(mut self) -> Segment {
        self.tcp_at -= super::TAG;
        self.data = self.data.start - super::TAG..self.data.end - super::TAG;
        self
    }

    /// The sequence number after its data.
    pub fn next(&self) -> u32 {
        self.sequence.wrapping_add(self.data.len() as u32)
    }

    /// Whether `later` goes on where this one ends, in sequence, and acknowledges no less: with a timestamp that is no
    /// older, or like this one without.
    pub fn precedes(&self, later: &Segment) -> bool {
        let is_timely = match (self.timestamp, later.timestamp) {
            (Some((before, _)), Some((after, _))) => !is_before(after, before),
            (None, None) => true,
            _ => false,
        };
        self.flow == later.flow && self.next() == later.sequence && !is_before(later.ack, self.ack) && is_timely
    }
}

/// Whether a number of a circle comes before another. RFC 9293, 3.4.
fn is_before(one: u32, other: u32) -> bool {
    one.wrapping_sub(other) > i32::MAX as u32
}

/// The length of an IP packet by its header.
fn declared_len(frame: &[u8], at: usize, is_v4: bool) -> Option<usize> {
    let place = if is_v4 { at + 2 } else { at + 4 };
    let length = u16::from_be_bytes(*frame.get(place..)?.first_chunk()?);
    Some(usize::from(length) + if is_v4 { 0 } else { IPV6 })
}
