//! Brings a card up and tears it down, and prints each firmware command, decoded, as it happens.
//!
//! `bring_up [DEVICE]`; the software card by default. `--linux` prints the commands as Linux's driver logs them.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use mlx5_dv::Options;
use mlx5_dv::access::trace::{CommandRecord, Direction, KernelDump};
use mlx5_open::program;
use mlx5_prm::decode;

/// Brings a card up and prints each firmware command.
#[derive(Debug, Parser)]
#[command(name = "bring_up")]
struct Arguments {
    /// Device: sim, sim:connectx7, vfio:0000:3b:00.0, vfio-user:/run/nic.sock.
    #[arg(default_value = "sim")]
    device: String,
    /// Print hex dumps in the format of Linux's mlx5_core instead of fields.
    #[arg(long)]
    linux: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    program::run("bring_up", || run(&arguments))
}

fn run(arguments: &Arguments) -> Result<(), mlx5_dv::Error> {
    let options = if arguments.linux {
        Options::default().observe(Arc::new(KernelDump::new(&arguments.device, std::io::stdout())))
    } else {
        Options::default().observe(Arc::new(print))
    };
    let device = mlx5_open::open_with(&arguments.device, options)?;
    let (major, minor, subminor) = device.caps().fw_version;
    let port = device.port()?;
    say(&format!(
        "{} is up: firmware {major}.{minor}.{subminor:04}, port {}, MAC {}, {} pages given to firmware",
        device.name(),
        if port.up { "active" } else { "down" },
        port.mac,
        device.firmware_pages()
    ));
    drop(device); // tear-down is a sequence of commands, too
    Ok(())
}

/// Prints one command or reply: its non-zero fields by their PRM names.
fn print(record: &CommandRecord) {
    match record.direction {
        Direction::Input => say(&format!("-> {}", record.opcode)),
        Direction::Output => say(&format!("<- {} after {:.0?}", record.opcode, record.elapsed)),
    }
    print_fields(record.decoded());
}

fn print_fields(dump: Option<decode::Dump<'_>>) {
    match dump {
        Some(dump) => dump.to_string().lines().for_each(|line| say(&format!("     {line}"))),
        None => say("     (no layout known)"),
    }
}

/// Prints a line. Ignores a closed stdout, which must not leave the card half brought up.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
