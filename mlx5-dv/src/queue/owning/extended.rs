//! Extended reliable connections that own the buffers of posted work.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use super::in_flight::{Done, InFlight, Refused, RefusedReason, Ticket};
use super::receives::Receives;
use super::setup::{self, ConnectionOptions, Peer};
use crate::error::Error;
use crate::memory::DataSegment;
use crate::objects::{
    AnyDoorbell, Buffer, CqOptions, InitAttributes, Pd, QpOptions, QueuePair, Srq, SrqOptions, Uar, Xrcd,
};
use crate::queue::completion::CompletionQueue;
use crate::queue::completion::decode::{Side, work_of};
use crate::queue::error::{PostError, RetireError};
use crate::queue::receive::shared::SharedReceiveQueue;
use crate::queue::send::SendBatch;
use crate::queue::send::extended::{ExtendedMessages, RemoteSrq, XrcSendQueue};
use crate::queue::send::wqe::WrFlags;

/// A shared receive queue of an XRC domain, with its completion queue and the posted buffers. It receives from all
/// [`XrcConnection`]s of the domain. Used by one thread at a time.
#[derive(Debug)]
pub struct XrcReceiver {
    shared: SharedReceiveQueue,
    /// After the queue, which also holds the object.
    receives: Receives,
    cq: CompletionQueue,
}

impl XrcReceiver {
    /// Creates a receiver in `domain`, for memory of `pd`. Its completion queue has an entry for each receive of
    /// `options`; `cq_options` sets the rest.
    ///
    /// # Errors
    /// As for [`Srq::create_xrc`].
    pub fn new(pd: &Arc<Pd>, domain: &Arc<Xrcd>, options: SrqOptions, cq_options: CqOptions) -> Result<Self, Error> {
        let uar = Uar::alloc(pd.device())?;
        // Rounded up, as the number of receives.
        let entries = options.wqes.saturating_add(1).next_power_of_two();
        let cq = CompletionQueue::create(&uar, cq_options.entries(entries))?;
        let srq = Srq::create_xrc(pd, domain, cq.cq(), options)?;
        let shared = srq.receive_queue()?;
        let receives = Receives { in_flight: InFlight::new(0, shared.capacity() as u32), srq };
        Ok(XrcReceiver { shared, receives, cq })
    }

    /// The number that messages of remotes name, 24 bits.
    pub fn srqn(&self) -> u32 {
        self.receives.srq.srqn()
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
        let work = work_of(&result);
        let wr_id = self.shared.retire(&work)?;
        self.receives.in_flight.done(wr_id, result).map(Some)
    }

    /// The eventfd that becomes readable at an event that [`ready`](Self::ready) or [`wait`](Self::wait) requested;
    /// `None` if `cq_options` has no events.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.cq.fd()
    }

    /// As [`wait`](Self::wait), for tasks of any executor: see
    /// [`CompletionQueue::ready`](crate::queue::CompletionQueue::ready).
    pub async fn ready(&mut self, readable: impl AsyncFnMut() -> io::Result<()>) -> Result<(), Error> {
        self.cq.ready(readable).await
    }

    /// Waits until [`poll`](Self::poll) may have a message. It sleeps if `cq_options` has events.
    ///
    /// # Errors
    /// [`Error::Timeout`] after `timeout`, [`Error::CompletionQueue`] if the completion queue overran, [`Error::Dead`].
    pub fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        self.cq.wait_or_yield(timeout)
    }
}

/// What one end of an [`XrcConnection`] tells the other to connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XrcPeer {
    /// The sending queue pair and its address. Both queue pairs start at its `psn`.
    pub initiator: Peer,
    /// The receiving queue pair, 24 bits.
    pub target_qpn: u32,
}

/// A connection in both directions between two XRC domains: an initiator that sends, and a target, whose messages go to
/// the [`XrcReceiver`]s of the domain. Used by one thread at a time.
#[derive(Debug)]
pub struct XrcConnection {
    /// `Some` once it is connected.
    send: Option<XrcSendQueue<AnyDoorbell>>,
    in_flight: InFlight,
    cq: CompletionQueue,
    initiator: Arc<QueuePair>,
    target: Arc<QueuePair>,
    options: ConnectionOptions,
    psn: u32,
}

impl XrcConnection {
    /// Creates the queue pairs in `domain`, in INIT. `recv_depth` of `options` is ignored.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the options exceed a capability; [`Error::Memory`], [`Error::Command`].
    pub fn new(pd: &Arc<Pd>, domain: &Arc<Xrcd>, options: ConnectionOptions) -> Result<Self, Error> {
        let uar = Uar::alloc(pd.device())?;
        let mut cq_options = CqOptions::default().entries(options.send_depth).vector(options.vector);
        (cq_options.events, cq_options.moderation) = (options.events, options.moderation);
        let cq = CompletionQueue::create(&uar, cq_options)?;
        let qp = |qp_options| {
            let qp = QueuePair::create(pd, &uar, cq.cq(), cq.cq(), qp_options)?;
            qp.init(&InitAttributes { remote_access: options.remote_access, ..InitAttributes::default() })?;
            Ok::<_, Error>(qp)
        };
        let sends = QpOptions::default().wqes(options.send_depth, 0).inline_bytes(options.inline_bytes);
        let (initiator, target) = (qp(sends.xrc_initiator(domain))?, qp(QpOptions::default().xrc_target(domain))?);
        let (psn, in_flight) = (setup::first_psn(&initiator, &options), InFlight::new(options.send_depth, 0));
        Ok(XrcConnection { send: None, in_flight, cq, initiator, target, options, psn })
    }

    /// What to tell the remote. Errors: [`Error::Invalid`] if no GID has the index `gid_index`.
    pub fn local(&self) -> Result<XrcPeer, Error> {
        let initiator = setup::local(&self.initiator, &self.options, self.psn)?;
        Ok(XrcPeer { initiator, target_qpn: self.target.qpn() })
    }

    /// Connects both directions to `peer`.
    ///
    /// # Errors
    /// As for [`Connection::connect`](crate::queue::Connection::connect).
    pub fn connect(&mut self, peer: &XrcPeer) -> Result<(), Error> {
        setup::to_rts(&self.target, &self.options, self.psn, &peer.initiator)?;
        let target = Peer { qpn: peer.target_qpn, ..peer.initiator };
        setup::to_rts(&self.initiator, &self.options, self.psn, &target)?;
        self.send = Some(self.initiator.xrc_send_queue()?);
        Ok(())
    }

    /// Posts one send work request by `post`, and rings the doorbell.
    fn post_send(
        &mut self,
        buffer: Option<Buffer>,
        post: impl FnOnce(&mut SendBatch<'_, AnyDoorbell, ExtendedMessages>, u64, &[DataSegment]) -> Result<(), PostError>,
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

    /// SEND of `buffer` to the remote's `srq`. Errors: [`Refused`], with the buffer.
    pub fn send(&mut self, srq: RemoteSrq, buffer: Buffer) -> Result<Ticket, Refused> {
        self.post_send(Some(buffer), |batch, id, elements| {
            // SAFETY: `post_send` keeps the buffer until its completion, or until the queue pair is destroyed.
            unsafe { batch.send(id, WrFlags::SIGNALLED, srq, elements) }
        })
    }

    /// SEND of `data`, which is copied at once. Errors: [`Refused`].
    pub fn send_inline(&mut self, srq: RemoteSrq, data: &[u8]) -> Result<Ticket, Refused> {
        self.post_send(None, |batch, id, _| batch.send_inline(id, WrFlags::SIGNALLED, srq, data))
    }

    /// Returns the next completed send; `None` if there is none.
    ///
    /// # Errors
    /// As for [`XrcReceiver::poll`].
    pub fn poll(&mut self) -> Result<Option<Done>, RetireError> {
        let Some(result) = self.cq.poll() else { return Ok(None) };
        let work = work_of(&result);
        let queue = self.send.as_mut().ok_or_else(|| RetireError::nothing_in_flight(work))?;
        let wr_id = queue.retire(&work)?;
        self.in_flight.done(wr_id, result).map(Some)
    }
}

impl Drop for XrcConnection {
    fn drop(&mut self) {
        self.send = None;
        if !self.in_flight.is_empty() && self.initiator.reset().is_err() && self.cq.cq().death().is_none() {
            tracing::error!("an XRC connection was not reset; its buffers in flight are leaked");
            self.in_flight.leak();
        }
    }
}
