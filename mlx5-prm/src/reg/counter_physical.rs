//! Counters of a port's physical layer, groups of register `PPCNT`, and of PCIe, register `MPCNT`.

use crate::layout::{Be64, Info, Layout};

layout! {
    /// Errors of the physical layer. PRM `phys_layer_cntrs`.
    pub struct PhysLayerCntrs: 0xf8, "mlx5_ifc_phys_layer_cntrs_bits" {
        0x00 [31:0] time_since_last_clear_high: u32,
        0x04 [31:0] time_since_last_clear_low: u32,
        0x08 [31:0] symbol_errors_high: u32,
        0x0c [31:0] symbol_errors_low: u32,
        0x10 [31:0] sync_headers_errors_high: u32,
        0x14 [31:0] sync_headers_errors_low: u32,
        0x18 [31:0] edpl_bip_errors_lane0_high: u32,
        0x1c [31:0] edpl_bip_errors_lane0_low: u32,
        0x20 [31:0] edpl_bip_errors_lane1_high: u32,
        0x24 [31:0] edpl_bip_errors_lane1_low: u32,
        0x28 [31:0] edpl_bip_errors_lane2_high: u32,
        0x2c [31:0] edpl_bip_errors_lane2_low: u32,
        0x30 [31:0] edpl_bip_errors_lane3_high: u32,
        0x34 [31:0] edpl_bip_errors_lane3_low: u32,
        0x38 [31:0] fc_fec_corrected_blocks_lane0_high: u32,
        0x3c [31:0] fc_fec_corrected_blocks_lane0_low: u32,
        0x40 [31:0] fc_fec_corrected_blocks_lane1_high: u32,
        0x44 [31:0] fc_fec_corrected_blocks_lane1_low: u32,
        0x48 [31:0] fc_fec_corrected_blocks_lane2_high: u32,
        0x4c [31:0] fc_fec_corrected_blocks_lane2_low: u32,
        0x50 [31:0] fc_fec_corrected_blocks_lane3_high: u32,
        0x54 [31:0] fc_fec_corrected_blocks_lane3_low: u32,
        0x58 [31:0] fc_fec_uncorrectable_blocks_lane0_high: u32,
        0x5c [31:0] fc_fec_uncorrectable_blocks_lane0_low: u32,
        0x60 [31:0] fc_fec_uncorrectable_blocks_lane1_high: u32,
        0x64 [31:0] fc_fec_uncorrectable_blocks_lane1_low: u32,
        0x68 [31:0] fc_fec_uncorrectable_blocks_lane2_high: u32,
        0x6c [31:0] fc_fec_uncorrectable_blocks_lane2_low: u32,
        0x70 [31:0] fc_fec_uncorrectable_blocks_lane3_high: u32,
        0x74 [31:0] fc_fec_uncorrectable_blocks_lane3_low: u32,
        0x78 [31:0] rs_fec_corrected_blocks_high: u32,
        0x7c [31:0] rs_fec_corrected_blocks_low: u32,
        0x80 [31:0] rs_fec_uncorrectable_blocks_high: u32,
        0x84 [31:0] rs_fec_uncorrectable_blocks_low: u32,
        0x88 [31:0] rs_fec_no_errors_blocks_high: u32,
        0x8c [31:0] rs_fec_no_errors_blocks_low: u32,
        0x90 [31:0] rs_fec_single_error_blocks_high: u32,
        0x94 [31:0] rs_fec_single_error_blocks_low: u32,
        0x98 [31:0] rs_fec_corrected_symbols_total_high: u32,
        0x9c [31:0] rs_fec_corrected_symbols_total_low: u32,
        0xa0 [31:0] rs_fec_corrected_symbols_lane0_high: u32,
        0xa4 [31:0] rs_fec_corrected_symbols_lane0_low: u32,
        0xa8 [31:0] rs_fec_corrected_symbols_lane1_high: u32,
        0xac [31:0] rs_fec_corrected_symbols_lane1_low: u32,
        0xb0 [31:0] rs_fec_corrected_symbols_lane2_high: u32,
        0xb4 [31:0] rs_fec_corrected_symbols_lane2_low: u32,
        0xb8 [31:0] rs_fec_corrected_symbols_lane3_high: u32,
        0xbc [31:0] rs_fec_corrected_symbols_lane3_low: u32,
        0xc0 [31:0] link_down_events: u32,
        0xc4 [31:0] successful_recovery_events: u32,
    }

    /// Bit errors of the physical layer, raw and effective. PRM `phys_layer_statistical_cntrs`.
    pub struct PhysLayerStatisticalCntrs: 0xf8, "mlx5_ifc_phys_layer_statistical_cntrs_bits" {
        0x00 [31:0] time_since_last_clear_high: u32,
        0x04 [31:0] time_since_last_clear_low: u32,
        0x08 [31:0] phy_received_bits_high: u32,
        0x0c [31:0] phy_received_bits_low: u32,
        0x10 [31:0] phy_symbol_errors_high: u32,
        0x14 [31:0] phy_symbol_errors_low: u32,
        0x18 [31:0] phy_corrected_bits_high: u32,
        0x1c [31:0] phy_corrected_bits_low: u32,
        0x20 [31:0] phy_corrected_bits_lane0_high: u32,
        0x24 [31:0] phy_corrected_bits_lane0_low: u32,
        0x28 [31:0] phy_corrected_bits_lane1_high: u32,
        0x2c [31:0] phy_corrected_bits_lane1_low: u32,
        0x30 [31:0] phy_corrected_bits_lane2_high: u32,
        0x34 [31:0] phy_corrected_bits_lane2_low: u32,
        0x38 [31:0] phy_corrected_bits_lane3_high: u32,
        0x3c [31:0] phy_corrected_bits_lane3_low: u32,
    }

    /// How often the physical layer recovered. PRM `phys_layer_recovery_cntrs`.
    pub struct PhysLayerRecoveryCntrs: 0xf8, "mlx5_ifc_phys_layer_recovery_cntrs_bits" {
        0x00 [31:0] total_successful_recovery_events: u32,
    }

    /// How many blocks had how many errors that Reed-Solomon corrected, a bin each. PRM `rs_histogram_cntrs`.
    pub struct RsHistogramCntrs: 0xd8, "mlx5_ifc_rs_histogram_cntrs_bits" {
        0x00 hist: [Be64; 16],
    }

    /// Counters of PCIe: register `MPCNT`. `grp` selects the group in `counter_set`. PRM `mpcnt_reg`.
    pub struct MpcntReg: 0x100, "mlx5_ifc_mpcnt_reg_bits" {
        0x00 [23:16] pcie_index: u8,
        0x00 [5:0] grp: u8 as PcieCounterGroup,
        0x04 [31] clr: bool,
        0x08 counter_set: PcieCntrsGrpDataLayoutAuto where counters,
    }

    /// The groups of PCIe's counters. PRM `pcie_cntrs_grp_data_layout_auto`.
    pub union PcieCntrsGrpDataLayoutAuto: 0xf8, "mlx5_ifc_pcie_cntrs_grp_data_layout_auto_bits" {
        0x00 pcie_perf_cntrs_grp_data_layout: PciePerfCntrsGrpDataLayout,
    }

    /// PCIe performance counters. PRM `pcie_perf_cntrs_grp_data_layout`.
    pub struct PciePerfCntrsGrpDataLayout: 0xf8, "mlx5_ifc_pcie_perf_cntrs_grp_data_layout_bits" {
        0x00 [31:0] life_time_counter_high: u32,
        0x04 [31:0] life_time_counter_low: u32,
        0x08 [31:0] rx_errors: u32,
        0x0c [31:0] tx_errors: u32,
        0x10 [31:0] l0_to_recovery_eieos: u32,
        0x14 [31:0] l0_to_recovery_ts: u32,
        0x18 [31:0] l0_to_recovery_framing: u32,
        0x1c [31:0] l0_to_recovery_retrain: u32,
        0x20 [31:0] crc_error_dllp: u32,
        0x24 [31:0] crc_error_tlp: u32,
        0x28 [31:0] tx_overflow_buffer_pkt_high: u32,
        0x2c [31:0] tx_overflow_buffer_pkt_low: u32,
        0x30 [31:0] outbound_stalled_reads: u32,
        0x34 [31:0] outbound_stalled_writes: u32,
        0x38 [31:0] outbound_stalled_reads_events: u32,
        0x3c [31:0] outbound_stalled_writes_events: u32,
    }
}

values! {
    /// A group of PCIe's counters. PRM `mpcnt_reg.grp`.
    pub enum PcieCounterGroup: 6 {
        /// Performance.
        Performance = 0x00 "PCIE_PERFORMANCE",
    }
}

impl PcieCounterGroup {
    /// What `counter_set` of an [`MpcntReg`] is.
    pub const fn layout(self) -> Option<&'static Info> {
        match self {
            PcieCounterGroup::Performance => Some(&PciePerfCntrsGrpDataLayout::INFO),
            PcieCounterGroup::Unknown(_) => None,
        }
    }
}

impl MpcntReg {
    fn counters(bytes: &[u8], _index: usize) -> Option<&'static Info> {
        PcieCounterGroup::from_number(MpcntReg::read(bytes)?.grp().into()).layout()
    }
}
