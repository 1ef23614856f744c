//! Polls of one completion queue that many queue pairs share, used in turn.

use std::thread::sleep;
use std::time::{Duration, Instant};

use mlx5_benches::{Failure, completion, connect};
use mlx5_dv::objects::{DoorbellMode, QpOptions, QueuePair};
use mlx5_dv::queue::{Completion, CompletionQueue, SendQueue, WrFlags};
use mlx5_prm::values::PathMtu;

use crate::stage::{BYTES, Common, PATIENCE, POSTS, REQUESTS, ROUNDS, Request, WARM_UP, of_nothing, poll, report};

/// Queue pairs, each connected to itself, by user index.
type Many<D> = Vec<SendQueue<D>>;

fn create<D: DoorbellMode>(common: &Common, sent: &CompletionQueue, count: usize) -> Result<Many<D>, Failure> {
    let depth = if count < 16 { POSTS } else { POSTS / 16 } as u32;
    let options = QpOptions::default().wqes(depth, depth).inline_bytes(BYTES as u16);
    let create = |index: usize| {
        let options = options.clone().user_index(index as u32);
        let qp = QueuePair::create(&common.pd, &common.uar, sent.cq(), sent.cq(), options)?;
        connect(&qp, qp.qpn(), PathMtu::Mtu1024)?;
        Ok(qp.send_queue()?)
    };
    (0..count).map(create).collect()
}

/// Posts a write to each of the next [`POSTS`] queue pairs.
fn post<D: DoorbellMode>(many: &mut Many<D>, requests: &[Request; REQUESTS], first: usize) -> Result<(), Failure> {
    let count = many.len();
    for i in 0..POSTS {
        let request = &requests[i % REQUESTS];
        let mut batch = many[(first + i) % count].batch();
        batch.write_inline(i as u64, WrFlags::SIGNALLED, request.remote, &request.data)?;
        batch.ring();
    }
    Ok(())
}

#[inline(always)]
fn retire<D: DoorbellMode>(many: &mut Many<D>, completion: &Completion) -> Option<u64> {
    many.get_mut(completion.user_index as usize)?.retire(&completion.work).ok()
}

#[inline(never)]
fn poll_many<D: DoorbellMode>(sent: &mut CompletionQueue, many: &mut Many<D>) -> Option<u64> {
    poll(sent, 1, |completion| retire(many, completion))
}

/// Polls until everything posted has completed.
fn drain<D: DoorbellMode>(sent: &mut CompletionQueue, many: &mut Many<D>) -> Result<(), Failure> {
    while many.iter().any(|queue| queue.free() < queue.capacity()) {
        retire(many, &completion(sent)?).ok_or("a completion of another queue")?;
    }
    Ok(())
}

/// Completions of `count` queue pairs. Rounds in which one is late do not count.
pub fn measure<D: DoorbellMode>(common: &Common, count: usize) -> Result<(), Failure> {
    let mut sent = common.cq()?;
    let mut many = create::<D>(common, &sent, count)?;
    let requests = common.requests(&[], 0, BYTES)?;
    // All are used before anything is measured.
    for first in (0..count).step_by(POSTS) {
        post(&mut many, &requests, first)?;
        drain(&mut sent, &mut many)?;
    }
    let (mut samples, mut first, mut pause) = (vec![], 0, Duration::from_millis(1));
    let deadline = Instant::now() + PATIENCE;
    while samples.len() < WARM_UP + ROUNDS {
        post(&mut many, &requests, first)?;
        first = (first + POSTS) % count;
        sleep(pause);
        match poll_many(&mut sent, &mut many) {
            Some(ticks) => samples.push(ticks),
            None if Instant::now() > deadline => return Err("completions are always late".into()),
            None => pause = (pause * 2).min(Duration::from_millis(100)),
        }
        drain(&mut sent, &mut many)?;
    }
    report(&format!("poll_many/{count}"), of_nothing(), samples);
    Ok(())
}
