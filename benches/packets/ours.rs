//! Cost of 64-byte frames with mlx5-dv: `packets_ours TESTED FAR FORM COLUMN`.
//!
//! Does the same as dpdk.c, in the same order, and prints the same lines: "row column instructions-per-frame". The
//! time stamp counter serves as an instruction counter, as it does under QEMU's `-icount`. The first device is
//! measured, the other sends what it receives and takes what it sends.

mod forms;
mod stage;

use std::io::{BufRead, Write};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use forms::{Buffers, Bursts, Form, InPlace, Packets, Queues, Sender};
use mlx5_benches::Failure;
use mlx5_benches::ticks::of_nothing;
use mlx5_dv::Device;
use mlx5_dv::objects::{ExclusiveRegion, FlowRule, Pd};
use mlx5_dv::queue::ethernet::{EthernetOptions, EthernetQueue};
use stage::{DEPTH, ETHERTYPE, FRAME, Frame, MOST, NOBODY, SOURCE, steer};

/// Frames of a round.
const ROUND: usize = 256;
const WARM_UP: usize = 2;
const ROUNDS: usize = 9;
const PATIENCE: Duration = Duration::from_secs(60);
const FORMS: &str = "buffers, packets, bursts, in-place, bursts-compressed, in-place-compressed";

/// A frame with a number in it.
fn frame(number: u32) -> Frame {
    let mut frame = [0x5a; FRAME];
    frame[..6].copy_from_slice(&NOBODY.0);
    frame[6..12].copy_from_slice(&SOURCE);
    frame[12..14].copy_from_slice(&ETHERTYPE.to_be_bytes());
    frame[14..18].copy_from_slice(&number.to_ne_bytes());
    frame
}

/// The other end.
struct Far {
    _rule: FlowRule,
    queue: EthernetQueue,
    sender: Sender,
}

impl Far {
    fn new(device: &Arc<Device>) -> Result<Self, Failure> {
        let pd = Pd::alloc(device)?;
        let mut queue = EthernetQueue::new(&pd, EthernetOptions::default().recv_depth(DEPTH))?;
        for buffer in ExclusiveRegion::allocate(&pd, DEPTH as usize * 2048)?.buffers(2048)? {
            queue.receive(buffer)?;
        }
        Ok(Far { _rule: steer(queue.tir())?, sender: Sender::new(&pd, queue.tir())?, queue })
    }

    /// Sends frames, several to a work request as DPDK does. Those before them have arrived.
    fn offer(&mut self, count: usize, number: u32) -> Result<(), Failure> {
        let frames: [Frame; MOST] = std::array::from_fn(|at| frame(number + at as u32));
        self.sender.send(&frames[..count])
    }

    /// Takes exactly so many frames, and looks at each.
    fn take(&mut self, count: usize, number: u32) -> Result<(), Failure> {
        let (mut taken, deadline) = (0, Instant::now() + PATIENCE);
        while taken < count {
            let Some(done) = self.queue.poll()? else {
                if Instant::now() > deadline {
                    return Err(format!("{taken} of {count} frames came").into());
                }
                sleep(Duration::from_micros(100));
                continue;
            };
            if let Some(received) = done.received() {
                let expected = frame(number + taken as u32);
                if received != expected {
                    return Err(format!("received {received:02x?} instead of {expected:02x?}").into());
                }
                taken += 1;
                self.queue.receive(done.buffer.ok_or("a received frame has a buffer")?)?;
            }
        }
        Ok(())
    }
}

/// What is measured.
#[derive(Clone, Copy)]
enum Operation {
    Forward,
    Receive,
    Send,
}

impl Operation {
    const ALL: [Operation; 3] = [Operation::Forward, Operation::Receive, Operation::Send];

    fn name(self) -> &'static str {
        match self {
            Operation::Forward => "forward",
            Operation::Receive => "receive",
            Operation::Send => "send",
        }
    }
}

struct Bench<F> {
    form: F,
    far: Far,
    /// Number of the next frame.
    number: u32,
    /// Wait between a burst and its polls.
    pause: Duration,
    /// Ticks between two reads of the counter.
    nothing: u64,
}

impl<F: Form> Bench<F> {
    /// Ticks of a round; `None` if a burst was polled too early.
    fn round(&mut self, operation: Operation, burst: usize) -> Result<Option<u64>, Failure> {
        let mut sum = 0;
        for _ in 0..ROUND / burst {
            let number = self.number;
            self.number += burst as u32;
            if let Operation::Send = operation {
                let frames: [Frame; MOST] = std::array::from_fn(|i| frame(number + i as u32));
                sum += self.form.send(&frames[..burst])? - self.nothing;
                self.far.take(burst, number)?;
                continue;
            }
            self.far.offer(burst, number)?;
            sleep(self.pause);
            let (mut got, mut ticks, deadline) = (0, 0, Instant::now() + PATIENCE);
            while got < burst {
                let (some, more) = match operation {
                    Operation::Forward => self.form.forward(burst - got)?,
                    _ => self.form.receive(burst - got)?,
                };
                if some == burst {
                    ticks = more;
                }
                got += some;
                if Instant::now() > deadline {
                    return Err(format!("{got} of {burst} frames came").into());
                }
            }
            if let Operation::Forward = operation {
                self.far.take(burst, number)?;
            }
            if ticks == 0 {
                self.pause = (2 * self.pause).min(Duration::from_millis(100));
                return Ok(None);
            }
            sum += ticks - self.nothing;
        }
        Ok(Some(sum))
    }

    /// A round of which no burst was polled too early.
    fn whole_round(&mut self, operation: Operation, burst: usize) -> Result<u64, Failure> {
        for _ in 0..10 {
            if let Some(ticks) = self.round(operation, burst)? {
                return Ok(ticks);
            }
        }
        Err("frames are always late".into())
    }

    fn measure(&mut self, operation: Operation, burst: usize, column: &str) -> Result<(), Failure> {
        for _ in 0..WARM_UP {
            self.whole_round(operation, burst)?;
        }
        let (name, first) = (operation.name(), self.number);
        mark(&format!("begin {name}/{burst} 0"))?;
        let mut samples = (0..ROUNDS).map(|_| self.whole_round(operation, burst)).collect::<Result<Vec<_>, _>>()?;
        mark(&format!("end {name}/{burst} {}", self.number - first))?;
        samples.sort_unstable();
        println!("{name}/{burst} {column} {:.2}", samples[ROUNDS / 2] as f64 / ROUND as f64);
        Ok(())
    }
}

/// Says that a row begins or ends, and waits until what crossed PCIe was read.
fn mark(line: &str) -> Result<(), Failure> {
    println!("{line}");
    std::io::stdout().flush()?;
    std::io::stdin().lock().read_line(&mut String::new())?;
    Ok(())
}

fn measure<F: Form>(form: F, far: &Arc<Device>, column: &str) -> Result<(), Failure> {
    let far = Far::new(far)?;
    let mut bench = Bench { form, far, number: 0, pause: Duration::from_micros(200), nothing: of_nothing() };
    for operation in Operation::ALL {
        for burst in [1, 8, 32, 64] {
            bench.measure(operation, burst, column)?;
        }
    }
    println!("done");
    Ok(())
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [tested, far, form, column] = &arguments[..] else {
        return Err(format!("usage: packets_ours TESTED FAR FORM COLUMN, with a form of {FORMS}").into());
    };
    let (tested, far) = (mlx5_open::open(tested)?, mlx5_open::open(far)?);
    match form.as_str() {
        "buffers" => measure(Buffers::new(&tested)?, &far, column),
        "packets" => measure(Packets::new(Queues::new(&tested)?), &far, column),
        "bursts" => measure(Bursts(Queues::new(&tested)?), &far, column),
        "in-place" => measure(InPlace::new(Queues::new(&tested)?)?, &far, column),
        "bursts-compressed" => measure(Bursts(Queues::compressed(&tested)?), &far, column),
        "in-place-compressed" => measure(InPlace::new(Queues::compressed(&tested)?)?, &far, column),
        other => Err(format!("unknown form {other:?}: one of {FORMS}").into()),
    }
}
