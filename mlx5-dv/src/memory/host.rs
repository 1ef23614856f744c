//! Memory of this process that can be mapped for the device.

use std::any::Any;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use super::huge::{PrivateHugePages, SharedPages};
use super::{HostRange, Iova, MemoryOwner, PageSize, Pages};
use crate::error::{Error, Invalid};

/// Whole pages of this process, the driver's or the user's, that can be mapped for the device.
///
/// Its file, if it has one, is the driver's and the card's alone:
///
/// ```compile_fail,E0624
/// # fn f(memory: &mlx5_dv::memory::HostMemory) {
/// let file = memory.file(); // who writes it changes memory without the compiler's knowledge
/// # }
/// ```
///
/// User memory that is not page-aligned is somewhere inside these pages: see [`data_offset`](Self::data_offset).
pub struct HostMemory {
    address: NonNull<u8>,
    len: usize,
    page_size: PageSize,
    data: (usize, usize),
    iova: Option<Iova>,
    /// Key address of the first page, if it differs from the address in this process.
    key_address: Option<u64>,
    backing: Backing,
}

/// Owner of the memory: frees it on drop.
enum Backing {
    Shared(SharedPages),
    Private(#[expect(dead_code, reason = "held for its drop")] PrivateHugePages),
    Part {
        whole: Arc<dyn MemoryHolder>,
        offset: usize,
    },
    /// The user's owner.
    Owned {
        owner: Box<dyn Any + Send + Sync>,
        is_writable: bool,
    },
    Borrowed,
}

/// An owner of memory, shared by parts of it.
pub(super) trait MemoryHolder: Send + Sync {
    /// The memory; the same on each call until drop.
    fn held(&self) -> Option<&HostMemory>;
}

// SAFETY: the memory keeps its address until drop, on any thread. It is accessed by raw pointers, and their users
// synchronise.
unsafe impl Send for HostMemory {}
// SAFETY: as above; no method of `&self` reads or writes the memory.
unsafe impl Sync for HostMemory {}

impl fmt::Debug for HostMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostMemory({} bytes at {:p}, pages of {})", self.len, self.address, self.page_size)
    }
}

impl HostMemory {
    /// Allocates at least `len` zeroed bytes in the largest available pages, backed by a file that another process can
    /// map. Errors: [`Error::Memory`].
    pub fn allocate(len: usize) -> Result<Self, Error> {
        Self::allocate_in(len, Pages::Largest)
    }

    /// As [`allocate`](Self::allocate), with the given page sizes.
    pub fn allocate_in(len: usize, pages: Pages) -> Result<Self, Error> {
        Ok(Self::shared(SharedPages::new(len, pages)?))
    }

    fn shared(pages: SharedPages) -> Self {
        let (address, len) = (pages.mapping.address(), pages.mapping.len());
        HostMemory {
            address,
            len,
            page_size: pages.page_size,
            data: (0, len),
            iova: None,
            key_address: None,
            backing: Backing::Shared(pages),
        }
    }

    /// As [`allocate`](Self::allocate), for accesses that need no file: private huge pages if available.
    pub fn allocate_private(len: usize) -> Result<Self, Error> {
        // The default huge page is rarely the largest; other sizes are available only with a file.
        if let Some(memory) = Self::in_gigabytes(len) {
            return Ok(memory);
        }
        let Some(pages) = PrivateHugePages::new(len) else { return Self::allocate(len) };
        Ok(HostMemory {
            address: pages.address(),
            len: pages.len(),
            page_size: pages.page_size(),
            data: (0, pages.len()),
            iova: None,
            key_address: None,
            backing: Backing::Private(pages),
        })
    }

    /// Memory in 1 GiB pages, if it fills at least half of them and they are available.
    fn in_gigabytes(len: usize) -> Option<Self> {
        let page = PageSize::HUGE_1G;
        if !page.is_worth(len) {
            return None;
        }
        Self::allocate_in(len, Pages::Exactly(page)).ok()
    }

    /// As [`of`](Self::of), for a vector.
    pub fn from_vec(bytes: Vec<u8>) -> Result<Self, Error> {
        Self::of(bytes)
    }

    /// Takes over the memory of `owner`: any address, any length but zero. The owner is dropped with it, or comes back
    /// by [`into_owner`](Self::into_owner).
    ///
    /// What other holders may read at the same time, such as an `Arc<[u8]>`, the card only reads: a
    /// [`MemoryRegion`](crate::objects::MemoryRegion) over it has no LOCAL_WRITE, and is not written by its methods.
    ///
    /// The pages around the bytes are mapped for the device as a whole, including anything else the allocator keeps
    /// there. The IOMMU cannot separate them; the card's memory keys do. Keys that
    /// [`MemoryRegion`](crate::objects::MemoryRegion) creates start at the first byte and end at the last, so
    /// the card refuses to access a neighbour; queues use memory of their own. Code that creates objects by raw
    /// commands ([`Device::execute_raw`](crate::Device::execute_raw), `unsafe`) is responsible for their bounds. To be
    /// independent of the card's checks, use memory of [`allocate`](Self::allocate), which has whole pages of its own.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an owner of no bytes, or of bytes at the end of the address space.
    pub fn of<T: MemoryOwner>(owner: T) -> Result<Self, Error> {
        // In its place before it is asked: it is moved no more.
        let mut owner = Box::new(owner);
        let (bytes, page_size) = (owner.bytes(), owner.page_size());
        if bytes.is_empty() {
            return Err(empty_memory());
        }
        Self::around(bytes.cast(), bytes.len(), page_size, Backing::Owned { owner, is_writable: T::WRITABLE })
    }

    /// The owner that [`of`](Self::of) took. Errors: the memory, if that is not its owner.
    pub fn into_owner<T: MemoryOwner>(mut self) -> Result<T, Self> {
        match self.backing {
            Backing::Owned { owner, is_writable } => match owner.downcast() {
                Ok(owner) => Ok(*owner),
                Err(owner) => {
                    self.backing = Backing::Owned { owner, is_writable };
                    Err(self)
                }
            },
            _ => Err(self),
        }
    }

    /// Whether it may be written: not where others may read it, see [`MemoryOwner`].
    pub fn is_writable(&self) -> bool {
        !matches!(self.backing, Backing::Owned { is_writable: false, .. })
    }

    /// The `len` bytes of user memory at `address`, in pages of `page_size`: any address, any length but zero.
    ///
    /// # Safety
    /// Every page of `page_size` that the range touches is mapped, has that size, and stays mapped until this value is
    /// dropped. While it is mapped for a device, nothing in this process holds a reference to the range. This process
    /// accesses it through a single `HostMemory`, or with synchronisation against the accesses through that one: two
    /// with different bounds would access the same bytes in different sizes.
    pub unsafe fn from_raw_parts(address: NonNull<u8>, len: usize, page_size: PageSize) -> Result<Self, Error> {
        if len == 0 {
            return Err(empty_memory());
        }
        Self::around(address, len, page_size, Backing::Borrowed)
    }

    /// The whole pages around the `len` bytes at `address`.
    fn around(address: NonNull<u8>, len: usize, page_size: PageSize, backing: Backing) -> Result<Self, Error> {
        let skipped = address.addr().get() % page_size.bytes();
        let whole = skipped.checked_add(len).and_then(|used| used.checked_next_multiple_of(page_size.bytes()));
        let whole = whole.ok_or_else(|| {
            let most = (usize::MAX - skipped) / page_size.bytes() * page_size.bytes();
            Invalid::out_of_range("the length of memory", len as u64, 0..=most as u64, "the address space behind it")
        })?;
        let first = address.as_ptr().wrapping_sub(skipped);
        let address = NonNull::new(first).ok_or_else(|| {
            let (page, limit) = (page_size.bytes() as u64, page_size.bytes() as u64..=u64::MAX);
            Invalid::out_of_range("the address of memory", address.addr().get() as u64 % page, limit, "a process")
        })?;
        Ok(HostMemory { address, len: whole, page_size, data: (skipped, len), iova: None, key_address: None, backing })
    }

    /// The `len` bytes of `whole` at `offset`, both multiples of 4 KiB; `None` if outside.
    pub(super) fn part(whole: &Arc<impl MemoryHolder + 'static>, offset: usize, len: usize) -> Option<Self> {
        let memory = whole.held()?;
        let end = offset.checked_add(len)?;
        // Only for memory that has no user data in it.
        if memory.data != (0, memory.len)
            || end > memory.len
            || !offset.is_multiple_of(4096)
            || !len.is_multiple_of(4096)
        {
            return None;
        }
        // SAFETY: checked to be inside the single mapping of `whole`.
        let address = unsafe { memory.address.add(offset) };
        let backing = Backing::Part { whole: Arc::clone(whole) as Arc<dyn MemoryHolder>, offset };
        let key_address = memory.key_address.map(|first| first + offset as u64);
        Some(HostMemory { address, len, page_size: memory.page_size, data: (0, len), iova: None, key_address, backing })
    }

    /// Address of the first page.
    pub fn address(&self) -> NonNull<u8> {
        self.address
    }

    /// Length of all pages in bytes. A multiple of 4 KiB, and of [`page_size`](Self::page_size) unless this is a part
    /// of a larger allocation.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the length is zero: never.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Page size in bytes.
    pub fn page_size(&self) -> usize {
        self.page_size.bytes()
    }

    /// Offset of the user's data in the first page; 0 for the driver's own memory.
    pub fn data_offset(&self) -> usize {
        self.data.0
    }

    /// Length of the user's data; all of it for the driver's own memory.
    #[inline]
    pub fn data_len(&self) -> usize {
        self.data.1
    }

    /// Address of the data.
    #[inline]
    pub(crate) fn data(&self) -> *mut u8 {
        // Wrapping, as in `around`: the page may start outside the user's allocation; the data does not.
        self.address.as_ptr().wrapping_add(self.data.0)
    }

    /// The file that backs the memory, and the offset in it, if any. It is not handed out: a program could write the
    /// file under references to the memory, or under a queue's ring.
    pub(crate) fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        match &self.backing {
            Backing::Shared(pages) => Some((pages.file.as_fd(), 0)),
            Backing::Part { whole, offset } => whole.held()?.file().map(|(file, at)| (file, at + *offset as u64)),
            Backing::Private(_) | Backing::Owned { .. } | Backing::Borrowed => None,
        }
    }

    /// The memory as an argument for a [`DmaSpace`](crate::access::DmaSpace).
    pub(crate) fn range(&self) -> HostRange<'_> {
        // SAFETY: whole host pages, mapped as long as `self` lives, backed by that file if any. The makers of keys and
        // queues let the card write only the data, to which nobody holds a reference.
        unsafe { HostRange::new(self.address, self.len, self.file()) }
    }

    /// Its device address, if it is mapped already.
    pub fn iova(&self) -> Option<Iova> {
        self.iova
    }

    /// The address of the first page for memory keys, work requests and remotes: the address in this process, as in
    /// verbs, unless a simulation assigns its own.
    pub fn key_address(&self) -> u64 {
        self.key_address.unwrap_or(self.address.as_ptr() as u64)
    }

    pub(crate) fn set_key_address(&mut self, address: Option<u64>) {
        self.key_address = address;
    }

    pub(super) fn set_iova(&mut self, iova: Iova) {
        self.iova = Some(iova);
    }

    /// As it was before it was mapped.
    pub(super) fn unmapped(mut self) -> Self {
        (self.iova, self.key_address) = (None, None);
        self
    }
}

fn empty_memory() -> Error {
    Invalid::Empty { what: "host memory", lacks: "bytes" }.into()
}

#[cfg(test)]
mod tests {
    use super::super::DmaBuffer;
    use super::*;

    #[test]
    fn our_own_memory_is_zeroed_whole_pages_with_a_file() {
        let memory = HostMemory::allocate(5000).unwrap();
        assert_eq!((memory.len(), memory.page_size(), memory.data_offset()), (8192, 4096, 0));
        assert!(memory.file().is_some() && memory.iova().is_none());
        // SAFETY: inside the allocation, which nobody else uses.
        assert!((0..memory.len()).all(|at| unsafe { memory.address().add(at).read_volatile() } == 0));
    }

    #[test]
    fn a_user_s_vector_of_any_length_lies_in_whole_pages() {
        for len in [1, 7, 4096, 4097, 12345] {
            let bytes = vec![0xa5; len];
            let start = bytes.as_ptr() as usize;
            let memory = HostMemory::from_vec(bytes).unwrap();
            assert_eq!(memory.address().as_ptr() as usize + memory.data_offset(), start);
            assert_eq!(memory.data_len(), len);
            assert!(memory.len().is_multiple_of(4096) && memory.len() >= memory.data_offset() + len);
            assert!((memory.address().as_ptr() as usize).is_multiple_of(4096));
            assert!(memory.file().is_none());
        }
        assert!(HostMemory::from_vec(Vec::new()).is_err());
    }

    #[test]
    fn a_part_knows_its_place_in_the_file() {
        let whole = DmaBuffer::new(HostMemory::allocate(16384).unwrap(), Iova(1 << 30), Box::new(|_, _| None));
        let whole = Arc::new(whole);
        let part = HostMemory::part(&whole, 8192, 4096).unwrap();
        assert_eq!(part.file().unwrap().1, 8192);
        assert_eq!(part.address().as_ptr() as usize, whole.as_ptr() as usize + 8192);
        assert!(HostMemory::part(&whole, 16384, 4096).is_none());
        assert!(HostMemory::part(&whole, 100, 4096).is_none());
        assert!(HostMemory::part(&whole, usize::MAX, 4096).is_none());
    }

    #[test]
    fn private_memory_is_had_with_or_without_huge_pages() {
        let memory = HostMemory::allocate_private(2 << 20).unwrap();
        assert!(memory.len() >= 2 << 20);
    }
}
