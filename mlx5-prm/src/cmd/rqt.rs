//! Receive queue tables: the queues that packets are spread over.

use super::command::commands;
use super::{CmdStatus, Opcode};
use crate::ctx::{RqtBitmask, Rqtc};

layout! {
    /// Input of `CREATE_RQT`: makes a table of receive queues, whose numbers follow.
    pub struct CreateRqtIn: 0x110, "mlx5_ifc_create_rqt_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::CreateRqt,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x20 rqt_context: Rqtc,
    }

    /// Output of `CREATE_RQT`.
    pub struct CreateRqtOut: 0x10, "mlx5_ifc_create_rqt_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [23:0] rqtn: u32,
    }

    /// Input of `MODIFY_RQT`: changes the queues of a table.
    pub struct ModifyRqtIn: 0x110, "mlx5_ifc_modify_rqt_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::ModifyRqt,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] rqtn: u32,
        0x10 bitmask: RqtBitmask,
        0x20 ctx: Rqtc,
    }

    /// Output of `MODIFY_RQT`.
    pub struct ModifyRqtOut: 0x10, "mlx5_ifc_modify_rqt_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `DESTROY_RQT`: ends a table of receive queues.
    pub struct DestroyRqtIn: 0x10, "mlx5_ifc_destroy_rqt_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::DestroyRqt,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] rqtn: u32,
    }

    /// Output of `DESTROY_RQT`.
    pub struct DestroyRqtOut: 0x10, "mlx5_ifc_destroy_rqt_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `QUERY_RQT`: reads a table of receive queues.
    pub struct QueryRqtIn: 0x10, "mlx5_ifc_query_rqt_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryRqt,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] rqtn: u32,
    }

    /// Output of `QUERY_RQT`.
    pub struct QueryRqtOut: 0x110, "mlx5_ifc_query_rqt_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x20 rqt_context: Rqtc,
    }
}

commands! {
    CreateRqt: CreateRqtIn => CreateRqtOut,
    ModifyRqt: ModifyRqtIn => ModifyRqtOut,
    DestroyRqt: DestroyRqtIn => DestroyRqtOut,
    QueryRqt: QueryRqtIn => QueryRqtOut,
}
