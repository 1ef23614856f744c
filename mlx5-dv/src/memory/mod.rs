//! Memory the card may use.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::Error;

/// An address as the device sees it. Never a pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Iova(pub u64);

/// Page-aligned memory, ours or the user's, that can be shown to the device.
#[derive(Debug)]
pub struct HostMemory {
    address: NonNull<u8>,
    len: usize,
    file: OwnedFd,
}

// SAFETY: the memory is a mapping of its own that lives until drop; access goes through raw pointers whose users keep
// order themselves.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// Zeroed memory of at least `len` bytes.
    pub fn allocate(len: usize) -> Result<Self, Error> {
        let len = len.max(1).next_multiple_of(4096);
        let failed = |doing: &str| Error::io(doing, io::Error::last_os_error());
        // SAFETY: a constant name; the result is checked.
        let fd = unsafe { libc::memfd_create(c"mlx5-dma".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(failed("memfd_create"));
        }
        // SAFETY: fd is ours and open.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: fd is a memfd.
        if unsafe { libc::ftruncate(file.as_raw_fd(), len as libc::off_t) } != 0 {
            return Err(failed("ftruncate"));
        }
        // SAFETY: a new mapping, no address asked for.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(failed("mmap"));
        }
        let address = NonNull::new(address.cast()).ok_or_else(|| failed("mmap"))?;
        Ok(HostMemory { address, len, file })
    }

    /// First byte.
    pub fn address(&self) -> NonNull<u8> {
        self.address
    }

    /// Bytes, a multiple of [`page_size`](Self::page_size).
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of the pages it is made of; its address is a multiple of it.
    pub fn page_size(&self) -> usize {
        4096
    }

    /// The file behind it and its offset there, where there is one.
    pub fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        Some((self.file.as_fd(), 0))
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.len) };
    }
}

/// What happens to a buffer's memory when it is dropped: unmapped and freed, kept for reuse, or leaked because the device
/// may still write it. Decided by who made the buffer.
pub type Release = Box<dyn FnOnce(HostMemory, Iova) + Send + Sync>;

/// Memory of ours that the device already sees.
pub struct DmaBuffer {
    memory: Option<HostMemory>,
    iova: Iova,
    release: Option<Release>,
}

impl std::fmt::Debug for DmaBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "DmaBuffer({} bytes at IOVA {:#x})",
            self.len(),
            self.iova.0
        )
    }
}

impl DmaBuffer {
    /// `memory`, which the device sees at `iova`; `release` gets it back on drop.
    pub fn new(memory: HostMemory, iova: Iova, release: Release) -> Self {
        DmaBuffer {
            memory: Some(memory),
            iova,
            release: Some(release),
        }
    }

    /// Where the device sees it.
    pub fn iova(&self) -> Iova {
        self.iova
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.memory.as_ref().map_or(0, HostMemory::len)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// First byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.memory
            .as_ref()
            .map_or(std::ptr::null_mut(), |m| m.address().as_ptr())
    }

    fn check(&self, offset: usize, len: usize) {
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= self.len()),
            "outside the buffer"
        );
    }

    /// Copies `bytes` to `offset`. Panics when they do not fit.
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) {
        self.check(offset, bytes.len());
        // SAFETY: checked above; the mapping lives as long as self.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.as_ptr().add(offset), bytes.len())
        }
    }

    /// Copies from `offset`. Panics when the buffer ends before.
    pub fn copy_out(&self, offset: usize, bytes: &mut [u8]) {
        self.check(offset, bytes.len());
        // SAFETY: checked above; the mapping lives as long as self.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.as_ptr().add(offset),
                bytes.as_mut_ptr(),
                bytes.len(),
            )
        }
    }

    /// Zeroes `len` bytes from `offset`.
    pub fn zero(&self, offset: usize, len: usize) {
        self.check(offset, len);
        // SAFETY: checked above.
        unsafe { std::ptr::write_bytes(self.as_ptr().add(offset), 0, len) }
    }

    /// The dword at `offset` as an atomic: its bytes as they lie in memory, not yet converted from big endian.
    pub fn atomic_u32(&self, offset: usize) -> &AtomicU32 {
        self.check(offset, 4);
        assert!(offset.is_multiple_of(4), "unaligned");
        // SAFETY: inside the buffer, aligned, and lives as long as self.
        unsafe { AtomicU32::from_ptr(self.as_ptr().add(offset).cast()) }
    }

    /// Loads a big-endian dword; what the device wrote before it is visible afterwards.
    pub fn load_be32(&self, offset: usize) -> u32 {
        u32::from_be(self.atomic_u32(offset).load(Ordering::Acquire))
    }

    /// Stores a big-endian dword; what was written before is visible to the device first.
    pub fn store_be32(&self, offset: usize, value: u32) {
        self.atomic_u32(offset)
            .store(value.to_be(), Ordering::Release);
    }
}

impl Drop for DmaBuffer {
    fn drop(&mut self) {
        if let (Some(memory), Some(release)) = (self.memory.take(), self.release.take()) {
            release(memory, self.iova);
        }
    }
}

/// Hands out device addresses from the ranges an access allows.
#[derive(Debug)]
pub struct IovaAllocator {
    free: Vec<(u64, u64)>,
}

impl IovaAllocator {
    /// All of `ranges` (first, last) is free, but for address 0, which is kept out so that it can mean nothing.
    pub fn new(ranges: Vec<(u64, u64)>) -> Self {
        let free = ranges
            .into_iter()
            .map(|(first, last)| (first.max(1 << 21), last))
            .filter(|(first, last)| first < last)
            .collect();
        IovaAllocator { free }
    }

    /// `len` bytes at a multiple of `align`, a power of two; `None` when nothing is left.
    pub fn allocate(&mut self, len: u64, align: u64) -> Option<Iova> {
        for i in 0..self.free.len() {
            let (first, last) = self.free[i];
            let Some(start) = first.checked_next_multiple_of(align) else {
                continue;
            };
            let Some(end) = start.checked_add(len - 1) else {
                continue;
            };
            if end > last {
                continue;
            }
            self.free.remove(i);
            if end < last {
                self.free.insert(i, (end + 1, last));
            }
            if first < start {
                self.free.insert(i, (first, start - 1));
            }
            return Some(Iova(start));
        }
        None
    }

    /// Takes back what [`allocate`](Self::allocate) gave.
    pub fn free(&mut self, iova: Iova, len: u64) {
        let (mut first, mut last) = (iova.0, iova.0 + (len - 1));
        let mut i = self.free.partition_point(|range| range.0 < first);
        if i < self.free.len() && last.checked_add(1) == Some(self.free[i].0) {
            last = self.free.remove(i).1;
        }
        if i > 0 && self.free[i - 1].1.checked_add(1) == Some(first) {
            i -= 1;
            first = self.free.remove(i).0;
        }
        self.free.insert(i, (first, last));
    }
}
