//! A connected queue pair that uses one memory region.

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use super::queues::RetiredBatch;
use super::setup::{ConnectionOptions, Link, Peer};
use crate::error::Error;
use crate::memory::{DataSegment, RemoteAddress};
use crate::objects::{AnyDoorbell, DoorbellKind, MemoryRegion, QueuePair, RtrAttributes, RtsAttributes, Uar};
use crate::queue::completion::decode::{Completion, WorkError};
use crate::queue::error::{PostError, RetireError};
use crate::queue::events::{EventSource, event_source};
use crate::queue::receive::{ReceiveBatch, ReceiveQueue};
use crate::queue::send::service::{Connected, Messages, UnreliableMessages};
use crate::queue::send::wqe::WrFlags;
use crate::queue::send::{SendBatch, SendQueue};

/// One end of a connection, a reliable one by default, and the memory region that it uses.
///
/// A [`Connection`](crate::queue::Connection) takes a buffer with each work request. An endpoint posts any part of its
/// region, any number of times: in batches with one doorbell, signalled or not. The region can be read and written at
/// any time, by copies; concurrent accesses of the card mix old and new bytes, as in any shared memory. Messages that
/// are slices need a [`Connection`](crate::queue::Connection).
///
/// Used by one thread at a time. Posting and polling make no system call, take no lock and allocate nothing. If it is
/// dropped with work in flight, the queue pair is reset first; if that fails, the region is leaked.
#[derive(Debug)]
pub struct Endpoint<S: Connected = Messages> {
    window: Window,
    link: Link<S>,
    /// After the queue pair, so that it is dropped later: the card may use it as long as the queue pair exists.
    region: Arc<MemoryRegion>,
}

/// One end of a connection whose messages may be lost: SENDs and RDMA WRITEs. See [`UnreliableMessages`]. It has no
/// reads and no atomics:
///
/// ```compile_fail,E0599
/// # fn f(endpoint: &mut mlx5_dv::queue::UnreliableEndpoint, at: mlx5_dv::queue::RemoteAddress) {
/// use mlx5_dv::queue::WrFlags;
/// endpoint.sends().unwrap().read(1, WrFlags::SIGNALLED, 0..8, at);
/// # }
/// ```
pub type UnreliableEndpoint = Endpoint<UnreliableMessages>;

/// Error of a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// A work request failed; the queue pair executes nothing more.
    #[error(transparent)]
    Work(#[from] WorkError),
    /// The card named a work request that is not in flight: the card or the driver is broken.
    #[error(transparent)]
    Retire(#[from] RetireError),
}

/// Address, length and key of the region.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    addr: u64,
    len: usize,
    lkey: u32,
}

impl Window {
    pub(super) fn of(region: &MemoryRegion) -> Self {
        Window { addr: region.addr(), len: region.len(), lkey: region.lkey() }
    }

    /// The bytes `range` as a scatter/gather element. Panics outside of the region.
    #[inline(always)]
    #[track_caller]
    pub(super) fn segment(&self, range: Range<usize>) -> DataSegment {
        let inside = range.start <= range.end && range.end <= self.len;
        assert!(inside, "bytes {range:?} of a memory region of {} bytes", self.len);
        // A longer range exceeds every message, so posting refuses it.
        let len = u32::try_from(range.len()).unwrap_or(u32::MAX);
        DataSegment { addr: self.addr + range.start as u64, len, lkey: self.lkey }
    }
}

impl Endpoint {
    /// Creates a queue pair in INIT, in the region's protection domain, with its own UAR page and completion queue:
    /// receives may be posted.
    ///
    /// # Errors
    /// As for [`Connection::new`](crate::queue::Connection::new).
    pub fn new(region: &Arc<MemoryRegion>, options: ConnectionOptions) -> Result<Self, Error> {
        let uar = Uar::alloc_for_one_queue(region.pd().device(), options.copying)?;
        Self::of_service(region, &uar, options)
    }

    /// As [`new`](Self::new), but rings through `uar` instead of its own page. Endpoints of one thread can share a
    /// page: a card has few of them, and a software card polls each.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn on_uar(region: &Arc<MemoryRegion>, uar: &Arc<Uar>, options: ConnectionOptions) -> Result<Self, Error> {
        Self::of_service(region, uar, options)
    }
}

impl<S: Connected> Endpoint<S> {
    /// As [`on_uar`](Endpoint::on_uar), of any service.
    ///
    /// # Errors
    /// As for [`Connection::of_service`](crate::queue::Connection::of_service).
    pub fn of_service(region: &Arc<MemoryRegion>, uar: &Arc<Uar>, options: ConnectionOptions) -> Result<Self, Error> {
        let link = Link::on(region.pd(), uar, options)?;
        Ok(Endpoint { window: Window::of(region), link, region: Arc::clone(region) })
    }

    /// The queue pair.
    pub fn queue_pair(&self) -> &Arc<QueuePair> {
        &self.link.qp
    }

    /// The region.
    pub fn region(&self) -> &Arc<MemoryRegion> {
        &self.region
    }

    /// How its sends ring the doorbell; `None` before it is connected, and without a send queue.
    pub fn doorbell_kind(&self) -> Option<DoorbellKind> {
        self.link.doorbell_kind()
    }

    /// What to tell the remote. Errors: [`Error::Invalid`] if no GID has the index `gid_index`.
    pub fn local(&self) -> Result<Peer, Error> {
        self.link.local()
    }

    /// Connects to `peer`: INIT to RTR to RTS. The remote must do the same before messages arrive; until then they are
    /// retried, or lost on an unreliable connection.
    ///
    /// # Errors
    /// As for [`Connection::connect`](crate::queue::Connection::connect).
    pub fn connect(&mut self, peer: &Peer) -> Result<(), Error> {
        self.link.connect(peer)
    }

    /// As [`connect`](Self::connect), with the attributes that a connection manager agreed on. The options of the
    /// endpoint are then ignored.
    ///
    /// # Errors
    /// As for [`QueuePair::ready_to_receive`] and [`QueuePair::ready_to_send`].
    pub fn connect_by(&mut self, rtr: &RtrAttributes, rts: &RtsAttributes) -> Result<(), Error> {
        self.link.connect_by(rtr, rts)
    }

    /// Starts a batch of sends, writes and, if reliable, reads and atomics; `None` before [`connect`](Self::connect),
    /// or without a send queue.
    #[inline(always)]
    pub fn sends(&mut self) -> Option<EndpointSends<'_, S>> {
        let window = self.window;
        self.link.queues.send.as_mut().map(|queue| EndpointSends { batch: queue.batch(), window })
    }

    /// Starts a batch of receives; `None` without a receive queue.
    #[inline(always)]
    pub fn receives(&mut self) -> Option<EndpointReceives<'_>> {
        let window = self.window;
        self.link.queues.receive.as_mut().map(|queue| EndpointReceives { batch: queue.batch(), window })
    }

    /// Returns the next completion, with the `wr_id` of its work request; `None` if there is none.
    ///
    /// # Errors
    /// [`EndpointError`].
    #[inline]
    pub fn poll(&mut self) -> Result<Option<(u64, Completion)>, EndpointError> {
        let Some((wr_id, result)) = self.link.queues.poll()? else { return Ok(None) };
        Ok(Some((wr_id, result?)))
    }

    /// Returns the available completions, at most `most`, as [`poll`](Self::poll) does. This is cheaper: the consumer
    /// index is updated once, when the iterator is dropped.
    #[inline(always)]
    pub fn poll_batch(&mut self, most: usize) -> EndpointCompletions<'_, S> {
        EndpointCompletions(self.link.queues.poll_batch(most))
    }

    /// Waits until [`poll`](Self::poll) has a completion. Errors: as for
    /// [`CompletionQueue::wait`](crate::queue::CompletionQueue::wait).
    pub fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        self.link.queues.cq.wait(timeout)
    }

    /// As [`wait`](Self::wait), for tasks of any executor: see
    /// [`CompletionQueue::ready`](crate::queue::CompletionQueue::ready).
    pub async fn ready(&mut self, readable: impl AsyncFnMut() -> io::Result<()>) -> Result<(), Error> {
        self.link.queues.cq.ready(readable).await
    }

    /// The eventfd that becomes readable at an event that [`ready`](Self::ready) or [`wait`](Self::wait) requested;
    /// `None` without [`ConnectionOptions::events`].
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.link.queues.cq.fd()
    }

    /// Whether the card may still use the region for posted work.
    fn is_busy(&self) -> bool {
        let queues = &self.link.queues;
        let sends = queues.send.as_ref().is_some_and(|queue| queue.free() < queue.capacity());
        sends || queues.receive.as_ref().is_some_and(|queue| queue.free() < queue.capacity())
    }
}

event_source!(Endpoint<S>, S: Connected; link.queues.cq);

impl<S: Connected> Drop for Endpoint<S> {
    fn drop(&mut self) {
        let busy = self.is_busy();
        self.link.queues.close();
        if !busy {
            return;
        }
        // Until the queue pair is reset, the card may still use the region. A dead card cannot: its DMA was stopped
        // before its death was reported.
        if let Err(error) = self.link.qp.reset()
            && !error.is_dead()
        {
            tracing::error!(%error, "an endpoint could not be reset; its memory region is leaked");
            std::mem::forget(Arc::clone(&self.region));
        }
    }
}

/// Completions of an [`Endpoint`]: see [`Endpoint::poll_batch`].
#[derive(Debug)]
pub struct EndpointCompletions<'a, S: Connected = Messages>(RetiredBatch<'a, SendQueue<AnyDoorbell, S>, ReceiveQueue>);

impl<S: Connected> Iterator for EndpointCompletions<'_, S> {
    type Item = Result<(u64, Completion), EndpointError>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let (wr_id, result) = match self.0.next()? {
            Ok(retired) => retired,
            Err(error) => return Some(Err(error.into())),
        };
        Some(result.map(|completion| (wr_id, completion)).map_err(EndpointError::from))
    }
}

/// A batch of sends, writes, reads and atomics of an [`Endpoint`], before its doorbell.
///
/// Ranges are bytes of the region; a range outside the region panics, as with slices. After an error the batch is
/// unchanged.
#[must_use = "a batch that is not rung never happened"]
pub struct EndpointSends<'a, S: Connected = Messages> {
    batch: SendBatch<'a, AnyDoorbell, S>,
    window: Window,
}

impl<S: Connected> fmt::Debug for EndpointSends<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.batch, f)
    }
}

impl<S: Connected> EndpointSends<'_, S> {
    /// SEND of the bytes `range`. Errors: [`PostError`].
    #[inline(always)]
    #[track_caller]
    pub fn send(&mut self, wr_id: u64, flags: WrFlags, range: Range<usize>) -> Result<(), PostError> {
        let segment = self.window.segment(range);
        // SAFETY: the endpoint keeps the region registered until its queue pair is destroyed, or was reset and its
        // queues were dropped. There are no references to the region's memory: it is copied in and out.
        unsafe { self.batch.send(wr_id, flags, &[segment]) }
    }

    /// RDMA WRITE of the bytes `range` to `remote`. Errors: [`PostError`].
    #[inline(always)]
    #[track_caller]
    pub fn write(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        range: Range<usize>,
        remote: RemoteAddress,
    ) -> Result<(), PostError> {
        let segment = self.window.segment(range);
        // SAFETY: as for `send`.
        unsafe { self.batch.write(wr_id, flags, remote, &[segment]) }
    }

    /// SEND of `data`, which is copied at once. Errors: [`PostError`].
    #[inline(always)]
    pub fn send_inline(&mut self, wr_id: u64, flags: WrFlags, data: &[u8]) -> Result<(), PostError> {
        self.batch.send_inline(wr_id, flags, data)
    }

    /// RDMA WRITE of `data`, which is copied at once, to `remote`. Errors: [`PostError`].
    #[inline(always)]
    pub fn write_inline(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        data: &[u8],
        remote: RemoteAddress,
    ) -> Result<(), PostError> {
        self.batch.write_inline(wr_id, flags, remote, data)
    }

    /// Rings the doorbell: hands the batch to the card.
    #[inline(always)]
    pub fn ring(self) {
        self.batch.ring();
    }
}

impl EndpointSends<'_> {
    /// SEND of the bytes `range`. It invalidates the remote's key `rkey`. Errors: [`PostError`].
    #[inline(always)]
    #[track_caller]
    pub fn send_invalidate(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        range: Range<usize>,
        rkey: u32,
    ) -> Result<(), PostError> {
        let segment = self.window.segment(range);
        // SAFETY: as for `send`.
        unsafe { self.batch.send_invalidate(wr_id, flags, rkey, &[segment]) }
    }

    /// RDMA READ from `remote` into the bytes `range`. Errors: [`PostError`].
    #[inline(always)]
    #[track_caller]
    pub fn read(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        range: Range<usize>,
        remote: RemoteAddress,
    ) -> Result<(), PostError> {
        let segment = self.window.segment(range);
        // SAFETY: as for `send`.
        unsafe { self.batch.read(wr_id, flags, remote, &[segment]) }
    }

    /// ATOMIC compare and swap of the number at `remote`, as [`SendBatch::compare_swap`]. The old value is written to
    /// the eight bytes at `at`. Errors: [`PostError`].
    #[inline(always)]
    #[track_caller]
    pub fn compare_swap(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        at: usize,
        remote: RemoteAddress,
        compare: u64,
        swap: u64,
    ) -> Result<(), PostError> {
        let segment = self.window.segment(at..at + size_of::<u64>());
        // SAFETY: as for `send`.
        unsafe { self.batch.compare_swap(wr_id, flags, remote, compare, swap, segment) }
    }

    /// ATOMIC fetch and add to the number at `remote`, as [`SendBatch::fetch_add`]. The old value is written to the
    /// eight bytes at `at`. Errors: [`PostError`].
    #[inline(always)]
    #[track_caller]
    pub fn fetch_add(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        at: usize,
        remote: RemoteAddress,
        add: u64,
    ) -> Result<(), PostError> {
        let segment = self.window.segment(at..at + size_of::<u64>());
        // SAFETY: as for `send`.
        unsafe { self.batch.fetch_add(wr_id, flags, remote, add, segment) }
    }
}

/// A batch of receives of an [`Endpoint`], before its doorbell.
#[derive(Debug)]
#[must_use = "a batch that is not rung never happened"]
pub struct EndpointReceives<'a> {
    pub(super) batch: ReceiveBatch<'a>,
    pub(super) window: Window,
}

impl EndpointReceives<'_> {
    /// Posts a receive of one message into the bytes `range`. Panics outside the region. Errors: [`PostError`].
    #[inline(always)]
    #[track_caller]
    pub fn receive(&mut self, wr_id: u64, range: Range<usize>) -> Result<(), PostError> {
        let segment = self.window.segment(range);
        // SAFETY: as for `EndpointSends::send`.
        unsafe { self.batch.receive(wr_id, &[segment]) }
    }

    /// Rings the doorbell: hands the batch to the card.
    #[inline(always)]
    pub fn ring(self) {
        self.batch.ring();
    }
}
