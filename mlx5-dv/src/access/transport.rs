//! The lower seam: what the driver needs of a PCI function that it owns. The kernel's VFIO, a vfio-user socket and the
//! in-process model implement it; everything above is the same for all three.

use std::fmt::Debug;
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use crate::memory::{HostRange, Iova};

/// A function reached through the three seams: what [`Device::open`](crate::Device::open) takes.
///
/// ```compile_fail,E0616
/// fn swap_the_memory(mut function: mlx5_dv::access::Function, other: Box<dyn mlx5_dv::access::DmaSpace>) {
///     function.dma = other; // the field is private
/// }
/// ```
#[derive(Debug)]
pub struct Function {
    name: String,
    bar: Box<dyn Bar>,
    dma: Box<dyn DmaSpace>,
    irq: Box<dyn Irq>,
}

impl Function {
    /// The function behind `bar` (its BAR 0), `dma` (the memory it may reach) and `irq` (its interrupt vectors); `name`
    /// is the device string it was opened by, for messages.
    ///
    /// # Safety
    /// All three reach the same function, and nobody else drives it as long as they live: a register written by another
    /// could direct the card at memory that this one's driver has shown it.
    pub unsafe fn new(name: String, bar: Box<dyn Bar>, dma: Box<dyn DmaSpace>, irq: Box<dyn Irq>) -> Self {
        Function { name, bar, dma, irq }
    }

    /// The device string it was opened by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it was made of.
    pub fn into_parts(self) -> FunctionParts {
        let Function { name, bar, dma, irq } = self;
        FunctionParts { name, bar, dma, irq }
    }
}

/// What a [`Function`] was made of: for whoever wraps one of its seams.
#[derive(Debug)]
pub struct FunctionParts {
    /// The device string it was opened by.
    pub name: String,
    /// BAR 0.
    pub bar: Box<dyn Bar>,
    /// The memory the function may reach.
    pub dma: Box<dyn DmaSpace>,
    /// Its interrupt vectors.
    pub irq: Box<dyn Irq>,
}

/// BAR 0 of the function, and the function's reset.
///
/// Offsets are bytes from the start of the BAR, naturally aligned; values are in the host's order and travel
/// big-endian, as all of the card's registers do. Any thread may call. A vanished card reads as all ones.
///
/// # Safety
/// Of an implementation the driver believes, and frees memory on the strength of it:
/// * [`map`](Self::map) returns the part of the BAR that was asked for.
/// * After an `Ok` of [`reset`](Self::reset), or of `set_bus_master(false)`, no DMA of before is under way.
///
/// ```compile_fail,E0200
/// #[derive(Debug)]
/// struct Mine(Box<dyn mlx5_dv::access::Bar>);
///
/// impl mlx5_dv::access::Bar for Mine { // only as an `unsafe impl`
///     fn size(&self) -> u64 { self.0.size() }
///     fn read32(&self, offset: u64) -> std::io::Result<u32> { self.0.read32(offset) }
///     unsafe fn write32(&self, offset: u64, value: u32) -> std::io::Result<()> { Ok(()) }
///     unsafe fn write64(&self, offset: u64, value: u64) -> std::io::Result<()> { Ok(()) }
///     fn map(&self, offset: u64, len: usize) -> std::io::Result<Option<mlx5_dv::access::BarMapping>> { Ok(None) }
///     fn reset(&self) -> std::io::Result<()> { Ok(()) }
///     fn set_bus_master(&self, enabled: bool) -> std::io::Result<()> { Ok(()) }
/// }
/// ```
pub unsafe trait Bar: Send + Sync + Debug {
    /// Bytes of the BAR.
    fn size(&self) -> u64;
    /// Reads one big-endian dword.
    fn read32(&self, offset: u64) -> io::Result<u32>;
    /// Writes one big-endian dword.
    ///
    /// # Safety
    /// A register can direct the card at memory: the address of the command queue, a doorbell. Whatever the card reads
    /// and writes because of this write is memory shown to it for that, and stays so.
    unsafe fn write32(&self, offset: u64, value: u32) -> io::Result<()>;
    /// Writes one big-endian quadword, in one access where the way to the card has such; else its halves in order.
    ///
    /// # Safety
    /// As for [`write32`](Self::write32).
    unsafe fn write64(&self, offset: u64, value: u64) -> io::Result<()>;
    /// Maps `len` bytes for direct stores, both multiples of the host's page size; `None` where this part of the BAR
    /// can only be reached through `read32` and its like.
    fn map(&self, offset: u64, len: usize) -> io::Result<Option<BarMapping>>;
    /// Resets the function (FLR): afterwards firmware starts anew, and no DMA of before is under way.
    fn reset(&self) -> io::Result<()>;
    /// Lets the function issue DMA, or stops it.
    fn set_bus_master(&self, enabled: bool) -> io::Result<()>;
}

/// A part of the BAR in this process' address space, unmapped on drop. Doorbells are stored through it, so it can only
/// be made of a real mapping, or by `unsafe`.
pub struct BarMapping {
    address: NonNull<u8>,
    len: usize,
    owner: Box<dyn Send + Sync>,
}

// SAFETY: the mapping is plain device memory that `owner` keeps until drop; whoever stores through `address` keeps to
// one thread at a time (the uar crate's `&mut self`).
unsafe impl Send for BarMapping {}
// SAFETY: as above; a shared reference gives no access but the raw address.
unsafe impl Sync for BarMapping {}

impl BarMapping {
    /// Where a part may begin: at the bytes of a UAR page that firmware counts.
    pub const ALIGNMENT: usize = uar::mmio::UAR_PAGE;

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

    /// The `len` bytes from `offset`; `None` if they are not inside, are none, or do not begin at a multiple of
    /// [`ALIGNMENT`](Self::ALIGNMENT).
    pub fn part(self, offset: usize, len: usize) -> Option<BarMapping> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len);
        if !inside || len == 0 || !offset.is_multiple_of(Self::ALIGNMENT) {
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
///
/// # Safety
/// Of an implementation the driver believes, and frees memory on the strength of it:
/// * The device reaches no memory of this process but what [`map`](Self::map) was given, by the caller's range and no
///   other.
/// * After an `Ok` of [`unmap`](Self::unmap) it reaches that range no more.
///
/// ```compile_fail,E0200
/// #[derive(Debug)]
/// struct Elsewhere(Box<dyn mlx5_dv::access::DmaSpace>);
///
/// impl mlx5_dv::access::DmaSpace for Elsewhere { // only as an `unsafe impl`
///     unsafe fn map(&self, _: mlx5_dv::access::HostRange<'_>, _: mlx5_dv::memory::Iova) -> std::io::Result<()> { Ok(()) }
///     fn unmap(&self, _: mlx5_dv::memory::Iova, _: usize) -> std::io::Result<()> { Ok(()) }
///     fn iova_ranges(&self) -> Vec<(u64, u64)> { vec![] }
///     fn takes_anonymous_memory(&self) -> bool { true }
/// }
/// ```
pub unsafe trait DmaSpace: Send + Sync + Debug {
    /// Shows `range` to the device at `iova`, readable and writable.
    ///
    /// # Safety
    /// The memory stays mapped in this process until [`unmap`](Self::unmap) succeeded, or until the device's DMA has
    /// stopped and the space is dropped. What the device is told to write of it meanwhile is memory that no reference
    /// covers.
    ///
    /// ```compile_fail,E0133
    /// fn show(space: &dyn mlx5_dv::access::DmaSpace, memory: &mlx5_dv::memory::HostMemory) {
    ///     let _ = space.map(memory.range(), mlx5_dv::memory::Iova(0x20_0000)); // only in an unsafe block
    /// }
    /// ```
    unsafe fn map(&self, range: HostRange<'_>, iova: Iova) -> io::Result<()>;
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
    /// The address that memory keys, work requests and remotes have for the next `len` bytes that are shown: where a
    /// page of that memory's begins. `None`, the default, for the address in this process. A simulation whose runs are
    /// to be the same has addresses of its own, which say nothing of the process; the driver's own memory then lies in
    /// ordinary pages, however many large ones the system has.
    fn key_address(&self, len: usize) -> Option<u64> {
        let _ = len;
        None
    }
}

/// The function's MSI-X vectors. A safe trait: a false one makes waits end late or in vain, and moves no memory.
pub trait Irq: Send + Sync + Debug {
    /// How many vectors the function has.
    fn vectors(&self) -> u32;
    /// Enables the first `count` vectors, each signalling its own eventfd. Replaces what was enabled before.
    fn enable(&self, count: u32) -> io::Result<Vec<OwnedFd>>;
    /// Disables all vectors.
    fn disable(&self) -> io::Result<()>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use memmap2::MmapOptions;

    fn pages(count: usize) -> BarMapping {
        let file = tempfile::tempfile().unwrap();
        file.set_len((count * BarMapping::ALIGNMENT) as u64).unwrap();
        BarMapping::of_map(MmapOptions::new().map_raw(&file).unwrap(), ()).unwrap()
    }

    #[test]
    fn a_part_is_inside_and_begins_at_a_uar_page() {
        let start = pages(2).address();
        assert!(start.is_aligned());
        let part = pages(2).part(4096, 4096).unwrap();
        assert_eq!((part.len(), part.address().addr().get() % 4096), (4096, 0));
        for (offset, len) in [(4096, 4097), (8192, 1), (8, 64), (usize::MAX, 2), (0, 0), (2048, 2048)] {
            assert!(pages(2).part(offset, len).is_none(), "{offset} {len}");
        }
    }
}
