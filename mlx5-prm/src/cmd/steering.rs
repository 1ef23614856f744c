//! Steering by software.

use super::command::commands;
use super::{CmdStatus, Opcode};

layout! {
    /// Input of `SYNC_STEERING`: waits until what software wrote into steering memory is in force.
    pub struct SyncSteeringIn: 0x20, "mlx5_ifc_sync_steering_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::SyncSteering,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
    }

    /// Output of `SYNC_STEERING`.
    pub struct SyncSteeringOut: 0x10, "mlx5_ifc_sync_steering_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `QUERY_MATCH_SAMPLE_INFO`: asks how entries match on what a flexible parser samples. DPDK has its
    /// layout.
    pub struct QueryMatchSampleInfoIn: 0x40, "none" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryMatchSampleInfo,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x14 [31:0] sample_field_id: u32,
    }

    /// Output of `QUERY_MATCH_SAMPLE_INFO`. DPDK has its layout.
    pub struct QueryMatchSampleInfoOut: 0x20, "none" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 [27:16] modify_field_id: u16,
        0x10 [15:8] ok_bit_format_select_dw: u8,
        0x10 [7:0] field_format_select_dw: u8,
        0x14 [28:24] ok_bit_offset: u8,
    }

    /// Input of `GENERATE_WQE`: does a work request through firmware that updates steering objects. In a header of the
    /// kernel's driver.
    pub struct GenerateWqeIn: 0x100, "mlx5_ifc_generate_wqe_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::GenerateWqe,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mode: u16,
        0x10 [23:0] pdn: u32,
        0x40 wqe_ctrl: [u8; 16],
        0x50 wqe_gta_ctrl: [u8; 48],
        0x80 wqe_gta_data_0: [u8; 64],
        0xc0 wqe_gta_data_1: [u8; 64],
    }

    /// Output of `GENERATE_WQE`: the completion of the work request. In a header of the kernel's driver.
    pub struct GenerateWqeOut: 0x80, "mlx5_ifc_generate_wqe_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x40 cqe_data: [u8; 64],
    }
}

commands! {
    SyncSteering: SyncSteeringIn => SyncSteeringOut,
    QueryMatchSampleInfo: QueryMatchSampleInfoIn => QueryMatchSampleInfoOut,
    GenerateWqe: GenerateWqeIn => GenerateWqeOut,
}
