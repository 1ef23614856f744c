//! Buffers posted to a shared receive queue.

use std::sync::Arc;

use super::buffers::Buffers;
use super::in_flight::{Done, InFlight, Refused, RefusedReason, Ticket};
use crate::error::Error;
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
    /// Of `queue`, the queue of `srq`.
    pub(super) fn new(queue: &SharedReceiveQueue, srq: Arc<Srq>) -> Self {
        Receives { in_flight: InFlight::new(0, queue.capacity() as u32), srq }
    }

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

    /// Posts a receive of one message into each of `buffers`, the last first, with all of its capacity, by one doorbell
    /// record. Those that are not posted, if any, stay in `buffers`.
    pub(super) fn post_each(
        &mut self,
        queue: &mut SharedReceiveQueue,
        buffers: &mut Vec<Buffer>,
    ) -> Result<(), RefusedReason> {
        let mut batch = queue.batch();
        let posted = self.in_flight.receive_each(buffers, |wr_id, elements| {
            // SAFETY: as in `post`. The batch is rung below.
            unsafe { batch.receive(wr_id, elements) }.map_err(RefusedReason::from)
        });
        batch.ring();
        posted
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

/// A shared receive queue of its own, with its completion queue and the posted buffers.
#[derive(Debug)]
pub(super) struct SharedReceiver {
    shared: SharedReceiveQueue,
    /// After the queue, which also holds the object.
    receives: Receives,
    pub(super) cq: CompletionQueue,
}

impl SharedReceiver {
    /// Of `srq`, whose messages complete in `cq`.
    pub(super) fn new(srq: Arc<Srq>, cq: CompletionQueue) -> Result<Self, Error> {
        let shared = srq.receive_queue()?;
        let receives = Receives::new(&shared, srq);
        Ok(SharedReceiver { shared, receives, cq })
    }

    pub(super) fn srq(&self) -> &Srq {
        &self.receives.srq
    }

    pub(super) fn posted(&self) -> usize {
        self.receives.in_flight.in_flight().1
    }

    #[inline]
    pub(super) fn post(&mut self, buffer: Buffer) -> Result<Ticket, Refused> {
        self.receives.post(&mut self.shared, buffer)
    }

    pub(super) fn post_each(&mut self, buffers: &mut Vec<Buffer>) -> Result<(), RefusedReason> {
        self.receives.post_each(&mut self.shared, buffers)
    }

    #[inline]
    pub(super) fn poll(&mut self) -> Result<Option<Done>, RetireError> {
        self.receives.poll(&mut self.shared, &mut self.cq)
    }

    pub(super) fn poll_into(&mut self, messages: &mut Vec<Done>, most: usize) -> Result<usize, RetireError> {
        let before = messages.len();
        for result in self.cq.poll_batch(most) {
            let wr_id = self.shared.retire(&work_of(&result))?;
            messages.push(self.receives.in_flight.done(wr_id, result)?);
        }
        Ok(messages.len() - before)
    }
}

/// The calls of a type whose field `receiver` is a [`SharedReceiver`].
macro_rules! receiver_calls {
    ($Type:ty) => {
        impl $Type {
            /// Posts a receive of one message into `buffer`. Errors: [`Refused`], with the buffer.
            pub fn receive(&mut self, buffer: Buffer) -> Result<Ticket, Refused> {
                self.receiver.post(buffer)
            }

            /// Posts a receive of one message into each of `buffers`, the last first, with all of its capacity, and
            /// tells the card of all at once.
            ///
            /// # Errors
            /// [`RefusedReason`]: `buffers` has those that were not posted. Otherwise it is empty afterwards, and keeps
            /// its memory for the next.
            pub fn receive_each(&mut self, buffers: &mut Vec<Buffer>) -> Result<(), RefusedReason> {
                self.receiver.post_each(buffers)
            }

            /// Number of receives posted.
            pub fn in_flight(&self) -> usize {
                self.receiver.posted()
            }

            /// As [`Srq::arm_limit`].
            ///
            /// # Errors
            /// As there.
            ///
            /// [`Srq::arm_limit`]: crate::objects::Srq::arm_limit
            pub fn arm_limit(&self, limit: u16) -> Result<(), Error> {
                self.receiver.srq().arm_limit(limit)
            }

            /// Returns the next message; `None` if there is none.
            ///
            /// # Errors
            /// [`RetireError`] if the card names a receive that is not in flight: the card or the driver is broken.
            pub fn poll(&mut self) -> Result<Option<Done>, RetireError> {
                self.receiver.poll()
            }

            /// Adds the next messages to `messages`, up to `most`, and returns how many: their completions are given
            /// back to the card at once. It allocates nothing while `messages` has room.
            ///
            /// # Errors
            /// As for [`poll`](Self::poll). The messages before are added.
            pub fn poll_into(&mut self, messages: &mut Vec<Done>, most: usize) -> Result<usize, RetireError> {
                self.receiver.poll_into(messages, most)
            }

            /// Waits until [`poll`](Self::poll) may have a message. It sleeps if the options of its completion queue
            /// have events.
            ///
            /// # Errors
            /// [`Error::Timeout`] after `timeout`, [`Error::CompletionQueue`] if the completion queue overran,
            /// [`Error::Dead`].
            pub fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
                self.receiver.cq.wait_or_yield(timeout)
            }

            /// The eventfd that becomes readable at an event that [`ready`](Self::ready) or [`wait`](Self::wait)
            /// requested; `None` if the options of its completion queue have no events.
            pub fn fd(&self) -> Option<BorrowedFd<'_>> {
                self.receiver.cq.fd()
            }

            /// As [`wait`](Self::wait), for tasks of any executor: see
            /// [`CompletionQueue::ready`](crate::queue::CompletionQueue::ready).
            pub async fn ready(&mut self, readable: impl AsyncFnMut() -> io::Result<()>) -> Result<(), Error> {
                self.receiver.cq.ready(readable).await
            }
        }

        event_source!($Type; receiver.cq);
    };
}
pub(super) use receiver_calls;

impl Drop for Receives {
    fn drop(&mut self) {
        let ended = Arc::get_mut(&mut self.srq).is_some_and(|srq| srq.end().is_ok());
        if !ended {
            tracing::error!("a shared receive queue was not destroyed; its buffers are leaked");
            self.in_flight.leak();
        }
    }
}
