//! Device addresses.

use std::fmt;

/// A device address, never a pointer: the IOMMU, or the model, translates it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Iova(pub u64);

impl Iova {
    /// The address plus `bytes`; `None` past the end of the address space.
    pub fn checked_add(self, bytes: u64) -> Option<Iova> {
        self.0.checked_add(bytes).map(Iova)
    }
}

impl fmt::Display for Iova {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IOVA {:#x}", self.0)
    }
}

/// The lowest address that is allocated. Above zero, so that 0 can mean none, and above addresses below 1 MiB that
/// firmware may use.
const LOWEST: u64 = 1 << 21;

/// Allocates device addresses from the ranges that an access allows, lowest first.
#[derive(Debug)]
pub struct IovaAllocator {
    /// Free ranges (first, last), ascending and not adjacent.
    free: Vec<(u64, u64)>,
}

impl IovaAllocator {
    /// All of `ranges` (first, last) is free, except the lowest 2 MiB of the address space.
    pub fn new(ranges: Vec<(u64, u64)>) -> Self {
        let mut ranges: Vec<_> = ranges
            .into_iter()
            .map(|(first, last)| (first.max(LOWEST), last))
            .filter(|(first, last)| first < last)
            .collect();
        ranges.sort_unstable();
        let mut free: Vec<(u64, u64)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match free.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
                _ => free.push((first, last)),
            }
        }
        IovaAllocator { free }
    }

    /// Allocates `len` bytes at a multiple of `align`, a power of two; `None` if nothing fits or `len` is 0.
    pub fn allocate(&mut self, len: u64, align: u64) -> Option<Iova> {
        self.allocate_like(0, len, align)
    }

    /// Allocates `len` bytes at an address with the same offset from a multiple of `align`, a power of two, as `like`;
    /// `None` if nothing fits or `len` is 0.
    pub fn allocate_like(&mut self, like: u64, len: u64, align: u64) -> Option<Iova> {
        let fit = |&(first, last): &(u64, u64)| {
            let start = first.checked_add(like.wrapping_sub(first) & (align - 1))?;
            let end = start.checked_add(len.checked_sub(1)?)?;
            (end <= last).then_some((start, end))
        };
        let (i, (start, end)) = self.free.iter().enumerate().find_map(|(i, range)| Some((i, fit(range)?)))?;
        let (first, last) = self.free[i];
        let before = (first < start).then(|| (first, start - 1));
        let after = (end < last).then(|| (end + 1, last));
        self.free.splice(i..=i, before.into_iter().chain(after));
        Some(Iova(start))
    }

    /// Frees an allocation of [`allocate`](Self::allocate); address and length must be those of the allocation.
    pub fn free(&mut self, iova: Iova, len: u64) {
        let Some(mut last) = len.checked_sub(1).and_then(|rest| iova.0.checked_add(rest)) else { return };
        let mut first = iova.0;
        let mut i = self.free.partition_point(|range| range.0 < first);
        if i < self.free.len() && last.checked_add(1) == Some(self.free[i].0) {
            last = self.free.remove(i).1;
        }
        if i > 0 && self.free[i - 1].1.checked_add(1) == Some(first) {
            i -= 1;
            first = self.free.remove(i).0;
        }
        self.free.insert(i, (first, last));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn skips_the_lowest_addresses_and_respects_alignment() {
        let mut iovas = IovaAllocator::new(vec![(0, (1 << 39) - 1)]);
        assert_eq!(iovas.allocate(4096, 4096), Some(Iova(1 << 21)));
        assert_eq!(iovas.allocate(1 << 30, 1 << 30), Some(Iova(1 << 30)));
        assert_eq!(iovas.allocate(4096, 4096), Some(Iova((1 << 21) + 4096)), "the gap before is still free");
    }

    #[test]
    fn an_address_can_be_like_another() {
        let mut iovas = IovaAllocator::new(vec![(0, (1 << 39) - 1)]);
        assert_eq!(iovas.allocate_like(0x7f12_3456_7000, 4096, 1 << 30), Some(Iova(0x3456_7000)));
        assert_eq!(iovas.allocate_like(0x7f12_3456_7000, 4096, 1 << 30), Some(Iova(0x7456_7000)));
        assert_eq!(iovas.allocate(4096, 4096), Some(Iova(1 << 21)), "the gap before is still free");
    }

    #[test]
    fn a_hole_in_the_ranges_is_never_crossed() {
        let mut iovas = IovaAllocator::new(vec![(0, 0xfedf_ffff), (0xfef0_0000, 0xffff_ffff)]);
        assert_eq!(iovas.allocate(0xff00_0000, 4096), None);
        assert_eq!(iovas.allocate(0x100_0000, 0x100_0000), Some(Iova(0x100_0000)));
        assert_eq!(iovas.allocate(0, 4096), None);
    }

    #[test]
    fn the_last_byte_of_the_address_space_can_be_had() {
        let mut iovas = IovaAllocator::new(vec![(u64::MAX - 4095, u64::MAX)]);
        assert_eq!(iovas.allocate(4096, 4096), Some(Iova(u64::MAX - 4095)));
        iovas.free(Iova(u64::MAX - 4095), 4096);
        assert_eq!(iovas.allocate(8192, 4096), None);
        assert_eq!(iovas.allocate(4096, 4096), Some(Iova(u64::MAX - 4095)));
    }

    proptest! {
        /// No two live allocations overlap; all are inside and aligned; when all is freed, one range is left.
        #[test]
        fn live_allocations_are_disjoint(steps in prop::collection::vec((0u64..40, 12u32..16, any::<bool>()), 1..80)) {
            let range = (LOWEST, LOWEST + (1 << 20) - 1);
            let mut iovas = IovaAllocator::new(vec![range]);
            let mut live: Vec<(u64, u64)> = Vec::new();
            for (pages, log_align, release) in steps {
                if release && !live.is_empty() {
                    let (at, len) = live.swap_remove(pages as usize % live.len());
                    iovas.free(Iova(at), len);
                    continue;
                }
                let len = pages * 4096;
                if let Some(Iova(at)) = iovas.allocate(len, 1 << log_align) {
                    prop_assert!(at % (1 << log_align) == 0 && at >= range.0 && at + len - 1 <= range.1);
                    prop_assert!(live.iter().all(|&(other, size)| at + len <= other || other + size <= at));
                    live.push((at, len));
                }
            }
            live.into_iter().for_each(|(at, len)| iovas.free(Iova(at), len));
            prop_assert_eq!(iovas.free, vec![range]);
        }
    }
}
