//! Queue pairs to the FPGA.

layout! {
    /// Context of a queue pair to the FPGA. PRM `fpga_qpc`.
    pub struct FpgaQpc: 0x60, "mlx5_ifc_fpga_qpc_bits" {
        0x00 [31:28] state: FpgaQpState,
        0x00 [0] qp_type: FpgaQpType,
        0x04 [27:24] st: u8,
        0x04 [7:0] traffic_class: u8,
        0x08 [31:16] ether_type: u16,
        0x08 [15:13] prio: u8,
        0x08 [12] dei: bool,
        0x08 [11:0] vid: u16,
        0x10 [23:0] next_rcv_psn: u32,
        0x14 [23:0] next_send_psn: u32,
        0x18 [15:0] pkey: u16,
        0x1c [23:0] remote_qpn: u32,
        0x20 [10:8] rnr_retry: u8,
        0x20 [2:0] retry_count: u8,
        0x28 [15:0] remote_mac_47_32: u16,
        0x2c [31:0] remote_mac_31_0: u32,
        0x30 remote_ip: [u8; 16],
        0x48 [15:0] fpga_mac_47_32: u16,
        0x4c [31:0] fpga_mac_31_0: u32,
        0x50 fpga_ip: [u8; 16],
    }
}

values! {
    /// State of a queue pair to the FPGA. PRM `fpga_qpc.state`.
    pub enum FpgaQpState: 4 {
        /// Initialised.
        Init = 0 "INIT",
        /// At work.
        Active = 1 "ACTIVE",
        /// Error.
        Error = 2 "ERROR",
    }

    /// What in the FPGA a queue pair reaches. PRM `fpga_qpc.qp_type`.
    pub enum FpgaQpType: 1 {
        /// The shell.
        Shell = 0 "SHELL_QP",
        /// The user's own logic.
        Sandbox = 1 "SANDBOX_QP",
    }
}
