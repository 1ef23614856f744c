//! Memory in work requests: address and key.

/// A scatter/gather element: registered local memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataSegment {
    /// First address, within the key's address range.
    pub addr: u64,
    /// Length in bytes, below 2^31.
    pub len: u32,
    /// The region's local key.
    pub lkey: u32,
}

/// The longest element of a data segment in bytes: the top bit of the length means "inline".
pub(crate) const MAX_ELEMENT: u32 = (1 << 31) - 1;

/// Remote memory of an RDMA operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteAddress {
    /// First address, within the remote key's address range.
    pub addr: u64,
    /// The region's remote key.
    pub rkey: u32,
}
