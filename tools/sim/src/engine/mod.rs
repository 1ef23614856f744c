//! Engines: send scheduler, requesters, responders, completion and event writers, timers.
//!
//! The device thread calls [`run`] each turn of its loop. A turn takes what came from the wire, answers it, lets each queue
//! pair with work send a bounded number of packets, and looks at the timers that are due. The files, in the order in
//! which a message meets them: `doorbell` (what was posted), `work` (WQEs), [`crate::transport::rc`] (packets), `access`
//! (memory by key), `completion` and `event` (CQEs, EQEs), `flush` (queue pairs in error). `rest` is the function without
//! its queue pairs, [`rules`] are the names of what strict mode reports.

pub(crate) mod access;
pub(crate) mod completion;
pub(crate) mod consumed;
mod doorbell;
mod ethernet;
pub(crate) mod event;
mod flush;
pub(crate) mod held;
mod rest;
pub mod rules;
mod schedule;
mod spare;
mod srq;
pub(crate) mod umr;
pub(crate) mod work;

use std::time::Instant;

use mlx5_prm::cqe::CqeSyndrome;
use mlx5_prm::ctx::{Qpc, QueueState};
use mlx5_prm::eqe::EventType;
use mlx5_prm::values::{QpState, ServiceType};

pub(crate) use flush::to_error;
pub use rest::Failure;
pub(crate) use rest::Rest;
pub use schedule::Engine;
pub(crate) use work::{ReceiveWork, SendWork};

use crate::function::Function;
use crate::objects::{ArmState, DRIVER, GidTable, Qp, RoceAddress};
use crate::transport::rc::{RcState, requester, responder};
use crate::transport::{Packet, Psn, Transport, ud};
use crate::wire::Frame;
use rest::{split, take_apart};

/// Frames taken from the wire in one turn.
const FRAMES: usize = 256;
/// Queue pairs that may send in one turn.
const TURNS: usize = 64;
/// Packets that a queue pair may send when it is its turn.
const PACKETS: u32 = 16;

/// A send doorbell: the 8 bytes at a doorbell register of UAR page `uar`, as one big-endian number.
pub fn send_doorbell(f: &mut Function, uar: u32, value: u64) {
    doorbell::send(f, uar, value);
}

/// A CQ doorbell: the 8 bytes at 0x20 of UAR page `uar`, as one big-endian number.
pub fn cq_doorbell(f: &mut Function, uar: u32, value: u64) {
    doorbell::completion_queue(f, uar, value);
}

/// An EQ doorbell: the 4 bytes at 0x40 (`arm`) or 0x48 of UAR page `uar`, as a big-endian number.
pub fn eq_doorbell(f: &mut Function, uar: u32, value: u32, arm: bool) {
    event::doorbell(&mut split(f).1, uar, value, arm);
}

/// The doorbells of the EQs `rung` were taken from the mapped UAR page `uar`; another EQ's may have been lost to them.
pub fn eq_doorbells_taken(f: &mut Function, uar: u32, rung: &[u8]) {
    event::arm_others(&mut split(f).1, uar, rung);
}

/// One turn of bounded work. True if anything was done.
pub fn run(f: &mut Function) -> bool {
    let looked = doorbell::look_at_rung(f);
    let took = take_frames(f);
    let acknowledged = acknowledge(f);
    let sent = send(f) | ethernet::send::send(f);
    let timed = timers(f) | completion::look_at_held(&mut split(f).1);
    let broke = break_queue_pairs(f);
    watch_errors(f);
    looked | took | acknowledged | sent | timed | broke
}

/// A frame arrived for this function.
pub fn receive(f: &mut Function, frame: Frame) {
    f.port.deliver(frame);
}

/// Hands what came from the wire to the queue pairs it is for.
fn take_frames(f: &mut Function) -> bool {
    for count in 0..FRAMES {
        let Some((frame, sender)) = f.port.take_received() else { return count > 0 };
        match frame {
            // Without RoCE, its packets are UDP like any other.
            Frame::Roce(_) if !f.objects.vport.roce_enabled() => {
                let mut bytes = Vec::new();
                frame.encode(&mut bytes);
                ethernet::receive::take(f, &bytes, sender);
            }
            Frame::Roce(packet) if packet.dest_qpn == ud::GROUP_QPN => take_for_group(f, packet),
            Frame::Roce(packet) => {
                let (qps, mut rest) = split(f);
                let (to, len) = (packet.route.dst_mac, packet.frame_len());
                let qpn = rest.engine.destination(packet.dest_qpn);
                let qp = qps.get_mut(qpn).filter(|qp| rest.roce && takes(qp, rest.gids, &packet));
                if qp.is_some() {
                    rest.port.counters.rdma.count_received(&to, len);
                }
                match qp {
                    Some(qp) if packet.transport == Transport::Ud => ud::deliver(qp, &mut rest, &packet),
                    Some(qp) if packet.opcode.message().is_some() => responder::request(qp, &mut rest, &packet),
                    Some(qp) => requester::answer(qp, &mut rest, &packet),
                    None => rest.port.counters.dropped += 1,
                }
                rest.spare().give_back(packet);
            }
            Frame::Ethernet(bytes) => ethernet::receive::take(f, &bytes, sender),
        }
    }
    true
}

/// Hands a datagram to each member of the group that it is for.
fn take_for_group(f: &mut Function, packet: Box<Packet>) {
    let members = f.objects.groups.members(&packet.route.dst).to_vec();
    let (qps, mut rest) = split(f);
    let is_sound = packet.transport == Transport::Ud && is_partition(&packet) && packet.flipped.is_none();
    if members.is_empty() || !is_sound || !rest.gids.iter().any(|(_, entry)| is_of_vlan(entry, &packet)) {
        rest.port.counters.dropped += 1;
        return;
    }
    rest.port.counters.rdma.count_received(&packet.route.dst_mac, packet.frame_len());
    for qpn in members {
        if let Some(qp) = qps.get_mut(qpn) {
            ud::deliver(qp, &mut rest, &packet);
        }
    }
    rest.spare().give_back(packet);
}

/// Whether an address is of the packet's VLAN.
fn is_of_vlan(entry: &RoceAddress, packet: &Packet) -> bool {
    entry.vlan.filter(|vlan| *vlan != 0) == packet.route.vlan()
}

/// Whether the queue pair takes the packet: over a connection only its peer may speak to it, datagrams come from anybody; to
/// its own address, in its VLAN and in its partition.
fn takes(qp: &Qp, gids: &GidTable, packet: &Packet) -> bool {
    let is_for = |entry: &RoceAddress| entry.gid == packet.route.dst && is_of_vlan(entry, packet);
    let is_path = if packet.transport == Transport::Ud {
        gids.iter().any(|(_, entry)| is_for(entry))
    } else {
        qp.path.rgid == packet.route.src && gids.get(u16::from(qp.path.src_addr_index)).is_some_and(is_for)
    };
    qp.transport() == packet.transport && is_path && is_partition(packet) && packet.flipped.is_none()
}

/// On Ethernet there is the default partition alone; its top bit only says what kind of member sends.
fn is_partition(packet: &Packet) -> bool {
    packet.pkey & PARTITION == PARTITION
}

/// The default partition's number.
const PARTITION: u16 = 0x7fff;

/// Sends the acknowledgements that the packets of this turn asked for: one a queue pair.
fn acknowledge(f: &mut Function) -> bool {
    let mut owing = std::mem::take(&mut f.engine.acking);
    let any = !owing.is_empty();
    let (qps, mut rest) = split(f);
    owing.retain(|qpn| {
        if !rest.port.can_send() {
            return true;
        }
        if let Some(qp) = qps.get_mut(*qpn) {
            qp.rc.is_acking = false;
            responder::acknowledge(qp, &mut rest);
        }
        false
    });
    // What acknowledging added comes after what still waits.
    owing.append(&mut f.engine.acking);
    f.engine.acking = owing;
    any
}

/// Lets queue pairs with work send, each in its turn, for as long as the port takes more: there is no other limit to what
/// answers to reads put on the wire. Those that have to wait keep their places.
fn send(f: &mut Function) -> bool {
    let turns = f.engine.ready.len().min(TURNS);
    let (qps, mut rest) = split(f);
    for _ in 0..turns {
        if !rest.port.can_send() {
            break;
        }
        let Some(qpn) = rest.engine.ready.pop_front() else { break };
        let Some(qp) = qps.get_mut(qpn) else { continue };
        qp.rc.is_ready = false;
        let replies = responder::send_replies(qp, &mut rest, PACKETS);
        let requests = requester::transmit(qp, &mut rest, PACKETS);
        if replies || requests {
            rest.engine.set_ready(qp);
        }
    }
    turns > 0
}

/// Looks at the timers that are due.
fn timers(f: &mut Function) -> bool {
    if f.engine.earliest.is_none_or(|earliest| earliest > f.now) {
        return false;
    }
    let mut timed = std::mem::take(&mut f.engine.timed);
    f.engine.earliest = None;
    let (qps, mut rest) = split(f);
    timed.retain(|qpn| {
        let Some(qp) = qps.get_mut(*qpn) else { return false };
        requester::timeout(qp, &mut rest);
        let next = [qp.rc.send.deadline, qp.rc.send.pause].into_iter().flatten().min();
        qp.rc.is_timed = next.is_some();
        if let Some(next) = next {
            rest.engine.earliest = Some(rest.engine.earliest.map_or(next, |earliest| earliest.min(next)));
        }
        next.is_some()
    });
    f.engine.timed.append(&mut timed);
    true
}

/// Moves queue pairs to the error state whose completions could not be written.
fn break_queue_pairs(f: &mut Function) -> bool {
    let broken = std::mem::take(&mut f.engine.broken);
    let any = !broken.is_empty();
    let (qps, ethernet, mut rest) = take_apart(f);
    for qpn in broken {
        if let Some(sq) = ethernet.sqs.get_mut(qpn).filter(|sq| sq.state == QueueState::Rdy) {
            ethernet::send::to_error(sq, &mut rest);
        }
        if let Some(rq) = ethernet.rqs.get_mut(qpn).filter(|rq| rq.state == QueueState::Rdy) {
            ethernet::receive::to_error(rq, &mut rest);
        }
        if let Some(qp) = qps.get_mut(qpn).filter(|qp| !matches!(qp.state, QpState::Err | QpState::Rst)) {
            event::post_qp(&mut rest, EventType::WqCatastrophic, qpn);
            to_error(qp, &mut rest);
        }
    }
    any
}

/// Flushes what is posted to queue pairs in error: receives ring no doorbell.
fn watch_errors(f: &mut Function) {
    let mut watched = std::mem::take(&mut f.engine.watched);
    let (qps, mut rest) = split(f);
    watched.retain(|qpn| {
        let Some(qp) = qps.get_mut(*qpn).filter(|qp| qp.state == QpState::Err) else { return false };
        // A record that cannot be read any more is not worth looking at again.
        if qp.doorbell.read(rest.dma, 0).is_err() {
            return false;
        }
        flush::all(qp, &mut rest);
        true
    });
    f.engine.watched.append(&mut watched);
}

/// What fault injection wants the work request at hand to end with.
pub(crate) fn fault_of(rest: &Rest, qpn: u32) -> Option<Failure> {
    let (syndrome, vendor) = rest.faults.completion_error(qpn)?;
    Some(Failure { syndrome: CqeSyndrome::from_number(u32::from(syndrome)), vendor })
}

/// When [`run`] next has work to do though nothing happens until then.
pub fn next_deadline(f: &Function) -> Option<Instant> {
    let held = f.engine.moderated.iter().map(|(due, _)| *due).min();
    f.engine.earliest.into_iter().chain(held).min()
}

/// Function level reset: everything under way is forgotten.
pub fn reset(f: &mut Function) {
    f.engine = Engine::new(&f.profile);
    f.port.clear();
}

/// Writes an EQE to the EQ that is subscribed for this type.
pub fn post_event(f: &mut Function, event_type: EventType, sub_type: u8, data: [u8; 28]) {
    on_its_own(f, |f| event::post(&mut split(f).1, event_type, sub_type, &data));
}

/// Firmware made a queue pair.
pub fn qp_created(f: &mut Function, qpn: u32) {
    if let Some(qp) = f.objects.qps.get_mut(qpn) {
        qp.rc = RcState::default();
        f.engine.add_qp(qp.uar, qpn);
        if qp.service == ServiceType::Qp1 {
            f.engine.gsi = Some(qpn);
        }
    }
}

/// Has the card do of its own account what a command causes: whoever's the command is, that reaches every object.
fn on_its_own(f: &mut Function, work: impl FnOnce(&mut Function)) {
    let user = f.objects.act_for(DRIVER);
    work(f);
    f.objects.act_for(user);
}

/// Firmware moved a queue pair to another state. The queue pair's fields are those of the new state already.
pub fn qp_state_changed(f: &mut Function, qpn: u32, from: QpState, to: QpState) {
    on_its_own(f, |f| {
        let (qps, mut rest) = split(f);
        let Some(qp) = qps.get_mut(qpn) else { return };
        match to {
            QpState::Rst => {
                rest.engine.forget_qp(qpn);
                qp.rc = RcState::default();
            }
            QpState::Init if from == QpState::Rst => doorbell::check_unposted(qp, &rest),
            QpState::Rtr => qp.rc.receive.expected = Psn::new(qp.context.next_rcv_psn()),
            QpState::Rts => {
                if from == QpState::Rtr {
                    let first = Psn::new(qp.context.next_send_psn());
                    let send = &mut qp.rc.send;
                    (send.assigned, send.next, send.sent, send.unacked) = (first, first, first, first);
                }
                rest.engine.set_ready(qp);
            }
            QpState::Sqd => requester::drained(qp, &mut rest),
            QpState::Err if from != QpState::Err => flush::entered(qp, &mut rest),
            _ => {}
        }
    });
}

/// What the engines know of a queue pair beyond its context, set in `context`: for `QUERY_QP`.
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

/// Firmware destroyed a queue pair that rang in UAR page `uar`.
pub fn qp_destroyed(f: &mut Function, uar: u32, qpn: u32) {
    f.engine.forget_qp(qpn);
    f.engine.remove_qp(uar, qpn);
}

/// Firmware made a send queue.
pub fn sq_created(f: &mut Function, sqn: u32) {
    if let Some(sq) = f.objects.sqs.get(sqn) {
        f.engine.add_qp(sq.uar, sqn);
    }
}

/// Firmware moved a send queue to another state, which it is in already.
pub fn sq_state_changed(f: &mut Function, sqn: u32, from: QueueState, to: QueueState) {
    on_its_own(f, |f| {
        let (_, ethernet, mut rest) = take_apart(f);
        let Some(sq) = ethernet.sqs.get_mut(sqn) else { return };
        match to {
            QueueState::Rst => (sq.fetched, sq.posted) = (0, 0),
            QueueState::Rdy if from != QueueState::Rdy => ethernet::send::look(sq, &mut rest),
            QueueState::Err => ethernet::send::flush(sq, &mut rest),
            QueueState::Rdy | QueueState::Unknown(_) => {}
        }
    });
}

/// Firmware destroyed a send queue that rang in UAR page `uar`.
pub fn sq_destroyed(f: &mut Function, uar: u32, sqn: u32) {
    f.engine.forget_qp(sqn);
    f.engine.remove_qp(uar, sqn);
}

/// Firmware moved a receive queue to another state, which it is in already.
pub fn rq_state_changed(f: &mut Function, rqn: u32, from: QueueState, to: QueueState) {
    on_its_own(f, |f| {
        let (_, ethernet, mut rest) = take_apart(f);
        let Some(rq) = ethernet.rqs.get_mut(rqn) else { return };
        match to {
            QueueState::Rst => (rq.fetched, rq.posted) = (0, 0),
            QueueState::Err if from != QueueState::Err => ethernet::receive::to_error(rq, &mut rest),
            _ => {}
        }
    });
}

/// Firmware destroyed a receive queue.
pub fn rq_destroyed(f: &mut Function, rqn: u32) {
    f.engine.forget_qp(rqn);
}

/// Firmware made a completion queue.
pub fn cq_created(f: &mut Function, cqn: u32) {
    if let Some(cq) = f.objects.cqs.get_mut(cqn) {
        cq.arm = ArmState::Fired;
        f.engine.add_cq(cq.uar, cqn);
    }
}

/// Firmware destroyed a completion queue that was armed in UAR page `uar`.
pub fn cq_destroyed(f: &mut Function, uar: u32, cqn: u32) {
    f.engine.remove_cq(uar, cqn);
}

#[cfg(test)]
mod tests;
