//! What send queues send.

use crate::caps::Caps;
use crate::objects::{QueuePair, SendRingOwner};

/// What a send queue sends, and so what its batches offer: [`Messages`], [`Datagrams`](crate::queue::Datagrams) or
/// [`Frames`](crate::queue::ethernet::Frames).
pub trait Service: Send {
    /// What has the ring.
    type Object: SendRingOwner;
}

/// SENDs, RDMA, atomics and what else a connected queue pair does.
#[derive(Debug, Clone, Copy)]
pub struct Messages {
    /// Whether the card has atomics.
    pub(super) atomics: bool,
}

impl Messages {
    pub(crate) fn new(caps: &Caps) -> Self {
        Messages { atomics: caps.check_atomics().is_ok() }
    }
}

impl Service for Messages {
    type Object = QueuePair;
}
