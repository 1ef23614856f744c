//! Data polled in place of completions: RDMA WRITEs whose receiver looks at the last byte of its memory alone.
//!
//! That is right only where the card writes the bytes of a message in order: the program asks for it, and refuses
//! otherwise.

use std::process::ExitCode;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use clap::Parser;
use mlx5_dv::objects::{AccessFlags, MemoryRegion, Pd};
use mlx5_dv::queue::{Connection, ConnectionOptions};
use mlx5_examples::pingpong::Failure;
use mlx5_open::program;

/// Limit for each message.
const PATIENCE: Duration = Duration::from_secs(60);

/// Writes messages that their receiver finds by polling its memory.
#[derive(Debug, Parser)]
#[command(name = "poll_data")]
struct Options {
    /// Device: sim, vfio:0000:3b:00.0, devx:mlx5_0, vfio-user:/run/nic.sock.
    #[arg(short, long, default_value = "sim")]
    device: String,
    /// Number of messages.
    #[arg(short, long, default_value_t = 100)]
    iters: u32,
    /// Message size in bytes.
    #[arg(short, long, default_value_t = 8192)]
    size: usize,
}

fn main() -> ExitCode {
    let options = Options::parse();
    program::run("poll_data", || run(&options))
}

fn run(options: &Options) -> Result<(), Failure> {
    let device = mlx5_open::open(&options.device)?;
    let pd = Pd::alloc(&device)?;
    let mut ours = Connection::new(&pd, ConnectionOptions::default())?;
    let mut theirs = Connection::new(&pd, ConnectionOptions::default())?;
    let early = theirs.queue_pair().card_data_in_order()?;
    theirs.connect(&ours.local()?)?;
    ours.connect(&theirs.local()?)?;
    let (card, all) = (theirs.queue_pair().card_data_in_order()?, theirs.queue_pair().data_in_order()?);
    println!("data in order: before RTS {early}, card {card}, card and processors {all}");
    if !all {
        return Err("nobody promises the order of bytes here: wait for completions".into());
    }
    let size = options.size.max(1);
    let source = MemoryRegion::allocate(&pd, size, AccessFlags::LOCAL_WRITE)?;
    let target = MemoryRegion::allocate(&pd, size, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE)?;
    let mut found = vec![0; size];
    for number in 0..options.iters {
        // Never that of the message before, nor of fresh memory.
        let mark = (number % 255) as u8 + 1;
        source.fill(0, size, mark);
        ours.write(source.buffer(0..size)?, target.remote())?;
        wait_for(&target, size - 1, mark)?;
        target.read(0, &mut found);
        if let Some(at) = found.iter().position(|byte| *byte != mark) {
            return Err(format!("message {number}: byte {at} came after the last one").into());
        }
        ours.wait(PATIENCE)?.result?;
    }
    println!("polled: {} messages of {size} bytes, each whole when its last byte was seen", options.iters);
    Ok(())
}

/// Waits until byte `at` is `mark`.
fn wait_for(target: &MemoryRegion, at: usize, mark: u8) -> Result<(), Failure> {
    let (begin, mut last) = (Instant::now(), [0]);
    loop {
        target.read(at, &mut last);
        // What is read from here on is as new as the last byte.
        fence(Ordering::Acquire);
        if last[0] == mark {
            return Ok(());
        }
        if begin.elapsed() > PATIENCE {
            return Err(format!("byte {at} is {:#x}, and not {mark:#x}, after {PATIENCE:?}", last[0]).into());
        }
        std::thread::yield_now();
    }
}
