//! Ethernet queues, and what leads to them: TIS, SQ; TIR, RQT, RQ.

use mlx5_prm::ctx::{QueueState, Rqc, Rqtc, Sqc, Tirc, Tisc};

use super::{Doorbell, RecvRing, SendRing};
use crate::steering::hash::Hashing;

/// A transport interface for sending.
#[derive(Debug)]
pub struct Tis {
    /// Its transport domain.
    pub transport_domain: u32,
    /// Send queues that name it.
    pub users: u32,
    /// The context as it was given.
    pub context: Tisc,
}

/// What a TIR leads to.
#[derive(Debug, Clone, Copy)]
pub enum Dispatch {
    /// One receive queue.
    Direct(u32),
    /// One of a table, by hash.
    Indirect(u32, Hashing),
}

/// A transport interface for receiving.
#[derive(Debug)]
pub struct Tir {
    /// What it leads to.
    pub dispatch: Dispatch,
    /// Its transport domain.
    pub transport_domain: u32,
    /// Whether it takes unicast frames, and multicast frames, that send queues of its own transport domain sent.
    pub takes_own: (bool, bool),
    /// The context as it was given.
    pub context: Tirc,
}

/// A table of receive queues.
#[derive(Debug)]
pub struct Rqt {
    /// `rqn` of each.
    pub rqs: Vec<u32>,
    /// Entries it may grow to.
    pub max_size: u16,
    /// The context as it was given.
    pub context: Rqtc,
}

/// The TIS of a send queue.
#[derive(Debug, Clone, Copy)]
pub struct SendsThrough {
    /// Its number.
    pub tisn: u32,
    /// Its transport domain.
    pub domain: u32,
}

/// A send queue of Ethernet frames.
#[derive(Debug)]
pub struct Sq {
    /// Its number. No queue pair has the same: a doorbell names one or the other.
    pub sqn: u32,
    /// Where it is in its life.
    pub state: QueueState,
    /// Its ring.
    pub ring: SendRing,
    /// Dword 1: WQEBBs posted.
    pub doorbell: Doorbell,
    /// CQ of its completions.
    pub cqn: u32,
    /// Protection domain of its keys.
    pub pd: u32,
    /// UAR page of its doorbell.
    pub uar: u32,
    /// What it sends through; `None` for one that sends no frames.
    pub tis: Option<SendsThrough>,
    /// WQEBBs fetched.
    pub fetched: u16,
    /// WQEBBs known to be posted.
    pub posted: u16,
    /// It is in the list of queues with work.
    pub is_listed: bool,
    /// The umem its ring lies in.
    pub umem: Option<u32>,
    /// The umem its doorbell record lies in.
    pub doorbell_umem: Option<u32>,
    /// The context as it was given, `state` as it is.
    pub context: Sqc,
}

/// A receive queue of Ethernet frames.
#[derive(Debug)]
pub struct Rq {
    /// Its number.
    pub rqn: u32,
    /// Where it is in its life.
    pub state: QueueState,
    /// Its ring.
    pub ring: RecvRing,
    /// Dword 0: receives posted.
    pub doorbell: Doorbell,
    /// CQ of its completions.
    pub cqn: u32,
    /// Protection domain of its keys; 0 for a queue that nothing is ever posted to.
    pub pd: u32,
    /// Number software wants in completions.
    pub user_index: u32,
    /// Queue counter, 0 for none.
    pub counter_set_id: u8,
    /// C-VLAN tags are taken off and told in the completion.
    pub strips_vlan: bool,
    /// WQEs fetched.
    pub fetched: u16,
    /// WQEs known to be posted.
    pub posted: u16,
    /// The umem its ring lies in.
    pub umem: Option<u32>,
    /// The umem its doorbell record lies in.
    pub doorbell_umem: Option<u32>,
    /// The context as it was given, `state` as it is.
    pub context: Rqc,
}
