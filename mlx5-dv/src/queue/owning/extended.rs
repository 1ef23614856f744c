//! Extended reliable connections that own the buffers of posted work.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use super::addressed::addressed_calls;
use super::batch::{ConnectionBatch, alone};
use super::in_flight::{Done, InFlight, Refused, RefusedReason, Ticket};
use super::polled::Polled;
use super::receives::{SharedReceiver, receiver_calls};
use super::setup::{self, ConnectionOptions, Peer};
use crate::error::Error;
use crate::memory::RemoteAddress;
use crate::objects::{
    Buffer, CqOptions, DoorbellKind, InitAttributes, Pd, QpOptions, QueuePair, Srq, SrqOptions, Uar, XrcTarget, Xrcd,
};
use crate::queue::completion::CompletionQueue;
use crate::queue::error::RetireError;
use crate::queue::events::{EventSource, event_source};
use crate::queue::send::extended::{ExtendedMessages, RemoteSrq};
use crate::queue::send::masked::{MaskedAdd, MaskedNumber, MaskedSwap};

/// A shared receive queue of an XRC domain, with its completion queue and the posted buffers. It receives from all
/// [`XrcConnection`]s of the domain. Used by one thread at a time.
#[derive(Debug)]
pub struct XrcReceiver {
    receiver: SharedReceiver,
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
        let cq = CompletionQueue::create(&uar, cq_options.entries(entries).for_xrc().beside(pd))?;
        let srq = Srq::create_xrc(pd, domain, cq.cq(), options)?;
        cq.cq().close();
        Ok(XrcReceiver { receiver: SharedReceiver::new(srq, cq)? })
    }

    /// The number that messages of remotes name, 24 bits.
    pub fn srqn(&self) -> u32 {
        self.receiver.srq().srqn()
    }
}

receiver_calls!(XrcReceiver);

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
    /// Those of the initiator.
    sends: Polled<ExtendedMessages>,
    target: Arc<XrcTarget>,
    options: ConnectionOptions,
    psn: u32,
}

impl XrcConnection {
    /// Creates the queue pairs in `domain`, in INIT. `recv_depth` of `options` is ignored; `real_time` and `counter`
    /// are of its sends.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the options exceed a capability; [`Error::Memory`], [`Error::Command`].
    pub fn new(pd: &Arc<Pd>, domain: &Arc<Xrcd>, options: ConnectionOptions) -> Result<Self, Error> {
        let uar = Uar::alloc_for_one_queue(pd.device(), options.copying)?;
        let cq = setup::completion_queue(pd, &uar, &options, options.send_depth)?;
        let qp_options = setup::qp_options(&options, QpOptions::default().xrc_initiator(domain));
        let initiator = QueuePair::create(pd, &uar, cq.cq(), cq.cq(), qp_options)?;
        let target = XrcTarget::create(pd, &uar, cq.cq(), domain)?;
        let in_flight = InFlight::of_several((options.send_depth, options.send_sges), (0, 1));
        let sends = Polled::new(initiator, cq, in_flight, "an XRC connection");
        let mut connection = XrcConnection { sends, target, options, psn: 0 };
        connection.init()?;
        Ok(connection)
    }

    /// What to tell the remote. Errors: [`Error::Invalid`] if no GID has the index `gid_index`.
    pub fn local(&self) -> Result<XrcPeer, Error> {
        let initiator = setup::local(&self.sends.work.qp, &self.options, self.psn)?;
        Ok(XrcPeer { initiator, target_qpn: self.target.qpn() })
    }

    /// Connects both directions to `peer`.
    ///
    /// # Errors
    /// As for [`Connection::connect`](crate::queue::Connection::connect).
    pub fn connect(&mut self, peer: &XrcPeer) -> Result<(), Error> {
        let (rtr, rts) = setup::attributes(self.target.device(), &self.options, self.psn, &peer.initiator)?;
        self.target.ready_to_receive(&rtr)?;
        self.target.ready_to_send(&rts)?;
        let target = Peer { qpn: peer.target_qpn, ..peer.initiator };
        setup::to_rts(&self.sends.work.qp, &self.options, self.psn, &target)?;
        self.sends.work.queues.send = Some(self.sends.work.qp.xrc_send_queue()?);
        Ok(())
    }

    /// Disconnects, after an error, too: both queue pairs go through RST to INIT. Work in flight and completions not
    /// polled are discarded; their buffers are returned. To connect again, exchange [`local`](Self::local) anew: the
    /// first PSN is another one, unless the options name it.
    ///
    /// # Errors
    /// [`Error::Command`], or [`Error::Timeout`] while the card does not answer: nothing can be posted then, and the
    /// buffers stay in flight. The reset can be tried again.
    pub fn reset(&mut self) -> Result<Vec<Buffer>, Error> {
        self.sends.work.reset()?;
        self.target.reset()?;
        self.init()?;
        Ok(self.sends.discarded())
    }

    /// RST to INIT, with a PSN of a connection of its own.
    fn init(&mut self) -> Result<(), Error> {
        let init = InitAttributes { remote_access: self.options.remote_access, ..InitAttributes::default() };
        self.sends.work.qp.init(&init)?;
        self.target.init(&init)?;
        self.psn = setup::first_psn(&self.sends.work.qp, &self.options);
        Ok(())
    }
}

addressed_calls!(XrcConnection, ExtendedMessages, RemoteSrq);
