//! Prints a card's asynchronous events as they happen: port up and down, errors of this program's queues. It ends when
//! the system wants the function back.
//!
//! `asyncwatch [DEVICE]`; the software card by default. After libibverbs' `ibv_asyncwatch`.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use mlx5_dv::{Error, Event};
use mlx5_open::program;

/// Prints a card's asynchronous events.
#[derive(Debug, Parser)]
#[command(name = "asyncwatch")]
struct Arguments {
    /// Device: sim, vfio:0000:3b:00.0, devx:mlx5_0, vfio-user:/run/nic.sock.
    #[arg(default_value = "sim")]
    device: String,
    /// Exit after this many events.
    #[arg(short, long)]
    events: Option<usize>,
    /// Exit after this many seconds.
    #[arg(short, long)]
    seconds: Option<u64>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    program::run("asyncwatch", || run(&arguments))
}

fn run(arguments: &Arguments) -> Result<(), Error> {
    let device = mlx5_open::open(&arguments.device)?;
    let events = device.events()?;
    say(&format!("{}: port {}", device.name(), if device.port()?.up { "up" } else { "down" }));
    let patience = arguments.seconds.map_or(Duration::MAX, Duration::from_secs);
    let begin = std::time::Instant::now();
    for _ in 0..arguments.events.unwrap_or(usize::MAX) {
        match events.wait(patience.saturating_sub(begin.elapsed())) {
            Ok(event) => {
                say(&event.to_string());
                if event == Event::WantedBack {
                    break;
                }
            }
            Err(Error::Timeout { .. }) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Prints a line and flushes. Ignores a closed stdout.
fn say(line: &str) {
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
