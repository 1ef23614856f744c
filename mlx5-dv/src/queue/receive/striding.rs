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
use crate::queue::completion::decode::{Completion, Side, Work, WorkError, user_index_of, work_of};
use crate::queue::completion::{Place, Received, Short};
use crate::queue::error::{Full, PostError, RetireError};

/// Segments before the element of a WQE: its link.
const HEAD: u16 = 1;
/// Strides of the largest buffer.
const MOST_STRIDES: u32 = 1 << 15;

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
    strides: Strides,
    rqn: u32,
    /// The `user_index` of its completions, or [`NO_INDEX`].
    user_index: u32,
}

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
        if ring.stored.wrapping_sub(ring.oldest) > ring.mask {
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

/// Where the next packets of the oldest buffer are: for many that succeed, without its last one.
#[derive(Debug, Clone, Copy)]
pub(in crate::queue) struct Run {
    /// Strides used, and those of the buffer.
    used: u32,
    count: u32,
    /// Where the next packet starts in the buffer.
    start: u32,
    /// Bytes of a stride.
    stride: u32,
    shift: u32,
}

impl Run {
    /// Most packets of one stride each before the last one of the buffer.
    #[inline(always)]
    pub(in crate::queue) fn most_short(&self) -> usize {
        self.count.saturating_sub(self.used + 1) as usize
    }

    /// What completions say of packets of one stride each, from `least` to `longest` bytes. The caller takes at most
    /// [`most_short`](Self::most_short), and [passes](Self::pass_short) them.
    #[inline(always)]
    pub(in crate::queue) fn short(&self, least: u32, longest: u32) -> Short {
        let Run { used, start, stride, shift, .. } = *self;
        let lengths = (stride.saturating_sub(shift).min(longest) + 1).saturating_sub(least);
        Short { used, start, stride, least, lengths }
    }

    /// Goes on behind `count` packets of one stride each.
    #[inline(always)]
    pub(in crate::queue) fn pass_short(&mut self, count: u32) {
        self.used += count;
        self.start += count * self.stride;
    }

    /// Takes the packet of a completion of this queue that succeeded: where it is in the buffer. `None`
    /// for whatever has to be looked at more closely by [`StridingReceiveQueue::take`]: one outside the strides, or not
    /// where it is expected, the last of the buffer, and no packet at all. Nothing changes then.
    #[inline(always)]
    pub(in crate::queue) fn take(&mut self, received: Received) -> Option<Place> {
        const FILLER: u32 = 1 << 15;
        let (strides, len) = (received.byte_count >> 16, received.byte_count & 0xffff);
        // A filler has the bit above the number of strides, so it ends beyond the buffer.
        const { assert!(FILLER >= MOST_STRIDES) };
        let (end, bytes) = (self.used + strides, strides * self.stride);
        // Not the last one of the buffer, and with its shift not empty, nor longer than its strides.
        let is_inside = end < self.count && len.wrapping_add(self.shift).wrapping_sub(1) < bytes;
        if received.counter != self.used as u16 || !is_inside {
            return None;
        }
        let start = self.start;
        (self.used, self.start) = (end, start + bytes);
        Some(Place { start, len })
    }

    /// Strides that are used.
    #[inline(always)]
    pub(in crate::queue) fn used(&self) -> u32 {
        self.used
    }
}

impl StridingReceiveQueue {
    /// The `wr_id` of the oldest buffer, and where its next packets are; `None` if the card has none.
    #[inline(always)]
    pub(in crate::queue) fn run(&self) -> Option<(u64, Run)> {
        let StridingRing { oldest, used, strides, mask, ref wr_ids, posted, .. } = self.ring;
        let wr_id = *wr_ids.get((oldest & mask) as usize).filter(|_| oldest != posted)?;
        let (count, stride, shift) = (strides.count, strides.bytes, strides.shift() as u32);
        Some((wr_id, Run { used, count, start: used * stride + shift, stride, shift }))
    }

    /// Uses the strides up to `used`, as a [`Run`] has taken them.
    #[inline(always)]
    pub(in crate::queue) fn end_run(&mut self, used: u32) {
        self.ring.used = used;
    }

    /// Uses the strides up to the packet that starts at byte `start` of the buffer.
    #[inline(always)]
    pub(in crate::queue) fn end_run_before(&mut self, start: u32) {
        self.ring.used = start >> self.ring.strides.bytes.trailing_zeros();
    }
}

impl StridingRing {
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

    fn advance(&mut self, strides: u32, packet: Option<Range<usize>>) -> Strided {
        let wr_id = self.wr_ids.get((self.oldest & self.mask) as usize).copied().unwrap_or_default();
        self.used += strides;
        let is_last = self.used >= self.strides.count;
        if is_last {
            (self.oldest, self.used) = (self.oldest.wrapping_add(1), 0);
        }
        Strided { wr_id, packet, is_last }
    }
}

impl Drop for StridingReceiveQueue {
    fn drop(&mut self) {
        self.object.release_receive_ring();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Byte counts near those that matter, and any others.
    fn byte_count() -> impl Strategy<Value = u32> {
        let near = (0u32..4, prop_oneof![0u32..70, 0xffc0u32..=0xffff]);
        prop_oneof![near.prop_map(|(strides, len)| strides << 16 | len), any::<u32>()]
    }

    fn state(run: &Run, place: Option<Place>) -> (u32, u32, Option<(u32, u32)>) {
        (run.used, run.start, place.map(|place| (place.start, place.len)))
    }

    proptest! {
        // Whatever a card says of a packet: what is taken by one comparison would be taken by all of them, too.
        #[test]
        fn a_short_packet_is_taken_as_any_other(
            byte_count in byte_count(),
            counter in prop_oneof![Just(5u16), any::<u16>()],
            shift in prop_oneof![Just(0u32), Just(2)],
            least in 1u32..20,
            longest in prop_oneof![15u32..80, Just(9000), Just(u32::MAX - 1)],
        ) {
            let run = Run { used: 5, count: 512, start: 5 * 64 + shift, stride: 64, shift };
            let received = Received { byte_count, counter };
            let (mut short, mut any) = (run, run);
            let (found, expected) = (run.short(least, longest).take(received), any.take(received));
            short.pass_short(found.is_some().into());
            let is_short = byte_count >> 16 == 1 && (least..=longest).contains(&(byte_count & 0xffff));
            if is_short {
                prop_assert_eq!(state(&short, found), state(&any, expected));
            } else {
                prop_assert_eq!(state(&short, found), state(&run, None));
            }
        }
    }

    #[test]
    fn short_packets_end_before_the_last_stride() {
        let run = |used| Run { used, count: 8, start: 0, stride: 64, shift: 0 };
        assert_eq!([0, 5, 6, 7, 8].map(|used| run(used).most_short()), [7, 2, 1, 0, 0]);
    }
}
