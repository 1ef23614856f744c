//! Shared receive queues: `RMP` and `XRC_SRQ`. Software with ISSI 1 creates ordinary ones as `RMP`; `CREATE_SRQ`
//! belongs to ISSI 0 and is not supported.

use mlx5_prm::cmd::*;
use mlx5_prm::ctx::{QueueState, Rmpc, SrqState, WqEndPadding, WqType, XrcSrqc};

use super::answer::Answer;
use super::caps::next_below;
use super::memory::{self, InUmem, Wanted};
use super::pages;
use super::syndromes::Syndrome;
use crate::engine;
use crate::function::{Context, Function};
use crate::objects::{Doorbell, PageList, RecvRing, Srq, XrcSrq};

/// log2 of the smallest WQE in bytes: `log_rq_stride` of an XRC SRQ is relative to it.
const LOG_MIN_STRIDE: u32 = 4;
/// `user_index` of a queue whose completions have the queue pair's number.
const NO_USER_INDEX: u32 = 0xff_ffff;

/// Where the queue's memory is.
struct Places {
    umem: Option<InUmem>,
    doorbell_umem: Option<u32>,
}

/// `CREATE_RMP`.
pub(super) fn create_rmp(f: &mut Function, command: &CreateRmpIn, list: &[u8]) -> Answer<CreateRmpOut> {
    let wq = command.ctx().wq();
    let unannounced = command.ctx().basic_cyclic_rcv_wqe()
        || !matches!(wq.wq_type(), WqType::LinkedList | WqType::Cyclic)
        || wq.wq_signature()
        || wq.end_padding_mode() != WqEndPadding::None
        || wq.cd_slave();
    if unannounced {
        return Err(Syndrome::CapabilityNotAnnounced.into());
    }
    if command.ctx().state() != QueueState::Rdy {
        return Err(Syndrome::SrqState.into());
    }
    let (log_size, log_stride) = (u32::from(wq.log_wq_sz()), u32::from(wq.log_wq_stride()));
    check_size(f, log_size, log_stride)?;
    next_below(&f.nic.objects.srqs, f.nic.firmware.caps.general().log_max_rmp()).ok_or(Syndrome::TooManySrqs)?;
    let wanted =
        Wanted { log_page_size: wq.log_wq_pg_sz(), page_offset: wq.page_offset(), bytes: 1 << (log_size + log_stride) };
    let places = Places {
        umem: wq.wq_umem_valid().then(|| InUmem { id: wq.wq_umem_id(), offset: wq.wq_umem_offset() }),
        doorbell_umem: wq.dbr_umem_valid().then(|| wq.dbr_umem_id()),
    };
    let memory = memory::queue(f, wanted, list, places.umem)?;
    let doorbell = memory::doorbell(f, wq.dbr_addr(), places.doorbell_umem)?;
    let ring = RecvRing::new(memory, log_size, log_stride);
    let is_cyclic = wq.wq_type() == WqType::Cyclic;
    let srqn = insert(f, Srq { limit: wq.lwm(), is_cyclic, ..at_rest(wq.pd(), None, ring, doorbell, &places) })?;
    let mut output = CreateRmpOut::ZERO;
    output.w().rmpn(srqn);
    Ok(output)
}

/// `CREATE_XRC_SRQ`.
pub(super) fn create_xrc(f: &mut Function, command: &CreateXrcSrqIn, list: &[u8]) -> Answer<CreateXrcSrqOut> {
    let context = *command.xrc_srq_context_entry();
    check_xrc(f, command, &context)?;
    let (log_size, log_stride) =
        (u32::from(context.log_xrc_srq_size()), u32::from(context.log_rq_stride()) + LOG_MIN_STRIDE);
    check_size(f, log_size, log_stride)?;
    next_below(&f.nic.objects.srqs, f.nic.firmware.caps.general().log_max_srq()).ok_or(Syndrome::TooManySrqs)?;
    let wanted = Wanted {
        log_page_size: context.log_page_size(),
        page_offset: context.page_offset(),
        bytes: 1 << (log_size + log_stride),
    };
    let places = Places { umem: None, doorbell_umem: None };
    let memory = memory::queue(f, wanted, list, None)?;
    let address = u64::from(context.db_record_addr_h()) << 32 | u64::from(context.db_record_addr_l()) << 2;
    let doorbell = memory::doorbell(f, address, None)?;
    let ring = RecvRing::new(memory, log_size, log_stride);
    let xrc = XrcSrq {
        xrcd: context.xrcd(),
        cqn: context.cqn(),
        user_index: (context.user_index() != NO_USER_INDEX).then(|| context.user_index()),
    };
    let srqn = insert(f, Srq { limit: context.lwm(), ..at_rest(context.pd(), Some(xrc), ring, doorbell, &places) })?;
    let mut output = CreateXrcSrqOut::ZERO;
    output.w().xrc_srqn(srqn);
    Ok(output)
}

fn check_xrc(f: &Function, command: &CreateXrcSrqIn, context: &XrcSrqc) -> Result<(), Syndrome> {
    let unannounced = context.wq_signature()
        || context.cont_srq()
        || context.rlky()
        || context.basic_cyclic_rcv_wqe()
        || context.user_index_equal_xrc_srqn()
        || context.dbr_umem_valid()
        || command.xrc_srq_umem_valid();
    if unannounced || !f.nic.firmware.caps.general().xrc() {
        return Err(Syndrome::CapabilityNotAnnounced);
    }
    f.nic.objects.xrcds.get(context.xrcd()).ok_or(Syndrome::NoSuchXrcd)?;
    f.nic.objects.cqs.get(context.cqn()).ok_or(Syndrome::NoSuchCq)?;
    Ok(())
}

fn check_size(f: &Function, log_size: u32, log_stride: u32) -> Result<(), Syndrome> {
    let caps = f.nic.firmware.caps.general();
    if log_size > u32::from(caps.log_max_srq_sz()) {
        return Err(Syndrome::SrqSize);
    }
    // A WQE has a link segment (PRM "SRQ WQE") and at least one data segment.
    if log_stride <= LOG_MIN_STRIDE || 1 << log_stride > u32::from(caps.max_wqe_sz_rq()) {
        return Err(Syndrome::RqStride);
    }
    Ok(())
}

/// A queue with no receives posted.
fn at_rest(pd: u32, xrc: Option<XrcSrq>, ring: RecvRing, doorbell: Doorbell, places: &Places) -> Srq {
    Srq {
        srqn: 0,
        pd,
        xrc,
        ring,
        doorbell,
        umem: places.umem.map(|place| place.id),
        doorbell_umem: places.doorbell_umem,
        posted: 0,
        taken: 0,
        next: 0,
        limit: 0,
        is_cyclic: false,
        users: 0,
    }
}

fn insert(f: &mut Function, srq: Srq) -> Answer<u32> {
    f.nic.objects.pds.get(srq.pd).ok_or(Syndrome::NoSuchPd)?;
    pages::reserve(f, Context::Srq)?;
    let (pd, xrc, umems) = (srq.pd, srq.xrc, [srq.umem, srq.doorbell_umem]);
    let srqn = f.nic.objects.srqs.insert(srq).map_err(|_| Syndrome::TooManySrqs)?;
    if let Some(srq) = f.nic.objects.srqs.get_mut(srqn) {
        srq.srqn = srqn;
    }
    use_parents(f, pd, xrc, umems, true);
    Ok(srqn)
}

fn use_parents(f: &mut Function, pd: u32, xrc: Option<XrcSrq>, umems: [Option<u32>; 2], more: bool) {
    if let Some(pd) = f.nic.objects.pds.get_mut(pd) {
        memory::count(&mut pd.users, more);
    }
    if let Some(cq) = xrc.and_then(|xrc| f.nic.objects.cqs.get_mut(xrc.cqn)) {
        memory::count(&mut cq.users, more);
    }
    if let Some(xrcd) = xrc.and_then(|xrc| f.nic.objects.xrcds.get_mut(xrc.xrcd)) {
        memory::count(&mut xrcd.users, more);
    }
    memory::use_umems(f, umems, more);
}

/// The shared receive queue `srqn`, if it is of the given kind.
fn find(f: &mut Function, srqn: u32, is_xrc: bool) -> Result<&mut Srq, Syndrome> {
    f.nic.objects.srqs.get_mut(srqn).filter(|srq| srq.xrc.is_some() == is_xrc).ok_or(Syndrome::NoSuchSrq)
}

/// `MODIFY_RMP`: arms the limit event (`lwm`).
pub(super) fn modify_rmp(f: &mut Function, command: &ModifyRmpIn, _: &[u8]) -> Answer<ModifyRmpOut> {
    if command.rmp_state() != QueueState::Rdy || command.ctx().state() != QueueState::Rdy {
        return Err(Syndrome::SrqState.into());
    }
    let limit = command.ctx().wq().lwm();
    let srq = find(f, command.rmpn(), false)?;
    if command.bitmask().lwm() {
        set_limit(srq, limit)?;
    }
    Ok(ModifyRmpOut::ZERO)
}

/// `ARM_XRC_SRQ`: arms the limit event (`lwm`).
pub(super) fn arm_xrc(f: &mut Function, command: &ArmXrcSrqIn) -> Answer<ArmXrcSrqOut> {
    if u32::from(command.op_mod()) != ArmXrcSrqOpMod::XrcSrq.number() {
        return Err(Syndrome::UnknownOpMod.into());
    }
    set_limit(find(f, command.xrc_srqn(), true)?, command.lwm())?;
    Ok(ArmXrcSrqOut::ZERO)
}

fn set_limit(srq: &mut Srq, limit: u16) -> Result<(), Syndrome> {
    if u32::from(limit) > 1 << srq.ring.log_size {
        return Err(Syndrome::SrqLimit);
    }
    srq.limit = limit;
    Ok(())
}

/// `QUERY_RMP`.
pub(super) fn query_rmp(
    f: &mut Function,
    command: &QueryRmpIn,
    _: &[u8],
    room: usize,
) -> Answer<(QueryRmpOut, Vec<u8>)> {
    let record = record(f, command.rmpn());
    let srq = find(f, command.rmpn(), false)?;
    let mut context = Rmpc::ZERO;
    let mut wq = *context.wq();
    wq.w()
        .wq_type(if srq.is_cyclic { WqType::Cyclic } else { WqType::LinkedList })
        .lwm(srq.limit)
        .pd(srq.pd)
        .dbr_addr(srq.doorbell.iova)
        .hw_counter(srq.taken.into())
        .sw_counter(record & 0xffff)
        .page_offset(memory::page_offset(&srq.ring.memory) & 0x1f)
        .log_wq_stride(srq.ring.log_stride as u8)
        .log_wq_pg_sz(srq.ring.memory.page_shift as u8 - memory::MIN_PAGE_SHIFT as u8)
        .log_wq_sz(srq.ring.log_size as u8);
    context.w().state(QueueState::Rdy).wq(&wq);
    let mut output = QueryRmpOut::ZERO;
    output.w().rmp_context(&context);
    Ok((output, pages(&srq.ring.memory, room)))
}

/// `QUERY_XRC_SRQ`.
pub(super) fn query_xrc(
    f: &mut Function,
    command: &QueryXrcSrqIn,
    _: &[u8],
    room: usize,
) -> Answer<(QueryXrcSrqOut, Vec<u8>)> {
    let srq = find(f, command.xrc_srqn(), true)?;
    let Some(xrc) = srq.xrc else { return Err(Syndrome::NoSuchSrq.into()) };
    let address = srq.doorbell.iova;
    let mut context = XrcSrqc::ZERO;
    context
        .w()
        .state(SrqState::Good)
        .log_xrc_srq_size(srq.ring.log_size as u8)
        .log_rq_stride((srq.ring.log_stride - LOG_MIN_STRIDE) as u8)
        .xrcd(xrc.xrcd)
        .page_offset(memory::page_offset(&srq.ring.memory) & 0x3f)
        .cqn(xrc.cqn)
        .log_page_size(srq.ring.memory.page_shift as u8 - memory::MIN_PAGE_SHIFT as u8)
        .user_index(xrc.user_index.unwrap_or(NO_USER_INDEX))
        .pd(srq.pd)
        .lwm(srq.limit)
        .wqe_cnt(srq.taken)
        .db_record_addr_h((address >> 32) as u32)
        .db_record_addr_l(address as u32 >> 2);
    let mut output = QueryXrcSrqOut::ZERO;
    output.w().xrc_srq_context_entry(&context);
    Ok((output, pages(&srq.ring.memory, room)))
}

/// Receives posted, by the current doorbell record.
fn record(f: &Function, srqn: u32) -> u32 {
    f.nic.objects.srqs.get(srqn).and_then(|srq| srq.doorbell.peek(&f.nic.dma, 0).ok()).unwrap_or_default()
}

fn pages(memory: &PageList, room: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = memory.pages.iter().flat_map(|page| page.to_be_bytes()).collect();
    bytes.truncate(room);
    bytes
}

/// `DESTROY_RMP`.
pub(super) fn destroy_rmp(f: &mut Function, command: &DestroyRmpIn) -> Answer<DestroyRmpOut> {
    destroy(f, command.rmpn(), false)?;
    Ok(DestroyRmpOut::ZERO)
}

/// `DESTROY_XRC_SRQ`.
pub(super) fn destroy_xrc(f: &mut Function, command: &DestroyXrcSrqIn) -> Answer<DestroyXrcSrqOut> {
    destroy(f, command.xrc_srqn(), true)?;
    Ok(DestroyXrcSrqOut::ZERO)
}

fn destroy(f: &mut Function, srqn: u32, is_xrc: bool) -> Answer<()> {
    if find(f, srqn, is_xrc)?.users > 0 {
        return Err(Syndrome::SrqInUse.into());
    }
    if let Some(srq) = f.nic.objects.srqs.remove(srqn) {
        if let Some(xrc) = srq.xrc {
            engine::xrc_srq_destroyed(f, srqn, xrc.xrcd);
        }
        use_parents(f, srq.pd, srq.xrc, [srq.umem, srq.doorbell_umem], false);
        pages::release(f, Context::Srq);
    }
    Ok(())
}
