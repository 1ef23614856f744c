//! Memory keys. PRM "Memory Key".

use std::sync::Arc;

use mlx5_prm::cmd::*;
use mlx5_prm::ctx::{AccessMode, Klm, Mkc};
use mlx5_prm::layout::Layout;

use super::answer::Answer;
use super::caps::next_below;
use super::memory::{self, InUmem};
use super::pages;
use super::syndromes::Syndrome;
use crate::function::{Context, Function};
use crate::objects::{Mkey, OCTWORD, OnDemand, PRESENT, PageList, TRANSLATIONS, Translation, keys_of, page_rights};

/// Most octwords that a key has room for which UMRs fill. Linux's key of all addresses (implicit ODP) has one for each
/// GiB, with page tables of five levels 2^26; that is 512 GiB of pages of 4 KiB, too. No capability limits it.
const MOST_OCTWORDS: u32 = 1 << 26;

/// `CREATE_MKEY`.
pub(super) fn create(f: &mut Function, command: &CreateMkeyIn, list: &[u8]) -> Answer<CreateMkeyOut> {
    let context = *command.memory_key_mkey_entry();
    let umem =
        command.mkey_umem_valid().then(|| InUmem { id: command.mkey_umem_id(), offset: command.mkey_umem_offset() });
    check_counts(command, &context, list)?;
    check_keys(f, &context)?;
    check_room(command, &context)?;
    check_features(f, command, &context)?;
    f.nic.objects.pds.get(context.pd()).ok_or(Syndrome::NoSuchPd)?;
    let is_all_absent = command.pg_access() && page_rights(list).all(|rights| rights == 0);
    let len = length(&context, is_all_absent)?;
    let translation = translation(f, command, len, list, umem)?;
    if umem.is_some() {
        check_start(f, &context, &translation);
    }
    next_below(&f.nic.objects.mkeys, f.nic.firmware.caps.general().log_max_mkey()).ok_or(Syndrome::TooManyMkeys)?;
    let charged = pages::with_list(Context::Mkey, own_list(&translation, umem.is_some()));
    pages::reserve_bytes(f, charged)?;
    let mkey = Mkey { charged, ..Mkey::new(&context, translation, umem.map(|place| place.id)) };
    let page = 1u64 << context.log_page_size();
    let index = f.nic.objects.mkeys.insert(mkey).map_err(|_| Syndrome::TooManyMkeys)?;
    if context.access_mode() == AccessMode::Mtt && !list.is_empty() {
        let count = list.len() / size_of::<u64>();
        tracing::debug!(target: TRANSLATIONS, "key {index:#x}: {count} pages of {page} bytes");
    }
    memory::use_umems(f, [umem.map(|place| place.id), None], true);
    if let Some(pd) = f.nic.objects.pds.get_mut(context.pd()) {
        pd.users += 1;
    }
    let mut output = CreateMkeyOut::ZERO;
    output.w().mkey_index(index);
    Ok(output)
}

/// The number of translations is given twice: in the input, and as room in the context.
///
/// A key in a umem uses the umem's translations and its input has none, so its count is meaningless: DPDK gives more
/// than there are, mlx5ctl and DOCA give 0.
fn check_counts(command: &CreateMkeyIn, context: &Mkc, list: &[u8]) -> Result<(), Syndrome> {
    let stated = command.translations_octword_actual_size();
    let in_input = if command.mkey_umem_valid() { 0 } else { stated as usize * OCTWORD };
    if list.len() != in_input {
        return Err(Syndrome::TranslationCount);
    }
    let needed = if context.free() { 0 } else { octwords_needed(context) };
    let room = u64::from(context.translations_octword_size());
    let stated_none = command.mkey_umem_valid() && stated == 0;
    if context.access_mode() == AccessMode::Mtt && !stated_none && room < needed.max(stated.into()) {
        return Err(Syndrome::TranslationRoom);
    }
    Ok(())
}

/// A list of keys has an octword for each.
fn check_keys(f: &Function, context: &Mkc) -> Result<(), Syndrome> {
    let longest = 1 << f.nic.firmware.caps.general().log_max_klm_list_size();
    let is_too_long = context.access_mode() == AccessMode::Klms && context.translations_octword_size() > longest;
    if is_too_long { Err(Syndrome::KlmList) } else { Ok(()) }
}

/// Room that only UMRs fill is not in the input, so nothing else bounds it. A key in a umem needs none.
fn check_room(command: &CreateMkeyIn, context: &Mkc) -> Result<(), Syndrome> {
    let is_filled_later = context.umr_en() && !command.mkey_umem_valid();
    let is_too_much = is_filled_later && context.translations_octword_size() > MOST_OCTWORDS;
    if is_too_much { Err(Syndrome::MkeyRoom) } else { Ok(()) }
}

/// Octwords of the key's translations; 0 if length or page size are invalid and will be refused.
fn octwords_needed(context: &Mkc) -> u64 {
    let page_shift = u32::from(context.log_page_size());
    if !(memory::MIN_PAGE_SHIFT..=memory::MAX_PAGE_SHIFT).contains(&page_shift) || context.length64() {
        return 0;
    }
    let offset = context.start_addr() & ((1 << page_shift) - 1);
    offset.checked_add(context.len()).map_or(0, |bytes| bytes.div_ceil(1 << page_shift).div_ceil(2))
}

/// Strict mode: a card takes the offset in the first page from the key's address, and ignores the offset in the umem
/// below a page. If they differ, the card uses other bytes than the driver expects.
fn check_start(f: &Function, context: &Mkc, translation: &Translation) {
    let Translation::Pages(pages) = translation else { return };
    let key_shift = u32::from(context.log_page_size()).max(memory::MIN_PAGE_SHIFT);
    let inside = (1 << key_shift.min(pages.page_shift)) - 1;
    if context.free() || context.start_addr() & inside == pages.offset & inside {
        return;
    }
    f.nic.strict.report("memory key starts elsewhere in its page than in its umem", || {
        format!("start_addr {:#x}, offset in the page {:#x}", context.start_addr(), pages.offset & inside)
    });
}

fn check_features(f: &Function, command: &CreateMkeyIn, context: &Mkc) -> Result<(), Syndrome> {
    let caps = f.nic.firmware.caps.general();
    let unannounced = command.data_direct()
        || context.bsf_en()
        || context.bsf_octword_size() != 0
        || context.sync_umr()
        || context.expected_sigerr_count()
        || context.crossing_target_vhca_id() != 0
        || context.ma_translation_mode() != 0
        || context.relaxed_ordering_write() && !caps.relaxed_ordering_write()
        || context.relaxed_ordering_read() && !caps.relaxed_ordering_read();
    if unannounced { Err(Syndrome::CapabilityNotAnnounced) } else { Ok(()) }
}

/// Length of the key in bytes; `None` for the whole address space. A key created free has no length yet. A key of
/// device memory may have length 0: verbs allow such a region.
fn length(context: &Mkc, is_all_absent: bool) -> Result<Option<u64>, Syndrome> {
    if context.length64() {
        // Pages and keys of fixed size can cover all of it.
        let can_be_whole = matches!(context.access_mode(), AccessMode::Pa | AccessMode::Ksm) || is_all_absent;
        return if can_be_whole { Ok(None) } else { Err(Syndrome::MkeyLength) };
    }
    let overflows = context.start_addr().checked_add(context.len().saturating_sub(1)).is_none();
    let may_be_empty = context.free() || context.access_mode() == AccessMode::Memic;
    if overflows || context.len() == 0 && !may_be_empty {
        return Err(Syndrome::MkeyLength);
    }
    Ok(Some(context.len()))
}

fn translation(
    f: &Function,
    command: &CreateMkeyIn,
    len: Option<u64>,
    list: &[u8],
    umem: Option<InUmem>,
) -> Result<Translation, Syndrome> {
    let context = &command.memory_key_mkey_entry();
    let len = len.unwrap_or(u64::MAX);
    match context.access_mode() {
        AccessMode::Pa if list.is_empty() && umem.is_none() => Ok(Translation::Physical),
        AccessMode::Pa => Err(Syndrome::TranslationsOfPa),
        AccessMode::Mtt if context.free() => Ok(Translation::Pages(PageList::default())),
        AccessMode::Mtt => match umem {
            Some(place) => memory::in_umem(f, place, len).map(Translation::Pages),
            None if command.pg_access() => on_demand(context, len, list),
            None if has_rights(list) => Err(Syndrome::TranslationRights),
            None => pages_of(context, len, list).map(Translation::Pages),
        },
        AccessMode::Memic if list.is_empty() && umem.is_none() && !context.free() => {
            on_card(f, context.start_addr(), len)
        }
        AccessMode::Klms if umem.is_none() => keys_of(&[], 0, list).ok_or(Syndrome::KeyPattern),
        AccessMode::Ksm if umem.is_none() && f.nic.firmware.caps.general().fixed_buffer_size() => {
            fixed_keys(context, list)
        }
        _ => Err(Syndrome::AccessMode),
    }
}

/// Part of an `ALLOC_MEMIC` allocation, by its address in BAR 0.
fn on_card(f: &Function, address: u64, len: u64) -> Result<Translation, Syndrome> {
    f.nic.firmware.caps.device_memory().ok_or(Syndrome::CapabilityNotAnnounced)?;
    let (bytes, at) = f.nic.objects.device_memory.at(address, len).ok_or(Syndrome::NoSuchMemic)?;
    Ok(Translation::Device { bytes: bytes.clone(), at })
}

/// The pages of a key, from a list. The offset in the first page is that of the key's address.
fn pages_of(context: &Mkc, len: u64, list: &[u8]) -> Result<PageList, Syndrome> {
    let page_shift = u32::from(context.log_page_size());
    if !(memory::MIN_PAGE_SHIFT..=memory::MAX_PAGE_SHIFT).contains(&page_shift) {
        return Err(Syndrome::PageSize);
    }
    let offset = context.start_addr() & ((1 << page_shift) - 1);
    let needed = offset.checked_add(len).ok_or(Syndrome::MkeyLength)?.div_ceil(1 << page_shift);
    // An octword holds two translations: an odd number is padded.
    let needed = usize::try_from(needed).ok().and_then(|needed| needed.checked_mul(8));
    let list = needed.and_then(|needed| list.get(..needed)).ok_or(Syndrome::TranslationsTooFew)?;
    memory::page_list(list, page_shift, offset, len)
}

/// Whether an entry has more than the address of a page of 4 KiB.
fn has_rights(list: &[u8]) -> bool {
    let (entries, _) = list.as_chunks::<8>();
    entries.iter().any(|entry| u64::from_be_bytes(*entry) & 0xfff != 0)
}

/// Pages that say in their two lowest bits whether they are there (`pg_access`). Pages of any size may be absent.
fn on_demand(context: &Mkc, len: u64, list: &[u8]) -> Result<Translation, Syndrome> {
    let rights: Arc<[u8]> = page_rights(list).collect();
    if rights.iter().any(|rights| *rights != 0) {
        let pages = pages_of(context, len, list)?;
        let are_all_present = rights.iter().take(pages.pages.len()).all(|rights| *rights == PRESENT);
        return Ok(match are_all_present {
            true => Translation::Pages(pages),
            false => Translation::OnDemand(OnDemand { pages, rights }),
        });
    }
    let page_shift = u32::from(context.log_page_size());
    if page_shift < memory::MIN_PAGE_SHIFT {
        return Err(Syndrome::PageSize);
    }
    let offset = context.start_addr() & ((1 << page_shift) - 1);
    let needed = (u128::from(offset) + u128::from(len)).div_ceil(1 << page_shift);
    if (rights.len() as u128) < needed {
        return Err(Syndrome::TranslationsTooFew);
    }
    let pages = PageList { page_shift, offset, pages: vec![0; rights.len()].into() };
    Ok(Translation::OnDemand(OnDemand { pages, rights }))
}

/// Keys that each cover `1 << log_page_size` bytes.
fn fixed_keys(context: &Mkc, list: &[u8]) -> Result<Translation, Syndrome> {
    let sizes = memory::MIN_PAGE_SHIFT..=memory::MAX_PAGE_SHIFT;
    if !context.free() && !sizes.contains(&u32::from(context.log_page_size())) {
        return Err(Syndrome::PageSize);
    }
    let keys = list.chunks(OCTWORD).filter_map(Klm::read);
    Ok(Translation::FixedKeys(keys.collect()))
}

/// `QUERY_MKEY`.
pub(super) fn query(f: &mut Function, command: &QueryMkeyIn) -> Answer<QueryMkeyOut> {
    let mkey = f.nic.objects.mkeys.get(command.mkey_index()).ok_or(Syndrome::NoSuchMkey)?;
    let mut output = QueryMkeyOut::ZERO;
    output.w().memory_key_mkey_entry(&mkey.context);
    if let (true, Translation::Pages(pages)) = (command.pg_access(), &mkey.translation) {
        let mut first = [0; 32];
        for (place, page) in first.chunks_exact_mut(8).zip(pages.pages.iter()) {
            place.copy_from_slice(&page.to_be_bytes());
        }
        let (mut low, mut high) = ([0; 16], [0; 16]);
        low.copy_from_slice(&first[..16]);
        high.copy_from_slice(&first[16..]);
        output.w().bsf0_klm0_pas_mtt0_1(&low).bsf1_klm1_pas_mtt2_3(&high);
    }
    if let Translation::Keys(keys) = &mkey.translation {
        let entry = |index: usize| {
            let mut bytes = [0; OCTWORD];
            bytes.copy_from_slice(keys.get(index).unwrap_or(&Klm::ZERO).as_bytes());
            bytes
        };
        output.w().bsf0_klm0_pas_mtt0_1(&entry(0)).bsf1_klm1_pas_mtt2_3(&entry(1));
    }
    Ok(output)
}

/// Number of translations stored with the key's context. A key in a umem uses the umem's. Keys created free for UMR
/// count no room: it is not documented when a card allocates it.
fn own_list(translation: &Translation, in_umem: bool) -> usize {
    match translation {
        _ if in_umem => 0,
        Translation::Pages(pages) | Translation::OnDemand(OnDemand { pages, .. }) => pages.pages.len(),
        Translation::Keys(keys) | Translation::FixedKeys(keys) => keys.len() * OCTWORD / size_of::<u64>(),
        Translation::Pattern(pattern) => (1 + pattern.entries.len()) * OCTWORD / size_of::<u64>(),
        Translation::Physical | Translation::Device { .. } => 0,
    }
}

/// `DESTROY_MKEY`.
pub(super) fn destroy(f: &mut Function, command: &DestroyMkeyIn) -> Answer<DestroyMkeyOut> {
    let mkey = f.nic.objects.mkeys.remove(command.mkey_index()).ok_or(Syndrome::NoSuchMkey)?;
    memory::use_umems(f, [mkey.umem, None], false);
    if let Some(pd) = f.nic.objects.pds.get_mut(mkey.pd) {
        pd.users = pd.users.saturating_sub(1);
    }
    pages::release_bytes(f, mkey.charged);
    Ok(DestroyMkeyOut::ZERO)
}
