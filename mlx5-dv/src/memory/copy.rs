//! Copies between ordinary memory and memory that the card or another thread may access at the same time.
//!
//! A plain `memcpy` of such memory is undefined behaviour in Rust, and the compiler may split or repeat it. Relaxed
//! atomics may race, under one condition: two racing accesses, one of them a store, must have the same address and
//! size. So the access size depends on the address alone, not on the copy:
//!
//! ```text
//!            data of 29 bytes from address 0x1005
//! 0x1005          0x1008                        0x1020
//! [ b | b | b ]   [ quadword ][ quadword ][ quadword ]   [ b | b ]
//! ```
//!
//! * An aligned quadword that lies entirely in the data is always accessed as a quadword. A copy that starts or ends
//!   inside one loads all of it and selects bytes, or changes its part by compare-exchange. That is atomic for other
//!   threads and for the card: a locked operation owns the cache line, and the card's DMA is coherent.
//! * Bytes before the first such quadword and after the last are always accessed as bytes. The rest of their quadwords
//!   is somebody else's memory.
//!
//! Memory of the driver is whole pages, hence all quadwords. Other code in this process that accesses memory covered by
//! [`SharedBytes`] falls into three cases: it only loads while nobody here stores (CQEs, by the poller); it has
//! exclusive use between two synchronisations (send and receive rings, by the lease holder); or it is the `uar` crate,
//! which accesses a doorbell record as dwords while a queue owns it.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// Size of the access unit.
const QUADWORD: usize = size_of::<u64>();

/// The access primitives: atomics, or in tests a checker.
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
        // SAFETY: by this function's contract.
        unsafe { AtomicU8::from_ptr(at) }.load(Relaxed)
    }

    #[inline(always)]
    unsafe fn store_byte(&self, at: *mut u8, value: u8) {
        // SAFETY: by this function's contract.
        unsafe { AtomicU8::from_ptr(at) }.store(value, Relaxed);
    }

    #[inline(always)]
    unsafe fn load(&self, at: *mut u64) -> u64 {
        // SAFETY: by this function's contract.
        unsafe { AtomicU64::from_ptr(at) }.load(Relaxed)
    }

    #[inline(always)]
    unsafe fn store(&self, at: *mut u64, value: u64) {
        // SAFETY: by this function's contract.
        unsafe { AtomicU64::from_ptr(at) }.store(value, Relaxed);
    }

    #[inline(always)]
    unsafe fn change(&self, at: *mut u64, mask: u64, value: u64) {
        // SAFETY: by this function's contract.
        let quadword = unsafe { AtomicU64::from_ptr(at) };
        let mut old = quadword.load(Relaxed);
        while let Err(now) = quadword.compare_exchange_weak(old, old & !mask | value & mask, Relaxed, Relaxed) {
            old = now;
        }
    }
}

/// Data that the card and any thread may access at any time.
#[derive(Clone, Copy)]
pub(super) struct SharedBytes {
    start: *mut u8,
    len: usize,
    /// The quadwords entirely inside: offsets of their start and end.
    quadwords: (usize, usize),
}

impl SharedBytes {
    /// The `len` bytes at `start`.
    ///
    /// # Safety
    /// The bytes stay mapped, readable and writable while copies of this value are used. During that time this process
    /// accesses them through values of this type for the same bytes; its other accesses are ordered against those by
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

    /// Copies `from` to `offset`. Panics if it does not fit.
    #[inline]
    #[track_caller]
    pub(super) fn copy_in(self, offset: usize, from: &[u8]) {
        self.check(offset, from.len());
        self.write(&Atomics, offset, from);
    }

    /// Copies from `offset` to `to`. Panics if the data ends before.
    #[track_caller]
    pub(super) fn copy_out(self, offset: usize, to: &mut [u8]) {
        self.check(offset, to.len());
        self.read(&Atomics, offset, to);
    }

    /// Fills `len` bytes at `offset` with `byte`. Panics if the data ends before.
    #[track_caller]
    pub(super) fn fill(self, mut offset: usize, mut len: usize, byte: u8) {
        self.check(offset, len);
        let block = [byte; 256];
        while len > 0 {
            // Every block but the last ends at a quadword boundary.
            let unaligned = self.start.addr().wrapping_add(offset) % QUADWORD;
            let now = len.min(block.len() - unaligned);
            self.write(&Atomics, offset, &block[..now]);
            offset += now;
            len -= now;
        }
    }

    /// Splits `len` bytes at `offset`: the number of bytes before the quadwords, and the number in them. The rest is
    /// behind.
    fn split(self, offset: usize, len: usize) -> (usize, usize) {
        let (first, behind) = self.quadwords;
        let head = first.saturating_sub(offset).min(len);
        let middle = behind.saturating_sub(offset).min(len) - head;
        (head, middle)
    }

    /// Address of byte `offset`, which must be inside.
    fn at(self, offset: usize) -> *mut u8 {
        self.start.wrapping_add(offset)
    }

    /// The quadword of byte `offset`, and the byte's place in it.
    fn quadword(self, offset: usize) -> (*mut u64, usize) {
        let within = self.start.addr().wrapping_add(offset) % QUADWORD;
        (self.at(offset - within).cast(), within)
    }

    /// Writes `from` to `offset`. All of it must be inside.
    #[inline(always)]
    fn write(self, cells: &impl Cells, offset: usize, from: &[u8]) {
        let (words, rest) = from.as_chunks();
        if rest.is_empty() && self.start.addr().wrapping_add(offset).is_multiple_of(QUADWORD) {
            self.write_words(cells, offset, words);
        } else {
            self.write_any(cells, offset, from);
        }
    }

    /// Writes whole quadwords from `offset` on, the place of one.
    #[inline(always)]
    fn write_words(self, cells: &impl Cells, offset: usize, words: &[[u8; QUADWORD]]) {
        for (i, word) in words.iter().enumerate() {
            let place = self.at(offset + i * QUADWORD).cast();
            // SAFETY: aligned, and a quadword inside the data, by `new`'s contract.
            unsafe { cells.store(place, u64::from_ne_bytes(*word)) }
        }
    }

    /// Writes bytes of any address and length.
    #[inline(never)]
    fn write_any(self, cells: &impl Cells, mut offset: usize, from: &[u8]) {
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
            let (words, last) = middle.as_chunks();
            self.write_words(cells, offset, words);
            offset += words.len() * QUADWORD;
            if !last.is_empty() {
                change(cells, self.at(offset).cast(), 0, last);
                offset += last.len();
            }
        }
        self.write_bytes(cells, offset, tail);
    }

    fn write_bytes(self, cells: &impl Cells, offset: usize, from: &[u8]) {
        for (i, &byte) in from.iter().enumerate() {
            // SAFETY: inside the data, by `new`'s contract.
            unsafe { cells.store_byte(self.at(offset + i), byte) }
        }
    }

    /// Reads the bytes at `offset`. All of them must be inside.
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
                // SAFETY: aligned, and a quadword inside the data, by `new`'s contract.
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
            // SAFETY: inside the data, by `new`'s contract.
            *byte = unsafe { cells.load_byte(self.at(offset + i)) };
        }
    }
}

/// Replaces the bytes of a quadword from `within` on with `part`. `place` must be a quadword of a [`SharedBytes`].
fn change(cells: &impl Cells, place: *mut u64, within: usize, part: &[u8]) {
    let (mut mask, mut value) = ([0; QUADWORD], [0; QUADWORD]);
    mask[within..within + part.len()].fill(0xff);
    value[within..within + part.len()].copy_from_slice(part);
    // SAFETY: aligned, and inside the data, by `SharedBytes::new`'s contract.
    unsafe { cells.change(place, u64::from_ne_bytes(mask), u64::from_ne_bytes(value)) }
}

/// Reads the bytes of a quadword from `within` on. `place` must be a quadword of a [`SharedBytes`].
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

    /// Size of these tests' memory.
    const LEN: usize = 64;

    #[repr(align(8))]
    struct Memory(UnsafeCell<[u8; LEN]>);

    // SAFETY: the tests' threads access it as atomics, through `SharedBytes`.
    unsafe impl Sync for Memory {}

    impl Memory {
        fn new(byte: u8) -> Self {
            Memory(UnsafeCell::new([byte; LEN]))
        }

        /// The `len` bytes at `from`.
        fn bytes(&self, from: usize, len: usize) -> SharedBytes {
            assert!(from + len <= LEN);
            // SAFETY: inside, and accessed only through this type until the test reads it by `into_inner`.
            unsafe { SharedBytes::new(self.0.get().cast::<u8>().add(from), len) }
        }

        fn into_inner(self) -> [u8; LEN] {
            self.0.into_inner()
        }
    }

    /// Atomics that check their use: each byte is always accessed at the same address and size.
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
            // SAFETY: by this function's contract, here and below.
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

        /// For any copy, each byte is accessed by the same atomic, inside the data; and the result is that of a slice
        /// copy.
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

    /// Two threads change different bytes of one quadword, and no change is lost. Miri checks this race, too.
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
