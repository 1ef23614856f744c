//! Compressed completions: a title, and an array of what differs from it. PRM "Compressed CQEs".
//!
//! ```text
//! entry T      the title: a CQE whose byte_cnt is the number of completions
//! entry T + 1  mini CQEs 0 to 7 (the first is the title's own)
//! entry T + 8  mini CQEs 8 to 15, and so on; the entries between them are not written
//! ```

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use mlx5_prm::cqe::{
    Cqe, CqeFormat, CqeOpcode, MiniCqeChecksum, MiniCqeFlowTag, MiniCqeHash, MiniCqeHeaderType, StridingByteCount,
};
use mlx5_prm::layout::Layout;

use super::decode::{Completion, FrameCompletion, Side, WorkError, decode, decode_frame, decode_plain_frame};
use super::ring::{ARRAY, CqRing, Minis};
use super::short::{Eight, Listed, Oldest, One, Place, Received, Short};
use super::{CompletionQueue, MOST, PollReceived};
use crate::error::Error;
use crate::objects::{Compression, Cq, CqOptions, Uar};

/// A completion queue whose receives the card compresses: fewer bytes across PCIe. As [`CompletionQueue`]; a type of
/// its own, so that polling others does not look for titles.
///
/// Only the fields of [`Compression`] are each completion's own; the others, the timestamp among them, are the first
/// one's of a block. An entry is released to the card once its whole block is polled.
pub struct CompressedCompletionQueue {
    pub(in crate::queue) queue: CompletionQueue,
    format: Compression,
    block: Block,
}

/// The block that is polled.
struct Block {
    title: Cqe,
    /// Position of the title in the ring.
    start: u32,
    /// Its completions, and how many were polled. Both are 0 where there is no block.
    count: u32,
    polled: u32,
    /// WQE counter of the next completion, where mini CQEs have none.
    counter: u16,
    /// They are receives that succeeded.
    is_received: bool,
}

impl fmt::Debug for CompressedCompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompressedCompletionQueue").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl CompressedCompletionQueue {
    /// As [`CompletionQueue::create`].
    ///
    /// # Errors
    /// As there; [`Error::Unsupported`] if the card does not compress (`cqe_compression`), or not in this form.
    pub fn create(uar: &Arc<Uar>, options: CqOptions, format: Compression) -> Result<Self, Error> {
        let queue = CompletionQueue::create(uar, options.compression(format))?;
        let block = Block { title: Cqe::ZERO, start: 0, count: 0, polled: 0, counter: 0, is_received: false };
        Ok(CompressedCompletionQueue { queue, format, block })
    }

    /// The object, to be passed to queues.
    pub fn cq(&self) -> &Arc<Cq> {
        self.queue.cq()
    }

    /// As [`CompletionQueue::poll`].
    #[inline]
    pub fn poll(&mut self) -> Option<Result<Completion, WorkError>> {
        Some(decode(&self.next_present()?))
    }

    /// As [`CompletionQueue::poll_frame`].
    #[inline]
    pub fn poll_frame(&mut self) -> Option<Result<FrameCompletion, WorkError>> {
        Some(decode_frame(&self.next_present()?))
    }

    /// The next completion that is not stale.
    #[inline]
    fn next_present(&mut self) -> Option<Cqe> {
        loop {
            let (cqe, position) = self.next()?;
            if !self.queue.cq.has_former() || !self.queue.cq.is_former(&cqe, position) {
                return Some(cqe);
            }
        }
    }

    /// As [`CompletionQueue::wait`]; a queue without events yields.
    ///
    /// # Errors
    /// As there.
    pub fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        if self.is_inside_a_block() { Ok(()) } else { self.queue.wait_or_yield(timeout) }
    }

    /// As [`CompletionQueue::ready`].
    ///
    /// # Errors
    /// As there.
    pub async fn ready(&mut self, readable: impl AsyncFnMut() -> io::Result<()>) -> Result<(), Error> {
        if self.is_inside_a_block() { Ok(()) } else { self.queue.ready(readable).await }
    }

    /// Whether completions are left of a block that was begun, for which the card raises no event any more.
    fn is_inside_a_block(&self) -> bool {
        self.block.polled < self.block.count
    }

    /// The next completion as the card would have written it alone, and its position in the ring.
    #[inline]
    fn next(&mut self) -> Option<(Cqe, u32)> {
        let ring = &mut self.queue.ring;
        if self.block.count == 0 {
            if !ring.is_ready() {
                return None;
            }
            let position = ring.consumed;
            let cqe = ring.entries.read::<true>(position);
            let is_title = CqeFormat::from_number(cqe.cqe_format().into()) == CqeFormat::Compressed;
            if !is_title || !(1..=ring.entries.len()).contains(&cqe.byte_cnt()) {
                ring.consumed = position.wrapping_add(1);
                ring.give_back();
                return Some((if is_title { invalid(cqe) } else { cqe }, position));
            }
            self.block.begin(cqe, position);
        }
        let position = self.block.start.wrapping_add(self.block.polled);
        let mini = self.block.minis(ring, self.block.polled).next().unwrap_or_default();
        let cqe = self.block.unpack(self.format, &mini.to_be_bytes());
        self.block.count_strides(cqe.byte_cnt());
        self.block.polled += 1;
        if self.block.finish(ring) {
            ring.give_back();
        }
        Some((cqe, position))
    }
}

impl CompressedCompletionQueue {
    /// Whether all is left to [`poll`](Self::poll): mini CQEs without WQE counters, and what may be stale.
    #[inline(always)]
    fn is_left_to_poll(&self) -> bool {
        matches!(self.format, Compression::Hash | Compression::Checksum) || self.queue.cq.has_former()
    }

    /// Whether the next completion is one of a block of receives, which is begun; otherwise it is an entry of its own.
    #[inline(always)]
    fn has_block(&mut self) -> bool {
        if self.block.count == 0 {
            if !self.queue.ring.begins_block() {
                return false;
            }
            self.begin_block();
        }
        true
    }

    /// Of the second dword of a mini CQE, the bits that count bytes and strides.
    #[inline(always)]
    fn counted(&self) -> u32 {
        const FLOW_TAG: u32 = 0xff << 24;
        if let Compression::FlowTag = self.format { !FLOW_TAG } else { !0 }
    }

    /// Begins the block whose title is the next entry, if that is one of receives.
    #[inline(never)]
    fn begin_block(&mut self) {
        let (ring, block) = (&mut self.queue.ring, &mut self.block);
        let title = ring.entries.read::<true>(ring.consumed);
        if (1..=ring.entries.len()).contains(&title.byte_cnt()) {
            block.begin(title, ring.consumed);
        }
    }

    /// As [`pass`](PollReceived::pass), of completions of the block.
    // Not a part of what drops a burst, which would no longer be inlined.
    #[inline(never)]
    fn pass_in_block(&mut self, count: u32) {
        let (ring, block) = (&mut self.queue.ring, &mut self.block);
        block.polled += count;
        if block.finish(ring) {
            ring.give_back();
        }
    }
}

impl PollReceived for CompressedCompletionQueue {
    type Ahead = Listed;

    #[inline(always)]
    fn ahead(&mut self, places: &mut [Place; MOST], most: usize, oldest: Oldest<'_>) -> Listed {
        let (count, used) = self.list(&mut places[..most.min(MOST)], oldest);
        Listed::new(count, used, oldest.strides)
    }

    #[inline(always)]
    fn look<P>(&mut self, index: u32, places: &mut [P], take: impl FnMut(Received) -> Option<P>) -> usize {
        if self.is_left_to_poll() {
            return 0;
        }
        if !self.has_block() {
            return self.queue.ring.look(index, places, take);
        }
        self.block.look(&self.queue.ring, self.counted(), index, places, take)
    }

    #[inline(always)]
    fn look_short(&mut self, places: &mut [Place], mut short: Short) -> usize {
        if self.is_left_to_poll() {
            return 0;
        }
        if !self.has_block() {
            return self.queue.ring.look(0, places, |received| short.take(received));
        }
        self.block.look_short(&self.queue.ring, self.counted(), places, short)
    }

    #[inline(always)]
    fn decode(&self, index: u32) -> FrameCompletion {
        let block = &self.block;
        if block.count == 0 {
            return self.queue.decode(index);
        }
        let mini = block.minis(&self.queue.ring, block.polled + index).next().unwrap_or_default();
        decode_plain_frame(&block.unpack(self.format, &mini.to_be_bytes()), Side::Receive)
    }

    #[inline(always)]
    fn pass(&mut self, count: u32) {
        if self.block.count == 0 { self.queue.pass(count) } else { self.pass_in_block(count) }
    }
}

/// A title that cannot be one: decodes to an error.
#[cold]
fn invalid(mut cqe: Cqe) -> Cqe {
    cqe.w().opcode(CqeOpcode::Invalid);
    cqe
}

/// Sets bits 23:16 of dword 0x1c, which are those of a mini CQE.
fn types(cqe: &mut Cqe, bits: u8) {
    cqe.w()
        .ip_frag(bits & 0x80 != 0)
        .l4_hdr_type(bits >> 4 & 7)
        .l3_hdr_type(bits >> 2 & 3)
        .ip_ext_opts(bits & 2 != 0)
        .cv(bits & 1 != 0);
}

impl Block {
    /// Begins the block of `title`, at `position`.
    #[inline]
    fn begin(&mut self, title: Cqe, position: u32) {
        (self.title, self.start) = (title, position);
        (self.count, self.polled, self.counter) = (title.byte_cnt(), 0, title.wqe_counter());
        self.is_received = title.opcode() == CqeOpcode::ResponderSend;
    }

    /// Counts the strides of a mini CQE.
    #[inline(always)]
    fn count_strides(&mut self, byte_count: u32) {
        let strides = StridingByteCount::read(&byte_count.to_be_bytes()).unwrap_or_default().consumed_strides();
        self.counter = self.counter.wrapping_add(strides.max(1));
    }

    /// The mini CQEs after `polled` others, as far as they are in one array: at least one.
    #[inline(always)]
    fn minis(&self, ring: &CqRing, polled: u32) -> Minis {
        let first = polled / ARRAY * ARRAY;
        ring.entries.minis(self.start.wrapping_add(first.max(1)), polled - first, self.count - first)
    }

    /// As [`PollReceived::look`]; `counted` are the bits that count of a mini CQE's second dword.
    #[inline(always)]
    fn look<P>(
        &self,
        ring: &CqRing,
        counted: u32,
        index: u32,
        places: &mut [P],
        mut take: impl FnMut(Received) -> Option<P>,
    ) -> usize {
        let (mut polled, mut filled) = (self.polled + index, 0);
        while polled < self.received() && filled < places.len() {
            let minis = self.minis(ring, polled);
            let count = minis.len() as usize;
            for (mini, place) in minis.zip(&mut places[filled..]) {
                let received = Received { byte_count: mini as u32 & counted, counter: (mini >> 32) as u16 };
                let Some(found) = take(received) else { return filled };
                *place = found;
                filled += 1;
            }
            polled += count as u32;
        }
        filled
    }

    /// As [`PollReceived::look_short`]; `counted` as for [`look`](Self::look).
    #[inline(always)]
    fn look_short(&self, ring: &CqRing, counted: u32, places: &mut [Place], short: Short) -> usize {
        let (mut polled, mut filled, mut one) = (self.polled, 0, One::new(short, counted));
        while polled < self.received() {
            if polled % ARRAY == 0 {
                let some = self.look_at_arrays(ring, polled, &mut places[filled..], one);
                one.pass(some);
                (polled, filled) = (polled + some, filled + some as usize);
            }
            // Up to the array's end, one by one.
            for mini in self.minis(ring, polled) {
                let Some(place) = places.get_mut(filled) else { return filled };
                let Some(found) = one.take(mini) else { return filled };
                *place = found;
                (polled, filled) = (polled + 1, filled + 1);
            }
        }
        filled
    }

    /// Number of its completions, if they are receives that succeeded.
    #[inline(always)]
    fn received(&self) -> u32 {
        if self.is_received { self.count } else { 0 }
    }

    /// Fills `places` from whole arrays after `polled` others, as far as each mini CQE is the next frame's, which is
    /// `one`'s. Returns how many places are filled.
    #[inline(always)]
    fn look_at_arrays(&self, ring: &CqRing, polled: u32, places: &mut [Place], one: One) -> u32 {
        let (mut arrays, mut eight) = (places.as_chunks_mut().0.iter_mut(), Eight::from(one));
        let mut next = polled;
        while self.count - next >= ARRAY
            && let Some(places) = arrays.next()
            && ring.entries.look_at_array(self.start.wrapping_add(next.max(1)), &mut eight, places)
        {
            next += ARRAY;
        }
        next - polled
    }

    /// After its last completion: passes its entries, which can be given back, and is none any more. Then `true`.
    #[inline(always)]
    fn finish(&mut self, ring: &mut CqRing) -> bool {
        let is_last = self.polled == self.count && self.count != 0;
        if is_last {
            ring.invalidate(self.start, self.count);
            ring.consumed = self.start.wrapping_add(self.count);
            (self.count, self.polled) = (0, 0);
        }
        is_last
    }

    /// The next completion: the title with the fields of its mini CQE, `bytes`.
    #[inline]
    fn unpack(&self, format: Compression, bytes: &[u8]) -> Cqe {
        let mut cqe = self.title;
        cqe.w().cqe_format(CqeFormat::NoInlineData.number() as u8);
        match format {
            Compression::Hash => {
                let mini = MiniCqeHash::read(bytes).unwrap_or_default();
                cqe.w().rss_hash_result(mini.rx_hash_result()).byte_cnt(mini.byte_cnt()).wqe_counter(self.counter);
            }
            Compression::Checksum => {
                let mini = MiniCqeChecksum::read(bytes).unwrap_or_default();
                cqe.w().check_sum(mini.checksum()).byte_cnt(mini.byte_cnt()).wqe_counter(self.counter);
            }
            Compression::ChecksumStride => {
                let mini = MiniCqeChecksum::read(bytes).unwrap_or_default();
                cqe.w().check_sum(mini.checksum()).byte_cnt(mini.byte_cnt()).wqe_counter(mini.stride_index());
            }
            Compression::FlowTag => {
                let mini = MiniCqeFlowTag::read(bytes).unwrap_or_default();
                let tag = u32::from(mini.flow_tag_23_16()) << 16 | u32::from(mini.flow_tag_15_0());
                cqe.w().qpn(tag).byte_cnt(mini.byte_cnt()).wqe_counter(mini.stride_index());
            }
            Compression::HeaderType => {
                let mini = MiniCqeHeaderType::read(bytes).unwrap_or_default();
                cqe.w().byte_cnt(mini.byte_cnt()).wqe_counter(mini.stride_index());
                types(&mut cqe, mini.hdr_type());
            }
        }
        cqe
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::fake::Memory;
    use proptest::prelude::*;
    use uar::CqRecord;

    /// Entries of the ring.
    const LOG_SIZE: u32 = 6;
    const SIZE: u32 = 1 << LOG_SIZE;

    proptest! {
        /// In blocks of any length, wherever they are in the ring and however much of them is polled, frames of one
        /// stride are found many at a time as they are one by one.
        #[test]
        fn short_frames_are_found_as_any_others(
            (shift, start, count) in (6u32..8, any::<u32>(), 1u32..=SIZE),
            (polled, most) in (any::<prop::sample::Index>(), 0usize..80),
            (is_received, counted) in (prop::bool::weighted(0.9), prop_oneof![Just(!0u32), Just(0xff_ffff)]),
            others in prop::collection::vec((0..SIZE, any::<u64>()), 0..3),
            firsts in prop::collection::vec(any::<u16>(), SIZE as usize),
        ) {
            let polled = polled.index(count as usize) as u32;
            let memory = Memory::new((SIZE << shift) as usize + 64);
            // SAFETY: both lie in `memory`, which lives longer.
            let ring = unsafe {
                CqRing::new(memory.at(0), LOG_SIZE, shift, CqRecord::new(memory.at((SIZE << shift) as usize)))
            };
            for at in 0..count {
                let first = u64::from(firsts[at as usize]);
                let mut mini = first << 48 | u64::from(at) << 32 | 1 << 16 | (first % 60 + 1);
                mini |= u64::from(!counted) & first << 16;
                others.iter().filter(|(other, _)| *other == at).for_each(|(_, other)| mini = *other);
                let entry = start.wrapping_add((at / ARRAY * ARRAY).max(1)) % SIZE;
                let valid = (entry << shift) as usize + (1 << shift) - 64;
                memory.write(valid + (at % ARRAY) as usize * 8, &mini.to_be_bytes());
            }
            let block = Block { title: Cqe::ZERO, start, count, polled, counter: 0, is_received };
            let short = Short { used: polled, start: polled * 64, stride: 64, least: 1, lengths: 64 };
            let (mut by_one, mut many) = (short, vec![Place::default(); most]);
            let mut expected = many.clone();
            let found = block.look(&ring, counted, 0, &mut expected, |received| by_one.take(received));
            prop_assert_eq!(block.look_short(&ring, counted, &mut many, short), found);
            prop_assert_eq!(&many[..found], &expected[..found]);
        }
    }
}
