//! Flow table entries.

use super::command::commands;
use super::{CmdStatus, Opcode};
use crate::flow::{FlowContext, FlowTableType};

layout! {
    /// Input of `SET_FLOW_TABLE_ENTRY`: writes an entry, new (`op_mod` 0) or there already (1); its destinations and
    /// counters follow.
    pub struct SetFteIn: 0x340, "mlx5_ifc_set_fte_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::SetFlowTableEntry,
        0x04 [15:0] op_mod: u16,
        0x08 [31] other_vport: bool,
        0x08 [30] other_eswitch: bool,
        0x08 [15:0] vport_number: u16,
        0x10 [31:24] table_type: FlowTableType,
        0x10 [15:0] eswitch_owner_vhca_id: u16,
        0x14 [23:0] table_id: u32,
        0x18 [31] ignore_flow_level: bool,
        0x18 [7:0] modify_enable_mask: u8,
        0x20 [31:0] flow_index: u32,
        0x40 flow_context: FlowContext,
    }

    /// Output of `SET_FLOW_TABLE_ENTRY`.
    pub struct SetFteOut: 0x10, "mlx5_ifc_set_fte_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `QUERY_FLOW_TABLE_ENTRY`: reads an entry.
    pub struct QueryFteIn: 0x40, "mlx5_ifc_query_fte_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryFlowTableEntry,
        0x04 [15:0] op_mod: u16,
        0x10 [31:24] table_type: FlowTableType,
        0x14 [23:0] table_id: u32,
        0x20 [31:0] flow_index: u32,
    }

    /// Output of `QUERY_FLOW_TABLE_ENTRY`.
    pub struct QueryFteOut: 0x340, "mlx5_ifc_query_fte_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x40 flow_context: FlowContext,
    }

    /// Input of `DELETE_FLOW_TABLE_ENTRY`: empties an entry.
    pub struct DeleteFteIn: 0x40, "mlx5_ifc_delete_fte_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::DeleteFlowTableEntry,
        0x04 [15:0] op_mod: u16,
        0x08 [31] other_vport: bool,
        0x08 [30] other_eswitch: bool,
        0x08 [15:0] vport_number: u16,
        0x10 [31:24] table_type: FlowTableType,
        0x10 [15:0] eswitch_owner_vhca_id: u16,
        0x14 [23:0] table_id: u32,
        0x20 [31:0] flow_index: u32,
    }

    /// Output of `DELETE_FLOW_TABLE_ENTRY`.
    pub struct DeleteFteOut: 0x10, "mlx5_ifc_delete_fte_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

commands! {
    SetFlowTableEntry: SetFteIn => SetFteOut,
    QueryFlowTableEntry: QueryFteIn => QueryFteOut,
    DeleteFlowTableEntry: DeleteFteIn => DeleteFteOut,
}

values! {
    /// Whether an entry is new, `op_mod` of `SET_FLOW_TABLE_ENTRY`.
    pub enum SetFteOpMod: 16 {
        /// New.
        New = 0 "NEW",
        /// Modifies an existing entry; `modify_enable_mask` selects the changes.
        Modify = 1 "MODIFY",
    }
}
