//! Compressed completions: a title, and an array of what differs from it. PRM "Compressed CQEs".
//!
//! ```text
//! entry T      the title: a CQE whose byte_cnt is the number of completions
//! entry T + 1  mini CQEs 0 to 7 (the first is the title's own)
//! entry T + 8  mini CQEs 8 to 15, and so on; the entries between them are not written
//! ```

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mlx5_prm::cqe::{
    Cqe, CqeFormat, CqeOpcode, MiniCqeChecksum, MiniCqeFlowTag, MiniCqeHash, MiniCqeHeaderType, StridingByteCount,
};
use mlx5_prm::layout::Layout;

use super::decode::{Completion, FrameCompletion, WorkError, decode, decode_frame};
use super::ring::{CqRing, Received};
use super::{CompletionQueue, PollReceived};
use crate::error::Error;
use crate::objects::{Compression, Cq, CqOptions, Uar};

/// Mini CQEs of an entry, and bytes of one.
const ARRAY: u32 = 8;
const MINI: usize = 8;

/// A completion queue whose receives the card compresses: fewer bytes across PCIe. As [`CompletionQueue`]; a type of
/// its own, so that polling others does not look for titles.
///
/// Only the fields of [`Compression`] are each completion's own; the others, the timestamp among them, are the first
/// one's of a block. An entry is released to the card once its whole block is polled.
pub struct CompressedCompletionQueue {
    pub(in crate::queue) queue: CompletionQueue,
    format: Compression,
    block: Block,
    /// Whether there may be stale completions, since `begin`.
    has_former: bool,
}

/// The block that is polled.
struct Block {
    title: Cqe,
    minis: [u8; ARRAY as usize * MINI],
    /// Position of the title in the ring.
    start: u32,
    /// Its completions, and how many were polled.
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
        let minis = [0; ARRAY as usize * MINI];
        let block = Block { title: Cqe::ZERO, minis, start: 0, count: 0, polled: 0, counter: 0, is_received: false };
        Ok(CompressedCompletionQueue { queue, format, block, has_former: false })
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
        if self.block.polled < self.block.count { Ok(()) } else { self.queue.wait_or_yield(timeout) }
    }

    /// The next completion as the card would have written it alone, and its position in the ring.
    #[inline]
    fn next(&mut self) -> Option<(Cqe, u32)> {
        let ring = &mut self.queue.ring;
        if self.block.polled == self.block.count {
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
        let at = self.block.polled;
        self.block.read(ring);
        let cqe = self.block.unpack(self.format);
        if self.block.pass(ring) {
            ring.give_back();
        }
        Some((cqe, self.block.start.wrapping_add(at)))
    }
}

impl PollReceived for CompressedCompletionQueue {
    // `poll` skips stale completions of a block that is begun, too.
    #[inline(always)]
    fn begin(&mut self) {
        self.has_former = self.queue.cq.has_former();
    }

    #[inline(always)]
    fn received(&mut self) -> Option<Received> {
        if self.has_former {
            return None;
        }
        let (ring, block) = (&self.queue.ring, &mut self.block);
        if block.polled == block.count {
            if !ring.begins_block() {
                return ring.received();
            }
            block.begin_next(ring)?;
        }
        block.is_received.then(|| {
            block.read(ring);
            block.received(self.format)
        })
    }

    #[inline(always)]
    fn pass(&mut self, received: Received) {
        let (ring, block) = (&mut self.queue.ring, &mut self.block);
        if block.polled == block.count {
            ring.consumed = ring.consumed.wrapping_add(1);
        } else {
            block.count_strides(received.byte_count);
            block.pass(ring);
        }
    }

    #[inline(always)]
    fn give_back(&mut self) {
        self.queue.give_back();
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

    /// Begins the block whose title is the next entry; `None` if that cannot be one.
    #[inline(never)]
    fn begin_next(&mut self, ring: &CqRing) -> Option<()> {
        let title = ring.entries.read::<true>(ring.consumed);
        let is_one = (1..=ring.entries.len()).contains(&title.byte_cnt());
        is_one.then(|| self.begin(title, ring.consumed))
    }

    /// Counts the strides of a mini CQE.
    #[inline(always)]
    fn count_strides(&mut self, byte_count: u32) {
        let strides = StridingByteCount::read(&byte_count.to_be_bytes()).unwrap_or_default().consumed_strides();
        self.counter = self.counter.wrapping_add(strides.max(1));
    }

    /// Copies the array of the next mini CQE, if it is the first of it.
    #[inline(always)]
    fn read(&mut self, ring: &CqRing) {
        if self.polled.is_multiple_of(ARRAY) {
            self.minis = ring.entries.read_raw(self.start.wrapping_add(self.polled.max(1)));
        }
    }

    /// Passes the next mini CQE. After the last one, whose block can be given back, `true`.
    #[inline(always)]
    fn pass(&mut self, ring: &mut CqRing) -> bool {
        self.polled += 1;
        let is_last = self.polled == self.count;
        if is_last {
            ring.invalidate(self.start, self.count);
            ring.consumed = self.start.wrapping_add(self.count);
        }
        is_last
    }

    /// What the next mini CQE says.
    #[inline(always)]
    fn received(&self, format: Compression) -> Received {
        let start = (self.polled % ARRAY) as usize * MINI;
        let bytes = self.minis.get(start..start + MINI).unwrap_or_default();
        let (byte_count, counter) = match format {
            Compression::Hash => (MiniCqeHash::read(bytes).unwrap_or_default().byte_cnt(), None),
            Compression::Checksum => (MiniCqeChecksum::read(bytes).unwrap_or_default().byte_cnt(), None),
            Compression::ChecksumStride => {
                let mini = MiniCqeChecksum::read(bytes).unwrap_or_default();
                (mini.byte_cnt(), Some(mini.stride_index()))
            }
            Compression::FlowTag => {
                let mini = MiniCqeFlowTag::read(bytes).unwrap_or_default();
                (mini.byte_cnt(), Some(mini.stride_index()))
            }
            Compression::HeaderType => {
                let mini = MiniCqeHeaderType::read(bytes).unwrap_or_default();
                (mini.byte_cnt(), Some(mini.stride_index()))
            }
        };
        Received { byte_count, counter: counter.unwrap_or(self.counter) }
    }

    /// The next completion: the title with the fields of its mini CQE.
    #[inline]
    fn unpack(&mut self, format: Compression) -> Cqe {
        let start = (self.polled % ARRAY) as usize * MINI;
        let bytes = self.minis.get(start..start + MINI).unwrap_or_default();
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
        self.count_strides(cqe.byte_cnt());
        cqe
    }
}
