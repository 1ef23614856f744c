//! Tables of rules that work requests fill: rule tables, their entries, their actions.

use crate::flow::{CopyActionIn, FlowTableType, SetActionIn};
use crate::layout::{Info, Layout};

layout! {
    /// A table of rules. PRM `rtc`. In a header of the kernel's driver.
    pub struct Rtc: 0x80, "mlx5_ifc_rtc_bits" {
        0x00 [63:0] modify_field_select: u64,
        0x10 [31:30] update_index_mode: u8 as RtcUpdateMode,
        0x10 [29:28] reparse_mode: u8 as RtcReparseMode,
        0x10 [27:24] num_match_ste: u8,
        0x10 [23:0] pd: u32,
        0x14 [22:20] access_index_mode: u8 as RtcAccessMode,
        0x14 [19:16] num_hash_definer: u8,
        0x14 [15] update_method: bool,
        0x14 [12:8] log_depth: u8,
        0x14 [7:0] log_hash_size: u8,
        0x18 [31:24] ste_format_0: u8 as RtcSteFormat,
        0x18 [23:16] table_type: FlowTableType,
        0x18 [15:8] ste_format_1: u8 as RtcSteFormat,
        0x1c [31:0] match_definer_0: u32,
        0x20 [31:0] stc_id: u32,
        0x24 [31:0] ste_table_base_id: u32,
        0x28 [31:0] ste_table_offset: u32,
        0x2c [23:0] miss_flow_table_id: u32,
        0x30 [31:0] match_definer_1: u32,
    }

    /// A range of entries that a rule table uses. PRM `ste`. In a header of the kernel's driver.
    pub struct Ste: 0x80, "mlx5_ifc_ste_bits" {
        0x00 [63:0] modify_field_select: u64,
        0x10 [23:16] table_type: FlowTableType,
    }

    /// What entries do. PRM `stc`. In a header of the kernel's driver.
    pub struct Stc: 0x80, "mlx5_ifc_stc_bits" {
        0x00 [63:0] modify_field_select: u64,
        0x10 [25:24] reparse_mode: u8 as StcReparseMode,
        0x10 [23:16] table_type: FlowTableType,
        0x10 [15:8] ste_action_offset: u8,
        0x10 [7:0] action_type: StcActionType,
        0x20 stc_param: StcParam where param_layout,
    }

    /// The parameters of that. PRM `stc_param`. In a header of the kernel's driver.
    pub union StcParam: 0x10, "mlx5_ifc_stc_param_bits" {
        0x00 ste_table: StcSteParamSteTable,
        0x00 tir: StcSteParamTir,
        0x00 table: StcSteParamTable,
        0x00 counter: StcSteParamFlowCounter,
        0x00 modify_header: StcSteParamHeaderModifyList,
        0x00 aso: StcSteParamExecuteAso,
        0x00 remove_header: StcSteParamRemove,
        0x00 insert_header: StcSteParamInsert,
        0x00 add: SetActionIn,
        0x00 set: SetActionIn,
        0x00 copy: CopyActionIn,
        0x00 vport: StcSteParamVport,
        0x00 ipsec_encrypt: StcSteParamIpsecEncrypt,
        0x00 ipsec_decrypt: StcSteParamIpsecDecrypt,
        0x00 trailer: StcSteParamTrailer,
    }

    /// Goes on in a table of entries. PRM `stc_ste_param_ste_table`. In a header of the kernel's driver.
    pub struct StcSteParamSteTable: 0x10, "mlx5_ifc_stc_ste_param_ste_table_bits" {
        0x00 [31:0] ste_obj_id: u32,
        0x04 [31:0] match_definer_id: u32,
        0x08 [28:24] log_hash_size: u8,
    }

    /// To a transport interface receive. PRM `stc_ste_param_tir`. In a header of the kernel's driver.
    pub struct StcSteParamTir: 0x10, "mlx5_ifc_stc_ste_param_tir_bits" {
        0x00 [23:0] tirn: u32,
    }

    /// To a flow table. PRM `stc_ste_param_table`. In a header of the kernel's driver.
    pub struct StcSteParamTable: 0x10, "mlx5_ifc_stc_ste_param_table_bits" {
        0x00 [23:0] table_id: u32,
    }

    /// Counts. PRM `stc_ste_param_flow_counter`. In a header of the kernel's driver.
    pub struct StcSteParamFlowCounter: 0x4, "mlx5_ifc_stc_ste_param_flow_counter_bits" {
        0x00 [31:0] flow_counter_id: u32,
    }

    /// Does a list of actions. PRM `stc_ste_param_header_modify_list`. In a header of the kernel's driver.
    pub struct StcSteParamHeaderModifyList: 0x8, "mlx5_ifc_stc_ste_param_header_modify_list_bits" {
        0x00 [31:0] header_modify_pattern_id: u32,
        0x04 [31:0] header_modify_argument_id: u32,
    }

    /// Updates an object. PRM `stc_ste_param_execute_aso`. In a header of the kernel's driver.
    pub struct StcSteParamExecuteAso: 0x8, "mlx5_ifc_stc_ste_param_execute_aso_bits" {
        0x00 [31:0] aso_object_id: u32,
        0x04 [31:28] return_reg_id: u8,
        0x04 [27:24] aso_type: u8,
    }

    /// Removes headers. PRM `stc_ste_param_remove`. In a header of the kernel's driver.
    pub struct StcSteParamRemove: 0x4, "mlx5_ifc_stc_ste_param_remove_bits" {
        0x00 [31:28] action_type: u8,
        0x00 [27] decap: bool,
        0x00 [21:16] remove_start_anchor: u8 as HeaderAnchor,
        0x00 [13:8] remove_end_anchor: u8 as HeaderAnchor,
    }

    /// Removes words. PRM `stc_ste_param_remove_words`. In a header of the kernel's driver.
    pub struct StcSteParamRemoveWords: 0x4, "mlx5_ifc_stc_ste_param_remove_words_bits" {
        0x00 [31:28] action_type: u8,
        0x00 [21:16] remove_start_anchor: u8 as HeaderAnchor,
        0x00 [14:8] remove_offset: u8,
        0x00 [5:0] remove_size: u8,
    }

    /// Inserts a header. PRM `stc_ste_param_insert`. In a header of the kernel's driver.
    pub struct StcSteParamInsert: 0x8, "mlx5_ifc_stc_ste_param_insert_bits" {
        0x00 [31:28] action_type: u8,
        0x00 [27] encap: bool,
        0x00 [26] inline_data: bool,
        0x00 [21:16] insert_anchor: u8 as HeaderAnchor,
        0x00 [14:8] insert_offset: u8,
        0x00 [6:0] insert_size: u8,
        0x04 [31:0] insert_argument: u32,
    }

    /// To a port of the e-switch. PRM `stc_ste_param_vport`. In a header of the kernel's driver.
    pub struct StcSteParamVport: 0x10, "mlx5_ifc_stc_ste_param_vport_bits" {
        0x00 [31:16] eswitch_owner_vhca_id: u16,
        0x00 [15:0] vport_number: u16,
        0x04 [31] eswitch_owner_vhca_id_valid: bool,
    }

    /// Encrypts. PRM `stc_ste_param_ipsec_encrypt`. In a header of the kernel's driver.
    pub struct StcSteParamIpsecEncrypt: 0x4, "mlx5_ifc_stc_ste_param_ipsec_encrypt_bits" {
        0x00 [31:0] ipsec_object_id: u32,
    }

    /// Decrypts. PRM `stc_ste_param_ipsec_decrypt`. In a header of the kernel's driver.
    pub struct StcSteParamIpsecDecrypt: 0x4, "mlx5_ifc_stc_ste_param_ipsec_decrypt_bits" {
        0x00 [31:0] ipsec_object_id: u32,
    }

    /// Adds or removes a trailer. PRM `stc_ste_param_trailer`. In a header of the kernel's driver.
    pub struct StcSteParamTrailer: 0x4, "mlx5_ifc_stc_ste_param_trailer_bits" {
        0x00 [23:20] command: u8,
        0x00 [17:16] r#type: u8,
        0x00 [5:0] length: u8,
    }
}

values! {
    /// Where a rule table finds the entry to write. PRM `rtc.update_index_mode`.
    pub enum RtcUpdateMode: 2 {
        /// By the hash.
        ByHash = 0 "BY_HASH",
        /// By an offset.
        ByOffset = 1 "BY_OFFSET",
    }

    /// Where a packet finds its entry in a rule table. PRM `rtc.access_index_mode`.
    pub enum RtcAccessMode: 3 {
        /// By the hash.
        ByHash = 0 "BY_HASH",
        /// By the number itself.
        Linear = 1 "LINEAR",
    }

    /// What entries of a rule table match on. PRM `rtc.ste_format_0`.
    pub enum RtcSteFormat: 8 {
        /// Eight dwords.
        Dwords8 = 4 "8DW",
        /// Eleven dwords.
        Dwords11 = 5 "11DW",
        /// Ranges.
        Range = 7 "RANGE",
    }

    /// When a packet is parsed again after a rule table. PRM `rtc.reparse_mode`.
    pub enum RtcReparseMode: 2 {
        /// Never.
        Never = 0 "NEVER",
        /// Always.
        Always = 1 "ALWAYS",
        /// As its actions say.
        ByStc = 2 "BY_STC",
    }

    /// When a packet is parsed again after an action. PRM `stc.reparse_mode`.
    pub enum StcReparseMode: 2 {
        /// The action does not say.
        Ignore = 0 "IGNORE",
        /// Never.
        Never = 1 "NEVER",
        /// Always.
        Always = 2 "ALWAYS",
    }

    /// A place in a packet. PRM `stc_ste_param_insert.insert_anchor`.
    pub enum HeaderAnchor: 6 {
        /// Its start.
        PacketStart = 0x00 "PACKET_START",
        /// The Ethernet header.
        Mac = 0x01 "MAC",
        /// The first VLAN tag.
        FirstVlanStart = 0x02 "FIRST_VLAN_START",
        /// The IP header.
        Ip = 0x07 "IPV6_IPV4",
        /// The ESP header.
        Esp = 0x08 "ESP",
        /// The TCP or UDP header.
        L4 = 0x09 "TCP_UDP",
        /// The header of a tunnel.
        TunnelHeader = 0x0a "TUNNEL_HEADER",
        /// The inner Ethernet header.
        InnerMac = 0x13 "INNER_MAC",
        /// The inner IP header.
        InnerIp = 0x19 "INNER_IPV6_IPV4",
        /// The inner TCP or UDP header.
        InnerL4 = 0x1a "INNER_TCP_UDP",
        /// What TCP or UDP carry.
        L4Payload = 0x1b "L4_PAYLOAD",
        /// What the inner TCP or UDP carry.
        InnerL4Payload = 0x1c "INNER_L4_PAYLOAD",
    }

    /// What entries do. PRM `stc.action_type`.
    pub enum StcActionType: 8 {
        /// Nothing.
        Nop = 0x00 "NOP",
        /// Copies bits.
        Copy = 0x05 "COPY",
        /// Writes bits.
        Set = 0x06 "SET",
        /// Adds a number.
        Add = 0x07 "ADD",
        /// Removes words.
        RemoveWords = 0x08 "REMOVE_WORDS",
        /// Removes headers.
        HeaderRemove = 0x09 "HEADER_REMOVE",
        /// Inserts a header.
        HeaderInsert = 0x0b "HEADER_INSERT",
        /// Tags the packet for its completion.
        Tag = 0x0c "TAG",
        /// Does a list of actions.
        AccModifyList = 0x0e "ACC_MODIFY_LIST",
        /// Encrypts by IPsec.
        CryptoIpsecEncryption = 0x10 "CRYPTO_IPSEC_ENCRYPTION",
        /// Decrypts by IPsec.
        CryptoIpsecDecryption = 0x11 "CRYPTO_IPSEC_DECRYPTION",
        /// Updates an object.
        Aso = 0x12 "ASO",
        /// Adds or removes a trailer.
        Trailer = 0x13 "TRAILER",
        /// Counts.
        Counter = 0x14 "COUNTER",
        /// Adds a field.
        AddField = 0x1b "ADD_FIELD",
        /// Goes on in another table of entries.
        JumpToSteTable = 0x80 "JUMP_TO_STE_TABLE",
        /// To a transport interface receive.
        JumpToTir = 0x81 "JUMP_TO_TIR",
        /// To a flow table.
        JumpToFt = 0x82 "JUMP_TO_FT",
        /// Drops.
        Drop = 0x83 "DROP",
        /// Lets pass.
        Allow = 0x84 "ALLOW",
        /// To a port of the e-switch.
        JumpToVport = 0x85 "JUMP_TO_VPORT",
        /// To the wire.
        JumpToUplink = 0x86 "JUMP_TO_UPLINK",
    }
}

impl Stc {
    fn param_layout(bytes: &[u8], _index: usize) -> Option<&'static Info> {
        Some(match Stc::read(bytes)?.action_type() {
            StcActionType::Copy => &CopyActionIn::INFO,
            StcActionType::Set | StcActionType::Add | StcActionType::AddField => &SetActionIn::INFO,
            StcActionType::RemoveWords => &StcSteParamRemoveWords::INFO,
            StcActionType::HeaderRemove => &StcSteParamRemove::INFO,
            StcActionType::HeaderInsert => &StcSteParamInsert::INFO,
            StcActionType::AccModifyList => &StcSteParamHeaderModifyList::INFO,
            StcActionType::CryptoIpsecEncryption => &StcSteParamIpsecEncrypt::INFO,
            StcActionType::CryptoIpsecDecryption => &StcSteParamIpsecDecrypt::INFO,
            StcActionType::Aso => &StcSteParamExecuteAso::INFO,
            StcActionType::Trailer => &StcSteParamTrailer::INFO,
            StcActionType::Counter => &StcSteParamFlowCounter::INFO,
            StcActionType::JumpToSteTable => &StcSteParamSteTable::INFO,
            StcActionType::JumpToTir => &StcSteParamTir::INFO,
            StcActionType::JumpToFt => &StcSteParamTable::INFO,
            StcActionType::JumpToVport | StcActionType::JumpToUplink => &StcSteParamVport::INFO,
            _ => return None,
        })
    }
}
