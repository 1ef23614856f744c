//! `mlx5 perf`: latency, bandwidth and message rate, with perftest's flags, headings and JSON keys.
//!
//! Both ends run here, on one card, or each in a program of its own: a server (`--listen`), a client (HOST). While a size is
//! measured no message costs a system call or an allocation: queues are polled, times are read from the processor's counter
//! and kept in memory that was there before. `-e` sleeps, which is a system call each time there is nothing to do.

mod alone;
mod apart;
mod arguments;
mod bandwidth;
mod ground;
mod lane;
mod latency;
mod play;
mod plot;
mod progress;
mod report;

pub use arguments::Arguments;

use std::path::Path;
use std::time::Duration;

use apart::Outcome;
use arguments::Plan;
use ground::Ground;
use report::Report;

use crate::{Failure, print, print_json};

/// How long an end that sleeps does so before it looks whether the other is still there.
const NAP: Duration = Duration::from_millis(100);

/// Measures and reports.
pub fn run(arguments: &Arguments, json: bool) -> Result<(), Failure> {
    let plan = Plan::of(arguments)?;
    let device = mlx5_open::open(&arguments.device)?;
    let ours = Ground::of(&device);
    let (plan, grounds, rows) = match &arguments.host {
        None if !arguments.listen => {
            let rows = alone::run(&device, &plan)?;
            (plan, vec![ours], rows)
        }
        host => {
            let Outcome { plan, ground, rows } = match host {
                Some(host) => apart::client(&device, &plan, &ours, host, arguments.port)?,
                None => apart::server(&device, &plan, &ours, arguments.port)?,
            };
            (plan, vec![ours, ground], rows)
        }
    };
    let report = Report { plan: &plan, grounds: &grounds, gbits: arguments.gbits, rows: &rows };
    if let Some(path) = &arguments.out_json {
        write(path, &(serde_json::to_string_pretty(&report.json())? + "\n"))?;
    }
    if let Some(path) = &arguments.svg {
        write(path, &plot::svg(&report)?)?;
    }
    if json { print_json(&report.json()) } else { print(&report.text()) }
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()).into())
}
