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
    /// Receives to keep posted, and the bytes of each: more than a send has, where the card joins segments.
    receives: usize,
    receive_bytes: usize,
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
        let receive_bytes = receives.first().map_or(0, Buffer::capacity);
        let mut free = Vec::with_capacity(count + sends.len());
        free.extend(receives);
        let mut sender = Sender { queue, free, receives: count, receive_bytes, offloads, dropped: 0, scratch };
        sender.post();
        sender.free.extend(sends);
        sender
    }

    /// Posts receives up to their number.
    fn post(&mut self) {
        while self.queue.in_flight().1 < self.receives
            && let Some(at) = self.free.iter().position(|buffer| buffer.capacity() >= self.receive_bytes)
        {
            let buffer = self.free.swap_remove(at);
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

#[cfg(test)]
mod tests {
    use mlx5_dv::objects::{AccessFlags, MemoryRegion, Pd};
    use mlx5_dv::queue::ethernet::EthernetOptions;
    use mlx5_open::Sim;

    use super::*;

    /// A frame of joined segments that met a short one would stop the queue.
    #[test]
    fn a_buffer_that_is_too_short_for_what_is_received_is_never_posted() {
        const LONG: usize = 8192;
        let sim = Sim::builder().build().unwrap();
        let pd = Pd::alloc(&sim.open(0).unwrap()).unwrap();
        let queue = EthernetQueue::new(&pd, EthernetOptions::default().send_depth(4).recv_depth(4)).unwrap();
        let buffers =
            |bytes| MemoryRegion::allocate(&pd, 2 * bytes, AccessFlags::LOCAL_WRITE).unwrap().buffers(bytes).unwrap();
        let mut sender = Sender::new(queue, buffers(LONG), buffers(2048));
        assert_eq!(sender.queue.in_flight().1, 2);
        // A program still reads what was received into one of them.
        let mut returned = sender.queue.reset().unwrap();
        let read = returned.pop().unwrap();
        sender.free.extend(returned);
        sender.post();
        assert_eq!((sender.queue.in_flight().1, sender.free.len()), (1, 2));
        assert!(sender.receive(read));
        assert_eq!(sender.queue.in_flight().1, 2);
    }
}
