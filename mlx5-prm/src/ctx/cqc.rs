//! Completion queue context.

use crate::cqe::{CqeCompressionLayout, MiniCqeFormat};

layout! {
    /// Completion queue context. PRM `cqc`.
    pub struct Cqc: 0x40, "mlx5_ifc_cqc_bits" {
        0x00 [31:28] status: u8 as CqStatus,
        0x00 [25] dbr_umem_valid: bool,
        0x00 [24] apu_cq: bool,
        0x00 [23:21] cqe_sz: u8 as CqeSize,
        0x00 [20] cc: bool,
        0x00 [18] scqe_break_moderation_en: bool,
        0x00 [17] oi: bool,
        0x00 [16:15] cq_period_mode: u8 as CqPeriodMode,
        0x00 [14] cqe_comp_en: bool,
        0x00 [13:12] mini_cqe_res_format: u8 as MiniCqeFormat,
        0x00 [11:8] st: u8 as CqState,
        0x00 [1:0] cqe_compression_layout: u8 as CqeCompressionLayout,
        /// The umem of the doorbell record, which `dbr_addr` is then an offset in. In the PRM, not in the kernel's
        /// header.
        0x04 [31:0] dbr_umem_id: u32,
        0x08 [11:6] page_offset: u8,
        /// With `mini_cqe_res_format` 0 it numbers the form of mini CQEs beyond the first four, see
        /// [`MiniCqeFormat`]. In the PRM, not in the kernel's header.
        0x08 [3:2] mini_cqe_res_format_ext: u8,
        0x0c [28:24] log_cq_size: u8,
        0x0c [23:0] uar_page: u32,
        0x10 [27:16] cq_period: u16,
        0x10 [15:0] cq_max_count: u16,
        0x14 [31:0] c_eqn_or_apu_element: u32,
        0x18 [28:24] log_page_size: u8,
        0x20 [23:0] last_notified_index: u32,
        0x24 [23:0] last_solicit_index: u32,
        0x28 [23:0] consumer_counter: u32,
        0x2c [23:0] producer_counter: u32,
        0x38 [63:0] dbr_addr: u64,
    }
}

values! {
    /// Health of a completion queue. PRM `cqc.status`.
    pub enum CqStatus: 4 {
        /// Healthy.
        Ok = 0x0 "OK",
        /// A completion found no room: the queue is dead.
        Overflow = 0x9 "CQ_OVERFLOW",
        /// The ring could not be written.
        WriteFail = 0xa "CQ_WRITE_FAIL",
    }

    /// Size of a completion queue's entries. PRM `cqc.cqe_sz`.
    pub enum CqeSize: 3 {
        /// 64 bytes.
        Bytes64 = 0 "64_BYTES",
        /// 128 bytes: 64 of inline data, then the CQE.
        Bytes128 = 1 "128_BYTES",
        /// A 64-byte CQE in a stride of 128 bytes.
        Bytes128Pad = 2 "128_BYTES_PAD",
    }

    /// What moderation counts from. PRM `cqc.cq_period_mode`.
    pub enum CqPeriodMode: 2 {
        /// From the last event.
        StartFromEqe = 0 "START_FROM_EQE",
        /// From the last completion.
        StartFromCqe = 1 "START_FROM_CQE",
    }

    /// Whether a completion queue will raise an event. PRM `cqc.st`.
    pub enum CqState: 4 {
        /// Armed for the next solicited completion, or one with error.
        SolicitedArmed = 0x6 "SOLICITED_NOTIFICATION_REQUEST_ARMED",
        /// Armed for the next completion.
        Armed = 0x9 "NOTIFICATION_REQUEST_ARMED",
        /// Has raised an event and waits to be armed again.
        Fired = 0xa "FIRED",
    }
}
