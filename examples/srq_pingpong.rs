//! Ping-pong over many reliable connections that share their receives: libibverbs' `ibv_srq_pingpong`, on a hub.
//!
//! Without a host both ends run in this process, on one card. `--listen` waits for a client; HOST connects to a server.
//! The other end may be this program or `ibv_srq_pingpong` with as many queue pairs.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use mlx5_dv::objects::{Buffer, Pd};
use mlx5_dv::queue::{ConnectionId, Hub, HubDone, HubOptions, Side};
use mlx5_dv::{Device, Mac};
use mlx5_examples::exchange::{self, Address};
use mlx5_examples::host::Host;
use mlx5_examples::pingpong::{Failure, Role, check_one_pattern, in_turn, one_pattern, path_mtu, print_result, timed};
use mlx5_open::program;
use mlx5_open::watchdog::{SILENCE, Watchdog};

/// How long a client waits for its server, and a server for its client.
const PATIENCE: Duration = Duration::from_secs(120);
/// Addresses that `ibv_srq_pingpong` exchanges, however many queue pairs it has.
const ADDRESSES: usize = 256;

/// Sends messages back and forth over many connections with shared receives.
#[derive(Debug, Parser)]
#[command(name = "srq_pingpong")]
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
    /// Message size in bytes.
    #[arg(short, long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    size: u32,
    /// Path MTU: 256, 512, 1024, 2048 or 4096; the same on both sides.
    #[arg(short, long, default_value_t = 1024)]
    mtu: u32,
    /// Number of queue pairs, the same on both sides.
    #[arg(short = 'q', long = "num-qp", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=255))]
    queue_pairs: u32,
    /// Receives to keep posted.
    #[arg(short, long, default_value_t = 511, value_parser = clap::value_parser!(u32).range(1..=16383))]
    rx_depth: u32,
    /// Number of exchanges, of all connections together.
    #[arg(short = 'n', long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    iters: u64,
    /// Sleep on completion events instead of polling.
    #[arg(short, long)]
    events: bool,
    /// Index of the local GID.
    #[arg(short, long = "gid-idx", default_value_t = 0)]
    gid_idx: u8,
    /// Make the hub for one connection, and have it grow: as connections join, and once more in the midst of traffic.
    #[arg(long)]
    grow: bool,
    /// Check received data byte for byte.
    #[arg(short, long)]
    chk: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    program::run("srq_pingpong", || run(&options))
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

/// What a connection has under way.
#[derive(Debug, Default)]
struct Exchange {
    /// What to send next: a server sends the received message back.
    next: Option<Buffer>,
    is_sending: bool,
}

/// One end: its connections, in the order of their addresses.
struct End<'a> {
    device: Arc<Device>,
    hub: Hub<Exchange>,
    connections: Vec<ConnectionId>,
    role: Role,
    options: &'a Options,
    sent: u64,
    received: u64,
}

impl<'a> End<'a> {
    fn new(device: &Arc<Device>, options: &'a Options, role: Role) -> Result<Self, Failure> {
        let mut hub_options = HubOptions::default();
        hub_options.connections = if options.grow { 1 } else { options.queue_pairs };
        hub_options.receives = options.rx_depth.max(options.queue_pairs);
        // A connection has one message on its way, and one that came.
        hub_options.spares = 2 * options.queue_pairs;
        hub_options.message_bytes = options.size as usize;
        hub_options.each.send_depth = 2;
        hub_options.each.events = options.events;
        hub_options.each.gid_index = options.gid_idx;
        hub_options.each.path_mtu = Some(path_mtu(options.mtu)?);
        let mut hub = Hub::new(&Pd::alloc(device)?, hub_options)?;
        let mut connections = vec![];
        for number in 1..=options.queue_pairs {
            hub.grow(number)?;
            connections.push(hub.join(Exchange::default())?);
        }
        Ok(End { device: Arc::clone(device), hub, connections, role, options, sent: 0, received: 0 })
    }

    /// The address of each connection; zeros follow.
    fn addresses(&self) -> Result<[Address; ADDRESSES], Failure> {
        let mut addresses = [Address::default(); ADDRESSES];
        for (address, id) in addresses.iter_mut().zip(&self.connections) {
            *address = self.hub.local(*id)?.into();
            address.print("local");
        }
        Ok(addresses)
    }

    /// Connects each connection to the address in its place. `mac` is the other end's MAC address, unless the driver
    /// derives it from the GID.
    fn connect(&mut self, remote: &[Address], mac: Option<Mac>) -> Result<(), Failure> {
        for (address, id) in remote.iter().zip(&self.connections) {
            if address.qpn == 0 {
                return Err(format!("the other end has fewer than {} queue pairs", self.connections.len()).into());
            }
            address.print("remote");
            self.hub.connect(*id, &address.peer(mac))?;
        }
        Ok(())
    }

    /// Sends the first message of each connection, if this is the client.
    fn begin(&mut self) -> Result<(), Failure> {
        if self.role == Role::Server {
            return Ok(());
        }
        let message: Vec<u8> = (0..self.options.size as usize).map(one_pattern).collect();
        for id in self.connections.clone() {
            let mut buffer = self.hub.buffer().ok_or("no spare buffer")?;
            buffer.as_mut_slice()[..message.len()].copy_from_slice(&message);
            self.answer(id, Some(buffer))?;
        }
        Ok(())
    }

    fn play(&mut self) -> Result<(), Failure> {
        self.begin()?;
        let mut watchdog = Watchdog::new(&self.device);
        while !self.is_done() {
            if self.options.events {
                self.hub.wait(SILENCE)?;
            }
            let moved = self.turn()?;
            watchdog.check(moved)?;
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.sent >= self.options.iters && self.received >= self.options.iters
    }

    /// Handles one completion. Returns whether there was one.
    fn turn(&mut self) -> Result<bool, Failure> {
        let Some(HubDone { connection, context, done }) = self.hub.poll()? else { return Ok(false) };
        let completion = done.result?;
        let buffer = done.buffer.ok_or("completion without a buffer")?;
        if completion.work.side == Side::Send {
            context.is_sending = false;
            self.sent += 1;
            self.hub.recycle(buffer)?;
            self.answer(connection, None)?;
        } else {
            self.received += 1;
            if self.options.grow && self.received == self.options.iters / 2 {
                self.hub.grow(4 * self.options.queue_pairs)?;
            }
            self.check(&buffer, completion.byte_len as usize)?;
            self.answer(connection, Some(buffer))?;
        }
        Ok(true)
    }

    /// Sends back `came`, or what came before, unless the connection's last message is still on its way. As
    /// `ibv_srq_pingpong` does, every connection goes on until the exchanges of all are done.
    fn answer(&mut self, connection: ConnectionId, came: Option<Buffer>) -> Result<(), Failure> {
        let context = self.hub.context(connection).ok_or("a connection has left")?;
        context.next = came.or(context.next.take());
        if context.is_sending || self.sent >= self.options.iters {
            return Ok(());
        }
        if let Some(mut buffer) = context.next.take() {
            context.is_sending = true;
            buffer.set_len(self.options.size as usize);
            self.hub.send(connection, buffer)?;
        }
        Ok(())
    }

    /// Checks a received message. The client knows every byte; the server, whose client may be `ibv_srq_pingpong`, only
    /// the first of each page.
    fn check(&self, buffer: &Buffer, len: usize) -> Result<(), Failure> {
        if len != self.options.size as usize {
            return Err(format!("received {len} bytes instead of {}", self.options.size).into());
        }
        if !self.options.chk {
            return Ok(());
        }
        let step = if self.role == Role::Client { 1 } else { 4096 };
        check_one_pattern(&buffer.as_slice()[..len], step)
    }
}

/// The MAC address of the other end's GID, which all its connections have.
fn mac_of(here: &Host, options: &Options, remote: &[Address]) -> Result<Option<Mac>, Failure> {
    let gid = remote.first().ok_or("no address")?.gid;
    here.mac_of(options.gid_idx.into(), gid)
}

fn ask(here: &Host, options: &Options, host: &str) -> Result<Duration, Failure> {
    let mut end = End::new(here.device(), options, Role::Client)?;
    let asked = exchange::ask(host, options.port, &end.addresses()?, PATIENCE)?;
    end.connect(&asked.remote, mac_of(here, options, &asked.remote)?)?;
    asked.finish()?;
    timed(|| end.play())
}

fn listen(here: &Host, options: &Options) -> Result<Duration, Failure> {
    let mut end = End::new(here.device(), options, Role::Server)?;
    let mine = end.addresses()?;
    let accepted = exchange::accept(options.port, PATIENCE)?;
    end.connect(&accepted.remote, mac_of(here, options, &accepted.remote)?)?;
    accepted.answer(&mine)?;
    timed(|| end.play())
}

/// Client and server on one card, in turn on this thread.
fn both_ends(device: &Arc<Device>, options: &Options) -> Result<Duration, Failure> {
    let mut client = End::new(device, options, Role::Client)?;
    let mut server = End::new(device, options, Role::Server)?;
    let (ours, theirs) = (client.addresses()?, server.addresses()?);
    server.connect(&ours, None)?;
    client.connect(&theirs, None)?;
    timed(|| {
        client.begin()?;
        in_turn(device, [&mut client, &mut server], End::is_done, End::turn)
    })
}
