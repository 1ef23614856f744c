//! Ping-pong of datagrams: libibverbs' `ibv_ud_pingpong`, on an endpoint for datagrams.
//!
//! Without a host both ends run in this process, on one card. `--listen` waits for a client; HOST connects to a server.
//! The other end may be this program or `ibv_ud_pingpong`. Datagrams may be lost; nobody sends them again.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use mlx5_dv::objects::{AccessFlags, AddressHandle, AddressPath, MemoryRegion, Pd};
use mlx5_dv::queue::{DatagramEndpoint, DatagramOptions, GRH, Side, WrFlags};
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
/// `wr_id` of sends. That of a receive is the number of its slot.
const SEND: u64 = u64::MAX;

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

/// One end: a slot for each receive, then one for what it sends.
struct End<'a> {
    device: Arc<Device>,
    endpoint: DatagramEndpoint,
    /// The other end, once known.
    to: Option<AddressHandle>,
    options: &'a Options,
    sent: u64,
    received: u64,
    /// A datagram is on its way: its slot must not change.
    is_sending: bool,
    /// What came was not answered yet.
    owes: bool,
}

impl<'a> End<'a> {
    fn new(device: &Arc<Device>, options: &'a Options, role: Role) -> Result<Self, Failure> {
        let slots = options.rx_depth as usize + 1;
        let memory = slots * (GRH + options.size as usize);
        let region = MemoryRegion::allocate(&Pd::alloc(device)?, memory, AccessFlags::LOCAL_WRITE)?;
        let mut of_endpoint = DatagramOptions::new(QKEY);
        (of_endpoint.recv_depth, of_endpoint.send_depth, of_endpoint.events) = (options.rx_depth, 1, options.events);
        let endpoint = DatagramEndpoint::new(&region, &of_endpoint)?;
        let mut end = End {
            device: Arc::clone(device),
            endpoint,
            to: None,
            options,
            sent: 0,
            received: 0,
            is_sending: false,
            owes: role == Role::Client,
        };
        end.post(0..options.rx_depth.into())?;
        let message: Vec<u8> = (0..options.size as usize).map(one_pattern).collect();
        region.write(end.slot(options.rx_depth.into()) + GRH, &message);
        Ok(end)
    }

    /// First byte of slot `number`.
    fn slot(&self, number: u64) -> usize {
        number as usize * (GRH + self.options.size as usize)
    }

    /// Posts receives into `slots`.
    fn post(&mut self, slots: std::ops::Range<u64>) -> Result<(), Failure> {
        let places: Vec<_> = slots.map(|number| (number, self.slot(number)..self.slot(number + 1))).collect();
        let mut batch = self.endpoint.receives().ok_or("no receive queue")?;
        places.into_iter().try_for_each(|(number, bytes)| batch.receive(number, bytes))?;
        batch.ring();
        Ok(())
    }

    fn address(&self) -> Result<Address, Failure> {
        let index = u16::from(self.options.gid_idx);
        let gid = self.device.gids().iter().find(|gid| gid.index == index).copied();
        let gid = gid.ok_or_else(|| format!("the port has no GID with index {index}"))?;
        let address = Address { lid: 0, qpn: self.endpoint.queue_pair().qpn(), psn: 0, gid: gid.address.octets() };
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
                self.endpoint.wait(SILENCE)?;
            }
            let moved = self.turn()?;
            watchdog.check(moved)?;
        }
        Ok(())
    }

    /// Handles one completion. Returns whether there was one.
    fn turn(&mut self) -> Result<bool, Failure> {
        let Some((wr_id, completion)) = self.endpoint.poll()? else { return Ok(false) };
        if completion.work.side == Side::Send {
            (self.sent, self.is_sending) = (self.sent + 1, false);
        } else {
            self.received += 1;
            self.check(wr_id, completion.byte_len as usize)?;
            self.post(wr_id..wr_id + 1)?;
            self.owes = true;
        }
        self.answer()?;
        Ok(true)
    }

    /// Sends, if it is this end's turn.
    fn answer(&mut self) -> Result<(), Failure> {
        if !self.owes || self.is_sending || self.sent >= self.options.iters {
            return Ok(());
        }
        let first = self.slot(self.options.rx_depth.into()) + GRH;
        let to = self.to.as_ref().ok_or("the other end is not known")?;
        let mut batch = self.endpoint.sends().ok_or("no send queue")?;
        batch.send(SEND, WrFlags::SIGNALLED, to, first..first + self.options.size as usize)?;
        batch.ring();
        (self.is_sending, self.owes) = (true, false);
        Ok(())
    }

    /// Checks a datagram of `len` bytes in slot `number`. The server's client may be `ibv_ud_pingpong`: it knows only
    /// the first byte of each page.
    fn check(&self, number: u64, len: usize) -> Result<(), Failure> {
        let size = self.options.size as usize;
        if len != GRH + size {
            return Err(format!("received {} bytes instead of {size}", len.saturating_sub(GRH)).into());
        }
        if !self.options.chk {
            return Ok(());
        }
        let mut bytes = vec![0; size];
        self.endpoint.region().read(self.slot(number) + GRH, &mut bytes);
        let known = if self.options.host.is_none() && !self.options.listen { 1 } else { 4096 };
        check_one_pattern(&bytes, known)
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
