//! Virtual ports: state, NIC context, RoCE addresses, counters.

use super::command::commands;
use super::{CmdStatus, Opcode};
use crate::ctx::{AllowedListType, ModifyNicVportFieldSelect, NicVportContext, RoceAddrLayout, TrafficCounter};

layout! {
    /// Input of `QUERY_VPORT_STATE`: asks whether a port is up.
    pub struct QueryVportStateIn: 0x10, "mlx5_ifc_query_vport_state_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryVportState,
        0x04 [15:0] op_mod: u16 as VportStateOpMod,
        0x08 [31] other_vport: bool,
        0x08 [15:0] vport_number: u16,
    }

    /// Output of `QUERY_VPORT_STATE`.
    pub struct QueryVportStateOut: 0x10, "mlx5_ifc_query_vport_state_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x0c [31:16] max_tx_speed: u16,
        0x0c [7:4] admin_state: u8 as VportAdminState,
        0x0c [3:0] state: u8 as VportState,
    }

    /// Input of `MODIFY_VPORT_STATE`: brings a port up or down.
    pub struct ModifyVportStateIn: 0x10, "mlx5_ifc_modify_vport_state_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::ModifyVportState,
        0x04 [15:0] op_mod: u16 as VportStateOpMod,
        0x08 [31] other_vport: bool,
        0x08 [15:0] vport_number: u16,
        0x0c [31:16] max_tx_speed: u16,
        0x0c [15] ingress_connect: bool,
        0x0c [14] egress_connect: bool,
        0x0c [13] ingress_connect_valid: bool,
        0x0c [12] egress_connect_valid: bool,
        0x0c [7:4] admin_state: u8 as VportAdminState,
    }

    /// Output of `MODIFY_VPORT_STATE`.
    pub struct ModifyVportStateOut: 0x10, "mlx5_ifc_modify_vport_state_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `QUERY_NIC_VPORT_CONTEXT`: reads a port's Ethernet side: its address, its MTU.
    pub struct QueryNicVportContextIn: 0x10, "mlx5_ifc_query_nic_vport_context_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryNicVportContext,
        0x04 [15:0] op_mod: u16,
        0x08 [31] other_vport: bool,
        0x08 [15:0] vport_number: u16,
        0x0c [26:24] allowed_list_type: u8 as AllowedListType,
    }

    /// Output of `QUERY_NIC_VPORT_CONTEXT`.
    pub struct QueryNicVportContextOut: 0x110, "mlx5_ifc_query_nic_vport_context_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 nic_vport_context: NicVportContext,
    }

    /// Input of `MODIFY_NIC_VPORT_CONTEXT`: changes the fields of a port's Ethernet side that `field_select` names.
    pub struct ModifyNicVportContextIn: 0x200, "mlx5_ifc_modify_nic_vport_context_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::ModifyNicVportContext,
        0x04 [15:0] op_mod: u16,
        0x08 [31] other_vport: bool,
        0x08 [15:0] vport_number: u16,
        0x0c field_select: ModifyNicVportFieldSelect,
        0x100 nic_vport_context: NicVportContext,
    }

    /// Output of `MODIFY_NIC_VPORT_CONTEXT`.
    pub struct ModifyNicVportContextOut: 0x10, "mlx5_ifc_modify_nic_vport_context_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `QUERY_ROCE_ADDRESS`: reads an entry of the GID table.
    pub struct QueryRoceAddressIn: 0x10, "mlx5_ifc_query_roce_address_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryRoceAddress,
        0x04 [15:0] op_mod: u16,
        0x08 [31:16] roce_address_index: u16,
        0x08 [3:0] vhca_port_num: u8,
    }

    /// Output of `QUERY_ROCE_ADDRESS`.
    pub struct QueryRoceAddressOut: 0x30, "mlx5_ifc_query_roce_address_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 roce_address: RoceAddrLayout,
    }

    /// Input of `SET_ROCE_ADDRESS`: writes an entry of the GID table.
    pub struct SetRoceAddressIn: 0x30, "mlx5_ifc_set_roce_address_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::SetRoceAddress,
        0x04 [15:0] op_mod: u16,
        0x08 [31:16] roce_address_index: u16,
        0x08 [3:0] vhca_port_num: u8,
        0x10 roce_address: RoceAddrLayout,
    }

    /// Output of `SET_ROCE_ADDRESS`.
    pub struct SetRoceAddressOut: 0x10, "mlx5_ifc_set_roce_address_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `QUERY_VPORT_COUNTER`: reads a port's counters of bytes and packets.
    pub struct QueryVportCounterIn: 0x20, "mlx5_ifc_query_vport_counter_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryVportCounter,
        0x04 [15:0] op_mod: u16 as VportCounterOpMod,
        0x08 [31] other_vport: bool,
        0x08 [19:16] port_num: u8,
        0x08 [15:0] vport_number: u16,
        0x18 [31] clear: bool,
    }

    /// Output of `QUERY_VPORT_COUNTER`.
    pub struct QueryVportCounterOut: 0x210, "mlx5_ifc_query_vport_counter_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 received_errors: TrafficCounter,
        0x20 transmit_errors: TrafficCounter,
        0x30 received_ib_unicast: TrafficCounter,
        0x40 transmitted_ib_unicast: TrafficCounter,
        0x50 received_ib_multicast: TrafficCounter,
        0x60 transmitted_ib_multicast: TrafficCounter,
        0x70 received_eth_broadcast: TrafficCounter,
        0x80 transmitted_eth_broadcast: TrafficCounter,
        0x90 received_eth_unicast: TrafficCounter,
        0xa0 transmitted_eth_unicast: TrafficCounter,
        0xb0 received_eth_multicast: TrafficCounter,
        0xc0 transmitted_eth_multicast: TrafficCounter,
        0xd0 local_loopback: TrafficCounter,
    }
}

commands! {
    QueryVportState: QueryVportStateIn => QueryVportStateOut,
    ModifyVportState: ModifyVportStateIn => ModifyVportStateOut,
    QueryNicVportContext: QueryNicVportContextIn => QueryNicVportContextOut,
    ModifyNicVportContext: ModifyNicVportContextIn => ModifyNicVportContextOut,
    QueryRoceAddress: QueryRoceAddressIn => QueryRoceAddressOut,
    SetRoceAddress: SetRoceAddressIn => SetRoceAddressOut,
    QueryVportCounter: QueryVportCounterIn => QueryVportCounterOut,
}

values! {
    /// Whose state it is, `op_mod` of `QUERY_VPORT_STATE` and `MODIFY_VPORT_STATE`.
    pub enum VportStateOpMod: 16 {
        /// The port's, as its function sees it.
        VnicVport = 0 "VNIC_VPORT",
        /// The port's, as the e-switch sees it.
        EswVport = 1 "ESW_VPORT",
        /// The wire's.
        Uplink = 2 "UPLINK",
    }

    /// What is asked for, `op_mod` of `QUERY_VPORT_COUNTER`.
    pub enum VportCounterOpMod: 16 {
        /// Counters of the port.
        VportCounters = 0 "VPORT_COUNTERS",
    }

    /// Whether a port carries traffic. PRM `query_vport_state_out.state`.
    pub enum VportState: 4 {
        /// Down.
        Down = 0 "DOWN",
        /// Up.
        Up = 1 "UP",
    }

    /// What a port was told to be. PRM `query_vport_state_out.admin_state`.
    pub enum VportAdminState: 4 {
        /// Down.
        Down = 0 "DOWN",
        /// Up.
        Up = 1 "UP",
        /// As the uplink is.
        Auto = 2 "AUTO",
    }
}
