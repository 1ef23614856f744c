//! Copies between ordinary memory and memory that the card, or another thread, may access at the same time.
//!
//! A plain `memcpy` of such memory is undefined behaviour in Rust, and the compiler may split or repeat it. Relaxed
//! atomics are the accesses that may race, under one condition: two that race, one of them a store, must have the same
//! address and the same size. So the size does not depend on the copy but on the address alone:
//!
//! ```text
//!            data of 29 bytes from address 0x1005
//! 0x1005          0x1008                        0x1020
//! [ b | b | b ]   [ quadword ][ quadword ][ quadword ]   [ b | b ]
//! ```
//!
//! * Bytes of an aligned quadword that lies wholly inside of the data are only accessed as that quadword. A copy that
//!   begins or ends in the middle of one loads all of it and selects, or changes its part by compare-exchange. That is
//!   atomic for other threads, and for the card too: a locked operation owns the cache line, and the card's DMA is
//!   coherent.
//! * Bytes in front of the first such quadword and behind the last are only accessed as bytes. What else lies in their
//!   quadwords belongs to somebody else.
//!
//! Memory of our own is whole pages: all quadwords. What else in this process accesses memory that [`SharedBytes`]
//! covers either only loads it while nobody here stores to it (completion queue entries, by who polls), or has it alone
//! between two synchronisations (send and receive rings, by who leases them), or is a doorbell record, which is
//! accessed as dwords by the `uar` crate alone while a queue has it.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// Bytes of the unit of access.
const QUADWORD: usize = size_of::<u64>();

/// How memory is accessed: by atomics, but for tests that watch.
trait Cells {
    /// # Safety
    /// The byte at `at` may be read.
    unsafe fn load_byte(&self, at: *mut u8) -> u8;
    /// # Safety
    /// The byte at `at` may be written.
    unsafe fn store_byte(&self, at: *mut u8, value: u8);
    /// # Safety
    /// `at` is aligned, and its eight bytes may be read.
    unsafe fn load(&self, at: *mut u64) -> u64;
    /// # Safety
    /// `at` is aligned, and its eight bytes may be written.
    unsafe fn store(&self, at: *mut u64, value: u64);
    /// Sets the bits of `mask` to those of `value`, and no others.
    ///
    /// # Safety
    /// `at` is aligned, and its eight bytes may be read and written.
    unsafe fn change(&self, at: *mut u64, mask: u64, value: u64);
}

/// Relaxed atomics.
struct Atomics;

impl Cells for Atomics {
    #[inline(always)]
    unsafe fn load_byte(&self, at: *mut u8) -> u8 {
        // SAFETY: the caller's promise.
        unsafe { AtomicU8::from_ptr(at) }.load(Relaxed)
    }

    #[inline(always)]
    unsafe fn store_byte(&self, at: *mut u8, value: u8) {
        // SAFETY: the caller's promise.
        unsafe { AtomicU8::from_ptr(at) }.store(value, Relaxed);
    }

    #[inline(always)]
    unsafe fn load(&self, at: *mut u64) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { AtomicU64::from_ptr(at) }.load(Relaxed)
    }

    #[inline(always)]
    unsafe fn store(&self, at: *mut u64, value: u64) {
        // SAFETY: the caller's promise.
        unsafe { AtomicU64::from_ptr(at) }.store(value, Relaxed);
    }

    #[inline(always)]
    unsafe fn change(&self, at: *mut u64, mask: u64, value: u64) {
        // SAFETY: the caller's promise.
        let quadword = unsafe { AtomicU64::from_ptr(at) };
        let mut old = quadword.load(Relaxed);
        while let Err(now) = quadword.compare_exchange_weak(old, old & !mask | value & mask, Relaxed, Relaxed) {
            old = now;
        }
    }
}

/// The data of one piece of memory, that the card and any thread may access at any time.
#[derive(Clone, Copy)]
pub(super) struct SharedBytes {
    start: *mut u8,
    len: usize,
    /// The quadwords wholly inside: offset of the first one's first byte, and of the byte behind the last one.
    quadwords: (usize, usize),
}

impl SharedBytes {
    /// The `len` bytes from `start` on.
    ///
    /// # Safety
    /// The bytes are mapped, readable and writable as long as copies of this are used. Meanwhile this process accesses
    /// them through values of this type for the same bytes; other accesses of its own are ordered against those by
    /// synchronisation, or both are loads.
    pub(super) unsafe fn new(start: *mut u8, len: usize) -> Self {
        let first = start.addr().wrapping_neg() % QUADWORD;
        let behind = len.saturating_sub(start.addr().wrapping_add(len) % QUADWORD);
        let quadwords = if first < behind { (first, behind) } else { (len, len) };
        SharedBytes { start, len, quadwords }
    }

    #[track_caller]
    fn check(self, offset: usize, len: usize) {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(inside, "{len} bytes at offset {offset} of a DMA buffer of {} bytes", self.len);
    }

    /// Copies `from` to `offset`. Panics when it does not fit.
    #[track_caller]
    pub(super) fn copy_in(self, offset: usize, from: &[u8]) {
        self.check(offset, from.len());
        self.write(&Atomics, offset, from);
    }

    /// Copies from `offset` on. Panics when the data ends before.
    #[track_caller]
    pub(super) fn copy_out(self, offset: usize, to: &mut [u8]) {
        self.check(offset, to.len());
        self.read(&Atomics, offset, to);
    }

    /// Fills `len` bytes from `offset` on with `byte`. Panics when the data ends before.
    #[track_caller]
    pub(super) fn fill(self, mut offset: usize, mut len: usize, byte: u8) {
        self.check(offset, len);
        let block = [byte; 256];
        while len > 0 {
            // All blocks but the last end where a quadword does.
            let unaligned = self.start.addr().wrapping_add(offset) % QUADWORD;
            let now = len.min(block.len() - unaligned);
            self.write(&Atomics, offset, &block[..now]);
            offset += now;
            len -= now;
        }
    }

    /// Of `len` bytes from `offset` on: how many are bytes in front of the quadwords, how many in them, how many
    /// behind.
    fn split(self, offset: usize, len: usize) -> (usize, usize) {
        let (first, behind) = self.quadwords;
        let head = first.saturating_sub(offset).min(len);
        let middle = behind.saturating_sub(offset).min(len) - head;
        (head, middle)
    }

    /// Byte `offset`, which is inside.
    fn at(self, offset: usize) -> *mut u8 {
        self.start.wrapping_add(offset)
    }

    /// The quadword that byte `offset`, one of the quadwords', lies in, and where in it.
    fn quadword(self, offset: usize) -> (*mut u64, usize) {
        let within = self.start.addr().wrapping_add(offset) % QUADWORD;
        (self.at(offset - within).cast(), within)
    }

    /// `from` to `offset`, which is inside with all that follows.
    #[inline(always)]
    fn write(self, cells: &impl Cells, mut offset: usize, from: &[u8]) {
        let (head, middle) = self.split(offset, from.len());
        let (head, rest) = from.split_at(head);
        let (mut middle, tail) = rest.split_at(middle);
        self.write_bytes(cells, offset, head);
        offset += head.len();
        if !middle.is_empty() {
            let (place, within) = self.quadword(offset);
            if within != 0 {
                let (part, rest) = middle.split_at((QUADWORD - within).min(middle.len()));
                change(cells, place, within, part);
                offset += part.len();
                middle = rest;
            }
            let words = middle.chunks_exact(QUADWORD);
            let last = words.remainder();
            for word in words {
                let word = u64::from_ne_bytes([word[0], word[1], word[2], word[3], word[4], word[5], word[6], word[7]]);
                // SAFETY: aligned, and one of the quadwords inside of the data, which `new`'s caller vouched for.
                unsafe { cells.store(self.at(offset).cast(), word) }
                offset += QUADWORD;
            }
            if !last.is_empty() {
                change(cells, self.at(offset).cast(), 0, last);
                offset += last.len();
            }
        }
        self.write_bytes(cells, offset, tail);
    }

    fn write_bytes(self, cells: &impl Cells, offset: usize, from: &[u8]) {
        for (i, &byte) in from.iter().enumerate() {
            // SAFETY: inside of the data, which `new`'s caller vouched for.
            unsafe { cells.store_byte(self.at(offset + i), byte) }
        }
    }

    /// The bytes from `offset` on, all inside.
    #[inline(always)]
    fn read(self, cells: &impl Cells, mut offset: usize, to: &mut [u8]) {
        let (head, middle) = self.split(offset, to.len());
        let (head, rest) = to.split_at_mut(head);
        let (mut middle, tail) = rest.split_at_mut(middle);
        self.read_bytes(cells, offset, head);
        offset += head.len();
        if !middle.is_empty() {
            let (place, within) = self.quadword(offset);
            if within != 0 {
                let (part, rest) = middle.split_at_mut((QUADWORD - within).min(middle.len()));
                select(cells, place, within, part);
                offset += part.len();
                middle = rest;
            }
            let mut words = middle.chunks_exact_mut(QUADWORD);
            for word in &mut words {
                // SAFETY: aligned, and one of the quadwords inside of the data, which `new`'s caller vouched for.
                word.copy_from_slice(&unsafe { cells.load(self.at(offset).cast()) }.to_ne_bytes());
                offset += QUADWORD;
            }
            let last = words.into_remainder();
            if !last.is_empty() {
                select(cells, self.at(offset).cast(), 0, last);
                offset += last.len();
            }
        }
        self.read_bytes(cells, offset, tail);
    }

    fn read_bytes(self, cells: &impl Cells, offset: usize, to: &mut [u8]) {
        for (i, byte) in to.iter_mut().enumerate() {
            // SAFETY: inside of the data, which `new`'s caller vouched for.
            *byte = unsafe { cells.load_byte(self.at(offset + i)) };
        }
    }
}

/// Sets the bytes of a quadword from `within` on to `part`. For [`SharedBytes`] alone: `place` is one of its quadwords.
fn change(cells: &impl Cells, place: *mut u64, within: usize, part: &[u8]) {
    let (mut mask, mut value) = ([0; QUADWORD], [0; QUADWORD]);
    mask[within..within + part.len()].fill(0xff);
    value[within..within + part.len()].copy_from_slice(part);
    // SAFETY: aligned, and inside of the data that `SharedBytes::new`'s caller vouched for.
    unsafe { cells.change(place, u64::from_ne_bytes(mask), u64::from_ne_bytes(value)) }
}

/// The bytes of a quadword from `within` on. For [`SharedBytes`] alone: `place` is one of its quadwords.
fn select(cells: &impl Cells, place: *mut u64, within: usize, part: &mut [u8]) {
    // SAFETY: as for `change`.
    let all = unsafe { cells.load(place) }.to_ne_bytes();
    part.copy_from_slice(&all[within..within + part.len()]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::{RefCell, UnsafeCell};
    use std::collections::HashMap;

    /// Bytes of the memory of these tests.
    const LEN: usize = 64;

    #[repr(align(8))]
    struct Memory(UnsafeCell<[u8; LEN]>);

    // SAFETY: the tests' threads access it as atomics, by way of `SharedBytes`.
    unsafe impl Sync for Memory {}

    impl Memory {
        fn new(byte: u8) -> Self {
            Memory(UnsafeCell::new([byte; LEN]))
        }

        /// `len` bytes from `from` on.
        fn bytes(&self, from: usize, len: usize) -> SharedBytes {
            assert!(from + len <= LEN);
            // SAFETY: inside, and accessed by this type alone until the test reads it by `into_inner`.
            unsafe { SharedBytes::new(self.0.get().cast::<u8>().add(from), len) }
        }

        fn into_inner(self) -> [u8; LEN] {
            self.0.into_inner()
        }
    }

    /// Accesses by atomics, and remembers of each byte the first address and the size of what it was accessed by.
    #[derive(Default)]
    struct Watched(RefCell<HashMap<usize, (usize, usize)>>);

    impl Watched {
        fn saw(&self, address: usize, size: usize) {
            for byte in address..address + size {
                let first = *self.0.borrow_mut().entry(byte).or_insert((address, size));
                assert_eq!(first, (address, size), "byte {byte:#x} was accessed by another access before");
            }
        }
    }

    impl Cells for Watched {
        unsafe fn load_byte(&self, at: *mut u8) -> u8 {
            self.saw(at.addr(), 1);
            // SAFETY: the caller's promise, here and below.
            unsafe { Atomics.load_byte(at) }
        }
        unsafe fn store_byte(&self, at: *mut u8, value: u8) {
            self.saw(at.addr(), 1);
            // SAFETY: as above.
            unsafe { Atomics.store_byte(at, value) }
        }
        unsafe fn load(&self, at: *mut u64) -> u64 {
            self.saw(at.addr(), QUADWORD);
            // SAFETY: as above.
            unsafe { Atomics.load(at) }
        }
        unsafe fn store(&self, at: *mut u64, value: u64) {
            self.saw(at.addr(), QUADWORD);
            // SAFETY: as above.
            unsafe { Atomics.store(at, value) }
        }
        unsafe fn change(&self, at: *mut u64, mask: u64, value: u64) {
            self.saw(at.addr(), QUADWORD);
            // SAFETY: as above.
            unsafe { Atomics.change(at, mask, value) }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: if cfg!(miri) { 20 } else { 1000 }, ..ProptestConfig::default() })]

        /// Whatever is copied, each byte is always accessed by the same atomic, inside of the data; and copies do what
        /// slices' copies do.
        #[test]
        fn the_size_of_an_access_depends_on_the_address_alone(
            from in 0usize..9,
            len in 0usize..40,
            copies in prop::collection::vec((0usize..40, 0usize..40, any::<u8>(), any::<bool>()), 1..20),
        ) {
            let memory = Memory::new(0xa5);
            let (bytes, watched) = (memory.bytes(from, len), Watched::default());
            let base = memory.0.get().addr() + from;
            let mut expected = vec![0xa5; len];
            for (offset, count, byte, write) in copies {
                let offset = offset.min(len);
                let count = count.min(len - offset);
                if write {
                    let data: Vec<u8> = (0..count).map(|i| byte.wrapping_add(i as u8)).collect();
                    bytes.write(&watched, offset, &data);
                    expected[offset..offset + count].copy_from_slice(&data);
                } else {
                    let mut data = vec![0; count];
                    bytes.read(&watched, offset, &mut data);
                    prop_assert_eq!(&data, &expected[offset..offset + count]);
                }
            }
            prop_assert!(watched.0.borrow().keys().all(|byte| (base..base + len).contains(byte)));
            let all = memory.into_inner();
            prop_assert_eq!(&all[from..from + len], &expected[..]);
            prop_assert!(all[..from].iter().chain(&all[from + len..]).all(|&byte| byte == 0xa5));
        }
    }

    #[test]
    fn a_fill_is_exact_at_any_alignment() {
        for from in 0..9 {
            for len in 0..LEN - 9 {
                let memory = Memory::new(0);
                memory.bytes(from, len).fill(0, len, 0xff);
                let all = memory.into_inner();
                assert!(all.iter().enumerate().all(|(i, &byte)| (byte == 0xff) == (from..from + len).contains(&i)));
            }
        }
    }

    /// Two threads that share a quadword change their own bytes of it, and lose none: the race that Miri judges, too.
    #[test]
    fn threads_that_write_neighbours_lose_nothing() {
        const ROUNDS: u8 = if cfg!(miri) { 20 } else { 200 };
        let memory = Memory::new(0);
        std::thread::scope(|scope| {
            for (offset, len) in [(1, 3), (4, 9), (13, 2)] {
                let memory = &memory;
                scope.spawn(move || {
                    let bytes = memory.bytes(3, 29);
                    for round in 1..=ROUNDS {
                        bytes.copy_in(offset, &vec![round; len]);
                        let mut back = vec![0; len];
                        bytes.copy_out(offset, &mut back);
                        assert_eq!(back, vec![round; len]);
                    }
                });
            }
            let memory = &memory;
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    memory.bytes(3, 29).copy_out(0, &mut [0; 29]);
                }
            });
        });
        let all = memory.into_inner();
        assert_eq!(&all[3..20], [&[0][..], &[ROUNDS; 14], &[0; 2]].concat());
    }
}
