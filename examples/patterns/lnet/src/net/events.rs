//! What the program sees of a node, and how it names it.

use std::time::Duration;

use super::failure::{Failure, TransferError};
use crate::nid::Nid;
use crate::payload::Payload;
use crate::wire::Header;

/// What this end does in a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// A PUT with its data in the message.
    ImmediatePut,
    /// A GET whose reply comes with its data.
    ImmediateGet,
    /// The data of a reply.
    ImmediateReply,
    PutSource,
    PutSink,
    GetSource,
    GetSink,
}

/// A transfer of this node's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransferId(pub(super) u64);

/// A request of another node's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId {
    pub(super) connection: u64,
    pub(super) cookie: u64,
}

/// Whose a transfer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Id {
    Transfer(TransferId),
    Request(RequestId),
}

/// What a PUT is for, beside its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Match {
    /// Portal.
    pub portal: u32,
    /// Match bits.
    pub match_bits: u64,
    /// 64 bits for the program there; a GET has none.
    pub hdr_data: u64,
    /// Offset in the memory that matches.
    pub offset: u32,
}

/// What happened.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A PUT or a GET of a peer's: [receive](crate::Lnet::receive) it, [reply](crate::Lnet::reply) to it, or
    /// [refuse](crate::Lnet::refuse) it. Until then its receive is kept, and with it the credit: a program that does
    /// not answer is sent no more.
    Incoming {
        /// What the answer names.
        request: RequestId,
        /// The peer.
        from: Nid,
        /// What it is.
        header: Header,
    },
    /// A PUT or a GET of this node's is over, and its memory back.
    Done {
        /// Which.
        transfer: TransferId,
        /// Its memory; `None` where it was lost with a queue that did not return it.
        payload: Option<Payload>,
        /// Bytes, or what went wrong.
        result: Result<usize, TransferError>,
    },
    /// The answer to a request is over, and its memory back.
    Answered {
        /// Which.
        request: RequestId,
        /// As of [`Event::Done`].
        payload: Option<Payload>,
        /// Bytes, or what went wrong.
        result: Result<usize, TransferError>,
    },
    /// A connection with a peer is established.
    Connected {
        /// The peer.
        peer: Nid,
        /// The version that it speaks.
        version: u16,
        /// The queue depth that was agreed on.
        queue_depth: u16,
        /// The number of fragments that was agreed on.
        max_fragments: u16,
    },
    /// A connection with a peer, or a request for one, has ended.
    Disconnected {
        /// The peer.
        peer: Nid,
        /// Why.
        failure: Failure,
    },
}

/// What a node has and did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Statistics {
    /// Connections, with those that are being made or ended.
    pub connections: usize,
    /// Keys that are free.
    pub free_keys: usize,
    /// Keys registered, so far.
    pub registrations: u64,
    /// Transfers that went well.
    pub transfers: u64,
    /// Transfers that did not.
    pub failed: u64,
    /// Connection requests that were refused.
    pub refused: u64,
}

impl Statistics {
    pub(super) fn count(&mut self, result: &Result<usize, TransferError>) {
        match result {
            Ok(_) => self.transfers += 1,
            Err(_) => self.failed += 1,
        }
    }
}

/// A transfer that waits for a connection.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) id: Id,
    pub(super) role: Role,
    pub(super) header: Header,
    pub(super) payload: Payload,
    pub(super) deadline: Duration,
}
