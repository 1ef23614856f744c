//! Memory of objects: page lists of commands, umems, doorbell records.

use super::syndromes::Syndrome;
use crate::function::Function;
use crate::objects::{Doorbell, PageList, addresses};
pub(super) use crate::objects::{MAX_PAGE_SHIFT, MIN_PAGE_SHIFT};

/// log2 of the number of positions in a page that `page_offset` counts.
pub(super) const PAGE_OFFSET_BITS: u32 = 6;

/// What a context requires of an object's memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    /// `log_page_size`: log2 of a page's bytes, less 12.
    pub log_page_size: u8,
    /// `page_offset`: start of the object in the first page, in 64ths of the page.
    pub page_offset: u8,
    /// Bytes that the object needs.
    pub bytes: u64,
}

/// `page_offset` for an object in this memory.
pub(super) fn page_offset(memory: &PageList) -> u8 {
    (memory.offset >> (memory.page_shift - PAGE_OFFSET_BITS)) as u8
}

/// The umem of an object, and the object's offset in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct InUmem {
    /// `umem_id`.
    pub id: u32,
    /// Offset in the umem.
    pub offset: u64,
}

/// The pages of `list`, each of `1 << page_shift` bytes.
pub(super) fn page_list(list: &[u8], page_shift: u32, offset: u64, bytes: u64) -> Result<PageList, Syndrome> {
    if !(MIN_PAGE_SHIFT..=MAX_PAGE_SHIFT).contains(&page_shift) {
        return Err(Syndrome::PageSize);
    }
    let pages: std::sync::Arc<[u64]> = addresses(list).collect();
    if pages.iter().any(|page| page & ((1 << page_shift) - 1) != 0) {
        return Err(Syndrome::AddressMisaligned);
    }
    let pages = PageList { page_shift, offset, pages };
    if pages.len() < bytes { Err(Syndrome::MemoryTooSmall) } else { Ok(pages) }
}

/// The memory of a queue: in a umem, or in the pages of the command's list.
pub(super) fn queue(f: &Function, wanted: Wanted, list: &[u8], umem: Option<InUmem>) -> Result<PageList, Syndrome> {
    if let Some(place) = umem {
        if !place.offset.is_multiple_of(64) {
            return Err(Syndrome::OffsetTooLarge);
        }
        return in_umem(f, place, wanted.bytes);
    }
    let page_shift = u32::from(wanted.log_page_size) + MIN_PAGE_SHIFT;
    // The field of some contexts has room for pages larger than an address.
    if page_shift > MAX_PAGE_SHIFT {
        return Err(Syndrome::PageSize);
    }
    let offset = u64::from(wanted.page_offset) << (page_shift - PAGE_OFFSET_BITS);
    page_list(list, page_shift, offset, wanted.bytes)
}

/// `bytes` bytes of a umem, from an offset on.
pub(super) fn in_umem(f: &Function, place: InUmem, bytes: u64) -> Result<PageList, Syndrome> {
    let umem = f.nic.objects.umems.get(place.id).ok_or(Syndrome::NoSuchUmem)?;
    if place.offset >= umem.memory.len() {
        return Err(Syndrome::OffsetTooLarge);
    }
    let mut memory = umem.memory.clone();
    memory.offset += place.offset;
    if memory.len() < bytes { Err(Syndrome::MemoryTooSmall) } else { Ok(memory) }
}

/// A doorbell record, at an IOVA or at an offset in a umem. PRM "Doorbell Record".
pub(super) fn doorbell(f: &Function, address: u64, umem: Option<u32>) -> Result<Doorbell, Syndrome> {
    if !address.is_multiple_of(8) {
        return Err(Syndrome::DoorbellMisaligned);
    }
    let Some(id) = umem else { return Ok(Doorbell { iova: address }) };
    let umem = f.nic.objects.umems.get(id).ok_or(Syndrome::NoSuchUmem)?;
    match umem.memory.iova(address) {
        // The record is on one page, as both are aligned.
        Some((iova, room)) if room >= 8 && iova.is_multiple_of(8) => Ok(Doorbell { iova }),
        Some(_) => Err(Syndrome::DoorbellMisaligned),
        None => Err(Syndrome::DoorbellOutside),
    }
}

/// Increments or decrements a reference count.
pub(super) fn count(users: &mut u32, more: bool) {
    *users = if more { *users + 1 } else { users.saturating_sub(1) };
}

/// Counts an object in or out of each of its umems.
pub(super) fn use_umems(f: &mut Function, umems: [Option<u32>; 2], more: bool) {
    for id in umems.into_iter().flatten() {
        if let Some(umem) = f.nic.objects.umems.get_mut(id) {
            count(&mut umem.users, more);
        }
    }
}
