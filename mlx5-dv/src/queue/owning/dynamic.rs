//! Dynamic connections that own the buffers of posted work.

use std::sync::Arc;
use std::time::Duration;

use super::in_flight::{Done, InFlight, Refused, RefusedReason, Ticket};
use super::receives::Receives;
use super::setup::ConnectionOptions;
use crate::error::Error;
use crate::memory::{DataSegment, RemoteAddress};
use crate::objects::{
    AnyDoorbell, Buffer, CqOptions, DcTarget, Dct, DctOptions, InitiatorAttributes, Pd, QpOptions, QueuePair, Srq,
    SrqOptions, Uar,
};
use crate::queue::completion::CompletionQueue;
use crate::queue::completion::decode::{Side, work_of};
use crate::queue::error::{PostError, RetireError};
use crate::queue::receive::shared::SharedReceiveQueue;
use crate::queue::send::SendBatch;
use crate::queue::send::dynamic::{DcSendQueue, DynamicMessages};
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
        let cq = CompletionQueue::create(&uar, cq_options.entries(entries))?;
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
        let posted = self.receives.in_flight.next(Side::Receive).and_then(|wr_id| {
            let mut batch = self.shared.batch();
            // SAFETY: `InFlight::keep` then stores the buffer, and with it its region, until the completion or until
            // the shared receive queue was destroyed.
            unsafe { batch.receive(wr_id, &[buffer.segment()])? };
            batch.ring();
            Ok(())
        });
        self.receives.in_flight.keep(posted.map_err(RefusedReason::from), Side::Receive, Some(buffer))
    }

    /// Returns the next message; `None` if there is none.
    ///
    /// # Errors
    /// [`RetireError`] if the card names a receive that is not in flight: the card or the driver is broken.
    pub fn poll(&mut self) -> Result<Option<Done>, RetireError> {
        let Some(result) = self.cq.poll() else { return Ok(None) };
        let wr_id = self.shared.retire(&work_of(&result))?;
        self.receives.in_flight.done(wr_id, result).map(Some)
    }

    /// Waits until [`poll`](Self::poll) may have a message. It sleeps if `cq_options` has events.
    ///
    /// # Errors
    /// [`Error::Timeout`] after `timeout`, [`Error::CompletionQueue`] if the completion queue overran, [`Error::Dead`].
    pub fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        self.cq.wait_or_yield(timeout)
    }
}

/// A dynamically connected initiator that owns the buffers of posted work. Each call names the target. Used by one
/// thread at a time.
#[derive(Debug)]
pub struct DcInitiator {
    /// `None` while it is dropped.
    send: Option<DcSendQueue<AnyDoorbell>>,
    in_flight: InFlight,
    cq: CompletionQueue,
    qp: Arc<QueuePair>,
}

impl DcInitiator {
    /// Creates an initiator in RTS. Of `options`, it uses what concerns sends, events and the path MTU.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a card without the transport; [`Error::Invalid`] if the options exceed a capability;
    /// [`Error::Memory`], [`Error::Command`].
    pub fn new(pd: &Arc<Pd>, options: &ConnectionOptions) -> Result<Self, Error> {
        let uar = Uar::alloc(pd.device())?;
        let mut cq_options = CqOptions::default().entries(options.send_depth).vector(options.vector);
        (cq_options.events, cq_options.moderation) = (options.events, options.moderation);
        let cq = CompletionQueue::create(&uar, cq_options)?;
        let sends = QpOptions::default().wqes(options.send_depth, 0).inline_bytes(options.inline_bytes);
        let qp = QueuePair::create(pd, &uar, cq.cq(), cq.cq(), sends.dc_initiator())?;
        let (path_mtu, rts) = (options.path_mtu, options.rts);
        qp.activate_initiator(&InitiatorAttributes { path_mtu, rts, ..InitiatorAttributes::default() })?;
        let send = Some(qp.dc_send_queue()?);
        Ok(DcInitiator { send, in_flight: InFlight::new(options.send_depth, 0), cq, qp })
    }

    /// The queue pair.
    pub fn queue_pair(&self) -> &Arc<QueuePair> {
        &self.qp
    }

    /// Posts one send work request by `post`, and rings the doorbell.
    fn post(
        &mut self,
        buffer: Option<Buffer>,
        post: impl FnOnce(&mut SendBatch<'_, AnyDoorbell, DynamicMessages>, u64, &[DataSegment]) -> Result<(), PostError>,
    ) -> Result<Ticket, Refused> {
        let segment = buffer.as_ref().map(Buffer::segment);
        let posted = self.in_flight.next(Side::Send).map_err(RefusedReason::from).and_then(|wr_id| {
            let queue = self.send.as_mut().ok_or(RefusedReason::NotConnected)?;
            let mut batch = queue.batch();
            post(&mut batch, wr_id, segment.as_slice())?;
            batch.ring();
            Ok(())
        });
        self.in_flight.keep(posted, Side::Send, buffer)
    }

    /// SEND of `buffer` to the target `to`. Errors: [`Refused`], with the buffer.
    pub fn send(&mut self, to: &DcTarget, buffer: Buffer) -> Result<Ticket, Refused> {
        self.post(Some(buffer), |batch, id, elements| {
            // SAFETY: `post` keeps the buffer until its completion, or until the queue pair is destroyed.
            unsafe { batch.send(id, WrFlags::SIGNALLED, to, elements) }
        })
    }

    /// SEND of `data`, which is copied at once. Errors: [`Refused`].
    pub fn send_inline(&mut self, to: &DcTarget, data: &[u8]) -> Result<Ticket, Refused> {
        self.post(None, |batch, id, _| batch.send_inline(id, WrFlags::SIGNALLED, to, data))
    }

    /// RDMA WRITE of `buffer` to `remote` of the target `to`. Errors: [`Refused`], with the buffer.
    pub fn write(&mut self, to: &DcTarget, buffer: Buffer, remote: RemoteAddress) -> Result<Ticket, Refused> {
        self.post(Some(buffer), |batch, id, elements| {
            // SAFETY: as in `send`.
            unsafe { batch.write(id, WrFlags::SIGNALLED, to, remote, elements) }
        })
    }

    /// RDMA READ from `remote` of the target `to` into `buffer`. Errors: [`Refused`], with the buffer.
    pub fn read(&mut self, to: &DcTarget, buffer: Buffer, remote: RemoteAddress) -> Result<Ticket, Refused> {
        self.post(Some(buffer), |batch, id, elements| {
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
        self.post(Some(buffer), |batch, id, _| {
            // SAFETY: as in `send`.
            unsafe { batch.fetch_add(id, WrFlags::SIGNALLED, to, remote, add, segment) }
        })
    }

    /// Returns the next completed work request; `None` if there is none.
    ///
    /// # Errors
    /// As for [`DcReceiver::poll`].
    pub fn poll(&mut self) -> Result<Option<Done>, RetireError> {
        let Some(result) = self.cq.poll() else { return Ok(None) };
        let work = work_of(&result);
        let queue = self.send.as_mut().ok_or_else(|| RetireError::nothing_in_flight(work))?;
        let wr_id = queue.retire(&work)?;
        self.in_flight.done(wr_id, result).map(Some)
    }

    /// Waits until [`poll`](Self::poll) may have a completion. Errors: as for [`DcReceiver::wait`].
    pub fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        self.cq.wait_or_yield(timeout)
    }
}

impl Drop for DcInitiator {
    fn drop(&mut self) {
        self.send = None;
        if !self.in_flight.is_empty() && self.qp.reset().is_err() && self.cq.cq().death().is_none() {
            tracing::error!("a DC initiator was not reset; its buffers in flight are leaked");
            self.in_flight.leak();
        }
    }
}
