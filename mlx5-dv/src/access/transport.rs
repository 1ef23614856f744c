//! The lower seam: what the driver needs of a PCI function that it owns. The kernel's VFIO, a vfio-user socket and the
//! in-process model implement it; everything above is the same for all three.

use std::fmt::Debug;
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use crate::memory::{HostRange, Iova};

/// A function reached through the three seams: what [`Device::open`](crate::Device::open) takes.
#[derive(Debug)]
pub struct Function {
    /// The device string it was opened by, for messages.
    pub name: String,
    /// BAR 0.
    pub bar: Box<dyn Bar>,
    /// Memory the function may reach.
    pub dma: Box<dyn DmaSpace>,
    /// Interrupt vectors.
    pub irq: Box<dyn Irq>,
}

/// BAR 0 of the function, and the function's reset.
///
/// Offsets are bytes from the start of the BAR, naturally aligned; values are in the host's order and travel big-endian,
/// as all of the card's registers do. Any thread may call. A vanished card reads as all ones.
pub trait Bar: Send + Sync + Debug {
    /// Bytes of the BAR.
    fn size(&self) -> u64;
    /// Reads one big-endian dword.
    fn read32(&self, offset: u64) -> io::Result<u32>;
    /// Writes one big-endian dword.
    fn write32(&self, offset: u64, value: u32) -> io::Result<()>;
    /// Writes one big-endian quadword, in one access where the way to the card has such; else its halves in order.
    fn write64(&self, offset: u64, value: u64) -> io::Result<()>;
    /// Maps `len` bytes for direct stores, both multiples of the host's page size; `None` where this part of the BAR can
    /// only be reached through `read32` and its like.
    fn map(&self, offset: u64, len: usize) -> io::Result<Option<BarMapping>>;
    /// Resets the function (FLR): afterwards firmware starts anew, and no DMA of before is under way.
    fn reset(&self) -> io::Result<()>;
    /// Lets the function issue DMA, or stops it.
    fn set_bus_master(&self, enabled: bool) -> io::Result<()>;
}

/// A part of the BAR in this process' address space, unmapped on drop. Doorbells are stored through it, so it can only be
/// made of a real mapping, or by `unsafe`.
pub struct BarMapping {
    pub(crate) address: NonNull<u8>,
    pub(crate) len: usize,
    owner: Box<dyn Send + Sync>,
}

// SAFETY: the mapping is plain device memory that `owner` keeps until drop; whoever stores through `address` keeps to one
// thread at a time (the uar crate's `&mut self`).
unsafe impl Send for BarMapping {}
// SAFETY: as above; a shared reference gives no access but the raw address.
unsafe impl Sync for BarMapping {}

impl BarMapping {
    /// `mapping`, of a file or a device; `keep` lives as long as it does.
    pub fn of_map(mapping: memmap2::MmapRaw, keep: impl Send + Sync + 'static) -> io::Result<Self> {
        let len = mapping.len();
        let address = NonNull::new(mapping.as_mut_ptr()).ok_or_else(|| io::Error::other("mapped at address zero"))?;
        // SAFETY: a mapping of its own, which lies where it is until the owner, which holds it, is dropped.
        Ok(unsafe { Self::new(address, len, Box::new((mapping, keep))) })
    }

    /// `len` bytes from `address` on, which `owner` keeps mapped.
    ///
    /// # Safety
    /// The range is one mapping, readable and writable, aligned to the host's page size, stays mapped until `owner` is
    /// dropped, and is used for nothing else: no reference of this process points into it.
    pub unsafe fn new(address: NonNull<u8>, len: usize, owner: Box<dyn Send + Sync>) -> Self {
        BarMapping { address, len, owner }
    }

    /// First byte.
    pub fn address(&self) -> NonNull<u8> {
        self.address
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The `len` bytes from `offset`; `None` if they are not inside.
    pub fn part(self, offset: usize, len: usize) -> Option<BarMapping> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return None;
        }
        // SAFETY: checked above; whoever made the mapping vouched that it is one piece.
        let address = unsafe { self.address.add(offset) };
        Some(BarMapping { address, len, owner: self.owner })
    }
}

impl Debug for BarMapping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BarMapping({} bytes at {:p})", self.len, self.address)
    }
}

/// The function's view of memory: which addresses the card may use, and what lies there.
pub trait DmaSpace: Send + Sync + Debug {
    /// Shows `range` to the device at `iova`, readable and writable. The memory must stay mapped until
    /// [`unmap`](Self::unmap) or until the space is dropped.
    fn map(&self, range: HostRange<'_>, iova: Iova) -> io::Result<()>;
    /// Takes back exactly what one `map` showed.
    fn unmap(&self, iova: Iova, len: usize) -> io::Result<()>;
    /// Address ranges (first, last) a map may use.
    fn iova_ranges(&self) -> Vec<(u64, u64)>;
    /// Whether memory that no file backs can be shown.
    fn takes_anonymous_memory(&self) -> bool;
    /// Whether the driver's own memory had better have a file behind it: yes, unless only the kernel ever looks at it.
    fn prefers_files(&self) -> bool {
        true
    }
    /// Where in this process the driver's own memory of `len` bytes is to lie, in ordinary pages: a page's address where
    /// nothing lies yet. `None`, the default, for anywhere, and the largest pages. Commands carry addresses of the process: a
    /// simulation whose runs are to be the same says which.
    fn placement(&self, len: usize) -> Option<NonNull<u8>> {
        let _ = len;
        None
    }
}

/// The function's MSI-X vectors.
pub trait Irq: Send + Sync + Debug {
    /// How many vectors the function has.
    fn vectors(&self) -> u32;
    /// Enables the first `count` vectors, each signalling its own eventfd. Replaces what was enabled before.
    fn enable(&self, count: u32) -> io::Result<Vec<OwnedFd>>;
    /// Disables all vectors.
    fn disable(&self) -> io::Result<()>;
}
