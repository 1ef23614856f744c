//! The queues that are measured. All of it is safe Rust.

use std::hint::black_box;
use std::sync::Arc;

use mlx5_benches::Failure;
use mlx5_benches::ticks::ticks;
use mlx5_dv::Device;
use mlx5_dv::objects::{
    AccessFlags, Buffer, Compression, CqOptions, ExclusiveRegion, FlowRule, FrameSource, MemoryRegion, Pd, Sq,
    SqOptions, Tir, Tis, Uar,
};
use mlx5_dv::queue::ethernet::{
    EthernetOptions, EthernetQueue, EthernetSendQueue, Forwarder, FrameFlags, Packet, ReceivedFrame, Receives,
    StridingOptions, StridingQueue,
};
use mlx5_dv::queue::{CompletionQueue, CompressedCompletionQueue, Plain};

use crate::stage::{DEPTH, FRAME, Frame, MOST, steer};

/// A receive and a send queue. Each method returns ticks.
pub trait Form {
    /// Sends on what is there, at most `burst` frames, and returns how many there were.
    fn forward(&mut self, burst: usize) -> Result<(usize, u64), Failure>;
    /// Takes what is there, at most `burst` frames.
    fn receive(&mut self, burst: usize) -> Result<(usize, u64), Failure>;
    fn send(&mut self, frames: &[Frame]) -> Result<u64, Failure>;
}

/// Of so many frames one is signalled, as DPDK does.
const SIGNALLED: usize = 32;

/// A queue of buffers, a frame each: nothing is copied.
pub struct Buffers {
    _rule: FlowRule,
    queue: EthernetQueue,
    received: Vec<ReceivedFrame>,
    /// To be sent, or posted again.
    next: Vec<Buffer>,
    free: Vec<Buffer>,
    /// Frames since the last signalled one.
    quiet: usize,
}

impl Buffers {
    pub fn new(device: &Arc<Device>) -> Result<Self, Failure> {
        let pd = Pd::alloc(device)?;
        let mut queue = EthernetQueue::new(&pd, EthernetOptions::default().send_depth(DEPTH).recv_depth(DEPTH))?;
        let mut free = ExclusiveRegion::allocate(&pd, 2 * DEPTH as usize * 2048)?.buffers(2048)?;
        queue.receives().receive_each(&mut free.split_off(3 * DEPTH as usize / 2))?;
        let (received, next) = (Vec::with_capacity(MOST), Vec::with_capacity(MOST));
        Ok(Buffers { _rule: steer(queue.tir())?, queue, received, next, free, quiet: 0 })
    }

    /// Takes all that is there: received frames, and buffers that were sent.
    #[inline(always)]
    fn poll(&mut self, burst: usize) -> Result<usize, Failure> {
        let left = burst - self.received.len();
        if let Some(other) = self.queue.poll_into(&mut self.received, &mut self.free, left)? {
            other.result?;
        }
        Ok(self.received.len())
    }

    /// Sends all that is next. The last work request is signalled, if enough frames before it were not.
    #[inline(always)]
    fn send_next(&mut self) -> Result<(), Failure> {
        let mut batch = self.queue.batch();
        self.quiet += self.next.len();
        if self.quiet < SIGNALLED {
            batch.quiet();
        } else {
            self.quiet = 0;
        }
        batch.send_each(&mut self.next, FrameFlags::empty())?;
        batch.ring();
        Ok(())
    }
}

impl Form for Buffers {
    #[inline(never)]
    fn forward(&mut self, burst: usize) -> Result<(usize, u64), Failure> {
        let start = ticks();
        let count = self.poll(burst)?;
        self.next.extend(self.received.drain(..).map(|frame| frame.buffer));
        self.send_next()?;
        self.next.extend(self.free.drain(self.free.len() - count..));
        self.queue.receives().receive_each(&mut self.next)?;
        Ok((count, ticks() - start))
    }

    #[inline(never)]
    fn receive(&mut self, burst: usize) -> Result<(usize, u64), Failure> {
        let start = ticks();
        let count = self.poll(burst)?;
        self.next.extend(self.received.drain(..).map(|frame| black_box(frame.buffer)));
        self.queue.receives().receive_each(&mut self.next)?;
        Ok((count, ticks() - start))
    }

    #[inline(never)]
    fn send(&mut self, frames: &[Frame]) -> Result<u64, Failure> {
        self.next.extend(self.free.drain(..frames.len()));
        for (buffer, frame) in self.next.iter_mut().zip(frames) {
            buffer.set_len(frame.len());
            buffer.as_mut_slice().copy_from_slice(frame);
        }
        let start = ticks();
        // What was sent before comes back.
        self.poll(1)?;
        self.send_next()?;
        Ok(ticks() - start)
    }
}

/// WQEBBs of the ring that frames are copied to, as many as DPDK's driver takes for [`DEPTH`] frames.
const WQEBBS: u32 = 8 * DEPTH;
/// Frames that are inlined in one work request: four segments each.
const INLINED: usize = 15;

/// A send queue of multi-packet WQEs into which frames are copied.
pub struct Sender {
    queue: EthernetSendQueue<Plain>,
    sent: CompletionQueue,
}

impl Sender {
    /// Which sends nothing to `tir`: a domain does not receive its own frames.
    pub fn new(pd: &Arc<Pd>, tir: &Tir) -> Result<Self, Failure> {
        let uar = Uar::alloc(pd.device())?;
        let sent = CompletionQueue::create(&uar, CqOptions::default().entries(DEPTH))?;
        let tis = Tis::create(tir.transport_domain(), 0)?;
        let sq = Sq::create(pd, &uar, &tis, sent.cq(), SqOptions::default().wqes(WQEBBS))?;
        sq.ready()?;
        if sq.most_packets() < 4 * INLINED {
            return Err(format!("a work request has {} segments for frames", sq.most_packets()).into());
        }
        Ok(Sender { queue: sq.send_queue()?, sent })
    }

    /// Retires what was sent before.
    #[inline(always)]
    fn retire(&mut self) -> Result<(), Failure> {
        while let Some(completion) = self.sent.poll() {
            self.queue.retire(&completion?.work)?;
        }
        Ok(())
    }

    /// Sends frames one by one.
    #[inline(always)]
    pub fn send(&mut self, frames: &[Frame]) -> Result<(), Failure> {
        self.retire()?;
        let mut batch = self.queue.batch();
        let mut copies = batch.copies(0, FrameFlags::SELDOM)?;
        for frame in frames {
            copies.push(frame)?;
        }
        copies.end();
        batch.ring();
        Ok(())
    }

    /// Sends frames, as many at a time as a work request holds.
    #[inline(always)]
    fn send_several(&mut self, frames: &[impl AsRef<[u8]>]) -> Result<(), Failure> {
        self.retire()?;
        let mut batch = self.queue.batch();
        for some in frames.chunks(INLINED) {
            let mut slices: [&[u8]; INLINED] = [&[]; INLINED];
            for (slice, frame) in slices.iter_mut().zip(some) {
                *slice = frame.as_ref();
            }
            batch.send_several_inline(0, FrameFlags::SELDOM, &slices[..some.len()])?;
        }
        batch.ring();
        Ok(())
    }
}

/// A striding receive queue, and a send queue.
pub struct Queues<C: Receives> {
    _rule: FlowRule,
    sender: Sender,
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
        let sender = Sender::new(pd, receiver.tir())?;
        Ok(Queues { _rule: steer(receiver.tir())?, sender, receiver })
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
        let left = burst - self.received.len();
        self.queues.receiver.poll_into(&mut self.received, left)?;
        Ok(self.received.len())
    }
}

impl Form for Packets {
    #[inline(never)]
    fn forward(&mut self, burst: usize) -> Result<(usize, u64), Failure> {
        let start = ticks();
        let count = self.poll(burst)?;
        self.queues.sender.send_several(&self.received)?;
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
        self.queues.sender.send_several(frames)?;
        Ok(ticks() - start)
    }
}

/// Slices that are lent for a burst, and copied to work requests one by one.
pub struct Bursts<C: Receives>(pub Queues<C>);

impl<C: Receives> Form for Bursts<C> {
    #[inline(never)]
    fn forward(&mut self, burst: usize) -> Result<(usize, u64), Failure> {
        let start = ticks();
        let Queues { sender, receiver, .. } = &mut self.0;
        sender.retire()?;
        let mut batch = sender.queue.batch();
        let mut copies = batch.copies(0, FrameFlags::SELDOM)?;
        let mut pushed = Ok(());
        let count = receiver.take_each(burst, |frame| {
            if let Err(refused) = copies.push(frame) {
                pushed = Err(refused);
            }
        })?;
        pushed?;
        copies.end();
        batch.ring();
        Ok((count, ticks() - start))
    }

    #[inline(never)]
    fn receive(&mut self, burst: usize) -> Result<(usize, u64), Failure> {
        let start = ticks();
        let count = self.0.receiver.take_each(burst, |frame| {
            black_box(frame);
        })?;
        Ok((count, ticks() - start))
    }

    #[inline(never)]
    fn send(&mut self, frames: &[Frame]) -> Result<u64, Failure> {
        let start = ticks();
        self.0.sender.send(frames)?;
        Ok(ticks() - start)
    }
}

/// Bytes between the frames of a pool.
const PLACE: usize = 64;

/// Frames that are sent from where they are: received ones by a forwarder, others from a pool.
pub struct InPlace<C: Receives> {
    receives: Bursts<C>,
    forwarder: Forwarder,
    pool: Arc<MemoryRegion>,
    source: FrameSource,
    /// Where in the pool the next frame is.
    next: usize,
}

impl<C: Receives> InPlace<C> {
    pub fn new(queues: Queues<C>) -> Result<Self, Failure> {
        let forwarder = Forwarder::new(&queues.receiver, WQEBBS)?;
        let sq = queues.sender.queue.sq();
        let pool = MemoryRegion::allocate(sq.pd(), DEPTH as usize * PLACE, AccessFlags::LOCAL_WRITE)?;
        let source = sq.source(&pool)?;
        Ok(InPlace { receives: Bursts(queues), forwarder, pool, source, next: 0 })
    }
}

impl<C: Receives> Form for InPlace<C> {
    #[inline(never)]
    fn forward(&mut self, burst: usize) -> Result<(usize, u64), Failure> {
        let start = ticks();
        let count = self.forwarder.forward(&mut self.receives.0.receiver, burst, FrameFlags::empty(), |_| true)?;
        Ok((count, ticks() - start))
    }

    fn receive(&mut self, burst: usize) -> Result<(usize, u64), Failure> {
        self.receives.receive(burst)
    }

    #[inline(never)]
    fn send(&mut self, frames: &[Frame]) -> Result<u64, Failure> {
        if self.next + frames.len() * PLACE > self.pool.len() {
            self.next = 0;
        }
        let first = self.next;
        for frame in frames {
            self.pool.write(self.next, frame);
            self.next += PLACE;
        }
        let start = ticks();
        let sender = &mut self.receives.0.sender;
        sender.retire()?;
        let mut batch = sender.queue.batch();
        let mut pointers = batch.pointers(&self.source, 0, FrameFlags::SELDOM)?;
        for at in (first..self.next).step_by(PLACE) {
            pointers.push(at..at + FRAME)?;
        }
        pointers.end();
        batch.ring();
        Ok(ticks() - start)
    }
}
