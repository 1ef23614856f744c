//! Posting frames to a send queue.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use mlx5_prm::ctx::InlineMode;
use mlx5_prm::wqe::{EthSeg, SEGMENT, WqeOpcode};
use uar::SendDoorbell;

use super::header::{ETHERNET, TAGGED, headers};
use crate::objects::{RingPermit, Sq};
use crate::queue::doorbell::Leased;
use crate::queue::send::{Elements, One, Payload, Request, SendBatch, SendLimits, SendRing};
use crate::queue::{AnyDoorbell, DataSegment, PostError, RetireError, Work, WrFlags};

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

/// What a send queue of frames was made for, and what its port passes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrameLimits {
    /// Gather elements of a frame.
    pub sges: u16,
    /// Bytes of a frame in the WQE.
    pub inline_bytes: u16,
    /// How much of it must be there.
    pub inline_mode: InlineMode,
    /// Whether the card fills in checksums.
    pub checksums: bool,
    /// Bytes of the longest frame.
    pub longest: usize,
}

/// A frame: what of its start lies in the WQE, and where the rest is.
///
/// ```text
/// segment 1    Ethernet segment: checksums | inline_hdr_sz | first two bytes
/// segment 2..  the inlined bytes from the third on, filled up to whole segments
/// then         byte_count | lkey | address, for each element
/// ```
struct Frame<'a, P> {
    start: &'a [u8],
    rest: P,
    /// Bytes of the rest.
    rest_len: u64,
    flags: FrameFlags,
    limits: &'a FrameLimits,
}

impl<P> Frame<'_, P> {
    #[inline(always)]
    fn check(&self) -> Result<(), PostError> {
        let (limits, inline) = (self.limits, self.start.len());
        if inline > usize::from(limits.inline_bytes) {
            return Err(PostError::InlineTooLong { given: inline, most: limits.inline_bytes.into() });
        }
        let given = inline as u64 + self.rest_len;
        let (least, most) = (ETHERNET as u64, limits.longest as u64);
        if given < least || given > most {
            return Err(PostError::FrameLength { given, least, most });
        }
        let least = self.least_inline(given as usize);
        if inline < least {
            return Err(PostError::HeaderTooShort { given: inline, least });
        }
        if self.flags.intersects(FrameFlags::L3_CHECKSUM | FrameFlags::L4_CHECKSUM) && !limits.checksums {
            return Err(PostError::NoChecksums);
        }
        Ok(())
    }

    /// Bytes that a frame of `len` must have in its WQE: what the card asks for, and the Ethernet header where there are any.
    #[inline(always)]
    fn least_inline(&self, len: usize) -> usize {
        let least = match self.limits.inline_mode {
            InlineMode::None => 0,
            InlineMode::L2 => TAGGED.min(len),
            mode => headers(mode, self.start, len),
        };
        if self.start.is_empty() { least } else { least.max(ETHERNET) }
    }

    /// Segments of the inlined bytes behind the Ethernet segment.
    fn inline_segments(&self) -> usize {
        self.start.len().saturating_sub(IN_SEGMENT).div_ceil(SEGMENT)
    }
}

impl<P: Payload> Payload for Frame<'_, P> {
    #[inline(always)]
    fn segments(&self, ring: &SendRing) -> Result<usize, PostError> {
        self.check()?;
        Ok(1 + self.inline_segments() + self.rest.segments(ring)?)
    }

    #[inline(always)]
    fn store(&self, ring: &mut SendRing, index: u32, at: usize) {
        let mut segment = EthSeg::ZERO;
        segment
            .w()
            .l3_csum(self.flags.contains(FrameFlags::L3_CHECKSUM))
            .l4_csum(self.flags.contains(FrameFlags::L4_CHECKSUM));
        // Checked by `check` to be at most `inline_bytes`, which the queue's creation bounds to ten bits.
        segment.w().inline_hdr_sz(self.start.len() as u16);
        ring.store(index, at, zerocopy::transmute!(segment));
        // The start's first bytes end the segment, the others follow it.
        ring.store_bytes(index, at, SEGMENT - IN_SEGMENT, self.start);
        self.rest.store(ring, index, at + 1 + self.inline_segments());
    }
}

/// The queue of an [`Sq`] in RDY, used by one thread: not `Sync`, `&mut self` throughout. `D` is how it rings. Frames go in
/// batches, as work requests of a [`SendQueue`](crate::queue::SendQueue) do.
///
/// ```compile_fail,E0499
/// fn two(sq: &mut mlx5_dv::queue::ethernet::EthernetSendQueue) {
///     let first = sq.batch();
///     let second = sq.batch(); // `first` still borrows the queue
///     first.ring();
///     second.ring();
/// }
/// ```
pub struct EthernetSendQueue<D: SendDoorbell = AnyDoorbell> {
    ring: SendRing,
    limits: FrameLimits,
    doorbell: Leased<D>,
    /// Keeps the ring. Last, so that it goes last.
    sq: Arc<Sq>,
    /// Makes the queue not `Sync`.
    _one_thread: PhantomData<Cell<()>>,
}

impl<D: SendDoorbell> fmt::Debug for EthernetSendQueue<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EthernetSendQueue")
            .field("sqn", &self.sq.sqn())
            .field("in_flight", &self.ring.in_flight())
            .finish_non_exhaustive()
    }
}

impl<D: SendDoorbell> EthernetSendQueue<D> {
    pub(crate) fn new(permit: RingPermit, doorbell: Leased<D>, sq: Arc<Sq>) -> Self {
        let (base, record) = permit.use_up();
        let limits = sq.limits();
        let ring_limits = SendLimits { sges: limits.sges, inline_bytes: limits.inline_bytes, log_max_msg: 31 };
        // SAFETY: the permit says that nobody else posts there, and that ring and record are mapped as long as `sq`, which the
        // queue keeps and drops last. `Sq::create` made the ring of `1 << log_size` WQEBBs, at most 2^15, at the start of its
        // memory. Of the record this queue uses the send half.
        let ring = unsafe {
            let (_, record) = uar::record::queue_pair(record);
            SendRing::new(base, sq.log_size(), sq.sqn(), ring_limits, record)
        };
        EthernetSendQueue { ring, limits, doorbell, sq, _one_thread: PhantomData }
    }

    /// Begins a batch. Dropped without [`ring`](EthernetSendBatch::ring), it never happened.
    #[inline(always)]
    pub fn batch(&mut self) -> EthernetSendBatch<'_, D> {
        EthernetSendBatch { batch: SendBatch::new(&mut self.ring, self.doorbell.get()), limits: &self.limits }
    }

    /// Says that `work`, from a completion, is done, and so are all frames posted before it: their room is free again. The
    /// `wr_id` it was posted with.
    ///
    /// # Errors
    /// [`RetireError`] for a completion of another queue or of nothing in flight. Nothing changes.
    #[inline]
    pub fn retire(&mut self, work: &Work) -> Result<u64, RetireError> {
        self.ring.retire(work)
    }

    /// WQEBBs that are free. A frame takes one for each 64 bytes of its WQE.
    pub fn free(&self) -> usize {
        self.capacity() - self.ring.in_flight() as usize
    }

    /// WQEBBs of the ring.
    pub fn capacity(&self) -> usize {
        self.ring.capacity()
    }

    /// The object.
    pub fn sq(&self) -> &Arc<Sq> {
        &self.sq
    }
}

impl<D: SendDoorbell> Drop for EthernetSendQueue<D> {
    fn drop(&mut self) {
        self.sq.queue_came_home();
    }
}

/// Frames that are written, and not yet shown to the card.
///
/// Errors leave the batch as it was: nothing of the refused frame is written.
#[must_use = "a batch that is not rung never happened"]
pub struct EthernetSendBatch<'a, D: SendDoorbell> {
    batch: SendBatch<'a, D>,
    limits: &'a FrameLimits,
}

impl<D: SendDoorbell> fmt::Debug for EthernetSendBatch<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.batch, f)
    }
}

impl<D: SendDoorbell> EthernetSendBatch<'_, D> {
    #[inline(always)]
    fn post(&mut self, wr_id: u64, flags: FrameFlags, start: &[u8], rest: &[DataSegment]) -> Result<(), PostError> {
        let wr_flags = if flags.contains(FrameFlags::SIGNALLED) { WrFlags::SIGNALLED } else { WrFlags::empty() };
        let request = Request { opcode: WqeOpcode::Send, wr_id, flags: wr_flags, imm: 0 };
        let limits = self.limits;
        match rest {
            [one] if one.len != 0 && limits.sges != 0 => {
                let frame = Frame { start, rest: One(one), rest_len: one.len.into(), flags, limits };
                self.batch.post(request, None, frame)
            }
            _ => {
                let rest_len = rest.iter().map(|element| u64::from(element.len)).sum();
                self.batch.post(request, None, Frame { start, rest: Elements(rest), rest_len, flags, limits })
            }
        }
    }

    /// A frame that begins with `start`, copied into the WQE, and goes on with `elements`, in their order. `start` may be empty
    /// where the card does not want headers there ([`Sq::inline_mode`]). Errors: [`PostError`].
    ///
    /// # Safety
    /// Until the frame has completed, or its queue was reset or destroyed, each element's memory stays registered under its key
    /// and is not written by this process.
    #[inline]
    pub unsafe fn send(
        &mut self,
        wr_id: u64,
        flags: FrameFlags,
        start: &[u8],
        elements: &[DataSegment],
    ) -> Result<(), PostError> {
        self.post(wr_id, flags, start, elements)
    }

    /// A frame, copied into the WQE: it can be reused at once. Errors: [`PostError`].
    #[inline]
    pub fn send_inline(&mut self, wr_id: u64, flags: FrameFlags, frame: &[u8]) -> Result<(), PostError> {
        self.post(wr_id, flags, frame, &[])
    }

    /// How many frames the batch holds.
    pub fn len(&self) -> usize {
        self.batch.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// Shows the batch to the card: doorbell record, then one doorbell. An empty batch rings for nothing.
    #[inline(always)]
    pub fn ring(self) {
        self.batch.ring();
    }
}
