//! Queue pairs in the error state: all posted WQEs are flushed, also those posted later; in SQER only those of the send
//! queue. IBTA 10.3.1.

use mlx5_prm::eqe::EventType;
use mlx5_prm::values::QpState;

use super::{completion, event, posted};
use crate::function::Nic;
use crate::objects::{Failure, Qp, QueueName, Streamed, blocks_of};
use crate::strict::rules;

/// Moves a queue pair to the error state because of an error that the card detected.
pub(crate) fn to_error(qp: &mut Qp, nic: &mut Nic) {
    qp.state = QpState::Err;
    qp.context.w().state(QpState::Err);
    enter_error(qp, nic);
}

/// Moves a queue pair of an unreliable service to SQER because a work request of its failed: the send queue is flushed,
/// receives go on. Software takes it back to RTS. IBTA 10.3.1.
pub(crate) fn to_send_error(qp: &mut Qp, nic: &mut Nic) {
    qp.state = QpState::Sqer;
    qp.context.w().state(QpState::Sqer);
    let send = &mut qp.rc.send;
    (send.deadline, send.pause, send.fault) = (None, None, None);
    sends(qp, nic);
    let send = &mut qp.rc.send;
    // What was not sent took no PSN.
    (send.assigned, send.sent, send.unacked) = (send.next, send.next, send.next);
    // Not counted as ignored errors: as in `enter_error`.
    send.posted_in_error = 0;
}

/// A queue pair entered the error state: stops all work and flushes.
pub(crate) fn enter_error(qp: &mut Qp, nic: &mut Nic) {
    let send = &mut qp.rc.send;
    (send.deadline, send.pause, send.fault) = (None, None, None);
    nic.scheduler.page_faults.forget(qp.scheduled());
    let receive = &mut qp.rc.receive;
    receive.fault = None;
    receive.replies.clear();
    receive.pending_ack = None;
    receive.message = None;
    nic.scheduler.watch(qp.qpn);
    nic.scheduler.held.forget(qp.qpn);
    all(qp, nic);
    // Not counted as ignored errors: software cannot have seen the error completion yet.
    (qp.rc.send.posted_in_error, qp.rc.receive.posted_in_error) = (0, 0);
    if qp.srqn.is_some() {
        // Software waits for this event before it destroys the queue pair: no more receives of the SRQ complete to it.
        event::post_qp(nic, EventType::SrqLastWqe, qp.qpn);
    }
}

/// Ends a connection of a dynamically connected target: a message that is not complete ends with the receive that it
/// began to fill, flushed.
pub(crate) fn close(qp: &mut Qp, nic: &mut Nic) {
    qp.state = QpState::Err;
    nic.scheduler.page_faults.forget(qp.scheduled());
    let receive = &mut qp.rc.receive;
    receive.fault = None;
    receive.replies.clear();
    receive.pending_ack = None;
    receive.message = None;
    if let Some(work) = receive.work.take() {
        completion::receive_failed(nic, qp, &work, completion::flushed());
    }
}

/// Flushes all incomplete WQEs. Each gets a CQE, signaled or not.
pub(crate) fn all(qp: &mut Qp, nic: &mut Nic) {
    sends(qp, nic);
    flush_receive(qp, nic);
}

/// Flushes all incomplete WQEs of the send queue.
pub(crate) fn sends(qp: &mut Qp, nic: &mut Nic) {
    posted::refresh(qp, nic, None);
    streams(qp, nic);
    while let Some(work) = qp.rc.send.work.pop_front() {
        completion::send_failed(nic, qp, work.index, work.opcode.number() as u8, completion::flushed());
        qp.rc.send.spare.push(work);
    }
    (qp.rc.send.cursor, qp.rc.send.reads) = (0, 0);
    if let Some(ring) = &qp.send {
        let send = &mut qp.rc.send;
        let blocks = send.posted.wrapping_sub(send.fetched);
        count_posted(nic, QueueName("QP", qp.qpn), "send", &mut send.posted_in_error, blocks, 1 << ring.log_size);
    }
    while qp.rc.send.fetched != qp.rc.send.posted {
        let index = qp.rc.send.fetched;
        let left = qp.rc.send.posted.wrapping_sub(index);
        let Some(ctrl) = posted::control(qp, nic, index) else {
            // Without the ring, the number of WQEs cannot be determined.
            qp.rc.send.fetched = qp.rc.send.posted;
            return;
        };
        let opcode = ctrl.opcode().number() as u8;
        completion::send_failed(nic, qp, index, opcode, completion::flushed());
        qp.rc.send.fetched = index.wrapping_add(blocks_of(&ctrl).min(left));
    }
}

/// The initiator is in error: completes all that was handed out. Its channels end with the turn.
fn streams(qp: &mut Qp, nic: &mut Nic) {
    let Some(streams) = &mut qp.rc.send.streams else { return };
    let work = std::mem::take(&mut streams.work);
    nic.scheduler.streaming.insert(qp.qpn);
    for streamed in work {
        complete(qp, nic, streamed);
    }
}

/// Completes a work request of a stream, flushed if it has not ended. Returns why it failed, unless it was flushed.
pub(super) fn complete(qp: &mut Qp, nic: &mut Nic, streamed: Streamed) -> Option<Failure> {
    let (work, failure) = match streamed.ended {
        Some((work, None)) => {
            completion::succeeded(nic, qp, work);
            return None;
        }
        Some((work, Some(failure))) => (Some(work), failure),
        None => (None, completion::flushed()),
    };
    completion::send_failed(nic, qp, streamed.index, streamed.opcode.number() as u8, failure);
    qp.rc.send.spare.extend(work);
    (failure != completion::flushed()).then_some(failure)
}

fn flush_receive(qp: &mut Qp, nic: &mut Nic) {
    if let Some(work) = qp.rc.receive.work.take() {
        completion::receive_failed(nic, qp, &work, completion::flushed());
    }
    posted::refresh_posted(qp, nic);
    if let Some(ring) = &qp.recv {
        let receive = &mut qp.rc.receive;
        let count = receive.posted.wrapping_sub(receive.fetched);
        count_posted(nic, QueueName("QP", qp.qpn), "receive", &mut receive.posted_in_error, count, 1 << ring.log_size);
    }
    while qp.rc.receive.fetched != qp.rc.receive.posted {
        let index = qp.rc.receive.fetched;
        qp.rc.receive.fetched = index.wrapping_add(1);
        completion::receive_flushed(nic, qp, index);
    }
}

/// Counts WQEs posted in the error state. Strict mode: software that fills the whole ring again has ignored its error
/// completions.
pub(super) fn count_posted(nic: &Nic, queue: QueueName, ring: &str, count: &mut u32, more: u16, size: u32) {
    let before = *count;
    *count = before.saturating_add(more.into());
    if before <= size && *count > size {
        nic.strict.report(rules::ERROR_IGNORED, || {
            format!("{queue}: more than {size} posted to its {ring} queue since its first error completion")
        });
    }
}
