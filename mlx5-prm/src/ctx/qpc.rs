//! Queue pair context and its address paths.

use crate::values::{PathMigration, PathMtu, QpState, ServiceType};

use super::TimestampFormat;

layout! {
    /// Queue pair context. PRM `qpc`.
    pub struct Qpc: 0xe8, "mlx5_ifc_qpc_bits" {
        0x00 [31:28] state: QpState,
        0x00 [27:24] lag_tx_port_affinity: u8,
        0x00 [23:16] st: ServiceType,
        0x00 [13] isolate_vl_tc: bool,
        0x00 [12:11] pm_state: PathMigration,
        0x00 [9:8] req_e2e_credit_mode: u8,
        0x00 [7:4] offload_type: u8,
        0x00 [3:2] end_padding_mode: u8 as EndPadding,
        0x04 [31] wq_signature: bool,
        0x04 [30] block_lb_mc: bool,
        0x04 [29] atomic_like_write_en: bool,
        0x04 [28] latency_sensitive: bool,
        0x04 [26] drain_sigerr: bool,
        0x04 [24] dp_ordering_force: bool,
        0x04 [23:0] pd: u32,
        0x08 [31:29] mtu: PathMtu,
        0x08 [28:24] log_msg_max: u8,
        0x08 [22:19] log_rq_size: u8,
        0x08 [18:16] log_rq_stride: u8,
        0x08 [15] no_sq: bool,
        0x08 [14:11] log_sq_size: u8,
        0x08 [9:8] retry_mode: u8,
        0x08 [7:6] ts_format: u8 as TimestampFormat,
        /// Whether the bytes of each message are written in order. In libmlx5's header, not in the kernel's.
        0x08 [5] data_in_order: bool,
        0x08 [4] rlky: bool,
        0x08 [3:0] ulp_stateless_offload_mode: u8,
        0x0c [31:24] counter_set_id: u8,
        0x0c [23:0] uar_page: u32,
        /// Of a DC initiator: each connection opens by a handshake. In UCX's header, not in the kernel's.
        0x10 [28] full_handshake: bool,
        0x10 [23:0] user_index: u32,
        0x14 [28:24] log_page_size: u8,
        0x14 [23:0] remote_qpn: u32,
        0x18 primary_address_path: Ads,
        0x44 secondary_address_path: Ads,
        0x70 [31:28] log_ack_req_freq: u8,
        0x70 [23:21] log_sra_max: u8,
        0x70 [18:16] retry_count: u8,
        0x70 [15:13] rnr_retry: u8,
        0x70 [11] fre: bool,
        0x70 [10:8] cur_rnr_retry: u8,
        0x70 [7:5] cur_retry_count: u8,
        0x74 [15:0] packet_pacing_rate_limit_index: u16,
        0x78 [23:0] next_send_psn: u32,
        0x7c [28:24] log_num_dci_stream_channels: u8,
        0x7c [23:0] cqn_snd: u32,
        0x80 [28:24] log_num_dci_errored_streams: u8,
        0x80 [23:0] deth_sqpn: u32,
        0x88 [23:0] last_acked_psn: u32,
        0x8c [23:0] ssn: u32,
        0x90 [23:21] log_rra_max: u8,
        0x90 [19:16] atomic_mode: AtomicMode,
        0x90 [15] rre: bool,
        0x90 [14] rwe: bool,
        0x90 [13] rae: bool,
        0x90 [11:6] page_offset: u8,
        0x90 [3] dp_ordering_1: bool,
        0x90 [2] cd_slave_receive: bool,
        0x90 [1] cd_slave_send: bool,
        0x90 [0] cd_master: bool,
        0x94 [28:24] min_rnr_nak: u8,
        0x94 [23:0] next_rcv_psn: u32,
        0x98 [23:0] xrcd: u32,
        0x9c [23:0] cqn_rcv: u32,
        0xa0 [63:0] dbr_addr: u64,
        0xa8 [31:0] q_key: u32,
        0xac [26:24] rq_type: u8 as RqType,
        0xac [23:0] srqn_rmpn_xrqn: u32,
        0xb0 [23:0] rmsn: u32,
        0xb4 [31:16] hw_sq_wqebb_counter: u16,
        0xb4 [15:0] sw_sq_wqebb_counter: u16,
        0xb8 [31:0] hw_rq_counter: u32,
        0xbc [31:0] sw_rq_counter: u32,
        0xc4 [16] cgs: bool,
        0xc4 [15:8] cs_req: u8 as ScatterToRequester,
        0xc4 [7:0] cs_res: u8 as ScatterToResponder,
        0xc8 [63:0] dc_access_key: u64,
        0xd0 [28] dbr_umem_valid: bool,
        /// The umem of the doorbell record, which `dbr_addr` is then an offset in. In the PRM, not in the kernel's
        /// header.
        0xe4 [31:0] dbr_umem_id: u32,
    }

    /// Address path: how packets reach the peer. PRM `ads`.
    pub struct Ads: 0x2c, "mlx5_ifc_ads_bits" {
        0x00 [31] fl: bool,
        0x00 [30] free_ar: bool,
        0x00 [15:0] pkey_index: u16,
        0x04 [31:24] plane_index: u8,
        0x04 [23] grh: bool,
        0x04 [22:16] mlid: u8,
        0x04 [15:0] rlid: u16,
        0x08 [31:27] ack_timeout: u8,
        0x08 [23:16] src_addr_index: u8,
        0x08 [11:8] stat_rate: StatRate,
        0x08 [7:0] hop_limit: u8,
        0x0c [27:20] tclass: u8,
        0x0c [19:0] flow_label: u32,
        0x10 rgid_rip: [u8; 16],
        0x20 [27] f_dscp: bool,
        0x20 [26] f_ecn: bool,
        0x20 [24] f_eth_prio: bool,
        0x20 [23:22] ecn: u8,
        0x20 [21:16] dscp: u8,
        0x20 [15:0] udp_sport: u16,
        0x24 [31] dei_cfi: bool,
        0x24 [30:28] eth_prio: u8,
        0x24 [27:24] sl: u8,
        0x24 [23:16] vhca_port_num: u8,
        0x24 [15:0] rmac_47_32: u16,
        0x28 [31:0] rmac_31_0: u32,
    }
}

values! {
    /// Which atomics a responder takes. PRM `qpc.atomic_mode`.
    pub enum AtomicMode: 4 {
        /// None.
        None = 0x0 "NONE",
        /// As InfiniBand has them.
        IbSpec = 0x1 "IB_SPEC",
        /// Eight bytes only.
        Only8B = 0x2 "ONLY_8B",
        /// Up to 8 bytes.
        UpTo8B = 0x3 "UP_TO_8B",
        /// Up to 16 bytes.
        UpTo16B = 0x4 "UP_TO_16B",
        /// Up to 32 bytes.
        UpTo32B = 0x5 "UP_TO_32B",
        /// Up to 64 bytes.
        UpTo64B = 0x6 "UP_TO_64B",
        /// Up to 128 bytes.
        UpTo128B = 0x7 "UP_TO_128B",
        /// Up to 256 bytes.
        UpTo256B = 0x8 "UP_TO_256B",
    }

    /// What a responder writes after the last byte. PRM `qpc.end_padding_mode`.
    pub enum EndPadding: 2 {
        /// Nothing.
        ScatterAsIs = 0x0 "SCATTER_AS_IS",
        /// To the end of the cache line.
        PadToCacheLine = 0x1 "PAD_TO_CACHE_LINE_ALIGNMENT",
    }

    /// Where a queue pair's receives come from. PRM `qpc.rq_type`.
    pub enum RqType: 3 {
        /// A receive queue of its own.
        Regular = 0x0 "NON_ZERO_RQ",
        /// A shared receive queue.
        Srq = 0x1 "SRQ_RQ",
        /// A receive queue of other kind, by number.
        Crq = 0x2 "CRQ_RQ",
        /// Nowhere: it receives nothing.
        ZeroSize = 0x3 "ZERO_LEN_RQ",
    }

    /// Whether small read responses are put in the requester's CQE. PRM `qpc.cs_req`.
    pub enum ScatterToRequester: 8 {
        /// No.
        Disable = 0x0 "DISABLE",
        /// Up to 32 bytes.
        UpTo32B = 0x11 "UP_TO_32B",
        /// Up to 64 bytes.
        UpTo64B = 0x22 "UP_TO_64B",
    }

    /// Whether small messages are put in the responder's CQE. PRM `qpc.cs_res`.
    pub enum ScatterToResponder: 8 {
        /// No.
        Disable = 0x0 "DISABLE",
        /// Up to 32 bytes.
        UpTo32B = 0x1 "UP_TO_32B",
        /// Up to 64 bytes.
        UpTo64B = 0x2 "UP_TO_64B",
    }

    /// Static rate limit. PRM `ads.stat_rate`.
    pub enum StatRate: 4 {
        /// None.
        NoLimit = 0x0 "NO_LIMIT",
        /// 2.5 Gbit/s.
        Gbps2_5 = 0x7 "2_5GBPS",
        /// 10 Gbit/s.
        Gbps10 = 0x8 "10GBPS",
        /// 30 Gbit/s.
        Gbps30 = 0x9 "30GBPS",
        /// 5 Gbit/s.
        Gbps5 = 0xa "5GBPS",
        /// 20 Gbit/s.
        Gbps20 = 0xb "20GBPS",
        /// 40 Gbit/s.
        Gbps40 = 0xc "40GBPS",
        /// 60 Gbit/s.
        Gbps60 = 0xd "60GBPS",
        /// 80 Gbit/s.
        Gbps80 = 0xe "80GBPS",
        /// 120 Gbit/s.
        Gbps120 = 0xf "120GBPS",
    }
}
