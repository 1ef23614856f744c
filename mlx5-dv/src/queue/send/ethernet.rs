//! Send queues for Ethernet frames.

use std::hint;
use std::sync::Arc;

use mlx5_prm::ctx::InlineMode;
use mlx5_prm::wqe::{EthSeg, SEGMENT, WaitCondition, WaitOpmod, WaitSeg, WqeOpcode};
use uar::SendDoorbell;

use super::ring::{Room, SendRing};
use super::service::Service;
use super::wqe::{Elements, Head, One, Request, Size, WrFlags};
use super::{SendBatch, SendQueue};
use crate::memory::DataSegment;
use crate::objects::{
    AnyDoorbell, ETHERNET, FrameLimits, Leased, RingPermit, SERVICE_VLAN, SendLimits, Sq, SqIdentity, VLAN, VlanTag,
    headers, most_headers,
};
use crate::queue::error::PostError;
use crate::timestamp::Timestamp;

/// Inline bytes in the Ethernet segment itself.
pub(super) const IN_SEGMENT: usize = 2;

bitflags::bitflags! {
    /// Flags of a frame.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct FrameFlags: u8 {
        /// Write a completion on success, too: as [`WrFlags::SIGNALLED`].
        const SIGNALLED = 1;
        /// The card computes the IPv4 header checksum.
        const L3_CHECKSUM = 2;
        /// The card computes the TCP or UDP checksum.
        const L4_CHECKSUM = 4;
        /// Write a completion on success if this work request enters another quarter of the ring: enough to free the
        /// ring, for frames that were copied and that nothing waits for. 64 bytes across PCIe less for all others.
        const SELDOM = 8;
        /// The card computes the IPv4 header checksum inside of a tunnel: for
        /// [`SendBatch::send_in_tunnel`](crate::queue::SendBatch::send_in_tunnel) alone.
        const INNER_L3_CHECKSUM = 16;
        /// The card computes the TCP or UDP checksum inside of a tunnel, as above.
        const INNER_L4_CHECKSUM = 32;
        /// Both.
        const INNER = 16 | 32;
    }
}

/// The inlined start of a frame.
///
/// ```text
/// segment 1    Ethernet segment: checksums | inline_hdr_sz | first two bytes
/// segment 2..  further inlined bytes, padded to whole segments
/// then         byte_count | lkey | address, for each element
/// ```
struct Start<'a> {
    bytes: &'a [u8],
    flags: FrameFlags,
    metadata: u32,
    queue: &'a Frames,
}

impl Head for Start<'_> {
    #[inline(always)]
    fn segments(&self) -> usize {
        segments_of(self.bytes.len())
    }

    #[inline(always)]
    fn check(&self, rest: u64) -> Result<(), PostError> {
        let Frames { limits, flags, enough, needs_none, longest_payload, .. } = self.queue;
        let inline = self.bytes.len();
        let fits = (inline >= *enough && inline <= limits.inline_bytes.into()) || (*needs_none && inline == 0);
        // The most common frames need few comparisons; the others are checked completely. The length comes last, as all
        // else is the same for the frames of a loop.
        let is_frame = (inline as u64 + rest).wrapping_sub(ETHERNET as u64) <= *longest_payload;
        if fits && flags.contains(self.flags) && is_frame {
            return Ok(());
        }
        self.queue.check(self.bytes, self.flags, rest)
    }

    #[inline(always)]
    fn store(&self, room: &mut Room<'_>, at: usize) {
        let mut segment = EthSeg::ZERO;
        segment
            .w()
            .l3_csum(self.flags.contains(FrameFlags::L3_CHECKSUM))
            .l4_csum(self.flags.contains(FrameFlags::L4_CHECKSUM))
            .flow_table_metadata(self.metadata);
        store(segment, self.bytes, room, at);
    }
}

/// A frame into which the card inserts a VLAN tag: no byte of it is inlined.
struct Tagged<'a> {
    tci: u16,
    is_service: bool,
    flags: FrameFlags,
    metadata: u32,
    queue: &'a Frames,
}

impl Head for Tagged<'_> {
    #[inline(always)]
    fn segments(&self) -> usize {
        1
    }

    #[inline(always)]
    fn check(&self, len: u64) -> Result<(), PostError> {
        if !self.queue.limits.vlan_insertion {
            return Err(PostError::NoVlanInsertion);
        }
        self.queue.check(&[], self.flags, len)
    }

    #[inline(always)]
    fn store(&self, room: &mut Room<'_>, at: usize) {
        /// A service tag, in the place of `inline_hdr_sz`.
        const SERVICE: u16 = 1;
        let mut segment = EthSeg::ZERO;
        segment
            .w()
            .l3_csum(self.flags.contains(FrameFlags::L3_CHECKSUM))
            .l4_csum(self.flags.contains(FrameFlags::L4_CHECKSUM))
            .flow_table_metadata(self.metadata)
            .insert_vlan(true)
            .inline_hdr_sz(if self.is_service { SERVICE } else { 0 })
            .inline_hdr_start(self.tci);
        room.store(at, zerocopy::transmute!(segment));
    }
}

/// A time to wait for, of a clock that wraps after `mask`: 0 if the card waits for none. PRM "Wait on Data Segment".
struct Until {
    time: Timestamp,
    mask: u64,
}

impl Head for Until {
    const OPMOD: u8 = WaitOpmod::Time.number() as u8;

    #[inline(always)]
    fn segments(&self) -> usize {
        size_of::<WaitSeg>() / SEGMENT
    }

    #[inline(always)]
    fn check(&self, _: u64) -> Result<(), PostError> {
        if self.mask == 0 { Err(PostError::NoWaitOnTime) } else { Ok(()) }
    }

    #[inline(always)]
    fn store(&self, room: &mut Room<'_>, at: usize) {
        let mut segment = WaitSeg::ZERO;
        // The time is less than the clock's.
        segment.w().operation(WaitCondition::CyclicSmaller.number() as u8).value(self.time.0).mask(self.mask);
        let [first, second]: [[u64; 2]; 2] = zerocopy::transmute!(segment);
        room.store(at, first);
        room.store(at + 1, second);
    }
}

/// Segments of `len` inlined bytes, with the Ethernet segment.
#[inline(always)]
pub(super) fn segments_of(len: usize) -> usize {
    1 + len.saturating_sub(IN_SEGMENT).div_ceil(SEGMENT)
}

/// Stores the Ethernet `segment` and the `inlined` bytes, which a check has limited to `inline_bytes`.
#[inline(always)]
pub(super) fn store(mut segment: EthSeg, inlined: &[u8], room: &mut Room<'_>, at: usize) {
    // The queue's creation limits `inline_bytes` to ten bits.
    segment.w().inline_hdr_sz(inlined.len() as u16);
    room.store(at, zerocopy::transmute!(segment));
    // The first bytes end the segment, the others follow it.
    room.store_bytes(at, SEGMENT - IN_SEGMENT, inlined);
}

/// Ethernet frames.
#[derive(Debug, Clone, Copy)]
pub struct Frames {
    limits: FrameLimits,
    /// Supported flags.
    flags: FrameFlags,
    /// With this many inlined bytes, all required headers are inlined, for any frame.
    enough: usize,
    /// Whether no bytes need to be inlined.
    needs_none: bool,
    /// Most bytes after the Ethernet header.
    longest_payload: u64,
    /// Which send queue it is.
    pub(super) queue: SqIdentity,
}

impl Frames {
    /// Maximum number of segments of a multi-packet WQE; 0 if the card has none.
    #[inline(always)]
    pub(super) fn most_segments(&self) -> usize {
        self.limits.multi_packet_segments.into()
    }

    /// The queue's limits.
    pub(super) fn limits(&self) -> &FrameLimits {
        &self.limits
    }

    /// Most bytes of a frame after the Ethernet header.
    #[inline(always)]
    pub(super) fn longest_payload(&self) -> usize {
        self.longest_payload as usize
    }

    /// Whether the card has all of these offloads.
    #[inline(always)]
    pub(super) fn supports(&self, flags: FrameFlags) -> bool {
        self.flags.contains(flags.difference(FrameFlags::SIGNALLED.union(FrameFlags::SELDOM)))
    }

    /// Why a frame cannot be posted that starts with the inlined `start` and continues with `rest` bytes.
    // By value: with a reference to the queue, the compiler would reload its fields after each store.
    #[cold]
    #[inline(never)]
    pub(super) fn check(self, start: &[u8], flags: FrameFlags, rest: u64) -> Result<(), PostError> {
        let inline = start.len();
        if inline > usize::from(self.limits.inline_bytes) {
            return Err(PostError::FrameInlineTooLong { given: inline, most: self.limits.inline_bytes.into() });
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
        if flags.intersects(FrameFlags::INNER) {
            return Err(PostError::NoTunnel);
        }
        if !self.flags.contains(flags) {
            return Err(PostError::NoChecksums);
        }
        Ok(())
    }

    /// Whether a frame can be posted whose headers are all inlined, if the card requires any: of `inline` inlined bytes
    /// and one element of `len` bytes, where elements have at most `longest`. Of others nothing is said.
    // What a loop's frames have in common makes the bounds, so that each costs one comparison.
    #[inline(always)]
    fn takes(&self, inline: usize, flags: FrameFlags, len: u32, longest: u32) -> bool {
        let is_inlined = (inline >= self.enough) & (inline <= usize::from(self.limits.inline_bytes));
        let has_headers = is_inlined | (self.needs_none & (inline == 0));
        // Why it is none of these, in bits of their own: what any of them adds is beyond the length of an element.
        let no_headers = u64::from(!has_headers) << 55;
        let no_offload = u64::from(flags.difference(self.flags).bits()) << 56;
        let least = ETHERNET.saturating_sub(inline).max(1) as u64;
        let most = (ETHERNET as u64 + self.longest_payload).saturating_sub(inline as u64).min(longest.into());
        let lengths = (most + 1).saturating_sub(least);
        // As `- least - no_headers - no_offload`: of a sum, the compiler would add the constant apart, for each frame.
        u64::from(len).wrapping_add(least.wrapping_neg() ^ no_headers ^ no_offload) < lengths
    }

    /// Bytes of a frame of `len` bytes that must be inlined: the headers that the card requires; if any are inlined, at
    /// least the Ethernet header.
    fn least_inline(&self, start: &[u8], len: usize) -> usize {
        let least = headers(self.limits.inline_mode, start, len);
        if start.is_empty() { least } else { least.max(ETHERNET) }
    }
}

impl Service for Frames {
    type Object = Sq;
}

/// The send queue of an [`Sq`] in RDY. Used by one thread: not `Sync`, and all methods take `&mut self`. `D` is the
/// doorbell mode. Frames are posted in batches, as on a [`SendQueue`](crate::queue::SendQueue).
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
        // SAFETY: the permit grants exclusive posting; ring and record are mapped as long as `sq`, which the queue
        // keeps and drops last. `Sq::create` made the ring of `1 << log_size` WQEBBs, at most 2^15, at the start of its
        // memory. This queue uses the send half of the record.
        let ring = unsafe {
            let (_, record) = uar::record::queue_pair(record);
            SendRing::new(base, sq.log_size(), sq.sqn(), ring_limits, record)
        };
        let enough = most_headers(limits.inline_mode).max(ETHERNET);
        let checksums = FrameFlags::L3_CHECKSUM | FrameFlags::L4_CHECKSUM;
        let all = FrameFlags::all().difference(FrameFlags::INNER);
        let flags = if limits.checksums { all } else { all.difference(checksums) };
        let needs_none = limits.inline_mode == InlineMode::None;
        let longest_payload = limits.longest.saturating_sub(ETHERNET) as u64;
        let queue = sq.identity();
        SendQueue::of(ring, Frames { limits, flags, enough, needs_none, longest_payload, queue }, doorbell, sq)
    }

    /// The object.
    pub fn sq(&self) -> &Arc<Sq> {
        self.object()
    }
}

/// A batch of frames, before its doorbell.
pub type EthernetSendBatch<'a, D> = SendBatch<'a, D, Frames>;

impl<D: SendDoorbell> SendBatch<'_, D, Frames> {
    /// Flags of the next work request, of at most `segments` segments.
    #[inline(always)]
    pub(super) fn wr_flags(&self, flags: FrameFlags, segments: impl FnOnce() -> usize) -> WrFlags {
        self.wr_flags_to(flags, || self.next.wrapping_add(Size::of(segments()).wqebbs.into()))
    }

    /// Flags of the last of several, which ends before WQEBB `end`.
    #[inline(always)]
    pub(super) fn wr_flags_to(&self, flags: FrameFlags, end: impl FnOnce() -> u32) -> WrFlags {
        let is_due = flags.contains(FrameFlags::SELDOM) && self.ring.enters_quarter(self.next, end());
        if is_due || flags.contains(FrameFlags::SIGNALLED) { WrFlags::SIGNALLED } else { WrFlags::empty() }
    }

    /// Frames that are posted to this batch after it bear `value`, which flow rules for frames that are sent match
    /// ([`FlowMatch::sent_metadata`](crate::objects::FlowMatch::sent_metadata)). Without it: 0. It never leaves the
    /// card. PRM "Ethernet Segment", `flow_table_metadata`.
    ///
    /// ```no_run
    /// # use mlx5_dv::queue::ethernet::{EthernetSendQueue, FrameFlags};
    /// # fn f(sq: &mut EthernetSendQueue, frames: [&[u8]; 2]) -> Result<(), mlx5_dv::queue::PostError> {
    /// let mut batch = sq.batch();
    /// batch.send_inline(1, FrameFlags::empty(), frames[0])?;
    /// batch.flow_metadata(7);
    /// batch.send_inline(2, FrameFlags::SIGNALLED, frames[1])?; // a rule for 7 changes this one
    /// batch.ring();
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    pub fn flow_metadata(&mut self, value: u32) {
        self.metadata = value;
    }

    #[inline(always)]
    fn post_frame(
        &mut self,
        wr_id: u64,
        flags: FrameFlags,
        start: &[u8],
        rest: &[DataSegment],
    ) -> Result<(), PostError> {
        let wr_flags = self.wr_flags(flags, || 1 + segments_of(start.len()) + rest.len());
        let request = Request { opcode: WqeOpcode::Send, wr_id, flags: wr_flags, imm: 0 };
        let head = Start { bytes: start, flags, metadata: self.metadata, queue: self.service };
        match rest {
            // Apart: otherwise the code for lists would be behind every element.
            [one] if self.service.takes(start.len(), flags, one.len, self.ring.longest) => {
                self.post_checked(request, head, One(one))
            }
            // A copy: the caller's list need not be in memory for the frames above.
            [one] => {
                // So that the frames above run straight through.
                hint::cold_path();
                self.post(request, head, Elements(&[*one]))
            }
            _ => self.post(request, head, Elements(rest)),
        }
    }

    /// Sends a frame: `start`, copied into the WQE, followed by `elements`, in this order. `start` may be empty if the
    /// card requires no inlined headers ([`Sq::inline_mode`]). Errors: [`PostError`].
    ///
    /// # Safety
    /// Until the frame completes, or its queue is reset or destroyed, each element's memory stays registered under its
    /// key. It may be written meanwhile: then the frame mixes old and new bytes.
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

    /// Sends a frame of all `elements`, into which the card inserts the VLAN tag `tag` after the addresses.
    ///
    /// # Errors
    /// [`PostError::NoVlanInsertion`] on a card that does not insert tags (`wqe_vlan_insert`), or that requires inlined
    /// headers; [`PostError::VlanTag`]; otherwise as for [`send`](Self::send).
    ///
    /// # Safety
    /// As for [`send`](Self::send).
    #[inline]
    pub unsafe fn send_tagged(
        &mut self,
        wr_id: u64,
        flags: FrameFlags,
        tag: VlanTag,
        elements: &[DataSegment],
    ) -> Result<(), PostError> {
        let is_service = tag.ethertype == SERVICE_VLAN;
        let tci = tag.tci().filter(|_| is_service || tag.ethertype == VLAN).ok_or(PostError::VlanTag { tag })?;
        let wr_flags = self.wr_flags(flags, || 2 + elements.len());
        let request = Request { opcode: WqeOpcode::Send, wr_id, flags: wr_flags, imm: 0 };
        let head = Tagged { tci, is_service, flags, metadata: self.metadata, queue: self.service };
        self.post_elements(request, head, elements)
    }

    /// Sends a frame, which is copied into the WQE at once. Errors: [`PostError`].
    #[inline]
    pub fn send_inline(&mut self, wr_id: u64, flags: FrameFlags, frame: &[u8]) -> Result<(), PostError> {
        self.post_frame(wr_id, flags, frame, &[])
    }

    /// Frames posted after this leave no earlier than `time`, in the clock of the queue's completions: in ticks
    /// ([`Device::timestamp`](crate::Device::timestamp)), or for a queue with
    /// [`real_time`](crate::objects::SqOptions::real_time) in real time ([`Timestamp::from`] a
    /// [`RealTime`](crate::RealTime)). Frames before it, and other queues, do not wait.
    ///
    /// The card compares times modulo at least eight seconds: one that is four seconds ahead, or more, may have passed
    /// for it. One that has passed holds nothing back. The queue keeps its order: a frame for an earlier time that is
    /// posted later leaves later.
    ///
    /// It takes a WQEBB and has no completion, but of its failure; it is retired with the next frame that has one.
    ///
    /// # Errors
    /// [`PostError::NoWaitOnTime`] on a card that waits for no time (`wait_on_time`); [`PostError::Full`].
    #[inline]
    pub fn wait_until(&mut self, wr_id: u64, time: Timestamp) -> Result<(), PostError> {
        let request = Request { opcode: WqeOpcode::Wait, wr_id, flags: WrFlags::empty(), imm: 0 };
        let mask = self.service.limits().wait_mask;
        self.post_elements(request, Until { time, mask }, &[])
    }
}
