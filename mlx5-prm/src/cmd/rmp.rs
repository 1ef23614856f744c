//! Receive memory pools: buffers that receive queues share.

use super::command::commands;
use super::{CmdStatus, Opcode};
use crate::ctx::{QueueState, RmpBitmask, Rmpc};

layout! {
    /// Input of `CREATE_RMP`: makes a receive memory pool; its pages follow unless it lies in a umem.
    pub struct CreateRmpIn: 0x110, "mlx5_ifc_create_rmp_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::CreateRmp,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x20 ctx: Rmpc,
    }

    /// Output of `CREATE_RMP`.
    pub struct CreateRmpOut: 0x10, "mlx5_ifc_create_rmp_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [23:0] rmpn: u32,
    }

    /// Input of `MODIFY_RMP`: moves a receive memory pool to another state, and changes the fields that `bitmask`
    /// names.
    pub struct ModifyRmpIn: 0x110, "mlx5_ifc_modify_rmp_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::ModifyRmp,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [31:28] rmp_state: QueueState,
        0x08 [23:0] rmpn: u32,
        0x10 bitmask: RmpBitmask,
        0x20 ctx: Rmpc,
    }

    /// Output of `MODIFY_RMP`.
    pub struct ModifyRmpOut: 0x10, "mlx5_ifc_modify_rmp_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `DESTROY_RMP`: ends a receive memory pool.
    pub struct DestroyRmpIn: 0x10, "mlx5_ifc_destroy_rmp_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::DestroyRmp,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] rmpn: u32,
    }

    /// Output of `DESTROY_RMP`.
    pub struct DestroyRmpOut: 0x10, "mlx5_ifc_destroy_rmp_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `QUERY_RMP`: reads a receive memory pool.
    pub struct QueryRmpIn: 0x10, "mlx5_ifc_query_rmp_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryRmp,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] rmpn: u32,
    }

    /// Output of `QUERY_RMP`.
    pub struct QueryRmpOut: 0x110, "mlx5_ifc_query_rmp_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x20 rmp_context: Rmpc,
    }
}

commands! {
    CreateRmp: CreateRmpIn => CreateRmpOut,
    ModifyRmp: ModifyRmpIn => ModifyRmpOut,
    DestroyRmp: DestroyRmpIn => DestroyRmpOut,
    QueryRmp: QueryRmpIn => QueryRmpOut,
}
