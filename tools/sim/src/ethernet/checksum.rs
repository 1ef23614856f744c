//! Internet checksums of a frame: put in on the way out, verified on the way in.

use etherparse::checksum::Sum16BitWords;

use super::{Headers, Ip, L4};

/// Where the checksum is in an IPv4 header.
const IPV4_CHECKSUM: usize = 10;

/// What a receiver found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// An IP header, and its checksum, where it has one, is right.
    pub l3_ok: bool,
    /// A TCP or UDP header whose checksum is right, or absent as UDP over IPv4 allows.
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

/// Puts the IPv4 header's checksum in. False if there is no such header.
pub(crate) fn insert_l3(frame: &mut [u8], ip: &Ip) -> bool {
    let range = ipv4_header(frame, ip);
    let Some(header) = frame.get_mut(range).filter(|header| ip.is_v4 && header.len() >= 20) else { return false };
    header[IPV4_CHECKSUM..IPV4_CHECKSUM + 2].fill(0);
    let checksum = sum(header);
    header[IPV4_CHECKSUM..IPV4_CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
    true
}

/// Puts the TCP or UDP header's checksum in. False if the packet is not whole.
pub(crate) fn insert_l4(frame: &mut [u8], ip: &Ip, l4: &L4) -> bool {
    let at = l4.checksum_at();
    let Some(place) = frame.get_mut(at..at + 2) else { return false };
    place.fill(0);
    let Some(mut checksum) = transport_sum(frame, ip, l4) else { return false };
    // To UDP, zero means that there is none.
    if !l4.is_tcp && checksum == 0 {
        checksum = 0xffff;
    }
    frame[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    true
}

/// The sum of all bytes behind the Ethernet header, as a CQE carries it: not complemented.
pub(crate) fn whole(frame: &[u8]) -> u16 {
    !sum(frame.get(super::HEADER..).unwrap_or_default())
}

/// The IPv4 header without what may follow it as an extension.
fn ipv4_header(frame: &[u8], ip: &Ip) -> std::ops::Range<usize> {
    let words = frame.get(ip.at).map_or(0, |byte| byte & 0xf);
    ip.at..ip.at + usize::from(words) * 4
}

fn sum(bytes: &[u8]) -> u16 {
    u16::from_be(Sum16BitWords::new().add_slice(bytes).ones_complement())
}

/// The checksum of a TCP or UDP packet over its pseudo header; 0 when the one in it is right.
fn transport_sum(frame: &[u8], ip: &Ip, l4: &L4) -> Option<u16> {
    let bytes = frame.get(l4.at..ip.at + ip.len)?;
    let mut words = Sum16BitWords::new();
    // The address of an IPv4 packet is twelve zeros longer here: they add nothing.
    words = words.add_16bytes(ip.source).add_16bytes(ip.destination);
    words = words.add_4bytes((bytes.len() as u32).to_be_bytes()).add_2bytes([0, l4.protocol()]);
    Some(u16::from_be(words.add_slice(bytes).ones_complement()))
}
