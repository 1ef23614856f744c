//! Protection signature values: where signature checks keep their state.

use super::command::commands;
use super::{CmdStatus, Opcode};

layout! {
    /// Input of `CREATE_PSV`: makes up to four protection signature values.
    pub struct CreatePsvIn: 0x10, "mlx5_ifc_create_psv_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::CreatePsv,
        0x04 [15:0] op_mod: u16,
        0x08 [31:28] num_psv: u8,
        0x08 [23:0] pd: u32,
    }

    /// Output of `CREATE_PSV`.
    pub struct CreatePsvOut: 0x20, "mlx5_ifc_create_psv_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 [23:0] psv0_index: u32,
        0x14 [23:0] psv1_index: u32,
        0x18 [23:0] psv2_index: u32,
        0x1c [23:0] psv3_index: u32,
    }

    /// Input of `DESTROY_PSV`: ends a protection signature value.
    pub struct DestroyPsvIn: 0x10, "mlx5_ifc_destroy_psv_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::DestroyPsv,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] psvn: u32,
    }

    /// Output of `DESTROY_PSV`.
    pub struct DestroyPsvOut: 0x10, "mlx5_ifc_destroy_psv_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

commands! {
    CreatePsv: CreatePsvIn => CreatePsvOut,
    DestroyPsv: DestroyPsvIn => DestroyPsvOut,
}
