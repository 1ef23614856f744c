//! Completion queues.

use super::{Doorbell, PageList};

/// Whether a completion queue wants an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArmState {
    /// Not armed, or fired since.
    Fired,
    /// Any completion.
    Next,
    /// A solicited completion, or an error.
    Solicited,
}

/// PRM `cqc.status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CqStatus {
    /// Well.
    Ok,
    /// Full when a completion came.
    Overflow,
    /// Its memory could not be written.
    WriteFailure,
}

/// What the completion writer remembers of what software wrote to the doorbell record.
#[derive(Debug, Clone, Copy, Default)]
pub struct CqSeen {
    /// The consumer index last read from the doorbell record, 24 bits.
    pub consumer: u32,
    /// A record that made no sense and has been reported.
    pub bad_record: u32,
    /// Completions written when the last solicited one was.
    pub solicited: u32,
    /// Sequence number of the arm request that the last event answered.
    pub fired_sn: Option<u8>,
    /// The arm request last looked at.
    pub arm: Option<u32>,
    /// Completions since the last event that moderation holds back.
    pub held: u16,
    /// When it lets them go.
    pub due: Option<std::time::Instant>,
    /// When the last event was.
    pub last_event: Option<std::time::Instant>,
}

/// A completion queue.
#[derive(Debug)]
pub struct Cq {
    /// The ring.
    pub ring: PageList,
    /// log2 of its entries.
    pub log_size: u32,
    /// Bytes an entry: 64 or 128.
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
    /// Well or not.
    pub status: CqStatus,
    /// Whether it wants an event.
    pub arm: ArmState,
    /// Sequence number of the last arm request seen, 2 bits.
    pub arm_sn: u8,
    /// What the completion writer remembers; starts as default.
    pub seen: CqSeen,
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
}
