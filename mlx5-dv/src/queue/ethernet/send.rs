//! Posting frames to a send queue.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use mlx5_prm::ctx::InlineMode;
use mlx5_prm::wqe::{EthSeg, SEGMENT, WqeOpcode};
use uar::SendDoorbell;

use super::header::{self, ETHERNET};
use crate::objects::{RingPermit, Sq};
use crate::queue::doorbell::Leased;
use crate::queue::send::{Elements, Payload, Request, SendBatch, SendLimits, SendRing};
use crate::queue::{AnyDoorbell, DataSegment, PostError, RetireError, Work, WrFlags};

/// Bytes of a frame's start that lie in the Ethernet segment itself.
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
struct Frame<'a> {
    start: &'a [u8],
    rest: Elements<'a>,
    flags: FrameFlags,
    limits: FrameLimits,
}

impl Frame<'_> {
    fn check(&self) -> Result<(), PostError> {
        let (limits, inline) = (&self.limits, self.start.len());
        if inline > usize::from(limits.inline_bytes) {
            return Err(PostError::InlineTooLong { given: inline, most: limits.inline_bytes.into() });
        }
        let rest: u64 = self.rest.0.iter().map(|element| u64::from(element.len)).sum();
        let given = inline as u64 + rest;
        let (least, most) = (ETHERNET as u64, limits.longest as u64);
        if given < least || given > most {
            return Err(PostError::FrameLength { given, least, most });
        }
        let least = match inline {
            0 => header::headers(limits.inline_mode, self.start, given as usize),
            _ => header::headers(limits.inline_mode, self.start, given as usize).max(ETHERNET),
        };
        if inline < least {
            return Err(PostError::HeaderTooShort { given: inline, least });
        }
        if self.flags.intersects(FrameFlags::L3_CHECKSUM | FrameFlags::L4_CHECKSUM) && !limits.checksums {
            return Err(PostError::NoChecksums);
        }
        Ok(())
    }

    /// Segments of the inlined bytes behind the Ethernet segment.
    fn inline_segments(&self) -> usize {
        self.start.len().saturating_sub(IN_SEGMENT).div_ceil(SEGMENT)
    }
}

impl Payload for Frame<'_> {
    #[inline(always)]
    fn segments(&self, ring: &SendRing) -> Result<usize, PostError> {
        self.check()?;
        Ok(1 + self.inline_segments() + self.rest.segments(ring)?)
    }

    #[inline(always)]
    fn store(&self, ring: &mut SendRing, index: u16, at: usize) {
        let mut segment = EthSeg::ZERO;
        segment
            .w()
            .l3_csum(self.flags.contains(FrameFlags::L3_CHECKSUM))
            .l4_csum(self.flags.contains(FrameFlags::L4_CHECKSUM));
        if let Some((first, behind)) = self.start.split_first_chunk::<IN_SEGMENT>() {
            // Checked by `check` to be at most `inline_bytes`, which the queue's creation bounds to ten bits.
            segment.w().inline_hdr_sz(self.start.len() as u16).inline_hdr_start(u16::from_be_bytes(*first));
            for (i, bytes) in behind.chunks(SEGMENT).enumerate() {
                let mut filled = [0u8; SEGMENT];
                filled[..bytes.len()].copy_from_slice(bytes);
                ring.store(index, at + 1 + i, zerocopy::transmute!(filled));
            }
        }
        ring.store(index, at, zerocopy::transmute!(segment));
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
        let limits = self.limits;
        EthernetSendBatch { batch: SendBatch::new(&mut self.ring, self.doorbell.get()), limits }
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
        self.capacity() - usize::from(self.ring.in_flight())
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
    limits: FrameLimits,
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
        self.batch.post(request, None, Frame { start, rest: Elements(rest), flags, limits: self.limits })
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
