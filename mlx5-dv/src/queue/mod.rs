//! The hot path: send, receive, completion.
//!
//! # Contract
//! * A queue belongs to one thread at a time: `Send`, not `Sync`, and everything takes `&mut self`.
//! * Posting, ringing, polling and retiring make no system call, take no lock and allocate nothing. (A
//!   [`Shared`] doorbell takes a lock; a UAR page that cannot be mapped makes ringing a system call.)
//! * Nothing a card writes is believed: a completion is copied once, decoded from the copy, and its queue pair and index are
//!   checked before they index anything.
//! * A failed work request is an error value, never silence.
//!
//! # Three levels
//! 1. [`SendQueue`], [`ReceiveQueue`], [`CompletionQueue`]: work requests by address and key. Posting memory is `unsafe`.
//! 2. [`Connection`]: takes a buffer with each work request and hands it back with its completion. Safe. And
//!    [`Endpoint`]: keeps a memory region and posts any part of it, in batches, signalled or not. Safe.
//! 3. [`Connection`]'s `*_blocking` calls: one work request and its completion, with a deadline. Safe.
//!
//! [`DatagramSendQueue`] is the first for datagrams, each of which says where it goes. [`ethernet`] has the first two for
//! frames: raw packets in place of a connection's messages.

mod completion;
mod connection;
mod datagram;
pub(crate) mod doorbell;
mod endpoint;
mod error;
pub mod ethernet;
mod lent;
mod link;
mod pair;
mod receive;
mod send;
mod work;

#[cfg(test)]
mod fake;

pub use completion::{CompletionQueue, Completions};
pub use connection::{Connection, WaitError};
pub use datagram::{DatagramSendBatch, DatagramSendQueue, Datagrams, GRH};
pub use doorbell::{AnyDoorbell, DoorbellMode, Leased, Trapped};
pub use endpoint::{Endpoint, EndpointCompletions, EndpointError, EndpointReceives, EndpointSends};
pub use error::{Full, PostError, RetireError};
pub use lent::{Done, Refused, RefusedReason, Ticket};
pub use link::{ConnectionOptions, Peer};
pub use receive::{ReceiveBatch, ReceiveQueue};
pub use send::{Messages, SendBatch, SendQueue, Service};
pub use work::{Completion, Failure, Operation, Side, Work, WorkError, decode};

pub use uar::{BlueFlame, Plain, SendDoorbell, Shared};

use mlx5_prm::wqe::{CompletionMode, Fence};

pub(crate) use send::SendLimits;

/// A scatter/gather element: registered memory of this side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataSegment {
    /// First address, as the key's memory region counts.
    pub addr: u64,
    /// Bytes, below 2^31.
    pub len: u32,
    /// The region's local key.
    pub lkey: u32,
}

/// Bytes of the longest element a data segment can name: its top bit means "inline".
const MAX_ELEMENT: u32 = (1 << 31) - 1;

/// Where in the remote's memory an RDMA operation goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteAddress {
    /// First address, as the remote's memory region counts.
    pub addr: u64,
    /// The region's remote key.
    pub rkey: u32,
}

bitflags::bitflags! {
    /// How a work request is carried out: bits of the control segment, as they stand in the WQE.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct WrFlags: u8 {
        /// Write a completion also on success. Without it only a failure completes, and the room of the work request is
        /// free once a later signalled one has completed: a queue full of unsignalled work stays full.
        const SIGNALLED = (CompletionMode::Always.number() << 2) as u8;
        /// Wake a receiver that waits for solicited completions only.
        const SOLICITED = 1 << 1;
        /// Begin only when all earlier RDMA READs and atomics of the queue are complete.
        const FENCE = (Fence::Fence.number() << 5) as u8;
    }
}
