//! Registers of the physical link: error correction, lanes, tuning of the serial lanes.

use crate::layout::Be16;

layout! {
    /// Port's physical layer mode, forward error correction: register `PPLM`. PRM `pplm_reg`.
    pub struct PplmReg: 0x78, "mlx5_ifc_pplm_reg_bits" {
        0x00 [23:16] local_port: u8,
        0x08 [31:24] port_profile_mode: u8,
        0x08 [23:16] static_port_profile: u8,
        0x08 [15:8] active_port_profile: u8,
        0x0c [31:24] retransmission_active: u8,
        0x0c [23:0] fec_mode_active: u32,
        0x10 [31:28] rs_fec_correction_bypass_cap: u8,
        0x10 [19:16] fec_override_cap_56g: u8,
        0x10 [15:12] fec_override_cap_100g: u8,
        0x10 [11:8] fec_override_cap_50g: u8,
        0x10 [7:4] fec_override_cap_25g: u8,
        0x10 [3:0] fec_override_cap_10g_40g: u8,
        0x14 [31:28] rs_fec_correction_bypass_admin: u8,
        0x14 [19:16] fec_override_admin_56g: u8,
        0x14 [15:12] fec_override_admin_100g: u8,
        0x14 [11:8] fec_override_admin_50g: u8,
        0x14 [7:4] fec_override_admin_25g: u8,
        0x14 [3:0] fec_override_admin_10g_40g: u8,
        0x18 [31:16] fec_override_cap_400g_8x: u16,
        0x18 [15:0] fec_override_cap_200g_4x: u16,
        0x1c [31:16] fec_override_cap_100g_2x: u16,
        0x1c [15:0] fec_override_cap_50g_1x: u16,
        0x20 [31:16] fec_override_admin_400g_8x: u16,
        0x20 [15:0] fec_override_admin_200g_4x: u16,
        0x24 [31:16] fec_override_admin_100g_2x: u16,
        0x24 [15:0] fec_override_admin_50g_1x: u16,
        0x28 [31:16] fec_override_cap_800g_8x: u16,
        0x28 [15:0] fec_override_cap_400g_4x: u16,
        0x2c [31:16] fec_override_cap_200g_2x: u16,
        0x2c [15:0] fec_override_cap_100g_1x: u16,
        0x44 [31:16] fec_override_admin_800g_8x: u16,
        0x44 [15:0] fec_override_admin_400g_4x: u16,
        0x48 [31:16] fec_override_admin_200g_2x: u16,
        0x48 [15:0] fec_override_admin_100g_1x: u16,
        0x58 [31:16] fec_override_cap_1600g_8x: u16,
        0x58 [15:0] fec_override_cap_800g_4x: u16,
        0x5c [31:16] fec_override_cap_400g_2x: u16,
        0x5c [15:0] fec_override_cap_200g_1x: u16,
        0x60 [31:16] fec_override_admin_1600g_8x: u16,
        0x60 [15:0] fec_override_admin_800g_4x: u16,
        0x64 [31:16] fec_override_admin_400g_2x: u16,
        0x64 [15:0] fec_override_admin_200g_1x: u16,
    }

    /// Port link profile configuration: register `PLPC`. PRM `plpc_reg`.
    pub struct PlpcReg: 0x28, "mlx5_ifc_plpc_reg_bits" {
        0x00 [27:16] profile_id: u16,
        0x00 [11:8] proto_mask: u8,
        0x04 [15:0] lane_speed: u16,
        0x08 [8] lpbf: bool,
        0x08 [7:0] fec_mode_policy: u8,
        0x0c [31:24] retransmission_capability: u8,
        0x0c [23:0] fec_mode_capability: u32,
        0x10 [31:24] retransmission_support_admin: u8,
        0x10 [23:0] fec_mode_support_admin: u32,
        0x14 [31:24] retransmission_request_admin: u8,
        0x14 [23:0] fec_mode_request_admin: u32,
    }

    /// Port loopback at the physical layer: register `PPLR`. PRM `pplr_reg`.
    pub struct PplrReg: 0x8, "mlx5_ifc_pplr_reg_bits" {
        0x00 [23:16] local_port: u8,
        0x04 [23:16] lb_cap: u8,
        0x04 [7:0] lb_en: u8,
    }

    /// Port power saving: register `PPSC`. PRM `ppsc_reg`.
    pub struct PpscReg: 0x30, "mlx5_ifc_ppsc_reg_bits" {
        0x00 [23:16] local_port: u8,
        0x10 [3:0] wrps_admin: u8,
        0x14 [3:0] wrps_status: u8,
        0x18 [23:16] up_threshold: u8,
        0x18 [7:0] down_threshold: u8,
        0x20 [3:0] srps_admin: u8,
        0x24 [3:0] srps_status: u8,
    }

    /// Injection of errors on a port: register `PEIR`. PRM `peir_reg`.
    pub struct PeirReg: 0xc, "mlx5_ifc_peir_reg_bits" {
        0x00 [23:16] local_port: u8,
        0x04 [19:16] error_count: u8,
        0x08 [19:16] lane: u8,
        0x08 [7:0] error_type: u8,
    }

    /// Grade of a serial lane's receiver: register `SLRG`. PRM `slrg_reg`.
    pub struct SlrgReg: 0x28, "mlx5_ifc_slrg_reg_bits" {
        0x00 [31:28] status: u8,
        0x00 [27:24] version: u8,
        0x00 [23:16] local_port: u8,
        0x00 [15:14] pnat: u8,
        0x00 [11:8] lane: u8,
        0x04 [31:16] time_to_link_up: u16,
        0x04 [3:0] grade_lane_speed: u8,
        0x08 [31:24] grade_version: u8,
        0x08 [23:0] grade: u32,
        0x0c [27:24] height_grade_type: u8,
        0x0c [23:0] height_grade: u32,
        0x10 [31:16] height_dz: u16,
        0x10 [15:0] height_dv: u16,
        0x14 [15:0] height_sigma: u16,
        0x1c [27:24] phase_grade_type: u8,
        0x1c [23:0] phase_grade: u32,
        0x20 [23:16] phase_eo_pos: u8,
        0x20 [7:0] phase_eo_neg: u8,
        0x24 [31:16] ffe_set_tested: u16,
        0x24 [15:0] test_errors_per_lane: u16,
    }

    /// Parameters of a serial lane's transmitter: register `SLTP`. PRM `sltp_reg`.
    pub struct SltpReg: 0x14, "mlx5_ifc_sltp_reg_bits" {
        0x00 [31:28] status: u8,
        0x00 [27:24] version: u8,
        0x00 [23:16] local_port: u8,
        0x00 [15:14] pnat: u8,
        0x00 [11:8] lane: u8,
        0x08 [24] polarity: bool,
        0x08 [23:16] ob_tap0: u8,
        0x08 [15:8] ob_tap1: u8,
        0x08 [7:0] ob_tap2: u8,
        0x0c [19:16] ob_preemp_mode: u8,
        0x0c [15:8] ob_reg: u8,
        0x0c [7:0] ob_bias: u8,
    }

    /// How a port's receivers are tuned: register `PTAS`. PRM `ptas_reg`.
    pub struct PtasReg: 0x2c, "mlx5_ifc_ptas_reg_bits" {
        0x04 [31:16] algorithm_options: u16,
        0x04 [11:8] repetitions_mode: u8,
        0x04 [7:0] num_of_repetitions: u8,
        0x08 [31:24] grade_version: u8,
        0x08 [23:20] height_grade_type: u8,
        0x08 [19:16] phase_grade_type: u8,
        0x08 [15:8] height_grade_weight: u8,
        0x08 [7:0] phase_grade_weight: u8,
        0x0c [31:16] gisim_measure_bits: u16,
        0x0c [15:0] adaptive_tap_measure_bits: u16,
        0x10 [31:16] ber_bath_high_error_threshold: u16,
        0x10 [15:0] ber_bath_mid_error_threshold: u16,
        0x14 [31:16] ber_bath_low_error_threshold: u16,
        0x14 [15:0] one_ratio_high_threshold: u16,
        0x18 [31:16] one_ratio_high_mid_threshold: u16,
        0x18 [15:0] one_ratio_low_mid_threshold: u16,
        0x1c [31:16] one_ratio_low_threshold: u16,
        0x1c [15:0] ndeo_error_threshold: u16,
        0x20 [31:16] mixer_offset_step_size: u16,
        0x20 [7:0] mix90_phase_for_voltage_bath: u8,
        0x24 [31:16] mixer_offset_start: u16,
        0x24 [15:0] mixer_offset_end: u16,
        0x28 [10:0] ber_test_time: u16,
    }

    /// Power of a group of amplifiers: register `PAMP`. PRM `pamp_reg`.
    pub struct PampReg: 0x2c, "mlx5_ifc_pamp_reg_bits" {
        0x00 [23:16] opamp_group: u8,
        0x00 [3:0] opamp_group_type: u8,
        0x04 [31:16] start_index: u16,
        0x04 [11:0] num_of_indices: u16,
        0x08 index_data: [Be16; 18],
    }

    /// Bins of the histogram of errors of a port: register `PPHCR`. PRM `pphcr_reg`.
    pub struct PphcrReg: 0x50, "mlx5_ifc_pphcr_reg_bits" {
        0x00 [31:28] active_hist_type: u8,
        0x00 [23:16] local_port: u8,
        0x04 [23:16] num_of_bins: u8,
        0x10 bin_range: [BinRangeLayout; 16],
    }

    /// The range of one bin of `PPHCR`. PRM `bin_range_layout`.
    pub struct BinRangeLayout: 0x4, "mlx5_ifc_bin_range_layout_bits" {
        0x00 [21:16] high_val: u8,
        0x00 [5:0] low_val: u8,
    }
}
