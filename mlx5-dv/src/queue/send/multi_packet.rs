//! Several Ethernet frames in one work request. PRM "Enhanced Multi-Packet Send WQE".

use std::fmt;
use std::ops::Range;

use mlx5_prm::wqe::{EthSeg, InlineSegHeader, SEGMENT, WQEBB, WqeOpcode};
use uar::SendDoorbell;

use super::SendBatch;
use super::ethernet::{FrameFlags, Frames};
use super::ring::{INLINE_HEADER, Room, Segments, SendRing};
use super::wqe::{Elements, Head, Payload, Request, Size, WrFlags};
use crate::memory::DataSegment;
use crate::objects::{Buffer, ETHERNET, FrameSource, SourceBytes};
use crate::queue::error::{Full, PostError};

/// Segments before the frames: control and Ethernet segment.
const HEADS: usize = 2;

/// The Ethernet segment: the offloads of all frames, and what flow rules match.
#[derive(Clone, Copy)]
struct Offloads(FrameFlags, u32);

impl Head for Offloads {
    #[inline(always)]
    fn segments(&self) -> usize {
        1
    }

    #[inline(always)]
    fn store(&self, room: &mut Room<'_>, at: usize) {
        let mut segment = EthSeg::ZERO;
        segment.w().l3_csum(self.0.contains(FrameFlags::L3_CHECKSUM)).l4_csum(self.0.contains(FrameFlags::L4_CHECKSUM));
        segment.w().flow_table_metadata(self.1);
        room.store(at, zerocopy::transmute!(segment));
    }
}

/// The frames of one work request.
trait Several: Payload {
    /// Segments of all frames, whether they fit or not.
    fn most_segments(&self) -> usize;
}

/// Frames in memory, an element each.
struct Pointers<'a> {
    frames: &'a [DataSegment],
    queue: &'a Frames,
}

impl Payload for Pointers<'_> {
    const LONG: bool = true;

    #[inline(always)]
    fn bytes(&self) -> u64 {
        0
    }

    #[inline(always)]
    fn segments(&self, _: &SendRing) -> Result<usize, PostError> {
        self.queue.check_several(
            self.frames.len(),
            self.frames.len(),
            self.frames.iter().map(|frame| frame.len as usize),
        )
    }

    #[inline(always)]
    fn store(&self, room: &mut Room<'_>, at: usize) {
        for (i, frame) in self.frames.iter().enumerate() {
            room.store(at + i, Elements::segment(frame));
        }
    }
}

impl Several for Pointers<'_> {
    #[inline(always)]
    fn most_segments(&self) -> usize {
        self.frames.len()
    }
}

/// Frames in the WQE, each with a header of its own and padded to whole segments.
struct Inlined<'a> {
    frames: &'a [&'a [u8]],
    queue: &'a Frames,
}

/// Segments of an inlined frame of `len` bytes.
#[inline(always)]
fn segments_of(len: usize) -> usize {
    // Cheaper than `div_ceil`, which fears an overflow.
    (INLINE_HEADER + SEGMENT - 1 + len) >> SEGMENT.trailing_zeros()
}

/// The header of an inlined frame of `len` bytes.
#[inline(always)]
fn header_of(len: usize) -> [u8; INLINE_HEADER] {
    let mut header = InlineSegHeader::default();
    // The number of segments of a whole WQE, and so of each frame, limits this to ten bits.
    header.w().byte_count(len as u16);
    zerocopy::transmute!(header)
}

impl Payload for Inlined<'_> {
    const LONG: bool = true;

    #[inline(always)]
    fn bytes(&self) -> u64 {
        0
    }

    #[inline(always)]
    fn segments(&self, _: &SendRing) -> Result<usize, PostError> {
        self.queue.check_several(self.frames.len(), self.most_segments(), self.frames.iter().map(|frame| frame.len()))
    }

    #[inline(always)]
    fn store(&self, room: &mut Room<'_>, mut at: usize) {
        for frame in self.frames {
            room.store_header(at, header_of(frame.len()));
            room.store_bytes(at, INLINE_HEADER, frame);
            at += segments_of(frame.len());
        }
    }
}

impl Several for Inlined<'_> {
    #[inline(always)]
    fn most_segments(&self) -> usize {
        self.frames.iter().map(|frame| segments_of(frame.len())).sum()
    }
}

/// As [`Inlined`], of frames in buffers. Others may write these meanwhile, so they are copied without a slice of them.
struct Copied<'a> {
    frames: &'a [Buffer],
    queue: &'a Frames,
}

impl Payload for Copied<'_> {
    const LONG: bool = true;

    #[inline(always)]
    fn bytes(&self) -> u64 {
        0
    }

    #[inline(always)]
    fn segments(&self, _: &SendRing) -> Result<usize, PostError> {
        self.queue.check_several(self.frames.len(), self.most_segments(), self.frames.iter().map(Buffer::len))
    }

    #[inline(always)]
    fn store(&self, room: &mut Room<'_>, mut at: usize) {
        for frame in self.frames {
            room.store_header(at, header_of(frame.len()));
            room.store_with(at, INLINE_HEADER, frame.len(), |offset, bytes| frame.read(offset, bytes));
            at += segments_of(frame.len());
        }
    }
}

impl Several for Copied<'_> {
    #[inline(always)]
    fn most_segments(&self) -> usize {
        self.frames.iter().map(|frame| segments_of(frame.len())).sum()
    }
}

impl Frames {
    /// Maximum number of frames by pointer in a work request; 0 if the card has no multi-packet ones.
    #[inline(always)]
    fn most_packets(&self) -> usize {
        self.most_segments().saturating_sub(HEADS)
    }

    /// `segments`, if a WQE can hold them and each frame has a length that can be sent.
    #[inline(always)]
    fn check_several(
        &self,
        frames: usize,
        segments: usize,
        mut lens: impl Iterator<Item = usize> + Clone,
    ) -> Result<usize, PostError> {
        let (most, longest) = (self.most_packets(), self.longest_payload());
        if frames == 0 || segments > most {
            return Err(self.why_not_several(segments, most));
        }
        // All are looked at, without a branch for each. Which one is wrong is found out if one is.
        if !lens.clone().fold(true, |fit, len| fit & fits(len, longest)) {
            lens.try_for_each(|len| check_length(len, longest))?;
        }
        Ok(segments)
    }

    #[cold]
    fn why_not_several(&self, given: usize, most: usize) -> PostError {
        match self.most_segments() {
            0 => PostError::NoMultiPacket,
            _ => PostError::MultiPacketLength { given, most },
        }
    }
}

impl<'a, D: SendDoorbell> SendBatch<'a, D, Frames> {
    /// As [`Sq::most_packets`](crate::objects::Sq::most_packets).
    #[inline(always)]
    pub(in crate::queue) fn most_packets(&self) -> usize {
        self.service.most_packets()
    }

    #[inline(always)]
    fn post_several(&mut self, wr_id: u64, flags: FrameFlags, payload: impl Several) -> Result<(), PostError> {
        if !self.service.supports(flags) {
            return Err(PostError::NoChecksums);
        }
        let wr_flags = self.wr_flags(flags, || HEADS + payload.most_segments());
        let request = Request { opcode: WqeOpcode::EnhancedMpsw, wr_id, flags: wr_flags, imm: 0 };
        self.post(request, Offloads(flags, self.metadata), payload)
    }

    /// Sends several frames by one work request, with one completion: each of `frames` is a whole frame. A work request
    /// takes 16 bytes for each and 32 for all, where one for each frame takes 64. At most
    /// [`Sq::most_packets`](crate::objects::Sq::most_packets) frames.
    ///
    /// # Errors
    /// [`PostError::NoMultiPacket`] on a card without it (`enhanced_multi_pkt_send_wqe`);
    /// [`PostError::MultiPacketLength`] for none, or too many; otherwise as for [`send`](Self::send).
    ///
    /// # Safety
    /// As for [`send`](Self::send), for all frames.
    #[inline]
    pub unsafe fn send_several(
        &mut self,
        wr_id: u64,
        flags: FrameFlags,
        frames: &[DataSegment],
    ) -> Result<(), PostError> {
        let queue = self.service;
        self.post_several(wr_id, flags, Pointers { frames, queue })
    }

    /// As [`send_several`](Self::send_several); the frames are copied into the WQE at once, 4 bytes and padding to 16
    /// each. Errors: as there.
    #[inline]
    pub fn send_several_inline(&mut self, wr_id: u64, flags: FrameFlags, frames: &[&[u8]]) -> Result<(), PostError> {
        let queue = self.service;
        self.post_several(wr_id, flags, Inlined { frames, queue })
    }

    /// As [`send_several_inline`](Self::send_several_inline), of frames in buffers.
    #[inline]
    pub(in crate::queue) fn send_several_copied(
        &mut self,
        wr_id: u64,
        flags: FrameFlags,
        frames: &[Buffer],
    ) -> Result<(), PostError> {
        let queue = self.service;
        self.post_several(wr_id, flags, Copied { frames, queue })
    }

    /// How many frames of these lengths, from the first on, a work request holds if they are copied.
    #[inline(always)]
    pub(in crate::queue) fn most_copied(&self, lens: impl Iterator<Item = usize>) -> usize {
        let mut left = self.most_packets();
        let fits = |len: &usize| match left.checked_sub(segments_of(*len)) {
            Some(rest) => {
                left = rest;
                true
            }
            None => false,
        };
        lens.take_while(fits).count()
    }

    /// Sends frames that are copied one by one, by as many multi-packet work requests as they take: begins with none.
    /// Of these the last one has a completion, if `flags` say so, all of them taken together. All have this `wr_id`.
    ///
    /// # Errors
    /// [`PostError::NoMultiPacket`], as for [`send_several`](Self::send_several); [`PostError::NoChecksums`].
    #[inline(always)]
    pub fn copies(&mut self, wr_id: u64, flags: FrameFlags) -> Result<FrameCopies<'_, 'a, D>, PostError> {
        let request = self.each(wr_id, flags)?;
        let (fill, longest_payload) = (Fill::new(self), self.service.longest_payload());
        Ok(FrameCopies { batch: self, request, longest_payload, fill })
    }

    /// As [`copies`](Self::copies), for frames that the card reads in the memory of `source`, where they stay until
    /// they complete. A frame takes 16 bytes of a work request.
    ///
    /// # Errors
    /// As there; [`PostError::OtherSource`] for a source of another queue.
    #[inline(always)]
    pub fn pointers(
        &mut self,
        source: &FrameSource,
        wr_id: u64,
        flags: FrameFlags,
    ) -> Result<FramePointers<'_, 'a, D>, PostError> {
        let source = source.bytes_for(self.service.queue).ok_or(PostError::OtherSource)?;
        let pointing = Pointing::new(self, source.lkey, wr_id, flags)?;
        Ok(FramePointers { batch: self, source, pointing })
    }

    /// What work requests of several frames have, if the card has such.
    #[inline(always)]
    fn each(&self, wr_id: u64, flags: FrameFlags) -> Result<Each, PostError> {
        if !self.service.supports(flags) {
            return Err(PostError::NoChecksums);
        }
        if self.service.most_segments() <= HEADS {
            return Err(PostError::NoMultiPacket);
        }
        Ok(Each { wr_id, flags, metadata: self.metadata })
    }
}

/// What all work requests of a [`FrameCopies`] or [`FramePointers`] have.
#[derive(Clone, Copy)]
struct Each {
    wr_id: u64,
    flags: FrameFlags,
    metadata: u32,
}

impl Each {
    #[inline(always)]
    fn request(self, flags: WrFlags) -> Request {
        Request { opcode: WqeOpcode::EnhancedMpsw, wr_id: self.wr_id, flags, imm: 0 }
    }

    #[inline(always)]
    fn offloads(self) -> Offloads {
        Offloads(self.flags, self.metadata)
    }

    /// Writes what stands before the frames of the work request at WQEBB `index`, which does not wrap. Returns its
    /// first eight bytes.
    #[inline(always)]
    fn write_start(self, ring: &mut SendRing, index: u32, size: Size, flags: WrFlags) -> u64 {
        ring.write_start(index, size, self.request(flags), self.offloads())
    }
}

/// The room of a batch. With it, what is not inlined needs no reference to the batch, whose fields can then stay in
/// registers.
#[derive(Clone, Copy)]
struct Space {
    /// The first WQEBB without room.
    end: u32,
    /// Segments of the longest work request.
    segments: usize,
}

impl Space {
    #[inline(always)]
    fn of<D: SendDoorbell>(batch: &SendBatch<'_, D, Frames>) -> Self {
        Space { end: batch.end, segments: batch.service.most_segments() }
    }
}

/// How far a [`FrameCopies`] or [`FramePointers`] is. Passed by value to what is not inlined, so that it stays in
/// registers.
#[derive(Clone, Copy)]
struct Fill {
    /// WQEBB of the work request that is filled; the segment of its next frame, and the first without room.
    index: u32,
    next: usize,
    end: usize,
    /// The last work request that is full, and its first eight bytes as in memory.
    last: Option<(u32, Size)>,
    control: u64,
    /// Work requests that are full.
    count: u32,
}

impl Fill {
    /// At the end of `batch`.
    #[inline(always)]
    fn new<D: SendDoorbell>(batch: &SendBatch<'_, D, Frames>) -> Self {
        let none = Fill { index: batch.next, next: HEADS, end: 0, last: None, control: 0, count: 0 };
        none.open(batch.ring, Space::of(batch))
    }

    /// Begins a work request, as long as possible without wrapping. Without room it ends where its frames would begin.
    #[inline(always)]
    fn open(self, ring: &SendRing, space: Space) -> Self {
        let wqebbs = (space.end.wrapping_sub(self.index) as usize).min(ring.extent().to_end(self.index));
        let end = (wqebbs * (WQEBB / SEGMENT)).min(space.segments).max(HEADS);
        Fill { next: HEADS, end, ..self }
    }

    /// Whether the work request that is filled has a frame.
    #[inline(always)]
    fn has_frames(&self) -> bool {
        self.next > HEADS
    }

    /// Completes the work request that is filled, of at least one frame, and begins another one.
    #[inline(always)]
    fn go_on(self, ring: &mut SendRing, space: Space, request: Each) -> Self {
        let size = Size::of(self.next);
        let control = request.write_start(ring, self.index, size, WrFlags::empty());
        self.pass(size, control).open(ring, space)
    }

    /// Adds the work requests to `batch`; the last one has a completion, if it is `signalled` or its flags say so.
    #[inline(always)]
    fn end<D: SendDoorbell>(mut self, batch: &mut SendBatch<'_, D, Frames>, request: Each, signalled: bool) {
        let flags = |end| if signalled { WrFlags::SIGNALLED } else { batch.wr_flags_to(request.flags, || end) };
        if self.has_frames() {
            let size = Size::of(self.next);
            let flags = flags(self.index.wrapping_add(size.wqebbs.into()));
            let control = request.write_start(batch.ring, self.index, size, flags);
            self = self.pass(size, control);
        } else if let Some((index, size)) = self.last {
            let flags = flags(self.index);
            // It may wrap.
            batch.ring.write(index, size, request.request(flags), request.offloads(), ());
        }
        if let Some((_, size)) = self.last {
            (batch.next, batch.last, batch.control) = (self.index, size.wqebbs, self.control);
            batch.posted += self.count;
        }
    }

    /// Goes on behind a work request.
    #[inline(always)]
    fn pass(self, size: Size, control: u64) -> Self {
        let (index, last) = (self.index.wrapping_add(size.wqebbs.into()), Some((self.index, size)));
        Fill { index, next: HEADS, last, control, count: self.count + 1, ..self }
    }
}

/// Frames that are copied into work requests: see [`SendBatch::copies`]. Dropped without [`end`](Self::end), none of
/// them is sent.
#[must_use = "frames that are not ended are not sent"]
pub struct FrameCopies<'b, 'a, D: SendDoorbell> {
    batch: &'b mut SendBatch<'a, D, Frames>,
    request: Each,
    /// Most bytes after the Ethernet header.
    longest_payload: usize,
    fill: Fill,
}

impl<D: SendDoorbell> fmt::Debug for FrameCopies<'_, '_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameCopies").field("full", &self.fill.count).finish_non_exhaustive()
    }
}

impl<D: SendDoorbell> FrameCopies<'_, '_, D> {
    /// Adds a frame, which is copied at once.
    ///
    /// # Errors
    /// [`PostError::Full`], [`PostError::FrameLength`]; [`PostError::MultiPacketLength`] for one that is longer than a
    /// work request. It is not added then, and those before it stay.
    #[inline(always)]
    pub fn push(&mut self, frame: &[u8]) -> Result<(), PostError> {
        check_length(frame.len(), self.longest_payload)?;
        let segments = segments_of(frame.len());
        if self.fill.next + segments > self.fill.end {
            let space = Space::of(self.batch);
            let SendBatch { ring, service, .. } = &mut *self.batch;
            let (fill, made) = make_room(ring, service, space, self.request, self.fill, frame);
            self.fill = fill;
            // Where it must wrap, it is stored already.
            if !made? {
                return Ok(());
            }
        }
        let mut room = self.batch.ring.room(self.fill.index, true);
        room.store_header(self.fill.next, header_of(frame.len()));
        room.store_short(self.fill.next, INLINE_HEADER, frame);
        self.fill.next += segments;
        Ok(())
    }

    /// Adds the work requests to the batch.
    #[inline(always)]
    pub fn end(self) {
        self.fill.end(self.batch, self.request, false);
    }
}

/// Begins another work request, with room for `frame`. `false` if that wraps: then it has this frame alone.
#[inline(never)]
fn make_room(
    ring: &mut SendRing,
    queue: &Frames,
    space: Space,
    request: Each,
    mut fill: Fill,
    frame: &[u8],
) -> (Fill, Result<bool, PostError>) {
    let (segments, most) = (HEADS + segments_of(frame.len()), space.segments);
    if segments > most {
        return (fill, Err(PostError::MultiPacketLength { given: segments - HEADS, most: most - HEADS }));
    }
    if fill.has_frames() {
        fill = fill.go_on(ring, space, request);
    }
    if segments <= fill.end {
        return (fill, Ok(true));
    }
    let size = Size::of(segments);
    if space.end.wrapping_sub(fill.index) < size.wqebbs.into() {
        return (fill, Err(Full.into()));
    }
    let payload = Inlined { frames: &[frame], queue };
    let control = ring.write(fill.index, size, request.request(WrFlags::empty()), request.offloads(), payload);
    (fill.pass(size, control).open(ring, space), Ok(false))
}

/// Whether a frame of `len` bytes can be sent, as in [`check_length`].
#[inline(always)]
fn fits(len: usize, longest_payload: usize) -> bool {
    len.wrapping_sub(ETHERNET) <= longest_payload
}

/// Checks the length of a frame on a port whose frames have at most `longest_payload` bytes after the Ethernet header.
#[inline(always)]
fn check_length(len: usize, longest_payload: usize) -> Result<(), PostError> {
    if fits(len, longest_payload) {
        return Ok(());
    }
    let most = (ETHERNET + longest_payload) as u64;
    Err(PostError::FrameLength { given: len as u64, least: ETHERNET as u64, most })
}

/// How far frames that are sent in place are, without the batch that they are for: all calls name the same one.
pub(in crate::queue) struct Pointing {
    /// The element of a frame, without its address and length.
    element: u64,
    /// Most bytes after the Ethernet header.
    longest_payload: usize,
    request: Each,
    /// `next` is kept by `segments`.
    fill: Fill,
    /// Those for the next frames of the work request that is filled.
    segments: Segments,
}

impl Pointing {
    /// Begins at the end of `batch`, with frames that key `lkey` opens.
    #[inline(always)]
    pub(in crate::queue) fn new<D: SendDoorbell>(
        batch: &SendBatch<'_, D, Frames>,
        lkey: u32,
        wr_id: u64,
        flags: FrameFlags,
    ) -> Result<Self, PostError> {
        let (request, fill) = (batch.each(wr_id, flags)?, Fill::new(batch));
        let [element, _] = Elements::segment(&DataSegment { addr: 0, len: 0, lkey });
        let (segments, longest_payload) =
            (batch.ring.segments(fill.index, HEADS, fill.end), batch.service.longest_payload());
        Ok(Pointing { element, longest_payload, request, fill, segments })
    }

    /// Adds the frame of `len` bytes at `addr`.
    #[inline(always)]
    pub(in crate::queue) fn push<D: SendDoorbell>(
        &mut self,
        batch: &mut SendBatch<'_, D, Frames>,
        addr: u64,
        len: usize,
    ) -> Result<(), PostError> {
        check_length(len, self.longest_payload)?;
        self.make_room(batch)?;
        batch.ring.store_next(&mut self.segments, Elements::with(self.element, addr, len as u32));
        Ok(())
    }

    /// How many frames more the work request takes that is filled, or another one that is begun: at least one.
    #[inline(always)]
    pub(in crate::queue) fn room<D: SendDoorbell>(
        &mut self,
        batch: &mut SendBatch<'_, D, Frames>,
    ) -> Result<usize, PostError> {
        self.make_room(batch)?;
        Ok(self.segments.left())
    }

    /// Adds the frames of which `frames` tells address and length, at most as many as there is [`room`](Self::room)
    /// for. `None` is no frame.
    #[inline(always)]
    pub(in crate::queue) fn push_some<D: SendDoorbell>(
        &mut self,
        batch: &mut SendBatch<'_, D, Frames>,
        mut frames: impl Iterator<Item = Option<(u64, usize)>>,
    ) -> Result<(), PostError> {
        // In registers.
        let (mut segments, element, longest_payload) = (self.segments, self.element, self.longest_payload);
        let result = frames.try_for_each(|frame| {
            if let Some((addr, len)) = frame {
                check_length(len, longest_payload)?;
                batch.ring.store_next(&mut segments, Elements::with(element, addr, len as u32));
            }
            Ok(())
        });
        self.segments = segments;
        result
    }

    /// Stores the next frames, at most as many as there is [`room`](Self::room) for, of at least `ETHERNET` and at most
    /// [`longest`](Self::longest) bytes.
    #[inline(always)]
    pub(in crate::queue) fn frames<'w, D: SendDoorbell>(
        &self,
        batch: &'w mut SendBatch<'_, D, Frames>,
    ) -> FrameSegments<'w> {
        FrameSegments { ring: batch.ring, segments: self.segments, element: self.element }
    }

    /// Goes on after the frames that [`frames`](Self::frames) has stored.
    #[inline(always)]
    pub(in crate::queue) fn go_on(&mut self, segments: Segments) {
        self.segments = segments;
    }

    /// Most bytes of a frame.
    #[inline(always)]
    pub(in crate::queue) fn longest(&self) -> usize {
        ETHERNET + self.longest_payload
    }

    /// Begins another work request, if that which is filled has no room.
    #[inline(always)]
    fn make_room<D: SendDoorbell>(&mut self, batch: &mut SendBatch<'_, D, Frames>) -> Result<(), PostError> {
        if self.segments.is_full() {
            let (fill, has_room) = next_request(batch.ring, Space::of(batch), self.request, self.filled());
            (self.fill, self.segments) = (fill, batch.ring.segments(fill.index, HEADS, fill.end));
            has_room?;
        }
        Ok(())
    }

    /// How far the work request is filled.
    #[inline(always)]
    fn filled(&self) -> Fill {
        Fill { next: self.fill.end - self.segments.left(), ..self.fill }
    }

    /// Adds the work requests to `batch`; the last one has a completion, if it is `signalled` or its flags say so.
    #[inline(always)]
    pub(in crate::queue) fn end<D: SendDoorbell>(self, batch: &mut SendBatch<'_, D, Frames>, signalled: bool) {
        self.filled().end(batch, self.request, signalled);
    }
}

/// Segments of frames that are sent in place, stored one after the other.
pub(in crate::queue) struct FrameSegments<'w> {
    ring: &'w mut SendRing,
    segments: Segments,
    element: u64,
}

impl FrameSegments<'_> {
    /// Stores the segment of a frame of `len` bytes at `addr`, for which there is room.
    #[inline(always)]
    pub(in crate::queue) fn push(&mut self, addr: u64, len: u32) {
        self.ring.store_next(&mut self.segments, Elements::with(self.element, addr, len));
    }

    /// Those that are not stored.
    #[inline(always)]
    pub(in crate::queue) fn left(self) -> Segments {
        self.segments
    }
}

/// Begins another work request of frames in place, if there is room for one.
#[inline(never)]
fn next_request(ring: &mut SendRing, space: Space, request: Each, mut fill: Fill) -> (Fill, Result<(), Full>) {
    if fill.has_frames() {
        fill = fill.go_on(ring, space, request);
    }
    (fill, if fill.end > HEADS { Ok(()) } else { Err(Full) })
}

/// Frames that are sent from where they are: see [`SendBatch::pointers`]. Dropped without [`end`](Self::end), none of
/// them is sent.
#[must_use = "frames that are not ended are not sent"]
pub struct FramePointers<'b, 'a, D: SendDoorbell> {
    batch: &'b mut SendBatch<'a, D, Frames>,
    source: SourceBytes,
    pointing: Pointing,
}

impl<D: SendDoorbell> fmt::Debug for FramePointers<'_, '_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FramePointers").field("full", &self.pointing.fill.count).finish_non_exhaustive()
    }
}

impl<D: SendDoorbell> FramePointers<'_, '_, D> {
    /// Adds the frame in the bytes `range` of the source. Until its completion the card may read them; where they are
    /// written meanwhile, the frame mixes old and new bytes.
    ///
    /// # Errors
    /// [`PostError::Full`], [`PostError::FrameLength`]; [`PostError::OutsideSource`] for bytes beyond the source. The
    /// frame is not added then, and those before it stay.
    #[inline(always)]
    pub fn push(&mut self, range: Range<usize>) -> Result<(), PostError> {
        let SourceBytes { addr, len, .. } = self.source;
        let (start, count) = (range.start, range.end.wrapping_sub(range.start));
        // If both hold, nothing has wrapped. A loop over frames of one length makes the second one comparison.
        if count > len || start > len - count {
            return Err(PostError::OutsideSource { start, end: range.end, len });
        }
        self.pointing.push(self.batch, addr.wrapping_add(start as u64), count)
    }

    /// Adds the work requests to the batch.
    #[inline(always)]
    pub fn end(self) {
        self.pointing.end(self.batch, false);
    }
}
