//! Receive queues.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use uar::{ReceiveRecord, barrier};

use crate::memory::DataSegment;
use crate::objects::{QueuePair, ReceivePermit, ReceiveRingOwner};
use crate::queue::completion::decode::{Side, Work};
use crate::queue::error::{Full, PostError, RetireError};

pub(super) mod ethernet;
pub(super) mod shared;
pub(super) mod striding;
mod wqe;

use wqe::Wqes;

/// The ring's fields: one cache line.
///
/// Indices count WQEs; the card knows their low 16 bits. WQEs from `retired` to `producer` are in flight: never more
/// than the ring has, at most 2^15.
pub(super) struct ReceiveRing {
    wqes: Wqes,
    record: ReceiveRecord,
    wr_ids: Box<[u64]>,
    /// Number of WQEs minus one.
    mask: u32,
    producer: u32,
    /// Index of the oldest receive in flight, if any.
    retired: u32,
    qpn: u32,
}

const _: () = assert!(size_of::<ReceiveRing>() <= 64, "the hot fields have outgrown a cache line");

// SAFETY: only this value uses the ring; `new`'s contract keeps its memory mapped.
unsafe impl Send for ReceiveRing {}

impl ReceiveRing {
    /// A ring of `1 << log_size` WQEs of `1 << log_stride` bytes at `base`, for queue pair `qpn`.
    ///
    /// # Safety
    /// The ring's bytes stay mapped while this value lives, `base` is aligned to 16, and this process accesses them
    /// only through this value. `log_size` is at most 15, `log_stride` at least 4.
    pub(super) unsafe fn new(
        base: NonNull<u8>,
        log_size: u32,
        log_stride: u32,
        sges: u16,
        qpn: u32,
        record: ReceiveRecord,
    ) -> Self {
        let capacity = 1 << log_size;
        ReceiveRing {
            wqes: Wqes::new(base, log_stride, 0, sges),
            record,
            wr_ids: vec![0; capacity as usize].into(),
            mask: capacity - 1,
            producer: 0,
            retired: 0,
            qpn: qpn & 0xff_ffff,
        }
    }

    /// Number of receives in flight.
    #[inline(always)]
    pub(super) fn in_flight(&self) -> u16 {
        self.producer.wrapping_sub(self.retired) as u16
    }

    /// Number of receives that the ring holds.
    pub(super) fn capacity(&self) -> usize {
        self.mask as usize + 1
    }

    /// Starts a batch.
    #[inline(always)]
    pub(super) fn batch(&mut self) -> ReceiveBatch<'_> {
        let first = self.producer;
        let end = self.retired.wrapping_add(self.mask + 1);
        ReceiveBatch { ring: self, first, next: first, end }
    }

    /// The `wr_id` of WQE `index`.
    #[inline(always)]
    fn wr_id(&mut self, index: u32) -> &mut u64 {
        // SAFETY: there is one per WQE, and the mask is their number minus one: both are set only in `new`.
        unsafe { self.wr_ids.get_unchecked_mut((index & self.mask) as usize) }
    }

    /// See [`ReceiveQueue::retire`]; `takes_tags` says whether the number of a completion may be a flow tag.
    #[inline(always)]
    pub(super) fn retire(&mut self, work: &Work, takes_tags: impl Fn() -> bool) -> Result<u64, RetireError> {
        if work.side != Side::Receive || (work.qpn != self.qpn && !takes_tags()) {
            return Err(RetireError::OtherQueue { work: *work, side: Side::Receive, qpn: self.qpn });
        }
        // Receives complete in order: any other index than the oldest is invalid.
        let first = self.retired;
        if work.index != first as u16 || first == self.producer {
            let (first, end) = (first as u16, self.producer as u16);
            return Err(RetireError::NotInFlight { work: Work { qpn: self.qpn, ..*work }, first, end });
        }
        self.retired = first.wrapping_add(1);
        Ok(*self.wr_id(first))
    }
}

/// A receive queue of a queue pair in INIT or later. Used by one thread: not `Sync`, and all methods take `&mut self`.
///
/// ```compile_fail,E0277
/// fn is_sync<T: Sync>() {}
/// is_sync::<mlx5_dv::queue::ReceiveQueue>();
/// ```
pub struct ReceiveQueue<O: ReceiveRingOwner = QueuePair> {
    ring: ReceiveRing,
    /// Keeps the ring mapped. Last, so that it is dropped last.
    object: Arc<O>,
    /// Makes the queue `!Sync`.
    _one_thread: PhantomData<Cell<()>>,
}

impl<O: ReceiveRingOwner> fmt::Debug for ReceiveQueue<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiveQueue")
            .field("number", &self.ring.qpn)
            .field("producer", &(self.ring.producer as u16))
            .field("retired", &(self.ring.retired as u16))
            .finish_non_exhaustive()
    }
}

impl ReceiveQueue {
    pub(crate) fn new(permit: ReceivePermit, qp: Arc<QueuePair>) -> Self {
        let parts = permit.into_parts();
        // SAFETY: the permit states the size of ring and record and grants exclusive posting; they are mapped as long
        // as `qp`, which the queue keeps and drops last. This queue uses the receive half of the record.
        let ring = unsafe {
            let (record, _) = uar::record::queue_pair(parts.record);
            ReceiveRing::new(parts.ring, parts.log_size, parts.log_stride, parts.sges, qp.qpn(), record)
        };
        ReceiveQueue::of(ring, qp)
    }

    /// The queue pair.
    pub fn queue_pair(&self) -> &Arc<QueuePair> {
        &self.object
    }
}

impl<O: ReceiveRingOwner> ReceiveQueue<O> {
    /// The queue of `object` with the ring `ring`.
    pub(super) fn of(ring: ReceiveRing, object: Arc<O>) -> Self {
        ReceiveQueue { ring, object, _one_thread: PhantomData }
    }

    pub(super) fn object(&self) -> &Arc<O> {
        &self.object
    }

    /// Starts a batch. A batch dropped without [`ring`](ReceiveBatch::ring) has no effect.
    #[inline(always)]
    pub fn batch(&mut self) -> ReceiveBatch<'_> {
        self.ring.batch()
    }

    /// Retires the receive of a completion: frees its WQE and returns its `wr_id`.
    ///
    /// In place of a queue's number, completions of frames may carry a flow tag. Which queue such a one is of is not
    /// known here if several share a completion queue, and a tag may be the number of another queue: pass the whole
    /// completion to [`take`](crate::queue::ethernet::EthernetReceiveQueue::take).
    ///
    /// # Errors
    /// [`RetireError`] for a completion of another queue, or of another receive than the oldest. Nothing changes.
    #[inline]
    pub fn retire(&mut self, work: &Work) -> Result<u64, RetireError> {
        self.ring.retire(work, || self.object.takes_tags())
    }

    /// As [`retire`](Self::retire), if `take` returns something for its `wr_id`; otherwise nothing changes.
    #[inline(always)]
    pub(in crate::queue) fn retire_if<T>(&mut self, work: &Work, take: impl FnOnce(u64) -> Option<T>) -> Option<T> {
        let before = self.ring.retired;
        let taken = take(self.retire(work).ok()?);
        if taken.is_none() {
            self.ring.retired = before;
        }
        taken
    }

    /// Number of receives that can be posted now.
    pub fn free(&self) -> usize {
        self.capacity() - usize::from(self.ring.in_flight())
    }

    /// Number of receives that the ring holds.
    pub fn capacity(&self) -> usize {
        self.ring.capacity()
    }
}

impl<O: ReceiveRingOwner> Drop for ReceiveQueue<O> {
    fn drop(&mut self) {
        self.object.release_receive_ring();
    }
}

/// A batch of receives, before its doorbell.
#[derive(Debug)]
#[must_use = "a batch that is not rung never happened"]
pub struct ReceiveBatch<'a> {
    ring: &'a mut ReceiveRing,
    /// Index of the first receive.
    first: u32,
    /// Index of the next receive.
    next: u32,
    /// The first index without room.
    end: u32,
}

impl fmt::Debug for ReceiveRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReceiveRing(QP {:#x}, {} in flight)", self.qpn, self.in_flight())
    }
}

impl ReceiveBatch<'_> {
    /// Posts a receive of one message into `elements`, in this order.
    ///
    /// ```text
    /// segment 0..  byte_count | lkey | address, an element each
    /// the last     0 | 0x100 | 0, where there is room for more: ends the list
    /// ```
    ///
    /// Elements of length zero are skipped. Errors: [`PostError`]; nothing is written then.
    ///
    /// # Safety
    /// Until the receive completes, or its queue pair is reset or destroyed, each element's memory stays registered
    /// under its key, and nothing in this process holds a reference to it or depends on its content.
    #[inline]
    pub unsafe fn receive(&mut self, wr_id: u64, elements: &[DataSegment]) -> Result<(), PostError> {
        match elements {
            [one] if self.ring.wqes.is_filled_by(one) => self.post(wr_id, |wqes, place| {
                // SAFETY: `post` returns WQEs of the ring, which have room for that element.
                unsafe { wqes.store_element(place, 0, one) }
            }),
            _ => {
                self.ring.wqes.check(elements)?;
                self.post(wr_id, |wqes, place| {
                    // SAFETY: `post` returns WQEs of the ring; the elements were checked.
                    unsafe { wqes.store_list(place, 0, elements) }
                })
            }
        }
    }

    /// Posts a receive whose WQE `store` fills.
    #[inline(always)]
    fn post(&mut self, wr_id: u64, store: impl FnOnce(&Wqes, u32)) -> Result<(), PostError> {
        let index = self.next;
        if index == self.end {
            return Err(Full.into());
        }
        store(&self.ring.wqes, index & self.ring.mask);
        *self.ring.wr_id(index) = wr_id;
        self.next = index.wrapping_add(1);
        Ok(())
    }

    /// Index of the next WQE.
    #[inline(always)]
    pub(in crate::queue) fn next_index(&self) -> u32 {
        self.next
    }

    /// Number of receives in the batch.
    pub fn len(&self) -> usize {
        self.next.wrapping_sub(self.first) as usize
    }

    /// Whether the batch is empty.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.next == self.first
    }

    /// Hands the batch to the card by the doorbell record alone: the card reads it when a message arrives.
    #[inline(always)]
    pub fn ring(self) {
        if self.is_empty() {
            return;
        }
        self.ring.producer = self.next;
        barrier::to_device();
        self.ring.record.post(self.next as u16);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::fake::Memory;
    use mlx5_prm::layout::Layout;
    use mlx5_prm::wqe::{DataSeg, LKEY_INVALID};
    use proptest::prelude::*;

    const QPN: u32 = 0x44;

    fn queue(log_size: u32, log_stride: u32, sges: u16) -> (ReceiveRing, Memory, usize) {
        let bytes = (1 << (log_size + log_stride)).max(64);
        let memory = Memory::new(bytes + 64);
        memory.fill(0, bytes, 0xa5);
        // SAFETY: both lie in `memory`, which the tests keep longer than the ring.
        let ring = unsafe {
            let (record, _) = uar::record::queue_pair(memory.at(bytes));
            ReceiveRing::new(memory.at(0), log_size, log_stride, sges, QPN, record)
        };
        (ring, memory, bytes)
    }

    fn element(len: u32) -> DataSegment {
        DataSegment { addr: 0x1000, len, lkey: 0x55 }
    }

    fn done(index: u16) -> Work {
        Work { qpn: QPN, side: Side::Receive, index }
    }

    #[test]
    fn a_short_list_is_ended_and_a_full_one_is_not() {
        let (mut ring, memory, bytes) = queue(2, 5, 2);
        let mut two = ring.batch();
        // SAFETY: no card reads this ring.
        unsafe {
            two.receive(1, &[element(7)]).unwrap();
            two.receive(2, &[element(8), element(9)]).unwrap();
        }
        two.ring();
        let segment = |at: usize| DataSeg::read(&memory.read(at, 16)).unwrap();
        assert_eq!((segment(0).byte_count(), segment(0).lkey(), segment(0).addr()), (7, 0x55, 0x1000));
        assert_eq!((segment(16).byte_count(), segment(16).lkey()), (0, LKEY_INVALID));
        assert_eq!((segment(32).byte_count(), segment(48).byte_count()), (8, 9));
        assert_eq!((memory.be32(bytes), memory.be32(bytes + 4)), (2, 0), "the receive half of the record");
    }

    #[test]
    fn what_cannot_be_posted_leaves_no_trace() {
        let (mut ring, memory, bytes) = queue(1, 4, 1);
        let untouched = memory.read(0, bytes);
        let mut none = ring.batch();
        // SAFETY: no card reads this ring.
        unsafe {
            let two = [element(1); 2];
            assert_eq!(none.receive(1, &two), Err(PostError::TooManySges { given: 2, most: 1 }));
            assert!(matches!(none.receive(1, &[element(1 << 31)]), Err(PostError::MessageTooLong { .. })));
        }
        none.ring();
        assert_eq!((memory.read(0, bytes), memory.be32(bytes)), (untouched, 0));
    }

    #[test]
    fn receives_complete_in_order_or_not_at_all() {
        let (mut ring, _memory, _) = queue(2, 4, 1);
        let mut three = ring.batch();
        // SAFETY: no card reads this ring.
        (0..3).for_each(|i| unsafe { three.receive(10 + i, &[element(1)]).unwrap() });
        three.ring();
        assert!(matches!(ring.retire(&done(1), || false), Err(RetireError::NotInFlight { .. })));
        assert_eq!(ring.retire(&done(0), || false), Ok(10));
        assert!(ring.retire(&done(0), || false).is_err(), "said twice");
        assert_eq!((ring.retire(&done(1), || false), ring.retire(&done(2), || false)), (Ok(11), Ok(12)));
        assert!(ring.retire(&done(3), || false).is_err());
        assert!(matches!(
            ring.retire(&Work { side: Side::Send, ..done(3) }, || false),
            Err(RetireError::OtherQueue { .. })
        ));
    }

    proptest! {
        #[test]
        fn the_ring_is_a_queue(
            log_size in 0u32..5,
            start in any::<u16>(),
            steps in prop::collection::vec((1usize..6, any::<bool>(), 0usize..6), 1..100),
        ) {
            let (mut ring, memory, bytes) = queue(log_size, 4, 1);
            (ring.producer, ring.retired) = (start.into(), start.into());
            let mut model = std::collections::VecDeque::new();
            let (mut next, mut wr_id) = (start, 0);
            for (count, rung, retire) in steps {
                let mut some = ring.batch();
                for i in 0..count {
                    // SAFETY: no card reads this ring.
                    let posted = unsafe { some.receive(wr_id + i as u64, &[element(1)]) };
                    prop_assert_eq!(posted.is_ok(), model.len() + i < 1 << log_size);
                }
                let posted = some.len();
                if rung {
                    some.ring();
                    model.extend((0..posted).map(|i| wr_id + i as u64));
                    next = next.wrapping_add(posted as u16);
                }
                wr_id += count as u64;
                for _ in 0..retire.min(model.len()) {
                    let index = next.wrapping_sub(model.len() as u16);
                    prop_assert_eq!(ring.retire(&done(index), || false).ok(), model.pop_front());
                }
                prop_assert_eq!(usize::from(ring.in_flight()), model.len());
            }
            prop_assert!(next == start || memory.be32(bytes) == u32::from(next));
        }
    }
}
