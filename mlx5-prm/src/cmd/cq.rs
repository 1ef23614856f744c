//! Completion queues.

use super::command::commands;
use super::{CmdStatus, Opcode};
use crate::ctx::Cqc;
use crate::layout::Be64;

layout! {
    /// Input of `CREATE_CQ`: makes a completion queue; the pages of its ring follow unless they lie in a umem.
    pub struct CreateCqIn: 0x110, "mlx5_ifc_create_cq_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::CreateCq,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x10 cq_context: Cqc,
        /// Where in the umem the ring starts. In the PRM, not in the kernel's header.
        0x50 [63:0] cq_umem_offset: u64,
        /// The umem the ring lies in. In the PRM, not in the kernel's header.
        0x58 [31:0] cq_umem_id: u32,
        0x5c [31] cq_umem_valid: bool,
        .. pas: [Be64],
    }

    /// Output of `CREATE_CQ`.
    pub struct CreateCqOut: 0x10, "mlx5_ifc_create_cq_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [23:0] cqn: u32,
    }

    /// Input of `DESTROY_CQ`: ends a completion queue that no work queue uses.
    pub struct DestroyCqIn: 0x10, "mlx5_ifc_destroy_cq_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::DestroyCq,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] cqn: u32,
    }

    /// Output of `DESTROY_CQ`.
    pub struct DestroyCqOut: 0x10, "mlx5_ifc_destroy_cq_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `QUERY_CQ`: reads a completion queue's context.
    pub struct QueryCqIn: 0x10, "mlx5_ifc_query_cq_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryCq,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] cqn: u32,
    }

    /// Output of `QUERY_CQ`.
    pub struct QueryCqOut: 0x110, "mlx5_ifc_query_cq_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 cq_context: Cqc,
        .. pas: [Be64],
    }

    /// Input of `MODIFY_CQ`: changes moderation, event queue or ring of a completion queue.
    pub struct ModifyCqIn: 0x110, "mlx5_ifc_modify_cq_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::ModifyCq,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16 as ModifyCqOpMod,
        0x08 [23:0] cqn: u32,
        0x0c modify_field_select_resize_field_select: [u8; 0x4],
        0x10 cq_context: Cqc,
        /// Where in the umem the ring starts. In the PRM, not in the kernel's header.
        0x50 [63:0] cq_umem_offset: u64,
        /// The umem the ring lies in. In the PRM, not in the kernel's header.
        0x58 [31:0] cq_umem_id: u32,
        0x5c [31] cq_umem_valid: bool,
        .. pas: [Be64],
    }

    /// Output of `MODIFY_CQ`.
    pub struct ModifyCqOut: 0x10, "mlx5_ifc_modify_cq_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

commands! {
    CreateCq: CreateCqIn => CreateCqOut,
    DestroyCq: DestroyCqIn => DestroyCqOut,
    QueryCq: QueryCqIn => QueryCqOut,
    ModifyCq: ModifyCqIn => ModifyCqOut,
}

values! {
    /// What is changed, `op_mod` of `MODIFY_CQ`.
    pub enum ModifyCqOpMod: 16 {
        /// The fields that are selected.
        Modify = 0 "MODIFY_CQ",
        /// The ring.
        Resize = 1 "RESIZE_CQ",
    }
}
