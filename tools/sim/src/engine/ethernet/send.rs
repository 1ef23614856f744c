//! Send queues: turns WQEs into frames.

use mlx5_prm::cqe::{Cqe, CqeOpcode, CqeSyndrome};
use mlx5_prm::ctx::QueueState;
use mlx5_prm::layout::Layout;
use mlx5_prm::wqe::{
    CompletionMode, CtrlSeg, DataSeg, EthSeg, InlineSegHeader, SEGMENT, WaitOpmod, WaitSeg, WqeOpcode,
};

use super::aso;
use super::offload::{WrongHeaders, divide, finished};
use crate::engine::charge::charge;
use crate::engine::completion;
use crate::engine::flush::count_posted;
use crate::engine::posted::heeded;
use crate::engine::umr;
use crate::engine::wqe::{self, WqePosition};
use crate::function::{Function, Nic};
use crate::objects::{Consumed, Executed, Failure, Frames, MkeyRights, Pace, Sq, TimeWait};
use crate::strict::rules;

/// Maximum number of send queues that send in one turn.
const TURNS: usize = 64;
/// Maximum number of WQEs that a send queue executes in one turn.
const WQES: usize = 16;
/// Bytes of the inline header that are in the Ethernet segment itself. PRM "Ethernet Segment".
const INLINE_START: usize = 2;
/// `opmod` of a large send that is a multi-packet WQE.
const MULTI_PACKET: u8 = 1;

/// Lets send queues with work send in turn, as long as the port accepts frames.
pub(crate) fn send(f: &mut Function) -> bool {
    let turns = f.nic.scheduler.senders.len().min(TURNS);
    let (queues, nic) = (&mut f.queues, &mut f.nic);
    for _ in 0..turns {
        if !nic.port.can_send() {
            break;
        }
        let Some(sqn) = nic.scheduler.senders.pop_front() else { break };
        let Some(sq) = queues.sqs.get_mut(sqn) else { continue };
        sq.is_listed = false;
        charge(sq, nic, transmit);
        let has_work = sq.pace.is_busy() || sq.fetched != sq.posted;
        if sq.state == QueueState::Rdy && sq.pace.until.is_none() && has_work {
            nic.scheduler.set_sender(sq);
        }
    }
    turns > 0
}

fn transmit(sq: &mut Sq, nic: &mut Nic) {
    for _ in 0..WQES {
        if sq.state != QueueState::Rdy || !nic.port.can_send() || !send_out(sq, nic) || sq.fetched == sq.posted {
            return;
        }
        execute_next(sq, nic);
    }
    send_out(sq, nic);
}

/// Sends the frames of the WQE in execution as the rate limit allows, and completes it after the last. Returns false if
/// some must wait, or the WQE itself does. PRM "Packet Pacing".
fn send_out(sq: &mut Sq, nic: &mut Nic) -> bool {
    if sq.pace.until.is_some_and(|until| until > nic.now) {
        return false;
    }
    if let Some(at) = sq.pace.wait.and_then(|wait| nic.end_of(wait, sq.sqn)) {
        nic.scheduler.set_paced(sq, at);
        return false;
    }
    sq.pace.wait = None;
    let rate = nic.objects.rates.get(sq.context.packet_pacing_rate_limit_index());
    let domain = sq.tis.map_or(0, |tis| tis.domain);
    while let Some(frame) = sq.pace.frames.take() {
        let admitted = rate.map_or(Ok(()), |rate| sq.pace.admit(rate, frame.len() as u64, nic.now));
        if let Err(at) = admitted {
            sq.pace.frames.put_back(frame);
            nic.scheduler.set_paced(sq, at);
            return false;
        }
        nic.send_frame(frame, sq.sqn, domain, sq.pace.frames.metadata);
    }
    if let Some(Executed { index, opcode, completes: Some(solicited) }) = sq.pace.executed.take() {
        let mut cqe = Cqe::ZERO;
        cqe.w()
            .srqn(sq.context.user_index())
            .send_wqe_opcode(opcode)
            .qpn(sq.sqn)
            .wqe_counter(index)
            .opcode(CqeOpcode::Requester);
        sq.consumed.completes(nic, sq.cqn, index);
        completion::write(nic, sq.sqn, sq.cqn, &cqe, solicited);
    }
    true
}

/// Lists send queues whose rate limit, or the time that they wait for, lets them go on.
pub(crate) fn resume(f: &mut Function) -> bool {
    let now = f.nic.now;
    let due: Vec<u32> = f.nic.scheduler.paced.extract_if(.., |(due, _)| *due <= now).map(|(_, sqn)| sqn).collect();
    for sqn in &due {
        if let Some(sq) = f.queues.sqs.get_mut(*sqn) {
            sq.pace.until = None;
            f.nic.scheduler.set_sender(sq);
        }
    }
    !due.is_empty()
}

/// The queue was reset: what it had to send is discarded.
pub(crate) fn reset(sq: &mut Sq, nic: &mut Nic) {
    nic.scheduler.unset_paced(sq);
    (sq.fetched, sq.copied, sq.posted, sq.pace) = (0, None, 0, Pace::default());
    (sq.consumed, sq.posted_in_error) = (Consumed::default(), 0);
}

/// A doorbell named this queue, or may have been lost. As for queue pairs, `end` bounds what it is about.
pub(crate) fn look(sq: &mut Sq, nic: &mut Nic, end: Option<u16>) {
    let before = sq.posted;
    if !refresh(sq, nic, end) {
        return;
    }
    match sq.state {
        QueueState::Rdy => nic.scheduler.set_sender(sq),
        QueueState::Err => {
            let (more, size) = (sq.posted.wrapping_sub(before), 1 << sq.ring.log_size);
            count_posted(nic, sq.posts().queue, "send", &mut sq.posted_in_error, more, size);
            flush(sq, nic);
        }
        _ => nic.strict.report(rules::WRONG_STATE, || format!("SQ {:#x} in reset", sq.sqn)),
    }
}

/// Reads dword 1 of the doorbell record, and heeds it up to `end`. Returns true if there is more than before.
fn refresh(sq: &mut Sq, nic: &Nic, end: Option<u16>) -> bool {
    let Ok(record) = sq.doorbell.read(&nic.dma, 1) else { return false };
    let before = sq.posted;
    sq.posted = heeded(before, record as u16, end);
    if sq.posted == before {
        return false;
    }
    if record > 0xffff && record.swap_bytes() <= 0xffff {
        nic.strict.report(rules::RECORD_LITTLE_ENDIAN, || format!("SQ {:#x}: send counter {record:#x}", sq.sqn));
    }
    let held = sq.posted.wrapping_sub(sq.fetched);
    if u32::from(held) > 1 << sq.ring.log_size {
        let size = 1u32 << sq.ring.log_size;
        nic.strict.report(rules::SEND_OVERRUN, || {
            format!("SQ {:#x}: {held} WQEBBs posted and not fetched, in a ring of {size}", sq.sqn)
        });
    }
    sq.consumed.posted(nic, sq.cqn, sq.posted, 1 << sq.ring.log_size);
    true
}

/// Executes the next WQE.
fn execute_next(sq: &mut Sq, nic: &mut Nic) {
    let index = sq.fetched;
    let place = WqePosition { number: sq.sqn, index, posted: sq.posted.wrapping_sub(index), names_stream: false };
    let (mut bytes, mut blocks) = ([0; 64 * SEGMENT], 1);
    let copied = sq.copied.take();
    let read = wqe::read_wqe(place, &sq.ring, copied.as_ref(), nic, &mut bytes, &mut blocks);
    sq.fetched = index.wrapping_add(blocks);
    let ctrl = CtrlSeg::read(&bytes).unwrap_or_default();
    let (mut frames, mut wait) = (Frames::default(), None);
    let done = read.and_then(|len| match ctrl.opcode() {
        WqeOpcode::Wait => time_wait(sq, nic, &ctrl, &bytes[..len]).map(|time| wait = Some(time)),
        _ => execute(sq, nic, &ctrl, &bytes[..len], &mut frames),
    });
    let done = done.and_then(|()| nic.fault_of(sq.sqn).map_or(Ok(()), Err));
    let opcode = ctrl.opcode().number() as u8;
    match done {
        Ok(()) => {
            let completes = match ctrl.ce() {
                CompletionMode::Always => Some(false),
                CompletionMode::AlwaysAndEvent => Some(true),
                _ => None,
            };
            (sq.pace.frames, sq.pace.wait) = (frames, wait);
            sq.pace.executed = Some(Executed { index, opcode, completes });
        }
        Err(failure) => {
            super::send_failed(nic, sq, index, opcode, failure);
            to_error(sq, nic);
        }
    }
}

/// Moves the queue to the error state.
pub(crate) fn to_error(sq: &mut Sq, nic: &mut Nic) {
    sq.state = QueueState::Err;
    flush(sq, nic);
}

/// Flushes posted WQEs, if the queue was created so.
pub(crate) fn flush(sq: &mut Sq, nic: &mut Nic) {
    nic.scheduler.unset_paced(sq);
    let cut = std::mem::take(&mut sq.pace).executed;
    if !sq.context.flush_in_error_en() {
        return;
    }
    refresh(sq, nic, None);
    if let Some(Executed { index, opcode, .. }) = cut {
        super::send_failed(nic, sq, index, opcode, completion::flushed());
    }
    while sq.fetched != sq.posted {
        let index = sq.fetched;
        let place = WqePosition { number: sq.sqn, index, posted: sq.posted.wrapping_sub(index), names_stream: false };
        let (mut bytes, mut blocks) = ([0; 64 * SEGMENT], 1);
        // Only the length of an invalid WQE matters here.
        let _ = wqe::read_wqe(place, &sq.ring, None, nic, &mut bytes, &mut blocks);
        sq.fetched = index.wrapping_add(blocks);
        let opcode = CtrlSeg::read(&bytes).map_or(0, |ctrl| ctrl.opcode().number() as u8);
        super::send_failed(nic, sq, index, opcode, completion::flushed());
    }
}

const fn bad_operation() -> Failure {
    Failure::new(CqeSyndrome::LocalQpOperation)
}

impl From<WrongHeaders> for Failure {
    fn from(_: WrongHeaders) -> Self {
        bad_operation()
    }
}

/// The time that a WQE waits for. PRM "Wait on Data Segment".
fn time_wait(sq: &Sq, nic: &Nic, ctrl: &CtrlSeg, wqe: &[u8]) -> Result<TimeWait, Failure> {
    let is_announced = nic.firmware.caps.general().wait_on_time();
    let segment = WaitSeg::read(wqe.get(SEGMENT..).unwrap_or_default());
    segment
        .filter(|_| is_announced && WaitOpmod::from_number(ctrl.opmod().into()) == WaitOpmod::Time)
        .and_then(|segment| TimeWait::of(&segment, nic.firmware.real_time.is_borne_by(sq.sqn)))
        .ok_or_else(|| {
            nic.strict.report(rules::WQE_OPCODE, || {
                let reason = "a wait that is not announced (wait_on_time), or that no time ends";
                format!("SQ {:#x}, WQE {:#x}: {reason}: {segment:?}", sq.sqn, sq.fetched)
            });
            bad_operation()
        })
}

/// Executes a WQE; its frames are added to `frames`.
fn execute(sq: &Sq, nic: &mut Nic, ctrl: &CtrlSeg, wqe: &[u8], frames: &mut Frames) -> Result<(), Failure> {
    match ctrl.opcode() {
        WqeOpcode::Nop => Ok(()),
        WqeOpcode::Umr if sq.context.reg_umr() => {
            umr::apply(sq.user(), nic, &umr::parse(ctrl, wqe).ok_or(bad_operation())?)
        }
        WqeOpcode::AccessAso => aso::access(sq, nic, ctrl, wqe),
        WqeOpcode::Send => make_one(sq, nic, wqe, false, frames),
        WqeOpcode::Lso if ctrl.opmod() == MULTI_PACKET => make_equal(sq, nic, wqe, frames),
        WqeOpcode::Lso => make_one(sq, nic, wqe, true, frames),
        // `allow_multi_pkt_send_wqe` is of the older multi-packet WQEs: Linux leaves it clear for these.
        WqeOpcode::EnhancedMpsw if nic.firmware.capabilities().ethernet().enhanced_multi_pkt_send_wqe() => {
            make_several(sq, nic, wqe, frames)
        }
        opcode => {
            nic.strict.report(rules::WQE_OPCODE, || format!("SQ {:#x}, WQE {:#x}: {opcode}", sq.sqn, sq.fetched));
            Err(bad_operation())
        }
    }
}

/// The packet of a WQE; if `is_large`, divided by segmentation.
fn make_one(sq: &Sq, nic: &Nic, wqe: &[u8], is_large: bool, frames: &mut Frames) -> Result<(), Failure> {
    sq.tis.ok_or(bad_operation())?;
    let request = wqe.get(SEGMENT..).unwrap_or_default();
    let eth = EthSeg::read(request).ok_or(bad_operation())?;
    frames.metadata = eth.flow_table_metadata();
    let (header, segments) = inline_header(&eth, request)?;
    let mut frame = header.to_vec();
    gather(sq, nic, segments, &mut frame)?;
    if is_large {
        frames.divide(divide(sq, nic, &eth, frame, header.len())?);
        return Ok(());
    }
    let may_tag = header.is_empty();
    frames.push(finished(sq, nic, &eth, frame, may_tag)?);
    Ok(())
}

/// Multi-packet send, the older form: packets of `mss` bytes each, one after another in the segments. PRM "Multi-Packet
/// Send WQE".
fn make_equal(sq: &Sq, nic: &Nic, wqe: &[u8], frames: &mut Frames) -> Result<(), Failure> {
    sq.tis.ok_or(bad_operation())?;
    let request = wqe.get(SEGMENT..).unwrap_or_default();
    let eth = EthSeg::read(request).ok_or(bad_operation())?;
    frames.metadata = eth.flow_table_metadata();
    let (size, is_allowed) = (usize::from(eth.mss()), sq.context.allow_multi_pkt_send_wqe());
    if !is_allowed || size == 0 || eth.inline_hdr_sz() != 0 && !eth.insert_vlan() {
        nic.strict.report(rules::WQE_OPCODE, || {
            let reason = "allow_multi_pkt_send_wqe, mss and no inlined header are needed";
            format!("SQ {:#x}, WQE {:#x}: a multi-packet WQE; {reason}", sq.sqn, sq.fetched)
        });
        return Err(bad_operation());
    }
    let mut packets = Vec::new();
    gather(sq, nic, request.get(SEGMENT..).unwrap_or_default(), &mut packets)?;
    if !packets.len().is_multiple_of(size) {
        return Err(Failure::new(CqeSyndrome::LocalLength));
    }
    for packet in packets.chunks(size) {
        frames.push(finished(sq, nic, &eth, packet.to_vec(), true)?);
    }
    Ok(())
}

/// Enhanced multi-packet send: each data segment, by pointer or inline, is a packet of its own; the Ethernet segment is
/// that of all. PRM "Enhanced Multi-Packet Send WQE".
fn make_several(sq: &Sq, nic: &Nic, wqe: &[u8], frames: &mut Frames) -> Result<(), Failure> {
    sq.tis.ok_or(bad_operation())?;
    let request = wqe.get(SEGMENT..).unwrap_or_default();
    let eth = EthSeg::read(request).ok_or(bad_operation())?;
    frames.metadata = eth.flow_table_metadata();
    if eth.inline_hdr_sz() != 0 && !eth.insert_vlan() {
        nic.strict.report(rules::WQE_OPCODE, || {
            format!("SQ {:#x}, WQE {:#x}: a multi-packet WQE with an inlined header", sq.sqn, sq.fetched)
        });
        return Err(bad_operation());
    }
    let mut segments = request.get(SEGMENT..).unwrap_or_default();
    while !segments.is_empty() {
        let mut frame = Vec::new();
        segments = gather_next(sq, nic, segments, &mut frame)?;
        frames.push(finished(sq, nic, &eth, frame, true)?);
    }
    Ok(())
}

/// The inline header, and the segments after it.
fn inline_header<'a>(eth: &EthSeg, request: &'a [u8]) -> Result<(&'a [u8], &'a [u8]), Failure> {
    const START: usize = SEGMENT - INLINE_START;
    if eth.insert_vlan() {
        return Ok((&[], &request[SEGMENT..]));
    }
    let len = usize::from(eth.inline_hdr_sz());
    let rest = len.saturating_sub(INLINE_START).next_multiple_of(SEGMENT);
    let segments = request.get(SEGMENT + rest..).ok_or(bad_operation())?;
    Ok((&request[START..START + len], segments))
}

/// Appends the data of the data segments.
fn gather(sq: &Sq, nic: &Nic, mut segments: &[u8], frame: &mut Vec<u8>) -> Result<(), Failure> {
    while !segments.is_empty() {
        segments = gather_next(sq, nic, segments, frame)?;
    }
    Ok(())
}

/// Appends the data of the first data segment; returns the segments after it.
fn gather_next<'a>(sq: &Sq, nic: &Nic, segments: &'a [u8], frame: &mut Vec<u8>) -> Result<&'a [u8], Failure> {
    let header = InlineSegHeader::read(segments).ok_or(bad_operation())?;
    if header.inline() {
        const HEADER: usize = 4;
        let len = usize::from(header.byte_count());
        let data = segments.get(HEADER..HEADER + len).ok_or(bad_operation())?;
        frame.extend_from_slice(data);
        return Ok(segments.get((HEADER + len).next_multiple_of(SEGMENT)..).unwrap_or_default());
    }
    let data = DataSeg::read(segments).ok_or(bad_operation())?;
    let (at, len) = (frame.len(), data.byte_count() as usize);
    // Largest packet for segmentation offload, with headers.
    let most = (1usize << nic.firmware.capabilities().ethernet().max_lso_cap()) + SEGMENT * 64;
    if at + len > most {
        return Err(Failure::new(CqeSyndrome::LocalLength));
    }
    let rights = MkeyRights::LOCAL_READ;
    frame.resize(at + len, 0);
    let allowed = nic.allows(sq.user(), data.lkey(), data.addr(), len as u64, rights);
    if !allowed || !nic.read(sq.user(), data.lkey(), data.addr(), &mut frame[at..], rights) {
        return Err(Failure::new(CqeSyndrome::LocalProtection));
    }
    Ok(&segments[SEGMENT..])
}
