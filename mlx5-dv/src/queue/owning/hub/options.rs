//! What a hub is to be, and what it hands out.

use super::members::ConnectionId;
use crate::objects::Buffer;
use crate::queue::owning::in_flight::Done;
use crate::queue::owning::setup::ConnectionOptions;

/// What a hub is to be.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HubOptions {
    /// Connections at once, 16384 at most; [`Hub::grow`](super::Hub::grow) allows more later. Default: 256.
    pub connections: u32,
    /// Receives that are posted, for all connections together. Default: 1023.
    pub receives: u32,
    /// Buffers to send from, beside those of receives. Default: 256.
    pub spares: u32,
    /// Bytes of a buffer, and so of the longest message received. Default: 4096.
    pub message_bytes: usize,
    /// What each connection is to be. Of its completion queue `events`, `vector` and `moderation` are the hub's;
    /// `recv_depth` is not looked at.
    pub each: ConnectionOptions,
}

impl Default for HubOptions {
    fn default() -> Self {
        let each = ConnectionOptions { send_depth: 16, ..ConnectionOptions::default() };
        HubOptions { connections: 256, receives: 1023, spares: 256, message_bytes: 4096, each }
    }
}

/// A work request of a connection that is done.
#[derive(Debug)]
pub struct HubDone<'a, C> {
    /// Which connection's.
    pub connection: ConnectionId,
    /// What it joined with.
    pub context: &'a mut C,
    /// What is done. Of a received message the completion is of [`Side::Receive`](crate::queue::Side::Receive), and the
    /// buffer is the user's until [`Hub::recycle`](super::Hub::recycle).
    pub done: Done,
}

/// A connection that has left.
#[derive(Debug)]
pub struct Left<C> {
    /// What it joined with.
    pub context: C,
    /// What was done and not polled, in order: messages received before, and what was flushed.
    pub done: Vec<Done>,
    /// Buffers of sends that never completed.
    pub buffers: Vec<Buffer>,
}
