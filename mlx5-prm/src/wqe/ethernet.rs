//! Sending raw packets: the Ethernet segment.

layout! {
    /// How a packet is sent: offloads, and the start of its headers. PRM "Ethernet Segment".
    ///
    /// The last two bytes begin the inlined headers, `inline_hdr_sz` bytes in all, which go on in the segments that
    /// follow; the WQE's data segments start at the next segment.
    pub struct EthSeg: 0x10, "mlx5_wqe_eth_seg" {
        /// Software parser: offset of the outer layer 4 header, in units of two bytes.
        0x00 [31:24] swp_outer_l4_offset: u8,
        0x00 [23:16] swp_outer_l3_offset: u8,
        0x00 [15:8] swp_inner_l4_offset: u8,
        0x00 [7:0] swp_inner_l3_offset: u8,
        /// Write the (outer) layer 4 checksum.
        0x04 [31] l4_csum: bool,
        /// Write the (outer) IPv4 header checksum.
        0x04 [30] l3_csum: bool,
        0x04 [29] l4_inner_csum: bool,
        0x04 [28] l3_inner_csum: bool,
        /// Software parser: 1 for UDP, else TCP.
        0x04 [21] swp_outer_l4_type: bool,
        /// Software parser: 1 for IPv6, else IPv4.
        0x04 [20] swp_outer_l3_type: bool,
        0x04 [17] swp_inner_l4_type: bool,
        0x04 [16] swp_inner_l3_type: bool,
        /// Large send: payload bytes of each packet, with [`WqeOpcode::Lso`](super::WqeOpcode::Lso).
        0x04 [15:0] mss: u16,
        /// What the flow tables of the send side may match.
        0x08 [31:0] flow_table_metadata: u32,
        /// Insert the VLAN tag `inline_hdr_start`; nothing is inlined then, and bit 0 of `inline_hdr_sz` makes the tag
        /// a service tag (802.1ad).
        0x0c [31] insert_vlan: bool,
        /// The packet has a trailer (IPsec).
        0x0c [30] insert_trailer: bool,
        /// Which header's length covers the trailer, see [`TrailerAssociation`].
        0x0c [28:26] trailer_hdr_assoc: u8 as TrailerAssociation,
        0x0c [25:16] inline_hdr_sz: u16,
        /// The first two bytes of the inlined headers.
        0x0c [15:0] inline_hdr_start: u16,
    }
}

values! {
    /// Which header's length covers a packet's trailer. PRM "Ethernet Segment", trailer.
    pub enum TrailerAssociation: 3 {
        /// None.
        None = 0 "NONE",
        /// The outer IP header's.
        OuterIp = 1 "HDR_OUTER_IP_ASSOC",
        /// The outer layer 4 header's.
        OuterL4 = 2 "HDR_OUTER_L4_ASSOC",
        /// The inner IP header's.
        InnerIp = 3 "HDR_INNER_IP_ASSOC",
        /// The inner layer 4 header's.
        InnerL4 = 4 "HDR_INNER_L4_ASSOC",
    }
}
