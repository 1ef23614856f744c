//! Mappings of files.

use std::fs::File;
use std::io;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The first `len` bytes of a file, mapped shared, readable and writable. Unmapped on drop.
#[derive(Debug)]
pub(super) struct Mapping {
    address: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping of its own with a fixed address until drop; the type gives out only the address.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the file at an address that the kernel chooses.
    pub(super) fn of(file: &File, len: usize) -> io::Result<Self> {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address, so no existing mapping is replaced.
        let address = unsafe { mmap(std::ptr::null_mut(), len, rights, MapFlags::SHARED, file, 0) }?;
        let address = NonNull::new(address.cast()).ok_or_else(|| io::Error::other("mapped at address zero"))?;
        Ok(Mapping { address, len })
    }

    pub(super) fn address(&self) -> NonNull<u8> {
        self.address
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `of`, not unmapped before, and nobody uses the address any more.
        if let Err(error) = unsafe { munmap(self.address.as_ptr().cast(), self.len) } {
            tracing::error!(%error, "memory not unmapped");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::thread;

    use super::*;

    /// For ThreadSanitizer (.ci/tsan), which has to know of `mmap` and `munmap`: else two owners of one address, one
    /// after the other, are a race to it. Nothing else orders these threads.
    #[test]
    fn an_address_unmapped_by_one_thread_and_mapped_by_another_is_no_race() {
        const LEN: usize = 1 << 20;
        let file = File::from(rustix::fs::memfd_create("reused", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
        file.set_len(LEN as u64).unwrap();
        let write = |mapping: &Mapping| {
            // SAFETY: inside the mapping, and of this thread alone.
            unsafe { mapping.address().cast::<u64>().write_volatile(1) };
            mapping.address().as_ptr().addr()
        };
        for _ in 0..16 {
            let left = AtomicUsize::new(0);
            thread::scope(|scope| {
                scope.spawn(|| left.store(write(&Mapping::of(&file, LEN).unwrap()), Relaxed));
                scope.spawn(|| {
                    while left.load(Relaxed) == 0 {
                        thread::yield_now();
                    }
                    write(&Mapping::of(&file, LEN).unwrap());
                });
            });
        }
    }
}
