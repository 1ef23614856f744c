//! The queues that are measured. All of it is safe Rust.

use std::hint::black_box;
use std::sync::Arc;

use mlx5_benches::Failure;
use mlx5_benches::ticks::ticks;
use mlx5_dv::Device;
use mlx5_dv::objects::{Buffer, Compression, CqOptions, ExclusiveRegion, FlowRule, Pd, Sq, SqOptions, Tis, Uar};
use mlx5_dv::queue::ethernet::{
    EthernetOptions, EthernetQueue, EthernetSendQueue, FrameFlags, Packet, Receives, StridingOptions, StridingQueue,
};
use mlx5_dv::queue::{CompletionQueue, CompressedCompletionQueue, Plain, Side};

use crate::stage::{DEPTH, Frame, MOST, steer};

/// A receive and a send queue. Each method returns ticks.
pub trait Form {
    /// Sends on what is there, at most `burst` frames, and returns how many there were.
    fn forward(&mut self, burst: usize) -> Result<(usize, u64), Failure>;
    /// Takes what is there, at most `burst` frames.
    fn receive(&mut self, burst: usize) -> Result<(usize, u64), Failure>;
    fn send(&mut self, frames: &[Frame]) -> Result<u64, Failure>;
}

/// A queue of buffers, a frame each: nothing is copied.
pub struct Buffers {
    _rule: FlowRule,
    queue: EthernetQueue,
    received: Vec<Buffer>,
    free: Vec<Buffer>,
}

impl Buffers {
    pub fn new(device: &Arc<Device>) -> Result<Self, Failure> {
        let pd = Pd::alloc(device)?;
        let mut queue = EthernetQueue::new(&pd, EthernetOptions::default().send_depth(DEPTH).recv_depth(DEPTH))?;
        let mut free = ExclusiveRegion::allocate(&pd, 2 * DEPTH as usize * 2048)?.buffers(2048)?;
        for buffer in free.drain(..DEPTH as usize / 2) {
            queue.receive(buffer)?;
        }
        Ok(Buffers { _rule: steer(queue.tir())?, queue, received: Vec::with_capacity(MOST), free })
    }

    /// Takes all that is there: received frames, and buffers that were sent.
    #[inline(always)]
    fn poll(&mut self, burst: usize) -> Result<usize, Failure> {
        while self.received.len() < burst
            && let Some(done) = self.queue.poll()?
        {
            let Some(mut buffer) = done.buffer else { continue };
            match done.result? {
                completion if completion.work.side == Side::Receive => {
                    buffer.set_len(completion.byte_len as usize);
                    self.received.push(buffer);
                }
                _ => self.free.push(buffer),
            }
        }
        Ok(self.received.len())
    }

    /// Sends all that was received.
    #[inline(always)]
    fn send_all(&mut self) -> Result<(), Failure> {
        let mut batch = self.queue.batch();
        let last = self.received.pop();
        batch.quiet();
        for buffer in self.received.drain(..) {
            batch.send(buffer, FrameFlags::empty())?;
        }
        batch.signalled();
        if let Some(buffer) = last {
            batch.send(buffer, FrameFlags::empty())?;
        }
        batch.ring();
        Ok(())
    }
}

impl Form for Buffers {
    #[inline(never)]
    fn forward(&mut self, burst: usize) -> Result<(usize, u64), Failure> {
        let start = ticks();
        let count = self.poll(burst)?;
        self.send_all()?;
        let mut receives = self.queue.receives();
        for mut buffer in self.free.drain(self.free.len() - count..) {
            buffer.set_len(2048);
            receives.receive(buffer)?;
        }
        receives.ring();
        Ok((count, ticks() - start))
    }

    #[inline(never)]
    fn receive(&mut self, burst: usize) -> Result<(usize, u64), Failure> {
        let start = ticks();
        let count = self.poll(burst)?;
        let mut receives = self.queue.receives();
        for mut buffer in self.received.drain(..) {
            black_box(buffer.len());
            buffer.set_len(2048);
            receives.receive(buffer)?;
        }
        receives.ring();
        Ok((count, ticks() - start))
    }

    #[inline(never)]
    fn send(&mut self, frames: &[Frame]) -> Result<u64, Failure> {
        self.received.extend(self.free.drain(..frames.len()));
        for (buffer, frame) in self.received.iter_mut().zip(frames) {
            buffer.set_len(frame.len());
            buffer.as_mut_slice().copy_from_slice(frame);
        }
        let start = ticks();
        // What was sent before comes back.
        while let Some(done) = self.queue.poll()? {
            done.result?;
            self.free.extend(done.buffer);
        }
        self.send_all()?;
        Ok(ticks() - start)
    }
}

/// Frames that are inlined in one work request: four segments each.
const INLINED: usize = 15;

/// A striding receive queue, and a send queue of multi-packet WQEs into which frames are copied.
pub struct Queues<C: Receives> {
    _rule: FlowRule,
    sender: EthernetSendQueue<Plain>,
    sent: CompletionQueue,
    receiver: StridingQueue<C>,
}

impl Queues<CompletionQueue> {
    pub fn new(device: &Arc<Device>) -> Result<Self, Failure> {
        let pd = Pd::alloc(device)?;
        Queues::of(&pd, StridingQueue::new(&pd, StridingOptions::default())?)
    }
}

impl Queues<CompressedCompletionQueue> {
    pub fn compressed(device: &Arc<Device>) -> Result<Self, Failure> {
        let pd = Pd::alloc(device)?;
        Queues::of(&pd, StridingQueue::compressed(&pd, StridingOptions::default(), Compression::ChecksumStride)?)
    }
}

impl<C: Receives> Queues<C> {
    fn of(pd: &Arc<Pd>, receiver: StridingQueue<C>) -> Result<Self, Failure> {
        let uar = Uar::alloc(pd.device())?;
        let sent = CompletionQueue::create(&uar, CqOptions::default().entries(DEPTH))?;
        // A domain does not receive its own frames.
        let tis = Tis::create(receiver.tir().transport_domain(), 0)?;
        let sq = Sq::create(pd, &uar, &tis, sent.cq(), SqOptions::default().wqes(DEPTH))?;
        sq.ready()?;
        if sq.most_packets() < 4 * INLINED {
            return Err(format!("a work request has {} segments for frames", sq.most_packets()).into());
        }
        Ok(Queues { _rule: steer(receiver.tir())?, sender: sq.send_queue()?, sent, receiver })
    }
}

/// Packets that own their strides, which are collected.
pub struct Packets {
    queues: Queues<CompletionQueue>,
    received: Vec<Packet>,
}

impl Packets {
    pub fn new(queues: Queues<CompletionQueue>) -> Self {
        Packets { queues, received: Vec::with_capacity(MOST) }
    }

    #[inline(always)]
    fn poll(&mut self, burst: usize) -> Result<usize, Failure> {
        while self.received.len() < burst
            && let Some(packet) = self.queues.receiver.poll()?
        {
            self.received.push(packet);
        }
        Ok(self.received.len())
    }
}

/// Retires what was sent before.
#[inline(always)]
fn retire(sender: &mut EthernetSendQueue<Plain>, sent: &mut CompletionQueue) -> Result<(), Failure> {
    while let Some(completion) = sent.poll() {
        sender.retire(&completion?.work)?;
    }
    Ok(())
}

/// Sends frames, after it has retired what was sent before. The last work request has a completion.
#[inline(always)]
fn send<T: AsRef<[u8]>>(
    sender: &mut EthernetSendQueue<Plain>,
    sent: &mut CompletionQueue,
    frames: &[T],
) -> Result<(), Failure> {
    retire(sender, sent)?;
    let mut batch = sender.batch();
    let mut rest = frames;
    while !rest.is_empty() {
        let some;
        (some, rest) = rest.split_at(rest.len().min(INLINED));
        let mut slices: [&[u8]; INLINED] = [&[]; INLINED];
        for (slice, frame) in slices.iter_mut().zip(some) {
            *slice = frame.as_ref();
        }
        let flags = if rest.is_empty() { FrameFlags::SIGNALLED } else { FrameFlags::empty() };
        batch.send_several_inline(0, flags, &slices[..some.len()])?;
    }
    batch.ring();
    Ok(())
}

impl Form for Packets {
    #[inline(never)]
    fn forward(&mut self, burst: usize) -> Result<(usize, u64), Failure> {
        let start = ticks();
        let count = self.poll(burst)?;
        send(&mut self.queues.sender, &mut self.queues.sent, &self.received)?;
        self.received.clear();
        Ok((count, ticks() - start))
    }

    #[inline(never)]
    fn receive(&mut self, burst: usize) -> Result<(usize, u64), Failure> {
        let start = ticks();
        let count = self.poll(burst)?;
        for packet in self.received.drain(..) {
            black_box(packet.len());
        }
        Ok((count, ticks() - start))
    }

    #[inline(never)]
    fn send(&mut self, frames: &[Frame]) -> Result<u64, Failure> {
        let start = ticks();
        send(&mut self.queues.sender, &mut self.queues.sent, frames)?;
        Ok(ticks() - start)
    }
}

/// Slices that are lent for a burst, and copied to work requests one by one.
pub struct Bursts<C: Receives>(pub Queues<C>);

impl<C: Receives> Form for Bursts<C> {
    #[inline(never)]
    fn forward(&mut self, burst: usize) -> Result<(usize, u64), Failure> {
        let start = ticks();
        let Queues { sender, sent, receiver, .. } = &mut self.0;
        retire(sender, sent)?;
        let mut batch = sender.batch();
        let mut copies = batch.copies(0, FrameFlags::SIGNALLED)?;
        let mut count = 0;
        while count < burst {
            let before = count;
            for frame in receiver.burst(burst - count)? {
                copies.push(frame)?;
                count += 1;
            }
            if count == before {
                break;
            }
        }
        copies.end();
        batch.ring();
        Ok((count, ticks() - start))
    }

    #[inline(never)]
    fn receive(&mut self, burst: usize) -> Result<(usize, u64), Failure> {
        let start = ticks();
        let mut count = 0;
        while count < burst {
            let before = count;
            for frame in self.0.receiver.burst(burst - count)? {
                black_box(frame);
                count += 1;
            }
            if count == before {
                break;
            }
        }
        Ok((count, ticks() - start))
    }

    #[inline(never)]
    fn send(&mut self, frames: &[Frame]) -> Result<u64, Failure> {
        let start = ticks();
        let Queues { sender, sent, .. } = &mut self.0;
        retire(sender, sent)?;
        let mut batch = sender.batch();
        let mut copies = batch.copies(0, FrameFlags::SIGNALLED)?;
        for frame in frames {
            copies.push(frame)?;
        }
        copies.end();
        batch.ring();
        Ok(ticks() - start)
    }
}
