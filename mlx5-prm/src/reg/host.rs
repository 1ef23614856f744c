//! Properties of the host.

layout! {
    /// The byte order of atomic operations' operands: register `HOST_ENDIANNESS`. PRM `register_host_endianness`.
    pub struct HostEndianness: 0x10, "mlx5_ifc_register_host_endianness_bits" {
        /// The host's own, which is not big-endian.
        0x00 [31] he: bool,
    }

    /// PRM `NODE_DESC`: the node's name, as `mlx5_ib` reads and sets it. No header declares it.
    pub struct NodeDesc: 0x40, "mlx5_ifc_set_node_in_bits" {
        0x00 node_description: [u8; 64],
    }
}
