//! Messages of the communication manager, which queue pair 1 carries, and the addresses that the RDMA connection
//! manager puts before private data.
//!
//! Each message is a whole management datagram: class [`MgmtClass::Cm`](super::MgmtClass), class version
//! [`CM_CLASS_VERSION`], method [`MadMethod::Send`](super::MadMethod), and the attribute says which message it is.

use super::MadHdr;

layout! {
    /// Request for a connection. IBTA 12.6.5 "REQ".
    pub struct CmReq: 0x100, "cm_req_msg" {
        0x00 hdr: MadHdr,
        /// The requester's number for this connection.
        0x18 [31:0] local_comm_id: u32,
        /// What is asked for; see [`RdmaCmHdr`] for that of an IP port.
        0x20 [63:0] service_id: u64,
        0x28 [63:0] local_ca_guid: u64,
        0x34 [31:0] local_q_key: u32,
        0x38 [31:8] local_qpn: u32,
        /// READs and atomics of the remote that the requester answers at once.
        0x38 [7:0] responder_resources: u8,
        0x3c [31:8] local_eecn: u32,
        /// READs and atomics that the requester has under way at once.
        0x3c [7:0] initiator_depth: u8,
        0x40 [31:8] remote_eecn: u32,
        /// How long the remote may take to answer: 4.096 us times two to this.
        0x40 [7:3] remote_cm_response_timeout: u8,
        0x40 [2:1] transport_service_type: CmTransport,
        0x40 [0] end_to_end_flow_control: bool,
        0x44 [31:8] starting_psn: u32,
        /// How long the requester may take to answer: 4.096 us times two to this.
        0x44 [7:3] local_cm_response_timeout: u8,
        0x44 [2:0] retry_count: u8,
        0x48 [31:16] partition_key: u16 = 0xffff,
        0x48 [15:12] path_packet_payload_mtu: u8,
        0x48 [11] rdc_exists: bool,
        0x48 [10:8] rnr_retry_count: u8,
        0x48 [7:4] max_cm_retries: u8,
        0x48 [3] srq: bool,
        0x48 [2:0] extended_transport_type: u8,
        0x4c [31:16] primary_local_port_lid: u16,
        0x4c [15:0] primary_remote_port_lid: u16,
        0x50 primary_local_port_gid: [u8; 16],
        0x60 primary_remote_port_gid: [u8; 16],
        0x70 [31:12] primary_flow_label: u32,
        0x70 [5:0] primary_packet_rate: u8,
        0x74 [31:24] primary_traffic_class: u8,
        0x74 [23:16] primary_hop_limit: u8,
        0x74 [15:12] primary_sl: u8,
        0x74 [11] primary_subnet_local: bool,
        0x74 [7:3] primary_local_ack_timeout: u8,
        0x78 [31:16] alternate_local_port_lid: u16,
        0x78 [15:0] alternate_remote_port_lid: u16,
        0x7c alternate_local_port_gid: [u8; 16],
        0x8c alternate_remote_port_gid: [u8; 16],
        0x9c [31:12] alternate_flow_label: u32,
        0x9c [5:0] alternate_packet_rate: u8,
        0xa0 [31:24] alternate_traffic_class: u8,
        0xa0 [23:16] alternate_hop_limit: u8,
        0xa0 [15:12] alternate_sl: u8,
        0xa0 [11] alternate_subnet_local: bool,
        0xa0 [7:3] alternate_local_ack_timeout: u8,
        0xa0 [2] sap_supported: bool,
        0xa4 private_data: [u8; 92],
    }

    /// Message receipt acknowledgement: the answer takes longer. IBTA 12.6.6 "MRA".
    pub struct CmMra: 0x100, "cm_mra_msg" {
        0x00 hdr: MadHdr,
        0x18 [31:0] local_comm_id: u32,
        0x1c [31:0] remote_comm_id: u32,
        0x20 [31:30] message_mraed: CmAnswered,
        /// How much longer: 4.096 us times two to this.
        0x20 [23:19] service_timeout: u8,
        0x22 private_data: [u8; 222],
    }

    /// Rejection. IBTA 12.6.7 "REJ".
    pub struct CmRej: 0x100, "cm_rej_msg" {
        0x00 hdr: MadHdr,
        /// 0 if the sender has no connection to the message that it rejects.
        0x18 [31:0] local_comm_id: u32,
        0x1c [31:0] remote_comm_id: u32,
        0x20 [31:30] message_rejected: CmAnswered,
        /// Valid bytes of `ari`.
        0x20 [23:17] rejected_info_length: u8,
        0x20 [15:0] reason: CmRejectReason,
        /// Additional rejection information, by reason.
        0x24 ari: [u8; 72],
        0x6c private_data: [u8; 148],
    }

    /// Reply to a request: accepted. IBTA 12.6.8 "REP".
    pub struct CmRep: 0x100, "cm_rep_msg" {
        0x00 hdr: MadHdr,
        0x18 [31:0] local_comm_id: u32,
        0x1c [31:0] remote_comm_id: u32,
        0x20 [31:0] local_q_key: u32,
        0x24 [31:8] local_qpn: u32,
        0x28 [31:8] local_ee_context_number: u32,
        0x2c [31:8] starting_psn: u32,
        /// READs and atomics of the requester that the sender answers at once.
        0x30 [31:24] responder_resources: u8,
        /// READs and atomics that the sender has under way at once.
        0x30 [23:16] initiator_depth: u8,
        0x30 [15:11] target_ack_delay: u8,
        0x30 [10:9] failover_accepted: u8,
        0x30 [8] end_to_end_flow_control: bool,
        0x30 [7:5] rnr_retry_count: u8,
        0x30 [4] srq: bool,
        0x34 [63:0] local_ca_guid: u64,
        0x3c private_data: [u8; 196],
    }

    /// Ready to use: the reply arrived. IBTA 12.6.9 "RTU".
    pub struct CmRtu: 0x100, "cm_rtu_msg" {
        0x00 hdr: MadHdr,
        0x18 [31:0] local_comm_id: u32,
        0x1c [31:0] remote_comm_id: u32,
        0x20 private_data: [u8; 224],
    }

    /// Request to end a connection. IBTA 12.6.10 "DREQ".
    pub struct CmDreq: 0x100, "cm_dreq_msg" {
        0x00 hdr: MadHdr,
        0x18 [31:0] local_comm_id: u32,
        0x1c [31:0] remote_comm_id: u32,
        /// The receiver's queue pair.
        0x20 [31:8] remote_qpn_eecn: u32,
        0x24 private_data: [u8; 220],
    }

    /// Reply to a request to end a connection. IBTA 12.6.11 "DREP".
    pub struct CmDrep: 0x100, "cm_drep_msg" {
        0x00 hdr: MadHdr,
        0x18 [31:0] local_comm_id: u32,
        0x1c [31:0] remote_comm_id: u32,
        0x20 private_data: [u8; 224],
    }

    /// Request for the queue pair behind a service, for datagrams. IBTA 12.11.1 "SIDR_REQ".
    pub struct CmSidrReq: 0x100, "cm_sidr_req_msg" {
        0x00 hdr: MadHdr,
        0x18 [31:0] requestid: u32,
        0x1c [31:16] partition_key: u16 = 0xffff,
        0x20 [63:0] serviceid: u64,
        0x28 private_data: [u8; 216],
    }

    /// Answer to [`CmSidrReq`]. IBTA 12.11.2 "SIDR_REP".
    pub struct CmSidrRep: 0x100, "cm_sidr_rep_msg" {
        0x00 hdr: MadHdr,
        0x18 [31:0] requestid: u32,
        0x1c [31:24] status: CmSidrStatus,
        /// Valid bytes of `additional_information`.
        0x1c [23:16] additional_information_length: u8,
        0x20 [31:8] qpn: u32,
        0x24 [63:0] serviceid: u64,
        0x2c [31:0] q_key: u32,
        0x30 additional_information: [u8; 72],
        0x78 private_data: [u8; 136],
    }

    /// What the RDMA connection manager puts before the private data of a REQ and of a SIDR_REQ: IP addresses. IBTA
    /// A11.4. The service ID of a port is `port space << 16 | port`, IBTA A11.2.2.
    pub struct RdmaCmHdr: 0x24, "cma_hdr" {
        0x00 [31:24] cma_version: u8,
        /// 4 or 6.
        0x00 [23:20] ip_version: u8,
        /// The requester's port.
        0x00 [15:0] port: u16,
        /// The requester's address; one of IPv4 in the last four bytes.
        0x04 src_addr: [u8; 16],
        /// The address that it wants to reach.
        0x14 dst_addr: [u8; 16],
    }
}

values! {
    /// Attribute of a message of the communication manager. IBTA 16.7.2.
    pub enum CmAttribute: 16 {
        /// See [`CmReq`].
        ConnectRequest = 0x10 "REQ",
        /// See [`CmMra`].
        MsgRcptAck = 0x11 "MRA",
        /// See [`CmRej`].
        ConnectReject = 0x12 "REJ",
        /// See [`CmRep`].
        ConnectReply = 0x13 "REP",
        /// See [`CmRtu`].
        ReadyToUse = 0x14 "RTU",
        /// See [`CmDreq`].
        DisconnectRequest = 0x15 "DREQ",
        /// See [`CmDrep`].
        DisconnectReply = 0x16 "DREP",
        /// See [`CmSidrReq`].
        ServiceIdResReq = 0x17 "SIDR_REQ",
        /// See [`CmSidrRep`].
        ServiceIdResReqResp = 0x18 "SIDR_REP",
        /// Load an alternate path.
        LoadAlternatePath = 0x19 "LAP",
        /// Answer to that.
        AlternatePathResponse = 0x1a "APR",
    }

    /// The message that a REJ or an MRA answers. IBTA 12.6.6, 12.6.7.
    pub enum CmAnswered: 2 {
        /// A REQ.
        Req = 0 "REQ",
        /// A REP.
        Rep = 1 "REP",
        /// None of these: a LAP, or, in a REJ, no message.
        Other = 2 "OTHER",
    }

    /// Transport of a connection. IBTA 12.7.18 "Transport Service Type".
    pub enum CmTransport: 2 {
        /// Reliable connection.
        Rc = 0 "RC",
        /// Unreliable connection.
        Uc = 1 "UC",
        /// Reliable datagram.
        Rd = 2 "RD",
        /// Look at `extended_transport_type`.
        Extended = 3 "EXTENDED",
    }

    /// Reason of a rejection. IBTA 12.6.7.2 "Rejection Reason".
    pub enum CmRejectReason: 16 {
        /// No queue pair available.
        NoQp = 1 "NO_QP",
        /// No end-to-end context available.
        NoEec = 2 "NO_EEC",
        /// No resources available.
        NoResources = 3 "NO_RESOURCES",
        /// The answer did not come in time.
        Timeout = 4 "TIMEOUT",
        /// Unsupported request.
        Unsupported = 5 "UNSUPPORTED",
        /// Invalid communication ID.
        InvalidCommId = 6 "INVALID_COMM_ID",
        /// Invalid communication instance.
        InvalidCommInstance = 7 "INVALID_COMM_INSTANCE",
        /// Nobody listens on the service ID.
        InvalidServiceId = 8 "INVALID_SERVICE_ID",
        /// Invalid transport service type.
        InvalidTransportType = 9 "INVALID_TRANSPORT_TYPE",
        /// The queue pair belongs to a connection that this side knows as another.
        StaleConn = 10 "STALE_CONN",
        /// The reliable datagram channel does not exist.
        RdcNotExist = 11 "RDC_NOT_EXIST",
        /// The primary remote GID cannot be accepted.
        InvalidGid = 12 "INVALID_GID",
        /// The primary remote LID cannot be accepted.
        InvalidLid = 13 "INVALID_LID",
        /// Invalid primary service level.
        InvalidSl = 14 "INVALID_SL",
        /// Invalid primary traffic class.
        InvalidTrafficClass = 15 "INVALID_TRAFFIC_CLASS",
        /// Invalid primary hop limit.
        InvalidHopLimit = 16 "INVALID_HOP_LIMIT",
        /// Invalid primary packet rate.
        InvalidPacketRate = 17 "INVALID_PACKET_RATE",
        /// The alternate remote GID cannot be accepted.
        InvalidAltGid = 18 "INVALID_ALT_GID",
        /// The alternate remote LID cannot be accepted.
        InvalidAltLid = 19 "INVALID_ALT_LID",
        /// Invalid alternate service level.
        InvalidAltSl = 20 "INVALID_ALT_SL",
        /// Invalid alternate traffic class.
        InvalidAltTrafficClass = 21 "INVALID_ALT_TRAFFIC_CLASS",
        /// Invalid alternate hop limit.
        InvalidAltHopLimit = 22 "INVALID_ALT_HOP_LIMIT",
        /// Invalid alternate packet rate.
        InvalidAltPacketRate = 23 "INVALID_ALT_PACKET_RATE",
        /// Ask the communication manager of another port.
        PortCmRedirect = 24 "PORT_CM_REDIRECT",
        /// Ask for a connection to another port.
        PortRedirect = 25 "PORT_REDIRECT",
        /// The path MTU cannot be accepted.
        InvalidMtu = 26 "INVALID_MTU",
        /// Not that many responder resources.
        InsufficientRespResources = 27 "INSUFFICIENT_RESP_RESOURCES",
        /// The program behind the service refused.
        ConsumerDefined = 28 "CONSUMER_DEFINED",
        /// The RNR retry count cannot be accepted.
        InvalidRnrRetry = 29 "INVALID_RNR_RETRY",
        /// The sender's communication ID is in use.
        DuplicateLocalCommId = 30 "DUPLICATE_LOCAL_COMM_ID",
        /// Class version not supported.
        InvalidClassVersion = 31 "INVALID_CLASS_VERSION",
        /// Invalid primary flow label.
        InvalidFlowLabel = 32 "INVALID_FLOW_LABEL",
        /// Invalid alternate flow label.
        InvalidAltFlowLabel = 33 "INVALID_ALT_FLOW_LABEL",
        /// The vendor's option is not supported.
        VendorOptionNotSupported = 35 "VENDOR_OPTION_NOT_SUPPORTED",
    }

    /// Status of a [`CmSidrRep`]. IBTA 12.11.2.1.
    pub enum CmSidrStatus: 8 {
        /// The queue pair is valid.
        Success = 0 "SUCCESS",
        /// Nobody listens on the service ID.
        Unsupported = 1 "UNSUPPORTED",
        /// The program behind the service refused.
        Reject = 2 "REJECT",
        /// No queue pair available.
        NoQp = 3 "NO_QP",
        /// Ask elsewhere.
        Redirect = 4 "REDIRECT",
        /// Class version not supported.
        UnsupportedVersion = 5 "UNSUPPORTED_VERSION",
    }

    /// Port space of the RDMA connection manager. IBTA A11.2.2; in Linux `rdma_ucm_port_space`.
    pub enum RdmaPortSpace: 16 {
        /// Connections.
        Tcp = 0x106 "TCP",
        /// Datagrams.
        Udp = 0x111 "UDP",
    }
}

/// Class version of the communication manager's messages. IBTA 16.7.1.
pub const CM_CLASS_VERSION: u8 = 2;
