//! Flow tables.

use crate::layout::{Info, Layout};

layout! {
    /// Flow table context. PRM `flow_table_context`.
    pub struct FlowTableContext: 0x28, "mlx5_ifc_flow_table_context_bits" {
        0x00 [31] reformat_en: bool,
        0x00 [30] decap_en: bool,
        0x00 [29] sw_owner: bool,
        0x00 [28] termination_table: bool,
        0x00 [27:24] table_miss_action: FlowTableMissAction,
        0x00 [23:16] level: u8,
        0x00 [15] rtc_valid: bool,
        0x00 [7:0] log_size: u8,
        0x04 [23:0] table_miss_id: u32,
        0x08 [23:0] lag_master_next_table_id: u32,
        0x18 sws_or_hws: FlowTableRoot where root_layout,
    }

    /// Where the entries of a table lie whose steering software writes. PRM `sw_owner_icm_root_params`.
    pub struct SwOwnerIcmRootParams: 0x10, "mlx5_ifc_sw_owner_icm_root_params_bits" {
        0x00 [63:0] sw_owner_icm_root_1: u64,
        0x08 [63:0] sw_owner_icm_root_0: u64,
    }

    /// The rule tables that stand for a flow table. PRM `rtc_params`.
    pub struct RtcParams: 0x10, "mlx5_ifc_rtc_params_bits" {
        0x00 [31:0] rtc_id_0: u32,
        0x04 [31:0] rtc_id_1: u32,
    }

    /// What a flow table is made of, if software or a rule table provides it. PRM
    /// `flow_table_context`, which gives it no name.
    pub union FlowTableRoot: 0x10, "mlx5_ifc_flow_table_context_bits." {
        0x00 sws: SwOwnerIcmRootParams,
        0x00 hws: RtcParams,
    }
}

values! {
    /// Whose packets a flow table sees. PRM `table_type`.
    pub enum FlowTableType: 8 {
        /// Received by the NIC.
        NicRx = 0 "NIC_RX",
        /// Sent by the NIC.
        NicTx = 1 "NIC_TX",
        /// On their way out of the e-switch to a port.
        EswEgressAcl = 2 "ESW_EGRESS_ACL",
        /// On their way from a port into the e-switch.
        EswIngressAcl = 3 "ESW_INGRESS_ACL",
        /// In the e-switch.
        Fdb = 4 "FDB",
        /// Copies of what is received.
        SnifferRx = 5 "SNIFFER_RX",
        /// Copies of what is sent.
        SnifferTx = 6 "SNIFFER_TX",
        /// RDMA packets received.
        RdmaRx = 7 "RDMA_RX",
        /// RDMA packets sent.
        RdmaTx = 8 "RDMA_TX",
        /// To be sent: chooses the port of a bond.
        PortSel = 9 "PORT_SEL",
        /// In the e-switch, from the wire.
        FdbRx = 10 "FDB_RX",
        /// In the e-switch, to the wire.
        FdbTx = 11 "FDB_TX",
        /// RDMA packets received, at the transport.
        RdmaTransportRx = 13 "RDMA_TRANSPORT_RX",
        /// RDMA packets sent, at the transport.
        RdmaTransportTx = 14 "RDMA_TRANSPORT_TX",
    }

    /// What happens to a packet that no entry matches. PRM `flow_table_context.table_miss_action`.
    pub enum FlowTableMissAction: 4 {
        /// The default of the table type.
        Def = 0 "DEF",
        /// It goes to the table `table_miss_id`.
        Fwd = 1 "FWD",
        /// It goes to the other domain.
        SwitchDomain = 2 "SWITCH_DOMAIN",
    }

    /// How a flow group is kept. PRM `create_flow_group_in.group_type`.
    pub enum FlowGroupType: 4 {
        /// In order of its entries.
        TcamSubtable = 0 "TCAM_SUBTABLE",
        /// By hash, spread over ports.
        HashSplit = 1 "HASH_SPLIT",
    }
}

impl FlowTableContext {
    /// Rule tables if `rtc_valid`, software's tables if `sw_owner`, nothing otherwise.
    fn root_layout(bytes: &[u8], _index: usize) -> Option<&'static Info> {
        let table = FlowTableContext::read(bytes)?;
        match (table.rtc_valid(), table.sw_owner()) {
            (true, _) => Some(&RtcParams::INFO),
            (false, true) => Some(&SwOwnerIcmRootParams::INFO),
            _ => None,
        }
    }
}
