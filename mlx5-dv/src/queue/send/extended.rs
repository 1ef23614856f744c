//! Send queues of extended reliable connections.

use mlx5_prm::wqe::XrcSeg;

use super::SendQueue;
use super::addressed::{AddressedMessages, Receiver};
use super::ring::Room;
use super::service::sealed::Sealed;
use super::wqe::Head;
use crate::objects::AnyDoorbell;

/// A shared receive queue of the remote's XRC domain, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RemoteSrq(u32);

impl RemoteSrq {
    /// The shared receive queue with the number `srqn` at the remote; `None` for more than 24 bits.
    pub fn new(srqn: u32) -> Option<Self> {
        (srqn >> 24 == 0).then_some(RemoteSrq(srqn))
    }
}

/// `[ xrc_srqn ]`.
impl Head for RemoteSrq {
    #[inline(always)]
    fn segments(&self) -> usize {
        1
    }

    #[inline(always)]
    fn store(&self, room: &mut Room<'_>, at: usize) {
        let mut segment = XrcSeg::ZERO;
        segment.w().xrc_srqn(self.0);
        room.store(at, zerocopy::transmute!(segment));
    }
}

impl Sealed for RemoteSrq {}

impl Receiver for RemoteSrq {
    type Given<'a> = RemoteSrq;
    const APART: bool = false;
}

/// An extended reliable connection: as [`Messages`](super::service::Messages), but each work request names a shared
/// receive queue of the remote.
pub type ExtendedMessages = AddressedMessages<RemoteSrq>;

/// The send queue of an XRC initiator in RTS. Used by one thread: not `Sync`, and all methods take `&mut self`. `D` is
/// the doorbell mode. Work requests are posted in batches, as on a [`SendQueue`](super::SendQueue).
pub type XrcSendQueue<D = AnyDoorbell> = SendQueue<D, ExtendedMessages>;
