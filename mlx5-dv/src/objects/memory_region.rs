//! Memory regions.

use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard};

use mlx5_prm::ctx::Mkc;

use super::implicit_region::ImplicitRegion;
use super::kernel_object::{RegionHandle, not_shared, shared};
use super::mkey::{AccessFlags, Mkey, SMALLEST};
use super::object::{DestroyError, destroy_sole};
use super::pd::Pd;
use crate::access::Advice;
use crate::error::{CommandError, Error, Invalid};
use crate::lock::lock;
use crate::memory::{DataSegment, DmaBuffer, HostMemory, Iova, RemoteAddress};

/// Registered memory that queue pairs of its protection domain access by address and key.
///
/// It owns the memory, the driver's or what the user registered ([`HostMemory::of`]). Addresses can be given to a
/// remote. They are those of this process, as in verbs, the user's choice ([`register_at`](Self::register_at)), or a
/// simulation's ([`HostMemory::key_address`]). Any thread may copy data in and out at any time; while the card writes,
/// a read may mix old and new bytes. Offsets count from the region's start; accesses outside it panic, as on a slice.
pub struct MemoryRegion {
    /// First field: dropped before the memory, so the card cannot access that any more.
    mkey: Mkey,
    /// Whose key it has.
    implicit: Option<Arc<ImplicitRegion>>,
    memory: Option<Arc<DmaBuffer>>,
    /// Address of the first byte.
    start: u64,
    access: AccessFlags,
    /// Whether its pages come when the card needs them.
    is_on_demand: bool,
    /// Whether it is an [`ExclusiveRegion`]'s: only its buffers reach the memory.
    ///
    /// [`ExclusiveRegion`]: super::ExclusiveRegion
    is_exclusive: bool,
    /// Ranges of existing [`Buffer`](super::Buffer)s, ascending.
    lent: Mutex<Vec<Range<usize>>>,
    pd: Arc<Pd>,
}

/// What [`MemoryRegion::rereg`] changes. Default: nothing.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct RegionChanges {
    /// The new protection domain, of the same card.
    pub pd: Option<Arc<Pd>>,
    /// The new rights.
    pub access: Option<AccessFlags>,
    /// The new memory, at its own address.
    pub memory: Option<HostMemory>,
}

impl RegionChanges {
    /// Sets [`pd`](Self::pd).
    pub fn pd(mut self, pd: &Arc<Pd>) -> Self {
        self.pd = Some(Arc::clone(pd));
        self
    }

    /// Sets [`access`](Self::access).
    pub fn access(mut self, access: AccessFlags) -> Self {
        self.access = Some(access);
        self
    }

    /// Sets [`memory`](Self::memory).
    pub fn memory(mut self, memory: HostMemory) -> Self {
        self.memory = Some(memory);
        self
    }
}

impl fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryRegion({} bytes at {:#x}, key {:#x})", self.len(), self.addr(), self.mkey.key())
    }
}

impl MemoryRegion {
    /// Allocates and registers at least `len` zeroed bytes, in the largest available pages.
    ///
    /// # Errors
    /// [`Error::Memory`], [`Error::Command`], [`Error::Invalid`] for an invalid combination of access flags, or a
    /// region larger than `log_max_mrw_sz`.
    pub fn allocate(pd: &Arc<Pd>, len: usize, access: AccessFlags) -> Result<Arc<Self>, Error> {
        if len == 0 {
            return Err(Invalid::Empty { what: "a memory region", lacks: "bytes" }.into());
        }
        Self::of(pd, Arc::clone(pd.device().access()).alloc_dma(len)?, access, None, false).map(Arc::new)
    }

    /// The region of an [`ExclusiveRegion`](super::ExclusiveRegion), over `memory`.
    pub(super) fn exclusive(pd: &Arc<Pd>, memory: DmaBuffer) -> Result<Arc<Self>, Error> {
        let mut region = Self::of(pd, memory, AccessFlags::LOCAL_WRITE, None, false)?;
        region.is_exclusive = true;
        Ok(Arc::new(region))
    }

    /// Registers `memory`, the driver's or the user's: any address, any length.
    ///
    /// # Errors
    /// As for [`allocate`](Self::allocate).
    pub fn register(pd: &Arc<Pd>, memory: HostMemory, access: AccessFlags) -> Result<Arc<Self>, Error> {
        Self::of(pd, Arc::clone(pd.device().access()).show(memory)?, access, None, false).map(Arc::new)
    }

    /// As [`register`](Self::register), on demand: nothing is pinned. A page comes when the card needs it, and goes
    /// when the system wants it back; meanwhile the queue pairs that need it wait. So a region may be larger than what
    /// fits into memory, and costs nothing before it is used. [`advise`](Self::advise) brings pages in advance.
    /// (`IBV_ACCESS_ON_DEMAND`.)
    ///
    /// # Errors
    /// As for [`allocate`](Self::allocate); [`Error::Invalid`] on a function that this process owns, where nobody
    /// answers page faults; [`Error::Unsupported`] without `pg`, or without `mem_page_fault`: of the older page faults
    /// the kernel answers only those of its own queue pairs.
    pub fn register_on_demand(pd: &Arc<Pd>, memory: HostMemory, access: AccessFlags) -> Result<Arc<Self>, Error> {
        Self::of(pd, Arc::clone(pd.device().access()).show(memory)?, access, None, true).map(Arc::new)
    }

    /// `memory` as a part of a region of all addresses: on demand, under that region's key, without a command to the
    /// card. Its rights are [`LOCAL_WRITE`](AccessFlags::LOCAL_WRITE): no remote reaches it, and no other process
    /// ([`handle`](Self::handle)).
    ///
    /// # Errors
    /// [`Error::Memory`]; [`Error::Invalid`] for memory that others read.
    pub fn register_in(region: &Arc<ImplicitRegion>, memory: HostMemory) -> Result<Arc<Self>, Error> {
        let pd = Arc::clone(region.pd());
        let memory = Arc::new(Arc::clone(pd.device().access()).show(memory)?);
        let access = AccessFlags::LOCAL_WRITE;
        check_writable(&memory, access)?;
        let (start, mkey) = (own_address(&memory), Mkey::in_implicit(region.lkey()));
        Ok(Arc::new(MemoryRegion {
            mkey,
            implicit: Some(Arc::clone(region)),
            memory: Some(memory),
            start,
            access,
            is_on_demand: true,
            is_exclusive: false,
            lent: Mutex::default(),
            pd,
        }))
    }

    /// Brings the bytes `range` of a region [on demand](Self::register_on_demand), and returns when the card can use
    /// them without a page fault. They may go again at any time. (`ibv_advise_mr` with `IBV_ADVISE_MR_FLAG_FLUSH`.)
    /// Panics if they are outside the region.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a region that is not on demand, [`Error::Io`] where the kernel cannot bring the pages.
    #[track_caller]
    pub fn advise(&self, advice: Advice, range: Range<usize>) -> Result<(), Error> {
        self.bring(advice, range, true)
    }

    /// As [`advise`](Self::advise), and does not wait: the kernel brings the pages as soon as it can.
    /// (`ibv_advise_mr`.)
    ///
    /// # Errors
    /// As for [`advise`](Self::advise), but not for pages that cannot be brought.
    #[track_caller]
    pub fn start_advise(&self, advice: Advice, range: Range<usize>) -> Result<(), Error> {
        self.bring(advice, range, false)
    }

    #[track_caller]
    fn bring(&self, advice: Advice, range: Range<usize>, waits: bool) -> Result<(), Error> {
        self.check(range.start, range.len());
        if !self.is_on_demand {
            let requires = "a region on demand (MemoryRegion::register_on_demand)";
            return Err(Invalid::Requires { what: "advice about a memory region".into(), requires }.into());
        }
        let first = self.addr() + range.start as u64;
        let (kernel, pd) = (shared(self.pd.device(), "memory on demand")?, self.pd.kernel_handle());
        kernel.advise_mr(pd, self.lkey(), first..first + range.len() as u64, advice, waits)
    }

    /// Whether it is [on demand](Self::register_on_demand).
    pub fn is_on_demand(&self) -> bool {
        self.is_on_demand
    }

    /// As [`register`](Self::register), with `start` as the address of the first byte, for work requests and remotes:
    /// 0 makes a zero-based region. (`ibv_reg_mr_iova`; `IBV_ACCESS_ZERO_BASED`.)
    ///
    /// # Errors
    /// As for [`allocate`](Self::allocate); [`Error::Invalid`] where `start` has another offset in a page of 4 KiB than
    /// the memory's first byte: for a zero-based region that is the first of a page. The card has no such translation.
    pub fn register_at(pd: &Arc<Pd>, memory: HostMemory, access: AccessFlags, start: u64) -> Result<Arc<Self>, Error> {
        let inside = |address: u64| address % SMALLEST as u64;
        let (given, needed) = (inside(start), inside(memory.data_offset() as u64));
        if given != needed {
            let of = "a memory region's first byte";
            return Err(Invalid::out_of_range("offset in a page", given, needed..=needed, of).into());
        }
        if start.checked_add(memory.data_len() as u64 - 1).is_none() {
            let last = u64::MAX - (memory.data_len() as u64 - 1);
            return Err(Invalid::out_of_range("address", start, 0..=last, "a memory region's first byte").into());
        }
        Self::of(pd, Arc::clone(pd.device().access()).show(memory)?, access, Some(start), false).map(Arc::new)
    }

    fn of(
        pd: &Arc<Pd>,
        memory: DmaBuffer,
        access: AccessFlags,
        start: Option<u64>,
        is_on_demand: bool,
    ) -> Result<Self, Error> {
        let memory = Arc::new(memory);
        let start = start.unwrap_or_else(|| own_address(&memory));
        let mkey = create_key(pd, &memory, access, start, is_on_demand)?;
        let (memory, pd, lent) = (Some(memory), Arc::clone(pd), Mutex::default());
        Ok(MemoryRegion { mkey, implicit: None, memory, start, access, is_on_demand, is_exclusive: false, lent, pd })
    }

    /// Changes what `region` is: its rights, its protection domain, its memory. Its key is another one afterwards, so
    /// remotes need to be told. Returns the memory that was replaced, as [`into_memory`](Self::into_memory) does.
    ///
    /// Nobody else holds the region: no buffer of it is lent out, no window opens it. A new key is created before the
    /// old one is destroyed, so the call does all or nothing. A region on demand stays one. (`ibv_rereg_mr`.)
    ///
    /// # Errors
    /// The region is as it was, key included: [`Error::Invalid`] where others hold it, or as for
    /// [`register`](Self::register); [`Error::Memory`], [`Error::Command`]. New memory is dropped then.
    pub fn rereg(region: &mut Arc<Self>, changes: RegionChanges) -> Result<Option<HostMemory>, Error> {
        let others = Arc::strong_count(region).saturating_sub(1);
        let Some(this) = Arc::get_mut(region) else {
            let (what, by) = ("the memory region".into(), format!("{others} more holders"));
            let mend = "drop its buffers, unbind its windows, drop its other handles";
            return Err(Invalid::Taken { what, by, mend }.into());
        };
        let (pd, access) = (changes.pd.unwrap_or_else(|| Arc::clone(&this.pd)), changes.access.unwrap_or(this.access));
        if !Arc::ptr_eq(pd.device(), this.pd.device()) {
            return Err(Invalid::ForeignDevice { what: "a memory region's protection domains" }.into());
        }
        let (memory, start) = match (changes.memory, &this.memory) {
            (Some(memory), _) => {
                let memory = Arc::clone(pd.device().access()).show(memory)?;
                (Arc::new(memory), None)
            }
            (None, Some(memory)) => (Arc::clone(memory), Some(this.start)),
            (None, None) => return Err(Invalid::Empty { what: "a memory region", lacks: "memory" }.into()),
        };
        let start = start.unwrap_or_else(|| own_address(&memory));
        let mkey = create_key(&pd, &memory, access, start, this.is_on_demand)?;
        if let Err(error) = this.mkey.destroy() {
            abandon(mkey, memory);
            return Err(error.into());
        }
        (this.mkey, this.implicit) = (mkey, None);
        (this.pd, this.access, this.start) = (pd, access, start);
        let before = this.memory.replace(memory);
        Ok(before.and_then(Arc::into_inner).and_then(DmaBuffer::into_memory))
    }

    /// Deregisters the memory and gives it back; [`HostMemory::into_owner`] gives back its owner. `None` for memory
    /// that the driver [allocated](Self::allocate) from a pool, and where it cannot be unmapped: then it is leaked,
    /// which is logged. On an error the region stays alive and is returned.
    pub fn into_memory(self: Arc<Self>) -> Result<Option<HostMemory>, DestroyError<Self>> {
        let mut memory = None;
        destroy_sole(self, |region| {
            region.deregister()?;
            memory = region.memory.take();
            Ok(())
        })?;
        Ok(memory.and_then(Arc::into_inner).and_then(DmaBuffer::into_memory))
    }

    fn host(&self) -> Option<&HostMemory> {
        self.memory.as_deref().and_then(DmaBuffer::memory)
    }

    /// First address, for work requests and remotes.
    pub fn addr(&self) -> u64 {
        self.start
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.host().map_or(0, HostMemory::data_len)
    }

    /// Whether the length is zero: never.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Page size of the memory in bytes.
    pub fn page_size(&self) -> usize {
        self.host().map_or(0, HostMemory::page_size)
    }

    /// Page size of the card's translation in bytes: with larger pages the card does fewer lookups. At most 1 GiB, and
    /// limited by the alignment of the memory's address in this process and on the card. On `devx:` 4096, though the
    /// kernel uses the largest pages that fit: it does not tell which.
    pub fn card_page_size(&self) -> usize {
        1 << self.mkey.log_page_size()
    }

    /// The key for local work requests.
    pub fn lkey(&self) -> u32 {
        self.mkey.key()
    }

    /// The key for the remote.
    pub fn rkey(&self) -> u32 {
        self.mkey.key()
    }

    /// Asks the card for the context of its key, under PRM names: rights, addresses, page size, protection domain. PRM
    /// "QUERY_MKEY".
    ///
    /// # Errors
    /// [`Error::Command`]; [`Error::NotImplemented`] on `devx:`, where the kernel makes the key.
    pub fn query(&self) -> Result<Mkc, Error> {
        self.mkey.query()
    }

    /// Names the region to processes that share the context ([`Device::export`](crate::Device::export)): `handle` of
    /// libibverbs's `ibv_mr`, for [`ImportedRegion::import`](super::ImportedRegion::import). Its rights count there,
    /// too: the other process's work requests write it only with [`AccessFlags::LOCAL_WRITE`].
    ///
    /// # Errors
    /// [`Error::Invalid`] on a function that this process owns: nobody shares it; and for a part of a region of all
    /// addresses ([`register_in`](Self::register_in)), whose key is for all of them.
    pub fn handle(&self) -> Result<RegionHandle, Error> {
        if self.implicit.is_some() {
            let requires = "a key of its own (MemoryRegion::register_on_demand)";
            return Err(Invalid::Requires { what: "a memory region for several processes".into(), requires }.into());
        }
        let handle = self.mkey.kernel_handle();
        let what = "a memory region for several processes";
        handle.map(|handle| RegionHandle(handle.0)).ok_or_else(|| not_shared(self.pd.device(), what))
    }

    /// The access rights.
    pub fn access(&self) -> AccessFlags {
        self.access
    }

    /// The protection domain.
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Address and key of the first byte, for the remote.
    pub fn remote(&self) -> RemoteAddress {
        self.remote_at(0)
    }

    /// Address and key of byte `offset`, for the remote.
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

    /// The bytes `range` as a scatter/gather element. Panics if they are outside the region.
    #[track_caller]
    pub fn segment(&self, range: Range<usize>) -> DataSegment {
        self.check(range.start, range.len());
        let len = u32::try_from(range.len()).unwrap_or(u32::MAX);
        DataSegment { addr: self.addr() + range.start as u64, len, lkey: self.lkey() }
    }

    /// The memory, and the position of the region's byte `offset` in it.
    #[track_caller]
    fn at(&self, offset: usize, len: usize) -> Option<(&DmaBuffer, usize)> {
        self.check(offset, len);
        let memory = self.memory.as_deref()?;
        Some((memory, offset))
    }

    /// Where the bytes `range` are in this process. Panics if they are outside the region.
    #[track_caller]
    pub(crate) fn as_ptr(&self, range: Range<usize>) -> Result<NonNull<u8>, Error> {
        self.check(range.start, range.len());
        let address = self.memory.as_deref().map(|memory| memory.as_ptr().wrapping_add(range.start));
        let lost = Error::Invalid(Invalid::Empty { what: "a memory region", lacks: "memory" });
        address.and_then(NonNull::new).ok_or(lost)
    }

    /// Copies `bytes` to `offset`. Panics if they do not fit, or others may read the memory
    /// ([`HostMemory::is_writable`]).
    #[track_caller]
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        if let Some((memory, at)) = self.at(offset, bytes.len()) {
            memory.copy_in(at, bytes);
        }
    }

    /// Copies from `offset` to `bytes`. Panics if the region ends before.
    #[track_caller]
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        if let Some((memory, at)) = self.at(offset, bytes.len()) {
            memory.copy_out(at, bytes);
        }
    }

    /// Fills `len` bytes at `offset`. Panics if the region ends before, or others may read the memory.
    #[track_caller]
    pub fn fill(&self, offset: usize, len: usize, byte: u8) {
        if let Some((memory, at)) = self.at(offset, len) {
            memory.fill(at, len, byte);
        }
    }

    /// Whether only its buffers reach the memory.
    pub(super) fn is_exclusive(&self) -> bool {
        self.is_exclusive
    }

    /// The memory, which is always there.
    pub(super) fn memory(&self) -> Option<&DmaBuffer> {
        self.memory.as_deref()
    }

    pub(super) fn lent(&self) -> MutexGuard<'_, Vec<Range<usize>>> {
        lock(&self.lent)
    }

    /// Makes two lent ranges of `range`, which meet at `middle`.
    pub(super) fn cut(&self, range: &Range<usize>, middle: usize) {
        let mut lent = self.lent();
        if let Ok(at) = lent.binary_search_by_key(&range.start, |other| other.start) {
            lent[at].end = middle;
            lent.insert(at + 1, middle..range.end);
        }
    }

    /// Makes one lent range of `range` and the one behind it, to `end`.
    pub(super) fn join(&self, range: &Range<usize>, end: usize) {
        let mut lent = self.lent();
        if let Ok(at) = lent.binary_search_by_key(&range.start, |other| other.start) {
            lent[at].end = end;
            lent.remove(at + 1);
        }
    }

    pub(super) fn take_back(&self, range: &Range<usize>) {
        let mut lent = self.lent();
        if let Ok(at) = lent.binary_search_by_key(&range.start, |other| other.start) {
            lent.remove(at);
        }
    }

    /// Deregisters the memory and frees it. On an error the region stays alive and is returned.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, MemoryRegion::deregister)
    }

    fn deregister(&mut self) -> Result<(), CommandError> {
        self.mkey.destroy()
    }
}

/// Address of the first byte in this process, or a simulation's.
fn own_address(memory: &DmaBuffer) -> u64 {
    memory.memory().map_or(0, |host| host.key_address() + host.data_offset() as u64)
}

/// Error for memory that the card may write, and others may read.
fn check_writable(memory: &DmaBuffer, access: AccessFlags) -> Result<(), Invalid> {
    if access.contains(AccessFlags::LOCAL_WRITE) && !memory.memory().is_none_or(HostMemory::is_writable) {
        let what = "a memory region with LOCAL_WRITE".into();
        return Err(Invalid::Requires { what, requires: "memory that nobody else reads (MemoryOwner::WRITABLE)" });
    }
    Ok(())
}

/// Creates a key; leaks the memory where the key may exist in spite of an error.
fn create_key(
    pd: &Pd,
    memory: &Arc<DmaBuffer>,
    access: AccessFlags,
    start: u64,
    is_on_demand: bool,
) -> Result<Mkey, Error> {
    check_writable(memory, access)?;
    Mkey::create(pd, memory, access, start, is_on_demand).inspect_err(|error| {
        // Without firmware's reply the key may exist, and the card may use it.
        if error.may_be_done() {
            std::mem::forget(Arc::clone(memory));
        }
    })
}

/// Destroys a key that is not needed; leaks its memory if that fails.
fn abandon(mut mkey: Mkey, memory: Arc<DmaBuffer>) {
    if let Err(error) = mkey.destroy() {
        tracing::error!(%error, "a memory key was not destroyed; its memory is leaked");
        std::mem::forget(memory);
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
