//! Device memory (MEMIC). PRM "ALLOC_MEMIC", "MODIFY_MEMIC", "DEALLOC_MEMIC".

use mlx5_prm::cmd::*;

use super::answer::Answer;
use super::syndromes::Syndrome;
use crate::function::Function;
use crate::objects::Translation;

/// Lengths are a multiple of this number of bytes.
const UNIT: u32 = 64;
/// A range consists of whole pages of the BAR.
const PAGE: u64 = 4096;

/// `ALLOC_MEMIC`. The driver chooses the pages; the allocation starts on a page boundary, which satisfies every
/// alignment.
pub(super) fn alloc(f: &mut Function, command: &AllocMemicIn) -> Answer<AllocMemicOut> {
    let (start, room, size) = (command.range_start_addr(), command.range_size(), command.memic_size());
    let caps = f.nic.firmware.caps.device_memory().ok_or(Syndrome::CapabilityNotAnnounced)?;
    if size == 0 || !size.is_multiple_of(UNIT) || size > caps.max_memic_size() {
        return Err(Syndrome::MemicSize.into());
    }
    if command.log_memic_addr_alignment() > caps.log_max_memic_addr_alignment() {
        return Err(Syndrome::MemicAlignment.into());
    }
    let within = f.nic.objects.device_memory.range();
    let is_within = start >= within.start && start.checked_add(room.into()).is_some_and(|end| end <= within.end);
    if !start.is_multiple_of(PAGE) || size > room || !is_within {
        return Err(Syndrome::MemicRange.into());
    }
    if !f.nic.objects.device_memory.take(start, size.into()) {
        return Err(Syndrome::MemicTaken.into());
    }
    let mut output = AllocMemicOut::ZERO;
    output.w().memic_start_addr(start);
    Ok(output)
}

/// `MODIFY_MEMIC`: makes or ends the addresses in BAR 0 that do an operation on an allocation.
pub(super) fn modify(f: &mut Function, command: &ModifyMemicIn) -> Answer<ModifyMemicOut> {
    let caps = f.nic.firmware.caps.device_memory().ok_or(Syndrome::CapabilityNotAnnounced)?;
    let (start, operation) = (command.memic_start_addr(), command.memic_operation_type());
    if caps.memic_operations().checked_shr(operation.number()).is_none_or(|bits| bits & 1 == 0) {
        return Err(Syndrome::MemicOperation.into());
    }
    let memory = &mut f.nic.objects.device_memory;
    if !memory.is_taken(start) {
        return Err(Syndrome::NoSuchMemic.into());
    }
    let mut output = ModifyMemicOut::ZERO;
    match ModifyMemicOpMod::from_number(command.op_mod().into()) {
        ModifyMemicOpMod::Alloc => {
            let address = memory.add_operation(start, operation).ok_or(Syndrome::MemicOperationThere)?;
            output.w().memic_operation_addr(address);
        }
        ModifyMemicOpMod::Dealloc if memory.remove_operation(start, operation) => {}
        ModifyMemicOpMod::Dealloc => return Err(Syndrome::NoSuchMemicOperation.into()),
        ModifyMemicOpMod::Unknown(_) => return Err(Syndrome::MemicOpMod.into()),
    }
    Ok(output)
}

/// `DEALLOC_MEMIC`.
pub(super) fn dealloc(f: &mut Function, command: &DeallocMemicIn) -> Answer<DeallocMemicOut> {
    let (start, size) = (command.memic_start_addr(), u64::from(command.memic_size()));
    f.nic.firmware.caps.device_memory().ok_or(Syndrome::CapabilityNotAnnounced)?;
    let is_there = |address: u64| (start..start.saturating_add(size)).contains(&address);
    let is_used =
        f.nic.objects.mkeys.iter().any(|(_, mkey)| {
            matches!(mkey.translation, Translation::Device { .. }) && is_there(mkey.context.start_addr())
        });
    if is_used || f.nic.objects.device_memory.has_operations(start) {
        return Err(Syndrome::MemicInUse.into());
    }
    if !f.nic.objects.device_memory.give_back(start, size) {
        return Err(Syndrome::NoSuchMemic.into());
    }
    Ok(DeallocMemicOut::ZERO)
}
