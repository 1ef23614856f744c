//! How many objects of a kind a card has room for.

use crate::cmd::{CreateGeneralObjectIn, InputHeader, Opcode};
use crate::layout::Layout;
use crate::obj::ObjType;

/// The capability that bounds the number of objects like the one that the command `input` makes: what is to be looked
/// at where a card has no room for one more. `None` if the command makes none, or no capability is known to bound it.
pub fn count_of(input: &[u8]) -> Option<&'static str> {
    Some(match InputHeader::read(input)?.opcode() {
        Opcode::AllocPd => "log_max_pd",
        Opcode::AllocTransportDomain => "log_max_transport_domain",
        Opcode::AllocXrcd => "log_max_xrcd",
        Opcode::AllocQCounter => "max_qp_cnt",
        Opcode::AllocFlowCounter => "max_flow_counter",
        Opcode::AllocModifyHeaderContext => "log_max_modify_header_context",
        Opcode::AllocPacketReformatContext => "log_max_packet_reformat_context",
        Opcode::CreateUctx => "log_max_uctx",
        Opcode::CreateUmem => "log_max_umem",
        Opcode::CreateMkey => "log_max_mkey",
        Opcode::CreateEq => "max_num_eqs",
        Opcode::CreateCq => "log_max_cq",
        Opcode::CreateQp => "log_max_qp",
        Opcode::CreateSrq | Opcode::CreateXrcSrq => "log_max_srq",
        Opcode::CreateRmp => "log_max_rmp",
        Opcode::CreateSq => "log_max_sq",
        Opcode::CreateRq => "log_max_rq",
        Opcode::CreateTis => "log_max_tis",
        Opcode::CreateTir => "log_max_tir",
        Opcode::CreateRqt => "log_max_rqt",
        Opcode::CreateFlowTable => "log_max_ft_num",
        Opcode::SetFlowTableEntry => "log_max_flow",
        Opcode::CreateGeneralObject => return count_of_general(CreateGeneralObjectIn::read(input)?.obj_type()),
        _ => return None,
    })
}

fn count_of_general(obj_type: ObjType) -> Option<&'static str> {
    match obj_type {
        ObjType::ReservedQpn => Some("log_max_num_reserved_qpn"),
        ObjType::GeneveTlvOpt => Some("max_geneve_tlv_options"),
        ObjType::FlowMeterAso => Some("log_max_num_meter_aso"),
        ObjType::Sampler => Some("log_max_ft_sampler_num"),
        _ => None,
    }
}
