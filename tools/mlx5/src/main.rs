//! `mlx5`: look at cards, read what drivers tell them, measure them, serve the software card, and find out what stands in the
//! way.
//!
//! Results go to stdout, `--json` for machines; errors to stderr, with the fix in them. Exit status: 0 done, 1 failed,
//! 2 wrong usage.

mod caps;
mod decode;
mod doctor;
mod explain;
mod list;
mod output;
mod perf;
mod serve;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use mlx5_open::program;

use output::{Failure, print, print_json};

/// A userspace driver for ConnectX (mlx5) cards, and a software card.
#[derive(Debug, Parser)]
#[command(name = "mlx5", version)]
struct Arguments {
    /// Print JSON instead of text.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Cards here, how each can be reached, and what stands in the way.
    List,
    /// HCA capabilities by their PRM names.
    Caps(caps::Arguments),
    /// What an error means, what causes it in the field, what to look at.
    Explain(explain::Arguments),
    /// A kernel's command log, or hex of a named layout, into fields by their PRM names.
    Decode(decode::Arguments),
    /// Latency, bandwidth and message rate, with perftest's flags, headings and JSON keys.
    Perf(perf::Arguments),
    /// Serve the software card over vfio-user: one function a socket, all on one wire.
    Sim(serve::Arguments),
    /// What this machine lacks for each way to a card, and the line that mends it.
    Doctor,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    program::run("mlx5", || match &arguments.command {
        Command::List => list::run(arguments.json),
        Command::Caps(caps) => caps::run(caps, arguments.json),
        Command::Explain(what) => explain::run(what, arguments.json),
        Command::Decode(decode) => decode::run(decode, arguments.json),
        Command::Perf(perf) => perf::run(perf, arguments.json),
        Command::Sim(sim) => serve::run(sim, arguments.json),
        Command::Doctor => examine(arguments.json),
    })
}

fn examine(json: bool) -> Result<(), Failure> {
    let report = doctor::examine(&doctor::Machine::here());
    if json {
        return print_json(&report);
    }
    print(&report.to_string())
}
