//! What the host tells the card of itself.

layout! {
    /// PRM `HOST_ENDIANNESS`: the byte order of atomic operations' operands. No header declares it: `mlx5_core` sets
    /// the first of its 16 bytes.
    pub struct HostEndianness: 0x10, "none" {
        /// 0x80: the host's own.
        0x00 [31:24] he: u8,
    }

    /// PRM `NODE_DESC`: the node's name, as `mlx5_ib` reads and sets it. No header declares it.
    pub struct NodeDesc: 0x40, "none" {
        0x00 desc: [u8; 64],
    }
}
