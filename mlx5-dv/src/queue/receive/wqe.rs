//! Receive WQEs, where they lie and what is in them: lists of scatter elements.

use std::ptr::NonNull;

use mlx5_prm::wqe::{DataSeg, LKEY_INVALID, SEGMENT};

use crate::memory::{DataSegment, MAX_ELEMENT};
use crate::queue::error::PostError;

/// The WQEs of a receive ring, by place: less than half a cache line.
pub(super) struct Wqes {
    base: NonNull<u8>,
    /// Bytes of the longest element that fills a WQE; 0 where a WQE has room for more than one, or for none.
    longest_alone: u32,
    /// Scatter elements of a WQE.
    sges: u16,
    /// Segments of a WQE.
    segments: u16,
    /// log2 of a WQE's bytes.
    log_stride: u8,
}

impl Wqes {
    /// The WQEs of `1 << log_stride` bytes at `base`, of which `sges` segments, behind the `head` first, may be
    /// elements. `log_stride` is at least 4, and a WQE has room for its head.
    pub(super) fn new(base: NonNull<u8>, log_stride: u32, head: u16, sges: u16) -> Self {
        let segments = 1 << (log_stride - SEGMENT.trailing_zeros());
        let sges = sges.min(segments - head);
        let longest_alone = if (sges, segments - head) == (1, 1) { MAX_ELEMENT } else { 0 };
        Wqes { base, longest_alone, sges, segments, log_stride: log_stride as u8 }
    }

    /// Whether `element` is from 1 byte to the longest, and fills a WQE: in one comparison what most receives are.
    #[inline(always)]
    pub(super) fn is_filled_by(&self, element: &DataSegment) -> bool {
        element.len.wrapping_sub(1) < self.longest_alone
    }

    /// Stores segment `segment` of the WQE at `place`.
    ///
    /// # Safety
    /// The WQE lies inside of the ring, which is mapped, aligned to 16, and the caller's alone. `segment` is one of a
    /// WQE's.
    #[inline(always)]
    pub(super) unsafe fn store(&self, place: u32, segment: usize, data: [u64; 2]) {
        let offset = (place as usize) << self.log_stride;
        // SAFETY: the caller's promise.
        unsafe { self.base.add(offset + segment * SEGMENT).cast::<[u64; 2]>().write(data) }
    }

    /// # Safety
    /// As for [`store`](Self::store).
    #[inline(always)]
    pub(super) unsafe fn store_element(&self, place: u32, segment: usize, element: &DataSegment) {
        let mut data = DataSeg::ZERO;
        data.w().byte_count(element.len).lkey(element.lkey).addr(element.addr);
        // SAFETY: the caller's promise.
        unsafe { self.store(place, segment, zerocopy::transmute!(data)) }
    }

    /// Stores the elements that have bytes from segment `head` on, and the list's end if there is room for it.
    ///
    /// # Safety
    /// As for [`store`](Self::store); `elements` passed [`check`](Self::check), and `head` is what `new` was told.
    #[inline(always)]
    pub(super) unsafe fn store_list(&self, place: u32, head: usize, elements: &[DataSegment]) {
        let some = elements.iter().filter(|element| element.len != 0);
        let end = some.fold(head, |segment, element| {
            // SAFETY: the caller's promise; a WQE has room for its head and as many elements as `check` lets pass.
            unsafe { self.store_element(place, segment, element) };
            segment + 1
        });
        if end < self.segments.into() {
            let mut last = DataSeg::ZERO;
            last.w().lkey(LKEY_INVALID);
            // SAFETY: the caller's promise; one of the WQE's segments.
            unsafe { self.store(place, end, zerocopy::transmute!(last)) }
        }
    }

    /// Whether `elements` are a list that a receive may have.
    #[inline(always)]
    pub(super) fn check(&self, elements: &[DataSegment]) -> Result<(), PostError> {
        if elements.len() > usize::from(self.sges) {
            return Err(PostError::TooManySges { given: elements.len(), most: self.sges.into() });
        }
        match elements.iter().find(|element| element.len > MAX_ELEMENT) {
            Some(long) => Err(PostError::MessageTooLong { given: long.len.into(), most: MAX_ELEMENT.into() }),
            None => Ok(()),
        }
    }
}
