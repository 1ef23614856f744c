//! Counters of a port, register `PPCNT`: one layout a group.

use crate::layout::{Info, Layout};
use super::{PhysLayerCntrs, PhysLayerRecoveryCntrs, PhysLayerStatisticalCntrs, RsHistogramCntrs};

layout! {
    /// Counters of a port: register `PPCNT`. `grp` selects the group in `counter_set`. PRM `ppcnt_reg`.
    pub struct PpcntReg: 0x100, "mlx5_ifc_ppcnt_reg_bits" {
        0x00 [31:24] swid: u8,
        0x00 [23:16] local_port: u8,
        0x00 [15:14] pnat: u8,
        0x00 [5:0] grp: u8 as PortCounterGroup,
        0x04 [31] clr: bool,
        0x04 [11:8] plane_ind: u8,
        0x04 [4:0] prio_tc: u8,
        0x08 counter_set: EthCntrsGrpDataLayoutAuto where counters,
    }

    /// The groups of a port's counters. PRM `eth_cntrs_grp_data_layout_auto`.
    pub union EthCntrsGrpDataLayoutAuto: 0xf8, "mlx5_ifc_eth_cntrs_grp_data_layout_auto_bits" {
        0x00 eth_802_3_cntrs_grp_data_layout: Eth8023CntrsGrpDataLayout,
        0x00 eth_2863_cntrs_grp_data_layout: Eth2863CntrsGrpDataLayout,
        0x00 eth_2819_cntrs_grp_data_layout: Eth2819CntrsGrpDataLayout,
        0x00 eth_3635_cntrs_grp_data_layout: Eth3635CntrsGrpDataLayout,
        0x00 eth_extended_cntrs_grp_data_layout: EthExtendedCntrsGrpDataLayout,
        0x00 eth_per_prio_grp_data_layout: EthPerPrioGrpDataLayout,
        0x00 eth_per_tc_prio_grp_data_layout: EthPerTcPrioGrpDataLayout,
        0x00 eth_per_tc_congest_prio_grp_data_layout: EthPerTcCongestPrioGrpDataLayout,
        0x00 ib_port_cntrs_grp_data_layout: IbPortCntrsGrpDataLayout,
        0x00 ib_ext_port_cntrs_grp_data_layout: IbExtPortCntrsGrpDataLayout,
        0x00 phys_layer_cntrs: PhysLayerCntrs,
        0x00 phys_layer_statistical_cntrs: PhysLayerStatisticalCntrs,
        0x00 phys_layer_recovery_cntrs: PhysLayerRecoveryCntrs,
        0x00 rs_histogram_cntrs: RsHistogramCntrs,
    }

    /// IEEE 802.3 counters. PRM `eth_802_3_cntrs_grp_data_layout`.
    pub struct Eth8023CntrsGrpDataLayout: 0xf8, "mlx5_ifc_eth_802_3_cntrs_grp_data_layout_bits" {
        0x00 [31:0] a_frames_transmitted_ok_high: u32,
        0x04 [31:0] a_frames_transmitted_ok_low: u32,
        0x08 [31:0] a_frames_received_ok_high: u32,
        0x0c [31:0] a_frames_received_ok_low: u32,
        0x10 [31:0] a_frame_check_sequence_errors_high: u32,
        0x14 [31:0] a_frame_check_sequence_errors_low: u32,
        0x18 [31:0] a_alignment_errors_high: u32,
        0x1c [31:0] a_alignment_errors_low: u32,
        0x20 [31:0] a_octets_transmitted_ok_high: u32,
        0x24 [31:0] a_octets_transmitted_ok_low: u32,
        0x28 [31:0] a_octets_received_ok_high: u32,
        0x2c [31:0] a_octets_received_ok_low: u32,
        0x30 [31:0] a_multicast_frames_xmitted_ok_high: u32,
        0x34 [31:0] a_multicast_frames_xmitted_ok_low: u32,
        0x38 [31:0] a_broadcast_frames_xmitted_ok_high: u32,
        0x3c [31:0] a_broadcast_frames_xmitted_ok_low: u32,
        0x40 [31:0] a_multicast_frames_received_ok_high: u32,
        0x44 [31:0] a_multicast_frames_received_ok_low: u32,
        0x48 [31:0] a_broadcast_frames_received_ok_high: u32,
        0x4c [31:0] a_broadcast_frames_received_ok_low: u32,
        0x50 [31:0] a_in_range_length_errors_high: u32,
        0x54 [31:0] a_in_range_length_errors_low: u32,
        0x58 [31:0] a_out_of_range_length_field_high: u32,
        0x5c [31:0] a_out_of_range_length_field_low: u32,
        0x60 [31:0] a_frame_too_long_errors_high: u32,
        0x64 [31:0] a_frame_too_long_errors_low: u32,
        0x68 [31:0] a_symbol_error_during_carrier_high: u32,
        0x6c [31:0] a_symbol_error_during_carrier_low: u32,
        0x70 [31:0] a_mac_control_frames_transmitted_high: u32,
        0x74 [31:0] a_mac_control_frames_transmitted_low: u32,
        0x78 [31:0] a_mac_control_frames_received_high: u32,
        0x7c [31:0] a_mac_control_frames_received_low: u32,
        0x80 [31:0] a_unsupported_opcodes_received_high: u32,
        0x84 [31:0] a_unsupported_opcodes_received_low: u32,
        0x88 [31:0] a_pause_mac_ctrl_frames_received_high: u32,
        0x8c [31:0] a_pause_mac_ctrl_frames_received_low: u32,
        0x90 [31:0] a_pause_mac_ctrl_frames_transmitted_high: u32,
        0x94 [31:0] a_pause_mac_ctrl_frames_transmitted_low: u32,
    }

    /// RFC 2863 counters. PRM `eth_2863_cntrs_grp_data_layout`.
    pub struct Eth2863CntrsGrpDataLayout: 0xf8, "mlx5_ifc_eth_2863_cntrs_grp_data_layout_bits" {
        0x00 [31:0] if_in_octets_high: u32,
        0x04 [31:0] if_in_octets_low: u32,
        0x08 [31:0] if_in_ucast_pkts_high: u32,
        0x0c [31:0] if_in_ucast_pkts_low: u32,
        0x10 [31:0] if_in_discards_high: u32,
        0x14 [31:0] if_in_discards_low: u32,
        0x18 [31:0] if_in_errors_high: u32,
        0x1c [31:0] if_in_errors_low: u32,
        0x20 [31:0] if_in_unknown_protos_high: u32,
        0x24 [31:0] if_in_unknown_protos_low: u32,
        0x28 [31:0] if_out_octets_high: u32,
        0x2c [31:0] if_out_octets_low: u32,
        0x30 [31:0] if_out_ucast_pkts_high: u32,
        0x34 [31:0] if_out_ucast_pkts_low: u32,
        0x38 [31:0] if_out_discards_high: u32,
        0x3c [31:0] if_out_discards_low: u32,
        0x40 [31:0] if_out_errors_high: u32,
        0x44 [31:0] if_out_errors_low: u32,
        0x48 [31:0] if_in_multicast_pkts_high: u32,
        0x4c [31:0] if_in_multicast_pkts_low: u32,
        0x50 [31:0] if_in_broadcast_pkts_high: u32,
        0x54 [31:0] if_in_broadcast_pkts_low: u32,
        0x58 [31:0] if_out_multicast_pkts_high: u32,
        0x5c [31:0] if_out_multicast_pkts_low: u32,
        0x60 [31:0] if_out_broadcast_pkts_high: u32,
        0x64 [31:0] if_out_broadcast_pkts_low: u32,
    }

    /// RFC 2819 counters. PRM `eth_2819_cntrs_grp_data_layout`.
    pub struct Eth2819CntrsGrpDataLayout: 0xf8, "mlx5_ifc_eth_2819_cntrs_grp_data_layout_bits" {
        0x00 [31:0] ether_stats_drop_events_high: u32,
        0x04 [31:0] ether_stats_drop_events_low: u32,
        0x08 [31:0] ether_stats_octets_high: u32,
        0x0c [31:0] ether_stats_octets_low: u32,
        0x10 [31:0] ether_stats_pkts_high: u32,
        0x14 [31:0] ether_stats_pkts_low: u32,
        0x18 [31:0] ether_stats_broadcast_pkts_high: u32,
        0x1c [31:0] ether_stats_broadcast_pkts_low: u32,
        0x20 [31:0] ether_stats_multicast_pkts_high: u32,
        0x24 [31:0] ether_stats_multicast_pkts_low: u32,
        0x28 [31:0] ether_stats_crc_align_errors_high: u32,
        0x2c [31:0] ether_stats_crc_align_errors_low: u32,
        0x30 [31:0] ether_stats_undersize_pkts_high: u32,
        0x34 [31:0] ether_stats_undersize_pkts_low: u32,
        0x38 [31:0] ether_stats_oversize_pkts_high: u32,
        0x3c [31:0] ether_stats_oversize_pkts_low: u32,
        0x40 [31:0] ether_stats_fragments_high: u32,
        0x44 [31:0] ether_stats_fragments_low: u32,
        0x48 [31:0] ether_stats_jabbers_high: u32,
        0x4c [31:0] ether_stats_jabbers_low: u32,
        0x50 [31:0] ether_stats_collisions_high: u32,
        0x54 [31:0] ether_stats_collisions_low: u32,
        0x58 [31:0] ether_stats_pkts64octets_high: u32,
        0x5c [31:0] ether_stats_pkts64octets_low: u32,
        0x60 [31:0] ether_stats_pkts65to127octets_high: u32,
        0x64 [31:0] ether_stats_pkts65to127octets_low: u32,
        0x68 [31:0] ether_stats_pkts128to255octets_high: u32,
        0x6c [31:0] ether_stats_pkts128to255octets_low: u32,
        0x70 [31:0] ether_stats_pkts256to511octets_high: u32,
        0x74 [31:0] ether_stats_pkts256to511octets_low: u32,
        0x78 [31:0] ether_stats_pkts512to1023octets_high: u32,
        0x7c [31:0] ether_stats_pkts512to1023octets_low: u32,
        0x80 [31:0] ether_stats_pkts1024to1518octets_high: u32,
        0x84 [31:0] ether_stats_pkts1024to1518octets_low: u32,
        0x88 [31:0] ether_stats_pkts1519to2047octets_high: u32,
        0x8c [31:0] ether_stats_pkts1519to2047octets_low: u32,
        0x90 [31:0] ether_stats_pkts2048to4095octets_high: u32,
        0x94 [31:0] ether_stats_pkts2048to4095octets_low: u32,
        0x98 [31:0] ether_stats_pkts4096to8191octets_high: u32,
        0x9c [31:0] ether_stats_pkts4096to8191octets_low: u32,
        0xa0 [31:0] ether_stats_pkts8192to10239octets_high: u32,
        0xa4 [31:0] ether_stats_pkts8192to10239octets_low: u32,
    }

    /// RFC 3635 counters. PRM `eth_3635_cntrs_grp_data_layout`.
    pub struct Eth3635CntrsGrpDataLayout: 0xf8, "mlx5_ifc_eth_3635_cntrs_grp_data_layout_bits" {
        0x00 [31:0] dot3stats_alignment_errors_high: u32,
        0x04 [31:0] dot3stats_alignment_errors_low: u32,
        0x08 [31:0] dot3stats_fcs_errors_high: u32,
        0x0c [31:0] dot3stats_fcs_errors_low: u32,
        0x10 [31:0] dot3stats_single_collision_frames_high: u32,
        0x14 [31:0] dot3stats_single_collision_frames_low: u32,
        0x18 [31:0] dot3stats_multiple_collision_frames_high: u32,
        0x1c [31:0] dot3stats_multiple_collision_frames_low: u32,
        0x20 [31:0] dot3stats_sqe_test_errors_high: u32,
        0x24 [31:0] dot3stats_sqe_test_errors_low: u32,
        0x28 [31:0] dot3stats_deferred_transmissions_high: u32,
        0x2c [31:0] dot3stats_deferred_transmissions_low: u32,
        0x30 [31:0] dot3stats_late_collisions_high: u32,
        0x34 [31:0] dot3stats_late_collisions_low: u32,
        0x38 [31:0] dot3stats_excessive_collisions_high: u32,
        0x3c [31:0] dot3stats_excessive_collisions_low: u32,
        0x40 [31:0] dot3stats_internal_mac_transmit_errors_high: u32,
        0x44 [31:0] dot3stats_internal_mac_transmit_errors_low: u32,
        0x48 [31:0] dot3stats_carrier_sense_errors_high: u32,
        0x4c [31:0] dot3stats_carrier_sense_errors_low: u32,
        0x50 [31:0] dot3stats_frame_too_longs_high: u32,
        0x54 [31:0] dot3stats_frame_too_longs_low: u32,
        0x58 [31:0] dot3stats_internal_mac_receive_errors_high: u32,
        0x5c [31:0] dot3stats_internal_mac_receive_errors_low: u32,
        0x60 [31:0] dot3stats_symbol_errors_high: u32,
        0x64 [31:0] dot3stats_symbol_errors_low: u32,
        0x68 [31:0] dot3control_in_unknown_opcodes_high: u32,
        0x6c [31:0] dot3control_in_unknown_opcodes_low: u32,
        0x70 [31:0] dot3in_pause_frames_high: u32,
        0x74 [31:0] dot3in_pause_frames_low: u32,
        0x78 [31:0] dot3out_pause_frames_high: u32,
        0x7c [31:0] dot3out_pause_frames_low: u32,
    }

    /// Ethernet counters beyond the standards. PRM `eth_extended_cntrs_grp_data_layout`.
    pub struct EthExtendedCntrsGrpDataLayout: 0xf8, "mlx5_ifc_eth_extended_cntrs_grp_data_layout_bits" {
        0x00 [31:0] port_transmit_wait_high: u32,
        0x04 [31:0] port_transmit_wait_low: u32,
        0x28 [31:0] rx_buffer_almost_full_high: u32,
        0x2c [31:0] rx_buffer_almost_full_low: u32,
        0x30 [31:0] rx_buffer_full_high: u32,
        0x34 [31:0] rx_buffer_full_low: u32,
        0x38 [31:0] rx_icrc_encapsulated_high: u32,
        0x3c [31:0] rx_icrc_encapsulated_low: u32,
    }

    /// Counters of a priority. PRM `eth_per_prio_grp_data_layout`.
    pub struct EthPerPrioGrpDataLayout: 0xf8, "mlx5_ifc_eth_per_prio_grp_data_layout_bits" {
        0x00 [31:0] rx_octets_high: u32,
        0x04 [31:0] rx_octets_low: u32,
        0x20 [31:0] rx_frames_high: u32,
        0x24 [31:0] rx_frames_low: u32,
        0x28 [31:0] tx_octets_high: u32,
        0x2c [31:0] tx_octets_low: u32,
        0x48 [31:0] tx_frames_high: u32,
        0x4c [31:0] tx_frames_low: u32,
        0x50 [31:0] rx_pause_high: u32,
        0x54 [31:0] rx_pause_low: u32,
        0x58 [31:0] rx_pause_duration_high: u32,
        0x5c [31:0] rx_pause_duration_low: u32,
        0x60 [31:0] tx_pause_high: u32,
        0x64 [31:0] tx_pause_low: u32,
        0x68 [31:0] tx_pause_duration_high: u32,
        0x6c [31:0] tx_pause_duration_low: u32,
        0x70 [31:0] rx_pause_transition_high: u32,
        0x74 [31:0] rx_pause_transition_low: u32,
        0x78 [31:0] rx_discards_high: u32,
        0x7c [31:0] rx_discards_low: u32,
        0x80 [31:0] device_stall_minor_watermark_cnt_high: u32,
        0x84 [31:0] device_stall_minor_watermark_cnt_low: u32,
        0x88 [31:0] device_stall_critical_watermark_cnt_high: u32,
        0x8c [31:0] device_stall_critical_watermark_cnt_low: u32,
    }

    /// Queue of a traffic class: how often a packet found none. PRM `eth_per_tc_prio_grp_data_layout`.
    pub struct EthPerTcPrioGrpDataLayout: 0xf8, "mlx5_ifc_eth_per_tc_prio_grp_data_layout_bits" {
        0x00 [31:0] transmit_queue_high: u32,
        0x04 [31:0] transmit_queue_low: u32,
        0x08 [31:0] no_buffer_discard_uc_high: u32,
        0x0c [31:0] no_buffer_discard_uc_low: u32,
    }

    /// Congestion of a traffic class. PRM `eth_per_tc_congest_prio_grp_data_layout`.
    pub struct EthPerTcCongestPrioGrpDataLayout: 0xf8, "mlx5_ifc_eth_per_tc_congest_prio_grp_data_layout_bits" {
        0x00 [31:0] wred_discard_high: u32,
        0x04 [31:0] wred_discard_low: u32,
        0x08 [31:0] ecn_marked_tc_high: u32,
        0x0c [31:0] ecn_marked_tc_low: u32,
    }

    /// InfiniBand port counters. PRM `ib_port_cntrs_grp_data_layout`.
    pub struct IbPortCntrsGrpDataLayout: 0x28, "mlx5_ifc_ib_port_cntrs_grp_data_layout_bits" {
        0x00 [31:16] symbol_error_counter: u16,
        0x00 [15:8] link_error_recovery_counter: u8,
        0x00 [7:0] link_downed_counter: u8,
        0x04 [31:16] port_rcv_errors: u16,
        0x04 [15:0] port_rcv_remote_physical_errors: u16,
        0x08 [31:16] port_rcv_switch_relay_errors: u16,
        0x08 [15:0] port_xmit_discards: u16,
        0x0c [31:24] port_xmit_constraint_errors: u8,
        0x0c [23:16] port_rcv_constraint_errors: u8,
        0x0c [7:0] link_overrun_errors: u8,
        0x10 [15:0] vl_15_dropped: u16,
        0x24 [31:0] port_xmit_wait: u32,
    }

    /// InfiniBand extended port counters. PRM `ib_ext_port_cntrs_grp_data_layout`.
    pub struct IbExtPortCntrsGrpDataLayout: 0xf8, "mlx5_ifc_ib_ext_port_cntrs_grp_data_layout_bits" {
        0x60 [31:0] port_xmit_data_high: u32,
        0x64 [31:0] port_xmit_data_low: u32,
        0x68 [31:0] port_rcv_data_high: u32,
        0x6c [31:0] port_rcv_data_low: u32,
        0x70 [31:0] port_xmit_pkts_high: u32,
        0x74 [31:0] port_xmit_pkts_low: u32,
        0x78 [31:0] port_rcv_pkts_high: u32,
        0x7c [31:0] port_rcv_pkts_low: u32,
        0x90 [31:0] port_unicast_xmit_pkts_high: u32,
        0x94 [31:0] port_unicast_xmit_pkts_low: u32,
        0x98 [31:0] port_multicast_xmit_pkts_high: u32,
        0x9c [31:0] port_multicast_xmit_pkts_low: u32,
        0xa0 [31:0] port_unicast_rcv_pkts_high: u32,
        0xa4 [31:0] port_unicast_rcv_pkts_low: u32,
        0xa8 [31:0] port_multicast_rcv_pkts_high: u32,
        0xac [31:0] port_multicast_rcv_pkts_low: u32,
    }
}

values! {
    /// A group of a port's counters. PRM `ppcnt_reg.grp`.
    pub enum PortCounterGroup: 6 {
        /// IEEE 802.3.
        Ieee8023 = 0x00 "IEEE_802_3",
        /// RFC 2863.
        Rfc2863 = 0x01 "RFC_2863",
        /// RFC 2819.
        Rfc2819 = 0x02 "RFC_2819",
        /// RFC 3635.
        Rfc3635 = 0x03 "RFC_3635",
        /// Ethernet beyond the standards.
        EthernetExtended = 0x05 "ETHERNET_EXTENDED",
        /// Of the priority `prio_tc`.
        PerPriority = 0x10 "PER_PRIORITY",
        /// Of the traffic class `prio_tc`.
        PerTrafficClass = 0x11 "PER_TRAFFIC_CLASS",
        /// Errors of the physical layer.
        PhysicalLayer = 0x12 "PHYSICAL_LAYER",
        /// Congestion of the traffic class `prio_tc`.
        PerTrafficClassCongestion = 0x13 "PER_TRAFFIC_CLASS_CONGESTION",
        /// Bit errors of the physical layer.
        PhysicalLayerStatistical = 0x16 "PHYSICAL_LAYER_STATISTICAL",
        /// Recovery of the physical layer.
        PhysicalLayerRecovery = 0x1a "PHYSICAL_LAYER_RECOVERY",
        /// InfiniBand port.
        InfinibandPort = 0x20 "INFINIBAND_PORT",
        /// InfiniBand port, extended.
        InfinibandExtendedPort = 0x21 "INFINIBAND_EXTENDED_PORT",
        /// Histogram of errors that were corrected.
        RsFecHistogram = 0x23 "RS_FEC_HISTOGRAM",
    }
}

impl PortCounterGroup {
    /// What `counter_set` of a [`PpcntReg`] is.
    pub const fn layout(self) -> Option<&'static Info> {
        Some(match self {
            PortCounterGroup::Ieee8023 => &Eth8023CntrsGrpDataLayout::INFO,
            PortCounterGroup::Rfc2863 => &Eth2863CntrsGrpDataLayout::INFO,
            PortCounterGroup::Rfc2819 => &Eth2819CntrsGrpDataLayout::INFO,
            PortCounterGroup::Rfc3635 => &Eth3635CntrsGrpDataLayout::INFO,
            PortCounterGroup::EthernetExtended => &EthExtendedCntrsGrpDataLayout::INFO,
            PortCounterGroup::PerPriority => &EthPerPrioGrpDataLayout::INFO,
            PortCounterGroup::PerTrafficClass => &EthPerTcPrioGrpDataLayout::INFO,
            PortCounterGroup::PhysicalLayer => &PhysLayerCntrs::INFO,
            PortCounterGroup::PerTrafficClassCongestion => &EthPerTcCongestPrioGrpDataLayout::INFO,
            PortCounterGroup::PhysicalLayerStatistical => &PhysLayerStatisticalCntrs::INFO,
            PortCounterGroup::PhysicalLayerRecovery => &PhysLayerRecoveryCntrs::INFO,
            PortCounterGroup::InfinibandPort => &IbPortCntrsGrpDataLayout::INFO,
            PortCounterGroup::InfinibandExtendedPort => &IbExtPortCntrsGrpDataLayout::INFO,
            PortCounterGroup::RsFecHistogram => &RsHistogramCntrs::INFO,
            PortCounterGroup::Unknown(_) => return None,
        })
    }
}

impl PpcntReg {
    fn counters(bytes: &[u8], _index: usize) -> Option<&'static Info> {
        PortCounterGroup::from_number(PpcntReg::read(bytes)?.grp().into()).layout()
    }
}
