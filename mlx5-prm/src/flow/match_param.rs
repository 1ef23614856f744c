//! What packets are matched by: every set of match parameters.

use crate::layout::{Info, Layout};

layout! {
    /// All match parameters, as a group's criteria (which bits are looked at) or as an entry's value. PRM
    /// `fte_match_param`.
    pub struct FteMatchParam: 0x200, "mlx5_ifc_fte_match_param_bits" {
        0x00 outer_headers: FteMatchSetLyr24,
        0x40 misc_parameters: FteMatchSetMisc,
        0x80 inner_headers: FteMatchSetLyr24,
        0xc0 misc_parameters_2: FteMatchSetMisc2,
        0x100 misc_parameters_3: FteMatchSetMisc3,
        0x140 misc_parameters_4: FteMatchSetMisc4,
        0x180 misc_parameters_5: FteMatchSetMisc5,
        0x1c0 misc_parameters_6: FteMatchSetMisc6,
    }

    /// Ethernet, network and transport headers, outer or inner. PRM `fte_match_set_lyr_2_4`.
    pub struct FteMatchSetLyr24: 0x40, "mlx5_ifc_fte_match_set_lyr_2_4_bits" {
        0x00 [31:0] smac_47_16: u32,
        0x04 [31:16] smac_15_0: u16,
        0x04 [15:0] ethertype: u16,
        0x08 [31:0] dmac_47_16: u32,
        0x0c [31:16] dmac_15_0: u16,
        0x0c [15:13] first_prio: u8,
        0x0c [12] first_cfi: bool,
        0x0c [11:0] first_vid: u16,
        0x10 [31:24] ip_protocol: u8,
        0x10 [23:18] ip_dscp: u8,
        0x10 [17:16] ip_ecn: u8,
        0x10 [15] cvlan_tag: bool,
        0x10 [14] svlan_tag: bool,
        0x10 [13] frag: bool,
        0x10 [12:9] ip_version: u8,
        0x10 [8:0] tcp_flags: u16,
        0x14 [31:16] tcp_sport: u16,
        0x14 [15:0] tcp_dport: u16,
        0x18 [31:30] l4_type: L4Type,
        0x18 [29:26] l4_type_ext: L4TypeExt,
        0x18 [15:12] ipv4_ihl: u8,
        0x18 [7:0] ttl_hoplimit: u8,
        0x1c [31:16] udp_sport: u16,
        0x1c [15:0] udp_dport: u16,
        0x20 src_ipv4_src_ipv6: Ipv6LayoutIpv4LayoutAuto where address_layout,
        0x30 dst_ipv4_dst_ipv6: Ipv6LayoutIpv4LayoutAuto where address_layout,
    }

    /// A network address. PRM `ipv6_layout_ipv4_layout_auto`.
    pub union Ipv6LayoutIpv4LayoutAuto: 0x10, "mlx5_ifc_ipv6_layout_ipv4_layout_auto_bits" {
        0x00 ipv6_simple_layout: Ipv6SimpleLayout,
        0x00 ipv6_layout: Ipv6Layout,
        0x00 ipv4_layout: Ipv4Layout,
    }

    /// An IPv4 address, in the last four bytes of sixteen. PRM `ipv4_layout`.
    pub struct Ipv4Layout: 0x10, "mlx5_ifc_ipv4_layout_bits" {
        0x0c [31:0] ipv4: u32,
    }

    /// An IPv6 address. PRM `ipv6_layout`.
    pub struct Ipv6Layout: 0x10, "mlx5_ifc_ipv6_layout_bits" {
        0x00 ipv6: [u8; 16],
    }

    /// An IPv6 address, dword by dword. PRM `ipv6_simple_layout`.
    pub struct Ipv6SimpleLayout: 0x10, "mlx5_ifc_ipv6_simple_layout_bits" {
        0x00 [31:0] ipv6_127_96: u32,
        0x04 [31:0] ipv6_95_64: u32,
        0x08 [31:0] ipv6_63_32: u32,
        0x0c [31:0] ipv6_31_0: u32,
    }

    /// Source port, second VLAN tags, GRE, VXLAN, Geneve, ESP and RoCE headers. PRM `fte_match_set_misc`.
    pub struct FteMatchSetMisc: 0x40, "mlx5_ifc_fte_match_set_misc_bits" {
        0x00 [31] gre_c_present: bool,
        0x00 [29] gre_k_present: bool,
        0x00 [28] gre_s_present: bool,
        0x00 [27:24] source_vhca_port: u8,
        0x00 [23:0] source_sqn: u32,
        0x04 [31:16] source_eswitch_owner_vhca_id: u16,
        0x04 [15:0] source_port: u16,
        0x08 [31:29] outer_second_prio: u8,
        0x08 [28] outer_second_cfi: bool,
        0x08 [27:16] outer_second_vid: u16,
        0x08 [15:13] inner_second_prio: u8,
        0x08 [12] inner_second_cfi: bool,
        0x08 [11:0] inner_second_vid: u16,
        0x0c [31] outer_second_cvlan_tag: bool,
        0x0c [30] inner_second_cvlan_tag: bool,
        0x0c [29] outer_second_svlan_tag: bool,
        0x0c [28] inner_second_svlan_tag: bool,
        0x0c [15:0] gre_protocol: u16,
        0x10 gre_key: GreKey where gre_key_layout,
        0x14 [31:8] vxlan_vni: u32,
        0x14 [7:0] bth_opcode: u8,
        0x18 [31:8] geneve_vni: u32,
        0x18 [1] geneve_tlv_option_0_exist: bool,
        0x18 [0] geneve_oam: bool,
        0x1c [19:0] outer_ipv6_flow_label: u32,
        0x20 [19:0] inner_ipv6_flow_label: u32,
        0x24 [21:16] geneve_opt_len: u8,
        0x24 [15:0] geneve_protocol_type: u16,
        0x28 [23:0] bth_dst_qp: u32,
        0x2c [31:0] inner_esp_spi: u32,
        0x30 [31:0] outer_esp_spi: u32,
    }

    /// Key of a GRE header. PRM `gre_key`.
    pub union GreKey: 0x4, "mlx5_ifc_gre_key_bits" {
        0x00 nvgre: NvgreKey,
        0x00 [31:0] key: u32,
    }

    /// Key of an NVGRE header. PRM `nvgre_key`.
    pub struct NvgreKey: 0x4, "mlx5_ifc_nvgre_key_bits" {
        0x00 [31:8] hi: u32,
        0x00 [7:0] lo: u8,
    }

    /// MPLS labels and metadata registers. PRM `fte_match_set_misc2`.
    pub struct FteMatchSetMisc2: 0x40, "mlx5_ifc_fte_match_set_misc2_bits" {
        0x00 outer_first_mpls: FteMatchMpls,
        0x04 inner_first_mpls: FteMatchMpls,
        0x08 outer_first_mpls_over_gre: FteMatchMpls,
        0x0c outer_first_mpls_over_udp: FteMatchMpls,
        0x10 [31:0] metadata_reg_c_7: u32,
        0x14 [31:0] metadata_reg_c_6: u32,
        0x18 [31:0] metadata_reg_c_5: u32,
        0x1c [31:0] metadata_reg_c_4: u32,
        0x20 [31:0] metadata_reg_c_3: u32,
        0x24 [31:0] metadata_reg_c_2: u32,
        0x28 [31:0] metadata_reg_c_1: u32,
        0x2c [31:0] metadata_reg_c_0: u32,
        0x30 [31:0] metadata_reg_a: u32,
        0x34 [31:24] psp_syndrome: u8,
        0x34 [23:16] macsec_syndrome: u8,
        0x34 [15:8] ipsec_syndrome: u8,
        0x34 [7:0] ipsec_next_header: u8,
    }

    /// An MPLS label. PRM `fte_match_mpls`.
    pub struct FteMatchMpls: 0x4, "mlx5_ifc_fte_match_mpls_bits" {
        0x00 [31:12] mpls_label: u32,
        0x00 [11:9] mpls_exp: u8,
        0x00 [8] mpls_s_bos: bool,
        0x00 [7:0] mpls_ttl: u8,
    }

    /// TCP sequence numbers, VXLAN-GPE, ICMP, GTP-U headers. PRM `fte_match_set_misc3`.
    pub struct FteMatchSetMisc3: 0x40, "mlx5_ifc_fte_match_set_misc3_bits" {
        0x00 [31:0] inner_tcp_seq_num: u32,
        0x04 [31:0] outer_tcp_seq_num: u32,
        0x08 [31:0] inner_tcp_ack_num: u32,
        0x0c [31:0] outer_tcp_ack_num: u32,
        0x10 [23:0] outer_vxlan_gpe_vni: u32,
        0x14 [31:24] outer_vxlan_gpe_next_protocol: u8,
        0x14 [23:16] outer_vxlan_gpe_flags: u8,
        0x18 [31:0] icmp_header_data: u32,
        0x1c [31:0] icmpv6_header_data: u32,
        0x20 [31:24] icmp_type: u8,
        0x20 [23:16] icmp_code: u8,
        0x20 [15:8] icmpv6_type: u8,
        0x20 [7:0] icmpv6_code: u8,
        0x24 [31:0] geneve_tlv_option_0_data: u32,
        0x28 [31:0] gtpu_teid: u32,
        0x2c [31:24] gtpu_msg_type: u8,
        0x2c [23:16] gtpu_msg_flags: u8,
        0x30 [31:0] gtpu_dw_2: u32,
        0x34 [31:0] gtpu_first_ext_dw_0: u32,
        0x38 [31:0] gtpu_dw_0: u32,
    }

    /// Fields that programmable samplers took from the packet. PRM `fte_match_set_misc4`.
    pub struct FteMatchSetMisc4: 0x40, "mlx5_ifc_fte_match_set_misc4_bits" {
        0x00 [31:0] prog_sample_field_value_0: u32,
        0x04 [31:0] prog_sample_field_id_0: u32,
        0x08 [31:0] prog_sample_field_value_1: u32,
        0x0c [31:0] prog_sample_field_id_1: u32,
        0x10 [31:0] prog_sample_field_value_2: u32,
        0x14 [31:0] prog_sample_field_id_2: u32,
        0x18 [31:0] prog_sample_field_value_3: u32,
        0x1c [31:0] prog_sample_field_id_3: u32,
    }

    /// MACsec tags and tunnel headers. PRM `fte_match_set_misc5`.
    pub struct FteMatchSetMisc5: 0x40, "mlx5_ifc_fte_match_set_misc5_bits" {
        0x00 [31:0] macsec_tag_0: u32,
        0x04 [31:0] macsec_tag_1: u32,
        0x08 [31:0] macsec_tag_2: u32,
        0x0c [31:0] macsec_tag_3: u32,
        0x10 [31:0] tunnel_header_0: u32,
        0x14 [31:0] tunnel_header_1: u32,
        0x18 [31:0] tunnel_header_2: u32,
        0x1c [31:0] tunnel_header_3: u32,
    }

    /// PSP headers. PRM `fte_match_set_misc6`.
    pub struct FteMatchSetMisc6: 0x40, "mlx5_ifc_fte_match_set_misc6_bits" {
        0x00 [5:2] psp_version: u8,
    }
}

values! {
    /// Transport protocol of a packet. PRM `fte_match_set_lyr_2_4.l4_type`.
    pub enum L4Type: 2 {
        /// None.
        None = 0 "NONE",
        /// TCP.
        Tcp = 1 "TCP",
        /// UDP.
        Udp = 2 "UDP",
    }

    /// Transport protocol of a packet, with ICMP. PRM `fte_match_set_lyr_2_4.l4_type_ext`.
    pub enum L4TypeExt: 4 {
        /// None.
        None = 0 "NONE",
        /// TCP.
        Tcp = 1 "TCP",
        /// UDP.
        Udp = 2 "UDP",
        /// ICMP.
        Icmp = 3 "ICMP",
    }
}

impl FteMatchSetLyr24 {
    /// IPv4 where the version or the Ethertype says so; a mask of either does not.
    fn address_layout(bytes: &[u8], _index: usize) -> Option<&'static Info> {
        let headers = FteMatchSetLyr24::read(bytes)?;
        Some(match (headers.ip_version(), headers.ethertype()) {
            (4, _) | (0, 0x0800) => &Ipv4Layout::INFO,
            _ => &Ipv6Layout::INFO,
        })
    }
}

impl FteMatchSetMisc {
    /// NVGRE carries Ethernet frames; any other GRE has a key of 32 bits, which NVGRE's two parts make up too.
    fn gre_key_layout(_bytes: &[u8], _index: usize) -> Option<&'static Info> {
        Some(&NvgreKey::INFO)
    }
}
