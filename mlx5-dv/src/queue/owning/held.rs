//! Buffers that an endpoint has posted, by the place of their WQEs in the ring.

use std::sync::Arc;

use super::buffers::Buffers;
use super::in_flight::{Done, Refused};
use super::work_queues::WorkQueues;
use crate::objects::{AnyDoorbell, Buffer, MemoryRegion};
use crate::queue::completion::decode::{Completion, Side, WorkError, work_of};
use crate::queue::error::PostError;
use crate::queue::receive::{ReceiveBatch, ReceiveQueue};
use crate::queue::send::service::Service;
use crate::queue::send::{SendBatch, SendQueue};

/// A completed work request of an [`Endpoint`](crate::queue::Endpoint) or a
/// [`DatagramEndpoint`](crate::queue::DatagramEndpoint). Its ticket is the `wr_id`; it has a buffer if it was posted
/// with one.
pub type EndpointDone = Done<Completion, u64>;

/// Buffers of the work requests of one ring.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// By the low bits of the WQE's index: as many as the ring holds, a power of two.
    slots: Box<[Option<Buffer>]>,
    /// How many there are. Work requests of a region's bytes have none, and are not looked up.
    count: u32,
    /// Index after the last WQE with a buffer of a batch that is not rung: of the one that is being filled, or that was
    /// forgotten.
    unrung: Option<u32>,
}

impl Held {
    /// Has room for the buffers of a ring of `capacity` WQEs. Those of the same ring stay.
    fn hold(&mut self, capacity: usize) {
        if self.slots.len() != capacity {
            *self = Held { slots: (0..capacity).map(|_| None).collect(), count: 0, unrung: None };
        }
    }

    fn slot(&mut self, index: u32) -> Option<&mut Option<Buffer>> {
        let mask = self.slots.len().wrapping_sub(1);
        self.slots.get_mut(index as usize & mask)
    }

    #[inline(always)]
    fn take(&mut self, index: u32) -> Option<Buffer> {
        if self.count == 0 {
            return None;
        }
        let buffer = self.slot(index)?.take()?;
        self.count -= 1;
        Some(buffer)
    }

    /// Starts a batch whose first WQE has the index `first`. What one before it posted that was forgotten
    /// (`mem::forget`) never went to the card, which gets other WQEs in its place: its buffers are dropped.
    #[inline(always)]
    fn batch(&mut self, first: u32) -> HeldBatch<'_> {
        if let Some(end) = self.unrung.take() {
            self.drop_between(first, end);
        }
        HeldBatch { held: self, first, end: first }
    }

    #[cold]
    fn drop_between(&mut self, first: u32, end: u32) {
        let mut index = first;
        while index != end {
            drop(self.take(index));
            index = index.wrapping_add(1);
        }
    }

    /// Takes out all buffers.
    fn drain(&mut self) -> impl Iterator<Item = Buffer> {
        (self.count, self.unrung) = (0, None);
        self.slots.iter_mut().filter_map(Option::take)
    }

    /// Leaks all buffers on purpose: the card may still write them.
    fn leak(&mut self) {
        self.slots.iter_mut().filter_map(Option::take).for_each(std::mem::forget);
    }
}

/// Buffers of a batch. If it is dropped before it was rung, they are dropped with it.
#[derive(Debug)]
pub(super) struct HeldBatch<'a> {
    held: &'a mut Held,
    /// Indices of its first WQE, and of the one after the last that has a buffer.
    first: u32,
    end: u32,
}

impl HeldBatch<'_> {
    /// Keeps the `buffer` of the WQE at `index`, or returns it if that was not `posted`.
    #[inline(always)]
    pub(super) fn keep(&mut self, index: u32, posted: Result<(), PostError>, buffer: Buffer) -> Result<(), Refused> {
        if let Err(reason) = posted {
            return Err(Refused { buffer: Some(buffer), reason: reason.into() });
        }
        match self.held.slot(index) {
            Some(slot) => match slot.replace(buffer) {
                None => self.held.count += 1,
                // Of a completion that never came: the card may use it.
                Some(before) => std::mem::forget(before),
            },
            // Never: there is one for each WQE. The card may use the buffer.
            None => std::mem::forget(buffer),
        }
        self.end = index.wrapping_add(1);
        self.held.unrung = Some(self.end);
        Ok(())
    }

    /// The batch is rung: its buffers stay until their work requests complete.
    #[inline(always)]
    pub(super) fn rung(&mut self) {
        self.first = self.end;
        self.held.unrung = None;
    }
}

impl Drop for HeldBatch<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.first != self.end {
            self.held.drop_between(self.first, self.end);
            self.held.unrung = None;
        }
    }
}

/// Buffers of a send and a receive queue, beside a region of which any bytes may be posted.
#[derive(Debug)]
pub(super) struct HeldBuffers {
    sends: Held,
    receives: Held,
    pub(super) region: Arc<MemoryRegion>,
}

impl HeldBuffers {
    /// None yet, beside `region`.
    pub(super) fn new(region: &Arc<MemoryRegion>) -> Self {
        HeldBuffers { sends: Held::default(), receives: Held::default(), region: Arc::clone(region) }
    }

    /// What completed with `result`, with its buffer.
    #[inline(always)]
    pub(super) fn done(&mut self, wr_id: u64, result: Result<Completion, WorkError>) -> EndpointDone {
        let work = work_of(&result);
        let held = match work.side {
            Side::Send => &mut self.sends,
            Side::Receive => &mut self.receives,
        };
        Done::of(wr_id, held.take(work.index.into()), result)
    }
}

impl Buffers for HeldBuffers {
    type Ticket = u64;

    /// Each completes alone.
    fn most_together(&self) -> usize {
        0
    }

    /// Work requests of the region's bytes are not among the buffers.
    fn may_be_used(&mut self, are_busy: bool) -> bool {
        are_busy
    }

    fn take_all(&mut self) -> Vec<Buffer> {
        self.sends.drain().chain(self.receives.drain()).collect()
    }

    /// So is the region.
    fn leak(&mut self) {
        self.sends.leak();
        self.receives.leak();
        std::mem::forget(Arc::clone(&self.region));
    }
}

impl<S: Service> WorkQueues<S, ReceiveQueue, HeldBuffers> {
    /// Has room for the buffers of the queues that are present.
    pub(super) fn hold(&mut self) {
        if let Some(queue) = &self.queues.send {
            self.in_flight.sends.hold(queue.capacity());
        }
        if let Some(queue) = &self.queues.receive {
            self.in_flight.receives.hold(queue.capacity());
        }
    }

    /// Starts a batch of sends, and of their buffers; `None` without a send queue.
    #[inline(always)]
    pub(super) fn sends(&mut self) -> Option<(SendBatch<'_, AnyDoorbell, S>, HeldBatch<'_>)> {
        let batch = self.queues.send.as_mut().map(SendQueue::batch)?;
        let buffers = self.in_flight.sends.batch(batch.next_index());
        Some((batch, buffers))
    }

    /// Starts a batch of receives, and of their buffers; `None` without a receive queue.
    #[inline(always)]
    pub(super) fn receives(&mut self) -> Option<(ReceiveBatch<'_>, HeldBatch<'_>)> {
        let batch = self.queues.receive.as_mut().map(ReceiveQueue::batch)?;
        let buffers = self.in_flight.receives.batch(batch.next_index());
        Some((batch, buffers))
    }
}
