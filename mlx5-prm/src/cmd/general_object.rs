//! General objects: many types, one set of commands. Their contexts are in [`obj`](crate::obj).

use super::command::commands;
use super::{CmdStatus, Opcode};
use crate::ctx::AliasContext;
use crate::layout::{Be32, Info, Layout};
use crate::obj::ObjType;

layout! {
    /// How an object is made. PRM `general_obj_create_param`.
    pub struct GeneralObjCreateParam: 0x4, "mlx5_ifc_general_obj_create_param_bits" {
        0x00 [31] alias_object: bool,
        0x00 [28:24] log_obj_range: u8,
    }

    /// Which object of a range is read. PRM `general_obj_query_param`.
    pub struct GeneralObjQueryParam: 0x4, "mlx5_ifc_general_obj_query_param_bits" {
        0x00 [31] alias_object: bool,
        0x00 [30:0] obj_offset: u32,
    }

    /// Input of `CREATE_GENERAL_OBJECT`: makes an object; its context follows.
    pub struct CreateGeneralObjectIn: 0x10, "mlx5_ifc_general_obj_in_cmd_hdr_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::CreateGeneralObject,
        0x00 [15:0] uid: u16,
        0x04 [31:16] vhca_tunnel_id: u16,
        0x04 [15:0] obj_type: ObjType,
        0x08 [31:0] obj_id: u32,
        0x0c op_param: GeneralObjCreateParam,
        .. obj_context: [Be32] where object_layout,
    }

    /// Output of `CREATE_GENERAL_OBJECT`.
    pub struct CreateGeneralObjectOut: 0x10, "mlx5_ifc_general_obj_out_cmd_hdr_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [31:0] obj_id: u32,
    }

    /// Input of `MODIFY_GENERAL_OBJECT`: changes the fields of an object that `modify_field_select` in its context
    /// names; the context follows.
    pub struct ModifyGeneralObjectIn: 0x10, "mlx5_ifc_general_obj_in_cmd_hdr_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::ModifyGeneralObject,
        0x00 [15:0] uid: u16,
        0x04 [31:16] vhca_tunnel_id: u16,
        0x04 [15:0] obj_type: ObjType,
        0x08 [31:0] obj_id: u32,
        .. obj_context: [Be32] where object_layout,
    }

    /// Output of `MODIFY_GENERAL_OBJECT`.
    pub struct ModifyGeneralObjectOut: 0x10, "mlx5_ifc_general_obj_out_cmd_hdr_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [31:0] obj_id: u32,
    }

    /// Input of `QUERY_GENERAL_OBJECT`: reads an object.
    pub struct QueryGeneralObjectIn: 0x10, "mlx5_ifc_general_obj_in_cmd_hdr_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryGeneralObject,
        0x00 [15:0] uid: u16,
        0x04 [31:16] vhca_tunnel_id: u16,
        0x04 [15:0] obj_type: ObjType,
        0x08 [31:0] obj_id: u32,
        0x0c op_param: GeneralObjQueryParam,
    }

    /// Output of `QUERY_GENERAL_OBJECT`; the object's context follows.
    pub struct QueryGeneralObjectOut: 0x10, "mlx5_ifc_general_obj_out_cmd_hdr_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [31:0] obj_id: u32,
        .. obj_context: [Be32],
    }

    /// Input of `DESTROY_GENERAL_OBJECT`: ends an object.
    pub struct DestroyGeneralObjectIn: 0x10, "mlx5_ifc_general_obj_in_cmd_hdr_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::DestroyGeneralObject,
        0x00 [15:0] uid: u16,
        0x04 [31:16] vhca_tunnel_id: u16,
        0x04 [15:0] obj_type: ObjType,
        0x08 [31:0] obj_id: u32,
    }

    /// Output of `DESTROY_GENERAL_OBJECT`.
    pub struct DestroyGeneralObjectOut: 0x10, "mlx5_ifc_general_obj_out_cmd_hdr_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [31:0] obj_id: u32,
    }
}

commands! {

    CreateGeneralObject: CreateGeneralObjectIn => CreateGeneralObjectOut,
    ModifyGeneralObject: ModifyGeneralObjectIn => ModifyGeneralObjectOut,
    QueryGeneralObject: QueryGeneralObjectIn => QueryGeneralObjectOut { obj_context: QueryGeneralObjectIn::object_layout },
    DestroyGeneralObject: DestroyGeneralObjectIn => DestroyGeneralObjectOut,
}

impl CreateGeneralObjectIn {
    fn object_layout(bytes: &[u8], _index: usize) -> Option<&'static Info> {
        let create = CreateGeneralObjectIn::read(bytes)?;
        object_layout(create.obj_type(), create.op_param().alias_object())
    }
}

impl ModifyGeneralObjectIn {
    fn object_layout(bytes: &[u8], _index: usize) -> Option<&'static Info> {
        ModifyGeneralObjectIn::read(bytes)?.obj_type().layout()
    }
}

impl QueryGeneralObjectIn {
    /// The context in the output.
    fn object_layout(input: &[u8], _index: usize) -> Option<&'static Info> {
        let query = QueryGeneralObjectIn::read(input)?;
        object_layout(query.obj_type(), query.op_param().alias_object())
    }
}

/// An alias has the same context whatever it stands for.
fn object_layout(obj_type: ObjType, alias: bool) -> Option<&'static Info> {
    if alias { Some(&AliasContext::INFO) } else { obj_type.layout() }
}
