//! Pages of a key that may be absent: on-demand paging. PRM `mtt.rd_en`, `mtt.wr_en`.

use std::sync::Arc;

use super::PageList;

/// `rd_en`: the card may read the page.
pub(crate) const READ: u8 = 1;
/// `wr_en`: the card may write the page.
pub(crate) const WRITE: u8 = 2;
/// What a page allows whose list has no such bits.
pub(crate) const PRESENT: u8 = READ | WRITE;

/// The key that only stands in lists of keys, for memory that no page was ever asked of (PRM `null_mkey`). All of it is
/// absent. It is in no table.
pub const ABSENT_KEY: u32 = 3;

/// Pages, of which each says whether the card may read and write it.
#[derive(Debug, Clone)]
pub struct OnDemand {
    /// The pages; of those that are absent, the address means nothing.
    pub pages: PageList,
    /// `rd_en` and `wr_en` of each.
    pub rights: Arc<[u8]>,
}

/// A part of an access whose pages are absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Absent {
    /// The key whose pages they are.
    pub key: u32,
    /// The first absent byte, as that key counts.
    pub address: u64,
    /// Bytes from there on that the access reaches by that key.
    pub len: u64,
}

impl OnDemand {
    /// The first of `len` bytes from byte `at` on whose page does not allow what is `needed` of it.
    pub(crate) fn absent(&self, at: u64, len: u64, needed: u8) -> Option<u64> {
        let (shift, end) = (self.pages.page_shift, at.saturating_add(len));
        let mut at = at;
        while at < end {
            let inside = at.wrapping_add(self.pages.offset);
            let rights = usize::try_from(inside >> shift).ok().and_then(|page| self.rights.get(page));
            if rights.is_none_or(|rights| rights & needed != needed) {
                return Some(at);
            }
            at = at.saturating_add((1 << shift) - (inside & ((1 << shift) - 1)));
        }
        None
    }
}

/// `rd_en` and `wr_en` of the pages in a list.
pub(crate) fn page_rights(list: &[u8]) -> impl ExactSizeIterator<Item = u8> {
    let (chunks, _) = list.as_chunks::<8>();
    chunks.iter().map(|bytes| bytes[7] & PRESENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_absent_page_of_an_access_is_found() {
        let pages = PageList { page_shift: 12, offset: 0x800, pages: vec![0x1000, 0x2000, 0].into() };
        let list = OnDemand { pages, rights: vec![PRESENT, READ, 0].into() };
        assert_eq!(list.absent(0, 0x800, PRESENT), None, "to the end of the first page");
        assert_eq!(list.absent(0, 0x801, PRESENT), Some(0x800), "which may only be read");
        assert_eq!(list.absent(0, 0x1800, READ), None);
        assert_eq!(list.absent(0x700, 0x1200, READ), Some(0x1800));
        // A driver that only receives allows writes alone.
        let list = OnDemand { rights: vec![WRITE; 3].into(), ..list };
        assert_eq!((list.absent(0, 0x2000, WRITE), list.absent(0x10, 1, READ)), (None, Some(0x10)));
        assert_eq!(list.absent(0x4000, 1, READ), Some(0x4000), "past the end nothing is present");
    }
}
