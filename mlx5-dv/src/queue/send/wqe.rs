//! Send WQEs.

use mlx5_prm::wqe::{
    AtomicSeg, CompletionMode, CtrlSeg, DataSeg, Fence, InlineSegHeader, RaddrSeg, SEGMENT, WQEBB, WqeOpcode,
};

use super::ring::{INLINE_HEADER, Room, SendRing};
use crate::memory::{DataSegment, RemoteAddress};
use crate::queue::error::PostError;

bitflags::bitflags! {
    /// Flags of a work request: bits of the control segment, at their position in the WQE.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct WrFlags: u8 {
        /// Write a completion on success, too. Without it only failures complete, and the WQE is freed by the
        /// completion of a later signalled one: a queue full of unsignalled work stays full.
        const SIGNALLED = (CompletionMode::Always.number() << 2) as u8;
        /// Set the solicited event bit: wakes a receiver that waits for solicited completions only.
        const SOLICITED = 1 << 1;
        /// Start only when all earlier RDMA READs and atomics of the queue are complete.
        const FENCE = (Fence::Fence.number() << 5) as u8;
        /// Begin only when all earlier changes of keys by this queue are made (PRM "initiator small fence"), such as
        /// [`SendBatch::register`](crate::queue::SendBatch::register).
        const SMALL_FENCE = (Fence::InitiatorSmall.number() << 5) as u8;
        /// Begin only when all earlier work requests of the queue are complete: both fences, and more. It is the two
        /// bits of [`FENCE`](Self::FENCE) and [`SMALL_FENCE`](Self::SMALL_FENCE), as the PRM numbers them.
        const STRONG_ORDERING = (Fence::StrongOrdering.number() << 5) as u8;
        /// What [`FENCE`](Self::FENCE) and [`SMALL_FENCE`](Self::SMALL_FENCE) wait for, and no more. Used without
        /// either: together with one, it is a number that the PRM does not define.
        const FENCE_AND_SMALL_FENCE = (Fence::FenceAndInitiatorSmall.number() << 5) as u8;
    }
}

/// The common fields of all work requests.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(super) opcode: WqeOpcode,
    pub(super) wr_id: u64,
    pub(super) flags: WrFlags,
    pub(super) imm: u32,
}

/// The segments between the control segment and the data.
#[doc(hidden)]
pub trait Head {
    /// Whether the WQE is checked as for a [`Payload::LONG`].
    const LONG: bool = false;
    /// Whether the WQE most often has many WQEBBs.
    const MANY: bool = false;
    /// `opmod` of the control segment.
    const OPMOD: u8 = 0;
    /// Number of segments.
    fn segments(&self) -> usize;
    /// Why `bytes` of data must not follow it.
    #[inline(always)]
    fn check(&self, bytes: u64) -> Result<(), PostError> {
        let _ = bytes;
        Ok(())
    }
    /// What it adds to the second eight bytes of the control segment, as they stand in memory.
    #[inline(always)]
    fn control(&self) -> u64 {
        0
    }
    /// Stores its segments, from number `at` on.
    fn store(&self, room: &mut Room<'_>, at: usize);
}

/// No segments.
impl Head for () {
    #[inline(always)]
    fn segments(&self) -> usize {
        0
    }

    #[inline(always)]
    fn store(&self, _: &mut Room<'_>, _: usize) {}
}

/// `[ raddr | rkey ]`.
impl Head for RemoteAddress {
    #[inline(always)]
    fn segments(&self) -> usize {
        1
    }

    #[inline(always)]
    fn store(&self, room: &mut Room<'_>, at: usize) {
        let mut segment = RaddrSeg::ZERO;
        segment.w().raddr(self.addr).rkey(self.rkey);
        room.store(at, zerocopy::transmute!(segment));
    }
}

/// One head after the other.
impl<A: Head, B: Head> Head for (A, B) {
    const LONG: bool = A::LONG || B::LONG;
    const MANY: bool = A::MANY || B::MANY;
    const OPMOD: u8 = A::OPMOD | B::OPMOD;

    #[inline(always)]
    fn segments(&self) -> usize {
        self.0.segments() + self.1.segments()
    }

    #[inline(always)]
    fn check(&self, bytes: u64) -> Result<(), PostError> {
        self.0.check(bytes)?;
        self.1.check(bytes)
    }

    #[inline(always)]
    fn control(&self) -> u64 {
        self.0.control() | self.1.control()
    }

    #[inline(always)]
    fn store(&self, room: &mut Room<'_>, at: usize) {
        self.0.store(room, at);
        self.1.store(room, at + self.0.segments());
    }
}

/// Operands of an atomic: `[ swap_add | compare ]`.
pub(super) struct Operands {
    pub(super) swap_add: u64,
    pub(super) compare: u64,
}

impl Operands {
    /// Why an atomic with `element` must not be posted on a card that has atomics, or has none.
    #[inline(always)]
    pub(super) fn check_element(has_atomics: bool, element: &DataSegment) -> Result<(), PostError> {
        if !has_atomics {
            return Err(PostError::NoAtomics);
        }
        if element.len as usize != size_of::<u64>() {
            return Err(PostError::AtomicLength { given: element.len });
        }
        Ok(())
    }
}

impl Head for Operands {
    #[inline(always)]
    fn segments(&self) -> usize {
        1
    }

    #[inline(always)]
    fn store(&self, room: &mut Room<'_>, at: usize) {
        let mut segment = AtomicSeg::ZERO;
        segment.w().swap_add(self.swap_add).compare(self.compare);
        room.store(at, zerocopy::transmute!(segment));
    }
}

/// The data of a work request.
pub(super) trait Payload {
    /// Whether to check once per WQE, not per store, that it does not wrap: cheaper for inline data, more expensive for
    /// segments.
    const LONG: bool = false;
    /// Bytes outside the WQE.
    fn bytes(&self) -> u64;
    /// Number of segments, or why it cannot be posted.
    fn segments(&self, ring: &SendRing) -> Result<usize, PostError>;
    /// Stores its segments from number `at` on.
    fn store(&self, room: &mut Room<'_>, at: usize);
}

/// No data, or data that is stored already.
impl Payload for () {
    #[inline(always)]
    fn bytes(&self) -> u64 {
        0
    }

    #[inline(always)]
    fn segments(&self, _: &SendRing) -> Result<usize, PostError> {
        Ok(0)
    }

    #[inline(always)]
    fn store(&self, _: &mut Room<'_>, _: usize) {}
}

/// Memory to gather from or scatter to: `[ byte_count (31) | lkey | address ]` per element. Empty elements are skipped,
/// since the card reads a count of zero as 2^31.
pub(super) struct Elements<'a>(pub(super) &'a [DataSegment]);

impl Elements<'_> {
    #[inline(always)]
    pub(super) fn segment(element: &DataSegment) -> [u64; 2] {
        let mut segment = DataSeg::ZERO;
        segment.w().byte_count(element.len).lkey(element.lkey).addr(element.addr);
        zerocopy::transmute!(segment)
    }

    /// As [`segment`](Self::segment), with fewer instructions where the element is in memory.
    #[inline(always)]
    pub(super) fn segment_of_memory(element: &DataSegment) -> [u64; 2] {
        let [addr, len_and_key]: [u64; 2] = zerocopy::transmute!(*element);
        // Both halves are swapped, but not with each other.
        let first = if cfg!(target_endian = "little") { len_and_key.swap_bytes().rotate_left(32) } else { len_and_key };
        [first, addr.to_be()]
    }

    /// The segment of `len` bytes at `addr`, whose key is that of `empty`: the start of a segment of no bytes.
    #[inline(always)]
    pub(super) fn with(empty: u64, addr: u64, len: u32) -> [u64; 2] {
        let [a, b, c, d] = len.to_be_bytes();
        [empty | u64::from_ne_bytes([a, b, c, d, 0, 0, 0, 0]), addr.to_be()]
    }
}

impl Payload for Elements<'_> {
    #[inline(always)]
    fn bytes(&self) -> u64 {
        self.0.iter().map(|element| u64::from(element.len)).sum()
    }

    #[inline(always)]
    fn segments(&self, ring: &SendRing) -> Result<usize, PostError> {
        if self.0.len() > usize::from(ring.sges) {
            return Err(PostError::TooManySges { given: self.0.len(), most: ring.sges.into() });
        }
        let (given, most) = (self.bytes(), ring.longest.into());
        if given > most {
            return Err(PostError::MessageTooLong { given, most });
        }
        Ok(self.0.iter().filter(|element| element.len != 0).count())
    }

    #[inline(always)]
    fn store(&self, room: &mut Room<'_>, at: usize) {
        for (i, element) in self.0.iter().filter(|element| element.len != 0).enumerate() {
            room.store(at + i, Elements::segment(element));
        }
    }
}

/// A single element of checked length, the most common data: the offset of its segment is known at compile time.
pub(super) struct One<'a>(pub(super) &'a DataSegment);

impl Payload for One<'_> {
    #[inline(always)]
    fn bytes(&self) -> u64 {
        self.0.len.into()
    }

    #[inline(always)]
    fn segments(&self, _: &SendRing) -> Result<usize, PostError> {
        Ok(1)
    }

    #[inline(always)]
    fn store(&self, room: &mut Room<'_>, at: usize) {
        room.store(at, Elements::segment(self.0));
    }
}

/// Inline data: `[ 1 | byte_count (10) ]` and the bytes. The rest of the last segment is not written.
pub(super) struct Inline<'a>(pub(super) &'a [u8]);

impl Payload for Inline<'_> {
    const LONG: bool = true;

    #[inline(always)]
    fn bytes(&self) -> u64 {
        0
    }

    #[inline(always)]
    fn segments(&self, ring: &SendRing) -> Result<usize, PostError> {
        if self.0.len() > usize::from(ring.inline_bytes) {
            return Err(PostError::InlineTooLong { given: self.0.len(), most: ring.inline_bytes.into() });
        }
        Ok(if self.0.is_empty() { 0 } else { (INLINE_HEADER + self.0.len()).div_ceil(SEGMENT) })
    }

    #[inline(always)]
    fn store(&self, room: &mut Room<'_>, at: usize) {
        if self.0.is_empty() {
            return;
        }
        room.store_header(at, inline_header(self.0.len()));
        room.store_bytes(at, INLINE_HEADER, self.0);
    }
}

/// The header of `len` bytes of inline data.
#[inline(always)]
pub(super) fn inline_header(len: usize) -> [u8; INLINE_HEADER] {
    let mut header = InlineSegHeader::default();
    // Ten bits: `segments` limits this to `inline_bytes`, which the queue's creation limits so, and the number of
    // segments of a WQE limits each frame of several.
    header.w().byte_count(len as u16);
    zerocopy::transmute!(header)
}

/// As [`Inline`], of several parts, one after the other.
pub(super) struct InlineParts<'a>(pub(super) &'a [&'a [u8]]);

impl InlineParts<'_> {
    #[inline(always)]
    fn len(&self) -> usize {
        // Slices of the same bytes may add up to more than there are.
        self.0.iter().fold(0, |sum: usize, part| sum.saturating_add(part.len()))
    }
}

impl Payload for InlineParts<'_> {
    const LONG: bool = true;

    #[inline(always)]
    fn bytes(&self) -> u64 {
        0
    }

    #[inline(always)]
    fn segments(&self, ring: &SendRing) -> Result<usize, PostError> {
        let (given, most) = (self.len(), ring.inline_bytes.into());
        if given > most {
            return Err(PostError::InlineTooLong { given, most });
        }
        Ok(if given == 0 { 0 } else { (INLINE_HEADER + given).div_ceil(SEGMENT) })
    }

    #[inline(always)]
    fn store(&self, room: &mut Room<'_>, at: usize) {
        let len = self.len();
        if len == 0 {
            return;
        }
        room.store_header(at, inline_header(len));
        let mut next = INLINE_HEADER;
        for part in self.0.iter().filter(|part| !part.is_empty()) {
            room.store_bytes(at + next / SEGMENT, next % SEGMENT, part);
            next += part.len();
        }
    }
}

impl SendRing {
    /// Writes a WQE at WQEBB `index`, which must have room for it. Returns its first eight bytes, as in memory.
    ///
    /// ```text
    /// segment 0   control: opmod | wqe_index | opcode, qpn | ds, flags, immediate
    /// segment 1.. head
    /// then        data segments, or inline header and data
    /// ```
    /// Four segments fill a WQEBB; the next WQE starts at the next WQEBB.
    #[inline(always)]
    pub(super) fn write<H: Head, P: Payload>(
        &mut self,
        index: u32,
        size: Size,
        request: Request,
        head: H,
        payload: P,
    ) -> u64 {
        let start = self.start(index, size, request, &head);
        let long = H::LONG || P::LONG;
        if !long || self.extent().whole(index, size.wqebbs) {
            // A single WQEBB does not wrap either.
            fill(self.room(index, long || size.wqebbs == 1), start, head, payload);
        } else {
            fill_around(self.room(index, false), start, head, payload);
        }
        start.control[0]
    }

    /// As [`write`](Self::write), for a WQE that does not wrap.
    #[inline(always)]
    pub(super) fn write_straight<H: Head, P: Payload>(
        &mut self,
        index: u32,
        size: Size,
        request: Request,
        head: H,
        payload: P,
    ) -> u64 {
        let start = self.start(index, size, request, &head);
        fill(self.room(index, true), start, head, payload);
        start.control[0]
    }

    /// As [`write`](Self::write), by a call, if there is room. Returns also what [`straight`](Self::straight) is behind
    /// it.
    #[inline(always)]
    pub(super) fn write_beyond<H: Head, P: Payload>(
        &mut self,
        index: u32,
        size: Size,
        request: Request,
        head: H,
        payload: P,
    ) -> Option<(u32, u64)> {
        let (start, retired) = (self.start(index, size, request, &head), self.retired);
        let end = fill_beyond(self.room(index, false), retired, start, head, payload)?;
        Some((end, start.control[0]))
    }

    /// Gives the WQE at `index` these flags: it was written without any, and is not posted. Returns its first eight
    /// bytes.
    pub(super) fn set_flags(&mut self, index: u32, wr_flags: WrFlags) -> u64 {
        let mut room = self.room(index, true);
        let [first, second] = room.load(0);
        room.store(0, [first, second | flags(wr_flags)]);
        first
    }

    /// The control segment of the WQE at `index`.
    #[inline(always)]
    pub(super) fn control_segment(&self, index: u32, size: Size, request: Request) -> [u64; 2] {
        self.start(index, size, request, &()).control
    }

    /// How the WQE at `index` starts.
    #[inline(always)]
    fn start<H: Head>(&self, index: u32, size: Size, request: Request, head: &H) -> Start {
        let [first, second]: [u64; 2] = zerocopy::transmute!(control(size.segments, H::OPMOD, request));
        let first = first | self.number | wqe_index(index);
        let control = [first, second | flags(request.flags) | head.control()];
        Start { control, wr_id: request.wr_id, wqebbs: size.wqebbs }
    }
}

/// The control segment of a WQE, and what the ring remembers of it.
#[derive(Clone, Copy)]
struct Start {
    control: [u64; 2],
    wr_id: u64,
    wqebbs: u16,
}

/// Stores a WQE.
// The ring remembers it here, where the compiler may know whether it wraps.
#[inline(always)]
fn fill<H: Head>(mut room: Room<'_>, start: Start, head: H, payload: impl Payload) {
    // The control segment last: its two words need fewer registers than what the others are made of. Long heads are
    // copied from memory, and need none.
    let is_long = head.segments() > 2;
    if is_long {
        room.store(0, start.control);
    }
    head.store(&mut room, 1);
    payload.store(&mut room, 1 + head.segments());
    if !is_long {
        room.store(0, start.control);
    }
    if H::MANY && room.is_whole() {
        room.remember_many(start.wr_id, start.wqebbs);
    } else {
        room.remember(start.wr_id, start.wqebbs);
    }
}

/// As [`fill`], for a WQE that wraps.
// By value: with a reference to the queue, the compiler would reload its fields after each store.
#[cold]
#[inline(never)]
fn fill_around(room: Room<'_>, start: Start, head: impl Head, payload: impl Payload) {
    fill(room, start, head, payload);
}

/// As [`fill_around`], where it is not known whether there is room.
#[cold]
#[inline(never)]
fn fill_beyond(room: Room<'_>, retired: u32, start: Start, head: impl Head, payload: impl Payload) -> Option<u32> {
    let end = room.straight_behind(retired, start.wqebbs)?;
    fill(room, start, head, payload);
    Some(end)
}

/// Length of a WQE.
#[derive(Clone, Copy)]
pub(super) struct Size {
    pub(super) segments: usize,
    pub(super) wqebbs: u16,
}

impl Size {
    /// That of `segments` segments.
    #[inline(always)]
    pub(super) fn of(segments: usize) -> Self {
        // Cheaper than `div_ceil`, which fears an overflow.
        const EACH: usize = WQEBB / SEGMENT;
        Size { segments, wqebbs: ((EACH - 1 + segments) >> EACH.trailing_zeros()) as u16 }
    }
}

/// The control segment of a WQE, without the queue's number, the WQE's index and the flags. PRM "Control Segment".
#[inline(always)]
fn control(segments: usize, opmod: u8, request: Request) -> CtrlSeg {
    let mut control = CtrlSeg::ZERO;
    // Six bits: the queue's creation, or the caller that posts longer WQEs, limits the number of segments.
    control.w().opmod(opmod).opcode(request.opcode).ds(segments as u8 & 0x3f).imm(request.imm);
    control
}

/// `wqe_index`, as it stands in the first eight bytes of a control segment: behind `opmod`, in bytes 1 and 2.
// Apart from the other fields, which are often the same for all WQEs of a loop. The bytes are swapped first: otherwise
// the compiler counts a shifted index beside the index, in a register of its own.
#[inline(always)]
fn wqe_index(index: u32) -> u64 {
    let swapped = u64::from(u32::from(index as u16).to_be());
    if cfg!(target_endian = "little") { swapped >> 8 } else { swapped << 40 }
}

/// `fm`, `ce` and `se`, as they stand in the second eight bytes of a control segment.
#[inline(always)]
fn flags(flags: WrFlags) -> u64 {
    u64::from_ne_bytes([0, 0, 0, flags.bits() & WrFlags::all().bits(), 0, 0, 0, 0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_where_the_control_segment_has_it() {
        for index in [0, 1, 0x1234, 0xffff, 0x1_0000, 0x1234_5678, u32::MAX] {
            let mut control = CtrlSeg::ZERO;
            control.w().wqe_index(index as u16);
            let [first, _]: [u64; 2] = zerocopy::transmute!(control);
            assert_eq!(wqe_index(index), first, "{index:#x}");
        }
    }
}
