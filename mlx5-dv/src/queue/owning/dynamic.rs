//! Dynamic connections that own the buffers of posted work.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use super::in_flight::{Done, InFlight, Refused, Ticket};
use super::receives::Receives;
use super::sends::{self, Sends};
use super::setup::ConnectionOptions;
use crate::error::Error;
use crate::memory::RemoteAddress;
use crate::objects::{
    Buffer, CqOptions, DcTarget, DciStreams, Dct, DctOptions, DoorbellKind, InitiatorAttributes, Pd, QpOptions,
    QueuePair, Srq, SrqOptions, Uar,
};
use crate::queue::completion::CompletionQueue;
use crate::queue::error::RetireError;
use crate::queue::events::{EventSource, event_source};
use crate::queue::receive::shared::SharedReceiveQueue;
use crate::queue::send::dynamic::DynamicMessages;
use crate::queue::send::masked::{MaskedAdd, MaskedNumber, MaskedSwap};
use crate::queue::send::wqe::WrFlags;

/// A dynamically connected target with its shared receive queue, its completion queue and the posted buffers. It
/// receives from every [`DcInitiator`] that knows its access key. Used by one thread at a time.
#[derive(Debug)]
pub struct DcReceiver {
    shared: SharedReceiveQueue,
    /// Before the shared receive queue that it takes from.
    dct: Arc<Dct>,
    receives: Receives,
    cq: CompletionQueue,
}

impl DcReceiver {
    /// Creates a target for memory of `pd`. Its completion queue has an entry for each receive of `receives`;
    /// `cq_options` sets the rest.
    ///
    /// # Errors
    /// As for [`Dct::create`].
    pub fn new(pd: &Arc<Pd>, target: &DctOptions, receives: SrqOptions, cq_options: CqOptions) -> Result<Self, Error> {
        let uar = Uar::alloc(pd.device())?;
        // Rounded up, as the number of receives.
        let entries = receives.wqes.saturating_add(1).next_power_of_two();
        let cq = CompletionQueue::create(&uar, cq_options.entries(entries).beside(pd))?;
        let srq = Srq::create(pd, receives)?;
        let dct = Dct::create(pd, &srq, cq.cq(), target)?;
        let shared = srq.receive_queue()?;
        let receives = Receives { in_flight: InFlight::new(0, shared.capacity() as u32), srq };
        Ok(DcReceiver { shared, dct, receives, cq })
    }

    /// The target: its number and access key, for initiators.
    pub fn dct(&self) -> &Dct {
        &self.dct
    }

    /// Posts a receive of one message into `buffer`. Errors: [`Refused`], with the buffer.
    pub fn receive(&mut self, buffer: Buffer) -> Result<Ticket, Refused> {
        self.receives.post(&mut self.shared, buffer)
    }

    /// Returns the next message; `None` if there is none.
    ///
    /// # Errors
    /// [`RetireError`] if the card names a receive that is not in flight: the card or the driver is broken.
    pub fn poll(&mut self) -> Result<Option<Done>, RetireError> {
        self.receives.poll(&mut self.shared, &mut self.cq)
    }

    /// Waits until [`poll`](Self::poll) may have a message. It sleeps if `cq_options` has events.
    ///
    /// # Errors
    /// [`Error::Timeout`] after `timeout`, [`Error::CompletionQueue`] if the completion queue overran, [`Error::Dead`].
    pub fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        self.cq.wait_or_yield(timeout)
    }

    /// The eventfd that becomes readable at an event that [`ready`](Self::ready) or [`wait`](Self::wait) requested;
    /// `None` without events in `cq_options`.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.cq.fd()
    }

    /// As [`wait`](Self::wait), for tasks of any executor: see
    /// [`CompletionQueue::ready`](crate::queue::CompletionQueue::ready).
    pub async fn ready(&mut self, readable: impl AsyncFnMut() -> io::Result<()>) -> Result<(), Error> {
        self.cq.ready(readable).await
    }
}

event_source!(DcReceiver; cq);

/// A dynamically connected initiator that owns the buffers of posted work. Each call names the target. Used by one
/// thread at a time.
#[derive(Debug)]
pub struct DcInitiator {
    sends: Sends<DynamicMessages>,
}

impl DcInitiator {
    /// Creates an initiator in RTS. Of `options`, it uses what concerns sends, events and the path MTU.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a card without the transport; [`Error::Invalid`] if the options exceed a capability;
    /// [`Error::Memory`], [`Error::Command`].
    pub fn new(pd: &Arc<Pd>, options: &ConnectionOptions) -> Result<Self, Error> {
        Self::with_qp_options(pd, options, QpOptions::default())
    }

    /// As [`new`](Self::new), with streams: each [`DcTarget`] names one.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn with_streams(pd: &Arc<Pd>, options: &ConnectionOptions, streams: DciStreams) -> Result<Self, Error> {
        Self::with_qp_options(pd, options, QpOptions::default().dci_streams(streams))
    }

    /// As [`new`](Self::new), with the streams and the handshake of `qp_options`; the rest of its queue pair is as
    /// `options` says.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn with_qp_options(pd: &Arc<Pd>, options: &ConnectionOptions, qp_options: QpOptions) -> Result<Self, Error> {
        let uar = Uar::alloc_for_one_queue(pd.device(), options.copying)?;
        let cq = sends::completion_queue(pd, &uar, options)?;
        let mut qp_options = qp_options.dc_initiator().wqes(options.send_depth, 0).inline_bytes(options.inline_bytes);
        (qp_options.real_time, qp_options.counter) = (options.real_time, options.counter.clone());
        let qp = QueuePair::create(pd, &uar, cq.cq(), cq.cq(), qp_options)?;
        let (path_mtu, rts) = (options.path_mtu, options.rts);
        qp.activate_initiator(&InitiatorAttributes { path_mtu, rts, ..InitiatorAttributes::default() })?;
        let mut sends = Sends::new(qp, cq, options.send_depth, "a DC initiator");
        sends.queue = Some(sends.qp.dc_send_queue()?);
        Ok(DcInitiator { sends })
    }

    /// The queue pair.
    pub fn queue_pair(&self) -> &Arc<QueuePair> {
        &self.sends.qp
    }

    /// Takes a stream out of error. Errors: as for [`QueuePair::reset_stream`].
    pub fn reset_stream(&self, stream: u16) -> Result<(), Error> {
        self.sends.qp.reset_stream(stream)
    }

    /// How it rings the doorbell.
    pub fn doorbell_kind(&self) -> Option<DoorbellKind> {
        self.sends.doorbell_kind()
    }

    /// SEND of `buffer` to the target `to`. Errors: [`Refused`], with the buffer.
    pub fn send(&mut self, to: &DcTarget, buffer: Buffer) -> Result<Ticket, Refused> {
        self.sends.post(Some(buffer), |batch, id, elements| {
            // SAFETY: `Sends::post` keeps the buffer until its completion, or until the queue pair is destroyed.
            unsafe { batch.send(id, WrFlags::SIGNALLED, to, elements) }
        })
    }

    /// SEND of `data`, which is copied at once. Errors: [`Refused`].
    pub fn send_inline(&mut self, to: &DcTarget, data: &[u8]) -> Result<Ticket, Refused> {
        self.sends.post(None, |batch, id, _| batch.send_inline(id, WrFlags::SIGNALLED, to, data))
    }

    /// As [`send`](Self::send), with immediate data.
    pub fn send_imm(&mut self, to: &DcTarget, buffer: Buffer, imm: u32) -> Result<Ticket, Refused> {
        self.sends.post(Some(buffer), |batch, id, elements| {
            // SAFETY: as in `send`.
            unsafe { batch.send_imm(id, WrFlags::SIGNALLED, to, imm, elements) }
        })
    }

    /// As [`send`](Self::send); it invalidates the remote's key `rkey`.
    pub fn send_invalidate(&mut self, to: &DcTarget, buffer: Buffer, rkey: u32) -> Result<Ticket, Refused> {
        self.sends.post(Some(buffer), |batch, id, elements| {
            // SAFETY: as in `send`.
            unsafe { batch.send_invalidate(id, WrFlags::SIGNALLED, to, rkey, elements) }
        })
    }

    /// RDMA WRITE of `buffer` to `remote` of the target `to`. Errors: [`Refused`], with the buffer.
    pub fn write(&mut self, to: &DcTarget, buffer: Buffer, remote: RemoteAddress) -> Result<Ticket, Refused> {
        self.sends.post(Some(buffer), |batch, id, elements| {
            // SAFETY: as in `send`.
            unsafe { batch.write(id, WrFlags::SIGNALLED, to, remote, elements) }
        })
    }

    /// As [`write`](Self::write), with immediate data that completes a receive of the target.
    pub fn write_imm(
        &mut self,
        to: &DcTarget,
        buffer: Buffer,
        remote: RemoteAddress,
        imm: u32,
    ) -> Result<Ticket, Refused> {
        self.sends.post(Some(buffer), |batch, id, elements| {
            // SAFETY: as in `send`.
            unsafe { batch.write_imm(id, WrFlags::SIGNALLED, to, remote, imm, elements) }
        })
    }

    /// RDMA WRITE of `data`, which is copied at once, to `remote` of the target `to`. Errors: [`Refused`].
    pub fn write_inline(&mut self, to: &DcTarget, data: &[u8], remote: RemoteAddress) -> Result<Ticket, Refused> {
        self.sends.post(None, |batch, id, _| batch.write_inline(id, WrFlags::SIGNALLED, to, remote, data))
    }

    /// RDMA READ from `remote` of the target `to` into `buffer`. Errors: [`Refused`], with the buffer.
    pub fn read(&mut self, to: &DcTarget, buffer: Buffer, remote: RemoteAddress) -> Result<Ticket, Refused> {
        self.sends.post(Some(buffer), |batch, id, elements| {
            // SAFETY: as in `send`.
            unsafe { batch.read(id, WrFlags::SIGNALLED, to, remote, elements) }
        })
    }

    /// ATOMIC fetch and add to the number at `remote` of the target `to`. The old value is written to `buffer`, of
    /// eight bytes. Errors: [`Refused`], with the buffer.
    pub fn fetch_add(
        &mut self,
        to: &DcTarget,
        buffer: Buffer,
        remote: RemoteAddress,
        add: u64,
    ) -> Result<Ticket, Refused> {
        let segment = buffer.segment();
        self.sends.post(Some(buffer), |batch, id, _| {
            // SAFETY: as in `send`.
            unsafe { batch.fetch_add(id, WrFlags::SIGNALLED, to, remote, add, segment) }
        })
    }

    /// ATOMIC compare and swap, as [`fetch_add`](Self::fetch_add). The operands are a pair `[compare, swap]`: the
    /// number becomes `swap` if it is `compare`.
    pub fn compare_swap(
        &mut self,
        to: &DcTarget,
        buffer: Buffer,
        remote: RemoteAddress,
        operands: [u64; 2],
    ) -> Result<Ticket, Refused> {
        let segment = buffer.segment();
        self.sends.post(Some(buffer), |batch, id, _| {
            // SAFETY: as in `send`.
            unsafe { batch.compare_swap(id, WrFlags::SIGNALLED, to, remote, operands, segment) }
        })
    }

    /// Masked ATOMIC compare and swap; otherwise as on a
    /// [`Connection`](crate::queue::Connection::masked_compare_swap).
    pub fn masked_compare_swap<N: MaskedNumber>(
        &mut self,
        to: &DcTarget,
        buffer: Buffer,
        remote: RemoteAddress,
        swap: MaskedSwap<N>,
    ) -> Result<Ticket, Refused> {
        let segment = buffer.segment();
        self.sends.post(Some(buffer), |batch, id, _| {
            // SAFETY: as in `send`.
            unsafe { batch.masked_compare_swap(id, WrFlags::SIGNALLED, to, remote, swap, segment) }
        })
    }

    /// Masked ATOMIC fetch and add; otherwise as [`masked_compare_swap`](Self::masked_compare_swap).
    pub fn masked_fetch_add<N: MaskedNumber>(
        &mut self,
        to: &DcTarget,
        buffer: Buffer,
        remote: RemoteAddress,
        add: MaskedAdd<N>,
    ) -> Result<Ticket, Refused> {
        let segment = buffer.segment();
        self.sends.post(Some(buffer), |batch, id, _| {
            // SAFETY: as in `send`.
            unsafe { batch.masked_fetch_add(id, WrFlags::SIGNALLED, to, remote, add, segment) }
        })
    }

    /// Returns the next completed work request; `None` if there is none.
    ///
    /// # Errors
    /// As for [`DcReceiver::poll`].
    pub fn poll(&mut self) -> Result<Option<Done>, RetireError> {
        self.sends.poll()
    }

    /// Waits until [`poll`](Self::poll) may have a completion. Errors: as for [`DcReceiver::wait`].
    pub fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        self.sends.cq.wait_or_yield(timeout)
    }

    /// The eventfd that becomes readable at an event that [`ready`](Self::ready) or [`wait`](Self::wait) requested;
    /// `None` without [`ConnectionOptions::events`].
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.sends.cq.fd()
    }

    /// As [`wait`](Self::wait), for tasks of any executor: see
    /// [`CompletionQueue::ready`](crate::queue::CompletionQueue::ready).
    pub async fn ready(&mut self, readable: impl AsyncFnMut() -> io::Result<()>) -> Result<(), Error> {
        self.sends.cq.ready(readable).await
    }
}

event_source!(DcInitiator; sends.cq);
