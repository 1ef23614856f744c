//! What a device is shown of this process' memory.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

/// A range of this process' memory that may be shown to a device.
///
/// Its fields are private: a [`DmaSpace`](crate::access::DmaSpace) of safe code's making could otherwise swap the
/// memory that the driver shows for memory that Rust owns.
///
/// ```compile_fail,E0451
/// fn any_memory(page: &mut [u8; 4096]) -> mlx5_dv::access::HostRange<'static> {
///     let address = std::ptr::NonNull::from(page).cast();
///     mlx5_dv::access::HostRange { address, len: 4096, file: None } // fields are private
/// }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct HostRange<'a> {
    address: NonNull<u8>,
    len: usize,
    file: Option<(BorrowedFd<'a>, u64)>,
}

impl<'a> HostRange<'a> {
    /// `len` bytes from `address` on; `file` is the file behind them and the range's offset in it, where there is one.
    /// A device model needs it to map the same memory; the kernel's VFIO does not.
    ///
    /// # Safety
    /// `address` and `len` are multiples of the host's page size, the pages are mapped, and are those of the file, if
    /// one is given. While a device sees them, nothing in this process relies on the content of what the device is told
    /// to write.
    pub unsafe fn new(address: NonNull<u8>, len: usize, file: Option<(BorrowedFd<'a>, u64)>) -> Self {
        HostRange { address, len, file }
    }

    /// First byte, aligned to the host's page size.
    pub fn address(&self) -> NonNull<u8> {
        self.address
    }

    /// Bytes, a multiple of the host's page size.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The file behind the memory and the range's offset in it, where there is one.
    pub fn file(&self) -> Option<(BorrowedFd<'a>, u64)> {
        self.file
    }
}
