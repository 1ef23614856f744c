//! Device memory (MEMIC): at the end of BAR 0 for loads and stores, and reachable through keys of access mode MEMIC.
//! PRM `ALLOC_MEMIC`, `device_mem_cap`; `access_mode` of `mkc`.
//!
//! Behind the memory lies, for each operation, a range of the same size: an access to it does the operation on the
//! memory. What they do is public in rdma-core's tests/test_mlx5_dm_ops.py. Numbers are big-endian, as ConnectX-7 has
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mlx5_prm::cmd::MemicOperation;

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

/// Memory by quadwords, as it lies at their addresses. Clients that map it store there, too.
pub trait Quadwords: fmt::Debug + Send + Sync {
    /// The quadword at byte `at`, a multiple of 8; `None` past the end.
    fn quadword(&self, at: u64) -> Option<&AtomicU64>;
}

impl Quadwords for Vec<AtomicU64> {
    fn quadword(&self, at: u64) -> Option<&AtomicU64> {
        self.get(usize::try_from(at / QUADWORD).ok()?)
    }
}

/// Bytes of a quadword.
const QUADWORD: u64 = 8;

/// The bytes. Shared with the keys that reach them.
#[derive(Debug, Clone)]
pub struct Bytes {
    memory: Arc<dyn Quadwords>,
    /// The first byte in `memory`; a multiple of 8, as is `len`.
    start: u64,
    len: u64,
}

impl Bytes {
    /// Whether there are `len` bytes at byte `at`.
    fn has(&self, at: u64, len: usize) -> bool {
        at.checked_add(len as u64).is_some_and(|end| end <= self.len)
    }

    /// Calls `access` for the quadwords of `len` bytes from byte `at` on, which are there: with the bytes of the
    /// quadword and those of the access that are one.
    fn each(&self, at: u64, len: usize, mut access: impl FnMut(&AtomicU64, Range<usize>, Range<usize>)) {
        let mut done = 0;
        while done < len {
            let (at, skipped) = (at + done as u64, ((at + done as u64) % QUADWORD) as usize);
            let count = (QUADWORD as usize - skipped).min(len - done);
            if let Some(quadword) = self.memory.quadword(self.start + at - skipped as u64) {
                access(quadword, skipped..skipped + count, done..done + count);
            }
            done += count;
        }
    }

    /// Reads from byte `at` on. Returns false if that exceeds the memory.
    pub fn read(&self, at: u64, bytes: &mut [u8]) -> bool {
        let is_there = self.has(at, bytes.len());
        if is_there {
            self.each(at, bytes.len(), |quadword, inside, place| {
                bytes[place].copy_from_slice(&quadword.load(Ordering::Acquire).to_ne_bytes()[inside]);
            });
        }
        is_there
    }

    /// Writes from byte `at` on. Returns false if that exceeds the memory.
    pub fn write(&self, at: u64, bytes: &[u8]) -> bool {
        let is_there = self.has(at, bytes.len());
        if is_there {
            self.each(at, bytes.len(), |quadword, inside, place| {
                change(quadword, |old| old[inside.clone()].copy_from_slice(&bytes[place.clone()]));
            });
        }
        is_there
    }

    /// Changes the `len` bytes of a number at byte `at`, which lie in one quadword, at once; returns the old ones.
    /// `None` if they exceed the memory.
    fn update(&self, at: u64, len: usize, update: impl Fn(&mut [u8])) -> Option<[u8; QUADWORD as usize]> {
        let skipped = at % QUADWORD;
        let quadword = self.has(at, len).then(|| self.memory.quadword(self.start + at - skipped)).flatten()?;
        let inside = skipped as usize..skipped as usize + len;
        let old = change(quadword, |bytes| update(&mut bytes[inside.clone()]));
        let mut found = [0; QUADWORD as usize];
        found[..len].copy_from_slice(&old[inside]);
        Some(found)
    }

    /// Adds a big-endian number of 1, 2, 4 or 8 bytes to the one at byte `at`. Returns false for another width, an odd
    /// place, or one outside of the memory.
    pub fn increment(&self, at: u64, by: &[u8]) -> bool {
        let add = |place: &mut [u8]| set_number(place, number(place).wrapping_add(number(by)));
        is_width(at, by.len()) && self.update(at, by.len(), add).is_some()
    }

    /// Reads a number as wide as `old` at byte `at`, and sets it to 1. Returns false as [`increment`](Self::increment).
    pub fn test_and_set(&self, at: u64, old: &mut [u8]) -> bool {
        let len = old.len();
        let found = if is_width(at, len) { self.update(at, len, |place| set_number(place, 1)) } else { None };
        found.map(|found| old.copy_from_slice(&found[..len])).is_some()
    }

    /// Atomically replaces the big-endian quadword at byte `at`; returns the old one. `None` if it exceeds the memory,
    /// or is none.
    pub fn update_be64(&self, at: u64, change: impl Fn(u64) -> u64) -> Option<u64> {
        if !at.is_multiple_of(QUADWORD) {
            return None;
        }
        let replace = |place: &mut [u8]| set_number(place, change(number(place)));
        self.update(at, QUADWORD as usize, replace).map(u64::from_be_bytes)
    }
}

/// Changes a quadword at once; returns what it was.
fn change(quadword: &AtomicU64, change: impl Fn(&mut [u8; QUADWORD as usize])) -> [u8; QUADWORD as usize] {
    let changed = |old: u64| {
        let mut bytes = old.to_ne_bytes();
        change(&mut bytes);
        u64::from_ne_bytes(bytes)
    };
    let mut old = quadword.load(Ordering::Acquire);
    loop {
        match quadword.compare_exchange_weak(old, changed(old), Ordering::AcqRel, Ordering::Acquire) {
            Ok(old) => return old.to_ne_bytes(),
            Err(now) => old = now,
        }
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

impl DeviceMemory {
    /// `size` bytes of zeros, none allocated, from byte `start` of BAR 0 on.
    pub fn new(start: u64, size: u32) -> Self {
        let quadwords: Vec<AtomicU64> = (0..u64::from(size) / QUADWORD).map(|_| AtomicU64::default()).collect();
        let bytes = Bytes { memory: Arc::new(quadwords), start: 0, len: size.into() };
        DeviceMemory { start, bytes, taken: BTreeMap::new(), operations: BTreeSet::new() }
    }

    /// Puts it, with nothing allocated, into `bar`, the memory of BAR 0.
    pub fn put_into(&mut self, bar: Arc<dyn Quadwords>) {
        self.bytes = Bytes { memory: bar, start: self.start, len: self.bytes.len };
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
        self.bytes.len
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
