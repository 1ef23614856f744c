//! User access region pages. PRM "User Access Region".

use mlx5_prm::cmd::*;

use super::answer::Answer;
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
