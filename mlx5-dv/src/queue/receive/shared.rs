//! Shared receive queues.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use mlx5_prm::wqe::SrqNextSeg;
use uar::{ReceiveRecord, barrier};

use super::wqe::Wqes;
use crate::memory::DataSegment;
use crate::objects::{ReceivePermit, ReceiveRingOwner, Srq};
use crate::queue::completion::decode::{Side, Work};
use crate::queue::error::{Full, PostError, RetireError};

/// Segments of a WQE before its elements: the link to the next WQE.
const LINK: u16 = 1;

/// Two values with the same index: one of a WQE, one of a position.
#[derive(Debug, Clone, Copy)]
struct Entry {
    wr_id: u64,
    /// Whether the WQE is posted.
    is_posted: bool,
    /// The WQE that was, or will be, posted at this position.
    place: u16,
}

/// The ring's fields: one cache line.
///
/// Messages complete in any order, so WQEs become free in any order; each posted WQE links to the next. Positions count
/// all WQEs ever posted. Positions from `producer` to `last` name the free WQEs in the order in which they will be
/// posted. The last one is not posted, because its successor, and so its link, is not known yet.
struct SharedRing {
    wqes: Wqes,
    record: ReceiveRecord,
    entries: Box<[Entry]>,
    producer: u32,
    last: u32,
    srqn: u32,
}

const _: () = assert!(size_of::<SharedRing>() <= 64, "the hot fields have outgrown a cache line");

// SAFETY: only this value uses the ring; `new`'s contract keeps its memory mapped.
unsafe impl Send for SharedRing {}

impl SharedRing {
    /// A ring of `1 << log_size` WQEs, 2 to 2^15, for shared receive queue `srqn`.
    ///
    /// # Safety
    /// The WQEs' bytes stay mapped while this value lives, are aligned to 16, and this process accesses them only
    /// through this value.
    unsafe fn new(wqes: Wqes, log_size: u32, srqn: u32, record: ReceiveRecord) -> Self {
        let entry = |place| Entry { wr_id: 0, is_posted: false, place };
        let entries = (0..=u16::MAX).take(1 << log_size).map(entry).collect();
        SharedRing { wqes, record, entries, producer: 0, last: (1 << log_size) - 1, srqn: srqn & 0xff_ffff }
    }

    /// The entry of a position or WQE.
    #[inline(always)]
    fn entry(&mut self, number: u32) -> &mut Entry {
        let index = number as usize & (self.entries.len() - 1);
        // SAFETY: their number is a power of two above zero, so the masked index is below it.
        unsafe { self.entries.get_unchecked_mut(index) }
    }

    /// Number of receives that can be posted now.
    #[inline(always)]
    fn free(&self) -> usize {
        self.last.wrapping_sub(self.producer) as usize
    }

    /// Number of receives that the ring holds.
    fn capacity(&self) -> usize {
        self.entries.len() - 1
    }

    /// See [`SharedReceiveQueue::retire`].
    #[inline(always)]
    fn retire(&mut self, work: &Work) -> Result<u64, RetireError> {
        match self.retire_if(work, Some) {
            Some(wr_id) => Ok(wr_id),
            None => Err(RetireError::NotPosted { work: *work, srqn: self.srqn }),
        }
    }

    /// See [`SharedReceiveQueue::retire_if`].
    #[inline(always)]
    fn retire_if<T>(&mut self, work: &Work, take: impl FnOnce(u64) -> Option<T>) -> Option<T> {
        let is_ours = work.side == Side::Receive && usize::from(work.index) < self.entries.len();
        let entry = self.entry(work.index.into());
        if !is_ours || !entry.is_posted {
            return None;
        }
        let taken = take(entry.wr_id)?;
        self.entry(work.index.into()).is_posted = false;
        self.last = self.last.wrapping_add(1);
        self.entry(self.last).place = work.index;
        Some(taken)
    }
}

/// The queue of an [`Srq`]. Used by one thread: not `Sync`, and all methods take `&mut self`.
///
/// ```compile_fail,E0277
/// fn is_sync<T: Sync>() {}
/// is_sync::<mlx5_dv::queue::SharedReceiveQueue>();
/// ```
pub struct SharedReceiveQueue {
    ring: SharedRing,
    /// Keeps the ring mapped. Last, so that it is dropped last.
    srq: Arc<Srq>,
    /// Makes the queue `!Sync`.
    _one_thread: PhantomData<Cell<()>>,
}

impl fmt::Debug for SharedReceiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.ring, f)
    }
}

impl fmt::Debug for SharedRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "SharedReceiveQueue({:#x}, {} of {} in flight)",
            self.srqn,
            self.capacity() - self.free(),
            self.capacity()
        )
    }
}

impl SharedReceiveQueue {
    pub(crate) fn new(permit: ReceivePermit, srq: Arc<Srq>) -> Self {
        let parts = permit.into_parts();
        let wqes = Wqes::new(parts.ring, parts.log_stride, LINK, parts.sges);
        // SAFETY: the permit states the size of ring and record and grants exclusive posting; they are mapped as long
        // as `srq`, which the queue keeps and drops last. `Srq::create` made the ring of at least two WQEs, each with
        // room for its link. The record of a shared receive queue is the receive half of a queue pair's.
        let ring = unsafe {
            let (record, _) = uar::record::queue_pair(parts.record);
            SharedRing::new(wqes, parts.log_size, srq.srqn(), record)
        };
        SharedReceiveQueue { ring, srq, _one_thread: PhantomData }
    }

    /// The object.
    pub fn srq(&self) -> &Arc<Srq> {
        &self.srq
    }

    /// Starts a batch. A batch dropped without [`ring`](SharedReceiveBatch::ring) has no effect.
    #[inline]
    pub fn batch(&mut self) -> SharedReceiveBatch<'_> {
        let first = self.ring.producer;
        SharedReceiveBatch { ring: &mut self.ring, first, next: first }
    }

    /// Retires the receive of a completion of one of its queue pairs: frees its WQE and returns its `wr_id`. Messages
    /// complete in any order.
    ///
    /// # Errors
    /// [`RetireError`] for a completion of a send, or of a WQE that is not posted. Nothing changes.
    #[inline]
    pub fn retire(&mut self, work: &Work) -> Result<u64, RetireError> {
        self.ring.retire(work)
    }

    /// As [`retire`](Self::retire), if `take` returns something for its `wr_id`; otherwise nothing changes.
    #[inline(always)]
    pub(in crate::queue) fn retire_if<T>(&mut self, work: &Work, take: impl FnOnce(u64) -> Option<T>) -> Option<T> {
        self.ring.retire_if(work, take)
    }

    /// Number of receives that can be posted now.
    pub fn free(&self) -> usize {
        self.ring.free()
    }

    /// Number of receives that the ring holds.
    pub fn capacity(&self) -> usize {
        self.ring.capacity()
    }
}

impl Drop for SharedReceiveQueue {
    fn drop(&mut self) {
        self.srq.release_receive_ring();
    }
}

/// A batch of receives, before its doorbell.
#[derive(Debug)]
#[must_use = "a batch that is not rung never happened"]
pub struct SharedReceiveBatch<'a> {
    ring: &'a mut SharedRing,
    /// Position of the first receive.
    first: u32,
    /// Position of the next receive.
    next: u32,
}

impl SharedReceiveBatch<'_> {
    /// Posts a receive of one message into `elements`, in this order.
    ///
    /// ```text
    /// segment 0    place of the next WQE
    /// segment 1..  byte_count | lkey | address, an element each
    /// the last     0 | 0x100 | 0, where there is room for more: ends the list
    /// ```
    ///
    /// Elements of length zero are skipped. Errors: [`PostError`]; nothing is written then.
    ///
    /// # Safety
    /// Until the receive completes, or the shared receive queue is destroyed, each element's memory stays registered
    /// under its key, and nothing in this process holds a reference to it or depends on its content.
    ///
    /// The batch is rung or dropped, not forgotten (`mem::forget`): a completion of a faulty card would be matched with
    /// a receive that never was, whose WQE could then be posted twice.
    #[inline]
    pub unsafe fn receive(&mut self, wr_id: u64, elements: &[DataSegment]) -> Result<(), PostError> {
        let head = usize::from(LINK);
        match elements {
            [one] if self.ring.wqes.is_filled_by(one) => {
                let place = self.post(wr_id)?;
                // SAFETY: `post` returns WQEs of the ring; a WQE that one element fills has room for it.
                unsafe { self.ring.wqes.store_element(place, head, one) }
            }
            _ => {
                self.ring.wqes.check(elements)?;
                let place = self.post(wr_id)?;
                // SAFETY: `post` returns WQEs of the ring; the elements were checked.
                unsafe { self.ring.wqes.store_list(place, head, elements) }
            }
        }
        Ok(())
    }

    /// Posts a receive, linked to the next one. Returns its WQE, whose elements are not stored yet.
    #[inline(always)]
    fn post(&mut self, wr_id: u64) -> Result<u32, PostError> {
        let position = self.next;
        if position == self.ring.last {
            return Err(Full.into());
        }
        self.next = position.wrapping_add(1);
        let place = u32::from(self.ring.entry(position).place);
        let mut link = SrqNextSeg::ZERO;
        link.w().next_wqe_index(self.ring.entry(self.next).place);
        // SAFETY: entries name only WQEs of the ring, and each WQE starts with its link.
        unsafe { self.ring.wqes.store(place, 0, zerocopy::transmute!(link)) }
        let entry = self.ring.entry(place);
        (entry.wr_id, entry.is_posted) = (wr_id, true);
        Ok(place)
    }

    /// Number of receives in the batch.
    pub fn len(&self) -> usize {
        self.next.wrapping_sub(self.first) as usize
    }

    /// Whether the batch is empty.
    pub fn is_empty(&self) -> bool {
        self.next == self.first
    }

    /// Hands the batch to the card by the doorbell record alone: the card reads it when a message arrives.
    #[inline(always)]
    pub fn ring(mut self) {
        if self.is_empty() {
            return;
        }
        // Leaves nothing for `drop` to undo.
        self.first = self.next;
        self.ring.producer = self.next;
        barrier::to_device();
        self.ring.record.post(self.next as u16);
    }
}

impl Drop for SharedReceiveBatch<'_> {
    /// A batch that was not rung leaves no WQE that a completion could match.
    #[inline(always)]
    fn drop(&mut self) {
        while self.first != self.next {
            self.next = self.next.wrapping_sub(1);
            let place = self.ring.entry(self.next).place;
            self.ring.entry(place.into()).is_posted = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::fake::Memory;
    use mlx5_prm::layout::Layout;
    use mlx5_prm::wqe::{DataSeg, LKEY_INVALID};
    use proptest::prelude::*;

    const LOG_STRIDE: u32 = 5;

    /// A ring whose card the test simulates by following the links.
    struct Card {
        memory: Memory,
        log_stride: u32,
        record: usize,
        taken: u16,
        next: u16,
    }

    impl Card {
        fn new(log_size: u32, log_stride: u32, sges: u16) -> (Card, SharedRing) {
            let record = (1usize << (log_size + log_stride)).max(64);
            let memory = Memory::new(record + 64);
            let wqes = Wqes::new(memory.at(0), log_stride, LINK, sges);
            // SAFETY: ring and record lie in `memory`, which the tests keep longer than the ring.
            let ring = unsafe { SharedRing::new(wqes, log_size, 7, uar::record::queue_pair(memory.at(record)).0) };
            (Card { memory, log_stride, record, taken: 0, next: 0 }, ring)
        }

        /// Takes the next posted receive: its WQE number, and its segments behind the link.
        fn take(&mut self) -> Option<(u16, Vec<u8>)> {
            if self.memory.be32(self.record) as u16 == self.taken {
                return None;
            }
            let wqe = self.memory.read(usize::from(self.next) << self.log_stride, 1 << self.log_stride);
            let place = self.next;
            self.next = SrqNextSeg::read(&wqe).unwrap().next_wqe_index();
            self.taken = self.taken.wrapping_add(1);
            Some((place, wqe[16..].to_vec()))
        }
    }

    fn segment(addr: u64, len: u32) -> DataSegment {
        DataSegment { addr, len, lkey: 0x1234 }
    }

    fn batch(ring: &mut SharedRing) -> SharedReceiveBatch<'_> {
        let first = ring.producer;
        SharedReceiveBatch { ring, first, next: first }
    }

    /// Posts one receive at `addr` and rings.
    fn post(ring: &mut SharedRing, addr: u64) -> Result<(), PostError> {
        let mut batch = batch(ring);
        // SAFETY: no card uses the address.
        unsafe { batch.receive(addr, &[segment(addr, 64)])? };
        batch.ring();
        Ok(())
    }

    fn work(index: u16) -> Work {
        Work { qpn: 0x43, side: Side::Receive, index }
    }

    fn address(wqe: &[u8]) -> u64 {
        DataSeg::read(wqe).unwrap().addr()
    }

    #[test]
    fn a_list_shorter_than_the_wqe_is_ended() {
        let (mut card, mut ring) = Card::new(1, 6, 3);
        let mut some = batch(&mut ring);
        // SAFETY: no card uses the addresses.
        unsafe { some.receive(1, &[segment(16, 5), segment(0, 0), segment(32, 6)]).unwrap() };
        some.ring();
        let (_, wqe) = card.take().unwrap();
        let elements: Vec<_> = wqe.chunks(16).map(|bytes| DataSeg::read(bytes).unwrap()).collect();
        let said: Vec<_> = elements.iter().map(|element| (element.addr(), element.byte_count())).collect();
        assert_eq!((said, elements[2].lkey()), (vec![(16, 5), (32, 6), (0, 0)], LKEY_INVALID));
        // SAFETY: as above.
        let refused = unsafe { batch(&mut ring).receive(1, &[segment(0, 1); 4]) };
        assert_eq!(refused, Err(PostError::TooManySges { given: 4, most: 3 }));
    }

    #[test]
    fn one_wqe_is_never_posted() {
        let (_card, mut ring) = Card::new(2, LOG_STRIDE, 1);
        for addr in 0..3 {
            post(&mut ring, addr).unwrap();
        }
        assert_eq!((post(&mut ring, 3), ring.free()), (Err(Full.into()), 0));
        assert_eq!(ring.retire(&work(1)), Ok(1));
        assert_eq!((ring.free(), post(&mut ring, 4)), (1, Ok(())));
    }

    #[test]
    fn what_a_card_makes_up_retires_nothing() {
        let (_card, mut ring) = Card::new(2, LOG_STRIDE, 1);
        post(&mut ring, 8).unwrap();
        for wrong in [work(1), work(4), work(u16::MAX), Work { side: Side::Send, ..work(0) }] {
            assert_eq!(ring.retire(&wrong), Err(RetireError::NotPosted { work: wrong, srqn: 7 }));
        }
        assert_eq!(ring.retire(&work(0)), Ok(8));
        assert!(ring.retire(&work(0)).is_err(), "twice");
    }

    #[test]
    fn an_abandoned_batch_leaves_no_entry_that_a_completion_could_name() {
        let (mut card, mut ring) = Card::new(2, LOG_STRIDE, 1);
        let mut abandoned = batch(&mut ring);
        // SAFETY: no card uses the addresses.
        unsafe { (1..=3).for_each(|addr| abandoned.receive(addr, &[segment(addr, 1)]).unwrap()) };
        drop(abandoned);
        assert!((0..4).all(|index| ring.retire(&work(index)).is_err()));
        assert!(card.take().is_none());
        post(&mut ring, 9).unwrap();
        let (place, wqe) = card.take().unwrap();
        assert_eq!((address(&wqe), ring.retire(&work(place))), (9, Ok(9)));
    }

    proptest! {
        /// However messages complete, the card takes what was posted, in order, and nothing else.
        #[test]
        fn the_card_takes_what_was_posted_in_order(
            log_size in 1u32..5,
            start in prop::sample::select(vec![0u32, u32::MAX - 5, 0xfffa]),
            turns in prop::collection::vec((0u8..3, any::<prop::sample::Index>()), 1..300),
        ) {
            let (mut card, mut ring) = Card::new(log_size, LOG_STRIDE, 1);
            // The state after `start` receives.
            let turned = start & ((1 << log_size) - 1);
            ring.entries.rotate_right(turned as usize);
            (ring.producer, ring.last) = (start, start.wrapping_add((1 << log_size) - 1));
            ring.record.post(start as u16);
            card.taken = start as u16;
            let entries: Vec<u16> = ring.entries.iter().map(|entry| entry.place).collect();
            card.next = entries[turned as usize];
            let (mut posted, mut expected, mut with_card) = (0u64, 0u64, vec![]);
            for (turn, choice) in turns {
                match turn {
                    0 => {
                        let free = ring.free();
                        prop_assert_eq!(post(&mut ring, posted).is_ok(), free > 0);
                        posted += u64::from(free > 0);
                    }
                    1 => {
                        let taken = card.take();
                        prop_assert_eq!(taken.is_some(), expected < posted);
                        if let Some((place, wqe)) = taken {
                            prop_assert_eq!(address(&wqe), expected);
                            with_card.push((place, expected));
                            expected += 1;
                        }
                    }
                    _ if with_card.is_empty() => {}
                    _ => {
                        let (place, wr_id) = with_card.swap_remove(choice.index(with_card.len()));
                        prop_assert_eq!(ring.retire(&work(place)), Ok(wr_id));
                    }
                }
                prop_assert_eq!(ring.free() as u64 + posted - expected + with_card.len() as u64, (1 << log_size) - 1);
            }
        }
    }
}
