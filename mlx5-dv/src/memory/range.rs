//! What a device is shown of this process' memory.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

/// A range of this process' memory to be shown to the device.
#[derive(Debug, Clone, Copy)]
pub struct HostRange<'a> {
    /// First byte, aligned to the host's page size.
    pub address: NonNull<u8>,
    /// Bytes, a multiple of the host's page size.
    pub len: usize,
    /// The file behind the memory and the range's offset in it, where there is one. A device model needs it to map the
    /// same memory; the kernel's VFIO does not.
    pub file: Option<(BorrowedFd<'a>, u64)>,
}
