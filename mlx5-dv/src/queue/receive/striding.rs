//! Striding receive queues: the card packs packets one after another into large buffers. PRM "Striding RQ".

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use mlx5_prm::cqe::StridingByteCount;
use mlx5_prm::layout::Layout;
use mlx5_prm::wqe::SrqNextSeg;
use uar::{ReceiveRecord, barrier};

use super::wqe::Wqes;
use crate::memory::DataSegment;
use crate::objects::{ReceiveRingOwner, RingPermit, Rq, Strides};
use crate::queue::completion::Oldest;
use crate::queue::completion::decode::{Completion, Side, Work, WorkError, user_index_of, work_of};
use crate::queue::error::{Full, PostError, RetireError};

/// Segments before the element of a WQE: its link.
const HEAD: u16 = 1;

/// The ring's fields. Indices count WQEs; the card knows their low 16 bits.
struct StridingRing {
    wqes: Wqes,
    record: ReceiveRecord,
    wr_ids: Box<[u64]>,
    /// Number of WQEs minus one.
    mask: u32,
    /// WQEs stored, and those handed to the card.
    stored: u32,
    posted: u32,
    /// The oldest WQE in flight, and how many of its strides are used.
    oldest: u32,
    used: u32,
    /// Its `wr_id`, or [`NO_RUN`] if there is none, or no runs are wanted.
    open: u64,
    has_runs: bool,
    strides: Strides,
    rqn: u32,
    /// The `user_index` of its completions, or [`NO_INDEX`].
    user_index: u32,
}

/// The `wr_id` of no receive.
const NO_RUN: u64 = u64::MAX;

/// More than the 24 bits of a `user_index`: completions have none.
const NO_INDEX: u32 = u32::MAX;

// SAFETY: only this value uses the ring; `StridingReceiveQueue::new` keeps its memory mapped.
unsafe impl Send for StridingRing {}

/// What a completion of a striding receive queue says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strided {
    /// The `wr_id` of the receive.
    pub wr_id: u64,
    /// The packet's bytes in its buffer; `None` if the card gave up strides, because the next packet did not fit or the
    /// receive failed.
    pub packet: Option<Range<usize>>,
    /// Nothing more comes into this buffer: once its packets are no longer needed, it can be posted again.
    pub is_last: bool,
}

/// The queue of an [`Rq`] with [`RqOptions::strides`](crate::objects::RqOptions::strides). Used by one thread: not
/// `Sync`, and all methods take `&mut self`. Each receive takes as many packets as fit.
pub struct StridingReceiveQueue {
    ring: StridingRing,
    /// Keeps the ring mapped. Last, so that it is dropped last.
    object: Arc<Rq>,
    /// Makes the queue `!Sync`.
    _one_thread: PhantomData<Cell<()>>,
}

impl fmt::Debug for StridingReceiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StridingReceiveQueue")
            .field("number", &self.ring.rqn)
            .field("oldest", &(self.ring.oldest as u16))
            .field("used", &self.ring.used)
            .finish_non_exhaustive()
    }
}

impl StridingReceiveQueue {
    pub(crate) fn new(permit: RingPermit, strides: Strides, rq: Arc<Rq>) -> Self {
        let (base, record) = permit.into_parts();
        let (log_size, log_stride, sges) = rq.shape();
        // SAFETY: the permit grants exclusive posting; the record is mapped as long as `rq`, which the queue keeps and
        // drops last. This queue uses the receive half.
        let (record, _) = unsafe { uar::record::queue_pair(record) };
        let ring = StridingRing {
            wqes: Wqes::new(base, log_stride, HEAD, sges),
            record,
            wr_ids: vec![0; 1 << log_size].into(),
            mask: (1 << log_size) - 1,
            stored: 0,
            posted: 0,
            oldest: 0,
            used: 0,
            open: NO_RUN,
            has_runs: true,
            strides,
            rqn: rq.rqn(),
            user_index: rq.user_index().unwrap_or(NO_INDEX),
        };
        StridingReceiveQueue { ring, object: rq, _one_thread: PhantomData }
    }

    /// The object.
    pub fn rq(&self) -> &Arc<Rq> {
        &self.object
    }

    /// Number of receives that can be posted now.
    pub fn free(&self) -> usize {
        self.capacity() - self.ring.stored.wrapping_sub(self.ring.oldest) as usize
    }

    /// Whether a receive can be posted now.
    #[inline(always)]
    pub(in crate::queue) fn has_room(&self) -> bool {
        self.ring.has_room()
    }

    /// Number of receives that the ring holds.
    pub fn capacity(&self) -> usize {
        self.ring.mask as usize + 1
    }

    /// Stores a receive into `buffer`, of [`Strides::buffer`] bytes. The card has it after [`ring`](Self::ring).
    ///
    /// # Errors
    /// [`PostError::Full`]; [`PostError::BufferLength`] for a buffer of another length. Nothing is stored then.
    ///
    /// # Safety
    /// Until the receive's last completion, or until the queue is reset or destroyed, the buffer's memory stays
    /// registered under its key, and nothing in this process depends on the content of strides that no completion has
    /// named.
    #[inline]
    pub unsafe fn receive(&mut self, wr_id: u64, buffer: &DataSegment) -> Result<(), PostError> {
        let ring = &mut self.ring;
        if buffer.len as usize != ring.strides.buffer() {
            return Err(PostError::BufferLength { given: buffer.len, needed: ring.strides.buffer() });
        }
        if !ring.has_room() {
            return Err(Full.into());
        }
        let place = ring.stored & ring.mask;
        let mut link = SrqNextSeg::ZERO;
        link.w().next_wqe_index(((place + 1) & ring.mask) as u16);
        // SAFETY: `place` is a WQE of the ring, which is mapped as long as `object`, and the permit grants exclusive
        // posting. It is free: the oldest in flight is less than a ring's length before. A WQE has two segments.
        unsafe {
            ring.wqes.store(place, 0, zerocopy::transmute!(link));
            ring.wqes.store_element(place, HEAD.into(), buffer);
        }
        if let Some(slot) = ring.wr_ids.get_mut(place as usize) {
            *slot = wr_id;
        }
        ring.stored = ring.stored.wrapping_add(1);
        Ok(())
    }

    /// Hands the stored receives to the card, by the doorbell record.
    #[inline]
    pub fn ring(&mut self) {
        if self.ring.posted == self.ring.stored {
            return;
        }
        self.ring.posted = self.ring.stored;
        self.ring.open_oldest();
        barrier::to_device();
        self.ring.record.post(self.ring.posted as u16);
    }

    /// Takes a completion of this queue: which bytes of which buffer it reports. Completions must be passed here in
    /// their order, errors included. A failed receive gives up the rest of its buffer.
    ///
    /// # Errors
    /// [`RetireError`] for a completion of another queue, of strides that are used already or not posted, or of bytes
    /// outside its strides. Nothing changes.
    #[inline]
    pub fn take<C: AsRef<Completion>>(&mut self, result: &Result<C, WorkError>) -> Result<Strided, RetireError> {
        let work = work_of(result);
        let ring = &self.ring;
        let is_ours = user_index_of(result) == ring.user_index || ring.user_index == NO_INDEX && self.has(&work);
        let ring = &mut self.ring;
        if work.side != Side::Receive || !is_ours {
            return Err(RetireError::OtherQueue { work, side: Side::Receive, qpn: ring.rqn });
        }
        if ring.oldest == ring.posted {
            return Err(RetireError::NotInFlight { work, first: ring.oldest as u16, end: ring.posted as u16 });
        }
        match result {
            Ok(completion) => ring.take_packet(&work, completion.as_ref().byte_len),
            Err(_) => Ok(ring.advance(ring.strides.count - ring.used, None)),
        }
    }

    /// Whether `work` is of this queue, by the number of its completion.
    #[cold]
    fn has(&self, work: &Work) -> bool {
        work.qpn == self.ring.rqn || self.object.takes_tags()
    }
}

impl StridingReceiveQueue {
    /// The `wr_id` of the oldest buffer, and the buffer; [`NO_RUN`] if the card has none, or no runs are wanted.
    #[inline(always)]
    pub(in crate::queue) fn oldest(&self) -> (u64, Oldest<'_>) {
        (self.ring.open, Oldest { strides: &self.ring.strides, used: self.ring.used })
    }

    /// From now on there is no [`oldest`](Self::oldest): all completions are for [`take`](Self::take).
    pub(in crate::queue) fn without_runs(&mut self) {
        self.ring.has_runs = false;
        self.ring.open_oldest();
    }

    /// Uses the strides up to `used`, as a run has taken them.
    #[inline(always)]
    pub(in crate::queue) fn end_run(&mut self, used: u32) {
        self.ring.used = used;
    }
}

impl StridingRing {
    #[inline(always)]
    fn has_room(&self) -> bool {
        self.stored.wrapping_sub(self.oldest) <= self.mask
    }

    #[inline]
    fn take_packet(&mut self, work: &Work, byte_count: u32) -> Result<Strided, RetireError> {
        let count = StridingByteCount::read(&byte_count.to_be_bytes()).unwrap_or_default();
        let (strides, len) = (u32::from(count.consumed_strides()), usize::from(count.byte_cnt()));
        let left = self.strides.count - self.used;
        let shift = self.strides.shift();
        let is_inside = (1..=left).contains(&strides) && len + shift <= strides as usize * self.strides.bytes as usize;
        if u32::from(work.index) != self.used || !is_inside {
            return Err(RetireError::Strides { work: *work, strides, len, used: self.used, count: self.strides.count });
        }
        let start = self.used as usize * self.strides.bytes as usize + shift;
        Ok(self.advance(strides, (!count.filler()).then_some(start..start + len)))
    }

    /// Knows the oldest WQE in flight.
    fn open_oldest(&mut self) {
        let oldest = self.wr_ids.get((self.oldest & self.mask) as usize).copied();
        self.open = oldest.filter(|_| self.has_runs && self.oldest != self.posted).unwrap_or(NO_RUN);
    }

    fn advance(&mut self, strides: u32, packet: Option<Range<usize>>) -> Strided {
        let wr_id = self.wr_ids.get((self.oldest & self.mask) as usize).copied().unwrap_or_default();
        self.used += strides;
        let is_last = self.used >= self.strides.count;
        if is_last {
            (self.oldest, self.used) = (self.oldest.wrapping_add(1), 0);
            self.open_oldest();
        }
        Strided { wr_id, packet, is_last }
    }
}

impl Drop for StridingReceiveQueue {
    fn drop(&mut self) {
        self.object.release_receive_ring();
    }
}
