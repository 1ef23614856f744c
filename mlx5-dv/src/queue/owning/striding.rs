//! A striding receive queue that owns its buffers: a packet is a slice, and returns its strides when it is dropped.

use std::collections::VecDeque;
use std::fmt;
use std::hint;
use std::io;
use std::iter;
use std::ops::{Deref, Range};
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use super::listening::Listening;
use super::queues::MOST_SKIPPED;
use super::senders::Senders;
use crate::deadline::Deadline;
use crate::device::Device;
use crate::error::Error;
use crate::memory::DataSegment;
use crate::net::Mac;
use crate::objects::{
    AccessFlags, Compression, Cq, CqOptions, LroOptions, MemoryRegion, Pd, QueueCounter, Rq, RqOptions, Strides, Tir,
    TransportDomain, Uar,
};
use crate::queue::completion::compressed::CompressedCompletionQueue;
use crate::queue::completion::decode::{FrameCompletion, WorkError};
use crate::queue::completion::joined::JoinedSegments;
use crate::queue::completion::{Ahead, CompletionQueue, Lengths, MOST, Oldest, Place, PollReceived};
use crate::queue::error::RetireError;
use crate::queue::events::{EventSource, event_source};
use crate::queue::receive::striding::StridingReceiveQueue;
use crate::setters::setters;

/// Options of a [`StridingQueue`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StridingOptions {
    /// How buffers are cut. Default: 2048 strides of 64 bytes, a buffer of 128 KiB.
    pub strides: Strides,
    /// Number of buffers posted. Default: 8.
    pub posted: u32,
    /// Further buffers, for packets that are kept: as many can be held back before frames are lost. Default: 8.
    pub spare: u32,
    /// Whether waits sleep instead of polling. Default: no.
    pub events: bool,
    /// The completion vector of its completion queue. Default: 0.
    pub vector: u32,
    /// Whether the card strips VLAN tags: as
    /// [`EthernetOptions::strip_vlan`](super::ethernet::EthernetOptions::strip_vlan). Default: no.
    pub strip_vlan: bool,
    /// Counts frames that found no buffer posted. Default: none.
    pub counter: Option<Arc<QueueCounter>>,
    /// Large receive offload: the card joins TCP segments, and the queue makes their headers those of one packet, which
    /// is in one buffer: a longer one is divided. Default: none.
    pub lro: Option<LroOptions>,
    /// Whether completions bear the time of the card's real-time clock
    /// ([`RealTime::of`](crate::RealTime::of)), not that of the free-running one. Default: no.
    pub real_time: bool,
}

setters! {
    StridingOptions {
        strides: Strides;
        posted: u32;
        spare: u32;
        events = true;
        vector: u32;
        lro: Some(LroOptions);
        real_time = true;
    }
}

impl Default for StridingOptions {
    fn default() -> Self {
        StridingOptions {
            strides: Strides::new(64, 2048),
            posted: 8,
            spare: 8,
            events: false,
            vector: 0,
            strip_vlan: false,
            counter: None,
            lro: None,
            real_time: false,
        }
    }
}

/// A completion queue of receives, compressed or not. Sealed.
pub trait Receives: EventSource + PollReceived {
    /// The object.
    fn cq(&self) -> &Arc<Cq>;
    /// The next completion.
    fn poll(&mut self) -> Option<Result<FrameCompletion, WorkError>>;
    /// Waits until there may be one. Errors: [`Error::Timeout`], [`Error::Dead`].
    fn await_next(&mut self, timeout: Duration) -> Result<(), Error>;
    /// As [`CompletionQueue::ready`].
    fn ready(&mut self, readable: impl AsyncFnMut() -> io::Result<()>) -> impl Future<Output = Result<(), Error>>;
}

impl Receives for CompletionQueue {
    fn cq(&self) -> &Arc<Cq> {
        self.cq()
    }

    #[inline(always)]
    fn poll(&mut self) -> Option<Result<FrameCompletion, WorkError>> {
        self.poll_frame()
    }

    fn await_next(&mut self, timeout: Duration) -> Result<(), Error> {
        self.wait_or_yield(timeout)
    }

    async fn ready(&mut self, readable: impl AsyncFnMut() -> io::Result<()>) -> Result<(), Error> {
        self.ready(readable).await
    }
}

impl Receives for CompressedCompletionQueue {
    fn cq(&self) -> &Arc<Cq> {
        self.cq()
    }

    #[inline(always)]
    fn poll(&mut self) -> Option<Result<FrameCompletion, WorkError>> {
        self.poll_frame()
    }

    fn await_next(&mut self, timeout: Duration) -> Result<(), Error> {
        self.wait(timeout)
    }

    async fn ready(&mut self, readable: impl AsyncFnMut() -> io::Result<()>) -> Result<(), Error> {
        self.ready(readable).await
    }
}

/// The memory of a queue's buffers, and which of them others send from.
pub(super) struct BufferMemory {
    region: Arc<MemoryRegion>,
    /// Address of the first byte, and log of a buffer's size.
    pub(super) start: usize,
    pub(super) log_buffer: u32,
    pub(super) senders: Senders,
}

impl BufferMemory {
    /// Memory of `count` buffers.
    fn allocate(pd: &Arc<Pd>, strides: Strides, count: usize) -> Result<Arc<Self>, Error> {
        let region = MemoryRegion::allocate(pd, count.saturating_mul(strides.buffer()), AccessFlags::LOCAL_WRITE)?;
        let start = region.as_ptr(0..strides.buffer())?.as_ptr() as usize;
        let senders = Senders::new(count);
        // Both factors are powers of two: the queue's creation has checked them.
        Ok(Arc::new(BufferMemory { region, start, log_buffer: strides.buffer().trailing_zeros(), senders }))
    }

    pub(super) fn region(&self) -> &Arc<MemoryRegion> {
        &self.region
    }
}

/// A buffer of the queue's. Shared by the packets in it; the queue posts it again once it is the only owner.
struct Slab {
    bytes: NonNull<u8>,
    element: DataSegment,
    /// Keeps the bytes mapped and registered.
    _memory: Arc<BufferMemory>,
}

// SAFETY: `bytes` is read through packets, which only share it, and otherwise only passed to the card.
unsafe impl Send for Slab {}
// SAFETY: as above.
unsafe impl Sync for Slab {}

impl Slab {
    /// Makes the headers of joined segments in `bytes`, which a completion has just named, those of one packet.
    #[cold]
    fn update_headers(&self, joined: &JoinedSegments, bytes: &Range<usize>) {
        let len = bytes.len().min(JoinedSegments::HEADERS);
        // SAFETY: `StridingReceiveQueue::take` checked that the bytes lie in the slab's buffer, which the region that
        // the slab holds keeps mapped, and that no completion named them before: no packet has them, and the card,
        // which has completed them, writes them again only after the slab is posted again. The region is this queue's
        // alone.
        let head = unsafe { slice::from_raw_parts_mut(self.bytes.as_ptr().add(bytes.start), len) };
        joined.update_headers(head, bytes.len());
    }
}

/// A received frame: a slice of the buffer that the card wrote it to. Nothing is copied. It may be kept and sent to
/// other threads; dropping it returns its strides. A buffer is posted again once no packet of it exists.
pub struct Packet {
    slab: Arc<Slab>,
    at: u32,
    len: u32,
    completion: FrameCompletion,
}

impl Packet {
    /// First byte and length.
    fn bytes(&self) -> Lent {
        // SAFETY: `StridingReceiveQueue::take` checked that the bytes lie in the slab's buffer.
        (unsafe { self.slab.bytes.add(self.at as usize) }, self.len as usize)
    }

    /// Its completion: what the card found out about it, flow tag, timestamp.
    /// [`Completion::byte_len`](crate::queue::Completion::byte_len) counts strides, too: the length is that of the
    /// slice.
    pub fn completion(&self) -> &FrameCompletion {
        &self.completion
    }
}

impl Deref for Packet {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `StridingReceiveQueue::take` checked that the bytes lie in the slab's buffer, which the region that
        // the slab holds keeps mapped. Nobody writes them: the card has completed these strides and writes them again
        // only after the queue posts the slab again, which needs the only reference to it; the region is this queue's
        // alone, and allows no remote access.
        unsafe { std::slice::from_raw_parts(self.slab.bytes.as_ptr().add(self.at as usize), self.len as usize) }
    }
}

impl AsRef<[u8]> for Packet {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Packet({} bytes at {})", self.len, self.at)
    }
}

/// Why no packet came.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PacketError {
    /// The receive failed, and the queue is in ERR: [`StridingQueue::reset`] restarts it.
    #[error(transparent)]
    Work(#[from] WorkError),
    /// The completion matches nothing in flight: the card or the driver is faulty.
    #[error(transparent)]
    Retire(#[from] RetireError),
    /// None came in time, or the card is dead.
    #[error(transparent)]
    Waiting(#[from] Error),
}

/// Receives Ethernet frames into large buffers, many to one. One completion and a few bytes of a work request for many
/// frames, and no copy: [`poll`](Self::poll) returns slices ([`Packet`]).
///
/// Nothing is received before [`listen`](Self::listen), or a flow rule to [`tir`](Self::tir). While all buffers are
/// held by packets, frames are lost, and counted by the card (`out_of_buffer`). The queue belongs to one thread at a
/// time; polling makes no system call, takes no lock and allocates nothing.
pub struct StridingQueue<C: Receives = CompletionQueue> {
    // First fields: rules and queue are dropped before what they use.
    listening: Option<Listening>,
    receive: Option<StridingReceiveQueue>,
    tir: Arc<Tir>,
    rq: Arc<Rq>,
    cq: C,
    slabs: Box<[Arc<Slab>]>,
    memory: Arc<BufferMemory>,
    /// Whether the card joins segments.
    joins: bool,
    ahead: FramesAhead<C::Ahead>,
    /// Where they are.
    places: Box<[Place; MOST]>,
    left: Left,
    /// Buffers that are not posted, by index. Some may still be held by packets.
    spent: VecDeque<u32>,
    /// Whether there are some, and room for them.
    is_short: bool,
}

impl<C: Receives> fmt::Debug for StridingQueue<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StridingQueue").field("rq", &self.rq).field("spent", &self.spent.len()).finish_non_exhaustive()
    }
}

impl StridingQueue {
    /// Creates the queue, in RDY, with its buffers posted.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a card without striding receive queues (`striding_rq`), or without large receive
    /// offload (`lro_cap`) or real time (`rq_ts_format`) where that is asked for; [`Error::Invalid`] if
    /// the options exceed a capability; [`Error::Memory`], [`Error::Command`].
    pub fn new(pd: &Arc<Pd>, options: StridingOptions) -> Result<Self, Error> {
        Self::with(pd, options, CompletionQueue::create)
    }
}

impl StridingQueue<CompressedCompletionQueue> {
    /// As [`new`](StridingQueue::new), with compressed completions. A packet's timestamp is that of its block.
    ///
    /// # Errors
    /// As there; [`Error::Unsupported`] on a card that does not compress (`cqe_compression`), or not in this form.
    pub fn compressed(pd: &Arc<Pd>, options: StridingOptions, format: Compression) -> Result<Self, Error> {
        Self::with(pd, options, |uar, options| CompressedCompletionQueue::create(uar, options, format))
    }
}

impl<C: Receives> StridingQueue<C> {
    fn with(
        pd: &Arc<Pd>,
        options: StridingOptions,
        create: impl FnOnce(&Arc<Uar>, CqOptions) -> Result<C, Error>,
    ) -> Result<Self, Error> {
        let (strides, posted) = (options.strides, options.posted.max(1));
        let uar = Uar::alloc(pd.device())?;
        // A completion takes at least one stride.
        let entries = posted.next_power_of_two().saturating_mul(strides.count);
        let mut cq_options = CqOptions::default().entries(entries).vector(options.vector);
        cq_options.events = options.events;
        let cq = create(&uar, cq_options.beside(pd))?;
        let mut rq_options = RqOptions::default().wqes(posted).strides(strides);
        (rq_options.strip_vlan, rq_options.counter) = (options.strip_vlan, options.counter);
        rq_options.real_time = options.real_time;
        let rq = Rq::create(pd, cq.cq(), rq_options)?;
        cq.cq().close();
        let (joins, places) = (options.lro.is_some(), Box::new([Place::default(); MOST]));
        let tir = Tir::create_with(&TransportDomain::alloc(pd.device())?, &rq, options.lro)?;
        let count = posted.saturating_add(options.spare) as usize;
        let memory = BufferMemory::allocate(pd, strides, count)?;
        let slab = |index: usize| {
            let range = index * strides.buffer()..(index + 1) * strides.buffer();
            let bytes = memory.region.as_ptr(range.clone())?;
            Ok(Arc::new(Slab { bytes, element: memory.region.segment(range), _memory: Arc::clone(&memory) }))
        };
        let slabs = (0..count).map(slab).collect::<Result<Vec<_>, Error>>()?.into_boxed_slice();
        let spent = VecDeque::with_capacity(count);
        let mut queue = StridingQueue {
            listening: None,
            receive: None,
            tir,
            rq,
            cq,
            slabs,
            memory,
            joins,
            ahead: FramesAhead::NONE,
            places,
            left: Left::default(),
            spent,
            is_short: false,
        };
        queue.start()?;
        Ok(queue)
    }

    /// RST to RDY, with as many buffers posted as are free.
    fn start(&mut self) -> Result<(), Error> {
        self.rq.ready()?;
        let mut receive = self.rq.striding_receive_queue()?;
        if self.joins {
            receive.without_runs();
        }
        self.receive = Some(receive);
        self.spent.clear();
        self.spent.extend(0..self.slabs.len() as u32);
        self.refill();
        Ok(())
    }

    /// The card.
    pub fn device(&self) -> &Arc<Device> {
        self.rq.device()
    }

    /// The receive queue's object.
    pub fn rq(&self) -> &Arc<Rq> {
        &self.rq
    }

    /// The memory of its buffers.
    pub(super) fn memory(&self) -> &Arc<BufferMemory> {
        &self.memory
    }

    /// The TIR, as a destination of flow rules.
    pub fn tir(&self) -> &Arc<Tir> {
        &self.tir
    }

    /// As [`EthernetQueue::listen`](super::ethernet::EthernetQueue::listen).
    ///
    /// # Errors
    /// As there.
    pub fn listen(&mut self, groups: &[Mac]) -> Result<(), Error> {
        Listening::replace(&mut self.listening, groups, &self.tir)
    }

    /// As [`EthernetQueue::listen_to_all`](super::ethernet::EthernetQueue::listen_to_all).
    ///
    /// # Errors
    /// As there.
    pub fn listen_to_all(&mut self) -> Result<(), Error> {
        Listening::to_all(&mut self.listening, &self.tir)
    }

    /// As [`refill`](Self::refill), if there may be something to post.
    #[inline(always)]
    pub(super) fn refill_if_due(&mut self) {
        if self.is_short {
            self.refill();
        }
    }

    /// Posts the buffers that no packet holds, as far as the ring has room.
    #[inline(never)]
    fn refill(&mut self) {
        let Some(receive) = &mut self.receive else { return };
        for _ in 0..self.spent.len() {
            if !receive.has_room() {
                break;
            }
            let Some(index) = self.spent.pop_front() else { break };
            let Some(slab) = self.slabs.get_mut(index as usize) else { continue };
            let is_free = Arc::get_mut(slab).is_some() && self.memory.senders.is_free(index as usize);
            // SAFETY: `slab` is the only reference to these bytes, so no packet is in them, and no other is made before
            // their completion. The slabs, and with them the registered memory, stay until the queue is reset, or are
            // leaked.
            let posted = is_free && unsafe { receive.receive(index.into(), &slab.element) }.is_ok();
            if !posted {
                self.spent.push_back(index);
            }
        }
        self.is_short = receive.has_room() && !self.spent.is_empty();
        receive.ring();
    }

    /// The next frame; `None` if there is none.
    ///
    /// # Errors
    /// [`PacketError::Work`], [`PacketError::Retire`].
    #[inline(always)]
    pub fn poll(&mut self) -> Result<Option<Packet>, PacketError> {
        if self.left.frame.is_some() {
            hint::cold_path();
            return Ok(self.left.frame.take());
        }
        let mut next = None;
        self.poll_run(1, |packet| next = Some(packet));
        if next.is_some() { Ok(next) } else { self.poll_other() }
    }

    /// Appends the frames that are there to `packets`, at most `most`, and returns how many. Costs less than as many
    /// [polls](Self::poll). Allocates nothing where `packets` has room.
    ///
    /// # Errors
    /// As for [`poll`](Self::poll). The frames before it were appended.
    #[inline(always)]
    pub fn poll_into(&mut self, packets: &mut Vec<Packet>, most: usize) -> Result<usize, PacketError> {
        let before = packets.len();
        let end = before.saturating_add(most);
        if self.left.frame.is_some() && most != 0 {
            hint::cold_path();
            packets.extend(self.left.frame.take());
        }
        while packets.len() < end {
            self.poll_run(end - packets.len(), |packet| packets.push(packet));
            if packets.len() < end {
                let Some(packet) = self.poll_other()? else { break };
                packets.push(packet);
            }
        }
        Ok(packets.len() - before)
    }

    /// Passes to `keep` the next frames that a `Run` is for, at most `most`.
    #[inline(always)]
    fn poll_run(&mut self, most: usize, mut keep: impl FnMut(Packet)) {
        self.look_no_further();
        let Some((slab, oldest)) = oldest_of(&self.receive, &self.slabs) else { return };
        let (count, used) = self.cq.list(&mut self.places[..most.min(MOST)], oldest);
        if count == 0 {
            return;
        }
        for (index, place) in self.places.iter().take(count).enumerate() {
            let completion = self.cq.decode(index as u32);
            keep(Packet { slab: Arc::clone(slab), at: place.start, len: place.len, completion });
        }
        self.cq.pass(count as u32);
        if let Some(receive) = &mut self.receive {
            receive.end_run(used);
        }
    }

    /// Knows the next frames, if there may be some of which a `Run` is for. Nothing of what was lent before is still in
    /// use.
    #[inline(always)]
    pub(super) fn look_ahead(&mut self) {
        self.refill_if_due();
        if self.ahead.frames.is_over() {
            self.look_on();
        }
    }

    /// As [`look_ahead`](Self::look_ahead), behind those that are known.
    #[inline(never)]
    fn look_on(&mut self) {
        self.look_no_further();
        if self.left.frame.is_none() {
            self.ahead = self.ahead(usize::MAX);
        }
    }

    /// The next frames are not known any more, as others are taken.
    #[inline(always)]
    fn look_no_further(&mut self) {
        if self.ahead.is_known {
            self.forget_ahead();
        }
    }

    #[inline(never)]
    fn forget_ahead(&mut self) {
        if let Some(receive) = &mut self.receive {
            receive.end_run(self.ahead.frames.used(&self.places));
        }
        self.ahead = FramesAhead::NONE;
    }

    /// Address of the buffer of the frames that are known.
    #[inline(always)]
    pub(super) fn buffer_ahead(&self) -> usize {
        self.ahead.bytes.as_ptr() as usize
    }

    /// Whether there may be frames behind those that [`take_ahead`](Self::take_ahead) has taken.
    #[inline(always)]
    pub(super) fn may_have_others(&self) -> bool {
        !self.ahead.frames.awaits_next()
    }

    /// Takes the next frames that are known, at most `most`, as far as they are found with little and have these
    /// `lengths`. Passes them to `take`, each with its offset in the buffer. Returns how many there were.
    #[inline(always)]
    pub(super) fn take_ahead(
        &mut self,
        most: usize,
        lengths: Lengths,
        mut take: impl FnMut(usize, &mut [u8]),
    ) -> usize {
        let bytes = self.ahead.bytes;
        let count = self.ahead.frames.each(&self.places, most, lengths, |at, len| {
            // SAFETY: `Ahead` checked that the bytes lie in this buffer. They are taken once, and no other slice has
            // them: this one ends before the queue is used again.
            take(at, unsafe { lend((bytes.add(at), len as usize)) });
        });
        if count != 0 {
            self.cq.pass(count as u32);
        }
        count
    }

    /// As [`poll`](Self::poll), for whatever comes.
    #[inline(never)]
    fn poll_other(&mut self) -> Result<Option<Packet>, PacketError> {
        self.look_no_further();
        for _ in 0..MOST_SKIPPED {
            let Some(result) = self.cq.poll() else { break };
            let Some(receive) = &mut self.receive else { continue };
            let strided = receive.take(&result)?;
            let packet = self.slabs.get(strided.wr_id as usize).map(Arc::clone).zip(strided.packet);
            if strided.is_last {
                self.spent.push_back(strided.wr_id as u32);
                self.refill();
            }
            let completion = result?;
            if let Some((slab, bytes)) = packet {
                if let Some(joined) = completion.joined() {
                    slab.update_headers(&joined, &bytes);
                }
                return Ok(Some(Packet { slab, at: bytes.start as u32, len: bytes.len() as u32, completion }));
            }
        }
        self.refill_if_due();
        Ok(None)
    }

    /// Frames that are there, or come meanwhile, at most `most` and 64, each a slice. They are lent until the queue is
    /// used again, and may be changed: this costs less than [`Packet`]s, and tells nothing but their bytes. A burst
    /// ends with its buffer, with a lap of the completion queue, and with a block of compressed completions, so there
    /// may be more in the next one; so it does after the last frame of a buffer, and after each where completions are
    /// compressed in a form without stride index, or the card joins segments. If it is empty, there was none.
    ///
    /// Frames of a burst that are not taken come again.
    ///
    /// ```compile_fail,E0499
    /// fn two(queue: &mut mlx5_dv::queue::ethernet::StridingQueue) -> Option<(&mut [u8], &mut [u8])> {
    ///     let first = queue.burst(1).ok()?.next()?;
    ///     let second = queue.burst(1).ok()?.next()?; // `first` may be written again
    ///     Some((first, second))
    /// }
    /// ```
    ///
    /// # Errors
    /// As for [`poll`](Self::poll): that of the first completion. A later one ends the burst, and is the next one's.
    #[inline(always)]
    pub fn burst(&mut self, most: usize) -> Result<Burst<'_, C>, PacketError> {
        self.look_ahead();
        let FramesAhead { bytes, frames, .. } = &self.ahead;
        let (bytes, mut others) = (*bytes, frames.first(most.min(MOST)));
        let first = others.next(&self.places).map(|(at, len)| {
            // SAFETY: `Ahead` checked that the bytes lie in this buffer.
            (unsafe { bytes.add(at) }, len as usize)
        });
        let (first, others, taken) = match first {
            Some(first) => (Some(first), others, 1),
            None if frames.awaits_next() => (None, others, 0),
            None => (self.other(most)?, Ahead::NONE, 0),
        };
        let StridingQueue { cq, ahead, places, left, .. } = self;
        Ok(Burst { cq, ahead, left, first, bytes, others, places, taken })
    }

    /// Passes to `take` the frames that are there, at most `most`, which are lent to it and may be changed. Returns how
    /// many there were; fewer than `most` if there are no more. As [`burst`](Self::burst)s, and costs less.
    ///
    /// ```no_run
    /// # fn f(queue: &mut mlx5_dv::queue::ethernet::StridingQueue) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut bytes = 0;
    /// let count = queue.take_each(32, |frame| bytes += frame.len())?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`poll`](Self::poll). The frames before it were passed.
    #[inline(always)]
    pub fn take_each(&mut self, most: usize, mut take: impl FnMut(&mut [u8])) -> Result<usize, PacketError> {
        self.refill_if_due();
        let count = self.take_ahead(most, Lengths::ANY, |_, frame| take(frame));
        if count < most && self.may_have_others() {
            return self.take_others([most, count], take);
        }
        Ok(count)
    }

    /// As [`take_each`](Self::take_each), after `count` frames: whatever comes.
    // It adds to the count: if the caller did, each call would cost fourteen instructions more.
    #[inline(never)]
    fn take_others(
        &mut self,
        [most, mut count]: [usize; 2],
        mut take: impl FnMut(&mut [u8]),
    ) -> Result<usize, PacketError> {
        while count < most {
            let before = count;
            for frame in self.burst(most - count)? {
                take(frame);
                count += 1;
            }
            if count == before {
                break;
            }
        }
        Ok(count)
    }

    /// The next frames of the oldest buffer, at most `most`.
    #[inline(always)]
    fn ahead(&mut self, most: usize) -> FramesAhead<C::Ahead> {
        let Some((slab, oldest)) = oldest_of(&self.receive, &self.slabs) else { return FramesAhead::NONE };
        let frames = self.cq.ahead(&mut self.places, most, oldest);
        FramesAhead { bytes: slab.bytes, frames, is_known: true }
    }

    /// The next frame, which was left or of which no `Run` knows, if there is one: the first byte, and the length. It
    /// is kept until it is taken.
    #[cold]
    #[inline(never)]
    fn other(&mut self, most: usize) -> Result<Option<Lent>, PacketError> {
        if most != 0 && self.left.frame.is_none() {
            self.left.frame = self.poll_other()?;
        }
        let first = self.left.frame.as_ref().filter(|_| most != 0).map(Packet::bytes);
        self.left.is_lent = first.is_some();
        Ok(first)
    }

    /// Waits for the next frame: polls, then sleeps if [`StridingOptions::events`] is set.
    ///
    /// # Errors
    /// [`PacketError`]; waiting: [`Error::Timeout`] ([`Duration::MAX`] means no limit), [`Error::Dead`],
    /// [`Error::CompletionQueue`] if the completion queue overran.
    pub fn wait(&mut self, timeout: Duration) -> Result<Packet, PacketError> {
        let deadline = Deadline::after(self.cq.cq().clock(), timeout);
        loop {
            match self.poll()? {
                Some(packet) => return Ok(packet),
                None => self.cq.await_next(deadline.left().unwrap_or(Duration::MAX))?,
            }
        }
    }

    /// As [`poll`](Self::poll), but waits for a frame; for tasks of any executor. `readable` is that of
    /// [`CompletionQueue::ready`]. The queue needs [`StridingOptions::events`].
    ///
    /// # Errors
    /// [`PacketError`]; waiting: as [`CompletionQueue::ready`].
    pub async fn next(&mut self, mut readable: impl AsyncFnMut() -> io::Result<()>) -> Result<Packet, PacketError> {
        loop {
            if let Some(packet) = self.poll()? {
                return Ok(packet);
            }
            Receives::ready(&mut self.cq, &mut readable).await?;
        }
    }

    /// The eventfd that becomes readable at an event that [`next`](Self::next) or [`wait`](Self::wait) requested;
    /// `None` without [`StridingOptions::events`].
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.cq.fd()
    }

    /// Number of buffers that the card has.
    pub fn posted(&self) -> usize {
        self.slabs.len() - self.spent.len()
    }

    /// Restarts after an error: RST, then RDY. Frames that were not polled are discarded; packets stay valid. The
    /// addresses of [`listen`](Self::listen) stay.
    ///
    /// # Errors
    /// [`Error::Command`]: the reset can be tried again.
    pub fn reset(&mut self) -> Result<(), Error> {
        self.receive = None;
        (self.ahead, self.left) = (FramesAhead::NONE, Left::default());
        self.rq.reset()?;
        self.start()
    }
}

/// The oldest of the buffers; `None` if the card has none, or joins segments.
#[inline(always)]
fn oldest_of<'a>(
    receive: &'a Option<StridingReceiveQueue>,
    slabs: &'a [Arc<Slab>],
) -> Option<(&'a Arc<Slab>, Oldest<'a>)> {
    let (wr_id, oldest) = receive.as_ref()?.oldest();
    Some((slabs.get(wr_id as usize)?, oldest))
}

/// The next frames of the oldest buffer, as far as they are known, from one burst to the next. None while there is a
/// frame that was left.
struct FramesAhead<A> {
    /// First byte of the buffer.
    bytes: NonNull<u8>,
    frames: A,
    /// Whether they are known. The receive queue is not told how many strides are used until they are not any more.
    is_known: bool,
}

// SAFETY: buffer and completions are those of the queue that has it, with which it is sent.
unsafe impl<A: Ahead> Send for FramesAhead<A> {}

impl<A: Ahead> FramesAhead<A> {
    const NONE: Self = FramesAhead { bytes: NonNull::dangling(), frames: A::NONE, is_known: false };
}

/// First byte and length of a frame that is lent.
type Lent = (NonNull<u8>, usize);

/// The next frame, if its completion was polled for a burst that has not taken it.
#[derive(Debug, Default)]
struct Left {
    frame: Option<Packet>,
    /// Whether the last burst has it.
    is_lent: bool,
}

impl Left {
    /// The last burst has taken it, if it had it.
    #[cold]
    #[inline(never)]
    fn is_taken(&mut self) {
        if self.is_lent {
            self.frame = None;
        }
    }
}

/// Frames of a [`StridingQueue`]: see [`StridingQueue::burst`].
pub struct Burst<'a, C: Receives> {
    cq: &'a mut C,
    ahead: &'a mut FramesAhead<C::Ahead>,
    left: &'a mut Left,
    /// The next frame, if it is known already: it may be in another buffer than the others.
    first: Option<Lent>,
    /// Buffer of the others.
    bytes: NonNull<u8>,
    others: C::Ahead,
    places: &'a [Place; MOST],
    /// How many frames of this buffer were taken, with the first one if that is of them.
    taken: u32,
}

impl<C: Receives> fmt::Debug for Burst<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Burst").field("left", &self.len()).finish_non_exhaustive()
    }
}

impl<'a, C: Receives> Burst<'a, C> {
    /// Number of frames that are left. More may come meanwhile, so it is counted anew at each call.
    pub fn len(&self) -> usize {
        let mut others = self.others.clone();
        usize::from(self.first.is_some()) + iter::from_fn(|| others.next(self.places)).count()
    }

    /// Address of the buffer of all frames but perhaps the first one.
    #[inline(always)]
    pub(super) fn buffer(&self) -> usize {
        self.bytes.as_ptr() as usize
    }

    /// Takes the next frames, at most `most`, as far as their lengths are among `lengths`, and passes each to
    /// `take`. Returns how many there were. It may end before others, which [`next`](Self::next) takes, as it does the
    /// first one.
    #[inline(always)]
    pub(super) fn take_each(&mut self, most: usize, lengths: Lengths, mut take: impl FnMut(&'a mut [u8])) -> usize {
        if self.first.is_some() {
            return 0;
        }
        let bytes = self.bytes;
        let count = self.others.each(self.places, most, lengths, |at, len| {
            // SAFETY: `Ahead` checked that the bytes lie in this buffer. They are taken once.
            take(unsafe { lend((bytes.add(at), len as usize)) });
        });
        self.taken += count as u32;
        count
    }

    /// Whether none is left, and none comes any more.
    #[inline(always)]
    pub(super) fn is_over(&self) -> bool {
        self.first.is_none() && self.others.is_over()
    }

    /// Whether none is left. More may come meanwhile.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.first.is_none() && self.others.clone().next(self.places).is_none()
    }
}

impl<'a, C: Receives> Iterator for Burst<'a, C> {
    type Item = &'a mut [u8];

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let next = match self.first.take() {
            Some(first) => first,
            None => {
                let (at, len) = self.others.next(self.places)?;
                self.taken += 1;
                // SAFETY: `Ahead` checked that the bytes lie in this buffer.
                (unsafe { self.bytes.add(at) }, len as usize)
            }
        };
        // SAFETY: `burst` or `Ahead` found it, and it is taken once.
        Some(unsafe { lend(next) })
    }
}

impl<C: Receives> Drop for Burst<'_, C> {
    /// Those that are left come again.
    #[inline(always)]
    fn drop(&mut self) {
        // No other was taken before the first one.
        if self.first.is_some() {
            return;
        }
        if self.left.frame.is_some() {
            self.left.is_taken();
        }
        // Of those that are known.
        if self.taken != 0 {
            self.ahead.frames.go_on(&self.others, self.taken);
            self.cq.pass(self.taken);
        }
    }
}

/// # Safety
/// The bytes are those of a completion of the queue that is borrowed for 'a, checked to lie in its slab. No other slice
/// has them.
#[inline(always)]
unsafe fn lend<'a>((bytes, len): Lent) -> &'a mut [u8] {
    // SAFETY: the slab is mapped as long as the queue. The card has completed these strides, and only `&mut
    // StridingQueue` posts the slab again, which is borrowed for 'a. No completion names strides that another has
    // named. See also `Packet::deref`.
    unsafe { slice::from_raw_parts_mut(bytes.as_ptr(), len) }
}

event_source!(StridingQueue<C>, C: Receives; cq);

impl<C: Receives> Drop for StridingQueue<C> {
    fn drop(&mut self) {
        self.receive = None;
        // The card may write the buffers until the queue is reset. A dead card cannot: its DMA was stopped before its
        // death became known.
        if let Err(error) = self.rq.reset()
            && !error.frees_memory()
        {
            tracing::error!(%error, "a striding receive queue could not be reset; its buffers are leaked");
            std::mem::forget(std::mem::take(&mut self.slabs));
        }
    }
}
