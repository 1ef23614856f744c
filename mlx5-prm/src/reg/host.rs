//! What the host tells the card of itself.

layout! {
    /// PRM `HOST_ENDIANNESS`: the byte order of atomic operations' operands. No header declares it: `mlx5_core` sets
    /// the first of its 16 bytes.
    pub struct HostEndianness: 0x10, "none" {
        /// 0x80: the host's own.
        0x00 [31:24] he: u8,
    }
}
