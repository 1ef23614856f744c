//! The capability pages, field by field.

use mlx5_prm::caps::{
    AtomicCaps, CmdHcaCap, CmdHcaCap2, DeviceMemCap, FlowTableFieldsSupported, FlowTableFieldsSupported2,
    FlowTableNicCap, FlowTablePropLayout, LroMaxMsgSzMode, OdpCap, OdpPerTransportServiceCap, OdpSchemeCap,
    PerProtocolNetworkingOffloadCaps, QosCap, RoceCap,
};
use mlx5_prm::layout::Be32;
use mlx5_prm::obj::ObjType;

/// Bit of `uctx_cap` and `uctx.cap`: raw Ethernet send queues are allowed.
pub(crate) const UCTX_RAW_TX: u32 = 1 << 0;

/// The longest list of keys behind a key: what fits `xlt_octowords` of an UMR, whose 16 bits count one octword each.
const LOG_KLM_LIST: u8 = 15;

/// Bits of `flex_parser_protocols`.
pub(crate) mod flex_parser {
    pub(crate) const MPLS_OVER_GRE: u32 = 1 << 4;
    pub(crate) const MPLS_OVER_UDP: u32 = 1 << 5;
    pub(crate) const VXLAN_GPE: u32 = 1 << 7;
    pub(crate) const ICMP: u32 = 1 << 8;
    pub(crate) const ICMPV6: u32 = 1 << 9;
    pub(crate) const GENEVE_OPTION_0: u32 = 1 << 10;
    pub(crate) const GTPU: u32 = 1 << 11;
    pub(crate) const GTPU_DW_2: u32 = 1 << 16;
    pub(crate) const GTPU_FIRST_EXT_DW_0: u32 = 1 << 17;
    pub(crate) const GTPU_DW_0: u32 = 1 << 18;
    const GTPU_ALL: u32 = GTPU | GTPU_DW_0 | GTPU_DW_2 | GTPU_FIRST_EXT_DW_0;
    const MPLS: u32 = MPLS_OVER_GRE | MPLS_OVER_UDP;
    pub(super) const ALL: u32 = MPLS | VXLAN_GPE | ICMP | ICMPV6 | GENEVE_OPTION_0 | GTPU_ALL;
}

/// General capabilities, for `2^log_max_qp` queue pairs and a timer of `khz`.
pub(super) fn general(log_max_qp: u8, khz: u32) -> CmdHcaCap {
    let mut caps = CmdHcaCap::ZERO;
    caps.w()
        .log_max_qp(log_max_qp)
        .log_max_qp_sz(15)
        .log_max_cq(24)
        .log_max_cq_sz(22)
        .log_max_eq(7)
        .log_max_eq_sz(22)
        .max_num_eqs(127)
        .log_max_mkey(24)
        .log_max_klm_list_size(LOG_KLM_LIST)
        .log_max_mrw_sz(64)
        .log_max_pd(23)
        .log_max_transport_domain(16)
        .log_max_umem(16)
        .umem_uid_0(true)
        .log_max_uctx(10)
        .uctx_cap(UCTX_RAW_TX)
        .max_qp_cnt(255)
        .log_max_msg(30)
        .qp_data_in_order(true)
        .log_max_ra_req_qp(4)
        .log_max_ra_res_qp(4)
        .log_max_ra_req_dc(4)
        .log_max_ra_res_dc(4)
        .max_wqe_sz_sq(1024)
        .max_wqe_sz_rq(512);
    caps.w()
        .port_type(PORT_TYPE_ETHERNET)
        .num_ports(1)
        .roce(true)
        .rc(true)
        .uc(true)
        .ud(true)
        .xrc(true)
        .dct(true)
        .log_max_srq(16)
        .log_max_srq_sz(15)
        .log_max_rmp(16)
        .log_max_xrcd(10)
        .log_max_mcg(13)
        .max_qp_mcg(240)
        .atomic(true)
        .local_ca_ack_delay(16)
        .bf(true)
        .log_bf_reg_size(9)
        .uar_sz(5)
        .log_pg_sz(12)
        .cqe_version(1)
        .cqe_128_always(true)
        .imaicl(true)
        .dump_fill_mkey(true)
        .relaxed_ordering_write(true)
        .relaxed_ordering_read(true)
        .relaxed_ordering_write_umr(true)
        .relaxed_ordering_read_umr(true)
        .device_memory(true)
        .cq_oi(true)
        .cq_resize(true)
        .out_of_seq_cnt(true)
        .retransmission_q_counters(true)
        .rts2rts_qp_counters_set_id(true)
        .rts2rts_qp_udp_sport(true)
        .driver_version(true)
        .ece_support(true)
        .mcam_reg(true)
        .eswitch_manager(true)
        .log_max_l2_table(7)
        .log_max_current_uc_list(7)
        .log_max_current_mc_list(11)
        .log_max_vlan_list(12)
        .cmdif_checksum(3)
        .device_frequency_mhz(khz / 1000)
        .device_frequency_khz(khz)
        .hca_cap_2(true)
        .general_obj_types(general_objects([ObjType::ReservedQpn, ObjType::GeneveTlvOpt, ObjType::Sampler]));
    caps.w()
        .eth_net_offloads(true)
        .nic_flow_table(true)
        .qos(true)
        .cq_moderation(true)
        .cq_period_mode_modify(true)
        .cq_period_start_from_cqe(true)
        .vport_counters(true)
        .basic_cyclic_rcv_wqe(true)
        .striding_rq(true)
        .ext_stride_num_range(true)
        .umr_ptr_rlky(true)
        .cqe_compression(true)
        .cqe_compression_max_num(64)
        .mini_cqe_resp_stride_index(true)
        .mini_cqe_resp_flow_tag(true)
        .mini_cqe_resp_l3_l4_tag(true)
        .log_max_sq(16)
        .log_max_rq(16)
        .log_max_tis(16)
        .log_max_tir(16)
        .log_max_rqt(16)
        .log_max_rqt_size(11)
        .log_max_wq_sz(15)
        .log_min_stride_sz_sq(6)
        .log_max_stride_sz_sq(6)
        .log_min_stride_sz_rq(4)
        .log_max_stride_sz_rq(9)
        .max_flow_counter_15_0(0xffff)
        .flow_counter_bulk_alloc(0xf)
        .log_max_flow_counter_bulk(10)
        .flex_parser_protocols(flex_parser::ALL)
        .max_geneve_tlv_options(1)
        .max_geneve_tlv_option_data_len(1);
    caps
}

/// log2 of the size of BAR 0 in bytes.
pub(super) const LOG_BAR_SIZE: u32 = 25;

/// 128 KiB at the end of BAR 0, before the addresses that do operations on it.
pub(super) fn device_memory() -> DeviceMemCap {
    const SIZE: u32 = 128 << 10;
    const OPERATIONS: u64 = 2;
    /// Of 1, 2, 4 and 8 bytes.
    const SIZES: u8 = 0b1111;
    let mut caps = DeviceMemCap::ZERO;
    caps.w()
        .memic(true)
        .log_max_memic_addr_alignment(6)
        .memic_bar_start_addr((1 << LOG_BAR_SIZE) - (1 + OPERATIONS) * u64::from(SIZE))
        .memic_bar_size(SIZE)
        .max_memic_size(SIZE)
        .memic_operations((1 << OPERATIONS) - 1)
        .increment_size_sup(SIZES)
        .test_and_set_size_sup(SIZES);
    caps
}

/// PRM `port_type`: Ethernet.
const PORT_TYPE_ETHERNET: u8 = 1;

/// Current values after `ENABLE_HCA`, from the maximum. What Linux sets in `handle_hca_cap` because the maximum has it
/// is off until `SET_HCA_CAP`. RoCE is on: Linux keeps what it finds.
pub(super) fn current(mut max: CmdHcaCap) -> CmdHcaCap {
    let log_max_qp = max.log_max_qp().min(17);
    max.w().cmdif_checksum(0).log_max_qp(log_max_qp);
    max.w().dct(false).uar_4k(false).cache_line_128byte(false).num_vhca_ports(0);
    max
}

/// RoCE v2 over IPv4 and IPv6, optionally with a source port chosen by software.
pub(super) fn roce(sw_source_port: bool) -> RoceCap {
    let mut caps = RoceCap::ZERO;
    caps.w()
        .sw_r_roce_src_udp_port(sw_source_port)
        .l3_type(1 << 1 | 1 << 2)
        .roce_version(1 << 2)
        .r_roce_dest_udp_port(4791)
        .r_roce_min_src_udp_port(0xc000)
        .r_roce_max_src_udp_port(0xffff)
        .roce_address_table_size(255);
    caps
}

/// `atomic_operations`: compare and swap.
pub(crate) const COMPARE_SWAP: u16 = 1 << 0;
/// `atomic_operations`: fetch and add.
pub(crate) const FETCH_ADD: u16 = 1 << 1;
/// `atomic_operations`: masked compare and swap.
pub(crate) const MASKED_COMPARE_SWAP: u16 = 1 << 2;
/// `atomic_operations`: masked fetch and add.
pub(crate) const MASKED_FETCH_ADD: u16 = 1 << 3;

/// Compare-and-swap and fetch-and-add of 8 bytes, with selectable byte order; masked ones of 4 to 32 bytes.
pub(super) fn atomic(endianness_mode: u8) -> AtomicCaps {
    /// Bit n: 2^n bytes.
    const SIZES: u16 = 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5;
    let mut caps = AtomicCaps::ZERO;
    caps.w()
        .atomic_req_8B_endianness_mode(endianness_mode)
        .supported_atomic_req_8B_endianness_mode_1(true)
        .atomic_operations(COMPARE_SWAP | FETCH_ADD | MASKED_COMPARE_SWAP | MASKED_FETCH_ADD)
        .atomic_size_qp(SIZES)
        .atomic_size_dc(SIZES);
    caps
}

/// On-demand paging by faults of memory, which the driver turns on with `mem_page_fault`. Faults of a transport are not
/// announced: no driver has judged them yet.
pub(super) fn odp() -> OdpCap {
    let mut caps = OdpCap::ZERO;
    caps.w().memory_page_fault_scheme_cap(&odp_scheme()).mem_page_fault(true);
    caps
}

/// The same after `ENABLE_HCA`.
pub(super) fn odp_after_enable() -> OdpCap {
    let mut caps = odp();
    caps.w().mem_page_fault(false);
    caps
}

/// The operations whose memory may be absent. An unreliable receiver has nobody to ask for its packet again.
pub(crate) fn odp_scheme() -> OdpSchemeCap {
    let (mut all, mut sends, mut scheme) =
        (OdpPerTransportServiceCap::ZERO, OdpPerTransportServiceCap::ZERO, OdpSchemeCap::ZERO);
    all.w().send(true).receive(true).write(true).read(true).atomic(true).srq_receive(true);
    sends.w().send(true);
    scheme.w().page_prefetch(true).rc_odp_caps(&all).ud_odp_caps(&sends).xrc_odp_caps(&all).dc_odp_caps(&all);
    scheme
}

/// Checksums, VLAN tags, LSO, LRO, RSS, all but LRO in tunnels as well, multi-packet WQEs, key updates by send queues.
/// WQEs need no inline header.
pub(super) fn ethernet() -> PerProtocolNetworkingOffloadCaps {
    const INLINE_NOT_REQUIRED: u8 = 2;
    /// Microseconds, and bytes of data, as real cards say them.
    const LRO_PERIODS: [u32; 4] = [8, 16, 32, 1024];
    const LRO_LEAST_DATA: u16 = 1348;
    let mut caps = PerProtocolNetworkingOffloadCaps::ZERO;
    caps.w()
        .csum_cap(true)
        .vlan_cap(true)
        .wqe_vlan_insert(true)
        .reg_umr_sq(true)
        .multi_pkt_send_wqe(1)
        .enhanced_multi_pkt_send_wqe(true)
        .self_lb_en_modifiable(true)
        .max_lso_cap(18)
        .wqe_inline_mode(INLINE_NOT_REQUIRED)
        .rss_ind_tbl_cap(11)
        .lro_cap(true)
        .lro_psh_flag(true)
        .lro_time_stamp(true)
        .lro_max_msg_sz_mode(LroMaxMsgSzMode::FromL4)
        .lro_min_mss_size(LRO_LEAST_DATA)
        .lro_timer_supported_periods(&LRO_PERIODS.map(Be32::new))
        .cqe_checksum_full(true)
        .tunnel_stateless_vxlan(true)
        .max_vxlan_udp_ports(4)
        .tunnel_stateless_gre(true)
        .tunnel_stateless_geneve_tx(true)
        .tunnel_stateless_geneve_rx(true)
        .max_geneve_opt_len(true)
        .tunnel_stateless_ip_over_ip(true)
        .tunnel_stateless_ip_over_ip_tx(true)
        .tunnel_stateless_ip_over_ip_rx(true)
        .swp(true)
        .swp_csum(true)
        .swp_lso(true);
    caps
}

/// Rate limits of send queues, in kbit/s, as a ConnectX-5 has them: up to the rate of its port.
pub(super) fn qos() -> QosCap {
    let mut caps = QosCap::ZERO;
    caps.w()
        .packet_pacing(true)
        .packet_pacing_burst_bound(true)
        .packet_pacing_typical_size(true)
        .packet_pacing_uid(true)
        .packet_pacing_min_rate(1)
        .packet_pacing_max_rate(100_000_000)
        .packet_pacing_rate_table_size(128);
    caps
}

/// The bits of such objects in `general_obj_types`.
fn general_objects(types: impl IntoIterator<Item = ObjType>) -> u64 {
    types.into_iter().fold(0, |bits, one| bits | 1 << one.number())
}

/// The same with flow meters, as a ConnectX-6 Dx has them.
pub(super) fn qos_with_meters() -> QosCap {
    let mut caps = qos();
    caps.w().log_meter_aso_granularity(6).log_meter_aso_max_alloc(10).log_max_num_meter_aso(20);
    caps
}

/// General capabilities of a card with flow meters.
pub(super) fn with_meters(mut caps: CmdHcaCap) -> CmdHcaCap {
    let types = caps.general_obj_types() | general_objects([ObjType::FlowMeterAso]);
    caps.w().general_obj_types(types);
    caps
}

/// Tables whose entries run flow meters.
pub(super) fn metering(mut caps: FlowTableNicCap) -> FlowTableNicCap {
    let (mut receive, mut transmit) =
        (*caps.flow_table_properties_nic_receive(), *caps.flow_table_properties_nic_transmit());
    receive.w().execute_aso(true);
    transmit.w().execute_aso(true);
    caps.w().flow_table_properties_nic_receive(&receive).flow_table_properties_nic_transmit(&transmit);
    caps
}

/// Reserved numbers of queue pairs: all objects have the same number of them. The least WQE of a striding queue is what
/// DPDK expects of a card that does not say.
pub(super) fn general_2() -> CmdHcaCap2 {
    let mut caps = CmdHcaCap2::ZERO;
    caps.w().log_max_num_reserved_qpn(16).log_reserved_qpn_granularity(6).log_reserved_qpn_max_alloc(6);
    caps.w().log_min_stride_wqe_sz(14);
    caps
}

/// NIC receive and NIC transmit tables.
pub(super) fn flow_table() -> FlowTableNicCap {
    /// Actions of a modify header context, and bytes of a header to put around frames, as ConnectX-5 has them.
    const MODIFY_ACTIONS: u8 = 32;
    const ENCAP_BYTES: u16 = 128;
    let tables = table_properties();
    let (mut receive, mut transmit) = (tables, tables);
    for properties in [&mut receive, &mut transmit] {
        properties
            .w()
            .max_modify_header_actions(MODIFY_ACTIONS)
            .log_max_modify_header_context(16)
            .reformat(true)
            .decap(true)
            .reformat_and_modify_action(true)
            .reformat_and_vlan_action(true)
            .reformat_and_fwd_to_table(true)
            .pop_vlan(true)
            .push_vlan(true);
    }
    // libmlx5 and DPDK sample what is received, on ConnectX-5 and later. How many samplers cards have is not published.
    receive.w().log_max_ft_sampler_num(10);
    // Packets leave tunnels where they are received, and enter them where they are sent: more Linux does not ask for.
    receive.w().reformat_l3_tunnel_to_l2(true);
    transmit.w().reformat_l2_to_l3_tunnel(true);
    transmit.w().metadata_reg_a_width(u32::BITS as u8);
    // RoCE packets reach no table of received frames.
    let mut sent = match_fields();
    sent.w().bth_dst_qp(true).source_sqn(true);
    transmit.w().ft_field_support(&sent).ft_field_bitmask_support(&sent);
    let mut fields = FlowTableFieldsSupported2::ZERO;
    fields.w().outer_l4_type(true).inner_l4_type(true).outer_l4_type_ext(true).inner_l4_type_ext(true);
    fields.w().tunnel_header_0_1(true).tunnel_header_2_3(true);
    let (mut opcodes, mut lengths) = (fields, fields);
    opcodes.w().bth_opcode(true);
    lengths.w().outer_ipv4_ihl(true).inner_ipv4_ihl(true);
    let mut caps = FlowTableNicCap::ZERO;
    caps.w()
        .nic_rx_multi_path_tirs(true)
        .nic_rx_multi_path_tirs_fts(true)
        .encap_general_header(true)
        .log_max_packet_reformat_context(16)
        .max_encap_header_size(ENCAP_BYTES)
        .flow_table_properties_nic_receive(&receive)
        .ft_field_support_2_nic_receive(&lengths)
        .flow_table_properties_nic_transmit(&transmit)
        .ft_field_support_2_nic_transmit(&opcodes);
    caps
}

/// Tables without actions that change frames.
fn table_properties() -> FlowTablePropLayout {
    let fields = match_fields();
    let mut properties = FlowTablePropLayout::ZERO;
    properties
        .w()
        .ft_support(true)
        .flow_counter(true)
        .flow_modify_en(true)
        .modify_root(true)
        .identified_miss_table_mode(true)
        .flow_table_modify(true)
        .reset_root_to_default(true)
        .log_max_ft_size(20)
        .max_ft_level(255)
        .log_max_ft_num(12)
        .log_max_flow_counter(3)
        .log_max_destination(6)
        .log_max_flow(20)
        .ft_field_support(&fields)
        .ft_field_bitmask_support(&fields);
    properties
}

/// The fields of `steering::key`.
fn match_fields() -> FlowTableFieldsSupported {
    let mut fields = FlowTableFieldsSupported::ZERO;
    fields
        .w()
        .outer_dmac(true)
        .outer_smac(true)
        .outer_ether_type(true)
        .outer_ip_version(true)
        .outer_first_prio(true)
        .outer_first_cfi(true)
        .outer_first_vid(true)
        .outer_ipv4_ttl(true)
        .outer_second_prio(true)
        .outer_second_cfi(true)
        .outer_second_vid(true)
        .outer_sip(true)
        .outer_dip(true)
        .outer_frag(true)
        .outer_ip_protocol(true)
        .outer_ip_ecn(true)
        .outer_ip_dscp(true)
        .outer_udp_sport(true)
        .outer_udp_dport(true)
        .outer_tcp_sport(true)
        .outer_tcp_dport(true)
        .outer_tcp_flags(true)
        .outer_vxlan_vni(true)
        .outer_gre_protocol(true)
        .outer_gre_key(true)
        .outer_geneve_vni(true)
        .outer_geneve_oam(true)
        .outer_geneve_protocol_type(true)
        .outer_geneve_opt_len(true)
        .geneve_tlv_option_0_data(true)
        .geneve_tlv_option_0_exist(true)
        .outer_esp_spi(true)
        .inner_esp_spi(true)
        // Label, traffic class, bottom of stack, time to live.
        .outer_first_mpls(0xf)
        .inner_first_mpls(0xf)
        .outer_first_mpls_over_gre(0xf)
        .outer_first_mpls_over_udp(0xf);
    fields
        .w()
        .inner_dmac(true)
        .inner_smac(true)
        .inner_ether_type(true)
        .inner_ip_version(true)
        .inner_first_prio(true)
        .inner_first_cfi(true)
        .inner_first_vid(true)
        .inner_second_prio(true)
        .inner_second_cfi(true)
        .inner_second_vid(true)
        .inner_sip(true)
        .inner_dip(true)
        .inner_frag(true)
        .inner_ip_protocol(true)
        .inner_ip_ecn(true)
        .inner_ip_dscp(true)
        .inner_udp_sport(true)
        .inner_udp_dport(true)
        .inner_tcp_sport(true)
        .inner_tcp_dport(true)
        .inner_tcp_flags(true)
        .metadata_reg_c_0(true)
        .metadata_reg_c_1(true)
        .metadata_reg_c_2(true)
        .metadata_reg_c_3(true)
        .metadata_reg_c_4(true)
        .metadata_reg_c_5(true)
        .metadata_reg_c_6(true)
        .metadata_reg_c_7(true);
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A driver that reads a feature from the current page without having set it there does not find it.
    #[test]
    fn what_a_driver_must_turn_on_is_off_at_first() {
        let mut max = general(18, 1);
        max.w().uar_4k(true).cache_line_128byte(true).num_vhca_ports(2);
        let said = |page: CmdHcaCap| (page.dct(), page.uar_4k(), page.cache_line_128byte(), page.num_vhca_ports());
        assert_eq!(said(max), (true, true, true, 2));
        assert_eq!(said(current(max)), (false, false, false, 0));
        assert!(current(max).roce());
    }
}
