//! Device memory (MEMIC): at the end of BAR 0 for loads and stores, and reachable through keys of access mode MEMIC.
//! PRM `ALLOC_MEMIC`, `device_mem_cap`; `access_mode` of `mkc`.
//!
//! Behind the memory lies, for each operation, a range of the same size: an access to it does the operation on the
//! memory. What they do is public in rdma-core's tests/test_mlx5_dm_ops.py. Numbers are big-endian, as ConnectX-7 has
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use mlx5_prm::cmd::MemicOperation;

use crate::lock::lock;

/// The device memory of a function, and its allocations.
#[derive(Debug, Clone)]
pub struct DeviceMemory {
    /// Offset in BAR 0.
    start: u64,
    bytes: Bytes,
    taken: BTreeMap<u64, u64>,
    /// Start of the allocation, and number of the operation that has addresses.
    operations: BTreeSet<(u64, u32)>,
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

    /// Adds a big-endian number of 1, 2, 4 or 8 bytes to the one at byte `at`. Returns false for another width, an odd
    /// place, or one outside of the memory.
    pub fn increment(&self, at: u64, by: &[u8]) -> bool {
        let mut all = self.lock();
        let place = range(at, by.len()).filter(|_| is_width(at, by.len())).and_then(|range| all.get_mut(range));
        place.map(|place| set_number(place, number(place).wrapping_add(number(by)))).is_some()
    }

    /// Reads a number as wide as `old` at byte `at`, and sets it to 1. Returns false as [`increment`](Self::increment).
    pub fn test_and_set(&self, at: u64, old: &mut [u8]) -> bool {
        let mut all = self.lock();
        let place = range(at, old.len()).filter(|_| is_width(at, old.len())).and_then(|range| all.get_mut(range));
        let Some(place) = place else { return false };
        old.copy_from_slice(place);
        set_number(place, 1);
        true
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

/// Whether operations have this width.
fn is_width(at: u64, len: usize) -> bool {
    matches!(len, 1 | 2 | 4 | 8) && at.is_multiple_of(len as u64)
}

/// A big-endian number of up to 8 bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// The lower bytes of `number`, big-endian.
fn set_number(bytes: &mut [u8], number: u64) {
    for (at, byte) in bytes.iter_mut().rev().enumerate() {
        *byte = (number >> (8 * at)) as u8;
    }
}

fn range(at: u64, len: usize) -> Option<Range<usize>> {
    let at = usize::try_from(at).ok()?;
    Some(at..at.checked_add(len)?)
}

impl DeviceMemory {
    /// `size` bytes of zeros, none allocated, from byte `start` of BAR 0 on.
    pub fn new(start: u64, size: u32) -> Self {
        DeviceMemory {
            start,
            bytes: Bytes(Arc::new(Mutex::new(vec![0; size as usize]))),
            taken: BTreeMap::new(),
            operations: BTreeSet::new(),
        }
    }

    /// Its range in BAR 0.
    pub fn range(&self) -> Range<u64> {
        self.start..self.start + self.size()
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

    /// Whether an allocation starts at byte `address` of BAR 0.
    pub fn is_taken(&self, address: u64) -> bool {
        self.taken.contains_key(&address)
    }

    /// Gives the allocation at `address` a range for `operation`: where it starts in BAR 0. `None` if it has one.
    pub fn add_operation(&mut self, address: u64, operation: MemicOperation) -> Option<u64> {
        let is_new = self.operations.insert((address, operation.number()));
        is_new.then(|| address + self.size() * (1 + u64::from(operation.number())))
    }

    /// Ends the range for `operation`. Returns false if there is none.
    pub fn remove_operation(&mut self, address: u64, operation: MemicOperation) -> bool {
        self.operations.remove(&(address, operation.number()))
    }

    /// Whether the allocation at `address` has operations.
    pub fn has_operations(&self, address: u64) -> bool {
        self.operations.range((address, 0)..=(address, u32::MAX)).next().is_some()
    }

    /// The operation of byte `address` of BAR 0, its memory, and the place there; `None` if it has none there, and if
    /// the `len` bytes are not within one allocation.
    pub fn operation_at(&self, address: u64, len: u64) -> Option<(MemicOperation, &Bytes, u64)> {
        let index = address.checked_sub(self.range().end)?.checked_div(self.size())?;
        let operation = MemicOperation::from_number(u32::try_from(index).ok()?);
        let address = address - self.size() * (1 + index);
        let (start, _) = self.taken.range(..=address).next_back()?;
        let (memory, at) = self.at(address, len)?;
        self.operations.contains(&(*start, operation.number())).then_some((operation, memory, at))
    }

    /// Bytes of all of it.
    fn size(&self) -> u64 {
        self.bytes.lock().len() as u64
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
