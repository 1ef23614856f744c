//! Extended shared receive queues.

use super::command::commands;
use super::{CmdStatus, Opcode, UnpublishedOut};
use crate::ctx::Xrqc;
use crate::layout::Be32;
use crate::values::PathMtu;

layout! {
    /// Input of `CREATE_XRQ`: makes an extended shared receive queue; its pages follow unless it lies in a umem.
    pub struct CreateXrqIn: 0x150, "mlx5_ifc_create_xrq_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::CreateXrq,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x10 xrq_context: Xrqc,
    }

    /// Output of `CREATE_XRQ`.
    pub struct CreateXrqOut: 0x10, "mlx5_ifc_create_xrq_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [23:0] xrqn: u32,
    }

    /// Input of `DESTROY_XRQ`: ends an extended shared receive queue.
    pub struct DestroyXrqIn: 0x10, "mlx5_ifc_destroy_xrq_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::DestroyXrq,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] xrqn: u32,
    }

    /// Output of `DESTROY_XRQ`.
    pub struct DestroyXrqOut: 0x10, "mlx5_ifc_destroy_xrq_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `QUERY_XRQ`: reads an extended shared receive queue.
    pub struct QueryXrqIn: 0x10, "mlx5_ifc_query_xrq_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryXrq,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] xrqn: u32,
    }

    /// Output of `QUERY_XRQ`.
    pub struct QueryXrqOut: 0x150, "mlx5_ifc_query_xrq_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 xrq_context: Xrqc,
    }

    /// Input of `ARM_XRQ`: asks for an event when fewer than `lwm` buffers are left.
    pub struct ArmXrqIn: 0x10, "mlx5_ifc_arm_xrq_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::ArmXrq,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] xrqn: u32,
        0x0c [15:0] lwm: u16,
    }

    /// Output of `ARM_XRQ`.
    pub struct ArmXrqOut: 0x10, "mlx5_ifc_arm_xrq_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `SET_XRQ_DC_PARAMS_ENTRY`: sets how an extended shared receive queue answers dynamically connected
    /// peers. In UCX's headers.
    pub struct SetXrqDcParamsEntryIn: 0x30, "none" {
        0x00 [31:16] opcode: Opcode = Opcode::SetXrqDcParamsEntry,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] xrqn: u32,
        0x10 [28:24] ack_timeout: u8,
        0x10 [19] multi_path: bool,
        0x10 [18:16] mtu: PathMtu,
        0x10 [15:0] pkey_table_index: u16,
        0x14 [19:16] cnak_reverse_sl: u8,
        0x14 [11:8] reverse_sl: u8,
        0x14 [3:0] sl: u8,
        0x18 [63:0] dc_access_key: u64,
    }

    /// Output of `SET_XRQ_DC_PARAMS_ENTRY`. In UCX's headers.
    pub struct SetXrqDcParamsEntryOut: 0x10, "none" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `QUERY_XRQ_DC_PARAMS_ENTRY`: reads what `SET_XRQ_DC_PARAMS_ENTRY` sets. Public is the queue that it
    /// names, which Linux's mlx5_ib looks for here (drivers/infiniband/hw/mlx5/devx.c); the rest is shown as plain
    /// dwords.
    pub struct QueryXrqDcParamsEntryIn: 0xc, "none" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryXrqDcParamsEntry,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] xrqn: u32,
        .. unpublished: [Be32],
    }

    /// Input of `QUERY_XRQ_ERROR_PARAMS`: of the NVMe-oF target offload. Public is the queue that it names, which
    /// Linux's mlx5_ib looks for here (drivers/infiniband/hw/mlx5/devx.c); the rest is shown as plain dwords.
    pub struct QueryXrqErrorParamsIn: 0xc, "none" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryXrqErrorParams,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] xrqn: u32,
        .. unpublished: [Be32],
    }

    /// Input of `RELEASE_XRQ_ERROR`: of the NVMe-oF target offload. Public is the queue that it names, which Linux's
    /// mlx5_ib looks for here (drivers/infiniband/hw/mlx5/devx.c); the rest is shown as plain dwords.
    pub struct ReleaseXrqErrorIn: 0xc, "none" {
        0x00 [31:16] opcode: Opcode = Opcode::ReleaseXrqError,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] xrqn: u32,
        .. unpublished: [Be32],
    }

    /// Input of `MODIFY_XRQ`: of the NVMe-oF target offload. Public is the queue that it names, which Linux's mlx5_ib
    /// looks for here (drivers/infiniband/hw/mlx5/devx.c); the rest is shown as plain dwords.
    pub struct ModifyXrqIn: 0xc, "none" {
        0x00 [31:16] opcode: Opcode = Opcode::ModifyXrq,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] xrqn: u32,
        .. unpublished: [Be32],
    }
}

commands! {
    CreateXrq: CreateXrqIn => CreateXrqOut,
    DestroyXrq: DestroyXrqIn => DestroyXrqOut,
    QueryXrq: QueryXrqIn => QueryXrqOut,
    ArmXrq: ArmXrqIn => ArmXrqOut,
    SetXrqDcParamsEntry: SetXrqDcParamsEntryIn => SetXrqDcParamsEntryOut,
    QueryXrqDcParamsEntry: QueryXrqDcParamsEntryIn => UnpublishedOut,
    QueryXrqErrorParams: QueryXrqErrorParamsIn => UnpublishedOut,
    ReleaseXrqError: ReleaseXrqErrorIn => UnpublishedOut,
    ModifyXrq: ModifyXrqIn => UnpublishedOut,
}
