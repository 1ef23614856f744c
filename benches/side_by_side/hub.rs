//! Messages of many connections of a hub, used in turn: the safe layer that finds the context of each completion.

use std::hint::black_box;
use std::thread::sleep;
use std::time::{Duration, Instant};

use mlx5_benches::Failure;
use mlx5_dv::objects::Copying;
use mlx5_dv::queue::{ConnectionId, ConnectionOptions, Hub, HubOptions, Refused, Side};

use crate::stage::{
    BYTES, Common, DEPTH, PATIENCE, POSTS, REQUESTS, ROUNDS, Request, WARM_UP, of_nothing, report, ticks,
};

/// Connections, each connected to itself. The context is a number.
fn create(common: &Common, count: usize) -> Result<(Hub<u64>, Vec<ConnectionId>), Failure> {
    let depth = if count < 16 { POSTS } else { POSTS / 16 } as u32;
    let copying = if common.doorbell == "plain" { Copying::Never } else { Copying::Always };
    let each = ConnectionOptions::default().send_depth(depth).inline_bytes(BYTES as u16).copying(copying);
    let options = HubOptions::default().connections(count as u32).receives(DEPTH - 1).spares(1);
    let mut hub = Hub::new(&common.pd, options.message_bytes(BYTES).each(each))?;
    let ids = (0..count as u64).map(|context| {
        let id = hub.join(context)?;
        let own = hub.local(id)?;
        hub.connect(id, &own)?;
        Ok(id)
    });
    let ids = ids.collect::<Result<_, Failure>>()?;
    Ok((hub, ids))
}

/// Those of a round.
fn turn(ids: &[ConnectionId], first: usize) -> [ConnectionId; POSTS] {
    std::array::from_fn(|i| ids[(first + i) % ids.len()])
}

/// Ticks for a SEND of each in turn.
#[inline(never)]
fn post(hub: &mut Hub<u64>, turn: &[ConnectionId; POSTS], requests: &[Request; REQUESTS]) -> Result<u64, Refused> {
    let start = ticks();
    for (i, id) in turn.iter().enumerate() {
        hub.send_inline(*id, &requests[i % REQUESTS].data)?;
    }
    Ok(ticks() - start)
}

/// Ticks for [`POSTS`] completions, with the context of each; or how many were there.
#[inline(never)]
fn poll(hub: &mut Hub<u64>) -> Result<u64, usize> {
    let mut sum = 0u64;
    let start = ticks();
    for polled in 0..POSTS {
        let Ok(Some(next)) = hub.poll() else { return Err(polled) };
        let Ok(completion) = next.done.result else { return Err(polled + 1) };
        sum = sum.wrapping_add(*next.context).wrapping_add(u64::from(completion.byte_len));
    }
    black_box(sum);
    Ok(ticks() - start)
}

/// A write of each in turn: it completes on one side only.
fn write(hub: &mut Hub<u64>, turn: &[ConnectionId; POSTS], requests: &[Request; REQUESTS]) -> Result<(), Failure> {
    for (i, id) in turn.iter().enumerate() {
        let request = &requests[i % REQUESTS];
        hub.batch(*id).ok_or("a connection has left")?.write_inline(&request.data, request.remote)?;
    }
    Ok(())
}

/// Waits for `sent` and `received` completions.
fn drain(hub: &mut Hub<u64>, mut sent: usize, mut received: usize) -> Result<(), Failure> {
    while sent + received > 0 {
        hub.wait(PATIENCE)?;
        while let Some(next) = hub.poll()? {
            match next.done.result?.work.side {
                Side::Send => sent -= 1,
                Side::Receive => received -= 1,
            }
            if let Some(buffer) = next.done.buffer {
                hub.recycle(buffer)?;
            }
        }
    }
    Ok(())
}

/// Posts and polls of `count` connections. Rounds in which a completion is late do not count.
pub fn measure(common: &Common, count: usize) -> Result<(), Failure> {
    let (mut hub, ids) = create(common, count)?;
    let requests = common.requests(&[], 0, BYTES)?;
    let mut round = (0..).map(|round| turn(&ids, round * POSTS % count));
    // All are used before anything is measured.
    for turn in round.by_ref().take(count.div_ceil(POSTS)) {
        write(&mut hub, &turn, &requests)?;
        drain(&mut hub, POSTS, 0)?;
    }
    let mut samples = vec![];
    for turn in round.by_ref().take(WARM_UP + ROUNDS) {
        samples.push(post(&mut hub, &turn, &requests)?);
        drain(&mut hub, POSTS, POSTS)?;
    }
    report(&format!("hub_post/{count}"), of_nothing(), samples);

    let (mut samples, mut pause) = (vec![], Duration::from_millis(1));
    let deadline = Instant::now() + PATIENCE;
    while samples.len() < WARM_UP + ROUNDS {
        write(&mut hub, &round.next().ok_or("no round")?, &requests)?;
        sleep(pause);
        match poll(&mut hub) {
            Ok(ticks) => samples.push(ticks),
            Err(_) if Instant::now() > deadline => return Err("completions are always late".into()),
            Err(polled) => {
                pause = (pause * 2).min(Duration::from_millis(100));
                drain(&mut hub, POSTS - polled, 0)?;
            }
        }
    }
    report(&format!("hub_poll/{count}"), of_nothing(), samples);
    Ok(())
}
