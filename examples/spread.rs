//! Spreads UDP flows over several queues by a hash (RSS), a thread for each queue, and changes the table meanwhile.
//!
//! `spread` (two functions of the software card), or `spread -d DEVICE --peer DEVICE`: the peer sends. Each flow stays
//! on one queue until the table changes; then all flows go to the last queue.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use mlx5_dv::objects::{AccessFlags, MemoryRegion, Pd};
use mlx5_dv::queue::ethernet::{EthernetOptions, EthernetQueue, FrameFlags, Spread, SpreadOptions};
use mlx5_dv::{Device, Mac};
use mlx5_examples::pingpong::Failure;
use mlx5_open::{Sim, program};

/// Receives posted on each queue.
const DEPTH: usize = 64;
/// Bytes of a frame without the check sequence.
const FRAME: usize = 60;
/// Where the UDP source port, which names the flow, is in a frame.
const SOURCE_PORT: usize = 34;
/// Timeout of everything.
const PATIENCE: Duration = Duration::from_secs(60);

/// Spreads UDP flows over several queues, a thread each.
#[derive(Debug, Parser)]
#[command(name = "spread")]
struct Arguments {
    /// Device: vfio:0000:3b:00.0, devx:mlx5_0, vfio-user:/run/nic.sock; by default two functions of a software card.
    #[arg(short, long, requires = "peer")]
    device: Option<String>,
    /// The device on the same wire that sends.
    #[arg(long, requires = "device")]
    peer: Option<String>,
    /// Queues that receive.
    #[arg(short, long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    queues: u8,
    /// UDP flows.
    #[arg(short, long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4096))]
    flows: u16,
    /// Frames of each flow.
    #[arg(short, long, default_value_t = 20)]
    iters: u32,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    program::run("spread", || run(&arguments))
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let (near, far) = match (&arguments.device, &arguments.peer) {
        (Some(near), Some(far)) => (mlx5_open::open(near)?, mlx5_open::open(far)?),
        _ => {
            let sim = Sim::builder().functions(2).build()?;
            (sim.open(0)?, sim.open(1)?)
        }
    };
    let pd = Pd::alloc(&near)?;
    let mut queues = EthernetQueue::several(&pd, arguments.queues.into(), &EthernetOptions::default())?;
    queues.iter_mut().try_for_each(|queue| post(&pd, queue))?;
    let spread = Spread::listen(&queues, &[], SpreadOptions::default())?;
    let counts: Vec<Flows> = queues.iter().map(|_| Flows::new(arguments.flows)).collect();
    let stop = &AtomicBool::new(false);
    let mut sender = Sender::new(&far, near.mac())?;
    std::thread::scope(|scope| {
        let receive = |(queue, flows)| scope.spawn(move || receive(queue, flows, stop));
        let threads: Vec<_> = queues.into_iter().zip(&counts).map(receive).collect();
        let sent = work(arguments, &mut sender, &spread, &counts);
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().map_err(|_| "a thread panicked")??;
        }
        sent
    })
}

/// Frames of each flow that a queue got.
struct Flows(Vec<AtomicU64>);

impl Flows {
    fn new(count: u16) -> Self {
        Flows((0..count).map(|_| AtomicU64::new(0)).collect())
    }

    fn of(&self, flow: usize) -> u64 {
        self.0[flow].load(Ordering::Relaxed)
    }

    fn sum(&self) -> u64 {
        (0..self.0.len()).map(|flow| self.of(flow)).sum()
    }
}

/// Sends all flows in turn, then once more when the table sends all to the last queue; checks where they arrived.
fn work(arguments: &Arguments, sender: &mut Sender, spread: &Spread, counts: &[Flows]) -> Result<(), Failure> {
    let frames = u64::from(arguments.flows) * u64::from(arguments.iters);
    send(arguments, sender, counts, frames)?;
    for flow in 0..arguments.flows.into() {
        let found: Vec<_> = counts.iter().map(|queue| queue.of(flow)).filter(|&count| count > 0).collect();
        if found != [u64::from(arguments.iters)] {
            return Err(format!("frames of flow {flow} on {} queues: {found:?}", found.len()).into());
        }
    }
    let by_queue: Vec<_> = counts.iter().map(|queue| queue.sum().to_string()).collect();
    println!("{frames} frames of {} flows, each on one queue; by queue: {}", arguments.flows, by_queue.join(" "));

    let last = counts.len() - 1;
    let before = counts[last].sum();
    spread.set(&[last])?;
    let table = spread.rqt().query()?;
    let wanted: Vec<u32> = spread.rqt().rqs().iter().map(|rq| rq.rqn()).collect();
    if table != wanted {
        return Err(format!("the card's table is of the queues {table:?}, not {wanted:?}").into());
    }
    send(arguments, sender, counts, 2 * frames)?;
    match counts[last].sum() - before {
        count if count == frames => println!("with a table of the last queue alone: {count} frames there"),
        count => return Err(format!("{count} of {frames} frames on the last queue").into()),
    }
    Ok(())
}

/// Sends each flow's frames, and waits until all queues together have `expected`.
fn send(arguments: &Arguments, sender: &mut Sender, counts: &[Flows], expected: u64) -> Result<(), Failure> {
    let begin = Instant::now();
    let received = || counts.iter().map(Flows::sum).sum::<u64>();
    let start = received();
    let mut sent = 0;
    for _ in 0..arguments.iters {
        for flow in 0..arguments.flows {
            sender.send(flow)?;
            sent += 1;
            // Never more under way than one queue has receives for.
            while sent - (received() - start) >= DEPTH as u64 && begin.elapsed() < PATIENCE {
                std::thread::yield_now();
            }
        }
    }
    while received() < expected {
        if begin.elapsed() > PATIENCE {
            return Err(format!("{} of {expected} frames arrived", received()).into());
        }
        std::thread::yield_now();
    }
    Ok(())
}

/// Posts the receives of one queue.
fn post(pd: &Arc<Pd>, queue: &mut EthernetQueue) -> Result<(), Failure> {
    let len = queue.sq().longest_frame().next_multiple_of(64);
    let region = MemoryRegion::allocate(pd, DEPTH * len, AccessFlags::LOCAL_WRITE)?;
    for buffer in region.buffers(len)?.into_iter().take(DEPTH) {
        queue.receive(buffer)?;
    }
    Ok(())
}

/// Counts the frames of one queue.
fn receive(mut queue: EthernetQueue, flows: &Flows, stop: &AtomicBool) -> Result<(), Failure> {
    while !stop.load(Ordering::Relaxed) {
        let Some(done) = queue.poll()? else {
            std::thread::yield_now();
            continue;
        };
        let completion = done.result?;
        let Some(buffer) = done.buffer else { continue };
        let mut port = [0; 2];
        if completion.byte_len as usize == FRAME {
            buffer.read(SOURCE_PORT, &mut port);
        }
        let count = flows.0.get(usize::from(u16::from_be_bytes(port)).wrapping_sub(1));
        // Posted before it is counted: the sender relies on it.
        queue.receive(buffer)?;
        count.into_iter().for_each(|count| _ = count.fetch_add(1, Ordering::Relaxed));
    }
    Ok(())
}

/// The peer's queue.
struct Sender {
    queue: EthernetQueue,
    frame: Vec<u8>,
}

impl Sender {
    fn new(device: &Arc<Device>, to: Mac) -> Result<Self, Failure> {
        let mut options = EthernetOptions::default();
        options.inline_bytes = FRAME as u16;
        let queue = EthernetQueue::new(&Pd::alloc(device)?, options)?;
        Ok(Sender { queue, frame: udp(to, device.mac()) })
    }

    /// Sends a frame of `flow`, whose source port is one more, and waits for its completion.
    fn send(&mut self, flow: u16) -> Result<(), Failure> {
        self.frame[SOURCE_PORT..SOURCE_PORT + 2].copy_from_slice(&(flow + 1).to_be_bytes());
        self.queue.send_inline(&self.frame, FrameFlags::empty())?;
        self.queue.wait(PATIENCE)?.result?;
        Ok(())
    }
}

/// A UDP datagram of 18 bytes over IPv4, without a checksum of its own, from 10.0.0.2 to 10.0.0.1.
fn udp(to: Mac, from: Mac) -> Vec<u8> {
    let ip = [0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0x26, 0xbd, 10, 0, 0, 2, 10, 0, 0, 1];
    let ports_and_length = [0, 0, 0x13, 0x89, 0, 26, 0, 0];
    let mut frame = [&to.0[..], &from.0, &[8, 0], &ip, &ports_and_length].concat();
    frame.resize(FRAME, 0x55);
    frame
}
