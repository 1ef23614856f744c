//! Receive WQEs: lists of scatter elements.

use std::ptr::NonNull;

use mlx5_prm::wqe::{DataSeg, LKEY_INVALID, SEGMENT};

use crate::memory::{DataSegment, MAX_ELEMENT};
use crate::queue::error::PostError;

/// The WQEs of a receive ring: less than half a cache line.
pub(super) struct Wqes {
    base: NonNull<u8>,
    /// Longest element that fills a WQE, in bytes; 0 if a WQE has room for several elements, or for none.
    longest_alone: u32,
    /// Scatter elements per WQE.
    sges: u16,
    /// Segments per WQE.
    segments: u16,
    /// Log of the WQE size in bytes.
    log_stride: u8,
}

impl Wqes {
    /// The WQEs of `1 << log_stride` bytes at `base`. After `head` segments, `sges` segments can be elements.
    /// `log_stride` is at least 4, and a WQE has room for its head.
    pub(super) fn new(base: NonNull<u8>, log_stride: u32, head: u16, sges: u16) -> Self {
        let segments = 1 << (log_stride - SEGMENT.trailing_zeros());
        let sges = sges.min(segments - head);
        let longest_alone = if (sges, segments - head) == (1, 1) { MAX_ELEMENT } else { 0 };
        Wqes { base, longest_alone, sges, segments, log_stride: log_stride as u8 }
    }

    /// Whether `element` is not empty, not too long, and fills a WQE: the most common receive, found by one comparison.
    #[inline(always)]
    pub(super) fn is_filled_by(&self, element: &DataSegment) -> bool {
        element.len.wrapping_sub(1) < self.longest_alone
    }

    /// Stores segment `segment` of WQE `place`.
    ///
    /// # Safety
    /// The WQE is inside the ring, which is mapped, aligned to 16, and exclusively the caller's. `segment` is below the
    /// number of segments per WQE.
    #[inline(always)]
    pub(super) unsafe fn store(&self, place: u32, segment: usize, data: [u64; 2]) {
        let offset = (place as usize) << self.log_stride;
        // SAFETY: by this function's contract.
        unsafe { self.base.add(offset + segment * SEGMENT).cast::<[u64; 2]>().write(data) }
    }

    /// # Safety
    /// As for [`store`](Self::store).
    #[inline(always)]
    pub(super) unsafe fn store_element(&self, place: u32, segment: usize, element: &DataSegment) {
        let mut data = DataSeg::ZERO;
        data.w().byte_count(element.len).lkey(element.lkey).addr(element.addr);
        // SAFETY: by this function's contract.
        unsafe { self.store(place, segment, zerocopy::transmute!(data)) }
    }

    /// Stores the non-empty elements from segment `head` on, and the end of the list if there is room for it.
    ///
    /// # Safety
    /// As for [`store`](Self::store); `elements` passed [`check`](Self::check), and `head` is that of `new`.
    #[inline(always)]
    pub(super) unsafe fn store_list(&self, place: u32, head: usize, elements: &[DataSegment]) {
        let some = elements.iter().filter(|element| element.len != 0);
        let end = some.fold(head, |segment, element| {
            // SAFETY: by this function's contract; a WQE has room for its head and as many elements as `check` accepts.
            unsafe { self.store_element(place, segment, element) };
            segment + 1
        });
        if end < self.segments.into() {
            let mut last = DataSeg::ZERO;
            last.w().lkey(LKEY_INVALID);
            // SAFETY: by this function's contract; it is a segment of the WQE.
            unsafe { self.store(place, end, zerocopy::transmute!(last)) }
        }
    }

    /// Whether a receive can have these `elements`.
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
