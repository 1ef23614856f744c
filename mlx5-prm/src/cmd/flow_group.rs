//! Flow groups: entries of a table that match by the same criteria.

use super::command::commands;
use super::{CmdStatus, Opcode};
use crate::flow::{FlowGroupType, FlowTableType, FteMatchParam};

layout! {
    /// Input of `CREATE_FLOW_GROUP`: makes a group of a range of a table's entries.
    pub struct CreateFlowGroupIn: 0x400, "mlx5_ifc_create_flow_group_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::CreateFlowGroup,
        0x04 [15:0] op_mod: u16,
        0x08 [31] other_vport: bool,
        0x08 [30] other_eswitch: bool,
        0x08 [15:0] vport_number: u16,
        0x10 [31:24] table_type: FlowTableType,
        0x10 [19:16] group_type: FlowGroupType,
        0x10 [15:0] eswitch_owner_vhca_id: u16,
        0x14 [23:0] table_id: u32,
        0x18 [31] source_eswitch_owner_vhca_id_valid: bool,
        0x1c [31:0] start_flow_index: u32,
        0x24 [31:0] end_flow_index: u32,
        0x28 [15:0] match_definer_id: u16,
        0x3c [7:0] match_criteria_enable: u8,
        0x40 match_criteria: FteMatchParam,
    }

    /// Output of `CREATE_FLOW_GROUP`.
    pub struct CreateFlowGroupOut: 0x10, "mlx5_ifc_create_flow_group_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [23:0] group_id: u32,
    }

    /// Input of `DESTROY_FLOW_GROUP`: ends a group without entries.
    pub struct DestroyFlowGroupIn: 0x40, "mlx5_ifc_destroy_flow_group_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::DestroyFlowGroup,
        0x04 [15:0] op_mod: u16,
        0x08 [31] other_vport: bool,
        0x08 [30] other_eswitch: bool,
        0x08 [15:0] vport_number: u16,
        0x10 [31:24] table_type: FlowTableType,
        0x10 [15:0] eswitch_owner_vhca_id: u16,
        0x14 [23:0] table_id: u32,
        0x18 [31:0] group_id: u32,
    }

    /// Output of `DESTROY_FLOW_GROUP`.
    pub struct DestroyFlowGroupOut: 0x10, "mlx5_ifc_destroy_flow_group_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `QUERY_FLOW_GROUP`: reads a group.
    pub struct QueryFlowGroupIn: 0x40, "mlx5_ifc_query_flow_group_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryFlowGroup,
        0x04 [15:0] op_mod: u16,
        0x10 [31:24] table_type: FlowTableType,
        0x14 [23:0] table_id: u32,
        0x18 [31:0] group_id: u32,
    }

    /// Output of `QUERY_FLOW_GROUP`.
    pub struct QueryFlowGroupOut: 0x400, "mlx5_ifc_query_flow_group_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x1c [31:0] start_flow_index: u32,
        0x24 [31:0] end_flow_index: u32,
        0x3c [7:0] match_criteria_enable: u8,
        0x40 match_criteria: FteMatchParam,
    }
}

commands! {
    CreateFlowGroup: CreateFlowGroupIn => CreateFlowGroupOut,
    DestroyFlowGroup: DestroyFlowGroupIn => DestroyFlowGroupOut,
    QueryFlowGroup: QueryFlowGroupIn => QueryFlowGroupOut,
}
