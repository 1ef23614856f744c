//! What goes wrong.

use mlx5_cm::{CmRejectReason, ManagerError};
use mlx5_dv::queue::WorkError;

use crate::credits::CreditError;
use crate::nid::Nid;
use crate::payload::Payload;
use crate::plan::PlanError;
use crate::wire::{RejectReason, WireError};

/// Error of the node itself: the card or its options.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LnetError {
    /// The card or the driver failed.
    #[error(transparent)]
    Device(#[from] mlx5_dv::Error),
    /// The connection manager failed.
    #[error(transparent)]
    Manager(#[from] ManagerError),
    /// An option is out of its range.
    #[error("option {what} is {given}: {least} to {most} are allowed")]
    Option {
        /// Its name.
        what: &'static str,
        /// Its value.
        given: u64,
        /// The least.
        least: u64,
        /// The most.
        most: u64,
    },
}

/// Why a connection ended, or could not be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// A message that is none.
    #[error("bad message: {0}")]
    Wire(#[from] WireError),
    /// Credits that cannot be.
    #[error("bad credits: {0}")]
    Credits(#[from] CreditError),
    /// A message that is not expected.
    #[error("unexpected {0}")]
    Unexpected(&'static str),
    /// A message from or to another node, or another incarnation.
    #[error("stale: of another node or incarnation")]
    Stale,
    /// A work request failed.
    #[error("work request failed: {0}")]
    WorkRequest(WorkError),
    /// The driver refused a work request.
    #[error("work request refused: {0}")]
    Refused(String),
    /// No answer in time.
    #[error("no answer in time")]
    Timeout,
    /// The other end disconnected.
    #[error("disconnected by the peer")]
    Disconnected,
    /// A newer connection of the peer took its place.
    #[error("replaced: the peer has started anew")]
    Replaced,
    /// The node shuts down.
    #[error("the node shuts down")]
    ShutDown,
    /// The other end refuses the connection.
    #[error("rejected: {0}")]
    Rejected(RejectReason),
    /// The other end's connection manager refuses it.
    #[error("rejected by the connection manager: {0:?}")]
    NotListening(CmRejectReason),
    /// The other end asks for what cannot be.
    #[error("connection parameters: {0}")]
    Parameters(&'static str),
    /// Nobody answers.
    #[error("unreachable: no answer to the connection request")]
    Unreachable,
    /// The connection could not be made here.
    #[error("no connection: {0}")]
    Local(String),
}

/// Why a transfer failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// The connection ended, or there was none: whether the other end has the data is not known.
    #[error("connection to {nid}: {failure}")]
    Connection {
        /// The peer.
        nid: Nid,
        /// Why.
        failure: Failure,
    },
    /// The other end refused: an error number, negative.
    #[error("refused by the peer: error {0}")]
    Remote(i32),
    /// The other end's memory does not fit.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// No reply of LNet came.
    #[error("no reply in time")]
    NoReply,
    /// More data than there is memory for.
    #[error("{given} bytes for a payload of {room}")]
    TooLong {
        /// Bytes that came.
        given: usize,
        /// Bytes of the payload.
        room: usize,
    },
    /// Buffers that no key can hold.
    #[error(
        "no key can hold the payload: its buffers leave gaps, which take indirect keys (capability imaicl), or are \
         exclusive or of another protection domain"
    )]
    NoKey,
}

/// A call that was refused; the payload is back.
#[derive(Debug)]
pub struct Refused {
    /// The payload.
    pub payload: Payload,
    /// The reason.
    pub reason: RefusedReason,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.reason.fmt(f)
    }
}

impl std::error::Error for Refused {}

/// Why a call was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RefusedReason {
    /// A request that is not there: it was answered, or its connection ended.
    #[error("the request is gone: it was answered, or its connection has ended")]
    Gone,
    /// A PUT answered as a GET, or the other way round.
    #[error("not this way: a PUT is received, a GET is replied to")]
    WrongKind,
    /// More memory than there is data.
    #[error("a payload of {given} bytes for {wanted}: cut it (Buffer::set_len)")]
    TooLong {
        /// Bytes of the payload.
        given: usize,
        /// Bytes of the request.
        wanted: usize,
    },
    /// A node that is not on the network of this one, without an address.
    #[error("no address of {0}: give it one (Lnet::set_address), or name one on its own network")]
    NoAddress(Nid),
    /// The node shuts down.
    #[error("the node shuts down")]
    ShutDown,
}
