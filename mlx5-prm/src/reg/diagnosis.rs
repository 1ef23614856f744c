//! Registers for diagnosis of a port that is down.

use crate::layout::{Be32, Info, Layout};

layout! {
    /// Port diagnostics database: register `PDDR`. `page_select` selects `page_data`. PRM `pddr_reg`.
    pub struct PddrReg: 0x100, "mlx5_ifc_pddr_reg_bits" {
        0x00 [23:16] local_port: u8,
        0x00 [15:14] pnat: u8,
        0x04 [7:0] page_select: u8 as PddrPage,
        0x08 page_data: PddrRegPageDataAuto where page,
    }

    /// Why the link is down. PRM `pddr_troubleshooting_page`.
    pub struct PddrTroubleshootingPage: 0xf8, "mlx5_ifc_pddr_troubleshooting_page_bits" {
        0x00 [15:0] group_opcode: u16 as PddrGroup,
        0x04 status_opcode: PddrTroubleshootingPageStatusOpcodeAuto where opcode,
        0x0c status_message: [Be32; 59],
    }

    /// Status of a page, as the one who monitors sees it. PRM `pddr_monitor_opcode`.
    pub struct PddrMonitorOpcode: 0x4, "mlx5_ifc_pddr_monitor_opcode_bits" {
        0x00 [15:0] monitor_opcode: u16,
    }

    /// The pages of `PDDR`. PRM `pddr_reg_page_data_auto`.
    pub union PddrRegPageDataAuto: 0xf8, "mlx5_ifc_pddr_reg_page_data_auto_bits" {
        0x00 pddr_troubleshooting_page: PddrTroubleshootingPage,
    }

    /// The ways to say why the link is down. PRM `pddr_troubleshooting_page_status_opcode_auto`.
    pub union PddrTroubleshootingPageStatusOpcodeAuto: 0x4, "mlx5_ifc_pddr_troubleshooting_page_status_opcode_auto_bits" {
        0x00 pddr_monitor_opcode: PddrMonitorOpcode,
    }
}

values! {
    /// A page of `PDDR`. PRM `pddr_reg.page_select`.
    pub enum PddrPage: 8 {
        /// Why the link is down, [`PddrTroubleshootingPage`].
        Troubleshooting = 0x1 "TROUBLESHOOTING_INFO_PAGE",
    }

    /// A way to say why the link is down. PRM `pddr_troubleshooting_page.group_opcode`.
    pub enum PddrGroup: 16 {
        /// As one who monitors sees it, [`PddrMonitorOpcode`].
        Monitor = 0x0 "MONITOR",
    }
}

impl PddrReg {
    fn page(bytes: &[u8], _index: usize) -> Option<&'static Info> {
        match PddrPage::from_number(PddrReg::read(bytes)?.page_select().into()) {
            PddrPage::Troubleshooting => Some(&PddrTroubleshootingPage::INFO),
            PddrPage::Unknown(_) => None,
        }
    }
}

impl PddrTroubleshootingPage {
    fn opcode(bytes: &[u8], _index: usize) -> Option<&'static Info> {
        match PddrGroup::from_number(PddrTroubleshootingPage::read(bytes)?.group_opcode().into()) {
            PddrGroup::Monitor => Some(&PddrMonitorOpcode::INFO),
            PddrGroup::Unknown(_) => None,
        }
    }
}
