//! Wake on LAN.

use super::command::commands;
use super::{CmdStatus, Opcode};

layout! {
    /// Input of `SET_WOL_ROL`: sets which packets wake the host, or reset it.
    pub struct SetWolRolIn: 0x10, "mlx5_ifc_set_wol_rol_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::SetWolRol,
        0x04 [15:0] op_mod: u16,
        0x08 [31] rol_mode_valid: bool,
        0x08 [30] wol_mode_valid: bool,
        0x08 [15:8] rol_mode: u8,
        0x08 [7:0] wol_mode: u8,
    }

    /// Output of `SET_WOL_ROL`.
    pub struct SetWolRolOut: 0x10, "mlx5_ifc_set_wol_rol_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `QUERY_WOL_ROL`: reads which packets wake the host, or reset it.
    pub struct QueryWolRolIn: 0x10, "mlx5_ifc_query_wol_rol_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryWolRol,
        0x04 [15:0] op_mod: u16,
    }

    /// Output of `QUERY_WOL_ROL`.
    pub struct QueryWolRolOut: 0x10, "mlx5_ifc_query_wol_rol_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [15:8] rol_mode: u8,
        0x08 [7:0] wol_mode: u8,
    }
}

commands! {
    SetWolRol: SetWolRolIn => SetWolRolOut,
    QueryWolRol: QueryWolRolIn => QueryWolRolOut,
}
