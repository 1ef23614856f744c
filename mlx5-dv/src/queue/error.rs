//! Errors of the hot path: small, `Copy`, no allocation.

use super::completion::decode::{Side, Work};
use crate::error::Error;

/// A work request that was not posted. Nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// No room.
    #[error(transparent)]
    Full(#[from] Full),
    /// More scatter/gather elements than the queue was made for.
    #[error(
        "{given} scatter/gather elements, and this queue was made for {most}: raise send_sges or recv_sges in QpOptions"
    )]
    TooManySges {
        /// How many were given.
        given: usize,
        /// `send_sges` or `recv_sges` of the queue.
        most: usize,
    },
    /// More inline data than the queue was made for.
    #[error("{given} bytes of inline data, and this queue was made for {most}: raise inline_bytes in QpOptions")]
    InlineTooLong {
        /// How many were given.
        given: usize,
        /// `inline_bytes` of the queue.
        most: usize,
    },
    /// A message longer than the card carries.
    #[error("a message of {given} bytes, and the card carries at most {most} (log_max_msg)")]
    MessageTooLong {
        /// Bytes of all elements together.
        given: u64,
        /// The most.
        most: u64,
    },
    /// A frame that is none, or does not pass the port.
    #[error("a frame of {given} bytes, and the port passes {least} to {most}: see Options::mtu")]
    FrameLength {
        /// Bytes of the frame, without its check sequence.
        given: u64,
        /// An Ethernet header.
        least: u64,
        /// The port's MTU, without the check sequence.
        most: u64,
    },
    /// Less of a frame's headers in the WQE than the card insists on.
    #[error(
        "{given} bytes of the frame in the WQE, and this card wants its headers there: {least} bytes (min_wqe_inline_mode)"
    )]
    HeaderTooShort {
        /// How many were given.
        given: usize,
        /// How many there must be.
        least: usize,
    },
    /// An atomic whose element has another length than a number.
    #[error("an atomic into {given} bytes: the number that it finds has 8")]
    AtomicLength {
        /// Bytes of the element.
        given: u32,
    },
    /// An atomic, and the card has none.
    #[error("this card has no atomics of eight bytes: Caps::check_atomics says what it lacks")]
    NoAtomics,
    /// A key with REMOTE_ATOMIC by a work request, and the card makes none.
    #[error(
        "this card gives no key REMOTE_ATOMIC by a work request: it has no atomics of eight bytes \
         (Caps::check_atomics), or does not change that right (umr_modify_atomic_disabled)"
    )]
    NoAtomicKeys,
    /// REMOTE_WRITE or REMOTE_ATOMIC alone.
    #[error("a registration with REMOTE_WRITE or REMOTE_ATOMIC needs LOCAL_WRITE as well")]
    RemoteWithoutLocalWrite,
    /// A registration of no bytes, or with a part of none.
    #[error("a registration without bytes, or with a part that has none: the card reads a length of zero as 2^31")]
    EmptyPart,
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
    /// Checksums are to be filled in, and the card cannot.
    #[error("this card does not fill in checksums (csum_cap): send frames that have theirs")]
    NoChecksums,
}

/// A queue without room for one more work request: take completions of signalled work and retire them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the queue is full: retire completions of signalled work requests, then post again")]
pub struct Full;

/// A completion that fits no work request of this queue. The queue is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RetireError {
    /// Of another queue.
    #[error("{:?} WQE {} of QP {:#x} is not of this queue, which is the {side:?} queue of QP {qpn:#x}", work.side, work.index, work.qpn)]
    OtherQueue {
        /// What the completion says.
        work: Work,
        /// The queue it was given to.
        side: Side,
        /// The queue pair it was given to.
        qpn: u32,
    },
    /// Of nothing that is in flight: the card repeated itself, or names a WQE that was never posted.
    #[error("WQE {} of QP {:#x} is not in flight: indices {first} to {end} (not included) are", work.index, work.qpn)]
    NotInFlight {
        /// What the completion says.
        work: Work,
        /// First index in flight.
        first: u16,
        /// First index after those in flight.
        end: u16,
    },
    /// Of a shared receive queue: a send, or a WQE that is not with the card.
    #[error("{:?} WQE {} of QP {:#x} is not posted to SRQ {srqn:#x}", work.side, work.index, work.qpn)]
    NotPosted {
        /// What the completion says.
        work: Work,
        /// The shared receive queue it was given to.
        srqn: u32,
    },
}

impl From<RetireError> for Error {
    /// For calls that report both: a completion that fits no work request is an invalid response.
    fn from(error: RetireError) -> Self {
        let (what, given, limit) = match error {
            RetireError::OtherQueue { work, qpn, .. } => {
                ("the QP number of a CQE", work.qpn, Some(qpn.into()..=qpn.into()))
            }
            RetireError::NotInFlight { work, .. } | RetireError::NotPosted { work, .. } => {
                ("wqe_counter", work.index.into(), None)
            }
        };
        Error::response(what, given.into(), limit, error.to_string())
    }
}

impl RetireError {
    /// Of a queue where nothing is in flight, or that is not there.
    #[cold]
    pub(super) fn nothing_in_flight(work: Work) -> Self {
        RetireError::NotInFlight { work, first: 0, end: 0 }
    }
}
