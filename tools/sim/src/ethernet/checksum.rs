//! IP, TCP and UDP checksums: inserted when sending, verified when receiving.

use etherparse::checksum::Sum16BitWords;

use super::{Headers, Ip, L4};

/// Offset of the checksum in an IPv4 header.
const IPV4_CHECKSUM: usize = 10;

/// Result of checksum verification.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// The frame has an IP header, and its checksum, if any, is correct.
    pub l3_ok: bool,
    /// The frame has a TCP or UDP header whose checksum is correct, or absent as UDP over IPv4 allows.
    pub l4_ok: bool,
}

/// Verifies the checksums of a frame.
pub(crate) fn verify(frame: &[u8], headers: &Headers) -> Verdict {
    let Some(ip) = &headers.ip else { return Verdict::default() };
    let l3_ok = !ip.is_v4 || frame.get(ipv4_header(frame, ip)).is_some_and(|header| sum(header) == 0);
    let l4_ok = headers.l4.is_some_and(|l4| {
        let absent = !l4.is_tcp && ip.is_v4 && frame.get(l4.checksum_at()..l4.checksum_at() + 2) == Some(&[0, 0]);
        absent || transport_sum(frame, ip, &l4) == Some(0)
    });
    Verdict { l3_ok, l4_ok }
}

/// Inserts the IPv4 header checksum. Returns false if there is no IPv4 header.
pub(crate) fn insert_l3(frame: &mut [u8], ip: &Ip) -> bool {
    let range = ipv4_header(frame, ip);
    let Some(header) = frame.get_mut(range).filter(|header| ip.is_v4 && header.len() >= 20) else { return false };
    header[IPV4_CHECKSUM..IPV4_CHECKSUM + 2].fill(0);
    let checksum = sum(header);
    header[IPV4_CHECKSUM..IPV4_CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
    true
}

/// Inserts the TCP or UDP checksum. Returns false if the packet is incomplete.
pub(crate) fn insert_l4(frame: &mut [u8], ip: &Ip, l4: &L4) -> bool {
    let at = l4.checksum_at();
    let Some(place) = frame.get_mut(at..at + 2) else { return false };
    place.fill(0);
    let Some(mut checksum) = transport_sum(frame, ip, l4) else { return false };
    // In UDP, 0 means no checksum.
    if !l4.is_tcp && checksum == 0 {
        checksum = 0xffff;
    }
    frame[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    true
}

/// Adapts the checksums of a frame whose header fields were changed, from what it was `before`: one that was wrong
/// stays so, and UDP's may be absent. RFC 1624.
pub(crate) fn adapt(before: &[u8], frame: &mut [u8], headers: &Headers) {
    let Some(ip) = &headers.ip else { return };
    if let Some(l4) = &headers.l4 {
        let addresses = if ip.is_v4 { ip.at + 12..ip.at + 20 } else { ip.at + 8..ip.at + 40 };
        let at = l4.checksum_at();
        let is_absent = !l4.is_tcp && before.get(at..at + 2) == Some(&[0, 0]);
        if !is_absent {
            adapt_one(before, frame, at, &[addresses, l4.at..at, at + 2..l4.at + l4.header_len]);
            // In UDP, 0 means no checksum.
            if !l4.is_tcp && frame.get(at..at + 2) == Some(&[0, 0]) {
                frame[at..at + 2].fill(0xff);
            }
        }
    }
    if ip.is_v4 {
        let (header, at) = (ipv4_header(before, ip), ip.at + IPV4_CHECKSUM);
        adapt_one(before, frame, at, &[header.start..at, at + 2..header.end]);
    }
}

/// Adapts the checksum at `at`, which covers `parts`.
fn adapt_one(before: &[u8], frame: &mut [u8], at: usize, parts: &[std::ops::Range<usize>]) {
    let add = |bytes: &[u8], sum: u32| {
        parts.iter().filter_map(|part| bytes.get(part.clone())).fold(sum, |sum, part| sum + u32::from(!self::sum(part)))
    };
    let changed = parts.iter().any(|part| before.get(part.clone()) != frame.get(part.clone()));
    let Some(old) = frame.get(at..at + 2).map(|place| u16::from_be_bytes([place[0], place[1]])) else { return };
    if !changed {
        return;
    }
    let taken = fold(add(before, 0));
    let sum = fold(add(frame, u32::from(!old) + u32::from(!taken)));
    frame[at..at + 2].copy_from_slice(&(!sum).to_be_bytes());
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Sum of all bytes after the Ethernet header, not complemented. PRM "CQE Format", `check_sum`.
pub(crate) fn whole(frame: &[u8]) -> u16 {
    !sum(frame.get(super::HEADER..).unwrap_or_default())
}

/// Sum of bytes, not complemented.
pub(crate) fn of_data(bytes: &[u8]) -> u16 {
    !sum(bytes)
}

/// The IPv4 header without extension headers.
fn ipv4_header(frame: &[u8], ip: &Ip) -> std::ops::Range<usize> {
    let words = frame.get(ip.at).map_or(0, |byte| byte & 0xf);
    ip.at..ip.at + usize::from(words) * 4
}

fn sum(bytes: &[u8]) -> u16 {
    u16::from_be(Sum16BitWords::new().add_slice(bytes).ones_complement())
}

/// Checksum of a TCP or UDP packet with its pseudo header; 0 if the packet's checksum is correct.
fn transport_sum(frame: &[u8], ip: &Ip, l4: &L4) -> Option<u16> {
    let bytes = frame.get(l4.at..ip.at + ip.len)?;
    let mut words = Sum16BitWords::new();
    // Source and destination are IPv4-mapped here: the additional zeros do not change the sum.
    words = words.add_16bytes(ip.source).add_16bytes(ip.destination);
    words = words.add_4bytes((bytes.len() as u32).to_be_bytes()).add_2bytes([0, l4.protocol()]);
    Some(u16::from_be(words.add_slice(bytes).ones_complement()))
}
