//! Remote atomics: the client changes a number of the server by fetch-and-add and compare-and-swap.
//!
//! Without a host both ends run in this process, on one card. `--listen` waits for a client; HOST connects to a server.
//! They exchange link-local GIDs as `ibv_rc_pingpong` does. The server then sends the address of its number; at the end
//! the client sends the expected value.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use mlx5_dv::Device;
use mlx5_dv::objects::{AccessFlags, MemoryRegion, Pd};
use mlx5_dv::queue::{Connection, ConnectionOptions, RemoteAddress};
use mlx5_examples::exchange::{self, Address};
use mlx5_examples::pingpong::Failure;
use mlx5_open::program;

/// How long an end waits for the other.
const PATIENCE: Duration = Duration::from_secs(120);
/// Initial value: a few additions carry into the next byte.
const FIRST: u64 = 0x0102_0304_0506_07f0;
/// Final value.
const LAST: u64 = 0xf1e2_d3c4_b5a6_9788;

/// Changes a remote number by atomic operations.
#[derive(Debug, Parser)]
#[command(name = "atomics")]
struct Options {
    /// Connect to the server on this host. Without a host both ends run in this process.
    host: Option<String>,
    /// Run as server: wait for one client.
    #[arg(long, conflicts_with = "host")]
    listen: bool,
    /// TCP port of the server.
    #[arg(short, long, default_value_t = 18515)]
    port: u16,
    /// Device: sim, vfio:0000:3b:00.0, devx:mlx5_0, vfio-user:/run/nic.sock.
    #[arg(short = 'd', long = "ib-dev", default_value = "sim")]
    device: String,
    /// Number of additions.
    #[arg(short = 'n', long, default_value_t = 1000)]
    iters: u64,
}

fn main() -> ExitCode {
    let options = Options::parse();
    program::run("atomics", || run(&options))
}

fn run(options: &Options) -> Result<(), Failure> {
    let device = mlx5_open::open(&options.device)?;
    let (client, server) = (|host: &str| ask(&device, host, options), || listen(&device, options.port));
    match &options.host {
        Some(host) => client(host),
        None if options.listen => server(),
        None => std::thread::scope(|scope| {
            let server = scope.spawn(server);
            client("127.0.0.1")?;
            server.join().map_err(|_| "the server's thread panicked")?
        }),
    }
}

/// One end: a connection, and memory for the number and for messages.
struct End {
    connection: Connection,
    region: Arc<MemoryRegion>,
}

impl End {
    /// Creates a queue pair, ready to connect, which permits remote atomics only.
    fn new(device: &Arc<Device>) -> Result<Self, Failure> {
        let pd = Pd::alloc(device)?;
        let mut options = ConnectionOptions::default();
        (options.remote_access, options.events) = (AccessFlags::REMOTE_ATOMIC, true);
        let region = MemoryRegion::allocate(&pd, 4096, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_ATOMIC)?;
        Ok(End { connection: Connection::new(&pd, options)?, region })
    }

    fn address(&self) -> Result<Address, Failure> {
        Ok(self.connection.local()?.into())
    }

    fn connect(&mut self, remote: Address) -> Result<(), Failure> {
        Ok(self.connection.connect(&remote.peer(None))?)
    }

    fn send(&mut self, words: [u64; 2]) -> Result<(), Failure> {
        let mut buffer = self.region.buffer(64..80)?;
        words.iter().enumerate().for_each(|(i, word)| buffer.write(8 * i, &word.to_be_bytes()));
        self.connection.send_blocking(buffer, PATIENCE)?;
        Ok(())
    }

    fn receive(&mut self) -> Result<[u64; 2], Failure> {
        let (_, buffer) = self.connection.receive_blocking(self.region.buffer(128..144)?, PATIENCE)?;
        drop(buffer);
        Ok([128, 136].map(|at| u64::from_be_bytes(self.bytes(at))))
    }

    /// Adds to the remote number; returns its previous value.
    fn fetch_add(&mut self, remote: RemoteAddress, add: u64) -> Result<u64, Failure> {
        let (found, _) = self.connection.fetch_add_blocking(self.region.buffer(0..8)?, remote, add, PATIENCE)?;
        Ok(found)
    }

    /// Swaps the remote number if it equals `compare`; returns its previous value.
    fn compare_swap(&mut self, remote: RemoteAddress, compare: u64, swap: u64) -> Result<u64, Failure> {
        let buffer = self.region.buffer(0..8)?;
        let (found, _) = self.connection.compare_swap_blocking(buffer, remote, compare, swap, PATIENCE)?;
        Ok(found)
    }

    fn bytes(&self, at: usize) -> [u8; 8] {
        let mut bytes = [0; 8];
        self.region.read(at, &mut bytes);
        bytes
    }
}

fn listen(device: &Arc<Device>, port: u16) -> Result<(), Failure> {
    let mut end = End::new(device)?;
    let accepted = exchange::accept(port, PATIENCE)?;
    let [remote] = accepted.remote;
    end.connect(remote)?;
    let mine = end.address()?;
    accepted.answer(&[mine])?;
    end.region.write(0, &FIRST.to_ne_bytes());
    let RemoteAddress { addr, rkey } = end.region.remote();
    end.send([addr, rkey.into()])?;
    let [told, _] = end.receive()?;
    is("the number", u64::from_ne_bytes(end.bytes(0)), told)?;
    println!("the client changed it to {told:#x}");
    Ok(())
}

fn ask(device: &Arc<Device>, host: &str, options: &Options) -> Result<(), Failure> {
    let mut end = End::new(device)?;
    let asked = exchange::ask(host, options.port, &[end.address()?], PATIENCE)?;
    let [remote] = asked.remote;
    end.connect(remote)?;
    asked.finish()?;
    let [addr, rkey] = end.receive()?;
    let remote = RemoteAddress { addr, rkey: u32::try_from(rkey)? };
    let added = FIRST.wrapping_add(options.iters);
    for number in 0..options.iters {
        is("fetch and add", end.fetch_add(remote, 1)?, FIRST.wrapping_add(number))?;
    }
    is("failing compare and swap", end.compare_swap(remote, !added, 0)?, added)?;
    is("compare and swap", end.compare_swap(remote, added, LAST)?, added)?;
    is("fetch and add of 0", end.fetch_add(remote, 0)?, LAST)?;
    end.send([LAST, 0])?;
    println!("{} additions to {FIRST:#x}, and a swap to {LAST:#x}", options.iters);
    Ok(())
}

/// Checks the value that `what` returned.
fn is(what: &str, found: u64, expected: u64) -> Result<(), Failure> {
    if found == expected { Ok(()) } else { Err(format!("{what}: {found:#x} instead of {expected:#x}").into()) }
}
