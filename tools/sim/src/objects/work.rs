//! Work requests as fetched from their rings: what the engines carry out, and why one fails.

use mlx5_prm::cqe::CqeSyndrome;
use mlx5_prm::ctx::Mkc;
use mlx5_prm::wqe::{UmrCtrlSeg, WqeOpcode};

use super::mkey::User;
use crate::transport::Psn;
use crate::transport::packet::{Gid, Mac};

/// A part of a message's memory.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Piece {
    /// By key.
    Memory { key: u32, address: u64, len: u32 },
    /// In the WQE: where in [`SendWork::inline`].
    Inline { at: u32, len: u32 },
}

impl Piece {
    pub fn len(&self) -> u32 {
        match self {
            Piece::Memory { len, .. } | Piece::Inline { len, .. } => *len,
        }
    }
}

/// A send WQE, fetched.
#[derive(Debug)]
pub(crate) struct SendWork {
    /// Its place, in WQEBBs posted.
    pub index: u16,
    pub opcode: WqeOpcode,
    pub is_signalled: bool,
    /// Its completion wakes who waits for solicited ones.
    pub wakes: bool,
    /// Solicited event at the remote side.
    pub is_solicited: bool,
    pub is_fenced: bool,
    pub immediate: u32,
    pub address: u64,
    pub rkey: u32,
    pub swap_add: u64,
    pub compare: u64,
    /// Where it goes, unless that is where the connection leads.
    pub datagram: Option<Datagram>,
    /// The XRC shared receive queue that it is for.
    pub xrc_srqn: u32,
    /// What becomes of a key.
    pub update: Option<Box<Update>>,
    pub pieces: Vec<Piece>,
    pub inline: Vec<u8>,
    /// Bytes of the message.
    pub len: u32,
    pub first: Psn,
    /// PSNs it takes; 0 for one that sends nothing.
    pub packets: u32,
    /// Sent once already.
    pub is_started: bool,
    /// It cannot be done: it fails when all before it are complete.
    pub failure: Option<Failure>,
    /// Check sums of the packets' payloads as first sent, in strict mode.
    pub sums: Vec<u32>,
}

impl Default for SendWork {
    fn default() -> Self {
        SendWork {
            index: 0,
            opcode: WqeOpcode::Nop,
            is_signalled: false,
            wakes: false,
            is_solicited: false,
            is_fenced: false,
            immediate: 0,
            address: 0,
            rkey: 0,
            swap_add: 0,
            compare: 0,
            datagram: None,
            xrc_srqn: 0,
            update: None,
            pieces: Vec::new(),
            inline: Vec::new(),
            len: 0,
            first: Psn::default(),
            packets: 0,
            is_started: false,
            failure: None,
            sums: Vec::new(),
        }
    }
}

impl SendWork {
    /// Empty work that keeps the buffers of work that is done.
    pub fn reuse(self) -> Self {
        let SendWork { mut pieces, mut inline, mut sums, .. } = self;
        pieces.clear();
        inline.clear();
        sums.clear();
        SendWork { pieces, inline, sums, ..SendWork::default() }
    }

    /// Whether it waits for data from the remote side.
    pub fn is_read(&self) -> bool {
        matches!(self.opcode, WqeOpcode::RdmaRead | WqeOpcode::AtomicCs | WqeOpcode::AtomicFa)
    }

    /// The PSN after its last.
    pub fn end(&self) -> Psn {
        self.first.plus(self.packets)
    }
}

/// A receive WQE, fetched.
#[derive(Debug, Default)]
pub(crate) struct ReceiveWork {
    /// Its place: in receives posted, or in the shared queue's ring.
    pub index: u16,
    pub pieces: Vec<Piece>,
    /// Its memory cannot be used.
    pub failure: Option<Failure>,
    /// Who uses its keys.
    pub user: User,
    /// CQ and number of its completion, where they are not the queue pair's.
    pub cqn: Option<u32>,
    pub user_index: Option<u32>,
}

impl ReceiveWork {
    /// Empty work of `user` that keeps the buffer of work that is done.
    pub fn reuse(self, user: User) -> Self {
        let ReceiveWork { mut pieces, .. } = self;
        pieces.clear();
        ReceiveWork { pieces, user, ..ReceiveWork::default() }
    }
}

/// Where a datagram goes, from its work request's address vector.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Datagram {
    pub qpn: u32,
    pub qkey: u32,
    /// Our GID index.
    pub src_addr_index: u8,
    pub rgid: Gid,
    pub rmac: Mac,
    pub sport: u16,
    pub hop_limit: u8,
    pub tclass: u8,
    pub flow_label: u32,
    /// Ethernet priority, where the GID has a VLAN.
    pub priority: u8,
}

/// A change of a key.
#[derive(Debug)]
pub(crate) struct Update {
    pub key: u32,
    pub control: UmrCtrlSeg,
    pub context: Mkc,
    pub list: List,
}

/// Where the new translations are.
#[derive(Debug)]
pub(crate) enum List {
    Inline(Vec<u8>),
    Memory { key: u32, address: u64 },
}

/// Why a work request fails: what its completion says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// `syndrome` of the CQE.
    pub syndrome: CqeSyndrome,
    /// `vendor_error_syndrome` of the CQE.
    pub vendor: u8,
}

impl Failure {
    /// A failure with the vendor syndrome that cards show with it in the field, where one is known.
    pub(crate) const fn new(syndrome: CqeSyndrome) -> Self {
        let vendor = match syndrome {
            CqeSyndrome::LocalLength => 0x32,
            CqeSyndrome::LocalQpOperation => 0x68,
            CqeSyndrome::LocalProtection => 0x51,
            CqeSyndrome::WorkRequestFlushed => 0xf9,
            CqeSyndrome::TransportRetryExceeded => 0x81,
            CqeSyndrome::RnrRetryExceeded => 0x87,
            CqeSyndrome::RemoteAccess => 0x88,
            CqeSyndrome::RemoteInvalidRequest => 0x8a,
            CqeSyndrome::RemoteOperation => 0x89,
            _ => 0,
        };
        Failure { syndrome, vendor }
    }

    /// Whether this side found the error itself, rather than being told by the remote one, or by its silence.
    pub(crate) const fn is_own(self) -> bool {
        !matches!(
            self.syndrome,
            CqeSyndrome::WorkRequestFlushed
                | CqeSyndrome::TransportRetryExceeded
                | CqeSyndrome::RnrRetryExceeded
                | CqeSyndrome::RemoteAccess
                | CqeSyndrome::RemoteInvalidRequest
                | CqeSyndrome::RemoteOperation
        )
    }
}
