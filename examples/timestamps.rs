//! The card's clock, which completions bear: when each of some messages was completed, and how long after the one
//! before.
//!
//! The messages are RDMA WRITEs from one queue pair of the card to another.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use mlx5_dv::objects::{AccessFlags, MemoryRegion, Pd};
use mlx5_dv::queue::{Connection, ConnectionOptions};
use mlx5_examples::pingpong::Failure;
use mlx5_open::program;

/// Limit for each message.
const PATIENCE: Duration = Duration::from_secs(60);

/// Prints when messages were completed, by the card's clock.
#[derive(Debug, Parser)]
#[command(name = "timestamps")]
struct Options {
    /// Device: sim, vfio:0000:3b:00.0, devx:mlx5_0, vfio-user:/run/nic.sock.
    #[arg(default_value = "sim")]
    device: String,
    /// Number of messages.
    #[arg(short = 'n', long, default_value_t = 5)]
    iters: u32,
}

fn main() -> ExitCode {
    let options = Options::parse();
    program::run("timestamps", || run(&options))
}

fn run(options: &Options) -> Result<(), Failure> {
    let device = mlx5_open::open(&options.device)?;
    let pd = Pd::alloc(&device)?;
    let mut ours = Connection::new(&pd, ConnectionOptions::default())?;
    let mut theirs = Connection::new(&pd, ConnectionOptions::default())?;
    theirs.connect(&ours.local()?)?;
    ours.connect(&theirs.local()?)?;
    let source = MemoryRegion::allocate(&pd, 4096, AccessFlags::LOCAL_WRITE)?;
    let target = MemoryRegion::allocate(&pd, 4096, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE)?;

    let rate = device.clock_rate()?;
    let mut last = device.timestamp()?;
    println!("now {} at {} kHz", last.0, rate.khz());
    for number in 0..options.iters {
        ours.write(source.buffer(0..64)?, target.remote())?;
        let (at, now) = (ours.wait(PATIENCE)?.result?.timestamp, device.timestamp()?);
        if !(last..=now).contains(&at) {
            return Err(format!("message {number} was completed at {}, not from {} to {}", at.0, last.0, now.0).into());
        }
        println!("message {number} at {}, {:?} later", at.0, rate.between(last, at));
        last = at;
    }
    println!("now {}", device.timestamp()?.0);
    match device.real_time() {
        Ok(time) => println!("real time {}.{:09}", time.seconds, time.nanoseconds),
        Err(error @ mlx5_dv::Error::Unsupported { .. }) => println!("{error}"),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}
