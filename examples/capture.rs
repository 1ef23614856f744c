//! Captures frames to pcapng files, with the card's times to the nanosecond: a striding receive queue, no copy before
//! the file's own.
//!
//! `capture` alone captures what one function of a software card sends to another. `capture -d DEVICE -w FILE` captures
//! what the function receives, all frames of its port where it may (`--promiscuous`), or those of filters:
//! `-f udp,dport=5000 -f arp`, each of which becomes a rule of the card. On `devx:` the frames of the filters are taken
//! from the kernel's network device.

use std::borrow::Cow;
use std::fs::File;
use std::io::BufWriter;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use clap::Parser;
use mlx5_dv::objects::{FlowGroup, FlowMatch, FlowMatcher, FlowRule, FlowTable, Pd, QueueCounter, Tir};
use mlx5_dv::queue::ethernet::{
    EthernetOptions, EthernetQueue, FrameCompletion, FrameFlags, Packet, PacketError, StridingOptions, StridingQueue,
};
use mlx5_dv::{ClockRate, Device, Error, Promiscuous, Timestamp};
use mlx5_examples::pingpong::Failure;
use mlx5_open::{Sim, program};
use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};

/// Longest wait for a frame before the time is looked at.
const NAP: Duration = Duration::from_millis(100);

/// Captures frames to pcapng files.
#[derive(Debug, Clone, Parser)]
#[command(name = "capture")]
struct Arguments {
    /// Device: vfio:0000:3b:00.0, devx:mlx5_0, vfio-user:/run/nic.sock; by default two functions of a software card.
    #[arg(short, long)]
    device: Option<String>,
    /// The file. With rotation a number is added before its extension: x.pcapng, x.1.pcapng, ...
    #[arg(short, long, default_value = "capture.pcapng")]
    write: PathBuf,
    /// Frames to capture: terms of ether=TYPE, arp, ip, ip6, tcp, udp, vlan=ID, src=IP, dst=IP, sport=N, dport=N, all
    /// of which hold, with commas between; any of several filters. Default: all frames.
    #[arg(short, long, value_parser = filter)]
    filter: Vec<FlowMatch>,
    /// End after so many frames.
    #[arg(short, long)]
    count: Option<u64>,
    /// End after so many seconds.
    #[arg(short = 't', long)]
    seconds: Option<u64>,
    /// Begin another file after so many frames.
    #[arg(long)]
    rotate: Option<u64>,
    /// Receive frames for others, too, on a function that this process owns.
    #[arg(long)]
    promiscuous: bool,
    /// Strip VLAN tags, and print them.
    #[arg(long)]
    strip_vlan: bool,
    /// Print a line for each frame: what the card says of it.
    #[arg(short, long)]
    verbose: bool,
}

/// A filter's match.
fn filter(text: &str) -> Result<FlowMatch, String> {
    let number = |term: &str, value: &str| {
        let (digits, radix) = value.strip_prefix("0x").map_or((value, 10), |digits| (digits, 16));
        u16::from_str_radix(digits, radix).map_err(|error| format!("{term}: {error}"))
    };
    let address = |term: &str, value: &str| value.parse::<IpAddr>().map_err(|error| format!("{term}: {error}"));
    let is_tcp = text.split(',').any(|term| term == "tcp");
    text.split(',').try_fold(FlowMatch::new(), |matched, term| {
        let (name, value) = term.split_once('=').unwrap_or((term, ""));
        Ok(match name {
            "ether" => matched.ethertype(number(term, value)?),
            "arp" => matched.ethertype(0x0806),
            "ip" => matched.ipv4(),
            "ip6" => matched.ipv6(),
            "tcp" => matched.tcp(),
            "udp" => matched.udp(),
            "vlan" => matched.vlan(number(term, value)?),
            "src" => matched.source_ip(address(term, value)?),
            "dst" => matched.destination_ip(address(term, value)?),
            "sport" if is_tcp => matched.tcp_source_port(number(term, value)?),
            "sport" => matched.udp_source_port(number(term, value)?),
            "dport" if is_tcp => matched.tcp_destination_port(number(term, value)?),
            "dport" => matched.udp_destination_port(number(term, value)?),
            _ => return Err(format!("no term {term:?}: see --help")),
        })
    })
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    program::run("capture", || match &arguments.device {
        Some(name) => run(&mlx5_open::open(name)?, &arguments, || Ok(())),
        None => {
            let sim = Sim::builder().functions(2).build()?;
            let (sender, device) = (sim.open(0)?, sim.open(1)?);
            let mut arguments = arguments.clone();
            arguments.count = arguments.count.or(Some(100));
            let count = arguments.count.unwrap_or_default();
            run(&device, &arguments, || send(&sender, &device, count))
        }
    })
}

/// Captures; `begin` is called once frames can arrive.
fn run(
    device: &Arc<Device>,
    arguments: &Arguments,
    begin: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let counter = QueueCounter::alloc(device)?;
    let mut options = StridingOptions::default();
    (options.events, options.strip_vlan, options.counter) = (true, arguments.strip_vlan, Some(Arc::clone(&counter)));
    let mut queue = StridingQueue::new(&Pd::alloc(device)?, options)?;
    let _rules = steer(&mut queue, arguments)?;
    let mut capture = Capture::new(device, arguments)?;
    println!("capturing on {} to {}", device.name(), arguments.write.display());
    begin()?;
    let start = Instant::now();
    let is_over = |frames| {
        arguments.count.is_some_and(|count| frames >= count)
            || arguments.seconds.is_some_and(|seconds| start.elapsed() >= Duration::from_secs(seconds))
    };
    while !is_over(capture.frames) {
        match queue.wait(NAP) {
            Ok(packet) => capture.take(&packet)?,
            Err(PacketError::Waiting(Error::Timeout { .. })) => {}
            Err(error) => return Err(error.into()),
        }
    }
    println!("{} frames in {} files, {} lost", capture.frames, capture.files, counter.out_of_buffer()?);
    Ok(())
}

/// What brings frames to the queue, until it is dropped.
struct Rules {
    _rules: Vec<FlowRule>,
    device: Arc<Device>,
    is_promiscuous: bool,
}

impl Drop for Rules {
    fn drop(&mut self) {
        if self.is_promiscuous
            && let Err(error) = self.device.set_promiscuous(Promiscuous::empty())
        {
            eprintln!("the function stays promiscuous: {error}");
        }
    }
}

fn steer(queue: &mut StridingQueue, arguments: &Arguments) -> Result<Rules, Failure> {
    let device = Arc::clone(queue.device());
    let filters = match &arguments.filter[..] {
        [] => vec![FlowMatch::new()],
        filters => filters.to_vec(),
    };
    if arguments.promiscuous {
        device.set_promiscuous(Promiscuous::all())?;
    }
    let rules = rules(queue.tir(), &filters)?;
    Ok(Rules { _rules: rules, device, is_promiscuous: arguments.promiscuous })
}

/// A rule for each filter. On an owned function in a flow table that becomes its root; on `devx:` before the kernel's.
fn rules(tir: &Arc<Tir>, filters: &[FlowMatch]) -> Result<Vec<FlowRule>, Failure> {
    let device = tir.device();
    let mut rules = Vec::new();
    if !device.is_owned() {
        for filter in filters {
            rules.push(FlowRule::beside_kernel(&FlowMatcher::create(device, 0, filter)?, filter, tir)?);
        }
        return Ok(rules);
    }
    let table = FlowTable::create(device, 0, filters.len() as u32)?;
    for (index, filter) in (0..).zip(filters) {
        rules.push(FlowRule::create(&FlowGroup::create(&table, index..index + 1, filter)?, filter, tir)?);
    }
    table.set_root()?;
    Ok(rules)
}

/// The files.
struct Capture {
    writer: PcapNgWriter<BufWriter<File>>,
    path: PathBuf,
    rotate: u64,
    verbose: bool,
    frames: u64,
    files: u64,
    clock: WallClock,
}

impl Capture {
    fn new(device: &Device, arguments: &Arguments) -> Result<Self, Failure> {
        Ok(Capture {
            writer: writer(&arguments.write)?,
            path: arguments.write.clone(),
            rotate: arguments.rotate.unwrap_or(u64::MAX).max(1),
            verbose: arguments.verbose,
            frames: 0,
            files: 1,
            clock: WallClock::of(device)?,
        })
    }

    fn take(&mut self, packet: &Packet) -> Result<(), Failure> {
        if self.frames > 0 && self.frames.is_multiple_of(self.rotate) {
            self.writer = writer(&numbered(&self.path, self.files))?;
            self.files += 1;
        }
        let timestamp = self.clock.time_of(packet.completion().timestamp);
        self.writer.write_pcapng_block(EnhancedPacketBlock {
            interface_id: 0,
            timestamp,
            original_len: packet.len() as u32,
            data: Cow::Borrowed(packet),
            options: vec![],
        })?;
        self.frames += 1;
        if self.verbose {
            println!("{}.{:09} {}", timestamp.as_secs(), timestamp.subsec_nanos(), line(packet.completion(), packet));
        }
        Ok(())
    }
}

/// What the card says of a frame.
fn line(told: &FrameCompletion, frame: &[u8]) -> String {
    let mut line = format!("{} bytes {} {}", frame.len(), told.l3(), told.l4());
    line += if told.l3_checksum_ok() { " l3_ok" } else { "" };
    line += if told.l4_checksum_ok() { " l4_ok" } else { "" };
    line += if told.is_fragment() { " fragment" } else { "" };
    line += if told.has_ip_options() { " options" } else { "" };
    line += &told.stripped_vlan().map_or(String::new(), |tci| format!(" vlan {}", tci & 0xfff));
    line + &told.rss_hash().map_or(String::new(), |hash| format!(" hash {:#010x}", hash.value))
}

fn writer(path: &Path) -> Result<PcapNgWriter<BufWriter<File>>, Failure> {
    const NANOSECONDS: u8 = 9;
    let file = File::create(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut writer = PcapNgWriter::new(BufWriter::new(file))?;
    let mut interface = InterfaceDescriptionBlock::new(DataLink::ETHERNET, 0);
    interface.options.push(InterfaceDescriptionOption::IfTsResol(NANOSECONDS));
    writer.write_pcapng_block(interface)?;
    Ok(writer)
}

/// `x.pcapng` and 3 make `x.3.pcapng`.
fn numbered(path: &Path, number: u64) -> PathBuf {
    let extension = path.extension().map_or(String::new(), |extension| format!(".{}", extension.display()));
    path.with_extension(format!("{number}{extension}"))
}

/// The card's clock beside the system's, as they were at the start.
struct WallClock {
    rate: ClockRate,
    card: Timestamp,
    system: Duration,
}

impl WallClock {
    fn of(device: &Device) -> Result<Self, Failure> {
        let system = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        Ok(WallClock { rate: device.clock_rate()?, card: device.timestamp()?, system })
    }

    /// The time since 1970 of a completion since the start.
    fn time_of(&self, time: Timestamp) -> Duration {
        self.system + self.rate.between(self.card, time)
    }
}

/// Sends `count` datagrams of growing length, for the capture of one function by another.
fn send(from: &Arc<Device>, to: &Arc<Device>, count: u64) -> Result<(), Failure> {
    let mut options = EthernetOptions::default();
    options.inline_bytes = 500;
    let mut queue = EthernetQueue::new(&Pd::alloc(from)?, options)?;
    for number in 0..count {
        let payload = vec![number as u8; 1 + number as usize % 400];
        queue.send_inline(&datagram(from, to, &payload), FrameFlags::L3_CHECKSUM | FrameFlags::L4_CHECKSUM)?;
        queue.wait(Duration::from_secs(20))?.result?;
    }
    Ok(())
}

/// A datagram from 10.0.0.1:5000 to 10.0.0.2:5001, whose checksums the card computes.
fn datagram(from: &Device, to: &Device, payload: &[u8]) -> Vec<u8> {
    let udp = 8 + payload.len() as u16;
    let mut frame = [&to.mac().0[..], &from.mac().0, &[8, 0, 0x45, 0]].concat();
    frame.extend((20 + udp).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    [5000u16, 5001, udp, 0].iter().for_each(|number| frame.extend(number.to_be_bytes()));
    frame.extend(payload);
    frame
}
