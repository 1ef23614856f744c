//! Packets that the card divides into frames: large sends (TSO). PRM "Ethernet Segment", `mss`.

use mlx5_prm::wqe::{EthSeg, WqeOpcode};
use uar::SendDoorbell;

use super::SendBatch;
use super::ethernet::{FrameFlags, Frames, segments_of, store};
use super::ring::Room;
use super::wqe::{Head, Request};
use crate::memory::DataSegment;
use crate::objects::transport_end;
use crate::queue::error::PostError;

/// The headers of a packet that the card divides.
pub(super) struct Large<'a> {
    pub(super) headers: &'a [u8],
    /// Where they end, by what is in them.
    pub(super) end: Option<usize>,
    pub(super) mss: u16,
    /// What the card does, beside dividing.
    pub(super) segment: EthSeg,
    pub(super) queue: &'a Frames,
}

impl Head for Large<'_> {
    fn segments(&self) -> usize {
        segments_of(self.headers.len())
    }

    fn check(&self, payload: u64) -> Result<(), PostError> {
        let (limits, given) = (self.queue.limits(), self.headers.len());
        if limits.large_send == 0 {
            return Err(PostError::NoLargeSend);
        }
        if given > limits.inline_bytes.into() {
            return Err(PostError::InlineTooLong { given, most: limits.inline_bytes.into() });
        }
        if self.end != Some(given) {
            return Err(PostError::LargeSendHeaders { given });
        }
        let most = limits.longest.saturating_sub(given);
        if self.mss == 0 || usize::from(self.mss) > most {
            return Err(PostError::SegmentLength { given: self.mss, most });
        }
        if payload == 0 || payload > limits.large_send.into() {
            return Err(PostError::LargeSendLength { given: payload, most: limits.large_send.into() });
        }
        Ok(())
    }

    fn store(&self, room: &mut Room<'_>, at: usize) {
        let mut segment = self.segment;
        segment.w().mss(self.mss);
        store(segment, self.headers, room, at);
    }
}

impl<D: SendDoorbell> SendBatch<'_, D, Frames> {
    /// Sends a TCP or UDP packet that the card divides into frames of `mss` bytes beside their headers; the last may be
    /// shorter. `headers`, copied into the WQE, are those of the packet: Ethernet, IPv4 or IPv6, and TCP or UDP with
    /// their options. Each frame begins with a copy, in which the card sets lengths, checksums, IPv4's identification,
    /// TCP's sequence number, and those of TCP's flags that belong to the first or last alone. `elements` are the
    /// payload, at most [`Sq::largest_packet`](crate::objects::Sq::largest_packet) bytes.
    ///
    /// Of `flags` only `SIGNALLED` and `SELDOM` matter: checksums are always the card's.
    ///
    /// # Errors
    /// [`PostError`].
    ///
    /// # Safety
    /// As for [`send`](Self::send).
    pub unsafe fn send_large(
        &mut self,
        wr_id: u64,
        flags: FrameFlags,
        headers: &[u8],
        mss: u16,
        elements: &[DataSegment],
    ) -> Result<(), PostError> {
        let wr_flags = self.wr_flags(flags, || 1 + segments_of(headers.len()) + elements.len());
        let request = Request { opcode: WqeOpcode::Lso, wr_id, flags: wr_flags, imm: 0 };
        let mut segment = EthSeg::ZERO;
        // Each frame has checksums of its own.
        segment.w().l3_csum(true).l4_csum(true);
        let end = transport_end(headers);
        self.post_elements(request, Large { headers, end, mss, segment, queue: self.service }, elements)
    }
}
