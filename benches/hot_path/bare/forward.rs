//! Frames that are forwarded where they were received, with only the stores and loads that are unavoidable.

use std::hint::black_box;

use mlx5_dv::queue::DataSegment;
use uar::barrier;

use super::frames::{ENHANCED_MPSW, HEADS, RESPONDER_SEND, SEGMENTS};
use super::{CE_ALWAYS, Ring, WQEBB};
use crate::stage::forward::{ForwardState, POSTED, RECEIVE, RECEIVES, SENDS, STRIDE, STRIDES};

/// The rings of a loop that receives frames into strides and sends them on. It knows that no burst meets the end of a
/// buffer or of the completion ring.
pub struct Forwarding {
    /// Completions of receives.
    received: Ring,
    /// Receives: two.
    receives: Ring,
    sends: Ring,
    /// Completions of sends.
    sent: Ring,
    /// The buffers that are posted, in their order, and the one before them.
    buffers: [DataSegment; 3],
    /// Strides that are used of the first.
    used: usize,
    /// Most frames of a multi-packet WQE.
    most: usize,
}

impl Forwarding {
    /// Rings after what the card has done. Nothing was received into the `buffers` that are posted.
    pub fn new(state: &ForwardState, buffers: [DataSegment; 3], most: usize) -> Self {
        let [received, sent] = state.entries;
        Forwarding {
            received: Ring::new(received, WQEBB, 0, 0xff, state.received),
            receives: Ring::new(RECEIVES / RECEIVE, RECEIVE, 0, 0, POSTED),
            sends: Ring::new(SENDS, WQEBB, state.sqn, 0, state.fetched),
            sent: Ring::new(sent, WQEBB, 0, 0xff, state.sent),
            buffers,
            used: 0,
            most,
        }
    }

    /// Writes a completion of a receive to `offset` of its ring, as a card does.
    pub fn complete(&mut self, offset: usize, cqe: &[u8]) {
        self.received.fill(offset, cqe);
    }

    /// As [`complete`](Self::complete), of a send.
    pub fn complete_send(&mut self, offset: usize, cqe: &[u8]) {
        self.sent.fill(offset, cqe);
    }

    /// Bytes of the send ring.
    pub fn sends(&self, offset: usize, len: usize) -> Vec<u8> {
        self.sends.bytes(offset, len)
    }

    /// Bytes of the receive ring.
    pub fn receives(&self) -> Vec<u8> {
        self.receives.bytes(0, RECEIVES)
    }

    /// Clears the rings of WQEs.
    pub fn clear(&mut self) {
        self.sends.fill(0, &[0; SENDS * WQEBB]);
        self.receives.fill(0, &[0; RECEIVES]);
    }

    /// If the strides of the first buffer are used up, posts another one: the same again, or if it is `sent` from the
    /// one before it.
    #[inline(always)]
    fn refill(&mut self, sent: bool) {
        if self.used != STRIDES {
            return;
        }
        self.used = 0;
        let [first, second, before] = self.buffers;
        let (next, before) = if sent { (before, first) } else { (first, before) };
        self.buffers = [second, next, before];
        let place = self.receives.producer & self.receives.mask;
        // SAFETY: the masked index is inside of the ring. A WQE of two segments, aligned.
        unsafe {
            let slot = self.receives.base.add(place as usize * RECEIVE).cast::<u64>();
            slot.write((u64::from((place + 1) & self.receives.mask) << 32).to_be());
            slot.add(1).write(0);
            slot.add(2).write((u64::from(next.len) << 32 | u64::from(next.lkey)).to_be());
            slot.add(3).write(next.addr.to_be());
        }
        self.receives.producer = self.receives.producer.wrapping_add(1);
        self.receives.publish();
    }

    /// Takes the completions of sends that are there.
    #[inline(always)]
    fn retire(&mut self) {
        let before = self.sent.producer;
        while let Some(index) = self.sent.take() {
            self.sends.retired = index as u32;
        }
        if self.sent.producer != before {
            self.sent.consume();
        }
    }

    /// Address of the next completion of a receive, and the last byte of those that are there.
    #[inline(always)]
    fn next_received(&self) -> (*const u8, u8) {
        let Ring { base, producer, mask, .. } = self.received;
        // SAFETY: the masked index is inside of the ring.
        let cqe = unsafe { base.add((producer & mask) as usize * WQEBB) };
        (cqe, RESPONDER_SEND << 4 | u8::from(producer & (mask + 1) != 0))
    }

    /// The frame that the completion at `cqe` reports: its first stride, the next frame's, and its length. `None` if
    /// there is none.
    ///
    /// # Safety
    /// `cqe` is an entry of a completion ring.
    #[inline(always)]
    unsafe fn frame(cqe: *const u8, expected: u8) -> Option<(usize, usize, u32)> {
        // SAFETY: by the caller's promise; entries are of 64 bytes, aligned.
        unsafe {
            if cqe.add(63).read_volatile() != expected {
                return None;
            }
            barrier::from_device();
            let byte_count = u32::from_be(cqe.add(0x2c).cast::<u32>().read_volatile());
            let stride = usize::from(u16::from_be(cqe.add(0x3c).cast::<u16>().read_volatile()));
            Some((stride, stride + (byte_count >> 16) as usize, byte_count & 0xffff))
        }
    }

    /// Releases `count` completions of receives, after which `used` strides are used.
    #[inline(always)]
    fn take(&mut self, count: usize, used: usize) {
        self.used = used;
        self.received.producer = self.received.producer.wrapping_add(count as u32);
        self.received.consume();
    }

    /// Receives `count` frames, `BURST` at a time; returns the sum of their lengths. `None` if there are fewer.
    #[inline(never)]
    pub fn receive<const BURST: usize>(&mut self, count: usize) -> Option<u64> {
        let mut sum = 0;
        for _ in 0..count / BURST {
            self.refill(false);
            let (mut cqe, expected) = self.next_received();
            let (buffer, mut used) = (self.buffers[0].addr, 0);
            for _ in 0..BURST {
                // SAFETY: an entry: no burst meets the ring's end.
                let (stride, end, len) = unsafe { Self::frame(cqe, expected)? };
                sum += u64::from(len);
                black_box((buffer + (stride * STRIDE) as u64) as *const u8);
                (cqe, used) = (cqe.wrapping_add(WQEBB), end);
            }
            self.take(BURST, used);
        }
        Some(sum)
    }

    /// Receives `count` frames, `BURST` at a time, and sends each burst on. `None` if there are fewer.
    #[inline(never)]
    pub fn forward<const BURST: usize>(&mut self, count: usize) -> Option<u64> {
        for _ in 0..count / BURST {
            self.retire();
            self.refill(true);
            let (mut cqe, expected) = self.next_received();
            let DataSegment { addr, lkey, .. } = self.buffers[0];
            let (is_new, first) = (self.used == 0, self.sends.producer);
            let (mut left, mut used, mut last) = (BURST, 0, 0);
            while left != 0 {
                let to_end = SENDS - (self.sends.producer & self.sends.mask) as usize;
                let some = left.min(self.most).min(to_end * SEGMENTS - HEADS);
                let (slot, control) = self.sends.next(ENHANCED_MPSW, (HEADS + some) as u32);
                let mut place = slot.wrapping_add(HEADS * 2);
                for _ in 0..some {
                    // SAFETY: an entry, as in `receive`, and a segment of the WQE, which does not wrap.
                    unsafe {
                        let (stride, end, len) = Self::frame(cqe, expected)?;
                        place.write((u64::from(len) << 32 | u64::from(lkey)).to_be());
                        place.add(1).write((addr + (stride * STRIDE) as u64).to_be());
                        used = end;
                    }
                    (cqe, place) = (cqe.wrapping_add(WQEBB), place.wrapping_add(2));
                }
                left -= some;
                let wqebbs = (HEADS + some).div_ceil(SEGMENTS) as u32;
                self.sends.producer = self.sends.producer.wrapping_add(wqebbs);
                // A completion for each quarter of the ring, and for the first burst of a buffer.
                let enters_quarter = (first ^ self.sends.producer) & !(self.sends.mask >> 2) != 0;
                let ce = if left == 0 && (enters_quarter || is_new) { CE_ALWAYS } else { 0 };
                // SAFETY: the WQE's first block, aligned to 64.
                unsafe {
                    slot.write(control);
                    slot.add(1).write((ce << 32).to_be());
                    slot.add(2).write(0);
                    slot.add(3).write(0);
                }
                last = control;
            }
            self.take(BURST, used);
            self.sends.ring(last);
        }
        Some(0)
    }
}
