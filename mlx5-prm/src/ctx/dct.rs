//! Dynamically connected target context.

use super::AtomicMode;
use crate::values::PathMtu;

layout! {
    /// Dynamically connected target context. PRM `dctc`.
    pub struct Dctc: 0x40, "mlx5_ifc_dctc_bits" {
        0x00 [27:24] state: DctState,
        /// As [`Qpc::data_in_order`](super::Qpc::data_in_order).
        0x00 [2] data_in_order: bool,
        0x04 [24] dp_ordering_force: bool,
        0x04 [23:0] user_index: u32,
        0x08 [23:0] cqn: u32,
        0x0c [31:24] counter_set_id: u8,
        0x0c [23:20] atomic_mode: AtomicMode,
        0x0c [19] rre: bool,
        0x0c [18] rwe: bool,
        0x0c [17] rae: bool,
        0x0c [16] atomic_like_write_en: bool,
        0x0c [15] latency_sensitive: bool,
        0x0c [14] rlky: bool,
        /// Connections open by a handshake, whatever the initiator asks for. UCX's header names it
        /// `force_full_handshake`.
        0x0c [13] free_ar: bool,
        0x0c [11] dp_ordering_1: bool,
        0x10 [23:16] cs_res: u8,
        0x10 [12:8] min_rnr_nak: u8,
        0x14 [23:0] srqn_xrqn: u32,
        0x18 [23:0] pd: u32,
        0x1c [31:24] tclass: u8,
        0x1c [19:0] flow_label: u32,
        0x20 [63:0] dc_access_key: u64,
        0x28 [26:24] mtu: PathMtu,
        0x28 [23:16] port: u8,
        0x28 [15:0] pkey_index: u16,
        0x2c [23:16] my_addr_index: u8,
        0x2c [7:0] hop_limit: u8,
        0x30 [31:0] dc_access_key_violation_count: u32,
        0x34 [11] dei_cfi: bool,
        0x34 [10:8] eth_prio: u8,
        0x34 [7:6] ecn: u8,
        0x34 [5:0] dscp: u8,
        0x3c [31:0] ece: u32,
    }
}

values! {
    /// State of a dynamically connected target. PRM `dctc.state`.
    pub enum DctState: 4 {
        /// Takes messages.
        Active = 0 "ACTIVE",
        /// Is being drained.
        Draining = 1 "DRAINING",
        /// Drained: may be destroyed.
        Drained = 2 "DRAINED",
    }
}
