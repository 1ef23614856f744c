//! Modify header contexts: lists of actions that entries do on packets.

use super::command::commands;
use super::{CmdStatus, Opcode, UnpublishedOut};
use crate::flow::{FlowTableType, SetAddCopyActionInAuto};
use crate::layout::{Info, Layout};

layout! {
    /// Input of `ALLOC_MODIFY_HEADER_CONTEXT`: makes a modify header context; its actions follow.
    pub struct AllocModifyHeaderContextIn: 0x10, "mlx5_ifc_alloc_modify_header_context_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::AllocModifyHeaderContext,
        0x04 [15:0] op_mod: u16,
        0x0c [31:24] table_type: FlowTableType,
        0x0c [7:0] num_of_actions: u8,
        .. actions: [SetAddCopyActionInAuto] where action_layout,
    }

    /// Output of `ALLOC_MODIFY_HEADER_CONTEXT`.
    pub struct AllocModifyHeaderContextOut: 0x10, "mlx5_ifc_alloc_modify_header_context_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [31:0] modify_header_id: u32,
    }

    /// Input of `DEALLOC_MODIFY_HEADER_CONTEXT`: ends a modify header context.
    pub struct DeallocModifyHeaderContextIn: 0x10, "mlx5_ifc_dealloc_modify_header_context_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::DeallocModifyHeaderContext,
        0x04 [15:0] op_mod: u16,
        0x08 [31:0] modify_header_id: u32,
    }

    /// Output of `DEALLOC_MODIFY_HEADER_CONTEXT`.
    pub struct DeallocModifyHeaderContextOut: 0x10, "mlx5_ifc_dealloc_modify_header_context_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `QUERY_MODIFY_HEADER_CONTEXT`: reads the actions of a modify header context.
    pub struct QueryModifyHeaderContextIn: 0x20, "mlx5_ifc_query_modify_header_context_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryModifyHeaderContext,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [31:0] modify_header_id: u32,
    }
}

commands! {
    QueryModifyHeaderContext: QueryModifyHeaderContextIn => UnpublishedOut,
    AllocModifyHeaderContext: AllocModifyHeaderContextIn => AllocModifyHeaderContextOut,
    DeallocModifyHeaderContext: DeallocModifyHeaderContextIn => DeallocModifyHeaderContextOut,
}

impl AllocModifyHeaderContextIn {
    fn action_layout(bytes: &[u8], i: usize) -> Option<&'static Info> {
        SetAddCopyActionInAuto::in_list(bytes, AllocModifyHeaderContextIn::SIZE, i)
    }
}
