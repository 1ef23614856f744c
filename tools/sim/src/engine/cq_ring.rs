//! The rings of completion queues: entries, ownership, and the events of what is written. PRM "Completion Queue Entry
//! Format".

use std::time::Duration;

use mlx5_prm::cqe::{Cqe, CqeOpcode};
use mlx5_prm::ctx::CqPeriodMode;
use mlx5_prm::eqe::{CompletionEvent, CqErrorEvent, EventType};
use mlx5_prm::layout::Layout;

use super::event;
use crate::dma::{Dma, Purpose};
use crate::function::{Nic, Seen};
use crate::objects::{ArmState, Cq, CqStatus};
use crate::strict::{Strict, rules};

const INDEX: u32 = Cq::INDEX;
const CQE: u64 = 64;

const ACCESS_VIOLATION: u8 = 2;

/// Writes a CQE to the next entry, which is free.
pub(super) fn put(nic: &mut Nic, number: u32, cqn: u32, mut cqe: Cqe, solicited: bool) {
    let Some(cq) = nic.objects.cqs.get_mut(cqn) else { return };
    if nic.strict.is_on() {
        check_owner(cq, 0, cqn, &nic.dma, &nic.strict);
    }
    finish_cqe(&mut cqe, cq);
    if !write_cqe(cq, &cqe, &nic.dma) {
        return fail(nic, number, cqn, CqStatus::WriteFailure, ACCESS_VIOLATION);
    }
    produced(nic, cqn, &[cqe], solicited);
}

/// Writes a title, and the arrays of mini CQEs behind it, which take `cqes.len()` entries together: the first array the
/// entry after the title, each further one the eighth, sixteenth and so on after it. PRM "Compressed CQEs".
pub(super) fn put_compressed(nic: &mut Nic, number: u32, cqn: u32, mut title: Cqe, minis: &[u8], cqes: &[Cqe]) {
    let Some(cq) = nic.objects.cqs.get_mut(cqn) else { return };
    if nic.strict.is_on() {
        (0..cqes.len() as u32).for_each(|entry| check_owner(cq, entry, cqn, &nic.dma, &nic.strict));
    }
    finish_cqe(&mut title, cq);
    let arrays = minis.chunks(CQE as usize).zip(0..);
    let is_written = arrays
        .map(|(array, count)| (array, cq.producer.wrapping_add((count * MINI_CQES).max(1))))
        .all(|(array, entry)| write_at(cq, entry, array, &nic.dma))
        && write_cqe(cq, &title, &nic.dma);
    match is_written {
        true => produced(nic, cqn, cqes, true),
        false => fail(nic, number, cqn, CqStatus::WriteFailure, ACCESS_VIOLATION),
    }
}

/// Mini CQEs of an array.
const MINI_CQES: u32 = 8;

/// Completions were written: a waiting CQ may be notified.
fn produced(nic: &mut Nic, cqn: u32, cqes: &[Cqe], solicited: bool) {
    let Some(cq) = nic.objects.cqs.get_mut(cqn) else { return };
    cq.producer = cq.producer.wrapping_add(cqes.len() as u32);
    if solicited {
        cq.seen.solicited = cq.producer;
    }
    for cqe in cqes {
        nic.observe(Seen::Completion { cqn, cqe: cqe.as_bytes() });
        let arm = nic.objects.cqs.get(cqn).map(|cq| cq.arm);
        if arm == Some(ArmState::Next) || arm == Some(ArmState::Solicited) && solicited {
            moderate(nic, cqn);
        }
    }
}

/// Event moderation of an armed CQ with a new completion: the event is sent at once, after `cq_max_count` completions,
/// or after `cq_period`. If either is 0, it is sent at once. PRM `cqc`.
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

/// Sets the fields that depend on the ring position: ownership bit and signature. PRM "CQE Format".
pub(super) fn finish_cqe(cqe: &mut Cqe, cq: &Cq) {
    cqe.w().owner(owner(cq, cq.producer));
    let sum = cqe.as_bytes().iter().fold(0, |sum, byte| sum ^ byte);
    // Signature: the XOR of all 64 bytes is the complement of the CQE's running index.
    cqe.w().signature(sum ^ !(cq.producer as u8));
}

/// Ownership bit that hands entry `index` to software: it flips with each pass over the ring. PRM "CQE Format",
/// `owner`.
fn owner(cq: &Cq, index: u32) -> bool {
    index >> cq.log_size & 1 != 0
}

/// Byte offset in the ring of the 64-byte CQE of entry `index`.
fn place(cq: &Cq, index: u32) -> u64 {
    let index = if cq.collapsed { 0 } else { index & ((1 << cq.log_size) - 1) };
    // A 128-byte entry has its CQE in the second half.
    u64::from(index) * u64::from(cq.cqe_size) + u64::from(cq.cqe_size).saturating_sub(CQE)
}

pub(super) fn write_cqe(cq: &Cq, cqe: &Cqe, dma: &Dma) -> bool {
    write_at(cq, cq.producer, cqe.as_bytes(), dma)
}

fn write_at(cq: &Cq, entry: u32, bytes: &[u8], dma: &Dma) -> bool {
    let iova = cq.ring.iova(place(cq, entry)).filter(|(_, room)| *room >= CQE);
    iova.is_some_and(|(iova, _)| dma.counted(Purpose::Cqe).publish(iova, bytes).is_ok())
}

/// Moves the CQ to the error state; the queue that completes to it follows.
pub(super) fn fail(nic: &mut Nic, number: u32, cqn: u32, status: CqStatus, syndrome: u8) {
    if let Some(cq) = nic.objects.cqs.get_mut(cqn) {
        cq.status = status;
    }
    let mut data = CqErrorEvent::ZERO;
    data.w().cqn(cqn & INDEX).syndrome(syndrome);
    event::post(nic, EventType::CqError, 0, data.as_bytes());
    nic.scheduler.break_later(number);
}

/// Sends the completion event of an armed CQ; the CQ is then no longer armed.
pub(super) fn notify(nic: &mut Nic, cqn: u32) {
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

/// Strict mode: the entry must still have the ownership bit of its previous CQE, or of the ring's initialisation.
fn check_owner(cq: &Cq, ahead: u32, cqn: u32, dma: &Dma, strict: &Strict) {
    let entry = cq.producer.wrapping_add(ahead);
    if entry == cq.began {
        check_initialised(cq, cqn, dma, strict);
    }
    if cq.collapsed {
        return;
    }
    let Some(last) = last_byte(cq, entry, dma) else { return };
    let first_pass = entry.wrapping_sub(cq.began) >> cq.log_size == 0;
    if !first_pass && !is_invalid(last) && (last & 1 != 0) == owner(cq, entry) {
        strict.report(rules::STALE_OWNER, || {
            format!("CQ {cqn:#x}: entry {entry:#x} holds {last:#04x} before it is written")
        });
    }
}

/// Strict mode: before the first pass all entries must be invalid, or a driver would take them for completions. Looked
/// at when the first is written: DPDK makes them so after `CREATE_CQ`, before anything can complete there. Into a ring
/// that replaced another software copies the completions of that: only the entry to be written is looked at, as in a
/// collapsed one, which has no other.
fn check_initialised(cq: &Cq, cqn: u32, dma: &Dma, strict: &Strict) {
    let is_valid = |index: &u32| last_byte(cq, *index, dma).is_some_and(|last| !is_invalid(last));
    let entries = 1 << cq.log_size;
    let first = cq.began & (entries - 1);
    let looked_at = if cq.resized || cq.collapsed { first..first + 1 } else { 0..entries };
    if let Some(index) = looked_at.into_iter().find(is_valid) {
        strict.report(rules::RING_NOT_INITIALISED, || format!("CQ {cqn:#x}: opcode of entry {index} is not 0xf"));
    }
}

/// The byte of an entry that has its opcode and its ownership bit.
fn last_byte(cq: &Cq, entry: u32, dma: &Dma) -> Option<u8> {
    let mut last = [0];
    cq.ring.read(dma, place(cq, entry) + CQE - 1, &mut last).ok().map(|_| last[0])
}

fn is_invalid(last: u8) -> bool {
    last >> 4 == CqeOpcode::Invalid.number() as u8
}
