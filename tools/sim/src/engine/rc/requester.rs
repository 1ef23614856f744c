//! The requester: turns send WQEs into request packets, and responses into completions.

use mlx5_prm::cqe::CqeSyndrome;
use mlx5_prm::eqe::EventType;
use mlx5_prm::values::{QpState, ServiceType};
use mlx5_prm::wqe::WqeOpcode;

use super::{ack_timeout, channel, rnr_delay, route};
use crate::engine::message::mtu;
use crate::engine::{completion, event, flush, page_fault, pieces, ud, umr, wqe};
use crate::function::Nic;
use crate::objects::{AtomicResult, Connection, Datagram, Failure, Qp, Requester, SendWork};
use crate::strict::rules;
use crate::transport::dynamic::Dceth;
use crate::transport::packet::{AtomicEth, Nak, Packet, Reth, Syndrome};
use crate::transport::{Opcode, Psn};

/// Maximum number of unacknowledged packets.
const WINDOW: i32 = 128;
/// A long message requests an acknowledgement in one of this many packets.
const ACK_EVERY: u32 = 16;
/// Maximum number of outstanding PSNs: half the PSN space, so that old and new PSNs can be told apart.
const MAX_OUTSTANDING: i64 = 1 << 23;
/// `rnr_retry` value for unlimited retries. IBTA C9-132.
const INFINITE_RETRIES: u8 = 7;

/// Sends up to `budget` packets. Returns true if more can be sent now.
pub(crate) fn transmit(qp: &mut Qp, nic: &mut Nic, budget: u32) -> bool {
    (0..budget).all(|_| step(qp, nic))
}

/// Sends one packet, or executes a WQE that sends none. Returns false if nothing can be done now.
fn step(qp: &mut Qp, nic: &mut Nic) -> bool {
    let can_send = matches!(qp.state, QpState::Rts | QpState::Sqd);
    let waits = qp.rc.send.pause.is_some() || qp.rc.send.fault.is_some();
    if !can_send || waits || !has_work(qp, nic) {
        return false;
    }
    let send = &mut qp.rc.send;
    let Some(work) = send.work.get(send.cursor) else { return false };
    if work.failure.is_some() {
        complete(qp, nic);
        return false;
    }
    if work.packets == 0 {
        if !execute_umr(qp, nic) {
            return false;
        }
        qp.rc.send.cursor += 1;
        complete(qp, nic);
        return true;
    }
    if is_blocked(qp) {
        return false;
    }
    send_packet(qp, nic)
}

/// Executes a UMR WQE at the cursor, if there is one. Returns false if it must wait, or fails.
fn execute_umr(qp: &mut Qp, nic: &mut Nic) -> bool {
    let cursor = qp.rc.send.cursor;
    let Some(work) = qp.rc.send.work.get(cursor) else { return false };
    let Some(update) = work.update.as_ref().filter(|_| work.is_update_due()) else { return true };
    // Earlier packets may have to be retransmitted, and need the key as it was.
    if work.is_fenced && cursor > 0 {
        return false;
    }
    let done = umr::apply(qp.user(), nic, update);
    let work = &mut qp.rc.send.work[cursor];
    work.is_started = true;
    work.failure = done.err();
    if work.failure.is_some() {
        complete(qp, nic);
        return false;
    }
    true
}

/// Makes sure that there is work at the cursor; fetches a WQE if needed.
fn has_work(qp: &mut Qp, nic: &mut Nic) -> bool {
    let send = &qp.rc.send;
    if send.cursor < send.work.len() {
        return true;
    }
    // In SQD, no new WQE is started. IBTA 10.3.1.
    if qp.state != QpState::Rts || send.fetched == send.posted {
        return false;
    }
    let Some(work) = wqe::fetch_send(qp, nic) else { return false };
    qp.rc.send.work.push_back(work);
    true
}

/// Whether the work at the cursor must wait for responses: a handshake or too many reads or atomics outstanding, a
/// fence, or the PSN window is full.
fn is_blocked(qp: &Qp) -> bool {
    let send = &qp.rc.send;
    let Some(work) = send.work.get(send.cursor) else { return true };
    let outstanding = send.next.after(send.unacked);
    if outstanding > 0 && send.target.is_some_and(|connection| !connection.is_open) {
        return true;
    }
    if !work.is_started {
        if outstanding > 0 && work.target.is_some() && !is_connected(qp, work) {
            return true;
        }
        let too_many_reads = work.is_read() && send.reads >= 1 << qp.log_sra_max;
        let fenced = work.is_fenced && send.reads > 0;
        let exceeds_psns = outstanding > 0 && i64::from(outstanding) + i64::from(work.packets) >= MAX_OUTSTANDING;
        if too_many_reads || fenced || exceeds_psns {
            return true;
        }
    }
    qp.transport().is_reliable() && !work.is_read() && outstanding >= WINDOW
}

/// Whether the connection of a dynamically connected initiator is that of `work`: with its target, and of its stream.
fn is_connected(qp: &Qp, work: &SendWork) -> bool {
    qp.rc.send.target.as_ref().is_some_and(|now| Some(now.target) == work.target && now.stream == work.stream)
}

/// A dynamically connected message begins: connects to its target. All to others is acknowledged.
fn connect(qp: &mut Qp, nic: &mut Nic) {
    let Some(work) = qp.rc.send.work.get(qp.rc.send.cursor) else { return };
    if let Some(target) = work.target.filter(|_| !work.is_started && !is_connected(qp, work)) {
        let stream = work.stream;
        open(qp, nic, target, stream, qp.context.full_handshake());
    }
}

/// Opens a connection for the work from the cursor on. A handshake takes its first PSN.
fn open(qp: &mut Qp, nic: &mut Nic, target: Datagram, stream: u16, by_handshake: bool) {
    nic.scheduler.connections = nic.scheduler.connections.wrapping_add(1);
    let (number, first) = (nic.scheduler.connections, qp.rc.send.next);
    qp.remote_qpn = target.qpn;
    qp.rc.send.target = Some(Connection { target, stream, number, first, is_open: !by_handshake });
    if by_handshake {
        shift(&mut qp.rc.send, 1);
    }
}

/// Moves the PSNs of all work from the cursor on, of which nothing is executed.
fn shift(send: &mut Requester, psns: u32) {
    for work in send.work.iter_mut().skip(send.cursor) {
        work.first = work.first.plus(psns);
    }
    send.assigned = send.assigned.plus(psns);
}

/// The target insists on a handshake, and has executed nothing of the connection: opens another, with later PSNs.
fn reconnect(qp: &mut Qp, nic: &mut Nic, Connection { target, stream, .. }: Connection) {
    go_back(qp, nic);
    let send = &mut qp.rc.send;
    let sent = send.sent.after(send.unacked) as u32;
    shift(send, sent);
    for work in send.work.iter_mut().filter(|work| work.packets > 0) {
        work.is_started = false;
    }
    (send.next, send.unacked, send.reads) = (send.sent, send.sent, 0);
    (send.deadline, send.is_retransmitting) = (None, false);
    open(qp, nic, target, stream, true);
}

/// Sends the handshake of a connection.
fn send_handshake(qp: &mut Qp, nic: &mut Nic) -> bool {
    let send = &qp.rc.send;
    let Some(work) = send.work.get(send.cursor) else { return false };
    let Some(mut packet) = new_packet(qp, nic, work, Opcode::Connect) else { return no_route(qp, nic) };
    packet.ack_request = true;
    nic.send(packet);
    advance_psn(&mut qp.rc.send, 1);
    start_timer(qp, nic);
    true
}

/// Sends the packet with PSN `next`, of the work at the cursor.
fn send_packet(qp: &mut Qp, nic: &mut Nic) -> bool {
    connect(qp, nic);
    let send = &qp.rc.send;
    if send.target.is_some_and(|connection| !connection.is_open) {
        return send_handshake(qp, nic);
    }
    let Some(work) = send.work.get(send.cursor) else { return false };
    let number = send.next.after(work.first) as u32;
    let Some(mut packet) = new_packet(qp, nic, work, opcode(work, number)) else { return no_route(qp, nic) };
    let filled = match work.is_read() {
        true => fill_request(qp, work, number, &mut packet),
        false => fill_data(qp, nic, work, number, &mut packet),
    };
    let psns = if work.is_read() { work.packets - number } else { 1 };
    if !filled {
        let (cursor, part) = (send.cursor, part(qp, work, number));
        nic.scheduler.packets.give_back(packet);
        if page_fault::of_send(qp, nic, cursor, part) {
            return false;
        }
        let failure = Failure::new(CqeSyndrome::LocalProtection);
        qp.rc.send.work[cursor].failure = Some(failure);
        complete(qp, nic);
        return false;
    }
    let is_reliable = packet.transport.is_reliable();
    packet.ack_request = is_reliable && wants_ack(qp, work, number);
    check_unchanged(qp, nic, number, &packet);
    nic.send(packet);
    advance(qp, psns);
    if is_reliable {
        start_timer(qp, nic);
    } else {
        complete_sent(qp, nic);
    }
    true
}

/// An empty packet with the work request's destination. `None` if the GID table entry is empty.
fn new_packet(qp: &Qp, nic: &mut Nic, work: &SendWork, opcode: Opcode) -> Option<Box<Packet>> {
    let psn = qp.rc.send.next;
    let mut packet = match (&work.datagram, &qp.rc.send.target) {
        (Some(datagram), _) => ud::new_packet(qp, nic, datagram, opcode, psn)?,
        (None, Some(connection)) => {
            let route = ud::route(qp, nic, &connection.target)?;
            let mut packet = nic.scheduler.packets.packet(opcode, route, connection.target.qpn, psn);
            // Answers to a stream come to its channel.
            let (access_key, dci) = (connection.target.dc_key, qp.scheduled());
            packet.dc = Dceth { access_key, dci, connection: connection.number, first: connection.first };
            packet
        }
        (None, None) => {
            let route = route(qp, nic)?;
            nic.scheduler.packets.packet(opcode, route, qp.remote_qpn, psn)
        }
    };
    packet.transport = qp.transport();
    packet.xrc_srqn = work.xrc_srqn;
    Some(packet)
}

/// There is no source address to send from. RC waits for its ACK timeout and fails by its retry counter; for UC and UD
/// the packet counts as lost.
fn no_route(qp: &mut Qp, nic: &mut Nic) -> bool {
    if qp.transport().is_reliable() {
        start_timer(qp, nic);
        return false;
    }
    advance(qp, 1);
    complete_sent(qp, nic);
    true
}

/// Unreliable transports: sent is complete, there is no acknowledgement.
fn complete_sent(qp: &mut Qp, nic: &mut Nic) {
    qp.rc.send.unacked = qp.rc.send.next;
    complete(qp, nic);
}

/// Advances by `psns` PSNs after sending.
fn advance(qp: &mut Qp, psns: u32) {
    let send = &mut qp.rc.send;
    let work = &mut send.work[send.cursor];
    if !work.is_started {
        work.is_started = true;
        send.reads += u32::from(work.is_read());
    }
    advance_psn(send, psns);
    if send.next == send.work[send.cursor].end() {
        send.cursor += 1;
    }
}

fn advance_psn(send: &mut Requester, psns: u32) {
    send.next = send.next.plus(psns);
    if send.next.after(send.sent) > 0 {
        send.sent = send.next;
    }
}

/// BTH opcode of packet `number` of a work request. IBTA 9.2.
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
        WqeOpcode::AtomicMaskedCs => MaskedCompareSwap,
        WqeOpcode::AtomicMaskedFa => MaskedFetchAdd,
        _ => pick(SendOnly, SendFirst, SendMiddle, SendLast),
    }
}

/// Fills in a read or atomic request. After a gap, a read request covers only the data still missing, with a PSN and an
/// address of its own: IBTA 9.4.4.
fn fill_request(qp: &Qp, work: &SendWork, number: u32, packet: &mut Packet) -> bool {
    if work.opcode == WqeOpcode::RdmaRead {
        let done = number * mtu(qp);
        packet.reth = Reth {
            va: work.address.wrapping_add(u64::from(done)),
            rkey: work.rkey,
            len: work.len.saturating_sub(done),
        };
    } else if work.is_masked_atomic() {
        packet.reth = Reth { va: work.address, rkey: work.rkey, len: work.len };
        packet.payload.extend_from_slice(&work.inline);
    } else {
        let SendWork { address: va, rkey, swap_add, compare, .. } = *work;
        packet.atomic = AtomicEth { va, rkey, swap_add, compare };
    }
    true
}

/// Fills in a packet of a send or write. Returns false if its memory cannot be read.
fn fill_data(qp: &Qp, nic: &Nic, work: &SendWork, number: u32, packet: &mut Packet) -> bool {
    let (from, len) = part(qp, work, number);
    packet.reth = Reth { va: work.address, rkey: work.rkey, len: work.len };
    packet.immediate = work.immediate;
    packet.solicited = work.is_solicited && packet.opcode.ends();
    pieces::gather(qp, nic, work, from, len, &mut packet.payload)
}

/// Which bytes of a message its packet `number` has: the first, and how many.
fn part(qp: &Qp, work: &SendWork, number: u32) -> (u32, u32) {
    let from = number * mtu(qp);
    let left = work.len.saturating_sub(from);
    (from, if work.datagram.is_some() { left } else { left.min(mtu(qp)) })
}

/// Whether a packet sets the AckReq bit of its BTH. The last packet before the requester pauses always does.
fn wants_ack(qp: &Qp, work: &SendWork, number: u32) -> bool {
    let send = &qp.rc.send;
    if work.is_read() {
        return true;
    }
    let ends = number + 1 == work.packets;
    let is_last_posted = send.cursor + 1 == send.work.len() && send.fetched == send.posted;
    let fills_window = send.next.after(send.unacked) + 1 >= WINDOW;
    (ends && (work.is_signalled || is_last_posted || send.is_retransmitting))
        || fills_window
        || send.next.number().is_multiple_of(ACK_EVERY)
}

/// Strict mode: a retransmitted packet must have the same payload as the first time. If not, software reused the buffer
/// before its completion.
fn check_unchanged(qp: &mut Qp, nic: &Nic, number: u32, packet: &Packet) {
    // A masked atomic's payload was taken from its WQE.
    if !nic.strict.is_on() || !packet.opcode.has_payload() || packet.opcode.is_masked_atomic() {
        return;
    }
    let sum = crc32fast::hash(&packet.payload);
    let qpn = qp.qpn;
    let send = &mut qp.rc.send;
    let work = &mut send.work[send.cursor];
    match work.sums.get_mut(number as usize) {
        Some(first) if *first != sum => {
            *first = sum; // report once
            nic.strict.report(rules::BUFFER_CHANGED, || format!("QP {qpn:#x}, WQE {:#x}, packet {number}", work.index));
        }
        Some(_) => {}
        None => work.sums.push(sum),
    }
}

/// Number of packets of one message that are checked when it completes.
const SAMPLES: usize = 64;

/// Strict mode: until its completion is written, a message's memory must hold what was sent. Of a long message only
/// [`SAMPLES`] packets and the last one are checked, so that the cost does not grow with its length. The destination of
/// a read is not checked: stores of software and of the card cannot be told apart.
fn check_unchanged_until_done(qp: &Qp, nic: &Nic, work: &SendWork) {
    let mut payload = Vec::new();
    let count = work.sums.len();
    let step = count.div_ceil(SAMPLES).max(1);
    let is_sampled = |number: usize| number.is_multiple_of(step) || number + 1 == count;
    for (number, sum) in work.sums.iter().enumerate().filter(|(number, _)| is_sampled(*number)) {
        payload.clear();
        let from = number as u32 * mtu(qp);
        let len = work.len.saturating_sub(from).min(mtu(qp));
        // If the key was destroyed, the memory cannot be compared.
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

/// Go-back-N: continues at the oldest unacknowledged PSN.
fn go_back(qp: &mut Qp, nic: &mut Nic) {
    let send = &mut qp.rc.send;
    send.next = send.unacked;
    send.cursor = 0;
    send.is_retransmitting = true;
    nic.scheduler.set_ready(qp);
}

/// Called when a timer of this queue pair has expired: RNR delay or ACK timeout. IBTA 9.7.6.1.3.
pub(crate) fn timeout(qp: &mut Qp, nic: &mut Nic) {
    if qp.rc.send.pause.is_some_and(|until| until <= nic.now) {
        qp.rc.send.pause = None;
        nic.scheduler.set_ready(qp);
    }
    if qp.rc.send.deadline.is_none_or(|deadline| deadline > nic.now) {
        return;
    }
    qp.rc.send.deadline = None;
    if qp.rc.send.work.is_empty() || qp.rc.send.pause.is_some() || qp.rc.send.fault.is_some() {
        return;
    }
    if let Some(counter) = nic.counter(qp) {
        counter.local_ack_timeout_err = counter.local_ack_timeout_err.wrapping_add(1);
    }
    qp.rc.send.gap = None;
    retry(qp, nic);
}

/// Whether it waits for the pages of a response, which it will ask for again.
fn waits_for_response(qp: &Qp) -> bool {
    qp.rc.send.fault.is_some_and(|fault| fault.lost_response)
}

/// Software has answered the page fault of `token`. `failed`: its pages cannot be had.
pub(super) fn resume(qp: &mut Qp, nic: &mut Nic, token: u32, failed: bool) {
    let Some(fault) = qp.rc.send.fault.filter(|fault| fault.token == token) else { return };
    qp.rc.send.fault = None;
    if failed {
        if let Some(work) = qp.rc.send.work.iter_mut().find(|work| work.index == fault.index) {
            work.failure = Some(Failure::new(CqeSyndrome::LocalProtection));
        }
        complete(qp, nic);
        if !matches!(qp.state, QpState::Rts | QpState::Sqd) {
            return;
        }
    } else if fault.lost_response {
        go_back(qp, nic);
    }
    // The timer of earlier requests may have expired meanwhile: they are sent again, and those that failed come after.
    if qp.transport().is_reliable() && qp.rc.send.unacked != qp.rc.send.sent {
        start_timer(qp, nic);
    }
    nic.scheduler.set_ready(qp);
}

/// Retransmits, unless the retry counter is exhausted.
fn retry(qp: &mut Qp, nic: &mut Nic) {
    if waits_for_response(qp) {
        return;
    }
    if qp.rc.send.retries >= qp.retry_count {
        return fail(qp, nic, Failure::new(CqeSyndrome::TransportRetryExceeded));
    }
    qp.rc.send.retries += 1;
    qp.rc.send.deadline = None;
    start_timer(qp, nic);
    go_back(qp, nic);
}

/// Fails the oldest work request.
fn fail(qp: &mut Qp, nic: &mut Nic, failure: Failure) {
    if let Some(work) = qp.rc.send.work.front_mut() {
        work.failure = Some(failure);
    }
    complete(qp, nic);
}

/// A response packet arrived.
pub(crate) fn response(qp: &mut Qp, nic: &mut Nic, packet: &Packet) {
    let listens = matches!(qp.state, QpState::Rts | QpState::Sqd);
    let send = &qp.rc.send;
    // Ignores responses outside of the outstanding PSNs: duplicate or stale ("ghost") acknowledgements.
    if !listens || packet.psn.after(send.unacked) < 0 || packet.psn.after(send.sent) >= 0 {
        return;
    }
    match packet.opcode {
        opcode if opcode != Opcode::Acknowledge && waits_for_response(qp) => {}
        Opcode::Acknowledge => acknowledge(qp, nic, packet),
        Opcode::AtomicAcknowledge | Opcode::MaskedAcknowledge => atomic_response(qp, nic, packet),
        _ => read_response(qp, nic, packet),
    }
}

fn acknowledge(qp: &mut Qp, nic: &mut Nic, packet: &Packet) {
    let syndrome = Syndrome::from_number(packet.aeth.syndrome);
    if let Syndrome::Ack(_) = syndrome {
        if !acknowledge_through(qp, nic, packet.psn) {
            implied_nak(qp, nic);
        }
        return;
    }
    // A NAK acknowledges all earlier PSNs. IBTA 9.7.5.1.2.
    if !acknowledge_through(qp, nic, packet.psn.previous()) || qp.rc.send.unacked != packet.psn {
        return implied_nak(qp, nic);
    }
    match syndrome {
        Syndrome::ReceiverNotReady(code) => not_ready(qp, nic, code),
        Syndrome::Nak(Nak::PsnSequence) => {
            if let Some(counter) = nic.counter(qp) {
                counter.packet_seq_err = counter.packet_seq_err.wrapping_add(1);
            }
            retry(qp, nic);
        }
        Syndrome::Nak(Nak::HandshakeNeeded) => handshake_needed(qp, nic),
        Syndrome::Nak(nak) => fail(qp, nic, Failure::new(syndrome_of(nak))),
        Syndrome::Ack(_) | Syndrome::Reserved(_) => fail(qp, nic, Failure::new(CqeSyndrome::BadResponse)),
    }
}

const fn syndrome_of(nak: Nak) -> CqeSyndrome {
    match nak {
        Nak::InvalidRequest => CqeSyndrome::RemoteInvalidRequest,
        Nak::RemoteAccess => CqeSyndrome::RemoteAccess,
        Nak::PsnSequence | Nak::RemoteOperation | Nak::HandshakeNeeded | Nak::Other(_) => CqeSyndrome::RemoteOperation,
    }
}

/// The target insists on a handshake. It says so of a connection's first request alone, if that opened it.
fn handshake_needed(qp: &mut Qp, nic: &mut Nic) {
    let unacked = qp.rc.send.unacked;
    match qp.rc.send.target.filter(|connection| connection.is_open && connection.first == unacked) {
        Some(connection) => reconnect(qp, nic, connection),
        None => fail(qp, nic, Failure::new(CqeSyndrome::BadResponse)),
    }
}

/// RNR NAK: the responder had no receive WQE. Waits for its delay, then retransmits. IBTA 9.7.5.2.8.
fn not_ready(qp: &mut Qp, nic: &mut Nic, code: u8) {
    if let Some(counter) = nic.counter(qp) {
        counter.rnr_nak_retry_err = counter.rnr_nak_retry_err.wrapping_add(1);
    }
    if qp.rnr_retry != INFINITE_RETRIES {
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

/// Acknowledges all PSNs up to and including `psn`; an ACK is coalesced: IBTA 9.7.5.1.2. Returns false if that would
/// skip a read or atomic whose response has not arrived: an implied NAK.
fn acknowledge_through(qp: &mut Qp, nic: &mut Nic, psn: Psn) -> bool {
    let send = &qp.rc.send;
    let mut end = psn.plus(1);
    let waiting = send.work.iter().take_while(|work| work.first.after(end) < 0).find(|work| work.is_read());
    let mut is_complete = true;
    if let Some(read) = waiting {
        // Read data received so far is acknowledged; the rest is not.
        let received = if read.first.after(send.unacked) > 0 { read.first } else { send.unacked };
        is_complete = end.after(received) <= 0;
        end = if is_complete { end } else { received };
    }
    if end.after(send.unacked) > 0 {
        progress(qp, nic, end);
    }
    is_complete
}

/// All PSNs before `end` are acknowledged. Resets the retry counters.
fn progress(qp: &mut Qp, nic: &mut Nic, end: Psn) {
    let send = &mut qp.rc.send;
    send.unacked = end;
    send.retries = 0;
    send.rnr_retries = 0;
    send.gap = None;
    send.deadline = None;
    if let Some(connection) = &mut send.target {
        connection.is_open = true;
    }
    if send.next.after(end) < 0 {
        // A late response to packets sent before going back: they need no retransmission.
        send.next = end;
    }
    if send.unacked == send.sent {
        send.is_retransmitting = false;
    } else {
        start_timer(qp, nic);
    }
    complete(qp, nic);
    nic.scheduler.set_ready(qp);
}

/// Implied NAK: part of a read response, or an atomic response, is missing. Requests it again, once for each gap.
fn implied_nak(qp: &mut Qp, nic: &mut Nic) {
    if qp.rc.send.gap == Some(qp.rc.send.unacked) {
        return;
    }
    qp.rc.send.gap = Some(qp.rc.send.unacked);
    if let Some(counter) = nic.counter(qp) {
        counter.implied_nak_seq_err = counter.implied_nak_seq_err.wrapping_add(1);
    }
    retry(qp, nic);
}

/// Whether the oldest outstanding read or atomic expects a response with this PSN.
fn expects_response(qp: &mut Qp, nic: &mut Nic, psn: Psn) -> bool {
    // A response with data acknowledges all earlier PSNs. IBTA 9.7.5.1.2.
    let acknowledged = psn == qp.rc.send.unacked || acknowledge_through(qp, nic, psn.previous());
    if !acknowledged || qp.rc.send.unacked != psn {
        implied_nak(qp, nic);
        return false;
    }
    qp.rc.send.work.front().is_some_and(|work| work.is_read() && work.is_started && work.first.after(psn) <= 0)
}

fn read_response(qp: &mut Qp, nic: &mut Nic, packet: &Packet) {
    if !expects_response(qp, nic, packet.psn) {
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
        Err(_) if page_fault::of_response(qp, nic, from, wanted) => {}
        Err(syndrome) => fail(qp, nic, Failure::new(syndrome)),
    }
}

fn atomic_response(qp: &mut Qp, nic: &mut Nic, packet: &Packet) {
    if !expects_response(qp, nic, packet.psn) {
        return;
    }
    let Some(work) = qp.rc.send.work.front() else { return };
    let standard = packet.atomic_ack.to_be_bytes();
    let found = if packet.opcode == Opcode::AtomicAcknowledge { &standard[..] } else { &packet.payload };
    if !work.is_atomic() || found.len() != work.len as usize {
        return fail(qp, nic, Failure::new(CqeSyndrome::BadResponse));
    }
    let told = nic.told(AtomicResult::new(found));
    let len = work.len;
    match pieces::scatter(qp.user(), nic, &work.pieces, 0, told.bytes()) {
        Ok(()) => progress(qp, nic, packet.psn.plus(1)),
        Err(_) if page_fault::of_response(qp, nic, 0, len) => {}
        Err(syndrome) => fail(qp, nic, Failure::new(syndrome)),
    }
}

/// Completes all work at the front that is acknowledged or has failed, in order. An unsignaled request gets no CQE:
/// IBTA 10.7.3.1.
fn complete(qp: &mut Qp, nic: &mut Nic) {
    while let Some(work) = qp.rc.send.work.front() {
        // An update takes no PSN: what acknowledges the work before it says nothing of whether the key was changed.
        let is_done = qp.rc.send.unacked.after(work.end()) >= 0 && !work.is_update_due();
        let failure = work.failure.or_else(|| if is_done { nic.fault_of(qp.qpn) } else { None });
        if let Some(failure) = failure {
            return complete_in_error(qp, nic, failure);
        }
        if !is_done {
            return;
        }
        check_unchanged_until_done(qp, nic, work);
        let send = &mut qp.rc.send;
        let Some(work) = send.work.pop_front() else { return };
        send.cursor = send.cursor.saturating_sub(1);
        send.reads -= u32::from(work.is_read() && work.is_started);
        if qp.is_channel() {
            channel::end(qp, nic, work);
            continue;
        }
        completion::succeeded(nic, qp, work);
        check_drained(qp, nic);
    }
}

/// Completes the oldest work request in error and moves the queue pair to the error state, or its send queue alone if
/// the service is unreliable. IBTA 10.3.1, 10.10.2.2.
fn complete_in_error(qp: &mut Qp, nic: &mut Nic, failure: Failure) {
    if qp.is_channel() {
        return channel::fail(qp, nic, failure);
    }
    let Some(work) = qp.rc.send.work.pop_front() else { return };
    completion::send_failed(nic, qp, work.index, work.opcode.number() as u8, failure);
    qp.rc.send.spare.push(work);
    match qp.service {
        ServiceType::Uc | ServiceType::Ud | ServiceType::Qp1 => flush::to_send_error(qp, nic),
        _ => flush::to_error(qp, nic),
    }
}

/// Queue pair in SQD: posts the "send queue drained" event once all started work is complete. IBTA 10.3.1.
pub(crate) fn check_drained(qp: &mut Qp, nic: &mut Nic) {
    if qp.state == QpState::Sqd && qp.rc.send.work.is_empty() {
        event::post_qp(nic, EventType::SendQueueDrained, qp.qpn);
    }
}
