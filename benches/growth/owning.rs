//! Cost of posting and polling by the queues that own what is posted, beside that of a hub's connection.
//!
//! The card's thread is stopped, and the bench writes the completions in its place, which is not measured.

use std::time::Instant;

use mlx5_benches::{Failure, callgrind, hold_still};
use mlx5_dv::objects::ExclusiveRegion;
use mlx5_dv::queue::{Connection, ConnectionOptions, Endpoint, PostError, Refused, WrFlags};

use super::completions::Completions;
use super::extent::Extent;
use super::stage::Stage;

/// Argument for the child process that counts instructions.
pub const COUNT: &str = "--count-owning";

/// Work requests of a round, each with a doorbell.
const POSTS: usize = 64;
const MESSAGE: [u8; 16] = [0x5a; 16];

/// Prints the table.
pub fn measure(extent: Extent) -> Result<(), Failure> {
    if extent == Extent::Short {
        return child();
    }
    let counts = callgrind::run(&[COUNT])?;
    println!("| queue | post instr. | poll instr. |\n| --- | ---: | ---: |");
    for queue in ["Connection", "Endpoint"] {
        let of = |what: &str| counts.get(&format!("{what} {queue}")).copied().unwrap_or(f64::NAN) / POSTS as f64;
        println!("| `{queue}` | {:.1} | {:.1} |", of("post"), of("poll"));
    }
    Ok(())
}

/// Runs in the child process.
pub fn child() -> Result<(), Failure> {
    callgrind::count_nothing();
    of_connection()?;
    of_endpoint()
}

fn options() -> ConnectionOptions {
    ConnectionOptions::default().send_depth(POSTS as u32).recv_depth(1)
}

/// Counts `post` and `poll`, twice, of queue pair `qpn`, which has sent itself a message.
fn count<Q>(
    (stage, mut queue): (Stage, Q),
    (name, qpn): (&str, u32),
    post: fn(&mut Q) -> bool,
    poll: fn(&mut Q) -> bool,
) -> Result<(), Failure> {
    let mut completions = Completions::of(&stage.handle, qpn, 2)?;
    let held = hold_still(&stage.handle)?;
    let mut next = 1;
    for warm_up in [true, false] {
        let mut run = |what: &str, work: fn(&mut Q) -> bool| match warm_up {
            true => work(&mut queue),
            false => callgrind::count(&format!("{what} {name}"), || work(&mut queue)),
        };
        if !run("post", post) {
            return Err("a send queue is full".into());
        }
        (0..POSTS).try_for_each(|_| {
            next += 1;
            completions.write(qpn, 0, next - 1)
        })?;
        if !run("poll", poll) {
            return Err("a completion is missing".into());
        }
    }
    // Firmware no longer answers, so the next card is a new one.
    std::mem::forget((stage, queue, held));
    Ok(())
}

/// Polls until two have completed, which have succeeded.
fn both(mut poll: impl FnMut() -> Result<bool, Failure>) -> Result<(), Failure> {
    let begin = Instant::now();
    let mut done = 0;
    while done < 2 {
        if begin.elapsed().as_secs() > 60 {
            return Err("the software card does not answer".into());
        }
        done += usize::from(poll()?);
        std::thread::yield_now();
    }
    Ok(())
}

fn of_connection() -> Result<(), Failure> {
    let stage = Stage::new()?;
    let mut connection = Connection::new(&stage.pd, options())?;
    let own = connection.local()?;
    connection.connect(&own)?;
    let buffer = ExclusiveRegion::allocate(&stage.pd, MESSAGE.len())?.buffer(0..MESSAGE.len())?;
    connection.receive(buffer)?;
    connection.send_inline(&MESSAGE)?;
    both(|| Ok(connection.poll()?.map(|done| done.result).transpose()?.is_some()))?;
    count((stage, connection), ("Connection", own.qpn), |queue| post(queue).is_ok(), |queue| poll(queue).is_some())
}

/// A SEND of 16 inline bytes and a doorbell each.
#[inline(never)]
fn post(connection: &mut Connection) -> Result<(), Refused> {
    for _ in 0..POSTS {
        connection.send_inline(&MESSAGE)?;
    }
    Ok(())
}

/// Polls their completions.
#[inline(never)]
fn poll(connection: &mut Connection) -> Option<u32> {
    let mut sum = 0u32;
    for _ in 0..POSTS {
        sum = sum.wrapping_add(connection.poll().ok()??.result.ok()?.byte_len);
    }
    Some(sum)
}

fn of_endpoint() -> Result<(), Failure> {
    let stage = Stage::new()?;
    let mut endpoint = Endpoint::new(&stage.memory, options())?;
    let own = endpoint.local()?;
    endpoint.connect(&own)?;
    let mut receives = endpoint.receives().ok_or("no receive queue")?;
    receives.receive(0, 0..MESSAGE.len())?;
    receives.ring();
    let mut sends = endpoint.sends().ok_or("no send queue")?;
    sends.send_inline(0, WrFlags::SIGNALLED, &MESSAGE)?;
    sends.ring();
    both(|| Ok(endpoint.poll()?.map(|done| done.result).transpose()?.is_some()))?;
    count(
        (stage, endpoint),
        ("Endpoint", own.qpn),
        |queue| post_by_endpoint(queue).is_ok(),
        |queue| poll_endpoint(queue).is_some(),
    )
}

#[inline(never)]
fn post_by_endpoint(endpoint: &mut Endpoint) -> Result<(), PostError> {
    for wr_id in 0..POSTS as u64 {
        let Some(mut sends) = endpoint.sends() else { return Ok(()) };
        sends.send_inline(wr_id, WrFlags::SIGNALLED, &MESSAGE)?;
        sends.ring();
    }
    Ok(())
}

#[inline(never)]
fn poll_endpoint(endpoint: &mut Endpoint) -> Option<u64> {
    let mut sum = 0u64;
    for _ in 0..POSTS {
        let done = endpoint.poll().ok()??;
        sum = sum.wrapping_add(done.ticket).wrapping_add(done.result.ok()?.byte_len.into());
    }
    Some(sum)
}
