//! The completion writer: CQEs into rings, overrun, arming, completion events.

use std::time::Duration;

use mlx5_prm::cqe::{Cqe, CqeOpcode, CqeSyndrome, ErrorCqe};
use mlx5_prm::ctx::CqPeriodMode;
use mlx5_prm::eqe::{CompletionEvent, CqErrorEvent, EventType};
use mlx5_prm::layout::Layout;

use super::check::receives;
use super::event;
use crate::function::{Nic, Seen};
use crate::objects::{ArmState, Cq, CqStatus, Failure, Qp, ReceiveWork};
use crate::strict::rules;

const INDEX: u32 = Cq::INDEX;
const CQE: u64 = 64;

/// What `CqErrorEvent::syndrome` says.
const OVERRUN: u8 = 1;
const ACCESS_VIOLATION: u8 = 2;

/// A completion without error, of a send queue, its fields still to be set.
pub(crate) fn of(qp: &Qp, opcode: CqeOpcode, wqe_counter: u16) -> Cqe {
    with_index(qp, opcode, wqe_counter, qp.user_index)
}

/// A completion without error, of a receive, its fields still to be set.
pub(crate) fn of_receive(qp: &Qp, opcode: CqeOpcode, work: &ReceiveWork) -> Cqe {
    with_index(qp, opcode, work.index, work.user_index.or(qp.user_index))
}

fn with_index(qp: &Qp, opcode: CqeOpcode, wqe_counter: u16, user_index: Option<u32>) -> Cqe {
    let mut cqe = Cqe::ZERO;
    cqe.w()
        .srqn(user_index.unwrap_or(INDEX) & INDEX)
        .rqpn(qp.remote_qpn & INDEX)
        .qpn(qp.qpn & INDEX)
        .wqe_counter(wqe_counter)
        .opcode(opcode);
    cqe
}

/// Completes a work request of the send queue that ended well.
pub(crate) fn sent(nic: &mut Nic, qp: &Qp, mut cqe: Cqe, wqe_opcode: u8, solicited: bool) {
    cqe.w().send_wqe_opcode(wqe_opcode);
    write(nic, qp.qpn, qp.cqn_send, &cqe, solicited);
}

/// Completes a receive that ended well.
pub(crate) fn received(nic: &mut Nic, qp: &mut Qp, work: ReceiveWork, cqe: &Cqe) {
    let is_own = qp.srqn.is_none() && work.cqn.is_none();
    let cqn = work.cqn.unwrap_or(qp.cqn_recv);
    if is_own {
        receives::give_back(qp, nic, work.index);
        qp.rc.receive.consumed.completes(nic, cqn, work.index);
    }
    write(nic, qp.qpn, cqn, cqe, cqe.se());
    qp.rc.receive.spare = Some(work);
}

/// Completes a work request of the send queue that failed, or was flushed.
pub(crate) fn send_failed(nic: &mut Nic, qp: &Qp, wqe_counter: u16, wqe_opcode: u8, failure: Failure) {
    let target = CqeTarget { cqn: qp.cqn_send, user_index: qp.user_index, wqe_counter };
    failed(nic, qp.qpn, target, CqeOpcode::RequesterError, wqe_opcode, failure);
}

/// Completes a receive that failed, or was flushed.
pub(crate) fn receive_failed(nic: &mut Nic, qp: &Qp, work: &ReceiveWork, failure: Failure) {
    let cqn = work.cqn.unwrap_or(qp.cqn_recv);
    let target = CqeTarget { cqn, user_index: work.user_index.or(qp.user_index), wqe_counter: work.index };
    failed(nic, qp.qpn, target, CqeOpcode::ResponderError, 0, failure);
}

/// Completes a receive of the queue pair's own ring that was flushed without being fetched.
pub(crate) fn receive_flushed(nic: &mut Nic, qp: &Qp, wqe_counter: u16) {
    let target = CqeTarget { cqn: qp.cqn_recv, user_index: qp.user_index, wqe_counter };
    failed(nic, qp.qpn, target, CqeOpcode::ResponderError, 0, flushed());
}

/// Which work request a completion is of, and where it goes.
pub(super) struct CqeTarget {
    pub cqn: u32,
    pub user_index: Option<u32>,
    pub wqe_counter: u16,
}

/// Completes a work request of the queue pair, or Ethernet queue, `number` that failed, or was flushed.
pub(super) fn failed(
    nic: &mut Nic,
    number: u32,
    target: CqeTarget,
    opcode: CqeOpcode,
    wqe_opcode: u8,
    failure: Failure,
) {
    let CqeTarget { cqn, user_index, wqe_counter } = target;
    let mut error = ErrorCqe::ZERO;
    error
        .w()
        .srqn(user_index.unwrap_or(INDEX) & INDEX)
        .hw_error_syndrome(u8::from(failure.is_own()))
        .vendor_error_syndrome(failure.vendor)
        .syndrome(failure.syndrome)
        .send_wqe_opcode(wqe_opcode)
        .qpn(number & INDEX)
        .wqe_counter(wqe_counter)
        .opcode(opcode);
    if let Some(cqe) = Cqe::read(error.as_bytes()) {
        write(nic, number, cqn, &cqe, true);
    }
}

/// Writes a CQE of the queue pair, or Ethernet queue, `number`. `solicited`: it wakes who waits for solicited
/// completions.
///
/// Where it cannot be written, the completion queue is in error from then on, and so is the queue that completes there.
pub(crate) fn write(nic: &mut Nic, number: u32, cqn: u32, cqe: &Cqe, solicited: bool) {
    let timestamp = nic.timestamp();
    let Some(cq) = nic.objects.cqs.get_mut(cqn) else { return };
    if cq.status != CqStatus::Ok {
        return nic.scheduler.break_later(number);
    }
    if nic.strict.is_on() {
        check_consumer(cq, cqn, &nic.dma, &nic.strict);
        check_owner(cq, cqn, &nic.dma, &nic.strict);
    }
    if is_full(cq, &nic.dma) {
        return overrun(nic, number, cqn);
    }
    let mut cqe = *cqe;
    // An error's CQE has its syndromes there.
    if !matches!(cqe.opcode(), CqeOpcode::RequesterError | CqeOpcode::ResponderError) {
        cqe.w().timestamp(timestamp);
    }
    seal(&mut cqe, cq);
    if !put(cq, &cqe, &nic.dma) {
        return fail(nic, number, cqn, CqStatus::WriteFailure, ACCESS_VIOLATION);
    }
    cq.producer = cq.producer.wrapping_add(1);
    if solicited {
        cq.seen.solicited = cq.producer;
    }
    let is_awaited = cq.arm == ArmState::Next || (cq.arm == ArmState::Solicited && solicited);
    nic.observe(Seen::Completion { cqn, cqe: cqe.as_bytes() });
    if is_awaited {
        moderate(nic, cqn);
    }
}

/// An armed queue has one more completion: its event comes now, or with more of them, or after a while. Without a
/// period, or without a count, it always comes now.
fn moderate(nic: &mut Nic, cqn: u32) {
    let now = nic.now;
    let Some(cq) = nic.objects.cqs.get_mut(cqn) else { return };
    let (period, count) = (cq.context.cq_period(), cq.context.cq_max_count());
    cq.seen.held = cq.seen.held.saturating_add(1);
    let period = Duration::from_micros(period.into());
    let due = match CqPeriodMode::from_number(cq.context.cq_period_mode().into()) {
        CqPeriodMode::StartFromCqe => now + period,
        _ => cq.seen.last_event.map_or(now, |last| last + period),
    };
    if due <= now || cq.seen.held >= count {
        return notify(nic, cqn);
    }
    cq.seen.due = Some(due);
    match nic.scheduler.moderated.iter_mut().find(|(_, other)| *other == cqn) {
        Some((earlier, _)) => *earlier = due,
        None => nic.scheduler.moderated.push((due, cqn)),
    }
}

/// Fires the events that moderation held back for long enough. True if any was due.
pub(crate) fn look_at_held(nic: &mut Nic) -> bool {
    let now = nic.now;
    let due: Vec<u32> = nic.scheduler.moderated.extract_if(.., |(due, _)| *due <= now).map(|(_, cqn)| cqn).collect();
    for cqn in &due {
        if nic.objects.cqs.get(*cqn).is_some_and(|cq| cq.seen.due.is_some_and(|due| due <= now)) {
            notify(nic, *cqn);
        }
    }
    !due.is_empty()
}

/// Sets what depends on the entry's place: ownership bit and signature.
fn seal(cqe: &mut Cqe, cq: &Cq) {
    cqe.w().owner(owner(cq, cq.producer));
    let sum = cqe.as_bytes().iter().fold(0, |sum, byte| sum ^ byte);
    // All 64 bytes together are the complement of the running index.
    cqe.w().signature(sum ^ !(cq.producer as u8));
}

/// The ownership bit with which the completion number `index` becomes software's.
fn owner(cq: &Cq, index: u32) -> bool {
    index >> cq.log_size & 1 != 0
}

/// Where entry number `index` is in the ring: its 64 bytes that are the CQE.
fn place(cq: &Cq, index: u32) -> u64 {
    let index = if cq.collapsed { 0 } else { index & ((1 << cq.log_size) - 1) };
    // In an entry of 128 bytes the CQE is the second half.
    u64::from(index) * u64::from(cq.cqe_size) + u64::from(cq.cqe_size).saturating_sub(CQE)
}

fn put(cq: &Cq, cqe: &Cqe, dma: &crate::dma::Dma) -> bool {
    let iova = cq.ring.iova(place(cq, cq.producer)).filter(|(_, room)| *room >= CQE);
    iova.is_some_and(|(iova, _)| dma.publish(iova, cqe.as_bytes()).is_ok())
}

/// Whether the ring is full; reads the consumer index only when the last one read says so.
fn is_full(cq: &mut Cq, dma: &crate::dma::Dma) -> bool {
    if cq.ignore_overrun || cq.collapsed {
        return false;
    }
    let size = 1 << cq.log_size;
    if behind(cq) < size {
        return false;
    }
    if let Ok(consumer) = cq.doorbell.read(dma, 0) {
        cq.seen.consumer = consumer & INDEX;
    }
    behind(cq) >= size
}

/// Entries that software has not consumed, as far as is known.
fn behind(cq: &Cq) -> u32 {
    cq.producer.wrapping_sub(cq.seen.consumer) & INDEX
}

fn overrun(nic: &mut Nic, number: u32, cqn: u32) {
    if let Some(cq) = nic.objects.cqs.get(cqn) {
        let size = 1u32 << cq.log_size;
        nic.strict.report(rules::CQ_OVERRUN, || {
            format!("CQ {cqn:#x}: {size} entries, all unconsumed, consumer index {:#x}", cq.seen.consumer)
        });
        if cq.seen.consumer == 0 && cq.producer == size {
            nic.strict
                .report(rules::CI_NEVER_PUBLISHED, || format!("CQ {cqn:#x}: full after its first {size} entries"));
        }
    }
    fail(nic, number, cqn, CqStatus::Overflow, OVERRUN);
}

fn fail(nic: &mut Nic, number: u32, cqn: u32, status: CqStatus, syndrome: u8) {
    if let Some(cq) = nic.objects.cqs.get_mut(cqn) {
        cq.status = status;
    }
    let mut data = CqErrorEvent::ZERO;
    data.w().cqn(cqn & INDEX).syndrome(syndrome);
    event::post(nic, EventType::CqError, 0, data.as_bytes());
    nic.scheduler.break_later(number);
}

/// Fires the completion event of an armed queue.
pub(crate) fn notify(nic: &mut Nic, cqn: u32) {
    let now = nic.now;
    let Some(cq) = nic.objects.cqs.get_mut(cqn) else { return };
    cq.arm = ArmState::Fired;
    (cq.seen.held, cq.seen.due, cq.seen.last_event) = (0, None, Some(now));
    cq.seen.fired_sn = Some(cq.arm_sn);
    let eqn = cq.eqn;
    let mut data = CompletionEvent::ZERO;
    data.w().cqn(cqn & INDEX);
    event::write(nic, eqn, EventType::Completion, 0, data.as_bytes());
}

/// A new arm request, as dword 1 of the doorbell record says it.
pub(crate) fn arm(nic: &mut Nic, cqn: u32, request: u32) {
    let Some(cq) = nic.objects.cqs.get_mut(cqn) else { return };
    cq.seen.arm = Some(request);
    let sn = (request >> 28 & 3) as u8;
    // Software counts the sequence number up with each event: a request of before the event asks for nothing new.
    if cq.seen.fired_sn == Some(sn) {
        return;
    }
    let solicited_only = request >> 24 & 1 != 0;
    let consumer = request & INDEX;
    cq.arm_sn = sn;
    cq.arm = if solicited_only { ArmState::Solicited } else { ArmState::Next };
    let last = if solicited_only { cq.seen.solicited } else { cq.producer };
    // Software armed before it saw the completions that came meanwhile: it would wait for them for ever.
    let unseen = last.wrapping_sub(consumer) & INDEX;
    if unseen != 0 && unseen <= INDEX / 2 {
        notify(nic, cqn);
    }
}

/// A completion queue that a failed work request needs may not be written any more; used by tests and by flushing.
pub(crate) const fn flushed() -> Failure {
    Failure::new(CqeSyndrome::WorkRequestFlushed)
}

/// Strict mode: the consumer index that software published must lie between the last one and the producer.
fn check_consumer(cq: &mut Cq, cqn: u32, dma: &crate::dma::Dma, strict: &crate::strict::Strict) {
    let Ok(record) = cq.doorbell.read(dma, 0) else { return };
    let (consumer, ahead) = (cq.seen.consumer, behind(cq));
    let step = |value: u32| value.wrapping_sub(consumer) & INDEX;
    let plausible = |value: u32| value <= INDEX && step(value) <= ahead;
    if plausible(record) {
        cq.seen.consumer = record;
    } else if record == cq.seen.bad_record {
        // Reported already.
    } else {
        cq.seen.bad_record = record;
        let rule = if plausible(record.swap_bytes()) {
            rules::RECORD_LITTLE_ENDIAN
        } else if step(record) > INDEX / 2 {
            rules::CI_BACKWARDS
        } else {
            rules::CI_AHEAD
        };
        strict.report(rule, || {
            format!(
                "CQ {cqn:#x}: consumer index {record:#x} after {:#x}, producer {:#x}",
                cq.seen.consumer, cq.producer
            )
        });
    }
}

/// Strict mode: the entry about to be written must still be as it was left, or as the ring was initialised.
fn check_owner(cq: &Cq, cqn: u32, dma: &crate::dma::Dma, strict: &crate::strict::Strict) {
    let mut last = [0];
    if cq.collapsed || cq.ring.read(dma, place(cq, cq.producer) + CQE - 1, &mut last).is_err() {
        return;
    }
    let first_pass = cq.producer >> cq.log_size == 0;
    if !first_pass && (last[0] & 1 != 0) == owner(cq, cq.producer) {
        strict.report(rules::STALE_OWNER, || {
            format!("CQ {cqn:#x}: entry {:#x} holds {:#04x} before it is written", cq.producer, last[0])
        });
    }
}
