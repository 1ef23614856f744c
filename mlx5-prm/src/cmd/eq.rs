//! Event queues.

use super::command::commands;
use super::{CmdStatus, Opcode};
use crate::ctx::Eqc;
use crate::eqe::Eqe;
use crate::layout::Be64;

layout! {
    /// Input of `CREATE_EQ`: makes an event queue; the pages of its ring follow.
    pub struct CreateEqIn: 0x110, "mlx5_ifc_create_eq_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::CreateEq,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x10 eq_context_entry: Eqc,
        0x58 event_bitmask: [Be64; 4],
        .. pas: [Be64],
    }

    /// Output of `CREATE_EQ`.
    pub struct CreateEqOut: 0x10, "mlx5_ifc_create_eq_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [7:0] eq_number: u8,
    }

    /// Input of `DESTROY_EQ`: ends an event queue.
    pub struct DestroyEqIn: 0x10, "mlx5_ifc_destroy_eq_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::DestroyEq,
        0x04 [15:0] op_mod: u16,
        0x08 [7:0] eq_number: u8,
    }

    /// Output of `DESTROY_EQ`.
    pub struct DestroyEqOut: 0x10, "mlx5_ifc_destroy_eq_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `QUERY_EQ`: reads an event queue's context.
    pub struct QueryEqIn: 0x10, "mlx5_ifc_query_eq_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryEq,
        0x04 [15:0] op_mod: u16,
        0x08 [7:0] eq_number: u8,
    }

    /// Output of `QUERY_EQ`.
    pub struct QueryEqOut: 0x110, "mlx5_ifc_query_eq_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 eq_context_entry: Eqc,
        0x58 [63:0] event_bitmask: u64,
        .. pas: [Be64],
    }

    /// Input of `GEN_EQE`: puts an entry into an event queue.
    pub struct GenEqeIn: 0x50, "mlx5_ifc_gen_eqe_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::GenEqe,
        0x04 [15:0] op_mod: u16,
        0x08 [7:0] eq_number: u8,
        0x10 eqe: Eqe,
    }

    /// Output of `GEN_EQE`.
    pub struct GenEqeOut: 0x10, "mlx5_ifc_gen_eq_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

commands! {
    GenEqe: GenEqeIn => GenEqeOut,
    CreateEq: CreateEqIn => CreateEqOut,
    DestroyEq: DestroyEqIn => DestroyEqOut,
    QueryEq: QueryEqIn => QueryEqOut,
}
