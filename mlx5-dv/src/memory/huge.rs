//! Page sizes, and mappings made of such pages.

use std::alloc::Layout;
use std::ffi::c_uint;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::NonNull;
use std::str::FromStr;
use std::sync::Once;

use rustix::mm::Advice;

use super::mapping::Mapping;
use crate::error::{Error, Invalid};

/// A page size in bytes, a power of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageSize(usize);

impl PageSize {
    /// 4 KiB: the base page of x86-64 and most aarch64 systems, and the unit in which firmware counts.
    pub const BASE: PageSize = PageSize(4096);
    /// 2 MiB.
    pub const HUGE_2M: PageSize = PageSize(2 << 20);
    /// 1 GiB.
    pub const HUGE_1G: PageSize = PageSize(1 << 30);

    /// Size in bytes.
    pub const fn bytes(self) -> usize {
        self.0
    }

    /// Log of the size.
    pub const fn shift(self) -> u32 {
        self.0.trailing_zeros()
    }

    /// The host's base page size.
    pub fn host() -> PageSize {
        // SAFETY: queries a constant of the system.
        let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        usize::try_from(bytes).ok().filter(|b| b.is_power_of_two()).map_or(PageSize::BASE, PageSize)
    }

    /// Whether a buffer of `len` bytes justifies such a page: it fills at least half of it.
    pub(super) const fn is_worth(self, len: usize) -> bool {
        len >= self.0 / 2
    }

    fn is_huge(self) -> bool {
        self > PageSize::host()
    }

    /// The command that provides enough such pages.
    fn fix(self, pages: usize) -> String {
        format!("echo {pages} | sudo tee /sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages", self.0 >> 10)
    }
}

impl fmt::Display for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes >= 1 << 30 => write!(f, "{} GiB", bytes >> 30),
            bytes if bytes >= 1 << 20 => write!(f, "{} MiB", bytes >> 20),
            bytes => write!(f, "{} KiB", bytes >> 10),
        }
    }
}

impl FromStr for PageSize {
    type Err = Error;

    /// Parses sizes as on the kernel's command line: `4K`, `2M`, `1G`.
    fn from_str(text: &str) -> Result<Self, Error> {
        let unit = match text.bytes().last() {
            Some(b'K' | b'k') => 1 << 10,
            Some(b'M' | b'm') => 1 << 20,
            Some(b'G' | b'g') => 1 << 30,
            _ => 0,
        };
        let number = text.get(..text.len().saturating_sub(1)).and_then(|number| number.parse::<usize>().ok());
        let bytes = number.and_then(|number| number.checked_mul(unit));
        let bytes = bytes.filter(|bytes| bytes.is_power_of_two() && *bytes >= PageSize::BASE.bytes());
        bytes.map(PageSize).ok_or_else(|| {
            let (given, mend) = (format!("{text:?}"), Some("say 4K, 2M or 1G"));
            Invalid::NotA { what: "size of pages", given, mend }.into()
        })
    }
}

/// Which page sizes to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pages {
    /// The largest that the length can fill and the system has. Base pages are a valid fallback; a warning is logged
    /// the first time they replace huge pages.
    #[default]
    Largest,
    /// This size only: an error if the system has none.
    Exactly(PageSize),
}

/// A zeroed mapping of a memfd of its own. Unmapped on drop.
pub(super) struct SharedPages {
    pub(super) mapping: Mapping,
    pub(super) file: File,
    pub(super) page_size: PageSize,
}

impl SharedPages {
    /// Maps at least `len` bytes in `pages`.
    pub(super) fn new(len: usize, pages: Pages) -> Result<Self, Error> {
        match pages {
            Pages::Exactly(size) => Self::of(len, size).map_err(|source| refused(len, size, source)),
            Pages::Largest => Self::largest(len),
        }
    }

    fn largest(len: usize) -> Result<Self, Error> {
        let wanted = [PageSize::HUGE_1G, PageSize::HUGE_2M].into_iter().filter(|&size| size.is_worth(len));
        let mut missed = None;
        for size in wanted {
            match Self::of(len, size) {
                Ok(pages) => return Ok(pages),
                Err(_) => missed = Some(size),
            }
        }
        let host = PageSize::host();
        let pages = Self::of(len, host).map_err(|source| refused(len, host, source))?;
        if let Some(size) = missed {
            warn_once(size, len);
        }
        Ok(pages)
    }

    fn of(len: usize, page_size: PageSize) -> io::Result<Self> {
        let len = whole_pages(len, page_size)?;
        let huge = if page_size.is_huge() { libc::MFD_HUGETLB | page_size.shift() << libc::MFD_HUGE_SHIFT } else { 0 };
        let file = memfd(huge)?;
        file.set_len(len as u64)?;
        let mapping = Mapping::of(&file, len)?;
        Ok(SharedPages { mapping, file, page_size })
    }
}

fn memfd(flags: c_uint) -> io::Result<File> {
    // SAFETY: the name is a constant C string; the result is checked.
    let fd = unsafe { libc::memfd_create(c"mlx5-dma".as_ptr(), libc::MFD_CLOEXEC | flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just opened, and nobody else owns it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

fn whole_pages(len: usize, page_size: PageSize) -> io::Result<usize> {
    let len = len.max(1).checked_next_multiple_of(page_size.bytes());
    len.filter(|&len| isize::try_from(len).is_ok()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))
}

/// A zeroed private mapping of the system's default huge pages, for accesses that need no file.
///
/// hugepage-rs maps and unmaps by the length of the given layout, so both calls get the same whole pages.
pub(super) struct PrivateHugePages {
    address: NonNull<u8>,
    layout: Layout,
}

// SAFETY: an allocation of its own, freed only by drop.
unsafe impl Send for PrivateHugePages {}
// SAFETY: as above; the type gives out only the address.
unsafe impl Sync for PrivateHugePages {}

impl PrivateHugePages {
    /// At least `len` bytes; `None` if the system has no such pages left, or the buffer would fill less than half of
    /// one.
    pub(super) fn new(len: usize) -> Option<Self> {
        let page = default_huge_page()?;
        let len = whole_pages(len, page).ok().filter(|_| page.is_worth(len))?;
        let layout = Layout::from_size_align(len, page.bytes()).ok()?;
        // SAFETY: the layout's size is not zero.
        let address = NonNull::new(unsafe { hugepage_rs::alloc(layout) })?;
        let pages = PrivateHugePages { address, layout };
        // A child of fork() must not share the pages: the first writer would get a copy, and the device would keep the
        // original. SAFETY: the mapping was just made; the advice changes nothing in this process.
        unsafe { rustix::mm::madvise(address.as_ptr().cast(), layout.size(), Advice::LinuxDontFork) }.ok()?;
        Some(pages)
    }

    pub(super) fn address(&self) -> NonNull<u8> {
        self.address
    }

    pub(super) fn len(&self) -> usize {
        self.layout.size()
    }

    pub(super) fn page_size(&self) -> PageSize {
        PageSize(self.layout.align())
    }
}

impl Drop for PrivateHugePages {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and not freed before.
        unsafe { hugepage_rs::dealloc(self.address.as_ptr(), self.layout) }
    }
}

/// The huge page size that hugepage-rs uses; `None` if the kernel has none (hugepage-rs would panic).
fn default_huge_page() -> Option<PageSize> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("Hugepagesize:"))?;
    let kib: usize = line.split_whitespace().next()?.parse().ok()?;
    let bytes = kib.checked_mul(1024)?;
    bytes.is_power_of_two().then_some(PageSize(bytes))
}

fn warn_once(size: PageSize, len: usize) {
    static WARNED: Once = Once::new();
    WARNED.call_once(|| {
        tracing::warn!(
            "no {size} huge pages for {len} bytes of DMA memory: ordinary pages are used, here and from now on; more TLB and \
             IOMMU misses are to be expected. To fix it: {}",
            size.fix(len.div_ceil(size.bytes()))
        );
    });
}

fn refused(len: usize, size: PageSize, source: io::Error) -> Error {
    let (reason, fix) = if size.is_huge() {
        (format!("no {size} huge pages for {len} bytes"), Some(size.fix(len.div_ceil(size.bytes()).max(1))))
    } else {
        (format!("no {len} bytes of DMA memory"), None)
    };
    Error::Memory { reason, fix, source: Some(source) }
}

impl fmt::Debug for SharedPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memfd {} in {} pages", self.file.as_raw_fd(), self.page_size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_huge_page_is_used_only_when_half_of_it_is() {
        assert!(!PageSize::HUGE_2M.is_worth(1 << 19));
        assert!(PageSize::HUGE_2M.is_worth(1 << 20));
        assert!(!PageSize::HUGE_1G.is_worth(1 << 28));
    }

    #[test]
    fn ordinary_pages_stand_in_for_huge_ones() {
        let pages = SharedPages::new(3 << 20, Pages::Largest).unwrap();
        assert!(pages.mapping.len() >= 3 << 20);
        assert!(pages.mapping.len().is_multiple_of(pages.page_size.bytes()));
    }

    #[test]
    fn an_explicit_request_that_cannot_be_met_says_what_to_type() {
        // Far more than any test machine has reserved.
        let error = SharedPages::new(1 << 45, Pages::Exactly(PageSize::HUGE_1G)).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("no 1 GiB huge pages"), "{text}");
        assert!(text.contains("hugepages-1048576kB/nr_hugepages"), "{text}");
    }

    #[test]
    fn absurd_lengths_are_errors() {
        assert!(SharedPages::new(usize::MAX, Pages::Largest).is_err());
        assert!(PrivateHugePages::new(usize::MAX).is_none());
        assert!(PrivateHugePages::new(1).is_none(), "one byte is not worth a huge page");
    }

    #[test]
    fn sizes_print_as_people_say_them() {
        assert_eq!(PageSize::HUGE_2M.to_string(), "2 MiB");
        assert_eq!(PageSize::HUGE_1G.to_string(), "1 GiB");
        assert_eq!(PageSize::BASE.to_string(), "4 KiB");
    }

    #[test]
    fn sizes_are_read_as_the_kernel_reads_them() {
        let read = |text: &str| text.parse::<PageSize>().ok();
        assert_eq!(read("1G"), Some(PageSize::HUGE_1G));
        assert_eq!(read("2M"), Some(PageSize::HUGE_2M));
        assert_eq!(read("4k"), Some(PageSize::BASE));
        for wrong in ["", "G", "3M", "1", "2K", "1T", "-1G", "99999999999999999999G", "\u{e9}"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
