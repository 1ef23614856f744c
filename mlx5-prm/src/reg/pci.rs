//! Registers of the PCIe link.

layout! {
    /// PCIe link: width, speed, state: register `MPEIN`. PRM `mpein_reg`.
    pub struct MpeinReg: 0x30, "mlx5_ifc_mpein_reg_bits" {
        0x00 [29:24] depth: u8,
        0x00 [23:16] pcie_index: u8,
        0x00 [15:8] node: u8,
        0x04 [31:0] capability_mask: u32,
        0x08 [23:16] link_width_enabled: u8,
        0x08 [15:0] link_speed_enabled: u16,
        0x0c [31:24] lane0_physical_position: u8,
        0x0c [23:16] link_width_active: u8,
        0x0c [15:0] link_speed_active: u16,
        0x10 [31:16] num_of_pfs: u16,
        0x10 [15:0] num_of_vfs: u16,
        0x14 [31:16] bdf0: u16,
        0x18 [31:28] max_read_request_size: u8,
        0x18 [27:24] max_payload_size: u8,
        0x18 [18:16] pwr_status: u8,
        0x18 [15:12] port_type: u8,
        0x18 [0] lane_reversal: bool,
        0x1c [11:0] pci_power: u16,
        0x24 [31:16] device_status: u16,
        0x24 [15:8] port_state: u8,
        0x28 [15:0] receiver_detect_result: u16,
    }

    /// What happens when data towards PCIe overflows: register `MPEGC`. PRM `mpegc_reg`.
    pub struct MpegcReg: 0x2c, "mlx5_ifc_mpegc_reg_bits" {
        0x04 [15:0] field_select: u16,
        0x08 [31] tx_overflow_sense: bool,
        0x08 [30] mark_cqe: bool,
        0x08 [29] mark_cnp: bool,
        0x08 [1:0] tx_lossy_overflow_oper: u8,
    }

    /// Which PCIe buses of several a port's hosts use: register `MPIR`. PRM `mpir_reg`.
    pub struct MpirReg: 0x10, "mlx5_ifc_mpir_reg_bits" {
        0x00 [31] sdm: bool,
        0x00 [3:0] host_buses: u8,
        0x08 [31:24] local_port: u8,
    }

    /// How much power the card may save: register `REGISTER_POWER_SETTINGS`. PRM `register_power_settings`.
    pub struct RegisterPowerSettings: 0x10, "mlx5_ifc_register_power_settings_bits" {
        0x00 [7:0] power_settings_level: u8,
    }
}
