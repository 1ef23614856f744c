//! Header fields that flow rules match, whole or in part: each is a number of some bits.

use mlx5_prm::flow::{FteMatchMpls, GreKey};

use super::fields::{Bits, Fields, Header, IPV4, IPV6, TCP, UDP};
use super::matching::FlowMatch;
use super::protocols::{
    ESP, GENEVE_PORT, GRE, GTPU_EXTENSION, GTPU_N_PDU, GTPU_PDU_SESSION, GTPU_PORT, GTPU_SEQUENCE, ROCE_PORT,
    VXLAN_GPE_PORT, gtpu_extension, gtpu_option, icmp, icmpv6, mpls, mpls_over_gre, mpls_over_udp,
};

/// What a match with a value is called: the field and the number, or as given.
macro_rules! shown {
    ($what:literal) => {
        concat!($what, " {}")
    };
    ($what:literal, $shown:literal) => {
        $shown
    };
}

/// For each field: the method for one value of it, with its documentation, and the method for a value and a mask.
macro_rules! numbers {
    ($(
        $(#[$doc:meta])*
        fn $whole:ident($type:ty) and fn $masked:ident: $width:literal bits, $what:literal $(as $shown:literal)?:
            |$bits:ident| $fields:expr;
    )*) => {
        $(
            $(#[$doc])*
            pub fn $whole(self, value: $type) -> Self {
                let value = u32::from(value);
                let $bits = Bits::of(value, u32::MAX, $width);
                let name = format_args!(shown!($what $(, $shown)?), value);
                self.and_fitting($what, value, $width, name, $fields)
            }

            #[doc = concat!("As [`", stringify!($whole), "`](Self::", stringify!($whole), "), for what is")]
            /// `value` in the bits of `mask`.
            pub fn $masked(self, value: $type, mask: $type) -> Self {
                let (value, mask) = (u32::from(value), u32::from(mask));
                let $bits = Bits::of(value, mask, $width);
                self.and_masked($what, value, mask, $width, $fields)
            }
        )*
    };
}

impl FlowMatch {
    numbers! {
        /// EtherType, after VLAN tags.
        fn ethertype(u16) and fn ethertype_masked: 16 bits, "EtherType" as "EtherType {:#06x}": |bits|
            Fields::none().outer(|set, mask| _ = set.w().ethertype(bits.part(mask) as u16));
        /// VLAN of the outer tag, a C-VLAN tag (802.1Q), 12 bits.
        fn vlan(u16) and fn vlan_masked: 12 bits, "VLAN": |bits|
            Fields::none().outer(|set, mask| _ = set.w().cvlan_tag(true).first_vid(bits.part(mask) as u16));
        /// VLAN of the outer tag, an S-VLAN tag (802.1ad), 12 bits.
        fn service_vlan(u16) and fn service_vlan_masked: 12 bits, "service VLAN": |bits|
            Fields::none()
                .outer(|set, mask| _ = set.w().cvlan_tag(mask).svlan_tag(true).first_vid(bits.part(mask) as u16));
        /// VLAN of the tag inside the outer one, a C-VLAN tag, 12 bits.
        fn inner_vlan(u16) and fn inner_vlan_masked: 12 bits, "inner VLAN": |bits|
            Fields::none()
                .misc(|set, mask| _ = set.w().outer_second_cvlan_tag(true).outer_second_vid(bits.part(mask) as u16));
        /// VLAN of the tag inside the outer one, an S-VLAN tag, 12 bits.
        fn inner_service_vlan(u16) and fn inner_service_vlan_masked: 12 bits, "inner service VLAN": |bits|
            Fields::none()
                .misc(|set, mask| _ = set.w().outer_second_vid(bits.part(mask) as u16))
                .misc(|set, mask| _ = set.w().outer_second_cvlan_tag(mask).outer_second_svlan_tag(true));
        /// Priority of the outer VLAN tag, 3 bits. Of priority 0 with [`vlan`](Self::vlan) or
        /// [`service_vlan`](Self::service_vlan).
        fn vlan_priority(u8) and fn vlan_priority_masked: 3 bits, "VLAN priority": |bits|
            Fields::of(Header::VlanTag).outer(|set, mask| _ = set.w().first_prio(bits.part(mask) as u8));
        /// Priority of the tag inside the outer one, a C-VLAN tag, 3 bits.
        fn inner_vlan_priority(u8) and fn inner_vlan_priority_masked: 3 bits, "inner VLAN priority": |bits|
            Fields::none()
                .misc(|set, mask| _ = set.w().outer_second_cvlan_tag(true).outer_second_prio(bits.part(mask) as u8));
        /// IP protocol, after extension headers. Protocol 0 with [`ipv4`](Self::ipv4) or [`ipv6`](Self::ipv6), as the
        /// other fields of IP of either version.
        fn protocol(u8) and fn protocol_masked: 8 bits, "IP protocol": |bits|
            Fields::of(Header::Ip).outer(|set, mask| _ = set.w().ip_protocol(bits.part(mask) as u8));
        /// Differentiated services code point, 6 bits.
        fn dscp(u8) and fn dscp_masked: 6 bits, "DSCP": |bits|
            Fields::of(Header::Ip).outer(|set, mask| _ = set.w().ip_dscp(bits.part(mask) as u8));
        /// Explicit congestion notification, 2 bits.
        fn ecn(u8) and fn ecn_masked: 2 bits, "ECN": |bits|
            Fields::of(Header::Ip).outer(|set, mask| _ = set.w().ip_ecn(bits.part(mask) as u8));
        /// Time to live of IPv4, or hop limit of IPv6.
        fn hop_limit(u8) and fn hop_limit_masked: 8 bits, "hop limit": |bits|
            Fields::of(Header::Ip).outer(|set, mask| _ = set.w().ttl_hoplimit(bits.part(mask) as u8));
        /// Length of IPv4's header with options, in words of four bytes: 5 without options. 4 bits. In tables of
        /// received frames alone.
        fn ipv4_header_words(u8) and fn ipv4_header_words_masked: 4 bits, "IPv4 header words": |bits|
            Fields::none().ethertype(IPV4).outer(|set, mask| _ = set.w().ipv4_ihl(bits.part(mask) as u8));
        /// Flow label of IPv6, 20 bits.
        fn flow_label(u32) and fn flow_label_masked: 20 bits, "IPv6 flow label": |bits|
            Fields::none().ethertype(IPV6).misc(|set, mask| _ = set.w().outer_ipv6_flow_label(bits.part(mask)));
        /// Source port of TCP.
        fn tcp_source_port(u16) and fn tcp_source_port_masked: 16 bits, "TCP source port": |bits|
            Fields::none().protocol(TCP).outer(|set, mask| _ = set.w().tcp_sport(bits.part(mask) as u16));
        /// Destination port of TCP.
        fn tcp_destination_port(u16) and fn tcp_destination_port_masked: 16 bits, "TCP destination port": |bits|
            Fields::none().protocol(TCP).outer(|set, mask| _ = set.w().tcp_dport(bits.part(mask) as u16));
        /// Source port of UDP.
        fn udp_source_port(u16) and fn udp_source_port_masked: 16 bits, "UDP source port": |bits|
            Fields::none().protocol(UDP).outer(|set, mask| _ = set.w().udp_sport(bits.part(mask) as u16));
        /// Destination port of UDP.
        fn udp_destination_port(u16) and fn udp_destination_port_masked: 16 bits, "UDP destination port": |bits|
            Fields::none().protocol(UDP).outer(|set, mask| _ = set.w().udp_dport(bits.part(mask) as u16));
        /// Sequence number of TCP.
        fn tcp_sequence(u32) and fn tcp_sequence_masked: 32 bits, "TCP sequence number": |bits|
            Fields::none().protocol(TCP).misc3(|set, mask| _ = set.w().outer_tcp_seq_num(bits.part(mask)));
        /// Acknowledgement number of TCP.
        fn tcp_acknowledgement(u32) and fn tcp_acknowledgement_masked: 32 bits, "TCP acknowledgement number": |bits|
            Fields::none().protocol(TCP).misc3(|set, mask| _ = set.w().outer_tcp_ack_num(bits.part(mask)));
        /// Type of ICMP, of IPv4. Type 0 (echo reply) with [`fragments(false)`](Self::fragments), as the other fields
        /// of ICMP where all that are matched are 0.
        fn icmp_type(u8) and fn icmp_type_masked: 8 bits, "ICMP type": |bits|
            icmp(|set, mask| _ = set.w().icmp_type(bits.part(mask) as u8));
        /// Code of ICMP, of IPv4.
        fn icmp_code(u8) and fn icmp_code_masked: 8 bits, "ICMP code": |bits|
            icmp(|set, mask| _ = set.w().icmp_code(bits.part(mask) as u8));
        /// Type of ICMPv6.
        fn icmpv6_type(u8) and fn icmpv6_type_masked: 8 bits, "ICMPv6 type": |bits|
            icmpv6(|set, mask| _ = set.w().icmpv6_type(bits.part(mask) as u8));
        /// Code of ICMPv6. Code 0 with a type, or with [`fragments(false)`](Self::fragments).
        fn icmpv6_code(u8) and fn icmpv6_code_masked: 8 bits, "ICMPv6 code": |bits|
            icmpv6(|set, mask| _ = set.w().icmpv6_code(bits.part(mask) as u8));
        /// Security parameters index of ESP.
        fn esp_spi(u32) and fn esp_spi_masked: 32 bits, "ESP SPI" as "ESP SPI {:#x}": |bits|
            Fields::none().protocol(ESP).misc(|set, mask| _ = set.w().outer_esp_spi(bits.part(mask)));
        /// GRE with payload of EtherType `protocol`: 0x6558 for frames.
        fn gre(u16) and fn gre_masked: 16 bits, "GRE protocol" as "GRE of {:#06x}": |bits|
            Fields::none().protocol(GRE).misc(|set, mask| _ = set.w().gre_protocol(bits.part(mask) as u16));
        /// GRE with this key.
        fn gre_key(u32) and fn gre_key_masked: 32 bits, "GRE key" as "GRE key {:#x}": |bits|
            Fields::none()
                .protocol(GRE)
                .misc(|set, mask| _ = set.w().gre_k_present(true).gre_key(&key_of(bits.part(mask))));
        /// Frames in GENEVE of network `vni`, 24 bits. What is in them: [`inner`](Self::inner).
        fn geneve(u32) and fn geneve_masked: 24 bits, "GENEVE network": |bits|
            Fields::none().datagram(GENEVE_PORT).misc(|set, mask| _ = set.w().geneve_vni(bits.part(mask)));
        /// GENEVE with payload of EtherType `protocol`: 0x6558 for frames.
        fn geneve_protocol(u16) and fn geneve_protocol_masked: 16 bits, "GENEVE protocol" as "GENEVE of {:#06x}": |bits|
            Fields::none()
                .datagram(GENEVE_PORT)
                .misc(|set, mask| _ = set.w().geneve_protocol_type(bits.part(mask) as u16));
        /// Length of GENEVE's options in words of four bytes, 6 bits.
        fn geneve_option_words(u8) and fn geneve_option_words_masked: 6 bits, "GENEVE option words": |bits|
            Fields::none().datagram(GENEVE_PORT).misc(|set, mask| _ = set.w().geneve_opt_len(bits.part(mask) as u8));
        /// VXLAN-GPE of network `vni`, 24 bits.
        fn vxlan_gpe(u32) and fn vxlan_gpe_masked: 24 bits, "VXLAN-GPE network": |bits|
            Fields::none().datagram(VXLAN_GPE_PORT).misc3(|set, mask| _ = set.w().outer_vxlan_gpe_vni(bits.part(mask)));
        /// Next protocol of VXLAN-GPE: 1 for IPv4, 2 for IPv6, 3 for frames.
        fn vxlan_gpe_next_protocol(u8) and fn vxlan_gpe_next_protocol_masked: 8 bits,
            "VXLAN-GPE next protocol" as "VXLAN-GPE of {}": |bits|
            Fields::none()
                .datagram(VXLAN_GPE_PORT)
                .misc3(|set, mask| _ = set.w().outer_vxlan_gpe_next_protocol(bits.part(mask) as u8));
        /// Tunnel endpoint identifier of GTP-U.
        fn gtpu_teid(u32) and fn gtpu_teid_masked: 32 bits, "GTP-U TEID" as "GTP-U TEID {:#x}": |bits|
            Fields::none().datagram(GTPU_PORT).misc3(|set, mask| _ = set.w().gtpu_teid(bits.part(mask)));
        /// Message type of GTP-U: 255 for packets of users.
        fn gtpu_message_type(u8) and fn gtpu_message_type_masked: 8 bits, "GTP-U message type": |bits|
            Fields::none().datagram(GTPU_PORT).misc3(|set, mask| _ = set.w().gtpu_msg_type(bits.part(mask) as u8));
        /// Length of GTP-U's message behind the first eight bytes of its header.
        fn gtpu_length(u16) and fn gtpu_length_masked: 16 bits, "GTP-U length": |bits|
            Fields::none().datagram(GTPU_PORT).misc3(|set, mask| _ = set.w().gtpu_dw_0(bits.part(mask)));
        /// GTP-U with this sequence number.
        fn gtpu_sequence(u16) and fn gtpu_sequence_masked: 16 bits, "GTP-U sequence number": |bits|
            gtpu_option(GTPU_SEQUENCE, bits.value, bits.mask, 16);
        /// GTP-U with this N-PDU number.
        fn gtpu_n_pdu(u8) and fn gtpu_n_pdu_masked: 8 bits, "GTP-U N-PDU number": |bits|
            gtpu_option(GTPU_N_PDU, bits.value, bits.mask, 8);
        /// Type of GTP-U's first extension header, as of [`gtpu_extension`](Self::gtpu_extension): 0x85 for that of a
        /// PDU session.
        fn gtpu_extension_type(u8) and fn gtpu_extension_type_masked: 8 bits,
            "GTP-U extension header type" as "GTP-U extension header {:#x}": |bits|
            gtpu_option(GTPU_EXTENSION, bits.value, bits.mask, 0);
        /// Type of the PDU session's information (3GPP TS 38.415) in a GTP-U packet, 4 bits: 0 downlink, 1 uplink.
        fn gtpu_pdu_type(u8) and fn gtpu_pdu_type_masked: 4 bits, "GTP-U PDU type": |bits|
            gtpu_extension(GTPU_PDU_SESSION, bits.value << 20, bits.mask << 20);
        /// QoS flow identifier of the PDU session (3GPP TS 38.415) that a GTP-U packet is of, 6 bits.
        fn gtpu_qfi(u8) and fn gtpu_qfi_masked: 6 bits, "GTP-U QFI": |bits|
            gtpu_extension(GTPU_PDU_SESSION, bits.value << 8, bits.mask << 8);
        /// Destination queue pair of RoCE packets, 24 bits. For frames that are sent: those that are received go to the
        /// card's own RoCE, and reach no table of this driver.
        fn bth_destination_qp(u32) and fn bth_destination_qp_masked: 24 bits, "RoCE destination QP": |bits|
            Fields::none().datagram(ROCE_PORT).misc(|set, mask| _ = set.w().bth_dst_qp(bits.part(mask)));
        /// Opcode of RoCE packets, with the transport in its upper 3 bits: 0x81 for congestion notification packets
        /// (CNP). For frames that are sent, as [`bth_destination_qp`](Self::bth_destination_qp).
        fn bth_opcode(u8) and fn bth_opcode_masked: 8 bits, "RoCE opcode" as "RoCE opcode {:#04x}": |bits|
            Fields::none().datagram(ROCE_PORT).misc(|set, mask| _ = set.w().bth_opcode(bits.part(mask) as u8));
        /// Label of the outer MPLS header, 20 bits.
        fn mpls_label(u32) and fn mpls_label_masked: 20 bits, "MPLS label": |bits|
            mpls(move |entry: &mut FteMatchMpls, mask| _ = entry.w().mpls_label(bits.part(mask)));
        /// Traffic class (once EXP) of the outer MPLS header, 3 bits.
        fn mpls_traffic_class(u8) and fn mpls_traffic_class_masked: 3 bits, "MPLS traffic class": |bits|
            mpls(move |entry: &mut FteMatchMpls, mask| _ = entry.w().mpls_exp(bits.part(mask) as u8));
        /// Time to live of the outer MPLS header.
        fn mpls_ttl(u8) and fn mpls_ttl_masked: 8 bits, "MPLS time to live": |bits|
            mpls(move |entry: &mut FteMatchMpls, mask| _ = entry.w().mpls_ttl(bits.part(mask) as u8));
        /// Label of the first MPLS header over UDP (RFC 7510, port 6635), 20 bits.
        fn mpls_over_udp_label(u32) and fn mpls_over_udp_label_masked: 20 bits, "MPLS over UDP label": |bits|
            mpls_over_udp(move |entry: &mut FteMatchMpls, mask| _ = entry.w().mpls_label(bits.part(mask)));
        /// Traffic class of the first MPLS header over UDP, 3 bits.
        fn mpls_over_udp_traffic_class(u8) and fn mpls_over_udp_traffic_class_masked: 3 bits,
            "MPLS over UDP traffic class": |bits|
            mpls_over_udp(move |entry: &mut FteMatchMpls, mask| _ = entry.w().mpls_exp(bits.part(mask) as u8));
        /// Time to live of the first MPLS header over UDP.
        fn mpls_over_udp_ttl(u8) and fn mpls_over_udp_ttl_masked: 8 bits, "MPLS over UDP time to live": |bits|
            mpls_over_udp(move |entry: &mut FteMatchMpls, mask| _ = entry.w().mpls_ttl(bits.part(mask) as u8));
        /// Label of the first MPLS header over GRE (RFC 4023), 20 bits, whatever fields GRE has.
        fn mpls_over_gre_label(u32) and fn mpls_over_gre_label_masked: 20 bits, "MPLS over GRE label": |bits|
            mpls_over_gre(move |entry: &mut FteMatchMpls, mask| _ = entry.w().mpls_label(bits.part(mask)));
        /// Traffic class of the first MPLS header over GRE, 3 bits.
        fn mpls_over_gre_traffic_class(u8) and fn mpls_over_gre_traffic_class_masked: 3 bits,
            "MPLS over GRE traffic class": |bits|
            mpls_over_gre(move |entry: &mut FteMatchMpls, mask| _ = entry.w().mpls_exp(bits.part(mask) as u8));
        /// Time to live of the first MPLS header over GRE.
        fn mpls_over_gre_ttl(u8) and fn mpls_over_gre_ttl_masked: 8 bits, "MPLS over GRE time to live": |bits|
            mpls_over_gre(move |entry: &mut FteMatchMpls, mask| _ = entry.w().mpls_ttl(bits.part(mask) as u8));
    }
}

fn key_of(number: u32) -> GreKey {
    let mut key = GreKey::ZERO;
    key.w().key(number);
    key
}
