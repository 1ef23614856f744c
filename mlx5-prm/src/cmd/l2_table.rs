//! The L2 table: which addresses' unicast frames the port hands to the function.

use super::command::commands;
use super::{CmdStatus, Opcode};
use crate::ctx::MacAddressLayout;

layout! {
    /// Input of `SET_L2_TABLE_ENTRY`: frames to this address are the function's from now on.
    pub struct SetL2TableEntryIn: 0x40, "mlx5_ifc_set_l2_table_entry_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::SetL2TableEntry,
        0x04 [15:0] op_mod: u16,
        0x14 [23:0] table_index: u32,
        0x1c [15] silent_mode_valid: bool,
        0x1c [14] silent_mode: bool,
        0x1c [12] vlan_valid: bool,
        0x1c [11:0] vlan: u16,
        0x20 mac_address: MacAddressLayout,
    }

    /// Output of `SET_L2_TABLE_ENTRY`.
    pub struct SetL2TableEntryOut: 0x10, "mlx5_ifc_set_l2_table_entry_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `QUERY_L2_TABLE_ENTRY`: reads an entry.
    pub struct QueryL2TableEntryIn: 0x40, "mlx5_ifc_query_l2_table_entry_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryL2TableEntry,
        0x04 [15:0] op_mod: u16,
        0x10 [31] silent_mode_query: bool,
        0x14 [23:0] table_index: u32,
    }

    /// Output of `QUERY_L2_TABLE_ENTRY`.
    pub struct QueryL2TableEntryOut: 0x40, "mlx5_ifc_query_l2_table_entry_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x1c [14] silent_mode: bool,
        0x1c [12] vlan_valid: bool,
        0x1c [11:0] vlan: u16,
        0x20 mac_address: MacAddressLayout,
    }

    /// Input of `DELETE_L2_TABLE_ENTRY`: empties an entry.
    pub struct DeleteL2TableEntryIn: 0x40, "mlx5_ifc_delete_l2_table_entry_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::DeleteL2TableEntry,
        0x04 [15:0] op_mod: u16,
        0x14 [23:0] table_index: u32,
    }

    /// Output of `DELETE_L2_TABLE_ENTRY`.
    pub struct DeleteL2TableEntryOut: 0x10, "mlx5_ifc_delete_l2_table_entry_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

commands! {
    SetL2TableEntry: SetL2TableEntryIn => SetL2TableEntryOut,
    QueryL2TableEntry: QueryL2TableEntryIn => QueryL2TableEntryOut,
    DeleteL2TableEntry: DeleteL2TableEntryIn => DeleteL2TableEntryOut,
}
