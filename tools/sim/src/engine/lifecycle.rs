//! Calls from firmware to the engines: queues created, moved to another state, destroyed; function reset.

use mlx5_prm::ctx::{Cqc, Qpc, QueueState};
use mlx5_prm::eqe::EventType;
use mlx5_prm::values::{QpState, ServiceType};

use super::rc::requester;
use super::{check, completion, dynamic, ethernet, event, flush, streams};
use crate::function::{Function, Scheduler};
use crate::objects::{ArmState, DRIVER, PageList, Qp, RcState};
use crate::transport::Psn;

/// Function level reset: clears the scheduler and the port.
pub fn reset(f: &mut Function) {
    // A target must not take a new connection for an old one.
    let connections = f.nic.scheduler.connections;
    f.nic.scheduler = Scheduler::default();
    f.nic.scheduler.connections = connections;
    f.nic.port.clear();
}

/// Writes an EQE to the EQ that is subscribed for this type.
pub fn post_event(f: &mut Function, event_type: EventType, sub_type: u8, data: [u8; 28]) {
    with_function_rights(f, |f| event::post(&mut f.nic, event_type, sub_type, &data));
}

/// Firmware created a queue pair.
pub fn qp_created(f: &mut Function, qpn: u32) {
    if let Some(qp) = f.queues.qps.get_mut(qpn) {
        qp.rc = RcState::default();
        f.nic.scheduler.add_qp(qp.uar, qpn);
        if qp.service == ServiceType::Qp1 {
            f.nic.scheduler.gsi = Some(qpn);
        }
    }
}

/// Runs work that a command causes with the rights of the function itself, not of the command's user.
fn with_function_rights(f: &mut Function, work: impl FnOnce(&mut Function)) {
    let user = f.act_for(DRIVER);
    work(f);
    f.act_for(user);
}

/// Firmware changed a queue pair's state; its fields are already those of the new state. IBTA 10.3.1.
pub fn qp_state_changed(f: &mut Function, qpn: u32, from: QpState, to: QpState) {
    with_function_rights(f, |f| {
        let (queues, nic) = (&mut f.queues, &mut f.nic);
        let Some(qp) = queues.qps.get_mut(qpn) else { return };
        match to {
            QpState::Rst => {
                streams::close_channels(qp, &mut queues.connections, nic);
                nic.scheduler.forget_qp(qpn);
                qp.rc = RcState::default();
            }
            QpState::Init if from == QpState::Rst => check::record::check_unposted(qp, nic),
            QpState::Rtr => qp.rc.receive.expected = Psn::new(qp.context.next_rcv_psn()),
            QpState::Rts => {
                if from == QpState::Rtr {
                    let first = Psn::new(qp.context.next_send_psn());
                    let send = &mut qp.rc.send;
                    (send.assigned, send.next, send.sent, send.unacked) = (first, first, first, first);
                    streams::begin(qp);
                }
                qp.rc.send.posted_in_error = 0;
                nic.scheduler.set_ready(qp);
            }
            QpState::Sqd => requester::check_drained(qp, nic),
            QpState::Err if from != QpState::Err => flush::enter_error(qp, nic),
            _ => {}
        }
    });
}

/// Firmware drains a dynamically connected target.
pub fn dct_drained(f: &mut Function, dctn: u32) {
    with_function_rights(f, |f| dynamic::drain(f, dctn));
}

/// Adds the engine's state of a queue pair to `context`, for `QUERY_QP`.
pub fn describe_qp(qp: &Qp, context: &mut Qpc) {
    let RcState { send, receive, .. } = &qp.rc;
    context.w().state(qp.state);
    if matches!(qp.state, QpState::Rst | QpState::Init) {
        return;
    }
    context
        .w()
        .next_rcv_psn(receive.expected.number())
        .rmsn(receive.msn)
        .hw_rq_counter(receive.fetched.into())
        .sw_rq_counter(receive.posted.into());
    if qp.state == QpState::Rtr {
        return;
    }
    context
        .w()
        .cur_retry_count(send.retries & 7)
        .cur_rnr_retry(send.rnr_retries & 7)
        .next_send_psn(send.next.number())
        .last_acked_psn(send.unacked.previous().number())
        .hw_sq_wqebb_counter(send.fetched)
        .sw_sq_wqebb_counter(send.posted);
}

/// Firmware destroyed a queue pair.
pub fn qp_destroyed(f: &mut Function, mut qp: Qp) {
    streams::close_channels(&mut qp, &mut f.queues.connections, &mut f.nic);
    f.nic.scheduler.forget_qp(qp.qpn);
    f.nic.firmware.real_time.enlist(qp.qpn, false);
    f.nic.scheduler.remove_qp(qp.uar, qp.qpn);
}

/// Firmware destroyed the shared receive queue `srqn` of an XRC domain. Queue pairs of the domain do not hold it, but
/// may have begun to fill one of its receives: that gets no completion, as its CQ may be gone, too. IBTA A14.
pub fn xrc_srq_destroyed(f: &mut Function, srqn: u32, xrcd: u32) {
    for (_, qp) in f.queues.qps.iter_mut().filter(|(_, qp)| qp.xrcd == xrcd) {
        let receive = &mut qp.rc.receive;
        if receive.work.as_ref().is_some_and(|work| work.srqn == Some(srqn)) {
            (receive.work, receive.message) = (None, None);
        }
    }
}

/// Firmware takes a stream of an initiator out of error.
pub fn stream_reset(f: &mut Function, qpn: u32, stream: u16) {
    if let Some(streams) = f.queues.qps.get_mut(qpn).and_then(|qp| qp.rc.send.streams.as_mut()) {
        streams.errored.remove(&stream);
    }
}

/// Firmware created a send queue.
pub fn sq_created(f: &mut Function, sqn: u32) {
    if let Some(sq) = f.queues.sqs.get(sqn) {
        f.nic.scheduler.add_qp(sq.uar, sqn);
    }
}

/// Firmware changed a send queue's state; the queue is already in the new state.
pub fn sq_state_changed(f: &mut Function, sqn: u32, from: QueueState, to: QueueState) {
    with_function_rights(f, |f| {
        let (queues, nic) = (&mut f.queues, &mut f.nic);
        let Some(sq) = queues.sqs.get_mut(sqn) else { return };
        match to {
            QueueState::Rst => ethernet::send::reset(sq, nic),
            QueueState::Rdy if from != QueueState::Rdy => ethernet::send::look(sq, nic, None),
            QueueState::Err => ethernet::send::flush(sq, nic),
            QueueState::Rdy | QueueState::Unknown(_) => {}
        }
    });
}

/// Firmware changed a send queue's rate limit: what the old one held back is held to the new one.
pub fn sq_rate_changed(f: &mut Function, sqn: u32) {
    let Some(sq) = f.queues.sqs.get_mut(sqn) else { return };
    f.nic.scheduler.unset_paced(sq);
    f.nic.scheduler.set_sender(sq);
}

/// Firmware changed the real-time clock: who waits for a time of it looks again.
pub fn clock_changed(f: &mut Function) {
    let now = f.nic.now;
    f.nic.scheduler.paced.iter_mut().for_each(|(due, _)| *due = now);
}

/// Firmware destroyed a send queue that used UAR page `uar`.
pub fn sq_destroyed(f: &mut Function, uar: u32, sqn: u32) {
    f.nic.scheduler.forget_qp(sqn);
    f.nic.firmware.real_time.enlist(sqn, false);
    f.nic.scheduler.remove_qp(uar, sqn);
}

/// Firmware changed a receive queue's state; the queue is already in the new state.
pub fn rq_state_changed(f: &mut Function, rqn: u32, from: QueueState, to: QueueState) {
    with_function_rights(f, |f| {
        let (queues, nic) = (&mut f.queues, &mut f.nic);
        let Some(rq) = queues.rqs.get_mut(rqn) else { return };
        match to {
            QueueState::Rst => {
                (rq.fetched, rq.posted) = (0, 0);
                (rq.consumed, rq.held) = Default::default();
                nic.scheduler.held.forget(rqn);
                ethernet::buffers::forget_joined(rq, nic);
                if let Some(striding) = &mut rq.striding {
                    (striding.next, striding.open) = (0, None);
                }
            }
            QueueState::Err if from != QueueState::Err => ethernet::buffers::to_error(rq, nic),
            _ => {}
        }
    });
}

/// Firmware destroyed a receive queue.
pub fn rq_destroyed(f: &mut Function, rqn: u32) {
    f.nic.scheduler.forget_qp(rqn);
    f.nic.firmware.real_time.enlist(rqn, false);
}

/// Firmware created a completion queue.
pub fn cq_created(f: &mut Function, cqn: u32) {
    if let Some(cq) = f.nic.objects.cqs.get_mut(cqn) {
        cq.arm = ArmState::Fired;
        f.nic.scheduler.add_cq(cq.uar, cqn);
    }
}

/// Firmware puts a completion queue into another ring. Whether that can be: see `completion::resize`.
pub fn cq_resized(f: &mut Function, cqn: u32, ring: PageList, context: &Cqc) -> bool {
    completion::resize(&mut f.nic, cqn, ring, context)
}

/// Firmware destroyed a completion queue that used UAR page `uar`.
pub fn cq_destroyed(f: &mut Function, uar: u32, cqn: u32) {
    f.nic.scheduler.remove_cq(uar, cqn);
}
