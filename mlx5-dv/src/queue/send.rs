//! Posting to a send queue.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use mlx5_prm::wqe::{
    AtomicSeg, CompletionMode, CtrlSeg, DataSeg, Fence, InlineSegHeader, RaddrSeg, SEGMENT, WQEBB, WqeOpcode,
};
use uar::{SendDoorbell, SendRecord, Wqebb, barrier};

use super::doorbell::{AnyDoorbell, Leased};
use super::error::{Full, PostError, RetireError};
use super::work::{Side, Work};
use super::{DataSegment, MAX_ELEMENT, RemoteAddress, WrFlags};
use crate::caps::Caps;
use crate::objects::{LetsSendRing, QueuePair, SendPermit};

/// Bytes of the number that an atomic is about.
const ATOMIC: u32 = 8;
/// Bytes of the header of inline data.
const INLINE_HEADER: usize = size_of::<InlineSegHeader>();

/// What is remembered of the work request that started last at a WQEBB.
#[derive(Debug, Clone, Copy)]
struct Slot {
    /// The user's word for it.
    wr_id: u64,
    /// Where the next one starts. Not beyond the oldest WQEBB in flight, if it is of an earlier lap.
    end: u32,
}

/// What a send queue was made for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SendLimits {
    /// Scatter/gather elements of a work request.
    pub sges: u16,
    /// Bytes of inline data of a work request.
    pub inline_bytes: u16,
    /// log2 of the bytes of a message.
    pub log_max_msg: u8,
}

/// The ring as plain numbers: one cache line.
///
/// Indices count WQEBBs, modulo 2^32; the card knows their low 16 bits. What lies from `retired` to `producer` is with the card:
/// never more than the ring has, which is 2^15 at most.
pub(super) struct SendRing {
    base: NonNull<u8>,
    /// The queue's number as it stands in the first eight bytes of each WQE.
    number: u64,
    record: SendRecord,
    /// One a WQEBB.
    slots: Box<[Slot]>,
    /// WQEBBs less one.
    mask: u32,
    producer: u32,
    /// Where the oldest work request starts that is with the card, if one is.
    retired: u32,
    qpn: u32,
    /// Bytes of the longest element or message; 0 where there may be no element.
    pub(super) longest: u32,
    sges: u16,
    inline_bytes: u16,
}

const _: () = assert!(size_of::<SendRing>() <= 64, "the hot fields have outgrown a cache line");

// SAFETY: the ring belongs to this value alone; its memory is kept mapped by the promise of `new`.
unsafe impl Send for SendRing {}

impl SendRing {
    /// The ring of `1 << log_size` WQEBBs at `base`, for queue pair `qpn`.
    ///
    /// # Safety
    /// The ring's bytes are mapped until this value is gone, `base` is aligned to 64, and this process accesses them
    /// through this value alone. `log_size` is at most 15.
    pub(super) unsafe fn new(
        base: NonNull<u8>,
        log_size: u32,
        qpn: u32,
        limits: SendLimits,
        record: SendRecord,
    ) -> Self {
        let capacity = 1 << log_size;
        let qpn = qpn & 0xff_ffff;
        let mut control = CtrlSeg::ZERO;
        control.w().qp_or_sq(qpn);
        let [number, _]: [u64; 2] = zerocopy::transmute!(control);
        let longest = (1u32 << limits.log_max_msg.min(31)).min(MAX_ELEMENT);
        SendRing {
            base,
            number,
            record,
            slots: vec![Slot { wr_id: 0, end: 0 }; capacity as usize].into(),
            mask: capacity - 1,
            producer: 0,
            retired: 0,
            qpn,
            longest: if limits.sges == 0 { 0 } else { longest },
            sges: limits.sges,
            inline_bytes: limits.inline_bytes,
        }
    }

    /// Bytes of the ring.
    #[inline(always)]
    fn bytes(&self) -> usize {
        self.capacity() * WQEBB
    }

    /// Where WQEBB `index` lies.
    #[inline(always)]
    fn offset(&self, index: u32) -> usize {
        (index & self.mask) as usize * WQEBB
    }

    /// Where segment number `segment` of the WQE that starts at WQEBB `index` lies: a multiple of 16 inside of the ring.
    #[inline(always)]
    fn place(&self, index: u32, segment: usize) -> usize {
        let place = self.offset(index) + segment * SEGMENT;
        // The first block never wraps.
        if segment < WQEBB / SEGMENT { place } else { place & (self.bytes() - 1) }
    }

    /// Stores segment number `segment` of the WQE that starts at WQEBB `index`.
    #[inline(always)]
    pub(super) fn store(&mut self, index: u32, segment: usize, [first, second]: [u64; 2]) {
        // SAFETY: the 16 bytes lie inside of the ring, aligned; nobody in this process has a reference to them (`blocks` ends
        // before `&mut self` can be had again).
        unsafe {
            let place = self.base.add(self.place(index, segment)).cast::<u64>();
            place.write(first);
            place.add(1).write(second);
        }
    }

    /// Stores the header of inline data at the start of segment `segment` of the WQE that starts at WQEBB `index`.
    #[inline(always)]
    fn store_header(&mut self, index: u32, segment: usize, header: [u8; INLINE_HEADER]) {
        // SAFETY: a segment lies inside of the ring; nobody in this process has a reference to it.
        unsafe { self.base.add(self.place(index, segment)).cast().write(header) }
    }

    /// Stores `data` from byte `at` of segment `segment` on, of the WQE that starts at WQEBB `index`.
    #[inline(always)]
    pub(super) fn store_bytes(&mut self, index: u32, segment: usize, at: usize, data: &[u8]) {
        let first = self.place(index, segment) + at % SEGMENT;
        // SAFETY: a byte of a segment lies inside of the ring, and so does what is copied there: as a whole, or as much as there
        // is room for and the rest from the ring's start on. Nobody in this process has a reference to it, and no data is
        // longer than the ring: `segments` has been asked, and room found for them.
        unsafe {
            if first + data.len() <= self.bytes() {
                self.base.add(first).copy_from_nonoverlapping(NonNull::from(data).cast(), data.len());
            } else {
                copy_around(self.base, first, self.bytes(), data);
            }
        }
    }

    /// The blocks of the WQE that starts at `index`, where they lie in one piece; else none.
    #[inline(always)]
    fn blocks(&self, index: u32, wqebbs: u32) -> &[Wqebb] {
        let (start, count) = (self.offset(index), wqebbs as usize);
        // One never wraps.
        let count = if count > 1 && start + count * WQEBB > self.bytes() { 0 } else { count };
        // SAFETY: the blocks lie inside of the ring and are aligned; only `&mut self` stores to them, and the card only
        // reads them.
        unsafe { slice::from_raw_parts(self.base.add(start).cast().as_ptr(), count) }
    }

    /// WQEBBs that are with the card.
    #[inline(always)]
    pub(super) fn in_flight(&self) -> u32 {
        self.producer.wrapping_sub(self.retired)
    }

    /// WQEBBs of the ring.
    #[inline(always)]
    pub(super) fn capacity(&self) -> usize {
        self.mask as usize + 1
    }

    /// What is remembered of WQEBB `index`.
    #[inline(always)]
    fn slot(&mut self, index: u32) -> &mut Slot {
        // SAFETY: there is a slot for each WQEBB, and the mask is their number less one: both are set in `new` alone.
        unsafe { self.slots.get_unchecked_mut((index & self.mask) as usize) }
    }

    /// See [`SendQueue::retire`].
    #[inline(always)]
    pub(super) fn retire(&mut self, work: &Work) -> Result<u64, RetireError> {
        if work.side != Side::Send || work.qpn != self.qpn {
            return Err(RetireError::OtherQueue { work: *work, side: Side::Send, qpn: self.qpn });
        }
        let slot = *self.slot(work.index.into());
        // WQEBBs that this frees: none, or more than there are, where no work request in flight starts; and those before it,
        // unless the index is of another lap.
        let freed = slot.end.wrapping_sub(self.retired);
        let before = work.index.wrapping_sub(self.retired as u16);
        if freed > self.in_flight() || freed <= before.into() {
            let (first, end) = (self.retired as u16, self.producer as u16);
            return Err(RetireError::NotInFlight { work: *work, first, end });
        }
        self.retired = slot.end;
        Ok(slot.wr_id)
    }
}

/// A send queue of a queue pair in RTS, used by one thread: not `Sync`, `&mut self` throughout. `D` is how it rings.
///
/// Work requests go in batches, each rung for once:
///
/// ```no_run
/// # fn f(sq: &mut mlx5_dv::queue::SendQueue) -> Result<(), mlx5_dv::queue::PostError> {
/// use mlx5_dv::queue::WrFlags;
/// let mut batch = sq.batch();
/// batch.send_inline(1, WrFlags::empty(), b"first")?;
/// batch.send_inline(2, WrFlags::SIGNALLED, b"second")?;
/// batch.ring();
/// # Ok(())
/// # }
/// ```
///
/// There is one batch at a time:
///
/// ```compile_fail,E0499
/// fn two(sq: &mut mlx5_dv::queue::SendQueue) {
///     let first = sq.batch();
///     let second = sq.batch(); // `first` still borrows the queue
///     first.ring();
///     second.ring();
/// }
/// ```
///
/// and no two threads share a queue:
///
/// ```compile_fail,E0277
/// fn is_sync<T: Sync>() {}
/// is_sync::<mlx5_dv::queue::SendQueue>();
/// ```
pub struct SendQueue<D: SendDoorbell = AnyDoorbell, S: Service = Messages> {
    ring: SendRing,
    service: S,
    doorbell: Leased<D>,
    /// Keeps the ring. Last, so that it goes last.
    object: Arc<S::Object>,
    /// Makes the queue not `Sync`.
    _one_thread: PhantomData<Cell<()>>,
}

/// What a send queue sends, and so what its batches offer: [`Messages`], [`Datagrams`](super::Datagrams) or
/// [`Frames`](super::ethernet::Frames).
pub trait Service: Send {
    /// What has the ring.
    type Object: LetsSendRing;
}

/// SENDs, RDMA, atomics and what else a connected queue pair does.
#[derive(Debug, Clone, Copy)]
pub struct Messages {
    /// Whether the card has atomics.
    atomics: bool,
}

impl Messages {
    pub(crate) fn new(caps: &Caps) -> Self {
        Messages { atomics: caps.check_atomics().is_ok() }
    }
}

impl Service for Messages {
    type Object = QueuePair;
}

impl<D: SendDoorbell, S: Service> fmt::Debug for SendQueue<D, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendQueue")
            .field("number", &self.ring.qpn)
            .field("producer", &(self.ring.producer as u16))
            .field("retired", &(self.ring.retired as u16))
            .finish_non_exhaustive()
    }
}

impl<D: SendDoorbell, S: Service<Object = QueuePair>> SendQueue<D, S> {
    /// The queue of `qp`, whose send ring `permit` is of.
    pub(crate) fn new(service: S, permit: SendPermit, doorbell: Leased<D>, qp: Arc<QueuePair>) -> Self {
        let place = permit.use_up();
        // SAFETY: the permit says that the ring and the record are as large as it says, mapped as long as `qp`, which the queue
        // keeps and drops last, and that nobody else posts there. Of the record this queue uses the send half.
        let ring = unsafe {
            let (_, record) = uar::record::queue_pair(place.record);
            SendRing::new(place.ring, place.log_size, qp.qpn(), place.limits, record)
        };
        SendQueue::of(ring, service, doorbell, qp)
    }

    /// The queue pair.
    pub fn queue_pair(&self) -> &Arc<QueuePair> {
        &self.object
    }
}

impl<D: SendDoorbell, S: Service> SendQueue<D, S> {
    /// The queue of `object`, whose ring `ring` is.
    pub(super) fn of(ring: SendRing, service: S, doorbell: Leased<D>, object: Arc<S::Object>) -> Self {
        SendQueue { ring, service, doorbell, object, _one_thread: PhantomData }
    }

    pub(super) fn object(&self) -> &Arc<S::Object> {
        &self.object
    }

    /// Begins a batch. Dropped without [`ring`](SendBatch::ring), it never happened.
    #[inline(always)]
    pub fn batch(&mut self) -> SendBatch<'_, D, S> {
        SendBatch::new(&mut self.ring, &self.service, self.doorbell.get())
    }

    /// Says that `work`, from a completion, is done, and so is all posted before it: their room is free again. The `wr_id`
    /// it was posted with.
    ///
    /// Every completion of this queue must come here, errors included, or its room is lost.
    ///
    /// # Errors
    /// [`RetireError`] for a completion of another queue or of nothing in flight. Nothing changes.
    #[inline]
    pub fn retire(&mut self, work: &Work) -> Result<u64, RetireError> {
        self.ring.retire(work)
    }

    /// WQEBBs that are free. A work request takes one for each 64 bytes of its WQE.
    pub fn free(&self) -> usize {
        self.capacity() - self.ring.in_flight() as usize
    }

    /// WQEBBs of the ring.
    pub fn capacity(&self) -> usize {
        self.ring.capacity()
    }
}

impl<D: SendDoorbell, S: Service> Drop for SendQueue<D, S> {
    fn drop(&mut self) {
        self.object.send_queue_came_home();
    }
}

/// Work requests that are written, and not yet shown to the card.
///
/// Errors leave the batch as it was: nothing of the refused work request is written.
#[must_use = "a batch that is not rung never happened"]
pub struct SendBatch<'a, D: SendDoorbell, S: Service = Messages> {
    ring: &'a mut SendRing,
    pub(super) service: &'a S,
    doorbell: &'a mut D,
    /// Where the first WQE starts.
    first: u32,
    /// Where the next one starts.
    next: u32,
    /// Where there is no more room.
    end: u32,
    /// WQEBBs of the last one; 0 if there is none.
    last: u16,
    /// Its first eight bytes, as they stand there.
    control: u64,
    /// How many were posted.
    posted: u32,
}

impl<D: SendDoorbell, S: Service> fmt::Debug for SendBatch<'_, D, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendBatch").field("posted", &self.posted).field("next", &self.next).finish_non_exhaustive()
    }
}

/// What all work requests have.
#[derive(Clone, Copy)]
pub(super) struct Request {
    pub(super) opcode: WqeOpcode,
    pub(super) wr_id: u64,
    pub(super) flags: WrFlags,
    pub(super) imm: u32,
}

/// What lies between the control segment of a work request and its data.
pub(super) trait Head {
    /// How many segments it takes.
    fn segments(&self) -> usize;
    /// Why `bytes` of data must not follow it.
    #[inline(always)]
    fn check(&self, bytes: u64) -> Result<(), PostError> {
        let _ = bytes;
        Ok(())
    }
    /// Stores its segments, from number 1 on, of the WQE that starts at WQEBB `index`.
    fn store(&self, ring: &mut SendRing, index: u32);
}

/// Nothing.
impl Head for () {
    #[inline(always)]
    fn segments(&self) -> usize {
        0
    }

    #[inline(always)]
    fn store(&self, _: &mut SendRing, _: u32) {}
}

/// `[ raddr | rkey ]`.
impl Head for RemoteAddress {
    #[inline(always)]
    fn segments(&self) -> usize {
        1
    }

    #[inline(always)]
    fn store(&self, ring: &mut SendRing, index: u32) {
        let mut segment = RaddrSeg::ZERO;
        segment.w().raddr(self.addr).rkey(self.rkey);
        ring.store(index, 1, zerocopy::transmute!(segment));
    }
}

/// What an atomic is carried out on, and with: `[ raddr | rkey ] [ swap_add | compare ]`.
struct Atomic {
    remote: RemoteAddress,
    swap_add: u64,
    compare: u64,
}

impl Head for Atomic {
    #[inline(always)]
    fn segments(&self) -> usize {
        self.remote.segments() + 1
    }

    #[inline(always)]
    fn store(&self, ring: &mut SendRing, index: u32) {
        self.remote.store(ring, index);
        let mut segment = AtomicSeg::ZERO;
        segment.w().swap_add(self.swap_add).compare(self.compare);
        ring.store(index, 1 + self.remote.segments(), zerocopy::transmute!(segment));
    }
}

/// The data of a work request.
trait Payload {
    /// Bytes that are not in the WQE.
    fn bytes(&self) -> u64;
    /// How many segments it takes, or why it cannot be posted.
    fn segments(&self, ring: &SendRing) -> Result<usize, PostError>;
    /// Stores its segments from number `at` on, of the WQE that starts at WQEBB `index`.
    fn store(&self, ring: &mut SendRing, index: u32, at: usize);
}

/// Memory the card gathers from or scatters to: `[ byte_count (31) | lkey | address ]` an element. Elements of no bytes are
/// left out, since the card reads a count of zero as 2^31.
struct Elements<'a>(&'a [DataSegment]);

impl Elements<'_> {
    #[inline(always)]
    fn segment(element: &DataSegment) -> [u64; 2] {
        let mut segment = DataSeg::ZERO;
        segment.w().byte_count(element.len).lkey(element.lkey).addr(element.addr);
        zerocopy::transmute!(segment)
    }
}

impl Payload for Elements<'_> {
    #[inline(always)]
    fn bytes(&self) -> u64 {
        self.0.iter().map(|element| u64::from(element.len)).sum()
    }

    #[inline(always)]
    fn segments(&self, ring: &SendRing) -> Result<usize, PostError> {
        if self.0.len() > usize::from(ring.sges) {
            return Err(PostError::TooManySges { given: self.0.len(), most: ring.sges.into() });
        }
        let (given, most) = (self.bytes(), ring.longest.into());
        if given > most {
            return Err(PostError::MessageTooLong { given, most });
        }
        Ok(self.0.iter().filter(|element| element.len != 0).count())
    }

    #[inline(always)]
    fn store(&self, ring: &mut SendRing, index: u32, at: usize) {
        for (i, element) in self.0.iter().filter(|element| element.len != 0).enumerate() {
            ring.store(index, at + i, Elements::segment(element));
        }
    }
}

/// One element of a length that was looked at, as most work requests have it: the compiler knows where its segment goes.
struct One<'a>(&'a DataSegment);

impl Payload for One<'_> {
    #[inline(always)]
    fn bytes(&self) -> u64 {
        self.0.len.into()
    }

    #[inline(always)]
    fn segments(&self, _: &SendRing) -> Result<usize, PostError> {
        Ok(1)
    }

    #[inline(always)]
    fn store(&self, ring: &mut SendRing, index: u32, at: usize) {
        ring.store(index, at, Elements::segment(self.0));
    }
}

/// Data in the WQE itself: `[ 1 | byte_count (10) ]` and the bytes. What is left of their last segment stays as it was.
struct Inline<'a>(&'a [u8]);

impl Payload for Inline<'_> {
    #[inline(always)]
    fn bytes(&self) -> u64 {
        0
    }

    #[inline(always)]
    fn segments(&self, ring: &SendRing) -> Result<usize, PostError> {
        if self.0.len() > usize::from(ring.inline_bytes) {
            return Err(PostError::InlineTooLong { given: self.0.len(), most: ring.inline_bytes.into() });
        }
        Ok(if self.0.is_empty() { 0 } else { (INLINE_HEADER + self.0.len()).div_ceil(SEGMENT) })
    }

    #[inline(always)]
    fn store(&self, ring: &mut SendRing, index: u32, at: usize) {
        if self.0.is_empty() {
            return;
        }
        let mut header = InlineSegHeader::default();
        // Checked by `segments` to be at most `inline_bytes`, which the queue's creation bounds to ten bits.
        header.w().byte_count(self.0.len() as u16);
        let header: [u8; INLINE_HEADER] = zerocopy::transmute!(header);
        ring.store_header(index, at, header);
        ring.store_bytes(index, at, INLINE_HEADER, self.0);
    }
}

impl SendRing {
    /// Writes one WQE at WQEBB `index`, where there is room for it. Its first eight bytes, as they stand there.
    ///
    /// ```text
    /// segment 0   control: opmod | wqe_index | opcode, qpn | ds, flags, immediate
    /// segment 1.. head
    /// then        data segments, or inline header and data
    /// ```
    /// Four segments fill a WQEBB; the next WQE starts at the next WQEBB.
    #[inline(always)]
    fn write(&mut self, index: u32, size: Size, request: Request, head: impl Head, payload: impl Payload) -> u64 {
        let [first, second]: [u64; 2] = zerocopy::transmute!(control(index as u16, size.segments, request));
        let first = first | self.number;
        self.store(index, 0, [first, second]);
        head.store(self, index);
        payload.store(self, index, 1 + head.segments());
        *self.slot(index) = Slot { wr_id: request.wr_id, end: index.wrapping_add(size.wqebbs.into()) };
        first
    }
}

/// Copies `data` to `start` of the `end` bytes at `base`, and what does not fit there to `base`.
///
/// # Safety
/// `start` is at most `end`; the bytes may be written, and are none of `data`, which is no longer than they.
#[cold]
#[inline(never)]
unsafe fn copy_around(base: NonNull<u8>, start: usize, end: usize, data: &[u8]) {
    let (first, rest) = data.split_at(end - start);
    // SAFETY: by the caller's promise.
    unsafe {
        base.add(start).copy_from_nonoverlapping(NonNull::from(first).cast(), first.len());
        base.copy_from_nonoverlapping(NonNull::from(rest).cast(), rest.len());
    }
}

/// A message of one element of `len` bytes, in a queue where not all from 1 to `longest` are to be had: `Ok` where it has no
/// data.
#[cold]
#[inline(never)]
fn has_no_data(len: u32, longest: u32) -> Result<(), PostError> {
    match (len, longest) {
        (_, 0) => Err(PostError::TooManySges { given: 1, most: 0 }),
        (0, _) => Ok(()),
        _ => Err(PostError::MessageTooLong { given: len.into(), most: longest.into() }),
    }
}

/// How long a WQE is.
#[derive(Clone, Copy)]
struct Size {
    segments: usize,
    wqebbs: u16,
}

impl<'a, D: SendDoorbell, S: Service> SendBatch<'a, D, S> {
    /// An empty batch.
    #[inline(always)]
    fn new(ring: &'a mut SendRing, service: &'a S, doorbell: &'a mut D) -> Self {
        let next = ring.producer;
        let end = ring.retired.wrapping_add(ring.mask + 1);
        SendBatch { ring, service, doorbell, first: next, next, end, last: 0, control: 0, posted: 0 }
    }

    /// Writes one WQE of `head` and `elements` behind the batch's others.
    #[inline(always)]
    pub(super) fn post_elements(
        &mut self,
        request: Request,
        head: impl Head,
        elements: &[DataSegment],
    ) -> Result<(), PostError> {
        match elements {
            // From 1 to the longest, in one comparison.
            [one] if one.len.wrapping_sub(1) < self.ring.longest => self.post(request, head, One(one)),
            _ => self.post(request, head, Elements(elements)),
        }
    }

    /// Writes one WQE of `head` and `data` behind the batch's others.
    #[inline(always)]
    pub(super) fn post_inline(&mut self, request: Request, head: impl Head, data: &[u8]) -> Result<(), PostError> {
        self.post(request, head, Inline(data))
    }

    #[inline(always)]
    fn post(&mut self, request: Request, head: impl Head, payload: impl Payload) -> Result<(), PostError> {
        head.check(payload.bytes())?;
        let segments = 1 + head.segments() + payload.segments(self.ring)?;
        let size = Size { segments, wqebbs: segments.div_ceil(WQEBB / SEGMENT) as u16 };
        if self.end.wrapping_sub(self.next) < size.wqebbs.into() {
            return Err(Full.into());
        }
        self.control = self.ring.write(self.next, size, request, head, payload);
        self.last = size.wqebbs;
        self.next = self.next.wrapping_add(size.wqebbs.into());
        self.posted += 1;
        Ok(())
    }

    /// How many work requests the batch holds.
    pub fn len(&self) -> usize {
        self.posted as usize
    }

    /// Whether it holds none.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.last == 0
    }

    /// Shows the batch to the card: doorbell record, then one doorbell. An empty batch rings for nothing.
    #[inline(always)]
    pub fn ring(self) {
        if self.is_empty() {
            return;
        }
        let wqebbs = self.next.wrapping_sub(self.first);
        self.ring.producer = self.next;
        barrier::to_device();
        self.ring.record.post(self.next as u16);
        let control = u64::from_be(self.control);
        match wqebbs {
            // What most are, so that a doorbell that copies need not ask how many.
            1 => self.doorbell.ring_with(control, self.ring.blocks(self.first, 1)),
            _ if wqebbs == u32::from(self.last) => {
                self.doorbell.ring_with(control, self.ring.blocks(self.first, wqebbs))
            }
            _ => self.doorbell.ring(control),
        }
    }
}

impl<D: SendDoorbell> SendBatch<'_, D> {
    /// As [`post_elements`](Self::post_elements). A single element without bytes goes its own way, so that whoever posts single
    /// elements alone has no code for lists: it would cost a lone post an eighth more, by instructions.
    #[inline(always)]
    fn post_message(&mut self, request: Request, head: impl Head, elements: &[DataSegment]) -> Result<(), PostError> {
        match elements {
            [one] if one.len.wrapping_sub(1) >= self.ring.longest => {
                has_no_data(one.len, self.ring.longest)?;
                self.post_inline(request, head, &[])
            }
            _ => self.post_elements(request, head, elements),
        }
    }

    /// Nothing, but a completion if it is signalled. For flushing and testing.
    #[inline]
    pub fn nop(&mut self, wr_id: u64, flags: WrFlags) -> Result<(), PostError> {
        self.post_inline(Request { opcode: WqeOpcode::Nop, wr_id, flags, imm: 0 }, (), &[])
    }

    /// SEND of `data`, copied into the WQE: it can be reused at once. Errors: [`PostError`].
    #[inline]
    pub fn send_inline(&mut self, wr_id: u64, flags: WrFlags, data: &[u8]) -> Result<(), PostError> {
        self.post_inline(Request { opcode: WqeOpcode::Send, wr_id, flags, imm: 0 }, (), data)
    }

    /// As [`send_inline`](Self::send_inline), with an immediate.
    #[inline]
    pub fn send_imm_inline(&mut self, wr_id: u64, flags: WrFlags, imm: u32, data: &[u8]) -> Result<(), PostError> {
        self.post_inline(Request { opcode: WqeOpcode::SendImm, wr_id, flags, imm }, (), data)
    }

    /// RDMA WRITE of `data`, copied into the WQE, to `remote`. Errors: [`PostError`].
    #[inline]
    pub fn write_inline(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        remote: RemoteAddress,
        data: &[u8],
    ) -> Result<(), PostError> {
        self.post_inline(Request { opcode: WqeOpcode::RdmaWrite, wr_id, flags, imm: 0 }, remote, data)
    }

    /// As [`write_inline`](Self::write_inline), with an immediate that completes a receive there.
    #[inline]
    pub fn write_imm_inline(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        remote: RemoteAddress,
        imm: u32,
        data: &[u8],
    ) -> Result<(), PostError> {
        self.post_inline(Request { opcode: WqeOpcode::RdmaWriteImm, wr_id, flags, imm }, remote, data)
    }

    /// SEND of `elements`, in their order. Errors: [`PostError`].
    ///
    /// # Safety
    /// Until the work request has completed, or its queue pair was reset or destroyed, each element's memory stays
    /// registered under its key and is not written by this process.
    #[inline]
    pub unsafe fn send(&mut self, wr_id: u64, flags: WrFlags, elements: &[DataSegment]) -> Result<(), PostError> {
        self.post_message(Request { opcode: WqeOpcode::Send, wr_id, flags, imm: 0 }, (), elements)
    }

    /// As [`send`](Self::send), with an immediate.
    ///
    /// # Safety
    /// As for [`send`](Self::send).
    #[inline]
    pub unsafe fn send_imm(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        imm: u32,
        elements: &[DataSegment],
    ) -> Result<(), PostError> {
        self.post_message(Request { opcode: WqeOpcode::SendImm, wr_id, flags, imm }, (), elements)
    }

    /// RDMA WRITE of `elements`, in their order, to `remote`. Errors: [`PostError`].
    ///
    /// # Safety
    /// As for [`send`](Self::send).
    #[inline]
    pub unsafe fn write(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        remote: RemoteAddress,
        elements: &[DataSegment],
    ) -> Result<(), PostError> {
        self.post_message(Request { opcode: WqeOpcode::RdmaWrite, wr_id, flags, imm: 0 }, remote, elements)
    }

    /// As [`write`](Self::write), with an immediate that completes a receive there.
    ///
    /// # Safety
    /// As for [`send`](Self::send).
    #[inline]
    pub unsafe fn write_imm(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        remote: RemoteAddress,
        imm: u32,
        elements: &[DataSegment],
    ) -> Result<(), PostError> {
        self.post_message(Request { opcode: WqeOpcode::RdmaWriteImm, wr_id, flags, imm }, remote, elements)
    }

    /// RDMA READ from `remote` into `elements`, in their order. Errors: [`PostError`].
    ///
    /// # Safety
    /// Until the work request has completed, or its queue pair was reset or destroyed, each element's memory stays
    /// registered under its key, and nothing in this process holds a reference to it or relies on what it contains.
    #[inline]
    pub unsafe fn read(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        remote: RemoteAddress,
        elements: &[DataSegment],
    ) -> Result<(), PostError> {
        self.post_message(Request { opcode: WqeOpcode::RdmaRead, wr_id, flags, imm: 0 }, remote, elements)
    }

    /// ATOMIC compare and swap: the number at `remote` becomes `swap` if it is `compare`. What it was before comes into
    /// `element`. Atomics of all queue pairs of the remote's card see each other whole; what else is done to the number, by
    /// its host or by RDMA, may come between their reading and their writing.
    ///
    /// Both numbers have eight bytes in the byte order of their host, and `remote` must be a multiple of eight: otherwise the
    /// remote refuses the work request, whose queue pair goes to ERR. Errors: [`PostError`].
    ///
    /// # Safety
    /// As for [`read`](Self::read).
    #[inline]
    pub unsafe fn compare_swap(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        remote: RemoteAddress,
        compare: u64,
        swap: u64,
        element: DataSegment,
    ) -> Result<(), PostError> {
        let request = Request { opcode: WqeOpcode::AtomicCs, wr_id, flags, imm: 0 };
        self.post_atomic(request, Atomic { remote, swap_add: swap, compare }, element)
    }

    /// ATOMIC fetch and add: `add` is added to the number at `remote`, modulo 2^64. What it was before comes into `element`.
    /// All else is as with [`compare_swap`](Self::compare_swap).
    ///
    /// # Safety
    /// As for [`read`](Self::read).
    #[inline]
    pub unsafe fn fetch_add(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        remote: RemoteAddress,
        add: u64,
        element: DataSegment,
    ) -> Result<(), PostError> {
        let request = Request { opcode: WqeOpcode::AtomicFa, wr_id, flags, imm: 0 };
        self.post_atomic(request, Atomic { remote, swap_add: add, compare: 0 }, element)
    }

    #[inline(always)]
    fn post_atomic(&mut self, request: Request, head: Atomic, element: DataSegment) -> Result<(), PostError> {
        if !self.service.atomics {
            return Err(PostError::NoAtomics);
        }
        if element.len != ATOMIC {
            return Err(PostError::AtomicLength { given: element.len });
        }
        self.post_message(request, head, &[element])
    }
}

/// The control segment of a WQE, but for the queue's number. PRM "Control Segment".
#[inline(always)]
fn control(index: u16, segments: usize, request: Request) -> CtrlSeg {
    let flag = |flag| request.flags.contains(flag);
    let mut control = CtrlSeg::ZERO;
    control
        .w()
        .wqe_index(index)
        .opcode(request.opcode)
        // Six bits by the limits that the queue's creation checks.
        .ds(segments as u8 & 0x3f)
        .fm(if flag(WrFlags::FENCE) { Fence::Fence } else { Fence::None })
        .ce(if flag(WrFlags::SIGNALLED) { CompletionMode::Always } else { CompletionMode::OnError })
        .se(flag(WrFlags::SOLICITED))
        .imm(request.imm);
    control
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::fake::Memory;
    use mlx5_prm::layout::Layout;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    const QPN: u32 = 0x43;

    /// Counts rings, remembers the last.
    #[derive(Debug, Default)]
    struct Bell {
        rings: u32,
        control: u64,
        carried: usize,
    }

    impl SendDoorbell for Bell {
        fn ring(&mut self, control: u64) {
            (self.rings, self.control, self.carried) = (self.rings + 1, control, 0);
        }
        fn ring_with(&mut self, control: u64, wqe: &[Wqebb]) {
            assert!(wqe.is_empty() || u64::from_be(wqe[0][0]) == control);
            (self.rings, self.control, self.carried) = (self.rings + 1, control, wqe.len());
        }
    }

    struct Queue {
        ring: SendRing,
        service: Messages,
        bell: Bell,
        memory: Memory,
        bytes: usize,
    }

    impl Queue {
        fn new(log_size: u32) -> Queue {
            let bytes = WQEBB << log_size;
            let memory = Memory::new(bytes + 64);
            memory.fill(0, bytes, 0xa5);
            let limits = SendLimits { sges: 6, inline_bytes: 200, log_max_msg: 30 };
            // SAFETY: both lie in `memory`, which lives as long as the ring (fields drop in their order).
            let ring = unsafe {
                let (_, record) = uar::record::queue_pair(memory.at(bytes));
                SendRing::new(memory.at(0), log_size, QPN, limits, record)
            };
            Queue { ring, service: Messages { atomics: true }, bell: Bell::default(), memory, bytes }
        }

        fn batch(&mut self) -> SendBatch<'_, Bell> {
            SendBatch::new(&mut self.ring, &self.service, &mut self.bell)
        }

        /// As if the WQEBBs before `index` had come and gone.
        fn starts_at(&mut self, index: u16) {
            (self.ring.producer, self.ring.retired) = (index.into(), index.into());
        }

        fn record(&self) -> u32 {
            self.memory.be32(self.bytes + 4)
        }

        /// `len` bytes of the WQE at WQEBB `index`, around the ring's end.
        fn wqe(&self, index: u16, len: usize) -> Vec<u8> {
            let start = self.ring.offset(index.into());
            (0..len).map(|i| self.memory.read((start + i) % self.bytes, 1)[0]).collect()
        }

        fn done(&mut self, index: u16) -> Result<u64, RetireError> {
            self.ring.retire(&Work { qpn: QPN, side: Side::Send, index })
        }
    }

    fn element(len: u32) -> DataSegment {
        DataSegment { addr: 0x1122_3344_5566_7788, len, lkey: 0xaabb_ccdd }
    }

    const REMOTE: RemoteAddress = RemoteAddress { addr: 0x99aa, rkey: 0x77 };

    #[test]
    fn a_write_is_control_remote_address_and_data() {
        let mut queue = Queue::new(2);
        let mut batch = queue.batch();
        // SAFETY: no card reads this ring.
        unsafe { batch.write_imm(9, WrFlags::SIGNALLED | WrFlags::SOLICITED, REMOTE, 0xcafe, &[element(64)]) }.unwrap();
        batch.ring();
        let wqe = queue.wqe(0, 48);
        let control = CtrlSeg::read(&wqe).unwrap();
        assert_eq!((control.opcode(), control.qp_or_sq(), control.ds()), (WqeOpcode::RdmaWriteImm, QPN, 3));
        assert_eq!((control.ce(), control.se(), control.fm()), (CompletionMode::Always, true, Fence::None));
        assert_eq!((control.wqe_index(), control.imm()), (0, 0xcafe));
        let remote = RaddrSeg::read(&wqe[16..]).unwrap();
        assert_eq!((remote.raddr(), remote.rkey()), (0x99aa, 0x77));
        let data = DataSeg::read(&wqe[32..]).unwrap();
        assert_eq!((data.byte_count(), data.lkey(), data.addr()), (64, 0xaabb_ccdd, 0x1122_3344_5566_7788));
        assert_eq!((queue.record(), queue.bell.rings, queue.bell.carried), (1, 1, 1));
        assert_eq!(queue.bell.control.to_be_bytes(), wqe[..8]);
    }

    #[test]
    fn an_atomic_is_control_remote_address_operands_and_data() {
        let mut queue = Queue::new(2);
        let mut batch = queue.batch();
        // SAFETY: no card reads this ring.
        unsafe {
            batch.compare_swap(1, WrFlags::SIGNALLED, REMOTE, 0x0102_0304_0506_0708, u64::MAX - 1, element(8)).unwrap();
            batch.fetch_add(2, WrFlags::FENCE, REMOTE, 7, element(8)).unwrap();
        }
        batch.ring();
        for (index, opcode, swap_add, compare) in
            [(0, WqeOpcode::AtomicCs, u64::MAX - 1, 0x0102_0304_0506_0708), (1, WqeOpcode::AtomicFa, 7, 0)]
        {
            let wqe = queue.wqe(index, 64);
            let control = CtrlSeg::read(&wqe).unwrap();
            assert_eq!((control.opcode(), control.ds(), control.wqe_index()), (opcode, 4, index));
            let remote = RaddrSeg::read(&wqe[16..]).unwrap();
            assert_eq!((remote.raddr(), remote.rkey()), (0x99aa, 0x77));
            let operands = AtomicSeg::read(&wqe[32..]).unwrap();
            assert_eq!((operands.swap_add(), operands.compare()), (swap_add, compare));
            let data = DataSeg::read(&wqe[48..]).unwrap();
            assert_eq!((data.byte_count(), data.lkey(), data.addr()), (8, 0xaabb_ccdd, 0x1122_3344_5566_7788));
        }
        assert_eq!((queue.record(), queue.done(0), queue.done(1)), (2, Ok(1), Ok(2)));
    }

    #[test]
    fn an_atomic_is_of_eight_bytes_on_a_card_that_has_them() {
        let mut queue = Queue::new(2);
        let mut batch = queue.batch();
        for given in [0, 4, 16] {
            // SAFETY: no card reads this ring.
            let posted = unsafe { batch.fetch_add(1, WrFlags::SIGNALLED, REMOTE, 1, element(given)) };
            assert_eq!(posted, Err(PostError::AtomicLength { given }));
        }
        assert!(batch.is_empty());
        queue.service.atomics = false;
        let mut batch = queue.batch();
        // SAFETY: no card reads this ring.
        let posted = unsafe { batch.compare_swap(1, WrFlags::SIGNALLED, REMOTE, 0, 1, element(8)) };
        assert_eq!(posted, Err(PostError::NoAtomics));
        assert!(batch.is_empty());
    }

    #[test]
    fn an_unsignalled_send_completes_on_error_only_and_a_fence_is_a_fence() {
        let mut queue = Queue::new(2);
        let mut batch = queue.batch();
        // SAFETY: no card reads this ring.
        unsafe { batch.send(9, WrFlags::FENCE, &[element(1)]) }.unwrap();
        batch.ring();
        let control = CtrlSeg::read(&queue.wqe(0, 16)).unwrap();
        assert_eq!((control.ce(), control.fm(), control.se()), (CompletionMode::OnError, Fence::Fence, false));
    }

    #[test]
    fn inline_data_lies_behind_its_header_and_wraps_with_the_ring() {
        for len in [1, 11, 12, 13, 28, 29, 100, 200] {
            let mut queue = Queue::new(3);
            queue.starts_at(6);
            let data: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let mut batch = queue.batch();
            batch.send_inline(1, WrFlags::SIGNALLED, &data).unwrap();
            batch.ring();
            let wqe = queue.wqe(6, 16 + 4 + len);
            assert_eq!(usize::from(CtrlSeg::read(&wqe).unwrap().ds()), 1 + (4 + len).div_ceil(16));
            assert_eq!(wqe[16..20], (1u32 << 31 | len as u32).to_be_bytes());
            assert_eq!(wqe[20..], data);
            assert_eq!(queue.done(6), Ok(1));
        }
    }

    #[test]
    fn elements_of_no_bytes_are_left_out() {
        let mut queue = Queue::new(2);
        let mut batch = queue.batch();
        // SAFETY: no card reads this ring.
        unsafe { batch.send(1, WrFlags::SIGNALLED, &[element(0), element(5), element(0)]) }.unwrap();
        batch.send_inline(2, WrFlags::SIGNALLED, &[]).unwrap();
        batch.ring();
        assert_eq!(CtrlSeg::read(&queue.wqe(0, 16)).unwrap().ds(), 2);
        assert_eq!(CtrlSeg::read(&queue.wqe(1, 16)).unwrap().ds(), 1);
    }

    #[test]
    fn a_lone_element_is_of_one_byte_at_least_and_of_the_longest_message_at_most() {
        let mut queue = Queue::new(2);
        let mut batch = queue.batch();
        // SAFETY: no card reads this ring.
        unsafe {
            batch.write(1, WrFlags::SIGNALLED, REMOTE, &[element(0)]).unwrap();
            batch.write(2, WrFlags::SIGNALLED, REMOTE, &[element(1 << 30)]).unwrap();
            let refused = PostError::MessageTooLong { given: (1 << 30) + 1, most: 1 << 30 };
            assert_eq!(batch.write(3, WrFlags::SIGNALLED, REMOTE, &[element((1 << 30) + 1)]), Err(refused));
        }
        batch.ring();
        assert_eq!((CtrlSeg::read(&queue.wqe(0, 16)).unwrap().ds(), queue.record()), (2, 2));
        let data = DataSeg::read(&queue.wqe(1, 48)[32..]).unwrap();
        assert_eq!((data.byte_count(), data.lkey()), (1 << 30, 0xaabb_ccdd));
        assert_eq!((queue.done(0), queue.done(1)), (Ok(1), Ok(2)));
    }

    #[test]
    fn a_queue_without_elements_takes_none() {
        let mut queue = Queue::new(2);
        (queue.ring.sges, queue.ring.longest) = (0, 0);
        let mut batch = queue.batch();
        // SAFETY: no card reads this ring.
        let posted = unsafe { [0, 1].map(|len| batch.send(1, WrFlags::SIGNALLED, &[element(len)])) };
        assert_eq!(posted, [Err(PostError::TooManySges { given: 1, most: 0 }); 2]);
        assert!(batch.is_empty());
    }

    #[test]
    fn a_batch_rings_once_and_an_empty_one_not_at_all() {
        let mut queue = Queue::new(3);
        queue.batch().ring();
        assert_eq!((queue.bell.rings, queue.record()), (0, 0));
        let mut batch = queue.batch();
        (0..5).for_each(|i| batch.nop(i, WrFlags::empty()).unwrap());
        assert_eq!(batch.len(), 5);
        batch.ring();
        assert_eq!((queue.bell.rings, queue.record(), queue.bell.carried), (1, 5, 0));
        assert_eq!(queue.bell.control >> 40 & 0xffff, 4, "the doorbell names the last WQE");
    }

    #[test]
    fn an_unrung_batch_never_happened() {
        let mut queue = Queue::new(2);
        let mut batch = queue.batch();
        (0..4).for_each(|i| batch.nop(i, WrFlags::SIGNALLED).unwrap());
        assert_eq!(batch.nop(4, WrFlags::SIGNALLED), Err(Full.into()));
        // Not rung.
        assert_eq!((queue.record(), queue.bell.rings, queue.ring.in_flight()), (0, 0, 0));
        assert!(matches!(queue.done(0), Err(RetireError::NotInFlight { .. })));
        let mut batch = queue.batch();
        batch.nop(7, WrFlags::SIGNALLED).unwrap();
        batch.ring();
        assert_eq!(queue.done(0), Ok(7));
    }

    #[test]
    fn what_cannot_be_posted_leaves_no_trace() {
        let mut queue = Queue::new(2);
        let untouched = queue.wqe(0, 256);
        let mut batch = queue.batch();
        let long = [element(1 << 30), element(1)];
        assert_eq!(
            batch.send_inline(1, WrFlags::empty(), &[0; 201]),
            Err(PostError::InlineTooLong { given: 201, most: 200 })
        );
        // SAFETY: no card reads this ring.
        unsafe {
            let seven = [element(1); 7];
            assert_eq!(batch.send(1, WrFlags::empty(), &seven), Err(PostError::TooManySges { given: 7, most: 6 }));
            let refused = PostError::MessageTooLong { given: (1 << 30) + 1, most: 1 << 30 };
            assert_eq!(batch.send(1, WrFlags::empty(), &long), Err(refused));
        }
        assert!(batch.is_empty());
        batch.ring();
        assert_eq!(queue.wqe(0, 256), untouched);
    }

    #[test]
    fn a_signalled_completion_frees_the_unsignalled_work_before_it() {
        let mut queue = Queue::new(2);
        let mut batch = queue.batch();
        for i in 0..4 {
            batch.nop(i, if i == 2 { WrFlags::SIGNALLED } else { WrFlags::empty() }).unwrap();
        }
        batch.ring();
        assert_eq!(queue.done(2), Ok(2));
        assert_eq!(queue.ring.in_flight(), 1);
    }

    #[test]
    fn completions_that_fit_nothing_are_refused() {
        let mut queue = Queue::new(2);
        let mut batch = queue.batch();
        batch.send_inline(5, WrFlags::SIGNALLED, &[1; 100]).unwrap();
        batch.ring();
        assert!(matches!(queue.done(1), Err(RetireError::NotInFlight { .. })), "the middle of a WQE");
        assert!(matches!(queue.done(2), Err(RetireError::NotInFlight { .. })), "never posted");
        assert!(matches!(queue.done(0xffff), Err(RetireError::NotInFlight { .. })), "long ago");
        for work in
            [Work { qpn: QPN + 1, side: Side::Send, index: 0 }, Work { qpn: QPN, side: Side::Receive, index: 0 }]
        {
            assert!(matches!(queue.ring.retire(&work), Err(RetireError::OtherQueue { .. })));
        }
        assert_eq!(queue.done(0), Ok(5));
        assert!(matches!(queue.done(0), Err(RetireError::NotInFlight { .. })), "said twice");
    }

    #[test]
    fn the_hot_fields_fit_in_two_cache_lines() {
        assert!(size_of::<SendRing>() <= 64, "{}", size_of::<SendRing>());
        assert!(size_of::<SendQueue<uar::Plain>>() <= 128, "{}", size_of::<SendQueue<uar::Plain>>());
    }

    proptest! {
        /// Against a model of a queue that is a list: room, wr_ids and the doorbell record always agree, over many laps.
        #[test]
        fn the_ring_is_a_queue(
            log_size in 0u32..6,
            start in any::<u16>(),
            steps in prop::collection::vec((0usize..160, any::<bool>(), any::<bool>(), any::<bool>()), 1..200),
        ) {
            let mut queue = Queue::new(log_size);
            queue.starts_at(start);
            let capacity = 1usize << log_size;
            // (wr_id, index, WQEBBs, signalled), oldest first.
            let mut model: VecDeque<(u64, u16, usize, bool)> = VecDeque::new();
            let mut next_index = start;
            for (wr_id, (len, signalled, ring, retire)) in steps.into_iter().enumerate() {
                let blocks = (1 + if len == 0 { 0 } else { (4 + len).div_ceil(16) }).div_ceil(4);
                let used: usize = model.iter().map(|entry| entry.2).sum();
                let flags = if signalled { WrFlags::SIGNALLED } else { WrFlags::empty() };
                let mut batch = queue.batch();
                let posted = batch.send_inline(wr_id as u64, flags, &vec![0; len]);
                prop_assert_eq!(posted.is_ok(), used + blocks <= capacity);
                if ring && posted.is_ok() {
                    batch.ring();
                    model.push_back((wr_id as u64, next_index, blocks, signalled));
                    next_index = next_index.wrapping_add(blocks as u16);
                    prop_assert_eq!(queue.record(), u32::from(next_index));
                }
                if retire && let Some(at) = model.iter().position(|entry| entry.3) {
                    let (wr_id, index, ..) = model[at];
                    prop_assert_eq!(queue.done(index), Ok(wr_id));
                    model.drain(..=at);
                }
                let used: usize = model.iter().map(|entry| entry.2).sum();
                prop_assert_eq!(queue.ring.in_flight() as usize, used);
            }
        }
    }
}
