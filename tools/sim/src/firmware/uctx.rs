//! User contexts: isolation between processes. Objects created with one `uid` cannot be used with another. PRM
//! "CREATE_UCTX".
//!
//! The driver has `uid` 0 and may name every object. It marks commands on behalf of a process with that process's
//! `uid`.

use mlx5_prm::cmd::*;

use super::answer::Answer;
use super::pages;
use super::syndromes::Syndrome;
use crate::function::{Context, Function};
use crate::objects::UserContext;
use crate::profile::UCTX_RAW_TX;

/// `CREATE_UCTX`.
pub(super) fn create(f: &mut Function, command: &CreateUctxIn) -> Answer<CreateUctxOut> {
    let caps = f.nic.firmware.caps.general();
    let cap = command.uctx().cap();
    if cap & !caps.uctx_cap() != 0 {
        return Err(Syndrome::CapabilityNotAnnounced.into());
    }
    let number = f.nic.objects.user_contexts.next_number().and_then(|number| u16::try_from(number).ok());
    let uid = number.filter(|uid| uid >> caps.log_max_uctx() == 0).ok_or(Syndrome::TooManyUserContexts)?;
    pages::reserve(f, Context::User)?;
    tracing::debug!("user context {uid} begins, {} objects before it", f.object_count());
    f.nic.objects.user_contexts.insert(UserContext { cap }).map_err(|_| Syndrome::TooManyUserContexts)?;
    let mut output = CreateUctxOut::ZERO;
    output.w().uid(uid);
    Ok(output)
}

/// `DESTROY_UCTX`, after all its objects were destroyed.
pub(super) fn destroy(f: &mut Function, command: &DestroyUctxIn) -> Answer<DestroyUctxOut> {
    let uid = command.uid();
    f.nic.objects.user_contexts.get(uid.into()).ok_or(Syndrome::NoUserContext)?;
    if f.owned_by(uid) > 0 {
        return Err(Syndrome::UserContextInUse.into());
    }
    f.nic.objects.user_contexts.remove(uid.into());
    pages::release(f, Context::User);
    tracing::debug!("user context {uid} ends, {} objects after it", f.object_count());
    Ok(DestroyUctxOut::ZERO)
}

/// Whether the user context may create Ethernet send queues (`RAW_TX`).
pub(super) fn may_send_frames(f: &Function) -> bool {
    f.nic.objects.acting().is_none_or(|user| user.cap & UCTX_RAW_TX != 0)
}

/// Whether a user context may send this command: commands on its own objects, and queries. All others are the driver's.
pub(super) fn may_give(opcode: Opcode) -> bool {
    use Opcode::*;
    !matches!(
        opcode,
        EnableHca
            | DisableHca
            | InitHca
            | TeardownHca
            | SetIssi
            | SetHcaCap
            | SetDriverVersion
            | QueryPages
            | ManagePages
            | AllocMemic
            | ModifyMemic
            | DeallocMemic
            | PageFaultResume
    ) && !matches!(opcode, CreateUctx | DestroyUctx | CreateEq | QueryEq | DestroyEq | AccessReg | SetRoceAddress)
        && !matches!(opcode, ModifyNicVportContext | ModifyVportState | SetL2TableEntry | DeleteL2TableEntry)
}
