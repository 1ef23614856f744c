//! Flow tables.

use super::command::commands;
use super::{CmdStatus, Opcode};
use crate::flow::{FlowTableContext, FlowTableType};

layout! {
    /// Input of `SET_FLOW_TABLE_ROOT`: makes a flow table the first one that packets of its type meet.
    pub struct SetFlowTableRootIn: 0x40, "mlx5_ifc_set_flow_table_root_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::SetFlowTableRoot,
        0x04 [15:0] op_mod: u16,
        0x08 [31] other_vport: bool,
        0x08 [30] other_eswitch: bool,
        0x08 [15:0] vport_number: u16,
        0x0c [15:0] eswitch_owner_vhca_id: u16,
        0x10 [31:24] table_type: FlowTableType,
        0x10 [16] table_of_other_vport: bool,
        0x10 [15:0] table_vport_number: u16,
        0x14 [23:0] table_id: u32,
        0x18 [23:0] underlay_qpn: u32,
        0x1c [31] table_eswitch_owner_vhca_id_valid: bool,
        0x1c [15:0] table_eswitch_owner_vhca_id: u16,
    }

    /// Output of `SET_FLOW_TABLE_ROOT`.
    pub struct SetFlowTableRootOut: 0x10, "mlx5_ifc_set_flow_table_root_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `CREATE_FLOW_TABLE`: makes a flow table.
    pub struct CreateFlowTableIn: 0x40, "mlx5_ifc_create_flow_table_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::CreateFlowTable,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [31] other_vport: bool,
        0x08 [30] other_eswitch: bool,
        0x08 [15:0] vport_number: u16,
        0x10 [31:24] table_type: FlowTableType,
        0x10 [15:0] eswitch_owner_vhca_id: u16,
        0x18 flow_table_context: FlowTableContext,
    }

    /// Output of `CREATE_FLOW_TABLE`.
    pub struct CreateFlowTableOut: 0x10, "mlx5_ifc_create_flow_table_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x00 [23:0] icm_address_63_40: u32,
        0x04 [31:0] syndrome: u32,
        0x08 [31:24] icm_address_39_32: u8,
        0x08 [23:0] table_id: u32,
        0x0c [31:0] icm_address_31_0: u32,
    }

    /// Input of `DESTROY_FLOW_TABLE`: ends a flow table without groups.
    pub struct DestroyFlowTableIn: 0x40, "mlx5_ifc_destroy_flow_table_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::DestroyFlowTable,
        0x04 [15:0] op_mod: u16,
        0x08 [31] other_vport: bool,
        0x08 [30] other_eswitch: bool,
        0x08 [15:0] vport_number: u16,
        0x10 [31:24] table_type: FlowTableType,
        0x10 [15:0] eswitch_owner_vhca_id: u16,
        0x14 [23:0] table_id: u32,
    }

    /// Output of `DESTROY_FLOW_TABLE`.
    pub struct DestroyFlowTableOut: 0x10, "mlx5_ifc_destroy_flow_table_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `QUERY_FLOW_TABLE`: reads a flow table.
    pub struct QueryFlowTableIn: 0x40, "mlx5_ifc_query_flow_table_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryFlowTable,
        0x04 [15:0] op_mod: u16,
        0x10 [31:24] table_type: FlowTableType,
        0x14 [23:0] table_id: u32,
    }

    /// Output of `QUERY_FLOW_TABLE`.
    pub struct QueryFlowTableOut: 0x40, "mlx5_ifc_query_flow_table_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x18 flow_table_context: FlowTableContext,
    }

    /// Input of `MODIFY_FLOW_TABLE`: changes the fields of a flow table that `modify_field_select` names.
    pub struct ModifyFlowTableIn: 0x40, "mlx5_ifc_modify_flow_table_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::ModifyFlowTable,
        0x04 [15:0] op_mod: u16,
        0x08 [31] other_vport: bool,
        0x08 [30] other_eswitch: bool,
        0x08 [15:0] vport_number: u16,
        0x0c [15:0] modify_field_select: u16,
        0x10 [31:24] table_type: FlowTableType,
        0x10 [15:0] eswitch_owner_vhca_id: u16,
        0x14 [23:0] table_id: u32,
        0x18 flow_table_context: FlowTableContext,
    }

    /// Output of `MODIFY_FLOW_TABLE`.
    pub struct ModifyFlowTableOut: 0x10, "mlx5_ifc_modify_flow_table_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

commands! {
    SetFlowTableRoot: SetFlowTableRootIn => SetFlowTableRootOut,
    CreateFlowTable: CreateFlowTableIn => CreateFlowTableOut,
    DestroyFlowTable: DestroyFlowTableIn => DestroyFlowTableOut,
    QueryFlowTable: QueryFlowTableIn => QueryFlowTableOut,
    ModifyFlowTable: ModifyFlowTableIn => ModifyFlowTableOut,
}
