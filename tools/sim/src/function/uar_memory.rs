//! The memory of mapped UAR pages, and of memory on the card: a memfd shared with clients. PRM "User Access Region".

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, SeekFrom, fallocate, fcntl_add_seals, ftruncate, memfd_create, seek,
};
use thiserror::Error;
use vm_memory::mmap::MmapRegionBuilder;
use vm_memory::{FileOffset, MmapRegion, VolatileMemory};

use crate::objects::Quadwords;

/// A part of BAR 0 that can be mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UarArea {
    /// Offset in the BAR, which equals the offset in the file.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// The mappable parts of BAR 0: byte n of the file is byte n of the BAR.
#[derive(Debug, Default)]
pub struct UarMemory {
    /// The file to map; `None` if there are no areas.
    pub file: Option<File>,
    /// The mappable parts, in ascending order.
    pub areas: Vec<UarArea>,
}

/// Why there is no shared memory.
#[derive(Debug, Error)]
pub enum MemoryError {
    /// The memfd, or a descriptor for it, cannot be created.
    #[error("no memory file for the UAR pages: {0}")]
    File(#[source] std::io::Error),
    /// The memfd cannot be mapped.
    #[error("cannot map the UAR pages: {0}")]
    Map(#[source] vm_memory::mmap::MmapRegionError),
    /// The card is powered off.
    #[error("the card is powered off")]
    NoPower,
}

/// The memfd and our mapping of it.
#[derive(Debug)]
pub(crate) struct Shared {
    file: Arc<File>,
    region: MmapRegion,
}

impl Quadwords for Shared {
    fn quadword(&self, at: u64) -> Option<&AtomicU64> {
        self.region.get_atomic_ref(usize::try_from(at).ok()?).ok()
    }
}

impl Shared {
    /// Memory for a whole BAR; pages are allocated when first used.
    pub(crate) fn new(size: u64) -> Result<Self, MemoryError> {
        let io = |error: rustix::io::Errno| MemoryError::File(error.into());
        let fd = memfd_create("mlx5-sim-uar", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).map_err(io)?;
        ftruncate(&fd, size).map_err(io)?;
        // Sealed: if a client shortened the file, our next access would be a SIGBUS.
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).map_err(io)?;
        let file = Arc::new(File::from(fd));
        let region = MmapRegionBuilder::<()>::new(size as usize)
            .with_mmap_prot(libc::PROT_READ | libc::PROT_WRITE)
            .with_mmap_flags(libc::MAP_SHARED | libc::MAP_NORESERVE)
            .with_file_offset(FileOffset::from_arc(file.clone(), 0))
            .build()
            .map_err(MemoryError::Map)?;
        Ok(Shared { file, region })
    }

    /// Another descriptor of the file.
    pub(crate) fn file(&self) -> Result<File, MemoryError> {
        self.file.try_clone().map_err(MemoryError::File)
    }

    /// The big-endian quadword at `offset`; 0 past the end.
    #[inline]
    pub(crate) fn peek(&self, offset: u64) -> u64 {
        let quadword = self.region.get_atomic_ref::<AtomicU64>(offset as usize);
        quadword.map_or(0, |quadword| u64::from_be(quadword.load(Ordering::Acquire)))
    }

    /// Takes the big-endian quadword at `offset`, and sets it to zero.
    pub(crate) fn take(&self, offset: u64) -> u64 {
        let quadword = self.region.get_atomic_ref::<AtomicU64>(offset as usize);
        quadword.map_or(0, |quadword| u64::from_be(quadword.swap(0, Ordering::AcqRel)))
    }

    /// Takes the big-endian dword at `offset`, and sets it to zero.
    pub(crate) fn take32(&self, offset: u64) -> u32 {
        let dword = self.region.get_atomic_ref::<AtomicU32>(offset as usize);
        dword.map_or(0, |dword| u32::from_be(dword.swap(0, Ordering::AcqRel)))
    }

    /// Sets all of it to zero.
    pub(crate) fn clear(&self) {
        self.clear_range(0, self.region.size() as u64);
    }

    /// Sets it to zero from `offset` on, and frees the pages. Both numbers are multiples of the page size.
    pub(crate) fn clear_range(&self, offset: u64, len: u64) {
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if let Err(error) = fallocate(&*self.file, punch, offset, len) {
            tracing::error!("cannot clear the UAR pages: {error}");
        }
    }

    /// The next range of allocated pages from `offset` on.
    pub(crate) fn touched(&self, offset: u64) -> Option<std::ops::Range<u64>> {
        let start = seek(&*self.file, SeekFrom::Data(offset)).ok()?;
        let end = seek(&*self.file, SeekFrom::Hole(start)).ok()?;
        Some(start..end)
    }
}
