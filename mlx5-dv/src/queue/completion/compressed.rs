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

use super::CompletionQueue;
use super::decode::{Completion, FrameCompletion, WorkError, decode, decode_frame};
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
        let block =
            Block { title: Cqe::ZERO, minis: [0; ARRAY as usize * MINI], start: 0, count: 0, polled: 0, counter: 0 };
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
            (self.block.title, self.block.start) = (cqe, position);
            (self.block.count, self.block.polled, self.block.counter) = (cqe.byte_cnt(), 0, cqe.wqe_counter());
        }
        let at = self.block.polled;
        if at.is_multiple_of(ARRAY) {
            self.block.minis = ring.entries.read_raw(self.block.start.wrapping_add(at.max(1)));
        }
        let cqe = self.block.unpack(self.format);
        self.block.polled = at + 1;
        if self.block.polled == self.block.count {
            let end = self.block.start.wrapping_add(self.block.count);
            ring.invalidate(self.block.start, self.block.count);
            ring.consumed = end;
            ring.give_back();
        }
        Some((cqe, self.block.start.wrapping_add(at)))
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
        let strides = StridingByteCount::read(&cqe.byte_cnt().to_be_bytes()).unwrap_or_default().consumed_strides();
        self.counter = self.counter.wrapping_add(strides.max(1));
        cqe
    }
}
