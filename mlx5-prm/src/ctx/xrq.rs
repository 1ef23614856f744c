//! Extended shared receive queue context.

use super::Wq;

layout! {
    /// Extended shared receive queue context: one that matches tags, or offloads a protocol. PRM `xrqc`.
    pub struct Xrqc: 0x140, "mlx5_ifc_xrqc_bits" {
        0x00 [31:28] state: XrqState,
        0x00 [27] rlkey: bool,
        0x00 [11:8] topology: XrqTopology,
        0x00 [3:0] offload: XrqOffload,
        0x04 [23:0] user_index: u32,
        0x08 [23:0] cqn: u32,
        0x20 tag_matching_topology_context: TagMatchingTopologyContext,
        0x80 wq: Wq,
    }

    /// How an extended shared receive queue matches tags. PRM `tag_matching_topology_context`.
    pub struct TagMatchingTopologyContext: 0x10, "mlx5_ifc_tag_matching_topology_context_bits" {
        0x00 [31:28] log_matching_list_sz: u8,
        0x00 [15:0] append_next_index: u16,
        0x04 [31:16] sw_phase_cnt: u16,
        0x04 [15:0] hw_phase_cnt: u16,
    }
}

values! {
    /// Health of an extended shared receive queue. PRM `xrqc.state`.
    pub enum XrqState: 4 {
        /// Healthy.
        Good = 0 "GOOD",
        /// Error.
        Error = 1 "ERROR",
    }

    /// What an extended shared receive queue matches. PRM `xrqc.topology`.
    pub enum XrqTopology: 4 {
        /// Nothing.
        None = 0 "NO_SPECIAL_TOPOLOGY",
        /// Tags.
        TagMatching = 1 "TAG_MATCHING",
    }

    /// What an extended shared receive queue does by itself. PRM `xrqc.offload`.
    pub enum XrqOffload: 4 {
        /// Rendezvous.
        Rndv = 1 "RNDV",
    }
}
