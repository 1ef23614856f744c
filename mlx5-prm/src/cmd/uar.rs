//! User access regions.

use super::command::commands;
use super::{CmdStatus, Opcode};

layout! {
    /// Input of `ALLOC_UAR`: takes a user access region.
    pub struct AllocUarIn: 0x10, "mlx5_ifc_alloc_uar_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::AllocUar,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
    }

    /// Output of `ALLOC_UAR`.
    pub struct AllocUarOut: 0x10, "mlx5_ifc_alloc_uar_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [23:0] uar: u32,
    }

    /// Input of `DEALLOC_UAR`: gives a user access region back.
    pub struct DeallocUarIn: 0x10, "mlx5_ifc_dealloc_uar_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::DeallocUar,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] uar: u32,
    }

    /// Output of `DEALLOC_UAR`.
    pub struct DeallocUarOut: 0x10, "mlx5_ifc_dealloc_uar_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

commands! {
    AllocUar: AllocUarIn => AllocUarOut,
    DeallocUar: DeallocUarIn => DeallocUarOut,
}
