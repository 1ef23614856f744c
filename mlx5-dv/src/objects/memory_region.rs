//! Registered memory.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use super::mkey::{AccessFlags, Mkey};
use super::object::{DestroyError, destroy_sole};
use super::pd::Pd;
use crate::error::{CommandError, Error, Invalid};
use crate::lock::lock;
use crate::memory::{DataSegment, DmaBuffer, HostMemory, Iova, RemoteAddress};

/// Memory that queue pairs of its protection domain may use, by address and key.
///
/// Owns the memory, or the user's vector. Addresses are those of this process, as in verbs (or a simulation's:
/// [`HostMemory::key_address`]), and may be told to a remote. The memory can be copied in and out at any time from any
/// thread; while the card writes, what is read is a mixture. Offsets are bytes from the region's start; accesses
/// outside of it panic, as a slice's do.
pub struct MemoryRegion {
    /// First of all: without it the card cannot reach the memory.
    mkey: Mkey,
    memory: Option<Arc<DmaBuffer>>,
    access: AccessFlags,
    /// Parts lent out as [`Buffer`]s, ascending.
    lent: Mutex<Vec<Range<usize>>>,
    pd: Arc<Pd>,
}

impl fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryRegion({} bytes at {:#x}, key {:#x})", self.len(), self.addr(), self.mkey.key())
    }
}

impl MemoryRegion {
    /// Registers fresh, zeroed memory of at least `len` bytes, in the largest pages there are.
    ///
    /// # Errors
    /// [`Error::Memory`], [`Error::Command`], [`Error::Invalid`] for rights that make no sense or a region larger than
    /// `log_max_mrw_sz` allows.
    pub fn allocate(pd: &Arc<Pd>, len: usize, access: AccessFlags) -> Result<Arc<Self>, Error> {
        if len == 0 {
            return Err(Invalid::Empty { what: "a memory region", lacks: "bytes" }.into());
        }
        Self::of(pd, Arc::clone(pd.device().access()).alloc_dma(len)?, access)
    }

    /// Registers `memory`, ours or the user's: any address, any length.
    ///
    /// # Errors
    /// As for [`allocate`](Self::allocate).
    pub fn register(pd: &Arc<Pd>, memory: HostMemory, access: AccessFlags) -> Result<Arc<Self>, Error> {
        Self::of(pd, Arc::clone(pd.device().access()).show(memory)?, access)
    }

    fn of(pd: &Arc<Pd>, memory: DmaBuffer, access: AccessFlags) -> Result<Arc<Self>, Error> {
        let memory = Arc::new(memory);
        let mkey = match Mkey::create(pd, &memory, access) {
            Ok(mkey) => mkey,
            Err(error) => {
                // Without an answer of firmware's the key may exist, and the card may use it.
                if matches!(&error, Error::Command(failed) if failed.status().is_none() && !failed.is_dead()) {
                    std::mem::forget(memory);
                }
                return Err(error);
            }
        };
        Ok(Arc::new(MemoryRegion { mkey, memory: Some(memory), access, lent: Mutex::default(), pd: Arc::clone(pd) }))
    }

    fn host(&self) -> Option<&HostMemory> {
        self.memory.as_deref().and_then(DmaBuffer::memory)
    }

    /// First address, as work requests and remotes count.
    pub fn addr(&self) -> u64 {
        self.host().map_or(0, |host| host.key_address() + host.data_offset() as u64)
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.host().map_or(0, HostMemory::data_len)
    }

    /// Whether there are none: never.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the pages it lies in.
    pub fn page_size(&self) -> usize {
        self.host().map_or(0, HostMemory::page_size)
    }

    /// Bytes of the pages that the card's own translation has: the larger they are, the fewer it has to look up. 1 GiB
    /// at most, and no larger than the memory's place in this process and in the card's address space allows.
    pub fn card_page_size(&self) -> usize {
        1 << self.mkey.log_page_size()
    }

    /// The key for work requests of this side.
    pub fn lkey(&self) -> u32 {
        self.mkey.key()
    }

    /// The key to tell the remote.
    pub fn rkey(&self) -> u32 {
        self.mkey.key()
    }

    /// What may be done with it.
    pub fn access(&self) -> AccessFlags {
        self.access
    }

    /// The protection domain.
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Its first byte as a remote addresses it: what to tell the remote.
    pub fn remote(&self) -> RemoteAddress {
        self.remote_at(0)
    }

    /// Byte `offset` as a remote addresses it.
    pub fn remote_at(&self, offset: usize) -> RemoteAddress {
        RemoteAddress { addr: self.addr().wrapping_add(offset as u64), rkey: self.rkey() }
    }

    /// Where the card finds byte `offset`, for keys of [pages](crate::objects::KeyLayout::Pages); `None` where the
    /// kernel keeps the function, and with it the addresses. The region's bytes lie behind each other there, too.
    /// Panics outside of the region.
    #[track_caller]
    pub fn iova(&self, offset: usize) -> Option<Iova> {
        self.check(offset, 0);
        let memory = self.memory.as_deref().filter(|_| self.pd.device().access().knows_addresses())?;
        Some(Iova(memory.iova().0 + (memory.memory()?.data_offset() + offset) as u64))
    }

    #[track_caller]
    fn check(&self, offset: usize, len: usize) {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len());
        assert!(inside, "{len} bytes at offset {offset} of a memory region of {} bytes", self.len());
    }

    /// The bytes `range` as a scatter/gather element. Panics outside of the region.
    #[track_caller]
    pub fn segment(&self, range: Range<usize>) -> DataSegment {
        self.check(range.start, range.len());
        let len = u32::try_from(range.len()).unwrap_or(u32::MAX);
        DataSegment { addr: self.addr() + range.start as u64, len, lkey: self.lkey() }
    }

    /// The memory and where byte `offset` of the region lies in it.
    #[track_caller]
    fn at(&self, offset: usize, len: usize) -> Option<(&DmaBuffer, usize)> {
        self.check(offset, len);
        let memory = self.memory.as_deref()?;
        Some((memory, offset))
    }

    /// Copies `bytes` in, to `offset`. Panics when they do not fit.
    #[track_caller]
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        if let Some((memory, at)) = self.at(offset, bytes.len()) {
            memory.copy_in(at, bytes);
        }
    }

    /// Copies bytes out, from `offset`. Panics when the region ends before.
    #[track_caller]
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        if let Some((memory, at)) = self.at(offset, bytes.len()) {
            memory.copy_out(at, bytes);
        }
    }

    /// Fills `len` bytes from `offset`. Panics when the region ends before.
    #[track_caller]
    pub fn fill(&self, offset: usize, len: usize, byte: u8) {
        if let Some((memory, at)) = self.at(offset, len) {
            memory.fill(at, len, byte);
        }
    }

    pub(super) fn lent(&self) -> MutexGuard<'_, Vec<Range<usize>>> {
        lock(&self.lent)
    }

    pub(super) fn take_back(&self, range: &Range<usize>) {
        let mut lent = self.lent();
        if let Ok(at) = lent.binary_search_by_key(&range.start, |other| other.start) {
            lent.remove(at);
        }
    }

    /// Deregisters the memory and frees it. Errors: the region, kept alive, and why.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, MemoryRegion::deregister)
    }

    fn deregister(&mut self) -> Result<(), CommandError> {
        self.mkey.destroy()
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        if let Err(error) = self.deregister() {
            tracing::error!(%error, "a memory region was not deregistered; its memory is leaked");
            std::mem::forget(self.memory.take());
        }
    }
}
