//! The completion writer: writes CQEs to their rings, and handles overrun, arming and completion events. PRM
//! "Completion Queue Entry Format".

use mlx5_prm::cqe::{Cqe, CqeOpcode, CqeSyndrome, ErrorCqe};
use mlx5_prm::ctx::Cqc;
use mlx5_prm::layout::Layout;

use super::check::receives;
use super::compression;
use super::cq_ring::{fail, finish_cqe, notify, put, write_cqe};
use crate::function::Nic;
use crate::objects::{ArmState, Cq, CqStatus, Failure, PageList, Qp, ReceiveWork, SendWork};
use crate::strict::rules;

const INDEX: u32 = Cq::INDEX;

/// `syndrome` of a [`CqErrorEvent`] for an overrun.
const OVERRUN: u8 = 1;

/// A successful completion of a send queue; the caller sets the other fields.
pub(crate) fn of(qp: &Qp, opcode: CqeOpcode, wqe_counter: u16) -> Cqe {
    with_index(qp, opcode, wqe_counter, qp.user_index)
}

/// A successful completion of a receive; the caller sets the other fields.
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

/// Completes a send work request that succeeded, as it asks for.
pub(crate) fn succeeded(nic: &mut Nic, qp: &mut Qp, work: SendWork) {
    if work.is_signalled {
        qp.rc.send.consumed.completes(nic, qp.cqn_send, work.index);
        let mut cqe = of(qp, CqeOpcode::Requester, work.index);
        cqe.w().byte_cnt(work.len);
        sent(nic, qp, cqe, work.opcode.number() as u8, work.wakes);
    }
    qp.rc.send.spare.push(work);
}

/// Completes a send work request successfully.
pub(crate) fn sent(nic: &mut Nic, qp: &Qp, mut cqe: Cqe, wqe_opcode: u8, solicited: bool) {
    cqe.w().send_wqe_opcode(wqe_opcode);
    write(nic, qp.qpn, qp.cqn_send, &cqe, solicited);
}

/// Completes a receive successfully.
pub(crate) fn received(nic: &mut Nic, qp: &mut Qp, work: ReceiveWork, cqe: &Cqe) {
    let is_own = qp.srqn.is_none() && work.cqn.is_none();
    let cqn = work.cqn.unwrap_or(qp.cqn_recv);
    if is_own {
        receives::give_back(qp.receives(), nic, work.index);
        qp.rc.receive.consumed.completes(nic, cqn, work.index);
    }
    write(nic, qp.qpn, cqn, cqe, cqe.se());
    qp.rc.receive.spare = Some(work);
}

/// Completes a send work request that failed or was flushed. PRM "Completion With Error CQE".
pub(crate) fn send_failed(nic: &mut Nic, qp: &Qp, wqe_counter: u16, wqe_opcode: u8, failure: Failure) {
    let target = CqeTarget { wqe_counter, ..CqeTarget::new(qp.cqn_send, qp.user_index) };
    failed(nic, qp.qpn, target, CqeOpcode::RequesterError, wqe_opcode, failure);
}

/// Completes a receive that failed or was flushed. PRM "Completion With Error CQE".
pub(crate) fn receive_failed(nic: &mut Nic, qp: &Qp, work: &ReceiveWork, failure: Failure) {
    let cqn = work.cqn.unwrap_or(qp.cqn_recv);
    let user_index = work.user_index.or(qp.user_index);
    let target = CqeTarget { wqe_counter: work.index, ..CqeTarget::new(cqn, user_index) };
    failed(nic, qp.qpn, target, CqeOpcode::ResponderError, 0, failure);
}

/// Completes a flushed receive of the queue pair's own ring that was never fetched.
pub(crate) fn receive_flushed(nic: &mut Nic, qp: &Qp, wqe_counter: u16) {
    let target = CqeTarget { wqe_counter, ..CqeTarget::new(qp.cqn_recv, qp.user_index) };
    failed(nic, qp.qpn, target, CqeOpcode::ResponderError, 0, flushed());
}

/// The work request that a completion belongs to, and its destination CQ.
pub(super) struct CqeTarget {
    pub cqn: u32,
    pub user_index: Option<u32>,
    pub wqe_counter: u16,
    /// Of a striding receive queue: the WQE, and the strides that are given up.
    pub wqe_id: u16,
    pub byte_cnt: u32,
}

impl CqeTarget {
    pub(super) fn new(cqn: u32, user_index: Option<u32>) -> Self {
        CqeTarget { cqn, user_index, wqe_counter: 0, wqe_id: 0, byte_cnt: 0 }
    }
}

/// Completes a failed or flushed WQE of the queue pair or Ethernet queue `number`.
pub(super) fn failed(
    nic: &mut Nic,
    number: u32,
    target: CqeTarget,
    opcode: CqeOpcode,
    wqe_opcode: u8,
    failure: Failure,
) {
    let CqeTarget { cqn, user_index, wqe_counter, wqe_id, byte_cnt } = target;
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
        .wqe_id(wqe_id)
        .byte_cnt(byte_cnt)
        .opcode(opcode);
    if let Some(cqe) = Cqe::read(error.as_bytes()) {
        write(nic, number, cqn, &cqe, true);
    }
}

/// Writes a CQE of the queue pair or Ethernet queue `number`. `solicited`: it also triggers a CQ that is armed for
/// solicited completions.
///
/// If it cannot be written, both the CQ and the queue that completes to it move to the error state.
pub(crate) fn write(nic: &mut Nic, number: u32, cqn: u32, cqe: &Cqe, solicited: bool) {
    let timestamp = nic.timestamp(number);
    let Some(cq) = nic.objects.cqs.get_mut(cqn) else { return };
    if cq.status != CqStatus::Ok {
        return nic.scheduler.break_later(number);
    }
    if nic.strict.is_on() {
        check_consumer(cq, cqn, &nic.dma, &nic.strict);
    }
    if is_full(cq, &nic.dma) {
        compression::close(nic, cqn);
        return overrun(nic, number, cqn);
    }
    let mut cqe = *cqe;
    // An error CQE has its syndromes in the place of the timestamp, joined segments TCP's own.
    let is_error = matches!(cqe.opcode(), CqeOpcode::RequesterError | CqeOpcode::ResponderError);
    let is_of_tcp = cqe.lro_num_seg() > 1 && cqe.lro_timestamp_valid();
    if !is_error && !is_of_tcp {
        cqe.w().timestamp(timestamp);
    }
    if let Some(opcode) = nic.faults.cqe_opcode(number & INDEX) {
        cqe.w().opcode(CqeOpcode::from_number(u32::from(opcode) & 0xf));
    }
    if compression::hold(nic, number, cqn, &cqe, solicited) {
        return;
    }
    put(nic, number, cqn, cqe, solicited);
}

/// Ends a completion queue's ring by an entry that says so, and goes on in another one. False, with nothing changed, if
/// the old ring has no room for that entry, the new one too little for what software has not consumed, or the queue is
/// in error.
pub(crate) fn resize(nic: &mut Nic, cqn: u32, ring: PageList, context: &Cqc) -> bool {
    compression::close(nic, cqn);
    let Some(cq) = nic.objects.cqs.get_mut(cqn) else { return false };
    if let Ok(consumer) = cq.doorbell.read(&nic.dma, 0) {
        cq.seen.consumer = consumer & INDEX;
    }
    if cq.status != CqStatus::Ok || is_full(cq, &nic.dma) || unread(cq) >= 1 << context.log_cq_size() {
        return false;
    }
    let mut cqe = Cqe::ZERO;
    cqe.w().opcode(CqeOpcode::ResizeCq);
    finish_cqe(&mut cqe, cq);
    if !write_cqe(cq, &cqe, &nic.dma) {
        return false;
    }
    cq.producer = cq.producer.wrapping_add(1);
    (cq.began, cq.resized) = (cq.producer, true);
    (cq.ring, cq.log_size, cq.context) = (ring, context.log_cq_size().into(), *context);
    true
}

/// Sends the events whose moderation period has expired. Returns true if there were any.
pub(crate) fn post_moderated(nic: &mut Nic) -> bool {
    let now = nic.now;
    let due: Vec<u32> = nic.scheduler.moderated.extract_if(.., |(due, _)| *due <= now).map(|(_, cqn)| cqn).collect();
    for cqn in &due {
        if nic.objects.cqs.get(*cqn).is_some_and(|cq| cq.seen.due.is_some_and(|due| due <= now)) {
            notify(nic, *cqn);
        }
    }
    !due.is_empty()
}

/// Whether the ring is full. Reads the doorbell record only if the ring looks full by the last consumer index read.
fn is_full(cq: &mut Cq, dma: &crate::dma::Dma) -> bool {
    if cq.ignore_overrun || cq.collapsed {
        return false;
    }
    let size = 1 << cq.log_size;
    if unread(cq) < size {
        return false;
    }
    if let Ok(consumer) = cq.doorbell.read(dma, 0) {
        cq.seen.consumer = consumer & INDEX;
    }
    unread(cq) >= size
}

/// Entries not consumed, by the last consumer index read, with those that completions held for compression will take.
fn unread(cq: &Cq) -> u32 {
    let held = cq.compression.as_ref().map_or(0, |compression| compression.held.len() as u32);
    cq.unread_by(cq.seen.consumer.wrapping_sub(held))
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

/// A new arm request, in the format of dword 1 of the doorbell record: sequence number, command, consumer index.
pub(crate) fn arm(nic: &mut Nic, cqn: u32, request: u32) {
    let Some(cq) = nic.objects.cqs.get_mut(cqn) else { return };
    cq.seen.arm = Some(request);
    let sn = (request >> 28 & 3) as u8;
    // Software increments the sequence number after each event. A request with the number of the last event is
    // outdated.
    if cq.seen.fired_sn == Some(sn) {
        return;
    }
    let solicited_only = request >> 24 & 1 != 0;
    let consumer = request & INDEX;
    cq.arm_sn = sn;
    cq.arm = if solicited_only { ArmState::Solicited } else { ArmState::Next };
    let last = if solicited_only { cq.seen.solicited } else { cq.producer };
    // Completions arrived between software's last poll and the arm request: send the event at once, or software would
    // sleep forever.
    let unseen = last.wrapping_sub(consumer) & INDEX;
    if unseen != 0 && unseen <= INDEX / 2 {
        notify(nic, cqn);
    }
}

/// The error of a flushed work request.
pub(crate) const fn flushed() -> Failure {
    Failure::new(CqeSyndrome::WorkRequestFlushed)
}

/// Strict mode: the consumer index in the doorbell record must lie between the previous one and the producer index.
fn check_consumer(cq: &mut Cq, cqn: u32, dma: &crate::dma::Dma, strict: &crate::strict::Strict) {
    let Ok(record) = cq.doorbell.peek(dma, 0) else { return };
    let (consumer, ahead, compared) = (cq.seen.consumer, unread(cq), cq.compared());
    let step = |value: u32| value.wrapping_sub(consumer) & compared;
    let plausible = |value: u32| value <= INDEX && step(value) <= ahead;
    if plausible(record) {
        cq.seen.consumer = record;
    } else if record == cq.seen.bad_record {
        // Already reported.
    } else {
        cq.seen.bad_record = record;
        let rule = if plausible(record.swap_bytes()) {
            rules::RECORD_LITTLE_ENDIAN
        } else if step(record) > compared / 2 {
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
