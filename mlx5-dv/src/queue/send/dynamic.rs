//! Send queues of dynamically connected initiators.

use super::SendQueue;
use super::addressed::{AddressedMessages, Receiver};
use super::ring::Room;
use super::service::sealed::Sealed;
use super::wqe::Head;
use crate::objects::{AnyDoorbell, DcTarget};

impl Sealed for DcTarget {}

impl Receiver for DcTarget {
    type Given<'a> = &'a DcTarget;
    const APART: bool = true;
}

/// Reliable messages, each with a target of its own. Messages to one target, one after the other, flow as on a
/// connection; before the first to another, the card waits until all earlier ones are acknowledged. With
/// [streams](crate::objects::DciStreams) it waits for those of the same stream alone.
pub type DynamicMessages = AddressedMessages<DcTarget>;

/// The target's address, and its stream in the control segment.
impl Head for &DcTarget {
    #[inline(always)]
    fn segments(&self) -> usize {
        self.vector().segments()
    }

    #[inline(always)]
    fn control(&self) -> u64 {
        self.stream_in_control()
    }

    #[inline(always)]
    fn store(&self, room: &mut Room<'_>, at: usize) {
        self.vector().store(room, at);
    }
}

/// The send queue of a dynamically connected initiator in RTS. Used by one thread: not `Sync`, and all methods take
/// `&mut self`. `D` is the doorbell mode. Work requests are posted in batches, as on a
/// [`SendQueue`](super::SendQueue).
pub type DcSendQueue<D = AnyDoorbell> = SendQueue<D, DynamicMessages>;
