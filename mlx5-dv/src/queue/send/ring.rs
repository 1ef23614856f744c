//! The send ring: where WQEs lie, and which of them are with the card.

use std::ptr::NonNull;
use std::slice;

use mlx5_prm::wqe::{CtrlSeg, InlineSegHeader, SEGMENT, WQEBB};
use uar::{SendRecord, Wqebb};

use crate::memory::MAX_ELEMENT;
use crate::objects::SendLimits;
use crate::queue::completion::decode::{Side, Work};
use crate::queue::error::RetireError;

/// Bytes of the header of inline data.
pub(super) const INLINE_HEADER: usize = size_of::<InlineSegHeader>();

/// What is remembered of the work request that started last at a WQEBB.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot {
    /// The user's word for it.
    pub(super) wr_id: u64,
    /// Where the next one starts. Not beyond the oldest WQEBB in flight, if it is of an earlier lap. The WQEBB itself
    /// where no work request starts: one without length frees nothing, so no completion can name it.
    pub(super) end: u32,
}

/// The ring as plain numbers: one cache line.
///
/// Indices count WQEBBs, modulo 2^32; the card knows their low 16 bits. What lies from `retired` to `producer` is with
/// the card: never more than the ring has, which is 2^15 at most.
pub(crate) struct SendRing {
    base: NonNull<u8>,
    /// The queue's number as it stands in the first eight bytes of each WQE.
    pub(super) number: u64,
    pub(super) record: SendRecord,
    /// One a WQEBB.
    slots: Box<[Slot]>,
    /// WQEBBs less one.
    pub(super) mask: u32,
    pub(super) producer: u32,
    /// Where the oldest work request starts that is with the card, if one is.
    pub(super) retired: u32,
    pub(super) qpn: u32,
    /// Bytes of the longest element or message; 0 where there may be no element.
    pub(crate) longest: u32,
    pub(super) sges: u16,
    pub(super) inline_bytes: u16,
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
    pub(crate) unsafe fn new(
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
            slots: (0..capacity).map(|end| Slot { wr_id: 0, end }).collect(),
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
    pub(super) fn offset(&self, index: u32) -> usize {
        (index & self.mask) as usize * WQEBB
    }

    /// Where segment number `segment` of the WQE that starts at WQEBB `index` lies: a multiple of 16 inside of the
    /// ring.
    #[inline(always)]
    fn place(&self, index: u32, segment: usize) -> usize {
        let place = self.offset(index) + segment * SEGMENT;
        // The first block never wraps.
        if segment < WQEBB / SEGMENT { place } else { place & (self.bytes() - 1) }
    }

    /// Stores segment number `segment` of the WQE that starts at WQEBB `index`.
    #[inline(always)]
    pub(crate) fn store(&mut self, index: u32, segment: usize, [first, second]: [u64; 2]) {
        // SAFETY: the 16 bytes lie inside of the ring, aligned; nobody in this process has a reference to them
        // (`blocks` ends before `&mut self` can be had again).
        unsafe {
            let place = self.base.add(self.place(index, segment)).cast::<u64>();
            place.write(first);
            place.add(1).write(second);
        }
    }

    /// Stores the header of inline data at the start of segment `segment` of the WQE that starts at WQEBB `index`.
    #[inline(always)]
    pub(super) fn store_header(&mut self, index: u32, segment: usize, header: [u8; INLINE_HEADER]) {
        // SAFETY: a segment lies inside of the ring; nobody in this process has a reference to it.
        unsafe { self.base.add(self.place(index, segment)).cast().write(header) }
    }

    /// Stores `data` from byte `at` of segment `segment` on, of the WQE that starts at WQEBB `index`.
    #[inline(always)]
    pub(crate) fn store_bytes(&mut self, index: u32, segment: usize, at: usize, data: &[u8]) {
        let first = self.place(index, segment) + at % SEGMENT;
        // SAFETY: a byte of a segment lies inside of the ring, and so does what is copied there: as a whole, or as much
        // as there is room for and the rest from the ring's start on. Nobody in this process has a reference to it, and
        // no data is longer than the ring: `segments` has been asked, and room found for them.
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
    pub(super) fn blocks(&self, index: u32, wqebbs: u32) -> &[Wqebb] {
        let (start, count) = (self.offset(index), wqebbs as usize);
        // One never wraps.
        let count = if count > 1 && start + count * WQEBB > self.bytes() { 0 } else { count };
        // SAFETY: the blocks lie inside of the ring and are aligned; only `&mut self` stores to them, and the card only
        // reads them.
        unsafe { slice::from_raw_parts(self.base.add(start).cast().as_ptr(), count) }
    }

    /// WQEBBs that are with the card.
    #[inline(always)]
    pub(crate) fn in_flight(&self) -> u32 {
        self.producer.wrapping_sub(self.retired)
    }

    /// WQEBBs of the ring.
    #[inline(always)]
    pub(crate) fn capacity(&self) -> usize {
        self.mask as usize + 1
    }

    /// What is remembered of WQEBB `index`.
    #[inline(always)]
    pub(super) fn slot(&mut self, index: u32) -> &mut Slot {
        // SAFETY: there is a slot for each WQEBB, and the mask is their number less one: both are set in `new` alone.
        unsafe { self.slots.get_unchecked_mut((index & self.mask) as usize) }
    }

    /// Has the WQEBBs of a WQE, from the one after `index` to `end`, name no work request: an abandoned batch may have
    /// left entries there, and a completion could name them.
    #[inline(always)]
    pub(super) fn cover(&mut self, index: u32, end: u32) {
        let mut inner = index.wrapping_add(1);
        while inner != end {
            self.slot(inner).end = inner;
            inner = inner.wrapping_add(1);
        }
    }

    /// See [`SendQueue::retire`](super::SendQueue::retire).
    #[inline(always)]
    pub(crate) fn retire(&mut self, work: &Work) -> Result<u64, RetireError> {
        if work.side != Side::Send || work.qpn != self.qpn {
            return Err(RetireError::OtherQueue { work: *work, side: Side::Send, qpn: self.qpn });
        }
        let slot = *self.slot(work.index.into());
        // WQEBBs that this frees: none, or more than there are, where no work request in flight starts; and those
        // before it, unless the index is of another lap.
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
