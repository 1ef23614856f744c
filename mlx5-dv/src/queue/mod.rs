//! The hot path: send, receive, completion.
//!
//! # Contract
//! * A queue is used by one thread at a time: it is `Send`, not `Sync`, and all methods take `&mut self`.
//! * Posting, ringing, polling and retiring make no system call, take no lock and allocate nothing. (A
//!   [`Shared`] doorbell takes a lock; a UAR page that cannot be mapped makes ringing a system call.)
//! * The card is not trusted: a completion is copied once and decoded from the copy; its queue pair and index are
//!   checked before use.
//! * A failed work request is an error value, never silence.
//!
//! # Three levels
//! 1. [`SendQueue`], [`ReceiveQueue`], [`CompletionQueue`]: work requests by address and key. Posting memory is
//!    `unsafe`.
//! 2. [`Connection`]: takes a buffer with each work request and returns it with its completion; what it receives is a
//!    slice. [`DatagramQueue`]: the same for datagrams. [`Endpoint`]: holds a memory region and posts any part of it,
//!    in batches, signalled or not, and buffers beside it. [`DatagramEndpoint`]: the same for datagrams.
//!    [`Hub`]: hundreds of connections on one thread, which share their receives. All are safe.
//! 3. [`Connection`]'s `*_blocking` calls: one work request and its completion, with a deadline. Safe.
//!
//! [`UnreliableSendQueue`], [`UnreliableConnection`] and [`UnreliableEndpoint`] are levels 1 and 2 for unreliable
//! connections.
//! [`SendBatch::masked_compare_swap`] and [`SendBatch::masked_fetch_add`] are the card's atomics of 4 to 32 bytes.
//! [`SendBatch::register`] registers memory by a work request; [`FastKey`] does so for buffers of a connection.
//! [`SendBatch::bind_window`] binds a memory window; [`FastWindow`] does so and holds the region. [`XrcSendQueue`] is
//! level 1 for extended reliable connections, [`SharedReceiveQueue`] for receives that several queue pairs share,
//! [`DatagramSendQueue`] for datagrams, each with its own destination, [`DcSendQueue`] for reliable messages, each with
//! its own target; [`XrcConnection`], [`XrcReceiver`], [`DcInitiator`] and [`DcReceiver`] are level 2 for these.
//! [`ethernet`] has levels 1 and 2 for Ethernet frames.

mod completion;
mod error;
pub mod ethernet;
mod events;
mod of_object;
mod owning;
mod receive;
mod send;

#[cfg(test)]
mod fake;

pub use completion::compressed::CompressedCompletionQueue;
pub use completion::decode::{Completion, Failure, Operation, Side, Work, WorkError, decode};
pub use completion::{CompletionQueue, Completions};
pub use error::{Full, PostError, RetireError};
pub use events::{EventQueue, EventSource};
pub use owning::batch::{ConnectionBatch, ConnectionReceives, DatagramBatch};
pub use owning::connection::{Connection, UnreliableConnection, WaitError};
pub use owning::datagram_queue::DatagramQueue;
pub use owning::datagrams::{DatagramEndpoint, DatagramOptions, DatagramSends};
pub use owning::dynamic::{DcInitiator, DcReceiver};
pub use owning::endpoint::{Endpoint, EndpointCompletions, EndpointReceives, EndpointSends, UnreliableEndpoint};
pub use owning::extended::{XrcConnection, XrcPeer, XrcReceiver};
pub use owning::fast_key::FastKey;
pub use owning::fast_window::{Binding, FastWindow};
pub use owning::held::EndpointDone;
pub use owning::hub::Hub;
pub use owning::hub::members::ConnectionId;
pub use owning::hub::options::{HubDone, HubOptions, Left};
pub use owning::in_flight::{Done, Kept, Refused, RefusedReason, Ticket};
pub use owning::setup::{ConnectionOptions, Peer};
pub use receive::shared::{SharedReceiveBatch, SharedReceiveQueue};
pub use receive::{ReceiveBatch, ReceiveQueue};
pub use send::addressed::{AddressedMessages, Receiver};
pub use send::datagram::{DatagramSendBatch, DatagramSendQueue, Datagrams, GRH};
pub use send::dynamic::{DcSendQueue, DynamicMessages};
pub use send::extended::{ExtendedMessages, RemoteSrq, XrcSendQueue};
pub use send::masked::{MaskedAdd, MaskedNumber, MaskedSwap};
pub use send::service::{Connected, KeyChanging, Messages, Service, UnreliableMessages};
pub use send::umr::{Interleaved, KeyMemory, Registration};
pub use send::wqe::WrFlags;
pub use send::{SendBatch, SendQueue, UnreliableSendQueue};

pub use uar::{BlueFlame, Plain, SendDoorbell, Shared};

pub use crate::memory::{DataSegment, RemoteAddress};
pub use crate::objects::{AnyDoorbell, DoorbellMode, Leased, Trapped};
