//! Ping-pong between queue pairs that the RDMA connection manager connects: librdmacm's `rping`, on this driver.
//!
//! Without a host both ends run in this process, on two functions of one software card. `--listen` waits for a client;
//! HOST connects to a server. The other end may be `rping`. The client advertises its memory; the server reads it by
//! RDMA READ and writes it back by RDMA WRITE; the client compares.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use mlx5_cm::{ConnectionId, ConnectionManager, Event, Parameters, Service};
use mlx5_dv::objects::{AccessFlags, MemoryRegion, Pd};
use mlx5_dv::queue::{Connection, ConnectionOptions, Operation, RemoteAddress};
use mlx5_examples::managed::{self, EndOptions, PATIENCE};
use mlx5_examples::pingpong::Failure;
use mlx5_open::program;

/// How long an operation, or an answer, takes at most.
const SOON: Duration = Duration::from_secs(60);
/// Bytes of an advertisement: address, key and length.
const ADVERTISEMENT: usize = 16;
/// Receives to keep posted.
const RECEIVES: usize = 4;
/// READs and atomics of an end under way at once, as rping has it.
const DEPTH: u8 = 1;

/// Sends memory back and forth over a connection made by the RDMA connection manager.
#[derive(Debug, Clone, Parser)]
#[command(name = "cm_pingpong")]
struct Options {
    #[command(flatten)]
    end: EndOptions,
    /// Port of the server.
    #[arg(short, long, default_value_t = 7174)]
    port: u16,
    /// Number of exchanges.
    #[arg(short = 'C', long, default_value_t = 100)]
    count: u64,
    /// Bytes of each.
    #[arg(short = 'S', long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(32..=65535))]
    size: u32,
}

fn main() -> ExitCode {
    let options = Options::parse();
    program::run("cm_pingpong", || {
        options.end.run(Service::tcp(options.port), |end| {
            let remote = end.remote;
            let end = End::new(end)?;
            match remote {
                Some(remote) => end.client(&options, remote),
                None => end.server(),
            }
        })
    })
}

/// One end: its queue pair, its memory and its connection manager.
struct End {
    manager: ConnectionManager,
    connection: Connection,
    region: Arc<MemoryRegion>,
}

/// Where what lies in the region of an end.
const SOURCE: usize = 4096;
const SINK: usize = SOURCE + 65536;
const REGION: usize = SINK + 65536;

impl End {
    fn new(managed::End { device, manager, .. }: managed::End) -> Result<Self, Failure> {
        let pd = Pd::alloc(&device)?;
        let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE;
        let region = MemoryRegion::allocate(&pd, REGION, access)?;
        let mut connection = Connection::new(&pd, ConnectionOptions::default())?;
        for slot in 0..RECEIVES {
            connection.receive(region.buffer(slot * ADVERTISEMENT..(slot + 1) * ADVERTISEMENT)?)?;
        }
        Ok(End { manager, connection, region })
    }

    fn parameters(&self) -> Parameters {
        let mut parameters = Parameters::new(self.connection.queue_pair().qpn(), 0);
        (parameters.responder_resources, parameters.initiator_depth) = (DEPTH, DEPTH);
        parameters
    }

    fn client(mut self, options: &Options, remote: SocketAddr) -> Result<(), Failure> {
        let parameters = self.parameters();
        let (id, _) = managed::call(&mut self.manager, remote, &parameters)?;
        self.connect(id)?;
        self.manager.ready(id, &[])?;
        println!("connected to {remote}");
        let (begin, size) = (Instant::now(), options.size as usize);
        for number in 0..options.count {
            let text = message(number, size);
            self.region.write(SOURCE, &text);
            self.region.write(SINK, &vec![0; size]);
            self.advertise(SOURCE, size)?;
            self.answer(id)?.ok_or("the server disconnected before it had read")?;
            self.advertise(SINK, size)?;
            self.answer(id)?.ok_or("the server disconnected before it had written")?;
            let mut back = vec![0; size];
            self.region.read(SINK, &mut back);
            if back != text {
                return Err(format!("message {number} came back changed").into());
            }
        }
        let seconds = begin.elapsed().as_secs_f64();
        println!("{} messages of {size} bytes came back unchanged, in {seconds:.2} seconds", options.count);
        self.manager.disconnect(id, &[])?;
        self.last_event(id)
    }

    /// Connects the queue pair as the ends have agreed.
    fn connect(&mut self, id: ConnectionId) -> Result<(), Failure> {
        let (rtr, rts) = self.manager.attributes(id)?;
        Ok(self.connection.connect_by(&rtr, &rts)?)
    }

    fn server(mut self) -> Result<(), Failure> {
        let (id, remote, _) = managed::called(&mut self.manager)?;
        self.connect(id)?;
        self.manager.accept(id, &self.parameters())?;
        let mut served = 0u64;
        while let Some(source) = self.answer(id)? {
            if served == 0 {
                println!("connected from {remote}");
            }
            let buffer = self.region.buffer(SOURCE..SOURCE + source.len)?;
            let buffer = self.connection.read_blocking(buffer, source.address, SOON)?;
            self.connection.send_inline(&[0; ADVERTISEMENT])?;
            let Some(sink) = self.answer(id)? else { return Err("the client disconnected in the middle".into()) };
            let buffer = buffer.filter(|_| sink.len >= source.len).ok_or("the client's sink is too small")?;
            self.connection.write_blocking(buffer, sink.address, SOON)?;
            self.connection.send_inline(&[0; ADVERTISEMENT])?;
            served += 1;
        }
        println!("served {served} messages");
        self.last_event(id)
    }

    /// Tells the remote of `size` bytes of ours from `at` on.
    fn advertise(&mut self, at: usize, size: usize) -> Result<(), Failure> {
        let remote = self.region.remote_at(at);
        let mut bytes = remote.addr.to_be_bytes().to_vec();
        bytes.extend(remote.rkey.to_be_bytes());
        bytes.extend((size as u32).to_be_bytes());
        self.connection.send_inline(&bytes)?;
        Ok(())
    }

    /// The remote's next message; `None` once it has disconnected.
    fn answer(&mut self, id: ConnectionId) -> Result<Option<Advertisement>, Failure> {
        let begin = Instant::now();
        while begin.elapsed() < SOON {
            if let Some(done) = self.connection.poll()? {
                let completion = done.result?;
                if completion.operation == Operation::Received {
                    let buffer = done.buffer.ok_or("a receive without a buffer")?;
                    let mut bytes = [0; ADVERTISEMENT];
                    buffer.read(0, &mut bytes);
                    self.connection.receive(buffer)?;
                    // The first message may overtake the RTU.
                    self.manager.communication_established(id)?;
                    return Advertisement::read(&bytes, completion.byte_len as usize).map(Some);
                }
                continue;
            }
            match self.manager.poll()? {
                Some((_, Event::Disconnected { .. })) => return Ok(None),
                Some((_, Event::Established { .. })) | None => std::thread::yield_now(),
                Some((_, other)) => return Err(format!("the connection failed: {other}").into()),
            }
        }
        Err(format!("no message within {} s", SOON.as_secs()).into())
    }

    /// Answers late messages until the connection is gone.
    fn last_event(mut self, id: ConnectionId) -> Result<(), Failure> {
        loop {
            let (of, event) = self.manager.wait(PATIENCE)?;
            if of == id && event.is_last() {
                println!("disconnected");
                return Ok(());
            }
        }
    }
}

/// Memory of the remote.
struct Advertisement {
    address: RemoteAddress,
    len: usize,
}

impl Advertisement {
    fn read(bytes: &[u8; ADVERTISEMENT], len: usize) -> Result<Self, Failure> {
        let [addr @ .., a, b, c, d, e, f, g, h] = *bytes;
        let len_told = u32::from_be_bytes([e, f, g, h]) as usize;
        if len != ADVERTISEMENT || len_told > SINK - SOURCE {
            return Err(format!("a message of {len} bytes that advertises {len_told}: not rping's protocol").into());
        }
        let address = RemoteAddress { addr: u64::from_be_bytes(addr), rkey: u32::from_be_bytes([a, b, c, d]) };
        Ok(Advertisement { address, len: len_told })
    }
}

/// A text like rping's: it ends with a zero.
fn message(number: u64, size: usize) -> Vec<u8> {
    let mut text = format!("rdma-ping-{number}: ").into_bytes();
    text.extend((0..size).map(|at| b'A' + ((number as usize + at) % 58) as u8));
    text.truncate(size - 1);
    text.push(0);
    text
}
