//! Which card the function is: identity, limits and capability pages. Firmware answers capability queries from it.
//!
//! The capability pages are data: what a function announces, it has. A capability that is missing here is one that the
//! model has not got, whatever the silicon of that name can do.
//!
//! So the cards differ here where they differ in what the model implements: identity, clock, how many queue pairs. The
//! figures are those of published `ibv_devinfo -v` of a ConnectX-5 (firmware 16.31) and a ConnectX-6 Dx. In all else that
//! sets the silicon apart (tunnels, real-time clock) the three are masked down to the same.

use crate::firmware::uctx;
use mlx5_prm::caps::{
    AtomicCaps, CmdHcaCap, DeviceMemCap, FlowTableFieldsSupported, FlowTableNicCap, FlowTablePropLayout,
    PerProtocolNetworkingOffloadCaps, RoceCap,
};

/// A card.
#[derive(Debug, Clone)]
pub struct Profile {
    /// Name, such as `connectx5`.
    pub name: &'static str,
    /// PCI device id.
    pub device_id: u16,
    /// PCI subsystem id.
    pub subsystem_id: u16,
    /// log2 of BAR 0's bytes.
    pub log_bar_size: u32,
    /// MSI-X vectors.
    pub msix_vectors: u16,
    /// Firmware version: major, minor, subminor.
    pub fw_rev: (u16, u16, u16),
    /// `hw_id` of the health buffer.
    pub hw_id: u32,
    /// `vsd_contd_psid` of `QUERY_ADAPTER`: the board.
    pub psid: &'static str,
    /// MAC of the card's function 0; each further function's is one higher.
    pub base_mac: [u8; 6],
    /// How many pages firmware wants, and when.
    pub pages: PageNeeds,
    /// General device capabilities: the most that can be set.
    pub general_max: CmdHcaCap,
    /// General device capabilities after `ENABLE_HCA`.
    pub general_current: CmdHcaCap,
    /// RoCE capabilities: the most that can be set.
    pub roce_max: RoceCap,
    /// RoCE capabilities after `ENABLE_HCA`.
    pub roce_current: RoceCap,
    /// Atomic capabilities: the most that can be set.
    pub atomic_max: AtomicCaps,
    /// Atomic capabilities after `ENABLE_HCA`.
    pub atomic_current: AtomicCaps,
    /// Ethernet offloads.
    pub ethernet: PerProtocolNetworkingOffloadCaps,
    /// Flow tables.
    pub flow_table: FlowTableNicCap,
    /// Memory on the card. UAR pages end where it begins.
    pub device_memory: DeviceMemCap,
}

/// How many pages of 4096 bytes firmware wants from its driver, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageNeeds {
    /// Before it answers anything but the first commands.
    pub boot: u32,
    /// Before `INIT_HCA`.
    pub init: u32,
    /// How many of those hold contexts; when they are full, it asks for more.
    pub contexts: u32,
    /// How many it asks for at run time, in one request.
    pub batch: u32,
}

impl Profile {
    /// Names that [`by_name`](Self::by_name) knows.
    pub const NAMES: [&'static str; 3] = ["connectx5", "connectx6dx", "connectx7"];

    /// A ConnectX-5.
    pub fn connectx5() -> Self {
        let general_max = general(18, 156_250);
        Profile {
            name: "connectx5",
            device_id: 0x1017,
            subsystem_id: 0x0006,
            log_bar_size: LOG_BAR_SIZE,
            msix_vectors: 64,
            fw_rev: (16, 35, 4030),
            hw_id: 0x20d,
            psid: "SIM0000000005",
            base_mac: [0x02, 0x00, 0xc5, 0x00, 0x00, 0x01],
            pages: PageNeeds { boot: 8, init: 512, contexts: 128, batch: 64 },
            general_current: current(general_max),
            general_max,
            roce_max: roce(true),
            roce_current: roce(false),
            atomic_max: atomic(1),
            atomic_current: atomic(0),
            ethernet: ethernet(),
            flow_table: flow_table(),
            device_memory: device_memory(),
        }
    }

    /// A ConnectX-6 Dx.
    pub fn connectx6dx() -> Self {
        let general_max = general(17, 1_000_000);
        Profile {
            name: "connectx6dx",
            device_id: 0x101d,
            subsystem_id: 0x0001,
            fw_rev: (22, 41, 1000),
            hw_id: 0x212,
            psid: "SIM0000000060",
            general_current: current(general_max),
            general_max,
            ..Self::connectx5()
        }
    }

    /// A ConnectX-7.
    pub fn connectx7() -> Self {
        Profile {
            name: "connectx7",
            device_id: 0x1021,
            subsystem_id: 0x0026,
            fw_rev: (28, 41, 1000),
            hw_id: 0x218,
            psid: "SIM0000000007",
            ..Self::connectx6dx()
        }
    }

    /// The profile of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            "connectx5" => Some(Self::connectx5()),
            "connectx6dx" => Some(Self::connectx6dx()),
            "connectx7" => Some(Self::connectx7()),
            _ => None,
        }
    }

    /// The permanent MAC of function `index`.
    pub fn mac(&self, index: usize) -> [u8; 6] {
        let base = self.base_mac.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
        let bytes = base.wrapping_add(index as u64).to_be_bytes();
        [bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]]
    }

    /// The EUI-64 made of function `index`'s MAC: its node and port GUID.
    pub fn guid(&self, index: usize) -> u64 {
        let [a, b, c, d, e, f] = self.mac(index);
        u64::from_be_bytes([a, b, c, 0xff, 0xfe, d, e, f])
    }

    /// Frequency of the internal timer in kHz.
    pub fn frequency_khz(&self) -> u64 {
        u64::from(self.general_max.device_frequency_khz())
    }
}

impl Default for Profile {
    fn default() -> Self {
        Self::connectx5()
    }
}

/// The general page: room for `2^log_max_qp` queue pairs, a timer of `khz`.
fn general(log_max_qp: u8, khz: u32) -> CmdHcaCap {
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
        .log_max_mrw_sz(64)
        .log_max_pd(23)
        .log_max_transport_domain(16)
        .log_max_umem(16)
        .umem_uid_0(true)
        .log_max_uctx(10)
        .uctx_cap(uctx::RAW_TX)
        .max_qp_cnt(255)
        .log_max_msg(30)
        .log_max_ra_req_qp(4)
        .log_max_ra_res_qp(4)
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
        .device_memory(true)
        .cq_oi(true)
        .out_of_seq_cnt(true)
        .retransmission_q_counters(true)
        .rts2rts_qp_counters_set_id(true)
        .driver_version(true)
        .mcam_reg(true)
        .eswitch_manager(true)
        .log_max_l2_table(7)
        .log_max_current_uc_list(7)
        .log_max_current_mc_list(11)
        .log_max_vlan_list(12)
        .cmdif_checksum(3)
        .device_frequency_mhz(khz / 1000)
        .device_frequency_khz(khz);
    caps.w()
        .eth_net_offloads(true)
        .nic_flow_table(true)
        .cq_moderation(true)
        .cq_period_mode_modify(true)
        .cq_period_start_from_cqe(true)
        .vport_counters(true)
        .basic_cyclic_rcv_wqe(true)
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
        .max_flow_counter_15_0(0x8000);
    caps
}

/// log2 of BAR 0's bytes.
const LOG_BAR_SIZE: u32 = 25;

/// The last 128 KiB of BAR 0.
fn device_memory() -> DeviceMemCap {
    const SIZE: u32 = 128 << 10;
    let mut caps = DeviceMemCap::ZERO;
    caps.w()
        .memic(true)
        .log_max_memic_addr_alignment(6)
        .memic_bar_start_addr((1 << LOG_BAR_SIZE) - u64::from(SIZE))
        .memic_bar_size(SIZE)
        .max_memic_size(SIZE);
    caps
}

/// PRM `port_type`: Ethernet.
const PORT_TYPE_ETHERNET: u8 = 1;

/// What is set after `ENABLE_HCA`, of what can be.
fn current(mut max: CmdHcaCap) -> CmdHcaCap {
    let log_max_qp = max.log_max_qp().min(17);
    max.w().cmdif_checksum(0).log_max_qp(log_max_qp);
    max
}

/// RoCE v2 over IPv4 and IPv6; the source port by software where that is allowed.
fn roce(sw_source_port: bool) -> RoceCap {
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

/// Compare-and-swap and fetch-and-add on 8 bytes, in the host's byte order where that is chosen.
fn atomic(endianness_mode: u8) -> AtomicCaps {
    const COMPARE_SWAP: u16 = 1 << 0;
    const FETCH_ADD: u16 = 1 << 1;
    const EIGHT_BYTES: u16 = 1 << 3;
    let mut caps = AtomicCaps::ZERO;
    caps.w()
        .atomic_req_8B_endianness_mode(endianness_mode)
        .supported_atomic_req_8B_endianness_mode_1(true)
        .atomic_operations(COMPARE_SWAP | FETCH_ADD)
        .atomic_size_qp(EIGHT_BYTES);
    caps
}

/// Checksums, VLAN tags, large sends and RSS; WQEs need no inline header.
fn ethernet() -> PerProtocolNetworkingOffloadCaps {
    const INLINE_NOT_REQUIRED: u8 = 2;
    let mut caps = PerProtocolNetworkingOffloadCaps::ZERO;
    caps.w()
        .csum_cap(true)
        .vlan_cap(true)
        .wqe_vlan_insert(true)
        .self_lb_en_modifiable(true)
        .max_lso_cap(18)
        .wqe_inline_mode(INLINE_NOT_REQUIRED)
        .rss_ind_tbl_cap(11)
        .cqe_checksum_full(true);
    caps
}

/// Receive tables of the NIC.
fn flow_table() -> FlowTableNicCap {
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
        .outer_tcp_flags(true);
    let mut receive = FlowTablePropLayout::ZERO;
    receive
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
    let mut caps = FlowTableNicCap::ZERO;
    caps.w().flow_table_properties_nic_receive(&receive);
    caps
}
