//! The network device.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mlx5_dv::objects::{Buffer, ExclusiveRegion, LroOptions, Pd};
use mlx5_dv::queue::ethernet::{EthernetOptions, EthernetQueue, Receives, StridingQueue};
use mlx5_dv::{Device, Error, Mac};
use smoltcp::phy::{self, Checksum, DeviceCapabilities, Medium};
use smoltcp::time::Instant;

use super::sender::Sender;
use super::source::{Frame, Packets};

/// Options of a [`Phy`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PhyOptions {
    /// Buffers of frames that are received. Default: 256.
    pub receives: u32,
    /// Buffers of frames that are sent. Default: 64.
    pub sends: u32,
    /// Whether [`Phy::wait`] sleeps instead of polling. Default: yes.
    pub events: bool,
    /// Large receive offload: the card joins TCP segments. Default: none.
    pub lro: Option<LroOptions>,
}

impl Default for PhyOptions {
    fn default() -> Self {
        PhyOptions { receives: 256, sends: 64, events: true, lro: None }
    }
}

/// Raw Ethernet queues as smoltcp's network device.
pub struct Phy {
    sender: Sender,
    /// Receives in place of the sender's queue.
    packets: Option<Box<dyn Packets>>,
    /// Received frames that smoltcp has not read yet.
    received: VecDeque<Frame>,
    /// Buffers that smoltcp has read.
    read: Vec<Buffer>,
    /// An error that could not be mended, until [`wait`](Self::wait) returns it.
    error: Option<Error>,
    most: usize,
    joined: u64,
}

impl fmt::Debug for Phy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Phy")
            .field("sender", &self.sender)
            .field("received", &self.received.len())
            .finish_non_exhaustive()
    }
}

impl Phy {
    /// Makes a queue, and receives frames to `device`'s own address, to broadcast and to `groups`.
    ///
    /// # Errors
    /// Those of [`EthernetQueue::new`] and [`EthernetQueue::listen`].
    pub fn listen(device: &Arc<Device>, groups: &[Mac], options: PhyOptions) -> Result<Self, Error> {
        let mut of_queue = EthernetOptions::default();
        (of_queue.send_depth, of_queue.recv_depth) = (options.sends, options.receives);
        (of_queue.events, of_queue.lro) = (options.events, options.lro);
        let mut phy = Self::new(EthernetQueue::new(&Pd::alloc(device)?, of_queue)?, &options)?;
        phy.sender.queue.listen(groups)?;
        Ok(phy)
    }

    /// Receives frames to `groups` instead of those it was made with by [`listen`](Self::listen).
    ///
    /// # Errors
    /// Those of [`EthernetQueue::listen`].
    pub fn listen_to(&mut self, groups: &[Mac]) -> Result<(), Error> {
        self.sender.queue.listen(groups)
    }

    /// Sends and receives by `queue`, which the caller steers frames to. Of `options` the numbers of buffers count, as
    /// far as the queue takes as many; none may be posted yet.
    ///
    /// # Errors
    /// [`Error::Memory`], [`Error::Command`].
    pub fn new(queue: EthernetQueue, options: &PhyOptions) -> Result<Self, Error> {
        let receives = buffers(&queue, options.receives as usize, queue.longest_received())?;
        Self::over(queue, None, receives, options.sends as usize)
    }

    /// Receives by `packets`, and sends by `queue`. A queue that also sends what it does not receive: make both of one
    /// device.
    ///
    /// # Errors
    /// [`Error::Memory`], [`Error::Command`].
    pub fn striding<C>(packets: StridingQueue<C>, queue: EthernetQueue, sends: u32) -> Result<Self, Error>
    where
        C: Receives + Send + 'static,
    {
        Self::over(queue, Some(Box::new(packets)), Vec::new(), sends as usize)
    }

    fn over(
        queue: EthernetQueue,
        packets: Option<Box<dyn Packets>>,
        receives: Vec<Buffer>,
        sends: usize,
    ) -> Result<Self, Error> {
        // As many frames as are taken in one turn of a striding queue.
        let most = receives.len().max(64);
        let sends = buffers(&queue, sends.max(1), queue.sq().longest_frame())?;
        Ok(Phy {
            sender: Sender::new(queue, receives, sends),
            packets,
            received: VecDeque::with_capacity(most),
            read: Vec::with_capacity(most),
            error: None,
            most,
            joined: 0,
        })
    }

    /// The queue that sends.
    pub fn queue(&self) -> &EthernetQueue {
        &self.sender.queue
    }

    /// Number of frames that smoltcp sent while no buffer was free, or that the queue refused.
    pub fn dropped(&self) -> u64 {
        self.sender.dropped
    }

    /// Number of TCP segments that the card has joined to others ([`PhyOptions::lro`]).
    pub fn joined(&self) -> u64 {
        self.joined
    }

    /// Takes a frame for smoltcp to read.
    fn take(&mut self, frame: Frame) {
        self.joined += frame.segments().saturating_sub(1);
        self.received.push_back(frame);
    }

    /// Waits up to `timeout` for a frame. Returns whether there is one, which smoltcp reads next.
    ///
    /// # Errors
    /// [`Error::Dead`], [`Error::Command`], [`Error::CompletionQueue`], [`Error::InvalidResponse`], also of a poll
    /// before.
    pub fn wait(&mut self, timeout: Duration) -> Result<bool, Error> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        self.poll()?;
        if self.received.is_empty() {
            self.await_one(timeout)?;
            self.poll()?;
        }
        Ok(!self.received.is_empty())
    }

    fn await_one(&mut self, timeout: Duration) -> Result<(), Error> {
        let frame = match &mut self.packets {
            Some(packets) => packets.wait(timeout)?.map(Frame::Packet),
            None => match self.sender.queue.wait(timeout) {
                Ok(done) => self.sender.take(done)?.map(Frame::Buffer),
                Err(Error::Timeout { .. }) => None,
                Err(error) => return Err(error),
            },
        };
        if let Some(frame) = frame {
            self.take(frame);
        }
        Ok(())
    }

    /// The received frames that smoltcp has not read yet.
    pub fn received(&self) -> impl Iterator<Item = &[u8]> {
        self.received.iter().map(Frame::bytes)
    }

    /// Sends `frame`, or drops it if no buffer is free; returns whether it is sent. The card computes its checksums.
    /// [`wait`](Self::wait) takes back the buffers of frames that were sent.
    pub fn send(&mut self, frame: &[u8]) -> bool {
        let dropped = self.sender.dropped;
        self.sender.send(frame.len(), |buffer| buffer.copy_from_slice(frame));
        self.sender.dropped == dropped
    }

    /// Posts what smoltcp has read, and takes what has arrived.
    fn poll(&mut self) -> Result<(), Error> {
        for buffer in self.read.drain(..) {
            self.sender.receive(buffer);
        }
        // Also takes back the buffers of frames that were sent.
        while self.received.len() < self.most
            && let Some(done) = self.sender.poll()?
        {
            self.take(Frame::Buffer(done));
        }
        while self.received.len() < self.most
            && let Some(packets) = &mut self.packets
            && let Some(packet) = packets.next()?
        {
            self.take(Frame::Packet(packet));
        }
        Ok(())
    }

    /// As [`poll`](Self::poll), inside of smoltcp, which takes no errors.
    fn poll_quietly(&mut self) {
        if self.error.is_none() {
            self.error = self.poll().err();
        }
    }
}

/// `count` buffers for frames of up to `longest` bytes: a longer one would be an error that stops the queue.
fn buffers(queue: &EthernetQueue, count: usize, longest: usize) -> Result<Vec<Buffer>, Error> {
    let len = longest.next_multiple_of(64);
    if count == 0 {
        return Ok(Vec::new());
    }
    let mut buffers = ExclusiveRegion::allocate(queue.sq().pd(), count * len)?.buffers(len)?;
    buffers.truncate(count);
    Ok(buffers)
}

/// A received frame.
#[derive(Debug)]
pub struct RxFrame<'a> {
    frame: Option<Frame>,
    read: &'a mut Vec<Buffer>,
}

impl Drop for RxFrame<'_> {
    fn drop(&mut self) {
        if let Some(Frame::Buffer(done)) = self.frame.take() {
            self.read.extend(done.buffer);
        }
    }
}

/// smoltcp's permission to send one frame.
#[derive(Debug)]
pub struct TxSlot<'a>(&'a mut Sender);

impl phy::Device for Phy {
    type RxToken<'a> = RxFrame<'a>;
    type TxToken<'a> = TxSlot<'a>;

    fn receive(&mut self, _: Instant) -> Option<(RxFrame<'_>, TxSlot<'_>)> {
        if self.received.is_empty() {
            self.poll_quietly();
        }
        let frame = self.received.pop_front()?;
        Some((RxFrame { frame: Some(frame), read: &mut self.read }, TxSlot(&mut self.sender)))
    }

    fn transmit(&mut self, _: Instant) -> Option<TxSlot<'_>> {
        if !self.sender.has_room() {
            self.poll_quietly();
        }
        self.sender.has_room().then_some(TxSlot(&mut self.sender))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = self.sender.queue.sq().longest_frame();
        if self.sender.offloads {
            let checksum = &mut capabilities.checksum;
            (checksum.ipv4, checksum.tcp, checksum.udp) = (Checksum::Rx, Checksum::Rx, Checksum::Rx);
        }
        capabilities
    }
}

impl phy::RxToken for RxFrame<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.frame.as_ref().map_or(&[], Frame::bytes))
    }
}

impl phy::TxToken for TxSlot<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        self.0.send(len, f)
    }
}
