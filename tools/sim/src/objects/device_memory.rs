//! Device memory (MEMIC): at the end of BAR 0 for loads and stores, and reachable through keys of access mode MEMIC.
//! PRM `ALLOC_MEMIC`, `device_mem_cap`; `access_mode` of `mkc`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::lock::lock;

/// The device memory of a function, and its allocations.
#[derive(Debug, Clone)]
pub struct DeviceMemory {
    /// Offset in BAR 0.
    start: u64,
    bytes: Bytes,
    taken: BTreeMap<u64, u64>,
}

/// The bytes. Shared with the keys that reach them.
#[derive(Debug, Clone)]
pub struct Bytes(Arc<Mutex<Vec<u8>>>);

impl Bytes {
    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        lock(&self.0)
    }

    /// Reads from byte `at` on. Returns false if that exceeds the memory.
    pub fn read(&self, at: u64, bytes: &mut [u8]) -> bool {
        let all = self.lock();
        let from = range(at, bytes.len()).and_then(|range| all.get(range));
        from.map(|from| bytes.copy_from_slice(from)).is_some()
    }

    /// Writes from byte `at` on. Returns false if that exceeds the memory.
    pub fn write(&self, at: u64, bytes: &[u8]) -> bool {
        let mut all = self.lock();
        let to = range(at, bytes.len()).and_then(|range| all.get_mut(range));
        to.map(|to| to.copy_from_slice(bytes)).is_some()
    }

    /// Atomically replaces the big-endian quadword at byte `at`; returns the old one. `None` if it exceeds the memory.
    pub fn update_be64(&self, at: u64, change: impl Fn(u64) -> u64) -> Option<u64> {
        let mut all = self.lock();
        let place = all.get_mut(range(at, size_of::<u64>())?)?.first_chunk_mut()?;
        let old = u64::from_be_bytes(*place);
        *place = change(old).to_be_bytes();
        Some(old)
    }
}

fn range(at: u64, len: usize) -> Option<Range<usize>> {
    let at = usize::try_from(at).ok()?;
    Some(at..at.checked_add(len)?)
}

impl DeviceMemory {
    /// `size` bytes of zeros, none allocated, from byte `start` of BAR 0 on.
    pub fn new(start: u64, size: u32) -> Self {
        DeviceMemory { start, bytes: Bytes(Arc::new(Mutex::new(vec![0; size as usize]))), taken: BTreeMap::new() }
    }

    /// Its range in BAR 0.
    pub fn range(&self) -> Range<u64> {
        self.start..self.start + self.bytes.lock().len() as u64
    }

    /// Allocates `len` bytes at byte `address` of BAR 0. Returns false if they exceed the memory, or
    /// overlap an allocation.
    pub fn take(&mut self, address: u64, len: u64) -> bool {
        let Range { start, end } = self.range();
        let is_there = address >= start && address.checked_add(len).is_some_and(|last| last <= end);
        let is_taken = self.taken.iter().any(|(at, size)| *at < address.saturating_add(len) && address < at + size);
        let takes = is_there && !is_taken && len > 0;
        if takes {
            self.taken.insert(address, len);
        }
        takes
    }

    /// Frees and clears the allocation at `address`. Returns false if there is none of `len` bytes.
    pub fn give_back(&mut self, address: u64, len: u64) -> bool {
        let is_its = self.taken.get(&address) == Some(&len);
        if is_its {
            self.taken.remove(&address);
            self.bytes.write(address - self.start, &vec![0; len as usize]);
        }
        is_its
    }

    /// The memory, and the offset in it of byte `address` of BAR 0. `None` if the `len` bytes there are not within one
    /// allocation.
    pub fn at(&self, address: u64, len: u64) -> Option<(&Bytes, u64)> {
        let (start, size) = self.taken.range(..=address).next_back()?;
        let end = address.checked_add(len)?;
        (end <= start + size).then(|| (&self.bytes, address - self.start))
    }

    /// Number of allocations.
    pub fn parts(&self) -> usize {
        self.taken.len()
    }
}
