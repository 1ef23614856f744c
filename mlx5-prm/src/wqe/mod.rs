//! Work queue entries: the 16-byte segments they are made of. PRM "Work Request (WQE) Formats".
//!
//! A send WQE takes whole 64-byte blocks (WQEBBs) of its ring and starts with a [`CtrlSeg`]; `ds` counts its segments
//! of 16 bytes. What follows depends on the opcode and on the queue's service:
//!
//! | opcode | segments after the control segment |
//! | --- | --- |
//! | `NOP` | none |
//! | `SEND`, `SEND_IMM`, `SEND_INVAL` | data, inline or by [`DataSeg`] |
//! | the same, datagram or dynamically connected | [`UdAdrsVector`] or [`BaseAv`], then data |
//! | the same, XRC | [`XrcSeg`], then data |
//! | the same, raw packets; `LSO` | [`EthSeg`] and the headers it inlines, then data |
//! | `ENHANCED_MPSW` | [`EthSeg`], then a [`DataSeg`] or an [`InlineSegHeader`] with its packet, for each packet |
//! | `RDMA_WRITE`, `RDMA_WRITE_IMM`, `RDMA_READ` | [`RaddrSeg`], then data |
//! | `ATOMIC_CS`, `ATOMIC_FA` | [`RaddrSeg`], [`AtomicSeg`], one [`DataSeg`] |
//! | `ATOMIC_MASKED_CS`, `ATOMIC_MASKED_FA` | [`RaddrSeg`], [`MaskedAtomicSeg`], one [`DataSeg`] |
//! | `UMR` | [`UmrCtrlSeg`], [`Mkc`](crate::ctx::Mkc), a list; or [`TlsStaticParams`] in place of the key |
//! | `SET_PSV` | [`SetPsvSeg`], or [`TlsProgressSeg`]; `GET_PSV`: [`GetPsvSeg`]; `CHECK_PSV`: [`CheckPsvSeg`] |
//! | `DUMP` | one [`DataSeg`] |
//! | `WAIT` | [`WaitCqSeg`] or [`WaitSeg`] by [`WaitOpmod`]; `SEND_EN`: [`SendEnableSeg`] |
//! | `MMO` | [`MmoMetadataSeg`], two [`DataSeg`]s |
//! | `TAG_MATCHING` | [`TagMatchingSeg`], then data |
//! | `FLOW_TBL_ACCESS` | [`SteCtrlSeg`], [`SteDataSeg`]; or [`FlowUpdateCtrlSeg`], [`HeaderModifyArgumentUpdateSeg`], by [`FlowTblAccessOpmod`] |
//! | `ACCESS_ASO` | [`AsoCtrlSeg`]; [`IpsecAso`](crate::obj::IpsecAso), [`MacsecAso`](crate::obj::MacsecAso) or two [`FlowMeterParameters`](crate::obj::FlowMeterParameters), by [`AsoOpmod`] |
//! | `BIND_MW`, `LOCAL_INVAL`, `CONFIG_CMD`, `RGET_PSV`, `RCHECK_PSV` | numbers alone are public: no driver sends them |
//!
//! The segment of an XRC or dynamically connected queue pair comes before the [`RaddrSeg`]. A receive WQE consists of
//! [`DataSeg`]s, after a [`SrqNextSeg`] in a linked list, and after a [`SignatureSeg`] if WQEs are signed.

use crate::layout::files::files;

files! {
    data: layouts;
    engine: layouts values;
    ethernet: layouts values;
    remote: layouts;
    signature: layouts values;
    tls: layouts values;
    umr: layouts values;
}

/// Bytes of a WQE building block, the unit of a send ring.
pub const WQEBB: usize = 64;
/// Bytes of a segment, the unit of `ds`.
pub const SEGMENT: usize = 16;
/// The `lkey` that ends a receive WQE's list of data segments early.
pub const LKEY_INVALID: u32 = 0x100;

layout! {
    /// First segment of each send WQE. PRM "Control Segment". Its first eight bytes are also written to the doorbell.
    pub struct CtrlSeg: 0x10, "mlx5_wqe_ctrl_seg" {
        0x00 [31:24] opmod: u8,
        0x00 [23:8] wqe_index: u16,
        0x00 [7:0] opcode: WqeOpcode,
        0x04 [31:8] qp_or_sq: u32,
        0x04 [5:0] ds: u8,
        0x08 [31:24] signature: u8,
        /// Stream of a dynamically connected initiator.
        0x08 [23:8] dci_stream_channel_id: u16,
        /// Fence mode, see [`Fence`].
        0x08 [7:5] fm: Fence,
        /// When a completion is written, see [`CompletionMode`].
        0x08 [3:2] ce: CompletionMode,
        /// Solicited event.
        0x08 [1] se: bool,
        /// Immediate data, or the key to invalidate.
        0x0c [31:0] imm: u32,
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
        /// Wait.
        Wait = 0x0f "WAIT",
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
        /// Let another queue send.
        SendEnable = 0x17 "SEND_EN",
        /// Bind a memory window.
        BindMw = 0x18 "BIND_MW",
        /// Fast registration.
        FastRegister = 0x19 "FMR",
        /// Invalidate a local key.
        LocalInval = 0x1b "LOCAL_INVAL",
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
        /// Change the list of a queue with tag matching.
        TagMatching = 0x28 "TAG_MATCHING",
        /// Enhanced multi-packet send.
        EnhancedMpsw = 0x29 "ENHANCED_MPSW",
        /// Write a flow table.
        FlowTblAccess = 0x2c "FLOW_TBL_ACCESS",
        /// Access an advanced steering operation object.
        AccessAso = 0x2d "ACCESS_ASO",
        /// Memory to memory operation, of the engine that `opmod` names ([`MmoOpmod`]).
        Mmo = 0x2f "MMO",
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

    /// Whose TLS parameters: `opmod` of [`WqeOpcode::Umr`], [`WqeOpcode::SetPsv`] and [`WqeOpcode::GetPsv`].
    pub enum TlsOpmod: 8 {
        /// Of a TIS.
        Tis = 0x1 "TLS_TIS",
        /// Of a TIR.
        Tir = 0x2 "TLS_TIR",
    }
}
