//! Ethernet and IPoIB offload capabilities.

use crate::layout::Be32;

layout! {
    /// Offloads of packet work: of Ethernet, of IPoIB, and of enhanced IPoIB, a page each. PRM
    /// `per_protocol_networking_offload_caps`.
    pub struct PerProtocolNetworkingOffloadCaps: 0x100, "mlx5_ifc_per_protocol_networking_offload_caps_bits" {
        0x00 [31] csum_cap: bool,
        0x00 [30] vlan_cap: bool,
        0x00 [29] lro_cap: bool,
        0x00 [28] lro_psh_flag: bool,
        0x00 [27] lro_time_stamp: bool,
        0x00 [26:25] lro_max_msg_sz_mode: LroMaxMsgSzMode,
        0x00 [24] wqe_vlan_insert: bool,
        0x00 [23] self_lb_en_modifiable: bool,
        0x00 [20:16] max_lso_cap: u8,
        0x00 [15:14] multi_pkt_send_wqe: u8,
        0x00 [13:12] wqe_inline_mode: u8,
        0x00 [11:8] rss_ind_tbl_cap: u8,
        0x00 [7] reg_umr_sq: bool,
        0x00 [6] scatter_fcs: bool,
        0x00 [5] enhanced_multi_pkt_send_wqe: bool,
        0x00 [4] tunnel_lso_const_out_ip_id: bool,
        0x00 [3] tunnel_lro_gre: bool,
        0x00 [2] tunnel_lro_vxlan: bool,
        0x00 [1] tunnel_stateless_gre: bool,
        0x00 [0] tunnel_stateless_vxlan: bool,
        0x04 [31] swp: bool,
        0x04 [30] swp_csum: bool,
        0x04 [29] swp_lso: bool,
        0x04 [28] cqe_checksum_full: bool,
        0x04 [27] tunnel_stateless_geneve_tx: bool,
        0x04 [26] tunnel_stateless_mpls_over_udp: bool,
        0x04 [25] tunnel_stateless_mpls_over_gre: bool,
        0x04 [24] tunnel_stateless_vxlan_gpe: bool,
        0x04 [23] tunnel_stateless_ipv4_over_vxlan: bool,
        0x04 [22] tunnel_stateless_ip_over_ip: bool,
        0x04 [21] insert_trailer: bool,
        0x04 [19] tunnel_stateless_ip_over_ip_rx: bool,
        0x04 [18] tunnel_stateless_ip_over_ip_tx: bool,
        0x04 [15:8] max_vxlan_udp_ports: u8,
        0x04 [7] swp_csum_l4_partial: bool,
        0x04 [1] max_geneve_opt_len: bool,
        0x04 [0] tunnel_stateless_geneve_rx: bool,
        0x08 [15:0] lro_min_mss_size: u16,
        0x30 lro_timer_supported_periods: [Be32; 4],
    }
}

values! {
    /// What `tirc.lro_max_ip_payload_size` counts. PRM `per_protocol_networking_offload_caps.lro_max_msg_sz_mode`.
    pub enum LroMaxMsgSzMode: 2 {
        /// TCP header and data.
        FromL4 = 0 "START_FROM_L4",
        /// All headers and data.
        FromL2 = 1 "START_FROM_L2",
    }
}
