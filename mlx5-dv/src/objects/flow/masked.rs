//! Header fields that flow rules match in part: those that are a value in the bits of a mask.

use mlx5_prm::flow::{FteMatchMpls, GreKey};

use super::fields::{Bits, Fields, Header, IPV4, IPV6, TCP, UDP};
use super::matching::FlowMatch;
use super::protocols::{
    ESP, GENEVE_PORT, GRE, GTPU_N_PDU, GTPU_PDU_SESSION, GTPU_PORT, GTPU_SEQUENCE, ROCE_PORT, VXLAN_GPE_PORT,
    gtpu_extension, gtpu_option, icmp, icmpv6, mpls, mpls_over_gre, mpls_over_udp,
};
use crate::objects::tunnel::VXLAN_PORT;

/// For each field: the method for one value of it, which has the documentation, and the method for a value and a mask.
macro_rules! masked {
    ($($whole:ident, $masked:ident, $type:ty, $width:literal bits, $what:literal: |$bits:ident| $fields:expr;)*) => {
        impl FlowMatch {
            $(
                #[doc = concat!("As [`", stringify!($whole), "`](Self::", stringify!($whole), "), for what is")]
                /// `value` in the bits of `mask`.
                pub fn $masked(self, value: $type, mask: $type) -> Self {
                    let (value, mask) = (u32::from(value), u32::from(mask));
                    let $bits = Bits::of(value, mask, $width);
                    self.and_masked($what, value, mask, $width, $fields)
                }
            )*
        }
    };
}

masked! {
    ethertype, ethertype_masked, u16, 16 bits, "EtherType": |bits|
        Fields::none().outer(|set, mask| _ = set.w().ethertype(bits.part(mask) as u16));
    vlan, vlan_masked, u16, 12 bits, "VLAN": |bits|
        Fields::none().outer(|set, mask| _ = set.w().cvlan_tag(true).first_vid(bits.part(mask) as u16));
    service_vlan, service_vlan_masked, u16, 12 bits, "service VLAN": |bits|
        Fields::none().outer(|set, mask| _ = set.w().cvlan_tag(mask).svlan_tag(true).first_vid(bits.part(mask) as u16));
    inner_vlan, inner_vlan_masked, u16, 12 bits, "inner VLAN": |bits|
        Fields::none()
            .misc(|set, mask| _ = set.w().outer_second_cvlan_tag(true).outer_second_vid(bits.part(mask) as u16));
    inner_service_vlan, inner_service_vlan_masked, u16, 12 bits, "inner service VLAN": |bits|
        Fields::none()
            .misc(|set, mask| _ = set.w().outer_second_vid(bits.part(mask) as u16))
            .misc(|set, mask| _ = set.w().outer_second_cvlan_tag(mask).outer_second_svlan_tag(true));
    vlan_priority, vlan_priority_masked, u8, 3 bits, "VLAN priority": |bits|
        Fields::of(Header::VlanTag).outer(|set, mask| _ = set.w().first_prio(bits.part(mask) as u8));
    inner_vlan_priority, inner_vlan_priority_masked, u8, 3 bits, "inner VLAN priority": |bits|
        Fields::none()
            .misc(|set, mask| _ = set.w().outer_second_cvlan_tag(true).outer_second_prio(bits.part(mask) as u8));
    protocol, protocol_masked, u8, 8 bits, "IP protocol": |bits|
        Fields::of(Header::Ip).outer(|set, mask| _ = set.w().ip_protocol(bits.part(mask) as u8));
    dscp, dscp_masked, u8, 6 bits, "DSCP": |bits|
        Fields::of(Header::Ip).outer(|set, mask| _ = set.w().ip_dscp(bits.part(mask) as u8));
    ecn, ecn_masked, u8, 2 bits, "ECN": |bits|
        Fields::of(Header::Ip).outer(|set, mask| _ = set.w().ip_ecn(bits.part(mask) as u8));
    hop_limit, hop_limit_masked, u8, 8 bits, "hop limit": |bits|
        Fields::of(Header::Ip).outer(|set, mask| _ = set.w().ttl_hoplimit(bits.part(mask) as u8));
    ipv4_header_words, ipv4_header_words_masked, u8, 4 bits, "IPv4 header words": |bits|
        Fields::none().ethertype(IPV4).outer(|set, mask| _ = set.w().ipv4_ihl(bits.part(mask) as u8));
    flow_label, flow_label_masked, u32, 20 bits, "IPv6 flow label": |bits|
        Fields::none().ethertype(IPV6).misc(|set, mask| _ = set.w().outer_ipv6_flow_label(bits.part(mask)));
    tcp_source_port, tcp_source_port_masked, u16, 16 bits, "TCP source port": |bits|
        Fields::none().protocol(TCP).outer(|set, mask| _ = set.w().tcp_sport(bits.part(mask) as u16));
    tcp_destination_port, tcp_destination_port_masked, u16, 16 bits, "TCP destination port": |bits|
        Fields::none().protocol(TCP).outer(|set, mask| _ = set.w().tcp_dport(bits.part(mask) as u16));
    udp_source_port, udp_source_port_masked, u16, 16 bits, "UDP source port": |bits|
        Fields::none().protocol(UDP).outer(|set, mask| _ = set.w().udp_sport(bits.part(mask) as u16));
    udp_destination_port, udp_destination_port_masked, u16, 16 bits, "UDP destination port": |bits|
        Fields::none().protocol(UDP).outer(|set, mask| _ = set.w().udp_dport(bits.part(mask) as u16));
    tcp_sequence, tcp_sequence_masked, u32, 32 bits, "TCP sequence number": |bits|
        Fields::none().protocol(TCP).misc3(|set, mask| _ = set.w().outer_tcp_seq_num(bits.part(mask)));
    tcp_acknowledgement, tcp_acknowledgement_masked, u32, 32 bits, "TCP acknowledgement number": |bits|
        Fields::none().protocol(TCP).misc3(|set, mask| _ = set.w().outer_tcp_ack_num(bits.part(mask)));
    icmp_type, icmp_type_masked, u8, 8 bits, "ICMP type": |bits|
        icmp(|set, mask| _ = set.w().icmp_type(bits.part(mask) as u8));
    icmp_code, icmp_code_masked, u8, 8 bits, "ICMP code": |bits|
        icmp(|set, mask| _ = set.w().icmp_code(bits.part(mask) as u8));
    icmpv6_type, icmpv6_type_masked, u8, 8 bits, "ICMPv6 type": |bits|
        icmpv6(|set, mask| _ = set.w().icmpv6_type(bits.part(mask) as u8));
    icmpv6_code, icmpv6_code_masked, u8, 8 bits, "ICMPv6 code": |bits|
        icmpv6(|set, mask| _ = set.w().icmpv6_code(bits.part(mask) as u8));
    esp_spi, esp_spi_masked, u32, 32 bits, "ESP SPI": |bits|
        Fields::none().protocol(ESP).misc(|set, mask| _ = set.w().outer_esp_spi(bits.part(mask)));
    gre, gre_masked, u16, 16 bits, "GRE protocol": |bits|
        Fields::none().protocol(GRE).misc(|set, mask| _ = set.w().gre_protocol(bits.part(mask) as u16));
    gre_key, gre_key_masked, u32, 32 bits, "GRE key": |bits|
        Fields::none()
            .protocol(GRE)
            .misc(|set, mask| _ = set.w().gre_k_present(true).gre_key(&key_of(bits.part(mask))));
    vxlan, vxlan_masked, u32, 24 bits, "VXLAN network": |bits|
        Fields::none().datagram(VXLAN_PORT).misc(|set, mask| _ = set.w().vxlan_vni(bits.part(mask)));
    geneve, geneve_masked, u32, 24 bits, "GENEVE network": |bits|
        Fields::none().datagram(GENEVE_PORT).misc(|set, mask| _ = set.w().geneve_vni(bits.part(mask)));
    geneve_protocol, geneve_protocol_masked, u16, 16 bits, "GENEVE protocol": |bits|
        Fields::none().datagram(GENEVE_PORT).misc(|set, mask| _ = set.w().geneve_protocol_type(bits.part(mask) as u16));
    geneve_option_words, geneve_option_words_masked, u8, 6 bits, "GENEVE option words": |bits|
        Fields::none().datagram(GENEVE_PORT).misc(|set, mask| _ = set.w().geneve_opt_len(bits.part(mask) as u8));
    vxlan_gpe, vxlan_gpe_masked, u32, 24 bits, "VXLAN-GPE network": |bits|
        Fields::none().datagram(VXLAN_GPE_PORT).misc3(|set, mask| _ = set.w().outer_vxlan_gpe_vni(bits.part(mask)));
    vxlan_gpe_next_protocol, vxlan_gpe_next_protocol_masked, u8, 8 bits, "VXLAN-GPE next protocol": |bits|
        Fields::none()
            .datagram(VXLAN_GPE_PORT)
            .misc3(|set, mask| _ = set.w().outer_vxlan_gpe_next_protocol(bits.part(mask) as u8));
    gtpu_teid, gtpu_teid_masked, u32, 32 bits, "GTP-U TEID": |bits|
        Fields::none().datagram(GTPU_PORT).misc3(|set, mask| _ = set.w().gtpu_teid(bits.part(mask)));
    gtpu_message_type, gtpu_message_type_masked, u8, 8 bits, "GTP-U message type": |bits|
        Fields::none().datagram(GTPU_PORT).misc3(|set, mask| _ = set.w().gtpu_msg_type(bits.part(mask) as u8));
    gtpu_length, gtpu_length_masked, u16, 16 bits, "GTP-U length": |bits|
        Fields::none().datagram(GTPU_PORT).misc3(|set, mask| _ = set.w().gtpu_dw_0(bits.part(mask)));
    gtpu_sequence, gtpu_sequence_masked, u16, 16 bits, "GTP-U sequence number": |bits|
        gtpu_option(GTPU_SEQUENCE, bits.value, bits.mask, 16);
    gtpu_n_pdu, gtpu_n_pdu_masked, u8, 8 bits, "GTP-U N-PDU number": |bits|
        gtpu_option(GTPU_N_PDU, bits.value, bits.mask, 8);
    gtpu_pdu_type, gtpu_pdu_type_masked, u8, 4 bits, "GTP-U PDU type": |bits|
        gtpu_extension(GTPU_PDU_SESSION, bits.value << 20, bits.mask << 20);
    gtpu_qfi, gtpu_qfi_masked, u8, 6 bits, "GTP-U QFI": |bits|
        gtpu_extension(GTPU_PDU_SESSION, bits.value << 8, bits.mask << 8);
    bth_destination_qp, bth_destination_qp_masked, u32, 24 bits, "RoCE destination QP": |bits|
        Fields::none().datagram(ROCE_PORT).misc(|set, mask| _ = set.w().bth_dst_qp(bits.part(mask)));
    bth_opcode, bth_opcode_masked, u8, 8 bits, "RoCE opcode": |bits|
        Fields::none().datagram(ROCE_PORT).misc(|set, mask| _ = set.w().bth_opcode(bits.part(mask) as u8));
    mpls_label, mpls_label_masked, u32, 20 bits, "MPLS label": |bits|
        mpls(move |entry: &mut FteMatchMpls, mask| _ = entry.w().mpls_label(bits.part(mask)));
    mpls_traffic_class, mpls_traffic_class_masked, u8, 3 bits, "MPLS traffic class": |bits|
        mpls(move |entry: &mut FteMatchMpls, mask| _ = entry.w().mpls_exp(bits.part(mask) as u8));
    mpls_ttl, mpls_ttl_masked, u8, 8 bits, "MPLS time to live": |bits|
        mpls(move |entry: &mut FteMatchMpls, mask| _ = entry.w().mpls_ttl(bits.part(mask) as u8));
    mpls_over_udp_label, mpls_over_udp_label_masked, u32, 20 bits, "MPLS over UDP label": |bits|
        mpls_over_udp(move |entry: &mut FteMatchMpls, mask| _ = entry.w().mpls_label(bits.part(mask)));
    mpls_over_udp_traffic_class, mpls_over_udp_traffic_class_masked, u8, 3 bits, "MPLS over UDP traffic class": |bits|
        mpls_over_udp(move |entry: &mut FteMatchMpls, mask| _ = entry.w().mpls_exp(bits.part(mask) as u8));
    mpls_over_udp_ttl, mpls_over_udp_ttl_masked, u8, 8 bits, "MPLS over UDP time to live": |bits|
        mpls_over_udp(move |entry: &mut FteMatchMpls, mask| _ = entry.w().mpls_ttl(bits.part(mask) as u8));
    mpls_over_gre_label, mpls_over_gre_label_masked, u32, 20 bits, "MPLS over GRE label": |bits|
        mpls_over_gre(move |entry: &mut FteMatchMpls, mask| _ = entry.w().mpls_label(bits.part(mask)));
    mpls_over_gre_traffic_class, mpls_over_gre_traffic_class_masked, u8, 3 bits, "MPLS over GRE traffic class": |bits|
        mpls_over_gre(move |entry: &mut FteMatchMpls, mask| _ = entry.w().mpls_exp(bits.part(mask) as u8));
    mpls_over_gre_ttl, mpls_over_gre_ttl_masked, u8, 8 bits, "MPLS over GRE time to live": |bits|
        mpls_over_gre(move |entry: &mut FteMatchMpls, mask| _ = entry.w().mpls_ttl(bits.part(mask) as u8));
}

fn key_of(number: u32) -> GreKey {
    let mut key = GreKey::ZERO;
    key.w().key(number);
    key
}
