//! Posting frames to a send queue.

use std::sync::Arc;

use mlx5_prm::wqe::{EthSeg, SEGMENT, WqeOpcode};
use uar::SendDoorbell;

use super::ring::{Room, SendRing};
use super::service::Service;
use super::wqe::{Head, Request, WrFlags};
use super::{SendBatch, SendQueue};
use crate::memory::DataSegment;
use crate::objects::{AnyDoorbell, ETHERNET, FrameLimits, Leased, RingPermit, SendLimits, Sq, headers, most_headers};
use crate::queue::error::PostError;

/// Bytes of a frame's start that lie in the Ethernet segment itself: its last ones.
const IN_SEGMENT: usize = 2;

bitflags::bitflags! {
    /// How a frame is sent.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct FrameFlags: u8 {
        /// Write a completion also on success: as [`WrFlags::SIGNALLED`].
        const SIGNALLED = 1;
        /// The card fills in the IPv4 header's checksum.
        const L3_CHECKSUM = 2;
        /// The card fills in the checksum of TCP or UDP.
        const L4_CHECKSUM = 4;
    }
}

/// What of a frame's start lies in the WQE; the rest follows.
///
/// ```text
/// segment 1    Ethernet segment: checksums | inline_hdr_sz | first two bytes
/// segment 2..  the inlined bytes from the third on, filled up to whole segments
/// then         byte_count | lkey | address, for each element
/// ```
struct Start<'a> {
    bytes: &'a [u8],
    flags: FrameFlags,
    queue: &'a Frames,
}

impl Start<'_> {
    /// Segments of the inlined bytes behind the Ethernet segment.
    fn inline_segments(&self) -> usize {
        self.bytes.len().saturating_sub(IN_SEGMENT).div_ceil(SEGMENT)
    }
}

impl Head for Start<'_> {
    #[inline(always)]
    fn segments(&self) -> usize {
        1 + self.inline_segments()
    }

    #[inline(always)]
    fn check(&self, rest: u64) -> Result<(), PostError> {
        let Frames { limits, flags, enough } = self.queue;
        let inline = self.bytes.len();
        let fits = inline >= *enough && inline <= limits.inline_bytes.into();
        // What most frames are; of the others all is looked at.
        if fits && inline as u64 + rest <= limits.longest as u64 && flags.contains(self.flags) {
            return Ok(());
        }
        self.queue.check(self.bytes, self.flags, rest)
    }

    #[inline(always)]
    fn store(&self, room: &mut Room<'_>) {
        let mut segment = EthSeg::ZERO;
        segment
            .w()
            .l3_csum(self.flags.contains(FrameFlags::L3_CHECKSUM))
            .l4_csum(self.flags.contains(FrameFlags::L4_CHECKSUM));
        // Checked by `check` to be at most `inline_bytes`, which the queue's creation bounds to ten bits.
        segment.w().inline_hdr_sz(self.bytes.len() as u16);
        room.store(1, zerocopy::transmute!(segment));
        // The start's first bytes end the segment, the others follow it.
        room.store_bytes(1, SEGMENT - IN_SEGMENT, self.bytes);
    }
}

/// Frames, of a queue made for these.
#[derive(Debug, Clone, Copy)]
pub struct Frames {
    limits: FrameLimits,
    /// The flags that a frame may have.
    flags: FrameFlags,
    /// Bytes among which all headers are that must lie in the WQE, whatever the frame.
    enough: usize,
}

impl Frames {
    /// Why a frame that begins with `start`, which is to lie in its WQE, and goes on for `rest` bytes cannot be posted.
    // By value: a queue that has shown a part of itself reads its numbers once more after each store.
    #[cold]
    #[inline(never)]
    fn check(self, start: &[u8], flags: FrameFlags, rest: u64) -> Result<(), PostError> {
        let inline = start.len();
        if inline > usize::from(self.limits.inline_bytes) {
            return Err(PostError::InlineTooLong { given: inline, most: self.limits.inline_bytes.into() });
        }
        let given = inline as u64 + rest;
        let (least, most) = (ETHERNET as u64, self.limits.longest as u64);
        if given < least || given > most {
            return Err(PostError::FrameLength { given, least, most });
        }
        let least = self.least_inline(start, given as usize);
        if inline < least {
            return Err(PostError::HeaderTooShort { given: inline, least });
        }
        if !self.flags.contains(flags) {
            return Err(PostError::NoChecksums);
        }
        Ok(())
    }

    /// Bytes that a frame of `len` must have in its WQE: what the card asks for, and the Ethernet header where there
    /// are any.
    fn least_inline(&self, start: &[u8], len: usize) -> usize {
        let least = headers(self.limits.inline_mode, start, len);
        if start.is_empty() { least } else { least.max(ETHERNET) }
    }
}

impl Service for Frames {
    type Object = Sq;
}

/// The queue of an [`Sq`] in RDY, used by one thread: not `Sync`, `&mut self` throughout. `D` is how it rings. Frames
/// go in batches, as work requests of a [`SendQueue`](crate::queue::SendQueue) do.
///
/// ```compile_fail,E0499
/// fn two(sq: &mut mlx5_dv::queue::ethernet::EthernetSendQueue) {
///     let first = sq.batch();
///     let second = sq.batch(); // `first` still borrows the queue
///     first.ring();
///     second.ring();
/// }
/// ```
pub type EthernetSendQueue<D = AnyDoorbell> = SendQueue<D, Frames>;

impl<D: SendDoorbell> SendQueue<D, Frames> {
    pub(crate) fn of_frames(permit: RingPermit, doorbell: Leased<D>, sq: Arc<Sq>) -> Self {
        let (base, record) = permit.into_parts();
        let limits = sq.limits();
        let ring_limits = SendLimits { sges: limits.sges, inline_bytes: limits.inline_bytes, log_max_msg: 31 };
        // SAFETY: the permit says that nobody else posts there, and that ring and record are mapped as long as `sq`,
        // which the queue keeps and drops last. `Sq::create` made the ring of `1 << log_size` WQEBBs, at most 2^15, at
        // the start of its memory. Of the record this queue uses the send half.
        let ring = unsafe {
            let (_, record) = uar::record::queue_pair(record);
            SendRing::new(base, sq.log_size(), sq.sqn(), ring_limits, record)
        };
        let enough = most_headers(limits.inline_mode).max(ETHERNET);
        let flags = if limits.checksums { FrameFlags::all() } else { FrameFlags::SIGNALLED };
        SendQueue::of(ring, Frames { limits, flags, enough }, doorbell, sq)
    }

    /// The object.
    pub fn sq(&self) -> &Arc<Sq> {
        self.object()
    }
}

/// Frames that are written, and not yet shown to the card.
pub type EthernetSendBatch<'a, D> = SendBatch<'a, D, Frames>;

impl<D: SendDoorbell> SendBatch<'_, D, Frames> {
    #[inline(always)]
    fn post_frame(
        &mut self,
        wr_id: u64,
        flags: FrameFlags,
        start: &[u8],
        rest: &[DataSegment],
    ) -> Result<(), PostError> {
        let wr_flags = if flags.contains(FrameFlags::SIGNALLED) { WrFlags::SIGNALLED } else { WrFlags::empty() };
        let request = Request { opcode: WqeOpcode::Send, wr_id, flags: wr_flags, imm: 0 };
        self.post_elements(request, Start { bytes: start, flags, queue: self.service }, rest)
    }

    /// A frame that begins with `start`, copied into the WQE, and goes on with `elements`, in their order. `start` may
    /// be empty where the card does not want headers there ([`Sq::inline_mode`]). Errors: [`PostError`].
    ///
    /// # Safety
    /// Until the frame has completed, or its queue was reset or destroyed, each element's memory stays
    /// registered under its key. It may be written meanwhile: then what is sent is a mixture of old and new bytes.
    #[inline]
    pub unsafe fn send(
        &mut self,
        wr_id: u64,
        flags: FrameFlags,
        start: &[u8],
        elements: &[DataSegment],
    ) -> Result<(), PostError> {
        self.post_frame(wr_id, flags, start, elements)
    }

    /// A frame, copied into the WQE: it can be reused at once. Errors: [`PostError`].
    #[inline]
    pub fn send_inline(&mut self, wr_id: u64, flags: FrameFlags, frame: &[u8]) -> Result<(), PostError> {
        self.post_frame(wr_id, flags, frame, &[])
    }
}
