//! Dynamically connected targets.

use super::command::commands;
use super::{CmdStatus, Opcode};
use crate::ctx::Dctc;

layout! {
    /// Input of `CREATE_DCT`: makes a dynamically connected target.
    pub struct CreateDctIn: 0x80, "mlx5_ifc_create_dct_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::CreateDct,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x10 dct_context_entry: Dctc,
    }

    /// Output of `CREATE_DCT`.
    pub struct CreateDctOut: 0x10, "mlx5_ifc_create_dct_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [23:0] dctn: u32,
        0x0c [31:0] ece: u32,
    }

    /// Input of `DESTROY_DCT`: ends a drained target.
    pub struct DestroyDctIn: 0x10, "mlx5_ifc_destroy_dct_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::DestroyDct,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] dctn: u32,
    }

    /// Output of `DESTROY_DCT`.
    pub struct DestroyDctOut: 0x10, "mlx5_ifc_destroy_dct_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `DRAIN_DCT`: drains a target before its destruction; an event reports completion.
    pub struct DrainDctIn: 0x10, "mlx5_ifc_drain_dct_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::DrainDct,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] dctn: u32,
    }

    /// Output of `DRAIN_DCT`.
    pub struct DrainDctOut: 0x10, "mlx5_ifc_drain_dct_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `QUERY_DCT`: reads a target.
    pub struct QueryDctIn: 0x10, "mlx5_ifc_query_dct_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryDct,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] dctn: u32,
    }

    /// Output of `QUERY_DCT`.
    pub struct QueryDctOut: 0x80, "mlx5_ifc_query_dct_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 dct_context_entry: Dctc,
    }

    /// Input of `ARM_DCT_FOR_KEY_VIOLATION`: asks for an event on the next message with a wrong access key.
    pub struct ArmDctIn: 0x10, "mlx5_ifc_arm_dct_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::ArmDctForKeyViolation,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] dct_number: u32,
    }

    /// Output of `ARM_DCT_FOR_KEY_VIOLATION`.
    pub struct ArmDctOut: 0x10, "mlx5_ifc_arm_dct_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

commands! {
    CreateDct: CreateDctIn => CreateDctOut,
    DestroyDct: DestroyDctIn => DestroyDctOut,
    DrainDct: DrainDctIn => DrainDctOut,
    QueryDct: QueryDctIn => QueryDctOut,
    ArmDctForKeyViolation: ArmDctIn => ArmDctOut,
}
