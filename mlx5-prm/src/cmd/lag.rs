//! Link aggregation.

use super::command::commands;
use super::{CmdStatus, Opcode};
use crate::ctx::Lagc;

layout! {
    /// Input of `CREATE_LAG`: makes a bond of the two ports.
    pub struct CreateLagIn: 0x10, "mlx5_ifc_create_lag_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::CreateLag,
        0x04 [15:0] op_mod: u16,
        0x08 ctx: Lagc,
    }

    /// Output of `CREATE_LAG`.
    pub struct CreateLagOut: 0x10, "mlx5_ifc_create_lag_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `MODIFY_LAG`: changes the fields of the bond that `field_select` names.
    pub struct ModifyLagIn: 0x18, "mlx5_ifc_modify_lag_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::ModifyLag,
        0x04 [15:0] op_mod: u16,
        0x0c [31:0] field_select: u32,
        0x10 ctx: Lagc,
    }

    /// Output of `MODIFY_LAG`.
    pub struct ModifyLagOut: 0x10, "mlx5_ifc_modify_lag_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `QUERY_LAG`: reads the bond.
    pub struct QueryLagIn: 0x10, "mlx5_ifc_query_lag_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryLag,
        0x04 [15:0] op_mod: u16,
    }

    /// Output of `QUERY_LAG`.
    pub struct QueryLagOut: 0x10, "mlx5_ifc_query_lag_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 ctx: Lagc,
    }

    /// Input of `DESTROY_LAG`: ends the bond.
    pub struct DestroyLagIn: 0x10, "mlx5_ifc_destroy_lag_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::DestroyLag,
        0x04 [15:0] op_mod: u16,
    }

    /// Output of `DESTROY_LAG`.
    pub struct DestroyLagOut: 0x10, "mlx5_ifc_destroy_lag_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `CREATE_VPORT_LAG`: lets ports of the e-switch use both ports of the bond.
    pub struct CreateVportLagIn: 0x10, "mlx5_ifc_create_vport_lag_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::CreateVportLag,
        0x04 [15:0] op_mod: u16,
    }

    /// Output of `CREATE_VPORT_LAG`.
    pub struct CreateVportLagOut: 0x10, "mlx5_ifc_create_vport_lag_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `DESTROY_VPORT_LAG`: ends that.
    pub struct DestroyVportLagIn: 0x10, "mlx5_ifc_destroy_vport_lag_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::DestroyVportLag,
        0x04 [15:0] op_mod: u16,
    }

    /// Output of `DESTROY_VPORT_LAG`.
    pub struct DestroyVportLagOut: 0x10, "mlx5_ifc_destroy_vport_lag_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

commands! {
    CreateLag: CreateLagIn => CreateLagOut,
    ModifyLag: ModifyLagIn => ModifyLagOut,
    QueryLag: QueryLagIn => QueryLagOut,
    DestroyLag: DestroyLagIn => DestroyLagOut,
    CreateVportLag: CreateVportLagIn => CreateVportLagOut,
    DestroyVportLag: DestroyVportLagIn => DestroyVportLagOut,
}
