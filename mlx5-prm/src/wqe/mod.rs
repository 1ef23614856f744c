//! Work queue entries: the 16-byte segments they are made of. PRM "Work Request (WQE) Formats".
//!
//! A send WQE takes whole 64-byte blocks (WQEBBs) of its ring and starts with a [`CtrlSeg`]; `ds` counts its segments of
//! 16 bytes. A receive WQE is [`DataSeg`]s alone.

use crate::registry::files;

files! {
    ethernet: layouts values;
}

/// Bytes of a WQE building block, the unit of a send ring.
pub const WQEBB: usize = 64;
/// Bytes of a segment, the unit of `ds`.
pub const SEGMENT: usize = 16;
/// The `lkey` that ends a receive WQE's list of data segments early.
pub const LKEY_INVALID: u32 = 0x100;

layout! {
    /// First segment of each send WQE. PRM "Control Segment". Its first eight bytes are also what rings the doorbell.
    pub struct CtrlSeg: 0x10, "mlx5_wqe_ctrl_seg" {
        0x00 [31:24] opmod: u8,
        0x00 [23:8] wqe_index: u16,
        0x00 [7:0] opcode: WqeOpcode,
        0x04 [31:8] qp_or_sq: u32,
        0x04 [5:0] ds: u8,
        0x08 [31:24] signature: u8,
        /// Fence mode, see [`Fence`].
        0x08 [7:5] fm: Fence,
        /// When a completion is written, see [`CompletionMode`].
        0x08 [3:2] ce: CompletionMode,
        /// Solicited event.
        0x08 [1] se: bool,
        /// Immediate data, or the key to invalidate.
        0x0c [31:0] imm: u32,
    }

    /// Remote address of an RDMA operation. PRM "Remote Address Segment".
    pub struct RaddrSeg: 0x10, "mlx5_wqe_raddr_seg" {
        0x00 [63:0] raddr: u64,
        0x08 [31:0] rkey: u32,
    }

    /// One scatter/gather element. PRM "Memory Data Segment".
    pub struct DataSeg: 0x10, "mlx5_wqe_data_seg" {
        0x00 [31:0] byte_count: u32,
        0x04 [31:0] lkey: u32,
        0x08 [63:0] addr: u64,
    }

    /// Starts data that lies in the WQE itself. PRM "Inline Data Segment".
    pub struct InlineSegHeader: 0x4, "mlx5_wqe_inline_seg" {
        /// Always 1: tells it from a [`DataSeg`].
        0x00 [31] inline: bool = true,
        0x00 [9:0] byte_count: u16,
    }

    /// Operands of an atomic operation. PRM "Atomic Segment".
    pub struct AtomicSeg: 0x10, "mlx5_wqe_atomic_seg" {
        0x00 [63:0] swap_add: u64,
        0x08 [63:0] compare: u64,
    }

    /// First segment of each shared receive queue's WQE. PRM "SRQ WQE".
    pub struct SrqNextSeg: 0x10, "mlx5_wqe_srq_next_seg" {
        0x00 [15:0] next_wqe_index: u16,
        0x04 [31:24] signature: u8,
    }
}

values! {
    /// What a send WQE asks for. PRM "Send WQE opcodes".
    pub enum WqeOpcode: 8 {
        /// Nothing.
        Nop = 0x00 "NOP",
        /// Send, and invalidate the remote key.
        SendInval = 0x01 "SEND_INVAL",
        /// RDMA write.
        RdmaWrite = 0x08 "RDMA_WRITE",
        /// RDMA write with immediate.
        RdmaWriteImm = 0x09 "RDMA_WRITE_IMM",
        /// Send.
        Send = 0x0a "SEND",
        /// Send with immediate.
        SendImm = 0x0b "SEND_IMM",
        /// Large send offload.
        Lso = 0x0e "LSO",
        /// RDMA read.
        RdmaRead = 0x10 "RDMA_READ",
        /// Atomic compare and swap.
        AtomicCs = 0x11 "ATOMIC_CS",
        /// Atomic fetch and add.
        AtomicFa = 0x12 "ATOMIC_FA",
        /// Masked compare and swap.
        AtomicMaskedCs = 0x14 "ATOMIC_MASKED_CS",
        /// Masked fetch and add.
        AtomicMaskedFa = 0x15 "ATOMIC_MASKED_FA",
        /// Bind a memory window.
        BindMw = 0x18 "BIND_MW",
        /// Configuration.
        ConfigCmd = 0x1f "CONFIG_CMD",
        /// Set a protection signature value.
        SetPsv = 0x20 "SET_PSV",
        /// Get a protection signature value.
        GetPsv = 0x21 "GET_PSV",
        /// Check a protection signature value.
        CheckPsv = 0x22 "CHECK_PSV",
        /// Send the payload of a TLS record again.
        Dump = 0x23 "DUMP",
        /// User memory region update.
        Umr = 0x25 "UMR",
        /// Get a protection signature value, remote.
        RgetPsv = 0x26 "RGET_PSV",
        /// Check a protection signature value, remote.
        RcheckPsv = 0x27 "RCHECK_PSV",
        /// Enhanced multi-packet send.
        EnhancedMpsw = 0x29 "ENHANCED_MPSW",
        /// Write a flow table.
        FlowTblAccess = 0x2c "FLOW_TBL_ACCESS",
        /// Access an advanced steering operation object.
        AccessAso = 0x2d "ACCESS_ASO",
    }

    /// Fence mode of a WQE. PRM "Control Segment", `fm`.
    pub enum Fence: 3 {
        /// None.
        None = 0 "NONE",
        /// Initiator small fence: wait for local invalidations.
        InitiatorSmall = 1 "INITIATOR_SMALL",
        /// Fence: wait for all earlier reads and atomics.
        Fence = 2 "FENCE",
        /// Strong ordering.
        StrongOrdering = 3 "STRONG_ORDERING",
        /// Fence and initiator small fence.
        FenceAndInitiatorSmall = 4 "FENCE_AND_INITIATOR_SMALL",
    }

    /// When a WQE writes a completion. PRM "Control Segment", `ce`.
    pub enum CompletionMode: 2 {
        /// Only when it fails.
        OnError = 0 "CQE_ON_CQE_ERROR",
        /// On the first error.
        OnFirstError = 1 "CQE_ON_FIRST_CQE_ERROR",
        /// Always.
        Always = 2 "CQE_ALWAYS",
        /// Always, and an event.
        AlwaysAndEvent = 3 "CQE_AND_EQE",
    }
}
