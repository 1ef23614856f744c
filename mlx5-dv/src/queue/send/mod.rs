//! Send queues and their batches.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::{fmt, hint};

use mlx5_prm::wqe::WqeOpcode;
use uar::{SendDoorbell, barrier};

use crate::memory::DataSegment;
use crate::objects::{AnyDoorbell, DoorbellKind, Leased, OfOwner, QueuePair, SendPermit, SendRingOwner};
use crate::queue::completion::decode::Work;
use crate::queue::error::{Full, PostError, RetireError};

pub(super) mod addressed;
mod aso;
pub(super) mod connected;
pub(super) mod datagram;
pub(super) mod dynamic;
pub(super) mod ethernet;
pub(super) mod extended;
mod large;
pub(super) mod masked;
pub(super) mod multi_packet;
mod ring;
pub(super) mod service;
mod tunnel;
pub(super) mod umr;
mod window;
pub(super) mod wqe;

#[cfg(test)]
mod tests;

use ring::SendRing;
use service::{Messages, Service, UnreliableMessages};
use wqe::{Elements, Head, Inline, InlineParts, One, Payload, Request, Size, WrFlags};

/// A send queue of a queue pair in RTS. Used by one thread: not `Sync`, and all methods take `&mut self`. `D` is the
/// doorbell mode.
///
/// Work requests are posted in batches, with one doorbell each:
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
/// Only one batch exists at a time:
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
/// and threads cannot share a queue:
///
/// ```compile_fail,E0277
/// fn is_sync<T: Sync>() {}
/// is_sync::<mlx5_dv::queue::SendQueue>();
/// ```
pub struct SendQueue<D: SendDoorbell = AnyDoorbell, S: Service = Messages> {
    ring: SendRing,
    service: S,
    doorbell: Leased<D>,
    /// Keeps the ring mapped. Last, so that it is dropped last.
    object: Arc<S::Object>,
    /// Makes the queue `!Sync`.
    _one_thread: PhantomData<Cell<()>>,
}

/// The send queue of an unreliable connection, for SENDs and RDMA WRITEs.
pub type UnreliableSendQueue<D = AnyDoorbell> = SendQueue<D, UnreliableMessages>;

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
    /// The send queue of `qp`, whose ring is leased by `permit`.
    pub(crate) fn new(service: S, permit: SendPermit, doorbell: Leased<D>, qp: Arc<QueuePair>) -> Self {
        let parts = permit.into_parts();
        // SAFETY: the permit states the size of ring and record and grants exclusive posting; they are mapped as long
        // as `qp`, which the queue keeps and drops last. This queue uses the send half of the record.
        let ring = unsafe {
            let (_, record) = uar::record::queue_pair(parts.record);
            SendRing::new(parts.ring, parts.log_size, qp.qpn(), parts.limits, record)
        };
        SendQueue::of(ring, service, doorbell, qp)
    }

    /// The queue pair.
    pub fn queue_pair(&self) -> &Arc<QueuePair> {
        &self.object
    }
}

impl<S: Service> SendQueue<AnyDoorbell, S> {
    /// How it rings its doorbell.
    pub fn doorbell_kind(&self) -> DoorbellKind {
        self.doorbell.kind()
    }
}

impl<S: Service> SendQueue<OfOwner, S> {
    /// Starts a batch that rings by `doorbell`, which is of the UAR page of the queue's object.
    #[inline(always)]
    pub(in crate::queue) fn batch_by<'a, D: SendDoorbell>(&'a mut self, doorbell: &'a mut D) -> SendBatch<'a, D, S> {
        SendBatch::new(&mut self.ring, &self.service, doorbell)
    }
}

impl<D: SendDoorbell, S: Service> SendQueue<D, S> {
    /// The queue of `object` with the ring `ring`.
    pub(super) fn of(ring: SendRing, service: S, doorbell: Leased<D>, object: Arc<S::Object>) -> Self {
        SendQueue { ring, service, doorbell, object, _one_thread: PhantomData }
    }

    pub(super) fn object(&self) -> &Arc<S::Object> {
        &self.object
    }

    /// Starts a batch. A batch dropped without [`ring`](SendBatch::ring) has no effect.
    #[inline(always)]
    pub fn batch(&mut self) -> SendBatch<'_, D, S> {
        SendBatch::new(&mut self.ring, &self.service, self.doorbell.get())
    }

    /// Retires the work request of a completion, and all posted before it: frees their WQEs. Returns its `wr_id`.
    ///
    /// Every completion of this queue must be passed here, errors included; otherwise its WQEs are never freed.
    ///
    /// # Errors
    /// [`RetireError`] for a completion of another queue, or of nothing in flight. Nothing changes.
    #[inline]
    pub fn retire(&mut self, work: &Work) -> Result<u64, RetireError> {
        let (wr_id, end) = self.ring.completed(work)?;
        self.ring.free_to(end, S::SPANS);
        Ok(wr_id)
    }

    /// As [`retire`](Self::retire), if `take` returns something for its `wr_id`; otherwise nothing changes.
    #[inline(always)]
    pub(super) fn retire_if<T>(&mut self, work: &Work, take: impl FnOnce(u64) -> Option<T>) -> Option<T> {
        let (wr_id, end) = self.ring.completed(work).ok()?;
        let taken = take(wr_id)?;
        self.ring.free_to(end, S::SPANS);
        Some(taken)
    }

    /// Index of the oldest WQE that is not retired.
    pub(super) fn retired(&self) -> u32 {
        self.ring.retired
    }

    /// Number of free WQEBBs. A work request takes one per 64 bytes of its WQE.
    pub fn free(&self) -> usize {
        self.capacity() - self.ring.in_flight() as usize
    }

    /// Number of WQEBBs of the ring.
    pub fn capacity(&self) -> usize {
        self.ring.capacity()
    }
}

impl<D: SendDoorbell, S: Service> Drop for SendQueue<D, S> {
    fn drop(&mut self) {
        self.object.release_send_ring();
    }
}

/// Cold path: an element of length 0, or above `longest`. `Ok` for length 0.
#[cold]
#[inline(never)]
fn has_no_data(len: u32, longest: u32) -> Result<(), PostError> {
    if len == 0 && longest != 0 { Ok(()) } else { Err(beyond(len, longest)) }
}

/// Why an element of `len` bytes, which are 0 or above `longest`, cannot be posted.
#[cold]
#[inline(never)]
fn beyond(len: u32, longest: u32) -> PostError {
    match longest {
        0 => PostError::TooManySges { given: 1, most: 0 },
        _ => PostError::MessageTooLong { given: len.into(), most: longest.into() },
    }
}

/// In the place of the length of a WQE that is not copied to the card, though it be posted alone: that of no batch.
const NOT_COPIED: u16 = u16::MAX;

/// A batch of work requests, before its doorbell.
///
/// After an error the batch is unchanged: nothing of the rejected work request reaches the card.
#[must_use = "a batch that is not rung never happened"]
pub struct SendBatch<'a, D: SendDoorbell, S: Service = Messages> {
    ring: &'a mut SendRing,
    pub(super) service: &'a S,
    doorbell: &'a mut D,
    /// Index of the first WQE.
    first: u32,
    /// Index of the next WQE.
    next: u32,
    /// The first index without room; of a service that [spans](Service::SPANS) WQEBBs, no later than the ring's end.
    end: u32,
    /// WQEBBs of the last WQE, or [`NOT_COPIED`]; 0 if the batch is empty.
    last: u16,
    /// First eight bytes of the last WQE, as in memory.
    control: u64,
    /// Number of work requests posted.
    posted: u32,
    /// What flow rules match of frames: see [`flow_metadata`](Self::flow_metadata).
    metadata: u32,
}

impl<D: SendDoorbell, S: Service> fmt::Debug for SendBatch<'_, D, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendBatch").field("posted", &self.posted).field("next", &self.next).finish_non_exhaustive()
    }
}

impl<'a, D: SendDoorbell, S: Service> SendBatch<'a, D, S> {
    /// An empty batch.
    #[inline(always)]
    fn new(ring: &'a mut SendRing, service: &'a S, doorbell: &'a mut D) -> Self {
        let next = ring.producer;
        let end = if S::SPANS { ring.straight } else { ring.end() };
        SendBatch { ring, service, doorbell, first: next, next, end, last: 0, control: 0, posted: 0, metadata: 0 }
    }

    /// NOP: does nothing, but completes if signalled. For flushing and testing. Errors: [`PostError`].
    #[inline]
    pub fn nop(&mut self, wr_id: u64, flags: WrFlags) -> Result<(), PostError> {
        self.post_inline(Request { opcode: WqeOpcode::Nop, wr_id, flags, imm: 0 }, (), &[])
    }

    /// Posts a WQE with `head` and `elements`.
    #[inline(always)]
    fn post_elements(&mut self, request: Request, head: impl Head, elements: &[DataSegment]) -> Result<(), PostError> {
        match elements {
            // Not empty and not too long, in one comparison.
            [one] if one.len.wrapping_sub(1) < self.ring.longest => self.post(request, head, One(one)),
            _ => self.post(request, head, Elements(elements)),
        }
    }

    /// Posts a WQE with `head` and one element, which is not empty.
    #[inline(always)]
    fn post_one(&mut self, request: Request, head: impl Head, element: &DataSegment) -> Result<(), PostError> {
        if element.len > self.ring.longest {
            return Err(beyond(element.len, self.ring.longest));
        }
        self.post(request, head, One(element))
    }

    /// As [`post_elements`](Self::post_elements). Handles a single empty element separately, so that code that posts
    /// single elements does not contain the code for lists: that would cost an eighth more instructions per post.
    #[inline(always)]
    fn post_message(&mut self, request: Request, head: impl Head, elements: &[DataSegment]) -> Result<(), PostError> {
        match elements {
            [one] if one.len.wrapping_sub(1) >= self.ring.longest => {
                has_no_data(one.len, self.ring.longest)?;
                self.post(request, head, ())
            }
            _ => self.post_elements(request, head, elements),
        }
    }

    /// Posts a WQE with `head` and inline `data`.
    #[inline(always)]
    fn post_inline(&mut self, request: Request, head: impl Head, data: &[u8]) -> Result<(), PostError> {
        self.post(request, head, Inline(data))
    }

    /// As [`post_inline`](Self::post_inline), with all `parts`, one after the other.
    #[inline(always)]
    fn post_inline_all(&mut self, request: Request, head: impl Head, parts: &[&[u8]]) -> Result<(), PostError> {
        self.post(request, head, InlineParts(parts))
    }

    #[inline(always)]
    fn post(&mut self, request: Request, head: impl Head, payload: impl Payload) -> Result<(), PostError> {
        head.check(payload.bytes())?;
        self.post_checked(request, head, payload)
    }

    /// As [`post`](Self::post), where `head` can be followed by that payload.
    #[inline(always)]
    fn post_checked<H: Head, P: Payload>(&mut self, request: Request, head: H, payload: P) -> Result<(), PostError> {
        let segments = 1 + head.segments() + payload.segments(self.ring)?;
        if S::SPANS && (H::LONG || P::LONG) {
            return self.post_spanning_long(Size::of(segments), request, head, payload);
        }
        if S::SPANS {
            return self.post_spanning(Size::of(segments), request, head, payload);
        }
        let size = self.size(segments)?;
        let control = self.ring.write(self.next, size, request, head, payload);
        self.add(size, control);
        Ok(())
    }

    /// The size of a WQE of `segments` segments, if there is room for it.
    #[inline(always)]
    fn size(&self, segments: usize) -> Result<Size, Full> {
        let size = Size::of(segments);
        if self.end.wrapping_sub(self.next) < size.wqebbs.into() { Err(Full) } else { Ok(size) }
    }

    /// As [`post_checked`](Self::post_checked), of a service that spans WQEBBs: whether there is room and whether the
    /// WQE wraps is one comparison.
    #[inline(always)]
    fn post_spanning(
        &mut self,
        size: Size,
        request: Request,
        head: impl Head,
        payload: impl Payload,
    ) -> Result<(), PostError> {
        let control = if self.is_straight(size) {
            self.ring.write_straight(self.next, size, request, head, payload)
        } else {
            hint::cold_path();
            if self.ring.end().wrapping_sub(self.next) < size.wqebbs.into() {
                return Err(Full.into());
            }
            self.end = self.ring.straight_from(self.next.wrapping_add(size.wqebbs.into()));
            self.ring.write(self.next, size, request, head, payload)
        };
        self.add(size, control);
        Ok(())
    }

    /// As [`post_spanning`](Self::post_spanning), of a WQE that is long: one that may wrap is written by a call.
    #[inline(always)]
    fn post_spanning_long(
        &mut self,
        size: Size,
        request: Request,
        head: impl Head,
        payload: impl Payload,
    ) -> Result<(), PostError> {
        let control = if self.is_straight(size) {
            self.ring.write_straight(self.next, size, request, head, payload)
        } else {
            let (end, control) = self.ring.write_beyond(self.next, size, request, head, payload).ok_or(Full)?;
            self.end = end;
            control
        };
        self.add(size, control);
        Ok(())
    }

    /// Of a service that spans WQEBBs: whether the next WQE, of `size`, is known to have room and not to wrap.
    #[inline(always)]
    fn is_straight(&self, size: Size) -> bool {
        // Signed: one instruction less than to compare what is left with the length.
        self.end.wrapping_sub(self.next.wrapping_add(size.wqebbs.into())) as i32 >= 0
    }

    /// Adds the WQE of `size` that was written at `next`, and begins with `control`.
    #[inline(always)]
    fn add(&mut self, size: Size, control: u64) {
        self.control = control;
        self.last = size.wqebbs;
        self.next = self.next.wrapping_add(size.wqebbs.into());
        self.posted += 1;
    }

    /// Adds `count` WQEs, which were written up to index `next`; the last one has `wqebbs` WQEBBs, and begins with
    /// `control`.
    #[inline(always)]
    fn add_several(&mut self, count: u32, next: u32, wqebbs: u16, control: u64) {
        (self.control, self.last, self.next) = (control, wqebbs, next);
        self.posted += count;
    }

    /// Number of work requests in the batch.
    pub fn len(&self) -> usize {
        self.posted as usize
    }

    /// Index of the next WQE.
    #[inline(always)]
    pub(in crate::queue) fn next_index(&self) -> u32 {
        self.next
    }

    /// Whether the batch is empty.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.last == 0
    }

    /// Hands the batch to the card: doorbell record, then one doorbell. An empty batch does nothing.
    #[inline(always)]
    pub fn ring(self) {
        if self.is_empty() {
            return;
        }
        let wqebbs = self.next.wrapping_sub(self.first);
        self.ring.producer = self.next;
        if S::SPANS {
            self.ring.straight = self.end;
        }
        barrier::to_device();
        self.ring.record.post(self.next as u16);
        let control = u64::from_be(self.control);
        if self.doorbell.ring_without(control) {
            return;
        }
        // One work request that may be copied.
        if wqebbs == u32::from(self.last) {
            self.doorbell.ring_with(control, self.ring.blocks(self.first, wqebbs));
        } else {
            self.doorbell.ring(control);
        }
    }
}
