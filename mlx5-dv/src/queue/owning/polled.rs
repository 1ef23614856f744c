//! Work queues with a completion queue of their own.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use mlx5_prm::cqe::Cqe;

use super::buffers::Buffers;
use super::held::{EndpointDone, HeldBuffers};
use super::in_flight::{Done, InFlight};
use super::queues::{NoReceives, Retire, Wait};
use super::work_queues::{Take, WorkQueues, if_taken};
use crate::error::Error;
use crate::objects::{Buffer, QueuePair};
use crate::queue::completion::decode::{Completion, WorkError, decode, work_of};
use crate::queue::completion::{CompletionQueue, Completions};
use crate::queue::error::RetireError;
use crate::queue::send::service::Service;

/// Work queues, and the completion queue in which they alone complete. If it is dropped with work in flight, the queue
/// pair is reset first; if that fails, the memory is leaked.
#[derive(Debug)]
pub(super) struct Polled<S: Service, R: Retire = NoReceives, B: Buffers = InFlight> {
    pub(super) work: WorkQueues<S, R, B>,
    /// What completed with others, or while another was waited for.
    pub(super) met: VecDeque<Done<Completion, B::Ticket>>,
    pub(super) cq: CompletionQueue,
    /// What they are of, for the log.
    what: &'static str,
}

impl<S: Service, R: Retire, B: Buffers> Polled<S, R, B> {
    /// Those of `qp`, without queues yet, which complete in `cq`.
    pub(super) fn new(qp: Arc<QueuePair>, cq: CompletionQueue, in_flight: B, what: &'static str) -> Self {
        let met = VecDeque::with_capacity(in_flight.most_together());
        Polled { work: WorkQueues::new(qp, in_flight), met, cq, what }
    }

    /// After a reset: the buffers that were in flight, and those of completions not polled.
    pub(super) fn discarded(&mut self) -> Vec<Buffer> {
        let mut buffers: Vec<Buffer> = self.met.drain(..).filter_map(|done| done.buffer).collect();
        buffers.extend(self.work.in_flight.take_all());
        buffers
    }
}

impl<S: Service, R: Retire> Polled<S, R> {
    /// The next completed work request, with its buffer; `None` if there is none.
    #[inline(always)]
    pub(super) fn poll(&mut self) -> Result<Option<Done>, RetireError> {
        // Most programs wait for nothing, and have none here.
        while self.met.is_empty() {
            let Some(cqe) = self.cq.peek_entry() else { return Ok(None) };
            if_taken!(self.work, cqe, |taken, completion| {
                self.cq.pass_entry();
                match taken {
                    Some((ticket, buffer)) => return Ok(Some(Done::of(ticket, buffer, Ok(completion)))),
                    None => continue,
                }
            });
            self.meet()?;
        }
        Ok(self.met.pop_front())
    }

    /// Meets all that completes with the next entry.
    #[cold]
    #[inline(never)]
    fn meet(&mut self) -> Result<(), RetireError> {
        let Some(result) = self.cq.poll() else { return Ok(()) };
        let first = self.finish(result)?;
        // Before those that completed with it: there were no others.
        first.into_iter().for_each(|first| self.met.push_front(first));
        Ok(())
    }

    /// What completed with `result`: the first that is to be reported. The others are met.
    fn finish(&mut self, result: Result<Completion, WorkError>) -> Result<Option<Done>, RetireError> {
        let wr_id = self.work.queues.retire(&work_of(&result))?;
        self.work.in_flight.complete(wr_id, result, &mut self.met)
    }

    /// Waits for the next completed work request, with its buffer.
    pub(super) fn next_within(&mut self, timeout: Duration) -> Result<Done, Error> {
        match self.met.pop_front() {
            Some(done) => Ok(done),
            None => {
                let deadline = self.deadline(timeout);
                self.wait_card(&deadline, timeout)
            }
        }
    }

    /// The same, for tasks.
    pub(super) async fn next(&mut self, mut readable: impl AsyncFnMut() -> io::Result<()>) -> Result<Done, Error> {
        loop {
            if let Some(done) = self.poll()? {
                return Ok(done);
            }
            self.cq.ready(&mut readable).await?;
        }
    }

    /// Waits until [`poll`](Self::poll) may have something.
    pub(super) fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        if self.met.is_empty() { self.cq.wait_or_yield(timeout) } else { Ok(()) }
    }

    /// As [`wait`](Self::wait), for tasks.
    pub(super) async fn ready(&mut self, readable: impl AsyncFnMut() -> io::Result<()>) -> Result<(), Error> {
        if self.met.is_empty() { self.cq.ready(readable).await } else { Ok(()) }
    }
}

impl<S: Service, R: Retire> Wait for Polled<S, R> {
    type Completion = Completion;

    fn poll_card(&mut self) -> Result<Option<Done>, RetireError> {
        while let Some(result) = self.cq.poll() {
            if let Some(done) = self.finish(result)? {
                return Ok(Some(done));
            }
        }
        Ok(None)
    }

    fn cq(&mut self) -> &mut CompletionQueue {
        &mut self.cq
    }
}

impl<S: Service, R: Retire> Polled<S, R, HeldBuffers> {
    /// The next completed work request, with its buffer, if it has one; `None` if there is none.
    #[inline(always)]
    pub(super) fn poll(&mut self) -> Result<Option<EndpointDone>, RetireError> {
        let Some(cqe) = self.cq.poll_entry() else { return Ok(None) };
        if_taken!(self.work, cqe, |wr_id, completion| {
            return Ok(Some(self.work.in_flight.done(wr_id, Ok(completion))));
        });
        self.work.finish(cqe).map(Some)
    }

    /// As [`CompletionQueue::poll_batch`].
    #[inline(always)]
    pub(super) fn poll_batch(&mut self, most: usize) -> PolledBatch<'_, S, R> {
        PolledBatch { completions: self.cq.poll_batch(most), work: &mut self.work }
    }
}

impl<S: Service, R: Retire> Take for WorkQueues<S, R, HeldBuffers> {
    /// The `wr_id`, of one that is retired: its buffer is still held.
    type Taken = u64;

    #[inline(always)]
    fn take_sent(&mut self, completion: &Completion) -> Option<u64> {
        self.queues.retire(&completion.work).ok()
    }

    #[inline(always)]
    fn take_received(&mut self, completion: &Completion) -> Option<u64> {
        self.queues.retire(&completion.work).ok()
    }
}

impl<S: Service, R: Retire> WorkQueues<S, R, HeldBuffers> {
    /// What completed with `cqe`, in any case. Its work request was not retired.
    #[cold]
    #[inline(never)]
    fn finish(&mut self, cqe: Cqe) -> Result<EndpointDone, RetireError> {
        let result = decode(&cqe);
        let wr_id = self.queues.retire(&work_of(&result))?;
        Ok(self.in_flight.done(wr_id, result))
    }
}

/// Completions of a batch, taken one by one.
#[derive(Debug)]
pub(super) struct PolledBatch<'a, S: Service, R> {
    completions: Completions<'a>,
    work: &'a mut WorkQueues<S, R, HeldBuffers>,
}

impl<S: Service, R: Retire> Iterator for PolledBatch<'_, S, R> {
    type Item = Result<EndpointDone, RetireError>;

    #[expect(clippy::question_mark, reason = "by it the entry would be stored, for 12 instructions more")]
    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let Some(cqe) = self.completions.next_entry() else { return None };
        if_taken!(self.work, cqe, |wr_id, completion| {
            return Some(Ok(self.work.in_flight.done(wr_id, Ok(completion))));
        });
        Some(self.work.finish(cqe))
    }
}

impl<S: Service, R: Retire, B: Buffers> Drop for Polled<S, R, B> {
    fn drop(&mut self) {
        self.work.abandon(self.what);
    }
}
