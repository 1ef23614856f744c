//! Match keys of frames, for flow entries. PRM `fte_match_param`.

use mlx5_prm::flow::{FteMatchParam, FteMatchSetLyr24, FteMatchSetMisc, FteMatchSetMisc2, Ipv6LayoutIpv4LayoutAuto};
use mlx5_prm::layout::Layout;

use super::modify::Registers;
use crate::ethernet::{Headers, Tag, Tunnel, VxlanPorts};

/// Bytes of a key: outer headers, `misc_parameters`, inner headers, `misc_parameters_2`.
pub(crate) const LEN: usize = 4 * FteMatchSetLyr24::SIZE;
/// The parts that keys have, as `match_criteria_enable` names them: bit n is that of the nth 64 bytes.
pub(crate) const PARTS: u8 = 0xf;
const PART: usize = FteMatchSetLyr24::SIZE;
const WORD: usize = size_of::<u64>();

/// The headers of a frame, or the value of an entry: the first bytes of `fte_match_param`.
pub(crate) type Key = [u8; LEN];

/// Which bits of a key a group compares: the words that are not 0, by their index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mask(Vec<(usize, u64)>);

impl Mask {
    /// The criteria of a group, as far as they are enabled.
    pub fn of(criteria: &Key, enabled: u8) -> Self {
        let is_enabled = |word: &usize| enabled >> (word * WORD / PART) & 1 != 0;
        let words = (0..LEN / WORD).filter(is_enabled).map(|index| (index, word(criteria, index)));
        Mask(words.filter(|(_, mask)| *mask != 0).collect())
    }

    /// The bits of `key` that the mask has, into `selected`.
    pub fn select(&self, key: &Key, selected: &mut Vec<u64>) {
        selected.clear();
        selected.extend(self.0.iter().map(|(index, mask)| word(key, *index) & mask));
    }

    /// Whether it has no bit that `other` has not.
    pub fn is_within(&self, other: &Key) -> bool {
        self.0.iter().all(|(index, mask)| mask & !word(other, *index) == 0)
    }
}

fn word(key: &Key, index: usize) -> u64 {
    let (words, _) = key.as_chunks::<WORD>();
    u64::from_ne_bytes(words[index])
}

/// The key of a frame.
pub(crate) fn of(frame: &[u8], registers: &Registers, ports: &VxlanPorts) -> Key {
    let headers = &Headers::of(frame);
    let (mut all, mut misc) = (FteMatchParam::ZERO, FteMatchSetMisc::ZERO);
    all.w().outer_headers(&layers(headers));
    if let Some(tag) = headers.second_tag {
        misc.w()
            .outer_second_prio((tag.tci >> 13) as u8)
            .outer_second_cfi(tag.tci >> 12 & 1 != 0)
            .outer_second_vid(tag.tci & 0xfff)
            .outer_second_cvlan_tag(!tag.is_service)
            .outer_second_svlan_tag(tag.is_service);
    }
    if let Some(tunnel) = Tunnel::of(frame, headers, ports) {
        misc.w().vxlan_vni(tunnel.vni.unwrap_or(0));
        all.w().inner_headers(&layers(&tunnel.inner));
    }
    let [c0, c1, c2, c3, c4, c5, c6, c7] = registers.c;
    let mut metadata = FteMatchSetMisc2::ZERO;
    metadata
        .w()
        .metadata_reg_c_0(c0)
        .metadata_reg_c_1(c1)
        .metadata_reg_c_2(c2)
        .metadata_reg_c_3(c3)
        .metadata_reg_c_4(c4)
        .metadata_reg_c_5(c5)
        .metadata_reg_c_6(c6)
        .metadata_reg_c_7(c7);
    all.w().misc_parameters(&misc).misc_parameters_2(&metadata);
    bytes(&all)
}

/// Ethernet, network and transport headers.
fn layers(headers: &Headers) -> FteMatchSetLyr24 {
    let mut key = FteMatchSetLyr24::ZERO;
    let [a, b, c, d, e, f] = headers.source;
    key.w().smac_47_16(u32::from_be_bytes([a, b, c, d])).smac_15_0(u16::from_be_bytes([e, f]));
    let [a, b, c, d, e, f] = headers.destination;
    key.w().dmac_47_16(u32::from_be_bytes([a, b, c, d])).dmac_15_0(u16::from_be_bytes([e, f]));
    key.w().ethertype(headers.ether_type);
    if let Some(Tag { tci, is_service }) = headers.tag {
        key.w()
            .first_prio((tci >> 13) as u8)
            .first_cfi(tci >> 12 & 1 != 0)
            .first_vid(tci & 0xfff)
            .cvlan_tag(!is_service)
            .svlan_tag(is_service);
    }
    if let Some(ip) = headers.ip {
        key.w()
            .ip_version(if ip.is_v4 { 4 } else { 6 })
            .ip_protocol(ip.protocol)
            .ip_dscp(ip.dscp)
            .ip_ecn(ip.ecn)
            .frag(ip.is_fragment)
            .ttl_hoplimit(ip.hop_limit)
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
    key
}

/// All supported mask bits: the fields set by [`of`].
pub(crate) fn supported() -> Key {
    let mut all = FteMatchParam::ZERO;
    let (mut misc, mut metadata) = (FteMatchSetMisc::ZERO, FteMatchSetMisc2::ZERO);
    misc.w()
        .outer_second_prio(7)
        .outer_second_cfi(true)
        .outer_second_vid(0xfff)
        .outer_second_cvlan_tag(true)
        .outer_second_svlan_tag(true)
        .vxlan_vni(0xff_ffff);
    metadata
        .w()
        .metadata_reg_c_0(u32::MAX)
        .metadata_reg_c_1(u32::MAX)
        .metadata_reg_c_2(u32::MAX)
        .metadata_reg_c_3(u32::MAX)
        .metadata_reg_c_4(u32::MAX)
        .metadata_reg_c_5(u32::MAX)
        .metadata_reg_c_6(u32::MAX)
        .metadata_reg_c_7(u32::MAX);
    let outer = supported_layers();
    let mut inner = outer;
    inner.w().ttl_hoplimit(0);
    all.w().outer_headers(&outer).inner_headers(&inner).misc_parameters(&misc).misc_parameters_2(&metadata);
    bytes(&all)
}

fn supported_layers() -> FteMatchSetLyr24 {
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
        .ttl_hoplimit(u8::MAX)
        .src_ipv4_src_ipv6(&address(&[u8::MAX; 16]))
        .dst_ipv4_dst_ipv6(&address(&[u8::MAX; 16]))
        .tcp_sport(u16::MAX)
        .tcp_dport(u16::MAX)
        .tcp_flags(0x1ff)
        .udp_sport(u16::MAX)
        .udp_dport(u16::MAX);
    mask
}

fn address(bytes: &[u8; 16]) -> Ipv6LayoutIpv4LayoutAuto {
    Layout::read(bytes).unwrap_or_default()
}

/// The part of a match parameter that keys have.
pub(crate) fn bytes(all: &FteMatchParam) -> Key {
    all.as_bytes().first_chunk().copied().unwrap_or([0; LEN])
}

/// Whether `criteria`, as far as `enabled`, have bits that no key has.
pub(crate) fn is_supported(criteria: &FteMatchParam, enabled: u8) -> bool {
    enabled & !PARTS == 0 && Mask::of(&bytes(criteria), enabled).is_within(&supported())
}
