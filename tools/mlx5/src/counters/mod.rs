//! `mlx5 counters`: what the port, the vport, the queues and the hardware counted, under Linux's names.

mod gather;
mod names;
mod report;

use std::time::Duration;

use mlx5_dv::discovery::Sysfs;
use regex::Regex;

use crate::output::{Failure, print, print_json, print_json_line};
use crate::pattern;
use gather::Card;
use report::{Report, Sample};

/// Which counters.
#[derive(Debug, clap::Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "Examples:\n  \
    mlx5 counters -d devx:mlx5_0             what is not zero\n  \
    mlx5 counters -d devx:mlx5_0 -w 1 -n 10 'port\\..*(packets|bytes)_phy'   rates, ten times\n  \
    mlx5 counters -d vfio:0000:3b:00.0 --json --all\n\n\
    Groups: port (the physical port, of all its functions; names of `ethtool -S`), vport (the function's), queue (queue \
    pairs; names of `rdma statistic`), hardware (what else is in hw_counters), infiniband (the standard's, of sysfs), \
    netdev (the kernel's network interface), pcie (the card's PCIe link). What a way to the card cannot tell is printed as `not known`, with the \
    reason; in JSON the reason is in `unknown`."
)]
pub struct Arguments {
    /// Device: sim, vfio:0000:3b:00.0, devx:mlx5_0, vfio-user:/run/nic.sock.
    #[arg(short, long = "device", visible_alias = "ib-dev", default_value = "sim")]
    device: String,
    /// Show rates, measured over this many seconds, 1 to 86400.
    #[arg(short, long = "watch", value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86400))]
    watch: Option<u32>,
    /// Number of reports with -w, 1 to 1000000; with --json and more than one, each is a line.
    #[arg(short = 'n', long, default_value_t = 1, requires = "watch", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    count: u32,
    /// Also print counters that are zero. JSON has them always.
    #[arg(short, long)]
    all: bool,
    /// Only counters whose `group.name` matches this regular expression, ignoring case; also those that are zero.
    pattern: Option<String>,
}

/// Prints the counters, or their rates.
pub fn run(arguments: &Arguments, json: bool) -> Result<(), Failure> {
    let name = mlx5_open::device_name(&arguments.device)?;
    let pattern = arguments.pattern.as_deref().map(pattern::compiled).transpose()?;
    let device = mlx5_open::open(&arguments.device)?;
    let card = Card { name: &name, device: &device, sysfs: &Sysfs::default() };
    let sample = || wanted(card.sample()?, pattern.as_ref());
    let show = |now: &Sample, before: Option<&Sample>| {
        let report = Report { device: name.to_string(), now, before, zeros: arguments.all || pattern.is_some() };
        match json {
            true if arguments.count > 1 => print_json_line(&report.json()),
            true => print_json(&report.json()),
            false => print(&report.to_string()),
        }
    };
    let mut before = sample()?;
    let Some(seconds) = arguments.watch else { return show(&before, None) };
    for _ in 0..arguments.count {
        std::thread::sleep(Duration::from_secs(seconds.into()));
        let now = sample()?;
        show(&now, Some(&before))?;
        before = now;
    }
    Ok(())
}

/// The counters that match `pattern`.
fn wanted(mut sample: Sample, pattern: Option<&Regex>) -> Result<Sample, Failure> {
    match pattern {
        Some(pattern) if !sample.keep(pattern) => {
            Err(format!("no counter matches `{pattern}`; without a pattern all are shown").into())
        }
        _ => Ok(sample),
    }
}
