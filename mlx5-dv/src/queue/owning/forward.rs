//! Frames of a striding receive queue that are sent on from where they were received.

use std::fmt;
use std::sync::Arc;

use super::striding::{BufferMemory, Burst, PacketError, Receives, StridingQueue};
use crate::error::{Error, Invalid};
use crate::objects::{AnyDoorbell, CqOptions, FrameSource, Sq, SqOptions, Tis, Uar};
use crate::queue::completion::decode::{WorkError, work_of};
use crate::queue::completion::{CompletionQueue, Lengths, MANY};
use crate::queue::error::{PostError, RetireError};
use crate::queue::send::ethernet::{EthernetSendBatch, EthernetSendQueue, FrameFlags};
use crate::queue::send::multi_packet::{Each, NextSegment, Pointing};

/// Why nothing can be forwarded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForwardError {
    /// A frame failed, and the queue is in ERR: [`Forwarder::reset`] restarts it.
    #[error(transparent)]
    Work(#[from] WorkError),
    /// The completion matches nothing in flight: the card or the driver is faulty.
    #[error(transparent)]
    Retire(#[from] RetireError),
    /// What is asked of the card, it does not have; or where frames are received, too: one cannot be sent.
    #[error(transparent)]
    Post(#[from] PostError),
    /// No frame could be received.
    #[error(transparent)]
    Receive(#[from] PacketError),
    /// The last reset failed.
    #[error("the send queue was not reset: call Forwarder::reset again")]
    NotReset,
}

/// Sends frames on from where a [`StridingQueue`] received them, many by one work request: nothing is copied. The
/// receive queue posts a buffer again when no frame of it is in flight any more.
///
/// ```no_run
/// # fn f(receiver: &mut mlx5_dv::queue::ethernet::StridingQueue) -> Result<(), Box<dyn std::error::Error>> {
/// use mlx5_dv::queue::ethernet::{Forwarder, FrameFlags};
/// let mut forwarder = Forwarder::new(receiver, 1024)?;
/// loop {
///     forwarder.forward(receiver, 32, FrameFlags::empty(), |frame| {
///         let (to, from) = frame.split_at_mut(6);
///         to.swap_with_slice(&mut from[..6]);
///         true
///     })?;
/// }
/// # }
/// ```
///
/// It belongs to one thread at a time, which need not be that of the receive queue:
/// [`Packet`](super::striding::Packet)s can be sent on, too. Completions are asked for seldom, so it keeps the buffer
/// of its last frame from the receive queue until it has sent frames of another one. A receive queue needs a buffer
/// more than it has forwarders.
///
/// A thread that sleeps waits for the receive queue: nothing is to be done for what was sent before the next batch.
///
/// What it sends does not come back to the receive queue, as both are of one transport domain.
pub struct Forwarder {
    /// `None` if the last reset failed.
    queue: Option<EthernetSendQueue>,
    sent: CompletionQueue,
    held: Held,
    source: FrameSource,
    /// The element of a frame, without its address and length, and lengths of frames.
    element: u64,
    lengths: Lengths,
    /// Where the work requests end that are next and do not wrap.
    straight: u32,
    /// What is added to an address of this process for the card.
    to_card: u64,
    metadata: u32,
}

impl fmt::Debug for Forwarder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forwarder").field("sq", self.sq()).finish_non_exhaustive()
    }
}

impl Forwarder {
    /// A forwarder of what `receiver` receives, with a ring of `wqebbs` WQEBBs, rounded up to a power of two: one holds
    /// four frames, or two where a work request begins.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a card without multi-packet work requests (`enhanced_multi_pkt_send_wqe`), or one that
    /// requires headers in them; [`Error::Invalid`] for a receive queue of one buffer, or more WQEBBs than
    /// `log_max_wq_sz` allows; [`Error::Memory`], [`Error::Command`].
    pub fn new<C: Receives>(receiver: &StridingQueue<C>, wqebbs: u32) -> Result<Self, Error> {
        let memory = Arc::clone(receiver.memory());
        let buffers = memory.senders.count();
        if buffers < 2 {
            let what = "buffers (posted and spare)";
            return Err(
                Invalid::out_of_range(what, buffers as u64, 2..=u64::MAX, "a receiver that is forwarded").into()
            );
        }
        let pd = memory.region().pd();
        let uar = Uar::alloc(pd.device())?;
        let tis = Tis::create(receiver.tir().transport_domain(), 0)?;
        // Each work request may have a completion.
        let sent = CompletionQueue::create(&uar, CqOptions::default().entries(wqebbs).beside(pd))?;
        let sq = Sq::create(pd, &uar, &tis, sent.cq(), SqOptions::default().wqes(wqebbs))?;
        if sq.most_packets() == 0 {
            let what = "frames that are forwarded where they were received".into();
            return Err(Error::Unsupported { what, capability: "enhanced_multi_pkt_send_wqe" });
        }
        sq.ready()?;
        let source = sq.source(memory.region())?;
        let to_card = source.bytes().addr.wrapping_sub(memory.start as u64);
        let (element, lengths) = (Pointing::element(source.bytes().lkey), Lengths::up_to(sq.limits().longest as u32));
        let mut queue = sq.send_queue()?;
        let straight = queue.batch().straight();
        let (queue, held) = (Some(queue), Held::new(memory));
        Ok(Forwarder { queue, sent, held, source, element, lengths, straight, to_card, metadata: 0 })
    }

    /// The send queue's object.
    pub fn sq(&self) -> &Arc<Sq> {
        self.source.sq()
    }

    /// Frames of the batches that begin after this bear `value` for flow rules: as
    /// [`SendBatch::flow_metadata`](crate::queue::SendBatch::flow_metadata).
    pub fn flow_metadata(&mut self, value: u32) {
        self.metadata = value;
    }

    /// Starts a batch, after what was sent before is freed. All frames have these `flags`; completions of their own
    /// they do not have.
    ///
    /// # Errors
    /// [`ForwardError`]
    #[inline(always)]
    pub fn batch(&mut self, flags: FrameFlags) -> Result<ForwardBatch<'_>, ForwardError> {
        self.retire_if_ready()?;
        self.begin(flags)
    }

    /// As [`batch`](Self::batch), without freeing what was sent.
    #[inline(always)]
    fn begin(&mut self, flags: FrameFlags) -> Result<ForwardBatch<'_>, ForwardError> {
        let Forwarder { queue, held, straight, element, lengths, to_card, metadata, .. } = self;
        let Some(queue) = queue else { return Err(ForwardError::NotReset) };
        let batch = queue.batch();
        batch.check_offloads(flags)?;
        held.begin(batch.next_index());
        let pointing = Pointing::of(&batch, *element, Each::new(0, seldom(flags), *metadata));
        Ok(ForwardBatch { batch, pointing, held, straight, to_card: *to_card, lengths: *lengths })
    }

    /// Receives the next frames, at most `most`, and sends those on that `keep` does not reject, which may change them.
    /// Returns how many were received; fewer than `most` if there are no more. As [`ForwardBatch::forward`] in a
    /// [`batch`](Self::batch) of its own, and costs less.
    ///
    /// # Errors
    /// [`ForwardError`]. What was added before it is sent.
    #[inline(always)]
    pub fn forward<C: Receives>(
        &mut self,
        receiver: &mut StridingQueue<C>,
        most: usize,
        flags: FrameFlags,
        mut keep: impl FnMut(&mut [u8]) -> bool,
    ) -> Result<usize, ForwardError> {
        self.retire_if_ready()?;
        receiver.refill_if_due();
        let Forwarder { queue, held, straight, element, lengths, to_card, metadata, .. } = self;
        let Some(queue) = queue else { return Err(ForwardError::NotReset) };
        let mut batch = queue.batch();
        batch.check_offloads(flags)?;
        // Most frames are in the buffer of the last one, which is held already.
        let (opened, buffer) = (batch.open(*straight), receiver.buffer_ahead());
        let room = if held.latest.starts_at(buffer) { opened.room } else { 0 };
        let (start, mut frames) = (to_card.wrapping_add(buffer as u64), batch.frames(opened, *element));
        let count = receiver.take_ahead(most.min(room), *lengths, |at, frame| {
            if keep(frame) {
                frames.push(start.wrapping_add(at as u64), frame.len() as u32);
            }
        });
        let next = frames.next();
        if count < most && receiver.may_have_others() {
            return self.forward_behind(next, receiver, [most, count], flags, keep);
        }
        batch.close(opened, next, Each::new(0, seldom(flags), *metadata));
        batch.ring();
        Ok(count)
    }

    /// As [`forward`](Self::forward), behind `count` frames whose segments end at `next`: whatever comes.
    #[inline(never)]
    fn forward_behind<C: Receives>(
        &mut self,
        next: NextSegment,
        receiver: &mut StridingQueue<C>,
        [most, count]: [usize; 2],
        flags: FrameFlags,
        keep: impl FnMut(&mut [u8]) -> bool,
    ) -> Result<usize, ForwardError> {
        let mut batch = self.begin(flags)?;
        batch.pointing.go_on(next);
        let result = batch.forward(receiver, most - count, keep);
        batch.ring();
        Ok(count + result?)
    }

    /// Frees what was sent, if something was.
    #[inline(always)]
    fn retire_if_ready(&mut self) -> Result<(), ForwardError> {
        if self.sent.is_ready() { self.retire() } else { Ok(()) }
    }

    /// Frees what was sent.
    #[inline(never)]
    fn retire(&mut self) -> Result<(), ForwardError> {
        let queue = self.queue.as_mut().ok_or(ForwardError::NotReset)?;
        let mut failed = None;
        while let Some(result) = self.sent.poll() {
            queue.retire(&work_of(&result))?;
            failed = failed.or(result.err());
        }
        self.held.release(queue.retired());
        self.straight = queue.batch().straight();
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Number of WQEBBs that are free.
    pub fn free(&self) -> usize {
        self.queue.as_ref().map_or(0, EthernetSendQueue::free)
    }

    /// Restarts after an error: RST, then RDY. Frames in flight are discarded.
    ///
    /// # Errors
    /// [`Error::Command`]: the reset can be tried again.
    pub fn reset(&mut self) -> Result<(), Error> {
        self.stop()?;
        let sq = self.source.sq();
        sq.ready()?;
        let queue = self.queue.insert(sq.send_queue()?);
        self.straight = queue.batch().straight();
        Ok(())
    }

    /// To RST: no frame is in flight any more.
    fn stop(&mut self) -> Result<(), Error> {
        self.queue = None;
        match self.source.sq().reset() {
            // A dead card sends nothing: its DMA was stopped before its death became known.
            Err(error) if !error.frees_memory() => Err(error),
            stopped => {
                self.held.release_all();
                stopped
            }
        }
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        if let Err(error) = self.stop()
            && !error.frees_memory()
        {
            tracing::error!(%error, "a forwarder could not be reset; its receive queue loses the buffers that it sends from");
        }
    }
}

/// The flags of a forwarded frame's work request: completions of their own they do not have.
#[inline(always)]
fn seldom(flags: FrameFlags) -> FrameFlags {
    flags.difference(FrameFlags::SIGNALLED) | FrameFlags::SELDOM
}

/// What of a buffer is in flight.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InFlight {
    Nothing,
    /// Frames of the batch that is open, and perhaps of earlier ones.
    Batch,
    /// Frames of work requests that end at this index of the ring. Of the latest buffer there may be others.
    Until(u32),
}

/// The buffers that frames in flight are in.
struct Held {
    memory: Arc<BufferMemory>,
    buffers: Box<[InFlight]>,
    /// Those with [`InFlight::Batch`].
    entered: Vec<usize>,
    /// That of the last frame that was handed to the card, or [`HeldBuffer::NONE`] before the first.
    latest: HeldBuffer,
    /// That of the last frame. The same, unless others were entered since.
    current: HeldBuffer,
}

/// A buffer that frames are sent from. It is kept with its bytes, as each batch needs them.
#[derive(Clone, Copy)]
struct HeldBuffer {
    index: usize,
    /// Its address and length.
    start: usize,
    len: usize,
}

impl HeldBuffer {
    /// No buffer: there is none with this index, and it has no bytes.
    const NONE: HeldBuffer = HeldBuffer { index: usize::MAX, start: 0, len: 0 };

    /// Whether it is the buffer at `address`.
    #[inline(always)]
    fn starts_at(&self, address: usize) -> bool {
        address == self.start
    }

    /// Whether the byte at `address` is in it.
    #[inline(always)]
    fn contains(&self, address: usize) -> bool {
        address.wrapping_sub(self.start) < self.len
    }
}

impl Held {
    fn new(memory: Arc<BufferMemory>) -> Self {
        let count = memory.senders.count();
        let buffers = vec![InFlight::Nothing; count].into();
        Held {
            memory,
            buffers,
            entered: Vec::with_capacity(count),
            latest: HeldBuffer::NONE,
            current: HeldBuffer::NONE,
        }
    }

    /// Begins a batch at `index` of the ring.
    #[inline(always)]
    fn begin(&mut self, index: u32) {
        if !self.entered.is_empty() {
            // Nothing of an abandoned batch is in flight.
            self.settle(index);
            self.current = self.latest;
        }
    }

    /// Holds the buffer that `address` is in for frames of the batch, and goes on with it.
    #[cold]
    #[inline(never)]
    fn enter(&mut self, address: usize) -> Result<(), PostError> {
        let buffer = address.wrapping_sub(self.memory.start) >> self.memory.log_buffer;
        let in_flight = self.buffers.get_mut(buffer).ok_or(PostError::NotReceivedHere)?;
        if *in_flight == InFlight::Nothing {
            self.memory.senders.hold(buffer);
        }
        if *in_flight != InFlight::Batch {
            *in_flight = InFlight::Batch;
            self.entered.push(buffer);
        }
        let BufferMemory { start, log_buffer, .. } = *self.memory;
        self.current = HeldBuffer { index: buffer, start: start + (buffer << log_buffer), len: 1 << log_buffer };
        Ok(())
    }

    /// Goes on with the buffer that `address` is in.
    #[inline(always)]
    fn enter_if_other(&mut self, address: usize) -> Result<(), PostError> {
        if !self.current.contains(address) {
            self.enter(address)?;
        }
        Ok(())
    }

    /// What was entered is in flight until `end`. So is the latest buffer: the batch may begin with frames of it.
    #[inline(never)]
    fn settle(&mut self, end: u32) {
        for buffer in self.entered.drain(..).chain([self.latest.index]) {
            if let Some(in_flight) = self.buffers.get_mut(buffer) {
                *in_flight = InFlight::Until(end);
            }
        }
    }

    /// Ends a batch at `end`.
    #[inline(always)]
    fn end(&mut self, end: u32) {
        if !self.entered.is_empty() {
            self.settle(end);
            self.latest = self.current;
        }
    }

    /// Releases the buffers of which all frames are sent that end up to `retired`, but the latest: more frames of it
    /// are likely.
    fn release(&mut self, retired: u32) {
        for (buffer, in_flight) in self.buffers.iter_mut().enumerate() {
            // Less than half of all indices apart: a ring has 2^15.
            if let InFlight::Until(end) = *in_flight
                && end.wrapping_sub(retired) as i32 <= 0
                && buffer != self.latest.index
            {
                *in_flight = InFlight::Nothing;
                self.memory.senders.release(buffer);
            }
        }
    }

    /// Releases all.
    fn release_all(&mut self) {
        self.entered.clear();
        for (buffer, in_flight) in self.buffers.iter_mut().enumerate() {
            if std::mem::replace(in_flight, InFlight::Nothing) != InFlight::Nothing {
                self.memory.senders.release(buffer);
            }
        }
        (self.latest, self.current) = (HeldBuffer::NONE, HeldBuffer::NONE);
    }
}

/// Frames that are sent on: see [`Forwarder`]. Dropped without [`ring`](Self::ring), none of them is sent.
#[must_use = "a batch that is not rung never happened"]
pub struct ForwardBatch<'a> {
    batch: EthernetSendBatch<'a, AnyDoorbell>,
    pointing: Pointing,
    held: &'a mut Held,
    /// That of the [`Forwarder`].
    straight: &'a mut u32,
    /// What is added to an address of this process for the card.
    to_card: u64,
    lengths: Lengths,
}

impl fmt::Debug for ForwardBatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForwardBatch").finish_non_exhaustive()
    }
}

impl ForwardBatch<'_> {
    /// Adds a frame: a slice of a [`Burst`] or [`Packet`](super::striding::Packet) of the receive queue, or a part
    /// of one. It must not be changed after this until it is sent, or it mixes old and new bytes.
    ///
    /// # Errors
    /// [`PostError::NotReceivedHere`], [`PostError::Full`], [`PostError::FrameLength`]. The frame is not added then,
    /// and those before it stay.
    #[inline(always)]
    pub fn push(&mut self, frame: &[u8]) -> Result<(), PostError> {
        let address = frame.as_ptr() as usize;
        self.held.enter_if_other(address)?;
        self.pointing.push(&mut self.batch, self.to_card.wrapping_add(address as u64), frame.len())
    }

    /// Adds those frames of a burst that `keep` does not reject, which may change them. Returns how many that were.
    /// Costs less than a [`push`](Self::push) for each.
    ///
    /// # Errors
    /// As for [`push`](Self::push): a frame that cannot be sent is lost, and those before it stay. Those behind it come
    /// again in the next burst, as do all for which there is no room.
    #[inline(always)]
    pub fn push_each<C: Receives>(
        &mut self,
        mut burst: Burst<'_, C>,
        mut keep: impl FnMut(&mut [u8]) -> bool,
    ) -> Result<usize, PostError> {
        let mut count = 0;
        loop {
            // Before a frame is taken: without room it comes again.
            if self.pointing.room_now() == 0 {
                if burst.is_empty() {
                    return Ok(count);
                }
                self.pointing.room(&mut self.batch)?;
            }
            if self.push_some(&mut burst, &mut keep, &mut count) == 0 {
                // The first one, and others.
                let Some(frame) = burst.next() else { return Ok(count) };
                if keep(frame) {
                    self.push(frame)?;
                    count += 1;
                }
            }
            if burst.is_over() {
                return Ok(count);
            }
        }
    }

    /// Adds the next frames of a burst, as far as they are in the buffer of the frame before, and found with less.
    /// Returns how many it took; adds those to `count` that `keep` does not reject.
    #[inline(always)]
    fn push_some<C: Receives>(
        &mut self,
        burst: &mut Burst<'_, C>,
        keep: &mut impl FnMut(&mut [u8]) -> bool,
        count: &mut usize,
    ) -> usize {
        if !self.held.current.contains(burst.buffer()) {
            return 0;
        }
        let (room, to_card) = (self.pointing.room_now(), self.to_card);
        let mut frames = self.pointing.frames(&mut self.batch);
        let taken = burst.take_each(room, self.lengths, |frame| {
            if keep(frame) {
                frames.push(to_card.wrapping_add(frame.as_ptr() as u64), frame.len() as u32);
            }
        });
        let before = self.pointing.room_now();
        self.pointing.go_on(frames.next());
        *count += before - self.pointing.room_now();
        taken
    }

    /// Receives the next frames, at most `most`, and adds those that `keep` does not reject, which may change them.
    /// Returns how many were received; fewer than `most` if there are no more. As
    /// [`push_each`](Self::push_each) of [`StridingQueue::burst`]s, and costs less, as most frames are looked at once.
    ///
    /// ```no_run
    /// # use mlx5_dv::queue::ethernet::{ForwardError, Forwarder, FrameFlags, StridingQueue};
    /// # fn f(receiver: &mut StridingQueue, forwarder: &mut Forwarder) -> Result<(), ForwardError> {
    /// let mut batch = forwarder.batch(FrameFlags::empty())?;
    /// batch.forward(receiver, 32, |frame| frame.len() > 60)?;
    /// batch.ring();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ForwardError::Receive`], and [`ForwardError::Post`] as for [`push_each`](Self::push_each).
    #[inline(always)]
    pub fn forward<C: Receives>(
        &mut self,
        receiver: &mut StridingQueue<C>,
        most: usize,
        mut keep: impl FnMut(&mut [u8]) -> bool,
    ) -> Result<usize, ForwardError> {
        let mut count = 0;
        while count < most {
            let left = most - count;
            receiver.look_ahead();
            let _ = self.pointing.room(&mut self.batch);
            let some = self.forward_ahead(receiver, left, &mut keep);
            count += some;
            // The last frame of a buffer, the first of another one, and long ones.
            if some == 0 {
                let burst = receiver.burst(if left < MANY { left } else { 1 })?;
                let before = count;
                self.push_each(burst, |frame| {
                    count += 1;
                    keep(frame)
                })?;
                if count == before {
                    break;
                }
            }
        }
        Ok(count)
    }

    /// As [`forward`](Self::forward), as far as the frames are [known](StridingQueue::look_ahead), found with little,
    /// in the buffer of the frame before, and there is room for them in the work request that is filled.
    #[inline(always)]
    fn forward_ahead<C: Receives>(
        &mut self,
        receiver: &mut StridingQueue<C>,
        most: usize,
        keep: &mut impl FnMut(&mut [u8]) -> bool,
    ) -> usize {
        let buffer = receiver.buffer_ahead();
        if !self.held.current.starts_at(buffer) {
            return 0;
        }
        let start = self.to_card.wrapping_add(buffer as u64);
        let room = self.pointing.room_now();
        let mut frames = self.pointing.frames(&mut self.batch);
        let count = receiver.take_ahead(most.min(room), self.lengths, |at, frame| {
            if keep(frame) {
                frames.push(start.wrapping_add(at as u64), frame.len() as u32);
            }
        });
        self.pointing.go_on(frames.next());
        count
    }

    /// Hands the frames to the card. Without any it does nothing.
    #[inline(always)]
    pub fn ring(self) {
        let ForwardBatch { mut batch, pointing, held, straight, .. } = self;
        // The completion frees the buffers that are not the latest.
        pointing.end(&mut batch, !held.entered.is_empty());
        if !batch.is_empty() {
            held.end(batch.next_index());
            *straight = batch.straight();
        }
        batch.ring();
    }
}
