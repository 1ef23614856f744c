//! `mlx5 perf packet`: rates and times of Ethernet frames on raw queues.
//!
//! Each queue has a thread that polls. During a measurement no frame costs a system call or an allocation.

mod ends;
mod mode;
mod report;

use std::sync::Arc;

use mlx5_dv::{Device, Mac};
use mlx5_open::Sim;

use super::platform::{Platform, note};
use crate::output::{Failure, print, print_json, usage, useless};
use ends::{End, Load};
use mode::Mode;
use report::Row;

/// What to measure, and how.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    mlx5 perf packet tx                              both ends on a software card\n  \
    mlx5 perf packet rx -d vfio:0000:3b:00.0 -q 4    receives on four queues, what any generator sends\n  \
    mlx5 perf packet tx -d vfio:0000:af:00.0 --to 0c:42:a1:00:00:01 -s 64,128,1518\n  \
    mlx5 perf packet lat -d vfio:0000:3b:00.0 --peer vfio:0000:af:00.0    there and back, by the card's times")]
pub struct Arguments {
    /// tx: send; rx: receive; forward: send back what arrives (with both ends here, as fast as the other can send);
    /// lat: send one frame at a time, which the other end (forward) sends back.
    #[arg(value_enum)]
    mode: Mode,
    /// Device: vfio:0000:3b:00.0, devx:mlx5_0, vfio-user:/run/nic.sock; sim is two functions of a software card, with
    /// both ends.
    #[arg(short, long = "device", default_value = "sim")]
    device: String,
    /// Device of the other end, if it is to run in this process, too.
    #[arg(long)]
    peer: Option<String>,
    /// MAC address of the other end, for tx and lat without --peer.
    #[arg(long)]
    to: Option<Mac>,
    /// Bytes of a frame with its check sequence, as in RFC 2544, 64 to 9216; several with commas between.
    #[arg(short, long, value_delimiter = ',', default_value = "64", value_parser = clap::value_parser!(u32).range(64..=9216))]
    size: Vec<u32>,
    /// Queues of each end, with a thread each, 1 to 64; lat uses one.
    #[arg(short, long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    queues: u8,
    /// Frames of each size, 1 to 1000000000000 [default: 100000; 1000 for lat].
    #[arg(short = 'n', long, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    iters: Option<u64>,
    /// Frames with one doorbell, 1 to 64.
    #[arg(short = 'l', long = "post_list", default_value_t = 32, value_parser = clap::value_parser!(u8).range(1..=64))]
    burst: u8,
    /// UDP flows of what is sent, which are spread over the receiver's queues, 1 to 4096 [default: 64].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=4096))]
    flows: Option<u16>,
}

/// Measures and reports.
pub fn run(arguments: &Arguments, json: bool) -> Result<(), Failure> {
    arguments.check_use()?;
    let (near, far) = devices(arguments)?;
    let platforms: Vec<Platform> = [Some(&near), far.as_ref()].into_iter().flatten().map(|d| Platform::of(d)).collect();
    let note = note(&platforms);
    if !json {
        print(&report::head(arguments.mode, arguments.queues, &platforms))?;
    }
    let mut rows = Vec::new();
    for &size in &arguments.size {
        let usual = if arguments.mode == Mode::Lat { 1000 } else { 100_000 };
        let load = Load {
            size: size as usize,
            frames: arguments.iters.unwrap_or(usual),
            burst: arguments.burst.into(),
            flows: arguments.flows.unwrap_or(64),
        };
        let row = measure(arguments, (&near, far.as_ref()), &load)?;
        if !json {
            print(&row.line())?;
        }
        rows.push(row);
    }
    match json {
        true => print_json(&report::json(arguments.mode, arguments.queues, &rows, &platforms, note)),
        false => print(&report::foot(&rows, note)),
    }
}

impl Arguments {
    /// Whether both ends are in this process.
    fn has_both_ends(&self) -> bool {
        self.device == "sim" || self.peer.is_some()
    }

    /// Checks that each flag has something to act on.
    fn check_use(&self) -> Result<(), Failure> {
        let refused = |flag, needs| Err(useless(flag, needs));
        match self {
            _ if self.to.is_some() && !self.mode.sends_first() => refused("--to", "tx and lat alone send to it"),
            _ if self.to.is_some() && self.has_both_ends() => refused("--to", "both ends are in this process"),
            _ if self.flows.is_some() && !self.mode.sends_first() && !self.has_both_ends() => {
                refused("--flows", "what is received has the sender's")
            }
            _ => Ok(()),
        }
    }
}

/// The device, and the other end's if that is here, too.
fn devices(arguments: &Arguments) -> Result<(Arc<Device>, Option<Arc<Device>>), Failure> {
    if arguments.device == "sim" && arguments.peer.is_none() {
        let sim = Sim::builder().functions(2).build()?;
        return Ok((sim.open(0)?, Some(sim.open(1)?)));
    }
    if arguments.peer.is_none() && arguments.to.is_none() && arguments.mode.sends_first() {
        return Err(usage("tx and lat need --to with the other end's MAC address, or --peer"));
    }
    let far = arguments.peer.as_deref().map(mlx5_open::open).transpose()?;
    Ok((mlx5_open::open(&arguments.device)?, far))
}

/// Measures one size.
fn measure(
    arguments: &Arguments,
    (near, far): (&Arc<Device>, Option<&Arc<Device>>),
    load: &Load,
) -> Result<Row, Failure> {
    let queues = |mode| if mode == Mode::Lat { 1 } else { arguments.queues.into() };
    let ours = End::new(near, queues(arguments.mode), load)?;
    let Some(far) = far else {
        let to = arguments.to.unwrap_or(Mac::BROADCAST);
        return one_end(arguments.mode, ours, to, load);
    };
    let theirs = End::new(far, queues(arguments.mode.other()), load)?;
    match arguments.mode {
        Mode::Tx => ends::stream(ours, theirs, far.mac(), load),
        Mode::Rx => ends::stream(theirs, ours, near.mac(), load),
        Mode::Lat => ends::ping_pong(ours, theirs, far.mac(), load),
        Mode::Forward => ends::reflect(theirs, ours, near.mac(), load),
    }
}

/// This end alone: the other one is elsewhere.
fn one_end(mode: Mode, ours: End, to: Mac, load: &Load) -> Result<Row, Failure> {
    match mode {
        Mode::Tx => ours.transmit(to, load),
        Mode::Rx => ours.receive(load, &ends::Stop::default()),
        Mode::Forward => ours.forward(load, &ends::Stop::default()),
        Mode::Lat => ours.latency(to, load),
    }
}
