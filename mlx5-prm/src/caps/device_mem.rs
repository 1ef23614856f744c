//! Device memory capabilities.

layout! {
    /// Memory on the card. PRM `device_mem_cap`.
    pub struct DeviceMemCap: 0x100, "mlx5_ifc_device_mem_cap_bits" {
        0x00 [31] memic: bool,
        0x04 [31:24] increment_size_sup: u8,
        0x04 [20:16] log_min_memic_alloc_size: u8,
        0x04 [15:8] test_and_set_size_sup: u8,
        0x04 [7:0] log_max_memic_addr_alignment: u8,
        0x08 [63:0] memic_bar_start_addr: u64,
        0x10 [31:0] memic_bar_size: u32,
        0x14 [31:0] max_memic_size: u32,
        0x18 [63:0] steering_sw_icm_start_address: u64,
        0x20 [23:16] log_header_modify_sw_icm_size: u8,
        0x20 [13:8] log_sw_icm_alloc_granularity: u8,
        0x20 [7:0] log_steering_sw_icm_size: u8,
        0x24 [31:24] log_indirect_encap_sw_icm_size: u8,
        0x24 [7:0] log_header_modify_pattern_sw_icm_size: u8,
        0x28 [63:0] header_modify_sw_icm_start_address: u64,
        0x38 [63:0] header_modify_pattern_sw_icm_start_address: u64,
        0x40 [31:0] memic_operations: u32,
        0x48 [63:0] indirect_encap_sw_icm_start_address: u64,
    }
}
