//! Frames that leave at a time. PRM "Wait on Data Segment".

use mlx5_prm::wqe::{SEGMENT, WaitCondition, WaitOpmod, WaitSeg, WqeOpcode};
use uar::SendDoorbell;

use super::SendBatch;
use super::ethernet::Frames;
use super::ring::Room;
use super::wqe::{Head, Request, WrFlags};
use crate::queue::error::PostError;
use crate::timestamp::Timestamp;

/// A time to wait for, of a clock that wraps after `mask`: 0 if the card waits for none.
struct Until {
    time: Timestamp,
    mask: u64,
}

impl Head for Until {
    const OPMOD: u8 = WaitOpmod::Time.number() as u8;

    #[inline(always)]
    fn segments(&self) -> usize {
        size_of::<WaitSeg>() / SEGMENT
    }

    #[inline(always)]
    fn check(&self, _: u64) -> Result<(), PostError> {
        if self.mask == 0 { Err(PostError::NoWaitOnTime) } else { Ok(()) }
    }

    #[inline(always)]
    fn store(&self, room: &mut Room<'_>, at: usize) {
        let mut segment = WaitSeg::ZERO;
        // The time is less than the clock's.
        segment.w().operation(WaitCondition::CyclicSmaller.number() as u8).value(self.time.0).mask(self.mask);
        let [first, second]: [[u64; 2]; 2] = zerocopy::transmute!(segment);
        room.store(at, first);
        room.store(at + 1, second);
    }
}

impl<D: SendDoorbell> SendBatch<'_, D, Frames> {
    /// Frames posted after this leave no earlier than `time`, in the clock of the queue's completions: in ticks
    /// ([`Device::timestamp`](crate::Device::timestamp)), or for a queue with
    /// [`real_time`](crate::objects::SqOptions::real_time) in real time ([`Timestamp::from`] a
    /// [`RealTime`](crate::RealTime)). Frames before it, and other queues, do not wait.
    ///
    /// The card compares times modulo at least eight seconds: one that is four seconds ahead, or more, may have passed
    /// for it. One that has passed holds nothing back. The queue keeps its order: a frame for an earlier time that is
    /// posted later leaves later.
    ///
    /// It takes a WQEBB and has no completion, but of its failure; it is retired with the next frame that has one.
    ///
    /// # Errors
    /// [`PostError::NoWaitOnTime`] on a card that waits for no time (`wait_on_time`); [`PostError::Full`].
    #[inline]
    pub fn wait_until(&mut self, wr_id: u64, time: Timestamp) -> Result<(), PostError> {
        let request = Request { opcode: WqeOpcode::Wait, wr_id, flags: WrFlags::empty(), imm: 0 };
        let mask = self.service.limits().wait_mask;
        self.post_elements(request, Until { time, mask }, &[])
    }
}
