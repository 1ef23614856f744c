//! Packet reformat contexts.

layout! {
    /// A header to put around packets, or to take away; the header continues after it. PRM
    /// `packet_reformat_context_in`.
    pub struct PacketReformatContextIn: 0x8, "mlx5_ifc_packet_reformat_context_in_bits" {
        0x00 [31:24] reformat_type: ReformatType,
        0x00 [19:16] reformat_param_0: ReformatAnchor,
        0x00 [9:0] reformat_data_size: u16,
        0x04 [31:24] reformat_param_1: u8,
        0x06 reformat_data: [u8; 2],
        .. more_reformat_data: [u8],
    }
}

values! {
    /// What a reformat does. PRM `packet_reformat_context_in.reformat_type`.
    pub enum ReformatType: 8 {
        /// Puts a frame into VXLAN.
        L2ToVxlan = 0 "L2_TO_VXLAN",
        /// Puts a frame into NVGRE.
        L2ToNvgre = 1 "L2_TO_NVGRE",
        /// Puts a frame into any tunnel of frames.
        L2ToL2Tunnel = 2 "L2_TO_L2_TUNNEL",
        /// Takes a packet out of its tunnel, and puts an Ethernet header before it.
        L3TunnelToL2 = 3 "L3_TUNNEL_TO_L2",
        /// Puts the packet in a frame into a tunnel of packets.
        L2ToL3Tunnel = 4 "L2_TO_L3_TUNNEL",
        /// Adds an ESP header over IPv4.
        AddEspTransportOverIpv4 = 5 "ADD_ESP_TRANSPORT_OVER_IPV4",
        /// Puts the packet in a frame into an ESP tunnel.
        L2ToL3EspTunnel = 6 "L2_TO_L3_ESP_TUNNEL",
        /// Adds an ESP header over UDP and IPv4.
        AddEspTransportOverUdpv4 = 7 "ADD_ESP_TRANSPORT_OVER_UDPV4",
        /// Removes an ESP header.
        DelEspTransport = 8 "DEL_ESP_TRANSPORT",
        /// Takes a packet out of its ESP tunnel.
        L3EspTunnelToL2 = 9 "L3_ESP_TUNNEL_TO_L2",
        /// Removes an ESP header over UDP.
        DelEspTransportOverUdp = 10 "DEL_ESP_TRANSPORT_OVER_UDP",
        /// Adds an ESP header over IPv6.
        AddEspTransportOverIpv6 = 11 "ADD_ESP_TRANSPORT_OVER_IPV6",
        /// Adds an ESP header over UDP and IPv6.
        AddEspTransportOverUdpv6 = 12 "ADD_ESP_TRANSPORT_OVER_UDPV6",
        /// Puts a packet into PSP.
        AddPspTunnel = 13 "ADD_PSP_TUNNEL",
        /// Takes a packet out of PSP.
        DelPspTunnel = 14 "DEL_PSP_TUNNEL",
        /// Inserts a header.
        InsertHdr = 15 "INSERT_HDR",
        /// Removes a header.
        RemoveHdr = 16 "REMOVE_HDR",
        /// Adds a MACsec header.
        AddMacsec = 17 "ADD_MACSEC",
        /// Removes a MACsec header.
        DelMacsec = 18 "DEL_MACSEC",
        /// Removes a PSP header.
        RemovePspTransport = 22 "REMOVE_PSP_TRANSPORT",
    }

    /// Header that a reformat counts from. PRM `packet_reformat_context_in.reformat_param_0`.
    pub enum ReformatAnchor: 4 {
        /// The Ethernet header.
        MacStart = 1 "MAC_START",
        /// The VLAN tag.
        VlanStart = 2 "VLAN_START",
        /// The network header.
        IpStart = 7 "IP_START",
        /// The transport header.
        TcpUdpStart = 9 "TCP_UDP_START",
    }
}
