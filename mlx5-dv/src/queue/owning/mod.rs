//! Queues that own the buffers of posted work.

pub(super) mod batch;
pub(super) mod connection;
pub(super) mod datagram_queue;
pub(super) mod datagrams;
pub(super) mod dynamic;
pub(super) mod endpoint;
pub(super) mod ethernet;
pub(super) mod extended;
pub(super) mod fast_key;
pub(super) mod fast_window;
pub(super) mod forward;
pub(super) mod frame_batch;
pub(super) mod held;
pub(super) mod hub;
pub(super) mod in_flight;
mod key_life;
mod listening;
mod masked;
mod orphans;
mod peer;
mod queues;
mod receives;
mod senders;
mod sends;
pub(super) mod setup;
pub(super) mod spread;
pub(super) mod striding;
