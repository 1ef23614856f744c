//! The hot path of frames.

use mlx5_dv::queue::ethernet::{EthernetReceiveQueue, EthernetSendQueue, FrameFlags};
use mlx5_dv::queue::{CompletionQueue, PostError};
use uar::SendDoorbell;

use crate::request::{FrameRequests, HEADER, REQUESTS, first_request};
use crate::stage::RING;
use crate::stage::frames::Buffers;

/// `count` frames, the first bytes of each in its WQE, a doorbell every `BATCH`.
#[inline(never)]
pub fn headers<D: SendDoorbell, const BATCH: usize>(
    sq: &mut EthernetSendQueue<D>,
    requests: &FrameRequests,
    count: usize,
) -> Result<(), PostError> {
    let start = first_request::<BATCH>();
    for first in (start..start + count).step_by(BATCH) {
        let mut batch = sq.batch();
        for i in first..first + BATCH {
            let (start, rest) = (&requests.data[i % REQUESTS][..HEADER], requests.behind[i % REQUESTS]);
            // SAFETY: the element is registered memory that lives as long as the stage, which nobody writes.
            unsafe { batch.send(i as u64, FrameFlags::SIGNALLED, start, &[rest])? }
        }
        batch.ring();
    }
    Ok(())
}

/// `count` frames from memory, as a card takes them that requires no headers in the WQE.
#[inline(never)]
pub fn whole<D: SendDoorbell>(
    sq: &mut EthernetSendQueue<D>,
    requests: &FrameRequests,
    count: usize,
) -> Result<(), PostError> {
    for i in 0..count {
        let mut batch = sq.batch();
        // SAFETY: as in `headers`.
        unsafe { batch.send(i as u64, FrameFlags::SIGNALLED, &[], &[requests.whole[i % REQUESTS]])? }
        batch.ring();
    }
    Ok(())
}

/// `count` frames by multi-packet WQEs that point to them, a doorbell every `BATCH`.
#[inline(never)]
pub fn pointers<D: SendDoorbell, const BATCH: usize>(
    sq: &mut EthernetSendQueue<D>,
    requests: &FrameRequests,
    count: usize,
) -> Result<(), PostError> {
    for first in (0..count).step_by(BATCH) {
        let mut batch = sq.batch();
        let mut pointers = batch.pointers(&requests.source, first as u64, FrameFlags::SIGNALLED)?;
        for i in first..first + BATCH {
            pointers.push(requests.places[i % REQUESTS].clone())?;
        }
        pointers.end();
        batch.ring();
    }
    Ok(())
}

/// `count` frames by multi-packet WQEs of a list of `BATCH` frames, a doorbell for each list.
#[inline(never)]
pub fn several<D: SendDoorbell, const BATCH: usize>(
    sq: &mut EthernetSendQueue<D>,
    requests: &FrameRequests,
    count: usize,
) -> Result<(), PostError> {
    for first in (0..count).step_by(BATCH) {
        let (mut batch, mut left) = (sq.batch(), &requests.whole[..BATCH]);
        while !left.is_empty() {
            let (some, rest) = left.split_at(requests.most.min(left.len()));
            let flags = if rest.is_empty() { FrameFlags::SIGNALLED } else { FrameFlags::empty() };
            // SAFETY: as in `headers`.
            unsafe { batch.send_several(first as u64, flags, some)? }
            left = rest;
        }
        batch.ring();
    }
    Ok(())
}

/// `count` frames that are copied into multi-packet WQEs, a doorbell every `BATCH`.
#[inline(never)]
pub fn copies<D: SendDoorbell, const BATCH: usize>(
    sq: &mut EthernetSendQueue<D>,
    requests: &FrameRequests,
    count: usize,
) -> Result<(), PostError> {
    for first in (0..count).step_by(BATCH) {
        let mut batch = sq.batch();
        let mut copies = batch.copies(first as u64, FrameFlags::SIGNALLED)?;
        for i in first..first + BATCH {
            copies.push(&requests.data[i % REQUESTS])?;
        }
        copies.end();
        batch.ring();
    }
    Ok(())
}

/// Takes `count` frames, `BATCH` at a time, and posts their buffers again; returns the sum of lengths and places.
/// `None` if there are fewer, or one is an error.
#[inline(never)]
pub fn receive<const BATCH: usize>(
    cq: &mut CompletionQueue,
    rq: &mut EthernetReceiveQueue,
    buffers: &Buffers,
    count: usize,
) -> Option<u64> {
    let mut sum = 0u64;
    for _ in 0..count / BATCH {
        let mut places = [0; BATCH];
        let mut completions = cq.poll_batch(BATCH);
        for place in &mut places {
            let completion = completions.next()?.ok()?;
            *place = rq.retire(&completion.work).ok()?;
            sum = sum.wrapping_add(u64::from(completion.byte_len) + *place);
        }
        drop(completions);
        let mut batch = rq.batch();
        for place in places {
            // SAFETY: the buffer is registered memory that lives as long as the stage, which nobody relies on.
            unsafe { batch.receive(place, &[buffers[place as usize % RING]]).ok()? }
        }
        batch.ring();
    }
    Some(sum)
}

/// As [`receive`], one at a time; adds the verdict about a frame's checksums.
#[inline(never)]
pub fn receive_checked(
    cq: &mut CompletionQueue,
    rq: &mut EthernetReceiveQueue,
    buffers: &Buffers,
    count: usize,
) -> Option<u64> {
    let mut sum = 0u64;
    for _ in 0..count {
        let frame = cq.poll_frame()?.ok()?;
        let place = rq.retire(&frame.work).ok()?;
        let is_right = frame.l3_checksum_ok() && frame.l4_checksum_ok();
        sum = sum.wrapping_add(u64::from(frame.byte_len) + place + u64::from(is_right));
        let mut batch = rq.batch();
        // SAFETY: as in `receive`.
        unsafe { batch.receive(place, &[buffers[place as usize % RING]]).ok()? }
        batch.ring();
    }
    Some(sum)
}
