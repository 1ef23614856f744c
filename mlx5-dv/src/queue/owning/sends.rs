//! A send queue that owns the buffers of posted work, with a completion queue of its own.

use std::sync::Arc;

use super::in_flight::{Done, InFlight, Refused, RefusedReason, Ticket};
use super::setup::ConnectionOptions;
use crate::error::Error;
use crate::memory::DataSegment;
use crate::objects::{AnyDoorbell, Buffer, CqOptions, DoorbellKind, Pd, QueuePair, Uar};
use crate::queue::completion::CompletionQueue;
use crate::queue::completion::decode::{Side, work_of};
use crate::queue::error::{PostError, RetireError};
use crate::queue::send::service::Service;
use crate::queue::send::{SendBatch, SendQueue};

/// The completion queue of the sends that `options` describe, of a queue pair of `pd`.
pub(super) fn completion_queue(
    pd: &Arc<Pd>,
    uar: &Arc<Uar>,
    options: &ConnectionOptions,
) -> Result<CompletionQueue, Error> {
    let mut cq_options = CqOptions::default().entries(options.send_depth).vector(options.vector);
    (cq_options.events, cq_options.moderation) = (options.events, options.moderation);
    CompletionQueue::create(uar, cq_options.beside(pd))
}

/// The sends of a queue pair that receives nothing.
#[derive(Debug)]
pub(super) struct Sends<S: Service<Object = QueuePair>> {
    /// `Some` once the queue pair is in RTS, until it is dropped.
    pub(super) queue: Option<SendQueue<AnyDoorbell, S>>,
    in_flight: InFlight,
    pub(super) cq: CompletionQueue,
    pub(super) qp: Arc<QueuePair>,
    /// What it is of, for the log.
    what: &'static str,
}

impl<S: Service<Object = QueuePair>> Sends<S> {
    /// Those of `qp`, of up to `depth` work requests, which complete in `cq` alone.
    pub(super) fn new(qp: Arc<QueuePair>, cq: CompletionQueue, depth: u32, what: &'static str) -> Self {
        Sends { queue: None, in_flight: InFlight::new(depth, 0), cq, qp, what }
    }

    /// How it rings the doorbell, once it has its queue.
    pub(super) fn doorbell_kind(&self) -> Option<DoorbellKind> {
        self.queue.as_ref().map(SendQueue::doorbell_kind)
    }

    /// Posts one work request by `post`, and rings the doorbell. Keeps `buffer`, which it uses, until its completion,
    /// or until the queue pair is reset or destroyed.
    pub(super) fn post(
        &mut self,
        buffer: Option<Buffer>,
        post: impl FnOnce(&mut SendBatch<'_, AnyDoorbell, S>, u64, &[DataSegment]) -> Result<(), PostError>,
    ) -> Result<Ticket, Refused> {
        let segment = buffer.as_ref().map(Buffer::segment);
        let posted = self.in_flight.next(Side::Send).map_err(RefusedReason::from).and_then(|wr_id| {
            let queue = self.queue.as_mut().ok_or(RefusedReason::NotConnected)?;
            let mut batch = queue.batch();
            post(&mut batch, wr_id, segment.as_slice())?;
            batch.ring();
            Ok(())
        });
        self.in_flight.keep(posted, Side::Send, buffer)
    }

    /// The next completed work request; `None` if there is none.
    pub(super) fn poll(&mut self) -> Result<Option<Done>, RetireError> {
        let Some(result) = self.cq.poll() else { return Ok(None) };
        let work = work_of(&result);
        let queue = self.queue.as_mut().ok_or_else(|| RetireError::nothing_in_flight(work))?;
        let wr_id = queue.retire(&work)?;
        self.in_flight.done(wr_id, result).map(Some)
    }
}

impl<S: Service<Object = QueuePair>> Drop for Sends<S> {
    fn drop(&mut self) {
        self.queue = None;
        if !self.in_flight.is_empty() && self.qp.reset().is_err() && self.cq.cq().death().is_none() {
            tracing::error!("{} was not reset; its buffers in flight are leaked", self.what);
            self.in_flight.leak();
        }
    }
}
