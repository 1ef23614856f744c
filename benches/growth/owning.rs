//! Cost of posting and polling by the queues that own what is posted, beside that of a hub's connection.
//!
//! The card's thread is stopped, and the bench writes the completions in its place, which is not measured.

use std::time::Instant;

use mlx5_benches::{Failure, callgrind, hold_still};
use mlx5_dv::objects::{AddressHandle, AddressPath, CqOptions, ExclusiveRegion, SrqOptions, Xrcd};
use mlx5_dv::queue::{
    Connection, ConnectionOptions, DatagramOptions, DatagramQueue, Endpoint, GRH, PostError, Refused, RemoteSrq,
    WrFlags, XrcConnection, XrcReceiver,
};

use super::completions::Completions;
use super::extent::Extent;
use super::stage::Stage;

/// Argument for the child process that counts instructions.
pub const COUNT: &str = "--count-owning";

/// Work requests of a round, each with a doorbell.
const POSTS: usize = 64;
const MESSAGE: [u8; 16] = [0x5a; 16];
const QKEY: u32 = 0x1111_1111;

/// Rows of the table.
const CONNECTION: &str = "Connection";
const ENDPOINT: &str = "Endpoint";
const BATCH: &str = "Endpoint::poll_batch";
const DATAGRAMS: &str = "DatagramQueue";
const EXTENDED: &str = "XrcConnection";

/// Prints the table.
pub fn measure(extent: Extent) -> Result<(), Failure> {
    if extent == Extent::Short {
        return child();
    }
    let counts = callgrind::run(&[COUNT])?;
    println!("| queue | post instr. | poll instr. |\n| --- | ---: | ---: |");
    for queue in [CONNECTION, ENDPOINT, BATCH, DATAGRAMS, EXTENDED] {
        let of = |what: &str| counts.get(&format!("{what} {queue}")).copied().unwrap_or(f64::NAN) / POSTS as f64;
        println!("| `{queue}` | {:.1} | {:.1} |", of("post"), of("poll"));
    }
    Ok(())
}

/// Runs in the child process.
pub fn child() -> Result<(), Failure> {
    callgrind::count_nothing();
    of_connection()?;
    of_endpoint(ENDPOINT, |queue| poll_endpoint(queue).is_some())?;
    of_endpoint(BATCH, |queue| poll_batch(queue).is_some())?;
    of_datagrams()?;
    of_extended()
}

fn options() -> ConnectionOptions {
    ConnectionOptions::default().send_depth(POSTS as u32).recv_depth(1)
}

/// A row, and the queue pair that it is of.
struct Row {
    name: &'static str,
    qpn: u32,
    /// Number of completions that its completion queue has had.
    produced: usize,
    /// WQEBBs of a work request, of which it has posted one.
    wqebbs: u16,
}

/// Counts `post` and `poll` of `row`, after a round that warms up.
fn count<Q>(
    (stage, mut queue): (Stage, Q),
    row: &Row,
    post: fn(&mut Q) -> bool,
    poll: fn(&mut Q) -> bool,
) -> Result<(), Failure> {
    let (name, qpn) = (row.name, row.qpn);
    let mut completions = Completions::of(&stage.handle, qpn, row.produced)?;
    let held = hold_still(&stage.handle)?;
    let mut next = row.wqebbs;
    for warm_up in [true, false] {
        let mut run = |what: &str, work: fn(&mut Q) -> bool| match warm_up {
            true => work(&mut queue),
            false => callgrind::count(&format!("{what} {name}"), || work(&mut queue)),
        };
        if !run("post", post) {
            return Err("a send queue is full".into());
        }
        (0..POSTS).try_for_each(|_| {
            completions.write(qpn, 0, next)?;
            next += row.wqebbs;
            Ok::<_, Failure>(())
        })?;
        if !run("poll", poll) {
            return Err("a completion is missing".into());
        }
    }
    // Firmware no longer answers, so the next card is a new one.
    std::mem::forget((stage, queue, held));
    Ok(())
}

/// Polls until `count` have completed, which have succeeded.
fn all(count: usize, mut poll: impl FnMut() -> Result<bool, Failure>) -> Result<(), Failure> {
    let begin = Instant::now();
    let mut done = 0;
    while done < count {
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
    all(2, || Ok(connection.poll()?.map(|done| done.result).transpose()?.is_some()))?;
    let row = Row { name: CONNECTION, qpn: own.qpn, produced: 2, wqebbs: 1 };
    count((stage, connection), &row, |queue| post(queue).is_ok(), |queue| poll(queue).is_some())
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

fn of_endpoint(name: &'static str, poll: fn(&mut Endpoint) -> bool) -> Result<(), Failure> {
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
    all(2, || Ok(endpoint.poll()?.map(|done| done.result).transpose()?.is_some()))?;
    let row = Row { name, qpn: own.qpn, produced: 2, wqebbs: 1 };
    count((stage, endpoint), &row, |queue| post_by_endpoint(queue).is_ok(), poll)
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

#[inline(never)]
fn poll_batch(endpoint: &mut Endpoint) -> Option<u64> {
    let (mut sum, mut count) = (0u64, 0);
    for done in endpoint.poll_batch(POSTS) {
        let done = done.ok()?;
        sum = sum.wrapping_add(done.ticket).wrapping_add(done.result.ok()?.byte_len.into());
        count += 1;
    }
    (count == POSTS).then_some(sum)
}

/// A queue of datagrams, and itself as their destination.
type Datagrams = (DatagramQueue, AddressHandle);

fn of_datagrams() -> Result<(), Failure> {
    let stage = Stage::new()?;
    let options = DatagramOptions::new(QKEY).send_depth(POSTS as u32).recv_depth(1);
    let mut queue = DatagramQueue::new(&stage.pd, options)?;
    let qpn = queue.queue_pair().qpn();
    let gid = stage.device.gids().first().copied().ok_or("the port has no GID")?;
    let to = AddressHandle::new(&stage.device, &AddressPath::new(gid.address.octets(), gid.mac), qpn, QKEY)?;
    queue.receive(ExclusiveRegion::allocate(&stage.pd, 4096)?.buffer(0..GRH + MESSAGE.len())?)?;
    queue.send_inline(&to, &MESSAGE)?;
    all(2, || Ok(queue.poll()?.map(|done| done.result).transpose()?.is_some()))?;
    let row = Row { name: DATAGRAMS, qpn, produced: 2, wqebbs: 2 };
    count((stage, (queue, to)), &row, |queue| post_datagrams(queue).is_ok(), |queue| poll_datagrams(queue).is_some())
}

#[inline(never)]
fn post_datagrams((queue, to): &mut Datagrams) -> Result<(), Refused> {
    for _ in 0..POSTS {
        queue.send_inline(to, &MESSAGE)?;
    }
    Ok(())
}

#[inline(never)]
fn poll_datagrams((queue, _): &mut Datagrams) -> Option<u32> {
    let mut sum = 0u32;
    for _ in 0..POSTS {
        sum = sum.wrapping_add(queue.poll().ok()??.result.ok()?.byte_len);
    }
    Some(sum)
}

/// An extended connection, and the shared receive queue that it sends to.
type Extended = (XrcConnection, RemoteSrq, XrcReceiver);

fn of_extended() -> Result<(), Failure> {
    let stage = Stage::new()?;
    let domain = Xrcd::alloc(&stage.device)?;
    let receiver = SrqOptions::default().wqes(7);
    let mut receiver = XrcReceiver::new(&stage.pd, &domain, receiver, CqOptions::default())?;
    let to = RemoteSrq::new(receiver.srqn()).ok_or("a number of more than 24 bits")?;
    let mut connection = XrcConnection::new(&stage.pd, &domain, options())?;
    let own = connection.local()?;
    connection.connect(&own)?;
    receiver.receive(ExclusiveRegion::allocate(&stage.pd, 4096)?.buffer(0..MESSAGE.len())?)?;
    connection.send_inline(to, &MESSAGE)?;
    all(1, || Ok(connection.poll()?.map(|done| done.result).transpose()?.is_some()))?;
    let row = Row { name: EXTENDED, qpn: own.initiator.qpn, produced: 1, wqebbs: 1 };
    let queues = (stage, (connection, to, receiver));
    count(queues, &row, |queues| post_extended(queues).is_ok(), |queues| poll_extended(queues).is_some())
}

#[inline(never)]
fn post_extended((connection, to, _): &mut Extended) -> Result<(), Refused> {
    for _ in 0..POSTS {
        connection.send_inline(*to, &MESSAGE)?;
    }
    Ok(())
}

#[inline(never)]
fn poll_extended((connection, ..): &mut Extended) -> Option<u32> {
    let mut sum = 0u32;
    for _ in 0..POSTS {
        sum = sum.wrapping_add(connection.poll().ok()??.result.ok()?.byte_len);
    }
    Some(sum)
}
