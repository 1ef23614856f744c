//! A queue pair in error: everything posted is flushed, now and later.

use mlx5_prm::values::QpState;

use super::completion::{self, Queue};
use super::rest::Rest;
use super::{doorbell, work};
use crate::objects::Qp;

/// Moves a queue pair to the error state on the card's own account.
pub(crate) fn to_error(qp: &mut Qp, rest: &mut Rest) {
    qp.state = QpState::Err;
    qp.context.w().state(QpState::Err);
    entered(qp, rest);
}

/// A queue pair is in the error state: stops all that was under way, and flushes.
pub(crate) fn entered(qp: &mut Qp, rest: &mut Rest) {
    let send = &mut qp.rc.send;
    (send.deadline, send.pause) = (None, None);
    let receive = &mut qp.rc.receive;
    receive.replies.clear();
    receive.answer = None;
    receive.message = None;
    rest.engine.watch(qp.qpn);
    all(qp, rest);
}

/// Flushes what is posted and not complete. Each WQE gets a completion, whether it asked for one or not.
pub(crate) fn all(qp: &mut Qp, rest: &mut Rest) {
    flush_send(qp, rest);
    flush_receive(qp, rest);
}

fn flush_send(qp: &mut Qp, rest: &mut Rest) {
    doorbell::refresh(qp, rest);
    while let Some(work) = qp.rc.send.work.pop_front() {
        completion::failed(rest, qp, Queue::Send, work.index, work.opcode.number() as u8, completion::flushed());
        qp.rc.send.spare.push(work);
    }
    (qp.rc.send.cursor, qp.rc.send.reads) = (0, 0);
    while qp.rc.send.fetched != qp.rc.send.posted {
        let index = qp.rc.send.fetched;
        let left = qp.rc.send.posted.wrapping_sub(index);
        let Some(ctrl) = doorbell::control(qp, rest, index) else {
            // Without the ring nobody can say how many WQEs these were.
            qp.rc.send.fetched = qp.rc.send.posted;
            return;
        };
        let opcode = ctrl.opcode().number() as u8;
        completion::failed(rest, qp, Queue::Send, index, opcode, completion::flushed());
        qp.rc.send.fetched = index.wrapping_add(work::blocks_of(&ctrl).min(left));
    }
}

fn flush_receive(qp: &mut Qp, rest: &mut Rest) {
    if let Some(work) = qp.rc.receive.work.take() {
        completion::failed(rest, qp, Queue::Receive, work.index, 0, completion::flushed());
    }
    work::refresh_posted(qp, rest);
    while qp.rc.receive.fetched != qp.rc.receive.posted {
        let index = qp.rc.receive.fetched;
        qp.rc.receive.fetched = index.wrapping_add(1);
        completion::failed(rest, qp, Queue::Receive, index, 0, completion::flushed());
    }
}
