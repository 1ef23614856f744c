//! The driver's hot path, as called by a program. One function for each measurement, never inlined, so that it can be
//! found in a disassembly.

pub mod forward;
pub mod frames;

use mlx5_dv::queue::{Completion, CompletionQueue, PostError, ReceiveQueue, SendQueue, WrFlags};
use uar::SendDoorbell;

use crate::request::{REQUESTS, Requests};

/// `count` RDMA WRITEs of one element each, a doorbell every `BATCH`, a completion every `SIGNAL`.
#[inline(never)]
pub fn write<D: SendDoorbell, const BATCH: usize, const SIGNAL: usize>(
    sq: &mut SendQueue<D>,
    requests: &Requests,
    count: usize,
) -> Result<(), PostError> {
    for first in (0..count).step_by(BATCH) {
        let mut batch = sq.batch();
        for i in first..first + BATCH {
            let (remote, local) = (requests.remote[i % REQUESTS], requests.local[i % REQUESTS]);
            let flags = if i % SIGNAL == SIGNAL - 1 { WrFlags::SIGNALLED } else { WrFlags::empty() };
            // SAFETY: the element is registered memory that lives as long as the stage, which nobody writes.
            unsafe { batch.write(i as u64, flags, remote, &[local])? }
        }
        batch.ring();
    }
    Ok(())
}

/// `count` RDMA READs of one element each.
#[inline(never)]
pub fn read<D: SendDoorbell>(sq: &mut SendQueue<D>, requests: &Requests, count: usize) -> Result<(), PostError> {
    for i in 0..count {
        let (remote, local) = (requests.remote[i % REQUESTS], requests.local[i % REQUESTS]);
        let mut batch = sq.batch();
        // SAFETY: as in `write`; the card does not carry it out.
        unsafe { batch.read(i as u64, WrFlags::SIGNALLED, remote, &[local])? }
        batch.ring();
    }
    Ok(())
}

/// `count` SENDs of one element each.
#[inline(never)]
pub fn send<D: SendDoorbell>(sq: &mut SendQueue<D>, requests: &Requests, count: usize) -> Result<(), PostError> {
    for i in 0..count {
        let mut batch = sq.batch();
        // SAFETY: as in `write`.
        unsafe { batch.send(i as u64, WrFlags::SIGNALLED, &[requests.local[i % REQUESTS]])? }
        batch.ring();
    }
    Ok(())
}

/// `count` RDMA WRITEs of 64 bytes of inline data each.
#[inline(never)]
pub fn write_inline<D: SendDoorbell>(
    sq: &mut SendQueue<D>,
    requests: &Requests,
    count: usize,
) -> Result<(), PostError> {
    for i in 0..count {
        let (remote, data) = (requests.remote[i % REQUESTS], &requests.data[i % REQUESTS]);
        let mut batch = sq.batch();
        batch.write_inline(i as u64, WrFlags::SIGNALLED, remote, data)?;
        batch.ring();
    }
    Ok(())
}

/// `count` SENDs of 64 bytes of inline data each.
#[inline(never)]
pub fn send_inline<D: SendDoorbell>(sq: &mut SendQueue<D>, requests: &Requests, count: usize) -> Result<(), PostError> {
    for i in 0..count {
        let mut batch = sq.batch();
        batch.send_inline(i as u64, WrFlags::SIGNALLED, &requests.data[i % REQUESTS])?;
        batch.ring();
    }
    Ok(())
}

/// `count` receives of one element each, a doorbell record every `BATCH`.
#[inline(never)]
pub fn receive<const BATCH: usize>(rq: &mut ReceiveQueue, requests: &Requests, count: usize) -> Result<(), PostError> {
    for first in (0..count).step_by(BATCH) {
        let mut batch = rq.batch();
        for i in first..first + BATCH {
            // SAFETY: the element is registered memory that lives as long as the stage, which nobody relies on.
            unsafe { batch.receive(i as u64, &[requests.local[i % REQUESTS]])? }
        }
        batch.ring();
    }
    Ok(())
}

/// Polls `count` completions, `BATCH` at a time; returns the sum of their fields. `None` if there are fewer, or one is
/// an error.
#[inline(never)]
pub fn poll<const BATCH: usize>(cq: &mut CompletionQueue, count: usize) -> Option<u64> {
    take::<BATCH>(cq, count, |completion| {
        let work = completion.work;
        Some(u64::from(completion.byte_len) + u64::from(work.qpn) + u64::from(work.index))
    })
}

/// Like [`poll`]; each completion is given to its send queue.
#[inline(never)]
pub fn poll_and_retire<D: SendDoorbell, const BATCH: usize>(
    cq: &mut CompletionQueue,
    sq: &mut SendQueue<D>,
    count: usize,
) -> Option<u64> {
    take::<BATCH>(cq, count, |completion| sq.retire(&completion.work).ok())
}

/// The sum of `each` over `count` completions.
#[inline(always)]
fn take<const BATCH: usize>(
    cq: &mut CompletionQueue,
    count: usize,
    mut each: impl FnMut(&Completion) -> Option<u64>,
) -> Option<u64> {
    let mut sum = 0u64;
    for _ in 0..count / BATCH {
        if BATCH == 1 {
            sum = sum.wrapping_add(each(&cq.poll()?.ok()?)?);
            continue;
        }
        let mut batch = cq.poll_batch(BATCH);
        for _ in 0..BATCH {
            sum = sum.wrapping_add(each(&batch.next()?.ok()?)?);
        }
    }
    Some(sum)
}

/// Polls an empty queue `count` times.
#[inline(never)]
pub fn poll_empty(cq: &mut CompletionQueue, count: usize) -> bool {
    (0..count).all(|_| cq.poll().is_none())
}
