//! Queues of objects: send queues and receive queues.

use std::sync::Arc;

use mlx5_prm::values::ServiceType;

use super::receive::ReceiveQueue;
use super::receive::ethernet::EthernetReceiveQueue;
use super::receive::shared::SharedReceiveQueue;
use super::receive::striding::StridingReceiveQueue;
use super::send::datagram::{DatagramSendQueue, Datagrams};
use super::send::dynamic::{DcSendQueue, DynamicMessages};
use super::send::ethernet::EthernetSendQueue;
use super::send::extended::{ExtendedMessages, XrcSendQueue};
use super::send::service::Connected;
use super::send::{SendQueue, UnreliableSendQueue};
use crate::error::{Error, Invalid};
use crate::objects::{DATAGRAMS, DoorbellMode, QueuePair, Rq, SendLimits, Sq, Srq, log_most};

impl QueuePair {
    /// The send queue, with doorbell mode `D`. There is only one; after dropping it, [`reset`](Self::reset) the queue
    /// pair to get another.
    ///
    /// # Errors
    /// [`Error::State`] before RTS; [`Error::Invalid`] if the queue is in use or does not exist, or `D` is not
    /// available.
    pub fn send_queue<D: DoorbellMode>(self: &Arc<Self>) -> Result<SendQueue<D>, Error> {
        self.connected_send_queue("send_queue", "unreliable_send_queue or datagram_send_queue")
    }

    /// As [`send_queue`](Self::send_queue), for an unreliable connection.
    ///
    /// # Errors
    /// As for [`send_queue`](Self::send_queue).
    pub fn unreliable_send_queue<D: DoorbellMode>(self: &Arc<Self>) -> Result<UnreliableSendQueue<D>, Error> {
        self.connected_send_queue("unreliable_send_queue", "send_queue or datagram_send_queue")
    }

    /// The send queue of a connection. `call` is the public call for its service; `instead` names those for other
    /// services.
    pub(super) fn connected_send_queue<D: DoorbellMode, S: Connected>(
        self: &Arc<Self>,
        call: &'static str,
        instead: &'static str,
    ) -> Result<SendQueue<D, S>, Error> {
        self.must_be(const { &[S::SERVICE] }, call, instead)?;
        let limits = SendLimits {
            sges: self.options().send_sges,
            inline_bytes: self.options().inline_bytes,
            log_max_msg: self.device().caps().log_max_msg.min(30),
        };
        let (permit, doorbell) = self.lease_send_ring(call, limits)?;
        Ok(SendQueue::new(S::new(self.device().caps()), permit, doorbell, Arc::clone(self)))
    }

    /// The send queue of an XRC initiator, ringing by `D`. There is one; dropped, it can be had again after a
    /// [`reset`](Self::reset).
    ///
    /// # Errors
    /// [`Error::State`] before RTS; [`Error::Invalid`] for a queue pair of another service, for a target, where it is
    /// out already, or `D` cannot be had.
    pub fn xrc_send_queue<D: DoorbellMode>(self: &Arc<Self>) -> Result<XrcSendQueue<D>, Error> {
        let instead = "send_queue, unreliable_send_queue or datagram_send_queue";
        self.must_be(&[ServiceType::Xrc], "xrc_send_queue", instead)?;
        let limits = SendLimits {
            sges: self.options().send_sges,
            inline_bytes: self.options().inline_bytes,
            log_max_msg: self.device().caps().log_max_msg.min(30),
        };
        let (permit, doorbell) = self.lease_send_ring("xrc_send_queue", limits)?;
        let service = ExtendedMessages::new(self.device().caps());
        Ok(SendQueue::new(service, permit, doorbell, Arc::clone(self)))
    }

    /// The send queue of a dynamically connected initiator, with doorbell mode `D`. There is only one; after dropping
    /// it, [`reset`](Self::reset) the queue pair to get another.
    ///
    /// # Errors
    /// [`Error::State`] before RTS; [`Error::Invalid`] for a queue pair of another service, if the queue is in use or
    /// does not exist, or if `D` is not available.
    pub fn dc_send_queue<D: DoorbellMode>(self: &Arc<Self>) -> Result<DcSendQueue<D>, Error> {
        self.must_be(&[ServiceType::Dci], "dc_send_queue", "send_queue, unreliable_send_queue or datagram_send_queue")?;
        let caps = self.device().caps();
        let limits = SendLimits {
            sges: self.options().send_sges,
            inline_bytes: self.options().inline_bytes,
            log_max_msg: caps.log_max_msg.min(30),
        };
        let (permit, doorbell) = self.lease_send_ring("dc_send_queue", limits)?;
        let service = DynamicMessages::new(caps);
        Ok(SendQueue::new(service, permit, doorbell, Arc::clone(self)))
    }

    /// The send queue for datagrams, with doorbell mode `D`. There is only one; after dropping it,
    /// [`reset`](Self::reset) the queue pair to get another. The longest datagram depends on the port's current MTU.
    ///
    /// # Errors
    /// [`Error::State`] before RTS; [`Error::Invalid`] for a queue pair of a connection, if the queue is in use or does
    /// not exist, or if `D` is not available.
    pub fn datagram_send_queue<D: DoorbellMode>(self: &Arc<Self>) -> Result<DatagramSendQueue<D>, Error> {
        self.must_be(DATAGRAMS, "datagram_send_queue", "send_queue or unreliable_send_queue")?;
        let log_most = log_most(self.options().service, &self.device().port()?)?;
        let limits = SendLimits {
            sges: self.options().send_sges,
            inline_bytes: self.options().inline_bytes.min(1 << log_most),
            log_max_msg: log_most,
        };
        let (permit, doorbell) = self.lease_send_ring("datagram_send_queue", limits)?;
        Ok(DatagramSendQueue::new(Datagrams, permit, doorbell, Arc::clone(self)))
    }

    /// The receive queue. There is only one; after dropping it, [`reset`](Self::reset) the queue pair to get another.
    ///
    /// # Errors
    /// [`Error::State`] before INIT; [`Error::Invalid`] if the queue is in use or does not exist.
    pub fn receive_queue(self: &Arc<Self>) -> Result<ReceiveQueue, Error> {
        let permit = self.lease_receive_ring("receive_queue")?;
        Ok(ReceiveQueue::new(permit, Arc::clone(self)))
    }
}

impl Srq {
    /// The queue. It can be taken only once.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the queue was taken before: which WQEs are free is then no longer known.
    pub fn receive_queue(self: &Arc<Self>) -> Result<SharedReceiveQueue, Error> {
        Ok(SharedReceiveQueue::new(self.lease_receive_ring()?, Arc::clone(self)))
    }
}

impl Sq {
    /// The queue, with doorbell mode `D`. There is only one; after dropping it, [`reset`](Self::reset) to get another.
    ///
    /// # Errors
    /// [`Error::Invalid`] before RDY, if the queue is in use, or if `D` is not available.
    pub fn send_queue<D: DoorbellMode>(self: &Arc<Self>) -> Result<EthernetSendQueue<D>, Error> {
        let (permit, doorbell) = self.lease_send_ring("send_queue")?;
        Ok(EthernetSendQueue::of_frames(permit, doorbell, Arc::clone(self)))
    }
}

impl Rq {
    /// The queue. There is only one; after dropping it, [`reset`](Self::reset) to get another.
    ///
    /// # Errors
    /// [`Error::Invalid`] in ERR, or if the queue is in use.
    pub fn receive_queue(self: &Arc<Self>) -> Result<EthernetReceiveQueue, Error> {
        if self.strides().is_some() {
            let (what, requires) = ("receive_queue of a striding RQ".into(), "striding_receive_queue");
            return Err(Invalid::Requires { what, requires }.into());
        }
        let permit = self.lease_receive_ring("receive_queue")?;
        Ok(EthernetReceiveQueue::of_frames(permit, Arc::clone(self)))
    }

    /// As [`receive_queue`](Self::receive_queue), of a striding queue:
    /// [`RqOptions::strides`](crate::objects::RqOptions::strides).
    ///
    /// # Errors
    /// As for [`receive_queue`](Self::receive_queue); [`Error::Invalid`] for a queue without strides.
    pub fn striding_receive_queue(self: &Arc<Self>) -> Result<StridingReceiveQueue, Error> {
        let Some(strides) = self.strides() else {
            let (what, requires) = ("striding_receive_queue".into(), "RqOptions::strides");
            return Err(Invalid::Requires { what, requires }.into());
        };
        let permit = self.lease_receive_ring("striding_receive_queue")?;
        Ok(StridingReceiveQueue::new(permit, strides, Arc::clone(self)))
    }
}
