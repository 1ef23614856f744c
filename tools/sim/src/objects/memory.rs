//! Memory of objects: page lists, umems, doorbell records.

use std::sync::Arc;

use crate::dma::{Counted, Dma, DmaFault, Purpose};

/// log2 of the smallest page.
pub const MIN_PAGE_SHIFT: u32 = 12;
/// log2 of the largest page.
pub const MAX_PAGE_SHIFT: u32 = 31;
/// Log target for the page sizes and page counts of translation lists.
pub(crate) const TRANSLATIONS: &str = "mlx5_sim::translations";

/// Memory in pages of equal size, and the object's offset in the first page.
#[derive(Debug, Clone, Default)]
pub struct PageList {
    /// log2 of a page's bytes.
    pub page_shift: u32,
    /// Offset of the object in the first page, in bytes.
    pub offset: u64,
    /// IOVA of each page. Shared by all objects in a umem.
    pub pages: Arc<[u64]>,
}

impl PageList {
    /// Bytes from the object's start to the end of the last page.
    pub fn len(&self) -> u64 {
        ((self.pages.len() as u64) << self.page_shift).saturating_sub(self.offset)
    }

    /// Whether the memory is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The IOVA of byte `at`, and the bytes from there to the end of its page; `None` past the end of the pages, or of
    /// all addresses: a page need not be aligned, as a UMR may change the page size of those that a key has.
    pub fn iova(&self, at: u64) -> Option<(u64, u64)> {
        let at = at.checked_add(self.offset)?;
        let page = *self.pages.get(usize::try_from(at >> self.page_shift).ok()?)?;
        let inside = at & ((1 << self.page_shift) - 1);
        Some((page.checked_add(inside)?, (1 << self.page_shift) - inside))
    }

    /// Reads `bytes.len()` bytes from byte `at`.
    pub fn read<'a>(&self, dma: impl Into<Counted<'a>>, mut at: u64, mut bytes: &mut [u8]) -> Result<(), DmaFault> {
        let dma = dma.into();
        while !bytes.is_empty() {
            let (iova, room) = self.iova(at).ok_or(DmaFault::past_end(at, bytes.len(), false))?;
            let (now, rest) = bytes.split_at_mut(bytes.len().min(room as usize));
            dma.read(iova, now)?;
            at += now.len() as u64;
            bytes = rest;
        }
        Ok(())
    }

    /// As [`write`](Self::write), in an order that PCIe's relaxed ordering permits: the last cache line first. So who
    /// polls the end of the data, in place of a completion, finds it before the rest.
    pub fn write_relaxed(&self, dma: Counted<'_>, at: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        const LINE: u64 = 64;
        let end = at.saturating_add(bytes.len() as u64);
        let last = (end.saturating_sub(1) / LINE * LINE).clamp(at, end);
        let (first, rest) = bytes.split_at((last - at) as usize);
        self.write(dma, last, rest)?;
        self.write(dma, at, first)
    }

    /// Writes `bytes` from byte `at` on.
    pub fn write<'a>(&self, dma: impl Into<Counted<'a>>, mut at: u64, mut bytes: &[u8]) -> Result<(), DmaFault> {
        let dma = dma.into();
        while !bytes.is_empty() {
            let (iova, room) = self.iova(at).ok_or(DmaFault::past_end(at, bytes.len(), true))?;
            let (now, rest) = bytes.split_at(bytes.len().min(room as usize));
            dma.write(iova, now)?;
            at += now.len() as u64;
            bytes = rest;
        }
        Ok(())
    }
}

/// Big-endian page addresses, without the permission bits.
pub(crate) fn addresses(list: &[u8]) -> impl ExactSizeIterator<Item = u64> {
    let (chunks, _) = list.as_chunks::<8>();
    chunks.iter().map(|bytes| u64::from_be_bytes(*bytes) & !0xfff)
}

/// A doorbell record: two big-endian dwords in memory. PRM "Doorbell Record".
#[derive(Debug, Clone, Copy, Default)]
pub struct Doorbell {
    /// IOVA of the first dword.
    pub iova: u64,
}

impl Doorbell {
    /// Reads dword 0 or 1, as a card does.
    pub fn read(&self, dma: &Dma, index: u64) -> Result<u32, DmaFault> {
        dma.counted(Purpose::Record).load_be32(self.iova + 4 * index)
    }

    /// As [`read`](Self::read), for a check that no card makes: not counted.
    pub fn peek(&self, dma: &Dma, index: u64) -> Result<u32, DmaFault> {
        dma.load_be32(self.iova + 4 * index)
    }
}

/// A user memory object. PRM "User Memory".
#[derive(Debug)]
pub struct Umem {
    /// Its pages.
    pub memory: PageList,
    /// Number of objects in it.
    pub users: u32,
}
