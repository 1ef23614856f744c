//! Memory on the card: at the end of BAR 0, for processors to load and store, and behind keys of access mode MEMIC.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::lock::lock;

/// All of a function's memory of this kind, and what of it is taken.
#[derive(Debug, Clone)]
pub struct DeviceMemory {
    /// Where in BAR 0 it begins.
    start: u64,
    bytes: Bytes,
    taken: BTreeMap<u64, u64>,
}

/// The memory. A key behind which a part of it lies has it too, so all clones are the same.
#[derive(Debug, Clone)]
pub struct Bytes(Arc<Mutex<Vec<u8>>>);

impl Bytes {
    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        lock(&self.0)
    }

    /// Reads from byte `at` on. False if it ends before that.
    pub fn read(&self, at: u64, bytes: &mut [u8]) -> bool {
        let all = self.lock();
        let from = range(at, bytes.len()).and_then(|range| all.get(range));
        from.map(|from| bytes.copy_from_slice(from)).is_some()
    }

    /// Writes from byte `at` on. False if it ends before that.
    pub fn write(&self, at: u64, bytes: &[u8]) -> bool {
        let mut all = self.lock();
        let to = range(at, bytes.len()).and_then(|range| all.get_mut(range));
        to.map(|to| to.copy_from_slice(bytes)).is_some()
    }

    /// Replaces the big-endian quadword at byte `at`; the old one. `None` if it is not all there.
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
    /// `size` bytes, all zero and nobody's, from byte `start` of BAR 0 on.
    pub fn new(start: u64, size: u32) -> Self {
        DeviceMemory { start, bytes: Bytes(Arc::new(Mutex::new(vec![0; size as usize]))), taken: BTreeMap::new() }
    }

    /// Where in BAR 0 it lies.
    pub fn range(&self) -> Range<u64> {
        self.start..self.start + self.bytes.lock().len() as u64
    }

    /// Takes `len` bytes at byte `address` of BAR 0. False if they are not all there, or a part of them is taken.
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

    /// Gives back, and clears, what was taken at `address`. False if that was not `len` bytes.
    pub fn give_back(&mut self, address: u64, len: u64) -> bool {
        let is_its = self.taken.get(&address) == Some(&len);
        if is_its {
            self.taken.remove(&address);
            self.bytes.write(address - self.start, &vec![0; len as usize]);
        }
        is_its
    }

    /// The memory, and the place in it of byte `address` of BAR 0. `None` if the `len` bytes there are not of one part
    /// that was taken.
    pub fn at(&self, address: u64, len: u64) -> Option<(&Bytes, u64)> {
        let (start, size) = self.taken.range(..=address).next_back()?;
        let end = address.checked_add(len)?;
        (end <= start + size).then(|| (&self.bytes, address - self.start))
    }

    /// How many parts are taken.
    pub fn parts(&self) -> usize {
        self.taken.len()
    }
}
