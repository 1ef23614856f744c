//! A send queue that owns the buffers of posted work, with a completion queue of its own.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::batch::ConnectionBatch;
use super::in_flight::{Done, InFlight, UNREPORTED_CQES};
use super::setup::ConnectionOptions;
use crate::error::Error;
use crate::objects::{AnyDoorbell, Buffer, CqOptions, DoorbellKind, Pd, QueuePair, Uar};
use crate::queue::completion::CompletionQueue;
use crate::queue::completion::decode::work_of;
use crate::queue::error::RetireError;
use crate::queue::send::SendQueue;
use crate::queue::send::service::Service;
use crate::queue::send::wqe::WrFlags;

/// The completion queue of the sends that `options` describe, of a queue pair of `pd`.
pub(super) fn completion_queue(
    pd: &Arc<Pd>,
    uar: &Arc<Uar>,
    options: &ConnectionOptions,
) -> Result<CompletionQueue, Error> {
    let entries = options.send_depth.saturating_add(UNREPORTED_CQES);
    let mut cq_options = CqOptions::default().entries(entries).vector(options.vector);
    (cq_options.events, cq_options.moderation) = (options.events, options.moderation);
    CompletionQueue::create(uar, cq_options.beside(pd))
}

/// The sends of a queue pair that receives nothing.
#[derive(Debug)]
pub(super) struct Sends<S: Service<Object = QueuePair>> {
    /// `Some` once the queue pair is in RTS, until it is reset or dropped.
    pub(super) queue: Option<SendQueue<AnyDoorbell, S>>,
    in_flight: InFlight,
    /// What completed with the last completion that was polled.
    later: VecDeque<Done>,
    /// Fence of the next work request; set if the last one changes a key.
    fence: WrFlags,
    pub(super) cq: CompletionQueue,
    pub(super) qp: Arc<QueuePair>,
    /// What it is of, for the log.
    what: &'static str,
}

impl<S: Service<Object = QueuePair>> Sends<S> {
    /// Those of `qp`, as `options` describe, which complete in `cq` alone.
    pub(super) fn new(
        qp: Arc<QueuePair>,
        cq: CompletionQueue,
        options: &ConnectionOptions,
        what: &'static str,
    ) -> Self {
        let in_flight = InFlight::of_several((options.send_depth, options.send_sges), (0, 1));
        let later = VecDeque::with_capacity(in_flight.buffers());
        Sends { queue: None, in_flight, later, fence: WrFlags::empty(), cq, qp, what }
    }

    /// How it rings the doorbell, once it has its queue.
    pub(super) fn doorbell_kind(&self) -> Option<DoorbellKind> {
        self.queue.as_ref().map(SendQueue::doorbell_kind)
    }

    /// Number of work requests in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.in_flight().0
    }

    #[inline(always)]
    pub(super) fn batch(&mut self) -> ConnectionBatch<'_, S> {
        ConnectionBatch::new(&self.qp, self.queue.as_mut(), &mut self.in_flight, &mut self.fence)
    }

    /// The next completed work request; `None` if there is none.
    pub(super) fn poll(&mut self) -> Result<Option<Done>, RetireError> {
        if let Some(done) = self.later.pop_front() {
            return Ok(Some(done));
        }
        while let Some(result) = self.cq.poll() {
            let work = work_of(&result);
            let queue = self.queue.as_mut().ok_or_else(|| RetireError::nothing_in_flight(work))?;
            let wr_id = queue.retire(&work)?;
            if let Some(done) = self.in_flight.complete(wr_id, result, &mut self.later)? {
                return Ok(Some(done));
            }
        }
        Ok(None)
    }

    /// Waits until [`poll`](Self::poll) may have something.
    pub(super) fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        if self.later.is_empty() { self.cq.wait_or_yield(timeout) } else { Ok(()) }
    }

    /// As [`wait`](Self::wait), for tasks.
    pub(super) async fn ready(&mut self, readable: impl AsyncFnMut() -> io::Result<()>) -> Result<(), Error> {
        if self.later.is_empty() { self.cq.ready(readable).await } else { Ok(()) }
    }

    /// Resets the queue pair, in any state.
    pub(super) fn reset(&mut self) -> Result<(), Error> {
        self.queue = None;
        self.qp.reset()
    }

    /// The buffers that were in flight before a reset, and those of completions not polled.
    pub(super) fn discarded(&mut self) -> Vec<Buffer> {
        self.fence = WrFlags::empty();
        self.later.drain(..).filter_map(|done| done.buffer).chain(self.in_flight.drain()).collect()
    }
}

impl<S: Service<Object = QueuePair>> Drop for Sends<S> {
    fn drop(&mut self) {
        self.queue = None;
        if self.in_flight.is_empty() && !self.in_flight.has_keys() {
            return;
        }
        // Until the queue pair is reset, the card may still access the buffers, and change keys. A dead card cannot.
        if let Err(error) = self.qp.reset()
            && !error.frees_memory()
        {
            tracing::error!(%error, "{} was not reset; its buffers in flight are leaked", self.what);
            self.in_flight.leak();
        }
    }
}
