//! Engines: send scheduler, requesters, responders, completion and event writers, timers.
//!
//! The card calls [`run`] for each turn. A turn handles received frames, sends responses, lets each queue pair with
//! work send a bounded number of packets, and handles expired timers. An engine borrows one queue and the
//! [`Nic`](crate::function::Nic) beside it. The files, in the order in which a message passes through them: `doorbell`
//! and `posted` (what software posted), `wqe` and `receive_wqe` (work requests), `streams` (which of a DC initiator's
//! channels sends one), `rc`, `dynamic` and `ud` (requester and responder), `pieces` and `memory` (memory by key),
//! `completion` and `event` (CQEs, EQEs), `flush` (queues in error). `lifecycle` has the calls from firmware, `check`
//! the checks of strict mode.

mod charge;
mod check;
mod completion;
mod compression;
mod cq_ring;
mod doorbell;
mod dynamic;
mod ethernet;
mod event;
mod flush;
mod inbound;
mod lifecycle;
mod memory;
mod message;
mod nic;
mod page_fault;
mod pieces;
mod posted;
mod rc;
mod receive_wqe;
mod srq;
mod streams;
mod ud;
mod umr;
mod wqe;

use std::time::Instant;

use mlx5_prm::ctx::QueueState;
use mlx5_prm::eqe::EventType;
use mlx5_prm::values::QpState;

pub use inbound::receive;
pub use lifecycle::{
    clock_changed, cq_created, cq_destroyed, cq_resized, dct_drained, describe_qp, post_event, qp_created,
    qp_destroyed, qp_state_changed, reset, rq_destroyed, rq_state_changed, sq_created, sq_destroyed, sq_rate_changed,
    sq_state_changed, stream_reset, xrc_srq_destroyed,
};

pub(crate) use rc::resume;

use crate::function::Function;
use charge::charge;
use rc::{requester, responder};

/// Maximum number of queue pairs that send in one turn.
const TURNS: usize = 64;
/// Maximum number of packets that a queue pair sends in one turn.
const PACKETS: u32 = 16;
/// Maximum number of queue pairs in error that are looked at in one turn.
const WATCHED: usize = 64;

/// A send doorbell: the 8 bytes at a doorbell register of UAR page `uar`, as one big-endian number.
pub fn send_doorbell(f: &mut Function, uar: u32, value: u64) {
    doorbell::send(f, uar, value, None);
}

/// A send doorbell that brings the WQE it names: its whole WQEBBs.
pub fn send_copy(f: &mut Function, uar: u32, bytes: &[u8]) {
    if let Some(value) = bytes.first_chunk().copied().map(u64::from_be_bytes) {
        doorbell::send(f, uar, value, Some(bytes));
    }
}

/// A CQ doorbell: the 8 bytes at 0x20 of UAR page `uar`, as one big-endian number.
pub fn cq_doorbell(f: &mut Function, uar: u32, value: u64) {
    doorbell::completion_queue(f, uar, value);
}

/// An EQ doorbell: the 4 bytes at 0x40 (`arm`) or 0x48 of UAR page `uar`, as a big-endian number.
pub fn eq_doorbell(f: &mut Function, uar: u32, value: u32, arm: bool) {
    event::doorbell(&mut f.nic, uar, value, arm);
}

/// The doorbells of the EQs `rung` were read from the mapped UAR page `uar`; they may have overwritten those of other
/// EQs.
pub fn eq_doorbells_taken(f: &mut Function, uar: u32, rung: &[u8]) {
    event::arm_others(&mut f.nic, uar, rung);
}

/// One turn of bounded work. Returns true if anything was done.
pub fn run(f: &mut Function) -> bool {
    let doorbells = doorbell::read_rung_doorbells(f);
    let joined = ethernet::lro::end_late(f);
    let frames = inbound::receive_frames(f);
    let acknowledged = acknowledge(f);
    let sent = send(f) | ethernet::send::send(f);
    let timed = timers(f) | completion::post_moderated(&mut f.nic) | ethernet::send::resume(f);
    let broken = fail_queues(f);
    // After whatever ends work, or puts an initiator into error.
    let streamed = streams::complete_ended(f);
    compression::close_all(f);
    flush_in_error(f);
    doorbells | frames | acknowledged | sent | joined | timed | broken | streamed
}

/// Sends the acknowledgements due in this turn, one for each queue pair. IBTA 9.7.5.1.2.
fn acknowledge(f: &mut Function) -> bool {
    let mut acking = std::mem::take(&mut f.nic.scheduler.acking);
    let any = !acking.is_empty();
    let (queues, nic) = (&mut f.queues, &mut f.nic);
    acking.retain(|qpn| {
        if !nic.port.can_send() {
            return true;
        }
        if let Some(qp) = queues.scheduled(*qpn) {
            qp.rc.is_acking = false;
            responder::acknowledge(qp, nic);
        }
        false
    });
    // New entries come after those that still wait.
    acking.append(&mut f.nic.scheduler.acking);
    f.nic.scheduler.acking = acking;
    any
}

/// Lets queue pairs with work send in turn, as long as the port accepts frames. This is the only limit on read
/// responses. Queue pairs that cannot send keep their place.
fn send(f: &mut Function) -> bool {
    let turns = f.nic.scheduler.ready.len().min(TURNS);
    let (queues, nic) = (&mut f.queues, &mut f.nic);
    for _ in 0..turns {
        if !nic.port.can_send() {
            break;
        }
        let Some(qpn) = nic.scheduler.ready.pop_front() else { break };
        let Some(qp) = queues.scheduled(qpn) else { continue };
        qp.rc.is_ready = false;
        if qp.rc.send.streams.is_some() {
            streams::hand_out(queues, nic, qpn, PACKETS);
            continue;
        }
        let worked = charge(qp, nic, |qp, nic| {
            let replies = responder::send_replies(qp, nic, PACKETS);
            requester::transmit(qp, nic, PACKETS) || replies
        });
        if worked {
            nic.scheduler.set_ready(qp);
        }
    }
    turns > 0
}

/// Handles expired timers.
fn timers(f: &mut Function) -> bool {
    if f.nic.scheduler.earliest.is_none_or(|earliest| earliest > f.nic.now) {
        return false;
    }
    let mut timed = std::mem::take(&mut f.nic.scheduler.timed);
    f.nic.scheduler.earliest = None;
    let (queues, nic) = (&mut f.queues, &mut f.nic);
    timed.retain(|qpn| {
        let Some(qp) = queues.scheduled(*qpn) else { return false };
        requester::timeout(qp, nic);
        let next = [qp.rc.send.deadline, qp.rc.send.pause].into_iter().flatten().min();
        qp.rc.is_timed = next.is_some();
        if let Some(next) = next {
            nic.scheduler.earliest = Some(nic.scheduler.earliest.map_or(next, |earliest| earliest.min(next)));
        }
        next.is_some()
    });
    f.nic.scheduler.timed.append(&mut timed);
    true
}

/// Moves queues to the error state if their completions could not be written.
fn fail_queues(f: &mut Function) -> bool {
    let broken = std::mem::take(&mut f.nic.scheduler.broken);
    let any = !broken.is_empty();
    let (queues, nic) = (&mut f.queues, &mut f.nic);
    for qpn in broken {
        if let Some(sq) = queues.sqs.get_mut(qpn).filter(|sq| sq.state == QueueState::Rdy) {
            ethernet::send::to_error(sq, nic);
        }
        if let Some(rq) = queues.rqs.get_mut(qpn).filter(|rq| rq.state == QueueState::Rdy) {
            ethernet::buffers::to_error(rq, nic);
        }
        if let Some(qp) = queues.qps.get_mut(qpn).filter(|qp| !matches!(qp.state, QpState::Err | QpState::Rst)) {
            event::post_qp(nic, EventType::WqCatastrophic, qpn);
            flush::to_error(qp, nic);
        }
        dynamic::break_target(queues, nic, qpn);
    }
    any
}

/// Flushes WQEs posted to queue pairs in error: posting receives rings no doorbell. Each has its turn, or a driver with
/// thousands of them would slow down the whole card.
fn flush_in_error(f: &mut Function) {
    let (qps, nic) = (&mut f.queues.qps, &mut f.nic);
    for qpn in nic.scheduler.next_watched(WATCHED) {
        match qps.get_mut(qpn).filter(|qp| qp.state == QpState::Err) {
            Some(qp) if qp.doorbell.read(&nic.dma, 0).is_ok() => flush::all(qp, nic),
            // Also stops watching a doorbell record that cannot be read.
            _ => nic.scheduler.unwatch(qpn),
        }
    }
}

/// When [`run`] has work next, if nothing else happens before.
pub fn next_deadline(f: &Function) -> Option<Instant> {
    let held = f.nic.scheduler.moderated.iter().map(|(due, _)| *due).min();
    let paced = f.nic.scheduler.paced.iter().map(|(due, _)| *due);
    let joining = f.nic.scheduler.joining.iter().map(|(due, _)| *due);
    f.nic.scheduler.earliest.into_iter().chain(held).chain(paced).chain(joining).min()
}

#[cfg(test)]
pub(crate) mod tests;
