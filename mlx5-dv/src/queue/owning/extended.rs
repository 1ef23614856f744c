//! Extended reliable connections that own the buffers of posted work.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use super::in_flight::{Done, InFlight, Refused, Ticket};
use super::receives::Receives;
use super::sends::{self, Sends};
use super::setup::{self, ConnectionOptions, Peer};
use crate::error::Error;
use crate::memory::RemoteAddress;
use crate::objects::{
    Buffer, CqOptions, DoorbellKind, InitAttributes, Pd, QpOptions, QueuePair, Srq, SrqOptions, Uar, XrcTarget, Xrcd,
};
use crate::queue::completion::CompletionQueue;
use crate::queue::error::RetireError;
use crate::queue::events::{EventSource, event_source};
use crate::queue::receive::shared::SharedReceiveQueue;
use crate::queue::send::extended::{ExtendedMessages, RemoteSrq};
use crate::queue::send::masked::{MaskedAdd, MaskedNumber, MaskedSwap};
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
        let cq = CompletionQueue::create(&uar, cq_options.entries(entries).for_xrc().beside(pd))?;
        let srq = Srq::create_xrc(pd, domain, cq.cq(), options)?;
        let shared = srq.receive_queue()?;
        let receives = Receives { in_flight: InFlight::new(0, shared.capacity() as u32), srq };
        Ok(XrcReceiver { shared, receives, cq })
    }

    /// The number that messages of remotes name, 24 bits.
    pub fn srqn(&self) -> u32 {
        self.receives.srq.srqn()
    }

    /// As [`Srq::arm_limit`].
    ///
    /// # Errors
    /// As there.
    pub fn arm_limit(&self, limit: u16) -> Result<(), Error> {
        self.receives.srq.arm_limit(limit)
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

event_source!(XrcReceiver; cq);

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
    sends: Sends<ExtendedMessages>,
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
        let cq = sends::completion_queue(pd, &uar, &options)?;
        let init = InitAttributes { remote_access: options.remote_access, ..InitAttributes::default() };
        let mut qp_options = QpOptions::default().wqes(options.send_depth, 0).inline_bytes(options.inline_bytes);
        (qp_options.real_time, qp_options.counter) = (options.real_time, options.counter.clone());
        let initiator = QueuePair::create(pd, &uar, cq.cq(), cq.cq(), qp_options.xrc_initiator(domain))?;
        initiator.init(&init)?;
        let target = XrcTarget::create(pd, &uar, cq.cq(), domain)?;
        target.init(&init)?;
        let psn = setup::first_psn(&initiator, &options);
        let sends = Sends::new(initiator, cq, options.send_depth, "an XRC connection");
        Ok(XrcConnection { sends, target, options, psn })
    }

    /// How its sends ring the doorbell; `None` before it is connected.
    pub fn doorbell_kind(&self) -> Option<DoorbellKind> {
        self.sends.doorbell_kind()
    }

    /// What to tell the remote. Errors: [`Error::Invalid`] if no GID has the index `gid_index`.
    pub fn local(&self) -> Result<XrcPeer, Error> {
        let initiator = setup::local(&self.sends.qp, &self.options, self.psn)?;
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
        setup::to_rts(&self.sends.qp, &self.options, self.psn, &target)?;
        self.sends.queue = Some(self.sends.qp.xrc_send_queue()?);
        Ok(())
    }

    /// SEND of `buffer` to the remote's `srq`. Errors: [`Refused`], with the buffer.
    pub fn send(&mut self, srq: RemoteSrq, buffer: Buffer) -> Result<Ticket, Refused> {
        self.sends.post(Some(buffer), |batch, id, elements| {
            // SAFETY: `Sends::post` keeps the buffer until its completion, or until the queue pair is destroyed.
            unsafe { batch.send(id, WrFlags::SIGNALLED, srq, elements) }
        })
    }

    /// SEND of `data`, which is copied at once. Errors: [`Refused`].
    pub fn send_inline(&mut self, srq: RemoteSrq, data: &[u8]) -> Result<Ticket, Refused> {
        self.sends.post(None, |batch, id, _| batch.send_inline(id, WrFlags::SIGNALLED, srq, data))
    }

    /// As [`send`](Self::send), with immediate data.
    pub fn send_imm(&mut self, srq: RemoteSrq, buffer: Buffer, imm: u32) -> Result<Ticket, Refused> {
        self.sends.post(Some(buffer), |batch, id, elements| {
            // SAFETY: as in `send`.
            unsafe { batch.send_imm(id, WrFlags::SIGNALLED, srq, imm, elements) }
        })
    }

    /// As [`send`](Self::send); it invalidates the remote's key `rkey`.
    pub fn send_invalidate(&mut self, srq: RemoteSrq, buffer: Buffer, rkey: u32) -> Result<Ticket, Refused> {
        self.sends.post(Some(buffer), |batch, id, elements| {
            // SAFETY: as in `send`.
            unsafe { batch.send_invalidate(id, WrFlags::SIGNALLED, srq, rkey, elements) }
        })
    }

    /// RDMA WRITE of `buffer` to `remote`, whose key belongs to the protection domain of `srq`. Errors: [`Refused`],
    /// with the buffer.
    pub fn write(&mut self, srq: RemoteSrq, buffer: Buffer, remote: RemoteAddress) -> Result<Ticket, Refused> {
        self.sends.post(Some(buffer), |batch, id, elements| {
            // SAFETY: as in `send`.
            unsafe { batch.write(id, WrFlags::SIGNALLED, srq, remote, elements) }
        })
    }

    /// As [`write`](Self::write), with immediate data that completes a receive of `srq`.
    pub fn write_imm(
        &mut self,
        srq: RemoteSrq,
        buffer: Buffer,
        remote: RemoteAddress,
        imm: u32,
    ) -> Result<Ticket, Refused> {
        self.sends.post(Some(buffer), |batch, id, elements| {
            // SAFETY: as in `send`.
            unsafe { batch.write_imm(id, WrFlags::SIGNALLED, srq, remote, imm, elements) }
        })
    }

    /// RDMA WRITE of `data`, which is copied at once, to `remote`. Errors: [`Refused`].
    pub fn write_inline(&mut self, srq: RemoteSrq, data: &[u8], remote: RemoteAddress) -> Result<Ticket, Refused> {
        self.sends.post(None, |batch, id, _| batch.write_inline(id, WrFlags::SIGNALLED, srq, remote, data))
    }

    /// RDMA READ from `remote` into `buffer`. Errors: [`Refused`], with the buffer.
    pub fn read(&mut self, srq: RemoteSrq, buffer: Buffer, remote: RemoteAddress) -> Result<Ticket, Refused> {
        self.sends.post(Some(buffer), |batch, id, elements| {
            // SAFETY: as in `send`.
            unsafe { batch.read(id, WrFlags::SIGNALLED, srq, remote, elements) }
        })
    }

    /// ATOMIC fetch and add to the number at `remote`. The old value is written to `buffer`, of eight bytes. Errors:
    /// [`Refused`], with the buffer.
    pub fn fetch_add(
        &mut self,
        srq: RemoteSrq,
        buffer: Buffer,
        remote: RemoteAddress,
        add: u64,
    ) -> Result<Ticket, Refused> {
        let segment = buffer.segment();
        self.sends.post(Some(buffer), |batch, id, _| {
            // SAFETY: as in `send`.
            unsafe { batch.fetch_add(id, WrFlags::SIGNALLED, srq, remote, add, segment) }
        })
    }

    /// ATOMIC compare and swap, as [`fetch_add`](Self::fetch_add). The operands are a pair `[compare, swap]`: the
    /// number becomes `swap` if it is `compare`.
    pub fn compare_swap(
        &mut self,
        srq: RemoteSrq,
        buffer: Buffer,
        remote: RemoteAddress,
        operands: [u64; 2],
    ) -> Result<Ticket, Refused> {
        let segment = buffer.segment();
        self.sends.post(Some(buffer), |batch, id, _| {
            // SAFETY: as in `send`.
            unsafe { batch.compare_swap(id, WrFlags::SIGNALLED, srq, remote, operands, segment) }
        })
    }

    /// Masked ATOMIC compare and swap; otherwise as on a
    /// [`Connection`](crate::queue::Connection::masked_compare_swap).
    pub fn masked_compare_swap<N: MaskedNumber>(
        &mut self,
        srq: RemoteSrq,
        buffer: Buffer,
        remote: RemoteAddress,
        swap: MaskedSwap<N>,
    ) -> Result<Ticket, Refused> {
        let segment = buffer.segment();
        self.sends.post(Some(buffer), |batch, id, _| {
            // SAFETY: as in `send`.
            unsafe { batch.masked_compare_swap(id, WrFlags::SIGNALLED, srq, remote, swap, segment) }
        })
    }

    /// Masked ATOMIC fetch and add; otherwise as [`masked_compare_swap`](Self::masked_compare_swap).
    pub fn masked_fetch_add<N: MaskedNumber>(
        &mut self,
        srq: RemoteSrq,
        buffer: Buffer,
        remote: RemoteAddress,
        add: MaskedAdd<N>,
    ) -> Result<Ticket, Refused> {
        let segment = buffer.segment();
        self.sends.post(Some(buffer), |batch, id, _| {
            // SAFETY: as in `send`.
            unsafe { batch.masked_fetch_add(id, WrFlags::SIGNALLED, srq, remote, add, segment) }
        })
    }

    /// Returns the next completed work request; `None` if there is none.
    ///
    /// # Errors
    /// As for [`XrcReceiver::poll`].
    pub fn poll(&mut self) -> Result<Option<Done>, RetireError> {
        self.sends.poll()
    }

    /// Waits until [`poll`](Self::poll) may have a completion. Errors: as for [`XrcReceiver::wait`].
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

event_source!(XrcConnection; sends.cq);
