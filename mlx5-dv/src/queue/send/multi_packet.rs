//! Several Ethernet frames in one work request. PRM "Enhanced Multi-Packet Send WQE".

use mlx5_prm::wqe::{EthSeg, InlineSegHeader, SEGMENT, WqeOpcode};
use uar::SendDoorbell;

use super::SendBatch;
use super::ethernet::{FrameFlags, Frames};
use super::ring::{INLINE_HEADER, Room, SendRing};
use super::wqe::{Elements, Head, Payload, Request, WrFlags};
use crate::memory::DataSegment;
use crate::objects::ETHERNET;
use crate::queue::error::PostError;

/// Segments before the frames: control and Ethernet segment.
const HEADS: usize = 2;

/// The Ethernet segment: the offloads of all frames.
struct Offloads(FrameFlags);

impl Head for Offloads {
    #[inline(always)]
    fn segments(&self) -> usize {
        1
    }

    #[inline(always)]
    fn store(&self, room: &mut Room<'_>, at: usize) {
        let mut segment = EthSeg::ZERO;
        segment.w().l3_csum(self.0.contains(FrameFlags::L3_CHECKSUM)).l4_csum(self.0.contains(FrameFlags::L4_CHECKSUM));
        room.store(at, zerocopy::transmute!(segment));
    }
}

/// Frames in memory, an element each.
struct Pointers<'a> {
    frames: &'a [DataSegment],
    queue: &'a Frames,
}

impl Payload for Pointers<'_> {
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

/// Segments of an inlined frame.
#[inline(always)]
fn segments_of(frame: &[u8]) -> usize {
    (INLINE_HEADER + frame.len()).div_ceil(SEGMENT)
}

impl Payload for Inlined<'_> {
    const LONG: bool = true;

    #[inline(always)]
    fn bytes(&self) -> u64 {
        0
    }

    #[inline(always)]
    fn segments(&self, _: &SendRing) -> Result<usize, PostError> {
        let segments = self.frames.iter().map(|frame| segments_of(frame)).sum();
        self.queue.check_several(self.frames.len(), segments, self.frames.iter().map(|frame| frame.len()))
    }

    #[inline(always)]
    fn store(&self, room: &mut Room<'_>, mut at: usize) {
        for frame in self.frames {
            let mut header = InlineSegHeader::default();
            // `segments` limits the whole WQE, and so each frame, to ten bits.
            header.w().byte_count(frame.len() as u16);
            let header: [u8; INLINE_HEADER] = zerocopy::transmute!(header);
            room.store_header(at, header);
            room.store_bytes(at, INLINE_HEADER, frame);
            at += segments_of(frame);
        }
    }
}

impl Frames {
    /// `segments`, if a WQE can hold them and each frame has a length that can be sent.
    #[inline(always)]
    fn check_several(
        &self,
        frames: usize,
        segments: usize,
        mut lens: impl Iterator<Item = usize>,
    ) -> Result<usize, PostError> {
        // Zero without the capability.
        let most = self.most_segments().saturating_sub(HEADS);
        if frames == 0 || segments > most {
            return Err(self.why_not_several(segments, most));
        }
        let (least, longest) = (ETHERNET, self.longest());
        match lens.find(|len| !(least..=longest).contains(len)) {
            Some(len) => Err(PostError::FrameLength { given: len as u64, least: least as u64, most: longest as u64 }),
            None => Ok(segments),
        }
    }

    #[cold]
    fn why_not_several(&self, given: usize, most: usize) -> PostError {
        match self.most_segments() {
            0 => PostError::NoMultiPacket,
            _ => PostError::MultiPacketLength { given, most },
        }
    }
}

impl<D: SendDoorbell> SendBatch<'_, D, Frames> {
    #[inline(always)]
    fn post_several(&mut self, wr_id: u64, flags: FrameFlags, payload: impl Payload) -> Result<(), PostError> {
        if !self.service.supports(flags) {
            return Err(PostError::NoChecksums);
        }
        let wr_flags = if flags.contains(FrameFlags::SIGNALLED) { WrFlags::SIGNALLED } else { WrFlags::empty() };
        let request = Request { opcode: WqeOpcode::EnhancedMpsw, wr_id, flags: wr_flags, imm: 0 };
        self.post(request, Offloads(flags), payload)
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
}
