//! Shared receive queue contexts.

layout! {
    /// Shared receive queue context. PRM `srqc`.
    pub struct Srqc: 0x40, "mlx5_ifc_srqc_bits" {
        0x00 [31:28] state: SrqState,
        0x00 [27:24] log_srq_size: u8,
        0x04 [31] wq_signature: bool,
        0x04 [30] cont_srq: bool,
        0x04 [28] rlky: bool,
        0x04 [26:24] log_rq_stride: u8,
        0x04 [23:0] xrcd: u32,
        0x08 [31:26] page_offset: u8,
        0x08 [23:0] cqn: u32,
        0x10 [29:24] log_page_size: u8,
        0x18 [23:0] pd: u32,
        0x1c [31:16] lwm: u16,
        0x1c [15:0] wqe_cnt: u16,
        0x28 [63:0] dbr_addr: u64,
    }

    /// Shared receive queue context of an XRC domain. PRM `xrc_srqc`.
    pub struct XrcSrqc: 0x40, "mlx5_ifc_xrc_srqc_bits" {
        0x00 [31:28] state: SrqState,
        0x00 [27:24] log_xrc_srq_size: u8,
        0x04 [31] wq_signature: bool,
        0x04 [30] cont_srq: bool,
        0x04 [28] rlky: bool,
        0x04 [27] basic_cyclic_rcv_wqe: bool,
        0x04 [26:24] log_rq_stride: u8,
        0x04 [23:0] xrcd: u32,
        0x08 [31:26] page_offset: u8,
        0x08 [24] dbr_umem_valid: bool,
        0x08 [23:0] cqn: u32,
        0x10 [31] user_index_equal_xrc_srqn: bool,
        0x10 [29:24] log_page_size: u8,
        0x10 [23:0] user_index: u32,
        0x18 [23:0] pd: u32,
        0x1c [31:16] lwm: u16,
        0x1c [15:0] wqe_cnt: u16,
        0x28 [31:0] db_record_addr_h: u32,
        0x2c [31:2] db_record_addr_l: u32,
    }
}

values! {
    /// Health of a shared receive queue. PRM `srqc.state`, `xrc_srqc.state`.
    pub enum SrqState: 4 {
        /// Healthy.
        Good = 0 "GOOD",
        /// Error.
        Error = 1 "ERROR",
    }
}
