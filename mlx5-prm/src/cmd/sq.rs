//! Send queues.

use super::command::commands;
use super::{CmdStatus, Opcode};
use crate::ctx::{QueueState, Sqc};

layout! {
    /// Input of `CREATE_SQ`: makes a send queue in state RST; its pages follow unless it lies in a umem.
    pub struct CreateSqIn: 0x110, "mlx5_ifc_create_sq_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::CreateSq,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x20 ctx: Sqc,
    }

    /// Output of `CREATE_SQ`.
    pub struct CreateSqOut: 0x10, "mlx5_ifc_create_sq_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [23:0] sqn: u32,
    }

    /// Input of `MODIFY_SQ`: moves a send queue to another state, and changes the fields that `modify_bitmask` names.
    pub struct ModifySqIn: 0x110, "mlx5_ifc_modify_sq_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::ModifySq,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [31:28] sq_state: QueueState,
        0x08 [23:0] sqn: u32,
        0x10 [63:0] modify_bitmask: u64,
        0x20 ctx: Sqc,
    }

    /// Output of `MODIFY_SQ`.
    pub struct ModifySqOut: 0x10, "mlx5_ifc_modify_sq_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `DESTROY_SQ`: ends a send queue.
    pub struct DestroySqIn: 0x10, "mlx5_ifc_destroy_sq_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::DestroySq,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] sqn: u32,
    }

    /// Output of `DESTROY_SQ`.
    pub struct DestroySqOut: 0x10, "mlx5_ifc_destroy_sq_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `QUERY_SQ`: reads a send queue.
    pub struct QuerySqIn: 0x10, "mlx5_ifc_query_sq_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QuerySq,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] sqn: u32,
    }

    /// Output of `QUERY_SQ`.
    pub struct QuerySqOut: 0x110, "mlx5_ifc_query_sq_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x20 sq_context: Sqc,
    }
}

commands! {
    CreateSq: CreateSqIn => CreateSqOut,
    ModifySq: ModifySqIn => ModifySqOut,
    DestroySq: DestroySqIn => DestroySqOut,
    QuerySq: QuerySqIn => QuerySqOut,
}
