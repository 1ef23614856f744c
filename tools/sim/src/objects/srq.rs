//! Shared receive queues: `SRQ`, `RMP` and `XRC_SRQ`, which share one number space.
//! PRM "Shared Receive Queue"; IBTA 10.2.9.

use super::{Doorbell, RecvRing};

/// A receive queue shared by many queue pairs.
#[derive(Debug)]
pub struct Srq {
    /// Its number.
    pub srqn: u32,
    /// Protection domain of its receives' keys.
    pub pd: u32,
    /// Additional fields of an XRC shared receive queue.
    pub xrc: Option<XrcSrq>,
    /// The ring of WQEs.
    pub ring: RecvRing,
    /// Dword 0: receives posted.
    pub doorbell: Doorbell,
    /// The umem its ring lies in.
    pub umem: Option<u32>,
    /// The umem its doorbell record lies in.
    pub doorbell_umem: Option<u32>,
    /// Receives posted, by the doorbell record when last read.
    pub posted: u16,
    /// Receives consumed.
    pub taken: u16,
    /// Ring position of the next WQE.
    pub next: u16,
    /// WQEs are taken in the order of the ring, whatever their links say.
    pub is_cyclic: bool,
    /// Limit event threshold (`lwm`): sent when fewer receives are left; 0: not armed.
    pub limit: u16,
    /// Queue pairs that name it.
    pub users: u32,
}

/// Additional fields of an XRC shared receive queue.
#[derive(Debug, Clone, Copy)]
pub struct XrcSrq {
    /// XRC domain; must equal that of the queue pair.
    pub xrcd: u32,
    /// CQ of its receives.
    pub cqn: u32,
    /// `user_index` of its completions; `None`: that of the queue pair.
    pub user_index: Option<u32>,
}
