//! Memory ranges to map for a device.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

/// A range of this process's memory that may be mapped for a device.
///
/// Its fields are private: otherwise a [`DmaSpace`](crate::access::DmaSpace) written in safe code could replace the
/// driver's memory by memory that Rust owns.
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
    /// The `len` bytes at `address`; `file` is the file that backs them and the offset in it, if any. A device model
    /// needs the file to map the same memory; the kernel's VFIO does not.
    ///
    /// # Safety
    /// `address` and `len` are multiples of the host's page size. The pages are mapped, and belong to the file if one
    /// is given. While they are mapped for a device, nothing in this process depends on the content of what the device
    /// may write.
    pub unsafe fn new(address: NonNull<u8>, len: usize, file: Option<(BorrowedFd<'a>, u64)>) -> Self {
        HostRange { address, len, file }
    }

    /// Address of the first byte, aligned to the host's page size.
    pub fn address(&self) -> NonNull<u8> {
        self.address
    }

    /// Length in bytes, a multiple of the host's page size.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The file that backs the memory and the offset in it, if any.
    pub fn file(&self) -> Option<(BorrowedFd<'a>, u64)> {
        self.file
    }
}
