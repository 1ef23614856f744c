//! Packet reformat contexts: headers that entries put around packets, or take away.

use super::command::commands;
use super::{CmdStatus, Opcode};
use crate::flow::PacketReformatContextIn;
use crate::layout::{Info, Layout};

layout! {
    /// Input of `ALLOC_PACKET_REFORMAT_CONTEXT`: makes a packet reformat context; the header to insert ends it.
    pub struct AllocPacketReformatContextIn: 0x24, "mlx5_ifc_alloc_packet_reformat_context_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::AllocPacketReformatContext,
        0x04 [15:0] op_mod: u16,
        0x1c packet_reformat_context: PacketReformatContextIn,
    }

    /// Output of `ALLOC_PACKET_REFORMAT_CONTEXT`.
    pub struct AllocPacketReformatContextOut: 0x10, "mlx5_ifc_alloc_packet_reformat_context_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [31:0] packet_reformat_id: u32,
    }

    /// Input of `DEALLOC_PACKET_REFORMAT_CONTEXT`: ends a packet reformat context.
    pub struct DeallocPacketReformatContextIn: 0x10, "mlx5_ifc_dealloc_packet_reformat_context_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::DeallocPacketReformatContext,
        0x04 [15:0] op_mod: u16,
        0x08 [31:0] packet_reformat_id: u32,
    }

    /// Output of `DEALLOC_PACKET_REFORMAT_CONTEXT`.
    pub struct DeallocPacketReformatContextOut: 0x10, "mlx5_ifc_dealloc_packet_reformat_context_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `QUERY_PACKET_REFORMAT_CONTEXT`: reads a packet reformat context.
    pub struct QueryPacketReformatContextIn: 0x20, "mlx5_ifc_query_packet_reformat_context_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryPacketReformatContext,
        0x04 [15:0] op_mod: u16,
        0x08 [31:0] packet_reformat_id: u32,
    }

    /// Output of `QUERY_PACKET_REFORMAT_CONTEXT`.
    pub struct QueryPacketReformatContextOut: 0x1c, "mlx5_ifc_query_packet_reformat_context_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        .. packet_reformat_context: [u8] where reformat_layout,
    }
}

commands! {
    AllocPacketReformatContext: AllocPacketReformatContextIn => AllocPacketReformatContextOut,
    DeallocPacketReformatContext: DeallocPacketReformatContextIn => DeallocPacketReformatContextOut,
    QueryPacketReformatContext: QueryPacketReformatContextIn => QueryPacketReformatContextOut,
}

impl QueryPacketReformatContextOut {
    fn reformat_layout(_bytes: &[u8], _index: usize) -> Option<&'static Info> {
        Some(&PacketReformatContextIn::INFO)
    }
}
