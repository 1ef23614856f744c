//! Fast registration, as storage protocols use it: the server opens scattered buffers to the client as one piece, for
//! one transfer, and closes them again.
//!
//! In each round the server registers a key by a work request, and sends address and key. The client writes what the
//! key covers, reads it back, and sends a message. In even rounds that message invalidates the key, in odd rounds the
//! server does. At last the client tries a key that is closed, and must be refused. With `--window` the server opens
//! bytes of its region by a memory window of type 2; with `--rereg` it gives a region other rights, which takes a
//! command each time.
//!
//! Without a host both ends run in this process, on one card. `--listen` waits for a client; HOST connects to a server.
//! They exchange link-local GIDs as `ibv_rc_pingpong` does.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use mlx5_dv::Device;
use mlx5_dv::objects::{AccessFlags, Buffer, MemoryRegion, Pd, RegionChanges, UmrKeyOptions, WindowType};
use mlx5_dv::queue::{
    Binding, Completion, Connection, ConnectionOptions, Done, FastKey, FastWindow, RemoteAddress, Ticket, WaitError,
};
use mlx5_examples::exchange::{self, Address};
use mlx5_examples::pingpong::{Failure, is};
use mlx5_open::program;
use mlx5_prm::cqe::CqeSyndrome;

/// How long an end waits for the other.
const PATIENCE: Duration = Duration::from_secs(120);
/// Bytes of a transfer.
const LENGTH: usize = 1024;
/// Rounds: each shape of a key is closed from either side.
const ROUNDS: usize = 8;
/// Parts of the longest list: more than a work request holds.
const PARTS: usize = 64;
/// What a key opens.
const ACCESS: AccessFlags = AccessFlags::LOCAL_WRITE.union(AccessFlags::REMOTE_WRITE).union(AccessFlags::REMOTE_READ);
/// Where in the region the messages lie.
const OUT: usize = 16384;
const IN: usize = 16448;

/// Opens buffers to a remote for one transfer at a time.
#[derive(Debug, Parser)]
#[command(name = "fast_keys")]
struct Options {
    /// Connect to the server on this host. Without a host both ends run in this process.
    host: Option<String>,
    /// Run as server: wait for one client.
    #[arg(long, conflicts_with = "host")]
    listen: bool,
    /// As server, open a memory window in place of a key of buffers.
    #[arg(long, conflicts_with = "host")]
    window: bool,
    /// As server, give a region other rights in place of a key of buffers.
    #[arg(long, conflicts_with_all = ["host", "window"])]
    rereg: bool,
    /// TCP port of the server.
    #[arg(short, long, default_value_t = 18515)]
    port: u16,
    /// Device: sim, vfio:0000:3b:00.0, devx:mlx5_0, vfio-user:/run/nic.sock.
    #[arg(short = 'd', long = "ib-dev", default_value = "sim")]
    device: String,
}

fn main() -> ExitCode {
    let options = Options::parse();
    program::run("fast_keys", || run(&options))
}

fn run(options: &Options) -> Result<(), Failure> {
    let device = mlx5_open::open(&options.device)?;
    let (client, server) = (|host: &str| ask(&device, host, options.port), || listen(&device, options));
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

/// What the client writes in `round`.
fn pattern(round: usize) -> Vec<u8> {
    (0..LENGTH).map(|i| (i * 7 + (i >> 8) + round * 31 + 1) as u8).collect()
}

/// One end: a connection, and memory that no remote reaches by its own key.
struct End {
    connection: Connection,
    region: Arc<MemoryRegion>,
}

impl End {
    /// Creates a queue pair, ready to connect, and posts a receive.
    fn new(device: &Arc<Device>) -> Result<Self, Failure> {
        let pd = Pd::alloc(device)?;
        let mut options = ConnectionOptions::default();
        options.events = true;
        let region = MemoryRegion::allocate(&pd, 32768, AccessFlags::LOCAL_WRITE)?;
        let mut end = End { connection: Connection::new(&pd, options)?, region };
        end.post_receive()?;
        Ok(end)
    }

    fn address(&self) -> Result<Address, Failure> {
        Ok(self.connection.local()?.into())
    }

    fn connect(&mut self, remote: Address) -> Result<(), Failure> {
        Ok(self.connection.connect(&remote.peer(None))?)
    }

    fn post_receive(&mut self) -> Result<(), Failure> {
        self.connection.receive(self.region.buffer(IN..IN + 16)?)?;
        Ok(())
    }

    fn post_words(&mut self, words: [u64; 2]) -> Result<(), Failure> {
        let bytes = words.map(u64::to_be_bytes).concat();
        self.connection.send_inline(&bytes)?;
        Ok(())
    }

    /// Waits for the next message; `key` is shown what completes.
    fn message(&mut self, mut key: Option<&mut Key>) -> Result<([u64; 2], Completion), Failure> {
        loop {
            let done = self.connection.wait(PATIENCE)?;
            if let Some(key) = key.as_deref_mut() {
                key.settle(&done);
            }
            let Done { buffer: Some(buffer), result, .. } = done else {
                done.result?;
                continue;
            };
            let completion = result?;
            let words = [0, 8].map(|at| {
                let mut bytes = [0; 8];
                buffer.read(at, &mut bytes);
                u64::from_be_bytes(bytes)
            });
            drop(buffer);
            self.post_receive()?;
            return Ok((words, completion));
        }
    }
}

/// What opens the server's memory to the client.
enum Key {
    Buffers(FastKey),
    Window(FastWindow),
    /// A region, whose rights change.
    Region {
        region: Arc<MemoryRegion>,
        is_open: bool,
    },
}

/// Bit of the word with the key: it changes by commands. So the server closes it in every round, and the card may give
/// a number that was free again.
const BY_COMMANDS: u64 = 1 << 32;

impl Key {
    fn new(pd: &Arc<Pd>, options: &Options) -> Result<Self, Failure> {
        Ok(match (options.window, options.rereg) {
            (true, _) => Key::Window(FastWindow::alloc(pd, WindowType::Two)?),
            (_, true) => {
                let region = MemoryRegion::allocate(pd, OUT, AccessFlags::LOCAL_WRITE)?;
                Key::Region { region, is_open: false }
            }
            _ => Key::Buffers(FastKey::create(pd, UmrKeyOptions::default().entries(PARTS as u32))?),
        })
    }

    /// Whether the client closes it in `round`, by its message.
    fn is_invalidated_in(&self, round: usize) -> bool {
        round.is_multiple_of(2) && !matches!(self, Key::Region { .. })
    }

    fn settle(&mut self, done: &Done) {
        match self {
            Key::Buffers(key) => key.settle(done),
            Key::Window(window) => window.settle(done),
            Key::Region { .. } => false,
        };
    }

    fn is_free(&self) -> bool {
        match self {
            Key::Buffers(key) => key.is_free(),
            Key::Window(window) => window.is_free(),
            Key::Region { is_open, .. } => !is_open,
        }
    }

    /// Opens `LENGTH` bytes, which lie in another way in each round.
    fn open(&mut self, end: &mut End, round: usize) -> Result<RemoteAddress, Failure> {
        let (_, remote) = match self {
            Key::Buffers(key) => open_buffers(end, key, round)?,
            Key::Window(window) => {
                let binding = Binding::new(100 * round..100 * round + LENGTH, ACCESS);
                // In half of the rounds the client's addresses count from 0.
                let binding = if round / 2 % 2 == 1 { binding.zero_based() } else { binding };
                end.connection.bind(window, &end.region, binding)?
            }
            Key::Region { region, is_open } => {
                region.fill(0, OUT, 0);
                MemoryRegion::rereg(region, RegionChanges::default().access(ACCESS))?;
                *is_open = true;
                return Ok(region.remote_at(100 * round));
            }
        };
        Ok(remote)
    }

    /// Closes them again.
    fn close(&mut self, end: &mut End) -> Result<(), Failure> {
        match self {
            Key::Buffers(key) => end.connection.invalidate(key)?,
            Key::Window(window) => end.connection.unbind(window)?,
            Key::Region { region, is_open } => {
                MemoryRegion::rereg(region, RegionChanges::default().access(AccessFlags::LOCAL_WRITE))?;
                *is_open = false;
                return Ok(());
            }
        };
        while !self.is_free() {
            let done = end.connection.wait(PATIENCE)?;
            self.settle(&done);
            done.result?;
        }
        Ok(())
    }

    /// What they have, as the client counts.
    fn contents(&mut self, end: &End, round: usize) -> Vec<u8> {
        match self {
            Key::Buffers(key) => contents_of_buffers(key, round),
            Key::Window(_) => bytes_of(&end.region, round),
            Key::Region { region, .. } => bytes_of(region, round),
        }
    }
}

/// What a window or a region opens in `round`.
fn bytes_of(region: &MemoryRegion, round: usize) -> Vec<u8> {
    let mut bytes = vec![0; LENGTH];
    region.read(100 * round, &mut bytes);
    bytes
}

fn open_buffers(end: &mut End, key: &mut FastKey, round: usize) -> Result<(Ticket, RemoteAddress), Failure> {
    let ranges: Vec<_> = match round / 2 % 3 {
        0 => vec![5000..5100, 7..731, 9000..9200],
        1 => (0..PARTS).rev().map(|part| 100 * part..100 * part + LENGTH / PARTS).collect(),
        _ => vec![0..1024, 4096..4224],
    };
    for range in ranges {
        key.push(end.region.buffer(range)?).map_err(|buffer| format!("no room for {buffer:?}"))?;
    }
    Ok(match round / 2 % 3 {
        // Two turns: 448 bytes of the first, 64 of the second.
        2 => end.connection.register_interleaved(key, ACCESS, 2, &[(448, 576), (64, 64)])?,
        _ => end.connection.register(key, ACCESS)?,
    })
}

fn contents_of_buffers(key: &mut FastKey, round: usize) -> Vec<u8> {
    let parts: Vec<Buffer> = key.parts().collect();
    let piece = |buffer: &Buffer, at: usize, len: usize| {
        let mut bytes = vec![0; len];
        buffer.read(at, &mut bytes);
        bytes
    };
    match (round / 2 % 3, &parts[..]) {
        (2, [first, second]) => {
            (0..2).flat_map(|turn| [piece(first, 576 * turn, 448), piece(second, 64 * turn, 64)].concat()).collect()
        }
        _ => parts.iter().flat_map(|buffer| piece(buffer, 0, buffer.len())).collect(),
    }
}

/// The server: its end, and the key.
struct Server {
    end: End,
    key: Key,
}

impl Server {
    fn round(&mut self, round: usize) -> Result<(), Failure> {
        let Server { end, key } = self;
        end.region.fill(0, OUT, 0);
        let remote = key.open(end, round)?;
        let is_invalidated = key.is_invalidated_in(round);
        let by_commands = if matches!(key, Key::Region { .. }) { BY_COMMANDS } else { 0 };
        end.post_words([remote.addr, u64::from(remote.rkey) | by_commands])?;
        let (_, message) = end.message(Some(key))?;
        is("the invalidated key", &message.invalidated(), &is_invalidated.then_some(remote.rkey))?;
        if !is_invalidated {
            key.close(end)?;
        }
        is("the key is free", &key.is_free(), &true)?;
        is("what the client wrote", &key.contents(end, round), &pattern(round))
    }
}

fn listen(device: &Arc<Device>, options: &Options) -> Result<(), Failure> {
    let mut end = End::new(device)?;
    let accepted = exchange::accept(options.port, PATIENCE)?;
    let [remote] = accepted.remote;
    end.connect(remote)?;
    let mine = end.address()?;
    accepted.answer(&[mine])?;
    let key = Key::new(end.region.pd(), options)?;
    let mut server = Server { end, key };
    for round in 0..ROUNDS {
        server.round(round)?;
    }
    server.end.post_words([0, 0])?;
    // The client's attempt moves the connection to the error state.
    match server.end.message(None) {
        Err(error) => println!("{ROUNDS} rounds, and a closed key is refused ({error})"),
        Ok((words, _)) => return Err(format!("a message {words:x?} in place of an attempt").into()),
    }
    Ok(())
}

fn ask(device: &Arc<Device>, host: &str, port: u16) -> Result<(), Failure> {
    let mut end = End::new(device)?;
    let asked = exchange::ask(host, port, &[end.address()?], PATIENCE)?;
    let [remote] = asked.remote;
    end.connect(remote)?;
    asked.finish()?;
    let mut remote = RemoteAddress { addr: 0, rkey: 0 };
    for round in 0.. {
        let ([addr, key], _) = end.message(None)?;
        if key == 0 {
            break;
        }
        let (rkey, by_commands) = (u32::try_from(key & !BY_COMMANDS)?, key & BY_COMMANDS != 0);
        let last = std::mem::replace(&mut remote, RemoteAddress { addr, rkey });
        is("whether the key is another one", &(by_commands || remote.rkey != last.rkey), &true)?;
        let mut buffer = end.region.buffer(0..LENGTH)?;
        buffer.write(0, &pattern(round));
        let mut buffer = end.connection.write_blocking(buffer, remote, PATIENCE)?.ok_or("no buffer")?;
        buffer.fill(0, LENGTH, 0);
        let buffer = end.connection.read_blocking(buffer, remote, PATIENCE)?.ok_or("no buffer")?;
        let mut bytes = vec![0; LENGTH];
        buffer.read(0, &mut bytes);
        is("what is read back", &bytes, &pattern(round))?;
        match round % 2 == 1 || by_commands {
            true => end.connection.send_inline(&[0; 16])?,
            false => end.connection.send_invalidate_inline(&[0; 16], remote.rkey)?,
        };
    }
    match end.connection.write_blocking(end.region.buffer(0..LENGTH)?, remote, PATIENCE) {
        Err(WaitError::Failed { error, .. }) if error.syndrome() == Some(CqeSyndrome::RemoteAccess) => {
            println!("a closed key is refused");
            Ok(())
        }
        Err(error) => Err(error.into()),
        Ok(_) => Err("a closed key took a write".into()),
    }
}
