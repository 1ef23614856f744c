//! The send ring: where WQEs lie, and which of them are with the card.

use std::marker::PhantomData;
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

/// The ring as plain numbers: one cache line.
///
/// Indices count WQEBBs, modulo 2^32; the card knows their low 16 bits. What lies from `retired` to `producer` is with
/// the card: never more than the ring has, which is 2^15 at most.
pub(crate) struct SendRing {
    base: NonNull<u8>,
    /// The queue's number as it stands in the first eight bytes of each WQE.
    pub(super) number: u64,
    pub(super) record: SendRecord,
    /// For each WQEBB the `wr_id` of the work request that starts there; then, a byte each, how many WQEBBs that takes:
    /// 0 where none starts. Both are right from `retired` to `producer`. What an abandoned batch leaves lies beyond,
    /// and the next batch writes over all of it that it takes.
    posted: Box<[u64]>,
    /// WQEBBs less one.
    pub(super) mask: u32,
    pub(super) producer: u32,
    /// Where the oldest work request starts that is with the card, if one is.
    pub(super) retired: u32,
    pub(super) qpn: u32,
    /// Bytes of the longest element or message; 0 where there may be no element.
    pub(crate) longest: u32,
    pub(super) inline_bytes: u16,
    /// At most what `ds` counts.
    pub(super) sges: u8,
    /// Flags of what the next work request must wait by: the last one changes a key.
    pub(super) fence: u8,
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
        let capacity = 1usize << log_size;
        let qpn = qpn & 0xff_ffff;
        let mut control = CtrlSeg::ZERO;
        control.w().qp_or_sq(qpn);
        let [number, _]: [u64; 2] = zerocopy::transmute!(control);
        let longest = (1u32 << limits.log_max_msg.min(31)).min(MAX_ELEMENT);
        SendRing {
            base,
            number,
            record,
            posted: vec![0; capacity + capacity.div_ceil(size_of::<u64>())].into(),
            mask: capacity as u32 - 1,
            producer: 0,
            retired: 0,
            qpn,
            longest: if limits.sges == 0 { 0 } else { longest },
            inline_bytes: limits.inline_bytes,
            sges: limits.sges.min(u8::MAX.into()) as u8,
            fence: 0,
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

    /// Whether the `wqebbs` WQEBBs from `index` on, at least one, lie in one piece.
    #[inline(always)]
    pub(super) fn whole(&self, index: u32, wqebbs: u16) -> bool {
        (index & self.mask) as usize + usize::from(wqebbs - 1) <= self.mask as usize
    }

    /// The room of a WQE that starts at WQEBB `index`; `whole` where it is known to lie in one piece.
    #[inline(always)]
    pub(super) fn room(&mut self, index: u32, whole: bool) -> Room<'_> {
        Room { base: self.base, first: self.offset(index), end: self.bytes(), whole, _ring: PhantomData }
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

    /// Where the `wr_id` is remembered of the work request that starts at WQEBB `index`.
    #[inline(always)]
    fn wr_id(&mut self, index: u32) -> &mut u64 {
        // SAFETY: there is one for each WQEBB, and the mask is their number less one: both are set in `new` alone.
        unsafe { self.posted.get_unchecked_mut((index & self.mask) as usize) }
    }

    /// Where the length is remembered of the work request that starts at WQEBB `index`. The next WQEBB's follows,
    /// except behind the ring's last one.
    #[inline(always)]
    fn length(&mut self, index: u32) -> NonNull<u8> {
        // SAFETY: behind a `wr_id` for each WQEBB there is a byte for each, and the mask is their number less one: both
        // are set in `new` alone.
        unsafe {
            let lengths = self.posted.as_mut_ptr().add(self.capacity()).cast::<u8>();
            NonNull::new_unchecked(lengths.add((index & self.mask) as usize))
        }
    }

    /// Remembers the work request `wr_id`, whose WQE takes the `wqebbs` WQEBBs from `index` on: at least one. None
    /// starts at the inner ones, whatever an abandoned batch left there.
    #[inline(always)]
    pub(super) fn remember(&mut self, index: u32, wr_id: u64, wqebbs: u16) {
        *self.wr_id(index) = wr_id;
        let length = self.length(index);
        // SAFETY: there is a byte for each WQEBB of the ring, in order: these lie in one piece, or each is looked for.
        unsafe {
            length.write(wqebbs as u8);
            if self.whole(index, wqebbs) {
                // The first by itself: for one, a loop would be a call of memset. Where the compiler knows the count,
                // it joins the stores.
                if wqebbs > 1 {
                    length.add(1).write(0);
                }
                (2..wqebbs).for_each(|inner| length.add(inner.into()).write(0));
            } else {
                (1..wqebbs).for_each(|inner| self.length(index.wrapping_add(inner.into())).write(0));
            }
        }
    }

    /// See [`SendQueue::retire`](super::SendQueue::retire).
    #[inline(always)]
    pub(crate) fn retire(&mut self, work: &Work) -> Result<u64, RetireError> {
        if work.side != Side::Send || work.qpn != self.qpn {
            return Err(RetireError::OtherQueue { work: *work, side: Side::Send, qpn: self.qpn });
        }
        let before = u32::from(work.index.wrapping_sub(self.retired as u16));
        // SAFETY: nobody else has a reference to it.
        let wqebbs = unsafe { self.length(work.index.into()).read() };
        // Not with the card, or where no work request starts.
        if before >= self.in_flight() || wqebbs == 0 {
            let (first, end) = (self.retired as u16, self.producer as u16);
            return Err(RetireError::NotInFlight { work: *work, first, end });
        }
        self.retired = self.retired.wrapping_add(before + u32::from(wqebbs));
        Ok(*self.wr_id(work.index.into()))
    }
}

/// The room of one WQE in a ring, as plain numbers. What is stored there is of the segments that the WQE's size counts.
pub(crate) struct Room<'a> {
    /// The ring.
    base: NonNull<u8>,
    /// Where in the ring the WQE starts: a multiple of 64.
    first: usize,
    /// Bytes of the ring.
    end: usize,
    /// Whether it is known to lie in one piece: else it may go on at the ring's start.
    whole: bool,
    _ring: PhantomData<&'a mut SendRing>,
}

impl Room<'_> {
    /// Where segment number `segment` lies: a multiple of 16 inside of the ring.
    #[inline(always)]
    fn place(&self, segment: usize) -> usize {
        let place = self.first + segment * SEGMENT;
        debug_assert!(!self.whole || place < self.end, "segment {segment} is not of this WQE");
        // The first WQEBB never wraps.
        if self.whole || segment < WQEBB / SEGMENT { place } else { place & (self.end - 1) }
    }

    /// Stores segment number `segment`.
    #[inline(always)]
    pub(crate) fn store(&mut self, segment: usize, [first, second]: [u64; 2]) {
        // SAFETY: the 16 bytes lie inside of the ring, aligned; nobody in this process has a reference to them
        // (`SendRing::blocks` ends before `&mut SendRing` can be had again).
        unsafe {
            let place = self.base.add(self.place(segment)).cast::<u64>();
            place.write(first);
            place.add(1).write(second);
        }
    }

    /// Stores the header of inline data at the start of segment `segment`.
    #[inline(always)]
    pub(super) fn store_header(&mut self, segment: usize, header: [u8; INLINE_HEADER]) {
        // SAFETY: a segment lies inside of the ring; nobody in this process has a reference to it.
        unsafe { self.base.add(self.place(segment)).cast().write(header) }
    }

    /// Stores `data` from byte `at` of segment `segment` on.
    #[inline(always)]
    pub(crate) fn store_bytes(&mut self, segment: usize, at: usize, data: &[u8]) {
        let first = self.place(segment) + at % SEGMENT;
        // SAFETY: a byte of a segment lies inside of the ring, and so does what is copied there: as a whole, or as much
        // as there is room for and the rest from the ring's start on. Nobody in this process has a reference to it, and
        // no data is longer than the room, which was made for it.
        unsafe {
            if self.whole || first + data.len() <= self.end {
                self.base.add(first).copy_from_nonoverlapping(NonNull::from(data).cast(), data.len());
            } else {
                copy_around(self.base, first, self.end, data);
            }
        }
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
