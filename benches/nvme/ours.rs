//! Cost of I/O by mlx5-nvme: `nvme_ours DEVICE TARGET NQN standing|each read|write DEPTH ROUNDS`.
//!
//! Does the same as kernel.c in its mode `poll`, and prints the same: instructions for each I/O. A round is DEPTH I/Os;
//! submitting and polling are counted, waiting is not. The keys are standing ones, or one for each command.

use std::net::SocketAddr;
use std::time::Duration;

use mlx5_benches::ticks::{of_nothing, ticks};
use mlx5_benches::{Failure, median};
use mlx5_nvme::{Completed, ControllerOptions, DataPlacement, Host, HostOptions, IoBuffer, IoQueue, Namespace};

/// Bytes of an I/O.
const BYTES: usize = 4096;
/// Places of the disk that are used.
const PLACES: u64 = 4096;
/// Rounds that are not counted.
const WARM_UP: usize = 5;
/// How long the processor is idle between submitting and polling.
const WAIT: Duration = Duration::from_millis(20);
/// Rounds in which an answer may be late, for each that is counted.
const LATE: usize = 10;

/// A queue whose commands are all done.
struct Stage {
    queue: IoQueue,
    namespace: Namespace,
    buffers: Vec<IoBuffer>,
    is_write: bool,
    /// Of the last I/O.
    place: u64,
}

impl Stage {
    /// One I/O for each buffer.
    #[inline(never)]
    fn submit(&mut self) -> Result<(), Failure> {
        let blocks = BYTES as u64 / u64::from(self.namespace.block_size);
        for (number, buffer) in self.buffers.drain(..).enumerate() {
            self.place = (self.place + 7) % PLACES;
            let (namespace, lba) = (&self.namespace, self.place * blocks);
            match self.is_write {
                true => self.queue.write(namespace, lba, buffer, number as u64)?,
                false => self.queue.read(namespace, lba, buffer, number as u64)?,
            }
        }
        Ok(())
    }

    /// Takes `depth` answers. Returns how often one was not there yet.
    #[inline(never)]
    fn take(&mut self, depth: usize) -> Result<usize, Failure> {
        let (mut late, mut sum) = (0, 0);
        while self.buffers.len() < depth {
            let Some(Completed { user, buffer, status, .. }) = self.queue.poll()? else {
                late += 1;
                continue;
            };
            if !status.is_success() {
                return Err(format!("an I/O failed: {status}").into());
            }
            self.buffers.extend(buffer);
            sum += user as usize;
        }
        if sum == depth * (depth - 1) / 2 { Ok(late) } else { Err("answers to other commands".into()) }
    }

    /// Instructions for each I/O of a round; `None` if an answer was late.
    fn round(&mut self, depth: usize, nothing: u64) -> Result<Option<f64>, Failure> {
        let start = ticks();
        self.submit()?;
        let submitted = ticks() - start - nothing;
        std::thread::sleep(WAIT);
        let start = ticks();
        let late = self.take(depth)?;
        let taken = ticks() - start - nothing;
        Ok((late == 0).then(|| (submitted + taken) as f64 / depth as f64))
    }
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [device, target, nqn, keys, operation, depth, rounds] = &arguments[..] else {
        return Err("usage: nvme_ours DEVICE TARGET NQN standing|each read|write DEPTH ROUNDS".into());
    };
    let (depth, rounds): (usize, usize) = (depth.parse()?, rounds.parse()?);
    let target: SocketAddr = target.parse()?;
    let mut options = ControllerOptions::default();
    options.keep_alive = Duration::ZERO;
    options.placement = if keys == "each" { DataPlacement::FastKey } else { DataPlacement::StandingKey };
    let device = mlx5_open::open(device)?;
    let mut host = Host::new(&device, None, HostOptions::default())?;
    let mut controller = host.connect(target, nqn, options)?;
    let namespace = *controller.namespaces(&mut host)?.first().ok_or("the subsystem has no namespace")?;
    let queue = controller.io_queue(&mut host)?;
    let buffers = queue.buffers(depth, BYTES)?;
    let mut stage = Stage { queue, namespace, buffers, is_write: operation == "write", place: 0 };

    let (nothing, mut samples) = (of_nothing(), Vec::new());
    for round in 0..WARM_UP + rounds * LATE {
        let sample = stage.round(depth, nothing)?;
        if round >= WARM_UP {
            samples.extend(sample);
        }
        if samples.len() == rounds {
            println!("{:.1}", median(&mut samples));
            drop(stage);
            return Ok(controller.disconnect(&mut host)?);
        }
    }
    Err(format!("only {} of {} rounds had all answers in time", samples.len(), rounds * LATE).into())
}
