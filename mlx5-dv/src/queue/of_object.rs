//! What turns an object into its queue.

use std::sync::Arc;

use mlx5_prm::values::ServiceType;

use super::receive::ReceiveQueue;
use super::receive::ethernet::EthernetReceiveQueue;
use super::send::SendQueue;
use super::send::datagram::{DatagramSendQueue, Datagrams};
use super::send::ethernet::EthernetSendQueue;
use super::send::service::Messages;
use crate::error::Error;
use crate::objects::{DoorbellMode, QueuePair, Rq, SendLimits, Sq, log_most};

impl QueuePair {
    /// The send queue, ringing by `D`. There is one; dropped, it can be had again after a [`reset`](Self::reset).
    ///
    /// # Errors
    /// [`Error::State`] before RTS; [`Error::Invalid`] where it is out already, there is none, or `D` cannot be had.
    pub fn send_queue<D: DoorbellMode>(self: &Arc<Self>) -> Result<SendQueue<D>, Error> {
        self.must_be(ServiceType::Rc, "send_queue", "datagram_send_queue")?;
        let limits = SendLimits {
            sges: self.options().send_sges,
            inline_bytes: self.options().inline_bytes,
            log_max_msg: self.device().caps().log_max_msg.min(30),
        };
        let (permit, doorbell) = self.lease_send_ring("send_queue", limits)?;
        Ok(SendQueue::new(Messages::new(self.device().caps()), permit, doorbell, Arc::clone(self)))
    }

    /// The send queue of datagrams, ringing by `D`. There is one; dropped, it can be had again after a
    /// [`reset`](Self::reset). A datagram is at most what the port's MTU, as it is now, has room for.
    ///
    /// # Errors
    /// [`Error::State`] before RTS; [`Error::Invalid`] for a queue pair of a connection, where it is out already, there
    /// is none, or `D` cannot be had.
    pub fn datagram_send_queue<D: DoorbellMode>(self: &Arc<Self>) -> Result<DatagramSendQueue<D>, Error> {
        self.must_be(ServiceType::Ud, "datagram_send_queue", "send_queue")?;
        let log_most = log_most(self.device().port()?.mtu)?;
        let limits = SendLimits {
            sges: self.options().send_sges,
            inline_bytes: self.options().inline_bytes.min(1 << log_most),
            log_max_msg: log_most,
        };
        let (permit, doorbell) = self.lease_send_ring("datagram_send_queue", limits)?;
        Ok(DatagramSendQueue::new(Datagrams, permit, doorbell, Arc::clone(self)))
    }

    /// The receive queue. There is one; dropped, it can be had again after a [`reset`](Self::reset).
    ///
    /// # Errors
    /// [`Error::State`] before INIT; [`Error::Invalid`] where it is out already, or there is none.
    pub fn receive_queue(self: &Arc<Self>) -> Result<ReceiveQueue, Error> {
        let permit = self.lease_receive_ring("receive_queue")?;
        Ok(ReceiveQueue::new(permit, Arc::clone(self)))
    }
}

impl Sq {
    /// The queue, ringing by `D`. There is one; dropped, it can be had again after a [`reset`](Self::reset).
    ///
    /// # Errors
    /// [`Error::Invalid`] before RDY, where it is out already, or `D` cannot be had.
    pub fn send_queue<D: DoorbellMode>(self: &Arc<Self>) -> Result<EthernetSendQueue<D>, Error> {
        let (permit, doorbell) = self.lease_send_ring("send_queue")?;
        Ok(EthernetSendQueue::of_frames(permit, doorbell, Arc::clone(self)))
    }
}

impl Rq {
    /// The queue. There is one; dropped, it can be had again after a [`reset`](Self::reset).
    ///
    /// # Errors
    /// [`Error::Invalid`] in ERR, or where it is out already.
    pub fn receive_queue(self: &Arc<Self>) -> Result<EthernetReceiveQueue, Error> {
        let permit = self.lease_receive_ring("receive_queue")?;
        Ok(EthernetReceiveQueue::of_frames(permit, Arc::clone(self)))
    }
}
