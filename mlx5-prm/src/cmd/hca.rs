//! Bring-up, teardown and what the card is: capabilities, ISSI, adapter.

use super::command::commands;
use super::{CmdStatus, Opcode};
use crate::ctx::QueryAdapterParamBlock;
use crate::caps::{CapPage, HcaCapOpMod};
use crate::layout::{Be32, Info, Layout};

layout! {
    /// Input of `QUERY_HCA_CAP`: asks for one page of capabilities, see [`CapPage`](crate::caps::CapPage).
    pub struct QueryHcaCapIn: 0x10, "mlx5_ifc_query_hca_cap_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryHcaCap,
        0x04 [15:0] op_mod: u16 as HcaCapOpMod,
        0x08 [31] other_function: bool,
        0x08 [30] ec_vf_function: bool,
        0x08 [28] function_id_type: bool,
        0x08 [15:0] function_id: u16,
    }

    /// Output of `QUERY_HCA_CAP`. The input selects the page in `capability`.
    pub struct QueryHcaCapOut: 0x1010, "mlx5_ifc_query_hca_cap_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 capability: [u8; 0x1000],
    }

    /// Input of `QUERY_OTHER_HCA_CAP`: what another function may do.
    pub struct QueryOtherHcaCapIn: 0x10, "mlx5_ifc_query_other_hca_cap_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryOtherHcaCap,
        0x04 [15:0] op_mod: u16,
        0x08 [15:0] function_id: u16,
    }

    /// Output of `QUERY_OTHER_HCA_CAP`.
    pub struct QueryOtherHcaCapOut: 0x60, "mlx5_ifc_query_other_hca_cap_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 other_capability: OtherHcaCap,
    }

    /// What another function may do. PRM `other_hca_cap`.
    pub struct OtherHcaCap: 0x50, "mlx5_ifc_other_hca_cap_bits" {
        0x00 [31] roce: bool,
    }

    /// Input of `MODIFY_OTHER_HCA_CAP`: sets what another function may do.
    pub struct ModifyOtherHcaCapIn: 0x60, "mlx5_ifc_modify_other_hca_cap_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::ModifyOtherHcaCap,
        0x04 [15:0] op_mod: u16,
        0x08 [15:0] function_id: u16,
        0x0c [31:0] field_select: u32,
        0x10 other_capability: OtherHcaCap,
    }

    /// Output of `MODIFY_OTHER_HCA_CAP`.
    pub struct ModifyOtherHcaCapOut: 0x10, "mlx5_ifc_modify_other_hca_cap_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `SET_HCA_CAP`: chooses among what a page of capabilities offers, before `INIT_HCA`.
    pub struct SetHcaCapIn: 0x1010, "mlx5_ifc_set_hca_cap_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::SetHcaCap,
        0x04 [15:0] op_mod: u16 as HcaCapOpMod,
        0x08 [31] other_function: bool,
        0x08 [30] ec_vf_function: bool,
        0x08 [28] function_id_type: bool,
        0x08 [15:0] function_id: u16,
        0x10 capability: [u8; 0x1000] where page,
    }

    /// Output of `SET_HCA_CAP`.
    pub struct SetHcaCapOut: 0x10, "mlx5_ifc_set_hca_cap_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `QUERY_ADAPTER`: asks for the board's identity.
    pub struct QueryAdapterIn: 0x10, "mlx5_ifc_query_adapter_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryAdapter,
        0x04 [15:0] op_mod: u16,
    }

    /// Output of `QUERY_ADAPTER`.
    pub struct QueryAdapterOut: 0x110, "mlx5_ifc_query_adapter_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 query_adapter_struct: QueryAdapterParamBlock,
    }

    /// Input of `INIT_HCA`: starts the function with the capabilities set; objects may be created from here on.
    pub struct InitHcaIn: 0x20, "mlx5_ifc_init_hca_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::InitHca,
        0x04 [15:0] op_mod: u16,
        0x0c [29:16] sw_vhca_id: u16,
        0x10 sw_owner_id: [Be32; 4],
    }

    /// Output of `INIT_HCA`.
    pub struct InitHcaOut: 0x10, "mlx5_ifc_init_hca_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `TEARDOWN_HCA`: ends what `INIT_HCA` started.
    pub struct TeardownHcaIn: 0x10, "mlx5_ifc_teardown_hca_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::TeardownHca,
        0x04 [15:0] op_mod: u16,
        0x08 [15:0] profile: u16,
    }

    /// Output of `TEARDOWN_HCA`.
    pub struct TeardownHcaOut: 0x10, "mlx5_ifc_teardown_hca_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x0c [0] state: bool,
    }

    /// Input of `ENABLE_HCA`: the first command: lets the function work.
    pub struct EnableHcaIn: 0x10, "mlx5_ifc_enable_hca_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::EnableHca,
        0x04 [15:0] op_mod: u16,
        0x08 [31] embedded_cpu_function: bool,
        0x08 [28] function_id_type: bool,
        0x08 [15:0] function_id: u16,
    }

    /// Output of `ENABLE_HCA`.
    pub struct EnableHcaOut: 0xc, "mlx5_ifc_enable_hca_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `DISABLE_HCA`: the last command: undoes `ENABLE_HCA`, after all pages are back.
    pub struct DisableHcaIn: 0x10, "mlx5_ifc_disable_hca_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::DisableHca,
        0x04 [15:0] op_mod: u16,
        0x08 [31] embedded_cpu_function: bool,
        0x08 [28] function_id_type: bool,
        0x08 [15:0] function_id: u16,
    }

    /// Output of `DISABLE_HCA`.
    pub struct DisableHcaOut: 0xc, "mlx5_ifc_disable_hca_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `QUERY_ISSI`: asks which versions of the command interface's steps firmware knows.
    pub struct QueryIssiIn: 0x10, "mlx5_ifc_query_issi_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryIssi,
        0x04 [15:0] op_mod: u16,
    }

    /// Output of `QUERY_ISSI`.
    pub struct QueryIssiOut: 0x70, "mlx5_ifc_query_issi_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [15:0] current_issi: u16,
        0x6c [31:0] supported_issi_dw0: u32,
    }

    /// Input of `SET_ISSI`: chooses one of them.
    pub struct SetIssiIn: 0x10, "mlx5_ifc_set_issi_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::SetIssi,
        0x04 [15:0] op_mod: u16,
        0x08 [15:0] current_issi: u16,
    }

    /// Output of `SET_ISSI`.
    pub struct SetIssiOut: 0x10, "mlx5_ifc_set_issi_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `SET_DRIVER_VERSION`: identifies the driver to firmware, for its logs.
    pub struct SetDriverVersionIn: 0x50, "mlx5_ifc_set_driver_version_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::SetDriverVersion,
        0x04 [15:0] op_mod: u16,
        0x10 driver_version: [u8; 64],
    }

    /// Output of `SET_DRIVER_VERSION`.
    pub struct SetDriverVersionOut: 0x10, "mlx5_ifc_set_driver_version_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `QUERY_SPECIAL_CONTEXTS`: asks for the keys that are always there.
    pub struct QuerySpecialContextsIn: 0x10, "mlx5_ifc_query_special_contexts_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QuerySpecialContexts,
        0x04 [15:0] op_mod: u16,
    }

    /// Output of `QUERY_SPECIAL_CONTEXTS`.
    pub struct QuerySpecialContextsOut: 0x20, "mlx5_ifc_query_special_contexts_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [31:0] dump_fill_mkey: u32,
        0x0c [31:0] resd_lkey: u32,
        0x10 [31:0] null_mkey: u32,
        0x14 [31:0] terminate_scatter_list_mkey: u32,
        0x18 [31:0] repeated_mkey: u32,
    }

    /// Input of `NOP`: does nothing, and proves that the command queue works.
    pub struct NopIn: 0x10, "mlx5_ifc_nop_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::Nop,
        0x04 [15:0] op_mod: u16,
    }

    /// Output of `NOP`.
    pub struct NopOut: 0x10, "mlx5_ifc_nop_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

commands! {
    QueryHcaCap: QueryHcaCapIn => QueryHcaCapOut { capability: QueryHcaCapIn::page },
    SetHcaCap: SetHcaCapIn => SetHcaCapOut,
    QueryOtherHcaCap: QueryOtherHcaCapIn => QueryOtherHcaCapOut,
    ModifyOtherHcaCap: ModifyOtherHcaCapIn => ModifyOtherHcaCapOut,
    QueryAdapter: QueryAdapterIn => QueryAdapterOut,
    InitHca: InitHcaIn => InitHcaOut,
    TeardownHca: TeardownHcaIn => TeardownHcaOut,
    EnableHca: EnableHcaIn => EnableHcaOut,
    DisableHca: DisableHcaIn => DisableHcaOut,
    QueryIssi: QueryIssiIn => QueryIssiOut,
    SetIssi: SetIssiIn => SetIssiOut,
    SetDriverVersion: SetDriverVersionIn => SetDriverVersionOut,
    QuerySpecialContexts: QuerySpecialContextsIn => QuerySpecialContextsOut,
    Nop: NopIn => NopOut,
}

impl QueryHcaCapIn {
    /// The page in the output.
    fn page(input: &[u8], _index: usize) -> Option<&'static Info> {
        CapPage::from_op_mod(QueryHcaCapIn::read(input)?.op_mod()).layout()
    }
}

impl SetHcaCapIn {
    fn page(bytes: &[u8], _index: usize) -> Option<&'static Info> {
        CapPage::from_op_mod(SetHcaCapIn::read(bytes)?.op_mod()).layout()
    }
}
