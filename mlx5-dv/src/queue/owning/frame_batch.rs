//! Several frames with one doorbell, with their buffers.

use mlx5_prm::ctx::InlineMode;

use super::batch::segments;
use super::in_flight::{InFlight, Refused, RefusedReason, Ticket};
use crate::memory::DataSegment;
use crate::objects::{AnyDoorbell, Buffer, MOST_HEADERS, MOST_TUNNEL_HEADERS, TunnelHeaders, VlanTag, headers};
use crate::queue::completion::decode::Side;
use crate::queue::error::{Full, PostError};
use crate::queue::send::ethernet::{EthernetSendBatch, EthernetSendQueue, FrameFlags};
use crate::timestamp::Timestamp;

type Sends<'a> = EthernetSendBatch<'a, AnyDoorbell>;

/// No work request has more segments of 16 bytes, so none holds a longer frame.
const MOST_COPIED: usize = 64 * 16;

/// Frames of an [`EthernetQueue`](crate::queue::ethernet::EthernetQueue), which go to the card with one doorbell: when
/// it is [rung](Self::ring) or dropped. Each takes its buffer; one that is refused returns it and changes nothing.
#[derive(Debug)]
pub struct FrameBatch<'a> {
    /// `None` if the last reset failed.
    sends: Option<Sends<'a>>,
    in_flight: &'a mut InFlight,
    mode: InlineMode,
    /// Longest frame that [`send_each`](Self::send_each) copies.
    inline_up_to: u16,
    is_quiet: bool,
}

impl Drop for FrameBatch<'_> {
    /// Rings: the buffers of what was posted are in flight, and come back by completions alone.
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(sends) = self.sends.take() {
            sends.ring();
        }
        self.in_flight.end_batch();
    }
}

impl<'a> FrameBatch<'a> {
    #[inline(always)]
    pub(super) fn new(
        queue: Option<&'a mut EthernetSendQueue<AnyDoorbell>>,
        in_flight: &'a mut InFlight,
        mode: InlineMode,
        inline_up_to: u16,
    ) -> Self {
        in_flight.start_batch();
        FrameBatch { sends: queue.map(EthernetSendQueue::batch), in_flight, mode, inline_up_to, is_quiet: false }
    }

    /// From here on, frames have no CQE of their own: as
    /// [`ConnectionBatch::quiet`](crate::queue::ConnectionBatch::quiet). Each completes with the next frame that has
    /// one, of this batch or a later one, just before it.
    #[inline(always)]
    pub fn quiet(&mut self) {
        self.is_quiet = true;
    }

    /// From here on, each frame has a CQE: as at the start of a batch.
    #[inline(always)]
    pub fn signalled(&mut self) {
        self.is_quiet = false;
    }

    /// Posts by `post`, which gets the `wr_id` and the flags. Returns whether it has a CQE of its own.
    #[inline(always)]
    fn post(
        &mut self,
        flags: FrameFlags,
        post: impl FnOnce(&mut Sends<'a>, u64, FrameFlags) -> Result<(), PostError>,
    ) -> Result<bool, RefusedReason> {
        let wr_id = self.in_flight.next(Side::Send)?;
        let sends = self.sends.as_mut().ok_or(RefusedReason::NotReset)?;
        let completes = !self.is_quiet || !self.in_flight.may_be_quiet();
        post(sends, wr_id, completing(flags, completes))?;
        Ok(completes)
    }

    /// As [`post`](Self::post), and keeps `buffer`, which the frame is in.
    #[inline(always)]
    fn post_buffer(
        &mut self,
        buffer: Buffer,
        flags: FrameFlags,
        post: impl FnOnce(&mut Sends<'a>, u64, FrameFlags, &Buffer) -> Result<(), PostError>,
    ) -> Result<Ticket, Refused> {
        match self.post(flags, |sends, wr_id, flags| post(sends, wr_id, flags, &buffer)) {
            Ok(completes) => Ok(self.in_flight.keep_one(Side::Send, Some(buffer), completes)),
            Err(reason) => Err(Refused { buffer: Some(buffer), reason }),
        }
    }

    /// Sends the frame in `buffer`. Errors: [`Refused`], with the buffer.
    #[inline(always)]
    pub fn send(&mut self, buffer: Buffer, flags: FrameFlags) -> Result<Ticket, Refused> {
        let mode = self.mode;
        self.post_buffer(buffer, flags, |sends, wr_id, flags, buffer| {
            let mut start = [0; MOST_HEADERS];
            let inline = start_of(buffer, mode, &mut start);
            // SAFETY: `post_buffer` keeps the buffer, and with it its region, until its completion, or until the queue
            // was reset.
            unsafe { sends.send(wr_id, flags, inline, &[after(buffer.segment(), inline.len())]) }
        })
    }

    /// Sends the frames in `buffers`, a frame in each, by as few work requests as the card allows: where it has
    /// multi-packet ones (`enhanced_multi_pkt_send_wqe`) and requires no headers in them, by one for up to
    /// [`Sq::most_packets`](crate::objects::Sq::most_packets). Costs less than as many [sends](Self::send), and fewer
    /// bytes across PCIe. Each buffer comes back by a [`Done`](crate::queue::Done) of its own; those of one work
    /// request complete together, have one ticket, and fail together.
    ///
    /// Frames of up to [`inline_up_to`](crate::queue::ethernet::EthernetOptions::inline_up_to) bytes are copied: a run
    /// of them by one work request for as many as it holds, and the longer ones between by another. On a card without
    /// multi-packet work requests, or that requires headers in them, each is copied by its own, as by
    /// [`send_inline`](Self::send_inline).
    ///
    /// # Errors
    /// [`RefusedReason`]: `buffers` has those that were not posted, in order. Otherwise it is empty afterwards.
    #[inline(always)]
    pub fn send_each(&mut self, buffers: &mut Vec<Buffer>, flags: FrameFlags) -> Result<(), RefusedReason> {
        if self.inline_up_to != 0 {
            return self.send_by_length(buffers, flags);
        }
        let most = self.most_packets();
        while buffers.len() > 1 && most > 1 {
            self.send_some(buffers, most, flags)?;
        }
        if buffers.is_empty() { Ok(()) } else { self.send_singly(buffers, |batch, buffer| batch.send(buffer, flags)) }
    }

    /// Most frames by pointer in a work request; 0 where there are none of several.
    #[inline(always)]
    fn most_packets(&self) -> usize {
        self.sends.as_ref().filter(|_| self.mode == InlineMode::None).map_or(0, Sends::most_packets)
    }

    /// As [`send_each`](Self::send_each), of which short ones are copied.
    #[inline(never)]
    fn send_by_length(&mut self, buffers: &mut Vec<Buffer>, flags: FrameFlags) -> Result<(), RefusedReason> {
        let (most, longest) = (self.most_packets(), usize::from(self.inline_up_to));
        if most <= 1 {
            return self.send_singly(buffers, |batch, buffer| match buffer.len() <= longest {
                true => batch.copy(buffer, flags),
                false => batch.send(buffer, flags),
            });
        }
        while let Some(first) = buffers.first() {
            if first.len() <= longest {
                self.copy_some(buffers, longest, flags)?;
            } else {
                let run = buffers.iter().take(most).take_while(|buffer| buffer.len() > longest).count();
                self.send_some(buffers, run, flags)?;
            }
        }
        Ok(())
    }

    /// Copies as many of `buffers`, up to the first that is longer than `longest`, as there is room for, into one work
    /// request.
    #[inline(always)]
    fn copy_some(&mut self, buffers: &mut Vec<Buffer>, longest: usize, flags: FrameFlags) -> Result<(), RefusedReason> {
        let lens = buffers.iter().map(Buffer::len).take_while(|len| *len <= longest);
        let most = self.sends.as_ref().map_or(0, |sends| sends.most_copied(lens));
        self.post_each(buffers, most, flags, |sends, wr_id, flags, frames| {
            sends.send_several_copied(wr_id, flags, frames)
        })
    }

    /// Sends as many of `buffers`, up to `most`, as there is room for, by one work request.
    #[inline(always)]
    fn send_some(&mut self, buffers: &mut Vec<Buffer>, most: usize, flags: FrameFlags) -> Result<(), RefusedReason> {
        self.post_each(buffers, most, flags, |sends, wr_id, flags, frames| {
            let frames = segments(frames)?;
            // SAFETY: `post_each` keeps the buffers, and with them their regions, until their completion, or until the
            // queue was reset.
            unsafe { sends.send_several(wr_id, flags, frames.as_slice()) }
        })
    }

    /// Posts as many of `buffers`, up to `most`, as there is room for, by `post`, which makes one work request.
    #[inline(always)]
    fn post_each(
        &mut self,
        buffers: &mut Vec<Buffer>,
        most: usize,
        flags: FrameFlags,
        post: impl FnOnce(&mut Sends<'a>, u64, FrameFlags, &[Buffer]) -> Result<(), PostError>,
    ) -> Result<(), RefusedReason> {
        let (wr_id, count) = self.in_flight.next_each(buffers.len().min(most))?;
        let sends = self.sends.as_mut().ok_or(RefusedReason::NotReset)?;
        let completes = !self.is_quiet || !self.in_flight.may_be_quiet_of(count);
        post(sends, wr_id, completing(flags, completes), &buffers[..count])?;
        self.in_flight.keep_each(buffers.drain(..count), completes);
        Ok(())
    }

    /// Sends `buffers` by a work request each, which `send` posts.
    #[inline(never)]
    fn send_singly(
        &mut self,
        buffers: &mut Vec<Buffer>,
        mut send: impl FnMut(&mut Self, Buffer) -> Result<Ticket, Refused>,
    ) -> Result<(), RefusedReason> {
        let mut left = buffers.drain(..);
        let refused = left.find_map(|buffer| send(self, buffer).err());
        // None, if all were sent: the vector keeps its memory, and nothing is allocated.
        let left: Vec<Buffer> = left.collect();
        let Some(refused) = refused else { return Ok(()) };
        buffers.extend(refused.buffer.into_iter().chain(left));
        Err(refused.reason)
    }

    /// Copies the frame in `buffer`, of up to `inline_up_to` bytes, into a work request of its own. Keeps the buffer as
    /// if the card read it.
    #[inline(never)]
    fn copy(&mut self, buffer: Buffer, flags: FrameFlags) -> Result<Ticket, Refused> {
        self.post_buffer(buffer, flags, |sends, wr_id, flags, buffer| {
            let mut frame = [0; MOST_COPIED];
            let frame = &mut frame[..buffer.len()];
            buffer.read(0, frame);
            sends.send_inline(wr_id, flags, frame)
        })
    }

    /// Sends the frame that all `buffers` make, one after the other: at most
    /// [`send_sges`](crate::queue::ethernet::EthernetOptions::send_sges). Each comes back by a
    /// [`Done`](crate::queue::Done) of its own, with the same ticket. The first holds all headers that the card
    /// requires in the work request.
    ///
    /// # Errors
    /// [`RefusedReason`]; `buffers` is unchanged. Otherwise it is empty afterwards, and keeps its memory for the next.
    pub fn send_all(&mut self, buffers: &mut Vec<Buffer>, flags: FrameFlags) -> Result<Ticket, RefusedReason> {
        let mut elements = segments(buffers)?;
        let mode = self.mode;
        let completes = self.post(flags, |sends, wr_id, flags| {
            let mut start = [0; MOST_HEADERS];
            let inline = buffers.first().map_or(&[][..], |first| start_of(first, mode, &mut start));
            if let Some(first) = elements.as_mut_slice().first_mut() {
                *first = after(*first, inline.len());
            }
            // SAFETY: `keep_all` keeps the buffers, as in `send`.
            unsafe { sends.send(wr_id, flags, inline, elements.as_slice()) }
        })?;
        Ok(self.in_flight.keep_all(Side::Send, buffers, completes))
    }

    /// Sends the frame in `buffer` with the VLAN tag `tag`, which the card inserts after the addresses.
    ///
    /// # Errors
    /// [`Refused`], with the buffer; [`PostError::NoVlanInsertion`] on a card that does not insert tags, or that
    /// requires headers in the work request.
    #[inline]
    pub fn send_tagged(&mut self, buffer: Buffer, flags: FrameFlags, tag: VlanTag) -> Result<Ticket, Refused> {
        self.post_buffer(buffer, flags, |sends, wr_id, flags, buffer| {
            // SAFETY: as in `send`.
            unsafe { sends.send_tagged(wr_id, flags, tag, &[buffer.segment()]) }
        })
    }

    /// Sends the packet in `buffer`, whose headers are its first `headers` bytes, as frames of `mss` bytes beside their
    /// headers: see [`SendBatch::send_large`](crate::queue::SendBatch::send_large). Errors: [`Refused`], with the
    /// buffer.
    pub fn send_large(&mut self, buffer: Buffer, headers: usize, mss: u16) -> Result<Ticket, Refused> {
        self.post_buffer(buffer, FrameFlags::empty(), |sends, wr_id, flags, buffer| {
            let mut start = [0; MOST_HEADERS];
            let start = first_of(buffer, headers, &mut start)?;
            // SAFETY: as in `send`.
            unsafe { sends.send_large(wr_id, flags, start, mss, &[after(buffer.segment(), headers)]) }
        })
    }

    /// Sends the frame in `buffer`, which is in a tunnel: the card computes checksums inside of it, too. See
    /// [`SendBatch::send_in_tunnel`](crate::queue::SendBatch::send_in_tunnel). Errors: [`Refused`], with the buffer.
    pub fn send_in_tunnel(
        &mut self,
        buffer: Buffer,
        flags: FrameFlags,
        tunnel: &TunnelHeaders,
    ) -> Result<Ticket, Refused> {
        let mode = self.mode;
        self.post_buffer(buffer, flags, |sends, wr_id, flags, buffer| {
            let mut start = [0; MOST_HEADERS];
            let inline = start_of(buffer, mode, &mut start);
            let rest = after(buffer.segment(), inline.len());
            // SAFETY: as in `send`.
            unsafe { sends.send_in_tunnel(wr_id, flags, tunnel, inline, &[rest]) }
        })
    }

    /// Sends the packet in `buffer`, which is in a tunnel and begins with these headers, as frames of `mss` bytes
    /// beside their headers. Of `flags` only `L4_CHECKSUM` matters. See
    /// [`SendBatch::send_large_in_tunnel`](crate::queue::SendBatch::send_large_in_tunnel). Errors: [`Refused`], with
    /// the buffer.
    pub fn send_large_in_tunnel(
        &mut self,
        buffer: Buffer,
        flags: FrameFlags,
        tunnel: &TunnelHeaders,
        mss: u16,
    ) -> Result<Ticket, Refused> {
        self.post_buffer(buffer, flags, |sends, wr_id, flags, buffer| {
            let mut start = [0; MOST_TUNNEL_HEADERS];
            let start = first_of(buffer, tunnel.len(), &mut start)?;
            let rest = after(buffer.segment(), start.len());
            // SAFETY: as in `send`.
            unsafe { sends.send_large_in_tunnel(wr_id, flags, tunnel, start, mss, &[rest]) }
        })
    }

    /// Frames of the queue that are sent after this leave no earlier than `time`, in the clock of its completions: see
    /// [`SendBatch::wait_until`](crate::queue::SendBatch::wait_until). It takes the place of a frame, has no CQE of its
    /// own, and completes with the next frame that has one, just before it.
    ///
    /// # Errors
    /// [`RefusedReason`]: [`PostError::NoWaitOnTime`] on a card that waits for no time; [`PostError::Full`] also where
    /// no frame could follow it.
    #[inline]
    pub fn wait_until(&mut self, time: Timestamp) -> Result<Ticket, RefusedReason> {
        let wr_id = self.in_flight.next(Side::Send)?;
        if !self.in_flight.may_be_quiet() {
            return Err(PostError::from(Full).into());
        }
        self.sends.as_mut().ok_or(RefusedReason::NotReset)?.wait_until(wr_id, time)?;
        Ok(self.in_flight.keep_one(Side::Send, None, false))
    }

    /// Frames that are posted to this batch after it bear `value` for flow rules: as
    /// [`SendBatch::flow_metadata`](crate::queue::SendBatch::flow_metadata).
    #[inline(always)]
    pub fn flow_metadata(&mut self, value: u32) {
        if let Some(sends) = &mut self.sends {
            sends.flow_metadata(value);
        }
    }

    /// Sends `frame`, which is copied at once. Errors: [`Refused`].
    #[inline(always)]
    pub fn send_inline(&mut self, frame: &[u8], flags: FrameFlags) -> Result<Ticket, Refused> {
        match self.post(flags, |sends, wr_id, flags| sends.send_inline(wr_id, flags, frame)) {
            Ok(completes) => Ok(self.in_flight.keep_one(Side::Send, None, completes)),
            Err(reason) => Err(Refused { buffer: None, reason }),
        }
    }

    /// Rings the doorbell: hands the frames to the card. Dropping it does the same.
    #[inline(always)]
    pub fn ring(self) {}
}

/// The `flags` of a work request that has a CQE if it `completes`.
#[inline(always)]
fn completing(flags: FrameFlags, completes: bool) -> FrameFlags {
    let signalled = if completes { FrameFlags::SIGNALLED } else { FrameFlags::empty() };
    flags.difference(FrameFlags::SIGNALLED | FrameFlags::SELDOM) | signalled
}

/// Copies the headers of the frame in `buffer` that `mode` requires in the work request to `start`.
#[inline(always)]
fn start_of<'s>(buffer: &Buffer, mode: InlineMode, start: &'s mut [u8; MOST_HEADERS]) -> &'s [u8] {
    if mode == InlineMode::None {
        return &[];
    }
    let known = buffer.len().min(start.len());
    buffer.read(0, &mut start[..known]);
    let len = headers(mode, &start[..known], buffer.len()).min(known);
    &start[..len]
}

/// Copies the first `len` bytes of the packet in `buffer` to `start`: its headers.
fn first_of<'s>(buffer: &Buffer, len: usize, start: &'s mut [u8]) -> Result<&'s [u8], PostError> {
    match start.get_mut(..len.min(buffer.len())) {
        Some(start) if start.len() == len => {
            buffer.read(0, start);
            Ok(start)
        }
        _ => Err(PostError::LargeSendHeaders { given: len }),
    }
}

/// What of `segment` comes after its first `len` bytes.
#[inline(always)]
fn after(segment: DataSegment, len: usize) -> DataSegment {
    DataSegment { addr: segment.addr + len as u64, len: segment.len - len as u32, ..segment }
}
