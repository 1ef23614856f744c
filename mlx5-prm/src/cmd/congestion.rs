//! Congestion control.

use super::command::commands;
use super::{CmdStatus, Opcode};
use crate::ctx::{CongControl8021qauRp, CongControlRRoceEcnNp, CongControlRRoceEcnRp, CongControlRRoceGeneral, CongControlRoceEcnAuto, FieldSelect8021RRoceAuto, FieldSelect8021qauRp, FieldSelectRRoceNp, FieldSelectRRoceRp};
use crate::layout::{Info, Layout};

layout! {
    /// Input of `QUERY_CONG_STATUS`: asks whether congestion control is on.
    pub struct QueryCongStatusIn: 0x10, "mlx5_ifc_query_cong_status_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryCongStatus,
        0x04 [15:0] op_mod: u16,
        0x08 [7:4] priority: u8,
        0x08 [3:0] cong_protocol: CongProtocol,
    }

    /// Output of `QUERY_CONG_STATUS`.
    pub struct QueryCongStatusOut: 0x10, "mlx5_ifc_query_cong_status_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x0c [31] enable: bool,
        0x0c [30] tag_enable: bool,
    }

    /// Input of `MODIFY_CONG_STATUS`: turns congestion control on or off.
    pub struct ModifyCongStatusIn: 0x10, "mlx5_ifc_modify_cong_status_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::ModifyCongStatus,
        0x04 [15:0] op_mod: u16,
        0x08 [7:4] priority: u8,
        0x08 [3:0] cong_protocol: CongProtocol,
        0x0c [31] enable: bool,
        0x0c [30] tag_enable: bool,
    }

    /// Output of `MODIFY_CONG_STATUS`.
    pub struct ModifyCongStatusOut: 0x10, "mlx5_ifc_modify_cong_status_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `QUERY_CONG_PARAMS`: reads the parameters of a protocol.
    pub struct QueryCongParamsIn: 0x10, "mlx5_ifc_query_cong_params_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryCongParams,
        0x04 [15:0] op_mod: u16,
        0x08 [3:0] cong_protocol: CongProtocol,
    }

    /// Output of `QUERY_CONG_PARAMS`.
    pub struct QueryCongParamsOut: 0x110, "mlx5_ifc_query_cong_params_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 congestion_parameters: CongControlRoceEcnAuto,
    }

    /// Input of `MODIFY_CONG_PARAMS`: changes the parameters of a protocol that `field_select` names.
    pub struct ModifyCongParamsIn: 0x120, "mlx5_ifc_modify_cong_params_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::ModifyCongParams,
        0x04 [15:0] op_mod: u16,
        0x08 [3:0] cong_protocol: CongProtocol,
        0x0c field_select: FieldSelect8021RRoceAuto where field_select_layout,
        0x20 congestion_parameters: CongControlRoceEcnAuto where parameters_layout,
    }

    /// Output of `MODIFY_CONG_PARAMS`.
    pub struct ModifyCongParamsOut: 0x10, "mlx5_ifc_modify_cong_params_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `QUERY_CONG_STATISTICS`: reads what congestion control has counted.
    pub struct QueryCongStatisticsIn: 0x10, "mlx5_ifc_query_cong_statistics_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryCongStatistics,
        0x04 [15:0] op_mod: u16,
        0x08 [31] clear: bool,
    }

    /// Output of `QUERY_CONG_STATISTICS`.
    pub struct QueryCongStatisticsOut: 0x110, "mlx5_ifc_query_cong_statistics_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 [31:0] rp_cur_flows: u32,
        0x14 [31:0] sum_flows: u32,
        0x18 [31:0] rp_cnp_ignored_high: u32,
        0x1c [31:0] rp_cnp_ignored_low: u32,
        0x20 [31:0] rp_cnp_handled_high: u32,
        0x24 [31:0] rp_cnp_handled_low: u32,
        0x48 [31:0] time_stamp_high: u32,
        0x4c [31:0] time_stamp_low: u32,
        0x50 [31:0] accumulators_period: u32,
        0x54 [31:0] np_ecn_marked_roce_packets_high: u32,
        0x58 [31:0] np_ecn_marked_roce_packets_low: u32,
        0x5c [31:0] np_cnp_sent_high: u32,
        0x60 [31:0] np_cnp_sent_low: u32,
    }
}

commands! {
    QueryCongStatus: QueryCongStatusIn => QueryCongStatusOut,
    ModifyCongStatus: ModifyCongStatusIn => ModifyCongStatusOut,
    QueryCongParams: QueryCongParamsIn => QueryCongParamsOut { congestion_parameters: QueryCongParamsIn::parameters_layout },
    ModifyCongParams: ModifyCongParamsIn => ModifyCongParamsOut,
    QueryCongStatistics: QueryCongStatisticsIn => QueryCongStatisticsOut,
}

values! {
    /// Protocol of congestion control. PRM `cong_protocol`.
    pub enum CongProtocol: 4 {
        /// 802.1Qau, reaction point.
        Qau8021Rp = 0 "802_1QAU_RP",
        /// Routable RoCE, reaction point: slows down.
        RRoceEcnRp = 1 "R_ROCE_ECN_RP",
        /// Routable RoCE, notification point: notifies the sender.
        RRoceEcnNp = 2 "R_ROCE_ECN_NP",
        /// Routable RoCE, both.
        RRoceGeneral = 3 "R_ROCE_GENERAL",
    }
}

impl ModifyCongParamsIn {
    fn field_select_layout(bytes: &[u8], _index: usize) -> Option<&'static Info> {
        match ModifyCongParamsIn::read(bytes)?.cong_protocol() {
            CongProtocol::Qau8021Rp => Some(&FieldSelect8021qauRp::INFO),
            CongProtocol::RRoceEcnRp => Some(&FieldSelectRRoceRp::INFO),
            CongProtocol::RRoceEcnNp => Some(&FieldSelectRRoceNp::INFO),
            _ => None,
        }
    }

    fn parameters_layout(bytes: &[u8], _index: usize) -> Option<&'static Info> {
        ModifyCongParamsIn::read(bytes)?.cong_protocol().layout()
    }
}

impl QueryCongParamsIn {
    /// The arm of the parameters in the output.
    fn parameters_layout(input: &[u8], _index: usize) -> Option<&'static Info> {
        QueryCongParamsIn::read(input)?.cong_protocol().layout()
    }
}

impl CongProtocol {
    /// The layout of the protocol's parameters.
    pub const fn layout(self) -> Option<&'static Info> {
        match self {
            CongProtocol::Qau8021Rp => Some(&CongControl8021qauRp::INFO),
            CongProtocol::RRoceEcnRp => Some(&CongControlRRoceEcnRp::INFO),
            CongProtocol::RRoceEcnNp => Some(&CongControlRRoceEcnNp::INFO),
            CongProtocol::RRoceGeneral => Some(&CongControlRRoceGeneral::INFO),
            CongProtocol::Unknown(_) => None,
        }
    }
}
