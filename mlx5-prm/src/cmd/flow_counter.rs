//! Flow counters.

use super::command::commands;
use super::{CmdStatus, Opcode};
use crate::ctx::TrafficCounter;

layout! {
    /// Input of `ALLOC_FLOW_COUNTER`: makes a flow counter, or many.
    pub struct AllocFlowCounterIn: 0x10, "mlx5_ifc_alloc_flow_counter_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::AllocFlowCounter,
        0x04 [15:0] op_mod: u16,
        0x0c [12:8] flow_counter_bulk_log_size: u8,
        0x0c [7:0] flow_counter_bulk: u8,
    }

    /// Output of `ALLOC_FLOW_COUNTER`.
    pub struct AllocFlowCounterOut: 0x10, "mlx5_ifc_alloc_flow_counter_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [31:0] flow_counter_id: u32,
    }

    /// Input of `DEALLOC_FLOW_COUNTER`: ends a flow counter, or what was made with it.
    pub struct DeallocFlowCounterIn: 0x10, "mlx5_ifc_dealloc_flow_counter_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::DeallocFlowCounter,
        0x04 [15:0] op_mod: u16,
        0x08 [31:0] flow_counter_id: u32,
    }

    /// Output of `DEALLOC_FLOW_COUNTER`.
    pub struct DeallocFlowCounterOut: 0x10, "mlx5_ifc_dealloc_flow_counter_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `QUERY_FLOW_COUNTER`: reads flow counters, and clears them if asked.
    pub struct QueryFlowCounterIn: 0x20, "mlx5_ifc_query_flow_counter_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryFlowCounter,
        0x04 [15:0] op_mod: u16,
        0x18 [31] clear: bool,
        0x18 [15:0] num_of_counters: u16,
        0x1c [31:0] flow_counter_id: u32,
    }

    /// Output of `QUERY_FLOW_COUNTER`.
    pub struct QueryFlowCounterOut: 0x10, "mlx5_ifc_query_flow_counter_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        .. flow_statistics: [TrafficCounter],
    }
}

commands! {
    AllocFlowCounter: AllocFlowCounterIn => AllocFlowCounterOut,
    DeallocFlowCounter: DeallocFlowCounterIn => DeallocFlowCounterOut,
    QueryFlowCounter: QueryFlowCounterIn => QueryFlowCounterOut,
}
