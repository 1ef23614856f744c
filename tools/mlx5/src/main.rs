//! `mlx5`: lists cards, shows capabilities and counters, decodes and explains logs, measures, serves the software card.
//!
//! Results go to stdout, with `--json` as JSON; errors go to stderr and name the fix. Exit status: 0 success, 1
//! failure, 2 a wrong command line.

mod caps;
mod cli;
mod counters;
mod decode;
mod doctor;
mod explain;
mod info;
mod list;
mod manual;
mod output;
mod pattern;
mod perf;
mod serve;
mod traffic;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use mlx5_open::program;

use cli::{Arguments, Command};
use output::{Failure, MISUSED, fail, tell};

fn main() -> ExitCode {
    let arguments = match Arguments::of_program() {
        Ok(arguments) => arguments,
        Err(error) => return misused(&error),
    };
    program::start_log(arguments.log_level());
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => ExitCode::from(fail(&error, arguments.json)),
    }
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let json = arguments.json;
    match &arguments.command {
        Command::List(_) => list::run(json),
        Command::Info(info) => info::run(info, json),
        Command::Counters(counters) => counters::run(counters, json),
        Command::Caps(caps) => caps::run(caps, json),
        Command::Explain(what) => explain::run(what, json),
        Command::Decode(decode) => decode::run(decode, json),
        Command::Perf(perf) => perf::run(perf, json),
        Command::Sim(sim) => serve::run(sim, json),
        Command::Doctor(_) => doctor::run(json),
        Command::Completions(completions) => manual::completions(completions, cli::command()),
        Command::Man(man) => manual::man(man, cli::command()),
    }
}

/// Prints an error of the command line, or help. Control characters of the arguments stay out of the terminal.
fn misused(error: &clap::Error) -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let hostile = |argument: &OsString| argument.to_string_lossy().chars().any(char::is_control);
    let text = || error.render().to_string().lines().map(program::printable).collect::<Vec<_>>().join("\n");
    if error.use_stderr() && arguments.iter().any(|argument| argument == "--json") {
        tell(text().trim().trim_start_matches("error: "), MISUSED, true);
    } else if !arguments.iter().any(hostile) {
        // A closed stderr or stdout is nobody's loss.
        let _ = error.print();
    } else {
        let _ = writeln!(std::io::stderr(), "{}", text());
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(MISUSED))
}
