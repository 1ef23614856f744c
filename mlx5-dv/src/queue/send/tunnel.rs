//! Frames in tunnels: checksums inside of them, and inner packets that the card divides. PRM "Ethernet Segment",
//! software parser.
//!
//! A card with a software parser (`swp`) is told where the headers are. Any other looks for them, in those tunnels that
//! it announces.

use mlx5_prm::wqe::{EthSeg, WqeOpcode};
use uar::SendDoorbell;

use super::SendBatch;
use super::ethernet::{FrameFlags, Frames, segments_of, store};
use super::large::Large;
use super::ring::Room;
use super::wqe::{Head, Request};
use crate::memory::DataSegment;
use crate::objects::{TunnelHeaders, TunnelOffloads};
use crate::queue::error::PostError;

/// The inlined start of a frame in a tunnel.
struct Start<'a> {
    bytes: &'a [u8],
    flags: FrameFlags,
    segment: EthSeg,
    queue: &'a Frames,
}

impl Head for Start<'_> {
    fn segments(&self) -> usize {
        segments_of(self.bytes.len())
    }

    fn check(&self, rest: u64) -> Result<(), PostError> {
        self.queue.check(self.bytes, self.flags.difference(FrameFlags::INNER), rest)
    }

    fn store(&self, room: &mut Room<'_>, at: usize) {
        store(self.segment, self.bytes, room, at);
    }
}

/// The Ethernet segment for a frame in a tunnel, with the checksums of `flags`.
fn segment(tunnel: &TunnelHeaders, flags: FrameFlags, is_told: bool, metadata: u32) -> EthSeg {
    let mut segment = EthSeg::ZERO;
    segment
        .w()
        .l3_csum(flags.contains(FrameFlags::L3_CHECKSUM))
        .l4_csum(flags.contains(FrameFlags::L4_CHECKSUM))
        .l3_inner_csum(flags.contains(FrameFlags::INNER_L3_CHECKSUM))
        .l4_inner_csum(flags.contains(FrameFlags::INNER_L4_CHECKSUM))
        .flow_table_metadata(metadata);
    if is_told {
        let TunnelHeaders { outer, inner, .. } = tunnel;
        segment
            .w()
            .swp_outer_l3_offset(outer.l3)
            .swp_outer_l3_type(outer.is_v6)
            .swp_outer_l4_offset(outer.l4)
            .swp_outer_l4_type(outer.is_udp)
            .swp_inner_l3_offset(inner.l3)
            .swp_inner_l3_type(inner.is_v6)
            .swp_inner_l4_offset(inner.l4)
            .swp_inner_l4_type(inner.is_udp);
    }
    segment
}

/// Whether the card is told where the headers are, which needs `told`.
fn is_told(queue: &Frames, tunnel: &TunnelHeaders, told: TunnelOffloads) -> Result<bool, PostError> {
    let has = queue.limits().tunnels;
    match has.contains(told) {
        true => Ok(true),
        false if has.looks_into(tunnel.kind()) => Ok(false),
        false => Err(PostError::NoTunnelOffload { kind: tunnel.kind(), capability: tunnel.kind().capability() }),
    }
}

impl<D: SendDoorbell> SendBatch<'_, D, Frames> {
    /// As [`send`](Self::send), for a frame in a tunnel whose headers are given: the card computes the checksums that
    /// `flags` ask for, outside of the tunnel and inside of it.
    ///
    /// ```no_run
    /// # use mlx5_dv::queue::ethernet::{EthernetSendQueue, FrameFlags};
    /// # fn f(sq: &mut EthernetSendQueue, frame: &[u8]) -> Result<(), Box<dyn std::error::Error>> {
    /// use mlx5_dv::objects::TunnelHeaders;
    /// let tunnel = TunnelHeaders::of(frame).ok_or("in no tunnel")?;
    /// let mut batch = sq.batch();
    /// // SAFETY: no element.
    /// unsafe { batch.send_in_tunnel(1, FrameFlags::INNER | FrameFlags::SIGNALLED, &tunnel, frame, &[])? };
    /// batch.ring();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`PostError::NoTunnelOffload`] on a card that computes nothing inside of such tunnels; otherwise as for
    /// [`send`](Self::send).
    ///
    /// # Safety
    /// As for [`send`](Self::send).
    pub unsafe fn send_in_tunnel(
        &mut self,
        wr_id: u64,
        flags: FrameFlags,
        tunnel: &TunnelHeaders,
        start: &[u8],
        elements: &[DataSegment],
    ) -> Result<(), PostError> {
        let is_told = is_told(self.service, tunnel, TunnelOffloads::TOLD_CHECKSUMS)?;
        let wr_flags = self.wr_flags(flags, || 1 + segments_of(start.len()) + elements.len());
        let request = Request { opcode: WqeOpcode::Send, wr_id, flags: wr_flags, imm: 0 };
        let head =
            Start { bytes: start, flags, segment: segment(tunnel, flags, is_told, self.metadata), queue: self.service };
        self.post_elements(request, head, elements)
    }

    /// As [`send_large`](Self::send_large), for a TCP or UDP packet in a tunnel: `headers` are all up to the end of the
    /// inner transport header, as `tunnel` says. In each frame the card sets the outer lengths, of UDP, too, and IPv4
    /// fields as well, and the outer UDP checksum only with [`FrameFlags::L4_CHECKSUM`]: without it, each frame has the
    /// one in `headers`, such as 0 for none.
    ///
    /// # Errors
    /// As for [`send_in_tunnel`](Self::send_in_tunnel) and [`send_large`](Self::send_large).
    ///
    /// # Safety
    /// As for [`send`](Self::send).
    pub unsafe fn send_large_in_tunnel(
        &mut self,
        wr_id: u64,
        flags: FrameFlags,
        tunnel: &TunnelHeaders,
        headers: &[u8],
        mss: u16,
        elements: &[DataSegment],
    ) -> Result<(), PostError> {
        let is_told = is_told(self.service, tunnel, TunnelOffloads::TOLD_LARGE_SENDS)?;
        let wr_flags = self.wr_flags(flags, || 1 + segments_of(headers.len()) + elements.len());
        let request = Request { opcode: WqeOpcode::Lso, wr_id, flags: wr_flags, imm: 0 };
        let checksums = FrameFlags::L3_CHECKSUM | FrameFlags::INNER | flags & FrameFlags::L4_CHECKSUM;
        let segment = segment(tunnel, checksums, is_told, self.metadata);
        let end = tunnel.has_transport().then(|| (tunnel.len(), tunnel.inner.is_udp));
        self.post_elements(request, Large { headers, end, mss, segment, queue: self.service }, elements)
    }
}
