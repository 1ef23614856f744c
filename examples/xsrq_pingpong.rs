//! Ping-pong over an extended reliable connection (XRC): libibverbs' `ibv_xsrq_pingpong` with one client, on this
//! driver.
//!
//! Without a host both ends run in this process, on one card. `--listen` waits for a client; HOST connects to a server.
//! The other end may be this program or `ibv_xsrq_pingpong`.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Ipv6Addr, TcpStream};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use mlx5_dv::objects::{AccessFlags, Buffer, CqOptions, MemoryRegion, Pd, SrqOptions, Xrcd};
use mlx5_dv::queue::{ConnectionOptions, Peer, RemoteSrq, XrcConnection, XrcPeer, XrcReceiver};
use mlx5_dv::{Device, Event, Events};
use mlx5_examples::host::Host;
use mlx5_examples::pingpong::{Failure, path_mtu};
use mlx5_open::watchdog::Watchdog;
use mlx5_open::{program, rendezvous};

/// How long a client waits for its server, and a server for its client.
const PATIENCE: Duration = Duration::from_secs(120);
/// Bytes of a message, as `ibv_xsrq_pingpong` has it by default.
const MESSAGE: usize = 4096;
/// Receives to keep posted.
const RECEIVES: usize = 8;

/// Sends messages back and forth over an extended reliable connection.
#[derive(Debug, Parser)]
#[command(name = "xsrq_pingpong")]
struct Options {
    /// Connect to the server on this host. Without a host both ends run in this process.
    host: Option<String>,
    /// Run as server: wait for one client.
    #[arg(long, conflicts_with = "host")]
    listen: bool,
    /// TCP port of the server.
    #[arg(short, long, default_value_t = 18515)]
    port: u16,
    /// Device: sim, devx:mlx5_0, vfio:0000:3b:00.0, vfio-user:/run/nic.sock.
    #[arg(short = 'd', long = "ib-dev", default_value = "sim")]
    device: String,
    /// Number of messages each way.
    #[arg(short = 'n', long = "num_tests", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    num_tests: u64,
    /// Index of the local GID.
    #[arg(short, long = "gid-idx", default_value_t = 0)]
    gid_idx: u8,
    /// Ask for an event when fewer receives than this are posted, and wait for it at the end.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=RECEIVES as i64))]
    limit: Option<u16>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    program::run("xsrq_pingpong", || run(&options))
}

fn run(options: &Options) -> Result<(), Failure> {
    let mut here = Host::open(&options.device, None)?;
    match &options.host {
        None if !options.listen => both_ends(here.device(), options)?,
        host => {
            here.answer(None);
            let mut end = End::new(here.device(), options)?;
            match host {
                Some(host) => end.ask(&here, host)?,
                None => end.listen(&here)?,
            }
        }
    }
    println!("success");
    Ok(())
}

/// What one end tells the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Address {
    target_qpn: u32,
    initiator_qpn: u32,
    psn: u32,
    srqn: u32,
    gid: [u8; 16],
}

/// Bytes of an address on the wire, with its terminating zero.
const ADDRESS: usize = "0000:000000:000000:000000:000000:00000000000000000000000000000000\0".len();

impl fmt::Display for Address {
    /// As `ibv_xsrq_pingpong` writes it. The first number is the LID: 0 on Ethernet.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Address { target_qpn, initiator_qpn, psn, srqn, gid } = self;
        write!(f, "0000:{target_qpn:06x}:{initiator_qpn:06x}:{psn:06x}:{srqn:06x}:{:032x}", u128::from_be_bytes(*gid))
    }
}

impl Address {
    fn parse(text: &str) -> Option<Address> {
        let mut parts = text.trim_end_matches('\0').split(':');
        let mut number = || u32::from_str_radix(parts.next()?, 16).ok().filter(|number| number >> 24 == 0);
        let [_, target_qpn, initiator_qpn, psn, srqn] = [number()?, number()?, number()?, number()?, number()?];
        let gid = u128::from_str_radix(parts.next()?, 16).ok()?.to_be_bytes();
        parts.next().is_none().then_some(Address { target_qpn, initiator_qpn, psn, srqn, gid })
    }

    fn read(stream: &mut TcpStream) -> io::Result<Address> {
        let mut bytes = [0; ADDRESS];
        stream.read_exact(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        let address = Address::parse(&text);
        address.inspect(|address| address.print("remote")).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, format!("invalid address {text:?} of the other end"))
        })
    }

    fn write(&self, stream: &mut TcpStream) -> io::Result<()> {
        self.print("local");
        stream.write_all(format!("{self}\0").as_bytes())
    }

    fn print(&self, whose: &str) {
        let Address { target_qpn, initiator_qpn, psn, srqn, gid } = *self;
        let gid = Ipv6Addr::from(gid);
        println!(
            "{whose:>8}: QPN RECV {target_qpn:06x} SEND {initiator_qpn:06x}, PSN {psn:06x}, SRQN {srqn:06x}, GID {gid}"
        );
    }
}

/// One end: its connection, and the receiver that the other end's messages name.
struct End {
    device: Arc<Device>,
    receiver: XrcReceiver,
    connection: XrcConnection,
    /// Those of the device, if the limit's is waited for.
    events: Option<Events>,
    /// The other end's receiver, once it is known.
    to: Option<RemoteSrq>,
    /// The buffer of the next message to send, while it is not in flight.
    message: Option<Buffer>,
    sent: u64,
    received: u64,
    posted: u64,
    /// Messages that are sent before one has come: 1 for the server.
    first: u64,
    tcp_port: u16,
    gid_index: u8,
    num_tests: u64,
}

impl End {
    fn new(device: &Arc<Device>, options: &Options) -> Result<Self, Failure> {
        let pd = Pd::alloc(device)?;
        let domain = Xrcd::alloc(device)?;
        let region = MemoryRegion::allocate(&pd, (RECEIVES + 1) * MESSAGE, AccessFlags::LOCAL_WRITE)?;
        let mut buffers = region.buffers(MESSAGE)?;
        let message = buffers.pop();
        let srq = SrqOptions::default().wqes(RECEIVES as u32);
        let mut receiver = XrcReceiver::new(&pd, &domain, srq, CqOptions::default())?;
        for buffer in buffers {
            receiver.receive(buffer)?;
        }
        let events = options.limit.map(|_| device.events()).transpose()?;
        if let Some(limit) = options.limit {
            receiver.arm_limit(limit)?;
        }
        let mut each = ConnectionOptions::default();
        each.send_depth = 4;
        each.gid_index = options.gid_idx;
        each.path_mtu = Some(path_mtu(1024)?);
        let connection = XrcConnection::new(&pd, &domain, each)?;
        Ok(End {
            device: Arc::clone(device),
            receiver,
            connection,
            events,
            to: None,
            message,
            sent: 0,
            received: 0,
            posted: 0,
            first: 0,
            tcp_port: options.port,
            gid_index: options.gid_idx,
            num_tests: options.num_tests,
        })
    }

    fn address(&self) -> Result<Address, Failure> {
        let XrcPeer { initiator, target_qpn } = self.connection.local()?;
        let Peer { qpn: initiator_qpn, psn, gid, .. } = initiator;
        Ok(Address { target_qpn, initiator_qpn, psn, srqn: self.receiver.srqn(), gid })
    }

    fn connect(&mut self, remote: &Address, mac: Option<mlx5_dv::Mac>) -> Result<(), Failure> {
        let Address { target_qpn, initiator_qpn: qpn, psn, srqn, gid } = *remote;
        self.to = RemoteSrq::new(srqn);
        let initiator = Peer { qpn, psn, gid, lid: 0, mac };
        Ok(self.connection.connect(&XrcPeer { initiator, target_qpn })?)
    }

    fn listen(&mut self, here: &Host) -> Result<(), Failure> {
        let mut stream = rendezvous::accept(self.tcp_port, PATIENCE)?;
        let remote = Address::read(&mut stream)?;
        self.address()?.write(&mut stream)?;
        self.connect(&remote, here.mac_of(self.gid_index.into(), remote.gid)?)?;
        self.first = 1;
        self.play()?;
        // The client may go once it has this.
        expect_end(&mut stream)?;
        Ok(stream.write_all(END)?)
    }

    fn ask(&mut self, here: &Host, host: &str) -> Result<(), Failure> {
        let mut stream = rendezvous::connect(host, self.tcp_port, PATIENCE)?;
        self.address()?.write(&mut stream)?;
        let remote = Address::read(&mut stream)?;
        self.connect(&remote, here.mac_of(self.gid_index.into(), remote.gid)?)?;
        self.play()?;
        stream.write_all(END)?;
        expect_end(&mut stream)
    }

    fn play(&mut self) -> Result<(), Failure> {
        let mut watchdog = Watchdog::new(&self.device);
        while !self.is_done() {
            let moved = self.turn()?;
            watchdog.check(moved)?;
        }
        self.await_limit()
    }

    /// Waits for the event of the receiver's limit, if there is one.
    fn await_limit(&self) -> Result<(), Failure> {
        let Some(events) = &self.events else { return Ok(()) };
        let srqn = self.receiver.srqn();
        while events.wait(PATIENCE)? != (Event::SrqLimitReached { srqn }) {}
        println!("fewer receives than the limit were posted");
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.sent == self.num_tests && self.received == self.num_tests
    }

    /// Posts the next message, if one is left and the last one has been acknowledged and answered.
    fn send(&mut self) -> Result<(), Failure> {
        if self.posted < self.num_tests.min(self.received + self.first)
            && let (Some(to), Some(buffer)) = (self.to, self.message.take())
        {
            self.posted += 1;
            self.connection.send(to, buffer)?;
        }
        Ok(())
    }

    /// Handles what has completed. Returns whether anything had.
    fn turn(&mut self) -> Result<bool, Failure> {
        let mut moved = false;
        if let Some(done) = self.connection.poll()? {
            done.result?;
            (self.sent, self.message, moved) = (self.sent + 1, done.buffer, true);
        }
        if let Some(done) = self.receiver.poll()? {
            let len = done.result?.byte_len as usize;
            if len != MESSAGE {
                return Err(format!("received {len} bytes instead of {MESSAGE}").into());
            }
            self.receiver.receive(done.buffer.ok_or("a receive without a buffer")?)?;
            (self.received, moved) = (self.received + 1, true);
        }
        self.send()?;
        Ok(moved)
    }
}

/// What each end says when it has all messages.
const END: &[u8; 4] = b"END\0";

fn expect_end(stream: &mut TcpStream) -> Result<(), Failure> {
    let mut said = [0; END.len()];
    stream.read_exact(&mut said)?;
    if said == *END { Ok(()) } else { Err(format!("the other end said {said:?} instead of END").into()) }
}

/// Client and server on one card, in turn on this thread.
fn both_ends(device: &Arc<Device>, options: &Options) -> Result<(), Failure> {
    let (mut client, mut server) = (End::new(device, options)?, End::new(device, options)?);
    let (ours, theirs) = (client.address()?, server.address()?);
    client.connect(&theirs, None)?;
    server.connect(&ours, None)?;
    server.first = 1;
    let mut watchdog = Watchdog::new(device);
    while !(client.is_done() && server.is_done()) {
        let moved = client.turn()? | server.turn()?;
        watchdog.check(moved)?;
    }
    client.await_limit()?;
    server.await_limit()
}
