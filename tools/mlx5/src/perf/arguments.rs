//! perftest's flags, and the plan they make.

use std::path::PathBuf;
use std::time::Duration;

use mlx5_neighbours::Network;
use mlx5_prm::values::PathMtu;

use crate::output::{Failure, usage, useless};

/// Most messages on a queue pair, as perftest's: a number of 31 bits.
const MOST_MESSAGES: u64 = i32::MAX as u64;

/// Warm-up messages by default, as in perftest.
const WARM_UP: u64 = 100;

/// What to measure, and how.
#[derive(Debug, clap::Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "Examples:\n  \
    mlx5 perf lat write                      both ends here, on one card\n  \
    mlx5 perf bw send -d vfio:0000:3b:00.0 --listen   the server; then, on another host:\n  \
    mlx5 perf bw send -d vfio:0000:af:00.0 SERVER     the client\n  \
    mlx5 perf rate write -q 4 -l 16 -D 10    message rate over 10 seconds, 4 queue pairs, lists of 16"
)]
pub struct Arguments {
    /// lat: half the round-trip time (read, atomic: the whole); bw: bandwidth; rate: bw with 2-byte messages.
    #[arg(value_enum)]
    test: Test,
    /// The operation.
    #[arg(value_enum)]
    operation: Operation,
    /// Connect to the server on this host. Without a host both ends run in this process, on one card.
    pub host: Option<String>,
    /// Run as server: wait for one client with the same test and operation.
    #[arg(long, conflicts_with = "host")]
    pub listen: bool,
    /// Device: sim, vfio:0000:3b:00.0, devx:mlx5_0, vfio-user:/run/nic.sock.
    #[arg(short, long = "device", visible_alias = "ib-dev", default_value = "sim")]
    pub device: String,
    /// Service of the queue pairs: RC, or UC for writes and sends, of which a lost one never arrives.
    #[arg(short = 'c', long, default_value = "RC", value_name = "SERVICE")]
    connection: String,
    /// Port of the device: only 1.
    #[arg(short = 'i', long = "ib-port", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=1))]
    ib_port: u8,
    /// TCP port of the server, 0 to 65535; with 0 the server takes a free one, and says which [default: 18515].
    #[arg(short, long)]
    port: Option<u16>,
    /// Message size in bytes, 1 to 1073741824 [default: 2 for lat and rate, 65536 for bw; always 8 for atomics].
    #[arg(short, long, conflicts_with = "all", value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    size: Option<u32>,
    /// Measure every power of two from 2 bytes to 8 MiB.
    #[arg(short, long)]
    all: bool,
    /// Number of messages, 5 to 2147483647 [default: 1000; 5000 for bw and rate of writes].
    #[arg(short = 'n', long, conflicts_with = "duration", value_parser = clap::value_parser!(u64).range(5..=MOST_MESSAGES))]
    iters: Option<u64>,
    /// Run for this many seconds, 1 to 1000000, instead of a number of messages.
    #[arg(short = 'D', long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    duration: Option<u32>,
    /// Seconds at the start and at the end of -D that are not counted, 0 to 4294967295 [default: 2].
    #[arg(short = 'f', long, requires = "duration")]
    margin: Option<u32>,
    /// Warm-up messages, not counted, 0 to 2147483647 [default: 100, and no more than -n].
    #[arg(long, conflicts_with = "duration", value_parser = clap::value_parser!(u64).range(..=MOST_MESSAGES))]
    warm_up: Option<u64>,
    /// Number of queue pairs, 1 to 16384.
    #[arg(short, long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16384))]
    qp: u32,
    /// Messages in flight on each queue pair, 1 to 15000 [default: 128; 1 for lat].
    #[arg(short, long, value_parser = clap::value_parser!(u32).range(1..=15000))]
    tx_depth: Option<u32>,
    /// Receives posted on each queue pair, for sends, 1 to 16384 [default: 512].
    #[arg(short, long, value_parser = clap::value_parser!(u32).range(1..=16384))]
    rx_depth: Option<u32>,
    /// Messages posted with one doorbell, 1 to 15000, and no more than -t.
    #[arg(short = 'l', long = "post_list", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=15000))]
    post_list: u32,
    /// Messages per completion, 1 to 1024 [default: 100; 1 above 8192 bytes; with -l, one completion per list].
    #[arg(short = 'Q', long = "cq-mod", value_parser = clap::value_parser!(u32).range(1..=1024))]
    cq_mod: Option<u32>,
    /// Largest message in bytes that is sent inline, 0 to 1023 [default: 220 for lat write, 236 for lat send, else 0].
    #[arg(short = 'I', long = "inline_size", value_parser = clap::value_parser!(u16).range(0..=1023))]
    inline_size: Option<u16>,
    /// Path MTU: 256, 512, 1024, 2048 or 4096.
    #[arg(short, long, default_value_t = 1024)]
    mtu: u32,
    /// Connect the queue pairs by the RDMA connection manager; the ends agree over TCP as before.
    #[arg(short = 'R', long = "rdma_cm")]
    rdma_cm: bool,
    /// The other end is perftest's program, such as ib_write_bw, with the same -s or -a, -n or -D, -b, -c, -q and -R.
    /// What it sends is counted, and not compared: perftest sends any bytes. No warm-up; -D measures one size.
    #[arg(long, conflicts_with = "warm_up")]
    pub perftest: bool,
    /// Index of the local GID, 0 to 255; `mlx5 info` lists them [default: 0; 1 with --ip].
    #[arg(short = 'x', long = "gid-index")]
    gid_index: Option<u8>,
    /// With -R: IP address and prefix of a function that this program owns, such as 10.0.0.4/24. It becomes GID 1.
    /// Other networks are reached by the gateway.
    #[arg(long, value_name = "ADDRESS/PREFIX[,GATEWAY]", requires = "rdma_cm")]
    ip: Option<Network>,
    /// Service level, 0 to 7.
    #[arg(short = 'S', long = "sl", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=7))]
    sl: u8,
    /// Acknowledgement timeout: 4.096 us * 2^TIMEOUT, 0 to 31; 0 for none.
    #[arg(short = 'u', long = "qp-timeout", default_value_t = 14, value_parser = clap::value_parser!(u8).range(0..=31))]
    qp_timeout: u8,
    /// Atomic operation: CMP_AND_SWAP or FETCH_AND_ADD [default: FETCH_AND_ADD].
    #[arg(short = 'A', long = "atomic_type")]
    atomic_type: Option<AtomicType>,
    /// Maximum number of outstanding reads or atomics, 1 to 128 [default: 16].
    #[arg(short, long = "outs", value_parser = clap::value_parser!(u8).range(1..=128))]
    outs: Option<u8>,
    /// Send in both directions.
    #[arg(short, long)]
    bidirectional: bool,
    /// Sleep on completion events instead of polling.
    #[arg(short, long)]
    events: bool,
    /// Do not measure the peak.
    #[arg(short = 'N', long = "noPeak")]
    no_peak: bool,
    /// Report bandwidth in Gb/sec instead of MiB/sec.
    #[arg(long = "report_gbits")]
    pub gbits: bool,
    /// Ignored; accepted for compatibility with perftest.
    #[arg(short = 'F', long = "CPU-freq")]
    cpu_freq: bool,
    /// Also write the JSON report to this file.
    #[arg(long = "out_json_file", value_name = "FILE")]
    pub out_json: Option<PathBuf>,
    /// Draw the latency distribution, or with -a the result of each size, as SVG.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    #[command(flatten)]
    unsupported: Unsupported,
}

/// perftest flags that are not supported; each gets an error that says what to use instead.
#[derive(Debug, clap::Args)]
struct Unsupported {
    #[arg(short = 'z', long = "comm_rdma_cm", hide = true)]
    comm_rdma_cm: bool,
    #[arg(short = 'g', long = "mcg", hide = true)]
    mcg: bool,
    #[arg(short = 'O', long, hide = true)]
    dualport: bool,
    #[arg(short = 'H', long = "report-histogram", hide = true)]
    report_histogram: bool,
    #[arg(short = 'U', long = "report-unsorted", hide = true)]
    report_unsorted: bool,
    #[arg(short = 'C', long = "report-cycles", hide = true)]
    report_cycles: bool,
    #[arg(long = "use-srq", hide = true)]
    use_srq: bool,
    #[arg(short = 'X', long, hide = true)]
    vector: Option<u32>,
    #[arg(short = 'w', long = "limit_bw", hide = true)]
    limit_bw: Option<String>,
    #[arg(short = 'y', long = "limit_msgrate", hide = true)]
    limit_msgrate: Option<String>,
    #[arg(short = 'W', long = "report-counters", hide = true)]
    report_counters: Option<String>,
}

impl Arguments {
    /// TCP port of the server.
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(18515)
    }

    /// Checks that each flag has something to act on. What perftest takes although it says nothing is taken, too.
    fn check_use(&self) -> Result<(), Failure> {
        let refused = |flag, needs| Err(useless(flag, needs));
        let (sends, fetches) = (self.operation == Operation::Send, self.operation.fetches());
        match self {
            _ if self.port.is_some() && self.host.is_none() && !self.listen => {
                refused("-p", "it is the server's port, and needs --listen or a HOST")
            }
            _ if self.rx_depth.is_some_and(|depth| depth != 1) && !sends => refused("-r", "only sends need receives"),
            _ if self.outs.is_some() && !fetches => refused("-o", "it limits reads and atomics"),
            _ if self.inline_size.is_some_and(|size| size != 0) && fetches => {
                refused("-I", "reads and atomics send no data; test write or send")
            }
            _ => Ok(()),
        }
    }
}

impl Unsupported {
    fn check(&self) -> Result<(), Failure> {
        let refused = |flag: &str, instead: &str| Err(usage(format!("perftest's {flag} is not supported: {instead}")));
        match self {
            _ if self.comm_rdma_cm => refused("-z", "the ends always agree over TCP; -R connects the queue pairs"),
            _ if self.mcg => refused("-g", "only RC and UC queue pairs are supported, and they have no multicast"),
            _ if self.dualport => refused("-O", "run two instances, each with its own -d and -p"),
            _ if self.report_histogram => refused("-H", "use --svg, or the percentiles of --json"),
            _ if self.report_unsorted => refused("-U", "use --svg, or the percentiles of --json"),
            _ if self.report_cycles => refused("-C", "times are in microseconds"),
            _ if self.use_srq => refused("--use-srq", "shared receive queues are not supported yet"),
            _ if self.vector.is_some() => refused("-X", "-e uses completion vector 0"),
            _ if self.limit_bw.is_some() => refused("-w", "compare the figures of --json"),
            _ if self.limit_msgrate.is_some() => refused("-y", "compare the figures of --json"),
            _ if self.report_counters.is_some() => refused("-W", "counters are not supported yet"),
            _ => Ok(()),
        }
    }
}

/// The kind of test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Test {
    /// Latency.
    Lat,
    /// Bandwidth.
    Bw,
    /// Message rate.
    Rate,
}

/// The operation under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// RDMA WRITE.
    Write,
    /// SEND.
    Send,
    /// RDMA READ.
    Read,
    /// Atomics.
    Atomic,
}

impl Operation {
    /// perftest's name.
    pub fn title(self) -> &'static str {
        match self {
            Operation::Write => "RDMA_Write",
            Operation::Send => "Send",
            Operation::Read => "RDMA_Read",
            Operation::Atomic => "Atomic",
        }
    }

    /// Whether data moves to the requester: the remote card answers without its software.
    pub fn fetches(self) -> bool {
        matches!(self, Operation::Read | Operation::Atomic)
    }
}

/// The service of the queue pairs, by perftest's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Connection {
    /// Reliable.
    Rc,
    /// Unreliable: writes and sends alone.
    Uc,
}

impl Connection {
    /// perftest's name.
    pub fn title(self) -> &'static str {
        match self {
            Connection::Rc => "RC",
            Connection::Uc => "UC",
        }
    }

    /// The service that `-c` names, for `operation`.
    fn of(name: &str, operation: Operation) -> Result<Self, Failure> {
        match name {
            "RC" => Ok(Connection::Rc),
            "UC" if operation.fetches() => Err(usage("-c UC: reads and atomics need reliable connections, -c RC")),
            "UC" => Ok(Connection::Uc),
            other => Err(usage(format!("perftest's -c {other} is not supported: only RC and UC queue pairs are"))),
        }
    }
}

/// The atomic operation, by perftest's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum, serde::Serialize, serde::Deserialize)]
pub enum AtomicType {
    /// Compare and swap.
    #[value(name = "CMP_AND_SWAP")]
    CompareSwap,
    /// Fetch and add.
    #[default]
    #[value(name = "FETCH_AND_ADD")]
    FetchAdd,
}

impl AtomicType {
    /// perftest's name.
    pub fn title(self) -> &'static str {
        match self {
            AtomicType::CompareSwap => "CMP_AND_SWAP",
            AtomicType::FetchAdd => "FETCH_AND_ADD",
        }
    }
}

/// How long one size is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Amount {
    /// A number of messages on each queue pair, after warm-up.
    Messages {
        /// Warm-up messages, not counted.
        warm_up: u64,
        /// Counted messages.
        counted: u64,
    },
    /// A duration, with an uncounted margin at both ends.
    Time {
        /// Whole duration.
        total: Duration,
        /// Margin at either end.
        margin: Duration,
    },
}

/// When the sending end stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// After a number of messages, of which the first are warm-up.
    Messages {
        /// Warm-up messages.
        warm_up: u64,
        /// All messages.
        all: u64,
    },
    /// After a time, in nanoseconds since the start.
    Time {
        /// Counting starts.
        from: u64,
        /// Counting ends.
        to: u64,
        /// The run ends.
        end: u64,
    },
}

impl Amount {
    /// Whether there is something to count.
    pub fn is_sound(self) -> bool {
        match self {
            Amount::Messages { counted, .. } => counted > 0,
            Amount::Time { total, margin } => margin.checked_mul(2).is_some_and(|margins| margins < total),
        }
    }
}

impl From<Amount> for Goal {
    fn from(amount: Amount) -> Self {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        match amount {
            Amount::Messages { warm_up, counted } => Goal::Messages { warm_up, all: warm_up.saturating_add(counted) },
            Amount::Time { total, margin } => {
                Goal::Time { from: nanos(margin), to: nanos(total.saturating_sub(margin)), end: nanos(total) }
            }
        }
    }
}

/// What both ends must agree on.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Agreed {
    /// The kind of test.
    pub test: Test,
    /// The operation under test.
    pub operation: Operation,
    /// The service of the queue pairs.
    pub connection: Connection,
    /// The atomic operation, if it is one.
    pub atomic_type: AtomicType,
    /// Message sizes in bytes, one run each.
    pub sizes: Vec<usize>,
    /// How long each is measured.
    pub amount: Amount,
    /// Number of queue pairs.
    pub qps: usize,
    /// Both ends send.
    pub both_ways: bool,
    /// Path MTU in bytes.
    pub mtu: u32,
    /// The connection manager connects the queue pairs.
    pub rdma_cm: bool,
}

impl Agreed {
    /// Bytes of the largest message.
    pub fn largest(&self) -> usize {
        self.sizes.iter().copied().max().unwrap_or(1)
    }
}

/// The flags, checked.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What the other end must agree to.
    pub agreed: Agreed,
    /// Messages in flight on each queue pair.
    pub tx_depth: u64,
    /// Receives posted on each queue pair.
    pub rx_depth: u32,
    /// Messages posted with one doorbell.
    pub post_list: u64,
    /// Messages per completion, if given.
    cq_mod: Option<u64>,
    /// Largest message in bytes that is sent inline.
    pub inline: usize,
    /// `mtu` as a PRM value.
    pub path_mtu: PathMtu,
    /// Index of the local GID.
    pub gid_index: u8,
    /// The network of a function that this program owns.
    pub network: Option<Network>,
    /// Service level.
    pub service_level: u8,
    /// Acknowledgement timeout, as its PRM exponent.
    pub qp_timeout: u8,
    /// Maximum number of outstanding reads or atomics.
    pub outs: u8,
    /// Sleep instead of polling.
    pub events: bool,
    /// Measure the peak.
    pub peak: bool,
    /// The other end is perftest's program.
    pub perftest: bool,
    /// A message's memory is a multiple of this, in bytes.
    pub slot_unit: usize,
}

/// Whole pages, so that no two messages share one.
const PAGE: usize = 4096;

/// Bytes of an atomic.
pub const ATOMIC: usize = 8;
/// With more messages the peak is not measured, as in perftest.
const MOST_FOR_PEAK: u64 = 20_000;
/// Larger messages complete one by one by default, as in perftest.
const LARGE: usize = 8192;

impl Plan {
    /// The plan of `arguments`.
    ///
    /// # Errors
    /// The flags contradict each other, or ask for what is not supported.
    pub fn of(arguments: &Arguments) -> Result<Self, Failure> {
        arguments.unsupported.check()?;
        arguments.check_use()?;
        let latency = arguments.test == Test::Lat;
        let tx_depth = u64::from(arguments.tx_depth.unwrap_or(if latency { 1 } else { 128 }));
        let post_list = u64::from(arguments.post_list);
        if latency {
            let refuse =
                |flag: &str| Err(usage(format!("{flag} makes no sense for lat, which has one message in flight")));
            match () {
                () if tx_depth != 1 => return refuse("-t"),
                () if post_list != 1 => return refuse("-l"),
                () if arguments.cq_mod.is_some_and(|cq_mod| cq_mod != 1) => return refuse("-Q"),
                () if arguments.qp != 1 => return refuse("-q"),
                () if arguments.bidirectional => return refuse("-b"),
                () => {}
            }
        }
        for (flag, value) in [("-l", post_list), ("-Q", arguments.cq_mod.unwrap_or(1).into())] {
            if value > tx_depth {
                return Err(usage(format!("{flag} {value} is more than the {tx_depth} messages in flight: raise -t")));
            }
        }
        if arguments.svg.is_some() && !latency && !arguments.all {
            return Err(usage("--svg draws a latency distribution, or the result of each size: add -a"));
        }
        if arguments.svg.is_some() && arguments.listen {
            return Err(usage("--svg: only the client has the data to draw; pass it to the client"));
        }
        if arguments.events && latency && arguments.operation == Operation::Write {
            return Err(usage("-e: a write causes no event at its target, which polls memory"));
        }
        if arguments.host.is_some() && arguments.port == Some(0) {
            return Err(usage("-p 0 lets a server choose its port: give the client the one that the server says"));
        }
        if arguments.events && arguments.qp != 1 {
            return Err(usage("-e sleeps on one completion queue: use -q 1"));
        }
        if arguments.perftest && arguments.all && arguments.duration.is_some() {
            return Err(usage("-a, -D: perftest measures one size for a time, or a number of messages of all sizes"));
        }
        for (flag, given) in [("-R", arguments.rdma_cm), ("--perftest", arguments.perftest)] {
            if given && arguments.host.is_none() && !arguments.listen {
                return Err(usage(format!("{flag} connects two programs: a server (--listen) and a client (HOST)")));
            }
        }
        let path_mtu = PathMtu::from_bytes(arguments.mtu)
            .ok_or_else(|| usage(format!("-m: {} is not a path MTU: 256, 512, 1024, 2048 or 4096", arguments.mtu)))?;
        Ok(Plan {
            agreed: Agreed {
                test: arguments.test,
                operation: arguments.operation,
                connection: Connection::of(&arguments.connection, arguments.operation)?,
                atomic_type: arguments.atomic_type.unwrap_or_default(),
                sizes: sizes(arguments)?,
                amount: amount(arguments)?,
                qps: arguments.qp as usize,
                both_ways: arguments.bidirectional,
                mtu: arguments.mtu,
                rdma_cm: arguments.rdma_cm,
            },
            tx_depth,
            rx_depth: arguments.rx_depth.unwrap_or(512),
            post_list,
            cq_mod: arguments.cq_mod.map(u64::from),
            inline: inline(arguments),
            path_mtu,
            gid_index: arguments.gid_index.unwrap_or(u8::from(arguments.ip.is_some())),
            network: arguments.ip,
            service_level: arguments.sl,
            qp_timeout: arguments.qp_timeout,
            outs: arguments.outs.unwrap_or(16),
            events: arguments.events,
            peak: !arguments.no_peak,
            perftest: arguments.perftest,
            slot_unit: PAGE,
        })
    }

    /// Messages per completion, for messages of `size` bytes.
    pub fn cq_mod(&self, size: usize) -> u64 {
        let usual = match self.post_list {
            1 if size > LARGE || self.agreed.test == Test::Lat => 1,
            1 => 100,
            list => list,
        };
        self.cq_mod.unwrap_or(usual).min(self.tx_depth)
    }

    /// A plan for `agreed`, with defaults for the rest.
    #[cfg(test)]
    pub fn example(agreed: Agreed) -> Self {
        Plan {
            agreed,
            tx_depth: 16,
            rx_depth: 16,
            post_list: 1,
            cq_mod: None,
            inline: 0,
            path_mtu: PathMtu::Mtu1024,
            gid_index: 0,
            network: None,
            service_level: 0,
            qp_timeout: 14,
            outs: 16,
            events: false,
            peak: true,
            perftest: false,
            slot_unit: PAGE,
        }
    }

    /// Whether the peak is measured.
    pub fn looks_for_peak(&self) -> bool {
        let few = matches!(self.agreed.amount, Amount::Messages { counted, .. } if counted <= MOST_FOR_PEAK);
        self.peak && few && self.agreed.qps == 1
    }
}

/// Message sizes in bytes, one run each.
fn sizes(arguments: &Arguments) -> Result<Vec<usize>, Failure> {
    let atomic = arguments.operation == Operation::Atomic;
    if atomic && (arguments.all || arguments.size.is_some_and(|size| size as usize != ATOMIC)) {
        return Err(usage(format!("-s, -a: an atomic has {ATOMIC} bytes; leave them out")));
    }
    if !atomic && arguments.atomic_type.is_some() {
        return Err(usage("-A chooses the atomic operation: test atomic, or leave -A out"));
    }
    let usual = match arguments.test {
        _ if atomic => ATOMIC,
        Test::Bw => 65536,
        Test::Lat | Test::Rate => 2,
    };
    let one = arguments.size.map_or(usual, |size| size as usize);
    Ok(if arguments.all { (1..=23).map(|log| 1 << log).collect() } else { vec![one] })
}

fn amount(arguments: &Arguments) -> Result<Amount, Failure> {
    let Some(seconds) = arguments.duration else {
        let many = arguments.operation == Operation::Write && arguments.test != Test::Lat;
        let counted = arguments.iters.unwrap_or(if many { 5000 } else { 1000 });
        // perftest counts each message.
        let usual = if arguments.perftest { 0 } else { WARM_UP.min(counted) };
        return Ok(Amount::Messages { warm_up: arguments.warm_up.unwrap_or(usual), counted });
    };
    let margin = arguments.margin.unwrap_or(2);
    if u64::from(seconds) <= 2 * u64::from(margin) {
        return Err(usage(format!("-D {seconds}: two margins of {margin} s leave nothing to measure; lower -f")));
    }
    let of = |seconds: u32| Duration::from_secs(seconds.into());
    Ok(Amount::Time { total: of(seconds), margin: of(margin) })
}

/// Inline size. As in perftest, latency tests send inline what fits into 256 bytes of WQE.
fn inline(arguments: &Arguments) -> usize {
    let usual = match (arguments.test, arguments.operation) {
        (Test::Lat, Operation::Write) => 220,
        (Test::Lat, Operation::Send) => 236,
        _ => 0,
    };
    match arguments.operation {
        operation if operation.fetches() => 0,
        _ => arguments.inline_size.unwrap_or(usual).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn plan(line: &str) -> Result<Plan, String> {
        let words = std::iter::once("perf").chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        Plan::of(&line.arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_not_said_is_as_in_perftest() {
        let lat = plan("lat write").unwrap();
        assert_eq!((lat.agreed.sizes, lat.tx_depth, lat.inline), (vec![2], 1, 220));
        assert_eq!(lat.agreed.amount, Amount::Messages { warm_up: 100, counted: 1000 });
        let bw = plan("bw write").unwrap();
        assert_eq!((&bw.agreed.sizes[..], bw.tx_depth, bw.inline, bw.cq_mod(65536)), (&[65536][..], 128, 0, 1));
        assert_eq!(bw.agreed.amount, Amount::Messages { warm_up: 100, counted: 5000 });
        let bw = plan("bw send -s 64").unwrap();
        assert_eq!((bw.cq_mod(64), bw.rx_depth, bw.agreed.mtu), (100, 512, 1024));
        assert_eq!(plan("bw send -s 64 -l 8").unwrap().cq_mod(64), 8);
        assert_eq!(plan("rate write").unwrap().agreed.sizes, [2]);
        let warm_up = |line| plan(line).unwrap().agreed.amount;
        assert_eq!(warm_up("lat write -n 30"), Amount::Messages { warm_up: 30, counted: 30 });
        assert_eq!(warm_up("lat write -n 30 --warm-up 50"), Amount::Messages { warm_up: 50, counted: 30 });
        assert_eq!(warm_up("lat write --perftest host"), Amount::Messages { warm_up: 0, counted: 1000 });
        let atomic = plan("bw atomic").unwrap();
        assert_eq!(
            (&atomic.agreed.sizes[..], atomic.agreed.atomic_type, atomic.inline),
            (&[8][..], AtomicType::FetchAdd, 0)
        );
        assert_eq!(atomic.agreed.amount, Amount::Messages { warm_up: 100, counted: 1000 });
        assert_eq!(plan("lat atomic -A CMP_AND_SWAP").unwrap().agreed.atomic_type, AtomicType::CompareSwap);
        let connection = |line| plan(line).unwrap().agreed.connection;
        assert_eq!((connection("bw send"), connection("bw send -c UC")), (Connection::Rc, Connection::Uc));
        let gid = |line| plan(line).unwrap().gid_index;
        assert_eq!((gid("bw send"), gid("bw send -R --listen --ip 10.0.0.4/24,10.0.0.1")), (0, 1));
        assert_eq!(gid("bw send -R --listen --ip 10.0.0.4/24 -x 0"), 0);
        for line in ["bw send -a -b --perftest --listen -R", "lat write -D 1 -f 0 --perftest host"] {
            plan(line).expect(line);
        }
        for line in ["bw write -r 1", "bw read -I 0 -o 4", "bw send -r 3 -I 4 --listen -p 7000", "bw write -D 5 -f 1"] {
            plan(line).expect(line);
        }
        let all = plan("bw read -a").unwrap().agreed.sizes;
        assert_eq!((all.first(), all.last(), all.len()), (Some(&2), Some(&(8 << 20)), 23));
    }

    #[test]
    fn what_is_not_supported_says_so() {
        for (line, word) in [
            ("lat atomic -s 64", "has 8 bytes"),
            ("bw atomic -a", "has 8 bytes"),
            ("lat read -A CMP_AND_SWAP", "test atomic"),
            ("bw write -c UD", "-c UD is not supported"),
            ("bw read -c UC", "need reliable connections"),
            ("lat atomic -c UC", "need reliable connections"),
            ("bw write -R", "-R connects two programs"),
            ("bw write --perftest", "--perftest connects two programs"),
            ("bw write --perftest --listen -a -D 9", "-a, -D: perftest measures one size for a time"),
            ("bw atomic --perftest --listen -a", "has 8 bytes"),
            ("lat send --perftest --listen -b", "-b makes no sense"),
            ("bw write --perftest --listen --warm-up 1", "cannot be used with"),
            ("bw write --listen --ip 10.0.0.4/24", "--rdma_cm"),
            ("bw write --listen -R --ip 10.0.0.4/24,10.0.1.1", "10.0.1.1 is no gateway"),
            ("bw write -z", "-z is not supported"),
            ("bw write --use-srq", "shared receive queues"),
            ("lat send -H", "--svg"),
            ("lat write -e", "polls memory"),
            ("lat send -q 2", "-q makes no sense"),
            ("lat send -t 2", "-t makes no sense"),
            ("bw write -m 1500", "not a path MTU"),
            ("bw write -l 200", "raise -t"),
            ("bw write -Q 200", "raise -t"),
            ("bw write -D 4", "lower -f"),
            ("bw write -D 4 -f 4294967295", "lower -f"),
            ("bw write -n 18446744073709551615", "2147483647"),
            ("bw write --warm-up 18446744073709551615", "2147483647"),
            ("bw write -p 0 host", "that the server says"),
            ("bw write -p 7000", "needs --listen or a HOST"),
            ("lat write -f 1", "--duration"),
            ("bw write -D 5 --warm-up 3", "cannot be used with"),
            ("bw write -r 3", "only sends need receives"),
            ("bw write -o 4", "limits reads and atomics"),
            ("bw send -o 4", "limits reads and atomics"),
            ("bw read -I 4", "test write or send"),
            ("bw write --svg x", "add -a"),
            ("lat write --svg x --listen", "to the client"),
        ] {
            let error = plan(line).expect_err(line);
            assert!(error.contains(word), "{line}: {error}");
        }
    }
}
