//! Posting memory for frames.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::objects::{RingPermit, Rq};
use crate::queue::receive::{ReceiveBatch, ReceiveRing};
use crate::queue::{RetireError, Work};

/// The queue of an [`Rq`], used by one thread: not `Sync`, `&mut self` throughout. Each receive takes one frame.
pub struct EthernetReceiveQueue {
    ring: ReceiveRing,
    /// Keeps the ring. Last, so that it goes last.
    rq: Arc<Rq>,
    /// Makes the queue not `Sync`.
    _one_thread: PhantomData<Cell<()>>,
}

impl fmt::Debug for EthernetReceiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EthernetReceiveQueue")
            .field("rqn", &self.rq.rqn())
            .field("in_flight", &self.ring.in_flight())
            .finish_non_exhaustive()
    }
}

impl EthernetReceiveQueue {
    pub(crate) fn new(permit: RingPermit, rq: Arc<Rq>) -> Self {
        let (base, record) = permit.use_up();
        let (log_size, log_stride, sges) = rq.shape();
        // SAFETY: the permit says that nobody else posts there, and that ring and record are mapped as long as `rq`, which the
        // queue keeps and drops last. `Rq::create` made the ring of that shape, at most 2^15 WQEs of at least 16 bytes, at the
        // start of its memory. Of the record this queue uses the receive half.
        let ring = unsafe {
            let (record, _) = uar::record::queue_pair(record);
            ReceiveRing::new(base, log_size, log_stride, sges, rq.rqn(), record)
        };
        EthernetReceiveQueue { ring, rq, _one_thread: PhantomData }
    }

    /// Begins a batch. Dropped without [`ring`](ReceiveBatch::ring), it never happened.
    #[inline(always)]
    pub fn batch(&mut self) -> ReceiveBatch<'_> {
        self.ring.batch()
    }

    /// Says that `work`, from a completion, is done: its room is free again. The `wr_id` it was posted with.
    ///
    /// # Errors
    /// [`RetireError`] for a completion of another queue, or of anything but the oldest receive. Nothing changes.
    #[inline]
    pub fn retire(&mut self, work: &Work) -> Result<u64, RetireError> {
        self.ring.retire(work)
    }

    /// Receives that can be posted.
    pub fn free(&self) -> usize {
        self.capacity() - usize::from(self.ring.in_flight())
    }

    /// Receives the ring holds.
    pub fn capacity(&self) -> usize {
        self.ring.capacity()
    }

    /// The object.
    pub fn rq(&self) -> &Arc<Rq> {
        &self.rq
    }
}

impl Drop for EthernetReceiveQueue {
    fn drop(&mut self) {
        self.rq.queue_came_home();
    }
}
