//! Transport interface receive context.

use crate::layout::Be32;

layout! {
    /// Transport interface receive context: where packets go, straight to one receive queue or spread by a hash. PRM
    /// `tirc`.
    pub struct Tirc: 0xf0, "mlx5_ifc_tirc_bits" {
        0x04 [31:28] disp_type: TirDispType,
        0x04 [27] tls_en: bool,
        /// Microseconds, one of `lro_timer_supported_periods`.
        0x10 [27:12] lro_timeout_period_usecs: u16,
        /// Which packets are joined: [`MERGE_IPV4_LRO`], [`MERGE_IPV6_LRO`].
        0x10 [11:8] packet_merge_mask: u8,
        /// Largest joined packet, in units of [`LRO_SIZE_UNIT`]; `lro_max_msg_sz_mode` says from which header on.
        0x10 [7:0] lro_max_ip_payload_size: u8,
        0x1c [23:0] inline_rqn: u32,
        0x20 [31] rx_hash_symmetric: bool,
        0x20 [29] tunneled_offload_en: bool,
        0x20 [23:0] indirect_table: u32,
        0x24 [31:28] rx_hash_fn: RxHashFn,
        0x24 [25:24] self_lb_block: u8,
        0x24 [23:0] transport_domain: u32,
        0x28 rx_hash_toeplitz_key: [Be32; 10],
        0x50 rx_hash_field_selector_outer: RxHashFieldSelect,
        0x54 rx_hash_field_selector_inner: RxHashFieldSelect,
    }

    /// What of a packet the hash is made of. PRM `rx_hash_field_select`.
    pub struct RxHashFieldSelect: 0x4, "mlx5_ifc_rx_hash_field_select_bits" {
        0x00 [31] l3_prot_type: L3ProtType,
        0x00 [30] l4_prot_type: L4ProtType,
        0x00 [29:0] selected_fields: u32,
    }

    /// Which fields of the context `MODIFY_TIR` changes. PRM `modify_tir_bitmask`.
    pub struct ModifyTirBitmask: 0x8, "mlx5_ifc_modify_tir_bitmask_bits" {
        0x04 [4] self_lb_en: bool,
        0x04 [2] hash: bool,
        0x04 [0] packet_merge: bool,
    }
}

/// `tirc.packet_merge_mask`: large receive offload of TCP over IPv4. PRM `tirc.lro_enable_mask`.
pub const MERGE_IPV4_LRO: u8 = 1 << 0;
/// `tirc.packet_merge_mask`: large receive offload of TCP over IPv6. PRM `tirc.lro_enable_mask`.
pub const MERGE_IPV6_LRO: u8 = 1 << 1;
/// Bytes that `tirc.lro_max_ip_payload_size` counts in.
pub const LRO_SIZE_UNIT: u32 = 256;

values! {
    /// How packets find their receive queue. PRM `tirc.disp_type`.
    pub enum TirDispType: 4 {
        /// To one receive queue, `inline_rqn`.
        Direct = 0 "DIRECT",
        /// By a hash, through `indirect_table`.
        Indirect = 1 "INDIRECT",
    }

    /// Hash that spreads packets. PRM `tirc.rx_hash_fn`.
    pub enum RxHashFn: 4 {
        /// None.
        None = 0 "NONE",
        /// Exclusive or of the bytes, inverted.
        InvertedXor8 = 1 "INVERTED_XOR8",
        /// Toeplitz, with the key in the context.
        Toeplitz = 2 "TOEPLITZ",
    }

    /// Network protocol whose fields are hashed. PRM `rx_hash_field_select.l3_prot_type`.
    pub enum L3ProtType: 1 {
        /// IPv4.
        Ipv4 = 0 "IPV4",
        /// IPv6.
        Ipv6 = 1 "IPV6",
    }

    /// Transport protocol whose fields are hashed. PRM `rx_hash_field_select.l4_prot_type`.
    pub enum L4ProtType: 1 {
        /// TCP.
        Tcp = 0 "TCP",
        /// UDP.
        Udp = 1 "UDP",
    }
}
