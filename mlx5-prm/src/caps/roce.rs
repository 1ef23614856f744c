//! RoCE capabilities.

use super::TimestampCap;

layout! {
    /// RoCE. PRM `roce_cap`.
    pub struct RoceCap: 0x100, "mlx5_ifc_roce_cap_bits" {
        0x00 [31] roce_apm: bool,
        0x00 [27] sw_r_roce_src_udp_port: bool,
        0x00 [26] fl_rc_qp_when_roce_disabled: bool,
        0x00 [25] fl_rc_qp_when_roce_enabled: bool,
        0x00 [24] roce_cc_general: bool,
        0x00 [23] qp_ooo_transmit_default: bool,
        0x00 [1:0] qp_ts_format: u8 as TimestampCap,
        0x10 [19:16] l3_type: u8,
        0x10 [7:0] roce_version: u8,
        0x14 [15:0] r_roce_dest_udp_port: u16,
        0x18 [31:16] r_roce_max_src_udp_port: u16,
        0x18 [15:0] r_roce_min_src_udp_port: u16,
        0x1c [15:0] roce_address_table_size: u16,
    }
}
