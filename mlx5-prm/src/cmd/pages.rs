//! The pages firmware asks of its driver, and gives back.

use super::command::commands;
use super::{CmdStatus, Opcode};
use crate::layout::Be64;

layout! {
    /// Input of `QUERY_PAGES`: asks how many pages firmware wants: by `op_mod` to boot (1), to initialise (2), or now
    /// (3).
    pub struct QueryPagesIn: 0x10, "mlx5_ifc_query_pages_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryPages,
        0x04 [15:0] op_mod: u16 as QueryPagesOpMod,
        0x08 [31] embedded_cpu_function: bool,
        0x08 [15:0] function_id: u16,
    }

    /// Output of `QUERY_PAGES`.
    pub struct QueryPagesOut: 0x10, "mlx5_ifc_query_pages_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [31] embedded_cpu_function: bool,
        0x08 [15:0] function_id: u16,
        0x0c [31:0] num_pages: u32,
    }

    /// Input of `MANAGE_PAGES`: gives pages (`op_mod` 1), takes them back (2) or reports that none are available (0); a
    /// list of their addresses follows.
    pub struct ManagePagesIn: 0x10, "mlx5_ifc_manage_pages_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::ManagePages,
        0x04 [15:0] op_mod: u16 as ManagePagesOpMod,
        0x08 [31] embedded_cpu_function: bool,
        0x08 [15:0] function_id: u16,
        0x0c [31:0] input_num_entries: u32,
        .. pas: [Be64],
    }

    /// Output of `MANAGE_PAGES`.
    pub struct ManagePagesOut: 0x10, "mlx5_ifc_manage_pages_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [31:0] output_num_entries: u32,
        .. pas: [Be64],
    }
}

commands! {
    QueryPages: QueryPagesIn => QueryPagesOut,
    ManagePages: ManagePagesIn => ManagePagesOut,
}

values! {
    /// Which pages are asked about, `op_mod` of `QUERY_PAGES`.
    pub enum QueryPagesOpMod: 16 {
        /// Those to boot.
        Boot = 1 "BOOT_PAGES",
        /// Those to initialise.
        Init = 2 "INIT_PAGES",
        /// Those needed now.
        Regular = 3 "REGULAR_PAGES",
    }

    /// What becomes of pages, `op_mod` of `MANAGE_PAGES`.
    pub enum ManagePagesOpMod: 16 {
        /// There are none to give.
        Fail = 0 "ALLOCATION_FAIL",
        /// They are given.
        Success = 1 "ALLOCATION_SUCCESS",
        /// They are taken back.
        Return = 2 "HCA_RETURN_PAGES",
    }
}
