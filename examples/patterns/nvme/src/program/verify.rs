//! Verification of a namespace: random I/O of mixed sizes on several queues, a thread each, every block compared.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use mlx5_nvme::{
    Completed, Controller, ControllerOptions, DISCOVERY, DataPlacement, Host, HostError, IoBuffer, IoQueue, Namespace,
};

/// What the program may fail with.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Turns without an answer until a thread yields its processor.
const EMPTY_TURNS: u32 = 200;
/// How often the controller's keep-alive is looked after.
const TURN: Duration = Duration::from_millis(2);
/// How long to wait between attempts to connect again.
const AGAIN: Duration = Duration::from_millis(500);
/// Largest part of a namespace that a thread works on, in blocks.
const MOST_BLOCKS: u64 = 1 << 16;

/// What to verify, and how.
#[derive(Debug, Clone, Parser)]
// The command has the name already.
#[group(skip)]
pub struct Verify {
    /// Name of the subsystem. Default: the only one that discovery finds.
    #[arg(long)]
    nqn: Option<String>,
    /// Namespace. Default: the first.
    #[arg(long)]
    nsid: Option<u32>,
    /// I/O queues, a thread each.
    #[arg(short, long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=128))]
    queues: u16,
    /// Commands of a queue under way at once.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(2..=1024))]
    depth: u16,
    /// Commands in all.
    #[arg(short = 'n', long, default_value_t = 20_000)]
    commands: u64,
    /// Longest read or write in bytes.
    #[arg(long, default_value_t = 1 << 17, value_parser = clap::value_parser!(u32).range(512..))]
    longest: u32,
    /// Register a key for each command, which the target invalidates with its answer.
    #[arg(long)]
    fast_keys: bool,
    /// Send no data in capsules.
    #[arg(long)]
    no_in_capsule: bool,
    /// Connect again when the target is gone, for up to this many seconds.
    #[arg(long, default_value_t = 0)]
    reconnect: u64,
    /// Keep-alive timeout in seconds; 0 is none.
    #[arg(long, default_value_t = 15)]
    keep_alive: u64,
    /// Seed of what is done and written.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Random numbers: xorshift64*, whose sequence is the same for a seed everywhere.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % limit.max(1)
    }
}

/// What a block may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    /// Anything: nothing was written yet, or the outcome of the last write is not known.
    Unknown,
    Zeros,
    /// What this write left.
    Written(u64),
}

/// The bytes of block `lba` after write number `write`.
fn fill_block(block: &mut [u8], lba: u64, write: u64) {
    let base = (lba ^ write.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for (number, word) in block.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&base.wrapping_add(number as u64).to_le_bytes());
    }
}

/// A command under way.
#[derive(Debug, Clone, Copy)]
enum Doing {
    Read,
    Write(u64),
    Zero,
    Flush,
}

/// What a thread knows of its part of the namespace. It outlives connections.
#[derive(Debug)]
struct Part {
    first: u64,
    contents: Vec<Content>,
    /// Blocks that a command under way writes or reads.
    busy: Vec<bool>,
    /// Commands under way, by number: what, first block within the part, blocks.
    doing: Vec<Option<(Doing, usize, usize)>>,
    random: Random,
    writes: u64,
    scratch: Vec<u8>,
    expected: Vec<u8>,
}

impl Part {
    fn new(first: u64, blocks: u64, block_size: u32, seed: u64) -> Self {
        let blocks = blocks.min(MOST_BLOCKS) as usize;
        Part {
            first,
            contents: vec![Content::Unknown; blocks],
            busy: vec![false; blocks],
            doing: Vec::new(),
            random: Random(seed | 1),
            writes: 0,
            scratch: Vec::new(),
            expected: vec![0; block_size as usize],
        }
    }

    /// A command on blocks that no other works on: its number and place.
    fn choose(&mut self, most: usize) -> Option<(usize, usize, usize)> {
        for _ in 0..8 {
            // Many short ones, and some long ones.
            let limit = 1 + self.random.below(most as u64);
            let blocks = 1 + self.random.below(limit) as usize;
            let at = self.random.below((self.contents.len() - blocks.min(self.contents.len())) as u64 + 1) as usize;
            let blocks = blocks.min(self.contents.len());
            if self.busy[at..at + blocks].iter().any(|&busy| busy) {
                continue;
            }
            let number = self.doing.iter().position(Option::is_none).unwrap_or(self.doing.len());
            if number == self.doing.len() {
                self.doing.push(None);
            }
            return Some((number, at, blocks));
        }
        None
    }

    fn begin(&mut self, number: usize, doing: Doing, at: usize, blocks: usize) {
        if !matches!(doing, Doing::Flush) {
            self.busy[at..at + blocks].fill(true);
        }
        self.doing[number] = Some((doing, at, blocks));
    }

    /// A command is done, or its outcome is not known.
    fn end(&mut self, number: usize, is_known: bool) -> Option<(Doing, usize, usize)> {
        let (doing, at, blocks) = self.doing.get_mut(number)?.take()?;
        if matches!(doing, Doing::Flush) {
            return Some((doing, at, blocks));
        }
        self.busy[at..at + blocks].fill(false);
        let left = match doing {
            Doing::Write(write) => Some(Content::Written(write)),
            Doing::Zero => Some(Content::Zeros),
            Doing::Read | Doing::Flush => None,
        };
        if let Some(left) = left {
            self.contents[at..at + blocks].fill(if is_known { left } else { Content::Unknown });
        }
        Some((doing, at, blocks))
    }

    /// Puts what write `write` leaves into a buffer.
    fn fill(&mut self, buffer: &mut IoBuffer, at: usize, write: u64) {
        let size = self.expected.len();
        self.scratch.resize(buffer.len(), 0);
        for (number, block) in self.scratch.chunks_exact_mut(size).enumerate() {
            fill_block(block, self.first + (at + number) as u64, write);
        }
        buffer.write(0, &self.scratch);
    }

    /// Compares what was read.
    fn compare(&mut self, buffer: &IoBuffer, at: usize) -> Result<(), Failure> {
        let size = self.expected.len();
        self.scratch.resize(buffer.len(), 0);
        buffer.read(0, &mut self.scratch);
        for (number, block) in self.scratch.chunks_exact(size).enumerate() {
            let lba = self.first + (at + number) as u64;
            match self.contents[at + number] {
                Content::Unknown => continue,
                Content::Zeros => self.expected.fill(0),
                Content::Written(write) => fill_block(&mut self.expected, lba, write),
            }
            if block != self.expected {
                return Err(format!("block {lba} does not hold what was written last").into());
            }
        }
        Ok(())
    }
}

/// What all threads share.
struct Shared<'a> {
    namespace: &'a Namespace,
    /// Commands answered.
    done: &'a AtomicU64,
    bytes: &'a AtomicU64,
    goal: u64,
    stop: AtomicBool,
}

/// How a thread's work ended.
enum End {
    Done,
    Broken(HostError),
}

impl Verify {
    fn options(&self) -> ControllerOptions {
        let mut options = ControllerOptions::default();
        options.depth = self.depth;
        options.io_queues = self.queues;
        options.placement = if self.fast_keys { DataPlacement::FastKey } else { DataPlacement::StandingKey };
        options.in_capsule = !self.no_in_capsule;
        options.keep_alive = Duration::from_secs(self.keep_alive);
        options
    }

    /// Verifies a namespace of the target at `remote`.
    pub fn run(&self, host: &mut Host, remote: SocketAddr) -> Result<(), Failure> {
        let nqn = match &self.nqn {
            Some(nqn) => nqn.clone(),
            None => only_subsystem(host, remote)?,
        };
        let mut controller = host.connect(remote, &nqn, self.options())?;
        let namespace = self.namespace(host, &mut controller)?;
        let size = namespace.block_size;
        println!("{nqn}, namespace {}: {} blocks of {size} bytes", namespace.nsid, namespace.blocks);
        let share = namespace.blocks / u64::from(self.queues);
        if share == 0 {
            return Err(format!("{} blocks for {} queues: ask for fewer (-q)", namespace.blocks, self.queues).into());
        }
        let part = |number: u64| Part::new(number * share, share, size, self.seed.wrapping_add(number << 32));
        let mut parts: Vec<_> = (0..self.queues.into()).map(part).collect();
        let (done, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        let (begin, mut reconnected) = (Instant::now(), 0);
        loop {
            let goal = self.commands;
            let shared =
                Shared { namespace: &namespace, done: &done, bytes: &bytes, goal, stop: AtomicBool::new(false) };
            let broken = match self.open_queues(host, &mut controller, parts.len()) {
                Ok(queues) => {
                    println!("{} queues are open", queues.len());
                    self.all_threads(host, &mut controller, queues, &mut parts, &shared)?
                }
                Err(error) => Some(error),
            };
            let Some(error) = broken else { break };
            drop(controller);
            println!("after {} commands: {error}", done.load(Ordering::Relaxed));
            controller = self.connect_again(host, remote, &nqn, error)?;
            reconnected += 1;
            println!("connected again");
        }
        let seconds = begin.elapsed().as_secs_f64();
        let (done, mib) = (done.into_inner(), bytes.into_inner() >> 20);
        println!("{done} commands, {mib} MiB, in {seconds:.2} s: every block read held what was written last");
        if reconnected > 0 {
            println!("connected again {reconnected} times");
        }
        controller.disconnect(host).or_else(|error| if reconnected > 0 { Ok(()) } else { Err(error.into()) })
    }

    fn namespace(&self, host: &mut Host, controller: &mut Controller) -> Result<Namespace, Failure> {
        let all = controller.namespaces(host)?;
        let found = match self.nsid {
            Some(nsid) => all.iter().find(|namespace| namespace.nsid == nsid),
            None => all.first(),
        };
        let numbers: Vec<_> = all.iter().map(|namespace| namespace.nsid.to_string()).collect();
        found.copied().ok_or_else(|| format!("no such namespace; there are: {}", numbers.join(", ")).into())
    }

    fn open_queues(
        &self,
        host: &mut Host,
        controller: &mut Controller,
        wanted: usize,
    ) -> Result<Vec<IoQueue>, HostError> {
        (0..wanted).map(|_| controller.io_queue(host)).collect()
    }

    /// Works on all parts, a thread each, and looks after the controller. Returns why the connection broke, if it did.
    fn all_threads(
        &self,
        host: &mut Host,
        controller: &mut Controller,
        queues: Vec<IoQueue>,
        parts: &mut [Part],
        shared: &Shared<'_>,
    ) -> Result<Option<HostError>, Failure> {
        std::thread::scope(|scope| {
            let work = |(queue, part)| scope.spawn(move || self.work(queue, part, shared));
            let threads: Vec<_> = queues.into_iter().zip(parts).map(work).collect();
            let mut broken = None;
            while threads.iter().any(|thread| !thread.is_finished()) {
                if broken.is_none()
                    && let Err(error) = controller.turn(host)
                {
                    broken = Some(error);
                    shared.stop.store(true, Ordering::Relaxed);
                }
                std::thread::sleep(TURN);
            }
            for thread in threads {
                match thread.join().map_err(|_| "a thread panicked")?? {
                    End::Done => {}
                    End::Broken(error) => _ = broken.get_or_insert(error),
                }
            }
            Ok(broken)
        })
    }

    fn connect_again(
        &self,
        host: &mut Host,
        remote: SocketAddr,
        nqn: &str,
        mut error: HostError,
    ) -> Result<Controller, Failure> {
        let end = Instant::now() + Duration::from_secs(self.reconnect);
        while Instant::now() < end && !error.is_dead_device() {
            match host.connect(remote, nqn, self.options()) {
                Ok(controller) => return Ok(controller),
                Err(again) => error = again,
            }
            std::thread::sleep(AGAIN);
        }
        Err(error.into())
    }

    /// Works on one part by one queue until the goal is reached or the connection breaks.
    fn work(&self, mut queue: IoQueue, part: &mut Part, shared: &Shared<'_>) -> Result<End, Failure> {
        let block = shared.namespace.block_size as usize;
        let longest = (self.longest as usize).min(queue.most_bytes()) / block;
        if longest == 0 {
            return Err(format!("--longest {}: less than a block of {block} bytes", self.longest).into());
        }
        let mut spare = queue.buffers(queue.depth(), longest * block)?;
        let mut empty = 0;
        let ended = loop {
            let wants_more = shared.done.load(Ordering::Relaxed) < shared.goal && !shared.stop.load(Ordering::Relaxed);
            if wants_more {
                submit(&mut queue, part, shared.namespace, longest, &mut spare)?;
            } else if queue.under_way() == 0 {
                break End::Done;
            }
            match queue.poll() {
                Ok(Some(completed)) => {
                    empty = 0;
                    shared.done.fetch_add(1, Ordering::Relaxed);
                    spare.extend(answered(part, completed, shared)?);
                }
                Ok(None) if shared.stop.load(Ordering::Relaxed) => break End::Done,
                Ok(None) => {
                    empty += 1;
                    if empty > EMPTY_TURNS { std::thread::yield_now() } else { std::hint::spin_loop() }
                }
                Err(error) => break End::Broken(error),
            }
        };
        shared.stop.fetch_or(matches!(ended, End::Broken(_)), Ordering::Relaxed);
        for unfinished in queue.close() {
            part.end(unfinished.user as usize, false);
        }
        Ok(ended)
    }
}

/// Submits a command, if there is room and a place for it.
fn submit(
    queue: &mut IoQueue,
    part: &mut Part,
    namespace: &Namespace,
    longest: usize,
    spare: &mut Vec<IoBuffer>,
) -> Result<(), Failure> {
    if queue.under_way() == queue.depth() {
        return Ok(());
    }
    let Some((number, at, blocks)) = part.choose(longest) else { return Ok(()) };
    let (lba, user) = (part.first + at as u64, number as u64);
    let kind = part.random.below(32);
    let (doing, submitted) = match kind {
        0 => (Doing::Flush, queue.flush(namespace, user)),
        1 => (Doing::Zero, queue.write_zeroes(namespace, lba, blocks as u32, user)),
        _ => {
            let Some(mut buffer) = spare.pop() else { return Ok(()) };
            buffer.set_len(blocks * namespace.block_size as usize);
            if kind.is_multiple_of(2) {
                (Doing::Read, queue.read(namespace, lba, buffer, user))
            } else {
                part.writes += 1;
                let write = part.writes;
                part.fill(&mut buffer, at, write);
                (Doing::Write(write), queue.write(namespace, lba, buffer, user))
            }
        }
    };
    match submitted {
        Ok(()) => {
            part.begin(number, doing, at, blocks);
            Ok(())
        }
        // The next poll says how the connection broke.
        Err(refused) if queue.is_broken() => {
            spare.extend(refused.buffer);
            Ok(())
        }
        Err(refused) => Err(refused.into()),
    }
}

/// Takes an answer: the buffer, back again.
fn answered(part: &mut Part, completed: Completed, shared: &Shared<'_>) -> Result<Option<IoBuffer>, Failure> {
    let Completed { user, buffer, status, .. } = completed;
    let (doing, at, blocks) = part.end(user as usize, true).ok_or("an answer to a command that was not given")?;
    if !status.is_success() {
        return Err(format!("{doing:?} of {blocks} blocks from {} on: {status}", part.first + at as u64).into());
    }
    if let Some(buffer) = &buffer {
        shared.bytes.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        if matches!(doing, Doing::Read) {
            part.compare(buffer, at)?;
        }
    }
    Ok(buffer)
}

/// The name of the only subsystem of the target at `remote`.
pub fn only_subsystem(host: &mut Host, remote: SocketAddr) -> Result<String, Failure> {
    let mut found = host.discover(remote)?;
    found.retain(|subsystem| !subsystem.is_discovery && subsystem.nqn != DISCOVERY);
    let names: Vec<_> = found.iter().map(|subsystem| subsystem.nqn.as_str()).collect();
    match names[..] {
        [only] => Ok(only.to_owned()),
        [] => Err(format!("{remote} has no subsystem for this host, {}", host.nqn()).into()),
        _ => Err(format!("{remote} has several subsystems; name one by --nqn: {}", names.join(", ")).into()),
    }
}
