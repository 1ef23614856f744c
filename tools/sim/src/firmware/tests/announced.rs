//! No capability is announced without being implemented: every capability set in a profile, and the code that
//! implements it.

use std::path::Path;

use mlx5_prm::layout::{Kind, Layout};

use crate::profile::Profile;

/// A capability; the file below `src`, and the text in it that implements it.
type Honoured = (&'static str, &'static str, &'static str);

const GENERAL: &[Honoured] = &[
    ("log_max_qp", "firmware/qp.rs", "caps.general().log_max_qp()"),
    ("log_max_qp_sz", "firmware/qp.rs", "log_size > largest"),
    ("log_max_cq", "firmware/cq.rs", "caps.general().log_max_cq()"),
    ("log_max_cq_sz", "firmware/cq.rs", "caps.log_max_cq_sz()"),
    ("log_max_eq", "firmware/eq.rs", "caps.log_max_eq()"),
    ("log_max_eq_sz", "firmware/eq.rs", ".log_max_eq_sz()"),
    ("max_num_eqs", "firmware/eq.rs", "caps.max_num_eqs()"),
    ("log_max_mkey", "firmware/mkey.rs", "caps.general().log_max_mkey()"),
    ("log_max_klm_list_size", "firmware/mkey.rs", ".log_max_klm_list_size()"),
    // All 64 bits of a length are accepted: there is nothing to refuse.
    ("log_max_mrw_sz", "firmware/mkey.rs", "fn length("),
    ("log_max_pd", "firmware/pd.rs", "caps.general().log_max_pd()"),
    ("log_max_transport_domain", "firmware/pd.rs", "caps.general().log_max_transport_domain()"),
    ("log_max_umem", "firmware/umem.rs", "caps.general().log_max_umem()"),
    // All objects, including umems, can be created with uid 0.
    ("umem_uid_0", "firmware/command.rs", "DRIVER | SHARED"),
    ("log_max_uctx", "firmware/uctx.rs", "caps.log_max_uctx()"),
    ("uctx_cap", "firmware/uctx.rs", "caps.uctx_cap()"),
    ("max_qp_cnt", "firmware/counter.rs", ".max_qp_cnt()"),
    ("log_max_msg", "firmware/qp_state.rs", "caps.log_max_msg()"),
    ("log_max_ra_req_qp", "firmware/qp_state.rs", ".log_max_ra_req_qp()"),
    ("log_max_ra_res_qp", "firmware/qp_state.rs", ".log_max_ra_res_qp()"),
    // The largest WQE that `ds` can express has 63 segments: there is nothing to refuse.
    ("max_wqe_sz_sq", "engine/wqe.rs", "ds()"),
    ("max_wqe_sz_rq", "firmware/qp.rs", "caps.max_wqe_sz_rq()"),
    ("port_type", "firmware/register.rs", "PROTO_ETHERNET"),
    ("num_ports", "firmware/link.rs", "fn own_port("),
    ("mcam_reg", "firmware/component.rs", "fn mcam("),
    ("roce", "firmware/roce.rs", "caps.general().roce()"),
    ("rc", "firmware/qp.rs", "caps.rc()"),
    ("uc", "firmware/qp.rs", "caps.uc()"),
    ("ece_support", "firmware/ece.rs", "caps.general().ece_support()"),
    // Responder and requester take packets in the order of their PSNs, and `dma` writes lower addresses first.
    ("qp_data_in_order", "firmware/qp.rs", ".qp_data_in_order()"),
    ("ud", "firmware/qp.rs", "caps.ud()"),
    ("xrc", "firmware/xrcd.rs", "caps.xrc()"),
    ("hca_cap_2", "firmware/caps.rs", "page::GENERAL_2 if"),
    ("general_obj_types", "firmware/general_object.rs", ".general_obj_types()"),
    ("dct", "firmware/dct.rs", "caps.dct()"),
    ("log_max_ra_req_dc", "firmware/qp_state.rs", "caps.log_max_ra_req_dc()"),
    ("log_max_ra_res_dc", "engine/dynamic.rs", ".log_max_ra_res_dc()"),
    ("atomic", "firmware/qp_state.rs", "caps.general().atomic()"),
    ("pg", "engine/page_fault.rs", "caps.general().pg()"),
    ("wait_on_time", "engine/ethernet/send.rs", ".wait_on_time()"),
    ("umr_extended_translation_offset", "engine/umr.rs", "xlt_offset_47_16()"),
    // A region of all addresses is a list of keys of one size, most of them for pages that nobody asked for yet.
    ("fixed_buffer_size", "firmware/mkey.rs", ".fixed_buffer_size()"),
    ("null_mkey", "firmware/hca.rs", "null_mkey(ABSENT_KEY)"),
    // Memory windows: keys made of other keys, changed by WQEs of their users.
    ("imaicl", "engine/umr.rs", "keys_of(old, offset, list)"),
    ("dump_fill_mkey", "firmware/hca.rs", "dump_fill_mkey(NULL_LKEY)"),
    ("relaxed_ordering_write", "objects/memory.rs", "fn write_relaxed("),
    // Reads in any order find the same: there is nothing to do but to accept it.
    ("relaxed_ordering_read", "firmware/mkey.rs", "caps.relaxed_ordering_read()"),
    ("relaxed_ordering_write_umr", "engine/umr.rs", "MkeyMaskBit::RelaxedOrderingWrite"),
    ("relaxed_ordering_read_umr", "engine/umr.rs", "MkeyMaskBit::RelaxedOrderingRead"),
    ("log_max_xrcd", "firmware/xrcd.rs", "caps.log_max_xrcd()"),
    ("log_max_mcg", "firmware/multicast.rs", "caps.log_max_mcg()"),
    ("max_qp_mcg", "firmware/multicast.rs", "caps.max_qp_mcg()"),
    ("log_max_srq", "firmware/srq.rs", "caps.general().log_max_srq()"),
    ("log_max_srq_sz", "firmware/srq.rs", "caps.log_max_srq_sz()"),
    ("log_max_rmp", "firmware/srq.rs", "caps.general().log_max_rmp()"),
    // A timing guarantee: an answer takes one turn of the device thread, far below 4.096 us << 16.
    ("local_ca_ack_delay", "engine/mod.rs", "pub fn run("),
    ("bf", "engine/doorbell.rs", "fn send("),
    ("log_bf_reg_size", "objects/uar.rs", "0x800"),
    ("uar_sz", "objects/mod.rs", "memic_bar_start_addr() >> LOG_PAGE"),
    ("log_pg_sz", "firmware/memory.rs", "MIN_PAGE_SHIFT"),
    ("cqe_version", "engine/completion.rs", "user_index"),
    ("cqe_128_always", "firmware/cq.rs", ".cqe_128_always()"),
    ("cq_oi", "firmware/cq.rs", "caps.cq_oi()"),
    ("cq_resize", "firmware/cq.rs", ".cq_resize()"),
    ("out_of_seq_cnt", "firmware/counter.rs", ".out_of_sequence("),
    ("retransmission_q_counters", "firmware/counter.rs", ".implied_nak_seq_err("),
    ("rts2rts_qp_counters_set_id", "firmware/qp_state.rs", ".rts2rts_qp_counters_set_id()"),
    ("rts2rts_qp_udp_sport", "firmware/qp_extension.rs", ".rts2rts_qp_udp_sport()"),
    ("qpc_extension", "firmware/qp_extension.rs", ".qpc_extension()"),
    ("log_max_dci_stream_channels", "firmware/qp_extension.rs", ".log_max_dci_stream_channels()"),
    ("log_max_dci_errored_streams", "firmware/qp_extension.rs", ".log_max_dci_errored_streams()"),
    ("device_memory", "function/caps.rs", "device_memory()"),
    // The L2 table is the only part of an e-switch.
    ("eswitch_manager", "objects/l2_table.rs", "caps.eswitch_manager()"),
    ("log_max_l2_table", "objects/l2_table.rs", "caps.log_max_l2_table()"),
    ("log_max_current_uc_list", "firmware/vport.rs", "caps.log_max_current_uc_list()"),
    ("log_max_current_mc_list", "firmware/vport.rs", "caps.log_max_current_mc_list()"),
    ("log_max_vlan_list", "firmware/vport.rs", "caps.log_max_vlan_list()"),
    ("driver_version", "firmware/hca.rs", "fn set_driver_version("),
    ("cmdif_checksum", "firmware/queue.rs", ".cmdif_checksum()"),
    ("device_frequency_mhz", "function/firmware.rs", "fn internal_timer("),
    ("device_frequency_khz", "function/firmware.rs", "profile.frequency_khz()"),
    ("eth_net_offloads", "firmware/caps.rs", "eth_net_offloads()"),
    ("nic_flow_table", "firmware/caps.rs", "nic_flow_table()"),
    ("qos", "firmware/caps.rs", "general.max.qos()"),
    ("cq_moderation", "engine/cq_ring.rs", "fn moderate("),
    ("cq_period_mode_modify", "firmware/cq.rs", "caps.cq_period_mode_modify()"),
    ("cq_period_start_from_cqe", "engine/cq_ring.rs", "CqPeriodMode::StartFromCqe =>"),
    ("vport_counters", "firmware/vport.rs", "fn query_counter("),
    ("basic_cyclic_rcv_wqe", "firmware/wq.rs", "WqType::Cyclic"),
    ("striding_rq", "firmware/wq.rs", "caps.striding_rq()"),
    ("ext_stride_num_range", "firmware/wq.rs", "caps.ext_stride_num_range()"),
    // The reserved key is a key as any other, also for an update's list.
    ("umr_ptr_rlky", "engine/umr.rs", "List::Memory { key, address } =>"),
    ("cqe_compression", "firmware/cq.rs", "caps.cqe_compression()"),
    ("cqe_compression_max_num", "engine/compression.rs", ".cqe_compression_max_num()"),
    ("mini_cqe_resp_stride_index", "firmware/cq.rs", "caps.mini_cqe_resp_stride_index()"),
    ("mini_cqe_resp_flow_tag", "firmware/cq.rs", "caps.mini_cqe_resp_flow_tag()"),
    ("mini_cqe_resp_l3_l4_tag", "firmware/cq.rs", "caps.mini_cqe_resp_l3_l4_tag()"),
    ("log_max_sq", "firmware/sq.rs", ".log_max_sq()"),
    ("log_max_rq", "firmware/rq.rs", ".log_max_rq()"),
    ("log_max_tis", "firmware/tis.rs", ".log_max_tis()"),
    ("log_max_tir", "firmware/tir.rs", ".log_max_tir()"),
    ("log_max_rqt", "firmware/rqt.rs", "caps.log_max_rqt()"),
    ("log_max_rqt_size", "firmware/rqt.rs", "caps.log_max_rqt_size()"),
    ("log_max_wq_sz", "firmware/wq.rs", ".log_max_wq_sz()"),
    ("log_min_stride_sz_sq", "firmware/wq.rs", ".log_min_stride_sz_sq()"),
    ("log_max_stride_sz_sq", "firmware/wq.rs", ".log_max_stride_sz_sq()"),
    ("log_min_stride_sz_rq", "firmware/wq.rs", ".log_min_stride_sz_rq()"),
    ("log_max_stride_sz_rq", "firmware/wq.rs", ".log_max_stride_sz_rq()"),
    ("max_flow_counter_15_0", "steering/mod.rs", ".max_flow_counter_15_0()"),
    ("flow_counter_bulk_alloc", "firmware/flow.rs", "general.flow_counter_bulk_alloc()"),
    ("log_max_flow_counter_bulk", "firmware/flow.rs", "general.log_max_flow_counter_bulk()"),
    ("flex_parser_protocols", "steering/key.rs", "supported_misc3(announced)"),
    ("max_geneve_tlv_options", "steering/mod.rs", ".max_geneve_tlv_options()"),
    ("max_geneve_tlv_option_data_len", "firmware/general_object.rs", ".max_geneve_tlv_option_data_len()"),
];

const ETHERNET: &[Honoured] = &[
    ("csum_cap", "engine/ethernet/offload.rs", "fn insert_checksums("),
    ("vlan_cap", "engine/ethernet/receive.rs", "ethernet::strip_tag("),
    ("wqe_vlan_insert", "engine/ethernet/offload.rs", "fn insert_tag("),
    ("self_lb_en_modifiable", "firmware/tir.rs", "select.self_lb_en()"),
    ("max_lso_cap", "engine/ethernet/send.rs", ".max_lso_cap()"),
    ("reg_umr_sq", "engine/ethernet/send.rs", "sq.context.reg_umr()"),
    ("multi_pkt_send_wqe", "engine/ethernet/send.rs", "fn make_equal("),
    ("enhanced_multi_pkt_send_wqe", "engine/ethernet/send.rs", "fn make_several("),
    // Not required: WQEs without inline header are accepted.
    ("wqe_inline_mode", "engine/ethernet/send.rs", "fn inline_header<"),
    // As large as an RQT.
    ("rss_ind_tbl_cap", "firmware/rqt.rs", "caps.log_max_rqt_size()"),
    ("cqe_checksum_full", "ethernet/checksum.rs", "fn whole("),
    ("lro_cap", "firmware/tir.rs", "fn lro("),
    ("lro_psh_flag", "engine/ethernet/lro.rs", ".lro_tcppsh("),
    ("lro_time_stamp", "engine/ethernet/lro.rs", ".lro_timestamp_valid("),
    ("lro_min_mss_size", "firmware/tir.rs", ".lro_min_mss_size()"),
    ("lro_timer_supported_periods", "firmware/tir.rs", ".lro_timer_supported_periods()"),
    ("tunnel_stateless_vxlan", "ethernet/tunnel.rs", "fn vxlan("),
    ("max_vxlan_udp_ports", "firmware/vxlan.rs", ".max_vxlan_udp_ports()"),
    ("tunnel_stateless_gre", "ethernet/tunnel.rs", "fn gre("),
    ("tunnel_stateless_geneve_tx", "ethernet/tunnel.rs", "fn geneve("),
    ("tunnel_stateless_geneve_rx", "firmware/tir.rs", "caps.tunnel_stateless_geneve_rx()"),
    // Of any length.
    ("max_geneve_opt_len", "ethernet/tunnel.rs", "fn geneve("),
    ("tunnel_stateless_ip_over_ip", "ethernet/tunnel.rs", "fn packet("),
    ("tunnel_stateless_ip_over_ip_tx", "ethernet/tunnel.rs", "fn packet("),
    ("tunnel_stateless_ip_over_ip_rx", "firmware/tir.rs", "caps.tunnel_stateless_ip_over_ip_rx()"),
    ("swp", "firmware/sq.rs", ".swp()"),
    ("swp_csum", "engine/ethernet/offload.rs", "fn told("),
    ("swp_lso", "engine/ethernet/offload.rs", "Segments::new("),
];

/// Capabilities of flow tables as such.
const STEERING: &[Honoured] = &[
    ("nic_rx_multi_path_tirs", "firmware/flow.rs", ".nic_rx_multi_path_tirs()"),
    ("nic_rx_multi_path_tirs_fts", "firmware/flow.rs", ".nic_rx_multi_path_tirs_fts()"),
    ("encap_general_header", "firmware/flow_action.rs", "ReformatType::L2ToVxlan"),
    ("log_max_packet_reformat_context", "steering/mod.rs", ".log_max_packet_reformat_context()"),
    ("max_encap_header_size", "firmware/flow_action.rs", ".max_encap_header_size()"),
    ("flow_table_properties_nic_receive", "engine/ethernet/receive.rs", "steering.receive_root"),
    ("flow_table_properties_nic_transmit", "engine/nic.rs", "steering.transmit_root"),
];

/// Capabilities of NIC receive and transmit tables; the match fields have a test beside the key.
const FLOW_TABLE: &[Honoured] = &[
    ("ft_support", "firmware/flow.rs", "fn create_table("),
    ("flow_counter", "firmware/flow.rs", "fn alloc_counter("),
    ("flow_modify_en", "firmware/flow.rs", "fn modified("),
    ("modify_root", "firmware/flow.rs", "fn set_root("),
    ("identified_miss_table_mode", "firmware/flow.rs", "FlowTableMissAction::Fwd"),
    ("flow_table_modify", "firmware/flow.rs", "fn modify_table("),
    ("reset_root_to_default", "firmware/flow.rs", "RESET_ROOT =>"),
    ("log_max_ft_size", "firmware/flow.rs", "caps.log_max_ft_size()"),
    ("max_ft_level", "firmware/flow.rs", "caps.max_ft_level()"),
    ("log_max_ft_num", "steering/mod.rs", "log_max_ft_num()"),
    ("log_max_flow_counter", "firmware/flow.rs", "caps.log_max_flow_counter()"),
    ("log_max_destination", "firmware/flow.rs", "caps.log_max_destination()"),
    ("log_max_flow", "firmware/flow.rs", ".log_max_flow()"),
    ("max_modify_header_actions", "firmware/flow_action.rs", ".max_modify_header_actions()"),
    ("log_max_modify_header_context", "steering/mod.rs", ".log_max_modify_header_context()"),
    ("reformat", "firmware/flow.rs", "caps.reformat()"),
    ("decap", "firmware/flow.rs", "caps.decap()"),
    ("reformat_l2_to_l3_tunnel", "firmware/flow.rs", "caps.reformat_l2_to_l3_tunnel()"),
    ("reformat_l3_tunnel_to_l2", "firmware/flow.rs", "caps.reformat_l3_tunnel_to_l2()"),
    ("execute_aso", "firmware/flow.rs", "caps.execute_aso()"),
    ("log_max_ft_sampler_num", "steering/mod.rs", ".log_max_ft_sampler_num()"),
    ("metadata_reg_a_width", "firmware/flow.rs", ".metadata_reg_a_width()"),
    ("pop_vlan", "firmware/flow.rs", "caps.pop_vlan()"),
    ("push_vlan", "firmware/flow.rs", "caps.push_vlan()"),
    // One entry may do all of it: see `changed`.
    ("reformat_and_modify_action", "steering/mod.rs", "modify.apply("),
    ("reformat_and_vlan_action", "steering/mod.rs", "ethernet::insert_tag("),
    ("reformat_and_fwd_to_table", "steering/mod.rs", "Destination::Table(next) =>"),
];

const QOS: &[Honoured] = &[
    ("packet_pacing", "firmware/rate.rs", "caps.packet_pacing()"),
    ("packet_pacing_burst_bound", "objects/rate.rs", "rate.burst"),
    // A hint for cards that reckon in packets; the model knows each frame's size.
    ("packet_pacing_typical_size", "objects/rate.rs", "typical_packet_size"),
    ("packet_pacing_uid", "objects/rate.rs", "fn may_use("),
    ("packet_pacing_min_rate", "firmware/rate.rs", "caps.packet_pacing_min_rate()"),
    ("packet_pacing_max_rate", "firmware/rate.rs", "caps.packet_pacing_max_rate()"),
    ("packet_pacing_rate_table_size", "firmware/rate.rs", "caps.packet_pacing_rate_table_size()"),
    ("log_meter_aso_granularity", "firmware/general_object.rs", "caps.log_meter_aso_granularity()"),
    ("log_meter_aso_max_alloc", "firmware/general_object.rs", "caps.log_meter_aso_max_alloc()"),
    ("log_max_num_meter_aso", "steering/mod.rs", ".log_max_num_meter_aso()"),
];

const GENERAL_2: &[Honoured] = &[
    ("log_min_stride_wqe_sz", "firmware/wq.rs", ".log_min_stride_wqe_sz()"),
    ("log_max_num_reserved_qpn", "objects/mod.rs", "general_2.log_max_num_reserved_qpn()"),
    ("log_reserved_qpn_granularity", "firmware/general_object.rs", ".log_reserved_qpn_granularity()"),
    // The same: no object has more numbers than another.
    ("log_reserved_qpn_max_alloc", "firmware/general_object.rs", "log_obj_range != log_run(f)"),
];

const ROCE: &[Honoured] = &[
    ("sw_r_roce_src_udp_port", "firmware/qp_state.rs", "udp_sport()"),
    ("l3_type", "firmware/roce.rs", "L3_IPV6"),
    ("roce_version", "firmware/roce.rs", "!= ROCE_V2"),
    ("r_roce_dest_udp_port", "transport/packet.rs", "4791"),
    ("r_roce_min_src_udp_port", "transport/header.rs", "FIRST_SOURCE_PORT | qpn"),
    ("r_roce_max_src_udp_port", "transport/header.rs", "& !FIRST_SOURCE_PORT"),
    ("roce_address_table_size", "objects/mod.rs", "roce_address_table_size()"),
];

const ATOMIC: &[Honoured] = &[
    ("atomic_req_8B_endianness_mode", "engine/nic.rs", "atomics_little_endian()"),
    ("supported_atomic_req_8B_endianness_mode_1", "function/firmware.rs", "HOST_ORDER"),
    ("atomic_operations", "engine/rc/responder.rs", "fn execute_atomic("),
    ("atomic_size_dc", "firmware/dct.rs", ".atomic_size_dc()"),
    ("atomic_size_qp", "firmware/qp_state.rs", ".atomic_size_qp()"),
];

const ODP: &[Honoured] = &[
    ("memory_page_fault_scheme_cap", "engine/page_fault.rs", "fn memory_event("),
    ("mem_page_fault", "engine/page_fault.rs", "caps.odp().mem_page_fault()"),
];

const ODP_SCHEME: &[Honoured] = &[
    ("page_prefetch", "engine/page_fault.rs", ".post_demand_fault_pages(ahead"),
    ("rc_odp_caps", "engine/page_fault.rs", "scheme.rc_odp_caps()"),
    ("ud_odp_caps", "engine/page_fault.rs", "scheme.ud_odp_caps()"),
    ("xrc_odp_caps", "engine/page_fault.rs", "scheme.xrc_odp_caps()"),
    ("dc_odp_caps", "engine/page_fault.rs", "scheme.dc_odp_caps()"),
];

const ODP_TRANSPORT: &[Honoured] = &[
    ("send", "engine/page_fault.rs", "caps.send()"),
    ("receive", "engine/page_fault.rs", "caps.receive()"),
    ("write", "engine/page_fault.rs", "caps.write()"),
    ("read", "engine/page_fault.rs", "caps.read()"),
    ("atomic", "engine/page_fault.rs", "caps.atomic()"),
    ("srq_receive", "engine/page_fault.rs", "caps.srq_receive()"),
];

const DEVICE_MEMORY: &[Honoured] = &[
    ("memic", "function/caps.rs", "device_memory.memic()"),
    // Every allocation starts on a page boundary.
    ("log_max_memic_addr_alignment", "firmware/memic.rs", ".log_max_memic_addr_alignment()"),
    ("memic_bar_start_addr", "objects/mod.rs", ".memic_bar_start_addr()"),
    ("memic_bar_size", "objects/mod.rs", ".memic_bar_size()"),
    ("max_memic_size", "firmware/memic.rs", ".max_memic_size()"),
    ("memic_operations", "firmware/memic.rs", ".memic_operations()"),
    ("increment_size_sup", "objects/device_memory.rs", "matches!(len, 1 | 2 | 4 | 8)"),
    ("test_and_set_size_sup", "objects/device_memory.rs", "matches!(len, 1 | 2 | 4 | 8)"),
];

/// The names of the fields that are not 0.
fn set_in<L: Layout>(page: &L) -> Vec<&'static str> {
    let is_set = |field: &&mlx5_prm::layout::Field| {
        let bytes = Layout::as_bytes(page);
        match field.kind {
            Kind::Bits { .. } => field.number(bytes) != Some(0),
            // Lists are all zeros, except for the match fields, which have their own test.
            _ => {
                !field.name.starts_with("ft_field_")
                    && bytes[field.offset..][..field.bits() / 8].iter().any(|byte| *byte != 0)
            }
        }
    };
    L::FIELDS.iter().filter(is_set).map(|field| field.name).collect()
}

fn check(pages: &[Vec<&str>], honoured: &[Honoured]) {
    let announced = |name: &str| pages.iter().any(|page| page.contains(&name));
    for name in pages.iter().flatten() {
        assert!(honoured.iter().any(|(known, ..)| known == name), "{name} is announced: what honours it?");
    }
    for (name, file, words) in honoured {
        assert!(announced(name), "{name} is announced by no profile");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(file);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {file}: {error}"));
        assert!(text.contains(words), "{name}: {file} has not {words:?}");
    }
}

#[test]
fn every_capability_is_honoured_somewhere() {
    let profiles = Profile::NAMES.map(|name| Profile::by_name(name).unwrap());
    let general: Vec<_> =
        profiles.iter().flat_map(|profile| [set_in(&profile.general_max), set_in(&profile.general_current)]).collect();
    check(&general, GENERAL);
    let roce: Vec<_> =
        profiles.iter().flat_map(|profile| [set_in(&profile.roce_max), set_in(&profile.roce_current)]).collect();
    check(&roce, ROCE);
    let atomic: Vec<_> =
        profiles.iter().flat_map(|profile| [set_in(&profile.atomic_max), set_in(&profile.atomic_current)]).collect();
    check(&atomic, ATOMIC);
    let odp: Vec<_> = profiles.iter().map(|profile| set_in(&profile.odp_max)).collect();
    check(&odp, ODP);
    let schemes = profiles
        .iter()
        .flat_map(|profile| [profile.odp_max, profile.odp_current])
        .flat_map(|odp| [*odp.transport_page_fault_scheme_cap(), *odp.memory_page_fault_scheme_cap()]);
    check(&schemes.clone().map(|scheme| set_in(&scheme)).collect::<Vec<_>>(), ODP_SCHEME);
    let transports: Vec<_> = schemes
        .flat_map(|scheme| {
            let caps = [scheme.rc_odp_caps(), scheme.ud_odp_caps(), scheme.xrc_odp_caps(), scheme.dc_odp_caps()];
            caps.map(set_in)
        })
        .collect();
    check(&transports, ODP_TRANSPORT);
    let ethernet: Vec<_> = profiles.iter().map(|profile| set_in(&profile.ethernet)).collect();
    check(&ethernet, ETHERNET);
    let memory: Vec<_> = profiles.iter().map(|profile| set_in(&profile.device_memory)).collect();
    check(&memory, DEVICE_MEMORY);
    let qos: Vec<_> = profiles.iter().map(|profile| set_in(&profile.qos)).collect();
    check(&qos, QOS);
    let second: Vec<_> = profiles.iter().map(|profile| set_in(&profile.general_2)).collect();
    check(&second, GENERAL_2);
    let tables: Vec<_> = profiles
        .iter()
        .flat_map(|profile| {
            let caps = &profile.flow_table;
            [set_in(caps.flow_table_properties_nic_receive()), set_in(caps.flow_table_properties_nic_transmit())]
        })
        .collect();
    check(&tables, FLOW_TABLE);
    let steering: Vec<_> = profiles.iter().map(|profile| set_in(&profile.flow_table)).collect();
    check(&steering, STEERING);
}

#[test]
fn the_cards_differ_where_the_model_can_show_it() {
    let figures = |profile: Profile| {
        let caps = profile.general_max;
        (profile.device_id, profile.fw_rev.0, caps.log_max_qp(), caps.device_frequency_khz())
    };
    assert_eq!(figures(Profile::connectx5()), (0x1017, 16, 18, 156_250));
    assert_eq!(figures(Profile::connectx6dx()), (0x101d, 22, 17, 1_000_000));
    assert_eq!(figures(Profile::connectx7()), (0x1021, 28, 17, 1_000_000));
}
