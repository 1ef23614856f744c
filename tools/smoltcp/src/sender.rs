//! Sending: an Ethernet queue, and its free buffers.

use mlx5_dv::Error;
use mlx5_dv::objects::Buffer;
use mlx5_dv::queue::ethernet::{EthernetQueue, FrameCompletion, FrameFlags};
use mlx5_dv::queue::{Done, Side};

use super::offload::checksums;

/// The queue that sends, and receives if no other does.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) queue: EthernetQueue,
    free: Vec<Buffer>,
    /// Receives to keep posted.
    receives: usize,
    /// Whether the card computes checksums.
    pub(super) offloads: bool,
    pub(super) dropped: u64,
    /// Takes what is dropped.
    scratch: Vec<u8>,
}

impl Sender {
    /// Sends from `sends`, and posts `receives`.
    pub(super) fn new(queue: EthernetQueue, receives: Vec<Buffer>, sends: Vec<Buffer>) -> Self {
        let scratch = vec![0; queue.sq().longest_frame()];
        let (count, offloads) = (receives.len(), queue.sq().has_checksums());
        let mut free = Vec::with_capacity(count + sends.len());
        free.extend(receives);
        let mut sender = Sender { queue, free, receives: count, offloads, dropped: 0, scratch };
        sender.post();
        sender.free.extend(sends);
        sender
    }

    /// Posts receives up to their number.
    fn post(&mut self) {
        while self.queue.in_flight().1 < self.receives
            && let Some(buffer) = self.free.pop()
        {
            if !self.receive(buffer) {
                break;
            }
        }
    }

    /// Posts one receive. Returns false if the queue does not take it; then the buffer is free.
    pub(super) fn receive(&mut self, mut buffer: Buffer) -> bool {
        buffer.set_len(buffer.capacity());
        match self.queue.receive(buffer) {
            Ok(_) => true,
            Err(refused) => {
                self.free.extend(refused.buffer);
                false
            }
        }
    }

    /// The next frame that was received. Takes back the buffers of frames that were sent.
    pub(super) fn poll(&mut self) -> Result<Option<Done<FrameCompletion>>, Error> {
        while let Some(done) = self.queue.poll()? {
            if let Some(done) = self.take(done)? {
                return Ok(Some(done));
            }
        }
        Ok(None)
    }

    /// `done`, if it is a received frame. After a failure the queue is restarted.
    pub(super) fn take(&mut self, done: Done<FrameCompletion>) -> Result<Option<Done<FrameCompletion>>, Error> {
        match &done.result {
            Ok(completion) if completion.work.side == Side::Receive => return Ok(Some(done)),
            Ok(_) => self.free.extend(done.buffer),
            Err(error) => {
                tracing::warn!(%error, "the raw Ethernet queue failed and is reset");
                self.free.extend(done.buffer);
                self.free.extend(self.queue.reset()?);
                self.post();
            }
        }
        Ok(None)
    }

    pub(super) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Sends a frame of `len` bytes that `fill` writes, or drops it if no buffer is free.
    pub(super) fn send<R>(&mut self, len: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        let Some(mut buffer) = self.free.pop_if(|buffer| len <= buffer.capacity()) else {
            self.dropped += 1;
            self.scratch.resize(len.max(self.scratch.len()), 0);
            return fill(&mut self.scratch[..len]);
        };
        buffer.set_len(len);
        let result = fill(buffer.as_mut_slice());
        let flags = if self.offloads { checksums(buffer.as_slice()) } else { FrameFlags::empty() };
        if let Err(refused) = self.queue.send(buffer, flags) {
            tracing::debug!(%refused, "frame dropped");
            self.dropped += 1;
            self.free.extend(refused.buffer);
        }
        result
    }
}
