//! Options and results of a hub.

use super::members::ConnectionId;
use crate::objects::Buffer;
use crate::queue::owning::in_flight::Done;
use crate::queue::owning::setup::ConnectionOptions;
use crate::setters::setters;

/// Options of a hub.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HubOptions {
    /// Maximum number of connections, at most 16384; [`Hub::grow`](super::Hub::grow) raises it later. Default: 256.
    pub connections: u32,
    /// Number of posted receives, shared by all connections. Default: 1023.
    pub receives: u32,
    /// Number of additional buffers for sends. Default: 256.
    pub spares: u32,
    /// Size of a buffer in bytes, and so of the longest received message. Default: 4096.
    pub message_bytes: usize,
    /// Options of each connection. `events`, `vector` and `moderation` apply to the hub's completion queue;
    /// `recv_depth` and `recv_sges` are ignored.
    pub each: ConnectionOptions,
}

setters! {
    HubOptions {
        connections: u32;
        receives: u32;
        spares: u32;
        message_bytes: usize;
        each: ConnectionOptions;
    }
}

impl Default for HubOptions {
    fn default() -> Self {
        let each = ConnectionOptions { send_depth: 16, ..ConnectionOptions::default() };
        HubOptions { connections: 256, receives: 1023, spares: 256, message_bytes: 4096, each }
    }
}

/// A completed work request of a connection.
#[derive(Debug)]
pub struct HubDone<'a, C> {
    /// The connection.
    pub connection: ConnectionId,
    /// Its context.
    pub context: &'a mut C,
    /// The completed work request. For a received message the completion is of
    /// [`Side::Receive`](crate::queue::Side::Receive), and the user owns the buffer until
    /// [`Hub::recycle`](super::Hub::recycle).
    pub done: Done,
}

/// A connection that has left.
#[derive(Debug)]
pub struct Left<C> {
    /// Its context.
    pub context: C,
    /// Completions not polled, in order: messages received before, and flushed work.
    pub done: Vec<Done>,
    /// Buffers of sends without a completion.
    pub buffers: Vec<Buffer>,
}
