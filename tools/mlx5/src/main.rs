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
mod perf;
mod serve;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use mlx5_open::program;

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

/// What a command may fail with.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Prints `value` for machines.
fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    print(&(serde_json::to_string_pretty(value)? + "\n"))
}

/// Writes to stdout. A reader that has seen enough, such as `head`, ends the program in peace.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        written => Ok(written?),
    }
}

fn examine(json: bool) -> Result<(), Failure> {
    let report = doctor::examine(&doctor::Machine::here());
    if json {
        return print_json(&report);
    }
    print(&report.to_string())
}
