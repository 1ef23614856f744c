//! Shared receive queues: `SRQ`, `RMP` and `XRC_SRQ` alike, which have one space of numbers.

use super::{Doorbell, RecvRing};

/// A receive queue that many queue pairs take from.
#[derive(Debug)]
pub struct Srq {
    /// Its number.
    pub srqn: u32,
    /// Protection domain in which its receives' keys are looked up.
    pub pd: u32,
    /// What an XRC shared receive queue has beside.
    pub xrc: Option<XrcSrq>,
    /// The ring of linked WQEs.
    pub ring: RecvRing,
    /// Dword 0: receives posted.
    pub doorbell: Doorbell,
    /// The umem its ring lies in.
    pub umem: Option<u32>,
    /// The umem its doorbell record lies in.
    pub doorbell_umem: Option<u32>,
    /// Receives posted, as the doorbell record said when last looked at.
    pub posted: u16,
    /// Receives taken.
    pub taken: u16,
    /// Place of the next WQE.
    pub next: u16,
    /// Its limit event comes when fewer receives than this are left (`lwm`); 0 for none.
    pub limit: u16,
    /// Queue pairs that name it.
    pub users: u32,
}

/// What messages to an XRC shared receive queue need to know.
#[derive(Debug, Clone, Copy)]
pub struct XrcSrq {
    /// Domain that the queue pair must be of too.
    pub xrcd: u32,
    /// CQ of its receives.
    pub cqn: u32,
    /// Number software wants in completions; `None`: the queue pair's own.
    pub user_index: Option<u32>,
}
