//! Transport interfaces receive: how packets find receive queues.

use super::command::commands;
use super::{CmdStatus, Opcode};
use crate::ctx::{ModifyTirBitmask, Tirc};

layout! {
    /// Input of `CREATE_TIR`: makes a transport interface receive.
    pub struct CreateTirIn: 0x110, "mlx5_ifc_create_tir_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::CreateTir,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x20 ctx: Tirc,
    }

    /// Output of `CREATE_TIR`.
    pub struct CreateTirOut: 0x10, "mlx5_ifc_create_tir_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x00 [23:0] icm_address_63_40: u32,
        0x04 [31:0] syndrome: u32,
        0x08 [31:24] icm_address_39_32: u8,
        0x08 [23:0] tirn: u32,
        0x0c [31:0] icm_address_31_0: u32,
    }

    /// Input of `MODIFY_TIR`: changes the fields of a transport interface receive that `bitmask` names.
    pub struct ModifyTirIn: 0x110, "mlx5_ifc_modify_tir_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::ModifyTir,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] tirn: u32,
        0x10 bitmask: ModifyTirBitmask,
        0x20 ctx: Tirc,
    }

    /// Output of `MODIFY_TIR`.
    pub struct ModifyTirOut: 0x10, "mlx5_ifc_modify_tir_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `DESTROY_TIR`: ends a transport interface receive.
    pub struct DestroyTirIn: 0x10, "mlx5_ifc_destroy_tir_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::DestroyTir,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] tirn: u32,
    }

    /// Output of `DESTROY_TIR`.
    pub struct DestroyTirOut: 0x10, "mlx5_ifc_destroy_tir_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `QUERY_TIR`: reads a transport interface receive.
    pub struct QueryTirIn: 0x10, "mlx5_ifc_query_tir_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryTir,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] tirn: u32,
    }

    /// Output of `QUERY_TIR`.
    pub struct QueryTirOut: 0x110, "mlx5_ifc_query_tir_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x20 tir_context: Tirc,
    }
}

commands! {
    CreateTir: CreateTirIn => CreateTirOut,
    ModifyTir: ModifyTirIn => ModifyTirOut,
    DestroyTir: DestroyTirIn => DestroyTirOut,
    QueryTir: QueryTirIn => QueryTirOut,
}
