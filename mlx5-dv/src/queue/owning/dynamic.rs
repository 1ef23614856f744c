//! Dynamic connections that own the buffers of posted work.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use super::addressed::addressed_calls;
use super::batch::{ConnectionBatch, alone};
use super::in_flight::{Done, InFlight, Refused, RefusedReason, Ticket};
use super::polled::Polled;
use super::receives::{SharedReceiver, receiver_calls};
use super::setup::{self, ConnectionOptions};
use crate::error::Error;
use crate::memory::RemoteAddress;
use crate::objects::{
    Buffer, CqOptions, DcTarget, DciStreams, Dct, DctOptions, DoorbellKind, InitiatorAttributes, Pd, QpOptions,
    QueuePair, Srq, SrqOptions, Uar,
};
use crate::queue::completion::CompletionQueue;
use crate::queue::error::RetireError;
use crate::queue::events::{EventSource, event_source};
use crate::queue::send::dynamic::DynamicMessages;
use crate::queue::send::masked::{MaskedAdd, MaskedNumber, MaskedSwap};

/// A dynamically connected target with its shared receive queue, its completion queue and the posted buffers. It
/// receives from every [`DcInitiator`] that knows its access key. Used by one thread at a time.
#[derive(Debug)]
pub struct DcReceiver {
    /// Before the shared receive queue that it takes from.
    dct: Arc<Dct>,
    receiver: SharedReceiver,
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
        cq.cq().close();
        Ok(DcReceiver { dct, receiver: SharedReceiver::new(srq, cq)? })
    }

    /// The target: its number and access key, for initiators.
    pub fn dct(&self) -> &Dct {
        &self.dct
    }
}

receiver_calls!(DcReceiver);

/// A dynamically connected initiator that owns the buffers of posted work. Each call names the target. Used by one
/// thread at a time.
#[derive(Debug)]
pub struct DcInitiator {
    sends: Polled<DynamicMessages>,
    attributes: InitiatorAttributes,
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
        let cq = setup::completion_queue(pd, &uar, options, options.send_depth)?;
        let qp_options = setup::qp_options(options, qp_options.dc_initiator());
        let qp = QueuePair::create(pd, &uar, cq.cq(), cq.cq(), qp_options)?;
        let (path_mtu, rts) = (options.path_mtu, options.rts);
        let attributes = InitiatorAttributes { path_mtu, rts, ..InitiatorAttributes::default() };
        let in_flight = InFlight::of_several((options.send_depth, options.send_sges), (0, 1));
        let sends = Polled::new(qp, cq, in_flight, "a DC initiator");
        let mut initiator = DcInitiator { sends, attributes };
        initiator.activate()?;
        Ok(initiator)
    }

    /// The queue pair.
    pub fn queue_pair(&self) -> &Arc<QueuePair> {
        &self.sends.work.qp
    }

    /// Takes a stream out of error. Errors: as for [`QueuePair::reset_stream`].
    pub fn reset_stream(&self, stream: u16) -> Result<(), Error> {
        self.sends.work.qp.reset_stream(stream)
    }

    /// Takes it to RTS again, after an error, too. Work in flight and completions not polled are discarded; their
    /// buffers are returned.
    ///
    /// # Errors
    /// [`Error::Command`], or [`Error::Timeout`] while the card does not answer: nothing can be posted then, and the
    /// buffers stay in flight. The reset can be tried again.
    pub fn reset(&mut self) -> Result<Vec<Buffer>, Error> {
        self.sends.work.reset()?;
        self.activate()?;
        Ok(self.sends.discarded())
    }

    /// RST to RTS.
    fn activate(&mut self) -> Result<(), Error> {
        let work = &mut self.sends.work;
        work.qp.activate_initiator(&self.attributes)?;
        work.queues.send = Some(work.qp.dc_send_queue()?);
        Ok(())
    }
}

addressed_calls!(DcInitiator, DynamicMessages, &DcTarget);
