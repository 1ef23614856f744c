//! Registers that say which registers and features there are: `PCAM`, `MCAM`, `QCAM`.

use crate::layout::{Info, Layout};

layout! {
    /// Port registers and features: register `PCAM`. PRM `pcam_reg`.
    pub struct PcamReg: 0x50, "mlx5_ifc_pcam_reg_bits" {
        0x00 [23:16] feature_group: u8,
        0x00 [7:0] access_reg_group: u8,
        0x08 port_access_reg_cap_mask: PcamRegs5000To507f,
        0x28 feature_cap_mask: PcamEnhancedFeatures,
    }

    /// Which of the registers 0x5000 to 0x507f there are. PRM `pcam_regs_5000_to_507f`.
    pub struct PcamRegs5000To507f: 0x10, "mlx5_ifc_pcam_regs_5000_to_507f_bits" {
        0x08 [30] pphcr: bool,
        0x08 [3] pplm: bool,
        0x0c [12] pbmc: bool,
        0x0c [11] pptb: bool,
        0x0c [8] ppcnt: bool,
    }

    /// Features of the port registers. PRM `pcam_enhanced_features`.
    pub struct PcamEnhancedFeatures: 0x10, "mlx5_ifc_pcam_enhanced_features_bits" {
        0x00 [15] ppcnt_recovery_counters: bool,
        0x00 [7] cable_length: bool,
        0x00 [2] fec_200G_per_lane_in_pplm: bool,
        0x08 [23] fec_100G_per_lane_in_pplm: bool,
        0x08 [20] shp_pbmc_pbsr_support: bool,
        0x08 [12] buffer_ownership: bool,
        0x0c [23] fec_50G_per_lane_in_pplm: bool,
        0x0c [18] rx_icrc_encapsulated_counter: bool,
        0x0c [13] ptys_extended_ethernet: bool,
        0x0c [9] pfcc_mask: bool,
        0x0c [5] per_lane_error_counters: bool,
        0x0c [4] rx_buffer_fullness_counters: bool,
        0x0c [3] ptys_connector_type: bool,
        0x0c [1] ppcnt_discard_group: bool,
        0x0c [0] ppcnt_statistical_group: bool,
    }

    /// Management registers and features: register `MCAM`. `access_reg_group` selects the content of
    /// `mng_access_reg_cap_mask`. PRM `mcam_reg`.
    pub struct McamReg: 0x48, "mlx5_ifc_mcam_reg_bits" {
        0x00 [23:16] feature_group: u8,
        0x00 [7:0] access_reg_group: u8 as McamRegisters,
        0x08 mng_access_reg_cap_mask: [u8; 16] where registers,
        0x28 mng_feature_cap_mask: McamEnhancedFeatures,
    }

    /// Which of the registers 0x9000 to 0x907f there are. PRM `mcam_access_reg`.
    pub struct McamAccessReg: 0x10, "mlx5_ifc_mcam_access_reg_bits" {
        0x00 [3] mcda: bool,
        0x00 [2] mcc: bool,
        0x00 [1] mcqi: bool,
        0x00 [0] mcqs: bool,
        0x04 [25] mpir: bool,
        0x04 [22] mpegc: bool,
        0x04 [21] mtutc: bool,
        0x04 [3:0] tracer_registers: u8,
        0x08 [13] mrtc: bool,
        0x08 [8] mfrl: bool,
        0x0c [10] mtmp: bool,
    }

    /// Which of the registers 0x9100 to 0x917f there are. PRM `mcam_access_reg2`.
    pub struct McamAccessReg2: 0x10, "mlx5_ifc_mcam_access_reg_bits2" {
        0x00 [2] mirc: bool,
        0x04 [22:21] synce_registers: u8,
    }

    /// Which of the registers 0x9180 to 0x91ff there are. PRM `mcam_access_reg3`.
    pub struct McamAccessReg3: 0x10, "mlx5_ifc_mcam_access_reg_bits3" {
        0x0c [2] mrtcq: bool,
        0x0c [1] mtctr: bool,
        0x0c [0] mtptm: bool,
    }

    /// Features of the management registers. PRM `mcam_enhanced_features`.
    pub struct McamEnhancedFeatures: 0x10, "mlx5_ifc_mcam_enhanced_features_bits" {
        0x08 [15] mtutc_freq_adj_units: bool,
        0x08 [14] mtutc_time_adjustment_extended_range: bool,
        0x08 [2] mcia_32dwords: bool,
        0x08 [1] out_pulse_duration_ns: bool,
        0x08 [0] npps_period: bool,
        0x0c [21] reset_state: bool,
        0x0c [20] ptpcyc2realtime_modify: bool,
        0x0c [17] pci_status_and_power: bool,
        0x0c [11] mark_tx_action_cnp: bool,
        0x0c [10] mark_tx_action_cqe: bool,
        0x0c [9] dynamic_tx_overflow: bool,
        0x0c [4] pcie_outbound_stalled: bool,
        0x0c [3] tx_overflow_buffer_pkt: bool,
        0x0c [2] mtpps_enh_out_per_adj: bool,
        0x0c [1] mtpps_fs: bool,
        0x0c [0] pcie_performance_group: bool,
    }

    /// Quality of service registers and features: register `QCAM`. `qos_access_reg_cap_mask` is
    /// [`QcamAccessRegCapMask`], `qos_feature_cap_mask` is [`QcamQosFeatureCapMask`]. PRM `qcam_reg`.
    pub struct QcamReg: 0x48, "mlx5_ifc_qcam_reg_bits" {
        0x00 [23:16] feature_group: u8,
        0x00 [7:0] access_reg_group: u8,
        0x08 qos_access_reg_cap_mask: QcamAccessRegCapMask,
        0x28 qos_feature_cap_mask: QcamQosFeatureCapMask,
    }

    /// Which of the registers 0x4000 to 0x407f there are. PRM `qcam_access_reg_cap_mask`.
    pub struct QcamAccessRegCapMask: 0x10, "mlx5_ifc_qcam_access_reg_cap_mask" {
        0x0c [19] qpdpm: bool,
        0x0c [3] qdpm: bool,
        0x0c [2] qpts: bool,
        0x0c [1] qcap: bool,
    }

    /// Features of the quality of service registers. PRM `qcam_qos_feature_cap_mask`.
    pub struct QcamQosFeatureCapMask: 0x10, "mlx5_ifc_qcam_qos_feature_cap_mask" {
        0x0c [4] qetcr_qshr_max_bw_val_msb: bool,
        0x0c [0] qpts_trust_both: bool,
    }
}

values! {
    /// A range of management registers. PRM `mcam_reg.access_reg_group`.
    pub enum McamRegisters: 8 {
        /// 0x9000 to 0x907f, [`McamAccessReg`].
        First128 = 0x0 "FIRST_128",
        /// 0x9100 to 0x917f, [`McamAccessReg2`].
        From9100 = 0x2 "0x9100_0x917F",
        /// 0x9180 to 0x91ff, [`McamAccessReg3`].
        From9180 = 0x3 "0x9180_0x91FF",
    }
}

impl McamReg {
    fn registers(bytes: &[u8], _index: usize) -> Option<&'static Info> {
        match McamRegisters::from_number(McamReg::read(bytes)?.access_reg_group().into()) {
            McamRegisters::First128 => Some(&McamAccessReg::INFO),
            McamRegisters::From9100 => Some(&McamAccessReg2::INFO),
            McamRegisters::From9180 => Some(&McamAccessReg3::INFO),
            McamRegisters::Unknown(_) => None,
        }
    }
}
