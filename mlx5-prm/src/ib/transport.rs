//! The transport headers.

layout! {
    /// Base transport header. IBTA 9.2 "Base Transport Header (BTH)".
    pub struct Bth: 0xc, "none" {
        /// The three high bits of the opcode, see [`BthService`].
        0x00 [31:29] service: BthService,
        /// The five low bits of the opcode, see [`BthOperation`].
        0x00 [28:24] operation: BthOperation,
        /// Solicited event.
        0x00 [23] se: bool,
        /// The path is the migrated one. Always so on RoCE.
        0x00 [22] mig_req: bool,
        /// Bytes that make the payload a multiple of four.
        0x00 [21:20] pad_cnt: u8,
        /// Transport header version, 0.
        0x00 [19:16] t_ver: u8,
        /// Partition key.
        0x00 [15:0] p_key: u16,
        /// Forward explicit congestion notification.
        0x04 [31] fecn: bool,
        /// Backward explicit congestion notification.
        0x04 [30] becn: bool,
        /// The queue pair that the packet is for.
        0x04 [23:0] dest_qp: u32,
        /// Acknowledge request.
        0x08 [31] ack_req: bool,
        /// Packet sequence number.
        0x08 [23:0] psn: u32,
    }

    /// Base transport header of a congestion notification packet, opcode 0x81: its operation is none of
    /// [`BthOperation`]. 16 reserved bytes follow. IBTA annex A17 "RoCEv2", "Congestion Notification Packet".
    pub struct CnpBth: 0xc, "none" {
        0x00 [31:29] service: BthService,
        /// 1.
        0x00 [28:24] operation: u8,
        /// Solicited event.
        0x00 [23] se: bool,
        /// The path is the migrated one. Always so on RoCE.
        0x00 [22] mig_req: bool,
        /// Bytes that make the payload a multiple of four.
        0x00 [21:20] pad_cnt: u8,
        /// Transport header version, 0.
        0x00 [19:16] t_ver: u8,
        /// Partition key.
        0x00 [15:0] p_key: u16,
        /// Forward explicit congestion notification.
        0x04 [31] fecn: bool,
        /// Backward explicit congestion notification: 1.
        0x04 [30] becn: bool,
        /// The queue pair whose packets met the congestion.
        0x04 [23:0] dest_qp: u32,
        /// Acknowledge request.
        0x08 [31] ack_req: bool,
        /// Packet sequence number, 0.
        0x08 [23:0] psn: u32,
    }

    /// Datagram extended transport header. IBTA 9.3 "Datagram Extended Transport Header (DETH)".
    pub struct Deth: 0x8, "none" {
        0x00 [31:0] q_key: u32,
        /// The queue pair that sends.
        0x04 [23:0] src_qp: u32,
    }

    /// XRC extended transport header. IBTA annex A14 "XRC Extended Transport Header (XRCETH)".
    pub struct Xrceth: 0x4, "none" {
        /// The shared receive queue that the request is for.
        0x00 [23:0] xrcsrq: u32,
    }

    /// RDMA extended transport header. IBTA 9.3 "RDMA Extended Transport Header (RETH)".
    pub struct Reth: 0x10, "ib_reth" {
        0x00 [63:0] va: u64,
        0x08 [31:0] r_key: u32,
        /// Bytes of the whole message.
        0x0c [31:0] dma_len: u32,
    }

    /// Atomic extended transport header. IBTA 9.3 "Atomic Extended Transport Header (AtomicETH)".
    pub struct AtomicEth: 0x1c, "ib_atomic_eth" {
        0x00 [63:0] va: u64,
        0x08 [31:0] r_key: u32,
        /// To be swapped in, or added.
        0x0c [63:0] swap_or_add_dt: u64,
        /// To be compared with.
        0x14 [63:0] cmp_dt: u64,
    }

    /// ACK extended transport header. IBTA 9.3 "ACK Extended Transport Header (AETH)".
    pub struct Aeth: 0x4, "none" {
        /// The three high bits of the syndrome, see [`AethSyndrome`].
        0x00 [31:29] syndrome: AethSyndrome,
        /// The five low bits of the syndrome: a credit count, a timer code or a [`NakCode`], by `syndrome`.
        0x00 [28:24] value: u8,
        /// Messages that the responder completed.
        0x00 [23:0] msn: u32,
    }

    /// What an atomic found in memory. IBTA 9.3 "Atomic ACK Extended Transport Header (AtomicAckETH)".
    pub struct AtomicAckEth: 0x8, "none" {
        0x00 [63:0] orig_rem_dt: u64,
    }

    /// Immediate data. IBTA 9.3 "Immediate Data Extended Transport Header (ImmDt)".
    pub struct ImmDt: 0x4, "none" {
        0x00 [31:0] imm_dt: u32,
    }

    /// The key to invalidate. IBTA 9.3 "Invalidate Extended Transport Header (IETH)".
    pub struct Ieth: 0x4, "none" {
        0x00 [31:0] r_key: u32,
    }
}

values! {
    /// The transport service of a packet. IBTA 9.2 "Operation Code (OpCode)", the three high bits.
    pub enum BthService: 3 {
        /// Reliable connection.
        Rc = 0 "RC",
        /// Unreliable connection.
        Uc = 1 "UC",
        /// Reliable datagram.
        Rd = 2 "RD",
        /// Unreliable datagram.
        Ud = 3 "UD",
        /// Congestion notification.
        Cnp = 4 "CNP",
        /// Extended reliable connection.
        Xrc = 5 "XRC",
        /// For the manufacturer to use.
        ManufacturerSpecific = 7 "MSP",
    }

    /// What a packet is. IBTA 9.2 "Operation Code (OpCode)", the five low bits: the same in each service that has it.
    pub enum BthOperation: 5 {
        /// First packet of a send.
        SendFirst = 0x00 "SEND_FIRST",
        /// Middle packet of a send.
        SendMiddle = 0x01 "SEND_MIDDLE",
        /// Last packet of a send.
        SendLast = 0x02 "SEND_LAST",
        /// Last packet of a send with immediate.
        SendLastImm = 0x03 "SEND_LAST_WITH_IMMEDIATE",
        /// Only packet of a send.
        SendOnly = 0x04 "SEND_ONLY",
        /// Only packet of a send with immediate.
        SendOnlyImm = 0x05 "SEND_ONLY_WITH_IMMEDIATE",
        /// First packet of an RDMA write.
        WriteFirst = 0x06 "RDMA_WRITE_FIRST",
        /// Middle packet of an RDMA write.
        WriteMiddle = 0x07 "RDMA_WRITE_MIDDLE",
        /// Last packet of an RDMA write.
        WriteLast = 0x08 "RDMA_WRITE_LAST",
        /// Last packet of an RDMA write with immediate.
        WriteLastImm = 0x09 "RDMA_WRITE_LAST_WITH_IMMEDIATE",
        /// Only packet of an RDMA write.
        WriteOnly = 0x0a "RDMA_WRITE_ONLY",
        /// Only packet of an RDMA write with immediate.
        WriteOnlyImm = 0x0b "RDMA_WRITE_ONLY_WITH_IMMEDIATE",
        /// RDMA read request.
        ReadRequest = 0x0c "RDMA_READ_REQUEST",
        /// First packet of a read's response.
        ReadResponseFirst = 0x0d "RDMA_READ_RESPONSE_FIRST",
        /// Middle packet of a read's response.
        ReadResponseMiddle = 0x0e "RDMA_READ_RESPONSE_MIDDLE",
        /// Last packet of a read's response.
        ReadResponseLast = 0x0f "RDMA_READ_RESPONSE_LAST",
        /// Only packet of a read's response.
        ReadResponseOnly = 0x10 "RDMA_READ_RESPONSE_ONLY",
        /// Acknowledgement, positive or negative.
        Acknowledge = 0x11 "ACKNOWLEDGE",
        /// Response to an atomic.
        AtomicAcknowledge = 0x12 "ATOMIC_ACKNOWLEDGE",
        /// Compare and swap.
        CompareSwap = 0x13 "COMPARE_SWAP",
        /// Fetch and add.
        FetchAdd = 0x14 "FETCH_ADD",
        /// Last packet of a send that invalidates a key.
        SendLastInval = 0x16 "SEND_LAST_WITH_INVALIDATE",
        /// Only packet of a send that invalidates a key.
        SendOnlyInval = 0x17 "SEND_ONLY_WITH_INVALIDATE",
        /// Flush to memory.
        Flush = 0x1c "FLUSH",
        /// Atomic write.
        AtomicWrite = 0x1d "ATOMIC_WRITE",
    }

    /// Kind of an AETH. IBTA 9.7.5 "AETH Syndrome Field", the three high bits.
    pub enum AethSyndrome: 3 {
        /// Acknowledged; a credit count follows.
        Ack = 0 "ACK",
        /// No receive was posted; the code of the time to wait follows.
        RnrNak = 1 "RNR_NAK",
        /// Refused; a [`NakCode`] follows.
        Nak = 3 "NAK",
    }

    /// Why a request was refused. IBTA 9.7.5 "NAK Codes".
    pub enum NakCode: 5 {
        /// An earlier packet is missing.
        PsnSequenceError = 0 "PSN_ERROR",
        /// The request is not one that this queue pair takes.
        InvalidRequest = 1 "INVALID_REQUEST",
        /// The key does not allow it.
        RemoteAccessError = 2 "REMOTE_ACCESS_ERROR",
        /// A local error of the responder.
        RemoteOperationalError = 3 "REMOTE_OPERATIONAL_ERROR",
        /// Invalid reliable datagram request.
        InvalidRdRequest = 4 "INVALID_RD_REQUEST",
    }
}

/// The credit count that carries no credits. IBTA 9.7.5 "AETH Syndrome Field".
pub const CREDITS_INVALID: u8 = 0x1f;
