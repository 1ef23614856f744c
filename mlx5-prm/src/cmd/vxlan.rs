//! Ports of VXLAN.

use super::command::commands;
use super::{CmdStatus, Opcode};

layout! {
    /// Input of `ADD_VXLAN_UDP_DPORT`: makes a UDP port one of VXLAN.
    pub struct AddVxlanUdpDportIn: 0x10, "mlx5_ifc_add_vxlan_udp_dport_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::AddVxlanUdpDport,
        0x04 [15:0] op_mod: u16,
        0x0c [15:0] vxlan_udp_port: u16,
    }

    /// Output of `ADD_VXLAN_UDP_DPORT`.
    pub struct AddVxlanUdpDportOut: 0x10, "mlx5_ifc_add_vxlan_udp_dport_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `DELETE_VXLAN_UDP_DPORT`: ends that.
    pub struct DeleteVxlanUdpDportIn: 0x10, "mlx5_ifc_delete_vxlan_udp_dport_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::DeleteVxlanUdpDport,
        0x04 [15:0] op_mod: u16,
        0x0c [15:0] vxlan_udp_port: u16,
    }

    /// Output of `DELETE_VXLAN_UDP_DPORT`.
    pub struct DeleteVxlanUdpDportOut: 0x10, "mlx5_ifc_delete_vxlan_udp_dport_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

commands! {
    AddVxlanUdpDport: AddVxlanUdpDportIn => AddVxlanUdpDportOut,
    DeleteVxlanUdpDport: DeleteVxlanUdpDportIn => DeleteVxlanUdpDportOut,
}
