//! The command line: commands, and what all their helps have in common.

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::{caps, counters, decode, doctor, explain, info, list, manual, perf, serve};

/// A user-space driver for ConnectX (mlx5) cards, and a software card.
#[derive(Debug, Parser)]
#[command(
    name = "mlx5",
    version,
    after_help = "Examples:\n  \
    mlx5 doctor                              what this machine lacks, and the commands that fix it\n  \
    mlx5 list                                cards, and the ways to open each\n  \
    mlx5 info -d vfio:0000:3b:00.0           one look at a card\n  \
    dmesg | mlx5 explain                     what went wrong, and why"
)]
pub struct Arguments {
    /// Print JSON instead of text: documents of docs/json/, also errors, which go to stderr as one line.
    #[arg(long, global = true)]
    pub json: bool,
    /// Log more: -v what is done, -vv each step, -vvv all. RUST_LOG goes before it.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// List cards, the ways to open each, and what prevents it.
    List(list::Arguments),
    /// One look at a card: firmware, board, link, addresses, limits.
    Info(info::Arguments),
    /// Counters of the port, the vport, the queues and the hardware, and their rates.
    Counters(counters::Arguments),
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
    Doctor(doctor::Arguments),
    /// Print the completions of a shell.
    Completions(manual::Completions),
    /// Write the manual pages.
    Man(manual::Man),
}

/// What stands at the end of every help.
const EXIT_STATUS: &str = "Exit status:\n  \
    0  success, also if the reader of standard output went away\n  \
    1  failure: a card, a file or an input; for `doctor`, a problem\n  \
    2  a wrong command line: a flag, a value, a device string, a pattern\n\
    Every status but 0 comes with an error on stderr.";

/// The command line as clap has it, with the exit statuses at the end of each long help.
pub fn command() -> clap::Command {
    with_exit_status(Arguments::command())
}

fn with_exit_status(command: clap::Command) -> clap::Command {
    let examples = command.get_after_help().map(|help| format!("{help}\n\n")).unwrap_or_default();
    command.after_long_help(examples + EXIT_STATUS).mut_subcommands(with_exit_status)
}

impl Arguments {
    /// The arguments of this program.
    ///
    /// # Errors
    /// They are wrong; or they ask for a help or the version.
    pub fn of_program() -> Result<Self, clap::Error> {
        let mut command = command();
        let mut matches = command.try_get_matches_from_mut(std::env::args_os())?;
        Self::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
    }

    /// The level of the log.
    pub fn log_level(&self) -> &'static str {
        ["warn", "info", "debug", "trace"][usize::from(self.verbose.min(3))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::error::ErrorKind;
    use clap::{Arg, ArgAction};
    use regex::Regex;

    /// The flags of all commands that take a value and are shown in their help.
    fn flags() -> Vec<(String, Arg)> {
        let command = command();
        let of = |sub: &clap::Command| {
            let name = sub.get_name().to_owned();
            let flags = sub.get_arguments().filter(|flag| {
                flag.get_long().is_some()
                    && !flag.is_hide_set()
                    && matches!(flag.get_action(), ArgAction::Set | ArgAction::Append)
            });
            flags.map(|flag| (name.clone(), flag.clone())).collect::<Vec<_>>()
        };
        command.get_subcommands().flat_map(of).collect()
    }

    /// Whether clap takes the flag's value, whatever else it misses.
    fn takes(sub: &str, flag: &Arg, value: &str) -> bool {
        let word = format!("--{}={value}", flag.get_long().unwrap_or_default());
        let parsed = command().try_get_matches_from(["mlx5", sub, &word]);
        !matches!(parsed.map_err(|error| error.kind()), Err(ErrorKind::ValueValidation | ErrorKind::InvalidValue))
    }

    #[test]
    fn each_number_has_its_range_in_its_help_and_the_range_is_true() {
        let range = Regex::new(r"\b(\d+) to (\d+)\b").expect("a pattern");
        let mut checked = 0;
        for (sub, flag) in flags() {
            let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
            let name = format!("mlx5 {sub} --{}: {help}", flag.get_long().unwrap_or_default());
            let takes = |value: u64| takes(&sub, &flag, &value.to_string());
            let Some(found) = range.captures(&help) else {
                // Each number that has limits fails here, unless the help lists what it may be.
                let limited = takes(1) && !takes(u64::MAX);
                assert!(!limited || help.contains("256, 512") || help.contains("only 1"), "no range in {name}");
                continue;
            };
            let [low, high] = [1, 2].map(|at| found[at].parse::<u64>().expect("a number"));
            assert!(takes(low) && takes(high) && !takes(high + 1), "not {low} to {high}: {name}");
            assert!(low == 0 || !takes(low - 1), "{} is taken: {name}", low - 1);
            checked += 1;
        }
        assert!(checked >= 15, "only {checked} ranges");
    }

    #[test]
    fn each_help_has_examples_and_the_exit_statuses() {
        for sub in command().get_subcommands_mut() {
            let name = sub.get_name().to_owned();
            let help = sub.render_long_help().to_string();
            assert!(help.contains(&format!("Examples:\n  mlx5 {name}")) || help.contains("| mlx5"), "{help}");
            assert!(help.contains("Exit status:\n  0  success"), "{help}");
        }
    }

    #[test]
    fn the_log_is_louder_with_each_v() {
        let level = |words: &[&str]| {
            Arguments::try_parse_from([&["mlx5", "list"], words].concat()).map(|arguments| arguments.log_level()).ok()
        };
        assert_eq!(level(&[]), Some("warn"));
        assert_eq!(["-v", "-vv", "-vvv", "-vvvv"].map(|v| level(&[v])), ["info", "debug", "trace", "trace"].map(Some));
    }
}
