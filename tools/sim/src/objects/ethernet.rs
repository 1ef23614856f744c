//! Ethernet queues and the objects that lead to them: TIS and SQ; TIR, RQT and RQ.

use std::time::Duration;

use mlx5_prm::cqe::Cqe;
use mlx5_prm::ctx::{QueueState, Rqc, Rqtc, Sqc, Tirc, Tisc};

use super::{Consumed, CopiedWqe, Doorbell, HeldByQueue, Pace, Piece, RecvRing, SendRing};
use crate::dma::Traffic;
use crate::ethernet::Segment;
use crate::steering::hash::Hashing;

/// A transport interface send. PRM "Transport Interface Send".
#[derive(Debug)]
pub struct Tis {
    /// Its transport domain.
    pub transport_domain: u32,
    /// Send queues that name it.
    pub users: u32,
    /// The context as it was given.
    pub context: Tisc,
}

/// Where a TIR sends frames.
#[derive(Debug, Clone, Copy)]
pub enum Dispatch {
    /// One receive queue.
    Direct(u32),
    /// One queue of a table, chosen by hash.
    Indirect(u32, Hashing),
}

/// A transport interface receive. PRM "Transport Interface Receive".
#[derive(Debug)]
pub struct Tir {
    /// Where it sends frames.
    pub dispatch: Dispatch,
    /// Its transport domain.
    pub transport_domain: u32,
    /// Whether it accepts unicast and multicast frames sent by send queues of its own transport domain.
    pub takes_own: (bool, bool),
    /// Whether it looks into tunnels, for the hash and for what completions say. PRM `tunneled_offload_en`.
    pub looks_inside: bool,
    /// Its large receive offload.
    pub lro: Option<Lro>,
    /// The context as it was given.
    pub context: Tirc,
}

/// Large receive offload of a TIR. PRM "Transport Interface Receive".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lro {
    /// It joins segments of TCP over IPv4, and over IPv6.
    pub joins: (bool, bool),
    /// Most bytes of a joined segment, TCP header and data.
    pub largest: usize,
    /// Least bytes of data of a segment to be joined.
    pub least_data: usize,
    /// How long a segment waits for others.
    pub patience: Duration,
}

/// Segments that a receive queue has joined, and that wait for more.
#[derive(Debug)]
pub(crate) struct Joined {
    /// The first frame, and behind it the data of the others.
    pub frame: Vec<u8>,
    /// The completion of the first.
    pub cqe: Cqe,
    /// The first segment's data begin there.
    pub data_at: usize,
    /// The last segment.
    pub last: Segment,
    pub segments: u8,
    pub is_pushed: bool,
    pub least_ttl: u8,
    /// Most bytes of the frame.
    pub longest: usize,
    /// The TIR that they came by.
    pub lro: Lro,
}

/// A receive queue table. PRM `rqtc`.
#[derive(Debug)]
pub struct Rqt {
    /// `rqn` of each.
    pub rqs: Vec<u32>,
    /// Maximum number of entries.
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

/// A send queue of Ethernet frames. PRM "Send Queue Context".
#[derive(Debug)]
pub struct Sq {
    /// Its number. No queue pair has the same number, as a doorbell names either.
    pub sqn: u32,
    /// Its state.
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
    /// Its TIS; `None` if it sends no frames.
    pub tis: Option<SendsThrough>,
    /// WQEBBs fetched.
    pub fetched: u16,
    /// The next WQE, if it came with its doorbell.
    pub(crate) copied: Option<CopiedWqe>,
    /// WQEBBs known to be posted.
    pub posted: u16,
    /// It is in the scheduler's list.
    pub is_listed: bool,
    /// What its rate limit holds back.
    pub pace: Pace,
    /// Strict mode: completions that software has consumed.
    pub(crate) consumed: Consumed,
    /// WQEBBs posted in the error state.
    pub(crate) posted_in_error: u32,
    /// The umem its ring lies in.
    pub umem: Option<u32>,
    /// The umem its doorbell record lies in.
    pub doorbell_umem: Option<u32>,
    /// What its work moved across PCIe.
    pub traffic: Traffic,
    /// The context as given, with the current `state`.
    pub context: Sqc,
}

/// How the WQEs of a receive queue are cut into strides, and the one in use. PRM "Striding RQ".
#[derive(Debug)]
pub(crate) struct Striding {
    /// log2 of a stride's bytes.
    pub log_bytes: u32,
    /// log2 of the strides of a WQE.
    pub log_count: u32,
    /// Bytes of a packet's first stride before its data: 0 or 2.
    pub shift: u32,
    /// WQEs name their successors; otherwise they are used in the order of the ring.
    pub is_linked: bool,
    /// In a linked ring: the WQE to be used next.
    pub next: u16,
    /// The WQE in use.
    pub open: Option<OpenWqe>,
}

/// A WQE of a striding receive queue with strides left.
#[derive(Debug, Default)]
pub(crate) struct OpenWqe {
    /// Its index in the ring, or for a cyclic ring in receives posted.
    pub index: u16,
    /// Strides used.
    pub used: u32,
    /// Its memory.
    pub pieces: Vec<Piece>,
}

/// A receive queue of Ethernet frames. PRM "Receive Queue Context".
#[derive(Debug)]
pub struct Rq {
    /// Its number.
    pub rqn: u32,
    /// Its state.
    pub state: QueueState,
    /// Its ring.
    pub ring: RecvRing,
    /// Dword 0: receives posted.
    pub doorbell: Doorbell,
    /// CQ of its completions.
    pub cqn: u32,
    /// Protection domain of its keys; 0 for a queue without receives.
    pub pd: u32,
    /// `user_index` of its completions.
    pub user_index: u32,
    /// Queue counter, 0 for none.
    pub counter_set_id: u8,
    /// Its strides, if it is a striding queue: several packets in a WQE.
    pub(crate) striding: Option<Striding>,
    /// Segments that wait for more to be joined to.
    pub(crate) joined: Option<Box<Joined>>,
    /// C-VLAN tags are stripped and reported in the completion.
    pub strips_vlan: bool,
    /// WQEs fetched.
    pub fetched: u16,
    /// WQEs known to be posted.
    pub posted: u16,
    /// Strict mode: completions that software has consumed.
    pub(crate) consumed: Consumed,
    /// Strict mode: buffers owned by the card.
    pub(crate) held: HeldByQueue,
    /// The umem its ring lies in.
    pub umem: Option<u32>,
    /// The umem its doorbell record lies in.
    pub doorbell_umem: Option<u32>,
    /// What its work moved across PCIe.
    pub traffic: Traffic,
    /// The context as given, with the current `state`.
    pub context: Rqc,
}
