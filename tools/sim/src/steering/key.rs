//! Match keys of frames, for flow entries.

use mlx5_prm::flow::{FteMatchSetLyr24, Ipv6LayoutIpv4LayoutAuto};
use mlx5_prm::layout::Layout;

use crate::ethernet::Headers;

/// Bytes of a key.
pub(crate) const LEN: usize = FteMatchSetLyr24::SIZE;

/// The outer headers of a frame, a mask of them, or the value of an entry. PRM `fte_match_set_lyr_2_4`.
pub(crate) type Key = [u8; LEN];

/// The key of a frame.
pub(crate) fn of(headers: &Headers) -> Key {
    let mut key = FteMatchSetLyr24::ZERO;
    let [a, b, c, d, e, f] = headers.source;
    key.w().smac_47_16(u32::from_be_bytes([a, b, c, d])).smac_15_0(u16::from_be_bytes([e, f]));
    let [a, b, c, d, e, f] = headers.destination;
    key.w().dmac_47_16(u32::from_be_bytes([a, b, c, d])).dmac_15_0(u16::from_be_bytes([e, f]));
    key.w().ethertype(headers.ether_type);
    if let Some(tag) = headers.tag {
        key.w()
            .first_prio((tag.tci >> 13) as u8)
            .first_cfi(tag.tci >> 12 & 1 != 0)
            .first_vid(tag.tci & 0xfff)
            .cvlan_tag(!tag.is_service)
            .svlan_tag(tag.is_service);
    }
    if let Some(ip) = headers.ip {
        key.w()
            .ip_version(if ip.is_v4 { 4 } else { 6 })
            .ip_protocol(ip.protocol)
            .ip_dscp(ip.dscp)
            .ip_ecn(ip.ecn)
            .frag(ip.is_fragment)
            .src_ipv4_src_ipv6(&address(&ip.source))
            .dst_ipv4_dst_ipv6(&address(&ip.destination));
    }
    match headers.l4 {
        Some(l4) if l4.is_tcp => {
            key.w().tcp_sport(l4.source_port).tcp_dport(l4.destination_port).tcp_flags(l4.tcp_flags);
        }
        Some(l4) => {
            key.w().udp_sport(l4.source_port).udp_dport(l4.destination_port);
        }
        None => {}
    }
    bytes(&key)
}

/// All supported mask bits: the fields set by [`of`].
pub(crate) fn supported() -> Key {
    let mut mask = FteMatchSetLyr24::ZERO;
    mask.w()
        .smac_47_16(u32::MAX)
        .smac_15_0(u16::MAX)
        .dmac_47_16(u32::MAX)
        .dmac_15_0(u16::MAX)
        .ethertype(u16::MAX)
        .first_prio(7)
        .first_cfi(true)
        .first_vid(0xfff)
        .cvlan_tag(true)
        .svlan_tag(true)
        .ip_version(0xf)
        .ip_protocol(u8::MAX)
        .ip_dscp(0x3f)
        .ip_ecn(3)
        .frag(true)
        .src_ipv4_src_ipv6(&address(&[u8::MAX; 16]))
        .dst_ipv4_dst_ipv6(&address(&[u8::MAX; 16]))
        .tcp_sport(u16::MAX)
        .tcp_dport(u16::MAX)
        .tcp_flags(0x1ff)
        .udp_sport(u16::MAX)
        .udp_dport(u16::MAX);
    bytes(&mask)
}

fn address(bytes: &[u8; 16]) -> Ipv6LayoutIpv4LayoutAuto {
    Layout::read(bytes).unwrap_or_default()
}

/// The bytes of a layout.
pub(crate) fn bytes(set: &FteMatchSetLyr24) -> Key {
    set.as_bytes().first_chunk().copied().unwrap_or([0; LEN])
}

/// `key` under `mask`.
pub(crate) fn masked(key: &Key, mask: &Key) -> Key {
    std::array::from_fn(|at| key[at] & mask[at])
}
