//! Commands for what processes share by a file: XRC domains, and the queues in them.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Field, Number, bare};

numbers! {
    /// Creates a channel of completion events.
    IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL: u64 = 17,
    /// Creates a completion queue.
    IB_USER_VERBS_CMD_CREATE_CQ: u64 = 18,
    /// Destroys it.
    IB_USER_VERBS_CMD_DESTROY_CQ: u64 = 20,
    /// Creates a queue pair.
    IB_USER_VERBS_CMD_CREATE_QP: u64 = 24,
    /// Queries it.
    IB_USER_VERBS_CMD_QUERY_QP: u64 = 25,
    /// Moves it to another state.
    IB_USER_VERBS_CMD_MODIFY_QP: u64 = 26,
    /// Destroys it, or closes one that was opened.
    IB_USER_VERBS_CMD_DESTROY_QP: u64 = 27,
    /// Sets the limit of a shared receive queue.
    IB_USER_VERBS_CMD_MODIFY_SRQ: u64 = 33,
    /// Destroys it.
    IB_USER_VERBS_CMD_DESTROY_SRQ: u64 = 35,
    /// Opens an XRC domain.
    IB_USER_VERBS_CMD_OPEN_XRCD: u64 = 37,
    /// Closes it.
    IB_USER_VERBS_CMD_CLOSE_XRCD: u64 = 38,
    /// Creates a shared receive queue of a domain.
    IB_USER_VERBS_CMD_CREATE_XSRQ: u64 = 39,
    /// Opens a queue pair that another process has created in a domain.
    IB_USER_VERBS_CMD_OPEN_QP: u64 = 40,

    /// Asynchronous events of the kernel's objects.
    UVERBS_OBJECT_ASYNC_EVENT: u16 = 16,
    /// Opens their channel.
    UVERBS_METHOD_ASYNC_EVENT_ALLOC: u16 = 0,
    /// That channel.
    UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE: u16 = 0,
    /// A shared receive queue of an XRC domain.
    IB_UVERBS_SRQT_XRC: u32 = 1,
    /// The receiving end of an extended reliable connection.
    IB_UVERBS_QPT_XRC_TGT: u8 = 10,
    /// The completion queue rings through the page that is named.
    MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX: u16 = 1 << 1,
}

/// What changes of a shared receive queue, and its asynchronous events: libibverbs' `IBV_SRQ_...` and `IBV_EVENT_...`,
/// which no header of the kernel's has.
pub mod srq_words {
    /// `srq_limit`.
    pub const LIMIT: u32 = 1 << 1;
    /// The card cannot go on with it.
    pub const EVENT_ERR: u32 = 14;
    /// Fewer receives are left than its limit.
    pub const EVENT_LIMIT_REACHED: u32 = 15;
}

/// Attributes of a queue pair that a call sets: libibverbs' `IBV_QP_...`, which no header of the kernel's has.
pub mod qp_attributes {
    /// `qp_state`.
    pub const STATE: u32 = 1 << 0;
    /// `qp_access_flags`.
    pub const ACCESS_FLAGS: u32 = 1 << 3;
    /// `pkey_index`.
    pub const PKEY_INDEX: u32 = 1 << 4;
    /// `port_num`.
    pub const PORT: u32 = 1 << 5;
    /// `dest`.
    pub const AV: u32 = 1 << 7;
    /// `path_mtu`.
    pub const PATH_MTU: u32 = 1 << 8;
    /// `timeout`.
    pub const TIMEOUT: u32 = 1 << 9;
    /// `rq_psn`.
    pub const RQ_PSN: u32 = 1 << 12;
    /// `min_rnr_timer`.
    pub const MIN_RNR_TIMER: u32 = 1 << 15;
    /// `sq_psn`.
    pub const SQ_PSN: u32 = 1 << 16;
    /// `max_dest_rd_atomic`.
    pub const MAX_DEST_RD_ATOMIC: u32 = 1 << 17;
    /// `dest_qp_num`.
    pub const DEST_QPN: u32 = 1 << 20;
}

structures! {
    /// Input of `IB_USER_VERBS_CMD_OPEN_XRCD`.
    OpenXrcd, "ib_uverbs_open_xrcd" {
        /// Unused by ioctls.
        response: u64,
        /// Descriptor of the file that names the domain; all ones for a domain without a file.
        fd: u32,
        /// `O_CREAT` and `O_EXCL`.
        oflags: u32,
    }

    /// Its output.
    OpenXrcdResp, "ib_uverbs_open_xrcd_resp" {
        /// The domain's handle.
        xrcd_handle: u32,
    }

    /// Input of `IB_USER_VERBS_CMD_CLOSE_XRCD`.
    CloseXrcd, "ib_uverbs_close_xrcd" {
        /// The domain's handle.
        xrcd_handle: u32,
    }

    /// Input of `IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL`.
    CreateCompChannel, "ib_uverbs_create_comp_channel" {
        /// Unused by ioctls.
        response: u64,
    }

    /// Its output.
    CreateCompChannelResp, "ib_uverbs_create_comp_channel_resp" {
        /// The channel's descriptor.
        fd: u32,
    }

    /// Input of `IB_USER_VERBS_CMD_CREATE_CQ`.
    CreateCq, "ib_uverbs_create_cq" {
        /// Unused by ioctls.
        response: u64,
        /// What an event of the queue says.
        user_handle: u64,
        /// Entries, less one.
        cqe: u32,
        /// Completion vector.
        comp_vector: u32,
        /// Descriptor of the channel of its events, or -1.
        comp_channel: i32,
        /// Zero.
        reserved: u32,
    }

    /// mlx5's part of that input.
    CreateCqDriver, "mlx5_ib_create_cq" {
        /// Address of the ring.
        buf_addr: u64,
        /// Address of the doorbell record.
        db_addr: u64,
        /// Bytes of an entry.
        cqe_size: u32,
        /// Whether receives are compressed.
        cqe_comp_en: u8,
        /// In which form.
        cqe_comp_res_format: u8,
        /// `MLX5_IB_CREATE_CQ_FLAGS_...`
        flags: u16,
        /// UAR page that it rings through.
        uar_page_index: u16,
        /// Zero.
        reserved0: u16,
        /// Zero.
        reserved1: u32,
    }

    /// Its output.
    CreateCqResp, "ib_uverbs_create_cq_resp" {
        /// The queue's handle.
        cq_handle: u32,
        /// Entries, less one.
        cqe: u32,
    }

    /// mlx5's part of that output.
    CreateCqDriverResp, "mlx5_ib_create_cq_resp" {
        /// The queue's number.
        cqn: u32,
        /// Zero.
        reserved: u32,
    }

    /// Input of `IB_USER_VERBS_CMD_DESTROY_CQ`.
    DestroyCq, "ib_uverbs_destroy_cq" {
        /// Unused by ioctls.
        response: u64,
        /// The queue's handle.
        cq_handle: u32,
        /// Zero.
        reserved: u32,
    }

    /// Its output.
    DestroyCqResp, "ib_uverbs_destroy_cq_resp" {
        /// Completion events that were read.
        comp_events_reported: u32,
        /// Asynchronous events that were read.
        async_events_reported: u32,
    }

    /// Input of `IB_USER_VERBS_CMD_CREATE_XSRQ`.
    CreateXsrq, "ib_uverbs_create_xsrq" {
        /// Unused by ioctls.
        response: u64,
        /// What an asynchronous event of the queue says.
        user_handle: u64,
        /// `IB_UVERBS_SRQT_...`
        srq_type: u32,
        /// The protection domain.
        pd_handle: u32,
        /// Receives that it is to hold.
        max_wr: u32,
        /// Elements of a receive.
        max_sge: u32,
        /// Limit of its event; 0 for none.
        srq_limit: u32,
        /// Tags, of a queue that matches them.
        max_num_tags: u32,
        /// The XRC domain.
        xrcd_handle: u32,
        /// Where its receives complete.
        cq_handle: u32,
    }

    /// mlx5's part of that input.
    CreateSrqDriver, "mlx5_ib_create_srq" {
        /// Address of the ring.
        buf_addr: u64,
        /// Address of the doorbell record.
        db_addr: u64,
        /// Whether WQEs are signed.
        flags: u32,
        /// Zero.
        reserved0: u32,
        /// User index of its completions, 24 bits.
        uidx: u32,
        /// Zero.
        reserved1: u32,
    }

    /// Its output.
    CreateSrqResp, "ib_uverbs_create_srq_resp" {
        /// The queue's handle.
        srq_handle: u32,
        /// Receives that it holds.
        max_wr: u32,
        /// Elements of a receive.
        max_sge: u32,
        /// Its number; for XRC alone.
        srqn: u32,
    }

    /// mlx5's part of that output.
    CreateSrqDriverResp, "mlx5_ib_create_srq_resp" {
        /// The queue's number.
        srqn: u32,
        /// Zero.
        reserved: u32,
    }

    /// Input of `IB_USER_VERBS_CMD_MODIFY_SRQ`.
    ModifySrq, "ib_uverbs_modify_srq" {
        /// The queue's handle.
        srq_handle: u32,
        /// What changes.
        attr_mask: u32,
        /// Receives that it is to hold.
        max_wr: u32,
        /// Limit of its event; 0 for none.
        srq_limit: u32,
    }

    /// An entry of the channel of asynchronous events.
    AsyncEventDesc, "ib_uverbs_async_event_desc" {
        /// The `user_handle` of the object.
        element: u64,
        /// What happened.
        event_type: u32,
        /// Zero.
        reserved: u32,
    }

    /// Input of `IB_USER_VERBS_CMD_DESTROY_SRQ`.
    DestroySrq, "ib_uverbs_destroy_srq" {
        /// Unused by ioctls.
        response: u64,
        /// The queue's handle.
        srq_handle: u32,
        /// Zero.
        reserved: u32,
    }

    /// Its output.
    DestroySrqResp, "ib_uverbs_destroy_srq_resp" {
        /// Asynchronous events that were read.
        events_reported: u32,
    }

    /// Input of `IB_USER_VERBS_CMD_CREATE_QP`.
    CreateQp, "ib_uverbs_create_qp" {
        /// Unused by ioctls.
        response: u64,
        /// What an asynchronous event of the queue pair says.
        user_handle: u64,
        /// The protection domain; of an XRC target its XRC domain.
        pd_handle: u32,
        /// Where sends complete.
        send_cq_handle: u32,
        /// Where receives complete.
        recv_cq_handle: u32,
        /// Shared receive queue.
        srq_handle: u32,
        /// Sends.
        max_send_wr: u32,
        /// Receives.
        max_recv_wr: u32,
        /// Elements of a send.
        max_send_sge: u32,
        /// Elements of a receive.
        max_recv_sge: u32,
        /// Bytes of inline data.
        max_inline_data: u32,
        /// Whether every send completes.
        sq_sig_all: u8,
        /// `IB_UVERBS_QPT_...`
        qp_type: u8,
        /// Whether `srq_handle` counts.
        is_srq: u8,
        /// Zero.
        reserved: u8,
    }

    /// Its output, and that of `IB_USER_VERBS_CMD_OPEN_QP`.
    CreateQpResp, "ib_uverbs_create_qp_resp" {
        /// The queue pair's handle.
        qp_handle: u32,
        /// Its number.
        qpn: u32,
        /// Sends.
        max_send_wr: u32,
        /// Receives.
        max_recv_wr: u32,
        /// Elements of a send.
        max_send_sge: u32,
        /// Elements of a receive.
        max_recv_sge: u32,
        /// Bytes of inline data.
        max_inline_data: u32,
        /// Zero.
        reserved: u32,
    }

    /// Input of `IB_USER_VERBS_CMD_OPEN_QP`.
    OpenQp, "ib_uverbs_open_qp" {
        /// Unused by ioctls.
        response: u64,
        /// What an asynchronous event of the queue pair says.
        user_handle: u64,
        /// The XRC domain.
        pd_handle: u32,
        /// The queue pair's number.
        qpn: u32,
        /// `IB_UVERBS_QPT_...`
        qp_type: u8,
        /// Zero.
        reserved: [u8; 7],
    }

    /// A path.
    QpDest, "ib_uverbs_qp_dest" {
        /// The remote's GID.
        dgid: [u8; 16],
        /// Flow label.
        flow_label: u32,
        /// LID, on InfiniBand.
        dlid: u16,
        /// Zero.
        reserved: u16,
        /// Index of the local GID.
        sgid_index: u8,
        /// Hop limit.
        hop_limit: u8,
        /// Traffic class.
        traffic_class: u8,
        /// Service level.
        sl: u8,
        /// Lower bits of the local LID.
        src_path_bits: u8,
        /// Rate limit, on InfiniBand.
        static_rate: u8,
        /// Whether the GIDs count: on Ethernet always.
        is_global: u8,
        /// Local port number.
        port_num: u8,
    }

    /// Input of `IB_USER_VERBS_CMD_MODIFY_QP`.
    ModifyQp, "ib_uverbs_modify_qp" {
        /// Its path.
        dest: QpDest,
        /// Its alternate path.
        alt_dest: QpDest,
        /// The queue pair's handle.
        qp_handle: u32,
        /// What is set: [`qp_attributes`].
        attr_mask: u32,
        /// Q_Key.
        qkey: u32,
        /// First PSN of the remote.
        rq_psn: u32,
        /// First PSN to send.
        sq_psn: u32,
        /// The remote queue pair.
        dest_qp_num: u32,
        /// `IB_UVERBS_ACCESS_...`
        qp_access_flags: u32,
        /// Index of the partition key.
        pkey_index: u16,
        /// That of the alternate path.
        alt_pkey_index: u16,
        /// The new state.
        qp_state: u8,
        /// The state that it is in.
        cur_qp_state: u8,
        /// Path MTU.
        path_mtu: u8,
        /// State of migration.
        path_mig_state: u8,
        /// Whether the end of draining is an event.
        en_sqd_async_notify: u8,
        /// Outstanding READs and atomics of ours.
        max_rd_atomic: u8,
        /// Those of the remote.
        max_dest_rd_atomic: u8,
        /// RNR NAK timer code.
        min_rnr_timer: u8,
        /// Local port number.
        port_num: u8,
        /// Local ACK timeout.
        timeout: u8,
        /// Retries after a timeout.
        retry_cnt: u8,
        /// Retries after an RNR NAK.
        rnr_retry: u8,
        /// Port of the alternate path.
        alt_port_num: u8,
        /// Its timeout.
        alt_timeout: u8,
        /// Zero.
        reserved: [u8; 2],
    }

    /// Input of `IB_USER_VERBS_CMD_QUERY_QP`.
    QueryQp, "ib_uverbs_query_qp" {
        /// Unused by ioctls.
        response: u64,
        /// The queue pair's handle.
        qp_handle: u32,
        /// What is asked: [`qp_attributes`].
        attr_mask: u32,
    }

    /// Its output.
    QueryQpResp, "ib_uverbs_query_qp_resp" {
        /// Its path.
        dest: QpDest,
        /// Its alternate path.
        alt_dest: QpDest,
        /// Sends.
        max_send_wr: u32,
        /// Receives.
        max_recv_wr: u32,
        /// Elements of a send.
        max_send_sge: u32,
        /// Elements of a receive.
        max_recv_sge: u32,
        /// Bytes of inline data.
        max_inline_data: u32,
        /// Q_Key.
        qkey: u32,
        /// Next PSN expected.
        rq_psn: u32,
        /// Next PSN to send.
        sq_psn: u32,
        /// The remote queue pair.
        dest_qp_num: u32,
        /// `IB_UVERBS_ACCESS_...`
        qp_access_flags: u32,
        /// Index of the partition key.
        pkey_index: u16,
        /// That of the alternate path.
        alt_pkey_index: u16,
        /// The state.
        qp_state: u8,
        /// The state.
        cur_qp_state: u8,
        /// Path MTU.
        path_mtu: u8,
        /// State of migration.
        path_mig_state: u8,
        /// Whether the send queue drains.
        sq_draining: u8,
        /// Outstanding READs and atomics of ours.
        max_rd_atomic: u8,
        /// Those of the remote.
        max_dest_rd_atomic: u8,
        /// RNR NAK timer code.
        min_rnr_timer: u8,
        /// Local port number.
        port_num: u8,
        /// Local ACK timeout.
        timeout: u8,
        /// Retries after a timeout.
        retry_cnt: u8,
        /// Retries after an RNR NAK.
        rnr_retry: u8,
        /// Port of the alternate path.
        alt_port_num: u8,
        /// Its timeout.
        alt_timeout: u8,
        /// Whether every send completes.
        sq_sig_all: u8,
        /// Zero.
        reserved: [u8; 5],
    }

    /// Input of `IB_USER_VERBS_CMD_DESTROY_QP`.
    DestroyQp, "ib_uverbs_destroy_qp" {
        /// Unused by ioctls.
        response: u64,
        /// The queue pair's handle.
        qp_handle: u32,
        /// Zero.
        reserved: u32,
    }

    /// Its output.
    DestroyQpResp, "ib_uverbs_destroy_qp_resp" {
        /// Asynchronous events that were read.
        events_reported: u32,
    }
}

/// The first part of `mlx5_ib_create_qp`, mlx5's part of the input of `IB_USER_VERBS_CMD_CREATE_QP`: newer kernels have
/// more fields.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, IntoBytes, Immutable)]
pub struct CreateQpDriver {
    /// Address of the rings.
    pub buf_addr: u64,
    /// Address of the doorbell record.
    pub db_addr: u64,
    /// Length of the send queue in WQEBBs.
    pub sq_wqe_count: u32,
    /// Length of the receive queue.
    pub rq_wqe_count: u32,
    /// Log of the bytes of a receive.
    pub rq_wqe_shift: u32,
    /// Flags.
    pub flags: u32,
    /// User index of its completions, 24 bits.
    pub uidx: u32,
    /// BlueFlame register.
    pub bfreg_index: u32,
    /// Address of the send ring.
    pub sq_buf_addr: u64,
}

/// The fields of [`CreateQpDriver`], for comparison with the headers.
pub const FIRST_FIELDS: &[Field] = &[
    first_field("buf_addr", std::mem::offset_of!(CreateQpDriver, buf_addr), 8),
    first_field("db_addr", std::mem::offset_of!(CreateQpDriver, db_addr), 8),
    first_field("sq_wqe_count", std::mem::offset_of!(CreateQpDriver, sq_wqe_count), 4),
    first_field("rq_wqe_count", std::mem::offset_of!(CreateQpDriver, rq_wqe_count), 4),
    first_field("rq_wqe_shift", std::mem::offset_of!(CreateQpDriver, rq_wqe_shift), 4),
    first_field("flags", std::mem::offset_of!(CreateQpDriver, flags), 4),
    first_field("uidx", std::mem::offset_of!(CreateQpDriver, uidx), 4),
    first_field("bfreg_index", std::mem::offset_of!(CreateQpDriver, bfreg_index), 4),
    first_field("sq_buf_addr", std::mem::offset_of!(CreateQpDriver, sq_buf_addr), 8),
];

const fn first_field(name: &'static str, offset: usize, size: usize) -> Field {
    Field { structure: "mlx5_ib_create_qp", name, offset, size }
}
