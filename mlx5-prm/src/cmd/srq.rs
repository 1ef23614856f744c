//! Shared receive queues, of a protection domain or of an XRC domain.

use super::command::commands;
use super::{CmdStatus, Opcode};
use crate::ctx::{Srqc, XrcSrqc};
use crate::layout::Be64;

layout! {
    /// Input of `CREATE_SRQ`: makes a shared receive queue, whose pages follow.
    pub struct CreateSrqIn: 0x110, "mlx5_ifc_create_srq_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::CreateSrq,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x10 srq_context_entry: Srqc,
        .. pas: [Be64],
    }

    /// Output of `CREATE_SRQ`.
    pub struct CreateSrqOut: 0x10, "mlx5_ifc_create_srq_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [23:0] srqn: u32,
    }

    /// Input of `DESTROY_SRQ`: ends a shared receive queue.
    pub struct DestroySrqIn: 0x10, "mlx5_ifc_destroy_srq_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::DestroySrq,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] srqn: u32,
    }

    /// Output of `DESTROY_SRQ`.
    pub struct DestroySrqOut: 0x10, "mlx5_ifc_destroy_srq_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `QUERY_SRQ`: reads a shared receive queue.
    pub struct QuerySrqIn: 0x10, "mlx5_ifc_query_srq_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QuerySrq,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] srqn: u32,
    }

    /// Output of `QUERY_SRQ`.
    pub struct QuerySrqOut: 0x110, "mlx5_ifc_query_srq_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 srq_context_entry: Srqc,
        .. pas: [Be64],
    }

    /// Input of `ARM_RQ`: asks for an event when fewer than `lwm` buffers are left.
    pub struct ArmRqIn: 0x10, "mlx5_ifc_arm_rq_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::ArmRq,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16 as ArmRqOpMod,
        0x08 [23:0] srq_number: u32,
        0x0c [15:0] lwm: u16,
    }

    /// Output of `ARM_RQ`.
    pub struct ArmRqOut: 0x10, "mlx5_ifc_arm_rq_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `CREATE_XRC_SRQ`: makes a shared receive queue of an XRC domain, whose pages follow.
    pub struct CreateXrcSrqIn: 0x110, "mlx5_ifc_create_xrc_srq_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::CreateXrcSrq,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x10 xrc_srq_context_entry: XrcSrqc,
        0x5c [31] xrc_srq_umem_valid: bool,
        .. pas: [Be64],
    }

    /// Output of `CREATE_XRC_SRQ`.
    pub struct CreateXrcSrqOut: 0x10, "mlx5_ifc_create_xrc_srq_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [23:0] xrc_srqn: u32,
    }

    /// Input of `DESTROY_XRC_SRQ`: ends a shared receive queue of an XRC domain.
    pub struct DestroyXrcSrqIn: 0x10, "mlx5_ifc_destroy_xrc_srq_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::DestroyXrcSrq,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] xrc_srqn: u32,
    }

    /// Output of `DESTROY_XRC_SRQ`.
    pub struct DestroyXrcSrqOut: 0x10, "mlx5_ifc_destroy_xrc_srq_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `QUERY_XRC_SRQ`: reads a shared receive queue of an XRC domain.
    pub struct QueryXrcSrqIn: 0x10, "mlx5_ifc_query_xrc_srq_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryXrcSrq,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] xrc_srqn: u32,
    }

    /// Output of `QUERY_XRC_SRQ`.
    pub struct QueryXrcSrqOut: 0x110, "mlx5_ifc_query_xrc_srq_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 xrc_srq_context_entry: XrcSrqc,
        .. pas: [Be64],
    }

    /// Input of `ARM_XRC_SRQ`: asks for an event when fewer than `lwm` buffers are left.
    pub struct ArmXrcSrqIn: 0x10, "mlx5_ifc_arm_xrc_srq_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::ArmXrcSrq,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16 as ArmXrcSrqOpMod,
        0x08 [23:0] xrc_srqn: u32,
        0x0c [15:0] lwm: u16,
    }

    /// Output of `ARM_XRC_SRQ`.
    pub struct ArmXrcSrqOut: 0x10, "mlx5_ifc_arm_xrc_srq_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `ALLOC_XRCD`: makes an XRC domain.
    pub struct AllocXrcdIn: 0x10, "mlx5_ifc_alloc_xrcd_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::AllocXrcd,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
    }

    /// Output of `ALLOC_XRCD`.
    pub struct AllocXrcdOut: 0x10, "mlx5_ifc_alloc_xrcd_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [23:0] xrcd: u32,
    }

    /// Input of `DEALLOC_XRCD`: ends an XRC domain.
    pub struct DeallocXrcdIn: 0x10, "mlx5_ifc_dealloc_xrcd_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::DeallocXrcd,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] xrcd: u32,
    }

    /// Output of `DEALLOC_XRCD`.
    pub struct DeallocXrcdOut: 0x10, "mlx5_ifc_dealloc_xrcd_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

commands! {
    CreateSrq: CreateSrqIn => CreateSrqOut,
    DestroySrq: DestroySrqIn => DestroySrqOut,
    QuerySrq: QuerySrqIn => QuerySrqOut,
    ArmRq: ArmRqIn => ArmRqOut,
    CreateXrcSrq: CreateXrcSrqIn => CreateXrcSrqOut,
    DestroyXrcSrq: DestroyXrcSrqIn => DestroyXrcSrqOut,
    QueryXrcSrq: QueryXrcSrqIn => QueryXrcSrqOut,
    ArmXrcSrq: ArmXrcSrqIn => ArmXrcSrqOut,
    AllocXrcd: AllocXrcdIn => AllocXrcdOut,
    DeallocXrcd: DeallocXrcdIn => DeallocXrcdOut,
}

values! {
    /// What `ARM_RQ` arms, its `op_mod`.
    pub enum ArmRqOpMod: 16 {
        /// A shared receive queue.
        Srq = 1 "SRQ",
        /// An extended shared receive queue.
        Xrq = 2 "XRQ",
    }

    /// What `ARM_XRC_SRQ` arms, its `op_mod`.
    pub enum ArmXrcSrqOpMod: 16 {
        /// A shared receive queue of an XRC domain.
        XrcSrq = 1 "XRC_SRQ",
    }
}
