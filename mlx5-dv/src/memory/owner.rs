//! Owners of memory that a card uses: what [`HostMemory::of`](super::HostMemory::of) takes.

use std::ptr::NonNull;
use std::sync::Arc;

use super::PageSize;

/// A value that keeps memory in place: a vector, a mapping, a block of the user's own allocator.
/// [`HostMemory::of`](super::HostMemory::of) takes it, and
/// [`HostMemory::into_owner`](super::HostMemory::into_owner) gives it back.
///
/// # Safety
/// From the call of [`bytes`](Self::bytes) on until the value is given back or dropped:
/// * The bytes stay where they are, initialised and mapped in pages of [`page_size`](Self::page_size), and so does the
///   rest of the first and the last page.
/// * If `WRITABLE`: the value is the only way to the bytes. Nobody has a reference to them or accesses them, and they
///   may be written through the pointer, by this process and by the card.
/// * If not `WRITABLE`: nobody writes them. Others may read them, also by references.
///
/// ```compile_fail,E0200
/// # use std::ptr::NonNull;
/// struct Mine(Vec<u8>);
/// impl mlx5_dv::memory::MemoryOwner for Mine { // what it promises cannot be checked: `unsafe impl`
///     const WRITABLE: bool = true;
///     fn bytes(&mut self) -> NonNull<[u8]> {
///         NonNull::from(&mut self.0[..])
///     }
/// }
/// ```
pub unsafe trait MemoryOwner: Send + Sync + 'static {
    /// Whether the card, and this process by way of the region, may write the bytes. If not, a region over them has no
    /// LOCAL_WRITE.
    const WRITABLE: bool;

    /// The bytes; called once. A pointer to none is an error of [`HostMemory::of`](super::HostMemory::of).
    fn bytes(&mut self) -> NonNull<[u8]>;

    /// Size of the pages that the bytes lie in. Default: the host's base pages.
    fn page_size(&self) -> PageSize {
        PageSize::host()
    }
}

/// `len` bytes at `first`.
fn slice(first: *mut u8, len: usize) -> NonNull<[u8]> {
    NonNull::slice_from_raw_parts(NonNull::new(first).unwrap_or(NonNull::dangling()), len)
}

// SAFETY: the vector owns its heap block, which does not move with it; whoever holds the `HostMemory` holds the only
// way to it. The allocator's pages around it stay mapped as long as the block does.
unsafe impl MemoryOwner for Vec<u8> {
    const WRITABLE: bool = true;

    fn bytes(&mut self) -> NonNull<[u8]> {
        slice(self.as_mut_ptr(), self.len())
    }
}

// SAFETY: as for the vector.
unsafe impl MemoryOwner for Box<[u8]> {
    const WRITABLE: bool = true;

    fn bytes(&mut self) -> NonNull<[u8]> {
        slice(self.as_mut_ptr(), self.len())
    }
}

// SAFETY: an anonymous mapping, or one of a file whose content `memmap2`'s unsafe constructors make their caller answer
// for. It does not move with the value, which is the only way to it in this process.
unsafe impl MemoryOwner for memmap2::MmapMut {
    const WRITABLE: bool = true;

    fn bytes(&mut self) -> NonNull<[u8]> {
        slice(self.as_mut_ptr(), self.len())
    }
}

// SAFETY: while this reference to it exists, nobody can write the block: others can have shared references only.
unsafe impl MemoryOwner for Arc<[u8]> {
    const WRITABLE: bool = false;

    fn bytes(&mut self) -> NonNull<[u8]> {
        NonNull::from(&**self)
    }
}

// SAFETY: as above; the vector cannot be reached for writing either, so its block stays.
unsafe impl MemoryOwner for Arc<Vec<u8>> {
    const WRITABLE: bool = false;

    fn bytes(&mut self) -> NonNull<[u8]> {
        NonNull::from(self.as_slice())
    }
}
