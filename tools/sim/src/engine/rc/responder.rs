//! The responder: executes the remote requester's requests, and responds.

use mlx5_prm::cqe::{CqeOpcode, CqeSyndrome};
use mlx5_prm::ctx::AtomicMode;
use mlx5_prm::eqe::EventType;
use mlx5_prm::values::QpState;

use super::{atomic, route};
use crate::engine::flush::{self, to_error};
use crate::engine::message::{longest, mtu, packets};
use crate::engine::page_fault::{self, Remote};
use crate::engine::{completion, event, pieces, receive_wqe};
use crate::function::Nic;
use crate::objects::{AtomicResult, Failure, FaultyMemory, Message, Mkey, MkeyRights, PendingAck, Qp, Reply, User};
use crate::transport::opcode::Message as Kind;
use crate::transport::packet::{Aeth, Nak, Packet, Syndrome};
use crate::transport::{Opcode, Psn, Transport};

/// Results of atomics kept for duplicate requests: the maximum that a requester may have outstanding.
const ATOMICS: usize = 128;

/// Why a request is not executed.
enum Refusal {
    /// No receive WQE is posted: RNR NAK.
    NotReady,
    /// The memory is absent, and software was told: RNR NAK.
    Absent,
    /// NAK; the queue pair moves to the error state.
    Nak(Nak),
    /// NAK, and the current receive completes in error.
    Receive(Nak, Failure),
}

/// A request packet arrived. RC compares its PSN with the expected one: new, duplicate, or out of sequence.
pub(crate) fn request(qp: &mut Qp, nic: &mut Nic, packet: &Packet) {
    let can_receive = matches!(qp.state, QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqer);
    if !can_receive || matches!(qp.rc.receive.pending_ack, Some(PendingAck::Fatal(..))) {
        return;
    }
    let distance = packet.psn.after(qp.rc.receive.expected);
    if !packet.transport.is_reliable() {
        return unreliable(qp, nic, packet, distance);
    }
    match distance {
        0 if qp.rc.receive.fault.is_some() => nak_not_ready(qp, nic),
        0 => in_order(qp, nic, packet),
        1.. => out_of_sequence(qp, nic),
        _ => duplicate(qp, nic, packet),
    }
}

/// Unreliable transport: no response. A gap before this packet drops the message in progress, and this packet too
/// unless it starts a message. So does a sender that ended a message early, after an error of its own. IBTA 9.8.2.2.
fn unreliable(qp: &mut Qp, nic: &mut Nic, packet: &Packet, distance: i32) {
    if distance != 0 || packet.opcode.begins() {
        drop_message(qp);
    }
    if distance != 0 {
        if !packet.opcode.begins() {
            return;
        }
        qp.rc.receive.expected = packet.psn;
    }
    in_order(qp, nic, packet);
}

/// Drops the message in progress. Its receive WQE is used for the next message.
fn drop_message(qp: &mut Qp) {
    qp.rc.receive.message = None;
}

/// PSN after the expected one: a packet is missing. Sends one NAK for a PSN sequence error; the requester retransmits
/// from the expected PSN on.
fn out_of_sequence(qp: &mut Qp, nic: &mut Nic) {
    if qp.rc.receive.is_waiting {
        return;
    }
    qp.rc.receive.is_waiting = true;
    if let Some(counter) = nic.counter(qp) {
        counter.out_of_sequence = counter.out_of_sequence.wrapping_add(1);
    }
    queue_ack(qp, nic, PendingAck::Nak(Syndrome::Nak(Nak::PsnSequence).number()));
}

/// Duplicate request: PSN before the expected one.
fn duplicate(qp: &mut Qp, nic: &mut Nic, packet: &Packet) {
    if let Some(counter) = nic.counter(qp) {
        counter.duplicate_request = counter.duplicate_request.wrapping_add(1);
    }
    match packet.opcode.message() {
        Some(Kind::Read) => duplicate_read(qp, nic, packet),
        Some(Kind::Atomic) => duplicate_atomic(qp, nic, packet),
        Some(Kind::Unsupported) => {}
        // A duplicate send or write is acknowledged again, not executed again. IBTA C9-105.
        _ => queue_ack(qp, nic, PendingAck::Ack),
    }
}

fn duplicate_read(qp: &mut Qp, nic: &mut Nic, packet: &Packet) {
    let reth = packet.reth;
    // It would go round the circle of PSNs, and end before the expected one. IBTA C9-94.
    if u64::from(reth.len) > longest(qp) {
        return;
    }
    let end = packet.psn.plus(packets(reth.len, mtu(qp)));
    let Ok(user) = user(qp, nic, packet) else { return };
    let readable = reth.len == 0 || nic.allows(user, reth.rkey, reth.va, reth.len.into(), MkeyRights::REMOTE_READ);
    // Not a duplicate if it extends beyond the PSNs already requested.
    if end.after(qp.rc.receive.expected) > 0 || !qp.remote_read || !readable {
        return;
    }
    respond_again(qp, nic, read_reply(user, packet, true));
}

fn duplicate_atomic(qp: &mut Qp, nic: &mut Nic, packet: &Packet) {
    // The newest first: an older one may have had the same PSN, a round of all PSNs ago.
    let known = qp.rc.receive.atomics.iter().rev().find(|(psn, _)| *psn == packet.psn);
    if let Some((psn, found)) = known.copied() {
        respond_again(qp, nic, Reply::Atomic { psn, found });
    }
}

/// Responds to a duplicate request. Dropped if the maximum of outstanding reads and atomics is reached: the requester
/// exceeds its limit, and will retry.
fn respond_again(qp: &mut Qp, nic: &mut Nic, response: Reply) {
    drop_replies_from(qp, response.psn());
    if qp.rc.receive.replies.len() < 1 << qp.log_rra_max {
        reply(qp, nic, response);
    }
}

/// The requester went back to `psn`; it will repeat all later requests.
fn drop_replies_from(qp: &mut Qp, psn: Psn) {
    qp.rc.receive.replies.retain(|reply| reply.psn().after(psn) < 0);
}

fn read_reply(user: User, packet: &Packet, is_again: bool) -> Reply {
    let (psn, reth) = (packet.psn, packet.reth);
    Reply::Read { psn, user, rkey: reth.rkey, address: reth.va, left: reth.len, is_first: true, is_again }
}

/// Who the remote side is to our keys. An XRC queue pair has no protection domain that counts: the shared queue that
/// the request names has. IBTA A14 "XRC target".
fn user(qp: &Qp, nic: &Nic, packet: &Packet) -> Result<User, Refusal> {
    if packet.transport != Transport::Xrc {
        return Ok(qp.user());
    }
    let srq = nic.objects.srqs.get(packet.xrc_srqn).filter(|srq| srq.xrc.is_some_and(|xrc| xrc.xrcd == qp.xrcd));
    srq.map(|srq| User { pd: srq.pd, ..qp.user() }).ok_or(Refusal::Nak(Nak::InvalidRequest))
}

fn in_order(qp: &mut Qp, nic: &mut Nic, packet: &Packet) {
    qp.rc.receive.is_waiting = false;
    if let Some(PendingAck::Nak(_)) = qp.rc.receive.pending_ack {
        // The packet that the NAK asked for has arrived.
        qp.rc.receive.pending_ack = Some(PendingAck::Ack);
    }
    if qp.state == QpState::Rtr && qp.rc.receive.msn == 0 && qp.rc.receive.message.is_none() && packet.opcode.begins() {
        event::post_qp(nic, EventType::CommunicationEstablished, qp.qpn);
    }
    let done = check(qp, packet).map_err(Refusal::Nak).and_then(|kind| match kind {
        Kind::Send => execute_send(qp, nic, packet),
        Kind::Write => execute_write(qp, nic, packet),
        Kind::Read => execute_read(qp, nic, packet),
        Kind::Atomic => execute_atomic(qp, nic, packet),
        Kind::Connect => Ok(1),
        Kind::Unsupported => Err(Refusal::Nak(Nak::InvalidRequest)),
    });
    match done {
        Ok(taken) => complete_request(qp, nic, packet, taken),
        Err(refusal) if !packet.transport.is_reliable() => drop_packet(qp, nic, refusal),
        Err(Refusal::NotReady) => not_ready(qp, nic),
        Err(Refusal::Absent) => nak_not_ready(qp, nic),
        Err(Refusal::Nak(nak)) => send_fatal_nak(qp, nic, nak),
        Err(Refusal::Receive(nak, failure)) => {
            if let Some(work) = qp.rc.receive.work.take() {
                completion::receive_failed(nic, qp, &work, failure);
            }
            send_fatal_nak(qp, nic, nak);
        }
    }
}

/// UC: the packet cannot be executed; its message is dropped without a response. An error of our own receive WQE is
/// still reported.
fn drop_packet(qp: &mut Qp, nic: &mut Nic, refusal: Refusal) {
    drop_message(qp);
    qp.rc.receive.expected = qp.rc.receive.expected.plus(1);
    match refusal {
        Refusal::NotReady => {
            if let Some(counter) = nic.counter(qp) {
                counter.out_of_buffer = counter.out_of_buffer.wrapping_add(1);
            }
        }
        Refusal::Nak(_) | Refusal::Absent => nic.port.counters.dropped += 1,
        Refusal::Receive(_, failure) => {
            if let Some(work) = qp.rc.receive.work.take() {
                completion::receive_failed(nic, qp, &work, failure);
            }
            to_error(qp, nic);
        }
    }
}

/// Updates the queue counter at the first packet of a request.
fn count_request(qp: &Qp, nic: &mut Nic, packet: &Packet) {
    let Some(counter) = nic.counter(qp).filter(|_| packet.opcode.begins()) else { return };
    let count = match packet.opcode.message() {
        Some(Kind::Write) => &mut counter.rx_write_requests,
        Some(Kind::Read) => &mut counter.rx_read_requests,
        Some(Kind::Atomic) => &mut counter.rx_atomic_requests,
        Some(Kind::Send | Kind::Connect | Kind::Unsupported) | None => return,
    };
    *count = count.wrapping_add(1);
}

/// The request was executed, and used `taken` PSNs.
fn complete_request(qp: &mut Qp, nic: &mut Nic, packet: &Packet, taken: u32) {
    count_request(qp, nic, packet);
    let receive = &mut qp.rc.receive;
    receive.expected = receive.expected.plus(taken);
    if packet.opcode.ends() {
        receive.msn = receive.msn.wrapping_add(1) & Psn::MASK;
    }
    match packet.opcode.message() {
        Some(Kind::Read) => {
            if let Ok(user) = user(qp, nic, packet) {
                reply(qp, nic, read_reply(user, packet, false));
            }
        }
        Some(Kind::Atomic) => {
            if let Some((psn, found)) = qp.rc.receive.atomics.back().copied() {
                reply(qp, nic, Reply::Atomic { psn, found });
            }
        }
        _ if packet.ack_request && packet.transport.is_reliable() => queue_ack(qp, nic, PendingAck::Ack),
        _ => {}
    }
}

/// No receive WQE.
fn not_ready(qp: &mut Qp, nic: &mut Nic) {
    if let Some(counter) = nic.counter(qp) {
        counter.out_of_buffer = counter.out_of_buffer.wrapping_add(1);
    }
    nak_not_ready(qp, nic);
}

/// The request cannot be executed yet, for want of a receive or of memory: sends an RNR NAK, IBTA 9.7.5.2.8. Later
/// packets are dropped silently until the requester retransmits this one.
fn nak_not_ready(qp: &mut Qp, nic: &mut Nic) {
    qp.rc.receive.is_waiting = true;
    queue_ack(qp, nic, PendingAck::Nak(Syndrome::ReceiverNotReady(qp.min_rnr_nak).number()));
}

/// Sends a NAK; then the queue pair moves to the error state, with an asynchronous event. IBTA 9.9.3.1.3, responder
/// class C.
fn send_fatal_nak(qp: &mut Qp, nic: &mut Nic, nak: Nak) {
    let event = match nak {
        Nak::RemoteAccess => EventType::WqAccessError,
        Nak::RemoteOperation => EventType::WqCatastrophic,
        _ => EventType::WqInvalidRequest,
    };
    queue_ack(qp, nic, PendingAck::Fatal(Syndrome::Nak(nak).number(), event));
}

/// Refuses the request that comes next.
pub(crate) fn refuse(qp: &mut Qp, nic: &mut Nic, nak: Nak) {
    send_fatal_nak(qp, nic, nak);
}

/// The first request of a dynamic connection came without a handshake: answers that one is needed, and again if the
/// answer was lost.
pub(crate) fn ask_for_handshake(qp: &mut Qp, nic: &mut Nic, packet: &Packet) {
    if packet.psn == qp.rc.receive.expected {
        queue_ack(qp, nic, PendingAck::Nak(Syndrome::Nak(Nak::HandshakeNeeded).number()));
    }
}

/// Whether the queue pair accepts this request now: opcode, its sequence, access rights, outstanding reads and atomics,
/// payload length. Otherwise the NAK is "invalid request". IBTA C9-92 (packet length), C9-94 (RETH length).
fn check(qp: &Qp, packet: &Packet) -> Result<Kind, Nak> {
    let kind = packet.opcode.message().ok_or(Nak::InvalidRequest)?;
    let in_sequence = match qp.rc.receive.message {
        None => packet.opcode.begins(),
        Some(Message::Send { .. }) => !packet.opcode.begins() && kind == Kind::Send,
        Some(Message::Write { .. }) => !packet.opcode.begins() && kind == Kind::Write,
    };
    // READs and atomics share the responder's resources. IBTA 9.7.4.1.
    let may_reply = qp.rc.receive.replies.len() < 1 << qp.log_rra_max;
    let allowed = match kind {
        Kind::Send | Kind::Connect => true,
        Kind::Write => qp.remote_write,
        Kind::Read => qp.remote_read && may_reply,
        Kind::Atomic => qp.remote_atomic && may_reply,
        Kind::Unsupported => false,
    };
    let (len, mtu) = (packet.payload.len(), mtu(qp) as usize);
    let fits = match (kind, packet.opcode.begins(), packet.opcode.ends()) {
        // Operands.
        (Kind::Atomic, ..) if packet.opcode.is_masked_atomic() => len > 0,
        (Kind::Read | Kind::Atomic | Kind::Connect, ..) => len == 0,
        (_, _, false) => len == mtu,
        (_, true, true) => len <= mtu,
        (_, false, true) => (1..=mtu).contains(&len),
    };
    let length_valid = !packet.opcode.has_reth() || u64::from(packet.reth.len) <= longest(qp);
    if in_sequence && allowed && fits && length_valid { Ok(kind) } else { Err(Nak::InvalidRequest) }
}

/// Makes sure that there is a receive WQE to fill.
fn ensure_receive(qp: &mut Qp, nic: &mut Nic, packet: &Packet) -> Result<(), Refusal> {
    if qp.rc.receive.work.is_none() {
        user(qp, nic, packet)?;
        let srqn = (packet.transport == Transport::Xrc).then_some(packet.xrc_srqn);
        qp.rc.receive.work = Some(receive_wqe::fetch_receive(qp, nic, srqn).ok_or(Refusal::NotReady)?);
    }
    match qp.rc.receive.work.as_ref().and_then(|work| work.failure) {
        None => Ok(()),
        Some(failure) => Err(Refusal::Receive(Nak::RemoteOperation, failure)),
    }
}

fn execute_send(qp: &mut Qp, nic: &mut Nic, packet: &Packet) -> Result<u32, Refusal> {
    ensure_receive(qp, nic, packet)?;
    let done = match qp.rc.receive.message {
        Some(Message::Send { done }) => done,
        _ => 0,
    };
    let Some(work) = &qp.rc.receive.work else { return Err(Refusal::NotReady) };
    let total = done.saturating_add(packet.payload.len() as u32);
    if u64::from(total) > longest(qp) {
        return Err(Refusal::Receive(Nak::InvalidRequest, Failure::new(CqeSyndrome::LocalLength)));
    }
    if let Err(syndrome) = pieces::scatter(work.user, nic, &work.pieces, done, &packet.payload) {
        let srqn = if packet.transport == Transport::Xrc { Some(packet.xrc_srqn) } else { qp.srqn };
        if page_fault::of_receive(qp, nic, srqn, done, packet.payload.len() as u32) {
            return Err(Refusal::Absent);
        }
        let nak = if syndrome == CqeSyndrome::LocalLength { Nak::InvalidRequest } else { Nak::RemoteOperation };
        return Err(Refusal::Receive(nak, Failure::new(syndrome)));
    }
    if packet.opcode.has_ieth() {
        invalidate(user(qp, nic, packet)?, nic, packet.immediate)?;
    }
    if packet.opcode.ends() {
        qp.rc.receive.message = None;
        received(qp, nic, packet, total)?;
    } else {
        qp.rc.receive.message = Some(Message::Send { done: total });
    }
    Ok(1)
}

/// Send with invalidate: frees the named key. It must be of the same protection domain, allow remote invalidation
/// (`en_rinval`), and not be bound to another queue pair.
fn invalidate(user: User, nic: &mut Nic, key: u32) -> Result<(), Refusal> {
    let matches_user = |mkey: &&mut Mkey| {
        let is_usable = mkey.pd == user.pd && mkey.qpn.is_none_or(|qpn| qpn == user.qpn);
        is_usable && mkey.variant == key as u8 && mkey.context.en_rinval()
    };
    match nic.objects.mkeys.get_mut(key >> 8).filter(matches_user) {
        Some(mkey) => {
            mkey.set_free(true);
            Ok(())
        }
        None => Err(Refusal::Receive(Nak::RemoteAccess, Failure::new(CqeSyndrome::LocalAccess))),
    }
}

fn execute_write(qp: &mut Qp, nic: &mut Nic, packet: &Packet) -> Result<u32, Refusal> {
    let (rkey, address, len, done) = match qp.rc.receive.message {
        Some(Message::Write { rkey, address, len, done }) => (rkey, address, len, done),
        _ => (packet.reth.rkey, packet.reth.va, packet.reth.len, 0),
    };
    let bytes = packet.payload.len() as u32;
    let left = len.saturating_sub(done);
    if bytes > left || (packet.opcode.ends() && bytes != left) {
        return Err(Refusal::Nak(Nak::InvalidRequest));
    }
    let user = user(qp, nic, packet)?;
    // A write of length 0 needs no valid key. IBTA 9.7.4.1.5, C9-88.
    let begins = packet.opcode.begins() && len > 0;
    if begins && !nic.allows(user, rkey, address, len.into(), MkeyRights::REMOTE_WRITE) {
        return Err(Refusal::Nak(Nak::RemoteAccess));
    }
    if packet.opcode.has_immediate() {
        ensure_receive(qp, nic, packet)?;
    }
    let at = address.wrapping_add(u64::from(done));
    if bytes > 0 && !nic.write(user, rkey, at, &packet.payload, MkeyRights::REMOTE_WRITE) {
        let remote =
            Remote { user, key: rkey, address, total: len, done, len: bytes, rights: MkeyRights::REMOTE_WRITE };
        return Err(missing(qp, nic, remote, Nak::RemoteAccess));
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

/// Completes a receive. A write completes one only if it has immediate data: IBTA 10.7.2.2, C10-87.
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

fn execute_read(qp: &mut Qp, nic: &mut Nic, packet: &Packet) -> Result<u32, Refusal> {
    let reth = packet.reth;
    let user = user(qp, nic, packet)?;
    if reth.len > 0 && !nic.allows(user, reth.rkey, reth.va, reth.len.into(), MkeyRights::REMOTE_READ) {
        return Err(Refusal::Nak(Nak::RemoteAccess));
    }
    // What the first packet of the response needs. If more is absent, the response waits.
    let remote = read_of(user, (reth.rkey, reth.va, reth.len), reth.len.min(mtu(qp)));
    if reth.len > 0 && page_fault::of_remote(qp, nic, remote, FaultyMemory::Remote) {
        return Err(Refusal::Absent);
    }
    Ok(packets(reth.len, mtu(qp)))
}

/// The first `len` bytes of a read of key, address and bytes.
fn read_of(user: User, (key, address, total): (u32, u64, u32), len: u32) -> Remote {
    Remote { user, key, address, total, done: 0, len, rights: MkeyRights::REMOTE_READ }
}

/// Why a remote access was not made that its key allows: its pages are absent, or `nak`.
fn missing(qp: &mut Qp, nic: &mut Nic, remote: Remote, nak: Nak) -> Refusal {
    match page_fault::of_remote(qp, nic, remote, FaultyMemory::Remote) {
        true => Refusal::Absent,
        false => Refusal::Nak(nak),
    }
}

fn execute_atomic(qp: &mut Qp, nic: &mut Nic, packet: &Packet) -> Result<u32, Refusal> {
    let (va, rkey, size) = if packet.opcode.is_masked_atomic() {
        let size = atomic::size_of_operands(packet.opcode, packet.payload.len());
        let size = size.filter(|size| accepts_masked(qp, *size)).ok_or(Refusal::Nak(Nak::InvalidRequest))?;
        (packet.reth.va, packet.reth.rkey, size)
    } else {
        (packet.atomic.va, packet.atomic.rkey, size_of::<u64>())
    };
    if !va.is_multiple_of(size as u64) {
        return Err(Refusal::Nak(Nak::InvalidRequest));
    }
    let user = user(qp, nic, packet)?;
    if !nic.allows(user, rkey, va, size as u64, MkeyRights::REMOTE_ATOMIC) {
        return Err(Refusal::Nak(Nak::RemoteAccess));
    }
    let is_little = nic.firmware.host_is_little_endian();
    let old = nic.update(user, rkey, va, size, |memory| atomic::apply(packet, memory, is_little));
    let Some(old) = old else {
        let (total, rights) = (size as u32, MkeyRights::REMOTE_ATOMIC);
        let remote = Remote { user, key: rkey, address: va, total, done: 0, len: total, rights };
        return Err(missing(qp, nic, remote, Nak::RemoteOperation));
    };
    let found = atomic::found(old.bytes(), is_little);
    let kept = &mut qp.rc.receive.atomics;
    if kept.len() >= ATOMICS {
        kept.pop_front();
    }
    kept.push_back((packet.psn, found));
    Ok(1)
}

/// Whether `atomic_mode` of the queue pair allows masked atomics of `size` bytes.
fn accepts_masked(qp: &Qp, size: usize) -> bool {
    use AtomicMode::*;
    let mode = qp.context.atomic_mode();
    // From eight bytes on, a mode's number is the log of the bytes it allows.
    matches!(mode, UpTo8B | UpTo16B | UpTo32B) && size <= 1 << mode.number()
}

/// Queues a response that carries data.
fn reply(qp: &mut Qp, nic: &mut Nic, reply: Reply) {
    qp.rc.receive.replies.push_back(reply);
    nic.scheduler.set_ready(qp);
}

/// Records the acknowledgement to send. Several are coalesced into one: IBTA 9.7.5.1.2.
fn queue_ack(qp: &mut Qp, nic: &mut Nic, ack: PendingAck) {
    let receive = &mut qp.rc.receive;
    let keeps = match receive.pending_ack {
        Some(PendingAck::Fatal(..)) => true,
        // An ACK must not replace the NAK of a gap that is still open.
        Some(PendingAck::Nak(_)) => receive.is_waiting && matches!(ack, PendingAck::Ack),
        _ => false,
    };
    if !keeps {
        receive.pending_ack = Some(ack);
    }
    nic.scheduler.set_acking(qp);
}

/// A response without payload. `None` if the GID table entry is empty.
fn response(qp: &Qp, nic: &mut Nic, opcode: Opcode, psn: Psn, syndrome: u8) -> Option<Box<Packet>> {
    let route = route(qp, nic)?;
    let mut packet = nic.scheduler.packets.packet(opcode, route, qp.remote_qpn, psn);
    packet.transport = qp.transport();
    packet.aeth = Aeth { syndrome, msn: qp.rc.receive.msn };
    Some(packet)
}

/// Sends the pending acknowledgement, once all earlier read and atomic responses are sent.
pub(crate) fn acknowledge(qp: &mut Qp, nic: &mut Nic) {
    if !qp.rc.receive.replies.is_empty() {
        return;
    }
    let Some(ack) = qp.rc.receive.pending_ack.take() else { return };
    let expected = qp.rc.receive.expected;
    let (psn, syndrome) = match ack {
        PendingAck::Ack => (expected.previous(), Syndrome::ACK.number()),
        PendingAck::Nak(syndrome) | PendingAck::Fatal(syndrome, _) => (expected, syndrome),
    };
    if let Some(packet) = response(qp, nic, Opcode::Acknowledge, psn, syndrome) {
        nic.send(packet);
    }
    if matches!(ack, PendingAck::Fatal(..)) && qp.hidden.is_some() {
        // The connection ends, not its target.
        return flush::close(qp, nic);
    }
    if let PendingAck::Fatal(_, event) = ack {
        event::post_qp(nic, event, qp.qpn);
        flush::to_error(qp, nic);
    }
}

/// Sends up to `budget` packets of read and atomic responses. Returns true if more are queued.
pub(crate) fn send_replies(qp: &mut Qp, nic: &mut Nic, budget: u32) -> bool {
    for _ in 0..budget {
        if qp.rc.receive.fault.is_some_and(|fault| fault.stops_replies) {
            return false;
        }
        let Some(reply) = qp.rc.receive.replies.front().copied() else { break };
        let left = match reply {
            Reply::Atomic { psn, found } => send_atomic(qp, nic, psn, found),
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

fn send_atomic(qp: &mut Qp, nic: &mut Nic, psn: Psn, found: AtomicResult) -> Option<Reply> {
    let standard = found.quadword();
    let opcode = if standard.is_some() { Opcode::AtomicAcknowledge } else { Opcode::MaskedAcknowledge };
    let mut packet = response(qp, nic, opcode, psn, Syndrome::ACK.number())?;
    match standard {
        Some(quadword) => packet.atomic_ack = quadword,
        None => packet.payload.extend_from_slice(found.bytes()),
    }
    nic.send(packet);
    None
}

/// Whether the response that comes next waits for its pages.
fn waits_for(qp: &mut Qp, nic: &mut Nic, remote: Remote) -> bool {
    let Remote { user, key, address, len, rights, .. } = remote;
    if let Some(fault) = &mut qp.rc.receive.fault
        && nic.absent(user, key, address, len.into(), rights).is_some()
    {
        // A request waits already. Software is told of these pages when it has answered that one.
        fault.stops_replies = true;
        return true;
    }
    page_fault::of_remote(qp, nic, remote, FaultyMemory::Reply)
}

/// The key or its memory became invalid during a response: the NAK has the PSN of its next packet. IBTA 9.7.5.1.3.
pub(super) fn abandon_replies(qp: &mut Qp, nic: &mut Nic) {
    if let Some(reply) = qp.rc.receive.replies.front() {
        qp.rc.receive.expected = reply.psn();
    }
    qp.rc.receive.replies.clear();
    send_fatal_nak(qp, nic, Nak::RemoteOperation);
}

/// Sends one packet of a read response; returns what is left. IBTA 9.7.5.1.3.
fn send_read(qp: &mut Qp, nic: &mut Nic, reply: Reply) -> Option<Reply> {
    let Reply::Read { psn, user, rkey, address, left, is_first, is_again } = reply else { return None };
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
    if len > 0 && !nic.read(user, rkey, address, &mut packet.payload, MkeyRights::REMOTE_READ) {
        nic.scheduler.packets.give_back(packet);
        if waits_for(qp, nic, read_of(user, (rkey, address, left), len)) {
            return Some(reply);
        }
        // A requester that has had the data may invalidate the key before its duplicate request is answered: that is
        // dropped then, as if it had come later.
        if !is_again {
            abandon_replies(qp, nic);
        }
        return None;
    }
    nic.send(packet);
    let next = Reply::Read {
        psn: psn.plus(1),
        user,
        rkey,
        address: address.wrapping_add(u64::from(len)),
        left: left - len,
        is_first: false,
        is_again,
    };
    (!is_last).then_some(next)
}
