//! InfiniBand side of virtual ports.

use super::command::commands;
use super::{CmdStatus, Opcode};
use crate::ctx::HcaVportContext;

layout! {
    /// Input of `QUERY_HCA_VPORT_CONTEXT`: reads the InfiniBand side of a port: its addresses, its rights.
    pub struct QueryHcaVportContextIn: 0x10, "mlx5_ifc_query_hca_vport_context_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryHcaVportContext,
        0x04 [15:0] op_mod: u16,
        0x08 [31] other_vport: bool,
        0x08 [19:16] port_num: u8,
        0x08 [15:0] vport_number: u16,
    }

    /// Output of `QUERY_HCA_VPORT_CONTEXT`.
    pub struct QueryHcaVportContextOut: 0x210, "mlx5_ifc_query_hca_vport_context_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 hca_vport_context: HcaVportContext,
    }

    /// Input of `MODIFY_HCA_VPORT_CONTEXT`: changes the InfiniBand side of a port.
    pub struct ModifyHcaVportContextIn: 0x210, "mlx5_ifc_modify_hca_vport_context_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::ModifyHcaVportContext,
        0x04 [15:0] op_mod: u16,
        0x08 [31] other_vport: bool,
        0x08 [19:16] port_num: u8,
        0x08 [15:0] vport_number: u16,
        0x10 hca_vport_context: HcaVportContext,
    }

    /// Output of `MODIFY_HCA_VPORT_CONTEXT`.
    pub struct ModifyHcaVportContextOut: 0x10, "mlx5_ifc_modify_hca_vport_context_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `QUERY_HCA_VPORT_GID`: reads a port's GIDs; they follow.
    pub struct QueryHcaVportGidIn: 0x10, "mlx5_ifc_query_hca_vport_gid_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryHcaVportGid,
        0x04 [15:0] op_mod: u16,
        0x08 [31] other_vport: bool,
        0x08 [19:16] port_num: u8,
        0x08 [15:0] vport_number: u16,
        0x0c [15:0] gid_index: u16,
    }

    /// Output of `QUERY_HCA_VPORT_GID`.
    pub struct QueryHcaVportGidOut: 0x10, "mlx5_ifc_query_hca_vport_gid_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x0c [31:16] gids_num: u16,
        .. gid: [Array128Auto],
    }

    /// Input of `QUERY_HCA_VPORT_PKEY`: reads a port's partition keys; they follow.
    pub struct QueryHcaVportPkeyIn: 0x10, "mlx5_ifc_query_hca_vport_pkey_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryHcaVportPkey,
        0x04 [15:0] op_mod: u16,
        0x08 [31] other_vport: bool,
        0x08 [19:16] port_num: u8,
        0x08 [15:0] vport_number: u16,
        0x0c [15:0] pkey_index: u16,
    }

    /// Output of `QUERY_HCA_VPORT_PKEY`.
    pub struct QueryHcaVportPkeyOut: 0x10, "mlx5_ifc_query_hca_vport_pkey_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        .. pkey: [Pkey],
    }

    /// A GID. PRM `array128_auto`.
    pub struct Array128Auto: 0x10, "mlx5_ifc_array128_auto_bits" {
        0x00 array128_auto: [u8; 16],
    }

    /// A partition key. PRM `pkey`.
    pub struct Pkey: 0x4, "mlx5_ifc_pkey_bits" {
        0x00 [15:0] pkey: u16,
    }
}

commands! {
    QueryHcaVportContext: QueryHcaVportContextIn => QueryHcaVportContextOut,
    ModifyHcaVportContext: ModifyHcaVportContextIn => ModifyHcaVportContextOut,
    QueryHcaVportGid: QueryHcaVportGidIn => QueryHcaVportGidOut,
    QueryHcaVportPkey: QueryHcaVportPkeyIn => QueryHcaVportPkeyOut,
}
