//! Debug capabilities.

layout! {
    /// What helps to debug. PRM `debug_cap`.
    pub struct DebugCap: 0x100, "mlx5_ifc_debug_cap_bits" {
        0x00 [31] core_dump_general: bool,
        0x00 [30] core_dump_qp: bool,
        0x00 [22] resource_dump: bool,
        0x04 [29] stall_detect: bool,
    }
}
