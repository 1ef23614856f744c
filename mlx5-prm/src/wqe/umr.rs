//! Changing a memory key by a WQE: user memory region update, and its older form, fast registration.
//!
//! An UMR WQE is a [`CtrlSeg`](super::CtrlSeg), a [`UmrCtrlSeg`], the key's new context as an [`Mkc`](crate::ctx::Mkc),
//! and a list of [`Mtt`](crate::ctx::Mtt), [`Klm`](crate::ctx::Klm) or [`Ksm`] entries: inline, or in memory that a
//! [`UmrPointerDescArgument`] names. A [`RepeatBlockSeg`] stands in place of the list for interleaved memory, a
//! [`Bsf`](super::Bsf) after it for a signature.

layout! {
    /// What an UMR changes. PRM "UMR Control Segment".
    pub struct UmrCtrlSeg: 0x30, "mlx5_wqe_umr_ctrl_seg" {
        /// The list lies in the WQE.
        0x00 [31] inline: bool,
        /// What the key's state must be, see [`UmrCheck`].
        0x00 [30:29] check_free: u8 as UmrCheck,
        /// The list starts at `xlt_offset`.
        0x00 [28] translation_offset_en: bool,
        /// The key must be the queue pair's own.
        0x00 [27] check_qpn: bool,
        /// Size of the list, in units of 16 bytes.
        0x04 [31:16] xlt_octowords: u16,
        /// Offset of the list in the key's, in units of 16 bytes; without `translation_offset_en` the size of the BSF.
        0x04 [15:0] xlt_offset: u16,
        /// Which fields of the context are changed, see [`mkey_mask`].
        0x08 [63:0] mkey_mask: u64,
        0x10 [31:0] xlt_offset_47_16: u32,
    }

    /// Where an UMR's list lies, when it is not inline. PRM `umr_pointer_desc_argument`.
    pub struct UmrPointerDescArgument: 0x10, "mlx5_ifc_umr_pointer_desc_argument_bits" {
        0x04 [31:0] mkey: u32,
        0x08 [31:0] addressh_63_32: u32,
        0x0c [31:0] addressl_31_0: u32,
    }

    /// A piece of another key, of the length all have. PRM `ksm`.
    pub struct Ksm: 0x10, "mlx5_ksm" {
        0x04 [31:0] key: u32,
        0x08 [63:0] va: u64,
    }

    /// Interleaved memory: entries that take turns. PRM "Repeat Block Segment".
    pub struct RepeatBlockSeg: 0x10, "mlx5_stride_block_ctrl_seg" {
        /// Bytes of one turn of all entries.
        0x00 [31:0] bcount_per_cycle: u32,
        /// 0x400: repeat.
        0x04 [31:0] op: u32,
        0x08 [31:0] repeat_count: u32,
        0x0c [15:0] num_entries: u16,
        .. entries: [RepeatEntry],
    }

    /// One entry of a [`RepeatBlockSeg`]. PRM "Repeat Block Entry".
    pub struct RepeatEntry: 0x10, "mlx5_stride_block_entry" {
        /// Bytes from one turn to the next.
        0x00 [31:16] stride: u16,
        /// Bytes taken in a turn.
        0x00 [15:0] bcount: u16,
        0x04 [31:0] key: u32,
        0x08 [63:0] va: u64,
    }

    /// Fast registration, from before UMR. PRM "Fast Register Segment".
    pub struct FastRegisterSeg: 0x30, "mlx5_wqe_fmr_seg" {
        0x00 [31] atomic: bool,
        0x00 [30] remote_write: bool,
        0x00 [29] remote_read: bool,
        0x00 [28] local_write: bool,
        0x00 [27] local_read: bool,
        0x04 [31:0] mem_key: u32,
        0x08 [63:0] buf_list: u64,
        0x10 [63:0] start_addr: u64,
        0x18 [63:0] reg_len: u64,
        0x20 [31:0] offset: u32,
        0x24 [31:0] page_size: u32,
    }
}

values! {
    /// What state an UMR expects its key in. PRM "UMR Control Segment", `check_free`.
    pub enum UmrCheck: 2 {
        /// Any.
        None = 0 "NONE",
        /// Free: fails if it is not free.
        NotFree = 1 "NOT_FREE",
        /// In use: fails if it is free.
        Free = 2 "FREE",
    }

    /// A bit of `mkey_mask`: which part of a key an UMR changes. PRM "UMR Control Segment", `mkey_mask`.
    pub enum MkeyMaskBit: 6 {
        /// `len`.
        Len = 0 "LEN",
        /// `log_page_size`.
        PageSize = 1 "PAGE_SIZE",
        /// `start_addr`.
        StartAddr = 6 "START_ADDR",
        /// `pd`.
        Pd = 7 "PD",
        /// `en_rinval`.
        EnRinval = 8 "EN_RINVAL",
        /// Whether errors of signatures are counted.
        EnSigerr = 9 "EN_SIGERR",
        /// `bsf_en`.
        BsfEn = 12 "BSF_EN",
        /// `mkey_7_0`.
        Key = 13 "KEY",
        /// `qpn`.
        Qpn = 14 "QPN",
        /// `lr`.
        LocalRead = 17 "LR",
        /// `lw`.
        LocalWrite = 18 "LW",
        /// `rr`.
        RemoteRead = 19 "RR",
        /// `rw`.
        RemoteWrite = 20 "RW",
        /// `a`.
        Atomic = 21 "A",
        /// `small_fence_on_rdma_read_response`.
        SmallFence = 23 "SMALL_FENCE",
        /// `relaxed_ordering_write`.
        RelaxedOrderingWrite = 25 "RELAXED_ORDERING_WRITE",
        /// `free`.
        Free = 29 "FREE",
        /// The sixth bit of `log_page_size`.
        PageSize5 = 42 "PAGE_SIZE_5",
        /// `relaxed_ordering_read`.
        RelaxedOrderingRead = 47 "RELAXED_ORDERING_READ",
    }
}

/// The `mkey_mask` of these parts.
pub const fn mkey_mask(parts: &[MkeyMaskBit]) -> u64 {
    let (mut mask, mut i) = (0, 0);
    while i < parts.len() {
        mask |= 1u64.unbounded_shl(parts[i].number());
        i += 1;
    }
    mask
}
