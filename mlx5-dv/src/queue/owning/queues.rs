//! A send queue, a receive queue, and their common completion queue.

use std::hint;
use std::time::Duration;

use mlx5_prm::values::QpState;
use uar::SendDoorbell;

use super::in_flight::Done;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::objects::{QueuePair, ReceiveRingOwner};
use crate::queue::completion::decode::{Completion, Side, Work, WorkError, work_of};
use crate::queue::completion::{CompletionQueue, Completions};
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
    /// Whether nothing is in flight.
    fn is_idle(&self) -> bool;
}

impl<D: SendDoorbell, S: Service> Retire for SendQueue<D, S> {
    #[inline(always)]
    fn retire(&mut self, work: &Work) -> Result<u64, RetireError> {
        self.retire(work)
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

    fn is_idle(&self) -> bool {
        self.free() == self.capacity()
    }
}

/// A completion, and the `wr_id` of its retired work request.
pub(super) type Retired = (u64, Result<Completion, WorkError>);

/// The queues of one connection, as far as present.
#[derive(Debug)]
pub(super) struct Queues<S, R> {
    pub(super) send: Option<S>,
    pub(super) receive: Option<R>,
    pub(super) cq: CompletionQueue,
}

impl<S: Retire, R: Retire> Queues<S, R> {
    /// The next completion.
    #[inline(always)]
    pub(super) fn poll(&mut self) -> Result<Option<Retired>, RetireError> {
        let Some(result) = self.cq.poll() else { return Ok(None) };
        retire(&mut self.send, &mut self.receive, result).map(Some)
    }

    /// The `wr_id` of `work`, which completed.
    #[inline(always)]
    pub(super) fn retire(&mut self, work: &Work) -> Result<u64, RetireError> {
        retire_work(&mut self.send, &mut self.receive, work)
    }

    /// As [`CompletionQueue::poll_batch`].
    #[inline(always)]
    pub(super) fn poll_batch(&mut self, most: usize) -> RetiredBatch<'_, S, R> {
        let completions = self.cq.poll_batch(most);
        RetiredBatch { completions, send: &mut self.send, receive: &mut self.receive }
    }

    /// Whether the card may still use the memory of work posted to `qp`. Queues that were [closed](Self::close) say
    /// nothing of that: then it is so until the queue pair is reset.
    pub(super) fn are_busy(&self, qp: &QueuePair) -> bool {
        match (&self.send, &self.receive) {
            (None, None) => qp.state() != QpState::Rst,
            (send, receive) => {
                send.as_ref().is_some_and(|queue| !queue.is_idle())
                    || receive.as_ref().is_some_and(|queue| !queue.is_idle())
            }
        }
    }

    /// Drops both work queues.
    pub(super) fn close(&mut self) {
        (self.send, self.receive) = (None, None);
    }
}

#[inline(always)]
fn retire<S: Retire, R: Retire>(
    send: &mut Option<S>,
    receive: &mut Option<R>,
    result: Result<Completion, WorkError>,
) -> Result<Retired, RetireError> {
    Ok((retire_work(send, receive, &work_of(&result))?, result))
}

#[inline(always)]
fn retire_work<S: Retire, R: Retire>(
    send: &mut Option<S>,
    receive: &mut Option<R>,
    work: &Work,
) -> Result<u64, RetireError> {
    let wr_id = match work.side {
        Side::Send => send.as_mut().map(|queue| queue.retire(work)),
        Side::Receive => receive.as_mut().map(|queue| queue.retire(work)),
    };
    wr_id.unwrap_or_else(|| Err(RetireError::nothing_in_flight(*work)))
}

/// A batch of retired completions.
#[derive(Debug)]
pub(super) struct RetiredBatch<'a, S, R> {
    completions: Completions<'a>,
    send: &'a mut Option<S>,
    receive: &'a mut Option<R>,
}

impl<S: Retire, R: Retire> Iterator for RetiredBatch<'_, S, R> {
    type Item = Result<Retired, RetireError>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        Some(retire(self.send, self.receive, self.completions.next()?))
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

    /// Whether waits sleep.
    fn sleeps(&self) -> bool;

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
            let sleeps = self.sleeps();
            let queue = self.cq();
            if deadline.has_passed() {
                return Err(queue.cq().death().unwrap_or_else(|| queue.cq().why_nothing_came(timeout)));
            }
            if spin_until.has_passed() || clock.is_virtual() {
                if sleeps {
                    queue.wait(deadline.left().unwrap_or(Duration::MAX))?;
                } else {
                    queue.give_way(deadline)?;
                }
            }
        }
    }
}
