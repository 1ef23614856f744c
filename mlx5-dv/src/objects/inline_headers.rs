//! How much of a frame must be inlined in the WQE. PRM "Ethernet Segment", `inline_hdr_sz`.

use mlx5_prm::ctx::InlineMode;

/// Bytes of an Ethernet header.
pub(crate) const ETHERNET: usize = 14;
/// Bytes of an Ethernet header with a VLAN tag: what Linux always inlines where a card requires the Ethernet header.
const TAGGED: usize = 18;
/// Largest IPv4 header in bytes; the largest TCP header is the same.
const LONGEST: usize = 60;
/// The most that any mode can require.
pub(crate) const MOST_HEADERS: usize = TAGGED + 2 * LONGEST;

pub(crate) const VLAN: u16 = 0x8100;
pub(crate) const SERVICE_VLAN: u16 = 0x88a8;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// The most that [`headers`] returns for `mode`.
pub(crate) fn most_headers(mode: InlineMode) -> usize {
    match mode {
        InlineMode::None => 0,
        InlineMode::L2 => TAGGED,
        InlineMode::Ip => TAGGED + LONGEST,
        InlineMode::TcpUdp | InlineMode::Unknown(_) => MOST_HEADERS,
    }
}

/// Number of bytes to inline of a frame of `len` bytes that starts with `start`. If `start` ends before the last
/// header, the result exceeds its length.
pub(crate) fn headers(mode: InlineMode, start: &[u8], len: usize) -> usize {
    let headers = match mode {
        InlineMode::None => 0,
        InlineMode::L2 => TAGGED,
        InlineMode::Ip => network(start).0,
        InlineMode::TcpUdp | InlineMode::Unknown(_) => transport(start),
    };
    headers.min(len)
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

/// End of the network header, and the transport protocol; `None` if that is not needed or not known.
fn network(start: &[u8]) -> (usize, Option<u8>) {
    let (at, kind) = match be16(start, ETHERNET - 2) {
        Some(VLAN | SERVICE_VLAN) => (TAGGED, be16(start, TAGGED - 2)),
        kind => (ETHERNET, kind),
    };
    match kind {
        Some(IPV4) => {
            let len = start.get(at).map_or(20, |first| usize::from(first & 0xf) * 4);
            (at + len, start.get(at + 9).copied())
        }
        Some(IPV6) => (at + 40, start.get(at + 6).copied()),
        _ => (TAGGED, None),
    }
}

fn transport(start: &[u8]) -> usize {
    match network(start) {
        (at, Some(UDP)) => at + 8,
        (at, Some(TCP)) => at + start.get(at + 12).map_or(20, |offset| usize::from(offset >> 4) * 4),
        (at, _) => at,
    }
}

/// End of the TCP or UDP header of a frame that starts with `start`, and whether it is UDP's; `None` if there is none,
/// or `start` ends before it.
pub(crate) fn transport_end(start: &[u8]) -> Option<(usize, bool)> {
    let (_, protocol) = network(start);
    let end = transport(start);
    (matches!(protocol, Some(TCP | UDP)) && end <= start.len()).then_some((end, protocol == Some(UDP)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A frame with Ethernet type `kind`, followed by `rest`.
    fn frame(kind: u16, rest: &[u8]) -> Vec<u8> {
        [&[2; 12][..], &kind.to_be_bytes(), rest, &[0; 200]].concat()
    }

    fn of(mode: InlineMode, frame: &[u8]) -> usize {
        headers(mode, frame, frame.len())
    }

    #[test]
    fn the_headers_that_a_mode_names_are_inlined() {
        let mut ip = [0; 20];
        (ip[0], ip[9]) = (0x45, UDP);
        let udp = frame(IPV4, &ip);
        assert_eq!([InlineMode::None, InlineMode::L2].map(|mode| of(mode, &udp)), [0, 18]);
        assert_eq!([InlineMode::Ip, InlineMode::TcpUdp].map(|mode| of(mode, &udp)), [34, 42]);
        (ip[0], ip[9]) = (0x46, TCP);
        let mut tcp = [0; 20];
        tcp[12] = 0x80;
        let tagged = frame(VLAN, &[&[0, 5][..], &IPV4.to_be_bytes(), &ip, &[0; 4], &tcp].concat());
        assert_eq!([InlineMode::Ip, InlineMode::TcpUdp].map(|mode| of(mode, &tagged)), [42, 74]);
        let mut ip = [0; 40];
        ip[6] = 58;
        assert_eq!([InlineMode::Ip, InlineMode::TcpUdp].map(|mode| of(mode, &frame(IPV6, &ip))), [54, 54]);
        assert_eq!(of(InlineMode::TcpUdp, &frame(0x0806, &[])), 18, "ARP");
    }

    #[test]
    fn a_short_frame_is_inlined_whole_at_most() {
        assert_eq!(headers(InlineMode::L2, &[0; 14], 14), 14);
    }

    proptest! {
        /// For any frame, its headers are within the frame and within what queues reserve, and a longer `start` never
        /// requires less.
        #[test]
        fn any_frame_has_headers(bytes in prop::collection::vec(any::<u8>(), 0..200), mode in 0u32..8) {
            let mode = <InlineMode as mlx5_prm::layout::Value>::from_number(mode.into());
            let wanted = of(mode, &bytes);
            prop_assert!(wanted <= bytes.len() && wanted <= most_headers(mode));
        }
    }
}
