//! The card's clock, on a page that the kernel shows.

use std::io;
use std::os::fd::OwnedFd;

use memmap2::{MmapOptions, MmapRaw};

use crate::access::read_timer;
use crate::kernel::abi::MLX5_IB_MMAP_CORE_CLOCK;

/// The page, mapped for loads.
#[derive(Debug)]
pub(super) struct ClockPage {
    page: MmapRaw,
    /// Where the clock is on it: a multiple of 4, with the bytes of both clocks from there on.
    at: usize,
}

/// From the free-running clock to the real-time clock. PRM "Initialization Segment".
const REAL_TIME: usize = 0x40;
/// Bytes of both clocks, and of what is between them.
const CLOCKS: usize = REAL_TIME + 8;

impl ClockPage {
    /// Maps the page of `device`, an opened uverbs file. The clock is at `offset` of it.
    pub(super) fn map(device: &OwnedFd, offset: u64) -> io::Result<Self> {
        let size = rustix::param::page_size();
        // As the kernel reads it: the number of the mapping in bits 8 to 15 of the offset in pages.
        let place = (MLX5_IB_MMAP_CORE_CLOCK << 8) * size as u64;
        Self::new(MmapOptions::new().offset(place).len(size).map_raw_read_only(device)?, offset)
    }

    fn new(page: MmapRaw, offset: u64) -> io::Result<Self> {
        let at = usize::try_from(offset).ok().filter(|at| at.is_multiple_of(4));
        match at.filter(|at| at.checked_add(CLOCKS).is_some_and(|end| end <= page.len())) {
            Some(at) => Ok(ClockPage { page, at }),
            None => Err(io::Error::other(format!("the kernel has it at offset {offset:#x} of its page"))),
        }
    }

    /// The clock now, in ticks.
    pub(super) fn ticks(&self) -> u64 {
        self.read(self.at)
    }

    /// The real-time clock now: seconds, and nanoseconds in the lower half.
    pub(super) fn real_time(&self) -> u64 {
        self.read(self.at + REAL_TIME)
    }

    fn read(&self, at: usize) -> u64 {
        let read = |high| {
            let place = self.page.as_ptr().wrapping_add(if high { at } else { at + 4 });
            // SAFETY: a dword inside of the mapping, which is aligned to pages and lives as long as `self`.
            Ok::<u32, std::convert::Infallible>(u32::from_be(unsafe { place.cast::<u32>().read_volatile() }))
        };
        read_timer(read).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn the_clock_is_two_big_endian_dwords() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        file.write_all_at(&0x0102_0304_0506_0708_u64.to_be_bytes(), 0x10).unwrap();
        file.write_all_at(&0x1112_1314_1516_1718_u64.to_be_bytes(), 0x50).unwrap();
        let map = || MmapOptions::new().map_raw_read_only(&file).unwrap();
        assert_eq!(ClockPage::new(map(), 0x10).unwrap().ticks(), 0x0102_0304_0506_0708);
        assert_eq!(ClockPage::new(map(), 0x10).unwrap().real_time(), 0x1112_1314_1516_1718);
        assert_eq!(ClockPage::new(map(), 4024).unwrap().ticks(), 0);
        for outside in [4028, 4092, 4096, 2, u64::MAX] {
            assert!(ClockPage::new(map(), outside).is_err());
        }
    }
}
