//! Match keys of frames, for flow entries. PRM `fte_match_param`.

use mlx5_prm::caps::{FlowTableFieldsSupported, FlowTableFieldsSupported2};
use mlx5_prm::flow::{
    FteMatchMpls, FteMatchParam, FteMatchSetLyr24, FteMatchSetMisc, FteMatchSetMisc2, FteMatchSetMisc3,
    FteMatchSetMisc5, GreKey, Ipv6LayoutIpv4LayoutAuto, L4Type, L4TypeExt,
};
use mlx5_prm::layout::Layout;

use super::modify::Registers;
use super::payload::{self, Bth, Geneve, GeneveOption, Gre, Gtpu, Icmp, VxlanGpe};
use crate::ethernet::{Headers, Tag, Tunnel, VxlanPorts};
use crate::profile::flex_parser;

/// Bytes of a key: outer headers, `misc_parameters`, inner headers, `misc_parameters_2`, `_3`, `_4` and `_5`.
pub(crate) const LEN: usize = 7 * FteMatchSetLyr24::SIZE;
/// The parts that keys have, as `match_criteria_enable` names them: bit n is that of the nth 64 bytes. There are no
/// samplers, whose values are `misc_parameters_4`.
pub(crate) const PARTS: u8 = 0x5f;
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

/// What a frame's key tells beside its headers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Beside {
    /// UDP ports of VXLAN.
    pub ports: VxlanPorts,
    /// The option of GENEVE whose data is matched.
    pub option: Option<GeneveOption>,
    /// The send queue that sends it; 0 where it is received.
    pub sqn: u32,
}

/// The key of a frame.
pub(crate) fn of(frame: &[u8], registers: &Registers, beside: &Beside) -> Key {
    let headers = &Headers::of(frame);
    let tunnel = Tunnel::of(frame, headers, &beside.ports);
    let inner = tunnel.as_ref().map(|tunnel| &tunnel.inner);
    let mut misc = misc(frame, headers, inner);
    misc.w().vxlan_vni(tunnel.and_then(|tunnel| tunnel.vni).unwrap_or(0)).source_sqn(beside.sqn);
    let mut misc3 = misc3(frame, headers, inner);
    if let Some(data) = beside.option.and_then(|option| option.data(frame, headers)) {
        misc.w().geneve_tlv_option_0_exist(true);
        misc3.w().geneve_tlv_option_0_data(data);
    }
    let mut all = FteMatchParam::ZERO;
    all.w()
        .outer_headers(&layers(frame, headers))
        .misc_parameters(&misc)
        .misc_parameters_2(&metadata(frame, headers, inner, registers))
        .misc_parameters_3(&misc3);
    if let Some(inner) = inner {
        all.w().inner_headers(&layers(frame, inner));
    }
    if let Some(words) = payload::tunnel_words(frame, headers, &beside.ports) {
        all.w().misc_parameters_5(&tunnel_header(words));
    }
    bytes(&all)
}

/// Second VLAN tags, flow labels, GRE, GENEVE, ESP, RoCE.
fn misc(frame: &[u8], headers: &Headers, inner: Option<&Headers>) -> FteMatchSetMisc {
    let mut misc = FteMatchSetMisc::ZERO;
    if let Some(tag) = headers.second_tag {
        misc.w()
            .outer_second_prio((tag.tci >> 13) as u8)
            .outer_second_cfi(tag.tci >> 12 & 1 != 0)
            .outer_second_vid(tag.tci & 0xfff)
            .outer_second_cvlan_tag(!tag.is_service)
            .outer_second_svlan_tag(tag.is_service);
    }
    if let Some(tag) = inner.and_then(|inner| inner.second_tag) {
        misc.w()
            .inner_second_prio((tag.tci >> 13) as u8)
            .inner_second_cfi(tag.tci >> 12 & 1 != 0)
            .inner_second_vid(tag.tci & 0xfff)
            .inner_second_cvlan_tag(!tag.is_service)
            .inner_second_svlan_tag(tag.is_service);
    }
    let label = |headers: Option<&Headers>| headers.and_then(|headers| headers.ip).map_or(0, |ip| ip.flow_label);
    misc.w()
        .outer_ipv6_flow_label(label(Some(headers)))
        .inner_ipv6_flow_label(label(inner))
        .outer_esp_spi(payload::esp_spi(headers).unwrap_or(0))
        .inner_esp_spi(inner.and_then(payload::esp_spi).unwrap_or(0));
    if let Some(Bth { opcode, destination_qp }) = Bth::of(frame, headers) {
        misc.w().bth_opcode(opcode).bth_dst_qp(destination_qp);
    }
    if let Some(Gre { has_checksum, key, has_sequence, protocol, .. }) = Gre::of(frame, headers) {
        misc.w()
            .gre_c_present(has_checksum)
            .gre_k_present(key.is_some())
            .gre_s_present(has_sequence)
            .gre_protocol(protocol)
            .gre_key(&gre_key(key.unwrap_or(0)));
    }
    if let Some(Geneve { vni, protocol, options_len, is_oam }) = Geneve::of(frame, headers) {
        misc.w().geneve_vni(vni).geneve_protocol_type(protocol).geneve_opt_len(options_len).geneve_oam(is_oam);
    }
    misc
}

fn gre_key(number: u32) -> GreKey {
    let mut key = GreKey::ZERO;
    key.w().key(number);
    key
}

/// MPLS, and what earlier entries left in registers.
fn metadata(frame: &[u8], headers: &Headers, inner: Option<&Headers>, registers: &Registers) -> FteMatchSetMisc2 {
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
        .metadata_reg_c_7(c7)
        .metadata_reg_a(registers.a);
    let first = |entry: Option<[u8; 4]>| entry.and_then(|entry| FteMatchMpls::read(&entry)).unwrap_or_default();
    metadata
        .w()
        .outer_first_mpls(&first(payload::mpls(frame, headers)))
        .inner_first_mpls(&first(inner.and_then(|inner| payload::mpls(frame, inner))))
        .outer_first_mpls_over_gre(&first(payload::mpls_over_gre(frame, headers)))
        .outer_first_mpls_over_udp(&first(payload::mpls_over_udp(frame, headers)));
    metadata
}

/// TCP's numbers, ICMP, VXLAN-GPE, GTP-U.
fn misc3(frame: &[u8], headers: &Headers, inner: Option<&Headers>) -> FteMatchSetMisc3 {
    let mut misc = FteMatchSetMisc3::ZERO;
    if let Some(l4) = headers.l4 {
        misc.w().outer_tcp_seq_num(l4.tcp_sequence).outer_tcp_ack_num(l4.tcp_acknowledgement);
    }
    if let Some(l4) = inner.and_then(|inner| inner.l4) {
        misc.w().inner_tcp_seq_num(l4.tcp_sequence).inner_tcp_ack_num(l4.tcp_acknowledgement);
    }
    match (headers.ip.is_some_and(|ip| ip.is_v4), Icmp::of(frame, headers)) {
        (true, Some(Icmp { kind, code, data })) => _ = misc.w().icmp_type(kind).icmp_code(code).icmp_header_data(data),
        (false, Some(Icmp { kind, code, data })) => {
            misc.w().icmpv6_type(kind).icmpv6_code(code).icmpv6_header_data(data);
        }
        (_, None) => {}
    }
    if let Some(VxlanGpe { flags, vni, next_protocol }) = VxlanGpe::of(frame, headers) {
        misc.w().outer_vxlan_gpe_flags(flags).outer_vxlan_gpe_vni(vni).outer_vxlan_gpe_next_protocol(next_protocol);
    }
    if let Some(Gtpu { first, teid, options, extension }) = Gtpu::of(frame, headers) {
        let [head, message_type, ..] = first.to_be_bytes();
        misc.w()
            .gtpu_msg_flags(head & payload::GTPU_FLAGS)
            .gtpu_msg_type(message_type)
            .gtpu_teid(teid)
            .gtpu_dw_0(first)
            .gtpu_dw_2(options)
            .gtpu_first_ext_dw_0(extension);
    }
    misc
}

/// The first words of a tunnel's header.
fn tunnel_header([first, second, third, fourth]: [u32; 4]) -> FteMatchSetMisc5 {
    let mut misc = FteMatchSetMisc5::ZERO;
    misc.w().tunnel_header_0(first).tunnel_header_1(second).tunnel_header_2(third).tunnel_header_3(fourth);
    misc
}

/// Ethernet, network and transport headers.
fn layers(frame: &[u8], headers: &Headers) -> FteMatchSetLyr24 {
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
            .ipv4_ihl(ip.ihl)
            .src_ipv4_src_ipv6(&address(&ip.source))
            .dst_ipv4_dst_ipv6(&address(&ip.destination));
    }
    match headers.l4 {
        Some(l4) if l4.is_tcp => {
            key.w().tcp_sport(l4.source_port).tcp_dport(l4.destination_port).tcp_flags(l4.tcp_flags);
            key.w().l4_type(L4Type::Tcp).l4_type_ext(L4TypeExt::Tcp);
        }
        Some(l4) => {
            key.w().udp_sport(l4.source_port).udp_dport(l4.destination_port);
            key.w().l4_type(L4Type::Udp).l4_type_ext(L4TypeExt::Udp);
        }
        None if Icmp::of(frame, headers).is_some() => _ = key.w().l4_type_ext(L4TypeExt::Icmp),
        None => {}
    }
    key
}

/// What a card announces of the fields that its tables match.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Announced {
    /// `ft_field_support` of the tables' kind.
    pub fields: FlowTableFieldsSupported,
    /// The same, second part.
    pub fields_2: FlowTableFieldsSupported2,
    /// `flex_parser_protocols`.
    pub protocols: u32,
    /// `metadata_reg_a_width`.
    pub metadata_a: u8,
}

/// All supported mask bits: the fields set by [`of`], as far as they are announced.
fn supported(announced: &Announced) -> Key {
    let (mut outer, mut inner) = (supported_layers(), supported_layers());
    let Announced { fields, fields_2, .. } = announced;
    outer
        .w()
        .ipv4_ihl(if fields_2.outer_ipv4_ihl() { 0xf } else { 0 })
        .l4_type(L4Type::from_number(if fields_2.outer_l4_type() { 3 } else { 0 }))
        .l4_type_ext(L4TypeExt::from_number(if fields_2.outer_l4_type_ext() { 0xf } else { 0 }));
    // That of the inner header has no capability of its own.
    inner
        .w()
        .ttl_hoplimit(if fields.outer_ipv4_ttl() { u8::MAX } else { 0 })
        .ipv4_ihl(if fields_2.inner_ipv4_ihl() { 0xf } else { 0 })
        .l4_type(L4Type::from_number(if fields_2.inner_l4_type() { 3 } else { 0 }))
        .l4_type_ext(L4TypeExt::from_number(if fields_2.inner_l4_type_ext() { 0xf } else { 0 }));
    let mut all = FteMatchParam::ZERO;
    all.w()
        .outer_headers(&outer)
        .inner_headers(&inner)
        .misc_parameters(&supported_misc(announced))
        .misc_parameters_2(&supported_metadata(announced))
        .misc_parameters_3(&supported_misc3(announced))
        .misc_parameters_5(&supported_tunnel_header(fields_2));
    bytes(&all)
}

fn supported_tunnel_header(fields: &FlowTableFieldsSupported2) -> FteMatchSetMisc5 {
    let [first, second] = [fields.tunnel_header_0_1(), fields.tunnel_header_2_3()].map(|has| u32::from(has) * u32::MAX);
    tunnel_header([first, first, second, second])
}

fn supported_misc(announced: &Announced) -> FteMatchSetMisc {
    let Announced { fields, fields_2, .. } = announced;
    let mut misc = FteMatchSetMisc::ZERO;
    // No capability governs flow labels.
    misc.w()
        .outer_second_prio(7)
        .outer_second_cfi(true)
        .outer_second_vid(0xfff)
        .outer_second_cvlan_tag(true)
        .outer_second_svlan_tag(true)
        .inner_second_prio(if fields.inner_second_prio() { 7 } else { 0 })
        .inner_second_cfi(fields.inner_second_cfi())
        .inner_second_vid(if fields.inner_second_vid() { 0xfff } else { 0 })
        .inner_second_cvlan_tag(fields.inner_second_vid())
        .inner_second_svlan_tag(fields.inner_second_vid())
        .vxlan_vni(0xff_ffff)
        .outer_ipv6_flow_label(0xf_ffff)
        .inner_ipv6_flow_label(0xf_ffff)
        .outer_esp_spi(if fields.outer_esp_spi() { u32::MAX } else { 0 })
        .inner_esp_spi(if fields.inner_esp_spi() { u32::MAX } else { 0 })
        .source_sqn(if fields.source_sqn() { 0xff_ffff } else { 0 })
        .bth_opcode(if fields_2.bth_opcode() { u8::MAX } else { 0 })
        .bth_dst_qp(if fields.bth_dst_qp() { 0xff_ffff } else { 0 });
    misc.w()
        .gre_c_present(fields.outer_gre_protocol())
        .gre_k_present(fields.outer_gre_protocol())
        .gre_s_present(fields.outer_gre_protocol())
        .gre_protocol(if fields.outer_gre_protocol() { u16::MAX } else { 0 })
        .gre_key(&gre_key(if fields.outer_gre_key() { u32::MAX } else { 0 }))
        .geneve_vni(if fields.outer_geneve_vni() { 0xff_ffff } else { 0 })
        .geneve_protocol_type(if fields.outer_geneve_protocol_type() { u16::MAX } else { 0 })
        .geneve_opt_len(if fields.outer_geneve_opt_len() { 0x3f } else { 0 })
        .geneve_oam(fields.outer_geneve_oam())
        .geneve_tlv_option_0_exist(fields.geneve_tlv_option_0_exist());
    misc
}

fn supported_metadata(announced: &Announced) -> FteMatchSetMisc2 {
    let Announced { fields, protocols, metadata_a, .. } = announced;
    // What is over GRE or UDP, a flexible parser finds.
    let over = |protocol: u32, bits: u8| if protocols & protocol != 0 { bits } else { 0 };
    let over_gre = over(flex_parser::MPLS_OVER_GRE, fields.outer_first_mpls_over_gre());
    let over_udp = over(flex_parser::MPLS_OVER_UDP, fields.outer_first_mpls_over_udp());
    let mut metadata = FteMatchSetMisc2::ZERO;
    metadata
        .w()
        .outer_first_mpls(&supported_mpls(fields.outer_first_mpls()))
        .inner_first_mpls(&supported_mpls(fields.inner_first_mpls()))
        .outer_first_mpls_over_gre(&supported_mpls(over_gre))
        .outer_first_mpls_over_udp(&supported_mpls(over_udp))
        .metadata_reg_c_0(u32::MAX)
        .metadata_reg_c_1(u32::MAX)
        .metadata_reg_c_2(u32::MAX)
        .metadata_reg_c_3(u32::MAX)
        .metadata_reg_c_4(u32::MAX)
        .metadata_reg_c_5(u32::MAX)
        .metadata_reg_c_6(u32::MAX)
        .metadata_reg_c_7(u32::MAX)
        .metadata_reg_a(u32::MAX.checked_shr(u32::BITS.saturating_sub((*metadata_a).into())).unwrap_or(0));
    metadata
}

/// Of a label stack entry, by the bits of its capability.
fn supported_mpls(bits: u8) -> FteMatchMpls {
    let has = |bit: u8| bits >> bit & 1 != 0;
    let mut mpls = FteMatchMpls::ZERO;
    mpls.w()
        .mpls_label(if has(0) { 0xf_ffff } else { 0 })
        .mpls_exp(if has(1) { 7 } else { 0 })
        .mpls_s_bos(has(2))
        .mpls_ttl(if has(3) { u8::MAX } else { 0 });
    mpls
}

fn supported_misc3(announced: &Announced) -> FteMatchSetMisc3 {
    let Announced { fields, protocols, .. } = announced;
    let byte = |protocol: u32| if protocols & protocol != 0 { u8::MAX } else { 0 };
    let word = |protocol: u32| if protocols & protocol != 0 { u32::MAX } else { 0 };
    let mut misc = FteMatchSetMisc3::ZERO;
    // No capability governs TCP's numbers.
    misc.w()
        .outer_tcp_seq_num(u32::MAX)
        .outer_tcp_ack_num(u32::MAX)
        .inner_tcp_seq_num(u32::MAX)
        .inner_tcp_ack_num(u32::MAX)
        .icmp_type(byte(flex_parser::ICMP))
        .icmp_code(byte(flex_parser::ICMP))
        .icmpv6_type(byte(flex_parser::ICMPV6))
        .icmpv6_code(byte(flex_parser::ICMPV6))
        .icmp_header_data(word(flex_parser::ICMP))
        .icmpv6_header_data(word(flex_parser::ICMPV6))
        .outer_vxlan_gpe_vni(if protocols & flex_parser::VXLAN_GPE != 0 { 0xff_ffff } else { 0 })
        .outer_vxlan_gpe_next_protocol(byte(flex_parser::VXLAN_GPE))
        .outer_vxlan_gpe_flags(byte(flex_parser::VXLAN_GPE))
        .gtpu_teid(word(flex_parser::GTPU))
        .gtpu_msg_type(byte(flex_parser::GTPU))
        .gtpu_msg_flags(byte(flex_parser::GTPU) & payload::GTPU_FLAGS)
        .gtpu_dw_0(word(flex_parser::GTPU_DW_0))
        .gtpu_dw_2(word(flex_parser::GTPU_DW_2))
        .gtpu_first_ext_dw_0(word(flex_parser::GTPU_FIRST_EXT_DW_0));
    if fields.geneve_tlv_option_0_data() {
        misc.w().geneve_tlv_option_0_data(word(flex_parser::GENEVE_OPTION_0));
    }
    misc
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

/// Whether `criteria`, as far as `enabled`, have no bits but those that keys have and the card announces.
pub(crate) fn is_supported(criteria: &FteMatchParam, enabled: u8, announced: &Announced) -> bool {
    enabled & !PARTS == 0 && Mask::of(&bytes(criteria), enabled).is_within(&supported(announced))
}
