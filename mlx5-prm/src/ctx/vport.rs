//! Virtual port contexts.

use super::InlineMode;
use crate::layout::{Be64, Info, Layout};

layout! {
    /// The Ethernet side of a port. PRM `nic_vport_context`.
    pub struct NicVportContext: 0x100, "mlx5_ifc_nic_vport_context_bits" {
        0x00 [26:24] min_wqe_inline_mode: u8 as InlineMode,
        0x00 [2] disable_mc_local_lb: bool,
        0x00 [1] disable_uc_local_lb: bool,
        0x00 [0] roce_en: bool,
        0x04 [31] arm_change_event: bool,
        0x04 [4] event_on_mtu: bool,
        0x04 [3] event_on_promisc_change: bool,
        0x04 [2] event_on_vlan_change: bool,
        0x04 [1] event_on_mc_address_change: bool,
        0x04 [0] event_on_uc_address_change: bool,
        0x08 [31] vhca_id_type: bool,
        0x08 [19:16] affiliation_criteria: u8,
        0x08 [15:0] affiliated_vhca_id: u16,
        0x20 [30:28] sd_group: u8,
        0x20 [23:16] sd_group_size: u8,
        0x24 [15:0] mtu: u16,
        0x28 [63:0] system_image_guid: u64,
        0x30 [63:0] port_guid: u64,
        0x38 [63:0] node_guid: u64,
        0x68 [31:16] qkey_violation_counter: u16,
        0xf0 [31] promisc_uc: bool,
        0xf0 [30] promisc_mc: bool,
        0xf0 [29] promisc_all: bool,
        0xf0 [26:24] allowed_list_type: u8 as AllowedListType,
        0xf0 [15:0] allowed_list_size: u16,
        0xf4 permanent_address: MacAddressLayout,
        .. current_uc_mac_address: [Be64] where list_layout,
    }

    /// A VLAN in the list of a virtual port. PRM `vlan_layout`.
    pub struct VlanLayout: 0x8, "mlx5_ifc_vlan_layout_bits" {
        0x00 [11:0] vlan: u16,
    }

    /// A MAC address in eight bytes. PRM `mac_address_layout`.
    pub struct MacAddressLayout: 0x8, "mlx5_ifc_mac_address_layout_bits" {
        0x00 [15:0] mac_addr_47_32: u16,
        0x04 [31:0] mac_addr_31_0: u32,
    }

    /// Which fields of a [`NicVportContext`] a command changes. PRM `modify_nic_vport_field_select`.
    pub struct ModifyNicVportFieldSelect: 0x4, "mlx5_ifc_modify_nic_vport_field_select_bits" {
        0x00 [13] affiliation: bool,
        0x00 [11] disable_uc_local_lb: bool,
        0x00 [10] disable_mc_local_lb: bool,
        0x00 [9] node_guid: bool,
        0x00 [8] port_guid: bool,
        0x00 [7] min_inline: bool,
        0x00 [6] mtu: bool,
        0x00 [5] change_event: bool,
        0x00 [4] promisc: bool,
        0x00 [3] permanent_address: bool,
        0x00 [2] addresses_list: bool,
        0x00 [1] roce_en: bool,
    }

    /// An entry of the GID table. PRM `roce_addr_layout`.
    pub struct RoceAddrLayout: 0x20, "mlx5_ifc_roce_addr_layout_bits" {
        0x00 source_l3_address: [u8; 16],
        0x10 [28] vlan_valid: bool,
        0x10 [27:16] vlan_id: u16,
        0x10 [15:0] source_mac_47_32: u16,
        0x14 [31:0] source_mac_31_0: u32,
        0x18 [11:8] roce_l3_type: u8 as RoceL3Type,
        0x18 [7:0] roce_version: u8 as RoceVersion,
    }

    /// Packets and bytes of one kind. PRM `traffic_counter`.
    pub struct TrafficCounter: 0x10, "mlx5_ifc_traffic_counter_bits" {
        0x00 [63:0] packets: u64,
        0x08 [63:0] octets: u64,
    }
}

values! {
    /// RoCE version of an address. PRM `roce_addr_layout.roce_version`.
    pub enum RoceVersion: 8 {
        /// RoCE v1: over Ethernet.
        V1 = 0 "ROCE_V1",
        /// RoCE v2: over UDP.
        V2 = 2 "ROCE_V2",
    }

    /// Family of a RoCE address. PRM `roce_addr_layout.roce_l3_type`.
    pub enum RoceL3Type: 4 {
        /// IPv4.
        Ipv4 = 0 "IPV4",
        /// IPv6.
        Ipv6 = 1 "IPV6",
    }

    /// What a list of addresses holds. PRM `nic_vport_context.allowed_list_type`.
    pub enum AllowedListType: 3 {
        /// Unicast addresses.
        Unicast = 0 "UC",
        /// Multicast addresses.
        Multicast = 1 "MC",
        /// VLANs.
        Vlan = 2 "VLAN",
    }
}

impl NicVportContext {
    /// What the list holds.
    fn list_layout(bytes: &[u8], _entry: usize) -> Option<&'static Info> {
        match AllowedListType::from_number(NicVportContext::read(bytes)?.allowed_list_type().into()) {
            AllowedListType::Unicast | AllowedListType::Multicast => Some(&MacAddressLayout::INFO),
            AllowedListType::Vlan => Some(&VlanLayout::INFO),
            AllowedListType::Unknown(_) => None,
        }
    }
}
