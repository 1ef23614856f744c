//! Every operation on the memory of another end, by a connection of each service: reliable (RC), unreliable (UC) or
//! extended reliable (XRC), whose messages name a shared receive queue.
//!
//! The server sends the address of its memory: of a key that it registers right before the message, if the service
//! changes keys, both with one doorbell. In each round the client writes a pattern there and, if the service has
//! them, reads it back and changes two numbers behind it by atomics; else it writes the numbers. Then it sends a
//! message with immediate data. The server checks pattern and numbers, and answers.
//!
//! Without a host both ends run in this process, on one card. `--listen` waits for a client; HOST connects to a server.
//! They exchange three numbers each and link-local GIDs, in the format of `ibv_rc_pingpong`: of the queue pair that
//! sends, of the one that receives, and of the shared receive queue.

use std::collections::VecDeque;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use mlx5_dv::Device;
use mlx5_dv::objects::{AccessFlags, Buffer, CqOptions, MemoryRegion, Pd, SrqOptions, UmrKeyOptions, Xrcd};
use mlx5_dv::queue::{
    Connected, Connection, ConnectionOptions, Done, FastKey, Operation, Refused, RemoteAddress, RemoteSrq, Side,
    Ticket, UnreliableConnection, XrcConnection, XrcPeer, XrcReceiver,
};
use mlx5_examples::exchange::{self, Address};
use mlx5_examples::pingpong::{Failure, is};
use mlx5_open::program;

/// How long an end waits for the other.
const PATIENCE: Duration = Duration::from_secs(120);
const ROUNDS: u64 = 8;
/// Bytes that the client writes: more than a packet. The two numbers lie behind them.
const LENGTH: usize = 1536;
const NUMBERS: [usize; 2] = [LENGTH, LENGTH + 8];
/// Where in the region the client's own buffer lies, what is sent, and the receives.
const OWN: usize = 2048;
const OUT: usize = 3712;
const RECEIVES: usize = 4096;
/// Posted receives, and bytes of each.
const POSTED: usize = 4;
const MESSAGE: usize = 16;

/// What the client does to the memory of the server.
const REMOTE: AccessFlags = AccessFlags::REMOTE_WRITE.union(AccessFlags::REMOTE_READ).union(AccessFlags::REMOTE_ATOMIC);

/// Service of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Service {
    Rc,
    Uc,
    Xrc,
}

/// Every operation by a connection of each service.
#[derive(Debug, Parser)]
#[command(name = "operations")]
struct Options {
    /// Connect to the server on this host. Without a host both ends run in this process.
    host: Option<String>,
    /// Run as server: wait for one client.
    #[arg(long, conflicts_with = "host")]
    listen: bool,
    /// Service.
    #[arg(short, long, value_enum, default_value = "rc")]
    service: Service,
    /// TCP port of the server.
    #[arg(short, long, default_value_t = 18515)]
    port: u16,
    /// Device: sim, vfio:0000:3b:00.0, devx:mlx5_0, vfio-user:/run/nic.sock.
    #[arg(short = 'd', long = "ib-dev", default_value = "sim")]
    device: String,
}

fn main() -> ExitCode {
    let options = Options::parse();
    program::run("operations", || run(&options))
}

fn run(options: &Options) -> Result<(), Failure> {
    let device = mlx5_open::open(&options.device)?;
    match &options.host {
        Some(host) => ask(End::new(&device, options.service)?, host, options),
        None if options.listen => listen(End::new(&device, options.service)?, options),
        None => {
            let (client, server) = (End::new(&device, options.service)?, End::new(&device, options.service)?);
            std::thread::scope(|scope| {
                let server = scope.spawn(|| listen(server, options));
                ask(client, "127.0.0.1", options)?;
                server.join().map_err(|_| "the server's thread panicked")?
            })
        }
    }
}

/// What is done with a buffer.
#[derive(Debug, Clone, Copy)]
enum Work {
    Write(RemoteAddress),
    Read(RemoteAddress),
    FetchAdd(RemoteAddress, u64),
    CompareSwap(RemoteAddress, [u64; 2]),
    Send(u32),
}

/// A connection of one service.
trait Transport: Send {
    fn local(&self) -> Result<[Address; 3], Failure>;
    fn connect(&mut self, remote: [Address; 3]) -> Result<(), Failure>;
    fn receive(&mut self, buffer: Buffer) -> Result<(), Failure>;
    fn post(&mut self, work: Work, buffer: Buffer) -> Result<Ticket, Failure>;
    /// Registers the key's memory for `access`, and sends in `buffer` where it is, with one doorbell.
    fn introduce(&mut self, _: &mut FastKey, _: AccessFlags, _: Buffer) -> Result<(), Failure> {
        Err("this connection changes no keys".into())
    }
    /// Closes the key: its memory comes back.
    fn invalidate(&mut self, _: &mut FastKey) -> Result<(), Failure> {
        Err("this connection changes no keys".into())
    }
    /// Waits for the next work request of `side`.
    fn completed(&mut self, side: Side) -> Result<Done, Failure>;
}

/// A connection, and what completed while it was asked for the other side.
struct Plain<C> {
    connection: C,
    met: VecDeque<Done>,
}

/// What both kinds of [`Connection`] do alike; `$post` posts what they do not, and `$own` is what one does alone.
macro_rules! plain {
    ($Connection:ty, $post:path, $($own:item)*) => {
        impl Transport for Plain<$Connection> {
            fn local(&self) -> Result<[Address; 3], Failure> {
                let address = Address::from(self.connection.local()?);
                Ok([address, address, Address::default()])
            }

            fn connect(&mut self, [_, remote, _]: [Address; 3]) -> Result<(), Failure> {
                Ok(self.connection.connect(&remote.peer(None))?)
            }

            fn receive(&mut self, buffer: Buffer) -> Result<(), Failure> {
                self.connection.receive(buffer)?;
                Ok(())
            }

            fn post(&mut self, work: Work, buffer: Buffer) -> Result<Ticket, Failure> {
                $post(&mut self.connection, work, buffer)
            }

            $($own)*

            fn completed(&mut self, side: Side) -> Result<Done, Failure> {
                next_of(&mut self.connection, &mut self.met, side)
            }
        }
    };
}

plain! {
    Connection, post_reliable,
    fn introduce(&mut self, key: &mut FastKey, access: AccessFlags, mut buffer: Buffer) -> Result<(), Failure> {
        let mut batch = self.connection.batch();
        let (_, memory) = batch.register(key, access)?;
        put(&mut buffer, [memory.addr, memory.rkey.into()]);
        batch.send_imm(buffer, 0)?;
        batch.ring();
        Ok(())
    }

    fn invalidate(&mut self, key: &mut FastKey) -> Result<(), Failure> {
        self.connection.invalidate(key)?;
        Ok(())
    }
}
plain! { UnreliableConnection, post_unreliable, }

fn post_reliable(connection: &mut Connection, work: Work, buffer: Buffer) -> Result<Ticket, Failure> {
    Ok(match work {
        Work::Write(to) => connection.write(buffer, to),
        Work::Read(from) => connection.read(buffer, from),
        Work::FetchAdd(at, add) => connection.fetch_add(buffer, at, add),
        Work::CompareSwap(at, [compare, swap]) => connection.compare_swap(buffer, at, compare, swap),
        Work::Send(imm) => connection.send_imm(buffer, imm),
    }?)
}

fn post_unreliable(connection: &mut UnreliableConnection, work: Work, buffer: Buffer) -> Result<Ticket, Failure> {
    match work {
        Work::Write(to) => Ok(connection.write(buffer, to)?),
        Work::Send(imm) => Ok(connection.send_imm(buffer, imm)?),
        other => Err(format!("an unreliable connection has no {other:?}").into()),
    }
}

/// Writes a message.
fn put(buffer: &mut Buffer, words: [u64; 2]) {
    buffer.write(0, &words.map(u64::to_be_bytes).concat());
}

fn next_of<S: Connected>(
    connection: &mut Connection<S>,
    met: &mut VecDeque<Done>,
    side: Side,
) -> Result<Done, Failure> {
    let is_of = |done: &Done| done.result.as_ref().is_ok_and(|completion| completion.work.side == side);
    if let Some(at) = met.iter().position(is_of) {
        return Ok(met.remove(at).ok_or("it was there")?);
    }
    loop {
        let done = connection.wait(PATIENCE)?;
        match &done.result {
            Err(error) => return Err((*error).into()),
            Ok(_) if is_of(&done) => return Ok(done),
            Ok(_) => met.push_back(done),
        }
    }
}

/// A connection between XRC domains, and the receiver that the other end's messages name.
struct Extended {
    connection: XrcConnection,
    receiver: XrcReceiver,
    to: Option<RemoteSrq>,
}

impl Transport for Extended {
    fn local(&self) -> Result<[Address; 3], Failure> {
        let XrcPeer { initiator, target_qpn } = self.connection.local()?;
        let initiator = Address::from(initiator);
        let of = |qpn| Address { qpn, ..initiator };
        Ok([initiator, of(target_qpn), of(self.receiver.srqn())])
    }

    fn connect(&mut self, [initiator, target, srq]: [Address; 3]) -> Result<(), Failure> {
        self.to = RemoteSrq::new(srq.qpn);
        Ok(self.connection.connect(&XrcPeer { initiator: initiator.peer(None), target_qpn: target.qpn })?)
    }

    fn receive(&mut self, buffer: Buffer) -> Result<(), Failure> {
        self.receiver.receive(buffer)?;
        Ok(())
    }

    fn post(&mut self, work: Work, buffer: Buffer) -> Result<Ticket, Failure> {
        let (connection, srq) = (&mut self.connection, self.to.ok_or("not connected")?);
        let posted: Result<Ticket, Refused> = match work {
            Work::Write(to) => connection.write(srq, buffer, to),
            Work::Read(from) => connection.read(srq, buffer, from),
            Work::FetchAdd(at, add) => connection.fetch_add(srq, buffer, at, add),
            Work::CompareSwap(at, operands) => connection.compare_swap(srq, buffer, at, operands),
            Work::Send(imm) => connection.send_imm(srq, buffer, imm),
        };
        Ok(posted?)
    }

    fn introduce(&mut self, key: &mut FastKey, access: AccessFlags, mut buffer: Buffer) -> Result<(), Failure> {
        let (mut batch, srq) = (self.connection.batch(), self.to.ok_or("not connected")?);
        let (_, memory) = batch.register(key, access)?;
        put(&mut buffer, [memory.addr, memory.rkey.into()]);
        batch.send_imm(srq, buffer, 0)?;
        batch.ring();
        Ok(())
    }

    fn invalidate(&mut self, key: &mut FastKey) -> Result<(), Failure> {
        self.connection.batch().invalidate(key)?;
        Ok(())
    }

    fn completed(&mut self, side: Side) -> Result<Done, Failure> {
        loop {
            let done = match side {
                Side::Send => self.connection.poll()?,
                Side::Receive => self.receiver.poll()?,
            };
            match (done, side) {
                (Some(done), _) => return Ok(done),
                (None, Side::Send) => self.connection.wait(PATIENCE)?,
                (None, Side::Receive) => self.receiver.wait(PATIENCE)?,
            }
        }
    }
}

/// One end.
struct End {
    transport: Box<dyn Transport>,
    region: Arc<MemoryRegion>,
    service: Service,
}

impl End {
    /// Creates its queues, and posts receives.
    fn new(device: &Arc<Device>, service: Service) -> Result<Self, Failure> {
        let access = REMOTE;
        let pd = Pd::alloc(device)?;
        let mut options = ConnectionOptions::default().remote_access(access);
        options.events = true;
        let transport: Box<dyn Transport> = match service {
            Service::Rc => Box::new(Plain { connection: Connection::new(&pd, options)?, met: VecDeque::new() }),
            Service::Uc => {
                options.remote_access = AccessFlags::REMOTE_WRITE;
                Box::new(Plain { connection: UnreliableConnection::of_service(&pd, options)?, met: VecDeque::new() })
            }
            Service::Xrc => {
                let domain = Xrcd::alloc(device)?;
                let receives = SrqOptions::default().wqes(POSTED as u32);
                let receiver = XrcReceiver::new(&pd, &domain, receives, CqOptions::default().events())?;
                let connection = XrcConnection::new(&pd, &domain, options)?;
                Box::new(Extended { connection, receiver, to: None })
            }
        };
        let region = MemoryRegion::allocate(&pd, RECEIVES + POSTED * MESSAGE, AccessFlags::LOCAL_WRITE | access)?;
        let mut end = End { transport, region, service };
        for at in (RECEIVES..).step_by(MESSAGE).take(POSTED) {
            end.transport.receive(end.region.buffer(at..at + MESSAGE)?)?;
        }
        Ok(end)
    }

    /// Does `work` with `buffer`, and returns that.
    fn complete(&mut self, work: Work, buffer: Buffer) -> Result<Buffer, Failure> {
        let ticket = self.transport.post(work, buffer)?;
        let done = self.transport.completed(Side::Send)?;
        is("the work request that completed", &done.ticket, &ticket)?;
        done.result?;
        Ok(done.buffer.ok_or("no buffer")?)
    }

    /// Opens the memory that the client changes to it, and sends where it is. The key, if the service changes keys.
    fn open(&mut self) -> Result<Option<FastKey>, Failure> {
        if self.service == Service::Uc {
            let memory = self.region.remote_at(0);
            self.send_words(0, [memory.addr, memory.rkey.into()])?;
            return Ok(None);
        }
        let mut key = FastKey::create(self.region.pd(), UmrKeyOptions::default().entries(1))?;
        key.push(self.region.buffer(0..OWN)?).map_err(|_| "the key takes no buffer")?;
        let access = AccessFlags::LOCAL_WRITE | REMOTE;
        self.transport.introduce(&mut key, access, self.region.buffer(OUT..OUT + MESSAGE)?)?;
        let [registered, sent] = [self.transport.completed(Side::Send)?, self.transport.completed(Side::Send)?];
        is("whether the key is open", &(key.settle(&registered), key.settle(&sent)), &(true, false))?;
        sent.result?;
        Ok(Some(key))
    }

    /// Takes the memory back.
    fn close(&mut self, mut key: FastKey) -> Result<(), Failure> {
        self.transport.invalidate(&mut key)?;
        let done = self.transport.completed(Side::Send)?;
        is("whether the key is closed", &(key.settle(&done), key.is_free()), &(true, true))?;
        is("the buffers that come back", &key.parts().count(), &1)
    }

    fn send_words(&mut self, imm: u32, words: [u64; 2]) -> Result<(), Failure> {
        let mut buffer = self.region.buffer(OUT..OUT + MESSAGE)?;
        put(&mut buffer, words);
        self.complete(Work::Send(imm), buffer)?;
        Ok(())
    }

    /// Waits for the next message, which has the immediate data `imm`.
    fn words(&mut self, imm: u32) -> Result<[u64; 2], Failure> {
        let done = self.transport.completed(Side::Receive)?;
        is("how the message came", &done.result?.operation, &Operation::ReceivedImm(imm))?;
        let buffer = done.buffer.ok_or("no buffer")?;
        let words = [0, 8].map(|at| {
            let mut bytes = [0; 8];
            buffer.read(at, &mut bytes);
            u64::from_be_bytes(bytes)
        });
        self.transport.receive(buffer)?;
        Ok(words)
    }
}

/// What the client writes in `round`.
fn pattern(round: u64) -> Vec<u8> {
    (0..LENGTH).map(|i| (i * 7 + (i >> 8) + round as usize * 31 + 1) as u8).collect()
}

fn listen(mut end: End, options: &Options) -> Result<(), Failure> {
    let accepted = exchange::accept(options.port, PATIENCE)?;
    end.transport.connect(accepted.remote)?;
    accepted.answer(&end.transport.local()?)?;
    end.region.fill(0, LENGTH + 16, 0);
    let key = end.open()?;
    for round in 0..ROUNDS {
        is("the client's round", &end.words(round as u32)?, &[round, round])?;
        let mut bytes = vec![0; LENGTH];
        end.region.read(0, &mut bytes);
        is("what the client wrote", &bytes, &pattern(round))?;
        for at in NUMBERS {
            let mut number = [0; 8];
            end.region.read(at, &mut number);
            is("what the client changed", &u64::from_ne_bytes(number), &(round + 1))?;
        }
        end.send_words(round as u32, [round, round + 1])?;
    }
    key.map_or(Ok(()), |key| end.close(key))?;
    println!("{ROUNDS} rounds answered");
    Ok(())
}

fn ask(mut end: End, host: &str, options: &Options) -> Result<(), Failure> {
    let asked = exchange::ask(host, options.port, &end.transport.local()?, PATIENCE)?;
    end.transport.connect(asked.remote)?;
    asked.finish()?;
    let [addr, rkey] = end.words(0)?;
    let memory = RemoteAddress { addr, rkey: u32::try_from(rkey)? };
    let numbers = NUMBERS.map(|at| RemoteAddress { addr: addr + at as u64, ..memory });
    for round in 0..ROUNDS {
        write(&mut end, memory, round)?;
        match end.service {
            Service::Uc => write_numbers(&mut end, numbers, round + 1)?,
            Service::Rc | Service::Xrc => change(&mut end, numbers, round)?,
        }
        end.send_words(round as u32, [round; 2])?;
        is("the server's answer", &end.words(round as u32)?, &[round, round + 1])?;
    }
    println!("{ROUNDS} rounds by {:?}", end.service);
    Ok(())
}

/// Writes the pattern, and reads it back where the service can.
fn write(end: &mut End, memory: RemoteAddress, round: u64) -> Result<(), Failure> {
    let mut buffer = end.region.buffer(OWN..OWN + LENGTH)?;
    buffer.write(0, &pattern(round));
    let mut buffer = end.complete(Work::Write(memory), buffer)?;
    if end.service == Service::Uc {
        return Ok(());
    }
    buffer.fill(0, LENGTH, 0);
    let buffer = end.complete(Work::Read(memory), buffer)?;
    let mut bytes = vec![0; LENGTH];
    buffer.read(0, &mut bytes);
    is("what is read back", &bytes, &pattern(round))
}

fn write_numbers(end: &mut End, numbers: [RemoteAddress; 2], value: u64) -> Result<(), Failure> {
    for number in numbers {
        let mut buffer = end.region.buffer(OWN..OWN + 8)?;
        buffer.write(0, &value.to_ne_bytes());
        end.complete(Work::Write(number), buffer)?;
    }
    Ok(())
}

/// Adds one to each number, which is `round`, by either atomic.
fn change(end: &mut End, [added, swapped]: [RemoteAddress; 2], round: u64) -> Result<(), Failure> {
    for work in [Work::FetchAdd(added, 1), Work::CompareSwap(swapped, [round, round + 1])] {
        let buffer = end.complete(work, end.region.buffer(OWN..OWN + 8)?)?;
        is("what an atomic found", &buffer.found(), &round)?;
    }
    Ok(())
}
