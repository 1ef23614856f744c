//! Frames that large receive offload made of several TCP segments, and their headers.

use std::ops::Range;

/// What a completion says of a frame that the card made of several TCP segments (LRO). In memory the frame has the
/// headers of the first segment, as they were on the wire, and behind them the data of all.
/// [`update_headers`](Self::update_headers) makes them those of one packet; the queues that own their buffers have done
/// so. PRM "CQE Format".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JoinedSegments {
    /// Number of segments, at least 2.
    pub segments: u8,
    /// Whether the last one had the PSH flag.
    pub is_pushed: bool,
    /// The least time to live, or hop limit.
    pub least_ttl: u8,
    /// Acknowledgment number and window of the last one; `None` if it acknowledges nothing.
    pub ack: Option<(u32, u16)>,
    /// Value and echo reply of the last one's timestamp option, where the card tells them.
    pub timestamp: Option<(u32, u32)>,
    /// One's complement sum of the data.
    pub data_sum: u16,
}

/// Bytes in front of the addresses of a frame's headers, and of headers.
const ETHERNET: usize = 14;
const TAG: usize = 4;
const IPV4: usize = 20;
const IPV6: usize = 40;
const TCP: usize = 20;
/// EtherTypes.
const IS_IPV4: u16 = 0x0800;
const IS_IPV6: u16 = 0x86dd;
const C_VLAN: u16 = 0x8100;
const S_VLAN: u16 = 0x88a8;
/// TCP flags, and its protocol number.
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const IS_TCP: u8 = 6;
/// A timestamp option, as all systems align it. RFC 7323, appendix A.
const TIMESTAMP: [u8; 4] = [1, 1, 8, 10];

/// Where the headers of a TCP packet are.
struct TcpHeaders {
    /// The IP header's first byte, and whether it is IPv4's.
    ip: usize,
    is_v4: bool,
    tcp: Range<usize>,
}

impl JoinedSegments {
    /// Bytes that the headers of a joined frame take at most.
    pub const HEADERS: usize = ETHERNET + 2 * TAG + 60 + 60;

    /// Makes the headers at the start of a frame of `len` bytes those of one packet: its length, time to live,
    /// acknowledgment, window, flags, timestamps, and the checksums of IP and TCP. `head` is the frame, or a part of it
    /// that has all headers. A second time changes nothing.
    ///
    /// Returns false, with nothing changed, if there are no whole headers of TCP in `head`, which the card joins
    /// nothing without.
    pub fn update_headers(&self, head: &mut [u8], len: usize) -> bool {
        let Some(headers) = TcpHeaders::of(head) else { return false };
        let Some(ip_len) = len.checked_sub(headers.ip).and_then(|len| u16::try_from(len).ok()) else { return false };
        let Some(tcp_len) = len.checked_sub(headers.tcp.start).filter(|tcp_len| *tcp_len >= headers.tcp.len()) else {
            return false;
        };
        let addresses = self.update_ip(&mut head[headers.ip..headers.tcp.start], headers.is_v4, ip_len);
        let tcp = &mut head[headers.tcp];
        tcp[13] = tcp[13] & !PSH | if self.is_pushed { PSH } else { 0 };
        if let Some((number, window)) = self.ack {
            tcp[13] |= ACK;
            tcp[8..12].copy_from_slice(&number.to_be_bytes());
            tcp[14..16].copy_from_slice(&window.to_be_bytes());
        }
        if let Some((value, echo)) = self.timestamp
            && tcp[TCP..].starts_with(&TIMESTAMP)
            && tcp.len() >= TCP + 12
        {
            tcp[24..28].copy_from_slice(&value.to_be_bytes());
            tcp[28..32].copy_from_slice(&echo.to_be_bytes());
        }
        tcp[16..18].fill(0);
        // The pseudo header: the length is below 2^16, as the IP packet's.
        let sum = addresses + u32::from(IS_TCP) + tcp_len as u32 + sum(tcp) + u32::from(self.data_sum);
        tcp[16..18].copy_from_slice(&(!fold(sum)).to_be_bytes());
        true
    }

    /// Updates the IP header; returns the sum of its addresses.
    fn update_ip(&self, ip: &mut [u8], is_v4: bool, len: u16) -> u32 {
        if !is_v4 {
            ip[4..6].copy_from_slice(&(len - IPV6 as u16).to_be_bytes());
            ip[7] = self.least_ttl;
            return sum(&ip[8..40]);
        }
        ip[2..4].copy_from_slice(&len.to_be_bytes());
        ip[8] = self.least_ttl;
        ip[10..12].fill(0);
        let checksum = !fold(sum(ip));
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        sum(&ip[12..20])
    }
}

impl TcpHeaders {
    fn of(head: &[u8]) -> Option<TcpHeaders> {
        let number = |at: usize| Some(u16::from_be_bytes(*head.get(at..)?.first_chunk()?));
        let mut ip = ETHERNET;
        let mut ether_type = number(ip - 2)?;
        while matches!(ether_type, C_VLAN | S_VLAN) && ip < ETHERNET + 2 * TAG {
            ip += TAG;
            ether_type = number(ip - 2)?;
        }
        let first = *head.get(ip)?;
        let (header, protocol) = match (ether_type, first >> 4) {
            (IS_IPV4, 4) => (usize::from(first & 0xf) * 4, *head.get(ip + 9)?),
            (IS_IPV6, 6) => (IPV6, *head.get(ip + 6)?),
            _ => return None,
        };
        let tcp = ip + header;
        let end = tcp + usize::from(*head.get(tcp + 12)? >> 4) * 4;
        let is_whole = header >= IPV4 && protocol == IS_TCP && end >= tcp + TCP && end <= head.len();
        is_whole.then_some(TcpHeaders { ip, is_v4: ether_type == IS_IPV4, tcp: tcp..end })
    }
}

/// Sum of the words of headers, whose length is a multiple of two.
fn sum(bytes: &[u8]) -> u32 {
    bytes.as_chunks::<2>().0.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum()
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{PacketBuilder, TcpHeader, TcpOptionElement};
    use proptest::prelude::*;

    /// A packet of these headers, with etherparse's checksums and lengths.
    fn packet(is_v4: bool, tags: u16, ttl: u8, header: &TcpHeader, data: &[u8]) -> Vec<u8> {
        let link = PacketBuilder::ethernet2([2; 6], [4; 6]);
        let mut bytes = Vec::new();
        let id = |number: u16| number.try_into().unwrap();
        let build = match (tags, is_v4) {
            (0, true) => link.ipv4([10, 0, 0, 1], [10, 0, 0, 2], ttl),
            (0, false) => link.ipv6([1; 16], [2; 16], ttl),
            (1, true) => link.single_vlan(id(5)).ipv4([10, 0, 0, 1], [10, 0, 0, 2], ttl),
            (1, false) => link.single_vlan(id(5)).ipv6([1; 16], [2; 16], ttl),
            (_, true) => link.double_vlan(id(5), id(6)).ipv4([10, 0, 0, 1], [10, 0, 0, 2], ttl),
            (_, false) => link.double_vlan(id(5), id(6)).ipv6([1; 16], [2; 16], ttl),
        };
        build.tcp_header(header.clone()).write(&mut bytes, data).unwrap();
        bytes
    }

    fn with_timestamp(value: u32, echo: u32) -> TcpHeader {
        let mut header = TcpHeader::new(1000, 2000, 7, 500);
        let options = [TcpOptionElement::Noop, TcpOptionElement::Noop, TcpOptionElement::Timestamp(value, echo)];
        header.set_options(&options).unwrap();
        (header.ack, header.acknowledgment_number) = (true, 70);
        header
    }

    proptest! {
        /// The headers are those that etherparse makes of the whole packet.
        #[test]
        fn headers_become_those_of_one_packet(
            is_v4: bool, tags in 0..=2_u16, is_pushed: bool, least_ttl: u8, ack: (u32, u16), timestamp: (u32, u32),
            data in prop::collection::vec(any::<u8>(), 2..4000), first in 1..2000_usize,
        ) {
            let before = packet(is_v4, tags, 64, &with_timestamp(1, 2), &data[..first.min(data.len())]);
            let mut header = with_timestamp(timestamp.0, timestamp.1);
            (header.acknowledgment_number, header.window_size, header.psh) = (ack.0, ack.1, is_pushed);
            let right = packet(is_v4, tags, least_ttl, &header, &data);
            let padded = [&data[..], &[0][..data.len() % 2]].concat();
            let joined = JoinedSegments {
                segments: 2, is_pushed, least_ttl, ack: Some(ack), timestamp: Some(timestamp), data_sum: fold(sum(&padded)),
            };
            let headers = right.len() - data.len();
            let mut memory = [&before[..headers], &data].concat();
            let all = memory.len();
            for _ in 0..2 {
                prop_assert!(joined.update_headers(&mut memory[..JoinedSegments::HEADERS.min(all)], all));
                prop_assert_eq!(&memory, &right);
            }
        }

        /// No bytes and no length make it panic or write where no headers are.
        #[test]
        fn any_bytes_are_borne(mut bytes in prop::collection::vec(any::<u8>(), 0..200), len in 0..70_000_usize, v6: bool) {
            let joined = JoinedSegments {
                segments: 3, is_pushed: true, least_ttl: 1, ack: Some((1, 2)), timestamp: Some((3, 4)), data_sum: 5,
            };
            let before = bytes.clone();
            prop_assert!(joined.update_headers(&mut bytes, len) || bytes == before);
            if bytes.len() > 60 {
                bytes[12..14].copy_from_slice(&if v6 { IS_IPV6 } else { IS_IPV4 }.to_be_bytes());
                bytes[14] = if v6 { 0x60 } else { 0x40 | bytes[14] & 0xf };
                bytes[if v6 { 20 } else { 23 }] = IS_TCP;
                let before = bytes.clone();
                prop_assert!(joined.update_headers(&mut bytes, len) || bytes == before);
            }
        }
    }
}
