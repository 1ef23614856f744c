//! Queue counters.

use super::command::commands;
use super::{CmdStatus, Opcode};

layout! {
    /// Input of `ALLOC_Q_COUNTER`: makes a set of queue counters.
    pub struct AllocQCounterIn: 0x10, "mlx5_ifc_alloc_q_counter_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::AllocQCounter,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
    }

    /// Output of `ALLOC_Q_COUNTER`.
    pub struct AllocQCounterOut: 0x10, "mlx5_ifc_alloc_q_counter_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [7:0] counter_set_id: u8,
    }

    /// Input of `DEALLOC_Q_COUNTER`: ends a set of queue counters.
    pub struct DeallocQCounterIn: 0x10, "mlx5_ifc_dealloc_q_counter_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::DeallocQCounter,
        0x04 [15:0] op_mod: u16,
        0x08 [7:0] counter_set_id: u8,
    }

    /// Output of `DEALLOC_Q_COUNTER`.
    pub struct DeallocQCounterOut: 0x10, "mlx5_ifc_dealloc_q_counter_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `QUERY_Q_COUNTER`: reads a set of queue counters, and clears it if asked.
    pub struct QueryQCounterIn: 0x20, "mlx5_ifc_query_q_counter_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryQCounter,
        0x04 [15:0] op_mod: u16,
        0x08 [31] other_vport: bool,
        0x08 [15:0] vport_number: u16,
        0x18 [31] clear: bool,
        0x18 [30] aggregate: bool,
        0x1c [7:0] counter_set_id: u8,
    }

    /// Output of `QUERY_Q_COUNTER`.
    pub struct QueryQCounterOut: 0x100, "mlx5_ifc_query_q_counter_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 [31:0] rx_write_requests: u32,
        0x18 [31:0] rx_read_requests: u32,
        0x20 [31:0] rx_atomic_requests: u32,
        0x28 [31:0] rx_dct_connect: u32,
        0x30 [31:0] out_of_buffer: u32,
        0x38 [31:0] out_of_sequence: u32,
        0x40 [31:0] duplicate_request: u32,
        0x48 [31:0] rnr_nak_retry_err: u32,
        0x50 [31:0] packet_seq_err: u32,
        0x58 [31:0] implied_nak_seq_err: u32,
        0x60 [31:0] local_ack_timeout_err: u32,
        0x70 [31:0] req_rnr_retries_exceeded: u32,
        0x78 [31:0] resp_local_length_error: u32,
        0x7c [31:0] req_local_length_error: u32,
        0x80 [31:0] resp_local_qp_error: u32,
        0x84 [31:0] local_operation_error: u32,
        0x88 [31:0] resp_local_protection: u32,
        0x8c [31:0] req_local_protection: u32,
        0x90 [31:0] resp_cqe_error: u32,
        0x94 [31:0] req_cqe_error: u32,
        0x98 [31:0] req_mw_binding: u32,
        0x9c [31:0] req_bad_response: u32,
        0xa0 [31:0] req_remote_invalid_request: u32,
        0xa4 [31:0] resp_remote_invalid_request: u32,
        0xa8 [31:0] req_remote_access_errors: u32,
        0xac [31:0] resp_remote_access_errors: u32,
        0xb0 [31:0] req_remote_operation_errors: u32,
        0xb4 [31:0] req_transport_retries_exceeded: u32,
        0xb8 [31:0] cq_overflow: u32,
        0xbc [31:0] resp_cqe_flush_error: u32,
        0xc0 [31:0] req_cqe_flush_error: u32,
        0xc8 [31:0] roce_adp_retrans: u32,
        0xcc [31:0] roce_adp_retrans_to: u32,
        0xd0 [31:0] roce_slow_restart: u32,
        0xd4 [31:0] roce_slow_restart_cnps: u32,
        0xd8 [31:0] roce_slow_restart_trans: u32,
    }
}

commands! {
    AllocQCounter: AllocQCounterIn => AllocQCounterOut,
    DeallocQCounter: DeallocQCounterIn => DeallocQCounterOut,
    QueryQCounter: QueryQCounterIn => QueryQCounterOut,
}
