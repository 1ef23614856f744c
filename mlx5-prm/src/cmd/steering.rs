//! Steering by software.

use super::{CmdStatus, Opcode, commands};

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
    GenerateWqe: GenerateWqeIn => GenerateWqeOut,
}
