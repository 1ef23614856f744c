//! A file's pages in this process.

use std::fs::File;
use std::io;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The first `len` bytes of a file, shared, readable and writable. Unmapped on drop.
#[derive(Debug)]
pub(super) struct Mapping {
    address: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping of its own, which stays where it is until drop; the type gives out the address only.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// At `place`, a page's address, or an error where something lies there already; anywhere if there is none.
    pub(super) fn of(file: &File, len: usize, place: Option<NonNull<u8>>) -> io::Result<Self> {
        let (hint, fixed) = match place {
            Some(place) => (place.as_ptr(), MapFlags::FIXED_NOREPLACE),
            None => (std::ptr::null_mut(), MapFlags::empty()),
        };
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the place, or takes the given one if it is free: nothing of ours is replaced.
        let address = unsafe { mmap(hint.cast(), len, rights, MapFlags::SHARED | fixed, file, 0) }?;
        let address = NonNull::new(address.cast()).ok_or_else(|| io::Error::other("mapped at address zero"))?;
        let mapping = Mapping { address, len };
        // A kernel before 4.17 takes it for a hint.
        match place.is_none_or(|place| place == address) {
            true => Ok(mapping),
            false => Err(io::ErrorKind::AlreadyExists.into()),
        }
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
        // SAFETY: mapped by this very call's counterpart, and not unmapped before; nobody has the address any more.
        if let Err(error) = unsafe { munmap(self.address.as_ptr().cast(), self.len) } {
            tracing::error!(%error, "memory not unmapped");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_taken_once() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        let first = Mapping::of(&file, 8192, None).unwrap();
        let (address, len) = (first.address(), first.len());
        assert!(Mapping::of(&file, len, Some(address)).is_err(), "something lies there");
        drop(first);
        assert_eq!(Mapping::of(&file, len, Some(address)).unwrap().address(), address);
    }
}
