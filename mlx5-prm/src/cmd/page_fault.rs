//! Page faults.

use super::command::commands;
use super::{CmdStatus, Opcode};
use crate::ctx::PageFaultResumeInPageFaultInfoAuto;

layout! {
    /// Input of `PAGE_FAULT_RESUME`: reports that a page fault was resolved, or could not be.
    pub struct PageFaultResumeIn: 0x10, "mlx5_ifc_page_fault_resume_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::PageFaultResume,
        0x04 [15:0] op_mod: u16,
        0x08 page_fault_info: PageFaultResumeInPageFaultInfoAuto,
    }

    /// Output of `PAGE_FAULT_RESUME`.
    pub struct PageFaultResumeOut: 0x10, "mlx5_ifc_page_fault_resume_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

commands! {
    PageFaultResume: PageFaultResumeIn => PageFaultResumeOut,
}
