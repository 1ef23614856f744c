//! A send queue and a receive queue, and waits for what they complete.

use std::hint;
use std::time::Duration;

use uar::SendDoorbell;

use super::in_flight::Done;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::objects::ReceiveRingOwner;
use crate::queue::completion::CompletionQueue;
use crate::queue::completion::decode::{Side, Work};
use crate::queue::error::RetireError;
use crate::queue::receive::ReceiveQueue;
use crate::queue::send::SendQueue;
use crate::queue::send::service::Service;

/// Most completions that one poll passes over, because the program gets nothing of them: more than most queues hold. A
/// faulty card could keep a poll for ever with them.
pub(super) const MOST_SKIPPED: usize = 1 << 16;

/// A work queue that retires completions.
pub(super) trait Retire {
    /// See [`SendQueue::retire`].
    fn retire(&mut self, work: &Work) -> Result<u64, RetireError>;
    /// As [`retire`](Self::retire), if `take` returns something for its `wr_id`; otherwise nothing changes.
    fn retire_if<T>(&mut self, work: &Work, take: impl FnOnce(u64) -> Option<T>) -> Option<T>;
    /// Whether nothing is in flight.
    fn is_idle(&self) -> bool;
}

impl<D: SendDoorbell, S: Service> Retire for SendQueue<D, S> {
    #[inline(always)]
    fn retire(&mut self, work: &Work) -> Result<u64, RetireError> {
        self.retire(work)
    }

    #[inline(always)]
    fn retire_if<T>(&mut self, work: &Work, take: impl FnOnce(u64) -> Option<T>) -> Option<T> {
        self.retire_if(work, take)
    }

    fn is_idle(&self) -> bool {
        self.free() == self.capacity()
    }
}

impl<O: ReceiveRingOwner> Retire for ReceiveQueue<O> {
    #[inline(always)]
    fn retire(&mut self, work: &Work) -> Result<u64, RetireError> {
        self.retire(work)
    }

    #[inline(always)]
    fn retire_if<T>(&mut self, work: &Work, take: impl FnOnce(u64) -> Option<T>) -> Option<T> {
        self.retire_if(work, take)
    }

    fn is_idle(&self) -> bool {
        self.free() == self.capacity()
    }
}

/// The receive queue of a queue pair that has none of its own.
#[derive(Debug)]
pub(super) enum NoReceives {}

impl Retire for NoReceives {
    #[inline(always)]
    fn retire(&mut self, _: &Work) -> Result<u64, RetireError> {
        match *self {}
    }

    #[inline(always)]
    fn retire_if<T>(&mut self, _: &Work, _: impl FnOnce(u64) -> Option<T>) -> Option<T> {
        match *self {}
    }

    fn is_idle(&self) -> bool {
        match *self {}
    }
}

/// A send and a receive queue, as far as present.
#[derive(Debug)]
pub(super) struct Queues<S, R> {
    pub(super) send: Option<S>,
    pub(super) receive: Option<R>,
}

impl<S: Retire, R: Retire> Queues<S, R> {
    /// None yet.
    pub(super) fn none() -> Self {
        Queues { send: None, receive: None }
    }

    /// The `wr_id` of `work`, which completed.
    #[inline(always)]
    pub(super) fn retire(&mut self, work: &Work) -> Result<u64, RetireError> {
        let wr_id = match work.side {
            Side::Send => self.send.as_mut().map(|queue| queue.retire(work)),
            Side::Receive => self.receive.as_mut().map(|queue| queue.retire(work)),
        };
        wr_id.unwrap_or_else(|| Err(RetireError::nothing_in_flight(*work)))
    }

    /// As [`retire`](Self::retire), if `take` returns something for its `wr_id`; otherwise nothing changes.
    #[inline(always)]
    pub(super) fn retire_if<T>(&mut self, work: &Work, take: impl FnOnce(u64) -> Option<T>) -> Option<T> {
        match work.side {
            Side::Send => self.send.as_mut()?.retire_if(work, take),
            Side::Receive => self.receive.as_mut()?.retire_if(work, take),
        }
    }

    /// Whether a work request may be in flight; `None` if there are no queues, which say nothing of that.
    pub(super) fn are_busy(&self) -> Option<bool> {
        match (&self.send, &self.receive) {
            (None, None) => None,
            (send, receive) => Some(
                send.as_ref().is_some_and(|queue| !queue.is_idle())
                    || receive.as_ref().is_some_and(|queue| !queue.is_idle()),
            ),
        }
    }

    /// Drops both.
    pub(super) fn close(&mut self) {
        (self.send, self.receive) = (None, None);
    }
}

/// How long a wait polls before it sleeps, or yields.
const SPIN: Duration = Duration::from_micros(50);
/// Polls between two reads of the clock.
const POLLS: u32 = 64;

/// A queue whose completions can be waited for.
pub(super) trait Wait {
    /// What is known of a work request that succeeded.
    type Completion;

    /// Polls for the next completed work request.
    fn poll_card(&mut self) -> Result<Option<Done<Self::Completion>>, RetireError>;

    /// Its completion queue.
    fn cq(&mut self) -> &mut CompletionQueue;

    /// `timeout` from now.
    fn deadline(&mut self, timeout: Duration) -> Deadline {
        Deadline::after(self.cq().cq().clock(), timeout)
    }

    /// Waits for the next completed work request until `deadline`, which is `timeout` after the start of the wait.
    fn wait_card(&mut self, deadline: &Deadline, timeout: Duration) -> Result<Done<Self::Completion>, Error> {
        let clock = self.cq().cq().clock().clone();
        let spin_until = Deadline::after(&clock, SPIN);
        loop {
            for _ in 0..POLLS {
                if let Some(done) = self.poll_card()? {
                    return Ok(done);
                }
                // Virtual time does not advance while a wait polls.
                if clock.is_virtual() {
                    break;
                }
                hint::spin_loop();
            }
            let queue = self.cq();
            if deadline.has_passed() {
                return Err(queue.cq().death().unwrap_or_else(|| queue.cq().why_nothing_came(timeout)));
            }
            if spin_until.has_passed() || clock.is_virtual() {
                // It has one if it has events.
                if queue.fd().is_some() {
                    queue.wait(deadline.left().unwrap_or(Duration::MAX))?;
                } else {
                    queue.give_way(deadline)?;
                }
            }
        }
    }
}
