//! The interface to memory on the card.

use std::ptr::NonNull;

use mlx5_prm::caps::DeviceMemCap;
use mlx5_prm::cmd::MemicOperation;

use super::handle::ObjectHandle;
use super::transport::BarMapping;
use crate::error::{CommandError, Error, Invalid};

/// Bytes of one access.
pub(super) const DWORD: usize = 4;

/// Memory on the card. Offsets and lengths of accesses are multiples of 4.
pub trait CardMemory {
    /// Allocates `len` bytes, of what `caps` announces.
    fn alloc(&self, len: u32, caps: &DeviceMemCap) -> Result<MemicHandle, Error>;
    /// Frees an allocation. On an error the card still has it.
    fn free(&self, memory: &MemicHandle) -> Result<(), CommandError>;
    /// Addresses that do `operation` on the memory, as long as its allocation. Asked for once for each allocation.
    fn map_operation(&self, memory: &MemicHandle, operation: MemicOperation) -> Result<MemicHandle, Error>;
    /// Ends the addresses of [`map_operation`](Self::map_operation). On an error the card still has them.
    fn unmap_operation(&self, memory: &MemicHandle, operation: MemicOperation) -> Result<(), CommandError>;
    /// Loads from `offset` on.
    fn read(&self, memory: &MemicHandle, offset: usize, bytes: &mut [u8]) -> Result<(), Error>;
    /// Stores from `offset` on. What is posted afterwards finds it.
    fn write(&self, memory: &MemicHandle, offset: usize, bytes: &[u8]) -> Result<(), Error>;
}

/// An allocation. Its fields are private: a forged one would give access to registers.
#[derive(Debug)]
pub struct MemicHandle {
    start: u64,
    /// Where loads change nothing: the start, but for addresses that do an operation.
    quiet: u64,
    len: u32,
    pages: (u64, u64),
    /// The pages in this process, and the allocation's offset in them.
    mapping: Option<(BarMapping, usize)>,
    handle: ObjectHandle,
}

impl MemicHandle {
    pub(super) fn new(start: u64, len: u32, pages: (u64, u64), mapping: Option<(BarMapping, usize)>) -> Self {
        MemicHandle { start, quiet: start, len, pages, mapping, handle: ObjectHandle(0) }
    }

    /// Addresses from `start` on that do an operation on `memory`.
    pub(super) fn of_operation(memory: &MemicHandle, start: u64, mapping: Option<(BarMapping, usize)>) -> Self {
        let MemicHandle { start: quiet, len, .. } = *memory;
        MemicHandle { start, quiet, len, pages: (0, 0), mapping, handle: ObjectHandle(0) }
    }

    /// The kernel's, by its handle. Where in the BAR it starts the kernel does not tell.
    pub(super) fn of_kernel(handle: ObjectHandle, len: u32, mapping: (BarMapping, usize)) -> Self {
        MemicHandle { start: 0, quiet: 0, len, pages: (0, 0), mapping: Some(mapping), handle }
    }

    /// The kernel's handle; 0 on a function that this process owns.
    pub fn handle(&self) -> ObjectHandle {
        self.handle
    }

    /// Where it starts in BAR 0, for contexts; 0 if it is the kernel's.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Length in bytes.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether the length is zero: never.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where a load of the same bytes changes nothing, in BAR 0.
    pub(super) fn quiet(&self) -> u64 {
        self.quiet
    }

    /// Its pages in BAR 0: start and length.
    pub(super) fn pages(&self) -> (u64, u64) {
        self.pages
    }

    /// Whether loads and stores go by a mapping.
    pub(super) fn is_mapped(&self) -> bool {
        self.mapping.is_some()
    }

    /// Loads the dword at `at`, which [`check`](Self::check) has found inside; `None` if it is not mapped.
    pub(super) fn load(&self, at: usize) -> Option<[u8; DWORD]> {
        // SAFETY: a dword inside of the mapping, which nobody has a reference to.
        self.mapped(at).map(|place| unsafe { place.cast::<u32>().read_volatile() }.to_ne_bytes())
    }

    /// Stores a dword; `None` if it is not mapped.
    pub(super) fn store(&self, at: usize, bytes: [u8; DWORD]) -> Option<()> {
        // SAFETY: as for loads.
        self.mapped(at).map(|place| unsafe { place.cast::<u32>().write_volatile(u32::from_ne_bytes(bytes)) })
    }

    /// Loads from `first` on, which is mapped and which [`check`](Self::check) has found inside.
    pub(super) fn load_all(&self, first: usize, bytes: &mut [u8]) {
        for (at, dword) in (first..).step_by(DWORD).zip(bytes.chunks_exact_mut(DWORD)) {
            dword.copy_from_slice(&self.load(at).unwrap_or_default());
        }
    }

    /// Stores from `first` on, as [`load_all`](Self::load_all) loads.
    pub(super) fn store_all(&self, first: usize, bytes: &[u8]) {
        for (at, dword) in (first..).step_by(DWORD).zip(bytes.as_chunks().0) {
            self.store(at, *dword);
        }
    }

    /// Address of the dword at `at`, if it is mapped.
    fn mapped(&self, at: usize) -> Option<NonNull<u8>> {
        let (mapping, first) = self.mapping.as_ref()?;
        let place = (first + at + DWORD <= mapping.len()).then_some(first + at)?;
        NonNull::new(mapping.address().as_ptr().wrapping_add(place))
    }

    /// `offset`, where `len` bytes from there on are inside, and both are multiples of 4.
    pub(super) fn check(&self, offset: usize, len: usize) -> Result<usize, Invalid> {
        for (what, given) in [("the offset in device memory", offset), ("the length of an access", len)] {
            if !given.is_multiple_of(DWORD) {
                return Err(Invalid::Misaligned { what, given: given as u64, multiple_of: DWORD as u64 });
            }
        }
        match offset.checked_add(len) {
            Some(end) if end <= self.len as usize => Ok(offset),
            end => {
                let given = offset as u64..end.unwrap_or(usize::MAX) as u64;
                Err(Invalid::OutOfBounds { what: "bytes", given, of: "device memory", len: self.len.into() })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn mapped_memory_is_accessed_where_the_allocation_is() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        let mapping = BarMapping::of_map(memmap2::MmapOptions::new().map_raw(&file).unwrap(), ()).unwrap();
        let memory = MemicHandle::new(0x20_0040, 128, (0x20_0000, 8192), Some((mapping, 0x40)));
        assert_eq!(memory.store(4, [1, 2, 3, 4]), Some(()));
        let mut found = [0; 12];
        file.read_exact_at(&mut found, 0x40).unwrap();
        assert_eq!(found, [0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0]);
        file.write_all_at(&[9, 8, 7, 6], 0x40 + 124).unwrap();
        assert_eq!(memory.load(124), Some([9, 8, 7, 6]));
        assert_eq!(memory.load(8192 - 0x40), None, "beyond the mapping");
        assert!(memory.check(124, 4).is_ok() && memory.check(128, 4).is_err() && memory.check(2, 4).is_err());
        let unmapped = MemicHandle::new(0, 128, (0, 4096), None);
        assert_eq!((unmapped.load(0), unmapped.store(0, [0; 4])), (None, None));
    }
}
