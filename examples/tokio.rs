//! Messages in the tasks of an executor, here tokio's: nothing polls, and no thread waits for the card.
//!
//! `tokio [DEVICE]`: one task echoes what it receives, another sends and compares, a third ticks meanwhile.

use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use mlx5_dv::objects::{ExclusiveRegion, Pd};
use mlx5_dv::queue::{Connection, ConnectionOptions, Done};
use mlx5_open::program;
use tokio::io::{Interest, unix::AsyncFd};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const ROUNDS: u32 = 1000;
const PATIENCE: Duration = Duration::from_secs(60);

/// Echoes messages between two tasks of tokio.
#[derive(Debug, Parser)]
#[command(name = "tokio")]
struct Arguments {
    /// Device: sim, vfio:0000:3b:00.0, devx:mlx5_0, vfio-user:/run/nic.sock.
    #[arg(default_value = "sim")]
    device: String,
}

/// A connection, with its descriptor in tokio's reactor.
struct Link {
    connection: Connection,
    fd: AsyncFd<OwnedFd>,
}

impl Link {
    #[expect(deprecated, reason = "its successor is unsafe: the descriptor must stay open, as an `OwnedFd` does")]
    fn new(pd: &Arc<Pd>) -> Result<Self, Failure> {
        let mut options = ConnectionOptions::default();
        options.events = true;
        let connection = Connection::new(pd, options)?;
        let fd = connection.fd().ok_or("a connection with events has a descriptor")?.try_clone_to_owned()?;
        Ok(Link { connection, fd: AsyncFd::with_interest(fd, Interest::READABLE)? })
    }

    /// The next work request that is done; other tasks run until then.
    async fn next(&mut self) -> Result<Done, Failure> {
        let readable = async || -> io::Result<()> {
            self.fd.readable().await?.clear_ready();
            Ok(())
        };
        Ok(self.connection.next(readable).await?)
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    program::run("tokio", || run(&arguments.device))
}

fn run(device: &str) -> Result<(), Failure> {
    let device = mlx5_open::open(device)?;
    let pd = Pd::alloc(&device)?;
    let region = ExclusiveRegion::allocate(&pd, 8192)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (mut near, mut far) = (Link::new(&pd)?, Link::new(&pd)?);
        near.connection.connect(&far.connection.local()?)?;
        far.connection.connect(&near.connection.local()?)?;
        // The next message finds a receive while the last one is read where it is.
        far.connection.receive(region.buffer(4..8)?)?;
        far.connection.receive(region.buffer(8..12)?)?;
        let mut ticks = 0;
        tokio::select! {
            done = async { tokio::try_join!(ask(&mut near, &region), echo(&mut far)) } => drop(done?),
            () = tokio::time::sleep(PATIENCE) => return Err("the echoes do not come".into()),
            () = tick(&mut ticks) => {}
        }
        println!("{ROUNDS} messages were echoed and compared; {ticks} ticks meanwhile");
        Ok(())
    })
}

/// Sends, and compares what comes back.
async fn ask(link: &mut Link, region: &ExclusiveRegion) -> Result<(), Failure> {
    for round in 0..ROUNDS {
        link.connection.receive(region.buffer(0..4)?)?;
        link.connection.send_inline(&round.to_be_bytes())?;
        // The send's completion, and the answer.
        for _ in 0..2 {
            if let Some(answer) = link.next().await?.received()
                && answer != round.to_be_bytes()
            {
                return Err(format!("round {round}: {answer:02x?} came back").into());
            }
        }
    }
    Ok(())
}

/// Sends back what it receives.
async fn echo(link: &mut Link) -> Result<(), Failure> {
    let mut echoed = 0;
    while echoed < ROUNDS {
        let done = link.next().await?;
        done.result?;
        // None for the completion of a send.
        if let Some(message) = done.received() {
            link.connection.send_inline(message)?;
            echoed += 1;
        }
        if let Some(buffer) = done.buffer {
            link.connection.receive(buffer)?;
        }
    }
    Ok(())
}

/// Counts milliseconds: what else a program does.
async fn tick(ticks: &mut u32) {
    loop {
        tokio::time::sleep(Duration::from_millis(1)).await;
        *ticks += 1;
    }
}
