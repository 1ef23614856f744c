//! E-switch capabilities.

layout! {
    /// The switch between the vports of a card, as its manager sees it. PRM `e_switch_cap`.
    pub struct ESwitchCap: 0x100, "mlx5_ifc_e_switch_cap_bits" {
        0x00 [31] vport_svlan_strip: bool,
        0x00 [30] vport_cvlan_strip: bool,
        0x00 [29] vport_svlan_insert: bool,
        0x00 [28] vport_cvlan_insert_if_not_exist: bool,
        0x00 [27] vport_cvlan_insert_overwrite: bool,
        0x00 [25] vport_cvlan_insert_always: bool,
        0x00 [24] esw_shared_ingress_acl: bool,
        0x00 [23] esw_uplink_ingress_acl: bool,
        0x00 [22] root_ft_on_other_esw: bool,
        0x00 [20] esw_vport_state_max_tx_speed: bool,
        0x00 [6] esw_functions_changed: bool,
        0x00 [4] ecpf_vport_exists: bool,
        0x00 [3] counter_eswitch_affinity: bool,
        0x00 [2] merged_eswitch: bool,
        0x00 [1] nic_vport_node_guid_modify: bool,
        0x00 [0] nic_vport_port_guid_modify: bool,
        0x04 [31] vxlan_encap_decap: bool,
        0x04 [30] nvgre_encap_decap: bool,
        0x04 [28:24] log_max_fdb_encap_uplink: u8,
        0x04 [20:16] log_max_packet_reformat_context: u8,
        0x04 [9:0] max_encap_header_size: u16,
        0x08 [20:16] log_max_esw_sf: u8,
        0x08 [15:0] esw_sf_base_id: u16,
        0x0c [31] esw_manager_vport_number_valid: bool,
        0x0c [15:0] esw_manager_vport_number: u16,
    }
}
