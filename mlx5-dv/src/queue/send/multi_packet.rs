//! Several Ethernet frames in one work request. PRM "Enhanced Multi-Packet Send WQE".

use std::fmt;
use std::ops::Range;

use mlx5_prm::wqe::{EthSeg, SEGMENT, WQEBB, WqeOpcode};
use uar::SendDoorbell;

use super::SendBatch;
use super::ethernet::{FrameFlags, Frames};
pub(in crate::queue) use super::ring::Segments;
use super::ring::{INLINE_HEADER, Room, SendRing};
use super::wqe::{Elements, Head, Inline, Payload, Request, Size, WrFlags, inline_header};
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
            room.store_header(at, inline_header(frame.len()));
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
            room.store_header(at, inline_header(frame.len()));
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
        let (next, end) = (fill.next as usize, fill.end as usize);
        Ok(FrameCopies { batch: self, request, longest_payload, fill, next, end })
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
        if self.service.most_packets() == 0 {
            return Err(PostError::NoMultiPacket);
        }
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
        Ok(Each::new(wr_id, flags, self.metadata))
    }
}

/// What all work requests of a [`FrameCopies`] or [`FramePointers`] have.
// Two numbers, which are passed in registers.
#[derive(Clone, Copy)]
struct Each {
    wr_id: u64,
    /// What flow rules match, and in the lower half the flags.
    offloads: u64,
}

impl Each {
    #[inline(always)]
    fn new(wr_id: u64, flags: FrameFlags, metadata: u32) -> Self {
        Each { wr_id, offloads: u64::from(metadata) << 32 | u64::from(flags.bits()) }
    }

    #[inline(always)]
    fn request(self, flags: WrFlags) -> Request {
        Request { opcode: WqeOpcode::EnhancedMpsw, wr_id: self.wr_id, flags, imm: 0 }
    }

    #[inline(always)]
    fn flags(self) -> FrameFlags {
        FrameFlags::from_bits_retain(self.offloads as u8)
    }

    #[inline(always)]
    fn offloads(self) -> Offloads {
        Offloads(self.flags(), (self.offloads >> 32) as u32)
    }

    /// Writes what stands before the frames of the work request at WQEBB `index`, which does not wrap. Returns its
    /// first eight bytes.
    #[inline(always)]
    fn write_start(self, ring: &mut SendRing, index: u32, size: Size, flags: WrFlags) -> u64 {
        ring.write_straight(index, size, self.request(flags), self.offloads(), ())
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
/// registers; all of it are numbers, as few bytes as possible.
#[derive(Clone, Copy)]
struct Fill {
    /// The first eight bytes of the last work request that is full, as in memory.
    control: u64,
    /// WQEBB of the work request that is filled; the segment of its next frame, and the first without room.
    index: u32,
    next: u32,
    end: u32,
    /// The last work request that is full, if there is one, and its segments.
    last: u32,
    last_segments: u32,
    /// Work requests that are full.
    count: u32,
}

impl Fill {
    /// At the end of `batch`.
    #[inline(always)]
    fn new<D: SendDoorbell>(batch: &SendBatch<'_, D, Frames>) -> Self {
        let (index, next) = (batch.next, HEADS as u32);
        let none = Fill { control: 0, index, next, end: 0, last: 0, last_segments: 0, count: 0 };
        none.open(batch.ring, Space::of(batch))
    }

    /// Begins a work request, as long as possible without wrapping. Without room it ends where its frames would begin.
    #[inline(always)]
    fn open(self, ring: &SendRing, space: Space) -> Self {
        let wqebbs = (space.end.wrapping_sub(self.index) as usize).min(ring.extent().to_end(self.index));
        let end = (wqebbs * (WQEBB / SEGMENT)).min(space.segments).max(HEADS);
        Fill { next: HEADS as u32, end: end as u32, ..self }
    }

    /// Whether the work request that is filled has a frame.
    #[inline(always)]
    fn has_frames(&self) -> bool {
        self.next > HEADS as u32
    }

    /// Whether the work request that is filled has room for `segments` segments more.
    #[inline(always)]
    fn has_room(&self, segments: usize) -> bool {
        self.next as usize + segments <= self.end as usize
    }

    /// The size of the work request that is filled.
    #[inline(always)]
    fn size(&self) -> Size {
        Size::of(self.next as usize)
    }

    /// Completes the work request that is filled, of at least one frame, and begins another one.
    #[inline(always)]
    fn go_on(self, ring: &mut SendRing, space: Space, request: Each) -> Self {
        let size = self.size();
        let control = request.write_start(ring, self.index, size, WrFlags::empty());
        self.pass(size, control).open(ring, space)
    }

    /// Adds the work requests to `batch`; the last one has a completion, if it is `signalled` or its flags say so.
    #[inline(always)]
    fn end<D: SendDoorbell>(self, batch: &mut SendBatch<'_, D, Frames>, request: Each, signalled: bool) {
        let flags = |end| if signalled { WrFlags::SIGNALLED } else { batch.wr_flags_to(request.flags(), || end) };
        if self.has_frames() {
            let size = self.size();
            let end = self.index.wrapping_add(size.wqebbs.into());
            let control = request.write_start(batch.ring, self.index, size, flags(end));
            (batch.next, batch.last, batch.control) = (end, size.wqebbs, control);
            batch.posted += self.count + 1;
        } else if self.count != 0 {
            let (flags, size) = (flags(self.index), Size::of(self.last_segments as usize));
            // It may wrap.
            batch.ring.write(self.last, size, request.request(flags), request.offloads(), ());
            (batch.next, batch.last, batch.control) = (self.index, size.wqebbs, self.control);
            batch.posted += self.count;
        }
    }

    /// Goes on behind a work request.
    #[inline(always)]
    fn pass(self, size: Size, control: u64) -> Self {
        let index = self.index.wrapping_add(size.wqebbs.into());
        let (last, last_segments, count) = (self.index, size.segments as u32, self.count + 1);
        Fill { control, index, next: HEADS as u32, end: self.end, last, last_segments, count }
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
    /// `next` and `end` are kept beside it.
    fill: Fill,
    next: usize,
    end: usize,
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
        if self.next + segments > self.end {
            let space = Space::of(self.batch);
            let (fill, made) = make_room(self.batch.ring, space, self.request, self.filled(), frame);
            (self.fill, self.next, self.end) = (fill, fill.next as usize, fill.end as usize);
            match made {
                Made::Room => {}
                Made::Stored => return Ok(()),
                Made::Full => return Err(Full.into()),
                Made::TooLong => return Err(self.too_long(segments)),
            }
        }
        let mut room = self.batch.ring.room(self.fill.index, true);
        room.store_header(self.next, inline_header(frame.len()));
        room.store_short(self.next, INLINE_HEADER, frame);
        self.next += segments;
        Ok(())
    }

    /// How far the work request is filled.
    #[inline(always)]
    fn filled(&self) -> Fill {
        Fill { next: self.next as u32, ..self.fill }
    }

    /// Why a frame of `given` segments cannot be sent.
    #[cold]
    fn too_long(&self, given: usize) -> PostError {
        PostError::MultiPacketLength { given, most: self.batch.service.most_packets() }
    }

    /// Adds the work requests to the batch.
    #[inline(always)]
    pub fn end(self) {
        self.filled().end(self.batch, self.request, false);
    }
}

/// What [`make_room`] made.
enum Made {
    /// Room for the frame.
    Room,
    /// A work request of this frame alone, which wraps.
    Stored,
    /// Nothing: the ring is full, or no work request is as long.
    Full,
    TooLong,
}

/// Begins another work request, with room for `frame`.
#[inline(never)]
fn make_room(ring: &mut SendRing, space: Space, request: Each, mut fill: Fill, frame: &[u8]) -> (Fill, Made) {
    let segments = segments_of(frame.len());
    if HEADS + segments > space.segments {
        return (fill, Made::TooLong);
    }
    if fill.has_frames() {
        fill = fill.go_on(ring, space, request);
    }
    if fill.has_room(segments) {
        return (fill, Made::Room);
    }
    let size = Size::of(HEADS + segments);
    if space.end.wrapping_sub(fill.index) < size.wqebbs.into() {
        return (fill, Made::Full);
    }
    let control = ring.write(fill.index, size, request.request(WrFlags::empty()), request.offloads(), Inline(frame));
    (fill.pass(size, control).open(ring, space), Made::Stored)
}

/// Whether a frame of `len` bytes can be sent, as in [`check_length`].
#[inline(always)]
fn fits(len: usize, longest_payload: usize) -> bool {
    len.wrapping_sub(ETHERNET) <= longest_payload
}

/// Checks the length of a frame on a port whose frames have at most `longest_payload` bytes after the Ethernet header.
#[inline(always)]
fn check_length(len: usize, longest_payload: usize) -> Result<(), PostError> {
    if fits(len, longest_payload) { Ok(()) } else { Err(why_not_length(len, longest_payload)) }
}

/// Why a frame of `len` bytes cannot be sent, as in [`check_length`].
#[inline(always)]
fn why_not_length(len: usize, longest_payload: usize) -> PostError {
    let most = (ETHERNET + longest_payload) as u64;
    PostError::FrameLength { given: len as u64, least: ETHERNET as u64, most }
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
    /// Begins at the end of `batch`, with frames that key `lkey` opens. On a card without multi-packet work requests
    /// there is no room for any.
    #[inline(always)]
    pub(in crate::queue) fn new<D: SendDoorbell>(
        batch: &SendBatch<'_, D, Frames>,
        lkey: u32,
        wr_id: u64,
        flags: FrameFlags,
    ) -> Result<Self, PostError> {
        if !batch.service.supports(flags) {
            return Err(PostError::NoChecksums);
        }
        let (request, fill) = (Each::new(wr_id, flags, batch.metadata), Fill::new(batch));
        let [element, _] = Elements::segment(&DataSegment { addr: 0, len: 0, lkey });
        let (segments, longest_payload) =
            (batch.ring.segments(fill.index, HEADS, fill.end as usize), batch.service.longest_payload());
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
        self.push_checked(batch, addr, len)
    }

    /// As [`push`](Self::push), of a frame whose length is checked.
    #[inline(always)]
    fn push_checked<D: SendDoorbell>(
        &mut self,
        batch: &mut SendBatch<'_, D, Frames>,
        addr: u64,
        len: usize,
    ) -> Result<(), PostError> {
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
            (self.fill, self.segments) = (fill, batch.ring.segments(fill.index, HEADS, fill.end as usize));
            has_room?;
        }
        Ok(())
    }

    /// How far the work request is filled.
    #[inline(always)]
    fn filled(&self) -> Fill {
        Fill { next: self.fill.end - self.segments.left() as u32, ..self.fill }
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
    (fill, if fill.end > HEADS as u32 { Ok(()) } else { Err(Full) })
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
        let (start, end) = (range.start, range.end);
        let count = end.wrapping_sub(start);
        if end > len || start > end || !fits(count, self.pointing.longest_payload) {
            return Err(self.why_not(range));
        }
        self.pointing.push_checked(self.batch, addr.wrapping_add(start as u64), count)
    }

    /// Why the frame in the bytes `range` cannot be sent.
    #[cold]
    fn why_not(&self, Range { start, end }: Range<usize>) -> PostError {
        let len = self.source.len;
        match end.checked_sub(start).filter(|_| end <= len) {
            Some(count) => why_not_length(count, self.pointing.longest_payload),
            None => PostError::OutsideSource { start, end, len },
        }
    }

    /// Adds the work requests to the batch.
    #[inline(always)]
    pub fn end(self) {
        self.pointing.end(self.batch, false);
    }
}
