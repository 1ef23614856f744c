//! Tests a data plane in virtual time: two software cards, a driver on each, and a lossy wire, all on one thread. Every
//! run with the same seed is the same, and a lost packet's timeout takes no real time.
//!
//!     cargo run --release --example virtual_time -- --runs 1000
//!
//! To test your own data plane: keep the first lines of [`run`] and replace [`echo`]. Waits of the driver
//! (`Connection::wait`) let virtual time pass; a polling loop calls `device.clock().pause(limit)` when it finds
//! nothing.

use std::collections::VecDeque;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use mlx5_dv::objects::{AccessFlags, Buffer, ExclusiveRegion, Pd};
use mlx5_dv::queue::{Connection, ConnectionOptions, RemoteAddress, Side, WaitError};
use mlx5_dv::{Device, Error};
use mlx5_open::program;
use mlx5_open::virtual_time::World;
use mlx5_prm::cmd::Opcode;
use mlx5_sim::card::{Card, FunctionHandle, SteppedCard};
use mlx5_sim::fault::{Fault, Times};
use mlx5_sim::world::{Conditions, Record};

/// Properties of the cable: frames affected out of a million.
const CABLE: Conditions = Conditions {
    loss: 50_000,
    duplication: 20_000,
    reordering: 20_000,
    corruption: 20_000,
    latency: Duration::from_micros(1),
    lateness: Duration::from_micros(20),
};
/// Timeout of everything, in virtual time.
const PATIENCE: Duration = Duration::from_secs(600);
/// Maximum message size in bytes.
const LONGEST: usize = 4096;

/// Two cards, two drivers and a lossy wire on one thread, in virtual time.
#[derive(Debug, Parser)]
struct Arguments {
    /// Seed of all random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of messages in each direction.
    #[arg(long, default_value_t = 5000)]
    messages: usize,
    /// Messages in flight at once; 1 is a ping-pong.
    #[arg(long, default_value_t = 8)]
    window: usize,
    /// Number of runs; each must be the same as the first.
    #[arg(long, default_value_t = 1)]
    runs: u32,
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Result of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Outcome {
    record: Record,
    virtual_time: Duration,
}

/// One end of the connection.
struct End {
    connection: Connection,
    /// Buffers to send from.
    spare: VecDeque<Buffer>,
    region: ExclusiveRegion,
    pd: Arc<Pd>,
    device: Arc<Device>,
}

impl End {
    fn open(world: &World, card: &Arc<SteppedCard>, window: usize) -> Result<End, Failure> {
        let device = world.open(card)?;
        let pd = Pd::alloc(&device)?;
        let mut options = ConnectionOptions::default();
        (options.send_depth, options.recv_depth) = (2 * window as u32, window as u32);
        options.remote_access = AccessFlags::REMOTE_WRITE;
        let mut connection = Connection::new(&pd, options)?;
        let region = ExclusiveRegion::allocate(&pd, 2 * window * LONGEST)?;
        let mut spare = VecDeque::from(region.buffers(LONGEST)?);
        for _ in 0..window {
            connection.receive(spare.pop_front().ok_or("a buffer for each receive")?)?;
        }
        Ok(End { connection, spare, region, pd, device })
    }

    fn send(&mut self, content: &[u8]) -> Result<(), Failure> {
        let mut buffer = self.spare.pop_front().ok_or("a buffer for each message of the window")?;
        buffer.set_len(content.len());
        buffer.as_mut_slice().copy_from_slice(content);
        self.connection.send(buffer)?;
        Ok(())
    }

    /// The next message received. Buffers of sends completed meanwhile are returned to `spare`.
    fn receive(&mut self) -> Result<Vec<u8>, Failure> {
        loop {
            let done = self.connection.wait(PATIENCE)?;
            let side = done.result?.work.side;
            let content = done.received().map(<[u8]>::to_vec);
            let buffer = done.buffer.ok_or("a buffer comes back")?;
            if side != Side::Receive {
                self.spare.push_back(buffer);
                continue;
            }
            let content = content.ok_or("a message fits its buffer")?;
            self.connection.receive(buffer)?;
            return Ok(content);
        }
    }

    /// Waits until all sends have completed.
    fn finish(&mut self) -> Result<(), Failure> {
        while self.connection.in_flight().0 > 0 {
            self.spare.extend(self.connection.wait(PATIENCE)?.buffer);
        }
        Ok(())
    }
}

/// Message `number` of a seed: length and bytes differ from those of the other messages.
fn message(seed: u64, number: usize) -> Vec<u8> {
    let mut state = (seed ^ (number as u64) << 32 | 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56
    };
    let len = 1 + (next() << 8 | next()) as usize % LONGEST;
    (0..len).map(|_| next() as u8).collect()
}

/// Sends `messages` to the other end and back, a window at a time, and checks everything received.
fn echo(near: &mut End, far: &mut End, seed: u64, messages: usize, window: usize) -> Result<(), Failure> {
    for first in (0..messages).step_by(window) {
        let round = first..messages.min(first + window);
        for number in round.clone() {
            near.send(&message(seed, number))?;
        }
        for number in round.clone() {
            let content = far.receive()?;
            if content != message(seed, number) {
                return Err(format!("message {number} is not what was sent").into());
            }
            far.send(&content)?;
        }
        for number in round {
            if near.receive()? != message(seed, number) {
                return Err(format!("message {number} came back as another").into());
            }
        }
        near.finish()?;
        far.finish()?;
    }
    Ok(())
}

/// Intended failures: a command that firmware refuses, and a write that the other end's key does not allow.
fn fail(card: &FunctionHandle, near: &mut End) -> Result<(), Failure> {
    let refusal = Fault::CommandStatus { opcode: Some(Opcode::AllocPd.number() as u16), status: 8, syndrome: 0x1234 };
    card.faults().inject(refusal, Times::Count(1));
    match Pd::alloc(&near.device) {
        Err(Error::Command(refused)) if refused.status().is_some() => {}
        other => return Err(format!("not refused: {other:?}").into()),
    }
    let buffer = near.spare.pop_front().ok_or("a buffer")?;
    let nowhere = RemoteAddress { rkey: 0xdead_be00, addr: 0 };
    match near.connection.write_blocking(buffer, nowhere, PATIENCE) {
        Err(WaitError::Failed { .. }) => Ok(()),
        other => Err(format!("an error completion, not {other:?}").into()),
    }
}

fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let (seed, window) = (arguments.seed, arguments.window.max(1));
    let world = World::new(seed);
    let (cards, cable) = world.simulated().joined([Card::builder(), Card::builder()], Conditions::default())?;
    let (mut near, mut far) = (End::open(&world, &cards[0], window)?, End::open(&world, &cards[1], window)?);
    near.connection.connect(&far.connection.local()?)?;
    far.connection.connect(&near.connection.local()?)?;
    cable.set_conditions(CABLE);
    echo(&mut near, &mut far, seed, arguments.messages, window)?;
    fail(&cards[0].function(0), &mut near)?;
    for End { connection, spare, region, pd, device } in [near, far] {
        drop((connection, spare, region));
        Pd::destroy(pd)?;
        drop(device);
    }
    Ok(Outcome { record: world.simulated().record(), virtual_time: world.clock().now() })
}

fn main() -> ExitCode {
    program::run("virtual_time", || -> Result<(), Failure> {
        let arguments = Arguments::parse();
        let begin = Instant::now();
        let first = run(&arguments)?;
        for _ in 1..arguments.runs {
            let again = run(&arguments)?;
            if again != first {
                return Err(format!("seed {} is not the same every time: {first:?}, {again:?}", arguments.seed).into());
            }
        }
        let wall = begin.elapsed() / arguments.runs.max(1);
        let Record { hash, commands, sent, completions, events, .. } = first.record;
        println!("seed {}: {hash:016x}", arguments.seed);
        println!("{commands} commands, {sent} packets, {completions} CQEs, {events} EQEs");
        let ratio = first.virtual_time.as_secs_f64() / wall.as_secs_f64();
        let (virtual_time, runs) = (first.virtual_time, arguments.runs);
        println!("{virtual_time:.3?} of virtual time in {wall:.3?}, {ratio:.1} times as fast; {runs} runs alike");
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(seed: u64, messages: usize, window: usize) -> Outcome {
        run(&Arguments { seed, messages, window, runs: 1 }).expect("every message arrives")
    }

    #[test]
    fn runs_of_a_seed_are_the_same_and_seeds_differ() {
        let mut hashes = std::collections::BTreeSet::new();
        for seed in 0..8 {
            let first = outcome(seed, 100, 8);
            for _ in 0..4 {
                assert_eq!(outcome(seed, 100, 8), first, "seed {seed}");
            }
            hashes.insert(first.record.hash);
        }
        assert_eq!(hashes.len(), 8);
    }

    /// 10 000 messages there and back, and 1000 of a ping-pong, take less time than they would in reality.
    #[test]
    fn long_runs_are_the_same_and_take_less_than_their_time() {
        for (messages, window) in [(5000, 8), (500, 1)] {
            let (begin, first) = (Instant::now(), outcome(1, messages, window));
            let wall = begin.elapsed();
            let Record { sent, received, completions, .. } = first.record;
            assert!(completions > 4 * messages as u64 && sent > received, "{:?}", first.record);
            assert!(first.virtual_time > wall, "{:?} took {wall:?}", first.virtual_time);
            assert_eq!(outcome(1, messages, window), first);
        }
    }
}
