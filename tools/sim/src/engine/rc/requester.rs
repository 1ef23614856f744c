//! The requester: work requests to packets, answers to completions.

use mlx5_prm::cqe::{CqeOpcode, CqeSyndrome};
use mlx5_prm::eqe::EventType;
use mlx5_prm::values::QpState;
use mlx5_prm::wqe::WqeOpcode;

use super::{ack_timeout, rnr_delay, route};
use crate::engine::message::mtu;
use crate::engine::{completion, event, flush, pieces, ud, umr, wqe};
use crate::function::Nic;
use crate::objects::{Failure, Qp, SendWork};
use crate::strict::rules;
use crate::transport::packet::{AtomicEth, Nak, Packet, Reth, Syndrome};
use crate::transport::{Opcode, Psn};

/// Packets under way without an acknowledgement, at most.
const WINDOW: i32 = 128;
/// In a long message, one packet of so many asks for an acknowledgement.
const ACK_EVERY: u32 = 16;
/// PSNs that may be under way, so that old and new can be told apart.
const CIRCLE: i64 = 1 << 23;
/// `rnr_retry` that stands for no end of retries.
const WITHOUT_END: u8 = 7;

/// Sends up to `budget` packets. True if it could go on at once.
pub(crate) fn transmit(qp: &mut Qp, nic: &mut Nic, budget: u32) -> bool {
    (0..budget).all(|_| step(qp, nic))
}

/// Sends one packet, or deals with work that sends none. False if nothing can be done now.
fn step(qp: &mut Qp, nic: &mut Nic) -> bool {
    let can_send = matches!(qp.state, QpState::Rts | QpState::Sqd);
    if !can_send || qp.rc.send.pause.is_some() || !has_work(qp, nic) {
        return false;
    }
    let send = &mut qp.rc.send;
    let Some(work) = send.work.get(send.cursor) else { return false };
    if work.failure.is_some() {
        complete(qp, nic);
        return false;
    }
    if work.packets == 0 {
        if !update_key(qp, nic) {
            return false;
        }
        qp.rc.send.cursor += 1;
        complete(qp, nic);
        return true;
    }
    if must_wait(qp) {
        return false;
    }
    send_packet(qp, nic)
}

/// Carries out work that changes a key, if that is what is under the cursor. False if it has to wait, or fails.
fn update_key(qp: &mut Qp, nic: &mut Nic) -> bool {
    let cursor = qp.rc.send.cursor;
    let Some(work) = qp.rc.send.work.get(cursor) else { return false };
    let Some(update) = work.update.as_ref().filter(|_| !work.is_started) else { return true };
    // What was sent before might have to be sent again, by the key as it was.
    if work.is_fenced && cursor > 0 {
        return false;
    }
    let done = umr::apply(qp, nic, update);
    let work = &mut qp.rc.send.work[cursor];
    work.is_started = true;
    work.failure = done.err();
    if work.failure.is_some() {
        complete(qp, nic);
        return false;
    }
    true
}

/// Sees to it that there is work under the cursor: fetches a WQE if need be.
fn has_work(qp: &mut Qp, nic: &mut Nic) -> bool {
    let send = &qp.rc.send;
    if send.cursor < send.work.len() {
        return true;
    }
    // A queue pair that is draining begins nothing new.
    if qp.state != QpState::Rts || send.fetched == send.posted {
        return false;
    }
    let Some(work) = wqe::fetch_send(qp, nic) else { return false };
    qp.rc.send.work.push_back(work);
    true
}

/// Whether the work under the cursor has to wait for answers.
fn must_wait(qp: &Qp) -> bool {
    let send = &qp.rc.send;
    let Some(work) = send.work.get(send.cursor) else { return true };
    let under_way = send.next.after(send.unacked);
    if !work.is_started {
        let too_many_reads = work.is_read() && send.reads >= 1 << qp.log_sra_max;
        let fenced = work.is_fenced && send.reads > 0;
        let too_far = under_way > 0 && i64::from(under_way) + i64::from(work.packets) >= CIRCLE;
        if too_many_reads || fenced || too_far {
            return true;
        }
    }
    qp.transport().is_reliable() && !work.is_read() && under_way >= WINDOW
}

/// Sends the packet `next` of the work under the cursor.
fn send_packet(qp: &mut Qp, nic: &mut Nic) -> bool {
    let send = &qp.rc.send;
    let Some(work) = send.work.get(send.cursor) else { return false };
    let number = send.next.after(work.first) as u32;
    let Some(mut packet) = addressed(qp, nic, work, opcode(work, number)) else { return nowhere_to_go(qp, nic) };
    let filled = match work.is_read() {
        true => ask(qp, work, number, &mut packet),
        false => fill(qp, nic, work, number, &mut packet),
    };
    let taken = if work.is_read() { work.packets - number } else { 1 };
    if !filled {
        let failure = Failure::new(CqeSyndrome::LocalProtection);
        let cursor = send.cursor;
        qp.rc.send.work[cursor].failure = Some(failure);
        complete(qp, nic);
        return false;
    }
    let is_reliable = packet.transport.is_reliable();
    packet.ack_request = is_reliable && wants_ack(qp, work, number);
    check_unchanged(qp, nic, number, &packet);
    nic.send(packet);
    advance(qp, taken);
    if is_reliable {
        start_timer(qp, nic);
    } else {
        gone(qp, nic);
    }
    true
}

/// An empty packet to where the work request goes; `None` if that is nowhere.
fn addressed(qp: &Qp, nic: &mut Nic, work: &SendWork, opcode: Opcode) -> Option<Box<Packet>> {
    let psn = qp.rc.send.next;
    let mut packet = match &work.datagram {
        Some(datagram) => ud::addressed(qp, nic, datagram, opcode, psn)?,
        None => {
            let route = route(qp, nic)?;
            nic.scheduler.packets.packet(opcode, route, qp.remote_qpn, psn)
        }
    };
    packet.transport = qp.transport();
    packet.xrc_srqn = work.xrc_srqn;
    Some(packet)
}

/// Nothing can leave. A reliable connection's timer will see to it that this ends; without one it is as if lost.
fn nowhere_to_go(qp: &mut Qp, nic: &mut Nic) -> bool {
    if qp.transport().is_reliable() {
        start_timer(qp, nic);
        return false;
    }
    advance(qp, 1);
    gone(qp, nic);
    true
}

/// What was sent without waiting for an answer is done with.
fn gone(qp: &mut Qp, nic: &mut Nic) {
    qp.rc.send.unacked = qp.rc.send.next;
    complete(qp, nic);
}

/// After the packets of `taken` PSNs were sent.
fn advance(qp: &mut Qp, taken: u32) {
    let send = &mut qp.rc.send;
    let work = &mut send.work[send.cursor];
    if !work.is_started {
        work.is_started = true;
        send.reads += u32::from(work.is_read());
    }
    send.next = send.next.plus(taken);
    if send.next.after(send.sent) > 0 {
        send.sent = send.next;
    }
    if send.next == send.work[send.cursor].end() {
        send.cursor += 1;
    }
}

/// Opcode of a work request's packet `number`.
fn opcode(work: &SendWork, number: u32) -> Opcode {
    use Opcode::*;
    let is_first = number == 0;
    let is_last = number + 1 == work.packets;
    let pick = |only, first, middle, last| match (is_first, is_last) {
        (true, true) => only,
        (true, false) => first,
        (false, false) => middle,
        (false, true) => last,
    };
    match work.opcode {
        WqeOpcode::RdmaWrite => pick(WriteOnly, WriteFirst, WriteMiddle, WriteLast),
        WqeOpcode::RdmaWriteImm => pick(WriteOnlyImm, WriteFirst, WriteMiddle, WriteLastImm),
        WqeOpcode::SendImm => pick(SendOnlyImm, SendFirst, SendMiddle, SendLastImm),
        WqeOpcode::SendInval => pick(SendOnlyInval, SendFirst, SendMiddle, SendLastInval),
        WqeOpcode::RdmaRead => ReadRequest,
        WqeOpcode::AtomicCs => CompareSwap,
        WqeOpcode::AtomicFa => FetchAdd,
        _ => pick(SendOnly, SendFirst, SendMiddle, SendLast),
    }
}

/// Makes a request for what is still missing of a read, or for an atomic.
fn ask(qp: &Qp, work: &SendWork, number: u32, packet: &mut Packet) -> bool {
    if work.opcode == WqeOpcode::RdmaRead {
        let done = number * mtu(qp);
        packet.reth = Reth {
            va: work.address.wrapping_add(u64::from(done)),
            rkey: work.rkey,
            len: work.len.saturating_sub(done),
        };
    } else {
        let SendWork { address: va, rkey, swap_add, compare, .. } = *work;
        packet.atomic = AtomicEth { va, rkey, swap_add, compare };
    }
    true
}

/// Fills a packet of a send or write. False if its memory cannot be read.
fn fill(qp: &Qp, nic: &Nic, work: &SendWork, number: u32, packet: &mut Packet) -> bool {
    let from = number * mtu(qp);
    let left = work.len.saturating_sub(from);
    let len = if work.datagram.is_some() { left } else { left.min(mtu(qp)) };
    packet.reth = Reth { va: work.address, rkey: work.rkey, len: work.len };
    packet.immediate = work.immediate;
    packet.solicited = work.is_solicited && packet.opcode.ends();
    pieces::gather(qp, nic, work, from, len, &mut packet.payload)
}

/// Whether a packet asks for an acknowledgement. The last packet before a pause always does.
fn wants_ack(qp: &Qp, work: &SendWork, number: u32) -> bool {
    let send = &qp.rc.send;
    if work.is_read() {
        return true;
    }
    let ends = number + 1 == work.packets;
    let is_last_known = send.cursor + 1 == send.work.len() && send.fetched == send.posted;
    let fills_window = send.next.after(send.unacked) + 1 >= WINDOW;
    (ends && (work.is_signalled || is_last_known || send.is_repeating))
        || fills_window
        || send.next.number().is_multiple_of(ACK_EVERY)
}

/// Strict mode: a packet sent again must hold what it held the first time, or the buffer was used too early.
fn check_unchanged(qp: &mut Qp, nic: &Nic, number: u32, packet: &Packet) {
    if !nic.strict.is_on() || !packet.opcode.has_payload() {
        return;
    }
    let sum = crc32fast::hash(&packet.payload);
    let qpn = qp.qpn;
    let send = &mut qp.rc.send;
    let work = &mut send.work[send.cursor];
    match work.sums.get_mut(number as usize) {
        Some(first) if *first != sum => {
            *first = sum; // said once
            nic.strict.report(rules::BUFFER_CHANGED, || format!("QP {qpn:#x}, WQE {:#x}, packet {number}", work.index));
        }
        Some(_) => {}
        None => work.sums.push(sum),
    }
}

/// Packets of one message whose memory is read again when it completes.
const SAMPLES: usize = 64;

/// Strict mode: until its completion is written, a message's memory must hold what was sent. Of a long message one
/// packet in so many is looked at, and the last, so that the check costs no more for a gigabyte than for 64 packets.
/// The memory that a read fills is not watched: nobody can tell software's stores from the card's.
fn check_kept(qp: &Qp, nic: &Nic, work: &SendWork) {
    let mut payload = Vec::new();
    let count = work.sums.len();
    let step = count.div_ceil(SAMPLES).max(1);
    let is_sampled = |number: usize| number.is_multiple_of(step) || number + 1 == count;
    for (number, sum) in work.sums.iter().enumerate().filter(|(number, _)| is_sampled(*number)) {
        payload.clear();
        let from = number as u32 * mtu(qp);
        let len = work.len.saturating_sub(from).min(mtu(qp));
        // A key that is gone says nothing of what its memory holds.
        if pieces::gather(qp, nic, work, from, len, &mut payload) && crc32fast::hash(&payload) != *sum {
            return nic.strict.report(rules::BUFFER_CHANGED, || {
                format!("QP {:#x}, WQE {:#x}, packet {number}, before its completion", qp.qpn, work.index)
            });
        }
    }
}

fn start_timer(qp: &mut Qp, nic: &mut Nic) {
    if qp.rc.send.deadline.is_some() {
        return;
    }
    if let Some(timeout) = ack_timeout(qp) {
        let deadline = nic.now + timeout;
        qp.rc.send.deadline = Some(deadline);
        nic.scheduler.set_timer(qp, deadline);
    }
}

/// Starts again at the oldest packet that was not acknowledged.
fn go_back(qp: &mut Qp, nic: &mut Nic) {
    let send = &mut qp.rc.send;
    send.next = send.unacked;
    send.cursor = 0;
    send.is_repeating = true;
    nic.scheduler.set_ready(qp);
}

/// A timer of this queue pair is due.
pub(crate) fn timeout(qp: &mut Qp, nic: &mut Nic) {
    if qp.rc.send.pause.is_some_and(|until| until <= nic.now) {
        qp.rc.send.pause = None;
        nic.scheduler.set_ready(qp);
    }
    if qp.rc.send.deadline.is_none_or(|deadline| deadline > nic.now) {
        return;
    }
    qp.rc.send.deadline = None;
    if qp.rc.send.work.is_empty() || qp.rc.send.pause.is_some() {
        return;
    }
    if let Some(counter) = nic.counter(qp) {
        counter.local_ack_timeout_err = counter.local_ack_timeout_err.wrapping_add(1);
    }
    qp.rc.send.gap = None;
    try_again(qp, nic);
}

/// Goes back once more, unless all retries are used up.
fn try_again(qp: &mut Qp, nic: &mut Nic) {
    if qp.rc.send.retries >= qp.retry_count {
        return fail(qp, nic, Failure::new(CqeSyndrome::TransportRetryExceeded));
    }
    qp.rc.send.retries += 1;
    qp.rc.send.deadline = None;
    start_timer(qp, nic);
    go_back(qp, nic);
}

/// The oldest work request fails.
fn fail(qp: &mut Qp, nic: &mut Nic, failure: Failure) {
    if let Some(work) = qp.rc.send.work.front_mut() {
        work.failure = Some(failure);
    }
    complete(qp, nic);
}

/// An answer arrived.
pub(crate) fn answer(qp: &mut Qp, nic: &mut Nic, packet: &Packet) {
    let listens = matches!(qp.state, QpState::Rts | QpState::Sqd);
    let send = &qp.rc.send;
    // Answers to nothing that is under way are late, or ghosts.
    if !listens || packet.psn.after(send.unacked) < 0 || packet.psn.after(send.sent) >= 0 {
        return;
    }
    match packet.opcode {
        Opcode::Acknowledge => acknowledge(qp, nic, packet),
        Opcode::AtomicAcknowledge => atomic_done(qp, nic, packet),
        _ => read_data(qp, nic, packet),
    }
}

fn acknowledge(qp: &mut Qp, nic: &mut Nic, packet: &Packet) {
    let syndrome = Syndrome::from_number(packet.aeth.syndrome);
    if let Syndrome::Ack(_) = syndrome {
        if !acknowledge_through(qp, nic, packet.psn) {
            missing(qp, nic);
        }
        return;
    }
    // A refusal acknowledges all before it.
    if !acknowledge_through(qp, nic, packet.psn.previous()) || qp.rc.send.unacked != packet.psn {
        return missing(qp, nic);
    }
    match syndrome {
        Syndrome::ReceiverNotReady(code) => not_ready(qp, nic, code),
        Syndrome::Nak(Nak::PsnSequence) => {
            if let Some(counter) = nic.counter(qp) {
                counter.packet_seq_err = counter.packet_seq_err.wrapping_add(1);
            }
            try_again(qp, nic);
        }
        Syndrome::Nak(nak) => fail(qp, nic, Failure::new(syndrome_of(nak))),
        Syndrome::Ack(_) | Syndrome::Reserved(_) => fail(qp, nic, Failure::new(CqeSyndrome::BadResponse)),
    }
}

const fn syndrome_of(nak: Nak) -> CqeSyndrome {
    match nak {
        Nak::InvalidRequest => CqeSyndrome::RemoteInvalidRequest,
        Nak::RemoteAccess => CqeSyndrome::RemoteAccess,
        Nak::PsnSequence | Nak::RemoteOperation | Nak::Other(_) => CqeSyndrome::RemoteOperation,
    }
}

/// The responder had no receive posted.
fn not_ready(qp: &mut Qp, nic: &mut Nic, code: u8) {
    if let Some(counter) = nic.counter(qp) {
        counter.rnr_nak_retry_err = counter.rnr_nak_retry_err.wrapping_add(1);
    }
    if qp.rnr_retry != WITHOUT_END {
        if qp.rc.send.rnr_retries >= qp.rnr_retry {
            return fail(qp, nic, Failure::new(CqeSyndrome::RnrRetryExceeded));
        }
        qp.rc.send.rnr_retries += 1;
    }
    let until = nic.now + rnr_delay(code);
    go_back(qp, nic);
    qp.rc.send.deadline = None;
    qp.rc.send.pause = Some(until);
    nic.scheduler.set_timer(qp, until);
}

/// Takes everything up to and with `psn` as received by the responder. False if it would step over a read or atomic
/// whose answer has not come.
fn acknowledge_through(qp: &mut Qp, nic: &mut Nic, psn: Psn) -> bool {
    let send = &qp.rc.send;
    let mut end = psn.plus(1);
    let waiting = send.work.iter().take_while(|work| work.first.after(end) < 0).find(|work| work.is_read());
    let mut whole = true;
    if let Some(read) = waiting {
        // What has come of its answer is acknowledged; the rest is not.
        let come = if read.first.after(send.unacked) > 0 { read.first } else { send.unacked };
        whole = end.after(come) <= 0;
        end = if whole { end } else { come };
    }
    if end.after(send.unacked) > 0 {
        progress(qp, nic, end);
    }
    whole
}

/// All before `end` is done with.
fn progress(qp: &mut Qp, nic: &mut Nic, end: Psn) {
    let send = &mut qp.rc.send;
    send.unacked = end;
    send.retries = 0;
    send.rnr_retries = 0;
    send.gap = None;
    send.deadline = None;
    if send.next.after(end) < 0 {
        // An answer to what was sent before going back: it need not be sent again.
        send.next = end;
    }
    if send.unacked == send.sent {
        send.is_repeating = false;
    } else {
        start_timer(qp, nic);
    }
    complete(qp, nic);
    nic.scheduler.set_ready(qp);
}

/// A part of a read's response, or an atomic's, is missing: asks for it again, once.
fn missing(qp: &mut Qp, nic: &mut Nic) {
    if qp.rc.send.gap == Some(qp.rc.send.unacked) {
        return;
    }
    qp.rc.send.gap = Some(qp.rc.send.unacked);
    if let Some(counter) = nic.counter(qp) {
        counter.implied_nak_seq_err = counter.implied_nak_seq_err.wrapping_add(1);
    }
    try_again(qp, nic);
}

/// The read or atomic that an answer is for, if it is the one whose answer is due.
fn answered(qp: &mut Qp, nic: &mut Nic, psn: Psn) -> bool {
    // An answer with data acknowledges all before it.
    let acknowledged = psn == qp.rc.send.unacked || acknowledge_through(qp, nic, psn.previous());
    if !acknowledged || qp.rc.send.unacked != psn {
        missing(qp, nic);
        return false;
    }
    qp.rc.send.work.front().is_some_and(|work| work.is_read() && work.is_started && work.first.after(psn) <= 0)
}

fn read_data(qp: &mut Qp, nic: &mut Nic, packet: &Packet) {
    if !answered(qp, nic, packet.psn) {
        return;
    }
    let Some(work) = qp.rc.send.work.front() else { return };
    let from = packet.psn.after(work.first) as u32 * mtu(qp);
    let wanted = work.len.saturating_sub(from).min(mtu(qp));
    let is_last = packet.psn.plus(1) == work.end();
    if work.opcode != WqeOpcode::RdmaRead || packet.payload.len() != wanted as usize || packet.opcode.ends() != is_last
    {
        return fail(qp, nic, Failure::new(CqeSyndrome::BadResponse));
    }
    match pieces::scatter(qp.user(), nic, &work.pieces, from, &packet.payload) {
        Ok(()) => progress(qp, nic, packet.psn.plus(1)),
        Err(syndrome) => fail(qp, nic, Failure::new(syndrome)),
    }
}

fn atomic_done(qp: &mut Qp, nic: &mut Nic, packet: &Packet) {
    if !answered(qp, nic, packet.psn) {
        return;
    }
    let Some(work) = qp.rc.send.work.front() else { return };
    if work.opcode == WqeOpcode::RdmaRead {
        return fail(qp, nic, Failure::new(CqeSyndrome::BadResponse));
    }
    let found = nic.atomic_operand(packet.atomic_ack).to_be_bytes();
    match pieces::scatter(qp.user(), nic, &work.pieces, 0, &found) {
        Ok(()) => progress(qp, nic, packet.psn.plus(1)),
        Err(syndrome) => fail(qp, nic, Failure::new(syndrome)),
    }
}

/// Completes all work at the front that is done or has failed.
fn complete(qp: &mut Qp, nic: &mut Nic) {
    while let Some(work) = qp.rc.send.work.front() {
        let is_done = qp.rc.send.unacked.after(work.end()) >= 0;
        let failure = work.failure.or_else(|| if is_done { nic.fault_of(qp.qpn) } else { None });
        if let Some(failure) = failure {
            return give_up(qp, nic, failure);
        }
        if !is_done {
            return;
        }
        check_kept(qp, nic, work);
        let send = &mut qp.rc.send;
        let Some(work) = send.work.pop_front() else { return };
        send.cursor = send.cursor.saturating_sub(1);
        send.reads -= u32::from(work.is_read() && work.is_started);
        if work.is_signalled {
            send.consumed.completes(nic, qp.cqn_send, work.index);
            let mut cqe = completion::of(qp, CqeOpcode::Requester, work.index);
            cqe.w().byte_cnt(work.len);
            completion::sent(nic, qp, cqe, work.opcode.number() as u8, work.wakes);
        }
        qp.rc.send.spare.push(work);
        drained(qp, nic);
    }
}

/// The oldest work request has failed: it completes with the reason, and the queue pair is in error.
fn give_up(qp: &mut Qp, nic: &mut Nic, failure: Failure) {
    let Some(work) = qp.rc.send.work.pop_front() else { return };
    completion::send_failed(nic, qp, work.index, work.opcode.number() as u8, failure);
    qp.rc.send.spare.push(work);
    flush::to_error(qp, nic);
}

/// The queue pair drains its send queue: says so once nothing begun is left.
pub(crate) fn drained(qp: &mut Qp, nic: &mut Nic) {
    if qp.state == QpState::Sqd && qp.rc.send.work.is_empty() {
        event::post_qp(nic, EventType::SendQueueDrained, qp.qpn);
    }
}
