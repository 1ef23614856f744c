//! Registers of synchronous Ethernet.

layout! {
    /// Quality of the local clock: register `MSECQ`. PRM `msecq_reg`.
    pub struct MsecqReg: 0x40, "mlx5_ifc_msecq_reg_bits" {
        0x04 [13:12] network_option: u8,
        0x04 [11:8] local_ssm_code: u8,
        0x04 [7:0] local_enhanced_ssm_code: u8,
        0x08 [63:0] local_clock_identity: u64,
    }

    /// State of synchronous Ethernet on a port: register `MSEES`. PRM `msees_reg`.
    pub struct MseesReg: 0x40, "mlx5_ifc_msees_reg_bits" {
        0x00 [23:16] local_port: u8,
        0x00 [15:14] pnat: u8,
        0x00 [13:12] lp_msb: u8,
        0x04 [31:0] field_select: u32,
        0x08 [31:28] admin_status: u8,
        0x08 [27:24] oper_status: u8,
        0x08 [23] ho_acq: bool,
        0x08 [10] admin_freq_measure: bool,
        0x08 [9] oper_freq_measure: bool,
        0x08 [8:0] failure_reason: u16,
        0x0c [31:0] frequency_diff: u32,
    }
}
