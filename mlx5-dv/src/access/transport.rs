//! The driver's view of a PCI function that it owns. The kernel's VFIO, a vfio-user socket and a model in this process
//! implement these traits; everything above is the same for all three.

use std::fmt::Debug;
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use crate::memory::{HostRange, Iova};

/// A function reached through these three traits: what [`Device::open`](crate::Device::open) takes.
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
    /// A function of `bar` (its BAR 0), `dma` (the memory that it can reach) and `irq` (its interrupt vectors). `name`
    /// is its device string, for messages.
    ///
    /// # Safety
    /// All three must belong to the same function, and nothing else may drive it while they live: another driver's
    /// register write could make the card access memory that this driver has mapped.
    pub unsafe fn new(name: String, bar: Box<dyn Bar>, dma: Box<dyn DmaSpace>, irq: Box<dyn Irq>) -> Self {
        Function { name, bar, dma, irq }
    }

    /// The device string it was opened by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes it apart.
    pub fn into_parts(self) -> FunctionParts {
        let Function { name, bar, dma, irq } = self;
        FunctionParts { name, bar, dma, irq }
    }
}

/// The parts of a [`Function`]: for wrappers of one of its traits.
#[derive(Debug)]
pub struct FunctionParts {
    /// The device string that it was opened by.
    pub name: String,
    /// BAR 0.
    pub bar: Box<dyn Bar>,
    /// The memory that the function can reach.
    pub dma: Box<dyn DmaSpace>,
    /// Its interrupt vectors.
    pub irq: Box<dyn Irq>,
}

/// BAR 0 of the function, and the function's reset.
///
/// Offsets are bytes from the start of the BAR, naturally aligned. Values are in host byte order; all registers of the
/// card are big-endian. Any thread may call. A removed card reads as all ones.
///
/// # Safety
/// The driver trusts the implementation, and frees memory based on it:
/// * [`map`](Self::map) returns the part of the BAR that was asked for.
/// * After an `Ok` of [`reset`](Self::reset) or `set_bus_master(false)`, no earlier DMA is in flight.
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
    /// A register can make the card access memory: the address of the command queue, a doorbell. All memory that the
    /// card accesses because of this write must be mapped for that purpose, and stay so.
    unsafe fn write32(&self, offset: u64, value: u32) -> io::Result<()>;
    /// Writes one big-endian quadword: in one access if the transport supports it, else as two halves in order.
    ///
    /// # Safety
    /// As for [`write32`](Self::write32).
    unsafe fn write64(&self, offset: u64, value: u64) -> io::Result<()>;
    /// Maps `len` bytes for direct stores; both arguments are multiples of the host's page size. `None` if this part of
    /// the BAR can only be accessed through `read32` and the other calls.
    fn map(&self, offset: u64, len: usize) -> io::Result<Option<BarMapping>>;
    /// Resets the function (FLR): firmware restarts, and no earlier DMA is in flight.
    fn reset(&self) -> io::Result<()>;
    /// Enables or disables the function's DMA.
    fn set_bus_master(&self, enabled: bool) -> io::Result<()>;
}

/// A part of the BAR mapped into this process, unmapped on drop. Doorbells are stored through it, so creating one needs
/// a real mapping or `unsafe`.
pub struct BarMapping {
    address: NonNull<u8>,
    len: usize,
    owner: Box<dyn Send + Sync>,
}

// SAFETY: the mapping is plain device memory that `owner` keeps until drop; stores through `address` come from one
// thread at a time (the uar crate's `&mut self`).
unsafe impl Send for BarMapping {}
// SAFETY: as above; a shared reference gives access to the raw address only.
unsafe impl Sync for BarMapping {}

impl BarMapping {
    /// Alignment of a part: firmware's UAR page size.
    pub const ALIGNMENT: usize = uar::mmio::UAR_PAGE;

    /// Wraps `mapping`, of a file or a device. `keep` lives as long as the mapping.
    pub fn of_map(mapping: memmap2::MmapRaw, keep: impl Send + Sync + 'static) -> io::Result<Self> {
        let len = mapping.len();
        let address = NonNull::new(mapping.as_mut_ptr()).ok_or_else(|| io::Error::other("mapped at address zero"))?;
        // SAFETY: the mapping stays at its address until the owner, which holds it, is dropped.
        Ok(unsafe { Self::new(address, len, Box::new((mapping, keep))) })
    }

    /// Wraps `len` bytes at `address`, which `owner` keeps mapped.
    ///
    /// # Safety
    /// The range is one readable and writable mapping, aligned to the host's page size. It stays mapped until `owner`
    /// is dropped, and has no other use: no reference in this process points into it.
    pub unsafe fn new(address: NonNull<u8>, len: usize, owner: Box<dyn Send + Sync>) -> Self {
        BarMapping { address, len, owner }
    }

    /// Address of the first byte.
    pub fn address(&self) -> NonNull<u8> {
        self.address
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The `len` bytes at `offset`; `None` if they are not inside, `len` is zero, or `offset` is not a multiple of
    /// [`ALIGNMENT`](Self::ALIGNMENT).
    pub fn part(self, offset: usize, len: usize) -> Option<BarMapping> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len);
        if !inside || len == 0 || !offset.is_multiple_of(Self::ALIGNMENT) {
            return None;
        }
        // SAFETY: checked above; the mapping is one piece by the contract of its creation.
        let address = unsafe { self.address.add(offset) };
        Some(BarMapping { address, len, owner: self.owner })
    }
}

impl Debug for BarMapping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BarMapping({} bytes at {:p})", self.len, self.address)
    }
}

/// The function's address space: which memory of this process the card can reach, and at which addresses.
///
/// # Safety
/// The driver trusts the implementation, and frees memory based on it:
/// * The device reaches no memory of this process but what [`map`](Self::map) was given.
/// * After an `Ok` of [`unmap`](Self::unmap) it no longer reaches that range.
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
    /// Maps `range` for the device at `iova`, readable and writable.
    ///
    /// # Safety
    /// The memory stays mapped in this process until [`unmap`](Self::unmap) succeeds, or until the device's DMA has
    /// stopped and the space is dropped. No reference covers memory that the device is told to write meanwhile.
    ///
    /// ```compile_fail,E0133
    /// fn show(space: &dyn mlx5_dv::access::DmaSpace, range: mlx5_dv::access::HostRange<'_>) {
    ///     let _ = space.map(range, mlx5_dv::memory::Iova(0x20_0000)); // only in an unsafe block
    /// }
    /// ```
    unsafe fn map(&self, range: HostRange<'_>, iova: Iova) -> io::Result<()>;
    /// Unmaps exactly what one `map` mapped.
    fn unmap(&self, iova: Iova, len: usize) -> io::Result<()>;
    /// Address ranges (first, last) that `map` accepts.
    fn iova_ranges(&self) -> Vec<(u64, u64)>;
    /// Whether anonymous memory can be mapped.
    fn takes_anonymous_memory(&self) -> bool;
    /// Whether the driver's own memory should be backed by a file: yes, unless only the kernel ever accesses it.
    fn prefers_files(&self) -> bool {
        true
    }
    /// The address that memory keys, work requests and remotes use for the next `len` bytes that are mapped; it starts
    /// at a page boundary. `None`, the default, means the address in this process. A simulation with reproducible runs
    /// assigns addresses that do not depend on the process; the driver's own memory then uses ordinary pages, whatever
    /// huge pages the system has.
    fn key_address(&self, len: usize) -> Option<u64> {
        let _ = len;
        None
    }
}

/// The function's MSI-X vectors. A safe trait: a wrong implementation delays or breaks waits, but moves no memory.
pub trait Irq: Send + Sync + Debug {
    /// How many vectors the function has.
    fn vectors(&self) -> u32;
    /// Enables the first `count` vectors; each signals its own eventfd. Replaces the previous set.
    fn enable(&self, count: u32) -> io::Result<Vec<OwnedFd>>;
    /// Disables all vectors.
    fn disable(&self) -> io::Result<()>;
    /// Asks the system to signal what it has to say of the function from now on. Default: it says nothing.
    fn notices(&self) -> io::Result<Notices> {
        Ok(Notices::default())
    }
}

/// What a system signals of a function beside its interrupts: an eventfd each, `None` where it has no such signal.
#[derive(Debug, Default)]
pub struct Notices {
    /// The system wants the function back: somebody unbinds or unplugs it, and waits until it is closed.
    pub wanted_back: Option<OwnedFd>,
    /// The bus has reported an error of the function that cannot be corrected.
    pub bus_error: Option<OwnedFd>,
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
