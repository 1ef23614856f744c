//! Atomic operation capabilities.

layout! {
    /// Which atomics the card has. PRM `atomic_caps`.
    pub struct AtomicCaps: 0x100, "mlx5_ifc_atomic_caps_bits" {
        0x08 [31:30] atomic_req_8B_endianness_mode: u8,
        0x08 [25] supported_atomic_req_8B_endianness_mode_1: bool,
        0x10 [15:0] atomic_operations: u16,
        0x14 [15:0] atomic_size_qp: u16,
        0x18 [15:0] atomic_size_dc: u16,
    }
}
