//! Header fields of further protocols that flow rules match: GRE, GENEVE, MPLS, ICMP and others.

use std::sync::Arc;

use mlx5_prm::flow::{FteMatchMpls, FteMatchSetMisc3, GreKey};

use super::fields::{Fields, Header, IPV4, IPV6, TCP};
use super::geneve::GeneveOption;
use super::matching::FlowMatch;
use crate::error::Invalid;

/// EtherType, and protocol type in GRE.
const MPLS: u16 = 0x8847;
/// IP protocols.
const ICMP: u8 = 1;
pub(super) const GRE: u8 = 47;
pub(super) const ESP: u8 = 50;
const ICMPV6: u8 = 58;
/// UDP's destination ports.
pub(super) const GTPU_PORT: u16 = 2152;
pub(super) const VXLAN_GPE_PORT: u16 = 4790;
pub(super) const ROCE_PORT: u16 = 4791;
pub(super) const GENEVE_PORT: u16 = 6081;
const MPLS_PORT: u16 = 6635;
/// Flags of GTP-U: an extension header, a sequence number, an N-PDU number.
const GTPU_EXTENSION: u8 = 4;
pub(super) const GTPU_SEQUENCE: u8 = 2;
pub(super) const GTPU_N_PDU: u8 = 1;
/// GTP-U's extension header with information of a PDU session. 3GPP TS 29.281, DPDK's mlx5_flow_dv.c.
pub(super) const GTPU_PDU_SESSION: u8 = 0x85;

impl FlowMatch {
    /// Length of IPv4's header with options, in words of four bytes: 5 without options. 4 bits. In tables of received
    /// frames alone.
    pub fn ipv4_header_words(self, words: u8) -> Self {
        let fields = Fields::none().outer(|set, mask| _ = set.w().ipv4_ihl(if mask { 0xf } else { words & 0xf }));
        self.and_within("IPv4 header words", words.into(), 4, fields.ethertype(IPV4))
    }

    /// Flow label of IPv6, 20 bits.
    pub fn flow_label(self, label: u32) -> Self {
        let fields = Fields::none()
            .misc(|set, mask| _ = set.w().outer_ipv6_flow_label(if mask { 0xf_ffff } else { label & 0xf_ffff }));
        self.and_within("IPv6 flow label", label, 20, fields.ethertype(IPV6))
    }

    /// Sequence number of TCP.
    pub fn tcp_sequence(self, number: u32) -> Self {
        let fields =
            Fields::none().misc3(|set, mask| _ = set.w().outer_tcp_seq_num(if mask { u32::MAX } else { number }));
        self.and(format_args!("TCP sequence number {number}"), fields.protocol(TCP))
    }

    /// Acknowledgement number of TCP.
    pub fn tcp_acknowledgement(self, number: u32) -> Self {
        let fields =
            Fields::none().misc3(|set, mask| _ = set.w().outer_tcp_ack_num(if mask { u32::MAX } else { number }));
        self.and(format_args!("TCP acknowledgement number {number}"), fields.protocol(TCP))
    }

    /// Type of ICMP, of IPv4. Type 0 (echo reply) with [`fragments(false)`](Self::fragments), as the other fields of
    /// ICMP where all that are matched are 0.
    pub fn icmp_type(self, kind: u8) -> Self {
        let fields = icmp(|set, mask| _ = set.w().icmp_type(if mask { u8::MAX } else { kind }));
        self.and(format_args!("ICMP type {kind}"), fields)
    }

    /// Code of ICMP, of IPv4.
    pub fn icmp_code(self, code: u8) -> Self {
        let fields = icmp(|set, mask| _ = set.w().icmp_code(if mask { u8::MAX } else { code }));
        self.and(format_args!("ICMP code {code}"), fields)
    }

    /// The word of ICMP, of IPv4, that follows its checksum: those bits of `mask` are as in `data`. Of an echo it is
    /// the identifier in its upper 16 bits, and the sequence number.
    pub fn icmp_header_data(self, data: u32, mask: u32) -> Self {
        let fields = icmp(|set, is_mask| _ = set.w().icmp_header_data(if is_mask { mask } else { data & mask }));
        self.and(format_args!("ICMP header data {data:#x} of {mask:#x}"), fields)
    }

    /// Type of ICMPv6.
    pub fn icmpv6_type(self, kind: u8) -> Self {
        let fields = icmpv6(|set, mask| _ = set.w().icmpv6_type(if mask { u8::MAX } else { kind }));
        self.and(format_args!("ICMPv6 type {kind}"), fields)
    }

    /// Code of ICMPv6. Code 0 with a type, or with [`fragments(false)`](Self::fragments).
    pub fn icmpv6_code(self, code: u8) -> Self {
        let fields = icmpv6(|set, mask| _ = set.w().icmpv6_code(if mask { u8::MAX } else { code }));
        self.and(format_args!("ICMPv6 code {code}"), fields)
    }

    /// As [`icmp_header_data`](Self::icmp_header_data), of ICMPv6.
    pub fn icmpv6_header_data(self, data: u32, mask: u32) -> Self {
        let fields = icmpv6(|set, is_mask| _ = set.w().icmpv6_header_data(if is_mask { mask } else { data & mask }));
        self.and(format_args!("ICMPv6 header data {data:#x} of {mask:#x}"), fields)
    }

    /// Security parameters index of ESP.
    pub fn esp_spi(self, spi: u32) -> Self {
        let fields = Fields::none().misc(|set, mask| _ = set.w().outer_esp_spi(if mask { u32::MAX } else { spi }));
        self.and(format_args!("ESP SPI {spi:#x}"), fields.protocol(ESP))
    }

    /// GRE with payload of EtherType `protocol`: 0x6558 for frames.
    pub fn gre(self, protocol: u16) -> Self {
        let fields = Fields::none().misc(|set, mask| _ = set.w().gre_protocol(if mask { u16::MAX } else { protocol }));
        self.and(format_args!("GRE of {protocol:#06x}"), fields.protocol(GRE))
    }

    /// GRE with this key.
    pub fn gre_key(self, key: u32) -> Self {
        let fields = Fields::none().misc(|set, mask| {
            let mut bits = GreKey::ZERO;
            bits.w().key(if mask { u32::MAX } else { key });
            set.w().gre_k_present(true).gre_key(&bits);
        });
        self.and(format_args!("GRE key {key:#x}"), fields.protocol(GRE))
    }

    /// GRE with a key, whatever it is, or without one.
    pub fn gre_has_key(self, wanted: bool) -> Self {
        let fields = Fields::none().misc(|set, mask| _ = set.w().gre_k_present(mask || wanted));
        self.and(if wanted { "GRE with a key" } else { "GRE without a key" }, fields.protocol(GRE))
    }

    /// GRE with a checksum, or without one.
    pub fn gre_has_checksum(self, wanted: bool) -> Self {
        let fields = Fields::none().misc(|set, mask| _ = set.w().gre_c_present(mask || wanted));
        self.and(if wanted { "GRE with a checksum" } else { "GRE without a checksum" }, fields.protocol(GRE))
    }

    /// GRE with a sequence number, or without one.
    pub fn gre_has_sequence(self, wanted: bool) -> Self {
        let fields = Fields::none().misc(|set, mask| _ = set.w().gre_s_present(mask || wanted));
        let name = if wanted { "GRE with a sequence number" } else { "GRE without a sequence number" };
        self.and(name, fields.protocol(GRE))
    }

    /// Frames in GENEVE of network `vni`, 24 bits. What is in them: [`inner`](Self::inner).
    pub fn geneve(self, vni: u32) -> Self {
        let fields =
            Fields::none().misc(|set, mask| _ = set.w().geneve_vni(if mask { 0xff_ffff } else { vni & 0xff_ffff }));
        self.and_within("GENEVE network", vni, 24, fields.datagram(GENEVE_PORT))
    }

    /// GENEVE with payload of EtherType `protocol`: 0x6558 for frames.
    pub fn geneve_protocol(self, protocol: u16) -> Self {
        let fields =
            Fields::none().misc(|set, mask| _ = set.w().geneve_protocol_type(if mask { u16::MAX } else { protocol }));
        self.and(format_args!("GENEVE of {protocol:#06x}"), fields.datagram(GENEVE_PORT))
    }

    /// Length of GENEVE's options in words of four bytes, 6 bits.
    pub fn geneve_option_words(self, words: u8) -> Self {
        let fields =
            Fields::none().misc(|set, mask| _ = set.w().geneve_opt_len(if mask { 0x3f } else { words & 0x3f }));
        self.and_within("GENEVE option words", words.into(), 6, fields.datagram(GENEVE_PORT))
    }

    /// GENEVE's control packets (bit O, once OAM), or all that is none.
    pub fn geneve_oam(self, wanted: bool) -> Self {
        let fields = Fields::none().misc(|set, mask| _ = set.w().geneve_oam(mask || wanted));
        self.and(format_args!("GENEVE OAM {}", u8::from(wanted)), fields.datagram(GENEVE_PORT))
    }

    /// GENEVE with this option, or without it.
    pub fn geneve_has_option(self, option: &Arc<GeneveOption>, wanted: bool) -> Self {
        let fields = Fields::none().misc(|set, mask| _ = set.w().geneve_tlv_option_0_exist(mask || wanted));
        let name = format!("GENEVE {} option {}", if wanted { "with" } else { "without" }, name_of(option));
        self.and_of_option(option, name, fields.datagram(GENEVE_PORT))
    }

    /// The first word of the data of this option of GENEVE: those bits of `mask` are as in `data`. Where all of these
    /// are 0, with [`geneve_has_option`](Self::geneve_has_option).
    pub fn geneve_option_data(self, option: &Arc<GeneveOption>, data: u32, mask: u32) -> Self {
        let fields = Fields::of(Header::GeneveOption)
            .misc3(|set, is_mask| _ = set.w().geneve_tlv_option_0_data(if is_mask { mask } else { data & mask }));
        let name = format!("data {data:#x} of {mask:#x} in GENEVE option {}", name_of(option));
        self.and_of_option(option, name, fields.datagram(GENEVE_PORT))
    }

    /// VXLAN-GPE of network `vni`, 24 bits.
    pub fn vxlan_gpe(self, vni: u32) -> Self {
        let fields = Fields::none()
            .misc3(|set, mask| _ = set.w().outer_vxlan_gpe_vni(if mask { 0xff_ffff } else { vni & 0xff_ffff }));
        self.and_within("VXLAN-GPE network", vni, 24, fields.datagram(VXLAN_GPE_PORT))
    }

    /// Next protocol of VXLAN-GPE: 1 for IPv4, 2 for IPv6, 3 for frames.
    pub fn vxlan_gpe_next_protocol(self, protocol: u8) -> Self {
        let fields = Fields::none()
            .misc3(|set, mask| _ = set.w().outer_vxlan_gpe_next_protocol(if mask { u8::MAX } else { protocol }));
        self.and(format_args!("VXLAN-GPE of {protocol}"), fields.datagram(VXLAN_GPE_PORT))
    }

    /// First byte of VXLAN-GPE, its version and flags: those bits of `mask` are as in `flags`. 0x08 is set where the
    /// network is valid, 0x04 where the next protocol is, 0x01 in control packets (OAM).
    pub fn vxlan_gpe_flags(self, flags: u8, mask: u8) -> Self {
        let fields = Fields::none()
            .misc3(|set, is_mask| _ = set.w().outer_vxlan_gpe_flags(if is_mask { mask } else { flags & mask }));
        self.and(format_args!("VXLAN-GPE flags {flags:#x} of {mask:#x}"), fields.datagram(VXLAN_GPE_PORT))
    }

    /// Tunnel endpoint identifier of GTP-U.
    pub fn gtpu_teid(self, teid: u32) -> Self {
        let fields = Fields::none().misc3(|set, mask| _ = set.w().gtpu_teid(if mask { u32::MAX } else { teid }));
        self.and(format_args!("GTP-U TEID {teid:#x}"), fields.datagram(GTPU_PORT))
    }

    /// Message type of GTP-U: 255 for packets of users.
    pub fn gtpu_message_type(self, kind: u8) -> Self {
        let fields = Fields::none().misc3(|set, mask| _ = set.w().gtpu_msg_type(if mask { u8::MAX } else { kind }));
        self.and(format_args!("GTP-U message type {kind}"), fields.datagram(GTPU_PORT))
    }

    /// Length of GTP-U's message behind the first eight bytes of its header.
    pub fn gtpu_length(self, length: u16) -> Self {
        let bits = |is_mask| if is_mask { u16::MAX } else { length };
        let fields = Fields::none().misc3(|set, mask| _ = set.w().gtpu_dw_0(bits(mask).into()));
        self.and(format_args!("GTP-U length {length}"), fields.datagram(GTPU_PORT))
    }

    /// GTP-U whose header may be followed by extension headers (flag E), or not.
    pub fn gtpu_has_extension(self, wanted: bool) -> Self {
        let name = if wanted { "GTP-U with extension headers" } else { "GTP-U without extension headers" };
        self.and(name, gtpu_flag(GTPU_EXTENSION, wanted))
    }

    /// GTP-U with a sequence number (flag S), or without one.
    pub fn gtpu_has_sequence(self, wanted: bool) -> Self {
        let name = if wanted { "GTP-U with a sequence number" } else { "GTP-U without a sequence number" };
        self.and(name, gtpu_flag(GTPU_SEQUENCE, wanted))
    }

    /// GTP-U with an N-PDU number (flag PN), or without one.
    pub fn gtpu_has_n_pdu(self, wanted: bool) -> Self {
        let name = if wanted { "GTP-U with an N-PDU number" } else { "GTP-U without an N-PDU number" };
        self.and(name, gtpu_flag(GTPU_N_PDU, wanted))
    }

    /// GTP-U with this sequence number.
    pub fn gtpu_sequence(self, number: u16) -> Self {
        let fields = gtpu_option(GTPU_SEQUENCE, number.into(), u16::MAX.into(), 16);
        self.and(format_args!("GTP-U sequence number {number}"), fields)
    }

    /// GTP-U with this N-PDU number.
    pub fn gtpu_n_pdu(self, number: u8) -> Self {
        let fields = gtpu_option(GTPU_N_PDU, number.into(), u8::MAX.into(), 8);
        self.and(format_args!("GTP-U N-PDU number {number}"), fields)
    }

    /// GTP-U whose first extension header is of this type, with the first word of that: its bits of `mask` are as in
    /// `word`. The upper byte is the extension header's length in words.
    pub fn gtpu_extension(self, kind: u8, word: u32, mask: u32) -> Self {
        if kind == 0 {
            // Which says that there is none.
            return self.wrong(Invalid::out_of_range("extension header type", 0, 1..=255, "GTP-U"));
        }
        let name = format!("GTP-U extension header {kind:#x} with {word:#x} of {mask:#x}");
        self.and(name, gtpu_extension(kind, word, mask))
    }

    /// Type of the PDU session's information (3GPP TS 38.415) in a GTP-U packet, 4 bits: 0 downlink, 1 uplink.
    pub fn gtpu_pdu_type(self, kind: u8) -> Self {
        let fields = gtpu_extension(GTPU_PDU_SESSION, u32::from(kind & 0xf) << 20, 0xf << 20);
        self.and_within("GTP-U PDU type", kind.into(), 4, fields)
    }

    /// QoS flow identifier of the PDU session (3GPP TS 38.415) that a GTP-U packet is of, 6 bits.
    pub fn gtpu_qfi(self, flow: u8) -> Self {
        let fields = gtpu_extension(GTPU_PDU_SESSION, u32::from(flow & 0x3f) << 8, 0x3f << 8);
        self.and_within("GTP-U QFI", flow.into(), 6, fields)
    }

    /// Destination queue pair of RoCE packets, 24 bits. For frames that are sent: those that are received go to the
    /// card's own RoCE, and reach no table of this driver.
    pub fn bth_destination_qp(self, qpn: u32) -> Self {
        let fields =
            Fields::none().misc(|set, mask| _ = set.w().bth_dst_qp(if mask { 0xff_ffff } else { qpn & 0xff_ffff }));
        self.and_within("RoCE destination QP", qpn, 24, fields.datagram(ROCE_PORT))
    }

    /// Opcode of RoCE packets, with the transport in its upper 3 bits: 0x81 for congestion notification packets (CNP).
    /// For frames that are sent, as [`bth_destination_qp`](Self::bth_destination_qp).
    pub fn bth_opcode(self, opcode: u8) -> Self {
        let fields = Fields::none().misc(|set, mask| _ = set.w().bth_opcode(if mask { u8::MAX } else { opcode }));
        self.and(format_args!("RoCE opcode {opcode:#04x}"), fields.datagram(ROCE_PORT))
    }

    /// Label of the outer MPLS header, 20 bits.
    pub fn mpls_label(self, label: u32) -> Self {
        self.and_within("MPLS label", label, 20, mpls(label_of(label)))
    }

    /// Traffic class (once EXP) of the outer MPLS header, 3 bits.
    pub fn mpls_traffic_class(self, class: u8) -> Self {
        self.and_within("MPLS traffic class", class.into(), 3, mpls(class_of(class)))
    }

    /// Whether the outer MPLS header is the last.
    pub fn mpls_bottom_of_stack(self, wanted: bool) -> Self {
        self.and(format_args!("MPLS bottom of stack {}", u8::from(wanted)), mpls(bottom_of(wanted)))
    }

    /// Time to live of the outer MPLS header.
    pub fn mpls_ttl(self, ttl: u8) -> Self {
        self.and(format_args!("MPLS time to live {ttl}"), mpls(ttl_of(ttl)))
    }

    /// Label of the first MPLS header over UDP (RFC 7510, port 6635), 20 bits.
    pub fn mpls_over_udp_label(self, label: u32) -> Self {
        self.and_within("MPLS over UDP label", label, 20, mpls_over_udp(label_of(label)))
    }

    /// Traffic class of the first MPLS header over UDP, 3 bits.
    pub fn mpls_over_udp_traffic_class(self, class: u8) -> Self {
        self.and_within("MPLS over UDP traffic class", class.into(), 3, mpls_over_udp(class_of(class)))
    }

    /// Whether the first MPLS header over UDP is the last.
    pub fn mpls_over_udp_bottom_of_stack(self, wanted: bool) -> Self {
        self.and(format_args!("MPLS over UDP bottom of stack {}", u8::from(wanted)), mpls_over_udp(bottom_of(wanted)))
    }

    /// Time to live of the first MPLS header over UDP.
    pub fn mpls_over_udp_ttl(self, ttl: u8) -> Self {
        self.and(format_args!("MPLS over UDP time to live {ttl}"), mpls_over_udp(ttl_of(ttl)))
    }

    /// Label of the first MPLS header over GRE (RFC 4023), 20 bits, whatever fields GRE has.
    pub fn mpls_over_gre_label(self, label: u32) -> Self {
        self.and_within("MPLS over GRE label", label, 20, mpls_over_gre(label_of(label)))
    }

    /// Traffic class of the first MPLS header over GRE, 3 bits.
    pub fn mpls_over_gre_traffic_class(self, class: u8) -> Self {
        self.and_within("MPLS over GRE traffic class", class.into(), 3, mpls_over_gre(class_of(class)))
    }

    /// Whether the first MPLS header over GRE is the last.
    pub fn mpls_over_gre_bottom_of_stack(self, wanted: bool) -> Self {
        self.and(format_args!("MPLS over GRE bottom of stack {}", u8::from(wanted)), mpls_over_gre(bottom_of(wanted)))
    }

    /// Time to live of the first MPLS header over GRE.
    pub fn mpls_over_gre_ttl(self, ttl: u8) -> Self {
        self.and(format_args!("MPLS over GRE time to live {ttl}"), mpls_over_gre(ttl_of(ttl)))
    }
}

/// Class and type.
fn name_of(option: &GeneveOption) -> String {
    format!("{:#06x}/{:#04x}", option.class(), option.kind())
}

/// A flag of GTP-U.
fn gtpu_flag(flag: u8, wanted: bool) -> Fields {
    let fields = Fields::none().misc3(|set, mask| _ = set.w().gtpu_msg_flags(if mask || wanted { flag } else { 0 }));
    fields.datagram(GTPU_PORT)
}

/// A part of GTP-U's third word, with the flag that says that it is valid.
pub(super) fn gtpu_option(flag: u8, value: u32, mask: u32, shift: u32) -> Fields {
    gtpu_flag(flag, true).misc3(|set, is_mask| _ = set.w().gtpu_dw_2(if is_mask { mask } else { value } << shift))
}

/// The first word of the first extension header, which is of this type.
pub(super) fn gtpu_extension(kind: u8, word: u32, mask: u32) -> Fields {
    gtpu_option(GTPU_EXTENSION, kind.into(), u8::MAX.into(), 0)
        .misc3(|set, is_mask| _ = set.w().gtpu_first_ext_dw_0(if is_mask { mask } else { word & mask }))
}

/// Fields of ICMP, of IPv4.
pub(super) fn icmp(fill: impl Fn(&mut FteMatchSetMisc3, bool)) -> Fields {
    Fields::of(Header::Icmp).misc3(fill).ethertype(IPV4).protocol(ICMP)
}

/// Fields of ICMPv6.
pub(super) fn icmpv6(fill: impl Fn(&mut FteMatchSetMisc3, bool)) -> Fields {
    Fields::of(Header::Icmp).misc3(fill).ethertype(IPV6).protocol(ICMPV6)
}

/// Sets a field of an MPLS header, or its mask.
pub(super) trait Entry: Fn(&mut FteMatchMpls, bool) {
    fn entry(&self, is_mask: bool) -> FteMatchMpls {
        let mut entry = FteMatchMpls::ZERO;
        self(&mut entry, is_mask);
        entry
    }
}

impl<F: Fn(&mut FteMatchMpls, bool)> Entry for F {}

fn label_of(label: u32) -> impl Entry {
    move |entry: &mut FteMatchMpls, mask| _ = entry.w().mpls_label(if mask { 0xf_ffff } else { label & 0xf_ffff })
}

fn class_of(class: u8) -> impl Entry {
    move |entry: &mut FteMatchMpls, mask| _ = entry.w().mpls_exp(if mask { 7 } else { class & 7 })
}

fn bottom_of(wanted: bool) -> impl Entry {
    move |entry: &mut FteMatchMpls, mask| _ = entry.w().mpls_s_bos(mask || wanted)
}

fn ttl_of(ttl: u8) -> impl Entry {
    move |entry: &mut FteMatchMpls, mask| _ = entry.w().mpls_ttl(if mask { u8::MAX } else { ttl })
}

/// Fields of the outer MPLS header.
pub(super) fn mpls(field: impl Entry) -> Fields {
    Fields::none().ethertype(MPLS).misc2(|set, mask| _ = set.w().outer_first_mpls(&field.entry(mask)))
}

/// Fields of the first MPLS header over UDP.
pub(super) fn mpls_over_udp(field: impl Entry) -> Fields {
    Fields::none().datagram(MPLS_PORT).misc2(|set, mask| _ = set.w().outer_first_mpls_over_udp(&field.entry(mask)))
}

/// Fields of the first MPLS header over GRE.
pub(super) fn mpls_over_gre(field: impl Entry) -> Fields {
    Fields::none()
        .protocol(GRE)
        .misc(|set, mask| _ = set.w().gre_protocol(if mask { u16::MAX } else { MPLS }))
        .misc2(|set, mask| _ = set.w().outer_first_mpls_over_gre(&field.entry(mask)))
}
