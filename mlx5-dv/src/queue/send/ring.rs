//! The send ring: the memory of WQEs, and which of them are in flight.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::slice;

use mlx5_prm::wqe::{CtrlSeg, InlineSegHeader, SEGMENT, WQEBB};
use uar::{SendRecord, Wqebb};

use crate::memory::MAX_ELEMENT;
use crate::objects::SendLimits;
use crate::queue::completion::decode::{Side, Work};
use crate::queue::error::RetireError;

/// Size of the inline data header.
pub(super) const INLINE_HEADER: usize = size_of::<InlineSegHeader>();

/// The ring's fields: one cache line.
///
/// Indices count WQEBBs, modulo 2^32; the card knows their low 16 bits. WQEBBs from `retired` to `producer` are in
/// flight: never more than the ring has, at most 2^15.
pub(crate) struct SendRing {
    base: NonNull<u8>,
    /// The queue's number, as in the first eight bytes of each WQE.
    pub(super) number: u64,
    pub(super) record: SendRecord,
    /// For each WQEBB, the `wr_id` of the work request that starts there; then, one byte each, its number of WQEBBs: 0
    /// if none starts there. Both are valid from `retired` to `producer`. Entries of an abandoned batch are beyond
    /// that; the next batch overwrites all of those that it uses. A box without its length, which `extent` has.
    posted: NonNull<u64>,
    extent: Extent,
    pub(super) producer: u32,
    /// Index of the oldest work request in flight, if any.
    pub(super) retired: u32,
    pub(super) qpn: u32,
    /// Of a service that [spans](super::Service::SPANS) WQEBBs: the first index from `producer` on that has no room, or
    /// is in the next lap of the ring. A WQE up to here has room, and does not wrap.
    pub(super) straight: u32,
    /// Longest element or message in bytes; 0 if elements are not supported.
    pub(crate) longest: u32,
    pub(super) sges: u16,
    pub(super) inline_bytes: u16,
}

const _: () = assert!(size_of::<SendRing>() <= 64, "the hot fields have outgrown a cache line");

// SAFETY: only this value uses the ring and owns `posted`; `new`'s contract keeps the ring's memory mapped.
unsafe impl Send for SendRing {}

impl SendRing {
    /// A ring of `1 << log_size` WQEBBs at `base`, for queue pair `qpn`.
    ///
    /// # Safety
    /// The ring's bytes stay mapped while this value lives, `base` is aligned to 64, and this process accesses them
    /// only through this value. `log_size` is at most 15.
    pub(crate) unsafe fn new(
        base: NonNull<u8>,
        log_size: u32,
        qpn: u32,
        limits: SendLimits,
        record: SendRecord,
    ) -> Self {
        let extent = Extent { mask: (1 << log_size) - 1 };
        let qpn = qpn & 0xff_ffff;
        let mut control = CtrlSeg::ZERO;
        control.w().qp_or_sq(qpn);
        let [number, _]: [u64; 2] = zerocopy::transmute!(control);
        let longest = (1u32 << limits.log_max_msg.min(31)).min(MAX_ELEMENT);
        SendRing {
            base,
            number,
            record,
            posted: NonNull::from(Box::leak(vec![0u64; extent.words()].into_boxed_slice())).cast(),
            extent,
            producer: 0,
            retired: 0,
            straight: extent.capacity() as u32,
            qpn,
            longest: if limits.sges == 0 { 0 } else { longest },
            sges: limits.sges,
            inline_bytes: limits.inline_bytes,
        }
    }

    /// The room of a WQE at WQEBB `index`; `whole` if it is known not to wrap.
    #[inline(always)]
    pub(super) fn room(&mut self, index: u32, whole: bool) -> Room<'_> {
        Room { base: self.base, index, whole, entries: self.entries(), _ring: PhantomData }
    }

    /// Segments `first` to before `end`, not before `first`, of the WQE at WQEBB `index`, which does not wrap.
    #[inline(always)]
    pub(super) fn segments(&self, index: u32, first: usize, end: usize) -> Segments {
        let start = self.extent.offset(index) + first * SEGMENT;
        let count = end - first;
        debug_assert!(
            count == 0 || start + count * SEGMENT <= self.extent.bytes(),
            "{count} segments of a WQE that wraps"
        );
        // SAFETY: inside the ring, or at its end: the WQE does not wrap. Where there are none, it is of the WQE's first
        // WQEBB all the same.
        let next = unsafe { self.base.add(start).cast::<[u64; 2]>() };
        // SAFETY: as above.
        Segments { next: NextSegment(next), end: NextSegment(unsafe { next.add(count) }) }
    }

    /// Stores segment `next`, which is of this ring and not the end of a WQE, and goes on.
    #[inline(always)]
    pub(super) fn store_next(&mut self, next: &mut NextSegment, segment: [u64; 2]) {
        // SAFETY: inside the ring, and aligned; nobody in this process has a reference to it (the borrow of `blocks`
        // excludes `&mut self`). The next one is at most the WQE's end.
        unsafe {
            next.0.write(segment);
            next.0 = next.0.add(1);
        }
    }

    /// As [`store_next`](Self::store_next): `header` and the bytes of a frame, in the `count` segments that they need.
    #[inline(always)]
    pub(super) fn store_next_inline(
        &mut self,
        next: &mut NextSegment,
        count: usize,
        header: [u8; INLINE_HEADER],
        frame: &[u8],
    ) {
        debug_assert!(INLINE_HEADER + frame.len() <= count * SEGMENT, "{} bytes in {count} segments", frame.len());
        let start = next.0.cast::<u8>();
        // SAFETY: as for `store_next`, for all `count` segments; no reference to `frame` is one to the ring.
        unsafe {
            start.cast().write(header);
            copy_short(start.add(INLINE_HEADER), frame);
            next.0 = next.0.add(count);
        }
    }

    /// The blocks of the WQE at `index`, if it does not wrap; otherwise empty.
    #[inline(always)]
    pub(super) fn blocks(&self, index: u32, wqebbs: u32) -> &[Wqebb] {
        let (start, count) = (self.extent.offset(index), wqebbs as usize);
        // A single block never wraps.
        let count = if count > 1 && start + count * WQEBB > self.extent.bytes() { 0 } else { count };
        // SAFETY: the blocks are inside the ring and aligned; only `&mut self` stores to them, and the card only reads
        // them.
        unsafe { slice::from_raw_parts(self.base.add(start).cast().as_ptr(), count) }
    }

    /// Number of WQEBBs in flight.
    #[inline(always)]
    pub(crate) fn in_flight(&self) -> u32 {
        self.producer.wrapping_sub(self.retired)
    }

    /// Whether WQEBB `end` is in another quarter of the ring than `start`. A completion for each quarter frees a ring
    /// long before it is full.
    #[inline(always)]
    pub(super) fn enters_quarter(&self, start: u32, end: u32) -> bool {
        u64::from(start ^ end) << 2 > self.extent.mask.into()
    }

    /// The first index without room.
    #[inline(always)]
    pub(super) fn end(&self) -> u32 {
        self.retired.wrapping_add(self.capacity() as u32)
    }

    /// As field `straight`, from `index` on, which has room or is the first that has none.
    #[inline(always)]
    pub(super) fn straight_from(&self, index: u32) -> u32 {
        self.extent.straight(index, self.end())
    }

    /// Number of WQEBBs of the ring.
    #[inline(always)]
    pub(crate) fn capacity(&self) -> usize {
        self.extent.capacity()
    }

    /// Which WQEBBs there are.
    #[inline(always)]
    pub(super) fn extent(&self) -> Extent {
        self.extent
    }

    /// What is remembered of each WQEBB.
    #[inline(always)]
    fn entries(&self) -> Entries {
        Entries { posted: self.posted, extent: self.extent }
    }

    /// The `wr_id` of `work`, which completed, and the index that [`free_to`](Self::free_to) takes to retire it.
    #[inline(always)]
    pub(super) fn completed(&self, work: &Work) -> Result<(u64, u32), RetireError> {
        if work.side != Side::Send || work.qpn != self.qpn {
            return Err(RetireError::OtherQueue { work: *work, side: Side::Send, qpn: self.qpn });
        }
        let before = u32::from(work.index.wrapping_sub(self.retired as u16));
        // SAFETY: nobody else has a reference to it.
        let wqebbs = unsafe { self.entries().length(work.index.into()).read() };
        // Not in flight, or no work request starts there.
        if before >= self.in_flight() || wqebbs == 0 {
            let (first, end) = (self.retired as u16, self.producer as u16);
            return Err(RetireError::NotInFlight { work: *work, first, end });
        }
        // SAFETY: as above.
        let wr_id = unsafe { self.entries().wr_id(work.index.into()).read() };
        Ok((wr_id, self.retired.wrapping_add(before + u32::from(wqebbs))))
    }

    /// Frees all WQEBBs before `index`. `spans` as of the service.
    #[inline(always)]
    pub(super) fn free_to(&mut self, index: u32, spans: bool) {
        self.retired = index;
        if spans {
            self.straight = self.straight_from(self.producer);
        }
    }
}

impl Drop for SendRing {
    fn drop(&mut self) {
        let posted = NonNull::slice_from_raw_parts(self.posted, self.extent.words());
        // SAFETY: it is the box that `new` leaked, which nobody else has.
        drop(unsafe { Box::from_raw(posted.as_ptr()) });
    }
}

/// Segments of a WQE that are stored one after the other.
#[derive(Clone, Copy)]
pub(super) struct Segments {
    pub(super) next: NextSegment,
    end: NextSegment,
}

/// The segment of a WQE that is [stored](SendRing::store_next) next.
#[derive(Clone, Copy)]
pub(in crate::queue) struct NextSegment(NonNull<[u64; 2]>);

// SAFETY: only who has the ring stores to it, and that can be sent.
unsafe impl Send for NextSegment {}

impl NextSegment {
    /// Number of segments from `start` on, which is of the same WQE and not behind it.
    #[inline(always)]
    pub(super) fn after(self, start: NextSegment) -> usize {
        (self.0.as_ptr() as usize - start.0.as_ptr() as usize) / SEGMENT
    }
}

impl Segments {
    /// Goes on behind the next `count`, which there are.
    #[inline(always)]
    pub(super) fn pass(&mut self, count: usize) {
        debug_assert!(self.have(count));
        // SAFETY: not beyond the end.
        self.next = NextSegment(unsafe { self.next.0.add(count) });
    }

    /// Whether at least `count` are left.
    #[inline(always)]
    pub(super) fn have(&self, count: usize) -> bool {
        self.next.0.as_ptr() as usize + count * SEGMENT <= self.end.0.as_ptr() as usize
    }

    /// Whether all are stored.
    #[inline(always)]
    pub(super) fn are_full(&self) -> bool {
        self.next.0 == self.end.0
    }

    /// Number of those that are not stored.
    #[inline(always)]
    pub(super) fn left(&self) -> usize {
        self.end.after(self.next)
    }
}

/// Which WQEBBs a ring has: a power of two of them. Indices wrap.
#[derive(Clone, Copy)]
pub(super) struct Extent {
    /// Their number minus one.
    mask: u32,
}

impl Extent {
    #[inline(always)]
    fn capacity(self) -> usize {
        self.mask as usize + 1
    }

    /// Words of [`SendRing::posted`].
    fn words(self) -> usize {
        self.capacity() + self.capacity().div_ceil(size_of::<u64>())
    }

    /// Size of the ring in bytes.
    #[inline(always)]
    fn bytes(self) -> usize {
        self.capacity() * WQEBB
    }

    /// Which of them WQEBB `index` is.
    #[inline(always)]
    fn place(self, index: u32) -> usize {
        (index & self.mask) as usize
    }

    /// Offset of WQEBB `index`.
    #[inline(always)]
    pub(super) fn offset(self, index: u32) -> usize {
        self.place(index) * WQEBB
    }

    /// The first index from `index` on that is `end`, which has no room, or is in the next lap.
    #[inline(always)]
    pub(super) fn straight(self, index: u32, end: u32) -> u32 {
        let next_lap = (index | self.mask).wrapping_add(1);
        let [room, lap] = [end, next_lap].map(|end| end.wrapping_sub(index));
        index.wrapping_add(room.min(lap))
    }

    /// Whether the `wqebbs` WQEBBs at `index`, at least one, do not wrap.
    #[inline(always)]
    pub(super) fn whole(self, index: u32, wqebbs: u16) -> bool {
        self.place(index) + usize::from(wqebbs - 1) <= self.mask as usize
    }
}

/// What a ring remembers of its WQEBBs: [`SendRing::posted`].
#[derive(Clone, Copy)]
struct Entries {
    posted: NonNull<u64>,
    extent: Extent,
}

impl Entries {
    /// The `wr_id` of the work request at WQEBB `index`.
    #[inline(always)]
    fn wr_id(self, index: u32) -> NonNull<u64> {
        // SAFETY: there is one per WQEBB of the extent: both are set only in `new`.
        unsafe { self.posted.add(self.extent.place(index)) }
    }

    /// The length of the work request at WQEBB `index`. That of the next WQEBB follows, except after the ring's last
    /// one.
    #[inline(always)]
    fn length(self, index: u32) -> NonNull<u8> {
        // SAFETY: after the `wr_id`s there is one byte per WQEBB of the extent: both are set only in `new`.
        unsafe {
            self.posted.add(self.extent.mask as usize).cast::<u8>().add(size_of::<u64>() + self.extent.place(index))
        }
    }
}

/// The room of one WQE in a ring. Stores must be to segments of that WQE.
#[doc(hidden)]
pub struct Room<'a> {
    /// The ring.
    base: NonNull<u8>,
    /// The WQE's first WQEBB.
    index: u32,
    /// Whether the WQE is known not to wrap.
    whole: bool,
    entries: Entries,
    _ring: PhantomData<&'a mut SendRing>,
}

impl Room<'_> {
    /// Where what is straight behind this WQE of `wqebbs` ends, if all before `retired` is retired; `None` if the WQE
    /// itself has no room.
    #[inline(always)]
    pub(super) fn straight_behind(&self, retired: u32, wqebbs: u16) -> Option<u32> {
        let (extent, wqebbs) = (self.entries.extent, wqebbs.into());
        let end = retired.wrapping_add(extent.capacity() as u32);
        let has_room = end.wrapping_sub(self.index) >= wqebbs;
        has_room.then(|| extent.straight(self.index.wrapping_add(wqebbs), end))
    }

    /// Records that work request `wr_id` has the `wqebbs` WQEBBs of this room, at least one. Clears the length of
    /// the inner ones, which an abandoned batch may have set.
    #[inline(always)]
    pub(super) fn remember(&mut self, wr_id: u64, wqebbs: u16) {
        let (index, entries) = (self.index, self.entries);
        debug_assert!(!self.whole || entries.extent.whole(index, wqebbs), "{wqebbs} WQEBBs at {index} wrap");
        let length = entries.length(index);
        // SAFETY: nobody in this process has a reference to an entry (the borrow of the ring excludes it). There is
        // one byte per WQEBB, in order; these do not wrap, or each is looked up.
        unsafe {
            entries.wr_id(index).write(wr_id);
            length.write(wqebbs as u8);
            if self.whole || entries.extent.whole(index, wqebbs) {
                // One by one: for few WQEBBs a loop would be a call of memset. If the compiler knows the count, it
                // merges the stores.
                if wqebbs > 1 {
                    length.add(1).write(0);
                }
                if wqebbs > 2 {
                    length.add(2).write(0);
                }
                if wqebbs > 3 {
                    clear(length.add(3), (wqebbs - 3).into());
                }
            } else {
                (1..wqebbs).for_each(|inner| entries.length(index.wrapping_add(inner.into())).write(0));
            }
        }
    }

    /// Whether the WQE is known not to wrap.
    #[inline(always)]
    pub(super) fn is_whole(&self) -> bool {
        self.whole
    }

    /// As [`remember`](Self::remember), of a WQE that does not wrap and most often has many WQEBBs, 16 at most.
    #[inline(always)]
    pub(super) fn remember_many(&mut self, wr_id: u64, wqebbs: u16) {
        let (index, entries) = (self.index, self.entries);
        debug_assert!(entries.extent.whole(index, wqebbs) && (1..=16).contains(&wqebbs), "{wqebbs} WQEBBs at {index}");
        let (lengths, count) = (entries.length(index), usize::from(wqebbs));
        // SAFETY: as for `remember`. Each write is inside the `count` bytes of these WQEBBs, and they cover all.
        unsafe {
            entries.wr_id(index).write(wr_id);
            match count {
                1 => lengths.write(1),
                8.. => {
                    lengths.cast::<u64>().write_unaligned(u64::from(wqebbs).to_le());
                    if count > 8 {
                        lengths.add(count - 8).cast::<u64>().write_unaligned(0);
                    }
                }
                4.. => {
                    lengths.cast::<u32>().write_unaligned(u32::from(wqebbs).to_le());
                    if count > 4 {
                        lengths.add(count - 4).cast::<u32>().write_unaligned(0);
                    }
                }
                _ => {
                    lengths.write(wqebbs as u8);
                    lengths.add(1).write(0);
                    if count > 2 {
                        lengths.add(2).write(0);
                    }
                }
            }
        }
    }

    /// Offset of segment `segment`: a multiple of 16 inside the ring.
    #[inline(always)]
    fn place(&self, segment: usize) -> usize {
        let (first, end) = (self.entries.extent.offset(self.index), self.entries.extent.bytes());
        let place = first + segment * SEGMENT;
        debug_assert!(!self.whole || place < end, "segment {segment} is not of this WQE");
        // The first WQEBB never wraps.
        if self.whole || segment < WQEBB / SEGMENT { place } else { place & (end - 1) }
    }

    /// Stores segment `segment`.
    #[inline(always)]
    pub(crate) fn store(&mut self, segment: usize, [first, second]: [u64; 2]) {
        // SAFETY: the 16 bytes are inside the ring and aligned; nobody in this process has a reference to them (the
        // borrow of `SendRing::blocks` excludes `&mut SendRing`).
        unsafe {
            let place = self.base.add(self.place(segment)).cast::<u64>();
            place.write(first);
            place.add(1).write(second);
        }
    }

    /// Segment `segment`, as it was stored.
    pub(super) fn load(&self, segment: usize) -> [u64; 2] {
        // SAFETY: as for `store`. The card only reads it.
        unsafe { self.base.add(self.place(segment)).cast::<[u64; 2]>().read() }
    }

    /// Stores the header of inline data at the start of segment `segment`.
    #[inline(always)]
    pub(super) fn store_header(&mut self, segment: usize, header: [u8; INLINE_HEADER]) {
        // SAFETY: a segment is inside the ring; nobody in this process has a reference to it.
        unsafe { self.base.add(self.place(segment)).cast().write(header) }
    }

    /// As [`store_bytes`](Self::store_bytes), of `len` bytes: `copy` copies those from its first argument on to its
    /// second. Called once, and twice where the ring ends between.
    #[inline(always)]
    pub(super) fn store_with(&mut self, segment: usize, at: usize, len: usize, copy: impl Fn(usize, &mut [u8])) {
        let (first, end) = (self.place(segment) + at % SEGMENT, self.entries.extent.bytes());
        let count = if self.whole { len } else { len.min(end - first) };
        // SAFETY: inside the ring, up to its end, and as for `store_bytes`; its memory is initialized.
        copy(0, unsafe { slice::from_raw_parts_mut(self.base.add(first).as_ptr(), count) });
        if count < len {
            // SAFETY: as above, from the ring's start.
            copy(count, unsafe { slice::from_raw_parts_mut(self.base.as_ptr(), len - count) });
        }
    }

    /// Stores `data` from byte `at` of segment `segment` on.
    #[inline(always)]
    pub(crate) fn store_bytes(&mut self, segment: usize, at: usize, data: &[u8]) {
        let (first, end) = (self.place(segment) + at % SEGMENT, self.entries.extent.bytes());
        // SAFETY: the start is inside the ring, and so is the copy: as a whole, or up to the ring's end and the rest
        // from its start. Nobody in this process has a reference to it, and data is never longer than the room made for
        // it.
        unsafe {
            if self.whole || first + data.len() <= end {
                self.base.add(first).copy_from_nonoverlapping(NonNull::from(data).cast(), data.len());
            } else {
                copy_around(self.base, first, end, data);
            }
        }
    }
}

/// Copies `data`, of which most has 32 to 64 bytes: that needs no call.
///
/// # Safety
/// As many bytes at `start` may be written, and do not overlap `data`.
#[inline(always)]
unsafe fn copy_short(start: NonNull<u8>, data: &[u8]) {
    const HALF: usize = 32;
    // SAFETY: by this function's contract. The halves overlap, and cover the data exactly.
    unsafe {
        match (data.first_chunk::<HALF>(), data.last_chunk::<HALF>()) {
            (Some(first), Some(last)) if data.len() <= 2 * HALF => {
                start.cast::<[u8; HALF]>().write_unaligned(*first);
                start.add(data.len() - HALF).cast::<[u8; HALF]>().write_unaligned(*last);
            }
            _ => start.copy_from_nonoverlapping(NonNull::from(data).cast(), data.len()),
        }
    }
}

/// Clears `len` bytes, most often less than 16: for these a call of memset would cost more than all else.
///
/// # Safety
/// The bytes may be written.
#[inline(always)]
unsafe fn clear(bytes: NonNull<u8>, len: usize) {
    const HALF: usize = size_of::<u64>();
    // SAFETY: by this function's contract. The halves overlap, and cover the bytes exactly.
    unsafe {
        match len {
            HALF..=16 => {
                bytes.cast::<u64>().write_unaligned(0);
                bytes.add(len - HALF).cast::<u64>().write_unaligned(0);
            }
            4..HALF => {
                bytes.cast::<u32>().write_unaligned(0);
                bytes.add(len - 4).cast::<u32>().write_unaligned(0);
            }
            0..4 => (0..len).for_each(|at| bytes.add(at).write_volatile(0)),
            _ => bytes.write_bytes(0, len),
        }
    }
}

/// Copies `data` to `start` of the `end` bytes at `base`; wraps to `base`.
///
/// # Safety
/// `start` is at most `end`; the bytes may be written, do not overlap `data`, and are at least as many.
#[cold]
#[inline(never)]
unsafe fn copy_around(base: NonNull<u8>, start: usize, end: usize, data: &[u8]) {
    let (first, rest) = data.split_at(end - start);
    // SAFETY: by this function's contract.
    unsafe {
        base.add(start).copy_from_nonoverlapping(NonNull::from(first).cast(), first.len());
        base.copy_from_nonoverlapping(NonNull::from(rest).cast(), rest.len());
    }
}
