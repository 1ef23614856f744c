//! WQEs for the card's own engines: waiting, memory to memory operations, steering.

use crate::layout::Be32;

layout! {
    /// Waits until a completion queue has come to an index, with [`WaitOpmod::CqPi`]. PRM "Wait Segment".
    pub struct WaitCqSeg: 0x10, "none" {
        0x08 [31:0] max_index: u32,
        0x0c [23:0] cqn: u32,
    }

    /// Lets another queue send as far as an index. PRM "Send Enable Segment".
    pub struct SendEnableSeg: 0x10, "none" {
        0x08 [31:0] sq_pi: u32,
        0x0c [23:0] qpn: u32,
    }

    /// Waits for a number in memory, or for the time. PRM "Wait on Data Segment".
    pub struct WaitSeg: 0x20, "none" {
        0x00 [4] invert: bool,
        0x00 [3:0] operation: u8 as WaitCondition,
        0x04 [31:0] lkey: u32,
        /// Address of the number; bit 0 asks that it is read only when needed.
        0x08 [63:0] va: u64,
        /// What to compare it with; the time to wait for.
        0x10 [63:0] value: u64,
        /// Bits of both that are compared.
        0x18 [63:0] mask: u64,
    }

    /// What a memory to memory operation (DMA, compression, regular expressions, encryption) shall do; two
    /// [`DataSeg`](super::DataSeg)s follow, source and destination. PRM "MMO Metadata Segment".
    pub struct MmoMetadataSeg: 0x10, "none" {
        /// The lower half; the upper is `imm` of the control segment.
        0x00 [31:0] mmo_control_31_0: u32,
        /// Memory for what the operation reports.
        0x04 [31:0] local_key: u32,
        0x08 [63:0] local_address: u64,
    }

    /// Changes or reads an advanced steering operation's object: a flow meter, IPsec's or MACsec's counters. PRM "ASO
    /// Control Segment".
    pub struct AsoCtrlSeg: 0x30, "none" {
        /// Where the object's 64 bytes are read to.
        0x00 [31:0] va_h: u32,
        0x04 [31:3] va_l: u32,
        0x04 [0] read_enable: bool,
        0x08 [31:0] l_key: u32,
        0x0c [31:30] data_mask_mode: u8 as AsoDataMask,
        0x0c [23:20] condition_1_operand: u8 as AsoCondition,
        0x0c [19:16] condition_0_operand: u8 as AsoCondition,
        0x0c [15:8] condition_1_0_offset: u8,
        /// 0: both conditions must hold, 1: one of them.
        0x0c [7:6] condition_operand: u8,
        0x0c [5:0] data_offset: u8,
        0x10 [31:0] condition_0_data: u32,
        0x14 [31:0] condition_0_mask: u32,
        0x18 [31:0] condition_1_data: u32,
        0x1c [31:0] condition_1_mask: u32,
        0x20 [63:0] bitwise_data: u64,
        0x28 [63:0] data_mask: u64,
    }

    /// Writes an entry of a flow table. PRM "Flow Update Control Segment".
    pub struct FlowUpdateCtrlSeg: 0x30, "mlx5_wqe_flow_update_ctrl_seg" {
        0x00 [31:0] flow_idx_update: u32,
        0x04 [31:0] dest_handle: u32,
    }

    /// Activates or takes away an entry of hardware steering (a rule). PRM "Flow Update Control Segment", of a steering
    /// table entry; the kernel's `mlx5hws_wqe_gta_ctrl_seg`.
    pub struct SteCtrlSeg: 0x30, "none" {
        0x00 [31:28] op: SteOperation,
        0x00 [27:0] direct_index: u32,
        /// The STCs that the entry's actions are: the first decides what the tables' action slots do.
        0x04 stc_index: [Be32; 5],
    }

    /// What such an entry matches and does. PRM "Flow Update Data Segment", of a steering table entry; the kernel's
    /// `mlx5hws_wqe_gta_data_seg_ste`. A jumbo tag takes the actions' place too.
    pub struct SteDataSeg: 0x40, "none" {
        0x00 [31:0] counter_id: u32,
        0x04 [31:8] definer_id: u32,
        0x14 action: [Be32; 3],
        0x20 tag: [Be32; 8],
    }

    /// Writes a modify header argument. PRM "Header Modify Argument Update Segment".
    pub struct HeaderModifyArgumentUpdateSeg: 0x40, "mlx5_wqe_header_modify_argument_update_seg" {
        0x00 argument_list: [u8; 64],
    }
}

values! {
    /// What is written: `opmod` of [`WqeOpcode::FlowTblAccess`](super::WqeOpcode::FlowTblAccess).
    pub enum FlowTblAccessOpmod: 8 {
        /// A steering table entry.
        Ste = 0 "STE",
        /// An argument of header changes.
        HeaderModifyArgument = 1 "MOD_ARG",
    }

    /// What becomes of a steering table entry. PRM "Flow Update Control Segment", `op`.
    pub enum SteOperation: 4 {
        /// It is written.
        Activate = 0 "ACTIVATE",
        /// It is taken away.
        Deactivate = 1 "DEACTIVATE",
    }

    /// What to wait for: `opmod` of [`WqeOpcode::Wait`](super::WqeOpcode::Wait).
    pub enum WaitOpmod: 8 {
        /// A completion queue's producer index.
        CqPi = 0 "CQ_PI",
        /// A number in memory.
        Data = 1 "DATA",
        /// The time.
        Time = 2 "TIME",
    }

    /// When a wait ends: what the `value` of its segment must be, compared with the number or the time. PRM "Wait on
    /// Data Segment", `operation`.
    pub enum WaitCondition: 4 {
        /// At once.
        AlwaysTrue = 0 "ALWAYS_TRUE",
        /// Equal.
        Equal = 1 "EQUAL",
        /// Greater.
        Bigger = 2 "BIGGER",
        /// Less.
        Smaller = 3 "SMALLER",
        /// Greater, where the number wraps.
        CyclicBigger = 4 "CYCLIC_BIGGER",
        /// Less, where the number wraps.
        CyclicSmaller = 5 "CYCLIC_SMALLER",
    }

    /// Which engine: `opmod` of [`WqeOpcode::Mmo`](super::WqeOpcode::Mmo).
    pub enum MmoOpmod: 8 {
        /// Copy.
        Dma = 1 "DMA",
        /// Compress.
        Compress = 2 "COMP",
        /// Decompress.
        Decompress = 3 "DECOMP",
        /// Regular expressions.
        Regex = 4 "REGEX",
        /// Encrypt or decrypt.
        Crypto = 6 "CRYPTO",
    }

    /// Which object: `opmod` of [`WqeOpcode::AccessAso`](super::WqeOpcode::AccessAso).
    pub enum AsoOpmod: 8 {
        /// IPsec.
        Ipsec = 0 "IPSEC",
        /// Flow meter.
        FlowMeter = 2 "FLOW_METER",
        /// MACsec.
        Macsec = 5 "MACSEC",
    }

    /// How the change of an object is masked. PRM "ASO Control Segment", `data_mask_mode`.
    pub enum AsoDataMask: 2 {
        /// By bit, in 8 bytes.
        Bitwise64Bit = 0 "BITWISE_64BIT",
        /// By byte, in all 64.
        Bytewise64Byte = 1 "BYTEWISE_64BYTE",
        /// Calculated, over all 64.
        Calculated64Byte = 2 "CALCULATED_64BYTE",
    }

    /// When an object is changed. PRM "ASO Control Segment", condition operands.
    pub enum AsoCondition: 4 {
        /// Never.
        AlwaysFalse = 0 "ALWAYS_FALSE",
        /// Always.
        AlwaysTrue = 1 "ALWAYS_TRUE",
        /// Equal.
        Equal = 2 "EQUAL",
        /// Not equal.
        NotEqual = 3 "NOT_EQUAL",
        /// Greater or equal.
        GreaterOrEqual = 4 "GREATER_OR_EQUAL",
        /// Less or equal.
        LesserOrEqual = 5 "LESSER_OR_EQUAL",
        /// Less.
        Lesser = 6 "LESSER",
        /// Greater.
        Greater = 7 "GREATER",
        /// Greater, where the number wraps.
        CyclicGreater = 8 "CYCLIC_GREATER",
        /// Less, where the number wraps.
        CyclicLesser = 9 "CYCLIC_LESSER",
    }
}
