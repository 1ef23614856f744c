//! Scalable functions.

use super::command::commands;
use super::{CmdStatus, Opcode};
use crate::ctx::SfPartition;

layout! {
    /// Input of `QUERY_SF_PARTITION`: asks how many scalable functions there may be; a list by size follows.
    pub struct QuerySfPartitionsIn: 0x10, "mlx5_ifc_query_sf_partitions_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QuerySfPartition,
        0x04 [15:0] op_mod: u16,
    }

    /// Output of `QUERY_SF_PARTITION`.
    pub struct QuerySfPartitionsOut: 0x10, "mlx5_ifc_query_sf_partitions_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [7:0] num_sf_partitions: u8,
        .. sf_partition: [SfPartition],
    }

    /// Input of `ALLOC_SF`: makes a scalable function.
    pub struct AllocSfIn: 0x10, "mlx5_ifc_alloc_sf_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::AllocSf,
        0x04 [15:0] op_mod: u16,
        0x08 [15:0] function_id: u16,
    }

    /// Output of `ALLOC_SF`.
    pub struct AllocSfOut: 0x10, "mlx5_ifc_alloc_sf_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `DEALLOC_SF`: ends a scalable function.
    pub struct DeallocSfIn: 0x10, "mlx5_ifc_dealloc_sf_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::DeallocSf,
        0x04 [15:0] op_mod: u16,
        0x08 [15:0] function_id: u16,
    }

    /// Output of `DEALLOC_SF`.
    pub struct DeallocSfOut: 0x10, "mlx5_ifc_dealloc_sf_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

commands! {
    QuerySfPartition: QuerySfPartitionsIn => QuerySfPartitionsOut,
    AllocSf: AllocSfIn => AllocSfOut,
    DeallocSf: DeallocSfIn => DeallocSfOut,
}
