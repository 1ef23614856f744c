//! The responder: does what the remote requester asks, and answers.

use mlx5_prm::cqe::{CqeOpcode, CqeSyndrome};
use mlx5_prm::eqe::EventType;
use mlx5_prm::values::QpState;

use super::route;
use crate::engine::flush::{self, to_error};
use crate::engine::message::{longest, mtu, packets};
use crate::engine::{completion, event, pieces, receive_wqe};
use crate::function::Nic;
use crate::objects::{Answer, Failure, Message, Mkey, MkeyRights, Qp, Reply};
use crate::transport::opcode::Message as Kind;
use crate::transport::packet::{Aeth, Nak, Packet, Syndrome};
use crate::transport::{Opcode, Psn, Transport};

/// Results of atomics kept for repeated requests: as many as a requester may have under way.
const ATOMICS: usize = 128;

/// Why a request is not carried out.
enum Refusal {
    /// No receive is posted: try again later.
    NotReady,
    /// The requester is told so, and the queue pair is in error.
    Nak(Nak),
    /// The same, and the receive under way fails.
    Receive(Nak, Failure),
}

/// A request arrived.
pub(crate) fn request(qp: &mut Qp, nic: &mut Nic, packet: &Packet) {
    let listens = matches!(qp.state, QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqer);
    if !listens || matches!(qp.rc.receive.answer, Some(Answer::Fatal(..))) {
        return;
    }
    let distance = packet.psn.after(qp.rc.receive.expected);
    if !packet.transport.is_reliable() {
        return unreliable(qp, nic, packet, distance);
    }
    match distance {
        0 => in_order(qp, nic, packet),
        1.. => ahead(qp, nic),
        _ => repeated(qp, nic, packet),
    }
}

/// A packet that nobody waits to hear of. With a gap before it, the message under way is lost; so is this one, unless
/// it begins a message.
fn unreliable(qp: &mut Qp, nic: &mut Nic, packet: &Packet, distance: i32) {
    if distance != 0 {
        drop_message(qp);
        if !packet.opcode.begins() {
            return;
        }
        qp.rc.receive.expected = packet.psn;
    }
    in_order(qp, nic, packet);
}

/// The message under way will not be finished. The receive that it began to fill serves the next one.
fn drop_message(qp: &mut Qp) {
    qp.rc.receive.message = None;
}

/// A packet before this one is missing. Said once: the requester goes back, and sends this one again.
fn ahead(qp: &mut Qp, nic: &mut Nic) {
    if qp.rc.receive.is_waiting {
        return;
    }
    qp.rc.receive.is_waiting = true;
    if let Some(counter) = nic.counter(qp) {
        counter.out_of_sequence = counter.out_of_sequence.wrapping_add(1);
    }
    answer(qp, nic, Answer::Nak(Syndrome::Nak(Nak::PsnSequence).number()));
}

/// A packet that has come before.
fn repeated(qp: &mut Qp, nic: &mut Nic, packet: &Packet) {
    if let Some(counter) = nic.counter(qp) {
        counter.duplicate_request = counter.duplicate_request.wrapping_add(1);
    }
    match packet.opcode.message() {
        Some(Kind::Read) => repeat_read(qp, nic, packet),
        Some(Kind::Atomic) => repeat_atomic(qp, nic, packet),
        // What was asked for once before is acknowledged once more.
        _ => answer(qp, nic, Answer::Ack),
    }
}

fn repeat_read(qp: &mut Qp, nic: &mut Nic, packet: &Packet) {
    let reth = packet.reth;
    let end = packet.psn.plus(packets(reth.len, mtu(qp)));
    let readable = reth.len == 0 || nic.allows(qp.user(), reth.rkey, reth.va, reth.len.into(), MkeyRights::REMOTE_READ);
    // A request that reaches past what was asked for before is no repetition.
    if end.after(qp.rc.receive.expected) > 0 || !qp.remote_read || !readable {
        return;
    }
    repeat(qp, nic, read_reply(packet));
}

fn repeat_atomic(qp: &mut Qp, nic: &mut Nic, packet: &Packet) {
    let known = qp.rc.receive.atomics.iter().find(|(psn, _)| *psn == packet.psn);
    if let Some((psn, value)) = known.copied() {
        repeat(qp, nic, Reply::Atomic { psn, value });
    }
}

/// Answers once more, unless as many answers wait as the requester may have under way: it did not ask as it should, and
/// will ask again.
fn repeat(qp: &mut Qp, nic: &mut Nic, again: Reply) {
    forget_replies(qp, again.psn());
    if qp.rc.receive.replies.len() < 1 << qp.log_rra_max {
        reply(qp, nic, again);
    }
}

/// The requester went back to `psn`, and will ask again for all that comes after it.
fn forget_replies(qp: &mut Qp, psn: Psn) {
    qp.rc.receive.replies.retain(|reply| reply.psn().after(psn) < 0);
}

fn read_reply(packet: &Packet) -> Reply {
    let reth = packet.reth;
    Reply::Read { psn: packet.psn, rkey: reth.rkey, address: reth.va, left: reth.len, is_first: true }
}

fn in_order(qp: &mut Qp, nic: &mut Nic, packet: &Packet) {
    qp.rc.receive.is_waiting = false;
    if let Some(Answer::Nak(_)) = qp.rc.receive.answer {
        // What it complained of is here.
        qp.rc.receive.answer = Some(Answer::Ack);
    }
    if qp.state == QpState::Rtr && qp.rc.receive.msn == 0 && qp.rc.receive.message.is_none() && packet.opcode.begins() {
        event::post_qp(nic, EventType::CommunicationEstablished, qp.qpn);
    }
    let done = check(qp, packet).map_err(Refusal::Nak).and_then(|kind| match kind {
        Kind::Send => take_send(qp, nic, packet),
        Kind::Write => take_write(qp, nic, packet),
        Kind::Read => take_read(qp, nic, packet),
        Kind::Atomic => take_atomic(qp, nic, packet),
    });
    match done {
        Ok(taken) => accepted(qp, nic, packet, taken),
        Err(refusal) if !packet.transport.is_reliable() => lose(qp, nic, refusal),
        Err(Refusal::NotReady) => not_ready(qp, nic),
        Err(Refusal::Nak(nak)) => refuse(qp, nic, nak),
        Err(Refusal::Receive(nak, failure)) => {
            if let Some(work) = qp.rc.receive.work.take() {
                completion::receive_failed(nic, qp, &work, failure);
            }
            refuse(qp, nic, nak);
        }
    }
}

/// A packet of an unreliable connection cannot be taken: its message is lost without a word. What is wrong with our own
/// receive is ours to hear, though.
fn lose(qp: &mut Qp, nic: &mut Nic, refusal: Refusal) {
    drop_message(qp);
    qp.rc.receive.expected = qp.rc.receive.expected.plus(1);
    match refusal {
        Refusal::NotReady => {
            if let Some(counter) = nic.counter(qp) {
                counter.out_of_buffer = counter.out_of_buffer.wrapping_add(1);
            }
        }
        Refusal::Nak(_) => nic.port.counters.dropped += 1,
        Refusal::Receive(_, failure) => {
            if let Some(work) = qp.rc.receive.work.take() {
                completion::receive_failed(nic, qp, &work, failure);
            }
            to_error(qp, nic);
        }
    }
}

/// Counts the first packet of a request.
fn count_request(qp: &Qp, nic: &mut Nic, packet: &Packet) {
    let Some(counter) = nic.counter(qp).filter(|_| packet.opcode.begins()) else { return };
    let count = match packet.opcode.message() {
        Some(Kind::Write) => &mut counter.rx_write_requests,
        Some(Kind::Read) => &mut counter.rx_read_requests,
        Some(Kind::Atomic) => &mut counter.rx_atomic_requests,
        Some(Kind::Send) | None => return,
    };
    *count = count.wrapping_add(1);
}

/// The request was carried out; it took so many PSNs.
fn accepted(qp: &mut Qp, nic: &mut Nic, packet: &Packet, taken: u32) {
    count_request(qp, nic, packet);
    let receive = &mut qp.rc.receive;
    receive.expected = receive.expected.plus(taken);
    if packet.opcode.ends() {
        receive.msn = receive.msn.wrapping_add(1) & Psn::MASK;
    }
    match packet.opcode.message() {
        Some(Kind::Read) => reply(qp, nic, read_reply(packet)),
        Some(Kind::Atomic) => {
            if let Some((psn, value)) = qp.rc.receive.atomics.back().copied() {
                reply(qp, nic, Reply::Atomic { psn, value });
            }
        }
        _ if packet.ack_request && packet.transport.is_reliable() => answer(qp, nic, Answer::Ack),
        _ => {}
    }
}

/// No receive is posted. All that follows is dropped unsaid until the requester comes back with this packet.
fn not_ready(qp: &mut Qp, nic: &mut Nic) {
    qp.rc.receive.is_waiting = true;
    if let Some(counter) = nic.counter(qp) {
        counter.out_of_buffer = counter.out_of_buffer.wrapping_add(1);
    }
    answer(qp, nic, Answer::Nak(Syndrome::ReceiverNotReady(qp.min_rnr_nak).number()));
}

/// Tells the requester no. The queue pair is in error once that is said.
fn refuse(qp: &mut Qp, nic: &mut Nic, nak: Nak) {
    let event = match nak {
        Nak::RemoteAccess => EventType::WqAccessError,
        Nak::RemoteOperation => EventType::WqCatastrophic,
        _ => EventType::WqInvalidRequest,
    };
    answer(qp, nic, Answer::Fatal(Syndrome::Nak(nak).number(), event));
}

/// Whether the request is one that this queue pair takes at this point, and of the right length.
fn check(qp: &Qp, packet: &Packet) -> Result<Kind, Nak> {
    let kind = packet.opcode.message().ok_or(Nak::InvalidRequest)?;
    let in_turn = match qp.rc.receive.message {
        None => packet.opcode.begins(),
        Some(Message::Send { .. }) => !packet.opcode.begins() && kind == Kind::Send,
        Some(Message::Write { .. }) => !packet.opcode.begins() && kind == Kind::Write,
    };
    let allowed = match kind {
        Kind::Send => true,
        Kind::Write => qp.remote_write,
        Kind::Read => qp.remote_read && qp.rc.receive.replies.len() < 1 << qp.log_rra_max,
        Kind::Atomic => qp.remote_atomic,
    };
    let (len, mtu) = (packet.payload.len(), mtu(qp) as usize);
    let fits = match (kind, packet.opcode.begins(), packet.opcode.ends()) {
        (Kind::Read | Kind::Atomic, ..) => len == 0,
        (_, _, false) => len == mtu,
        (_, true, true) => len <= mtu,
        (_, false, true) => (1..=mtu).contains(&len),
    };
    let sane = !packet.opcode.has_reth() || u64::from(packet.reth.len) <= longest(qp);
    if in_turn && allowed && fits && sane { Ok(kind) } else { Err(Nak::InvalidRequest) }
}

/// Sees to it that there is a receive to fill.
fn take_receive(qp: &mut Qp, nic: &mut Nic, packet: &Packet) -> Result<(), Refusal> {
    if qp.rc.receive.work.is_none() {
        let srqn = (packet.transport == Transport::Xrc).then_some(packet.xrc_srqn);
        if srqn.is_some_and(|srqn| !is_of_domain(qp, nic, srqn)) {
            return Err(Refusal::Nak(Nak::InvalidRequest));
        }
        qp.rc.receive.work = Some(receive_wqe::fetch_receive(qp, nic, srqn).ok_or(Refusal::NotReady)?);
    }
    match qp.rc.receive.work.as_ref().and_then(|work| work.failure) {
        None => Ok(()),
        Some(failure) => Err(Refusal::Receive(Nak::RemoteOperation, failure)),
    }
}

/// Whether the shared queue is of the queue pair's XRC domain.
fn is_of_domain(qp: &Qp, nic: &Nic, srqn: u32) -> bool {
    nic.objects.srqs.get(srqn).and_then(|srq| srq.xrc).is_some_and(|xrc| xrc.xrcd == qp.xrcd)
}

fn take_send(qp: &mut Qp, nic: &mut Nic, packet: &Packet) -> Result<u32, Refusal> {
    take_receive(qp, nic, packet)?;
    let done = match qp.rc.receive.message {
        Some(Message::Send { done }) => done,
        _ => 0,
    };
    let Some(work) = &qp.rc.receive.work else { return Err(Refusal::NotReady) };
    let come = done.saturating_add(packet.payload.len() as u32);
    if u64::from(come) > longest(qp) {
        return Err(Refusal::Receive(Nak::InvalidRequest, Failure::new(CqeSyndrome::LocalLength)));
    }
    pieces::scatter(work.user, nic, &work.pieces, done, &packet.payload).map_err(|syndrome| {
        let nak = if syndrome == CqeSyndrome::LocalLength { Nak::InvalidRequest } else { Nak::RemoteOperation };
        Refusal::Receive(nak, Failure::new(syndrome))
    })?;
    if packet.opcode.has_ieth() {
        invalidate(qp, nic, packet.immediate)?;
    }
    if packet.opcode.ends() {
        qp.rc.receive.message = None;
        received(qp, nic, packet, come)?;
    } else {
        qp.rc.receive.message = Some(Message::Send { done: come });
    }
    Ok(1)
}

/// Makes a key unusable, as the remote side asks: one of its protection domain that was made so, and is not another
/// queue pair's alone.
fn invalidate(qp: &Qp, nic: &mut Nic, key: u32) -> Result<(), Refusal> {
    let is_its = |mkey: &&mut Mkey| {
        let is_open_to_it = mkey.pd == qp.pd && mkey.qpn.is_none_or(|qpn| qpn == qp.qpn);
        is_open_to_it && mkey.variant == key as u8 && mkey.context.en_rinval()
    };
    match nic.objects.mkeys.get_mut(key >> 8).filter(is_its) {
        Some(mkey) => {
            mkey.set_free(true);
            Ok(())
        }
        None => Err(Refusal::Receive(Nak::RemoteAccess, Failure::new(CqeSyndrome::LocalAccess))),
    }
}

fn take_write(qp: &mut Qp, nic: &mut Nic, packet: &Packet) -> Result<u32, Refusal> {
    let (rkey, address, len, done) = match qp.rc.receive.message {
        Some(Message::Write { rkey, address, len, done }) => (rkey, address, len, done),
        _ => (packet.reth.rkey, packet.reth.va, packet.reth.len, 0),
    };
    let bytes = packet.payload.len() as u32;
    let left = len.saturating_sub(done);
    if bytes > left || (packet.opcode.ends() && bytes != left) {
        return Err(Refusal::Nak(Nak::InvalidRequest));
    }
    // A write of no bytes needs no key.
    let begins = packet.opcode.begins() && len > 0;
    if begins && !nic.allows(qp.user(), rkey, address, len.into(), MkeyRights::REMOTE_WRITE) {
        return Err(Refusal::Nak(Nak::RemoteAccess));
    }
    if packet.opcode.has_immediate() {
        take_receive(qp, nic, packet)?;
    }
    let at = address.wrapping_add(u64::from(done));
    if bytes > 0 && !nic.write(qp.user(), rkey, at, &packet.payload, MkeyRights::REMOTE_WRITE) {
        return Err(Refusal::Nak(Nak::RemoteAccess));
    }
    if packet.opcode.ends() {
        qp.rc.receive.message = None;
        if packet.opcode.has_immediate() {
            received(qp, nic, packet, len)?;
        }
    } else {
        qp.rc.receive.message = Some(Message::Write { rkey, address, len, done: done + bytes });
    }
    Ok(1)
}

/// Completes a receive.
fn received(qp: &mut Qp, nic: &mut Nic, packet: &Packet, len: u32) -> Result<(), Refusal> {
    if let Some(failure) = nic.fault_of(qp.qpn) {
        return Err(Refusal::Receive(Nak::RemoteOperation, failure));
    }
    let Some(work) = qp.rc.receive.work.take() else { return Ok(()) };
    let opcode = match packet.opcode.message() {
        Some(Kind::Write) => CqeOpcode::ResponderWriteImm,
        _ if packet.opcode.has_ieth() => CqeOpcode::ResponderSendInval,
        _ if packet.opcode.has_immediate() => CqeOpcode::ResponderSendImm,
        _ => CqeOpcode::ResponderSend,
    };
    let mut cqe = completion::of_receive(qp, opcode, &work);
    cqe.w().byte_cnt(len).immediate(packet.immediate).se(packet.solicited);
    completion::received(nic, qp, work, &cqe);
    Ok(())
}

fn take_read(qp: &mut Qp, nic: &mut Nic, packet: &Packet) -> Result<u32, Refusal> {
    let reth = packet.reth;
    if reth.len > 0 && !nic.allows(qp.user(), reth.rkey, reth.va, reth.len.into(), MkeyRights::REMOTE_READ) {
        return Err(Refusal::Nak(Nak::RemoteAccess));
    }
    Ok(packets(reth.len, mtu(qp)))
}

fn take_atomic(qp: &mut Qp, nic: &mut Nic, packet: &Packet) -> Result<u32, Refusal> {
    let atomic = packet.atomic;
    if !atomic.va.is_multiple_of(8) {
        return Err(Refusal::Nak(Nak::InvalidRequest));
    }
    if !nic.allows(qp.user(), atomic.rkey, atomic.va, 8, MkeyRights::REMOTE_ATOMIC) {
        return Err(Refusal::Nak(Nak::RemoteAccess));
    }
    let swap = packet.opcode == Opcode::CompareSwap;
    let change = |memory: u64| {
        let value = nic.atomic_operand(memory);
        let new = match swap {
            true if value == atomic.compare => atomic.swap_add,
            true => value,
            false => value.wrapping_add(atomic.swap_add),
        };
        nic.atomic_operand(new)
    };
    let old = nic.update(qp.user(), atomic.rkey, atomic.va, change).ok_or(Refusal::Nak(Nak::RemoteOperation))?;
    let found = nic.atomic_operand(old);
    let kept = &mut qp.rc.receive.atomics;
    if kept.len() >= ATOMICS {
        kept.pop_front();
    }
    kept.push_back((packet.psn, found));
    Ok(1)
}

/// Puts an answer with data in the queue of replies.
fn reply(qp: &mut Qp, nic: &mut Nic, reply: Reply) {
    qp.rc.receive.replies.push_back(reply);
    nic.scheduler.set_ready(qp);
}

/// Remembers what is to be acknowledged. Several at a time become one.
fn answer(qp: &mut Qp, nic: &mut Nic, answer: Answer) {
    let receive = &mut qp.rc.receive;
    let keeps = match receive.answer {
        Some(Answer::Fatal(..)) => true,
        // A gap that is still open must be heard of.
        Some(Answer::Nak(_)) => receive.is_waiting && matches!(answer, Answer::Ack),
        _ => false,
    };
    if !keeps {
        receive.answer = Some(answer);
    }
    nic.scheduler.set_acking(qp);
}

/// A response without data. `None` if there is no way to the requester.
fn response(qp: &Qp, nic: &mut Nic, opcode: Opcode, psn: Psn, syndrome: u8) -> Option<Box<Packet>> {
    let route = route(qp, nic)?;
    let mut packet = nic.scheduler.packets.packet(opcode, route, qp.remote_qpn, psn);
    packet.transport = qp.transport();
    packet.aeth = Aeth { syndrome, msn: qp.rc.receive.msn };
    Some(packet)
}

/// Sends the acknowledgement that is due, if all replies before it are out.
pub(crate) fn acknowledge(qp: &mut Qp, nic: &mut Nic) {
    if !qp.rc.receive.replies.is_empty() {
        return;
    }
    let Some(answer) = qp.rc.receive.answer.take() else { return };
    let expected = qp.rc.receive.expected;
    let (psn, syndrome) = match answer {
        Answer::Ack => (expected.previous(), Syndrome::ACK.number()),
        Answer::Nak(syndrome) | Answer::Fatal(syndrome, _) => (expected, syndrome),
    };
    if let Some(packet) = response(qp, nic, Opcode::Acknowledge, psn, syndrome) {
        nic.send(packet);
    }
    if let Answer::Fatal(_, event) = answer {
        event::post_qp(nic, event, qp.qpn);
        flush::to_error(qp, nic);
    }
}

/// Sends up to `budget` packets of replies. True if there are more.
pub(crate) fn send_replies(qp: &mut Qp, nic: &mut Nic, budget: u32) -> bool {
    for _ in 0..budget {
        let Some(reply) = qp.rc.receive.replies.front().copied() else { break };
        let left = match reply {
            Reply::Atomic { psn, value } => send_atomic(qp, nic, psn, value),
            Reply::Read { .. } => send_read(qp, nic, reply),
        };
        match (left, qp.rc.receive.replies.front_mut()) {
            (Some(rest_of_it), Some(front)) => *front = rest_of_it,
            _ => drop(qp.rc.receive.replies.pop_front()),
        }
    }
    if qp.rc.receive.replies.is_empty() {
        acknowledge(qp, nic);
    }
    !qp.rc.receive.replies.is_empty()
}

fn send_atomic(qp: &mut Qp, nic: &mut Nic, psn: Psn, value: u64) -> Option<Reply> {
    let mut packet = response(qp, nic, Opcode::AtomicAcknowledge, psn, Syndrome::ACK.number())?;
    packet.atomic_ack = value;
    nic.send(packet);
    None
}

/// Sends one packet of a read's response; what is left of it.
fn send_read(qp: &mut Qp, nic: &mut Nic, reply: Reply) -> Option<Reply> {
    let Reply::Read { psn, rkey, address, left, is_first } = reply else { return None };
    let len = left.min(mtu(qp));
    let is_last = len == left;
    let opcode = match (is_first, is_last) {
        (true, true) => Opcode::ReadResponseOnly,
        (true, false) => Opcode::ReadResponseFirst,
        (false, false) => Opcode::ReadResponseMiddle,
        (false, true) => Opcode::ReadResponseLast,
    };
    let mut packet = response(qp, nic, opcode, psn, Syndrome::ACK.number())?;
    packet.payload.resize(len as usize, 0);
    if len > 0 && !nic.read(qp.user(), rkey, address, &mut packet.payload, MkeyRights::REMOTE_READ) {
        nic.scheduler.packets.give_back(packet);
        qp.rc.receive.replies.clear();
        // The key went away, or the memory did, in the middle of the response: the NAK is for this very packet.
        qp.rc.receive.expected = psn;
        refuse(qp, nic, Nak::RemoteOperation);
        return None;
    }
    nic.send(packet);
    let next = Reply::Read {
        psn: psn.plus(1),
        rkey,
        address: address.wrapping_add(u64::from(len)),
        left: left - len,
        is_first: false,
    };
    (!is_last).then_some(next)
}
