//! Cost of a hub's post and poll with many connections, used in turn, and the memory of each.
//!
//! The card's thread is stopped, and the bench writes the completions in its place, which is not measured.

use std::time::Instant;

use mlx5_benches::{Failure, callgrind, hold_still, median};
use mlx5_dv::queue::{ConnectionId, Hub, HubOptions, Refused, Side};

use super::completions::Completions;
use super::extent::Extent;
use super::queue_pairs::umem_bytes;
use super::stage::Stage;
use super::timing::{clock, nanoseconds};

/// Argument for the child process that counts instructions.
pub const COUNT: &str = "--count-hub";

/// Work requests in a round.
const POSTS: usize = 64;
/// Step from one connection to the next: a prime, so that all are used, and never adjacent ones in sequence.
const STRIDE: usize = 7919;
/// Work requests of a connection in flight at most. With few connections a round takes turns.
const DEPTH: u32 = 64;
const MESSAGE: [u8; 16] = [0x5a; 16];
const WARM_UP: usize = 300;
const ROUNDS: usize = 10_000;
const SHORT: usize = 20;

/// Prints the table.
pub fn measure(extent: Extent) -> Result<(), Failure> {
    let counts = if extent == Extent::Full { callgrind::run(&[COUNT]) } else { Err("a short run".into()) };
    println!("| connections | post ns | poll ns | post instr. | poll instr. | heap bytes | umem bytes |");
    println!("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    let clock = clock();
    for &count in extent.queue_pairs() {
        let stage = Stage::new()?;
        let mut worker = Worker::new(&stage, count)?;
        let held = hold_still(&stage.handle)?;
        let (mut posts, mut polls) = worker.time(if extent == Extent::Full { ROUNDS } else { SHORT })?;
        let [post, poll] = [&mut posts, &mut polls].map(|samples| (median(samples) - clock) / POSTS as f64);
        let instructions = |what| {
            let count = counts.as_ref().ok()?.get(&format!("{what} {count}"))?;
            Some(format!("{:.1}", count / POSTS as f64))
        };
        let [posts, polls] = ["post", "poll"].map(|what| instructions(what).unwrap_or("-".into()));
        println!("| {count} | {post:.1} | {poll:.1} | {posts} | {polls} | {} | {} |", worker.heap, worker.umem);
        // Firmware no longer answers, so the next card is a new one.
        std::mem::forget((worker, stage, held));
    }
    if let Err(why) = counts {
        println!("\ninstructions: not measured: {why}");
    }
    println!("\nheap and umem bytes are of each connection; the hub's own memory is not among them");
    Ok(())
}

/// Runs in the child process.
pub fn child() -> Result<(), Failure> {
    callgrind::count_nothing();
    for &count in Extent::Full.queue_pairs() {
        let stage = Stage::new()?;
        let mut worker = Worker::new(&stage, count)?;
        let held = hold_still(&stage.handle)?;
        for _ in 0..2 {
            worker.round(|_, work| work())?;
        }
        worker.round(|what, work| callgrind::count(&format!("{what} {count}"), work))?;
        std::mem::forget((worker, stage, held));
    }
    Ok(())
}

/// A connection as the card sees it.
struct Connection {
    id: ConnectionId,
    qpn: u32,
    user_index: u32,
    /// Index of its next WQE.
    posted: u16,
}

/// A hub, and the card's part.
struct Worker {
    hub: Hub<u64>,
    connections: Vec<Connection>,
    completions: Completions,
    next: usize,
    turn: [u32; POSTS],
    heap: i64,
    umem: u64,
}

impl Worker {
    /// A hub with `count` connections, each of which has sent itself a message.
    fn new(stage: &Stage, count: usize) -> Result<Self, Failure> {
        let mut options = HubOptions::default();
        (options.connections, options.receives, options.spares, options.message_bytes) = (count as u32, 255, 1, 64);
        options.each.send_depth = DEPTH;
        let mut hub: Hub<u64> = Hub::new(&stage.pd, options)?;
        let umem = umem_bytes(stage)?;
        let mut joined: Result<Vec<ConnectionId>, Failure> = Ok(Vec::new());
        let heap = allocation_counter::measure(|| joined = (0..count).map(|n| Ok(hub.join(n as u64)?)).collect());
        let ids = joined?;
        let umem = (umem_bytes(stage)? - umem) / count as u64;
        for &id in &ids {
            let own = hub.local(id)?;
            hub.connect(id, &own)?;
        }
        for some in ids.chunks(POSTS) {
            exchange(&mut hub, some)?;
        }
        let qpns = ids.iter().map(|id| Ok(hub.local(*id)?.qpn)).collect::<Result<Vec<u32>, Failure>>()?;
        // A message of each was sent, and received.
        let completions = Completions::of(&stage.handle, qpns[0], 2 * count)?;
        let of_card = stage.handle.with(move |f| {
            let users: Option<Vec<u32>> = qpns.iter().map(|qpn| f.queues.qps.get(*qpn)?.user_index).collect();
            Some(qpns.into_iter().zip(users?).collect::<Vec<_>>())
        });
        let numbers = of_card.flatten().ok_or("the model does not know the queues")?;
        let connections = ids.into_iter().zip(numbers);
        let connections = connections.map(|(id, (qpn, user_index))| Connection { id, qpn, user_index, posted: 1 });
        Ok(Worker {
            hub,
            connections: connections.collect(),
            completions,
            next: 0,
            turn: [0; POSTS],
            heap: heap.bytes_current / count as i64,
            umem,
        })
    }

    /// A round: a message of each connection in turn, their completions, a poll for each. Calls `measured` with the
    /// work to measure.
    fn round(&mut self, mut measured: impl FnMut(&str, &mut dyn FnMut() -> bool) -> bool) -> Result<(), Failure> {
        for place in &mut self.turn {
            *place = self.next as u32;
            self.next = (self.next + STRIDE) % self.connections.len();
        }
        let Worker { hub, connections, turn, .. } = self;
        if !measured("post", &mut || post(hub, connections, turn).is_ok()) {
            return Err("a send queue is full".into());
        }
        self.complete()?;
        let hub = &mut self.hub;
        if !measured("poll", &mut || poll(hub).is_some()) {
            return Err("a completion is missing".into());
        }
        Ok(())
    }

    /// Nanoseconds of the posts and of the polls of each round.
    fn time(&mut self, rounds: usize) -> Result<(Vec<f64>, Vec<f64>), Failure> {
        let (mut posts, mut polls) = (Vec::with_capacity(rounds), Vec::with_capacity(rounds));
        for round in 0..WARM_UP + rounds {
            self.round(|what, work| {
                let (time, done) = nanoseconds(work);
                if round >= WARM_UP {
                    if what == "post" { &mut posts } else { &mut polls }.push(time);
                }
                done
            })?;
        }
        Ok((posts, polls))
    }

    /// Writes the completions of this round, as a card does.
    fn complete(&mut self) -> Result<(), Failure> {
        for &place in &self.turn {
            let connection = &mut self.connections[place as usize];
            self.completions.write(connection.qpn, connection.user_index, connection.posted)?;
            connection.posted = connection.posted.wrapping_add(1);
        }
        Ok(())
    }
}

/// A message of each connection to itself, checked.
fn exchange(hub: &mut Hub<u64>, ids: &[ConnectionId]) -> Result<(), Failure> {
    for &id in ids {
        hub.send_inline(id, &MESSAGE)?;
    }
    let begin = Instant::now();
    let (mut sent, mut received) = (0, 0);
    while sent + received < 2 * ids.len() {
        if begin.elapsed().as_secs() > 60 {
            return Err("the software card does not answer".into());
        }
        let Some(mut next) = hub.poll()? else {
            std::thread::yield_now();
            continue;
        };
        let side = next.done.result?.work.side;
        match side {
            Side::Send => sent += 1,
            Side::Receive => {
                received += 1;
                if next.done.received() != Some(&MESSAGE) {
                    return Err("the software card carried something else".into());
                }
            }
        }
        if let Some(buffer) = next.done.buffer.take() {
            hub.recycle(buffer)?;
        }
    }
    Ok(())
}

/// A SEND of 16 inline bytes and a doorbell for each connection in turn.
#[inline(never)]
fn post(hub: &mut Hub<u64>, connections: &[Connection], turn: &[u32; POSTS]) -> Result<(), Refused> {
    for &place in turn {
        hub.send_inline(connections[place as usize].id, &MESSAGE)?;
    }
    Ok(())
}

/// Polls their completions, each with its connection's context.
#[inline(never)]
fn poll(hub: &mut Hub<u64>) -> Option<u64> {
    let mut sum = 0u64;
    for _ in 0..POSTS {
        sum = sum.wrapping_add(*hub.poll().ok()??.context);
    }
    Some(sum)
}
