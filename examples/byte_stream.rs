//! A byte stream over RDMA WRITE: librdmacm's `rstream`, on this driver. It speaks the protocol of rsockets.
//!
//! Without a host both ends run in this process, on two functions of one software card. `--listen` waits for a client;
//! HOST connects to a server. The other end may be `rstream -T v`: the client sends, the server answers as many bytes,
//! and each end checks what comes.
//!
//! Each end has a ring that the other one writes. An RDMA WRITE with immediate data says how many bytes it brought.
//! When half of the ring was read, its address goes to the other end's list of targets, with a new credit: the number
//! of messages that may be sent in all.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use clap::Parser;
use mlx5_cm::{ConnectionId, ConnectionManager, Event, Parameters, Service};
use mlx5_dv::objects::{AccessFlags, Buffer, ExclusiveRegion, MemoryRegion, Pd};
use mlx5_dv::queue::{Connection, ConnectionOptions, Operation, RemoteAddress};
use mlx5_examples::managed::{self, EndOptions, PATIENCE};
use mlx5_examples::pingpong::Failure;
use mlx5_examples::rsockets::{CREDIT, Greeting, Incoming, Message, Owed, RING, TARGET, TARGETS, Target};
use mlx5_open::program;

/// How long no byte may move.
const SOON: Duration = Duration::from_secs(60);

/// Sends a byte stream there and back by RDMA WRITEs.
#[derive(Debug, Clone, Parser)]
#[command(name = "byte_stream")]
struct Options {
    #[command(flatten)]
    end: EndOptions,
    /// Port of the server.
    #[arg(short, long, default_value_t = 7471)]
    port: u16,
    /// Number of transfers each way.
    #[arg(short = 'C', long, default_value_t = 1000)]
    count: usize,
    /// Bytes of each.
    #[arg(short = 'S', long, default_value_t = 1000)]
    size: usize,
}

fn main() -> ExitCode {
    let options = Options::parse();
    program::run("byte_stream", || {
        options.end.run(Service::tcp(options.port), |end| {
            let remote = end.remote;
            let socket = RSocket::new(end)?;
            match remote {
                Some(remote) => client(socket, &options, remote),
                None => server(socket, &options),
            }
        })
    })
}

/// Bytes that each end sends before the transfers.
const HELLO: usize = 16;

fn client(mut socket: RSocket, options: &Options, remote: SocketAddr) -> Result<(), Failure> {
    socket.connect(remote)?;
    println!("connected to {remote}");
    let begin = Instant::now();
    socket.send(HELLO)?;
    socket.receive(HELLO)?;
    socket.send(options.count * options.size)?;
    socket.receive(options.count * options.size)?;
    tell(options, begin);
    socket.shut_down()
}

fn server(mut socket: RSocket, options: &Options) -> Result<(), Failure> {
    socket.accept()?;
    let begin = Instant::now();
    socket.receive(HELLO)?;
    socket.send(HELLO)?;
    socket.receive(options.count * options.size)?;
    socket.send(options.count * options.size)?;
    tell(options, begin);
    socket.await_end()
}

fn tell(options: &Options, begin: Instant) {
    let (bytes, seconds) = (options.count * options.size, begin.elapsed().as_secs_f64());
    println!("{bytes} bytes went each way, and came unchanged, in {seconds:.2} seconds");
}

/// Receives beyond that, for control messages.
const CONTROL: usize = 8;
/// Send buffers, and bytes of each.
const CHUNKS: usize = 16;
const CHUNK: usize = 8192;

/// One end of a stream.
struct RSocket {
    manager: ConnectionManager,
    connection: Connection,
    id: Option<ConnectionId>,
    /// What the other end writes: the ring, then the list of targets.
    region: Arc<MemoryRegion>,
    chunks: Vec<Buffer>,
    /// For messages without data, and for new targets.
    notes: Vec<Buffer>,
    sending: Sending,
    receiving: Receiving,
    /// Whether the other end has closed the stream.
    is_closed: bool,
    /// Whether the other end has ended the connection, too.
    is_disconnected: bool,
}

/// The state of what is sent.
struct Sending {
    /// Where the next bytes go.
    target: Target,
    /// The entry of the list that comes after it.
    entry: usize,
    /// Messages sent, and how many may be sent in all, both modulo 2^16.
    sent: u16,
    credit: u16,
    /// The next byte of the pattern.
    pattern: u8,
}

/// The state of what is received.
struct Receiving {
    ring: Incoming,
    /// The other end's list of targets, and its byte order.
    list: Target,
    is_big_endian: bool,
    pattern: u8,
}

/// `count` buffers of `len` bytes.
fn buffers(pd: &Arc<Pd>, count: usize, len: usize) -> Result<Vec<Buffer>, Failure> {
    let region = ExclusiveRegion::allocate(pd, count * len)?;
    Ok((0..count).map(|number| region.buffer(number * len..(number + 1) * len)).collect::<Result<_, _>>()?)
}

impl RSocket {
    fn new(managed::End { device, manager, .. }: managed::End) -> Result<Self, Failure> {
        let pd = Pd::alloc(&device)?;
        let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
        let region = MemoryRegion::allocate(&pd, RING + TARGETS * TARGET, access)?;
        let receives = CREDIT as usize + CONTROL;
        let mut options = ConnectionOptions::default();
        (options.send_depth, options.recv_depth) = ((CHUNKS + CONTROL) as u32, receives as u32);
        let mut connection = Connection::new(&pd, options)?;
        // A message's bytes go to the ring: its receive only counts it.
        for receive in buffers(&pd, receives, 1)? {
            connection.receive(receive)?;
        }
        let (chunks, notes) = (buffers(&pd, CHUNKS, CHUNK)?, buffers(&pd, CONTROL, TARGET)?);
        let none = Target { address: region.remote(), len: 0 };
        Ok(RSocket {
            manager,
            connection,
            id: None,
            region,
            chunks,
            notes,
            sending: Sending { target: none, entry: 1, sent: 0, credit: 0, pattern: 0 },
            receiving: Receiving { ring: Incoming::default(), list: none, is_big_endian: false, pattern: 0 },
            is_closed: false,
            is_disconnected: false,
        })
    }

    /// Our queue pair, and what the other end is told of the stream.
    fn parameters(&self) -> Parameters {
        let list = Target { address: self.region.remote_at(RING), len: TARGETS };
        let ring = Target { address: self.region.remote(), len: RING / 2 };
        let greeting = Greeting { is_big_endian: false, credit: CREDIT, list, ring };
        Parameters::new(self.connection.queue_pair().qpn(), 0).private_data(&greeting.bytes())
    }

    /// Connects the queue pair, and learns what the other end said.
    fn greeted(&mut self, id: ConnectionId, private_data: &[u8]) -> Result<(), Failure> {
        let greeting = Greeting::read(private_data)?;
        (self.sending.target, self.sending.credit) = (greeting.ring, greeting.credit);
        (self.receiving.list, self.receiving.is_big_endian) = (greeting.list, greeting.is_big_endian);
        let (rtr, rts) = self.manager.attributes(id)?;
        self.connection.connect_by(&rtr, &rts)?;
        self.id = Some(id);
        Ok(())
    }

    fn connect(&mut self, remote: SocketAddr) -> Result<(), Failure> {
        let parameters = self.parameters();
        let (id, greeting) = managed::call(&mut self.manager, remote, &parameters)?;
        self.greeted(id, &greeting)?;
        Ok(self.manager.ready(id, &[])?)
    }

    fn accept(&mut self) -> Result<(), Failure> {
        let (id, remote, greeting) = managed::called(&mut self.manager)?;
        self.greeted(id, &greeting)?;
        self.manager.accept(id, &self.parameters())?;
        println!("connected from {remote}");
        Ok(())
    }

    /// Sends the next `bytes` of the pattern.
    fn send(&mut self, bytes: usize) -> Result<(), Failure> {
        let (mut left, mut since) = (bytes, Instant::now());
        while left > 0 {
            self.turn(&mut since)?;
            let target = self.target();
            if target.len == 0 || self.sending.sent == self.sending.credit {
                continue;
            }
            let Some(mut chunk) = self.chunks.pop() else { continue };
            let len = left.min(target.len).min(chunk.capacity());
            chunk.set_len(len);
            for byte in chunk.as_mut_slice() {
                *byte = self.sending.pattern;
                self.sending.pattern = self.sending.pattern.wrapping_add(1);
            }
            self.connection.write_imm(chunk, target.address, Message::Data(len as u32).immediate())?;
            (self.sending.target, self.sending.sent) = (target.behind(len), self.sending.sent.wrapping_add(1));
            (left, since) = (left - len, Instant::now());
        }
        Ok(())
    }

    /// Where the next bytes go: if the present target is full, the next one of the list, once the other end has written
    /// that.
    fn target(&mut self) -> Target {
        if self.sending.target.len == 0
            && let Some(next) = self.next_target()
        {
            (self.sending.target, self.sending.entry) = (next, (self.sending.entry + 1) % TARGETS);
        }
        self.sending.target
    }

    /// The next entry of the list, which the card may be writing meanwhile. Its length comes last, and is read first:
    /// with it the address is there, too. rsockets also counts on cards that write a message's bytes in their order
    /// ([`QueuePair::data_in_order`](mlx5_dv::objects::QueuePair::data_in_order)).
    fn next_target(&mut self) -> Option<Target> {
        let (mut bytes, at) = ([0; TARGET], RING + self.sending.entry * TARGET);
        let (address, length) = bytes.split_at_mut(TARGET / 2);
        self.region.read(at + TARGET / 2, length);
        fence(Ordering::Acquire);
        self.region.read(at, address);
        let next = Target::read(bytes, false);
        if next.len == 0 {
            return None;
        }
        self.region.write(at, &[0; TARGET]);
        Some(next)
    }

    /// Receives `bytes`, and checks that they are the next ones of the pattern.
    fn receive(&mut self, bytes: usize) -> Result<(), Failure> {
        let (mut left, mut since) = (bytes, Instant::now());
        while left > 0 {
            self.turn(&mut since)?;
            let Some(next) = self.receiving.ring.next(left) else {
                if self.is_closed {
                    return Err(format!("the other end closed the stream {left} bytes early").into());
                }
                continue;
            };
            let len = next.len();
            let mut came = vec![0; len];
            self.region.read(next.start, &mut came);
            for byte in came {
                if byte != self.receiving.pattern {
                    return Err(format!("byte {} came changed", bytes - left).into());
                }
                self.receiving.pattern = byte.wrapping_add(1);
            }
            self.receiving.ring.took(len);
            (left, since) = (left - len, Instant::now());
        }
        Ok(())
    }

    /// Takes completions, and gives the other end what it needs to go on. An error once nothing has moved for long.
    fn turn(&mut self, since: &mut Instant) -> Result<(), Failure> {
        let mut has_moved = false;
        while let Some(done) = self.connection.poll()? {
            has_moved = true;
            self.completed(done.result?.operation, done.buffer)?;
        }
        self.give_credit()?;
        if has_moved {
            *since = Instant::now();
            return Ok(());
        }
        if since.elapsed() > SOON {
            return Err(format!("nothing moved for {} s", SOON.as_secs()).into());
        }
        match self.manager.poll()? {
            None => std::thread::yield_now(),
            Some((_, Event::Established { .. })) => {}
            Some((_, Event::Disconnected { .. })) => (self.is_closed, self.is_disconnected) = (true, true),
            Some((_, other)) => return Err(format!("the connection failed: {other}").into()),
        }
        Ok(())
    }

    fn completed(&mut self, operation: Operation, buffer: Option<Buffer>) -> Result<(), Failure> {
        let buffer = buffer.ok_or("a completion without a buffer")?;
        let Operation::WrittenImm(imm) = operation else {
            let back = if buffer.capacity() == CHUNK { &mut self.chunks } else { &mut self.notes };
            back.push(buffer);
            return Ok(());
        };
        // The first message may overtake the RTU.
        self.manager.communication_established(self.id.ok_or("not connected")?)?;
        self.connection.receive(buffer)?;
        match Message::read(imm)? {
            Message::Data(bytes) => self.receiving.ring.came(bytes)?,
            Message::Credit(credit) => self.sending.credit = credit,
            Message::Disconnect => self.is_closed = true,
            Message::Control(_) => {}
        }
        Ok(())
    }

    /// Tells the other end of a half of the ring that was read, which is its target again, and renews its credit.
    fn give_credit(&mut self) -> Result<(), Failure> {
        if self.is_closed || self.notes.is_empty() {
            return Ok(());
        }
        let Some(Owed { half, entry, credit }) = self.receiving.ring.owed() else { return Ok(()) };
        let Some(mut note) = self.notes.pop() else { return Ok(()) };
        let Receiving { list, is_big_endian, .. } = self.receiving;
        note.set_len(if half.is_some() { TARGET } else { 0 });
        if let Some(half) = half {
            let target = Target { address: self.region.remote_at(half * RING / TARGETS), len: RING / 2 };
            note.as_mut_slice().copy_from_slice(&target.bytes(is_big_endian));
        }
        let addr = list.address.addr.wrapping_add((entry * TARGET) as u64);
        let remote = RemoteAddress { addr, ..list.address };
        self.connection.write_imm(note, remote, Message::Credit(credit).immediate())?;
        Ok(())
    }

    /// Closes the stream.
    fn shut_down(mut self) -> Result<(), Failure> {
        let mut since = Instant::now();
        let mut note = loop {
            self.turn(&mut since)?;
            if let Some(note) = self.notes.pop() {
                break note;
            }
        };
        note.set_len(0);
        self.connection.write_imm(note, self.receiving.list.address, Message::Disconnect.immediate())?;
        while self.connection.in_flight().0 > 0 && !self.is_closed {
            self.turn(&mut since)?;
        }
        if !self.is_disconnected {
            self.manager.disconnect(self.id.ok_or("not connected")?, &[])?;
        }
        self.last_event()
    }

    /// Waits until the other end has closed the stream.
    fn await_end(mut self) -> Result<(), Failure> {
        let mut since = Instant::now();
        while !self.is_closed {
            self.turn(&mut since)?;
        }
        self.last_event()
    }

    /// Answers late messages until the connection is gone.
    fn last_event(mut self) -> Result<(), Failure> {
        while self.manager.connections() > 0 {
            self.manager.wait(PATIENCE)?;
        }
        println!("disconnected");
        Ok(())
    }
}
