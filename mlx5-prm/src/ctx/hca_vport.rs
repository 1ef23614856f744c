//! InfiniBand context of a vport, and the e-switch context of one.

layout! {
    /// InfiniBand context of a vport. PRM `hca_vport_context`.
    pub struct HcaVportContext: 0x200, "mlx5_ifc_hca_vport_context_bits" {
        0x00 [31:0] field_select: u32,
        0x20 [31] sm_virt_aware: bool,
        0x20 [30] has_smi: bool,
        0x20 [29] has_raw: bool,
        0x20 [28] grh_required: bool,
        0x20 [23:16] num_port_plane: u8,
        0x20 [15:12] port_physical_state: u8,
        0x20 [11:8] vport_state_policy: u8,
        0x20 [7:4] port_state: u8,
        0x20 [3:0] vport_state: u8,
        0x28 [63:0] system_image_guid: u64,
        0x30 [63:0] port_guid: u64,
        0x38 [63:0] node_guid: u64,
        0x40 [31:0] cap_mask1: u32,
        0x44 [31:0] cap_mask1_field_select: u32,
        0x48 [31:0] cap_mask2: u32,
        0x4c [31:0] cap_mask2_field_select: u32,
        0x60 [31:16] lid: u16,
        0x60 [11:8] init_type_reply: u8,
        0x60 [7:5] lmc: u8,
        0x60 [4:0] subnet_timeout: u8,
        0x64 [31:16] sm_lid: u16,
        0x64 [15:12] sm_sl: u8,
        0x68 [31:16] qkey_violation_counter: u16,
        0x68 [15:0] pkey_violation_counter: u16,
    }

    /// What the e-switch does with a vport's packets. PRM `esw_vport_context`.
    pub struct EswVportContext: 0x100, "mlx5_ifc_esw_vport_context_bits" {
        0x00 [31] fdb_to_vport_reg_c: bool,
        0x00 [28] vport_svlan_strip: bool,
        0x00 [27] vport_cvlan_strip: bool,
        0x00 [26] vport_svlan_insert: bool,
        0x00 [25:24] vport_cvlan_insert: u8,
        0x00 [23:16] fdb_to_vport_reg_c_id: u8,
        0x08 [31] svlan_cfi: bool,
        0x08 [30:28] svlan_pcp: u8,
        0x08 [27:16] svlan_id: u16,
        0x08 [15] cvlan_cfi: bool,
        0x08 [14:12] cvlan_pcp: u8,
        0x08 [11:0] cvlan_id: u16,
        0xf0 [63:0] sw_steering_vport_icm_address_rx: u64,
        0xf8 [63:0] sw_steering_vport_icm_address_tx: u64,
    }

    /// Which fields of an [`EswVportContext`] a command changes. PRM `esw_vport_context_fields_select`.
    pub struct EswVportContextFieldsSelect: 0x4, "mlx5_ifc_esw_vport_context_fields_select_bits" {
        0x00 [4] fdb_to_vport_reg_c_id: bool,
        0x00 [3] vport_cvlan_insert: bool,
        0x00 [2] vport_svlan_insert: bool,
        0x00 [1] vport_cvlan_strip: bool,
        0x00 [0] vport_svlan_strip: bool,
    }

    /// Counters of what went wrong with a vport's queues. PRM `vnic_diagnostic_statistics`.
    pub struct VnicDiagnosticStatistics: 0x200, "mlx5_ifc_vnic_diagnostic_statistics_bits" {
        0x00 [31:0] counter_error_queues: u32,
        0x04 [31:0] total_error_queues: u32,
        0x08 [31:0] send_queue_priority_update_flow: u32,
        0x10 [63:0] nic_receive_steering_discard: u64,
        0x18 [63:0] receive_discard_vport_down: u64,
        0x20 [63:0] transmit_discard_vport_down: u64,
        0x28 [31:0] async_eq_overrun: u32,
        0x2c [31:0] comp_eq_overrun: u32,
        0x34 [31:0] invalid_command: u32,
        0x38 [31:0] quota_exceeded_command: u32,
        0x3c [31:0] internal_rq_out_of_buffer: u32,
        0x40 [31:0] cq_overrun: u32,
        0x44 [31:0] eth_wqe_too_small: u32,
        0x60 [63:0] generated_pkt_steering_fail: u64,
        0x68 [63:0] handled_pkt_steering_fail: u64,
        0x70 [31:0] bar_uar_access: u32,
        0x74 [31:0] odp_local_triggered_page_fault: u32,
        0x78 [31:0] odp_remote_triggered_page_fault: u32,
    }
}
