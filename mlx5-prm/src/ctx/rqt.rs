//! Receive queue table context.

use crate::layout::{Info, Layout};

layout! {
    /// Receive queue table context; the numbers of its queues follow. PRM `rqtc`.
    pub struct Rqtc: 0xf0, "mlx5_ifc_rqtc_bits" {
        0x14 [26:24] list_q_type: ListQType,
        0x14 [15:0] rqt_max_size: u16,
        0x18 [31] rq_vhca_id_format: bool,
        0x18 [15:0] rqt_actual_size: u16,
        .. rq_num: [RqNum] where rq_layout,
    }

    /// A receive queue in a table. PRM `rq_num`.
    pub struct RqNum: 0x4, "mlx5_ifc_rq_num_bits" {
        0x00 [23:0] rq_num: u32,
    }

    /// A receive queue in a table, and the function that owns it. PRM `rq_vhca`.
    pub struct RqVhca: 0x8, "mlx5_ifc_rq_vhca_bits" {
        0x00 [23:0] rq_num: u32,
        0x04 [15:0] rq_vhca_id: u16,
    }

    /// Which parts of the context `MODIFY_RQT` changes. PRM `rqt_bitmask`.
    pub struct RqtBitmask: 0x8, "mlx5_ifc_rqt_bitmask_bits" {
        0x04 [0] rqn_list: bool,
    }
}

values! {
    /// What a receive queue table lists. PRM `rqtc.list_q_type`.
    pub enum ListQType: 3 {
        /// Receive queues.
        Rq = 0 "RQ",
        /// Queues of an emulated virtio network device.
        VirtioNetQ = 1 "VIRTIO_NET_Q",
    }
}

impl Rqtc {
    /// Entries include their function if `rq_vhca_id_format` is set.
    fn rq_layout(bytes: &[u8], _entry: usize) -> Option<&'static Info> {
        Some(if Rqtc::read(bytes)?.rq_vhca_id_format() { &RqVhca::INFO } else { &RqNum::INFO })
    }
}
