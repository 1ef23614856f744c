//! The connection manager of the kernel's, `/dev/infiniband/rdma_cm`: commands by `write`, with the names of
//! `rdma/rdma_user_cm.h`. Fields of more than 32 bytes are rows of 32, which have a default.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Field, Number, bare};

/// Bytes of private data.
pub type PrivateData = [[u8; 32]; 8];
/// A socket address of any family.
pub type SockaddrStorage = [[u64; 4]; 4];

numbers! {
    /// Version of the interface, as in sysfs.
    RDMA_USER_CM_ABI_VERSION: u32 = 4,

    /// Creates an ID.
    RDMA_USER_CM_CMD_CREATE_ID: u32 = 0,
    /// Destroys it.
    RDMA_USER_CM_CMD_DESTROY_ID: u32 = 1,
    /// Finds the route to an ID's address.
    RDMA_USER_CM_CMD_RESOLVE_ROUTE: u32 = 4,
    /// Requests a connection.
    RDMA_USER_CM_CMD_CONNECT: u32 = 6,
    /// Listens.
    RDMA_USER_CM_CMD_LISTEN: u32 = 7,
    /// Accepts a request, or tells that a connection is ready.
    RDMA_USER_CM_CMD_ACCEPT: u32 = 8,
    /// Rejects it.
    RDMA_USER_CM_CMD_REJECT: u32 = 9,
    /// Ends a connection.
    RDMA_USER_CM_CMD_DISCONNECT: u32 = 10,
    /// Attributes of a queue pair's transition.
    RDMA_USER_CM_CMD_INIT_QP_ATTR: u32 = 11,
    /// The next event.
    RDMA_USER_CM_CMD_GET_EVENT: u32 = 12,
    /// Sets an option.
    RDMA_USER_CM_CMD_SET_OPTION: u32 = 14,
    /// Tells of an event of a queue pair.
    RDMA_USER_CM_CMD_NOTIFY: u32 = 15,
    /// Leaves a multicast group.
    RDMA_USER_CM_CMD_LEAVE_MCAST: u32 = 17,
    /// Queries an ID.
    RDMA_USER_CM_CMD_QUERY: u32 = 19,
    /// Binds an ID to a local address.
    RDMA_USER_CM_CMD_BIND: u32 = 20,
    /// Resolves a remote address.
    RDMA_USER_CM_CMD_RESOLVE_ADDR: u32 = 21,
    /// Joins a multicast group.
    RDMA_USER_CM_CMD_JOIN_MCAST: u32 = 22,

    /// Queries the addresses of an ID.
    RDMA_USER_CM_QUERY_ADDR: u32 = 0,
    /// Options of an ID.
    RDMA_OPTION_ID: u32 = 0,
    /// Type of service: the traffic class.
    RDMA_OPTION_ID_TOS: u32 = 0,
    /// Local ACK timeout.
    RDMA_OPTION_ID_ACK_TIMEOUT: u32 = 3,
    /// Receives what is sent to the group, and sends to it.
    RDMA_MC_JOIN_FLAG_FULLMEMBER: u16 = 0,
}

/// Events: `RDMA_CM_EVENT_...`, which no header for programs has but librdmacm's.
pub mod event {
    /// The remote address has a device.
    pub const ADDR_RESOLVED: u32 = 0;
    /// It has none.
    pub const ADDR_ERROR: u32 = 1;
    /// There is a route.
    pub const ROUTE_RESOLVED: u32 = 2;
    /// There is none.
    pub const ROUTE_ERROR: u32 = 3;
    /// A remote requests a connection.
    pub const CONNECT_REQUEST: u32 = 4;
    /// A remote accepts.
    pub const CONNECT_RESPONSE: u32 = 5;
    /// A connection failed.
    pub const CONNECT_ERROR: u32 = 6;
    /// The remote does not answer.
    pub const UNREACHABLE: u32 = 7;
    /// The remote refuses.
    pub const REJECTED: u32 = 8;
    /// Both ends are ready.
    pub const ESTABLISHED: u32 = 9;
    /// A connection has ended.
    pub const DISCONNECTED: u32 = 10;
    /// The device goes.
    pub const DEVICE_REMOVAL: u32 = 11;
    /// A group was joined.
    pub const MULTICAST_JOIN: u32 = 12;
    /// It was not.
    pub const MULTICAST_ERROR: u32 = 13;
    /// An ended connection is forgotten.
    pub const TIMEWAIT_EXIT: u32 = 15;
}

/// Port spaces: `RDMA_PS_...`, and types of queue pairs: `IB_QPT_...`. The first of the kernel's own headers, the
/// second of those for verbs.
pub mod kind {
    /// Port space of connections.
    pub const PS_TCP: u16 = 0x0106;
    /// Port space of datagrams.
    pub const PS_UDP: u16 = 0x0111;
    /// Reliable connection.
    pub const QPT_RC: u8 = 2;
    /// Unreliable datagram.
    pub const QPT_UD: u8 = 4;
    /// State: ready to receive.
    pub const QPS_RTR: u32 = 2;
    /// State: ready to send.
    pub const QPS_RTS: u32 = 3;
    /// Event of a queue pair: a message came before the connection was established.
    pub const EVENT_COMM_EST: u32 = 4;
}

structures! {
    /// What stands before each command.
    CmdHdr, "rdma_ucm_cmd_hdr" {
        /// `RDMA_USER_CM_CMD_...`
        cmd: u32,
        /// Bytes of the input.
        r#in: u16,
        /// Bytes of room for the output.
        out: u16,
    }

    /// Input of `CREATE_ID`.
    CreateId, "rdma_ucm_create_id" {
        /// What events of the ID say; not 0.
        uid: u64,
        /// Address of the output.
        response: u64,
        /// Port space.
        ps: u16,
        /// Type of its queue pair.
        qp_type: u8,
        /// Zero.
        reserved: [u8; 5],
    }

    /// Its output.
    CreateIdResp, "rdma_ucm_create_id_resp" {
        /// The ID.
        id: u32,
    }

    /// Input of `DESTROY_ID`, and of `LEAVE_MCAST`.
    DestroyId, "rdma_ucm_destroy_id" {
        /// Address of the output.
        response: u64,
        /// The ID, or that of the membership.
        id: u32,
        /// Zero.
        reserved: u32,
    }

    /// Its output.
    DestroyIdResp, "rdma_ucm_destroy_id_resp" {
        /// Events that were read of it.
        events_reported: u32,
    }

    /// Input of `BIND`.
    Bind, "rdma_ucm_bind" {
        /// The ID.
        id: u32,
        /// Bytes of the address.
        addr_size: u16,
        /// Zero.
        reserved: u16,
        /// The local address.
        addr: SockaddrStorage,
    }

    /// Input of `RESOLVE_ADDR`.
    ResolveAddr, "rdma_ucm_resolve_addr" {
        /// The ID.
        id: u32,
        /// How long it may take.
        timeout_ms: u32,
        /// Bytes of the local address; 0 for none.
        src_size: u16,
        /// Bytes of the remote address.
        dst_size: u16,
        /// Zero.
        reserved: u32,
        /// The local address.
        src_addr: SockaddrStorage,
        /// The remote address.
        dst_addr: SockaddrStorage,
    }

    /// Input of `RESOLVE_ROUTE`.
    ResolveRoute, "rdma_ucm_resolve_route" {
        /// The ID.
        id: u32,
        /// How long it may take.
        timeout_ms: u32,
    }

    /// Input of `QUERY`.
    Query, "rdma_ucm_query" {
        /// Address of the output.
        response: u64,
        /// The ID.
        id: u32,
        /// `RDMA_USER_CM_QUERY_...`
        option: u32,
    }

    /// Output of `QUERY` for addresses, as far as kernels before 5.10 have it.
    QueryAddrResp, "rdma_ucm_query_addr_resp" {
        /// GUID of the device, as it is on the wire; 0 before there is one.
        node_guid: u64,
        /// Its port.
        port_num: u8,
        /// Zero.
        reserved: u8,
        /// Partition key.
        pkey: u16,
        /// Bytes of the local address.
        src_size: u16,
        /// Bytes of the remote address.
        dst_size: u16,
        /// The local address.
        src_addr: SockaddrStorage,
        /// The remote address.
        dst_addr: SockaddrStorage,
        /// Index of the device.
        ibdev_index: u32,
        /// Zero.
        reserved1: u32,
    }

    /// What an end of a connection offers.
    ConnParam, "rdma_ucm_conn_param" {
        /// Its queue pair.
        qp_num: u32,
        /// Its Q_Key, for datagrams.
        qkey: u32,
        /// The program's private data.
        private_data: PrivateData,
        /// How much of it there is.
        private_data_len: u8,
        /// Whether its receives are shared.
        srq: u8,
        /// READs and atomics of the remote that it answers at once.
        responder_resources: u8,
        /// READs and atomics that it has under way at once.
        initiator_depth: u8,
        /// End-to-end flow control.
        flow_control: u8,
        /// Retries after a timeout.
        retry_count: u8,
        /// Retries of the remote where no receive is posted.
        rnr_retry_count: u8,
        /// Whether all this counts.
        valid: u8,
    }

    /// Global route of an address.
    GlobalRoute, "ib_uverbs_global_route" {
        /// The remote's GID.
        dgid: [u8; 16],
        /// Flow label.
        flow_label: u32,
        /// Index of the local GID.
        sgid_index: u8,
        /// Hop limit.
        hop_limit: u8,
        /// Traffic class.
        traffic_class: u8,
        /// Zero.
        reserved: u8,
    }

    /// An address of datagrams.
    AhAttr, "ib_uverbs_ah_attr" {
        /// Its global route.
        grh: GlobalRoute,
        /// Not on Ethernet.
        dlid: u16,
        /// Service level.
        sl: u8,
        /// Not on Ethernet.
        src_path_bits: u8,
        /// Not on Ethernet.
        static_rate: u8,
        /// Whether there is a global route.
        is_global: u8,
        /// Local port.
        port_num: u8,
        /// Zero.
        reserved: u8,
    }

    /// What an end of datagrams tells.
    UdParam, "rdma_ucm_ud_param" {
        /// Its queue pair.
        qp_num: u32,
        /// Its Q_Key.
        qkey: u32,
        /// Its address.
        ah_attr: AhAttr,
        /// The program's private data.
        private_data: PrivateData,
        /// How much of it there is.
        private_data_len: u8,
        /// Zero.
        reserved: [u8; 7],
    }

    /// Options that both ends support.
    Ece, "rdma_ucm_ece" {
        /// Whose they are.
        vendor_id: u32,
        /// Which.
        attr_mod: u32,
    }

    /// Input of `CONNECT`.
    Connect, "rdma_ucm_connect" {
        /// The offer.
        conn_param: ConnParam,
        /// The ID.
        id: u32,
        /// Zero.
        reserved: u32,
        /// Options that this end supports.
        ece: Ece,
    }

    /// Input of `LISTEN`.
    Listen, "rdma_ucm_listen" {
        /// The ID.
        id: u32,
        /// Requests that may wait.
        backlog: u32,
    }

    /// Input of `ACCEPT`.
    Accept, "rdma_ucm_accept" {
        /// What events of the ID say from now on.
        uid: u64,
        /// What this end accepts.
        conn_param: ConnParam,
        /// The ID.
        id: u32,
        /// Zero.
        reserved: u32,
        /// Options that both ends support.
        ece: Ece,
    }

    /// Input of `REJECT`.
    Reject, "rdma_ucm_reject" {
        /// The ID.
        id: u32,
        /// Bytes of private data.
        private_data_len: u8,
        /// The reason; 0 for the program's. Kernels before 5.12 have no other.
        reason: u8,
        /// Zero.
        reserved: [u8; 2],
        /// The program's private data.
        private_data: PrivateData,
    }

    /// Input of `DISCONNECT`.
    Disconnect, "rdma_ucm_disconnect" {
        /// The ID.
        id: u32,
    }

    /// Input of `INIT_QP_ATTR`.
    InitQpAttr, "rdma_ucm_init_qp_attr" {
        /// Address of the output.
        response: u64,
        /// The ID.
        id: u32,
        /// The state that the queue pair goes to.
        qp_state: u32,
    }

    /// Its output.
    QpAttr, "ib_uverbs_qp_attr" {
        /// Which fields count.
        qp_attr_mask: u32,
        /// The state.
        qp_state: u32,
        /// Unused.
        cur_qp_state: u32,
        /// Code of the path MTU.
        path_mtu: u32,
        /// Unused.
        path_mig_state: u32,
        /// Q_Key, of datagrams.
        qkey: u32,
        /// First PSN of the remote.
        rq_psn: u32,
        /// First PSN to send.
        sq_psn: u32,
        /// The remote queue pair.
        dest_qp_num: u32,
        /// What the remote may do.
        qp_access_flags: u32,
        /// The path.
        ah_attr: AhAttr,
        /// Another.
        alt_ah_attr: AhAttr,
        /// Unused.
        max_send_wr: u32,
        /// Unused.
        max_recv_wr: u32,
        /// Unused.
        max_send_sge: u32,
        /// Unused.
        max_recv_sge: u32,
        /// Unused.
        max_inline_data: u32,
        /// Index of the partition key.
        pkey_index: u16,
        /// Unused.
        alt_pkey_index: u16,
        /// Unused.
        en_sqd_async_notify: u8,
        /// Unused.
        sq_draining: u8,
        /// READs and atomics of ours at once.
        max_rd_atomic: u8,
        /// READs and atomics of the remote at once.
        max_dest_rd_atomic: u8,
        /// RNR timer.
        min_rnr_timer: u8,
        /// The port.
        port_num: u8,
        /// Local ACK timeout.
        timeout: u8,
        /// Retries after a timeout.
        retry_cnt: u8,
        /// Retries after an RNR NAK.
        rnr_retry: u8,
        /// Unused.
        alt_port_num: u8,
        /// Unused.
        alt_timeout: u8,
        /// Zero.
        reserved: [u8; 5],
    }

    /// Input of `NOTIFY`.
    Notify, "rdma_ucm_notify" {
        /// The ID.
        id: u32,
        /// The queue pair's event.
        event: u32,
    }

    /// Input of `JOIN_MCAST`; its output is that of `CREATE_ID`.
    JoinMcast, "rdma_ucm_join_mcast" {
        /// Address of the output.
        response: u64,
        /// What events of the membership say.
        uid: u64,
        /// The ID.
        id: u32,
        /// Bytes of the address.
        addr_size: u16,
        /// `RDMA_MC_JOIN_FLAG_...`
        join_flags: u16,
        /// The group.
        addr: SockaddrStorage,
    }

    /// Input of `GET_EVENT`.
    GetEvent, "rdma_ucm_get_event" {
        /// Address of the output.
        response: u64,
    }

    /// Its output.
    EventResp, "rdma_ucm_event_resp" {
        /// What was said when the ID was created or accepted; of a request, its listener's.
        uid: u64,
        /// The ID; of a request, a new one.
        id: u32,
        /// See [`event`].
        event: u32,
        /// 0, an error number less than 0, or a reason.
        status: u32,
        /// What the remote tells, of datagrams; of connections the first part is a [`ConnParam`].
        param: UdParam,
        /// Zero.
        reserved: u32,
        /// Options that the remote supports.
        ece: Ece,
    }

    /// Input of `SET_OPTION`.
    SetOption, "rdma_ucm_set_option" {
        /// Address of the value.
        optval: u64,
        /// The ID.
        id: u32,
        /// `RDMA_OPTION_ID`
        level: u32,
        /// `RDMA_OPTION_ID_...`
        optname: u32,
        /// Bytes of the value.
        optlen: u32,
    }
}
