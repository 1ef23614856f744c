//! Packets that the card divides into frames: large sends (TSO). PRM "Ethernet Segment", `mss`.

use mlx5_prm::wqe::{EthSeg, SEGMENT, WqeOpcode};
use uar::SendDoorbell;

use super::SendBatch;
use super::ethernet::{FrameFlags, Frames, IN_SEGMENT, segments_of, store};
use super::ring::Room;
use super::wqe::{Head, Request};
use crate::memory::DataSegment;
use crate::objects::transport_end;
use crate::queue::error::PostError;

/// Bytes of UDP's header, and of it from the length on.
const UDP_HEADER: u16 = 8;
const FROM_UDP_LENGTH: usize = 4;

/// The headers of a packet that the card divides.
pub(super) struct Large<'a> {
    pub(super) headers: &'a [u8],
    /// Where they end, by what is in them, and whether with UDP's header.
    pub(super) end: Option<(usize, bool)>,
    pub(super) mss: u16,
    /// What the card does, beside dividing.
    pub(super) segment: EthSeg,
    pub(super) queue: &'a Frames,
}

impl Large<'_> {
    fn is_udp(&self) -> bool {
        self.end.is_some_and(|(_, is_udp)| is_udp)
    }
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
            return Err(PostError::FrameInlineTooLong { given, most: limits.inline_bytes.into() });
        }
        if self.end.map(|(end, _)| end) != Some(given) {
            return Err(PostError::LargeSendHeaders { given });
        }
        let most = limits.longest.saturating_sub(given);
        if self.mss == 0 || usize::from(self.mss) > most {
            return Err(PostError::SegmentLength { given: self.mss, most });
        }
        if self.is_udp() && !payload.is_multiple_of(self.mss.into()) {
            return Err(PostError::UnequalDatagrams { given: payload, mss: self.mss });
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
        if self.is_udp() {
            // The card sets the length of IP, not of UDP.
            let place = SEGMENT - IN_SEGMENT + self.headers.len() - FROM_UDP_LENGTH;
            room.store_bytes(at + place / SEGMENT, place % SEGMENT, &self.mss.saturating_add(UDP_HEADER).to_be_bytes());
        }
    }
}

impl<D: SendDoorbell> SendBatch<'_, D, Frames> {
    /// Sends a TCP or UDP packet that the card divides into frames of `mss` bytes beside their headers; of TCP, the
    /// last may be shorter. `headers`, copied into the WQE, are those of the packet: Ethernet, IPv4 or IPv6, and TCP or
    /// UDP with their options. Each frame begins with a copy, in which the card sets IP's length, checksums, IPv4's
    /// identification, TCP's sequence number, and those of TCP's flags that belong to the first or last alone.
    /// `elements` are the payload, at most [`Sq::largest_packet`](crate::objects::Sq::largest_packet) bytes.
    ///
    /// The card leaves UDP's length as it is in the WQE, where this call sets it. So all datagrams have the same
    /// length: `elements` must be a multiple of `mss`. Send what is left as a frame of its own, as Linux does.
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
        segment.w().l3_csum(true).l4_csum(true).flow_table_metadata(self.metadata);
        let end = transport_end(headers);
        self.post_elements(request, Large { headers, end, mss, segment, queue: self.service }, elements)
    }
}
