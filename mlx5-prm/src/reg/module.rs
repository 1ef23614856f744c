//! Registers of the modules (cables, transceivers) and of the port's beacon.

use crate::layout::Be32;

layout! {
    /// Which lanes of which module a port uses: register `PMLP`. PRM `pmlp_reg`.
    pub struct PmlpReg: 0x40, "mlx5_ifc_pmlp_reg_bits" {
        0x00 [31] rxtx: bool,
        0x00 [23:16] local_port: u8,
        0x00 [7:0] width: u8,
        0x04 [31:0] lane0_module_mapping: u32,
        0x08 [31:0] lane1_module_mapping: u32,
        0x0c [31:0] lane2_module_mapping: u32,
        0x10 [31:0] lane3_module_mapping: u32,
    }

    /// One lane of `PMLP`. PRM `lane_2_module_mapping`.
    pub struct Lane2ModuleMapping: 0x4, "mlx5_ifc_lane_2_module_mapping_bits" {
        0x00 [27:24] rx_lane: u8,
        0x00 [19:16] tx_lane: u8,
        0x00 [7:0] module: u8,
    }

    /// Negotiation of a port's lanes: register `PMLPN`. PRM `pmlpn_reg`.
    pub struct PmlpnReg: 0x8, "mlx5_ifc_pmlpn_reg_bits" {
        0x00 [27:24] mlpn_status: u8,
        0x00 [23:16] local_port: u8,
        0x04 [31] e: bool,
    }

    /// Administrative and operational status of a module: register `PMAOS`. PRM `pmaos_reg`.
    pub struct PmaosReg: 0x10, "mlx5_ifc_pmaos_reg_bits" {
        0x00 [23:16] module: u8,
        0x00 [11:8] admin_status: u8,
        0x00 [3:0] oper_status: u8,
        0x04 [31] ase: bool,
        0x04 [30] ee: bool,
        0x04 [1:0] e: u8,
    }

    /// A module was plugged or unplugged: register `PMPE`, delivered as an event. PRM `pmpe_reg`.
    pub struct PmpeReg: 0x10, "mlx5_ifc_pmpe_reg_bits" {
        0x00 [23:16] module: u8,
        0x00 [3:0] module_status: u8,
    }

    /// Attenuation of a module's copper: register `PMPR`. PRM `pmpr_reg`.
    pub struct PmprReg: 0x10, "mlx5_ifc_pmpr_reg_bits" {
        0x00 [23:16] module: u8,
        0x04 [7:0] attenuation_5g: u8,
        0x08 [7:0] attenuation_7g: u8,
        0x0c [7:0] attenuation_12g: u8,
    }

    /// Which modules changed state: register `PMPC`. PRM `pmpc_reg`.
    pub struct PmpcReg: 0x20, "mlx5_ifc_pmpc_reg_bits" {
        0x00 module_state_updated: [u8; 32],
    }

    /// Access to a cable's EEPROM: register `MCIA`. PRM `mcia_reg`.
    pub struct MciaReg: 0x90, "mlx5_ifc_mcia_reg_bits" {
        0x00 [31] l: bool,
        0x00 [23:16] module: u8,
        0x00 [7:0] status: u8,
        0x04 [31:24] i2c_device_address: u8,
        0x04 [23:16] page_number: u8,
        0x04 [15:0] device_address: u16,
        0x08 [15:0] size: u16,
        0x10 dwords: [Be32; 32],
    }

    /// Blinking of a port's LED: register `MLCR`. PRM `mlcr_reg`.
    pub struct MlcrReg: 0xc, "mlx5_ifc_mlcr_reg_bits" {
        0x00 [23:16] local_port: u8,
        0x04 [15:0] beacon_duration: u16,
        0x08 [15:0] beacon_remain: u16,
    }
}
