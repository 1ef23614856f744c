//! `mlx5`: lists cards, shows capabilities, decodes and explains logs, measures, serves the software card.
//!
//! Results go to stdout, with `--json` as JSON; errors go to stderr and name the fix. Exit status: 0 success, 1
//! failure, 2 wrong usage.

mod board;
mod caps;
mod decode;
mod doctor;
mod explain;
mod info;
mod list;
mod output;
mod perf;
mod serve;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use mlx5_open::program;

use output::{Failure, print, print_json};

/// A user-space driver for ConnectX (mlx5) cards, and a software card.
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
    /// List cards, the ways to open each, and what prevents it.
    List,
    /// One look at a card: firmware, board, link, addresses, limits.
    Info(info::Arguments),
    /// Show HCA capabilities by their PRM names.
    Caps(caps::Arguments),
    /// Explain an error: meaning, usual causes, what to check.
    Explain(explain::Arguments),
    /// Decode a kernel's command log, or hex of a named layout, into fields by their PRM names.
    Decode(decode::Arguments),
    /// Measure latency, bandwidth and message rate, with perftest's flags, headings and JSON keys.
    Perf(perf::Arguments),
    /// Serve the software card over vfio-user: one function per socket, all on one wire.
    Sim(serve::Arguments),
    /// Check this machine for each way to open a card, and print the commands that fix it.
    Doctor,
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return misused(&error),
    };
    program::run("mlx5", || match &arguments.command {
        Command::List => list::run(arguments.json),
        Command::Info(info) => info::run(info, arguments.json),
        Command::Caps(caps) => caps::run(caps, arguments.json),
        Command::Explain(what) => explain::run(what, arguments.json),
        Command::Decode(decode) => decode::run(decode, arguments.json),
        Command::Perf(perf) => perf::run(perf, arguments.json),
        Command::Sim(sim) => serve::run(sim, arguments.json),
        Command::Doctor => examine(arguments.json),
    })
}

/// Prints an error of the command line, or help. Control characters of the arguments stay out of the terminal.
fn misused(error: &clap::Error) -> ExitCode {
    let hostile = |argument: &OsString| argument.to_string_lossy().chars().any(char::is_control);
    if !std::env::args_os().any(|argument| hostile(&argument)) {
        // A closed stderr or stdout is nobody's loss.
        let _ = error.print();
    } else {
        let text = error.render().to_string();
        let _ = writeln!(std::io::stderr(), "{}", text.lines().map(program::printable).collect::<Vec<_>>().join("\n"));
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

fn examine(json: bool) -> Result<(), Failure> {
    let report = doctor::examine(&doctor::Machine::here());
    if json {
        return print_json(&report);
    }
    print(&report.to_string())
}
