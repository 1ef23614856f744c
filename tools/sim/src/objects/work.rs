//! Work requests fetched from rings, and why they fail. IBTA 10.7; PRM "Work Queue Structure".

use mlx5_prm::cqe::CqeSyndrome;
use mlx5_prm::ctx::Mkc;
use mlx5_prm::wqe::{UmrCtrlSeg, WqeOpcode};

use super::mkey::User;
use crate::transport::Psn;
use crate::transport::packet::{Gid, Mac};

/// A part of a message's data.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Piece {
    /// In memory, by key.
    Memory { key: u32, address: u64, len: u32 },
    /// Inline: `at` is an offset into [`SendWork::inline`].
    Inline { at: u32, len: u32 },
}

impl Piece {
    pub fn len(&self) -> u32 {
        match self {
            Piece::Memory { len, .. } | Piece::Inline { len, .. } => *len,
        }
    }
}

/// A fetched send WQE.
#[derive(Debug)]
pub(crate) struct SendWork {
    /// Its index, in WQEBBs posted.
    pub index: u16,
    pub opcode: WqeOpcode,
    pub is_signalled: bool,
    /// Its completion counts as solicited.
    pub wakes: bool,
    /// Requests a solicited event at the responder.
    pub is_solicited: bool,
    pub is_fenced: bool,
    pub immediate: u32,
    pub address: u64,
    pub rkey: u32,
    pub swap_add: u64,
    pub compare: u64,
    /// Destination of a UD message; `None` for a connected transport.
    pub datagram: Option<Datagram>,
    /// Destination of a dynamically connected message.
    pub target: Option<Datagram>,
    /// Its stream, of an initiator that has streams.
    pub stream: u16,
    /// The destination's XRC shared receive queue.
    pub xrc_srqn: u32,
    /// Key update, of a UMR WQE.
    pub update: Option<Box<Update>>,
    pub pieces: Vec<Piece>,
    /// Inline data; the operands of a masked atomic, which has none.
    pub inline: Vec<u8>,
    /// Message length in bytes.
    pub len: u32,
    pub first: Psn,
    /// PSNs it uses; 0 if it sends nothing.
    pub packets: u32,
    /// At least one packet was sent.
    pub is_started: bool,
    /// Error found; reported once all earlier work is complete.
    pub failure: Option<Failure>,
    /// Strict mode: checksums of the payloads when first sent.
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
            target: None,
            stream: 0,
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
    /// Empty work that reuses the buffers of completed work.
    pub fn reuse(self) -> Self {
        let SendWork { mut pieces, mut inline, mut sums, .. } = self;
        pieces.clear();
        inline.clear();
        sums.clear();
        SendWork { pieces, inline, sums, ..SendWork::default() }
    }

    /// Whether it expects response data: read or atomic.
    pub fn is_read(&self) -> bool {
        self.opcode == WqeOpcode::RdmaRead || self.is_atomic()
    }

    /// Whether it is an atomic.
    pub fn is_atomic(&self) -> bool {
        matches!(self.opcode, WqeOpcode::AtomicCs | WqeOpcode::AtomicFa) || self.is_masked_atomic()
    }

    /// Whether it is a masked atomic.
    pub fn is_masked_atomic(&self) -> bool {
        matches!(self.opcode, WqeOpcode::AtomicMaskedCs | WqeOpcode::AtomicMaskedFa)
    }

    /// Whether it changes a key, and has not done so yet.
    pub fn is_update_due(&self) -> bool {
        self.update.is_some() && !self.is_started
    }

    /// The PSN after its last one.
    pub fn end(&self) -> Psn {
        self.first.plus(self.packets)
    }
}

/// A fetched receive WQE.
#[derive(Debug, Default)]
pub(crate) struct ReceiveWork {
    /// Its index: in receives posted, or in the shared receive queue's ring.
    pub index: u16,
    pub pieces: Vec<Piece>,
    /// Error found: its memory cannot be used.
    pub failure: Option<Failure>,
    /// Whose rights apply to its keys.
    pub user: User,
    /// The shared receive queue that it is of.
    pub srqn: Option<u32>,
    /// CQ and `user_index` of its completion, if not the queue pair's.
    pub cqn: Option<u32>,
    pub user_index: Option<u32>,
}

impl ReceiveWork {
    /// Empty work of `user` that reuses the buffers of completed work.
    pub fn reuse(self, user: User) -> Self {
        let ReceiveWork { mut pieces, .. } = self;
        pieces.clear();
        ReceiveWork { pieces, user, ..ReceiveWork::default() }
    }
}

/// Destination of a datagram or of a dynamically connected message, from its address vector.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Datagram {
    /// Queue pair or target.
    pub qpn: u32,
    pub qkey: u32,
    /// Access key of a target.
    pub dc_key: u64,
    /// Source GID index.
    pub src_addr_index: u8,
    pub rgid: Gid,
    pub rmac: Mac,
    pub sport: u16,
    pub hop_limit: u8,
    pub tclass: u8,
    pub flow_label: u32,
    /// Ethernet priority, if the GID has a VLAN.
    pub priority: u8,
}

/// A key update: the content of a UMR WQE.
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

/// Why a work request failed, as its CQE reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// `syndrome` of the CQE.
    pub syndrome: CqeSyndrome,
    /// `vendor_error_syndrome` of the CQE.
    pub vendor: u8,
}

impl Failure {
    /// A failure with the vendor syndrome that real cards are known to report with it, if any.
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

    /// Whether this side detected the error, instead of being told by a NAK or a timeout.
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
