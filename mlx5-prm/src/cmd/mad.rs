//! Management datagrams.

use super::command::commands;
use super::{CmdStatus, Opcode};

layout! {
    /// Input of `MAD_IFC`: hands a management datagram to firmware, which answers it.
    pub struct MadIfcIn: 0x110, "mlx5_ifc_mad_ifc_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::MadIfc,
        0x04 [15:0] op_mod: u16,
        0x08 [31:16] remote_lid: u16,
        0x08 [15:8] plane_index: u8,
        0x08 [7:0] port: u8,
        0x10 mad: [u8; 256],
    }

    /// Output of `MAD_IFC`.
    pub struct MadIfcOut: 0x110, "mlx5_ifc_mad_ifc_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 response_mad_packet: [u8; 256],
    }

    /// Input of `QUERY_MAD_DEMUX`: asks which classes of management datagrams firmware keeps for itself.
    pub struct QueryMadDemuxIn: 0x10, "mlx5_ifc_query_mad_demux_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryMadDemux,
        0x04 [15:0] op_mod: u16,
    }

    /// Output of `QUERY_MAD_DEMUX`.
    pub struct QueryMadDemuxOut: 0x14, "mlx5_ifc_query_mad_demux_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 [31:0] mad_dumux_parameters_block: u32,
    }

    /// Input of `SET_MAD_DEMUX`: chooses which classes of management datagrams firmware keeps for itself.
    pub struct SetMadDemuxIn: 0x10, "mlx5_ifc_set_mad_demux_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::SetMadDemux,
        0x04 [15:0] op_mod: u16,
        0x0c [25:24] demux_mode: u8,
    }

    /// Output of `SET_MAD_DEMUX`.
    pub struct SetMadDemuxOut: 0x10, "mlx5_ifc_set_mad_demux_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

commands! {
    MadIfc: MadIfcIn => MadIfcOut,
    QueryMadDemux: QueryMadDemuxIn => QueryMadDemuxOut,
    SetMadDemux: SetMadDemuxIn => SetMadDemuxOut,
}

values! {
    /// Which management datagrams reach software. PRM `set_mad_demux_in.demux_mode`.
    pub enum MadDemuxMode: 8 {
        /// All.
        PassAll = 0 "PASS_ALL",
        /// Those of the classes chosen.
        Selective = 2 "SELECTIVE",
    }
}
