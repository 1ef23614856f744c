//! A queue pair for datagrams that uses one memory region.

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use super::buffers::Buffers;
use super::endpoint::{EndpointCompletions, EndpointReceives, Window};
use super::held::{EndpointDone, HeldBatch, HeldBuffers};
use super::in_flight::Refused;
use super::polled::Polled;
use super::queues::Queues;
use super::work_queues::WorkQueues;
use crate::error::Error;
use crate::objects::{
    AddressHandle, AnyDoorbell, Buffer, Copying, CqOptions, DatagramAttributes, DoorbellKind, MemoryRegion, Pd,
    QpOptions, QueueCounter, QueuePair, Uar,
};
use crate::queue::completion::CompletionQueue;
use crate::queue::error::{PostError, RetireError};
use crate::queue::events::{EventSource, event_source};
use crate::queue::receive::ReceiveQueue;
use crate::queue::send::datagram::{DatagramSendBatch, Datagrams};
use crate::queue::send::wqe::WrFlags;
use crate::setters::setters;

/// Options of a [`DatagramEndpoint`] or a [`DatagramQueue`](crate::queue::DatagramQueue).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DatagramOptions {
    /// Maximum number of outstanding datagrams. Default: 128.
    pub send_depth: u32,
    /// Maximum number of posted receives. Default: 128.
    pub recv_depth: u32,
    /// Maximum number of bytes of an inline datagram: [`DatagramSends::send_inline`]. Default: 28.
    pub inline_bytes: u16,
    /// Whether waits sleep instead of polling. Default: no.
    pub events: bool,
    /// The completion vector of its completion queue. Default: 0.
    pub vector: u32,
    /// Q_Key that received datagrams must carry. `None` is for queue pair 1, of general services, whose Q_Key is fixed.
    pub qkey: Option<u32>,
    /// Whether datagrams that are posted alone are copied to the card. Default: where it pays.
    pub copying: Copying,
    /// Whether completions bear the time of the card's real-time clock
    /// ([`RealTime::of`](crate::RealTime::of)), not that of the free-running one. Default: no.
    pub real_time: bool,
    /// Counts what happens to its datagrams. Any number of queues share one. Default: none.
    pub counter: Option<Arc<QueueCounter>>,
}

setters! {
    DatagramOptions {
        send_depth: u32;
        recv_depth: u32;
        inline_bytes: u16;
        events = true;
        vector: u32;
        copying: Copying;
        real_time = true;
    }
}

impl DatagramOptions {
    /// Receives datagrams that carry `qkey`; everything else is default.
    pub fn new(qkey: u32) -> Self {
        DatagramOptions {
            send_depth: 128,
            recv_depth: 128,
            inline_bytes: 28,
            events: false,
            vector: 0,
            qkey: Some(qkey),
            copying: Copying::default(),
            real_time: false,
            counter: None,
        }
    }

    /// Queue pair 1, for general services: management datagrams. A function has only one; on `devx:` the kernel uses
    /// it.
    pub fn general_services() -> Self {
        DatagramOptions { qkey: None, ..DatagramOptions::new(0) }
    }

    fn attributes(&self) -> DatagramAttributes {
        self.qkey.map_or_else(DatagramAttributes::general_services, DatagramAttributes::new)
    }

    fn queue_pair(&self) -> QpOptions {
        let mut options = QpOptions::default().wqes(self.send_depth, self.recv_depth).inline_bytes(self.inline_bytes);
        (options.real_time, options.counter) = (self.real_time, self.counter.clone());
        if self.qkey.is_some() { options.datagrams() } else { options.general_services() }
    }
}

/// A queue pair for datagrams in RST, with its own UAR page, and its completion queue.
pub(super) fn queue_pair(pd: &Arc<Pd>, options: &DatagramOptions) -> Result<(Arc<QueuePair>, CompletionQueue), Error> {
    let uar = Uar::alloc_for_one_queue(pd.device(), options.copying)?;
    let entries = options.queue_pair().most_in_flight(pd.device().caps())?;
    let mut cq_options = CqOptions::default().entries(entries).vector(options.vector);
    cq_options.events = options.events;
    let cq = CompletionQueue::create(&uar, cq_options.beside(pd))?;
    let qp = QueuePair::create(pd, &uar, cq.cq(), cq.cq(), options.queue_pair())?;
    Ok((qp, cq))
}

impl<B: Buffers> Polled<Datagrams, ReceiveQueue, B> {
    /// RST to RTS: new work queues, each only if its depth is not 0.
    pub(super) fn start(&mut self, options: &DatagramOptions) -> Result<(), Error> {
        let WorkQueues { queues, qp, .. } = &mut self.work;
        qp.activate(&options.attributes())?;
        let send = (options.send_depth > 0).then(|| qp.datagram_send_queue()).transpose()?;
        let receive = (options.recv_depth > 0).then(|| qp.receive_queue()).transpose()?;
        *queues = Queues { send, receive };
        Ok(())
    }

    /// Any state to RTS. Returns the buffers that were in flight, and those of completions not polled.
    pub(super) fn restart(&mut self, options: &DatagramOptions) -> Result<Vec<Buffer>, Error> {
        self.work.reset()?;
        self.start(options)?;
        Ok(self.discarded())
    }
}

/// What they are of, for the log.
pub(super) const WHAT: &str = "a queue pair of datagrams";

/// A queue pair for datagrams, and the memory region that it uses.
///
/// Like an [`Endpoint`](crate::queue::Endpoint), it posts any part of its region, which is read and written by copies,
/// and buffers beside it, in which datagrams are slices. One datagram for many goes to each from the same bytes; where
/// each has its own, a [`DatagramQueue`](crate::queue::DatagramQueue) is simpler. A received datagram follows
/// [`GRH`](crate::queue::GRH) bytes of header. Used by one thread at a time. Posting and polling make no system call,
/// take no lock and allocate nothing. If it is dropped with work in flight, the queue pair is reset first; if that
/// fails, region and buffers are leaked.
#[derive(Debug)]
pub struct DatagramEndpoint {
    window: Window,
    /// With the region, and the buffers of posted work.
    queues: Polled<Datagrams, ReceiveQueue, HeldBuffers>,
    options: DatagramOptions,
}

impl DatagramEndpoint {
    /// Creates a queue pair in RTS, in the region's protection domain, with its own UAR page and completion queue.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the options exceed a capability, or the kernel uses queue pair 1; [`Error::Memory`],
    /// [`Error::Command`].
    pub fn new(region: &Arc<MemoryRegion>, options: &DatagramOptions) -> Result<Self, Error> {
        let (qp, cq) = queue_pair(region.pd(), options)?;
        let mut queues = Polled::new(qp, cq, HeldBuffers::new(region), WHAT);
        queues.start(options)?;
        queues.work.hold();
        Ok(DatagramEndpoint { window: Window::of(region), queues, options: options.clone() })
    }

    /// The queue pair.
    pub fn queue_pair(&self) -> &Arc<QueuePair> {
        &self.queues.work.qp
    }

    /// How it rings the doorbell; `None` without a send queue.
    pub fn doorbell_kind(&self) -> Option<DoorbellKind> {
        self.queues.work.doorbell_kind()
    }

    /// The region.
    pub fn region(&self) -> &Arc<MemoryRegion> {
        &self.queues.work.in_flight.region
    }

    /// Starts a batch of datagrams; `None` without a send queue.
    #[inline(always)]
    pub fn sends(&mut self) -> Option<DatagramSends<'_>> {
        let window = self.window;
        self.queues.work.sends().map(|(batch, buffers)| DatagramSends { batch, buffers, window })
    }

    /// Starts a batch of receives; `None` without a receive queue.
    #[inline(always)]
    pub fn receives(&mut self) -> Option<EndpointReceives<'_>> {
        let window = self.window;
        self.queues.work.receives().map(|(batch, buffers)| EndpointReceives { batch, buffers, window })
    }

    /// Returns the next completed work request; `None` if there is none. After one that failed, the queue pair executes
    /// nothing more.
    ///
    /// # Errors
    /// [`RetireError`] if the card names a work request that is not in flight: the card or the driver is broken.
    // Inlined, as `Hub::poll`, and for the same reason.
    #[inline(always)]
    pub fn poll(&mut self) -> Result<Option<EndpointDone>, RetireError> {
        self.queues.poll()
    }

    /// As [`Endpoint::poll_batch`](crate::queue::Endpoint::poll_batch).
    #[inline(always)]
    pub fn poll_batch(&mut self, most: usize) -> EndpointCompletions<'_, Datagrams> {
        EndpointCompletions { done: self.queues.poll_batch(most) }
    }

    /// Takes the queue pair through RST to RTS, after an error, or to get everything back. Work in flight and
    /// completions not polled are discarded; their buffers are returned.
    ///
    /// # Errors
    /// [`Error::Command`], or [`Error::Timeout`] while the card does not answer: nothing can be posted then, and the
    /// card may still use region and buffers. The reset can be tried again.
    pub fn reset(&mut self) -> Result<Vec<Buffer>, Error> {
        self.queues.restart(&self.options)
    }

    /// Waits until [`poll`](Self::poll) has a completion. Errors: as for
    /// [`CompletionQueue::wait`](crate::queue::CompletionQueue::wait).
    pub fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        self.queues.cq.wait(timeout)
    }

    /// As [`wait`](Self::wait), for tasks of any executor: see
    /// [`CompletionQueue::ready`](crate::queue::CompletionQueue::ready).
    pub async fn ready(&mut self, readable: impl AsyncFnMut() -> io::Result<()>) -> Result<(), Error> {
        self.queues.cq.ready(readable).await
    }

    /// The eventfd that becomes readable at an event that [`ready`](Self::ready) or [`wait`](Self::wait) requested;
    /// `None` without [`DatagramOptions::events`].
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.queues.cq.fd()
    }
}

event_source!(DatagramEndpoint; queues.cq);

/// A batch of datagrams of a [`DatagramEndpoint`], before its doorbell.
///
/// Ranges are bytes of the region; a range outside the region panics, as with slices. Buffers come back by their
/// completions, which they always have; those of a batch that is not rung are dropped with it. After an error the batch
/// is unchanged.
#[must_use = "a batch that is not rung never happened"]
pub struct DatagramSends<'a> {
    batch: DatagramSendBatch<'a, AnyDoorbell>,
    buffers: HeldBatch<'a>,
    window: Window,
}

impl fmt::Debug for DatagramSends<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.batch, f)
    }
}

impl DatagramSends<'_> {
    /// SEND of the bytes `range` to `to`. Errors: [`PostError`].
    #[inline(always)]
    #[track_caller]
    pub fn send(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        to: &AddressHandle,
        range: Range<usize>,
    ) -> Result<(), PostError> {
        let segment = self.window.segment(range);
        // SAFETY: the endpoint keeps the region registered until its queue pair is destroyed, or was reset and its
        // queues were dropped. There are no references to the region's memory: it is copied in and out.
        unsafe { self.batch.send(wr_id, flags, to, &[segment]) }
    }

    /// As [`send`](Self::send), with immediate data.
    #[inline(always)]
    #[track_caller]
    pub fn send_imm(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        to: &AddressHandle,
        imm: u32,
        range: Range<usize>,
    ) -> Result<(), PostError> {
        let segment = self.window.segment(range);
        // SAFETY: as in `send`.
        unsafe { self.batch.send_imm(wr_id, flags, to, imm, &[segment]) }
    }

    /// SEND of `buffer`, which was filled in place, to `to`. Errors: [`Refused`], with the buffer.
    #[inline(always)]
    pub fn send_buffer(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        to: &AddressHandle,
        buffer: Buffer,
    ) -> Result<(), Refused> {
        let index = self.batch.next_index();
        // SAFETY: `keep` keeps the buffer, and with it its region, until the work request has completed, or its queue
        // pair was destroyed, or was reset and its queues were dropped.
        let posted = unsafe { self.batch.send(wr_id, flags | WrFlags::SIGNALLED, to, &[buffer.segment()]) };
        self.buffers.keep(index, posted, buffer)
    }

    /// SEND of `data`, which is copied at once, to `to`. Errors: [`PostError`].
    #[inline(always)]
    pub fn send_inline(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        to: &AddressHandle,
        data: &[u8],
    ) -> Result<(), PostError> {
        self.batch.send_inline(wr_id, flags, to, data)
    }

    /// As [`send_inline`](Self::send_inline), with immediate data.
    #[inline(always)]
    pub fn send_imm_inline(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        to: &AddressHandle,
        imm: u32,
        data: &[u8],
    ) -> Result<(), PostError> {
        self.batch.send_imm_inline(wr_id, flags, to, imm, data)
    }

    /// SEND of all `parts` as one datagram, in this order, which are copied at once, to `to`. Errors: [`PostError`].
    #[inline(always)]
    pub fn send_inline_all(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        to: &AddressHandle,
        parts: &[&[u8]],
    ) -> Result<(), PostError> {
        self.batch.send_inline_all(wr_id, flags, to, parts)
    }

    /// As [`send_inline_all`](Self::send_inline_all), with immediate data.
    #[inline(always)]
    pub fn send_imm_inline_all(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        to: &AddressHandle,
        imm: u32,
        parts: &[&[u8]],
    ) -> Result<(), PostError> {
        self.batch.send_imm_inline_all(wr_id, flags, to, imm, parts)
    }

    /// Rings the doorbell: hands the batch to the card.
    #[inline(always)]
    pub fn ring(mut self) {
        self.buffers.rung();
        self.batch.ring();
    }
}
