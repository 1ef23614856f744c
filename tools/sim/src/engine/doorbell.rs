//! Doorbells. A register of a mapped UAR page is only a hint: a later store may have replaced its value before it was
//! read. What was posted or armed is in the doorbell records, so a doorbell in such a page makes the card look at all
//! queues that use the page. A doorbell that arrives as a message is never lost; it only concerns the queue that it
//! names, as on a real card.

use mlx5_prm::ctx::QueueState;
use mlx5_prm::values::QpState;

use super::charge::charge;
use super::check::record::check_record;
use super::posted::{end_of, index_of, refresh};
use super::{completion, ethernet, flush};
use crate::function::{Function, Nic};
use crate::objects::{CopiedWqe, Cq, Qp};
use crate::strict::rules;

/// A send doorbell: the first 8 bytes of a control segment, or the whole WQE. PRM "Control Segment", "BlueFlame".
pub(super) fn send(f: &mut Function, uar: u32, value: u64, copy: Option<&[u8]>) {
    let may_be_lost = f.bar.is_mapped(uar);
    let (queues, nic) = (&mut f.queues, &mut f.nic);
    let qpn = (value >> 8) as u32 & 0xff_ffff;
    let len = copy.map_or(size_of_val(&value), <[u8]>::len);
    // A card takes the copy if it would fetch that WQE now. With older work to do, it fetches it when its turn comes.
    let copied = |next: u16| {
        copy.filter(|_| index_of(value) == next).map(|bytes| CopiedWqe { index: next, bytes: bytes.to_vec() })
    };
    // Joined messages may be late. What is posted behind this WQE has a doorbell on its way, with a copy or without.
    let end = f.bar.combining.is_some().then(|| end_of(value));
    if let Some(sq) = queues.sqs.get_mut(qpn).filter(|sq| sq.uar == uar) {
        sq.traffic.add_doorbell(len);
        if nic.strict.is_on() && sq.state == QueueState::Rdy {
            check_record(&sq.posts(), nic, value);
        }
        if sq.state == QueueState::Rdy {
            sq.copied = copied(sq.fetched).or(sq.copied.take());
        }
        charge(sq, nic, |sq, nic| ethernet::send::look(sq, nic, end));
        if may_be_lost {
            nic.scheduler.set_rung(uar);
        }
        return;
    }
    match queues.qps.get_mut(qpn).filter(|qp| qp.uar == uar && qp.send.is_some()) {
        Some(qp) => {
            qp.traffic.add_doorbell(len);
            if let Some(posts) = qp.posts().filter(|_| nic.strict.is_on() && may_send(qp)) {
                check_record(&posts, nic, value);
            }
            if may_send(qp) {
                let send = &mut qp.rc.send;
                send.copied = copied(send.fetched).or(send.copied.take());
            }
            charge(qp, nic, |qp, nic| look(qp, nic, end));
        }
        None => nic.strict.report(rules::UNKNOWN_QP, || format!("QP {qpn:#x} at UAR page {uar}")),
    }
    if may_be_lost {
        nic.scheduler.set_rung(uar);
    }
}

fn may_send(qp: &Qp) -> bool {
    matches!(qp.state, QpState::Rts | QpState::Sqd)
}

/// Maximum number of queue pairs looked at in one turn because of another queue's doorbell.
const LOOKS: usize = 64;

/// Looks at the queue pairs whose own doorbell may have been overwritten, at most [`LOOKS`] in one turn.
pub(super) fn read_rung_doorbells(f: &mut Function) -> bool {
    let Some(uar) = f.nic.scheduler.rung.last().copied() else { return false };
    let (queues, nic) = (&mut f.queues, &mut f.nic);
    for _ in 0..LOOKS {
        let Some(qpn) = nic.scheduler.next_rung(uar) else {
            nic.scheduler.rung.pop();
            break;
        };
        if let Some(sq) = queues.sqs.get_mut(qpn).filter(|sq| sq.state != QueueState::Rst) {
            charge(sq, nic, |sq, nic| ethernet::send::look(sq, nic, None));
        }
        if let Some(qp) =
            queues.qps.get_mut(qpn).filter(|qp| may_send(qp) || matches!(qp.state, QpState::Sqer | QpState::Err))
        {
            charge(qp, nic, |qp, nic| look(qp, nic, None));
        }
    }
    true
}

/// Fetches what was posted since the last call, up to WQEBB `end` if that is given and posted.
pub(super) fn look(qp: &mut Qp, nic: &mut Nic, end: Option<u16>) {
    match qp.state {
        QpState::Rts | QpState::Sqd => {
            if refresh(qp, nic, end) {
                nic.scheduler.set_ready(qp);
            }
        }
        QpState::Sqer => flush::sends(qp, nic),
        QpState::Err => flush::all(qp, nic),
        state => {
            if !std::mem::replace(&mut qp.rc.was_reported, true) {
                nic.strict.report(rules::WRONG_STATE, || format!("QP {:#x} in {state}", qp.qpn));
            }
        }
    }
}

/// A CQ doorbell.
pub(super) fn completion_queue(f: &mut Function, uar: u32, value: u64) {
    let may_be_lost = f.bar.is_mapped(uar);
    let nic = &mut f.nic;
    let cqn = value as u32 & 0xff_ffff;
    match nic.objects.cqs.get(cqn).filter(|cq| cq.uar == uar) {
        Some(cq) => {
            check_published(cq, cqn, nic);
            let request = latest_arm_request(cq, cqn, nic, (value >> 32) as u32);
            completion::arm(nic, cqn, request);
        }
        None => nic.strict.report(rules::UNKNOWN_CQ, || format!("CQ {cqn:#x} at UAR page {uar}")),
    }
    if may_be_lost {
        arm_others(nic, uar, cqn);
    }
}

/// Strict mode: software must publish its consumer index before it arms the CQ. Another thread may be about to do so,
/// so the record is compared with the previous arm request.
fn check_published(cq: &Cq, cqn: u32, nic: &Nic) {
    let Some(before) = cq.seen.arm.filter(|_| nic.strict.is_on() && !cq.ignore_overrun && !cq.collapsed) else {
        return;
    };
    let Ok(record) = cq.doorbell.peek(&nic.dma, 0) else { return };
    let behind = before.wrapping_sub(record) & Cq::INDEX;
    if record <= Cq::INDEX && (1..=Cq::INDEX / 2).contains(&behind) {
        nic.strict.report(rules::CI_NOT_IN_RECORD, || {
            format!("CQ {cqn:#x}: was armed at {:#x} and is again, the record holds {record:#x}", before & Cq::INDEX)
        });
    }
}

/// The newer one of the arm requests in the register and in the doorbell record. Software must write the record first,
/// so an older one in the record means that it was not written.
fn latest_arm_request(cq: &Cq, cqn: u32, nic: &Nic, register: u32) -> u32 {
    let Ok(record) = cq.doorbell.read(&nic.dma, 1) else { return register };
    let events = (record >> 28).wrapping_sub(register >> 28) & 3;
    let consumed = record.wrapping_sub(register) & 0xff_ffff;
    // The sequence number has two bits: 3 ahead means 1 behind.
    let is_older = events == 3 || (events == 0 && consumed > 0x7f_ffff);
    if is_older {
        nic.strict.report(rules::ARM_NOT_IN_RECORD, || {
            format!("CQ {cqn:#x}: the doorbell says {register:#010x}, the record {record:#010x}")
        });
    }
    if is_older { register } else { record }
}

/// Replaces doorbells of a mapped page that may have been overwritten. Only a record with the expected sequence number
/// requests an event: queues that are only polled hold another one, and must not be armed.
fn arm_others(nic: &mut Nic, uar: u32, cqn: u32) {
    let users = nic.scheduler.take_cqs(uar);
    for other in users.iter().copied().filter(|other| *other != cqn) {
        let Some(cq) = nic.objects.cqs.get(other) else { continue };
        let due = cq.seen.fired_sn.map_or(0, |sn| (sn + 1) & 3);
        match cq.doorbell.read(&nic.dma, 1) {
            // If a CQ was never armed, a zero record can be its first arm request.
            Ok(request) if cq.seen.arm != Some(request) && (request >> 28 & 3) as u8 == due => {
                completion::arm(nic, other, request);
            }
            _ => {}
        }
    }
    nic.scheduler.put_cqs(uar, users);
}
