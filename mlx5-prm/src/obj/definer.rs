//! Match definers: which parts of a packet the entries of a flow group match by, and the masks of each format.

use crate::layout::{Be32, Info, Layout};

layout! {
    /// Which parts of a packet the entries of a group match by. PRM `match_definer`.
    pub struct MatchDefiner: 0x80, "mlx5_ifc_match_definer_bits" {
        0x00 [63:0] modify_field_select: u64,
        0x10 [15:0] format_id: u16,
        0x20 [31:24] format_select_dw3: u8,
        0x20 [23:16] format_select_dw2: u8,
        0x20 [15:8] format_select_dw1: u8,
        0x20 [7:0] format_select_dw0: u8,
        0x24 [31:24] format_select_dw7: u8,
        0x24 [23:16] format_select_dw6: u8,
        0x24 [15:8] format_select_dw5: u8,
        0x24 [7:0] format_select_dw4: u8,
        0x28 [7:0] format_select_dw8: u8,
        0x30 [31:24] format_select_byte3: u8,
        0x30 [23:16] format_select_byte2: u8,
        0x30 [15:8] format_select_byte1: u8,
        0x30 [7:0] format_select_byte0: u8,
        0x34 [31:24] format_select_byte7: u8,
        0x34 [23:16] format_select_byte6: u8,
        0x34 [15:8] format_select_byte5: u8,
        0x34 [7:0] format_select_byte4: u8,
        /// Layout selected by `format_id`.
        0x40 match_mask: [u8; 64] where mask_layout,
    }

    /// The mask of a format whose dwords and bytes are selected one by one. PRM `match_definer_match_mask`.
    pub struct MatchDefinerMatchMask: 0x40, "mlx5_ifc_match_definer_match_mask_bits" {
        0x14 [31:0] match_dw_8: u32,
        0x18 [31:0] match_dw_7: u32,
        0x1c [31:0] match_dw_6: u32,
        0x20 [31:0] match_dw_5: u32,
        0x24 [31:0] match_dw_4: u32,
        0x28 [31:0] match_dw_3: u32,
        0x2c [31:0] match_dw_2: u32,
        0x30 [31:0] match_dw_1: u32,
        0x34 [31:0] match_dw_0: u32,
        0x38 [31:24] match_byte_7: u8,
        0x38 [23:16] match_byte_6: u8,
        0x38 [15:8] match_byte_5: u8,
        0x38 [7:0] match_byte_4: u8,
        0x3c [31:24] match_byte_3: u8,
        0x3c [23:16] match_byte_2: u8,
        0x3c [15:8] match_byte_1: u8,
        0x3c [7:0] match_byte_0: u8,
    }

    /// MACs, VLANs and flags of the outer headers, two metadata registers. PRM `match_definer_format_0`.
    pub struct MatchDefinerFormat0: 0x40, "mlx5_ifc_match_definer_format_0_bits" {
        0x20 [31:0] metadata_reg_c_0: u32,
        0x24 [31:0] metadata_reg_c_1: u32,
        0x28 [31:0] outer_dmac_47_16: u32,
        0x2c [31:16] outer_dmac_15_0: u16,
        0x2c [15:0] outer_ethertype: u16,
        0x30 [30] sx_sniffer: bool,
        0x30 [29] functional_lb: bool,
        0x30 [28] outer_ip_frag: bool,
        0x30 [27:26] outer_qp_type: u8,
        0x30 [25:24] outer_encap_type: u8,
        0x30 [23:22] port_number: u8,
        0x30 [21:20] outer_l3_type: u8,
        0x30 [19:18] outer_l4_type: u8,
        0x30 [17:16] outer_first_vlan_type: u8,
        0x30 [15:13] outer_first_vlan_prio: u8,
        0x30 [12] outer_first_vlan_cfi: bool,
        0x30 [11:0] outer_first_vlan_vid: u16,
        0x34 [31:28] outer_l4_type_ext: u8,
        0x34 [25:24] outer_ipsec_layer: u8,
        0x34 [23:22] outer_l2_type: u8,
        0x34 [21] force_lb: bool,
        0x34 [20] outer_l2_ok: bool,
        0x34 [19] outer_l3_ok: bool,
        0x34 [18] outer_l4_ok: bool,
        0x34 [17:16] outer_second_vlan_type: u8,
        0x34 [15:13] outer_second_vlan_prio: u8,
        0x34 [12] outer_second_vlan_cfi: bool,
        0x34 [11:0] outer_second_vlan_vid: u16,
        0x38 [31:0] outer_smac_47_16: u32,
        0x3c [31:16] outer_smac_15_0: u16,
        0x3c [15] inner_ipv4_checksum_ok: bool,
        0x3c [14] inner_l4_checksum_ok: bool,
        0x3c [13] outer_ipv4_checksum_ok: bool,
        0x3c [12] outer_l4_checksum_ok: bool,
        0x3c [11] inner_l3_ok: bool,
        0x3c [10] inner_l4_ok: bool,
        0x3c [9] outer_l3_ok_duplicate: bool,
        0x3c [8] outer_l4_ok_duplicate: bool,
        0x3c [7] outer_tcp_cwr: bool,
        0x3c [6] outer_tcp_ece: bool,
        0x3c [5] outer_tcp_urg: bool,
        0x3c [4] outer_tcp_ack: bool,
        0x3c [3] outer_tcp_psh: bool,
        0x3c [2] outer_tcp_rst: bool,
        0x3c [1] outer_tcp_syn: bool,
        0x3c [0] outer_tcp_fin: bool,
    }

    /// Outer IPv4 addresses, ports, VLAN and MACs. PRM `match_definer_format_22`.
    pub struct MatchDefinerFormat22: 0x40, "mlx5_ifc_match_definer_format_22_bits" {
        0x20 [31:0] outer_ip_src_addr: u32,
        0x24 [31:0] outer_ip_dest_addr: u32,
        0x28 [31:16] outer_l4_sport: u16,
        0x28 [15:0] outer_l4_dport: u16,
        0x2c [30] sx_sniffer: bool,
        0x2c [29] functional_lb: bool,
        0x2c [28] outer_ip_frag: bool,
        0x2c [27:26] outer_qp_type: u8,
        0x2c [25:24] outer_encap_type: u8,
        0x2c [23:22] port_number: u8,
        0x2c [21:20] outer_l3_type: u8,
        0x2c [19:18] outer_l4_type: u8,
        0x2c [17:16] outer_first_vlan_type: u8,
        0x2c [15:13] outer_first_vlan_prio: u8,
        0x2c [12] outer_first_vlan_cfi: bool,
        0x2c [11:0] outer_first_vlan_vid: u16,
        0x30 [31:0] metadata_reg_c_0: u32,
        0x34 [31:0] outer_dmac_47_16: u32,
        0x38 [31:0] outer_smac_47_16: u32,
        0x3c [31:16] outer_smac_15_0: u16,
        0x3c [15:0] outer_dmac_15_0: u16,
    }

    /// Inner IPv4 addresses, ports, VLAN and MACs. PRM `match_definer_format_23`.
    pub struct MatchDefinerFormat23: 0x40, "mlx5_ifc_match_definer_format_23_bits" {
        0x20 [31:0] inner_ip_src_addr: u32,
        0x24 [31:0] inner_ip_dest_addr: u32,
        0x28 [31:16] inner_l4_sport: u16,
        0x28 [15:0] inner_l4_dport: u16,
        0x2c [30] sx_sniffer: bool,
        0x2c [29] functional_lb: bool,
        0x2c [28] inner_ip_frag: bool,
        0x2c [27:26] inner_qp_type: u8,
        0x2c [25:24] inner_encap_type: u8,
        0x2c [23:22] port_number: u8,
        0x2c [21:20] inner_l3_type: u8,
        0x2c [19:18] inner_l4_type: u8,
        0x2c [17:16] inner_first_vlan_type: u8,
        0x2c [15:13] inner_first_vlan_prio: u8,
        0x2c [12] inner_first_vlan_cfi: bool,
        0x2c [11:0] inner_first_vlan_vid: u16,
        0x30 [31:0] tunnel_header_0: u32,
        0x34 [31:0] inner_dmac_47_16: u32,
        0x38 [31:0] inner_smac_47_16: u32,
        0x3c [31:16] inner_smac_15_0: u16,
        0x3c [15:0] inner_dmac_15_0: u16,
    }

    /// Outer IPv6 addresses and ports. PRM `match_definer_format_29`.
    pub struct MatchDefinerFormat29: 0x40, "mlx5_ifc_match_definer_format_29_bits" {
        0x18 outer_ip_dest_addr: [Be32; 4],
        0x28 outer_ip_src_addr: [Be32; 4],
        0x38 [31:16] outer_l4_sport: u16,
        0x38 [15:0] outer_l4_dport: u16,
    }

    /// Outer IPv6 addresses and MACs. PRM `match_definer_format_30`.
    pub struct MatchDefinerFormat30: 0x40, "mlx5_ifc_match_definer_format_30_bits" {
        0x14 outer_ip_dest_addr: [Be32; 4],
        0x24 outer_ip_src_addr: [Be32; 4],
        0x34 [31:0] outer_dmac_47_16: u32,
        0x38 [31:0] outer_smac_47_16: u32,
        0x3c [31:16] outer_smac_15_0: u16,
        0x3c [15:0] outer_dmac_15_0: u16,
    }

    /// Inner IPv6 addresses and ports. PRM `match_definer_format_31`.
    pub struct MatchDefinerFormat31: 0x40, "mlx5_ifc_match_definer_format_31_bits" {
        0x18 inner_ip_dest_addr: [Be32; 4],
        0x28 inner_ip_src_addr: [Be32; 4],
        0x38 [31:16] inner_l4_sport: u16,
        0x38 [15:0] inner_l4_dport: u16,
    }

    /// Inner IPv6 addresses and MACs. PRM `match_definer_format_32`.
    pub struct MatchDefinerFormat32: 0x40, "mlx5_ifc_match_definer_format_32_bits" {
        0x14 inner_ip_dest_addr: [Be32; 4],
        0x24 inner_ip_src_addr: [Be32; 4],
        0x34 [31:0] inner_dmac_47_16: u32,
        0x38 [31:0] inner_smac_47_16: u32,
        0x3c [31:16] inner_smac_15_0: u16,
        0x3c [15:0] inner_dmac_15_0: u16,
    }
}

impl MatchDefiner {
    /// The format in which dwords and bytes are selected one by one.
    pub const SELECT: u16 = 61;

    fn mask_layout(bytes: &[u8], _index: usize) -> Option<&'static Info> {
        Some(match MatchDefiner::read(bytes)?.format_id() {
            0 => &MatchDefinerFormat0::INFO,
            22 => &MatchDefinerFormat22::INFO,
            23 => &MatchDefinerFormat23::INFO,
            29 => &MatchDefinerFormat29::INFO,
            30 => &MatchDefinerFormat30::INFO,
            31 => &MatchDefinerFormat31::INFO,
            32 => &MatchDefinerFormat32::INFO,
            MatchDefiner::SELECT => &MatchDefinerMatchMask::INFO,
            _ => return None,
        })
    }
}
