//! The hot path of frames that are forwarded where they were received.

use std::hint::black_box;

use mlx5_dv::queue::ethernet::{FrameFlags, StridingQueue};

use crate::stage::forward::Queues;

/// As [`forward`], of bursts that are looked at before they are sent on.
#[inline(never)]
pub fn forward_bursts<const BURST: usize>(queues: &mut Queues, count: usize) -> Option<u64> {
    let Queues { receiver, forwarder } = queues;
    for _ in 0..count / BURST {
        let mut batch = forwarder.batch(FrameFlags::empty()).ok()?;
        let mut found = 0;
        while found < BURST {
            match batch.push_each(receiver.burst(BURST - found).ok()?, |_| true).ok()? {
                0 => return None,
                some => found += some,
            }
        }
        batch.ring();
    }
    Some(0)
}

/// Receives `count` frames, at most `BURST` at a time, and sends each burst on. `None` if there are fewer.
#[inline(never)]
pub fn forward<const BURST: usize>(queues: &mut Queues, count: usize) -> Option<u64> {
    let Queues { receiver, forwarder } = queues;
    for _ in 0..count / BURST {
        if forwarder.forward(receiver, BURST, FrameFlags::empty(), |_| true).ok()? != BURST {
            return None;
        }
    }
    Some(0)
}

/// Receives `count` frames, at most `BURST` at a time; returns the sum of their lengths. `None` if there are fewer.
#[inline(never)]
pub fn receive<const BURST: usize>(receiver: &mut StridingQueue, count: usize) -> Option<u64> {
    let mut sum = 0;
    for _ in 0..count / BURST {
        let found = receiver.take_each(BURST, |frame| {
            sum += frame.len() as u64;
            black_box(frame.as_ptr());
        });
        if found.ok()? != BURST {
            return None;
        }
    }
    Some(sum)
}

/// As [`receive`], by bursts.
#[inline(never)]
pub fn receive_bursts<const BURST: usize>(receiver: &mut StridingQueue, count: usize) -> Option<u64> {
    let mut sum = 0;
    for _ in 0..count / BURST {
        let mut found = 0;
        while found < BURST {
            let before = found;
            for frame in receiver.burst(BURST - found).ok()? {
                sum += frame.len() as u64;
                black_box(frame.as_ptr());
                found += 1;
            }
            if found == before {
                return None;
            }
        }
    }
    Some(sum)
}
