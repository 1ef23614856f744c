//! Multicast groups.

use super::command::commands;
use super::{CmdStatus, Opcode};

layout! {
    /// Input of `ATTACH_TO_MCG`: lets a queue pair receive what is sent to a multicast address.
    pub struct AttachToMcgIn: 0x20, "mlx5_ifc_attach_to_mcg_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::AttachToMcg,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] qpn: u32,
        0x10 multicast_gid: [u8; 16],
    }

    /// Output of `ATTACH_TO_MCG`.
    pub struct AttachToMcgOut: 0x10, "mlx5_ifc_attach_to_mcg_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `DETACH_FROM_MCG`: ends that.
    pub struct DetachFromMcgIn: 0x20, "mlx5_ifc_detach_from_mcg_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::DetachFromMcg,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] qpn: u32,
        0x10 multicast_gid: [u8; 16],
    }

    /// Output of `DETACH_FROM_MCG`.
    pub struct DetachFromMcgOut: 0x10, "mlx5_ifc_detach_from_mcg_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

commands! {
    AttachToMcg: AttachToMcgIn => AttachToMcgOut,
    DetachFromMcg: DetachFromMcgIn => DetachFromMcgOut,
}
