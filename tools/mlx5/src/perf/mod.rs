//! `mlx5 perf`: latency, bandwidth and message rate, with perftest's flags, headings and JSON keys.
//!
//! Both ends run in this process on one card, or each in its own: a server (`--listen`) and a client (HOST). During a
//! measurement no message costs a system call or an allocation: queues are polled, and times are read from the
//! processor's counter into memory allocated before. With `-e` an end sleeps while it is idle, which is a system call.

mod arguments;
mod bandwidth;
mod control;
mod latency;
mod local;
mod managed;
mod nvme;
mod other_end;
mod packet;
mod platform;
mod plot;
mod progress;
mod remote;
mod report;
mod run;
mod talk;
mod test_qp;
mod with_perftest;

use std::fs::File;
use std::path::Path;

use mlx5_dv::{Device, Gid};

use arguments::Plan;
use platform::Platform;
use remote::Outcome;
use report::{Report, Table};

use crate::output::{Failure, print, print_json, usage};

/// The arguments of `mlx5 perf`.
#[derive(Debug)]
pub enum Arguments {
    /// Of messages.
    Messages(Box<arguments::Arguments>),
    /// Of Ethernet frames.
    Packet(packet::Arguments),
    /// Of NVMe over RDMA.
    Nvme(nvme::Arguments),
}

/// By hand, as what measures messages has no subcommand, but what measures frames has.
impl clap::Args for Arguments {
    fn augment_args(command: clap::Command) -> clap::Command {
        let packet = packet::Arguments::augment_args(clap::Command::new("packet"))
            .about("Measure rates and times of Ethernet frames on raw queues: rx, tx, forward, lat");
        let nvme = nvme::Arguments::augment_args(clap::Command::new("nvme"))
            .about("Measure latency, bandwidth and I/Os a second of an NVMe namespace over RDMA, by `nvme_rdma perf`");
        arguments::Arguments::augment_args(command)
            .args_conflicts_with_subcommands(true)
            .subcommand_negates_reqs(true)
            .subcommand(packet)
            .subcommand(nvme)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for Arguments {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
        match matches.subcommand() {
            Some(("nvme", nvme)) => nvme::Arguments::from_arg_matches(nvme).map(Self::Nvme),
            Some((_, packet)) => packet::Arguments::from_arg_matches(packet).map(Self::Packet),
            None => arguments::Arguments::from_arg_matches(matches).map(|messages| Self::Messages(Box::new(messages))),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The software card in a process is that process's own.
const PRIVATE_CARD: &str = "-d sim is a private card of each process, without a wire to the other's: leave --listen \
    or the host out to measure both ends on one; or run `mlx5 sim --socket /tmp/a --socket /tmp/b`, and give the server \
    -d vfio-user:/tmp/a and the client -d vfio-user:/tmp/b";

/// Measures and reports.
pub fn run(arguments: &Arguments, json: bool) -> Result<(), Failure> {
    match arguments {
        Arguments::Messages(messages) => measure(messages, json),
        Arguments::Packet(packet) => packet::run(packet, json),
        Arguments::Nvme(nvme) => nvme::run(nvme, json),
    }
}

fn measure(arguments: &arguments::Arguments, json: bool) -> Result<(), Failure> {
    let plan = Plan::of(arguments)?;
    if arguments.device.split(':').next() == Some("sim") && (arguments.listen || arguments.host.is_some()) {
        return Err(usage(PRIVATE_CARD));
    }
    // What cannot be written is told before the run, not after it.
    [&arguments.out_json, &arguments.svg].into_iter().flatten().try_for_each(|path| writable(path))?;
    let device = mlx5_open::open_at(&arguments.device, plan.network.map(|network| network.address()))?;
    check_gid(&device, plan.gid_index)?;
    let ours = Platform::of(&device);
    let table = Table { shown: !json, gbits: arguments.gbits };
    let (plan, platforms, rows) = match &arguments.host {
        None if !arguments.listen => {
            let rows = local::run(&device, &plan, &ours, table)?;
            (plan, vec![ours], rows)
        }
        host if plan.perftest => {
            let (plan, rows) = match host {
                Some(host) => with_perftest::client(&device, &plan, &ours, (host, arguments.port()), table)?,
                None => with_perftest::server(&device, &plan, &ours, arguments.port(), table)?,
            };
            (plan, vec![ours], rows)
        }
        host => {
            let Outcome { plan, platform, rows } = match host {
                Some(host) => remote::client(&device, &plan, &ours, (host, arguments.port()), table)?,
                None => remote::server(&device, &plan, &ours, arguments.port(), table)?,
            };
            (plan, vec![ours, platform], rows)
        }
    };
    let report = Report { plan: &plan, platforms: &platforms, gbits: arguments.gbits, rows: &rows };
    if let Some(path) = &arguments.out_json {
        write(path, &(serde_json::to_string_pretty(&report.json())? + "\n"))?;
    }
    if let Some(path) = &arguments.svg {
        write(path, &plot::svg(&report)?)?;
    }
    if json { print_json(&report.json()) } else { print(&report.foot()) }
}

/// Checks that the card has the GID, and lists those that it has.
fn check_gid(device: &Device, index: u8) -> Result<(), Failure> {
    let gids = device.gids();
    if gids.is_empty() || gids.iter().any(|gid| u32::from(gid.index) == u32::from(index)) {
        return Ok(());
    }
    let named = |gid: &Gid| match gid.address.to_ipv4_mapped() {
        Some(ipv4) => format!("-x {} is {} ({ipv4})", gid.index, gid.address),
        None => format!("-x {} is {}", gid.index, gid.address),
    };
    let all: Vec<String> = gids.iter().map(named).collect();
    Err(format!("-x {index}: {} has no such GID; {}", device.name(), all.join(", ")).into())
}

/// Checks that the file can be written, and makes it if it is not there.
fn writable(path: &Path) -> Result<(), Failure> {
    let opened = File::options().append(true).create(true).open(path);
    opened.map(drop).map_err(|error| format!("{}: {error}", path.display()).into())
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()).into())
}
