//! A raw Ethernet queue as smoltcp's network device.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use mlx5_dv::objects::{AccessFlags, Buffer, MemoryRegion, Pd};
use mlx5_dv::queue::ethernet::{EthernetOptions, EthernetQueue, FrameFlags};
use mlx5_dv::queue::{Done, Side};
use mlx5_dv::{Device, Error, Mac};
use smoltcp::phy::{self, DeviceCapabilities, Medium};
use smoltcp::time::Instant;

/// Buffers for receiving and for sending.
const RECEIVES: usize = 32;
const SENDS: usize = 8;

/// A raw Ethernet queue, its buffers, and received frames that smoltcp has not read yet.
#[derive(Debug)]
pub struct Phy {
    queue: EthernetQueue,
    free: Vec<Buffer>,
    received: VecDeque<Vec<u8>>,
    max_frame: usize,
}

impl Phy {
    /// Receives frames to `device`'s own address, to broadcast and to `groups`.
    pub fn new(device: &Arc<Device>, groups: &[Mac]) -> Result<Self, Error> {
        let pd = Pd::alloc(device)?;
        let mut options = EthernetOptions::default();
        (options.send_depth, options.recv_depth, options.events) = (SENDS as u32, RECEIVES as u32, true);
        let mut queue = EthernetQueue::new(&pd, options)?;
        let max_frame = queue.sq().longest_frame();
        // A buffer takes the longest frame of the port: a longer one would be an error that stops the queue.
        let len = max_frame.next_multiple_of(64);
        let region = MemoryRegion::allocate(&pd, (RECEIVES + SENDS) * len, AccessFlags::LOCAL_WRITE)?;
        let mut free = region.buffers(len)?;
        free.truncate(RECEIVES + SENDS);
        post(&mut queue, &mut free);
        queue.listen(groups)?;
        Ok(Phy { queue, free, received: VecDeque::new(), max_frame })
    }

    /// Waits up to `patience` for frames. smoltcp reads them next.
    pub fn receive_frames(&mut self, patience: Duration) -> Result<impl Iterator<Item = &[u8]>, Error> {
        match self.queue.wait(patience) {
            Ok(done) => self.process(done)?,
            Err(Error::Timeout { .. }) => {}
            Err(error) => return Err(error),
        }
        while self.received.len() < RECEIVES
            && let Some(done) = self.queue.poll()?
        {
            self.process(done)?;
        }
        Ok(self.received.iter().map(Vec::as_slice))
    }

    fn process(&mut self, done: Done) -> Result<(), Error> {
        match (done.result, done.buffer) {
            (Err(error), buffer) => {
                tracing::warn!(%error, "the raw Ethernet queue failed and is reset");
                self.free.extend(buffer);
                self.free.extend(self.queue.reset()?);
                post(&mut self.queue, &mut self.free);
            }
            (Ok(completion), Some(buffer)) if completion.work.side == Side::Receive => {
                let mut frame = vec![0; buffer.capacity().min(completion.byte_len as usize)];
                buffer.read(0, &mut frame);
                self.received.push_back(frame);
                self.free.extend(self.queue.receive(buffer).err().and_then(|refused| refused.buffer));
            }
            (Ok(_), buffer) => self.free.extend(buffer),
        }
        Ok(())
    }

    /// Sends `frame`, or drops it if no buffer is free.
    pub fn send(&mut self, frame: &[u8]) {
        let Some(mut buffer) = self.free.pop() else {
            tracing::debug!("frame dropped: no free buffer");
            return;
        };
        let len = frame.len().min(buffer.capacity());
        buffer.write(0, &frame[..len]);
        buffer.set_len(len);
        if let Err(refused) = self.queue.send(buffer, FrameFlags::empty()) {
            tracing::debug!(%refused, "frame dropped");
            self.free.extend(refused.buffer);
        }
    }
}

/// Posts receives; what is left of `free` is for sending.
fn post(queue: &mut EthernetQueue, free: &mut Vec<Buffer>) {
    while queue.in_flight().1 < RECEIVES
        && let Some(mut buffer) = free.pop()
    {
        buffer.set_len(buffer.capacity());
        if let Err(refused) = queue.receive(buffer) {
            free.extend(refused.buffer);
            break;
        }
    }
}

/// A received frame.
pub struct RxFrame(Vec<u8>);

/// smoltcp's permission to send one frame.
pub struct TxSlot<'a>(&'a mut Phy);

impl phy::Device for Phy {
    type RxToken<'a> = RxFrame;
    type TxToken<'a> = TxSlot<'a>;

    fn receive(&mut self, _: Instant) -> Option<(RxFrame, TxSlot<'_>)> {
        let frame = self.received.pop_front()?;
        Some((RxFrame(frame), TxSlot(self)))
    }

    fn transmit(&mut self, _: Instant) -> Option<TxSlot<'_>> {
        (!self.free.is_empty()).then_some(TxSlot(self))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = self.max_frame;
        capabilities
    }
}

impl phy::RxToken for RxFrame {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl phy::TxToken for TxSlot<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut frame = vec![0; len];
        let result = f(&mut frame);
        self.0.send(&frame);
        result
    }
}
