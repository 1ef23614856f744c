//! The work queues of a queue pair, with the buffers of what is posted to them; and how completions are taken.

use std::sync::Arc;

use mlx5_prm::values::QpState;
use uar::SendDoorbell;

use super::batch::{ConnectionBatch, ConnectionReceives};
use super::buffers::Buffers;
use super::in_flight::{InFlight, RefusedReason, Ticket};
use super::queues::{NoReceives, Queues, Retire};
use crate::error::Error;
use crate::objects::{AnyDoorbell, Buffer, DestroyError, DoorbellKind, OfOwner, QueuePair};
use crate::queue::completion::decode::{Completion, Side};
use crate::queue::receive::ReceiveQueue;
use crate::queue::send::SendQueue;
use crate::queue::send::service::Service;

/// A queue pair, its work queues, and the buffers of what is posted to them.
///
/// Whoever drops it says first what becomes of the buffers: see [`abandon`](Self::abandon) and
/// [`destroy`](Self::destroy).
#[derive(Debug)]
pub(super) struct WorkQueues<S: Service, R = NoReceives, B = InFlight, D: SendDoorbell = AnyDoorbell> {
    /// The send queue exists while the queue pair is in RTS, the receive queue from INIT on; each only if its depth is
    /// not 0.
    pub(super) queues: Queues<SendQueue<D, S>, R>,
    pub(super) qp: Arc<QueuePair>,
    /// After the queue pair, so that it is dropped later.
    pub(super) in_flight: B,
}

impl<S: Service, R: Retire, B: Buffers, D: SendDoorbell> WorkQueues<S, R, B, D> {
    /// Those of `qp`, without queues yet.
    pub(super) fn new(qp: Arc<QueuePair>, in_flight: B) -> Self {
        WorkQueues { queues: Queues::none(), qp, in_flight }
    }

    /// Resets the queue pair, in any state. If that fails, nothing can be posted, and the buffers stay in flight.
    pub(super) fn reset(&mut self) -> Result<(), Error> {
        self.queues.close();
        self.qp.reset()
    }

    /// Drops the queues, and resets the queue pair if it may have work in flight. If that fails, the memory of `what`
    /// is leaked.
    pub(super) fn abandon(&mut self, what: &str) {
        let are_busy = self.queues.are_busy().unwrap_or_else(|| self.qp.state() != QpState::Rst);
        self.queues.close();
        if !self.in_flight.may_be_used(are_busy) {
            return;
        }
        // Until the queue pair is reset, the card may still use the memory, and change keys. A dead card cannot: its
        // DMA was stopped before its death was reported.
        if let Err(error) = self.qp.reset()
            && !error.frees_memory()
        {
            tracing::error!(%error, "{what} could not be reset; its memory in flight is leaked");
            self.in_flight.leak();
        }
    }

    /// Destroys the queue pair, and returns the buffers of what has not completed. If that fails, they are leaked.
    pub(super) fn destroy(self) -> Result<Vec<Buffer>, DestroyError<QueuePair>> {
        let WorkQueues { queues, qp, mut in_flight } = self;
        drop(queues);
        // The card may use the buffers until then.
        match QueuePair::destroy(qp) {
            Ok(()) => Ok(in_flight.take_all()),
            Err(error) => {
                in_flight.leak();
                Err(error)
            }
        }
    }
}

impl<S: Service, R, B> WorkQueues<S, R, B> {
    /// How it rings the doorbell; `None` without a send queue.
    pub(super) fn doorbell_kind(&self) -> Option<DoorbellKind> {
        self.queues.send.as_ref().map(SendQueue::doorbell_kind)
    }
}

impl<S: Service> WorkQueues<S, NoReceives, InFlight, OfOwner> {
    /// Starts a batch of sends, which go to the card with one ring of `doorbell`, its owner's.
    #[inline(always)]
    pub(super) fn batch_by<'a>(&'a mut self, doorbell: &'a mut AnyDoorbell) -> ConnectionBatch<'a, S> {
        let WorkQueues { queues, qp, in_flight } = self;
        ConnectionBatch::new(qp, move || queues.send.as_mut().map(|queue| queue.batch_by(doorbell)), in_flight)
    }
}

impl<S: Service, R> WorkQueues<S, R> {
    /// Starts a batch of sends, which go to the card with one doorbell.
    #[inline(always)]
    pub(super) fn batch(&mut self) -> ConnectionBatch<'_, S> {
        let WorkQueues { queues, qp, in_flight } = self;
        ConnectionBatch::new(qp, move || queues.send.as_mut().map(SendQueue::batch), in_flight)
    }
}

impl<S: Service> WorkQueues<S, ReceiveQueue> {
    /// Starts a batch of receives, which go to the card together.
    #[inline(always)]
    pub(super) fn receives(&mut self) -> ConnectionReceives<'_> {
        ConnectionReceives::new(self.queues.receive.as_mut(), &mut self.in_flight, RefusedReason::NotReset)
    }
}

/// Takes out what has completed, from where it is in flight.
pub(super) trait Take {
    /// What is taken out.
    type Taken;

    /// Takes the send of `completion`, which succeeded, if it completes alone. Otherwise nothing changes.
    fn take_sent(&mut self, completion: &Completion) -> Option<Self::Taken>;

    /// The same, of a receive.
    fn take_received(&mut self, completion: &Completion) -> Option<Self::Taken>;
}

/// Takes what completed with `$cqe` out of `$from`, which has [`Take`]. If that is a send or a receive that succeeded
/// and completes alone, as nearly all do, `$done` follows, of what was taken and of the completion, which leaves the
/// function or goes on with its loop. Otherwise nothing has changed: it can be taken from the start, by a call, which
/// is told nothing. What a call is told must be kept in registers or stored until then, by all.
///
/// A macro, for the same reason that polls are inlined: no call gets the address of what they return, and it was in no
/// other enum before. So it is never stored, and what the caller does not use is not even made. As the value of an
/// inlined function it took a hub's poll 40 instructions more.
macro_rules! if_taken {
    ($from:expr, $cqe:expr, |$taken:pat_param, $completion:ident| $done:expr) => {
        // Apart, so that each knows its side.
        if let Some($completion) = $crate::queue::completion::decode::decode_sent(&$cqe) {
            if let Some($taken) = $from.take_sent(&$completion) {
                $done
            }
        } else if let Some($completion) = $crate::queue::completion::decode::decode_received(&$cqe)
            && let Some($taken) = $from.take_received(&$completion)
        {
            $done
        }
    };
}
pub(super) use if_taken;

impl<S: Service, R: Retire> Take for WorkQueues<S, R> {
    /// `None` if the program gets nothing of it.
    type Taken = Option<(Ticket, Option<Buffer>)>;

    #[inline(always)]
    fn take_sent(&mut self, completion: &Completion) -> Option<Self::Taken> {
        let WorkQueues { queues, in_flight, .. } = self;
        queues.retire_if(&completion.work, |wr_id| match in_flight.take_alone(Side::Send, wr_id) {
            None => in_flight.complete_silently(wr_id).then_some(None),
            taken => Some(taken),
        })
    }

    #[inline(always)]
    fn take_received(&mut self, completion: &Completion) -> Option<Self::Taken> {
        let WorkQueues { queues, in_flight, .. } = self;
        queues.retire_if(&completion.work, |wr_id| in_flight.take_alone(Side::Receive, wr_id).map(Some))
    }
}
