//! Scheduling elements and rate limits.

layout! {
    /// A scheduling element. `element_attributes` is what `element_type` says: [`TsarElement`], [`VportElement`] or
    /// [`VportTcElement`]. PRM `scheduling_context`.
    pub struct SchedulingContext: 0x40, "mlx5_ifc_scheduling_context_bits" {
        0x00 [31:24] element_type: u8,
        0x04 element_attributes: [u8; 0x4],
        0x08 [31:0] parent_element_id: u32,
        0x14 [31:0] bw_share: u32,
        0x18 [31:0] max_average_bw: u32,
        0x1c [31:0] max_bw_obj_id: u32,
    }

    /// A transmit scheduling arbiter. PRM `tsar_element`.
    pub struct TsarElement: 0x4, "mlx5_ifc_tsar_element_bits" {
        0x00 [31:28] traffic_class: u8,
        0x00 [23:16] tsar_type: u8,
    }

    /// A vport. PRM `vport_element`.
    pub struct VportElement: 0x4, "mlx5_ifc_vport_element_bits" {
        0x00 [27] eswitch_owner_vhca_id_valid: bool,
        0x00 [26:16] eswitch_owner_vhca_id: u16,
        0x00 [15:0] vport_number: u16,
    }

    /// A traffic class of a vport. PRM `vport_tc_element`.
    pub struct VportTcElement: 0x4, "mlx5_ifc_vport_tc_element_bits" {
        0x00 [31:28] traffic_class: u8,
        0x00 [27] eswitch_owner_vhca_id_valid: bool,
        0x00 [26:16] eswitch_owner_vhca_id: u16,
        0x00 [15:0] vport_number: u16,
    }

    /// A packet pacing rate. PRM `set_pp_rate_limit_context`.
    pub struct SetPpRateLimitContext: 0x30, "mlx5_ifc_set_pp_rate_limit_context_bits" {
        0x00 [31:0] rate_limit: u32,
        0x04 [31:0] burst_upper_bound: u32,
        0x08 [15:0] typical_packet_size: u16,
    }
}
