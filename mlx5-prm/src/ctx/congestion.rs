//! Congestion control parameters.

layout! {
    /// Notification point of RoCE congestion control. PRM `cong_control_r_roce_ecn_np`.
    pub struct CongControlRRoceEcnNp: 0x100, "mlx5_ifc_cong_control_r_roce_ecn_np_bits" {
        0x14 [31:0] min_time_between_cnps: u32,
        0x18 [13:8] cnp_dscp: u8,
        0x18 [3] cnp_prio_mode: bool,
        0x18 [2:0] cnp_802p_prio: u8,
    }

    /// Reaction point of RoCE congestion control. PRM `cong_control_r_roce_ecn_rp`.
    pub struct CongControlRRoceEcnRp: 0x100, "mlx5_ifc_cong_control_r_roce_ecn_rp_bits" {
        0x0c [27] clamp_tgt_rate: bool,
        0x0c [23] clamp_tgt_rate_after_time_inc: bool,
        0x14 [31:0] rpg_time_reset: u32,
        0x18 [31:0] rpg_byte_reset: u32,
        0x1c [31:0] rpg_threshold: u32,
        0x20 [31:0] rpg_max_rate: u32,
        0x24 [31:0] rpg_ai_rate: u32,
        0x28 [31:0] rpg_hai_rate: u32,
        0x2c [31:0] rpg_gd: u32,
        0x30 [31:0] rpg_min_dec_fac: u32,
        0x34 [31:0] rpg_min_rate: u32,
        0x54 [31:0] rate_to_set_on_first_cnp: u32,
        0x58 [31:0] dce_tcp_g: u32,
        0x5c [31:0] dce_tcp_rtt: u32,
        0x60 [31:0] rate_reduce_monitor_period: u32,
        0x68 [31:0] initial_alpha_value: u32,
    }

    /// RoCE congestion control of the whole port. PRM `cong_control_r_roce_general`.
    pub struct CongControlRRoceGeneral: 0x100, "mlx5_ifc_cong_control_r_roce_general_bits" {
        0x10 [15] rtt_resp_dscp_valid: bool,
        0x10 [5:0] rtt_resp_dscp: u8,
    }

    /// Reaction point of IEEE 802.1Qau. PRM `cong_control_802_1qau_rp`.
    pub struct CongControl8021qauRp: 0x100, "mlx5_ifc_cong_control_802_1qau_rp_bits" {
        0x10 [31:0] rppp_max_rps: u32,
        0x14 [31:0] rpg_time_reset: u32,
        0x18 [31:0] rpg_byte_reset: u32,
        0x1c [31:0] rpg_threshold: u32,
        0x20 [31:0] rpg_max_rate: u32,
        0x24 [31:0] rpg_ai_rate: u32,
        0x28 [31:0] rpg_hai_rate: u32,
        0x2c [31:0] rpg_gd: u32,
        0x30 [31:0] rpg_min_dec_fac: u32,
        0x34 [31:0] rpg_min_rate: u32,
    }

    /// Which fields of [`CongControlRRoceEcnNp`] a command changes. PRM `field_select_r_roce_np`.
    pub struct FieldSelectRRoceNp: 0x4, "mlx5_ifc_field_select_r_roce_np_bits" {
        0x00 [31:0] field_select_r_roce_np: u32,
    }

    /// Which fields of [`CongControlRRoceEcnRp`] a command changes. PRM `field_select_r_roce_rp`.
    pub struct FieldSelectRRoceRp: 0x4, "mlx5_ifc_field_select_r_roce_rp_bits" {
        0x00 [31:0] field_select_r_roce_rp: u32,
    }

    /// Which fields of [`CongControl8021qauRp`] a command changes. PRM `field_select_802_1qau_rp`.
    pub struct FieldSelect8021qauRp: 0x4, "mlx5_ifc_field_select_802_1qau_rp_bits" {
        0x00 [31:0] field_select_8021qaurp: u32,
    }

    /// Congestion control parameters, selected by a command's `cong_protocol`. PRM
    /// `cong_control_roce_ecn_auto`.
    pub union CongControlRoceEcnAuto: 0x100, "mlx5_ifc_cong_control_roce_ecn_auto_bits" {
        0x00 cong_control_802_1qau_rp: CongControl8021qauRp,
        0x00 cong_control_r_roce_ecn_rp: CongControlRRoceEcnRp,
        0x00 cong_control_r_roce_ecn_np: CongControlRRoceEcnNp,
        0x00 cong_control_r_roce_general: CongControlRRoceGeneral,
    }

    /// The kinds of selections of fields. PRM `field_select_802_1_r_roce_auto`.
    pub union FieldSelect8021RRoceAuto: 0x4, "mlx5_ifc_field_select_802_1_r_roce_auto_bits" {
        0x00 field_select_802_1qau_rp: FieldSelect8021qauRp,
        0x00 field_select_r_roce_rp: FieldSelectRRoceRp,
        0x00 field_select_r_roce_np: FieldSelectRRoceNp,
    }
}
