//! Registers of the temperature sensors.

layout! {
    /// Which sensors there are: register `MTCAP`. PRM `mtcap_reg`.
    pub struct MtcapReg: 0x10, "mlx5_ifc_mtcap_reg_bits" {
        0x00 [6:0] sensor_count: u8,
        0x08 [63:0] sensor_map: u64,
    }

    /// One sensor: register `MTMP`. PRM `mtmp_reg`.
    pub struct MtmpReg: 0x20, "mlx5_ifc_mtmp_reg_bits" {
        0x00 [11:0] sensor_index: u16,
        0x04 [15:0] temperature: u16,
        0x08 [31] mte: bool,
        0x08 [30] mtr: bool,
        0x08 [15:0] max_temperature: u16,
        0x0c [31:30] tee: u8,
        0x0c [15:0] temp_threshold_hi: u16,
        0x10 [15:0] temp_threshold_lo: u16,
        0x18 [31:0] sensor_name_hi: u32,
        0x1c [31:0] sensor_name_lo: u32,
    }
}
