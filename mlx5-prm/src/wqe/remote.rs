//! Segments that name the other side: its memory, its operands, its queue.

layout! {
    /// Remote address of an RDMA operation. PRM "Remote Address Segment".
    pub struct RaddrSeg: 0x10, "mlx5_wqe_raddr_seg" {
        0x00 [63:0] raddr: u64,
        0x08 [31:0] rkey: u32,
    }

    /// Operands of an atomic operation. PRM "Atomic Segment".
    pub struct AtomicSeg: 0x10, "mlx5_wqe_atomic_seg" {
        0x00 [63:0] swap_add: u64,
        0x08 [63:0] compare: u64,
    }

    /// Operands of a masked atomic operation of eight bytes. PRM "Extended Atomic Segment".
    ///
    /// A masked fetch and add has `swap_add` and, in place of `compare`, the mask of field boundaries; it ends there.
    pub struct MaskedAtomicSeg: 0x20, "mlx5_wqe_masked_atomic_seg" {
        0x00 [63:0] swap_add: u64,
        0x08 [63:0] compare: u64,
        0x10 [63:0] swap_add_mask: u64,
        0x18 [63:0] compare_mask: u64,
    }

    /// The shared receive queue an XRC message is for. PRM "XRC Segment".
    pub struct XrcSeg: 0x10, "mlx5_wqe_xrc_seg" {
        0x00 [23:0] xrc_srqn: u32,
    }

    /// Where a datagram, or a message to a dynamically connected target, goes: the datagram segment. PRM
    /// `ud_adrs_vector`.
    pub struct UdAdrsVector: 0x30, "mlx5_ifc_ud_adrs_vector_bits" {
        /// The target's access key; of a datagram the Q_Key, in bits 63:32.
        0x00 [63:0] dc_key: u64,
        /// The vector has all its 48 bytes; else it is a [`BaseAv`].
        0x08 [31] ext: bool,
        0x08 [23:0] destination_qp_dct: u32,
        0x0c [31:28] static_rate: u8,
        0x0c [27:24] sl_eth_prio: u8,
        /// Loop back what goes to the port's own address.
        0x0c [23] fl: bool,
        0x0c [22:16] mlid: u8,
        0x0c [15:0] rlid_udp_sport: u16,
        0x14 [31:0] rmac_47_16: u32,
        0x18 [31:16] rmac_15_0: u16,
        0x18 [15:8] tclass: u8,
        0x18 [7:0] hop_limit: u8,
        0x1c [30] grh: bool,
        0x1c [27:20] src_addr_index: u8,
        0x1c [19:0] flow_label: u32,
        0x20 rgid_rip: [u8; 16],
    }

    /// The first 16 bytes of a [`UdAdrsVector`], where no GRH is needed. PRM "Compact address vector".
    pub struct BaseAv: 0x10, "mlx5_base_av" {
        0x00 [63:0] dc_key: u64,
        /// 0: the vector ends here.
        0x08 [31] ext: bool,
        0x08 [23:0] destination_qp_dct: u32,
        0x0c [31:28] static_rate: u8,
        0x0c [27:24] sl_eth_prio: u8,
        0x0c [23] fl: bool,
        0x0c [22:16] mlid: u8,
        0x0c [15:0] rlid_udp_sport: u16,
    }

    /// Adds a tag to, or removes one from, the list of a queue with tag matching. PRM "Tag Matching Segment".
    pub struct TagMatchingSeg: 0x20, "mlx5_wqe_tm_seg" {
        0x00 [31:24] opcode: u8,
        0x00 [23:16] flags: u8,
        0x00 [15:0] index: u16,
        0x04 [15:0] sw_cnt: u16,
        0x10 [63:0] append_tag: u64,
        0x18 [63:0] append_mask: u64,
    }
}
