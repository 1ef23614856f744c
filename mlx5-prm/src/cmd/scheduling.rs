//! Scheduling of what is sent: rates, elements of the hierarchy.

use super::command::commands;
use super::{CmdStatus, Opcode};
use crate::ctx::{SchedulingContext, SchedulingHierarchy, SetPpRateLimitContext};

layout! {
    /// Input of `SET_PP_RATE_LIMIT`: sets a rate that send queues may be held to.
    pub struct SetPpRateLimitIn: 0x40, "mlx5_ifc_set_pp_rate_limit_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::SetPpRateLimit,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [15:0] rate_limit_index: u16,
        0x10 ctx: SetPpRateLimitContext,
    }

    /// Output of `SET_PP_RATE_LIMIT`.
    pub struct SetPpRateLimitOut: 0x10, "mlx5_ifc_set_pp_rate_limit_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `CREATE_QOS_PARA_VPORT`: makes a second vport of a function, for elements of the hierarchy to hang on.
    /// In FreeBSD's mlx5_ifc.h.
    pub struct CreateQosParaVportIn: 0x40, "mlx5_ifc_create_qos_para_vport_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::CreateQosParaVport,
        0x04 [15:0] op_mod: u16,
    }

    /// Output of `CREATE_QOS_PARA_VPORT`.
    pub struct CreateQosParaVportOut: 0x40, "mlx5_ifc_create_qos_para_vport_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x0c [15:0] qos_para_vport_number: u16,
    }

    /// Input of `DESTROY_QOS_PARA_VPORT`: ends it. In FreeBSD's mlx5_ifc.h.
    pub struct DestroyQosParaVportIn: 0x40, "mlx5_ifc_destroy_qos_para_vport_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::DestroyQosParaVport,
        0x04 [15:0] op_mod: u16,
        0x0c [15:0] qos_para_vport_number: u16,
    }

    /// Output of `DESTROY_QOS_PARA_VPORT`.
    pub struct DestroyQosParaVportOut: 0x40, "mlx5_ifc_destroy_qos_para_vport_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `CREATE_SCHEDULING_ELEMENT`: puts an element into the hierarchy.
    pub struct CreateSchedulingElementIn: 0x80, "mlx5_ifc_create_scheduling_element_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::CreateSchedulingElement,
        0x04 [15:0] op_mod: u16,
        0x08 [31:24] scheduling_hierarchy: SchedulingHierarchy,
        0x20 scheduling_context: SchedulingContext,
    }

    /// Output of `CREATE_SCHEDULING_ELEMENT`.
    pub struct CreateSchedulingElementOut: 0x40, "mlx5_ifc_create_scheduling_element_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 [31:0] scheduling_element_id: u32,
    }

    /// Input of `DESTROY_SCHEDULING_ELEMENT`: takes an element out of the hierarchy.
    pub struct DestroySchedulingElementIn: 0x40, "mlx5_ifc_destroy_scheduling_element_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::DestroySchedulingElement,
        0x04 [15:0] op_mod: u16,
        0x08 [31:24] scheduling_hierarchy: SchedulingHierarchy,
        0x0c [31:0] scheduling_element_id: u32,
    }

    /// Output of `DESTROY_SCHEDULING_ELEMENT`.
    pub struct DestroySchedulingElementOut: 0x40, "mlx5_ifc_destroy_scheduling_element_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `QUERY_SCHEDULING_ELEMENT`: reads an element.
    pub struct QuerySchedulingElementIn: 0x40, "mlx5_ifc_query_scheduling_element_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QuerySchedulingElement,
        0x04 [15:0] op_mod: u16,
        0x08 [31:24] scheduling_hierarchy: SchedulingHierarchy,
        0x0c [31:0] scheduling_element_id: u32,
    }

    /// Output of `QUERY_SCHEDULING_ELEMENT`.
    pub struct QuerySchedulingElementOut: 0x80, "mlx5_ifc_query_scheduling_element_out_bits" {
        0x00 [31:16] opcode: u16,
        0x04 [15:0] op_mod: u16,
        0x20 scheduling_context: SchedulingContext,
    }

    /// Input of `MODIFY_SCHEDULING_ELEMENT`: changes the fields of an element that `modify_bitmask` names.
    pub struct ModifySchedulingElementIn: 0x80, "mlx5_ifc_modify_scheduling_element_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::ModifySchedulingElement,
        0x04 [15:0] op_mod: u16,
        0x08 [31:24] scheduling_hierarchy: SchedulingHierarchy,
        0x0c [31:0] scheduling_element_id: u32,
        0x14 [31:0] modify_bitmask: u32,
        0x20 scheduling_context: SchedulingContext,
    }

    /// Output of `MODIFY_SCHEDULING_ELEMENT`.
    pub struct ModifySchedulingElementOut: 0x40, "mlx5_ifc_modify_scheduling_element_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

commands! {
    CreateQosParaVport: CreateQosParaVportIn => CreateQosParaVportOut,
    DestroyQosParaVport: DestroyQosParaVportIn => DestroyQosParaVportOut,
    SetPpRateLimit: SetPpRateLimitIn => SetPpRateLimitOut,
    CreateSchedulingElement: CreateSchedulingElementIn => CreateSchedulingElementOut,
    DestroySchedulingElement: DestroySchedulingElementIn => DestroySchedulingElementOut,
    QuerySchedulingElement: QuerySchedulingElementIn => QuerySchedulingElementOut,
    ModifySchedulingElement: ModifySchedulingElementIn => ModifySchedulingElementOut,
}
