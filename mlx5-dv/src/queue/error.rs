//! Errors of the hot path: small, `Copy`, no allocation.

use super::completion::decode::{Side, Work};
use crate::error::Error;
use crate::objects::{TunnelKind, VlanTag};

/// A work request that was rejected. Nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// The queue is full.
    #[error(transparent)]
    Full(#[from] Full),
    /// More scatter/gather elements than the queue supports.
    #[error(
        "{given} scatter/gather elements, but this queue supports {most}: raise send_sges or recv_sges in QpOptions"
    )]
    TooManySges {
        /// Number of elements.
        given: usize,
        /// `send_sges` or `recv_sges` of the queue.
        most: usize,
    },
    /// More inline data than the queue supports.
    #[error("{given} bytes of inline data, but this queue supports {most}: raise inline_bytes in QpOptions")]
    InlineTooLong {
        /// Bytes of inline data.
        given: usize,
        /// `inline_bytes` of the queue.
        most: usize,
    },
    /// More of a frame inlined than its queue supports.
    #[error("{given} bytes of the frame inlined, but this queue supports {most}: raise inline_bytes in SqOptions")]
    FrameInlineTooLong {
        /// Bytes of the frame in the WQE.
        given: usize,
        /// `inline_bytes` of the queue.
        most: usize,
    },
    /// A message longer than the card supports.
    #[error("a message of {given} bytes, but the card supports at most {most} (log_max_msg)")]
    MessageTooLong {
        /// Total bytes of all elements.
        given: u64,
        /// The limit.
        most: u64,
    },
    /// A buffer of another length than the strides of its queue.
    #[error("a buffer of {given} bytes, and the strides of this queue need {needed}: see Strides::buffer")]
    BufferLength {
        /// Its bytes.
        given: u32,
        /// Those of all strides.
        needed: usize,
    },
    /// A frame that is too short, or too long for the port.
    #[error("a frame of {given} bytes, but the port accepts {least} to {most}: see Options::mtu")]
    FrameLength {
        /// Bytes of the frame, without FCS.
        given: u64,
        /// Bytes of an Ethernet header.
        least: u64,
        /// The port's MTU, without FCS.
        most: u64,
    },
    /// Fewer inlined header bytes than the card requires.
    #[error(
        "{given} bytes of the frame inlined, but this card requires its headers in the WQE: {least} bytes (min_wqe_inline_mode)"
    )]
    HeaderTooShort {
        /// Inlined bytes.
        given: usize,
        /// Required bytes.
        least: usize,
    },
    /// An atomic on an element that does not have 8 bytes.
    #[error("an atomic needs an 8-byte element, got {given} bytes")]
    AtomicLength {
        /// Bytes of the element.
        given: u32,
    },
    /// The card does not support atomics.
    #[error("this card does not support 8-byte atomics: see Caps::check_atomics")]
    NoAtomics,
    /// A masked atomic on an element that does not have as many bytes.
    #[error("a masked atomic of {needed} bytes needs an element of as many, got {given}")]
    MaskedAtomicLength {
        /// Bytes of the element.
        given: u32,
        /// Those of the atomic.
        needed: usize,
    },
    /// The card does not support masked atomics of this size.
    #[error("this card does not support masked atomics of {bytes} bytes: see Caps::check_masked_atomics")]
    NoMaskedAtomics {
        /// Bytes of the atomic.
        bytes: usize,
    },
    /// A key with REMOTE_ATOMIC by a work request, and the card makes none.
    #[error(
        "this card gives no key REMOTE_ATOMIC by a work request: it has no atomics of eight bytes \
         (Caps::check_atomics), or does not change that right (umr_modify_atomic_disabled)"
    )]
    NoAtomicKeys,
    /// REMOTE_WRITE or REMOTE_ATOMIC alone.
    #[error("a registration with REMOTE_WRITE or REMOTE_ATOMIC needs LOCAL_WRITE as well")]
    RemoteWithoutLocalWrite,
    /// A registration of no bytes.
    #[error("a registration without bytes")]
    EmptyPart,
    /// A part of a registration that has no bytes, or more than an entry of a list can say.
    #[error("part {part} has {given} bytes, and a part has 1 to {most}: the card reads a length of zero as 2^31")]
    PartLength {
        /// Which, from 0.
        part: usize,
        /// Its bytes.
        given: u32,
        /// The most.
        most: u32,
    },
    /// Parts for a key of pages, or pages for a key of parts.
    #[error("key {key:#x} was not made for this kind of memory: see UmrKeyOptions::layout")]
    KeyLayout {
        /// The key, in variant 0.
        key: u32,
    },
    /// More parts or pages than the key has room for.
    #[error("a list of {given} octwords, and the key has room for {most}: raise entries in UmrKeyOptions")]
    KeyRoom {
        /// Octwords of the list: one for each part, one for two pages; one more where parts take turns.
        given: usize,
        /// Those of the key.
        most: u32,
    },
    /// A list that a WQE cannot hold.
    #[error(
        "a list of {given} octwords in the WQE, which has room for {most} (max_wqe_sz_sq): pass it by \
         KeyMemory::ListedParts"
    )]
    ListTooLong {
        /// Octwords of the list, padded to a multiple of four.
        given: usize,
        /// The most.
        most: usize,
    },
    /// A list in memory that is not where it must be.
    #[error("a list of {len} bytes at {addr:#x}: its address must be a multiple of 64, its length one of 16")]
    ListMisaligned {
        /// Its address.
        addr: u64,
        /// Its bytes.
        len: u32,
    },
    /// A work request that is longer than the send queue.
    #[error("a work request of {given} WQEBBs, and this queue has {most}: raise send_wqes in QpOptions")]
    WqeTooLong {
        /// WQEBBs that it takes.
        given: usize,
        /// Those of the ring.
        most: usize,
    },
    /// The card has no work requests for several frames.
    #[error("this card takes one frame a work request (enhanced_multi_pkt_send_wqe): post each frame alone")]
    NoMultiPacket,
    /// No frames, or more than a work request can hold.
    #[error("frames of {given} segments in a work request, which holds 1 to {most}: see Sq::most_packets")]
    MultiPacketLength {
        /// Segments of 16 bytes that they take.
        given: usize,
        /// The most.
        most: usize,
    },
    /// Memory that was not registered with this send queue.
    #[error("a source of another send queue: ask the object of this one (Sq::source)")]
    OtherSource,
    /// A frame that is not in the memory that it is to be sent from.
    #[error("a frame from byte {start} to {end} of a source of {len} bytes")]
    OutsideSource {
        /// Where it would begin.
        start: usize,
        /// Where it would end.
        end: usize,
        /// Bytes of the source.
        len: usize,
    },
    /// A frame to forward that is in no buffer of the receive queue that the forwarder is for.
    #[error(
        "a frame that is not where this forwarder's receive queue received it: send it by a queue that copies \
         (SendBatch::copies)"
    )]
    NotReceivedHere,
    /// The card does not divide packets into frames.
    #[error("this card does not divide packets into frames (max_lso_cap): send each frame alone")]
    NoLargeSend,
    /// A packet to divide that is empty, or longer than the card can divide.
    #[error("a packet of {given} bytes beside its headers to divide into frames, limit is 1 to {most} (max_lso_cap)")]
    LargeSendLength {
        /// Its bytes without headers.
        given: u64,
        /// The most.
        most: u64,
    },
    /// A packet to divide into parts that are empty, or do not fit a frame of the port.
    #[error("frames with {given} bytes each beside their headers, limit is 1 to {most}: the port's MTU leaves no more")]
    SegmentLength {
        /// Bytes of a part.
        given: u16,
        /// The most.
        most: usize,
    },
    /// A UDP packet to divide whose last part would be shorter: the card gives all datagrams one length.
    #[error(
        "a UDP packet of {given} bytes beside its headers to divide into datagrams of {mss}, of which it must be a \
         multiple: send the last bytes as a frame of their own"
    )]
    UnequalDatagrams {
        /// Its bytes without headers.
        given: u64,
        /// Bytes of a part.
        mss: u16,
    },
    /// Headers of a packet to divide that do not end with its TCP or UDP header.
    #[error("{given} bytes of headers of a packet to divide, which must be all of them, up to TCP's or UDP's end")]
    LargeSendHeaders {
        /// Bytes of the headers.
        given: usize,
    },
    /// The card does not insert VLAN tags, or requires headers in the work request.
    #[error(
        "this card does not insert VLAN tags into frames (wqe_vlan_insert, min_wqe_inline_mode): send frames that have \
         theirs"
    )]
    NoVlanInsertion,
    /// A VLAN tag that there is not.
    #[error("{tag:?}: a priority is less than 8, a VLAN less than 4096, an Ethernet type 0x8100 or 0x88a8")]
    VlanTag {
        /// The tag.
        tag: VlanTag,
    },
    /// The card computes nothing inside of such tunnels.
    #[error(
        "this card computes nothing inside of tunnels of this kind, {kind:?} ({capability}, swp): send frames that have their checksums"
    )]
    NoTunnelOffload {
        /// The tunnel.
        kind: TunnelKind,
        /// What it would announce.
        capability: &'static str,
    },
    /// The card does not hold frames back until a time.
    #[error(
        "this card does not hold frames back until a time (wait_on_time): hold the queue to a rate (RateLimit), or post \
         them when they are due"
    )]
    NoWaitOnTime,
    /// Inner checksums of a frame whose tunnel is not given.
    #[error("inner checksums, and no tunnel: see send_in_tunnel")]
    NoTunnel,
    /// The card cannot fill in the requested checksums.
    #[error("this card does not fill in checksums (csum_cap): send frames that have theirs")]
    NoChecksums,
}

/// A full queue: poll completions of signalled work requests and retire them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the queue is full: retire completions of signalled work requests, then post again")]
pub struct Full;

/// A completion that does not match any work request of this queue. The queue is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RetireError {
    /// It belongs to another queue.
    #[error("{work} is not of this queue, which is the {side:?} queue of QP {qpn:#x}")]
    OtherQueue {
        /// The work request in the completion.
        work: Work,
        /// The queue that it was passed to.
        side: Side,
        /// The queue pair that it was passed to.
        qpn: u32,
    },
    /// The work request is not in flight: the card repeated a completion, or names a WQE that was never posted.
    #[error("{work} is not in flight: indices {first} to {end} (exclusive) are")]
    NotInFlight {
        /// The work request in the completion.
        work: Work,
        /// First index in flight.
        first: u16,
        /// First index behind those in flight.
        end: u16,
    },
    /// For a striding receive queue: strides that are not the next ones, or a packet outside of them.
    #[error(
        "{len} bytes in {strides} strides from stride {} on, but {used} of {count} are used: the card is faulty, or a \
         completion was not passed to the queue", work.index
    )]
    Strides {
        /// The work request in the completion; its index is that of a stride.
        work: Work,
        /// Strides that the packet takes.
        strides: u32,
        /// Its bytes.
        len: usize,
        /// Strides used before.
        used: u32,
        /// Strides of a buffer.
        count: u32,
    },
    /// For a shared receive queue: a send, or a WQE that is not posted.
    #[error("{work} is not posted to SRQ {srqn:#x}")]
    NotPosted {
        /// The work request in the completion.
        work: Work,
        /// The shared receive queue that it was passed to.
        srqn: u32,
    },
}

impl From<RetireError> for Error {
    /// For calls that report both: a completion without a matching work request is an invalid response.
    fn from(error: RetireError) -> Self {
        let (what, given, limit) = match error {
            RetireError::OtherQueue { work, .. }
            | RetireError::NotInFlight { work, .. }
            | RetireError::NotPosted { work, .. }
                if work.invalid_opcode().is_some() =>
            {
                ("the opcode of a CQE", work.index.into(), None)
            }
            RetireError::OtherQueue { work, qpn, .. } => {
                ("the QP number of a CQE", work.qpn, Some(qpn.into()..=qpn.into()))
            }
            RetireError::NotInFlight { work, .. } | RetireError::NotPosted { work, .. } => {
                ("wqe_counter", work.index.into(), None)
            }
            RetireError::Strides { strides, used, count, .. } => {
                ("consumed_strides", strides, Some(1..=u64::from(count.saturating_sub(used))))
            }
        };
        Error::response(what, given.into(), limit, error.to_string())
    }
}

impl RetireError {
    /// The error for a queue with nothing in flight, or that does not exist.
    #[cold]
    pub(super) fn nothing_in_flight(work: Work) -> Self {
        RetireError::NotInFlight { work, first: 0, end: 0 }
    }
}
