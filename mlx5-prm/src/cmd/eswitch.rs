//! The e-switch: functions behind it, contexts of its ports.

use super::command::commands;
use super::{CmdStatus, Opcode};
use crate::ctx::{Array1024Auto, DelegatedFunctionVhcaRidInfo, EswVportContext, EswVportContextFieldsSelect, HostParamsContext, NetFunctionParams, NetworkFunctionParams};
use crate::layout::{Info, Layout};

layout! {
    /// Input of `QUERY_ESW_VPORT_CONTEXT`: reads what the e-switch does with a port's VLAN tags.
    pub struct QueryEswVportContextIn: 0x10, "mlx5_ifc_query_esw_vport_context_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryEswVportContext,
        0x04 [15:0] op_mod: u16,
        0x08 [31] other_vport: bool,
        0x08 [15:0] vport_number: u16,
    }

    /// Output of `QUERY_ESW_VPORT_CONTEXT`.
    pub struct QueryEswVportContextOut: 0x110, "mlx5_ifc_query_esw_vport_context_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 esw_vport_context: EswVportContext,
    }

    /// Input of `MODIFY_ESW_VPORT_CONTEXT`: changes what the e-switch does with a port's VLAN tags.
    pub struct ModifyEswVportContextIn: 0x110, "mlx5_ifc_modify_esw_vport_context_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::ModifyEswVportContext,
        0x04 [15:0] op_mod: u16,
        0x08 [31] other_vport: bool,
        0x08 [15:0] vport_number: u16,
        0x0c field_select: EswVportContextFieldsSelect,
        0x10 esw_vport_context: EswVportContext,
    }

    /// Output of `MODIFY_ESW_VPORT_CONTEXT`.
    pub struct ModifyEswVportContextOut: 0x10, "mlx5_ifc_modify_esw_vport_context_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `CREATE_ESW_VPORT`: makes a port of the e-switch.
    pub struct CreateEswVportIn: 0x10, "mlx5_ifc_create_esw_vport_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::CreateEswVport,
        0x04 [15:0] op_mod: u16,
        0x08 [15:0] managed_vhca_id: u16,
    }

    /// Output of `CREATE_ESW_VPORT`.
    pub struct CreateEswVportOut: 0x10, "mlx5_ifc_create_esw_vport_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x0c [15:0] vport_num: u16,
    }

    /// Input of `DESTROY_ESW_VPORT`: ends a port of the e-switch.
    pub struct DestroyEswVportIn: 0x10, "mlx5_ifc_destroy_esw_vport_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::DestroyEswVport,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [15:0] vport_num: u16,
    }

    /// Output of `DESTROY_ESW_VPORT`.
    pub struct DestroyEswVportOut: 0xc, "mlx5_ifc_destroy_esw_vport_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `QUERY_DELEGATED_VHCA`: asks which functions are managed from here; a list follows.
    pub struct QueryDelegatedVhcaIn: 0x10, "mlx5_ifc_query_delegated_vhca_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryDelegatedVhca,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
    }

    /// Output of `QUERY_DELEGATED_VHCA`.
    pub struct QueryDelegatedVhcaOut: 0x20, "mlx5_ifc_query_delegated_vhca_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x0c [15:0] functions_count: u16,
        .. delegated_function_vhca_rid_info: [DelegatedFunctionVhcaRidInfo],
    }

    /// Input of `QUERY_VUID`: asks for the unique identifiers of functions; a list follows.
    pub struct QueryVuidIn: 0x10, "mlx5_ifc_query_vuid_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryVuid,
        0x00 [15:0] uid: u16,
        0x0c [31] query_vfs_vuid: bool,
        0x0c [30] data_direct: bool,
        0x0c [15:0] vhca_id: u16,
    }

    /// Output of `QUERY_VUID`.
    pub struct QueryVuidOut: 0x40, "mlx5_ifc_query_vuid_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x3c [15:0] num_of_entries: u16,
        .. vuid: [Array1024Auto],
    }

    /// Input of `QUERY_ESW_FUNCTIONS`: asks an embedded CPU's card about the functions of its hosts.
    pub struct QueryEswFunctionsIn: 0x10, "mlx5_ifc_query_esw_functions_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryEswFunctions,
        0x04 [15:0] op_mod: u16 as EswFunctionsOpMod,
    }

    /// Output of `QUERY_ESW_FUNCTIONS`; the functions follow, in the layout that `op_mod` asked for.
    pub struct QueryEswFunctionsOut: 0x10, "none" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x0c [31:24] net_function_num: u8,
        .. net_function_params: [NetFunctionParams],
    }
}

commands! {
    QueryEswVportContext: QueryEswVportContextIn => QueryEswVportContextOut,
    ModifyEswVportContext: ModifyEswVportContextIn => ModifyEswVportContextOut,
    CreateEswVport: CreateEswVportIn => CreateEswVportOut,
    DestroyEswVport: DestroyEswVportIn => DestroyEswVportOut,
    QueryDelegatedVhca: QueryDelegatedVhcaIn => QueryDelegatedVhcaOut,
    QueryVuid: QueryVuidIn => QueryVuidOut,
    QueryEswFunctions: QueryEswFunctionsIn => QueryEswFunctionsOut { net_function_params: QueryEswFunctionsIn::function_layout },
}

values! {
    /// Layout that is asked for, `op_mod` of `QUERY_ESW_FUNCTIONS`.
    pub enum EswFunctionsOpMod: 16 {
        /// One host's physical function.
        HostParams = 0 "HOST_PARAMS",
        /// Every function.
        LayoutV1 = 16384 "LAYOUT_V1",
    }
}

impl QueryEswFunctionsIn {
    /// The arm of each function in the output.
    fn function_layout(input: &[u8], _index: usize) -> Option<&'static Info> {
        match EswFunctionsOpMod::from_number(QueryEswFunctionsIn::read(input)?.op_mod().into()) {
            EswFunctionsOpMod::HostParams => Some(&HostParamsContext::INFO),
            EswFunctionsOpMod::LayoutV1 => Some(&NetworkFunctionParams::INFO),
            EswFunctionsOpMod::Unknown(_) => None,
        }
    }
}
