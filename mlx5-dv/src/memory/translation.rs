//! Address translation by the card: a list of pages of one size.

use super::Iova;

/// Memory as a list of pages of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Translation {
    /// Device address of the first page.
    pub(crate) first: u64,
    /// Log of the page size in bytes.
    pub(crate) log_size: u32,
    /// Number of pages.
    pub(crate) count: u64,
}

impl Translation {
    /// Log of the largest page: 1 GiB.
    pub(crate) const LOG_LARGEST: u32 = 30;
    /// Log of the smallest page: 4 KiB.
    pub(crate) const LOG_SMALLEST: u32 = 12;
    /// With more pages than this, larger ones are used, if the addresses allow it.
    const MANY: u64 = 512;

    /// The `len` bytes that work requests name by `address`, mapped at `iova`.
    ///
    /// Both addresses must have the same offset in a page, so the page size must divide their difference. The first
    /// page may start before the memory, and the last end behind it: in addresses that are reserved.
    pub(crate) fn of(address: u64, iova: Iova, len: usize) -> Self {
        let common = (address ^ iova.0).trailing_zeros();
        let log_size = Self::log_size(iova.0, len, common);
        let first = Self::start(iova.0, log_size);
        let bytes = iova.0 - first + len.max(1) as u64;
        Translation { first, log_size, count: bytes.div_ceil(1 << log_size) }
    }

    /// Log of the page size for `len` bytes at `address`: the largest pages that start and end with the memory; if
    /// these are many, larger ones, up to `log_most`.
    pub(crate) fn log_size(address: u64, len: usize, log_most: u32) -> u32 {
        let len = len.max(1) as u64;
        let log_most = log_most.clamp(Self::LOG_SMALLEST, Self::LOG_LARGEST);
        let mut log_size = (address | len).trailing_zeros().clamp(Self::LOG_SMALLEST, log_most);
        let count = |log_size| (address - Self::start(address, log_size) + len).div_ceil(1 << log_size);
        while log_size < log_most && count(log_size) > Self::MANY {
            log_size += 1;
        }
        log_size
    }

    /// Start of the page that contains `address`.
    pub(crate) fn start(address: u64, log_size: u32) -> u64 {
        address >> log_size << log_size
    }

    /// Device addresses of the pages.
    pub(crate) fn addresses(self) -> impl Iterator<Item = u64> {
        (0..self.count).map(move |i| self.first + (i << self.log_size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(address: u64, iova: u64, len: usize) -> (u32, u64) {
        let pages = Translation::of(address, Iova(iova), len);
        (pages.log_size, pages.count)
    }

    #[test]
    fn pages_are_as_large_as_both_sides_allow() {
        assert_eq!(pages(0x7f00_0000_1000, 0x20_0000, 0x1000), (12, 1));
        assert_eq!(pages(0x7f00_0020_0000, 0x20_0000, 0x20_0000), (21, 1));
        assert_eq!(pages(0x7f00_0020_0000, 0x4000_0000, 0x60_0000), (21, 3));
        assert_eq!(pages(0x7f00_4000_0000, 0x4000_0000, 1 << 31), (30, 2), "never above 1 GiB");
        assert_eq!(pages(0x7f00_0000_1000, 0x4000_0000, 1 << 30), (12, 1 << 18), "the two differ by 4 KiB");
        assert_eq!(pages(0x4000, 0x4000, 0x3000), (12, 3), "one side alone");
        assert_eq!(pages(0x80_0000, 0x80_0000, 0x60_0000), (21, 3));
    }

    #[test]
    fn many_pages_become_fewer_larger_ones() {
        for (address, iova) in [(0x7f00_4000_0000, 0x4000_0000), (1 << 31, 1 << 31)] {
            let (log_size, count) = pages(address, iova, (1 << 30) + 4096);
            assert!(count <= 512 && log_size > 20, "{log_size} {count}");
        }
    }

    #[test]
    fn memory_at_an_odd_address_is_counted_in_large_pages_too() {
        let (address, iova, len) = (0x7f00_0000_5000, 0x8000_5000, 8 << 30);
        let pages = Translation::of(address, Iova(iova), len);
        assert_eq!((pages.first, pages.log_size, pages.count), (0x8000_0000, 25, 257));
    }
}
