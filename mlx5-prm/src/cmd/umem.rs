//! User memory known to the card by number, and the user contexts that own it.

use super::command::commands;
use super::{CmdStatus, Opcode};
use crate::ctx::{Uctx, Umem};

layout! {
    /// Input of `CREATE_UMEM`: gives user memory a number; its translations follow.
    pub struct CreateUmemIn: 0x30, "mlx5_ifc_create_umem_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::CreateUmem,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x10 umem: Umem,
    }

    /// Output of `CREATE_UMEM`.
    pub struct CreateUmemOut: 0x10, "mlx5_ifc_create_umem_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [23:0] umem_id: u32,
    }

    /// Input of `DESTROY_UMEM`: ends a umem that no object lies in.
    pub struct DestroyUmemIn: 0x10, "mlx5_ifc_destroy_umem_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::DestroyUmem,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] umem_id: u32,
    }

    /// Output of `DESTROY_UMEM`.
    pub struct DestroyUmemOut: 0x10, "mlx5_ifc_destroy_umem_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `CREATE_UCTX`: makes a user context, whose number marks what one process may touch.
    pub struct CreateUctxIn: 0x40, "mlx5_ifc_create_uctx_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::CreateUctx,
        0x04 [15:0] op_mod: u16,
        0x10 uctx: Uctx,
    }

    /// Output of `CREATE_UCTX`.
    pub struct CreateUctxOut: 0x10, "mlx5_ifc_create_uctx_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [15:0] uid: u16,
    }

    /// Input of `DESTROY_UCTX`: ends a user context.
    pub struct DestroyUctxIn: 0x10, "mlx5_ifc_destroy_uctx_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::DestroyUctx,
        0x04 [15:0] op_mod: u16,
        0x08 [15:0] uid: u16,
    }

    /// Output of `DESTROY_UCTX`.
    pub struct DestroyUctxOut: 0x10, "mlx5_ifc_destroy_uctx_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

commands! {
    CreateUmem: CreateUmemIn => CreateUmemOut,
    DestroyUmem: DestroyUmemIn => DestroyUmemOut,
    CreateUctx: CreateUctxIn => CreateUctxOut,
    DestroyUctx: DestroyUctxIn => DestroyUctxOut,
}
