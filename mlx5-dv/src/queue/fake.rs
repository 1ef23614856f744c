//! Plain memory for tests that simulate the card's side of a ring.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// Zeroed memory aligned to 4096 bytes.
pub(crate) struct Memory {
    base: NonNull<u8>,
    layout: Layout,
}

impl Memory {
    pub(crate) fn new(len: usize) -> Self {
        let layout = Layout::from_size_align(len, 4096).unwrap();
        // SAFETY: no test uses length zero.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap();
        Memory { base, layout }
    }

    pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.layout.size());
        // SAFETY: checked above.
        unsafe { self.base.add(offset) }
    }

    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.layout.size());
        for (i, &byte) in bytes.iter().enumerate() {
            // SAFETY: checked above.
            unsafe { self.at(offset + i).write_volatile(byte) }
        }
    }

    pub(crate) fn fill(&self, offset: usize, len: usize, byte: u8) {
        self.write(offset, &vec![byte; len]);
    }

    pub(crate) fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= self.layout.size());
        // SAFETY: checked above.
        (0..len).map(|i| unsafe { self.at(offset + i).read_volatile() }).collect()
    }

    pub(crate) fn be32(&self, offset: usize) -> u32 {
        u32::from_be_bytes(self.read(offset, 4).try_into().unwrap())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}
