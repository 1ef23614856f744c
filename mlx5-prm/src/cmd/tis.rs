//! Transport interfaces send: what send queues share.

use super::command::commands;
use super::{CmdStatus, Opcode};
use crate::ctx::{ModifyTisBitmask, Tisc};

layout! {
    /// Input of `CREATE_TIS`: makes a transport interface send.
    pub struct CreateTisIn: 0xc0, "mlx5_ifc_create_tis_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::CreateTis,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x20 ctx: Tisc,
    }

    /// Output of `CREATE_TIS`.
    pub struct CreateTisOut: 0x10, "mlx5_ifc_create_tis_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [23:0] tisn: u32,
    }

    /// Input of `MODIFY_TIS`: changes the fields of a transport interface send that `bitmask` names.
    pub struct ModifyTisIn: 0xc0, "mlx5_ifc_modify_tis_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::ModifyTis,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] tisn: u32,
        0x10 bitmask: ModifyTisBitmask,
        0x20 ctx: Tisc,
    }

    /// Output of `MODIFY_TIS`.
    pub struct ModifyTisOut: 0x10, "mlx5_ifc_modify_tis_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `DESTROY_TIS`: ends a transport interface send.
    pub struct DestroyTisIn: 0x10, "mlx5_ifc_destroy_tis_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::DestroyTis,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] tisn: u32,
    }

    /// Output of `DESTROY_TIS`.
    pub struct DestroyTisOut: 0x10, "mlx5_ifc_destroy_tis_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `QUERY_TIS`: reads a transport interface send.
    pub struct QueryTisIn: 0x10, "mlx5_ifc_query_tis_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryTis,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] tisn: u32,
    }

    /// Output of `QUERY_TIS`.
    pub struct QueryTisOut: 0xb0, "mlx5_ifc_query_tis_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 tis_context: Tisc,
    }
}

commands! {
    CreateTis: CreateTisIn => CreateTisOut,
    ModifyTis: ModifyTisIn => ModifyTisOut,
    DestroyTis: DestroyTisIn => DestroyTisOut,
    QueryTis: QueryTisIn => QueryTisOut,
}
