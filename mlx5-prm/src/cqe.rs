//! Completion queue entries. PRM "Completion Queue Entry Format".
//!
//! In a ring of 128-byte entries a [`Cqe128`] holds the layout in its second 64 bytes. A compressed block is a title, a
//! [`Cqe`] of format `COMPRESSED` whose `byte_cnt` counts the 8-byte mini CQEs after it, eight to a ring entry: all
//! else is as the title says. A title of a receive queue is followed by the form its completion queue's context chose
//! ([`MiniCqeFormat`]), one of a send queue by [`MiniCqeRequester`].

layout! {
    /// A completion without error. PRM "CQE Format".
    ///
    /// Fields of packets (hash, checksum, LRO, VLAN) are valid for raw packets and IPoIB, those of a path (`grh`, `sl`,
    /// `slid`, `rqpn`) for datagrams.
    pub struct Cqe: 0x40, "mlx5_cqe64" {
        /// What TLS offload did to the packet.
        0x00 [28:27] tls_offload: u8 as TlsOffload,
        /// The outer header of a tunneled packet: 0 is IPv4, 1 is IPv6.
        0x00 [25] outer_l3_type: bool,
        /// The packet came in a tunnel: the header types and checksums are those of the inner headers.
        0x00 [24] tunneled: bool,
        /// Descriptor of a striding receive queue.
        0x00 [15:0] wqe_id: u16,
        /// `timestamp` has what TCP's timestamp option said in the last segment that large receive offload joined: its
        /// value over its echo reply.
        0x04 [31] lro_timestamp_valid: bool,
        /// A segment that large receive offload joined had TCP's push flag.
        0x04 [30] lro_tcppsh: bool,
        0x04 [23:16] lro_min_ttl: u8,
        0x04 [15:0] lro_tcp_win: u16,
        0x08 [31:0] lro_ack_seq_num: u32,
        0x0c [31:0] rss_hash_result: u32,
        /// Layer 4 fields that the hash covers.
        0x10 [31:30] rss_hash_type_l4: u8 as RssL4,
        /// Layer 3 fields that the hash covers.
        0x10 [27:26] rss_hash_type_ip: u8 as RssIp,
        0x10 [23:16] ml_path: u8,
        /// One's complement sum of the packet's bytes after the Ethernet header; where large receive offload joined
        /// segments, of their data alone.
        0x14 [31:16] check_sum: u16,
        0x14 [15:0] slid: u16,
        /// A GRH is there: 1 in the buffer, 2 in the CQE.
        0x18 [29:28] grh: u8,
        /// Service level; for RoCE bits 25:24 are the [`RoceHeader`] in place of it.
        0x18 [27:24] sl: u8,
        0x18 [23:0] rqpn: u32,
        /// The layer 4 checksum is right.
        0x1c [26] l4_ok: bool,
        /// The IPv4 header's checksum is right.
        0x1c [25] l3_ok: bool,
        /// The Ethernet header is right.
        0x1c [24] l2_ok: bool,
        /// An IP fragment.
        0x1c [23] ip_frag: bool,
        0x1c [22:20] l4_hdr_type: u8 as L4Header,
        0x1c [19:18] l3_hdr_type: u8 as L3Header,
        /// IPv4 options or IPv6 extension headers are there.
        0x1c [17] ip_ext_opts: bool,
        /// A VLAN tag was stripped: `vlan_info` is valid.
        0x1c [16] cv: bool,
        0x1c [15:0] vlan_info: u16,
        /// Segments that large receive offload joined.
        0x20 [31:24] lro_num_seg: u8,
        /// Shared receive queue; with CQEs of version 1 the `user_index` of the queue pair or shared receive queue.
        0x20 [23:0] srqn: u32,
        /// Immediate data, the key that was invalidated, the P_Key, or the packet's flow table metadata.
        0x24 [31:0] immediate: u32,
        /// Which application of the card speaks, such as tag matching.
        0x28 [31:24] app: u8,
        0x28 [23:16] app_op: u8,
        0x28 [15:0] app_info: u16,
        /// Bytes; for a striding receive queue a [`StridingByteCount`]; for a compressed title the number of mini CQEs.
        0x2c [31:0] byte_cnt: u32,
        /// The free-running counter; with a queue's real-time format seconds of UTC over 32 bits of nanoseconds.
        0x30 [63:0] timestamp: u64,
        /// Opcode of the send WQE; meaningless for a receive.
        0x38 [31:24] send_wqe_opcode: u8,
        /// Queue pair; for a raw packet the flow tag its rule gave it.
        0x38 [23:0] qpn: u32,
        /// WQE; for a striding receive queue the stride.
        0x3c [31:16] wqe_counter: u16,
        /// Signature; with enhanced compression the validity iteration count.
        0x3c [15:8] signature: u8,
        0x3c [7:4] opcode: CqeOpcode,
        0x3c [3:2] cqe_format: u8 as CqeFormat,
        0x3c [1] se: bool,
        0x3c [0] owner: bool,
    }

    /// `byte_cnt` of a striding receive queue's [`Cqe`]. PRM "CQE Format".
    pub struct StridingByteCount: 0x4, "mpwrq_cqe_bc" {
        /// The strides are given up: no data.
        0x00 [31] filler: bool,
        0x00 [30:16] consumed_strides: u16,
        0x00 [15:0] byte_cnt: u16,
    }

    /// The first eight bytes after `wqe_id` of a [`Cqe`] whose receive queue splits header from data (SHAMPO).
    /// PRM "CQE Format".
    pub struct ShampoCqe: 0x8, "none" {
        /// The flow's aggregation ends with this packet.
        0x00 [26] flush: bool,
        /// The packet belongs to the flow that is aggregated.
        0x00 [25] r#match: bool,
        0x00 [23:16] header_size: u8,
        0x00 [15:0] header_entry_index: u16,
        0x04 [31:0] data_offset: u32,
    }

    /// An entry of a ring with 128-byte entries. PRM "CQE Format".
    pub struct Cqe128: 0x80, "mlx5_cqe128" {
        /// Data that was scattered to the CQE, or a GRH.
        0x00 inl_grh: [u8; 64],
        0x40 cqe64: Cqe,
    }

    /// A completion of tag matching, with the result of a list operation. PRM "Tag Matching".
    pub struct TagMatchingCqe: 0x40, "mlx5_cqe64" {
        0x00 [31] success: bool,
        0x04 [31:16] hw_phase_cnt: u16,
        0x28 [31:24] app: u8,
        0x28 [23:16] app_op: u8,
        /// Index of the tag.
        0x28 [15:0] app_info: u16,
        0x3c [7:4] opcode: CqeOpcode,
        0x3c [3:2] cqe_format: u8 as CqeFormat,
        0x3c [1] se: bool,
        0x3c [0] owner: bool,
    }

    /// A protection signature that did not fit its data. PRM "Signature Error CQE".
    pub struct SignatureErrorCqe: 0x40, "mlx5_sig_err_cqe" {
        0x10 [31:0] expected_trans_sig: u32,
        0x14 [31:0] actual_trans_sig: u32,
        0x18 [31:0] expected_reftag: u32,
        0x1c [31:0] actual_reftag: u32,
        /// Which part is wrong: bit 13 the guard, bit 12 the application tag, bit 11 the reference tag.
        0x20 [31:16] syndrome: u16,
        0x24 [31:0] mkey: u32,
        /// Byte of the data where it was found.
        0x28 [63:0] err_offset: u64,
        0x38 [23:0] qpn: u32,
        0x3c [15:8] signature: u8,
        0x3c [7:4] opcode: CqeOpcode,
        0x3c [3:2] cqe_format: u8 as CqeFormat,
        0x3c [1] se: bool,
        0x3c [0] owner: bool,
    }

    /// Mini CQE of a receive, with the hash. PRM "Compressed CQEs", format `HASH`.
    pub struct MiniCqeHash: 0x8, "mlx5_mini_cqe8" {
        0x00 [31:0] rx_hash_result: u32,
        0x04 [31:0] byte_cnt: u32,
    }

    /// Mini CQE of a receive, with the checksum and the stride. PRM "Compressed CQEs", formats `CSUM`, where the stride
    /// is reserved, and `CSUM_STRIDX`.
    pub struct MiniCqeChecksum: 0x8, "mlx5_mini_cqe8" {
        0x00 [31:16] checksum: u16,
        0x00 [15:0] stride_index: u16,
        0x04 [31:0] byte_cnt: u32,
    }

    /// Mini CQE of a receive, with the flow tag in two parts. PRM "Compressed CQEs", format `FTAG_STRIDX`.
    pub struct MiniCqeFlowTag: 0x8, "none" {
        0x00 [31:16] flow_tag_15_0: u16,
        0x00 [15:0] stride_index: u16,
        0x04 [31:24] flow_tag_23_16: u8,
        0x04 [23:0] byte_cnt: u32,
    }

    /// Mini CQE of a receive, with the header types. PRM "Compressed CQEs", format `L34H_STRIDX`.
    pub struct MiniCqeHeaderType: 0x8, "none" {
        /// Bits 23:16 of dword 0x1c of a [`Cqe`].
        0x00 [31:24] hdr_type: u8,
        0x00 [15:0] stride_index: u16,
        0x04 [31:0] byte_cnt: u32,
    }

    /// Mini CQE of a send. PRM "Compressed CQEs".
    pub struct MiniCqeRequester: 0x8, "mlx5_mini_cqe8" {
        0x00 [31:16] wqe_counter: u16,
        0x00 [15:8] s_wqe_opcode: u8,
        0x04 [31:0] byte_cnt: u32,
    }

    /// A completion with error. PRM "Completion With Error CQE".
    pub struct ErrorCqe: 0x40, "mlx5_err_cqe" {
        /// Descriptor of a striding receive queue of raw packets.
        0x00 [15:0] wqe_id: u16,
        /// First stride, of a striding receive queue of a queue pair.
        0x14 [31:16] ib_stride_index: u16,
        0x20 [23:0] srqn: u32,
        0x2c [31:0] byte_cnt: u32,
        /// What hardware found, for the vendor.
        0x34 [31:24] hw_error_syndrome: u8,
        /// Which part of hardware found it, for the vendor.
        0x34 [23:20] hw_syndrome_type: u8,
        0x34 [15:8] vendor_error_syndrome: u8,
        0x34 [7:0] syndrome: CqeSyndrome,
        0x38 [31:24] send_wqe_opcode: u8,
        0x38 [23:0] qpn: u32,
        0x3c [31:16] wqe_counter: u16,
        0x3c [15:8] signature: u8,
        0x3c [7:4] opcode: CqeOpcode,
        0x3c [3:2] cqe_format: u8 as CqeFormat,
        0x3c [1] se: bool,
        0x3c [0] owner: bool,
    }
}

values! {
    /// Kind of a completion. PRM "CQE Format", `opcode`.
    pub enum CqeOpcode: 4 {
        /// A send queue's WQE is done.
        Requester = 0 "REQ",
        /// Received an RDMA write with immediate.
        ResponderWriteImm = 1 "RESP_WR_IMM",
        /// Received a send.
        ResponderSend = 2 "RESP_SEND",
        /// Received a send with immediate.
        ResponderSendImm = 3 "RESP_SEND_IMM",
        /// Received a send with invalidate.
        ResponderSendInval = 4 "RESP_SEND_INV",
        /// The ring was exchanged.
        ResizeCq = 5 "RESIZE_CQ",
        /// No packet.
        NoPacket = 6 "NO_PACKET",
        /// A signature error.
        SignatureError = 12 "SIG_ERR",
        /// A send queue's WQE failed.
        RequesterError = 13 "REQ_ERR",
        /// A receive queue's WQE failed.
        ResponderError = 14 "RESP_ERR",
        /// Never written by the card: what software fills a new ring with.
        Invalid = 15 "INVALID",
    }

    /// Why a work request failed. PRM "Completion With Error CQE", `syndrome`.
    pub enum CqeSyndrome: 8 {
        /// Message longer than the receive buffer, or the other way round.
        LocalLength = 0x01 "LOCAL_LENGTH_ERR",
        /// The queue pair cannot do what the WQE asks.
        LocalQpOperation = 0x02 "LOCAL_QP_OP_ERR",
        /// A local key does not allow the access.
        LocalProtection = 0x04 "LOCAL_PROT_ERR",
        /// The queue pair was in error before this WQE was begun.
        WorkRequestFlushed = 0x05 "WR_FLUSH_ERR",
        /// A memory window could not be bound.
        MemoryWindowBind = 0x06 "MW_BIND_ERR",
        /// The responder sent an invalid answer.
        BadResponse = 0x10 "BAD_RESP_ERR",
        /// A remote request broke a protection rule here.
        LocalAccess = 0x11 "LOCAL_ACCESS_ERR",
        /// The responder found the request invalid.
        RemoteInvalidRequest = 0x12 "REMOTE_INVAL_REQ_ERR",
        /// The responder's key does not allow the access.
        RemoteAccess = 0x13 "REMOTE_ACCESS_ERR",
        /// A local error of the responder.
        RemoteOperation = 0x14 "REMOTE_OP_ERR",
        /// No answer within all retries.
        TransportRetryExceeded = 0x15 "TRANSPORT_RETRY_EXC_ERR",
        /// The responder had no receive posted during all retries.
        RnrRetryExceeded = 0x16 "RNR_RETRY_EXC_ERR",
        /// The responder aborted.
        RemoteAborted = 0x22 "REMOTE_ABORTED_ERR",
    }

    /// What lies beside the completion. PRM "CQE Format", `cqe_format`.
    pub enum CqeFormat: 2 {
        /// Nothing.
        NoInlineData = 0 "NO_INLINE_DATA",
        /// Up to 32 bytes of data, in the CQE itself.
        InlineData32 = 1 "INLINE_DATA32_SEG",
        /// Up to 64 bytes of data, in the entry's first half.
        InlineData64 = 2 "INLINE_DATA64_SEG",
        /// A compressed block follows.
        Compressed = 3 "COMPRESSED",
    }

    /// Form of a receive's mini CQEs. PRM `cqc.mini_cqe_res_format`, with its extension for the last.
    pub enum MiniCqeFormat: 3 {
        /// [`MiniCqeHash`].
        Hash = 0 "HASH",
        /// [`MiniCqeChecksum`].
        Checksum = 1 "CSUM",
        /// [`MiniCqeFlowTag`].
        FlowTag = 2 "FTAG_STRIDX",
        /// [`MiniCqeChecksum`].
        ChecksumStride = 3 "CSUM_STRIDX",
        /// [`MiniCqeHeaderType`].
        HeaderType = 4 "L34H_STRIDX",
    }

    /// How compressed CQEs are told from others. PRM `cqc.cqe_compression_layout`.
    pub enum CqeCompressionLayout: 2 {
        /// By their format.
        Basic = 0 "BASIC",
        /// By their validity iteration count.
        Enhanced = 1 "ENHANCED",
    }

    /// Layer 3 header of a received packet. PRM "CQE Format", `l3_hdr_type`.
    pub enum L3Header: 2 {
        /// Neither of the two.
        None = 0 "NONE",
        /// IPv6.
        Ipv6 = 1 "IPV6",
        /// IPv4.
        Ipv4 = 2 "IPV4",
    }

    /// Layer 4 header of a received packet. PRM "CQE Format", `l4_hdr_type`.
    pub enum L4Header: 3 {
        /// None that the card knows.
        None = 0 "NONE",
        /// TCP without acknowledgment.
        TcpNoAck = 1 "TCP_NO_ACK",
        /// UDP.
        Udp = 2 "UDP",
        /// TCP, an acknowledgment without data.
        TcpAckNoData = 3 "TCP_ACK_NO_DATA",
        /// TCP, an acknowledgment with data.
        TcpAckAndData = 4 "TCP_ACK_AND_DATA",
    }

    /// Layer 3 addresses that a packet's hash covers. PRM "CQE Format", `rss_hash_type`.
    pub enum RssIp: 2 {
        /// None.
        None = 0 "IP_NONE",
        /// IPv4.
        Ipv4 = 1 "IPV4",
        /// IPv6.
        Ipv6 = 2 "IPV6",
    }

    /// Layer 4 fields that a packet's hash covers. PRM "CQE Format", `rss_hash_type`.
    pub enum RssL4: 2 {
        /// None.
        None = 0 "L4_NONE",
        /// Ports of TCP.
        Tcp = 1 "L4_TCP",
        /// Ports of UDP.
        Udp = 2 "L4_UDP",
        /// Security parameter index of IPsec.
        Ipsec = 3 "L4_IPSEC",
    }

    /// Network header of a received RoCE datagram. PRM "CQE Format", `l3_hdr_type` of RoCE.
    pub enum RoceHeader: 2 {
        /// GRH: RoCE version 1.
        Grh = 0 "GRH",
        /// IPv6.
        Ipv6 = 1 "IPV6",
        /// IPv4.
        Ipv4 = 2 "IPV4",
    }

    /// What TLS offload did to a received packet. PRM "CQE Format", `tls_offload`.
    pub enum TlsOffload: 2 {
        /// Nothing.
        NotDecrypted = 0 "NOT_DECRYPTED",
        /// Decrypted it and found its authentication right.
        Decrypted = 1 "DECRYPTED",
        /// Asks software where a record starts.
        Resync = 2 "RESYNC",
        /// Its authentication was wrong.
        Error = 3 "ERROR",
    }
}

impl CqeSyndrome {
    /// What it means, in words. PRM "Completion With Error CQE", `syndrome`.
    pub const fn meaning(self) -> &'static str {
        match self {
            CqeSyndrome::LocalLength => {
                "the message and the memory given for it differ in length: a receive is too short"
            }
            CqeSyndrome::LocalQpOperation => "the queue pair cannot do what the WQE asks, or the WQE is malformed",
            CqeSyndrome::LocalProtection => {
                "a local key is wrong, of another PD, does not allow the access, or ends too early"
            }
            CqeSyndrome::WorkRequestFlushed => {
                "the queue pair was in error before this was begun; an earlier completion says why"
            }
            CqeSyndrome::MemoryWindowBind => "a memory window could not be bound",
            CqeSyndrome::BadResponse => "the remote answered with an impossible opcode",
            CqeSyndrome::LocalAccess => "a remote request broke a protection rule of this side's memory",
            CqeSyndrome::RemoteInvalidRequest => {
                "the remote finds the request invalid: its receive is too short, the operation is not allowed there, or an \
                 atomic's address is no multiple of 8, or of a masked one's bytes"
            }
            CqeSyndrome::RemoteAccess => {
                "the remote's key is wrong, of another PD, does not allow the access, or ends too early"
            }
            CqeSyndrome::RemoteOperation => "the remote could not complete the request because of a local error there",
            CqeSyndrome::TransportRetryExceeded => {
                "the remote never answered: wrong QP number, GID or MAC, remote queue pair not ready, or no path"
            }
            CqeSyndrome::RnrRetryExceeded => "the remote had no receive posted during all retries",
            CqeSyndrome::RemoteAborted => "the remote aborted the request",
            _ => "unknown syndrome",
        }
    }
}
