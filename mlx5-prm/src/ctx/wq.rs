//! Work queues, and the contexts built on them: receive queue, send queue, receive memory pool.

layout! {
    /// Where a ring of work requests lies, and how it is cut; its pages follow unless it lies in a umem. PRM `wq`.
    pub struct Wq: 0xc0, "mlx5_ifc_wq_bits" {
        0x00 [31:28] wq_type: WqType,
        0x00 [27] wq_signature: bool,
        0x00 [26:25] end_padding_mode: WqEndPadding,
        0x00 [24] cd_slave: bool,
        0x04 [31] hds_skip_first_sge: bool,
        0x04 [30:28] log2_hds_buf_size: u8,
        0x04 [20:16] page_offset: u8,
        0x04 [15:0] lwm: u16,
        0x08 [23:0] pd: u32,
        0x0c [23:0] uar_page: u32,
        0x10 [63:0] dbr_addr: u64,
        0x18 [31:0] hw_counter: u32,
        0x1c [31:0] sw_counter: u32,
        0x20 [19:16] log_wq_stride: u8,
        0x20 [12:8] log_wq_pg_sz: u8,
        0x20 [4:0] log_wq_sz: u8,
        0x24 [31] dbr_umem_valid: bool,
        0x24 [30] wq_umem_valid: bool,
        0x24 [28:24] log_hairpin_num_packets: u8,
        0x24 [20:16] log_hairpin_data_sz: u8,
        0x24 [11:8] log_wqe_num_of_strides: u8,
        0x24 [7] two_byte_shift_en: bool,
        0x24 [2:0] log_wqe_stride_size: u8,
        0x28 [31:0] dbr_umem_id: u32,
        0x2c [31:0] wq_umem_id: u32,
        0x30 [63:0] wq_umem_offset: u64,
        0x38 [31:0] headers_mkey: u32,
        0x3c [31] shampo_enable: bool,
        0x3c [29:28] shampo_mode: u8,
        0x3c [26:24] log_reservation_size: u8,
        0x3c [18:16] log_max_num_of_packets_per_reservation: u8,
        0x3c [9:8] log_headers_entry_size: u8,
        0x3c [3:0] log_headers_buffer_entry_num: u8,
        .. pas: [CmdPas],
    }

    /// Address of a page of a ring. PRM `cmd_pas`.
    pub struct CmdPas: 0x8, "mlx5_ifc_cmd_pas_bits" {
        0x00 [31:0] pa_h: u32,
        0x04 [31:12] pa_l: u32,
    }

    /// Receive queue context. PRM `rqc`.
    pub struct Rqc: 0xf0, "mlx5_ifc_rqc_bits" {
        0x00 [31] rlky: bool,
        0x00 [30] delay_drop_en: bool,
        0x00 [29] scatter_fcs: bool,
        0x00 [28] vsd: bool,
        0x00 [27:24] mem_rq_type: MemRqType,
        0x00 [23:20] state: QueueState,
        0x00 [18] flush_in_error_en: bool,
        0x00 [17] hairpin: bool,
        0x00 [5:4] ts_format: TimestampFormat,
        0x04 [23:0] user_index: u32,
        0x08 [23:0] cqn: u32,
        0x0c [31:24] counter_set_id: u8,
        0x10 [23:0] rmpn: u32,
        0x14 [23:0] hairpin_peer_sq: u32,
        0x18 [15:0] hairpin_peer_vhca: u16,
        0x24 [25:24] shampo_no_match_alignment_granularity: ShampoNoMatchAlignment,
        0x24 [17:16] shampo_match_criteria_type: ShampoMatchCriteria,
        0x24 [15:0] reservation_timeout: u16,
        0x30 wq: Wq,
    }

    /// Send queue context. PRM `sqc`.
    pub struct Sqc: 0xf0, "mlx5_ifc_sqc_bits" {
        0x00 [31] rlky: bool,
        0x00 [30] cd_master: bool,
        0x00 [29] fre: bool,
        0x00 [28] flush_in_error_en: bool,
        0x00 [27] allow_multi_pkt_send_wqe: bool,
        0x00 [26:24] min_wqe_inline_mode: InlineMode,
        0x00 [23:20] state: QueueState,
        0x00 [19] reg_umr: bool,
        0x00 [18] allow_swp: bool,
        0x00 [17] hairpin: bool,
        0x00 [16] non_wire: bool,
        0x00 [5:4] ts_format: TimestampFormat,
        0x04 [23:0] user_index: u32,
        0x08 [23:0] cqn: u32,
        0x0c [23:0] hairpin_peer_rq: u32,
        0x10 [15:0] hairpin_peer_vhca: u16,
        0x18 [23:0] ts_cqe_to_dest_cqn: u32,
        0x1c [15:0] packet_pacing_rate_limit_index: u16,
        0x20 [31:16] tis_lst_sz: u16,
        0x20 [15:0] qos_queue_group_id: u16,
        0x2c [23:0] tis_num_0: u32,
        0x30 wq: Wq,
    }

    /// Receive memory pool context. PRM `rmpc`.
    pub struct Rmpc: 0xf0, "mlx5_ifc_rmpc_bits" {
        0x00 [23:20] state: QueueState,
        0x04 [31] basic_cyclic_rcv_wqe: bool,
        0x30 wq: Wq,
    }

    /// Which fields of the context `MODIFY_RMP` changes. PRM `rmp_bitmask`.
    pub struct RmpBitmask: 0x8, "mlx5_ifc_rmp_bitmask_bits" {
        0x04 [0] lwm: bool,
    }
}

values! {
    /// How a ring is cut. PRM `wq.wq_type`.
    pub enum WqType: 4 {
        /// Entries that point to the next.
        LinkedList = 0 "LINKED_LIST",
        /// Entries in a row.
        Cyclic = 1 "CYCLIC",
        /// Striding buffers, entries that point to the next.
        LinkedListStridingRq = 2 "LINKED_LIST_STRIDING_RQ",
        /// Striding buffers in a row.
        CyclicStridingRq = 3 "CYCLIC_STRIDING_RQ",
    }

    /// What is written after the end of a received packet. PRM `wq.end_padding_mode`.
    pub enum WqEndPadding: 2 {
        /// Nothing.
        None = 0 "NONE",
        /// Padding up to a whole cache line.
        Align = 1 "ALIGN",
    }

    /// State of a receive queue, a send queue or a receive memory pool. PRM `rqc.state`, `sqc.state`, `rmpc.state`.
    pub enum QueueState: 4 {
        /// Reset: nothing moves.
        Rst = 0 "RST",
        /// Ready: at work.
        Rdy = 1 "RDY",
        /// Error.
        Err = 3 "ERR",
    }

    /// Whose buffers a receive queue fills. PRM `rqc.mem_rq_type`.
    pub enum MemRqType: 4 {
        /// Its own.
        Inline = 0 "MEMORY_RQ_INLINE",
        /// Those of the receive memory pool `rmpn`.
        Rmp = 1 "MEMORY_RQ_RMP",
    }

    /// What clock the time in a completion is of. PRM `ts_format`.
    pub enum TimestampFormat: 2 {
        /// The free-running clock, in ticks.
        FreeRunning = 0 "FREE_RUNNING",
        /// As the card is set.
        Default = 1 "DEFAULT",
        /// Real time, in seconds and nanoseconds.
        RealTime = 2 "REAL_TIME",
    }

    /// How much of a packet a send request must carry in itself. PRM `min_wqe_inline_mode`.
    pub enum InlineMode: 3 {
        /// Nothing.
        None = 0 "NONE",
        /// The Ethernet header.
        L2 = 1 "L2",
        /// Up to the network header.
        Ip = 2 "IP",
        /// Up to the transport header.
        TcpUdp = 3 "TCP_UDP",
    }

    /// Where the next packet starts that matches nothing. PRM `rqc.shampo_no_match_alignment_granularity`.
    pub enum ShampoNoMatchAlignment: 2 {
        /// Anywhere.
        Byte = 0 "BYTE",
        /// At a stride.
        Stride = 1 "STRIDE",
        /// At a page.
        Page = 2 "PAGE",
    }

    /// Which packets are merged. PRM `rqc.shampo_match_criteria_type`.
    pub enum ShampoMatchCriteria: 2 {
        /// None.
        NoMatch = 0 "NO_MATCH",
        /// Those of one flow, by more than its addresses and ports.
        Extended = 1 "EXTENDED",
        /// Those with the same addresses, ports and protocol.
        FiveTuple = 2 "FIVE_TUPLE",
    }
}
