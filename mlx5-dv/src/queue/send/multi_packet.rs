//! Several Ethernet frames in one work request. PRM "Enhanced Multi-Packet Send WQE".

use std::fmt;
use std::hint;
use std::ops::Range;

use mlx5_prm::wqe::{EthSeg, SEGMENT, WQEBB, WqeOpcode};
use uar::SendDoorbell;

use super::SendBatch;
use super::ethernet::{FrameFlags, Frames};
pub(in crate::queue) use super::ring::NextSegment;
use super::ring::{INLINE_HEADER, Room, Segments, SendRing};
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
    const MANY: bool = true;

    #[inline(always)]
    fn segments(&self) -> usize {
        1
    }

    #[inline(always)]
    fn store(&self, room: &mut Room<'_>, at: usize) {
        room.store(at, self.segment());
    }
}

impl Offloads {
    #[inline(always)]
    fn segment(&self) -> [u64; 2] {
        let (mut first, mut second) = (EthSeg::ZERO, EthSeg::ZERO);
        first.w().l3_csum(self.0.contains(FrameFlags::L3_CHECKSUM)).l4_csum(self.0.contains(FrameFlags::L4_CHECKSUM));
        second.w().flow_table_metadata(self.1);
        // Each word for itself: the compiler would store half words.
        let [[first, _], [_, second]]: [[u64; 2]; 2] = [zerocopy::transmute!(first), zerocopy::transmute!(second)];
        [first, second]
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

impl Pointers<'_> {
    /// Stores the frames from segment `next` on, for which there is room, if each has a length that can be sent.
    /// Otherwise some are stored.
    #[inline(always)]
    fn store_next(&self, ring: &mut SendRing, mut next: NextSegment) -> bool {
        let longest = self.queue.longest_payload() as u32;
        all_by_fours(self.frames, |frame| {
            let can_be_sent = frame.len.wrapping_sub(ETHERNET as u32) <= longest;
            if can_be_sent {
                ring.store_next(&mut next, Elements::segment_of_memory(frame));
            }
            can_be_sent
        })
    }
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
        self.check_segments(frames, segments)?;
        let longest = self.longest_payload();
        // All are looked at, without a branch for each. Which one is wrong is found out if one is.
        if !lens.clone().fold(true, |fit, len| fit & fits(len, longest)) {
            lens.try_for_each(|len| check_length(len, longest))?;
        }
        Ok(segments)
    }

    /// Whether a WQE can hold the `segments` segments of so many `frames`.
    #[inline(always)]
    fn check_segments(&self, frames: usize, segments: usize) -> Result<(), PostError> {
        let most = self.most_packets();
        if frames == 0 || segments > most { Err(self.why_not_several(segments, most)) } else { Ok(()) }
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
        self.check_offloads(flags)?;
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
    #[inline(always)]
    pub unsafe fn send_several(
        &mut self,
        wr_id: u64,
        flags: FrameFlags,
        frames: &[DataSegment],
    ) -> Result<(), PostError> {
        let frames = Pointers { frames, queue: self.service };
        self.check_offloads(flags)?;
        let count = frames.frames.len();
        self.service.check_segments(count, count)?;
        let size = self.size(HEADS + count)?;
        let (index, request) = (self.next, Each::new(wr_id, flags, self.metadata));
        let wr_flags = self.wr_flags(flags, || size.segments);
        let is_whole = self.ring.extent().whole(index, size.wqebbs);
        let control = if is_whole && frames.store_next(self.ring, self.ring.segments(index, HEADS, size.segments).next)
        {
            request.write_start(self.ring, index, size, wr_flags)
        } else {
            request.write_around(self.ring, index, size, wr_flags, frames)?
        };
        self.add(size, control);
        Ok(())
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
        if self.service.most_packets() == 0 {
            return Err(PostError::NoMultiPacket);
        }
        self.check_offloads(flags)?;
        let request = Each::new(wr_id, flags, self.metadata);
        let pointing = Pointing::of(self, Pointing::element(source.lkey), request);
        Ok(FramePointers { batch: self, source, pointing })
    }

    /// What work requests of several frames have, if the card has such.
    #[inline(always)]
    fn each(&self, wr_id: u64, flags: FrameFlags) -> Result<Each, PostError> {
        self.check_offloads(flags)?;
        if self.service.most_segments() <= HEADS {
            return Err(PostError::NoMultiPacket);
        }
        Ok(Each::new(wr_id, flags, self.metadata))
    }

    /// Whether the card has the offloads of `flags`.
    #[inline(always)]
    pub(in crate::queue) fn check_offloads(&self, flags: FrameFlags) -> Result<(), PostError> {
        if self.service.supports(flags) { Ok(()) } else { Err(PostError::NoChecksums) }
    }
}

/// What all work requests of a [`FrameCopies`] or [`FramePointers`] have.
#[derive(Clone, Copy)]
pub(in crate::queue) struct Each {
    wr_id: u64,
    flags: FrameFlags,
    /// What flow rules match.
    metadata: u32,
}

impl Each {
    #[inline(always)]
    pub(in crate::queue) fn new(wr_id: u64, flags: FrameFlags, metadata: u32) -> Self {
        Each { wr_id, flags, metadata }
    }

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
        ring.write_straight(index, size, self.request(flags), self.offloads(), ())
    }

    /// As [`write_start`](Self::write_start), of a work request whose first segment is `start`.
    #[inline(always)]
    fn write_at(self, mut start: NextSegment, ring: &mut SendRing, index: u32, size: Size, flags: WrFlags) -> u64 {
        let control = ring.control_segment(index, size, self.request(flags));
        ring.store_next(&mut start, control);
        ring.store_next(&mut start, self.offloads().segment());
        ring.room(index, true).remember_many(self.wr_id, size.wqebbs);
        control[0]
    }

    /// Writes the work request of `frames` at WQEBB `index`, which may wrap, if each frame has a length that can be
    /// sent. Returns its first eight bytes.
    #[cold]
    #[inline(never)]
    fn write_around(
        self,
        ring: &mut SendRing,
        index: u32,
        size: Size,
        flags: WrFlags,
        frames: Pointers<'_>,
    ) -> Result<u64, PostError> {
        frames.segments(ring)?;
        Ok(ring.write(index, size, self.request(flags), self.offloads(), frames))
    }
}

/// The room of a batch.
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

    /// A work request at WQEBB `index` after `count` others, the last of which is at `last`: as long as possible
    /// without wrapping. Without room it ends where its frames would begin.
    #[inline(always)]
    fn open(self, ring: &SendRing, index: u32, [last, count]: [u32; 2]) -> Fill {
        let straight = ring.extent().straight(index, self.end);
        let mut segments = ring.segments(index, 0, self.most_segments(index, straight).max(HEADS));
        let start = segments.next;
        segments.pass(HEADS);
        Fill { index, last, count, straight, start, segments }
    }

    /// Segments of a work request at WQEBB `index` that ends before `straight`.
    #[inline(always)]
    fn most_segments(self, index: u32, straight: u32) -> usize {
        (straight.wrapping_sub(index) as usize * (WQEBB / SEGMENT)).min(self.segments)
    }
}

/// How far a [`FrameCopies`] or [`FramePointers`] is.
#[derive(Clone, Copy)]
struct Fill {
    /// WQEBB of the work request that is filled.
    index: u32,
    /// Work requests before it, and WQEBB of the last one: it is written, without a completion.
    count: u32,
    last: u32,
    /// The first WQEBB from `index` on that has no room, or is in the next lap of the ring.
    straight: u32,
    /// Its first segment, and those for its next frames.
    start: NextSegment,
    segments: Segments,
}

impl Fill {
    /// At the end of `batch`.
    #[inline(always)]
    fn new<D: SendDoorbell>(batch: &SendBatch<'_, D, Frames>) -> Self {
        Space::of(batch).open(batch.ring, batch.next, [batch.next, 0])
    }

    /// The size of the work request that is filled; `None` if it has no frame.
    #[inline(always)]
    fn size(&self) -> Option<Size> {
        let segments = self.segments.next.after(self.start);
        (segments > HEADS).then(|| Size::of(segments))
    }

    /// Completes the work request that is filled, and begins another one, if that has `least` segments for frames and
    /// is in the same lap of the ring. Otherwise nothing changes.
    #[inline(always)]
    fn go_on(&mut self, ring: &mut SendRing, space: Space, request: Each, least: usize) -> bool {
        let Some(size) = self.size() else { return false };
        let index = self.index.wrapping_add(size.wqebbs.into());
        let segments = space.most_segments(index, self.straight);
        if segments < HEADS + least {
            return false;
        }
        request.write_at(self.start, ring, self.index, size, WrFlags::empty());
        let mut segments = ring.segments(index, 0, segments);
        let start = segments.next;
        segments.pass(HEADS);
        *self = Fill { index, last: self.index, count: self.count + 1, start, segments, ..*self };
        true
    }

    /// As [`another_inline`](Self::another_inline), by a call: the loop of a work request's frames needs the registers.
    #[inline(never)]
    fn another(self, ring: &mut SendRing, space: Space, request: Each) -> Option<Self> {
        self.another_inline(ring, space, request)
    }

    /// As [`go_on`](Self::go_on), for any frame in place. `None` if there is no room.
    #[inline(always)]
    fn another_inline(self, ring: &mut SendRing, space: Space, request: Each) -> Option<Self> {
        let size = self.size()?;
        let next = space.open(ring, self.index.wrapping_add(size.wqebbs.into()), [self.index, self.count + 1]);
        if next.segments.are_full() {
            return None;
        }
        request.write_at(self.start, ring, self.index, size, WrFlags::empty());
        Some(next)
    }

    /// Adds the work requests to `batch`; the last one has a completion, if it is `signalled` or its flags say so.
    #[inline(always)]
    fn end<D: SendDoorbell>(self, batch: &mut SendBatch<'_, D, Frames>, request: Each, signalled: bool) {
        let flags = |end| if signalled { WrFlags::SIGNALLED } else { batch.wr_flags_to(request.flags, || end) };
        if let Some(size) = self.size() {
            let end = self.index.wrapping_add(size.wqebbs.into());
            let control = request.write_at(self.start, batch.ring, self.index, size, flags(end));
            batch.add_several(self.count + 1, end, size.wqebbs, control);
        } else if self.count != 0 {
            hint::cold_path();
            let control = batch.ring.set_flags(self.last, flags(self.index));
            batch.add_several(self.count, self.index, self.index.wrapping_sub(self.last) as u16, control);
        }
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
        let (segments, space) = (segments_of(frame.len()), Space::of(self.batch));
        let fill = &mut self.fill;
        if !fill.segments.have(segments) {
            hint::cold_path();
            if !fill.go_on(self.batch.ring, space, self.request, segments) {
                let result;
                (self.fill, result) = push_beyond(self.batch.ring, space, self.request, self.fill, frame);
                return result;
            }
        }
        self.batch.ring.store_next_inline(&mut fill.segments.next, segments, inline_header(frame.len()), frame);
        Ok(())
    }

    /// Adds the work requests to the batch.
    #[inline(always)]
    pub fn end(self) {
        self.fill.end(self.batch, self.request, false);
    }
}

/// Stores `frame` behind those of `fill`, into another work request. It may wrap: then it has no other frame.
#[cold]
#[inline(never)]
fn push_beyond(
    ring: &mut SendRing,
    space: Space,
    request: Each,
    fill: Fill,
    frame: &[u8],
) -> (Fill, Result<(), PostError>) {
    let (segments, most) = (segments_of(frame.len()), space.segments);
    let (size, filled) = (Size::of(HEADS + segments), fill.size());
    if size.segments > most {
        return (fill, Err(PostError::MultiPacketLength { given: segments, most: most.saturating_sub(HEADS) }));
    }
    let index = fill.index.wrapping_add(filled.map_or(0, |filled| filled.wqebbs.into()));
    if space.end.wrapping_sub(index) < size.wqebbs.into() {
        return (fill, Err(Full.into()));
    }
    let mut before = [fill.last, fill.count];
    if let Some(filled) = filled {
        request.write_at(fill.start, ring, fill.index, filled, WrFlags::empty());
        before = [fill.index, fill.count + 1];
    }
    let mut fill = space.open(ring, index, before);
    if fill.segments.have(segments) {
        ring.store_next_inline(&mut fill.segments.next, segments, inline_header(frame.len()), frame);
    } else {
        ring.write(index, size, request.request(WrFlags::empty()), request.offloads(), Inline(frame));
        fill = space.open(ring, index.wrapping_add(size.wqebbs.into()), [index, fill.count + 1]);
    }
    (fill, Ok(()))
}

/// Whether `take` takes all `items`. Four at a time, as a loop costs as much as a comparison.
#[inline(always)]
fn all_by_fours<T>(items: &[T], mut take: impl FnMut(&T) -> bool) -> bool {
    let (fours, others) = items.as_chunks::<4>();
    for [first, second, third, fourth] in fours {
        if !(take(first) && take(second) && take(third) && take(fourth)) {
            return false;
        }
    }
    others.iter().all(take)
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

/// The next multi-packet work request of a batch.
#[derive(Clone, Copy)]
pub(in crate::queue) struct Opened {
    start: NextSegment,
    /// Most frames of it, if it does not wrap.
    pub(in crate::queue) room: usize,
}

impl<D: SendDoorbell> SendBatch<'_, D, Frames> {
    /// Where what the next work request can take without wrapping ends.
    #[inline(always)]
    pub(in crate::queue) fn straight(&self) -> u32 {
        self.ring.extent().straight(self.next, self.end)
    }

    /// The next work request for frames in place, which ends before `straight`, as of [`straight`](Self::straight) or
    /// sooner.
    #[inline(always)]
    pub(in crate::queue) fn open(&self, straight: u32) -> Opened {
        let segments = Space::of(self).most_segments(self.next, straight);
        Opened { start: self.ring.segments(self.next, 0, 0).next, room: segments.saturating_sub(HEADS) }
    }

    /// Stores its frames, at most as many as it has room for, of at least `ETHERNET` bytes and no more than can be
    /// sent; `element` is that of [`Pointing::element`].
    #[inline(always)]
    pub(in crate::queue) fn frames(&mut self, opened: Opened, element: u64) -> FrameSegments<'_> {
        let next = self.ring.segments(self.next, HEADS, HEADS).next;
        debug_assert!(next.after(opened.start) == HEADS);
        FrameSegments { ring: self.ring, next, element }
    }

    /// Adds it, with the frames that end at `next`, if there are any.
    #[inline(always)]
    pub(in crate::queue) fn close(&mut self, opened: Opened, next: NextSegment, request: Each) {
        // As `ds` counts them: the compiler then knows that they are few.
        let segments = next.after(opened.start) % 64;
        if segments > HEADS {
            let size = Size::of(segments);
            let end = self.next.wrapping_add(size.wqebbs.into());
            let flags = self.wr_flags_to(request.flags, || end);
            let control = request.write_at(opened.start, self.ring, self.next, size, flags);
            self.add(size, control);
        }
    }
}

/// How far frames that are sent in place are, without the batch that they are for: all calls name the same one.
pub(in crate::queue) struct Pointing {
    /// The element of a frame, without its address and length.
    element: u64,
    /// Most bytes after the Ethernet header.
    longest_payload: usize,
    request: Each,
    fill: Fill,
}

impl Pointing {
    /// The element of a frame that key `lkey` opens, without its address and length.
    #[inline(always)]
    pub(in crate::queue) fn element(lkey: u32) -> u64 {
        let [element, _] = Elements::segment(&DataSegment { addr: 0, len: 0, lkey });
        element
    }

    /// Begins at the end of `batch`, with frames of this [`element`](Self::element). On a card without multi-packet
    /// work requests there is no room for any.
    #[inline(always)]
    pub(in crate::queue) fn of<D: SendDoorbell>(batch: &SendBatch<'_, D, Frames>, element: u64, request: Each) -> Self {
        Pointing { element, longest_payload: batch.service.longest_payload(), request, fill: Fill::new(batch) }
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
        if self.fill.segments.are_full() {
            hint::cold_path();
            self.make_room(batch)?;
        }
        batch.ring.store_next(&mut self.fill.segments.next, Elements::with(self.element, addr, len as u32));
        Ok(())
    }

    /// How many frames more the work request takes that is filled, or another one that is begun: at least one.
    #[inline(always)]
    pub(in crate::queue) fn room<D: SendDoorbell>(
        &mut self,
        batch: &mut SendBatch<'_, D, Frames>,
    ) -> Result<usize, PostError> {
        if self.fill.segments.are_full() {
            self.fill = self.fill.another_inline(batch.ring, Space::of(batch), self.request).ok_or(Full)?;
        }
        Ok(self.fill.segments.left())
    }

    /// How many frames more the work request takes that is filled.
    #[inline(always)]
    pub(in crate::queue) fn room_now(&self) -> usize {
        self.fill.segments.left()
    }

    /// Stores the next frames, at most as many as there is [`room`](Self::room) for, of at least `ETHERNET` bytes and
    /// no more than can be sent.
    #[inline(always)]
    pub(in crate::queue) fn frames<'w, D: SendDoorbell>(
        &self,
        batch: &'w mut SendBatch<'_, D, Frames>,
    ) -> FrameSegments<'w> {
        FrameSegments { ring: batch.ring, next: self.fill.segments.next, element: self.element }
    }

    /// Goes on after the frames that [`frames`](Self::frames) has stored.
    #[inline(always)]
    pub(in crate::queue) fn go_on(&mut self, next: NextSegment) {
        self.fill.segments.next = next;
    }

    /// Begins another work request.
    #[inline(always)]
    fn make_room<D: SendDoorbell>(&mut self, batch: &mut SendBatch<'_, D, Frames>) -> Result<(), Full> {
        self.fill = self.fill.another(batch.ring, Space::of(batch), self.request).ok_or(Full)?;
        Ok(())
    }

    /// Adds the work requests to `batch`; the last one has a completion, if it is `signalled` or its flags say so.
    #[inline(always)]
    pub(in crate::queue) fn end<D: SendDoorbell>(self, batch: &mut SendBatch<'_, D, Frames>, signalled: bool) {
        self.fill.end(batch, self.request, signalled);
    }
}

/// Segments of frames that are sent in place, stored one after the other.
pub(in crate::queue) struct FrameSegments<'w> {
    ring: &'w mut SendRing,
    next: NextSegment,
    element: u64,
}

impl FrameSegments<'_> {
    /// Stores the segment of a frame of `len` bytes at `addr`, for which there is room.
    #[inline(always)]
    pub(in crate::queue) fn push(&mut self, addr: u64, len: u32) {
        self.ring.store_next(&mut self.next, Elements::with(self.element, addr, len));
    }

    /// The first one that is not stored.
    #[inline(always)]
    pub(in crate::queue) fn next(self) -> NextSegment {
        self.next
    }
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
