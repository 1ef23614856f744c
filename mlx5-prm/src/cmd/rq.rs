//! Receive queues.

use super::command::commands;
use super::{CmdStatus, Opcode};
use crate::ctx::{QueueState, Rqc};

layout! {
    /// Input of `CREATE_RQ`: makes a receive queue in state RST; its pages follow unless it lies in a umem.
    pub struct CreateRqIn: 0x110, "mlx5_ifc_create_rq_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::CreateRq,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x20 ctx: Rqc,
    }

    /// Output of `CREATE_RQ`.
    pub struct CreateRqOut: 0x10, "mlx5_ifc_create_rq_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [23:0] rqn: u32,
    }

    /// Input of `MODIFY_RQ`: moves a receive queue to another state, and changes the fields that `modify_bitmask`
    /// names.
    pub struct ModifyRqIn: 0x110, "mlx5_ifc_modify_rq_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::ModifyRq,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [31:28] rq_state: QueueState,
        0x08 [23:0] rqn: u32,
        0x10 [63:0] modify_bitmask: u64,
        0x20 ctx: Rqc,
    }

    /// Output of `MODIFY_RQ`.
    pub struct ModifyRqOut: 0x10, "mlx5_ifc_modify_rq_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `DESTROY_RQ`: ends a receive queue.
    pub struct DestroyRqIn: 0x10, "mlx5_ifc_destroy_rq_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::DestroyRq,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] rqn: u32,
    }

    /// Output of `DESTROY_RQ`.
    pub struct DestroyRqOut: 0x10, "mlx5_ifc_destroy_rq_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `QUERY_RQ`: reads a receive queue.
    pub struct QueryRqIn: 0x10, "mlx5_ifc_query_rq_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryRq,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] rqn: u32,
    }

    /// Output of `QUERY_RQ`.
    pub struct QueryRqOut: 0x110, "mlx5_ifc_query_rq_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x20 rq_context: Rqc,
    }

    /// Input of `SET_DELAY_DROP_PARAMS`: sets how long a packet waits for a receive buffer before it is dropped.
    pub struct SetDelayDropParamsIn: 0x10, "mlx5_ifc_set_delay_drop_params_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::SetDelayDropParams,
        0x04 [15:0] op_mod: u16,
        0x0c [15:0] delay_drop_timeout: u16,
    }

    /// Output of `SET_DELAY_DROP_PARAMS`.
    pub struct SetDelayDropParamsOut: 0x10, "mlx5_ifc_set_delay_drop_params_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

commands! {
    CreateRq: CreateRqIn => CreateRqOut,
    ModifyRq: ModifyRqIn => ModifyRqOut,
    DestroyRq: DestroyRqIn => DestroyRqOut,
    QueryRq: QueryRqIn => QueryRqOut,
    SetDelayDropParams: SetDelayDropParamsIn => SetDelayDropParamsOut,
}
