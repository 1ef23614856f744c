//! Memory as work requests name it: by address and key.

/// A scatter/gather element: registered memory of this side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataSegment {
    /// First address, as the key's memory region counts.
    pub addr: u64,
    /// Bytes, below 2^31.
    pub len: u32,
    /// The region's local key.
    pub lkey: u32,
}

/// Bytes of the longest element a data segment can name: its top bit means "inline".
pub(crate) const MAX_ELEMENT: u32 = (1 << 31) - 1;

/// Where in the remote's memory an RDMA operation goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteAddress {
    /// First address, as the remote's memory region counts.
    pub addr: u64,
    /// The region's remote key.
    pub rkey: u32,
}
