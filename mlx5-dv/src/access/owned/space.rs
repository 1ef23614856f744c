//! The device's address space: which memory is mapped, and where.

use std::sync::{Arc, Mutex};

use crate::access::DmaSpace;
use crate::access::liveness::Liveness;
use crate::error::{Death, Error};
use crate::lock::lock;
use crate::memory::{DmaBuffer, HostMemory, Iova, IovaAllocator, PageSize, Pages, Translation};

/// Memory mapped for the device. Each piece has the offset within large pages that its key address has, so both the
/// IOMMU and the card's translations can use large pages at any address.
#[derive(Debug)]
pub struct Space {
    dma: Box<dyn DmaSpace>,
    addresses: Mutex<IovaAllocator>,
    liveness: Arc<Liveness>,
}

impl Space {
    /// The address space of the function behind `dma`.
    pub fn new(dma: Box<dyn DmaSpace>, liveness: Arc<Liveness>) -> Self {
        let addresses = Mutex::new(IovaAllocator::new(dma.iova_ranges()));
        Space { dma, addresses, liveness }
    }

    /// Maps `memory` for the device.
    fn map(&self, memory: &HostMemory) -> Result<Iova, Error> {
        if memory.file().is_none() && !self.dma.takes_anonymous_memory() {
            return Err(Error::Memory {
                reason: "a device model can only use memory that is backed by a file, and this is not".into(),
                fix: Some("use HostMemory::allocate".into()),
                source: None,
            });
        }
        let address = memory.key_address();
        let align = alignment(memory.len());
        let (start, reserved) = reserved(address, memory.len());
        let found = self.lock().allocate_like(start, reserved, align).ok_or_else(|| Error::Memory {
            reason: format!("out of device addresses for {} bytes", memory.len()),
            fix: Some("destroy memory regions that are no longer used".into()),
            source: None,
        })?;
        let iova = Iova(found.0 + (address - start));
        // SAFETY: the memory stays mapped until `unmap`, which `release` calls before it frees (or leaks) it, or until
        // the card is gone: every caller of `map` puts it into a `DmaBuffer`, which gives out no reference to its
        // data.
        match unsafe { self.dma.map(memory.range(), iova) } {
            Ok(()) => Ok(iova),
            Err(source) => {
                self.lock().free(found, reserved);
                Err(map_error(memory.len(), source))
            }
        }
    }

    /// Unmaps memory that [`map`](Self::map) mapped. After an error the device may still reach it, so it must not be
    /// freed.
    fn unmap(&self, iova: Iova, len: usize) -> Result<(), Error> {
        match self.dma.unmap(iova, len) {
            Ok(()) => {
                let (start, reserved) = reserved(iova.0, len);
                self.lock().free(Iova(start), reserved);
                Ok(())
            }
            // The server process ended, so nothing can write this memory any more.
            Err(_) if matches!(self.liveness.death(), Some(Death::ServerGone { .. })) => Ok(()),
            Err(source) => {
                Err(Error::of_device(format!("unmapping {len} bytes at device address {:#x}", iova.0), source))
            }
        }
    }

    /// Allocates memory that stays mapped for the device until it is dropped.
    pub fn allocate(self: &Arc<Self>, len: usize) -> Result<DmaBuffer, Error> {
        let key_address = self.dma.key_address(len);
        let memory = match key_address {
            Some(_) => HostMemory::allocate_in(len, Pages::Exactly(PageSize::host())),
            None if self.dma.prefers_files() => HostMemory::allocate(len),
            None => HostMemory::allocate_private(len),
        };
        self.map_buffer_at(memory?, key_address)
    }

    /// Maps `memory` for the device until it is dropped; then unmaps and frees it.
    pub fn map_buffer(self: &Arc<Self>, memory: HostMemory) -> Result<DmaBuffer, Error> {
        let key_address = self.dma.key_address(memory.len());
        self.map_buffer_at(memory, key_address)
    }

    fn map_buffer_at(self: &Arc<Self>, mut memory: HostMemory, key_address: Option<u64>) -> Result<DmaBuffer, Error> {
        memory.set_key_address(key_address);
        let iova = self.map(&memory)?;
        let space = Arc::clone(self);
        Ok(DmaBuffer::new(memory, iova, Box::new(move |memory, iova| space.release(memory, iova))))
    }

    /// Unmaps `memory` and gives it back. Leaks it if that fails, since the device may still write it.
    fn release(&self, memory: HostMemory, iova: Iova) -> Option<HostMemory> {
        if let Err(error) = self.unmap(iova, memory.len()) {
            tracing::error!(%error, bytes = memory.len(), "memory leaked: the device may still write it");
            std::mem::forget(memory);
            return None;
        }
        Some(memory)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, IovaAllocator> {
        lock(&self.addresses)
    }
}

/// The address range reserved for `len` bytes at `address`: start and length, in whole device pages, so that it never
/// overlaps a neighbour. A key address and its device address have the same offset and length.
fn reserved(address: u64, len: usize) -> (u64, u64) {
    let log_page = Translation::log_size(address, len, alignment(len).trailing_zeros());
    let start = Translation::start(address, log_page);
    (start, (address - start + len as u64).next_multiple_of(1 << log_page))
}

/// The two addresses of `len` bytes differ by a multiple of this.
fn alignment(len: usize) -> u64 {
    (len as u64).next_power_of_two().clamp(4096, 1 << Translation::LOG_LARGEST)
}

fn map_error(len: usize, source: std::io::Error) -> Error {
    if let Some(death) = Death::connection_lost(&source) {
        return Error::Dead(death);
    }
    let fix = (source.raw_os_error() == Some(libc::ENOMEM))
        .then(|| "raise the limit of locked memory: `ulimit -l unlimited`, or LimitMEMLOCK=infinity in a unit".into());
    Error::Memory { reason: format!("cannot map {len} bytes of memory for the device"), fix, source: Some(source) }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::access::HostRange;

    /// A device that refuses to map memory.
    #[derive(Debug)]
    struct Refusing(i32);

    // SAFETY: there is no device.
    unsafe impl DmaSpace for Refusing {
        unsafe fn map(&self, _range: HostRange<'_>, _iova: Iova) -> io::Result<()> {
            Err(io::Error::from_raw_os_error(self.0))
        }
        fn unmap(&self, _iova: Iova, _len: usize) -> io::Result<()> {
            Ok(())
        }
        fn iova_ranges(&self) -> Vec<(u64, u64)> {
            vec![(1 << 30, (1 << 30) + (16 << 20) - 1)]
        }
        fn takes_anonymous_memory(&self) -> bool {
            false
        }
    }

    fn refusal(error: i32, memory: HostMemory) -> String {
        let space = Arc::new(Space::new(Box::new(Refusing(error)), Liveness::new()));
        match space.map_buffer(memory) {
            Ok(_) => panic!("it must be refused"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn too_low_a_limit_of_locked_memory_says_how_to_raise_it() {
        let text = refusal(libc::ENOMEM, HostMemory::allocate(4096).unwrap());
        assert!(text.contains("ulimit -l unlimited"), "{text}");
        let text = refusal(libc::EFAULT, HostMemory::allocate(4096).unwrap());
        assert!(text.contains("cannot map") && !text.contains("ulimit"), "{text}");
    }

    #[test]
    fn a_server_that_hangs_up_is_a_death_whatever_it_was_asked() {
        let text = refusal(libc::EPIPE, HostMemory::allocate(4096).unwrap());
        assert!(text.contains("the device's server is gone"), "{text}");
    }

    /// A device behind the kernel's IOMMU, which needs no files. Records what was mapped where.
    #[derive(Debug, Default)]
    struct Kernel(Arc<Mutex<Vec<(u64, u64)>>>);

    // SAFETY: there is no device.
    unsafe impl DmaSpace for Kernel {
        unsafe fn map(&self, range: HostRange<'_>, iova: Iova) -> io::Result<()> {
            let address = range.address().as_ptr() as u64;
            if !(address | iova.0 | range.len() as u64).is_multiple_of(4096) {
                return Err(io::Error::from_raw_os_error(libc::EINVAL));
            }
            lock(&self.0).push((address, iova.0));
            Ok(())
        }
        fn unmap(&self, _iova: Iova, _len: usize) -> io::Result<()> {
            Ok(())
        }
        fn iova_ranges(&self) -> Vec<(u64, u64)> {
            vec![(1 << 30, (1 << 40) - 1)]
        }
        fn takes_anonymous_memory(&self) -> bool {
            true
        }
        fn prefers_files(&self) -> bool {
            false
        }
    }

    #[test]
    fn where_no_file_is_needed_memory_is_private_if_there_are_huge_pages() {
        let space = Arc::new(Space::new(Box::new(Kernel::default()), Liveness::new()));
        let small = space.allocate(4096).unwrap();
        assert!(small.memory().unwrap().file().is_some(), "half a huge page and more would be wasted");
        let large = space.allocate(2 << 20).unwrap();
        let memory = large.memory().unwrap();
        assert!(memory.file().is_some() || memory.page_size() >= 2 << 20);
        large.fill(0, large.len(), 0x5a);
    }

    #[test]
    fn no_addresses_and_no_file_are_told_apart() {
        let text = refusal(libc::ENOMEM, HostMemory::allocate(32 << 20).unwrap());
        assert!(text.contains("out of device addresses"), "{text}");
        let text = refusal(libc::ENOMEM, HostMemory::from_vec(vec![0; 100]).unwrap());
        assert!(text.contains("backed by a file"), "{text}");
    }

    #[test]
    fn large_pages_stay_inside_what_is_reserved() {
        for len in [4096_usize, 3 * 4096, 1 << 21, (1 << 30) + 4096, 5 << 30] {
            for address in [1 << 40, (1 << 40) + 0x5000, (1 << 40) + 0x3ff_f000] {
                let (start, bytes) = reserved(address, len);
                let iova = Iova(address + (alignment(len) << 4));
                assert_eq!(reserved(iova.0, len), (start + (alignment(len) << 4), bytes));
                let pages = Translation::of(address, iova, len);
                let (first, end) = (pages.first, pages.first + (pages.count << pages.log_size));
                assert!(first >= iova.0 - (address - start) && end <= iova.0 - (address - start) + bytes, "{len:#x}");
                assert!(first <= iova.0 && iova.0 + len as u64 <= end, "{len:#x}");
            }
        }
    }

    #[test]
    fn a_user_s_memory_is_counted_in_few_pages_wherever_it_lies() {
        let kernel = Kernel::default();
        let mapped = Arc::clone(&kernel.0);
        let space = Arc::new(Space::new(Box::new(kernel), Liveness::new()));
        let _keeps_the_first_place = space.allocate(4096).unwrap();
        let vector = vec![0u8; (64 << 20) + 4096];
        let odd = vector.as_ptr() as u64 & 0x3fff_ffff;
        let memory = space.map_buffer(HostMemory::from_vec(vector).unwrap()).unwrap();
        let (address, iova) = lock(&mapped)[1];
        assert_eq!(iova & 0x7ff_ffff, address & 0x7ff_ffff, "{odd:#x}");
        let pages = Translation::of(address, memory.iova(), memory.memory().unwrap().len());
        assert!(pages.count <= 512, "{pages:?}");
        drop(memory);
        assert_eq!(space.lock().allocate(1 << 39, 1 << 39), Some(Iova(1 << 39)), "all of it came back");
    }
}
