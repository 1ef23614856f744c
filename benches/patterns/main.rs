//! What the patterns cost: instructions of a processor for an I/O of NVMe over RDMA, counted by callgrind, on the host
//! and on the target, without the card and without the disk's own work beyond a copy; and for a transfer of Lustre's
//! network driver.
//!
//! `cargo bench -p mlx5-benches --bench patterns` measures. Without `--bench` (as in `cargo test --all-targets`) a
//! short run checks that it works. README.md explains the figures.

mod lnet;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mlx5_benches::{Failure, callgrind};
use mlx5_nvme::{
    Controller, ControllerOptions, DataPlacement, Host, HostOptions, IoBuffer, IoQueue, Namespace, RamDisk, Target,
    TargetOptions,
};
use mlx5_open::virtual_time::World;
use mlx5_sim::card::Card;
use mlx5_sim::world::Conditions;

/// Argument for the child process that counts.
const ARGUMENT: &str = "--count";
const NQN: &str = "nqn.2014-08.example:bench";
/// Bytes of an I/O.
const BYTES: usize = 4096;
/// I/Os under way at once.
const BATCH: usize = 32;
const STEP: Duration = Duration::from_micros(20);
/// Batches before the one that counts.
const WARM: usize = 3;

#[derive(Clone, Copy, PartialEq)]
enum Io {
    Read,
    Write,
}

/// Name, operation, where the data is, and whether it may be in the capsule.
const CASES: [(&str, Io, DataPlacement, bool); 5] = [
    ("read, standing key", Io::Read, DataPlacement::StandingKey, true),
    ("read, key for each command", Io::Read, DataPlacement::FastKey, true),
    ("write in the capsule", Io::Write, DataPlacement::StandingKey, true),
    ("write, standing key", Io::Write, DataPlacement::StandingKey, false),
    ("write, key for each command", Io::Write, DataPlacement::FastKey, false),
];

/// Queues of a host that are used in turn, for growth: reads by a standing key.
const QUEUES: [usize; 4] = [1, 4, 16, 64];

/// A host posts so many receives of a queue again at once.
const REPOSTED: usize = 16;

/// Batches that count with `count` queues: each queue posts its receives again.
fn batches(count: usize) -> usize {
    (count * REPOSTED).div_ceil(BATCH)
}

/// The name of such a batch.
fn of_queues(count: usize, batch: usize) -> String {
    format!("{count} queues, batch {batch}")
}

/// Turns of the target, which are counted one by one.
const TURNS: [&str; 3] = ["target, first turn", "target, second turn", "target, third turn"];

fn main() -> Result<(), Failure> {
    let is_given = |word: &str| std::env::args().any(|argument| argument == word);
    if is_given(ARGUMENT) {
        return child();
    }
    if !is_given("--bench") {
        println!("a short run: no figures");
        return child();
    }
    let counts = callgrind::run(&[ARGUMENT])?;
    println!("| 4 KiB, {BATCH} under way | host, submit | host, complete | target |");
    println!("| --- | ---: | ---: | ---: |");
    for (name, ..) in CASES {
        let of = |part: &str| counts.get(&format!("{name}: {part}")).copied().unwrap_or(f64::NAN) / BATCH as f64;
        let target: f64 = TURNS.map(of).iter().sum();
        println!("| {name} | {:.0} | {:.0} | {target:.0} |", of("submit"), of("complete"));
    }
    println!("\n| read, standing key, queues in turn | host, submit | host, complete |\n| ---: | ---: | ---: |");
    for count in QUEUES {
        let of_batch = |batch, part: &str| counts.get(&format!("{}: {part}", of_queues(count, batch))).copied();
        let of = |part: &str| {
            let sum: f64 = (0..batches(count)).map(|batch| of_batch(batch, part).unwrap_or(f64::NAN)).sum();
            sum / (batches(count) * BATCH) as f64
        };
        println!("| {count} | {:.0} | {:.0} |", of("submit"), of("complete"));
    }
    lnet::report(&counts);
    Ok(())
}

/// Runs in the child process.
fn child() -> Result<(), Failure> {
    callgrind::count_nothing();
    for (name, io, placement, in_capsule) in CASES {
        let mut stage = Stage::new(1, placement, in_capsule)?;
        for _ in 0..WARM {
            stage.batch(io, None)?;
        }
        stage.batch(io, Some(name))?;
    }
    for count in QUEUES {
        let mut stage = Stage::new(count, DataPlacement::StandingKey, true)?;
        // Each queue was used.
        for _ in 0..count.div_ceil(BATCH) + WARM {
            stage.batch(Io::Read, None)?;
        }
        for batch in 0..batches(count) {
            stage.batch(Io::Read, Some(&of_queues(count, batch)))?;
        }
    }
    lnet::child()
}

/// A host and a target on two cards, in virtual time: each works only when it is called.
struct Stage {
    world: World,
    target: Arc<Mutex<Target>>,
    queues: Vec<IoQueue>,
    /// The queue of the next I/O.
    next: usize,
    namespace: Namespace,
    buffers: Vec<IoBuffer>,
    // The queues belong to it.
    _controller: Controller,
    _host: Host,
}

/// Counts `work`, if it has a name.
fn counted<T>(name: Option<&str>, part: &str, work: impl FnOnce() -> T) -> T {
    match name {
        Some(name) => callgrind::count(&format!("{name}: {part}"), work),
        None => work(),
    }
}

impl Stage {
    fn new(count: usize, placement: DataPlacement, in_capsule: bool) -> Result<Self, Failure> {
        let world = World::new(1);
        let (cards, _) = world.simulated().joined([Card::builder(), Card::builder()], Conditions::default())?;
        let (near, far) = (world.open(&cards[0])?, world.open(&cards[1])?);
        let address = far.gids().first().ok_or("the function has no GID")?.address;
        let mut options = TargetOptions::new(NQN);
        options.io_queues = count as u16;
        let remote = SocketAddr::new(address.into(), options.port);
        let target = Target::new(&far, None, options, vec![Box::new(RamDisk::new(4096, 512)?)])?;
        let target = Arc::new(Mutex::new(target));

        let (clock, served) = (world.clock().clone(), Arc::clone(&target));
        let mut with = HostOptions::default();
        with.idle = Some(Box::new(move || {
            poll(&served);
            clock.pause(STEP);
        }));
        let mut host = Host::new(&near, None, with)?;
        let mut options = ControllerOptions::default();
        (options.placement, options.in_capsule, options.keep_alive) = (placement, in_capsule, Duration::ZERO);
        options.io_queues = count as u16;
        let mut controller = host.connect(remote, NQN, options)?;
        let namespace = *controller.namespaces(&mut host)?.first().ok_or("no namespace")?;
        let queues = (0..count).map(|_| controller.io_queue(&mut host)).collect::<Result<Vec<_>, _>>()?;
        // The queues of a host are of one protection domain.
        let buffers = queues.first().ok_or("no queue")?.buffers(BATCH, BYTES)?;
        Ok(Stage { world, target, queues, next: 0, namespace, buffers, _controller: controller, _host: host })
    }

    /// Lets the cards work until they have nothing to do.
    fn settle(&self) {
        for _ in 0..100 {
            self.world.clock().pause(STEP);
        }
    }

    /// Submits a batch, serves it, and takes the answers.
    fn batch(&mut self, io: Io, name: Option<&str>) -> Result<(), Failure> {
        let (queues, namespace, buffers) = (&mut self.queues, &self.namespace, &mut self.buffers);
        let first = self.next;
        self.next = (first + BATCH) % queues.len();
        counted(name, "submit", || -> Result<(), Failure> {
            for (number, buffer) in buffers.drain(..).enumerate() {
                let lba = (number * BYTES / 512) as u64;
                let count = queues.len();
                let queue = &mut queues[(first + number) % count];
                match io {
                    Io::Read => queue.read(namespace, lba, buffer, lba)?,
                    Io::Write => queue.write(namespace, lba, buffer, lba)?,
                }
            }
            Ok(())
        })?;
        self.settle();
        // Commands; the data that was read, where it was; what was sent.
        for turn in TURNS {
            counted(name, turn, || poll(&self.target));
            self.settle();
        }
        let (queues, buffers) = (&mut self.queues, &mut self.buffers);
        counted(name, "complete", || -> Result<(), Failure> {
            for number in 0..BATCH {
                let count = queues.len();
                let queue = &mut queues[(first + number) % count];
                let Some(completed) = queue.poll()? else { return Err("an answer is missing".into()) };
                buffers.extend(completed.buffer);
            }
            Ok(())
        })
    }
}

fn poll(target: &Mutex<Target>) {
    if let Ok(mut target) = target.lock() {
        // A target that fails answers nothing, which is noticed.
        let _ = target.poll();
    }
}
