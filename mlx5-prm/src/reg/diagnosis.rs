//! Registers that tell why a port is down.

use crate::layout::Be32;

layout! {
    /// Port diagnostics database: register `PDDR`. `page_data` is what `page_select` says: [`PddrTroubleshootingPage`].
    /// PRM `pddr_reg`.
    pub struct PddrReg: 0x100, "mlx5_ifc_pddr_reg_bits" {
        0x00 [23:16] local_port: u8,
        0x00 [15:14] pnat: u8,
        0x04 [7:0] page_select: u8,
        0x08 page_data: [u8; 0xf8],
    }

    /// Why the link is down. PRM `pddr_troubleshooting_page`.
    pub struct PddrTroubleshootingPage: 0xf8, "mlx5_ifc_pddr_troubleshooting_page_bits" {
        0x00 [15:0] group_opcode: u16,
        0x04 status_opcode: [u8; 0x4],
        0x0c status_message: [Be32; 59],
    }

    /// Status of a page, as the one who monitors sees it. PRM `pddr_monitor_opcode`.
    pub struct PddrMonitorOpcode: 0x4, "mlx5_ifc_pddr_monitor_opcode_bits" {
        0x00 [15:0] monitor_opcode: u16,
    }
}
