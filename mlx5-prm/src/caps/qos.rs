//! Quality of service capabilities.

layout! {
    /// Rate limits and scheduling. PRM `qos_cap`.
    pub struct QosCap: 0x100, "mlx5_ifc_qos_cap_bits" {
        0x00 [31] packet_pacing: bool,
        0x00 [30] esw_scheduling: bool,
        0x00 [29] esw_bw_share: bool,
        0x00 [28] esw_rate_limit: bool,
        0x00 [26] packet_pacing_burst_bound: bool,
        0x00 [25] packet_pacing_typical_size: bool,
        0x00 [23] nic_sq_scheduling: bool,
        0x00 [22] nic_bw_share: bool,
        0x00 [21] nic_rate_limit: bool,
        0x00 [20] packet_pacing_uid: bool,
        0x00 [19:16] log_esw_max_sched_depth: u8,
        0x04 [29] packet_pacing_req_ud: bool,
        0x04 [28] packet_pacing_req_uc: bool,
        0x04 [22] esw_cross_esw_sched: bool,
        0x04 [20:16] log_max_qos_nic_queue_group: u8,
        0x08 [31:0] packet_pacing_max_rate: u32,
        0x0c [31:0] packet_pacing_min_rate: u32,
        0x10 [20:16] log_esw_max_rate_limit: u8,
        0x10 [15:0] packet_pacing_rate_table_size: u16,
        0x14 [31:16] esw_element_type: u16,
        0x14 [15:0] esw_tsar_type: u16,
        0x18 [15:0] max_qos_para_vport: u16,
        0x1c [31:0] max_tsar_bw_share: u32,
        0x20 [31:16] nic_element_type: u16,
        0x20 [15:0] nic_tsar_type: u16,
        0x24 [28:24] log_meter_aso_granularity: u8,
        0x24 [20:16] log_meter_aso_max_alloc: u8,
        0x24 [12:8] log_max_num_meter_aso: u8,
    }
}
