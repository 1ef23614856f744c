//! Large receive offload: TCP segments of a flow that follow each other become one packet in memory. PRM "Large Receive
//! Offload".
//!
//! A receive queue joins segments of one flow at a time. The packet has the headers of its first segment, as they were:
//! the completion says what software has to put there. Any other packet for the queue ends it, as does a segment that
//! is not next in sequence, one that leaves no room for another, TCP's push flag, and the timer.

use mlx5_prm::cqe::Cqe;
use mlx5_prm::ctx::QueueState;
use mlx5_prm::layout::Layout;
use mlx5_prm::wqe::{DataSeg, LKEY_INVALID, SEGMENT};

use super::buffers::complete;
use super::position::{BYTE_COUNT, has_receive};
use crate::engine::charge::charge;
use crate::ethernet::{Headers, Segment, checksum};
use crate::function::{Function, Nic};
use crate::objects::{Joined, Lro, RecvRing, Rq};
use crate::strict::rules;

impl Lro {
    /// The segment in a frame, if this TIR joins such.
    pub(super) fn segment(&self, frame: &[u8], headers: &Headers) -> Option<Segment> {
        let (joins_v4, joins_v6) = self.joins;
        Segment::of(frame, headers).filter(
            |segment| if segment.is_v4() { joins_v4 } else { joins_v6 } && segment.data.len() >= self.least_data,
        )
    }
}

impl Joined {
    /// Whether the segment can be joined to those.
    fn takes(&self, cqe: &Cqe, lro: &Lro, segment: &Segment) -> bool {
        self.last.precedes(segment)
            && self.frame.len() + segment.data.len() <= self.longest
            && (self.cqe.qpn(), self.lro) == (cqe.qpn(), *lro)
    }

    fn add(&mut self, frame: &[u8], segment: Segment) {
        self.frame.extend_from_slice(&frame[segment.data.clone()]);
        self.segments += 1;
        self.is_pushed |= segment.is_pushed;
        self.least_ttl = self.least_ttl.min(segment.ttl);
        self.last = segment;
    }

    /// Whether nothing more can be joined to it.
    fn is_done(&self) -> bool {
        self.is_pushed || self.segments == u8::MAX || self.frame.len() + self.lro.least_data > self.longest
    }

    /// The completion: what of the last segment differs from the first one's headers.
    fn completion(&self) -> Cqe {
        let mut cqe = self.cqe;
        if self.segments < 2 {
            return cqe;
        }
        cqe.w()
            .lro_num_seg(self.segments)
            .lro_tcppsh(self.is_pushed)
            .lro_min_ttl(self.least_ttl)
            .lro_ack_seq_num(self.last.ack)
            .lro_tcp_win(self.last.window)
            .check_sum(checksum::of_data(&self.frame[self.data_at..]));
        if let Some((value, echo)) = self.last.timestamp {
            cqe.w().lro_timestamp_valid(true).timestamp(u64::from(value) << 32 | u64::from(echo));
        }
        cqe
    }
}

/// Takes a frame with its completion, and as a segment that can be joined, if it is one.
pub(super) fn take(rq: &mut Rq, nic: &mut Nic, frame: Vec<u8>, cqe: &Cqe, segment: Option<(Lro, Segment)>) {
    if let Some(joined) = &mut rq.joined {
        if let Some((lro, segment)) = &segment
            && joined.takes(cqe, lro, segment)
        {
            joined.add(&frame, segment.clone());
            if joined.is_done() {
                end(rq, nic);
            }
            return;
        }
        end(rq, nic);
        if rq.state != QueueState::Rdy {
            return;
        }
    }
    match segment {
        Some((lro, segment)) if !segment.is_pushed && has_receive(rq, nic) => begin(rq, nic, frame, cqe, lro, segment),
        _ => complete(rq, nic, &frame, cqe),
    }
}

/// Keeps the first segment of a packet, if there is room for another.
fn begin(rq: &mut Rq, nic: &mut Nic, frame: Vec<u8>, cqe: &Cqe, lro: Lro, first: Segment) {
    let mut longest = first.tcp_at + lro.largest;
    match &rq.striding {
        // A packet is in one WQE.
        Some(striding) => longest = longest.min(striding.room(frame.len())),
        None => check_room(rq, nic, longest),
    }
    let joined = Joined {
        cqe: *cqe,
        data_at: first.data.start,
        segments: 1,
        is_pushed: false,
        least_ttl: first.ttl,
        last: first,
        frame,
        longest,
        lro,
    };
    if joined.is_done() {
        return complete(rq, nic, &joined.frame, &joined.cqe);
    }
    nic.scheduler.joining.push((nic.now + lro.patience, rq.rqn));
    rq.joined = Some(Box::new(joined));
}

/// Writes what was joined, and completes it.
fn end(rq: &mut Rq, nic: &mut Nic) {
    let Some(joined) = rq.joined.take() else { return };
    nic.scheduler.unset_joining(rq.rqn);
    complete(rq, nic, &joined.frame, &joined.completion());
}

/// Ends what has waited for its time. Returns true if there was any.
pub(crate) fn end_late(f: &mut Function) -> bool {
    let (queues, nic) = (&mut f.queues, &mut f.nic);
    let now = nic.now;
    let due: Vec<u32> = nic.scheduler.joining.extract_if(.., |(due, _)| *due <= now).map(|(_, rqn)| rqn).collect();
    for rqn in &due {
        if let Some(rq) = queues.rqs.get_mut(*rqn) {
            charge(rq, nic, end);
        }
    }
    !due.is_empty()
}

/// Strict mode: the next WQE of a queue without strides has room for the largest packet that may be joined.
fn check_room(rq: &Rq, nic: &Nic, longest: usize) {
    if !nic.strict.is_on() {
        return;
    }
    let mut room = [0; RecvRing::LONGEST];
    let wqe = rq.ring.read(&nic.dma, rq.fetched, &mut room).unwrap_or_default();
    let segments = wqe.chunks_exact(SEGMENT).map_while(DataSeg::read);
    let used = segments.take_while(|data| data.lkey() != LKEY_INVALID);
    let bytes: usize = used.map(|data| (data.byte_count() & BYTE_COUNT) as usize).sum();
    if bytes < longest {
        nic.strict.report(rules::LRO_ROOM, || {
            format!("RQ {:#x}, WQE {:#x}: {bytes:#x} bytes, joined segments may have {longest:#x}", rq.rqn, rq.fetched)
        });
    }
}
