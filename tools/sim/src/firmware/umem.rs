//! User memory objects. PRM "User Memory".

use mlx5_prm::cmd::*;

use super::answer::Answer;
use super::caps::next_below;
use super::memory::{self, MIN_PAGE_SHIFT};
use super::pages;
use super::syndromes::Syndrome;
use crate::function::{Context, Function};
use crate::objects::{TRANSLATIONS, Umem};

/// `CREATE_UMEM`.
pub(super) fn create(f: &mut Function, command: &CreateUmemIn, list: &[u8]) -> Answer<CreateUmemOut> {
    let context = command.umem();
    if context.ats() {
        return Err(Syndrome::CapabilityNotAnnounced.into());
    }
    if context.num_of_mtt() != list.len() as u64 / 8 || !list.len().is_multiple_of(8) {
        return Err(Syndrome::InputListLength.into());
    }
    let page_shift = u32::from(context.log_page_size()) + MIN_PAGE_SHIFT;
    let memory = memory::page_list(list, page_shift, u64::from(context.page_offset()), 0)?;
    if memory.is_empty() {
        return Err(Syndrome::UmemEmpty.into());
    }
    next_below(&f.nic.objects.umems, f.nic.firmware.caps.general().log_max_umem()).ok_or(Syndrome::TooManyUmems)?;
    pages::reserve_bytes(f, pages::with_list(Context::Umem, memory.pages.len()))?;
    let count = memory.pages.len();
    let number = f.nic.objects.umems.insert(Umem { memory, users: 0 }).map_err(|_| Syndrome::TooManyUmems)?;
    tracing::debug!(target: TRANSLATIONS, "umem {number:#x}: {count} pages of {} bytes", 1u64 << page_shift);
    let mut output = CreateUmemOut::ZERO;
    output.w().umem_id(number);
    Ok(output)
}

/// `DESTROY_UMEM`.
pub(super) fn destroy(f: &mut Function, command: &DestroyUmemIn) -> Answer<DestroyUmemOut> {
    let umem = f.nic.objects.umems.get(command.umem_id()).ok_or(Syndrome::NoSuchUmem)?;
    if umem.users > 0 {
        return Err(Syndrome::UmemInUse.into());
    }
    let bytes = pages::with_list(Context::Umem, umem.memory.pages.len());
    f.nic.objects.umems.remove(command.umem_id());
    pages::release_bytes(f, bytes);
    Ok(DestroyUmemOut::ZERO)
}
