//! Segments that name local memory, and receive WQEs, which are made of them.

layout! {
    /// One scatter/gather element. PRM "Memory Data Segment".
    pub struct DataSeg: 0x10, "mlx5_wqe_data_seg" {
        0x00 [31:0] byte_count: u32,
        0x04 [31:0] lkey: u32,
        0x08 [63:0] addr: u64,
    }

    /// Starts data that lies in the WQE itself. PRM "Inline Data Segment".
    pub struct InlineSegHeader: 0x4, "mlx5_wqe_inline_seg" {
        /// Always 1: distinguishes it from a [`DataSeg`].
        0x00 [31] inline: bool = true,
        0x00 [9:0] byte_count: u16,
    }

    /// First segment of each WQE of a linked list of receives: of a shared receive queue, or of a striding one. PRM
    /// "SRQ WQE".
    pub struct SrqNextSeg: 0x10, "mlx5_wqe_srq_next_seg" {
        0x00 [15:0] next_wqe_index: u16,
        0x04 [31:24] signature: u8,
    }

    /// WQE of a striding receive queue: one buffer, which the card cuts into strides. PRM "Striding RQ". Only a linked
    /// list uses the link; a cyclic queue has room for it, too.
    pub struct StridingWqe: 0x20, "mlx5_mprq_wqe" {
        0x00 next: SrqNextSeg,
        0x10 data: DataSeg,
    }
}
