//! Receives of Ethernet frames.

use std::sync::Arc;

use super::{ReceiveQueue, ReceiveRing};
use crate::objects::{RingPermit, Rq};

/// The queue of an [`Rq`]. Used by one thread: not `Sync`, and all methods take `&mut self`. Each receive takes one
/// frame.
pub type EthernetReceiveQueue = ReceiveQueue<Rq>;

impl ReceiveQueue<Rq> {
    pub(crate) fn of_frames(permit: RingPermit, rq: Arc<Rq>) -> Self {
        let (base, record) = permit.into_parts();
        let (log_size, log_stride, sges) = rq.shape();
        // SAFETY: the permit grants exclusive posting; ring and record are mapped as long as `rq`, which the queue
        // keeps and drops last. `Rq::create` made the ring of that shape, at most 2^15 WQEs of at least 16 bytes, at
        // the start of its memory. This queue uses the receive half of the record.
        let ring = unsafe {
            let (record, _) = uar::record::queue_pair(record);
            ReceiveRing::new(base, log_size, log_stride, sges, rq.rqn(), record)
        };
        ReceiveQueue::of(ring, rq)
    }

    /// The object.
    pub fn rq(&self) -> &Arc<Rq> {
        self.object()
    }
}
