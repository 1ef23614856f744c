//! Flow table entries, and where they send packets.

use super::{FlowTableType, FteMatchParam};
use crate::layout::{Be64, Info, Layout};

layout! {
    /// A flow table entry: what it matches and what it does; its destinations and counters follow. PRM `flow_context`.
    pub struct FlowContext: 0x300, "mlx5_ifc_flow_context_bits" {
        0x00 push_vlan: Vlan,
        0x04 [31:0] group_id: u32,
        0x08 [23:0] flow_tag: u32,
        0x0c [15:0] action: u16,
        0x10 [31] extended_destination: bool,
        0x10 [30] uplink_hairpin_en: bool,
        0x10 [29:28] flow_source: FlowSource,
        0x10 [27:24] encrypt_decrypt_type: EncryptDecryptType,
        0x10 [23:0] destination_list_size: u32,
        0x14 [23:0] flow_counter_list_size: u32,
        0x18 [31:0] packet_reformat_id: u32,
        0x1c [31:0] modify_header_id: u32,
        0x20 push_vlan_2: Vlan,
        0x24 [31:0] encrypt_decrypt_obj_id: u32,
        0x40 match_value: FteMatchParam,
        0x240 execute_aso: [ExecuteAso; 4],
        .. destination: [Be64] where destination_layout,
    }

    /// Where a packet goes. PRM `dest_format_struct`.
    pub struct DestFormatStruct: 0x8, "mlx5_ifc_dest_format_struct_bits" {
        0x00 [31:24] destination_type: FlowDestinationType,
        0x00 [23:0] destination_id: u32,
        0x04 [31] destination_eswitch_owner_vhca_id_valid: bool,
        0x04 [30] packet_reformat: bool,
        0x04 [23:16] destination_table_type: FlowTableType,
        0x04 [15:0] destination_eswitch_owner_vhca_id: u16,
    }

    /// Where a packet goes, and how it is changed on the way. PRM `extended_dest_format_struct`.
    pub struct ExtendedDestFormat: 0x10, "mlx5_ifc_extended_dest_format_bits" {
        0x00 destination_entry: DestFormatStruct,
        0x08 [31:0] packet_reformat_id: u32,
    }

    /// A counter that counts the packet. PRM `flow_counter_list`.
    pub struct FlowCounterList: 0x8, "mlx5_ifc_flow_counter_list_bits" {
        0x00 [31:0] flow_counter_id: u32,
    }

    /// A VLAN tag. PRM `vlan`.
    pub struct Vlan: 0x4, "mlx5_ifc_vlan_bits" {
        0x00 [31:16] ethtype: u16,
        0x00 [15:13] prio: u8,
        0x00 [12] cfi: bool,
        0x00 [11:0] vid: u16,
    }

    /// An object with state that the packet updates. PRM `execute_aso`.
    pub struct ExecuteAso: 0x8, "mlx5_ifc_execute_aso_bits" {
        0x00 [31] valid: bool,
        0x00 [23:0] aso_object_id: u32,
        0x04 exe_aso_ctrl: ExeAsoCtrl where control_layout,
    }

    /// How it does. PRM `exe_aso_ctrl`.
    pub union ExeAsoCtrl: 0x4, "mlx5_ifc_exe_aso_ctrl" {
        0x00 exe_aso_ctrl_flow_meter: ExeAsoCtrlFlowMeter,
    }

    /// How a packet goes through a flow meter. PRM `exe_aso_ctrl_flow_meter`.
    pub struct ExeAsoCtrlFlowMeter: 0x4, "mlx5_ifc_exe_aso_ctrl_flow_meter_bits" {
        0x00 [31:28] return_reg_id: u8,
        0x00 [27:24] aso_type: u8,
        0x00 [3] action: bool,
        0x00 [2:1] init_color: u8,
        0x00 [0] meter_id: bool,
    }

    /// A counter in a list of extended destinations, of their size. PRM `dest_format_flow_counter_list_auto`.
    pub union DestFormatFlowCounterListAuto: 0x10, "mlx5_ifc_dest_format_flow_counter_list_auto_bits" {
        0x00 extended_dest_format: ExtendedDestFormat,
        0x00 flow_counter_list: FlowCounterList,
    }

    /// A counter in a list whose destinations are extended: with their size. PRM
    /// `extended_dest_format`.
    pub struct ExtendedFlowCounterList: 0x10, "none" {
        0x00 flow_counter_list: FlowCounterList,
    }
}

values! {
    /// What kind of thing a packet goes to. PRM `dest_format_struct.destination_type`.
    pub enum FlowDestinationType: 8 {
        /// A port of the e-switch.
        Vport = 0 "VPORT",
        /// A flow table.
        FlowTable = 1 "FLOW_TABLE",
        /// A transport interface receive.
        Tir = 2 "TIR",
        /// The receive tables of another function.
        VhcaRx = 4 "VHCA_RX",
        /// A sampler.
        FlowSampler = 6 "FLOW_SAMPLER",
        /// The wire.
        Uplink = 8 "UPLINK",
        /// The first table of another type.
        TableType = 10 "TABLE_TYPE",
    }

    /// Where a packet must have come from. PRM `flow_context.flow_source`.
    pub enum FlowSource: 2 {
        /// Anywhere.
        AnyVport = 0 "ANY_VPORT",
        /// The wire.
        Uplink = 1 "UPLINK",
        /// A port of this e-switch.
        LocalVport = 2 "LOCAL_VPORT",
    }

    /// Which protocol an entry encrypts or decrypts. PRM `flow_context.encrypt_decrypt_type`.
    pub enum EncryptDecryptType: 4 {
        /// IPsec.
        Ipsec = 0 "IPSEC",
        /// MACsec.
        Macsec = 1 "MACSEC",
        /// PSP.
        Psp = 2 "PSP",
    }
}

impl FlowContext {
    /// What entry `i` of the list is: the destinations come first, then the counters.
    fn destination_layout(bytes: &[u8], i: usize) -> Option<&'static Info> {
        let flow = FlowContext::read(bytes)?;
        let is_counter = i >= flow.destination_list_size() as usize;
        Some(match (is_counter, flow.extended_destination()) {
            (false, false) => &DestFormatStruct::INFO,
            (false, true) => &ExtendedDestFormat::INFO,
            (true, false) => &FlowCounterList::INFO,
            (true, true) => &ExtendedFlowCounterList::INFO,
        })
    }
}

impl ExecuteAso {
    /// Flow meters are the only objects whose control is described.
    fn control_layout(_bytes: &[u8], _index: usize) -> Option<&'static Info> {
        Some(&ExeAsoCtrlFlowMeter::INFO)
    }
}
