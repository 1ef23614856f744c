//! Streams of a dynamically connected initiator.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use mlx5_prm::wqe::WqeOpcode;

use super::work::{Failure, SendWork};

/// The streams of an initiator: each of its messages names one.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    /// Work requests without a completion, oldest first: completions come in the order of the send queue.
    pub work: VecDeque<Streamed>,
    /// Numbers of its channels in [`Queues::connections`](super::Queues::connections), each at its place.
    pub channels: BTreeMap<u16, u32>,
    /// Streams in error.
    pub errored: BTreeSet<u16>,
}

/// A fetched work request of a stream.
#[derive(Debug)]
pub(crate) struct Streamed {
    pub index: u16,
    pub opcode: WqeOpcode,
    /// Once it has ended: it, and why it failed.
    pub ended: Option<(SendWork, Option<Failure>)>,
}
