//! Forwards frames between two functions: what one receives goes out by the other, to the address that stands for it.
//!
//! `l2fwd` alone forwards between two functions of a software card, between two others that send, and check. `l2fwd -d
//! DEVICE --peer DEVICE --to MAC --peer-to MAC`: frames that DEVICE receives go to the peer's `--peer-to`, from the
//! peer's address, and the other way round. Flows are spread over `-q` queues, a thread each. Functions have memory of
//! their own, so a frame is copied once.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Scope;
use std::time::{Duration, Instant};

use clap::Parser;
use mlx5_dv::objects::{Buffer, ExclusiveRegion, Pd, QueueCounter};
use mlx5_dv::queue::ethernet::{EthernetOptions, EthernetQueue, FrameFlags, ReceivedFrame, Spread, SpreadOptions};
use mlx5_dv::queue::{PostError, RefusedReason};
use mlx5_dv::{Device, Mac};
use mlx5_examples::pingpong::Failure;
use mlx5_open::{Sim, program};

/// Buffers posted to receive, and for frames that are sent, of a queue.
const DEPTH: usize = 256;
/// Frames with one doorbell.
const BURST: usize = 32;
/// Timeout of frames of the check.
const PATIENCE: Duration = Duration::from_secs(60);

/// Forwards frames between two functions.
#[derive(Debug, Clone, Parser)]
#[command(name = "l2fwd")]
struct Arguments {
    /// Device: vfio:0000:3b:00.0, devx:mlx5_0, vfio-user:/run/nic.sock; by default functions of a software card.
    #[arg(short, long, requires_all = ["peer", "to", "peer_to"])]
    device: Option<String>,
    /// The other device.
    #[arg(long, requires = "device")]
    peer: Option<String>,
    /// MAC address that frames leaving by the device go to: the host at the other end of its link.
    #[arg(long)]
    to: Option<Mac>,
    /// MAC address that frames leaving by the peer go to: the host at the other end of the peer's link.
    #[arg(long)]
    peer_to: Option<Mac>,
    /// Queues of each function, a thread for both.
    #[arg(short, long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
    queues: u8,
    /// End after so many seconds; without a device, after the check.
    #[arg(short = 't', long)]
    seconds: Option<u64>,
    /// Frames each way of the check on a software card.
    #[arg(short, long, default_value_t = 20_000)]
    iters: u64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    program::run("l2fwd", || match (&arguments.device, &arguments.peer, arguments.to, arguments.peer_to) {
        (Some(near), Some(far), Some(to), Some(peer_to)) => {
            let (near, far) = (mlx5_open::open(near)?, mlx5_open::open(far)?);
            let forwarder = Forwarder::new([(near, to), (far, peer_to)], &arguments)?;
            let deadline = arguments.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
            forwarder.run(|stop| {
                while !stop.load(Ordering::Relaxed) && deadline.is_none_or(|deadline| Instant::now() < deadline) {
                    std::thread::sleep(Duration::from_millis(100));
                }
                Ok(())
            })
        }
        _ => check(&arguments),
    })
}

/// Frames of one way; written by one thread.
#[derive(Default)]
#[repr(align(64))]
struct Counts {
    received: AtomicU64,
    sent: AtomicU64,
    dropped: AtomicU64,
}

fn add(count: &AtomicU64, more: u64) {
    // No other thread writes it.
    count.store(count.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

/// A queue of one function, and its buffers.
struct Port {
    queue: EthernetQueue,
    received: Vec<ReceivedFrame>,
    /// Buffers of frames that were received, to be posted again.
    read: Vec<Buffer>,
    /// Buffers for frames that are sent, and those that are next.
    free: Vec<Buffer>,
    next: Vec<Buffer>,
    /// The start of each frame that it sends: to whom, and from whom.
    addresses: [u8; 12],
}

impl Port {
    fn new(pd: &Arc<Pd>, mut queue: EthernetQueue, to: Mac) -> Result<Self, Failure> {
        let len = queue.sq().longest_frame().next_multiple_of(64);
        let mut free = ExclusiveRegion::allocate(pd, 2 * DEPTH * len)?.buffers(len)?;
        queue.receives().receive_each(&mut free.split_off(DEPTH))?;
        let mut addresses = [0; 12];
        addresses[..6].copy_from_slice(&to.0);
        addresses[6..].copy_from_slice(&pd.device().mac().0);
        let [read, next] = [(); 2].map(|()| Vec::with_capacity(BURST));
        Ok(Port { queue, received: Vec::with_capacity(BURST), read, free, next, addresses })
    }

    /// Sends a burst of what it has received by `other`.
    fn forward(&mut self, other: &mut Port, counts: &Counts) -> Result<bool, Failure> {
        if let Some(failed) = self.queue.poll_into(&mut self.received, &mut self.free, BURST)? {
            failed.result?;
        }
        let received = self.received.len() as u64;
        for frame in self.received.drain(..) {
            if let Some(mut copy) = other.free.pop() {
                copy.set_len(frame.buffer.len());
                copy.as_mut_slice().copy_from_slice(frame.buffer.as_slice());
                copy.as_mut_slice()[..12].copy_from_slice(&other.addresses);
                other.next.push(copy);
            }
            self.read.push(frame.buffer);
        }
        let copied = other.next.len();
        match other.queue.batch().send_each(&mut other.next, FrameFlags::empty()) {
            // What finds no room is dropped, and leaves its buffer.
            Ok(()) | Err(RefusedReason::Post(PostError::Full(_))) => {}
            Err(refused) => return Err(refused.into()),
        }
        let sent = (copied - other.next.len()) as u64;
        other.free.append(&mut other.next);
        self.queue.receives().receive_each(&mut self.read)?;
        if received > 0 {
            add(&counts.received, received);
            add(&counts.sent, sent);
            add(&counts.dropped, received - sent);
        }
        Ok(received > 0)
    }
}

/// Both functions.
struct Forwarder {
    /// A pair for each thread.
    pairs: Vec<[Port; 2]>,
    spreads: Vec<Spread>,
    counters: Vec<Arc<QueueCounter>>,
}

impl Forwarder {
    /// Forwards between two devices; what each sends goes to the address beside it.
    fn new(ends: [(Arc<Device>, Mac); 2], arguments: &Arguments) -> Result<Self, Failure> {
        let (mut ports, mut spreads, mut counters) = (Vec::new(), Vec::new(), Vec::new());
        for (device, to) in ends {
            let pd = Pd::alloc(&device)?;
            let counter = QueueCounter::alloc(&device)?;
            let mut options = EthernetOptions::default();
            (options.send_depth, options.recv_depth) = (DEPTH as u32, DEPTH as u32);
            options.counter = Some(Arc::clone(&counter));
            let queues = EthernetQueue::several(&pd, arguments.queues.into(), &options)?;
            spreads.push(Spread::listen(&queues, &[], SpreadOptions::default())?);
            counters.push(counter);
            ports.push(queues.into_iter().map(|queue| Port::new(&pd, queue, to)).collect::<Result<Vec<_>, _>>()?);
        }
        let far = ports.pop().unwrap_or_default();
        let near = ports.pop().unwrap_or_default();
        Ok(Forwarder { pairs: near.into_iter().zip(far).map(|(near, far)| [near, far]).collect(), spreads, counters })
    }

    /// Forwards, and prints what it does once a second, until `work` returns.
    fn run(self, work: impl FnOnce(&AtomicBool) -> Result<(), Failure>) -> Result<(), Failure> {
        let stop = AtomicBool::new(false);
        let counts: Vec<[Counts; 2]> = self.pairs.iter().map(|_| Default::default()).collect();
        let begin = Instant::now();
        let worked = std::thread::scope(|scope| {
            let threads: Vec<_> =
                self.pairs.into_iter().zip(&counts).map(|(pair, counts)| spawn(scope, pair, counts, &stop)).collect();
            let printer = scope.spawn(|| print(&counts, &self.counters, &stop));
            let worked = work(&stop);
            stop.store(true, Ordering::Relaxed);
            printer.join().map_err(|_| "the thread that prints panicked")??;
            for thread in threads {
                thread.join().map_err(|_| "a thread panicked")??;
            }
            worked
        });
        drop(self.spreads);
        let [near, far] = [0, 1].map(|way| sum(&counts, way));
        println!("in {} ms: {near} and {far}", begin.elapsed().as_millis());
        worked
    }
}

fn spawn<'s>(
    scope: &'s Scope<'s, '_>,
    pair: [Port; 2],
    counts: &'s [Counts; 2],
    stop: &'s AtomicBool,
) -> std::thread::ScopedJoinHandle<'s, Result<(), Failure>> {
    scope.spawn(move || {
        let [mut near, mut far] = pair;
        while !stop.load(Ordering::Relaxed) {
            let turn = |near: &mut Port, far: &mut Port| {
                Ok::<_, Failure>(near.forward(far, &counts[0])? | far.forward(near, &counts[1])?)
            };
            match turn(&mut near, &mut far) {
                Ok(true) => {}
                Ok(false) => std::thread::yield_now(),
                Err(error) => {
                    stop.store(true, Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
        Ok(())
    })
}

/// The frames of one way on all queues.
fn sum(counts: &[[Counts; 2]], way: usize) -> String {
    let all = |count: fn(&Counts) -> &AtomicU64| {
        counts.iter().map(|counts| count(&counts[way]).load(Ordering::Relaxed)).sum::<u64>()
    };
    let [received, sent, dropped] = [all(|c| &c.received), all(|c| &c.sent), all(|c| &c.dropped)];
    format!("{received} received, {sent} sent, {dropped} dropped")
}

/// Prints once a second.
fn print(counts: &[[Counts; 2]], counters: &[Arc<QueueCounter>], stop: &AtomicBool) -> Result<(), Failure> {
    let mut next = Instant::now() + Duration::from_secs(1);
    while !stop.load(Ordering::Relaxed) {
        if Instant::now() < next {
            std::thread::sleep(Duration::from_millis(20));
            continue;
        }
        next += Duration::from_secs(1);
        for (way, counter) in counters.iter().enumerate() {
            println!("function {way}: {}, {} without a receive", sum(counts, way), counter.out_of_buffer()?);
        }
    }
    Ok(())
}

/// On a software card: two more functions send to each other by the forwarder, and check every frame.
fn check(arguments: &Arguments) -> Result<(), Failure> {
    let sim = Sim::builder().functions(4).build()?;
    let devices = (0..4).map(|index| sim.open(index)).collect::<Result<Vec<_>, _>>()?;
    let mac = |index: usize| devices[index].mac();
    // 2 sends to 0, whose frames 1 sends to 3; and back.
    let ends = [(Arc::clone(&devices[0]), mac(2)), (Arc::clone(&devices[1]), mac(3))];
    // Both listen before either sends.
    let queues = [listener(&devices[2])?, listener(&devices[3])?];
    Forwarder::new(ends, arguments)?.run(|stop| {
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for (queue, via) in queues.into_iter().zip([mac(0), mac(1)]) {
                threads.push(scope.spawn(move || exchange(queue, via, arguments.iters, stop)));
            }
            threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
        })
    })
}

/// A queue of `device` that receives what is sent to it.
fn listener(device: &Arc<Device>) -> Result<EthernetQueue, Failure> {
    let pd = Pd::alloc(device)?;
    let mut options = EthernetOptions::default();
    (options.recv_depth, options.inline_bytes) = (DEPTH as u32, 128);
    let mut queue = EthernetQueue::new(&pd, options)?;
    let len = queue.sq().longest_frame().next_multiple_of(64);
    for buffer in ExclusiveRegion::allocate(&pd, DEPTH * len)?.buffers(len)?.into_iter().take(DEPTH) {
        queue.receive(buffer)?;
    }
    queue.listen(&[])?;
    Ok(queue)
}

/// Sends `count` datagrams to `via`, and receives as many from there, each once, whole.
fn exchange(mut queue: EthernetQueue, via: Mac, count: u64, stop: &AtomicBool) -> Result<(), Failure> {
    const FLOWS: u64 = 64;
    let own = queue.sq().device().mac();
    let mut seen = vec![false; count as usize];
    let (mut sent, mut heard, mut last) = (0, 0, Instant::now());
    // The other end waits for what this one sends: it leaves when all of it is out, too.
    let is_done = |sent, heard, queue: &EthernetQueue| sent == count && heard == count && queue.in_flight().0 == 0;
    while !is_done(sent, heard, &queue) && !stop.load(Ordering::Relaxed) {
        if last.elapsed() > PATIENCE {
            return Err(format!("{heard} of {count} frames arrived, {sent} were sent").into());
        }
        // Never more under way than the forwarder and the other end have receives for.
        if sent < count && sent < heard + DEPTH as u64 / 4 && queue.in_flight().0 < 64 {
            queue.send_inline(&datagram(via, own, sent % FLOWS, sent), FrameFlags::empty())?;
            sent += 1;
        }
        let Some(done) = queue.poll()? else {
            std::thread::yield_now();
            continue;
        };
        done.result?;
        if let Some(frame) = done.received() {
            let number =
                frame.get(42..50).and_then(|bytes| bytes.first_chunk()).map_or(count, |n| u64::from_be_bytes(*n));
            let expected = datagram(own, via, number % FLOWS, number);
            // Only the addresses are others than the other end sent.
            if frame[..6] != expected[..6] || frame[12..] != expected[12..] {
                return Err(format!("received {frame:02x?} instead of {expected:02x?}").into());
            }
            if std::mem::replace(&mut seen[number as usize], true) {
                return Err(format!("frame {number} came twice").into());
            }
            (heard, last) = (heard + 1, Instant::now());
        }
        if let Some(buffer) = done.buffer {
            queue.receive(buffer)?;
        }
    }
    Ok(())
}

/// A datagram of a flow over IPv4, without a checksum of its own, with a number in it.
fn datagram(to: Mac, from: Mac, flow: u64, number: u64) -> Vec<u8> {
    let ip = [0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0x26, 0xbd, 10, 0, 0, 2, 10, 0, 0, 1];
    let ports_and_length = [0x40, flow as u8, 0x13, 0x89, 0, 26, 0, 0];
    let mut frame = [&to.0[..], &from.0, &[8, 0], &ip, &ports_and_length, &number.to_be_bytes()].concat();
    frame.resize(60, number as u8);
    frame
}
