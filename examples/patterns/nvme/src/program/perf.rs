//! Latency and bandwidth of a namespace, in the tables of `mlx5 perf` and perftest.
//!
//! The tables stand here, and not in a library beside those of `mlx5 perf`: its report is of queue pairs, MTUs and
//! receive depths, of which an I/O has none. Only headings and columns are the same.

use std::net::SocketAddr;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use hdrhistogram::Histogram;
use mlx5_nvme::{ControllerOptions, DataPlacement, Host, IoQueue, Namespace};

use super::verify::{Failure, Random, only_subsystem};

/// perftest's headings, as `mlx5 perf` has them.
const LATENCY: &str = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] ";
const BANDWIDTH: &str = " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]";
const LINE: &str = "---------------------------------------------------------------------------------------";
/// The percentiles of the ladder.
const LADDER: [f64; 7] = [50.0, 90.0, 99.0, 99.9, 99.99, 99.999, 100.0];
/// Significant digits of a time.
const DIGITS: u8 = 3;
/// I/Os between two looks at the rate, for its peak.
const WINDOW: u64 = 256;
/// How often the controller's keep-alive is looked after.
const TURN: Duration = Duration::from_millis(2);
/// How long an answer may take.
const LONGEST: Duration = Duration::from_secs(60);

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Test {
    /// Latency of one I/O at a time.
    Lat,
    /// Bandwidth and rate of many.
    Bw,
}

/// What an I/O does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Operation {
    Read,
    Write,
}

/// What to measure, and how.
#[derive(Debug, Clone, Parser)]
#[group(skip)]
pub struct Perf {
    /// Latency of one I/O at a time, or bandwidth of many.
    #[arg(value_enum)]
    test: Test,
    /// Reads, or writes; what these overwrite is lost.
    #[arg(value_enum)]
    operation: Operation,
    /// Name of the subsystem. Default: the only one that discovery finds.
    #[arg(long)]
    nqn: Option<String>,
    /// Bytes of an I/O: whole blocks.
    #[arg(short, long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(512..))]
    size: u32,
    /// I/Os of each queue.
    #[arg(short = 'n', long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    iters: u64,
    /// I/O queues, a thread each.
    #[arg(short, long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=128))]
    queues: u16,
    /// I/Os of a queue under way at once, for bandwidth.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    depth: u16,
    /// Register a key for each command, which the target invalidates with its answer.
    #[arg(long)]
    fast_keys: bool,
    /// Send no data in capsules.
    #[arg(long)]
    no_in_capsule: bool,
}

/// What one queue measured.
struct Measured {
    /// Times of I/Os in nanoseconds.
    times: Histogram<u64>,
    begin: Instant,
    end: Instant,
    /// I/Os a second in the fastest window.
    peak: f64,
}

impl Perf {
    /// Measures a namespace of the target at `remote`, and prints the table, with what it must say of the card.
    pub fn run(&self, host: &mut Host, remote: SocketAddr, note: Option<&str>) -> Result<(), Failure> {
        let nqn = match &self.nqn {
            Some(nqn) => nqn.clone(),
            None => only_subsystem(host, remote)?,
        };
        let depth = if self.test == Test::Lat { 1 } else { self.depth };
        let mut options = ControllerOptions::default();
        (options.depth, options.io_queues) = (depth.max(2), self.queues);
        options.placement = if self.fast_keys { DataPlacement::FastKey } else { DataPlacement::StandingKey };
        options.in_capsule = !self.no_in_capsule;
        let mut controller = host.connect(remote, &nqn, options)?;
        let namespace = *controller.namespaces(host)?.first().ok_or("the subsystem has no namespace")?;
        self.check(&namespace)?;
        let queues = (0..self.queues).map(|_| controller.io_queue(host)).collect::<Result<Vec<_>, _>>()?;
        let start = Barrier::new(queues.len());
        let measured = std::thread::scope(|scope| {
            let measure = |(number, queue)| {
                let (start, namespace) = (&start, &namespace);
                scope.spawn(move || self.measure(queue, number as u64, depth.into(), namespace, start))
            };
            let threads: Vec<_> = queues.into_iter().enumerate().map(measure).collect();
            while threads.iter().any(|thread| !thread.is_finished()) {
                controller.turn(host)?;
                std::thread::sleep(TURN);
            }
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| thread.join().map_err(|_| "a thread panicked")?;
            threads.into_iter().map(join).collect::<Result<Vec<Measured>, Failure>>()
        })?;
        print!("{}", self.report(&nqn, &measured, depth)?);
        if let Some(note) = note {
            println!("({note})");
        }
        Ok(controller.disconnect(host)?)
    }

    fn check(&self, namespace: &Namespace) -> Result<(), Failure> {
        let (size, block) = (self.size, namespace.block_size);
        if !size.is_multiple_of(block) || u64::from(size) > namespace.bytes() {
            let bytes = namespace.bytes();
            return Err(format!("--size {size}: the namespace has {bytes} bytes, in blocks of {block}").into());
        }
        Ok(())
    }

    /// Measures one queue, in a thread of its own: `depth` I/Os at random places.
    fn measure(
        &self,
        mut queue: IoQueue,
        number: u64,
        depth: usize,
        namespace: &Namespace,
        start: &Barrier,
    ) -> Result<Measured, Failure> {
        let mut spare = queue.buffers(depth, self.size as usize)?;
        let (mut random, blocks) = (Random::new(number + 1), u64::from(self.size / namespace.block_size));
        let places = namespace.blocks / blocks;
        let mut times = Histogram::<u64>::new(DIGITS)?;
        let mut began = vec![Instant::now(); depth];
        let mut free: Vec<usize> = (0..depth).collect();
        start.wait();
        let begin = Instant::now();
        let (mut submitted, mut done, mut peak, mut window, mut last) = (0, 0, 0f64, begin, begin);
        while done < self.iters {
            while submitted < self.iters
                && let Some(slot) = free.pop()
            {
                let buffer = spare.pop().ok_or("a buffer is missing")?;
                let lba = random.below(places) * blocks;
                began[slot] = Instant::now();
                match self.operation {
                    Operation::Read => queue.read(namespace, lba, buffer, slot as u64)?,
                    Operation::Write => queue.write(namespace, lba, buffer, slot as u64)?,
                }
                submitted += 1;
            }
            let Some(completed) = queue.poll()? else {
                if last.elapsed() > LONGEST {
                    return Err(format!("queue {}: no answer for {} s", queue.qid(), LONGEST.as_secs()).into());
                }
                std::thread::yield_now();
                continue;
            };
            last = Instant::now();
            if !completed.status.is_success() {
                return Err(format!("an I/O failed: {}", completed.status).into());
            }
            let slot = completed.user as usize;
            times.record((last - *began.get(slot).ok_or("an answer to no I/O")?).as_nanos() as u64)?;
            spare.extend(completed.buffer);
            free.push(slot);
            done += 1;
            if done.is_multiple_of(WINDOW) {
                peak = peak.max(WINDOW as f64 / (last - window).as_secs_f64().max(f64::MIN_POSITIVE));
                window = last;
            }
        }
        Ok(Measured { times, begin, end: last, peak })
    }

    /// The table.
    fn report(&self, nqn: &str, measured: &[Measured], depth: u16) -> Result<String, Failure> {
        let title = match (self.operation, self.test) {
            (Operation::Read, Test::Lat) => "NVMe Read Latency",
            (Operation::Read, Test::Bw) => "NVMe Read BW",
            (Operation::Write, Test::Lat) => "NVMe Write Latency",
            (Operation::Write, Test::Bw) => "NVMe Write BW",
        };
        let mut text = format!("{LINE}\n                    {title} Test\n");
        let keys = if self.fast_keys { "one for each command" } else { "standing" };
        let rows =
            [("Subsystem", nqn), ("Number of queues", &self.queues.to_string()), ("TX depth", &depth.to_string())];
        for (name, value) in rows.into_iter().chain([("Keys", keys)]) {
            text += &format!(" {name:<16}: {value}\n");
        }
        let mut times = Histogram::<u64>::new(DIGITS)?;
        for one in measured {
            times.add(&one.times)?;
        }
        text += &match self.test {
            Test::Lat => format!("{LINE}\n{LATENCY}\n{}{LINE}\n{}", latencies(self.size, &times), ladder(&times)),
            Test::Bw => format!("{LINE}\n{BANDWIDTH}\n{}", bandwidths(self.size, times.len(), measured)),
        };
        Ok(text + LINE + "\n")
    }
}

const MICROSECOND: f64 = 1e3;

fn latencies(size: u32, times: &Histogram<u64>) -> String {
    let at = |percentile: f64| times.value_at_percentile(percentile) as f64 / MICROSECOND;
    let (count, min, max) = (times.len(), times.min() as f64 / MICROSECOND, times.max() as f64 / MICROSECOND);
    let (average, stdev) = (times.mean() / MICROSECOND, times.stdev() / MICROSECOND);
    let (typical, high, higher) = (at(50.0), at(99.0), at(99.9));
    format!(
        " {size:<7} {count:<11}    {min:<11.2}    {max:<11.2}  {typical:<15.2}    {average:<11.2}    {stdev:<13.2}   \
         {high:<20.2}   {higher:<.2}\n"
    )
}

fn ladder(times: &Histogram<u64>) -> String {
    let rung = |percentile: f64| {
        let time = times.value_at_percentile(percentile) as f64 / MICROSECOND;
        format!(" {percentile:<10}    {time:.2}\n")
    };
    LADDER.into_iter().map(rung).fold(" percentile    t[usec]\n".to_owned(), |text, line| text + &line)
}

fn bandwidths(size: u32, count: u64, measured: &[Measured]) -> String {
    let begin = measured.iter().map(|one| one.begin).min();
    let end = measured.iter().map(|one| one.end).max();
    let seconds = begin.zip(end).map_or(0.0, |(begin, end)| (end - begin).as_secs_f64());
    let rate = count as f64 / seconds.max(f64::MIN_POSITIVE);
    // Of all queues together; 0 if none had enough I/Os to look at.
    let peak: f64 = measured.iter().map(|one| one.peak).sum();
    let mib = |rate: f64| rate * f64::from(size) / f64::from(1 << 20);
    format!(" {size:<7}    {count:<11}    {:<16.2}    {:<19.2}   {:<.6}\n", mib(peak), mib(rate), rate / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_stand_below_their_headings() {
        let mut times = Histogram::<u64>::new(DIGITS).unwrap();
        (1..=1000).for_each(|n| times.record(n * 1000).unwrap());
        let row = latencies(4096, &times);
        let words: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(words[..3], ["4096", "1000", "1.00"]);
        assert_eq!(words.len(), LATENCY.replace("% p", "%p").split_whitespace().count());
        assert!((words[4].parse::<f64>().unwrap() - 500.0).abs() < 1.0, "{row}");
        assert!(ladder(&times).lines().count() == LADDER.len() + 1);
        let begin = Instant::now();
        let end = begin + Duration::from_secs(2);
        let row = bandwidths(1 << 20, 200, &[Measured { times, begin, end, peak: 150.0 }]);
        assert_eq!(row.split_whitespace().collect::<Vec<_>>(), ["1048576", "200", "150.00", "100.00", "0.000100"]);
    }
}
