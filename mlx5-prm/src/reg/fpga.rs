//! Registers of an FPGA beside the card.

layout! {
    /// What the FPGA is: register `FPGA_CAP`. PRM `fpga_cap`.
    pub struct FpgaCap: 0x100, "mlx5_ifc_fpga_cap_bits" {
        0x00 [31:24] fpga_id: u8,
        0x00 [23:0] fpga_device: u32,
        0x04 [31:0] register_file_ver: u32,
        0x08 [31] fpga_ctrl_modify: bool,
        0x08 [25:24] access_reg_query_mode: u8,
        0x08 [17:16] access_reg_modify_mode: u8,
        0x10 [31:0] image_version: u32,
        0x14 [31:0] image_date: u32,
        0x18 [31:0] image_time: u32,
        0x1c [31:0] shell_version: u32,
        0x30 shell_caps: FpgaShellCaps,
        0x70 [23:0] ieee_vendor_id: u32,
        0x74 [31:16] sandbox_product_version: u16,
        0x74 [15:0] sandbox_product_id: u16,
        0x78 [31:0] sandbox_basic_caps: u32,
        0x7c [15:0] sandbox_extended_caps_len: u16,
        0x80 [63:0] sandbox_extended_caps_addr: u64,
        0x88 [63:0] fpga_ddr_start_addr: u64,
        0x90 [63:0] fpga_cr_space_start_addr: u64,
        0x98 [31:0] fpga_ddr_size: u32,
        0x9c [31:0] fpga_cr_space_size: u32,
    }

    /// What the shell around the FPGA's own logic offers. PRM `fpga_shell_caps`.
    pub struct FpgaShellCaps: 0x40, "mlx5_ifc_fpga_shell_caps_bits" {
        0x00 [31:16] max_num_qps: u16,
        0x00 [7:0] total_rcv_credits: u8,
        0x04 [17:16] qp_type: u8,
        0x04 [10] rae: bool,
        0x04 [9] rwe: bool,
        0x04 [8] rre: bool,
        0x04 [3] dc: bool,
        0x04 [2] ud: bool,
        0x04 [1] uc: bool,
        0x04 [0] rc: bool,
        0x08 [5:0] log_ddr_size: u8,
        0x0c [31:0] max_fpga_qp_msg_size: u32,
    }

    /// Loads and resets the FPGA: register `FPGA_CTRL`. PRM `fpga_ctrl`.
    pub struct FpgaCtrl: 0x10, "mlx5_ifc_fpga_ctrl_bits" {
        0x00 [23:16] operation: u8 as FpgaOperation,
        0x00 [7:0] status: u8,
        0x04 [23:16] flash_select_admin: u8,
        0x04 [7:0] flash_select_oper: u8,
    }

    /// Reads or writes the FPGA's memory: register `FPGA_ACCESS_REG`. PRM `fpga_access_reg`.
    pub struct FpgaAccessReg: 0x10, "mlx5_ifc_fpga_access_reg_bits" {
        0x04 [15:0] size: u16,
        0x08 [63:0] address: u64,
        .. data: [u8],
    }
}

values! {
    /// What to do to the FPGA. PRM `fpga_ctrl.operation`.
    pub enum FpgaOperation: 8 {
        /// Load its image.
        Load = 0x1 "LOAD",
        /// Reset it.
        Reset = 0x2 "RESET",
        /// Choose the image to load.
        FlashSelect = 0x3 "FLASH_SELECT",
        /// Lead traffic past its logic.
        SandboxBypassOn = 0x4 "SANDBOX_BYPASS_ON",
        /// Lead traffic through its logic.
        SandboxBypassOff = 0x5 "SANDBOX_BYPASS_OFF",
        /// Reset its logic.
        ResetSandbox = 0x6 "RESET_SANDBOX",
    }
}
