//! Fast registration: memory keys that work requests configure (UMR), of a list in the work request.

use std::hint::black_box;
use std::sync::Arc;

use mlx5_benches::{Failure, completion, connect};
use mlx5_dv::objects::{AccessFlags, DoorbellMode, QpOptions, QueuePair, UmrKey, UmrKeyOptions};
use mlx5_dv::queue::{CompletionQueue, DataSegment, KeyMemory, PostError, Registration, SendQueue, WrFlags};
use mlx5_prm::values::PathMtu;

use crate::stage::{BYTES, Common, POSTS, REQUESTS, ROUNDS, WARM_UP, of_nothing, report, ticks};

/// Parts of the longest list.
const PARTS: usize = 4;

type Parts = [[DataSegment; PARTS]; REQUESTS];

/// Ticks for a registration of each of [`POSTS`] keys, of `count` parts, with a doorbell for each `batch`.
#[inline(never)]
fn register<D: DoorbellMode>(
    queue: &mut SendQueue<D>,
    keys: &[Arc<UmrKey>],
    parts: &Parts,
    count: usize,
    batch: usize,
) -> Result<u64, PostError> {
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
    let start = ticks();
    let mut first = 0;
    while first < POSTS {
        let mut some = queue.batch();
        for (i, key) in keys.iter().enumerate().skip(first).take(batch) {
            let memory = KeyMemory::Parts(&parts[i % REQUESTS][..count]);
            let registration = Registration { variant: 0, access, start: 0, memory };
            // SAFETY: registered memory that lives as long as the keys, which nobody writes or relies on.
            unsafe { some.register(i as u64, WrFlags::SIGNALLED, key, &registration)? };
        }
        some.ring();
        first += batch;
    }
    Ok(ticks() - start)
}

fn drain<D: DoorbellMode>(sent: &mut CompletionQueue, queue: &mut SendQueue<D>) -> Result<(), Failure> {
    while queue.free() < queue.capacity() {
        queue.retire(&completion(sent)?.work)?;
    }
    Ok(())
}

/// Registrations of one and of several parts. The keys are freed between rounds.
pub fn measure<D: DoorbellMode>(common: &Common) -> Result<(), Failure> {
    let mut sent = common.cq()?;
    let options = QpOptions::default().wqes(4 * POSTS as u32, 0);
    let qp = QueuePair::create(&common.pd, &common.uar, sent.cq(), sent.cq(), options)?;
    connect(&qp, qp.qpn(), PathMtu::Mtu1024)?;
    let mut queue = qp.send_queue::<D>()?;
    let key = || Ok(Arc::new(UmrKey::create(&common.pd, UmrKeyOptions::default().entries(PARTS as u32))?));
    let keys = (0..POSTS).map(|_| key()).collect::<Result<Vec<_>, Failure>>()?;
    let part = |request: usize, part: usize| {
        let start = request * BYTES + part * (BYTES / PARTS);
        common.memory.segment(start..start + BYTES / PARTS)
    };
    let parts: Box<Parts> =
        black_box(Box::new(std::array::from_fn(|request| std::array::from_fn(|at| part(request, at)))));
    for count in [1, PARTS] {
        for batch in [1, 16] {
            let mut samples = Vec::with_capacity(WARM_UP + ROUNDS);
            while samples.len() < WARM_UP + ROUNDS {
                samples.push(register(&mut queue, &keys, &parts, count, batch)?);
                drain(&mut sent, &mut queue)?;
                let mut some = queue.batch();
                for key in &keys {
                    some.local_invalidate(0, WrFlags::SIGNALLED, key.key(0))?;
                }
                some.ring();
                drain(&mut sent, &mut queue)?;
            }
            report(&format!("register_{count}/{batch}"), of_nothing(), samples);
        }
    }
    Ok(())
}
