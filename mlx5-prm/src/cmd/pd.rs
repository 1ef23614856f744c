//! Protection domains.

use super::command::commands;
use super::{CmdStatus, Opcode};

layout! {
    /// Input of `ALLOC_PD`: makes a protection domain.
    pub struct AllocPdIn: 0x10, "mlx5_ifc_alloc_pd_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::AllocPd,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
    }

    /// Output of `ALLOC_PD`.
    pub struct AllocPdOut: 0x10, "mlx5_ifc_alloc_pd_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [23:0] pd: u32,
    }

    /// Input of `DEALLOC_PD`: ends a protection domain that nothing belongs to.
    pub struct DeallocPdIn: 0x10, "mlx5_ifc_dealloc_pd_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::DeallocPd,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] pd: u32,
    }

    /// Output of `DEALLOC_PD`.
    pub struct DeallocPdOut: 0x10, "mlx5_ifc_dealloc_pd_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

commands! {
    AllocPd: AllocPdIn => AllocPdOut,
    DeallocPd: DeallocPdIn => DeallocPdOut,
}
