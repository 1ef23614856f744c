//! Connections: PSNs, acknowledgements, retries. An unreliable connection is the same without the answers: what was sent
//! is done with, and what comes out of order is dropped with the rest of its message.
//!
//! [`RcState`] is what one queue pair remembers. The requester turns its work requests into packets and the answers into
//! completions; the responder does what the remote requester asks. Both are bounded in what they do at a time; the
//! scheduler of [`crate::engine`] calls them in turn.
//!
//! Losses are repaired by going back: after a timeout, a sequence error or a gap in a read's response, the requester
//! starts anew at the oldest packet that was not acknowledged.

pub(crate) mod requester;
pub(crate) mod responder;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::Psn;
use super::packet::Route;
use crate::engine::consumed::Consumed;
use crate::engine::held::HeldByQueue;
use crate::engine::{ReceiveWork, Rest, SendWork, rules};
use crate::objects::Qp;

/// What the transport keeps for one queue pair. Reset with it.
#[derive(Debug, Default)]
pub struct RcState {
    /// The sending side.
    pub(crate) send: Requester,
    /// The receiving side.
    pub(crate) receive: Responder,
    /// In the scheduler's list.
    pub(crate) is_ready: bool,
    /// In the list of those that owe an acknowledgement.
    pub(crate) is_acking: bool,
    /// In the list of those with a timer.
    pub(crate) is_timed: bool,
    /// Something was posted in a wrong state, and reported.
    pub(crate) was_reported: bool,
}

/// The sending side of a queue pair.
#[derive(Debug, Default)]
pub(crate) struct Requester {
    /// WQEBBs posted, as the doorbell record said when last looked at.
    pub posted: u16,
    /// WQEBBs fetched: the next WQE's place.
    pub fetched: u16,
    /// Work fetched and not completed, oldest first.
    pub work: VecDeque<SendWork>,
    /// Completed work, whose buffers serve again.
    pub spare: Vec<SendWork>,
    /// Which completions software has seen, in strict mode.
    pub consumed: Consumed,
    /// WQEBBs flushed that were posted in the error state.
    pub posted_in_error: u32,
    /// Which of `work` is being sent.
    pub cursor: usize,
    /// The PSN that the next fetched work begins with.
    pub assigned: Psn,
    /// The next PSN to send.
    pub next: Psn,
    /// One after the last PSN ever sent.
    pub sent: Psn,
    /// The oldest PSN that was not acknowledged.
    pub unacked: Psn,
    /// Reads and atomics under way.
    pub reads: u32,
    /// Timeouts and sequence errors since the last progress.
    pub retries: u8,
    /// RNR NAKs since the last progress.
    pub rnr_retries: u8,
    /// Going through packets again: an acknowledgement is asked for more often.
    pub is_repeating: bool,
    /// Went back for a gap in a response at this PSN already.
    pub gap: Option<Psn>,
    /// When the oldest packet counts as lost.
    pub deadline: Option<Instant>,
    /// Nothing may be sent before then: the responder was not ready.
    pub pause: Option<Instant>,
}

/// The receiving side of a queue pair.
#[derive(Debug, Default)]
pub(crate) struct Responder {
    /// Receives posted, as the doorbell record said when last looked at.
    pub posted: u16,
    /// Receives fetched.
    pub fetched: u16,
    /// Which completions software has seen, in strict mode.
    pub consumed: Consumed,
    /// Its buffers that are the card's.
    pub held: HeldByQueue,
    /// Receives flushed that were posted in the error state.
    pub posted_in_error: u32,
    /// The next PSN.
    pub expected: Psn,
    /// Messages completed.
    pub msn: u32,
    /// The message of which some packets have come.
    pub message: Option<Message>,
    /// The receive that the message under way fills.
    pub work: Option<ReceiveWork>,
    /// Its buffers, to serve again.
    pub spare: Option<ReceiveWork>,
    /// A NAK was sent for the gap in front of `expected`.
    pub is_waiting: bool,
    /// Answers to reads and atomics, in order.
    pub replies: VecDeque<Reply>,
    /// What is to be acknowledged when all replies are out.
    pub answer: Option<Answer>,
    /// Results of atomics, by PSN, for repeated requests.
    pub atomics: VecDeque<(Psn, u64)>,
}

/// A message of several packets under way.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Message {
    Send { done: u32 },
    Write { rkey: u32, address: u64, len: u32, done: u32 },
}

/// An answer with data.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reply {
    Read { psn: Psn, rkey: u32, address: u64, left: u32, is_first: bool },
    Atomic { psn: Psn, value: u64 },
}

impl Reply {
    pub fn psn(&self) -> Psn {
        match self {
            Reply::Read { psn, .. } | Reply::Atomic { psn, .. } => *psn,
        }
    }
}

/// An acknowledgement to be sent.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Answer {
    /// All before `expected`.
    Ack,
    /// Not this one: AETH syndrome.
    Nak(u8),
    /// Not this one, and the queue pair is in error afterwards, with this event.
    Fatal(u8, mlx5_prm::eqe::EventType),
}

/// Payload bytes of a full packet.
pub(crate) fn mtu(qp: &Qp) -> u32 {
    qp.mtu.bytes().unwrap_or(256)
}

/// Packets of a message of `len` bytes: one at least.
pub(crate) fn packets(len: u32, mtu: u32) -> u32 {
    len.div_ceil(mtu).max(1)
}

/// Bytes of the longest message that the queue pair sends or takes, by its context. Never so many that the PSNs of one
/// message go half around the circle, where earlier and later cannot be told apart.
pub(crate) fn longest(qp: &Qp) -> u64 {
    const MOST: u64 = 1 << 31;
    let by_psn = u64::from(Psn::MASK >> 1) * u64::from(mtu(qp));
    (1u64 << qp.context.log_msg_max()).min(MOST).min(by_psn)
}

/// Where the queue pair's packets go. `None` if its GID index is empty: they go nowhere.
pub(crate) fn route(qp: &Qp, rest: &Rest) -> Option<Route> {
    let path = &qp.path;
    let Some(source) = rest.gids.get(u16::from(path.src_addr_index)) else {
        rest.strict.report(rules::EMPTY_GID, || format!("QP {:#x}: GID index {}", qp.qpn, path.src_addr_index));
        return None;
    };
    Some(Route {
        dst_mac: path.rmac,
        src_mac: source.mac,
        src: source.gid,
        dst: path.rgid,
        // A card without a port of the connection's own takes one from the dynamic range.
        sport: if path.udp_sport == 0 { 0xc000 | qp.qpn as u16 & 0x3fff } else { path.udp_sport },
        hop_limit: path.hop_limit,
        tclass: path.tclass,
        flow_label: path.flow_label,
        tag: source.vlan.map(|vlan| u16::from(path.eth_prio & 7) << 13 | vlan),
    })
}

/// How long the responder wants the requester to wait, by RNR NAK timer code.
pub(crate) fn rnr_delay(code: u8) -> Duration {
    const HUNDREDTHS_OF_MS: [u32; 32] = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
        4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];
    Duration::from_micros(u64::from(HUNDREDTHS_OF_MS[usize::from(code & 31)]) * 10)
}

/// How long an acknowledgement may take; `None`: for ever.
pub(crate) fn ack_timeout(qp: &Qp) -> Option<Duration> {
    let code = u32::from(qp.path.ack_timeout & 31);
    (code != 0).then(|| Duration::from_nanos(4096u64 << code))
}
