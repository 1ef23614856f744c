//! Reserves numbers of queue pairs while a command runs. No queue pair of the port, and nobody else who reserves
//! numbers, gets them meanwhile.
//!
//! `reserved_qpns -d DEVICE [COMMAND...]`

use std::process::{Command, ExitCode};

use clap::Parser;
use mlx5_dv::objects::ReservedQpns;
use mlx5_examples::pingpong::Failure;
use mlx5_open::program;

/// Reserves numbers of queue pairs while a command runs.
#[derive(Debug, Parser)]
#[command(name = "reserved_qpns")]
struct Options {
    /// Device: sim, vfio:0000:3b:00.0, devx:mlx5_0, vfio-user:/run/nic.sock.
    #[arg(short, long, default_value = "sim")]
    device: String,
    /// The command and its arguments. Without one, the numbers are given back at once.
    #[arg(trailing_var_arg = true)]
    command: Vec<String>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    program::run("reserved_qpns", || run(&options))
}

fn run(options: &Options) -> Result<(), Failure> {
    let device = mlx5_open::open(&options.device)?;
    let reserved = ReservedQpns::alloc(&device)?;
    let numbers = reserved.numbers();
    println!("reserved {:#x} to {:#x}", numbers.start, numbers.end - 1);
    if let Some((program, arguments)) = options.command.split_first() {
        let status = Command::new(program).args(arguments).status().map_err(|error| format!("{program}: {error}"))?;
        if !status.success() {
            return Err(format!("{program}: {status}").into());
        }
    }
    Ok(ReservedQpns::destroy(reserved)?)
}
