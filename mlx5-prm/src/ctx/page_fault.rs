//! Page faults.

layout! {
    /// A page fault that is dealt with. PRM `page_fault_resume_in_page_fault_info_auto`.
    pub union PageFaultResumeInPageFaultInfoAuto: 0x8, "mlx5_ifc_page_fault_resume_in_page_fault_info_auto_bits" {
        0x00 trans_page_fault_info: TransPageFaultInfo,
        0x00 mem_page_fault_info: MemPageFaultInfo,
    }

    /// A page fault of a transport's queue. PRM `trans_page_fault_info`.
    pub struct TransPageFaultInfo: 0x8, "mlx5_ifc_trans_page_fault_info_bits" {
        0x00 [31] error: bool,
        0x00 [26:24] page_fault_type: u8,
        0x00 [23:0] wq_number: u32,
        0x04 [23:0] fault_token: u32,
    }

    /// A page fault of memory. PRM `mem_page_fault_info`.
    pub struct MemPageFaultInfo: 0x8, "mlx5_ifc_mem_page_fault_info_bits" {
        0x00 [31] error: bool,
        0x00 [15:0] fault_token_47_32: u16,
        0x04 [31:0] fault_token_31_0: u32,
    }
}
