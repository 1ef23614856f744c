//! A market data handler: ticks arrive by UDP multicast, gaps in their numbers are told, and some are answered by an
//! order. The time from a tick to its order is measured by the card's clock, in the completions of both.
//!
//! `marketdata` (two functions of the software card), or `marketdata -d DEVICE --peer DEVICE`: the peer is the
//! exchange, which sends the ticks, leaves some out, and checks the orders.

use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use mlx5_dv::objects::{ExclusiveRegion, Pd};
use mlx5_dv::queue::Side;
use mlx5_dv::queue::ethernet::{EthernetOptions, EthernetQueue, FrameFlags};
use mlx5_dv::{Device, Mac, Timestamp};
use mlx5_examples::pingpong::Failure;
use mlx5_open::{Sim, program};

/// Receives posted.
const DEPTH: usize = 256;
/// Timeout of one tick or order.
const PATIENCE: Duration = Duration::from_secs(60);
/// The group of the ticks, and both ports.
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
const TICKS: u16 = 14310;
const ORDERS: u16 = 14311;
/// Bytes of Ethernet, IPv4 and UDP headers.
const HEADERS: usize = 42;
/// Bytes of a tick or an order: a number, and a price.
const MESSAGE: usize = 16;
/// A tick of at least this price is answered.
const LIMIT: u64 = 90;

/// Receives ticks by multicast, and answers some by orders.
#[derive(Debug, Parser)]
#[command(name = "marketdata")]
struct Arguments {
    /// Device: vfio:0000:3b:00.0, devx:mlx5_0, vfio-user:/run/nic.sock; by default two functions of a software card.
    #[arg(short, long, requires = "peer")]
    device: Option<String>,
    /// The device on the same wire that is the exchange.
    #[arg(long, requires = "device")]
    peer: Option<String>,
    /// Number of ticks.
    #[arg(short, long, default_value_t = 10_000)]
    iters: u64,
    /// The exchange leaves out every so many-th tick; 0 for none.
    #[arg(long, default_value_t = 100)]
    lose: u64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    program::run("marketdata", || {
        let (near, far) = match (&arguments.device, &arguments.peer) {
            (Some(near), Some(far)) => (mlx5_open::open(near)?, mlx5_open::open(far)?),
            _ => {
                let sim = Sim::builder().functions(2).build()?;
                (sim.open(0)?, sim.open(1)?)
            }
        };
        let (mut trader, mut exchange) = (End::new(&near, &[Mac::of_group(GROUP.into())])?, End::new(&far, &[])?);
        // How many ticks the trader has taken: the exchange never is too far ahead, so none is lost by the way.
        let (taken, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            // Whoever fails stops the other.
            let exchange = scope.spawn(|| {
                let sent = exchange.send_ticks(&arguments, near.mac(), &taken, &stop);
                sent.inspect_err(|_| stop.store(true, Ordering::Relaxed))
            });
            let traded = trader.trade(&arguments, far.mac(), &taken, &stop);
            let traded = traded.inspect_err(|_| stop.store(true, Ordering::Relaxed));
            let orders = exchange.join().map_err(|_| "the exchange panicked")??;
            traded?.print(&near, orders)
        })
    })
}

/// Whether tick `number` is left out.
fn is_lost(arguments: &Arguments, number: u64) -> bool {
    arguments.lose > 0 && number % arguments.lose == arguments.lose - 1
}

/// The price of tick `number`.
fn price(number: u64) -> u64 {
    number.wrapping_mul(7919) % 100
}

/// What the trader has seen.
struct Traded {
    ticks: u64,
    /// Runs of numbers that never came, and how many they are.
    gaps: u64,
    missed: u64,
    /// Times of a tick, and of its order.
    answers: Vec<(Timestamp, Timestamp)>,
}

impl Traded {
    fn print(mut self, device: &Device, orders: u64) -> Result<(), Failure> {
        println!("{} ticks, {} gaps of {} ticks, {} orders", self.ticks, self.gaps, self.missed, self.answers.len());
        if orders != self.answers.len() as u64 {
            return Err(format!("{orders} of {} orders arrived", self.answers.len()).into());
        }
        let rate = device.clock_rate()?;
        let mut times: Vec<_> = self.answers.drain(..).map(|(tick, order)| rate.between(tick, order)).collect();
        times.sort_unstable();
        if let [first, .., last] = times[..] {
            let median = times[times.len() / 2];
            println!("tick to trade by the card's clock: {first:?} at least, {median:?} median, {last:?} at most");
        }
        Ok(())
    }
}

/// One end: its queue.
struct End {
    queue: EthernetQueue,
}

impl End {
    fn new(device: &Arc<Device>, groups: &[Mac]) -> Result<Self, Failure> {
        let pd = Pd::alloc(device)?;
        let mut options = EthernetOptions::default();
        (options.recv_depth, options.inline_bytes) = (DEPTH as u32, (HEADERS + MESSAGE) as u16);
        let mut queue = EthernetQueue::new(&pd, options)?;
        let len = queue.sq().longest_frame().next_multiple_of(64);
        for buffer in ExclusiveRegion::allocate(&pd, DEPTH * len)?.buffers(len)?.into_iter().take(DEPTH) {
            queue.receive(buffer)?;
        }
        queue.listen(groups)?;
        Ok(End { queue })
    }

    /// Takes ticks until the last; answers those above the limit.
    fn trade(
        &mut self,
        arguments: &Arguments,
        exchange: Mac,
        taken: &AtomicU64,
        stop: &AtomicBool,
    ) -> Result<Traded, Failure> {
        // All but number and price is there before a tick comes.
        let mut order = frame((exchange, self.queue.device().mac()), Ipv4Addr::new(10, 0, 0, 2), ORDERS);
        let answers = Vec::with_capacity(arguments.iters as usize);
        let mut traded = Traded { ticks: 0, gaps: 0, missed: 0, answers };
        let (mut next, mut last, mut in_flight) = (0, Instant::now(), std::collections::VecDeque::with_capacity(DEPTH));
        while next < arguments.iters || !in_flight.is_empty() {
            if stop.load(Ordering::Relaxed) || last.elapsed() > PATIENCE {
                return Err(format!("tick {next} did not come, of {}", arguments.iters).into());
            }
            let Some(done) = self.queue.poll()? else {
                std::hint::spin_loop();
                continue;
            };
            let told = done.result?;
            if told.work.side == Side::Send {
                // Sends complete in order.
                traded.answers.extend(in_flight.pop_front().map(|tick| (tick, told.timestamp)));
                continue;
            }
            if let Some((number, price)) = done.received().and_then(|frame| message(frame, TICKS)) {
                last = Instant::now();
                if number >= next {
                    if price >= LIMIT {
                        order[HEADERS..HEADERS + 8].copy_from_slice(&number.to_be_bytes());
                        order[HEADERS + 8..].copy_from_slice(&price.to_be_bytes());
                        self.queue.send_inline(&order, FrameFlags::empty())?;
                        in_flight.push_back(told.timestamp);
                    }
                    (traded.gaps, traded.missed) =
                        (traded.gaps + u64::from(number > next), traded.missed + number - next);
                    (traded.ticks, next) = (traded.ticks + 1, number + 1);
                    taken.store(next, Ordering::Release);
                }
            }
            if let Some(buffer) = done.buffer {
                self.queue.receive(buffer)?;
            }
        }
        Ok(traded)
    }

    /// Sends the ticks, and checks the orders; returns their number.
    fn send_ticks(
        &mut self,
        arguments: &Arguments,
        trader: Mac,
        taken: &AtomicU64,
        stop: &AtomicBool,
    ) -> Result<u64, Failure> {
        let mut tick = frame((Mac::of_group(GROUP.into()), self.queue.device().mac()), GROUP, TICKS);
        // The last tick is never left out, so that the trader sees the end.
        let is_sent = |number| number + 1 == arguments.iters || !is_lost(arguments, number);
        let expected = (0..arguments.iters).filter(|&number| is_sent(number) && price(number) >= LIMIT).count() as u64;
        let (mut number, mut orders, mut last) = (0, 0, Instant::now());
        while (number < arguments.iters || orders < expected) && last.elapsed() < PATIENCE {
            let is_near = number < taken.load(Ordering::Acquire) + DEPTH as u64 / 2;
            if number < arguments.iters && is_near && self.queue.in_flight().0 < 64 {
                if is_sent(number) {
                    tick[HEADERS..HEADERS + 8].copy_from_slice(&number.to_be_bytes());
                    tick[HEADERS + 8..].copy_from_slice(&price(number).to_be_bytes());
                    self.queue.send_inline(&tick, FrameFlags::empty())?;
                }
                (number, last) = (number + 1, Instant::now());
            }
            let Some(done) = self.queue.poll()? else {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                std::thread::yield_now();
                continue;
            };
            done.result?;
            if let Some((answered, at)) = done.received().and_then(|frame| message(frame, ORDERS)) {
                if at != price(answered) || at < LIMIT {
                    return Err(format!("{trader} orders tick {answered} at {at}, not {}", price(answered)).into());
                }
                (orders, last) = (orders + 1, Instant::now());
            }
            if let Some(buffer) = done.buffer {
                self.queue.receive(buffer)?;
            }
        }
        Ok(orders)
    }
}

/// A datagram without its message, and without a checksum of its own.
fn frame((to, from): (Mac, Mac), group: Ipv4Addr, port: u16) -> Vec<u8> {
    let len = (HEADERS - 14 + MESSAGE) as u16;
    let mut ip = [0x45, 0, 0, 0, 0, 0, 0x40, 0, 16, 17, 0, 0, 10, 0, 0, 1, 0, 0, 0, 0];
    ip[2..4].copy_from_slice(&len.to_be_bytes());
    ip[16..].copy_from_slice(&group.octets());
    let sum: u32 = ip.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let udp = [port, port, len - 20, 0].map(u16::to_be_bytes).concat();
    [&to.0[..], &from.0, &[8, 0], &ip, &udp, &[0; MESSAGE]].concat()
}

/// Number and price of a frame to `port`.
fn message(frame: &[u8], port: u16) -> Option<(u64, u64)> {
    let number = |at: usize| Some(u64::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    let is_ours = frame.get(12..14) == Some(&[8, 0]) && frame.get(36..38) == Some(&port.to_be_bytes());
    if is_ours { Some((number(HEADERS)?, number(HEADERS + 8)?)) } else { None }
}
