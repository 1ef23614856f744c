//! Completion queue entries. PRM "Completion Queue Entry Format".
//!
//! In a ring of 128-byte entries the layout fills the second 64 bytes of each.

layout! {
    /// A completion that is no error. PRM "CQE Format".
    pub struct Cqe: 0x40, "mlx5_cqe64" {
        0x00 [15:0] wqe_id: u16,
        0x0c [31:0] rss_hash_result: u32,
        0x10 [31:24] rss_hash_type: u8,
        0x10 [23:16] ml_path: u8,
        0x14 [31:16] check_sum: u16,
        0x14 [15:0] slid: u16,
        0x18 [31:24] flags: u8,
        0x18 [23:0] rqpn: u32,
        0x1c [31:24] hds_ip_ext: u8,
        0x1c [23:16] l4_l3_hdr_type: u8,
        0x1c [15:0] vlan_info: u16,
        /// Segments that large receive offload joined.
        0x20 [31:24] lro_num_seg: u8,
        /// Shared receive queue; with CQEs of version 1 the `user_index` of the queue pair or shared receive queue.
        0x20 [23:0] srqn: u32,
        /// Immediate data, or the key that was invalidated.
        0x24 [31:0] immediate: u32,
        0x2c [31:0] byte_cnt: u32,
        0x30 [63:0] timestamp: u64,
        /// Opcode of the send WQE; meaningless for a receive.
        0x38 [31:24] send_wqe_opcode: u8,
        0x38 [23:0] qpn: u32,
        0x3c [31:16] wqe_counter: u16,
        0x3c [15:8] signature: u8,
        0x3c [7:4] opcode: CqeOpcode,
        0x3c [3:2] cqe_format: u8,
        0x3c [1] se: bool,
        0x3c [0] owner: bool,
    }

    /// A completion with error. PRM "Completion With Error CQE".
    pub struct ErrorCqe: 0x40, "mlx5_err_cqe" {
        0x20 [23:0] srqn: u32,
        /// What hardware found, for the vendor.
        0x34 [31:24] hw_error_syndrome: u8,
        /// Which part of hardware found it, for the vendor.
        0x34 [23:16] hw_syndrome_type: u8,
        0x34 [15:8] vendor_error_syndrome: u8,
        0x34 [7:0] syndrome: CqeSyndrome,
        0x38 [31:24] send_wqe_opcode: u8,
        0x38 [23:0] qpn: u32,
        0x3c [31:16] wqe_counter: u16,
        0x3c [15:8] signature: u8,
        0x3c [7:4] opcode: CqeOpcode,
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
        /// The responder answered what it must not.
        BadResponse = 0x10 "BAD_RESP_ERR",
        /// A remote request broke a protection rule here.
        LocalAccess = 0x11 "LOCAL_ACCESS_ERR",
        /// The responder found the request invalid.
        RemoteInvalidRequest = 0x12 "REMOTE_INVAL_REQ_ERR",
        /// The responder's key does not allow the access.
        RemoteAccess = 0x13 "REMOTE_ACCESS_ERR",
        /// The responder failed on its own account.
        RemoteOperation = 0x14 "REMOTE_OP_ERR",
        /// No answer within all retries.
        TransportRetryExceeded = 0x15 "TRANSPORT_RETRY_EXC_ERR",
        /// The responder had no receive posted, all retries long.
        RnrRetryExceeded = 0x16 "RNR_RETRY_EXC_ERR",
        /// The responder aborted.
        RemoteAborted = 0x22 "REMOTE_ABORTED_ERR",
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
                "the remote finds the request invalid: its receive is too short, or the operation is not allowed there"
            }
            CqeSyndrome::RemoteAccess => {
                "the remote's key is wrong, of another PD, does not allow the access, or ends too early"
            }
            CqeSyndrome::RemoteOperation => "the remote could not complete the request for a reason of its own",
            CqeSyndrome::TransportRetryExceeded => {
                "the remote never answered: wrong QP number, GID or MAC, remote queue pair not ready, or no path"
            }
            CqeSyndrome::RnrRetryExceeded => "the remote had no receive posted, all retries long",
            CqeSyndrome::RemoteAborted => "the remote aborted the request",
            _ => "a syndrome that has no name here",
        }
    }
}
