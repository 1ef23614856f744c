//! Completion queues. PRM "Completion Queue Context".

use mlx5_prm::cqe::{Cqe, MiniCqeFormat};

use super::{Doorbell, PageList};

/// What a completion queue is armed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArmState {
    /// Not armed, or an event was sent since.
    Fired,
    /// The next completion.
    Next,
    /// The next solicited or error completion.
    Solicited,
}

/// PRM `cqc.status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CqStatus {
    /// No error.
    Ok,
    /// A completion arrived while the queue was full.
    Overflow,
    /// Its memory could not be written.
    WriteFailure,
}

/// State of the completion writer: what it has read from the doorbell record.
#[derive(Debug, Clone, Copy, Default)]
pub struct CqSeen {
    /// The consumer index last read from the doorbell record, 24 bits.
    pub consumer: u32,
    /// An invalid record that was already reported.
    pub bad_record: u32,
    /// Producer index after the last solicited completion.
    pub solicited: u32,
    /// Sequence number of the arm request that caused the last event.
    pub fired_sn: Option<u8>,
    /// The last arm request.
    pub arm: Option<u32>,
    /// Completions since the last event, held back by moderation.
    pub held: u16,
    /// When moderation sends the event.
    pub due: Option<std::time::Instant>,
    /// Time of the last event.
    pub last_event: Option<std::time::Instant>,
}

/// Compression of a completion queue's receives. PRM "Compressed CQEs".
#[derive(Debug)]
pub(crate) struct Compression {
    /// Form of its mini CQEs.
    pub format: MiniCqeFormat,
    /// Completions that are not written yet.
    pub held: Vec<Cqe>,
    /// The queue that they are of.
    pub number: u32,
}

/// A completion queue.
#[derive(Debug)]
pub struct Cq {
    /// The ring.
    pub ring: PageList,
    /// log2 of its entries.
    pub log_size: u32,
    /// Entry size in bytes: 64 or 128.
    pub cqe_size: u32,
    /// EQ of its completion events.
    pub eqn: u32,
    /// UAR page whose CQ doorbell arms it.
    pub uar: u32,
    /// Dword 0: consumer index. Dword 1: arm request.
    pub doorbell: Doorbell,
    /// Overrun is ignored (`oi`).
    pub ignore_overrun: bool,
    /// All completions go to entry 0 (`cc`).
    pub collapsed: bool,
    /// Completions written so far.
    pub producer: u32,
    /// How many were written when the ring was new.
    pub began: u32,
    /// Whether the ring took the place of another (RESIZE_CQ).
    pub resized: bool,
    /// Error state.
    pub status: CqStatus,
    /// What it is armed for.
    pub arm: ArmState,
    /// Sequence number of the last arm request, 2 bits.
    pub arm_sn: u8,
    /// State of the completion writer.
    pub seen: CqSeen,
    /// Its compression, if it was created so.
    pub(crate) compression: Option<Compression>,
    /// Queue pairs that name it.
    pub users: u32,
    /// The umem its ring lies in.
    pub umem: Option<u32>,
    /// The umem its doorbell record lies in.
    pub doorbell_umem: Option<u32>,
    /// The context as it was given, for `QUERY_CQ`.
    pub context: mlx5_prm::ctx::Cqc,
}

impl Cq {
    /// Consumer and producer indices as software sees them have these bits.
    pub const INDEX: u32 = 0xff_ffff;

    /// The bits of a consumer index that tell a full ring from an empty one. DPDK's send queues publish 16 bits only,
    /// and real cards bear it; a ring of more entries takes more.
    pub fn compared(&self) -> u32 {
        ((1 << (self.log_size + 1).max(16)) - 1) & Self::INDEX
    }

    /// Entries written that software has not consumed by the index `consumer`.
    pub fn unread_by(&self, consumer: u32) -> u32 {
        self.producer.wrapping_sub(consumer) & self.compared()
    }
}
