//! Dynamically connected targets. PRM "Dynamically Connected Target Context".

use std::collections::{BTreeMap, VecDeque};

use mlx5_prm::ctx::{DctState, Dctc};

use crate::transport::packet::Gid;

/// A dynamically connected target.
#[derive(Debug)]
pub struct Dct {
    /// Its number: what initiators address.
    pub dctn: u32,
    /// Its state.
    pub state: DctState,
    /// Its context, as created.
    pub context: Dctc,
    /// The next message with a wrong access key posts an event.
    pub is_armed: bool,
    /// A completion could not be written: it takes no more requests, like a queue pair in the error state.
    pub is_broken: bool,
    /// Messages with a wrong access key.
    pub violations: u32,
    /// Its connections: address and queue pair of the initiator, and the number in
    /// [`Queues::connections`](super::Queues::connections).
    pub connections: BTreeMap<(Gid, u32), u32>,
    /// Initiators of all connections, and the request that each had sent last when it was put here: those that have
    /// been idle for long come first.
    pub by_age: VecDeque<((Gid, u32), u64)>,
    /// Requests that have arrived for it.
    pub heard: u64,
}
