//! Header fields of further protocols that flow rules match: GRE, GENEVE, MPLS, ICMP and others.

use std::sync::Arc;

use mlx5_prm::flow::{FteMatchMpls, FteMatchSetMisc3};

use super::fields::{Fields, Header, IPV4, IPV6};
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
pub(super) const GTPU_EXTENSION: u8 = 4;
pub(super) const GTPU_SEQUENCE: u8 = 2;
pub(super) const GTPU_N_PDU: u8 = 1;
/// GTP-U's extension header with information of a PDU session. 3GPP TS 29.281, DPDK's mlx5_flow_dv.c.
pub(super) const GTPU_PDU_SESSION: u8 = 0x85;

impl FlowMatch {
    /// The word of ICMP, of IPv4, that follows its checksum: those bits of `mask` are as in `data`. Of an echo it is
    /// the identifier in its upper 16 bits, and the sequence number.
    pub fn icmp_header_data(self, data: u32, mask: u32) -> Self {
        let fields = icmp(|set, is_mask| _ = set.w().icmp_header_data(if is_mask { mask } else { data & mask }));
        self.and(format_args!("ICMP header data {data:#x} of {mask:#x}"), fields)
    }

    /// As [`icmp_header_data`](Self::icmp_header_data), of ICMPv6.
    pub fn icmpv6_header_data(self, data: u32, mask: u32) -> Self {
        let fields = icmpv6(|set, is_mask| _ = set.w().icmpv6_header_data(if is_mask { mask } else { data & mask }));
        self.and(format_args!("ICMPv6 header data {data:#x} of {mask:#x}"), fields)
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

    /// First byte of VXLAN-GPE, its version and flags: those bits of `mask` are as in `flags`. 0x08 is set where the
    /// network is valid, 0x04 where the next protocol is, 0x01 in control packets (OAM).
    pub fn vxlan_gpe_flags(self, flags: u8, mask: u8) -> Self {
        let fields = Fields::none()
            .misc3(|set, is_mask| _ = set.w().outer_vxlan_gpe_flags(if is_mask { mask } else { flags & mask }));
        self.and(format_args!("VXLAN-GPE flags {flags:#x} of {mask:#x}"), fields.datagram(VXLAN_GPE_PORT))
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

    /// Whether the outer MPLS header is the last.
    pub fn mpls_bottom_of_stack(self, wanted: bool) -> Self {
        self.and(format_args!("MPLS bottom of stack {}", u8::from(wanted)), mpls(bottom_of(wanted)))
    }

    /// Whether the first MPLS header over UDP is the last.
    pub fn mpls_over_udp_bottom_of_stack(self, wanted: bool) -> Self {
        self.and(format_args!("MPLS over UDP bottom of stack {}", u8::from(wanted)), mpls_over_udp(bottom_of(wanted)))
    }

    /// Whether the first MPLS header over GRE is the last.
    pub fn mpls_over_gre_bottom_of_stack(self, wanted: bool) -> Self {
        self.and(format_args!("MPLS over GRE bottom of stack {}", u8::from(wanted)), mpls_over_gre(bottom_of(wanted)))
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

fn bottom_of(wanted: bool) -> impl Entry {
    move |entry: &mut FteMatchMpls, mask| _ = entry.w().mpls_s_bos(mask || wanted)
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
