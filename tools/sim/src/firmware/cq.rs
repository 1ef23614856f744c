//! Completion queues. PRM "Completion Queue Context".

use mlx5_prm::caps::CmdHcaCap;
use mlx5_prm::cmd::*;
use mlx5_prm::cqe::{CqeCompressionLayout, MiniCqeFormat};
use mlx5_prm::ctx::{CqPeriodMode, Cqc};

use super::answer::Answer;
use super::caps::next_below;
use super::memory::{self, InUmem, Wanted};
use super::syndromes::Syndrome;
use super::{pages, uar};
use crate::engine;
use crate::function::{Context, Function};
use crate::objects::{ArmState, Compression, Cq, CqStatus};

/// `resize_field_select`: `log_cq_size`, `page_offset` and `log_page_size`.
const SELECT_SIZE: u32 = 1 << 0;
const SELECT_PAGE_OFFSET: u32 = 1 << 1;
const SELECT_PAGE_SIZE: u32 = 1 << 2;
/// `modify_field_select`: `cq_period`, `cq_max_count` and `cq_period_mode`.
const SELECT_PERIOD: u32 = 1 << 0;
const SELECT_COUNT: u32 = 1 << 1;
const SELECT_PERIOD_MODE: u32 = 1 << 4;

/// `CREATE_CQ`.
pub(super) fn create(f: &mut Function, command: &CreateCqIn, list: &[u8]) -> Answer<CreateCqOut> {
    let context = *command.cq_context();
    check_context(f, &context)?;
    let cqe_size = cqe_size(f, &context)?;
    let compression = compression(f, &context)?;
    let umem = command.cq_umem_valid().then(|| InUmem { id: command.cq_umem_id(), offset: command.cq_umem_offset() });
    let ring = memory::queue(f, wanted(&context, cqe_size), list, umem)?;
    let doorbell_umem = context.dbr_umem_valid().then(|| context.dbr_umem_id());
    let doorbell = memory::doorbell(f, context.dbr_addr(), doorbell_umem)?;
    next_below(&f.nic.objects.cqs, f.nic.firmware.caps.general().log_max_cq()).ok_or(Syndrome::TooManyCqs)?;
    pages::reserve(f, Context::Cq)?;
    let cq = Cq {
        ring,
        log_size: u32::from(context.log_cq_size()),
        cqe_size,
        eqn: context.c_eqn_or_apu_element(),
        uar: context.uar_page(),
        doorbell,
        ignore_overrun: context.oi(),
        collapsed: context.cc(),
        producer: 0,
        began: 0,
        resized: false,
        status: CqStatus::Ok,
        arm: ArmState::Fired,
        arm_sn: 0,
        seen: Default::default(),
        compression,
        users: 0,
        umem: umem.map(|place| place.id),
        doorbell_umem,
        context,
    };
    let umems = [cq.umem, cq.doorbell_umem];
    let cqn = f.nic.objects.cqs.insert(cq).map_err(|_| Syndrome::TooManyCqs)?;
    use_parents(f, context.c_eqn_or_apu_element(), context.uar_page(), true);
    memory::use_umems(f, umems, true);
    engine::cq_created(f, cqn);
    let mut output = CreateCqOut::ZERO;
    output.w().cqn(cqn);
    Ok(output)
}

fn check_context(f: &Function, context: &Cqc) -> Result<(), Syndrome> {
    let caps = f.nic.firmware.caps.general();
    if context.log_cq_size() > caps.log_max_cq_sz() {
        return Err(Syndrome::CqSize);
    }
    let unannounced = context.apu_cq()
        || context.scqe_break_moderation_en()
        || !has_period_mode(caps, context.cq_period_mode())
        || context.oi() && !caps.cq_oi()
        || (context.cq_period() != 0 || context.cq_max_count() != 0) && !caps.cq_moderation();
    if unannounced {
        return Err(Syndrome::CapabilityNotAnnounced);
    }
    f.nic.objects.eqs.get(context.c_eqn_or_apu_element()).ok_or(Syndrome::NoSuchEq)?;
    f.nic.objects.uars.get(context.uar_page()).ok_or(Syndrome::NoSuchUar)?;
    Ok(())
}

/// Whether the moderation period may start from that event.
fn has_period_mode(caps: &CmdHcaCap, mode: u8) -> bool {
    match CqPeriodMode::from_number(mode.into()) {
        CqPeriodMode::StartFromEqe => true,
        CqPeriodMode::StartFromCqe => caps.cq_period_start_from_cqe(),
        CqPeriodMode::Unknown(_) => false,
    }
}

/// How the queue compresses receives. PRM `cqc.cqe_comp_en`, `mini_cqe_res_format`.
fn compression(f: &Function, context: &Cqc) -> Result<Option<Compression>, Syndrome> {
    let caps = f.nic.firmware.caps.general();
    let layout = CqeCompressionLayout::from_number(context.cqe_compression_layout().into());
    if !context.cqe_comp_en() {
        return Ok(None);
    }
    let format = match (context.mini_cqe_res_format(), context.mini_cqe_res_format_ext()) {
        (format, 0) => MiniCqeFormat::from_number(format.into()),
        (0, EXTENDED_HEADER_TYPE) => MiniCqeFormat::HeaderType,
        _ => return Err(Syndrome::CapabilityNotAnnounced),
    };
    let has_format = match format {
        MiniCqeFormat::Hash | MiniCqeFormat::Checksum => true,
        MiniCqeFormat::FlowTag => caps.mini_cqe_resp_flow_tag(),
        MiniCqeFormat::ChecksumStride => caps.mini_cqe_resp_stride_index(),
        MiniCqeFormat::HeaderType => caps.mini_cqe_resp_l3_l4_tag(),
        MiniCqeFormat::Unknown(_) => false,
    };
    // Collapsed to one entry, there is no room for the arrays of mini CQEs.
    let is_possible = caps.cqe_compression()
        && layout == CqeCompressionLayout::Basic
        && (context.cqe_sz() == 0 || caps.cqe_compression_128())
        && !context.cc();
    match is_possible && has_format {
        true => Ok(Some(Compression { format, held: Vec::new(), number: 0 })),
        false => Err(Syndrome::CapabilityNotAnnounced),
    }
}

/// `mini_cqe_res_format_ext` of [`MiniCqeFormat::HeaderType`].
const EXTENDED_HEADER_TYPE: u8 = 1;

/// Distance of CQEs in the ring. A 128-byte entry has its CQE in the second half.
fn cqe_size(f: &Function, context: &Cqc) -> Result<u32, Syndrome> {
    match context.cqe_sz() {
        0 => Ok(64),
        1 => Ok(128),
        2 if f.nic.firmware.caps.general().cqe_128_always() => Ok(128),
        _ => Err(Syndrome::CqeSize),
    }
}

fn wanted(context: &Cqc, cqe_size: u32) -> Wanted {
    Wanted {
        log_page_size: context.log_page_size(),
        page_offset: context.page_offset(),
        bytes: u64::from(cqe_size) << context.log_cq_size(),
    }
}

fn use_parents(f: &mut Function, eqn: u32, uar: u32, more: bool) {
    if let Some(eq) = f.nic.objects.eqs.get_mut(eqn) {
        memory::count(&mut eq.users, more);
    }
    uar::count(f, uar, more);
}

/// `MODIFY_CQ`.
pub(super) fn modify(f: &mut Function, command: &ModifyCqIn, list: &[u8]) -> Answer<ModifyCqOut> {
    match ModifyCqOpMod::from_number(command.op_mod().into()) {
        ModifyCqOpMod::Modify => moderate(f, command),
        ModifyCqOpMod::Resize => resize(f, command, list),
        ModifyCqOpMod::Unknown(_) => Err(Syndrome::UnknownOpMod.into()),
    }
}

/// Puts a completion queue into another ring, of another size. The last entry of the old one says so; the completions
/// that software has not consumed stay there, for it to copy.
fn resize(f: &mut Function, command: &ModifyCqIn, list: &[u8]) -> Answer<ModifyCqOut> {
    let caps = f.nic.firmware.caps.general();
    if !caps.cq_resize() {
        return Err(Syndrome::CqResize.into());
    }
    let cq = f.nic.objects.cqs.get(command.cqn()).ok_or(Syndrome::NoSuchCq)?;
    let context = resized(&cq.context, command)?;
    if context.log_cq_size() > caps.log_max_cq_sz() {
        return Err(Syndrome::CqSize.into());
    }
    let umem = command.cq_umem_valid().then(|| InUmem { id: command.cq_umem_id(), offset: command.cq_umem_offset() });
    let (before, cqe_size) = (cq.umem, cq.cqe_size);
    let ring = memory::queue(f, wanted(&context, cqe_size), list, umem)?;
    if !engine::cq_resized(f, command.cqn(), ring, &context) {
        return Err(Syndrome::CqResizeRoom.into());
    }
    let umem = umem.map(|place| place.id);
    if let Some(cq) = f.nic.objects.cqs.get_mut(command.cqn()) {
        cq.umem = umem;
    }
    memory::use_umems(f, [umem, None], true);
    memory::use_umems(f, [before, None], false);
    Ok(ModifyCqOut::ZERO)
}

/// The context with what is selected of the command's.
fn resized(old: &Cqc, command: &ModifyCqIn) -> Result<Cqc, Syndrome> {
    let select = u32::from_be_bytes(*command.modify_field_select_resize_field_select());
    let known = SELECT_SIZE | SELECT_PAGE_OFFSET | SELECT_PAGE_SIZE;
    if select & SELECT_SIZE == 0 || select & !known != 0 {
        return Err(Syndrome::CqModify);
    }
    let (mut context, wanted) = (*old, command.cq_context());
    context.w().log_cq_size(wanted.log_cq_size());
    if select & SELECT_PAGE_OFFSET != 0 {
        context.w().page_offset(wanted.page_offset());
    }
    if select & SELECT_PAGE_SIZE != 0 {
        context.w().log_page_size(wanted.log_page_size());
    }
    Ok(context)
}

/// Changes what moderates a completion queue's events.
fn moderate(f: &mut Function, command: &ModifyCqIn) -> Answer<ModifyCqOut> {
    let caps = f.nic.firmware.caps.general();
    let cq = f.nic.objects.cqs.get_mut(command.cqn()).ok_or(Syndrome::NoSuchCq)?;
    let select = u32::from_be_bytes(*command.modify_field_select_resize_field_select());
    let wanted = command.cq_context();
    let (changes_mode, mode) = (select & SELECT_PERIOD_MODE != 0, wanted.cq_period_mode());
    if !caps.cq_moderation() || changes_mode && !(caps.cq_period_mode_modify() && has_period_mode(caps, mode)) {
        return Err(Syndrome::CapabilityNotAnnounced.into());
    }
    if select & !(SELECT_PERIOD | SELECT_COUNT | SELECT_PERIOD_MODE) != 0 {
        return Err(Syndrome::CqModify.into());
    }
    if cq.status != CqStatus::Ok {
        return Err(Syndrome::CqOverrun.into());
    }
    if select & SELECT_PERIOD != 0 {
        cq.context.w().cq_period(wanted.cq_period());
    }
    if select & SELECT_COUNT != 0 {
        cq.context.w().cq_max_count(wanted.cq_max_count());
    }
    if changes_mode {
        cq.context.w().cq_period_mode(mode);
    }
    Ok(ModifyCqOut::ZERO)
}

/// `QUERY_CQ`.
pub(super) fn query(f: &mut Function, command: &QueryCqIn) -> Answer<QueryCqOut> {
    let cq = f.nic.objects.cqs.get(command.cqn()).ok_or(Syndrome::NoSuchCq)?;
    let status = match cq.status {
        CqStatus::Ok => 0,
        CqStatus::Overflow => 0x9,
        CqStatus::WriteFailure => 0xa,
    };
    let st = match cq.arm {
        ArmState::Solicited => 0x6,
        ArmState::Next => 0x9,
        ArmState::Fired => 0xa,
    };
    let consumer = cq.doorbell.peek(&f.nic.dma, 0).unwrap_or(0) & 0xff_ffff;
    let mut context = cq.context;
    context.w().status(status).st(st).consumer_counter(consumer).producer_counter(cq.producer & 0xff_ffff);
    let mut output = QueryCqOut::ZERO;
    output.w().cq_context(&context);
    Ok(output)
}

/// `DESTROY_CQ`.
pub(super) fn destroy(f: &mut Function, command: &DestroyCqIn) -> Answer<DestroyCqOut> {
    let cq = f.nic.objects.cqs.get(command.cqn()).ok_or(Syndrome::NoSuchCq)?;
    if cq.users > 0 {
        return Err(Syndrome::CqInUse.into());
    }
    let Some(cq) = f.nic.objects.cqs.remove(command.cqn()) else { return Err(Syndrome::NoSuchCq.into()) };
    use_parents(f, cq.eqn, cq.uar, false);
    memory::use_umems(f, [cq.umem, cq.doorbell_umem], false);
    pages::release(f, Context::Cq);
    engine::cq_destroyed(f, cq.uar, command.cqn());
    Ok(DestroyCqOut::ZERO)
}
