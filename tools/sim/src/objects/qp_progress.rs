//! How far a queue pair has come: PSNs, ring positions, retries, answers that are due. Reset with the queue pair.

use std::collections::VecDeque;
use std::time::Instant;

use super::work::{ReceiveWork, SendWork};
use crate::transport::Psn;

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

/// Buffers that software gave to one receive queue and has not got back, oldest first.
#[derive(Debug, Default)]
pub(crate) struct HeldByQueue {
    /// The first place not looked at yet.
    pub next: u16,
    pub buffers: VecDeque<(u16, Buffer)>,
}

/// Key, address and bytes of a posted receive buffer.
pub(crate) type Buffer = (u32, u64, u32);

/// The completions of one ring's WQEs that are still in their places.
#[derive(Debug, Default)]
pub(crate) struct Consumed {
    /// Each WQE's place, counted from the first posted, and its completion's number.
    pub completions: VecDeque<(u16, u32)>,
    /// Said once.
    pub is_reported: bool,
}
