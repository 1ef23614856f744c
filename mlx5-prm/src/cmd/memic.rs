//! Memory in the card.

use super::command::commands;
use super::{CmdStatus, Opcode};

layout! {
    /// Input of `ALLOC_MEMIC`: takes memory of the card.
    pub struct AllocMemicIn: 0x20, "mlx5_ifc_alloc_memic_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::AllocMemic,
        0x04 [15:0] op_mod: u16,
        0x0c [7:0] log_memic_addr_alignment: u8,
        0x10 [63:0] range_start_addr: u64,
        0x18 [31:0] range_size: u32,
        0x1c [31:0] memic_size: u32,
    }

    /// Output of `ALLOC_MEMIC`.
    pub struct AllocMemicOut: 0x10, "mlx5_ifc_alloc_memic_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [63:0] memic_start_addr: u64,
    }

    /// Input of `MODIFY_MEMIC`: makes, or ends, an address that does an operation on memory of the card.
    pub struct ModifyMemicIn: 0x40, "mlx5_ifc_modify_memic_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::ModifyMemic,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16 as ModifyMemicOpMod,
        0x0c [7:0] memic_operation_type: MemicOperation,
        0x10 [63:0] memic_start_addr: u64,
    }

    /// Output of `MODIFY_MEMIC`.
    pub struct ModifyMemicOut: 0x40, "mlx5_ifc_modify_memic_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 [63:0] memic_operation_addr: u64,
    }

    /// Input of `DEALLOC_MEMIC`: gives memory of the card back.
    pub struct DeallocMemicIn: 0x20, "mlx5_ifc_dealloc_memic_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::DeallocMemic,
        0x04 [15:0] op_mod: u16,
        0x10 [63:0] memic_start_addr: u64,
        0x18 [31:0] memic_size: u32,
    }

    /// Output of `DEALLOC_MEMIC`.
    pub struct DeallocMemicOut: 0x10, "mlx5_ifc_dealloc_memic_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

commands! {
    AllocMemic: AllocMemicIn => AllocMemicOut,
    ModifyMemic: ModifyMemicIn => ModifyMemicOut,
    DeallocMemic: DeallocMemicIn => DeallocMemicOut,
}

values! {
    /// What an address does, `memic_operation_type`; its number is its bit in `memic_operations`.
    pub enum MemicOperation: 8 {
        /// A store adds to what is there.
        Increment = 0 "INCREMENT",
        /// A load sets what is there to 1, and gives what was there before.
        TestAndSet = 1 "TEST_AND_SET",
    }

    /// What becomes of the operation's address, `op_mod` of `MODIFY_MEMIC`.
    pub enum ModifyMemicOpMod: 16 {
        /// Is made.
        Alloc = 0 "ALLOC",
        /// Ends.
        Dealloc = 1 "DEALLOC",
    }
}
