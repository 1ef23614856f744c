//! Memory that the card writes only for work requests of its holder: while there are none, it is ordinary memory.

use std::ops::Range;

/// Bytes of which each belongs to one holder.
///
/// Other than [`SharedBytes`](super::copy::SharedBytes) they are accessed by references, and so in any size: a holder
/// accesses its own bytes and no neighbour's, even in one quadword.
#[derive(Clone, Copy)]
pub(super) struct ExclusiveBytes {
    start: *mut u8,
    len: usize,
}

impl ExclusiveBytes {
    /// The `len` bytes at `start`, initialised. What is `unsafe` below says the rest.
    pub(super) fn new(start: *mut u8, len: usize) -> Self {
        ExclusiveBytes { start, len }
    }

    #[inline]
    #[track_caller]
    fn at(self, range: &Range<usize>) -> *mut u8 {
        let inside = range.start <= range.end && range.end <= self.len;
        assert!(inside, "bytes {range:?} of a DMA buffer of {} bytes", self.len);
        self.start.wrapping_add(range.start)
    }

    /// The bytes `range`. Panics outside.
    ///
    /// # Safety
    /// During `'a` the memory stays mapped, and nobody writes these bytes: no thread, and not the card.
    #[inline]
    #[track_caller]
    pub(super) unsafe fn slice<'a>(self, range: Range<usize>) -> &'a [u8] {
        // SAFETY: inside the memory; the rest by this function's contract.
        unsafe { std::slice::from_raw_parts(self.at(&range), range.len()) }
    }

    /// The bytes `range`, for writing. Panics outside.
    ///
    /// # Safety
    /// During `'a` the memory stays mapped and may be written, and nobody else accesses these bytes: no thread, and not
    /// the card.
    #[inline]
    #[track_caller]
    pub(super) unsafe fn slice_mut<'a>(self, range: Range<usize>) -> &'a mut [u8] {
        // SAFETY: inside the memory; the rest by this function's contract.
        unsafe { std::slice::from_raw_parts_mut(self.at(&range), range.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::UnsafeCell;

    struct Memory(UnsafeCell<[u8; 24]>);

    // SAFETY: the threads of the test below access bytes of their own.
    unsafe impl Sync for Memory {}

    /// Holders whose bytes share quadwords, on a thread each. Miri sees whether one touches another's.
    #[test]
    fn neighbours_in_one_quadword_do_not_race() {
        const ROUNDS: u8 = if cfg!(miri) { 10 } else { 200 };
        let memory = Memory(UnsafeCell::new([0; 24]));
        std::thread::scope(|scope| {
            for range in [0..3, 3..13, 13..24] {
                let memory = &memory;
                scope.spawn(move || {
                    let bytes = ExclusiveBytes::new(memory.0.get().cast(), 24);
                    for round in 1..=ROUNDS {
                        // SAFETY: the ranges are disjoint, and one slice of a range lives at a time.
                        unsafe { bytes.slice_mut(range.clone()) }.fill(round);
                        // SAFETY: as above.
                        assert!(unsafe { bytes.slice(range.clone()) }.iter().all(|&byte| byte == round));
                    }
                });
            }
        });
        assert_eq!(memory.0.into_inner(), [ROUNDS; 24]);
    }

    #[test]
    #[should_panic = "bytes 20..25 of a DMA buffer of 24 bytes"]
    fn outside_is_refused() {
        let mut memory = [0; 24];
        // SAFETY: it panics.
        let _ = unsafe { ExclusiveBytes::new(memory.as_mut_ptr(), 24).slice(20..25) };
    }
}
