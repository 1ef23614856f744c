//! Doorbells. What a register of a mapped UAR page holds is a hint: a later store may have replaced it before it was
//! seen. What was posted or armed is in the doorbell records, so on each doorbell there all queues of that page are looked
//! at. Doorbells that are messages cannot be lost: they concern the queue they name, and a queue whose doorbell was
//! forgotten stays as it is, as on a card.

use mlx5_prm::ctx::QueueState;
use mlx5_prm::values::QpState;
use mlx5_prm::wqe::{CtrlSeg, WQEBB};

use super::completion::INDEX;
use super::rest::{Rest, split, take_apart};
use super::{completion, flush, rules};
use crate::function::Function;
use crate::objects::{Cq, Qp};

/// A doorbell's high half as [`CtrlSeg`] has it: opmod, `wqe_index`, opcode.
fn index_of(value: u64) -> u16 {
    (value >> 40) as u16
}

/// A send doorbell.
pub(super) fn send(f: &mut Function, uar: u32, value: u64) {
    let may_be_lost = f.bar.is_mapped(uar);
    let (qps, ethernet, mut rest) = take_apart(f);
    let qpn = (value >> 8) as u32 & 0xff_ffff;
    if let Some(sq) = ethernet.sqs.get_mut(qpn).filter(|sq| sq.uar == uar) {
        super::ethernet::send::check_record(sq, &rest, index_of(value));
        super::ethernet::send::look(sq, &mut rest);
        if may_be_lost {
            rest.engine.set_rung(uar);
        }
        return;
    }
    match qps.get_mut(qpn).filter(|qp| qp.uar == uar && qp.send.is_some()) {
        Some(qp) => {
            check_record(qp, &rest, value);
            look(qp, &mut rest);
        }
        None => rest.strict.report(rules::UNKNOWN_QP, || format!("QP {qpn:#x} at UAR page {uar}")),
    }
    if may_be_lost {
        rest.engine.set_rung(uar);
    }
}

/// Queue pairs looked at in one turn because of another's doorbell.
const LOOKS: usize = 64;

/// Looks at the queue pairs whose own doorbell may have been overwritten. A thousand of them at one UAR page must not
/// make each doorbell cost a thousand looks at once.
pub(super) fn look_at_rung(f: &mut Function) -> bool {
    let Some(uar) = f.engine.rung.last().copied() else { return false };
    let (qps, ethernet, mut rest) = take_apart(f);
    for _ in 0..LOOKS {
        let Some(qpn) = rest.engine.next_rung(uar) else {
            rest.engine.rung.pop();
            break;
        };
        if let Some(sq) = ethernet.sqs.get_mut(qpn).filter(|sq| sq.state != QueueState::Rst) {
            super::ethernet::send::look(sq, &mut rest);
        }
        if let Some(qp) = qps.get_mut(qpn).filter(|qp| matches!(qp.state, QpState::Rts | QpState::Sqd | QpState::Err)) {
            look(qp, &mut rest);
        }
    }
    true
}

/// Takes what has been posted since the last look.
pub(super) fn look(qp: &mut Qp, rest: &mut Rest) {
    match qp.state {
        QpState::Rts | QpState::Sqd => {
            if refresh(qp, rest) {
                rest.engine.set_ready(qp);
            }
        }
        QpState::Err => flush::all(qp, rest),
        state => {
            if !std::mem::replace(&mut qp.rc.was_reported, true) {
                rest.strict.report(rules::WRONG_STATE, || format!("QP {:#x} in {state}", qp.qpn));
            }
        }
    }
}

/// Reads dword 1 of the doorbell record. True if it moved.
pub(super) fn refresh(qp: &mut Qp, rest: &Rest) -> bool {
    let Some(ring) = &qp.send else { return false };
    let Ok(record) = qp.doorbell.read(rest.dma, 1) else { return false };
    let send = &mut qp.rc.send;
    let before = std::mem::replace(&mut send.posted, record as u16);
    if send.posted == before {
        return false;
    }
    if record > 0xffff && record.swap_bytes() <= 0xffff {
        rest.strict.report(rules::RECORD_LITTLE_ENDIAN, || format!("QP {:#x}: send counter {record:#x}", qp.qpn));
    }
    // Software may reuse a place once its WQE is complete.
    let oldest = send.work.front().map_or(send.fetched, |work| work.index);
    let held = send.posted.wrapping_sub(oldest);
    if u32::from(held) > 1 << ring.log_size {
        let size = 1u32 << ring.log_size;
        rest.strict.report(rules::SEND_OVERRUN, || {
            format!("QP {:#x}: {held} WQEBBs posted and not complete, in a ring of {size}", qp.qpn)
        });
    }
    send.consumed.posted(rest, qp.cqn_send, send.posted, 1 << ring.log_size);
    true
}

/// Strict mode: the doorbell record must cover the WQE that the doorbell names, and the doorbell be its first bytes.
fn check_record(qp: &Qp, rest: &Rest, value: u64) {
    if !rest.strict.is_on() || !matches!(qp.state, QpState::Rts | QpState::Sqd) {
        return;
    }
    let (Ok(receive), Ok(record)) = (qp.doorbell.read(rest.dma, 0), qp.doorbell.read(rest.dma, 1)) else { return };
    let named = index_of(value);
    // One to 16 WQEBBs after the named one is where a counter that covers it stands.
    let covers = |counter: u16| (1..=16).contains(&counter.wrapping_sub(named));
    let is_known = (qp.rc.send.posted.wrapping_sub(named) as i16) > 0 || (record as u16).wrapping_sub(named) as i16 > 0;
    if !is_known {
        let rule = if covers(record.swap_bytes() as u16) {
            rules::RECORD_LITTLE_ENDIAN
        } else if covers(receive as u16) {
            rules::RECORD_IN_WRONG_SLOT
        } else {
            rules::RECORD_NOT_WRITTEN
        };
        return rest.strict.report(rule, || {
            format!("QP {:#x}: the doorbell names WQE {named:#x}, the record holds {receive:#x}, {record:#x}", qp.qpn)
        });
    }
    check_copy(qp, rest, named, value);
}

/// Strict mode: nothing may be posted to a receive queue in RST.
pub(super) fn check_unposted(qp: &Qp, rest: &Rest) {
    if !rest.strict.is_on() || qp.recv.is_none() {
        return;
    }
    if let Ok(record @ 1..) = qp.doorbell.read(rest.dma, 0) {
        rest.strict.report(rules::RECEIVE_IN_RST, || format!("QP {:#x}: receive counter {record:#x}", qp.qpn));
    }
}

/// Compares the doorbell's eight bytes with the WQE it names, as long as that one cannot have been replaced. The rest of a
/// BlueFlame copy comes later, and is looked at where the page is.
fn check_copy(qp: &Qp, rest: &Rest, named: u16, value: u64) {
    let Some(ring) = &qp.send else { return };
    let is_fetched = (named.wrapping_sub(qp.rc.send.fetched) as i16) < 0;
    let mut bytes = [0; 8];
    let place = u64::from(named) & ((1 << ring.log_size) - 1);
    if is_fetched || ring.memory.read(rest.dma, place * WQEBB as u64, &mut bytes).is_err() {
        return;
    }
    let in_ring = u64::from_be_bytes(bytes);
    if in_ring != value {
        rest.strict.report(rules::DOORBELL_DIFFERS, || {
            format!("QP {:#x}, WQE {named:#x}: doorbell {value:#018x}, ring {in_ring:#018x}", qp.qpn)
        });
    }
}

/// A CQ doorbell.
pub(super) fn completion_queue(f: &mut Function, uar: u32, value: u64) {
    let may_be_lost = f.bar.is_mapped(uar);
    let (_, mut rest) = split(f);
    let cqn = value as u32 & 0xff_ffff;
    match rest.cqs.get(cqn).filter(|cq| cq.uar == uar) {
        Some(cq) => {
            check_published(cq, cqn, &rest);
            let request = newest_request(cq, cqn, &rest, (value >> 32) as u32);
            completion::arm(&mut rest, cqn, request);
        }
        None => rest.strict.report(rules::UNKNOWN_CQ, || format!("CQ {cqn:#x} at UAR page {uar}")),
    }
    if may_be_lost {
        arm_others(&mut rest, uar, cqn);
    }
}

/// Strict mode: software publishes what it consumed before it arms. Another thread may be about to, so the record is held
/// against the request before this one.
fn check_published(cq: &Cq, cqn: u32, rest: &Rest) {
    let Some(before) = cq.seen.arm.filter(|_| rest.strict.is_on() && !cq.ignore_overrun && !cq.collapsed) else {
        return;
    };
    let Ok(record) = cq.doorbell.read(rest.dma, 0) else { return };
    let behind = before.wrapping_sub(record) & INDEX;
    if record <= INDEX && (1..=INDEX / 2).contains(&behind) {
        rest.strict.report(rules::CI_NOT_IN_RECORD, || {
            format!("CQ {cqn:#x}: was armed at {:#x} and is again, the record holds {record:#x}", before & INDEX)
        });
    }
}

/// The arm request in the register, or the one in the doorbell record if software has written a newer one there already.
/// It writes the record first, so one that is older means that it was forgotten.
fn newest_request(cq: &Cq, cqn: u32, rest: &Rest, register: u32) -> u32 {
    let Ok(record) = cq.doorbell.read(rest.dma, 1) else { return register };
    let events = (record >> 28).wrapping_sub(register >> 28) & 3;
    let consumed = record.wrapping_sub(register) & 0xff_ffff;
    // Two bits number the requests: three ahead is one behind.
    let is_older = events == 3 || (events == 0 && consumed > 0x7f_ffff);
    if is_older {
        rest.strict.report(rules::ARM_NOT_IN_RECORD, || {
            format!("CQ {cqn:#x}: the doorbell says {register:#010x}, the record {record:#010x}")
        });
    }
    if is_older { register } else { record }
}

/// Makes up for doorbells of a mapped page that were overwritten. Only a record with the sequence number that is due asks
/// for an event: queues that are polled hold another one, so that nobody arms them.
fn arm_others(rest: &mut Rest, uar: u32, cqn: u32) {
    let users = rest.engine.take_cqs(uar);
    for other in users.iter().copied().filter(|other| *other != cqn) {
        let Some(cq) = rest.cqs.get(other) else { continue };
        let due = cq.seen.fired_sn.map_or(0, |sn| (sn + 1) & 3);
        match cq.doorbell.read(rest.dma, 1) {
            // A queue that never was armed and whose record is zero may have been armed by that very zero.
            Ok(request) if cq.seen.arm != Some(request) && (request >> 28 & 3) as u8 == due => {
                completion::arm(rest, other, request);
            }
            _ => {}
        }
    }
    rest.engine.put_cqs(uar, users);
}

/// The control segment at the send queue's place `index`.
pub(super) fn control(qp: &Qp, rest: &Rest, index: u16) -> Option<CtrlSeg> {
    let ring = qp.send.as_ref()?;
    let mut bytes = [0; 16];
    let place = u64::from(index) & ((1 << ring.log_size) - 1);
    ring.memory.read(rest.dma, place * WQEBB as u64, &mut bytes).ok()?;
    mlx5_prm::layout::Layout::read(&bytes)
}
