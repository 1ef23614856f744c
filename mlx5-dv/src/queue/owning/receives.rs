//! Buffers posted to a shared receive queue.

use std::sync::Arc;

use super::in_flight::{Done, InFlight, Refused, RefusedReason, Ticket};
use crate::objects::{Buffer, Srq};
use crate::queue::completion::CompletionQueue;
use crate::queue::completion::decode::{Side, work_of};
use crate::queue::error::RetireError;
use crate::queue::receive::shared::SharedReceiveQueue;

/// The buffers of posted receives; owned until the shared receive queue is destroyed.
#[derive(Debug)]
pub(super) struct Receives {
    pub(super) in_flight: InFlight,
    pub(super) srq: Arc<Srq>,
}

impl Receives {
    /// Posts a receive of one message into `buffer` to `queue`. Errors: [`Refused`], with the buffer.
    #[inline]
    pub(super) fn post(&mut self, queue: &mut SharedReceiveQueue, buffer: Buffer) -> Result<Ticket, Refused> {
        let posted = self.in_flight.next(Side::Receive).and_then(|wr_id| {
            let mut batch = queue.batch();
            // SAFETY: `InFlight::keep` then stores the buffer, and with it its region, until the completion or until
            // the shared receive queue was destroyed.
            unsafe { batch.receive(wr_id, &[buffer.segment()])? };
            batch.ring();
            Ok(())
        });
        self.in_flight.keep(posted.map_err(RefusedReason::from), Side::Receive, Some(buffer))
    }

    /// The next message of `queue`, where `cq` has completions of nothing else; `None` if there is none.
    #[inline]
    pub(super) fn poll(
        &mut self,
        queue: &mut SharedReceiveQueue,
        cq: &mut CompletionQueue,
    ) -> Result<Option<Done>, RetireError> {
        let Some(result) = cq.poll() else { return Ok(None) };
        let wr_id = queue.retire(&work_of(&result))?;
        self.in_flight.done(wr_id, result).map(Some)
    }
}

impl Drop for Receives {
    fn drop(&mut self) {
        let ended = Arc::get_mut(&mut self.srq).is_some_and(|srq| srq.end().is_ok());
        if !ended {
            tracing::error!("a shared receive queue was not destroyed; its buffers are leaked");
            self.in_flight.leak();
        }
    }
}
