//! User access region pages. PRM "User Access Region".

use mlx5_prm::cmd::*;

use super::answer::Answer;
use super::memory;
use super::syndromes::Syndrome;
use crate::function::Function;
use crate::objects::Uar;

/// `ALLOC_UAR`.
pub(super) fn alloc(f: &mut Function, _: &AllocUarIn) -> Answer<AllocUarOut> {
    let uar = f.nic.objects.uars.insert(Uar { users: 0 }).map_err(|_| Syndrome::TooManyUars)?;
    let mut output = AllocUarOut::ZERO;
    output.w().uar(uar);
    Ok(output)
}

/// One user more, or one less, of a UAR. Those with users are polled in each turn.
pub(super) fn count(f: &mut Function, number: u32, more: bool) {
    let objects = &mut f.nic.objects;
    let Some(uar) = objects.uars.get_mut(number) else { return };
    memory::count(&mut uar.users, more);
    if uar.users > 0 {
        objects.used_uars.insert(number);
    } else {
        objects.used_uars.remove(&number);
    }
}

/// `DEALLOC_UAR`.
pub(super) fn dealloc(f: &mut Function, command: &DeallocUarIn) -> Answer<DeallocUarOut> {
    let uar = f.nic.objects.uars.get(command.uar()).ok_or(Syndrome::NoSuchUar)?;
    if uar.users > 0 {
        return Err(Syndrome::UarInUse.into());
    }
    f.nic.objects.uars.remove(command.uar());
    f.bar.release(command.uar());
    Ok(DeallocUarOut::ZERO)
}
