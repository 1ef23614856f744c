//! Frames with only the stores and loads that are unavoidable.

use mlx5_dv::queue::DataSegment;
use uar::barrier;

use super::{CE_ALWAYS, Ring, SEND, WQEBB};
use crate::request::{FrameRequests, HEADER, INLINE, REQUESTS, first_request};
use crate::stage::RING;
use crate::stage::frames::Buffers;

pub(super) const ENHANCED_MPSW: u32 = 0x29;
/// Opcode of the completion of a received frame.
pub(super) const RESPONDER_SEND: u8 = 2;
/// Segments before the frames of a multi-packet WQE.
pub(super) const HEADS: usize = 2;
/// Segments of a WQEBB, and bytes of a segment.
pub(super) const SEGMENTS: usize = 4;
const SEGMENT: usize = WQEBB / SEGMENTS;
/// Inline bytes that the Ethernet segment ends with.
const IN_SEGMENT: usize = 2;
/// Segments of a frame that is copied into a multi-packet WQE, with its header of 4 bytes.
const COPIED: usize = (4 + INLINE).div_ceil(SEGMENT);
/// Bits of a CQE's byte 0x1c: the checksums of layers 3 and 4 are right.
const CHECKSUMS_OK: u8 = 0b110;

impl Ring {
    /// Moves on to the ring's start.
    pub fn rewind(&mut self) {
        self.producer = self.producer.next_multiple_of(self.mask + 1);
    }

    /// `count` frames, the first bytes of each in its WQE, a doorbell every `BATCH`.
    #[inline(never)]
    pub fn headers<const BATCH: usize>(&mut self, requests: &FrameRequests, count: usize) {
        let start = first_request::<BATCH>();
        for first in (start..start + count).step_by(BATCH) {
            let mut last = 0;
            for i in first..first + BATCH {
                let (start, rest) = (&requests.data[i % REQUESTS], requests.behind[i % REQUESTS]);
                let (slot, control) = self.next(SEND, 4);
                // SAFETY: one block of the ring, aligned to 64, all of which is stored to.
                unsafe {
                    slot.write(control);
                    slot.add(1).write((CE_ALWAYS << 32).to_be());
                    slot.add(2).write(0);
                    slot.add(3).write(((HEADER as u64) << 16).to_be());
                    slot.cast::<u8>().add(32 - IN_SEGMENT).copy_from_nonoverlapping(start.as_ptr(), HEADER);
                    slot.add(6).write((u64::from(rest.len) << 32 | u64::from(rest.lkey)).to_be());
                    slot.add(7).write(rest.addr.to_be());
                }
                self.producer = self.producer.wrapping_add(1);
                last = control;
            }
            self.ring(last);
        }
    }

    /// `count` frames from memory.
    #[inline(never)]
    pub fn whole(&mut self, requests: &FrameRequests, count: usize) {
        for i in 0..count {
            let whole = requests.whole[i % REQUESTS];
            let (slot, control) = self.next(SEND, 3);
            // SAFETY: one block of the ring, aligned to 64; 48 of its bytes are stored to.
            unsafe {
                slot.write(control);
                slot.add(1).write((CE_ALWAYS << 32).to_be());
                slot.add(2).write(0);
                slot.add(3).write(0);
                slot.add(4).write((u64::from(whole.len) << 32 | u64::from(whole.lkey)).to_be());
                slot.add(5).write(whole.addr.to_be());
            }
            self.producer = self.producer.wrapping_add(1);
            self.ring(control);
        }
    }

    /// Begins a multi-packet WQE of `frames` frames of `segments` segments each, which does not wrap. Returns where its
    /// first frame is stored, and its first eight bytes.
    #[inline(always)]
    fn begin(&mut self, frames: usize, segments: usize, is_last: bool) -> (*mut u64, u64) {
        let all = HEADS + frames * segments;
        let (slot, control) = self.next(ENHANCED_MPSW, all as u32);
        // SAFETY: one block of the ring, aligned to 64; 32 of its bytes are stored to.
        unsafe {
            slot.write(control);
            slot.add(1).write(if is_last { (CE_ALWAYS << 32).to_be() } else { 0 });
            slot.add(2).write(0);
            slot.add(3).write(0);
        }
        self.producer = self.producer.wrapping_add(all.div_ceil(SEGMENTS) as u32);
        // SAFETY: of the same block, the third segment.
        (unsafe { slot.add(4) }, control)
    }

    /// `count` frames by multi-packet WQEs, a doorbell every `BATCH`. `put` stores one, of `segments` segments.
    #[inline(always)]
    fn bursts<const BATCH: usize>(
        &mut self,
        requests: &FrameRequests,
        count: usize,
        segments: usize,
        put: impl Fn(*mut u64, usize),
    ) {
        let most = requests.most / segments;
        for first in (0..count).step_by(BATCH) {
            let (mut at, end, mut last) = (first, first + BATCH, 0);
            while at < end {
                let some = most.min(end - at);
                let (mut place, control) = self.begin(some, segments, at + some == end);
                for i in at..at + some {
                    put(place, i);
                    // SAFETY: of the WQE, or its end.
                    place = unsafe { place.add(segments * 2) };
                }
                (at, last) = (at + some, control);
            }
            self.ring(last);
        }
    }

    /// `count` frames of their source by multi-packet WQEs, a doorbell every `BATCH`.
    #[inline(never)]
    pub fn pointers<const BATCH: usize>(&mut self, requests: &FrameRequests, count: usize) {
        let DataSegment { addr, lkey, .. } = requests.memory;
        self.bursts::<BATCH>(requests, count, 1, |place, i| {
            let range = &requests.places[i % REQUESTS];
            // SAFETY: a segment of the WQE.
            unsafe {
                place.write((((range.end - range.start) as u64) << 32 | u64::from(lkey)).to_be());
                place.add(1).write((addr + range.start as u64).to_be());
            }
        });
    }

    /// `count` frames by multi-packet WQEs of a list of `BATCH` frames, a doorbell for each list.
    #[inline(never)]
    pub fn several<const BATCH: usize>(&mut self, requests: &FrameRequests, count: usize) {
        for _ in 0..count / BATCH {
            let (mut left, mut last) = (&requests.whole[..BATCH], 0);
            while !left.is_empty() {
                let (some, rest) = left.split_at(requests.most.min(left.len()));
                let (place, control) = self.begin(some.len(), 1, rest.is_empty());
                for (i, frame) in some.iter().enumerate() {
                    // SAFETY: a segment of the WQE.
                    unsafe {
                        place.add(i * 2).write((u64::from(frame.len) << 32 | u64::from(frame.lkey)).to_be());
                        place.add(i * 2 + 1).write(frame.addr.to_be());
                    }
                }
                (left, last) = (rest, control);
            }
            self.ring(last);
        }
    }

    /// `count` frames that are copied into multi-packet WQEs, a doorbell every `BATCH`.
    #[inline(never)]
    pub fn copies<const BATCH: usize>(&mut self, requests: &FrameRequests, count: usize) {
        self.bursts::<BATCH>(requests, count, COPIED, |place, i| {
            // SAFETY: the frame's segments of the WQE.
            unsafe { Self::put_inline(place, &requests.data[i % REQUESTS]) }
        });
    }

    /// One frame: its length, the number of its receive, and where `CHECKED` whether its checksums are right. `None` if
    /// there is none.
    #[inline(always)]
    fn take_frame<const CHECKED: bool>(&mut self) -> Option<(u32, u16, bool)> {
        // SAFETY: the masked index is inside of the ring, whose entries are of 64 bytes, aligned.
        unsafe {
            let cqe = self.base.add((self.producer & self.mask) as usize * WQEBB);
            let op_own = cqe.add(63).read_volatile();
            if op_own & 1 != u8::from(self.producer & (self.mask + 1) != 0) {
                return None;
            }
            if op_own >> 4 != RESPONDER_SEND {
                return None;
            }
            barrier::from_device();
            let byte_count = u32::from_be(cqe.add(0x2c).cast::<u32>().read_volatile());
            let index = u16::from_be(cqe.add(0x3c).cast::<u16>().read_volatile());
            let is_right = CHECKED && cqe.add(0x1c).read_volatile() & CHECKSUMS_OK == CHECKSUMS_OK;
            self.producer = self.producer.wrapping_add(1);
            Some((byte_count, index, is_right))
        }
    }

    /// Posts the receive of `buffer`.
    #[inline(always)]
    fn put_receive(&mut self, buffers: &Buffers, place: usize) {
        let buffer = buffers[place % RING];
        // SAFETY: the masked index is inside of the ring; 16 bytes, aligned.
        unsafe {
            let slot = self.base.add((self.producer & self.mask) as usize * SEGMENT).cast::<u64>();
            slot.write((u64::from(buffer.len) << 32 | u64::from(buffer.lkey)).to_be());
            slot.add(1).write(buffer.addr.to_be());
        }
        self.producer = self.producer.wrapping_add(1);
    }

    /// Stores the receive ring's doorbell record.
    #[inline(always)]
    pub(super) fn publish(&mut self) {
        barrier::to_device();
        // SAFETY: the record lies in this value's memory, aligned.
        unsafe { self.record.write_volatile((self.producer & 0xffff).to_be()) }
    }

    /// Takes `count` frames of this completion ring, `BATCH` at a time, and posts their buffers to `receives` again;
    /// returns the sum of lengths and places, and of what `CHECKED` finds.
    #[inline(never)]
    pub fn receive_frames<const BATCH: usize, const CHECKED: bool>(
        &mut self,
        receives: &mut Ring,
        buffers: &Buffers,
        count: usize,
    ) -> Option<u64> {
        let mut sum = 0u64;
        for _ in 0..count / BATCH {
            for _ in 0..BATCH {
                let (len, index, is_right) = self.take_frame::<CHECKED>()?;
                let place = usize::from(index) % RING;
                sum = sum.wrapping_add(u64::from(len) + place as u64 + u64::from(is_right));
                receives.put_receive(buffers, place);
            }
            self.consume();
            receives.publish();
        }
        Some(sum)
    }
}
