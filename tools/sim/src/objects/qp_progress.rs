//! Transport state of a queue pair: PSNs, ring positions, retry counters, pending responses. Reset with the queue pair.
//! IBTA 9.7.

use std::collections::VecDeque;
use std::fmt;
use std::time::Instant;

use super::QueueName;
use super::copied::CopiedWqe;
use super::mkey::User;
use super::streams::Streams;
use super::work::{Datagram, Failure, ReceiveWork, SendWork};
use crate::transport::Psn;

/// Transport state of one queue pair. Reset with it.
#[derive(Debug, Default)]
pub struct RcState {
    /// The sending side.
    pub(crate) send: Requester,
    /// The receiving side.
    pub(crate) receive: Responder,
    /// In the scheduler's ready list.
    pub(crate) is_ready: bool,
    /// In the list of queue pairs with a pending acknowledgement.
    pub(crate) is_acking: bool,
    /// In the list of queue pairs with a timer.
    pub(crate) is_timed: bool,
    /// Posting in a wrong state was already reported.
    pub(crate) was_reported: bool,
}

/// The sending side of a queue pair.
#[derive(Debug, Default)]
pub(crate) struct Requester {
    /// WQEBBs posted, by the doorbell record when last read.
    pub posted: u16,
    /// WQEBBs fetched: the position of the next WQE.
    pub fetched: u16,
    /// The next WQE, if it came with its doorbell.
    pub copied: Option<CopiedWqe>,
    /// Work fetched and not completed, oldest first.
    pub work: VecDeque<SendWork>,
    /// Completed work, kept so that its buffers are reused.
    pub spare: Vec<SendWork>,
    /// Strict mode: the WQE fetched last changes a key, and the next was posted before that was known to be done.
    pub needs_key_fence: bool,
    /// Strict mode: completions that software has consumed.
    pub consumed: Consumed,
    /// WQEBBs flushed that were posted in the error state.
    pub posted_in_error: u32,
    /// Index into `work` of the request being sent.
    pub cursor: usize,
    /// First PSN of the next WQE to fetch.
    pub assigned: Psn,
    /// The next PSN to send.
    pub next: Psn,
    /// One after the last PSN ever sent.
    pub sent: Psn,
    /// The oldest unacknowledged PSN.
    pub unacked: Psn,
    /// Outstanding reads and atomics.
    pub reads: u32,
    /// Retries since the last acknowledged PSN: timeouts and sequence errors.
    pub retries: u8,
    /// RNR NAKs since the last acknowledged PSN.
    pub rnr_retries: u8,
    /// Retransmitting: acknowledgements are requested more often.
    pub is_retransmitting: bool,
    /// PSN of the last response gap that caused a retransmission.
    pub gap: Option<Psn>,
    /// When the ACK timeout expires.
    pub deadline: Option<Instant>,
    /// RNR delay: nothing is sent before this time.
    pub pause: Option<Instant>,
    /// The page fault that it waits for.
    pub fault: Option<SendFault>,
    /// Of a dynamically connected initiator: its connection.
    pub target: Option<Connection>,
    /// Of one with streams: these. Its work requests are in their hands, not in `work`.
    pub streams: Option<Box<Streams>>,
    /// Of a channel of streams: work requests that ended, oldest first, and why they failed.
    pub ended: Vec<(SendWork, Option<Failure>)>,
}

impl Requester {
    /// Index of the oldest WQE that is not complete.
    pub fn oldest(&self) -> u16 {
        let streamed = self.streams.as_ref().and_then(|streams| streams.work.front()).map(|work| work.index);
        streamed.or(self.work.front().map(|work| work.index)).unwrap_or(self.fetched)
    }
}

/// The connection of a dynamically connected initiator.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Connection {
    pub target: Datagram,
    pub stream: u16,
    pub number: u32,
    /// PSN of its first request.
    pub first: Psn,
    /// Its handshake is acknowledged, or it has none.
    pub is_open: bool,
}

/// A page fault of the sending side.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SendFault {
    pub token: u32,
    /// `wqe_index` of the work request.
    pub index: u16,
    /// A response found no pages and was dropped: it must be asked for again.
    pub lost_response: bool,
}

/// A page fault of the receiving side.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReceiveFault {
    pub token: u32,
    pub memory: FaultyMemory,
    /// The oldest of the replies waits, too.
    pub stops_replies: bool,
}

/// Whose memory the receiving side found absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultyMemory {
    /// That of a receive.
    Receive,
    /// That of a remote write, read or atomic.
    Remote,
    /// That of a read whose response is being sent.
    Reply,
}

/// The receiving side of a queue pair.
#[derive(Debug, Default)]
pub(crate) struct Responder {
    /// Receives posted, by the doorbell record when last read.
    pub posted: u16,
    /// Receives fetched.
    pub fetched: u16,
    /// Strict mode: completions that software has consumed.
    pub consumed: Consumed,
    /// Receive buffers owned by the card.
    pub held: HeldByQueue,
    /// Receives flushed that were posted in the error state.
    pub posted_in_error: u32,
    /// Of a target's connection: its number.
    pub connection: Option<u32>,
    /// It opened by a handshake.
    pub had_handshake: bool,
    /// Which of its target's requests was its last.
    pub heard: u64,
    /// The expected PSN (ePSN).
    pub expected: Psn,
    /// Message sequence number: messages completed.
    pub msn: u32,
    /// The message in progress, if it has several packets.
    pub message: Option<Message>,
    /// The receive WQE that the message in progress fills.
    pub work: Option<ReceiveWork>,
    /// Completed receive, kept so that its buffers are reused.
    pub spare: Option<ReceiveWork>,
    /// A NAK for the expected PSN was sent.
    pub is_waiting: bool,
    /// The page fault that it waits for.
    pub fault: Option<ReceiveFault>,
    /// Read and atomic responses, in order.
    pub replies: VecDeque<Reply>,
    /// Acknowledgement to send after all `replies`.
    pub pending_ack: Option<PendingAck>,
    /// Results of atomics by PSN, for duplicate requests.
    pub atomics: VecDeque<(Psn, AtomicResult)>,
}

/// A message of several packets in progress.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Message {
    Send { done: u32 },
    Write { rkey: u32, address: u64, len: u32, done: u32 },
}

/// A response with payload.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reply {
    /// `is_again`: to a duplicate request.
    Read {
        psn: Psn,
        user: User,
        rkey: u32,
        address: u64,
        left: u32,
        is_first: bool,
        is_again: bool,
    },
    Atomic {
        psn: Psn,
        found: AtomicResult,
    },
}

/// What an atomic found in memory: big-endian numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AtomicResult {
    bytes: [u8; Self::LONGEST],
    len: u8,
}

impl AtomicResult {
    /// Bytes of the longest atomic.
    pub const LONGEST: usize = 32;

    /// Of these bytes, at most [`LONGEST`](Self::LONGEST).
    pub fn new(found: &[u8]) -> Self {
        let len = found.len().min(Self::LONGEST);
        let mut bytes = [0; Self::LONGEST];
        bytes[..len].copy_from_slice(&found[..len]);
        AtomicResult { bytes, len: len as u8 }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..usize::from(self.len)]
    }

    /// The number, of a result of eight bytes: the payload of a standard response.
    pub fn quadword(&self) -> Option<u64> {
        self.bytes().try_into().ok().map(u64::from_be_bytes)
    }
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
pub(crate) enum PendingAck {
    /// ACK for all PSNs before `expected`.
    Ack,
    /// NAK for `expected`: AETH syndrome.
    Nak(u8),
    /// The same; then the queue pair moves to the error state, with this event.
    Fatal(u8, mlx5_prm::eqe::EventType),
}

/// Buffers posted to one receive queue and not completed yet, oldest first.
#[derive(Debug, Default)]
pub(crate) struct HeldByQueue {
    /// The next WQE to look at.
    pub next: u16,
    pub buffers: VecDeque<(u16, Buffer)>,
}

/// Who holds a receive buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Holder {
    pub queue: QueueName,
    /// `wqe_index` of the receive.
    pub place: u16,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, WQE {:#x}", self.queue, self.place)
    }
}

/// Key, address and bytes of a posted receive buffer.
pub(crate) type Buffer = (u32, u64, u32);

/// Completions of WQEs whose ring entries have not been reused.
#[derive(Debug, Default)]
pub(crate) struct Consumed {
    /// Each WQE's position, counted from the first posted, and the number of its completion.
    pub completions: VecDeque<(u16, u32)>,
    /// Already reported.
    pub is_reported: bool,
}
