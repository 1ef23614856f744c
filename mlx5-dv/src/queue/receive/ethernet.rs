//! Receives of Ethernet frames.

use std::sync::Arc;

use super::{ReceiveQueue, ReceiveRing};
use crate::objects::{RingPermit, Rq};
use crate::queue::completion::decode::{Completion, Side, WorkError, user_index_of, work_of};
use crate::queue::error::RetireError;

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

    /// As [`retire`](Self::retire), of a whole completion, which says whose it is even if it carries a flow tag
    /// ([`Rq::user_index`]).
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn take<C: AsRef<Completion>>(&mut self, result: &Result<C, WorkError>) -> Result<u64, RetireError> {
        let work = work_of(result);
        match self.rq().user_index() {
            Some(index) if index == user_index_of(result) => self.ring.retire(&work, || true),
            Some(_) => Err(RetireError::OtherQueue { work, side: Side::Receive, qpn: self.ring.qpn }),
            None => self.retire(&work),
        }
    }

    /// The object.
    pub fn rq(&self) -> &Arc<Rq> {
        self.object()
    }
}
