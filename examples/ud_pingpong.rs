//! Ping-pong of datagrams: libibverbs' `ibv_ud_pingpong`, on a queue for datagrams. They are read where the card put
//! them, and filled where it takes them.
//!
//! Without a host both ends run in this process, on one card. `--listen` waits for a client; HOST connects to a server.
//! The other end may be this program or `ibv_ud_pingpong`. Datagrams may be lost; nobody sends them again.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use mlx5_dv::objects::{AddressHandle, AddressPath, Buffer, ExclusiveRegion, Pd};
use mlx5_dv::queue::{DatagramOptions, DatagramQueue, Done, GRH, Side};
use mlx5_dv::{Device, Mac};
use mlx5_examples::exchange::{self, Address};
use mlx5_examples::host::Host;
use mlx5_examples::pingpong::{Failure, Role, check_one_pattern, in_turn, one_pattern, print_result, timed};
use mlx5_open::program;
use mlx5_open::watchdog::{SILENCE, Watchdog};

/// How long a client waits for its server, and a server for its client.
const PATIENCE: Duration = Duration::from_secs(120);
/// Q_Key of `ibv_ud_pingpong`.
const QKEY: u32 = 0x1111_1111;

/// Sends datagrams back and forth.
#[derive(Debug, Parser)]
#[command(name = "ud_pingpong")]
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
    /// Message size in bytes, at most the path MTU.
    #[arg(short, long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=4096))]
    size: u32,
    /// Receives to keep posted.
    #[arg(short, long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=16383))]
    rx_depth: u32,
    /// Number of exchanges.
    #[arg(short = 'n', long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    iters: u64,
    /// Sleep on completion events instead of polling.
    #[arg(short, long)]
    events: bool,
    /// Index of the local GID.
    #[arg(short, long = "gid-idx", default_value_t = 0)]
    gid_idx: u8,
    /// Check received data byte for byte.
    #[arg(short, long)]
    chk: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    program::run("ud_pingpong", || run(&options))
}

fn run(options: &Options) -> Result<(), Failure> {
    let mut here = Host::open(&options.device, None)?;
    let elapsed = match &options.host {
        None if !options.listen => both_ends(here.device(), options)?,
        host => {
            here.answer(None);
            match host {
                Some(host) => ask(&here, options, host)?,
                None => listen(&here, options)?,
            }
        }
    };
    print_result(&options.device, options.size, options.iters, elapsed);
    Ok(())
}

/// One end.
struct End<'a> {
    device: Arc<Device>,
    queue: DatagramQueue,
    /// The other end, once known.
    to: Option<AddressHandle>,
    options: &'a Options,
    sent: u64,
    received: u64,
    /// What it sends; `None` while it is on its way.
    message: Option<Buffer>,
    /// What came was not answered yet.
    owes: bool,
}

impl<'a> End<'a> {
    fn new(device: &Arc<Device>, options: &'a Options, role: Role) -> Result<Self, Failure> {
        let (count, len) = (options.rx_depth as usize, GRH + options.size as usize);
        let pd = Pd::alloc(device)?;
        let region = ExclusiveRegion::allocate(&pd, (count + 1) * len)?;
        let mut of_queue = DatagramOptions::new(QKEY);
        (of_queue.recv_depth, of_queue.send_depth, of_queue.events) = (options.rx_depth, 1, options.events);
        let mut queue = DatagramQueue::new(&pd, of_queue)?;
        let mut receives = queue.receives();
        for number in 0..count {
            receives.receive(region.buffer(number * len..(number + 1) * len)?)?;
        }
        receives.ring();
        let mut message = region.buffer(count * len..count * len + options.size as usize)?;
        message.as_mut_slice().iter_mut().enumerate().for_each(|(at, byte)| *byte = one_pattern(at));
        Ok(End {
            device: Arc::clone(device),
            queue,
            to: None,
            options,
            sent: 0,
            received: 0,
            message: Some(message),
            owes: role == Role::Client,
        })
    }

    fn address(&self) -> Result<Address, Failure> {
        let index = u16::from(self.options.gid_idx);
        let gid = self.device.gids().iter().find(|gid| gid.index == index).copied();
        let gid = gid.ok_or_else(|| format!("the port has no GID with index {index}"))?;
        let address = Address { lid: 0, qpn: self.queue.queue_pair().qpn(), psn: 0, gid: gid.address.octets() };
        address.print("local");
        Ok(address)
    }

    /// Datagrams go to `remote` from now on. `mac` is its MAC address, unless its GID tells.
    fn aim(&mut self, remote: &Address, mac: Option<Mac>) -> Result<(), Failure> {
        remote.print("remote");
        let ours = self.device.gids().iter().find(|gid| gid.address.octets() == remote.gid).map(|gid| gid.mac);
        let path = match mac.or(ours) {
            Some(mac) => AddressPath::new(remote.gid, mac),
            None => AddressPath::link_local(remote.gid).ok_or("the MAC address of the remote is not known")?,
        };
        self.to = Some(AddressHandle::new(&self.device, &path.gid_index(self.options.gid_idx), remote.qpn, QKEY)?);
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.sent >= self.options.iters && self.received >= self.options.iters
    }

    fn play(&mut self) -> Result<(), Failure> {
        self.answer()?;
        let mut watchdog = Watchdog::new(&self.device);
        while !self.is_done() {
            if self.options.events {
                let done = self.queue.wait(SILENCE)?;
                self.handle(done)?;
            } else {
                let moved = self.turn()?;
                watchdog.check(moved)?;
            }
        }
        Ok(())
    }

    /// Handles one completion. Returns whether there was one.
    fn turn(&mut self) -> Result<bool, Failure> {
        let Some(done) = self.queue.poll()? else { return Ok(false) };
        self.handle(done)?;
        Ok(true)
    }

    fn handle(&mut self, done: Done) -> Result<(), Failure> {
        let side = done.result?.work.side;
        if side == Side::Send {
            (self.sent, self.message) = (self.sent + 1, done.buffer);
        } else {
            self.check(done.received().and_then(|bytes| bytes.get(GRH..)).unwrap_or_default())?;
            self.queue.receive(done.buffer.ok_or("a receive without its buffer")?)?;
            (self.received, self.owes) = (self.received + 1, true);
        }
        self.answer()
    }

    /// Sends, if it is this end's turn.
    fn answer(&mut self) -> Result<(), Failure> {
        if !self.owes || self.sent >= self.options.iters {
            return Ok(());
        }
        let to = self.to.as_ref().ok_or("the other end is not known")?;
        let Some(message) = self.message.take() else { return Ok(()) };
        self.queue.send(to, message)?;
        self.owes = false;
        Ok(())
    }

    /// Checks a datagram. The server's client may be `ibv_ud_pingpong`: it knows only the first byte of each page.
    fn check(&self, datagram: &[u8]) -> Result<(), Failure> {
        let size = self.options.size as usize;
        if datagram.len() != size {
            return Err(format!("received {} bytes instead of {size}", datagram.len()).into());
        }
        if !self.options.chk {
            return Ok(());
        }
        let known = if self.options.host.is_none() && !self.options.listen { 1 } else { 4096 };
        check_one_pattern(datagram, known)
    }
}

fn ask(here: &Host, options: &Options, host: &str) -> Result<Duration, Failure> {
    let mut end = End::new(here.device(), options, Role::Client)?;
    let asked = exchange::ask(host, options.port, &[end.address()?], PATIENCE)?;
    let [remote] = asked.remote;
    end.aim(&remote, here.mac_of(options.gid_idx.into(), remote.gid)?)?;
    asked.finish()?;
    timed(|| end.play())
}

fn listen(here: &Host, options: &Options) -> Result<Duration, Failure> {
    let mut end = End::new(here.device(), options, Role::Server)?;
    let mine = end.address()?;
    let accepted = exchange::accept(options.port, PATIENCE)?;
    let [remote] = accepted.remote;
    end.aim(&remote, here.mac_of(options.gid_idx.into(), remote.gid)?)?;
    accepted.answer(&[mine])?;
    timed(|| end.play())
}

/// Client and server on one card, in turn on this thread.
fn both_ends(device: &Arc<Device>, options: &Options) -> Result<Duration, Failure> {
    let mut client = End::new(device, options, Role::Client)?;
    let mut server = End::new(device, options, Role::Server)?;
    server.aim(&client.address()?, None)?;
    client.aim(&server.address()?, None)?;
    timed(|| {
        client.answer()?;
        in_turn(device, [&mut client, &mut server], End::is_done, End::turn)
    })
}
