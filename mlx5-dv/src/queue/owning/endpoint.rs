//! A connected queue pair that uses one memory region.

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use super::batch::Segments;
use super::held::{EndpointDone, HeldBatch, HeldBuffers};
use super::in_flight::Refused;
use super::polled::PolledBatch;
use super::setup::{ConnectionOptions, Link, Peer};
use crate::error::Error;
use crate::memory::{DataSegment, RemoteAddress};
use crate::objects::{AnyDoorbell, Buffer, DoorbellKind, MemoryRegion, QueuePair, RtrAttributes, RtsAttributes, Uar};
use crate::queue::error::{PostError, RetireError};
use crate::queue::events::{EventSource, event_source};
use crate::queue::receive::{ReceiveBatch, ReceiveQueue};
use crate::queue::send::SendBatch;
use crate::queue::send::service::{Connected, Messages, Service, UnreliableMessages};
use crate::queue::send::wqe::WrFlags;

/// One end of a connection, a reliable one by default, and the memory region that it uses.
///
/// A [`Connection`](crate::queue::Connection) takes a buffer with each work request. An endpoint posts any part of its
/// region, any number of times: in batches with one doorbell, signalled or not. The region can be read and written at
/// any time, by copies; concurrent accesses of the card mix old and new bytes, as in any shared memory.
///
/// Messages that are slices are in buffers of an [`ExclusiveRegion`](crate::objects::ExclusiveRegion) beside that
/// region. The endpoint has a buffer until its work request completes, and returns it then:
///
/// ```no_run
/// # use mlx5_dv::objects::ExclusiveRegion;
/// # use mlx5_dv::queue::{Endpoint, Side, WrFlags};
/// # fn f(endpoint: &mut Endpoint) -> Result<(), Box<dyn std::error::Error>> {
/// let region = ExclusiveRegion::allocate(endpoint.region().pd(), 64 * 1024)?;
/// let mut receives = endpoint.receives().ok_or("no receive queue")?;
/// for (wr_id, buffer) in (0..).zip(region.buffers(4096)?) {
///     receives.receive_buffer(wr_id, buffer)?;
/// }
/// receives.ring();
/// while let Some(done) = endpoint.poll()? {
///     if let Some(message) = done.received() {
///         println!("{}: {}", done.ticket, String::from_utf8_lossy(message));
///     }
/// }
/// # Ok(())
/// # }
/// ```
///
/// ```compile_fail,E0505
/// # use mlx5_dv::objects::Buffer;
/// fn reuse(receives: &mut mlx5_dv::queue::EndpointReceives, buffer: Buffer) {
///     let message = buffer.as_slice();
///     receives.receive_buffer(1, buffer).unwrap(); // the card may write it from now on
///     println!("{message:?}");
/// }
/// ```
///
/// Used by one thread at a time. Posting and polling make no system call, take no lock and allocate nothing. If it is
/// dropped with work in flight, the queue pair is reset first; if that fails, region and buffers are leaked.
#[derive(Debug)]
pub struct Endpoint<S: Connected = Messages> {
    window: Window,
    /// With the region, and the buffers of posted work.
    link: Link<S, HeldBuffers>,
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

    /// The bytes of each of `ranges`, as [`segment`](Self::segment).
    #[inline]
    #[track_caller]
    fn segments(&self, ranges: &[Range<usize>]) -> Result<Segments, PostError> {
        let mut segments = Segments::empty(ranges.len())?;
        for (element, range) in segments.as_mut_slice().iter_mut().zip(ranges) {
            *element = self.segment(range.clone());
        }
        Ok(segments)
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
        let mut link = Link::full_on(region, uar, options)?;
        link.queues.work.hold();
        Ok(Endpoint { window: Window::of(region), link })
    }

    /// The queue pair.
    pub fn queue_pair(&self) -> &Arc<QueuePair> {
        self.link.qp()
    }

    /// The region.
    pub fn region(&self) -> &Arc<MemoryRegion> {
        &self.link.queues.work.in_flight.region
    }

    /// How its sends ring the doorbell; `None` before it is connected, and without a send queue.
    pub fn doorbell_kind(&self) -> Option<DoorbellKind> {
        self.link.queues.work.doorbell_kind()
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
        self.link.connect(peer)?;
        self.link.queues.work.hold();
        Ok(())
    }

    /// As [`connect`](Self::connect), with the attributes that a connection manager agreed on. The options of the
    /// endpoint are then ignored.
    ///
    /// # Errors
    /// As for [`QueuePair::ready_to_receive`] and [`QueuePair::ready_to_send`].
    pub fn connect_by(&mut self, rtr: &RtrAttributes, rts: &RtsAttributes) -> Result<(), Error> {
        self.link.connect_by(rtr, rts)?;
        self.link.queues.work.hold();
        Ok(())
    }

    /// Disconnects, after an error, too: the queue pair goes through RST to INIT. Work in flight and completions not
    /// polled are discarded; their buffers are returned. Receives may be posted then, and it may be connected again, as
    /// a [`Connection`](crate::queue::Connection::reset) may.
    ///
    /// # Errors
    /// [`Error::Command`], or [`Error::Timeout`] while the card does not answer: nothing can be posted then, and the
    /// card may still use region and buffers. The reset can be tried again.
    pub fn reset(&mut self) -> Result<Vec<Buffer>, Error> {
        self.link.reset()
    }

    /// Starts a batch of sends, writes and, if reliable, reads and atomics; `None` before [`connect`](Self::connect),
    /// or without a send queue.
    #[inline(always)]
    pub fn sends(&mut self) -> Option<EndpointSends<'_, S>> {
        let window = self.window;
        self.link.queues.work.sends().map(|(batch, buffers)| EndpointSends { batch, buffers, window })
    }

    /// Starts a batch of receives; `None` without a receive queue.
    #[inline(always)]
    pub fn receives(&mut self) -> Option<EndpointReceives<'_>> {
        let window = self.window;
        self.link.queues.work.receives().map(|(batch, buffers)| EndpointReceives { batch, buffers, window })
    }

    /// Returns the next completed work request; `None` if there is none. After one that failed, the queue pair executes
    /// nothing more.
    ///
    /// # Errors
    /// [`RetireError`] if the card names a work request that is not in flight: the card or the driver is broken.
    // Inlined, as `Hub::poll`, and for the same reason.
    #[inline(always)]
    pub fn poll(&mut self) -> Result<Option<EndpointDone>, RetireError> {
        self.link.queues.poll()
    }

    /// Returns the completed work requests, at most `most`, as [`poll`](Self::poll) does. This is cheaper: the consumer
    /// index is updated once, when the iterator is dropped.
    #[inline(always)]
    pub fn poll_batch(&mut self, most: usize) -> EndpointCompletions<'_, S> {
        EndpointCompletions { done: self.link.queues.poll_batch(most) }
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
}

event_source!(Endpoint<S>, S: Connected; link.queues.cq);

/// Completed work requests of an [`Endpoint`] or a [`DatagramEndpoint`](crate::queue::DatagramEndpoint): see
/// [`Endpoint::poll_batch`].
#[derive(Debug)]
pub struct EndpointCompletions<'a, S: Service = Messages> {
    pub(super) done: PolledBatch<'a, S, ReceiveQueue>,
}

impl<S: Service> Iterator for EndpointCompletions<'_, S> {
    type Item = Result<EndpointDone, RetireError>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        self.done.next()
    }
}

/// A batch of sends, writes, reads and atomics of an [`Endpoint`], before its doorbell.
///
/// Ranges are bytes of the region; a range outside the region panics, as with slices. Buffers come back by their
/// completions, which they always have; those of a batch that is not rung are dropped with it. After an error the batch
/// is unchanged.
#[must_use = "a batch that is not rung never happened"]
pub struct EndpointSends<'a, S: Connected = Messages> {
    pub(super) batch: SendBatch<'a, AnyDoorbell, S>,
    buffers: HeldBatch<'a>,
    pub(super) window: Window,
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

    /// SEND of the bytes of all `ranges` as one message, in this order: as many as
    /// [`ConnectionOptions::send_sges`]. Errors: [`PostError`].
    #[inline]
    #[track_caller]
    pub fn send_all(&mut self, wr_id: u64, flags: WrFlags, ranges: &[Range<usize>]) -> Result<(), PostError> {
        let elements = self.window.segments(ranges)?;
        // SAFETY: as for `send`.
        unsafe { self.batch.send(wr_id, flags, elements.as_slice()) }
    }

    /// RDMA WRITE of the bytes of all `ranges`, one after the other, to `remote`; otherwise as
    /// [`send_all`](Self::send_all).
    #[inline]
    #[track_caller]
    pub fn write_all(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        ranges: &[Range<usize>],
        remote: RemoteAddress,
    ) -> Result<(), PostError> {
        let elements = self.window.segments(ranges)?;
        // SAFETY: as for `send`.
        unsafe { self.batch.write(wr_id, flags, remote, elements.as_slice()) }
    }

    /// As [`send`](Self::send), with immediate data. [`WrFlags::SOLICITED`] wakes a receiver that waits for solicited
    /// completions.
    #[inline(always)]
    #[track_caller]
    pub fn send_imm(&mut self, wr_id: u64, flags: WrFlags, range: Range<usize>, imm: u32) -> Result<(), PostError> {
        let segment = self.window.segment(range);
        // SAFETY: as for `send`.
        unsafe { self.batch.send_imm(wr_id, flags, imm, &[segment]) }
    }

    /// As [`write`](Self::write), with immediate data that completes a receive there.
    #[inline(always)]
    #[track_caller]
    pub fn write_imm(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        range: Range<usize>,
        remote: RemoteAddress,
        imm: u32,
    ) -> Result<(), PostError> {
        let segment = self.window.segment(range);
        // SAFETY: as for `send`.
        unsafe { self.batch.write_imm(wr_id, flags, remote, imm, &[segment]) }
    }

    /// SEND of `buffer`, which was filled in place. Errors: [`Refused`], with the buffer.
    #[inline(always)]
    pub fn send_buffer(&mut self, wr_id: u64, flags: WrFlags, buffer: Buffer) -> Result<(), Refused> {
        self.post_buffer(flags, buffer, |batch, flags, elements| {
            // SAFETY: `post_buffer` keeps the buffer, and with it its region, until the work request has completed, or
            // its queue pair was destroyed, or was reset and its queues were dropped.
            unsafe { batch.send(wr_id, flags, elements) }
        })
    }

    /// RDMA WRITE of `buffer` to `remote`. Errors: [`Refused`], with the buffer.
    #[inline(always)]
    pub fn write_buffer(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        buffer: Buffer,
        remote: RemoteAddress,
    ) -> Result<(), Refused> {
        self.post_buffer(flags, buffer, |batch, flags, elements| {
            // SAFETY: as for `send_buffer`.
            unsafe { batch.write(wr_id, flags, remote, elements) }
        })
    }

    /// Posts by `post` what uses `buffer`, and keeps that.
    #[inline(always)]
    fn post_buffer(
        &mut self,
        flags: WrFlags,
        buffer: Buffer,
        post: impl FnOnce(&mut SendBatch<'_, AnyDoorbell, S>, WrFlags, &[DataSegment]) -> Result<(), PostError>,
    ) -> Result<(), Refused> {
        let index = self.batch.next_index();
        let posted = post(&mut self.batch, flags | WrFlags::SIGNALLED, &[buffer.segment()]);
        self.buffers.keep(index, posted, buffer)
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

    /// SEND of all `parts` as one message, in this order, which are copied at once. Errors: [`PostError`].
    #[inline(always)]
    pub fn send_inline_all(&mut self, wr_id: u64, flags: WrFlags, parts: &[&[u8]]) -> Result<(), PostError> {
        self.batch.send_inline_all(wr_id, flags, parts)
    }

    /// RDMA WRITE of all `parts`, one after the other, to `remote`; otherwise as
    /// [`send_inline_all`](Self::send_inline_all).
    #[inline(always)]
    pub fn write_inline_all(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        parts: &[&[u8]],
        remote: RemoteAddress,
    ) -> Result<(), PostError> {
        self.batch.write_inline_all(wr_id, flags, remote, parts)
    }

    /// As [`send_inline`](Self::send_inline), with immediate data.
    #[inline(always)]
    pub fn send_imm_inline(&mut self, wr_id: u64, flags: WrFlags, data: &[u8], imm: u32) -> Result<(), PostError> {
        self.batch.send_imm_inline(wr_id, flags, imm, data)
    }

    /// As [`write_inline`](Self::write_inline), with immediate data that completes a receive there.
    #[inline(always)]
    pub fn write_imm_inline(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        data: &[u8],
        remote: RemoteAddress,
        imm: u32,
    ) -> Result<(), PostError> {
        self.batch.write_imm_inline(wr_id, flags, remote, imm, data)
    }

    /// As [`send_inline_all`](Self::send_inline_all), with immediate data.
    #[inline(always)]
    pub fn send_imm_inline_all(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        parts: &[&[u8]],
        imm: u32,
    ) -> Result<(), PostError> {
        self.batch.send_imm_inline_all(wr_id, flags, imm, parts)
    }

    /// As [`write_inline_all`](Self::write_inline_all), with immediate data that completes a receive there.
    #[inline(always)]
    pub fn write_imm_inline_all(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        parts: &[&[u8]],
        remote: RemoteAddress,
        imm: u32,
    ) -> Result<(), PostError> {
        self.batch.write_imm_inline_all(wr_id, flags, remote, imm, parts)
    }

    /// A work request that does nothing but complete, if it is signalled. Errors: [`PostError`].
    #[inline(always)]
    pub fn nop(&mut self, wr_id: u64, flags: WrFlags) -> Result<(), PostError> {
        self.batch.nop(wr_id, flags)
    }

    /// Rings the doorbell: hands the batch to the card.
    #[inline(always)]
    pub fn ring(mut self) {
        self.buffers.rung();
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

    /// RDMA READ from `remote` into the bytes of all `ranges`, one after the other; otherwise as
    /// [`send_all`](Self::send_all).
    #[inline]
    #[track_caller]
    pub fn read_all(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        ranges: &[Range<usize>],
        remote: RemoteAddress,
    ) -> Result<(), PostError> {
        let elements = self.window.segments(ranges)?;
        // SAFETY: as for `send`.
        unsafe { self.batch.read(wr_id, flags, remote, elements.as_slice()) }
    }

    /// RDMA READ from `remote` into `buffer`. Errors: [`Refused`], with the buffer.
    #[inline(always)]
    pub fn read_buffer(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        buffer: Buffer,
        remote: RemoteAddress,
    ) -> Result<(), Refused> {
        self.post_buffer(flags, buffer, |batch, flags, elements| {
            // SAFETY: as for `send_buffer`.
            unsafe { batch.read(wr_id, flags, remote, elements) }
        })
    }

    /// ATOMIC compare and swap of the number at `remote`, as [`SendBatch::compare_swap`]. The old value is written to
    /// the eight bytes at `at`, for [`MemoryRegion::found`]. Errors: [`PostError`].
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
    /// eight bytes at `at`, for [`MemoryRegion::found`]. Errors: [`PostError`].
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

/// A batch of receives of an [`Endpoint`] or a [`DatagramEndpoint`](crate::queue::DatagramEndpoint), before its
/// doorbell. The buffers of a batch that is not rung are dropped with it.
#[derive(Debug)]
#[must_use = "a batch that is not rung never happened"]
pub struct EndpointReceives<'a> {
    pub(super) batch: ReceiveBatch<'a>,
    pub(super) buffers: HeldBatch<'a>,
    pub(super) window: Window,
}

impl EndpointReceives<'_> {
    /// Posts a receive of one message into `buffer`; [`EndpointDone::received`](crate::queue::Done::received) is the
    /// message. Errors: [`Refused`], with the buffer.
    #[inline(always)]
    pub fn receive_buffer(&mut self, wr_id: u64, buffer: Buffer) -> Result<(), Refused> {
        let index = self.batch.next_index();
        // SAFETY: as for `EndpointSends::send_buffer`.
        let posted = unsafe { self.batch.receive(wr_id, &[buffer.segment()]) };
        self.buffers.keep(index, posted, buffer)
    }

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
    pub fn ring(mut self) {
        self.buffers.rung();
        self.batch.ring();
    }
}
