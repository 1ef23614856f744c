//! Actions that change headers.

use crate::layout::{Info, Layout};

layout! {
    /// An action that changes a header. PRM `set_add_copy_action_in_auto`.
    pub union SetAddCopyActionInAuto: 0x8, "mlx5_ifc_set_add_copy_action_in_auto_bits" {
        0x00 set_action_in: SetActionIn,
        0x00 add_action_in: AddActionIn,
        0x00 copy_action_in: CopyActionIn,
    }

    /// Writes bits of a field. PRM `set_action_in`.
    pub struct SetActionIn: 0x8, "mlx5_ifc_set_action_in_bits" {
        0x00 [31:28] action_type: ModifyActionType,
        0x00 [27:16] field: ModifyField,
        0x00 [12:8] offset: u8,
        0x00 [4:0] length: u8,
        0x04 [31:0] data: u32,
    }

    /// Adds to a field. PRM `add_action_in`.
    pub struct AddActionIn: 0x8, "mlx5_ifc_add_action_in_bits" {
        0x00 [31:28] action_type: ModifyActionType,
        0x00 [27:16] field: ModifyField,
        0x04 [31:0] data: u32,
    }

    /// Copies bits of one field to another. PRM `copy_action_in`.
    pub struct CopyActionIn: 0x8, "mlx5_ifc_copy_action_in_bits" {
        0x00 [31:28] action_type: ModifyActionType,
        0x00 [27:16] src_field: ModifyField,
        0x00 [12:8] src_offset: u8,
        0x00 [4:0] length: u8,
        0x04 [27:16] dst_field: ModifyField,
        0x04 [12:8] dst_offset: u8,
    }
}

values! {
    /// How a header is changed. PRM `set_action_in.action_type`.
    pub enum ModifyActionType: 4 {
        /// Bits are written.
        Set = 1 "SET",
        /// A number is added.
        Add = 2 "ADD",
        /// Bits are copied from another field.
        Copy = 3 "COPY",
        /// A header is inserted.
        Insert = 4 "INSERT",
        /// A header is removed.
        Remove = 5 "REMOVE",
        /// Nothing.
        Nop = 6 "NOP",
        /// Words are removed.
        RemoveWords = 7 "REMOVE_WORDS",
        /// Another field is added.
        AddField = 8 "ADD_FIELD",
    }

    /// A field of a packet, or a register, that actions change. PRM `set_action_in.field`.
    pub enum ModifyField: 12 {
        /// Outer source MAC address, bits 47:16.
        OutSmac4716 = 0x1 "OUT_SMAC_47_16",
        /// Outer source MAC address, bits 15:0.
        OutSmac150 = 0x2 "OUT_SMAC_15_0",
        /// Outer Ethertype.
        OutEthertype = 0x3 "OUT_ETHERTYPE",
        /// Outer destination MAC address, bits 47:16.
        OutDmac4716 = 0x4 "OUT_DMAC_47_16",
        /// Outer destination MAC address, bits 15:0.
        OutDmac150 = 0x5 "OUT_DMAC_15_0",
        /// Outer DSCP.
        OutIpDscp = 0x6 "OUT_IP_DSCP",
        /// Outer TCP flags.
        OutTcpFlags = 0x7 "OUT_TCP_FLAGS",
        /// Outer TCP source port.
        OutTcpSport = 0x8 "OUT_TCP_SPORT",
        /// Outer TCP destination port.
        OutTcpDport = 0x9 "OUT_TCP_DPORT",
        /// Outer IPv4 time to live.
        OutIpTtl = 0xa "OUT_IP_TTL",
        /// Outer UDP source port.
        OutUdpSport = 0xb "OUT_UDP_SPORT",
        /// Outer UDP destination port.
        OutUdpDport = 0xc "OUT_UDP_DPORT",
        /// Outer IPv6 source address, bits 127:96.
        OutSipv612796 = 0xd "OUT_SIPV6_127_96",
        /// Outer IPv6 source address, bits 95:64.
        OutSipv69564 = 0xe "OUT_SIPV6_95_64",
        /// Outer IPv6 source address, bits 63:32.
        OutSipv66332 = 0xf "OUT_SIPV6_63_32",
        /// Outer IPv6 source address, bits 31:0.
        OutSipv6310 = 0x10 "OUT_SIPV6_31_0",
        /// Outer IPv6 destination address, bits 127:96.
        OutDipv612796 = 0x11 "OUT_DIPV6_127_96",
        /// Outer IPv6 destination address, bits 95:64.
        OutDipv69564 = 0x12 "OUT_DIPV6_95_64",
        /// Outer IPv6 destination address, bits 63:32.
        OutDipv66332 = 0x13 "OUT_DIPV6_63_32",
        /// Outer IPv6 destination address, bits 31:0.
        OutDipv6310 = 0x14 "OUT_DIPV6_31_0",
        /// Outer IPv4 source address.
        OutSipv4 = 0x15 "OUT_SIPV4",
        /// Outer IPv4 destination address.
        OutDipv4 = 0x16 "OUT_DIPV4",
        /// Outer first VLAN.
        OutFirstVid = 0x17 "OUT_FIRST_VID",
        /// Outer IPv6 hop limit.
        OutIpv6Hoplimit = 0x47 "OUT_IPV6_HOPLIMIT",
        /// Metadata register a.
        MetadataRegA = 0x49 "METADATA_REG_A",
        /// Metadata register b.
        MetadataRegB = 0x50 "METADATA_REG_B",
        /// Metadata register c0.
        MetadataRegC0 = 0x51 "METADATA_REG_C_0",
        /// Metadata register c1.
        MetadataRegC1 = 0x52 "METADATA_REG_C_1",
        /// Metadata register c2.
        MetadataRegC2 = 0x53 "METADATA_REG_C_2",
        /// Metadata register c3.
        MetadataRegC3 = 0x54 "METADATA_REG_C_3",
        /// Metadata register c4.
        MetadataRegC4 = 0x55 "METADATA_REG_C_4",
        /// Metadata register c5.
        MetadataRegC5 = 0x56 "METADATA_REG_C_5",
        /// Metadata register c6.
        MetadataRegC6 = 0x57 "METADATA_REG_C_6",
        /// Metadata register c7.
        MetadataRegC7 = 0x58 "METADATA_REG_C_7",
        /// Outer TCP sequence number.
        OutTcpSeqNum = 0x59 "OUT_TCP_SEQ_NUM",
        /// Outer TCP acknowledgement number.
        OutTcpAckNum = 0x5b "OUT_TCP_ACK_NUM",
        /// IPsec syndrome.
        IpsecSyndrome = 0x5d "IPSEC_SYNDROME",
        /// Outer metadata header, bits 47:32.
        OutEmd4732 = 0x6f "OUT_EMD_47_32",
        /// Outer metadata header, bits 31:0.
        OutEmd310 = 0x70 "OUT_EMD_31_0",
        /// PSP syndrome.
        PspSyndrome = 0x71 "PSP_SYNDROME",
        /// PSP header, second dword.
        PspHeader1 = 0x78 "PSP_HEADER_1",
    }
}

impl SetAddCopyActionInAuto {
    /// The arm these eight bytes are, by their action type.
    pub fn layout(&self) -> Option<&'static Info> {
        match self.set_action_in().action_type() {
            ModifyActionType::Set => Some(&SetActionIn::INFO),
            ModifyActionType::Add => Some(&AddActionIn::INFO),
            ModifyActionType::Copy => Some(&CopyActionIn::INFO),
            _ => None,
        }
    }

    /// The arm of action `i` in a list from byte `start`.
    pub(crate) fn in_list(bytes: &[u8], start: usize, i: usize) -> Option<&'static Info> {
        SetAddCopyActionInAuto::read(bytes.get(start + i * 8..)?)?.layout()
    }
}
