//! Dynamic connections: two ends, each with an initiator, which sends to any target, and a target, which receives from
//! any initiator that knows its access key. No queue pair is connected.
//!
//! The server opens its memory by a key that is registered for this run, tells of it by the same doorbell, and closes
//! it at the end: a queue pair that is not connected does both. In each round the client writes a pattern there, reads
//! it back, adds one to a number behind it, and sends a message; the server checks memory and number, and answers. At
//! last the client sends with a wrong access key, which must be refused: by another initiator, for this one is in error
//! then. With `--streams` it sends that by a stream of its own, which it then takes out of error.
//!
//! Without a host both ends run in this process, on one card. `--listen` waits for a client; HOST connects to a server.
//! They exchange numbers of targets and link-local GIDs as `ibv_rc_pingpong` does those of queue pairs.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use mlx5_dv::Device;
use mlx5_dv::objects::{
    AccessFlags, AddressPath, Buffer, CqOptions, DcTarget, DciStreams, DctOptions, MemoryRegion, Pd, QpOptions,
    SrqOptions, UmrKeyOptions,
};
use mlx5_dv::queue::{ConnectionOptions, DcInitiator, DcReceiver, Done, FastKey, RemoteAddress, WorkError};
use mlx5_examples::exchange::{self, Address};
use mlx5_examples::pingpong::{Failure, is};
use mlx5_open::program;
use mlx5_prm::cqe::CqeSyndrome;

/// How long an end waits for the other.
const PATIENCE: Duration = Duration::from_secs(120);
/// Of both targets.
const ACCESS_KEY: u64 = 0x0123_4567_89ab_cdef;
const ROUNDS: u64 = 8;
/// What the client may do at the server.
const REMOTE: AccessFlags = AccessFlags::REMOTE_WRITE.union(AccessFlags::REMOTE_READ).union(AccessFlags::REMOTE_ATOMIC);
/// Bytes that the client writes: more than a packet. The number lies behind them.
const LENGTH: usize = 1536;
/// Where in the region the client's own buffers lie, and the receives.
const OWN: usize = 2048;
const RECEIVES: usize = 4096;
/// Receives that a target has posted, and bytes of each.
const POSTED: usize = 4;
const MESSAGE: usize = 16;
/// The client's stream for what is refused.
const REFUSED: u16 = 1;

/// Dynamic connections of two ends.
#[derive(Debug, Parser)]
#[command(name = "dynamic")]
struct Options {
    /// Connect to the server on this host. Without a host both ends run in this process.
    host: Option<String>,
    /// Run as server: wait for one client.
    #[arg(long, conflicts_with = "host")]
    listen: bool,
    /// Open connections by a handshake: our initiator wants it, and so does our target.
    #[arg(long)]
    handshake: bool,
    /// As client, send by streams.
    #[arg(long, conflicts_with = "listen")]
    streams: bool,
    /// TCP port of the server.
    #[arg(short, long, default_value_t = 18515)]
    port: u16,
    /// Device: sim, vfio:0000:3b:00.0, devx:mlx5_0, vfio-user:/run/nic.sock.
    #[arg(short = 'd', long = "ib-dev", default_value = "sim")]
    device: String,
}

fn main() -> ExitCode {
    let options = Options::parse();
    program::run("dynamic", || run(&options))
}

fn run(options: &Options) -> Result<(), Failure> {
    let device = mlx5_open::open(&options.device)?;
    let end = |streams| End::new(&device, options, streams);
    let streams = options.streams.then_some(DciStreams { log_channels: 1, log_errored: 1 });
    match &options.host {
        Some(host) => ask(end(streams)?, host, options),
        None if options.listen => listen(end(None)?, options),
        None => {
            let (client, server) = (end(streams)?, end(None)?);
            std::thread::scope(|scope| {
                let server = scope.spawn(|| listen(server, options));
                ask(client, "127.0.0.1", options)?;
                server.join().map_err(|_| "the server's thread panicked")?
            })
        }
    }
}

/// What the client writes in `round`.
fn pattern(round: u64) -> Vec<u8> {
    (0..LENGTH).map(|i| (i * 7 + (i >> 8) + round as usize * 31 + 1) as u8).collect()
}

fn initiator(pd: &Arc<Pd>, options: &Options, streams: Option<DciStreams>) -> Result<DcInitiator, Failure> {
    let mut qp = QpOptions::default();
    if options.handshake {
        qp = qp.full_handshake();
    }
    if let Some(streams) = streams {
        qp = qp.dci_streams(streams);
    }
    let mut sends = ConnectionOptions::default();
    sends.events = true;
    Ok(DcInitiator::with_qp_options(pd, &sends, qp)?)
}

/// Waits for the next completion.
fn next(initiator: &mut DcInitiator) -> Result<Done, Failure> {
    loop {
        if let Some(done) = initiator.poll()? {
            return Ok(done);
        }
        initiator.wait(PATIENCE)?;
    }
}

/// Waits until what was posted last is complete.
fn complete(initiator: &mut DcInitiator) -> Result<Result<Option<Buffer>, WorkError>, Failure> {
    let done = next(initiator)?;
    Ok(done.result.map(|_| done.buffer))
}

/// One end.
struct End {
    initiator: DcInitiator,
    receiver: DcReceiver,
    region: Arc<MemoryRegion>,
}

impl End {
    /// Creates both queues, and posts receives.
    fn new(device: &Arc<Device>, options: &Options, streams: Option<DciStreams>) -> Result<Self, Failure> {
        let mut target = DctOptions::new(ACCESS_KEY).remote_access(REMOTE);
        if options.handshake {
            target = target.full_handshake();
        }
        let pd = Pd::alloc(device)?;
        let receives = SrqOptions::default().wqes(POSTED as u32);
        let mut end = End {
            initiator: initiator(&pd, options, streams)?,
            receiver: DcReceiver::new(&pd, &target, receives, CqOptions::default().events())?,
            region: MemoryRegion::allocate(&pd, RECEIVES + POSTED * MESSAGE, AccessFlags::LOCAL_WRITE)?,
        };
        let places = (RECEIVES..).step_by(MESSAGE).take(POSTED);
        let mut buffers: Vec<_> = places.map(|at| end.region.buffer(at..at + MESSAGE)).collect::<Result<_, _>>()?;
        end.receiver.receive_each(&mut buffers)?;
        Ok(end)
    }

    /// Of its target. A target has no PSN.
    fn address(&self) -> Address {
        let dct = self.receiver.dct();
        let gid = dct.device().gids()[0].address.octets();
        Address { qpn: dct.dctn(), gid, ..Address::default() }
    }

    /// The target at `remote`, by `access_key`.
    fn target(&self, remote: Address, access_key: u64) -> Result<DcTarget, Failure> {
        let path = AddressPath::link_local(remote.gid).ok_or("the other end's GID is not link-local")?;
        Ok(DcTarget::new(self.receiver.dct().device(), &path, remote.qpn, access_key)?)
    }

    fn send_words(&mut self, to: &DcTarget, words: [u64; 2]) -> Result<(), Failure> {
        let [first, second] = words.map(u64::to_be_bytes);
        self.initiator.batch().send_inline_all(to, &[&first, &second])?;
        complete(&mut self.initiator)??;
        Ok(())
    }

    /// Registers `key` for the other end, and tells it where its memory is.
    fn open(&mut self, key: &mut FastKey, to: &DcTarget) -> Result<(), Failure> {
        let access = AccessFlags::LOCAL_WRITE | REMOTE;
        let mut batch = self.initiator.batch();
        let (registered, memory) = batch.register(key, access)?;
        batch.send_inline(to, &[memory.addr, memory.rkey.into()].map(u64::to_be_bytes).concat())?;
        batch.ring();
        let done = next(&mut self.initiator)?;
        is("what completes first", &(done.ticket == registered && key.settle(&done)), &true)?;
        done.result?;
        complete(&mut self.initiator)??;
        Ok(())
    }

    /// Closes `key`: from now on the other end has no access.
    fn close(&mut self, key: &mut FastKey) -> Result<(), Failure> {
        self.initiator.batch().invalidate(key)?;
        let done = next(&mut self.initiator)?;
        is("whether the key is closed", &(key.settle(&done) && key.is_free()), &true)?;
        done.result?;
        println!("its key is closed");
        Ok(())
    }

    /// Waits for the next message.
    fn words(&mut self) -> Result<[u64; 2], Failure> {
        let done = loop {
            match self.receiver.poll()? {
                Some(done) => break done,
                None => self.receiver.wait(PATIENCE)?,
            }
        };
        done.result?;
        let buffer = done.buffer.ok_or("no buffer")?;
        let words = [0, 8].map(|at| {
            let mut bytes = [0; 8];
            buffer.read(at, &mut bytes);
            u64::from_be_bytes(bytes)
        });
        self.receiver.receive(buffer)?;
        Ok(words)
    }
}

fn listen(mut end: End, options: &Options) -> Result<(), Failure> {
    let accepted = exchange::accept(options.port, PATIENCE)?;
    let [remote] = accepted.remote;
    let to = end.target(remote, ACCESS_KEY)?;
    accepted.answer(&[end.address()])?;
    end.region.fill(0, LENGTH + 8, 0);
    let mut key = FastKey::create(end.region.pd(), UmrKeyOptions::default().entries(1))?;
    key.push(end.region.buffer(0..LENGTH + 8)?).map_err(|_| "the key takes no buffer")?;
    end.open(&mut key, &to)?;
    for round in 0..ROUNDS {
        is("the client's round", &end.words()?, &[round, round])?;
        let (mut bytes, mut number) = (vec![0; LENGTH], [0; 8]);
        end.region.read(0, &mut bytes);
        end.region.read(LENGTH, &mut number);
        is("what the client wrote", &bytes, &pattern(round))?;
        is("what the client added up", &u64::from_ne_bytes(number), &(round + 1))?;
        end.send_words(&to, [round, round + 1])?;
    }
    is("the client's last message", &end.words()?, &[ROUNDS; 2])?;
    println!("{ROUNDS} rounds answered");
    end.close(&mut key)
}

fn ask(mut end: End, host: &str, options: &Options) -> Result<(), Failure> {
    let asked = exchange::ask(host, options.port, &[end.address()], PATIENCE)?;
    let [remote] = asked.remote;
    let to = end.target(remote, ACCESS_KEY)?;
    asked.finish()?;
    let [addr, rkey] = end.words()?;
    let memory = RemoteAddress { addr, rkey: u32::try_from(rkey)? };
    for round in 0..ROUNDS {
        let added = write_and_add(&mut end, &to, memory, round)?;
        end.send_words(&to, [round, added])?;
        is("the server's answer", &end.words()?, &[round, round + 1])?;
    }
    println!("{ROUNDS} rounds");
    let wrong = end.target(remote, ACCESS_KEY + 1)?.stream(REFUSED);
    if options.streams {
        is_refused(&mut end.initiator, &wrong)?;
        end.initiator.reset_stream(REFUSED)?;
        end.send_words(&to.stream(REFUSED), [ROUNDS; 2])?;
        println!("its stream goes on");
    } else {
        is_refused(&mut initiator(end.region.pd(), options, None)?, &wrong)?;
        end.send_words(&to, [ROUNDS; 2])?;
    }
    Ok(())
}

fn is_refused(initiator: &mut DcInitiator, wrong: &DcTarget) -> Result<(), Failure> {
    initiator.send_inline(wrong, &[0; MESSAGE])?;
    match complete(initiator)? {
        Err(error) if error.syndrome() == Some(CqeSyndrome::RemoteAccess) => println!("a wrong access key is refused"),
        Err(error) => return Err(error.into()),
        Ok(_) => return Err("a wrong access key was taken".into()),
    }
    Ok(())
}

/// Returns what the number was.
fn write_and_add(end: &mut End, to: &DcTarget, memory: RemoteAddress, round: u64) -> Result<u64, Failure> {
    let mut buffer = end.region.buffer(OWN..OWN + LENGTH)?;
    buffer.write(0, &pattern(round));
    end.initiator.write(to, buffer, memory)?;
    let mut buffer = complete(&mut end.initiator)??.ok_or("no buffer")?;
    buffer.fill(0, LENGTH, 0);
    end.initiator.read(to, buffer, memory)?;
    let buffer = complete(&mut end.initiator)??.ok_or("no buffer")?;
    let mut bytes = vec![0; LENGTH];
    buffer.read(0, &mut bytes);
    is("what is read back", &bytes, &pattern(round))?;
    drop(buffer);
    let number = RemoteAddress { addr: memory.addr + LENGTH as u64, ..memory };
    end.initiator.fetch_add(to, end.region.buffer(OWN..OWN + 8)?, number, 1)?;
    let buffer = complete(&mut end.initiator)??.ok_or("no buffer")?;
    Ok(buffer.found())
}
