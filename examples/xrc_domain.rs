//! An XRC domain of two processes: one makes it, and a target in it; the other joins it, opens the target, and receives
//! by a shared receive queue of its own. The target goes on when its maker has destroyed it. Only the kernel's devices
//! (`devx:`) can be shared.
//!
//! `xrc_domain --make -f FILE --socket PATH` makes it; `xrc_domain -f FILE --socket PATH` joins it. Either may be a
//! program on libibverbs.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use mlx5_dv::Device;
use mlx5_dv::objects::{
    AccessFlags, AddressPath, AnyDoorbell, CqOptions, InitAttributes, MemoryRegion, OpenXrcd, Pd, QpOptions, QueuePair,
    RtrAttributes, RtsAttributes, SrqOptions, Uar, XrcTarget, Xrcd,
};
use mlx5_dv::queue::{CompletionQueue, RemoteSrq, WrFlags, XrcReceiver, XrcSendQueue};
use mlx5_examples::pingpong::Failure;
use mlx5_open::program;

/// How long a message may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of a receive.
const ROOM: usize = 64;
/// First PSN of both queue pairs.
const PSN: u32 = 0x123;
/// What is sent while both processes have the target, and when its maker has destroyed it.
const MESSAGES: [&[u8]; 2] = [b"by a target of two processes", b"by the other process's alone"];

/// Shares an XRC domain with another process.
#[derive(Debug, Parser)]
#[command(name = "xrc_domain")]
struct Options {
    /// Make the domain and the target.
    #[arg(long)]
    make: bool,
    /// The file that names the domain.
    #[arg(short, long)]
    file: PathBuf,
    /// Where the two meet: a Unix socket.
    #[arg(short, long)]
    socket: PathBuf,
    /// Device: devx:mlx5_0.
    #[arg(short = 'd', long = "ib-dev", default_value = "devx:mlx5_0")]
    device: String,
}

fn main() -> ExitCode {
    let options = Options::parse();
    program::run("xrc_domain", || {
        let device = mlx5_open::open(&options.device)?;
        let file = File::open(&options.file)?;
        match options.make {
            true => make(&device, &file, &options),
            false => join(&device, &file, UnixStream::connect(&options.socket)?),
        }
    })
}

/// Numbers on the socket are big-endian.
fn tell(peer: &mut UnixStream, number: u32) -> Result<(), Failure> {
    Ok(peer.write_all(&number.to_be_bytes())?)
}

fn learn(peer: &mut UnixStream) -> Result<u32, Failure> {
    let mut number = [0; 4];
    peer.read_exact(&mut number)?;
    Ok(u32::from_be_bytes(number))
}

fn expect(holds: bool, otherwise: &str) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(otherwise.into()) }
}

/// An initiator whose messages go to a target on the same card.
struct Sender {
    queue: XrcSendQueue<AnyDoorbell>,
    cq: CompletionQueue,
}

impl Sender {
    /// Sends `bytes` to `srq`, word by word, and waits until they have arrived.
    fn send(&mut self, srq: RemoteSrq, bytes: &[u8]) -> Result<(), Failure> {
        let words: Vec<_> = bytes.split_inclusive(|byte| *byte == b' ').collect();
        let mut batch = self.queue.batch();
        batch.send_inline_all(1, WrFlags::SIGNALLED, srq, &words)?;
        batch.ring();
        self.cq.wait(PATIENCE)?;
        let done = self.cq.poll().ok_or("an event without a completion")??;
        self.queue.retire(&done.work)?;
        Ok(())
    }
}

/// A target of `domain`, and an initiator, connected to each other.
fn connect(device: &Arc<Device>, domain: &Arc<Xrcd>) -> Result<(Sender, Arc<XrcTarget>, u32), Failure> {
    let (pd, uar) = (Pd::alloc(device)?, Uar::alloc(device)?);
    let cq = CompletionQueue::create(&uar, CqOptions::default().events())?;
    let target = XrcTarget::create(&pd, &uar, cq.cq(), domain)?;
    let options = QpOptions::default().wqes(4, 0).xrc_initiator(domain);
    let initiator = QueuePair::create(&pd, &uar, cq.cq(), cq.cq(), options)?;
    let gid = device.gids().first().ok_or("the port has no GID")?.address.octets();
    let path = AddressPath::link_local(gid).ok_or("the first GID is not link-local")?;
    target.init(&InitAttributes::default())?;
    target.ready_to_receive(&RtrAttributes::new(initiator.qpn(), PSN, path))?;
    target.ready_to_send(&RtsAttributes::new(PSN))?;
    initiator.init(&InitAttributes::default())?;
    initiator.ready_to_receive(&RtrAttributes::new(target.qpn(), PSN, path))?;
    initiator.ready_to_send(&RtsAttributes::new(PSN))?;
    let qpn = initiator.qpn();
    Ok((Sender { queue: initiator.xrc_send_queue()?, cq }, target, qpn))
}

fn make(device: &Arc<Device>, file: &File, options: &Options) -> Result<(), Failure> {
    let Err(none) = Xrcd::open(device, file, OpenXrcd::Join) else { return Err("somebody has the domain".into()) };
    println!("{none}");
    let domain = Xrcd::open(device, file, OpenXrcd::Make)?;
    let (mut sender, target, initiator_qpn) = connect(device, &domain)?;

    let (mut peer, _) = UnixListener::bind(&options.socket)?.accept()?;
    tell(&mut peer, target.qpn())?;
    tell(&mut peer, initiator_qpn)?;
    let srq = RemoteSrq::new(learn(&mut peer)?).ok_or("a number of more than 24 bits")?;
    sender.send(srq, MESSAGES[0])?;
    XrcTarget::destroy(target).map_err(|error| error.to_string())?;
    sender.send(srq, MESSAGES[1])?;
    drop(sender);
    Xrcd::destroy(domain).map_err(|error| error.to_string())?;
    tell(&mut peer, 0)?;
    learn(&mut peer)?;
    println!("made, and sent by a target of two processes");
    Ok(())
}

fn join(device: &Arc<Device>, file: &File, mut peer: UnixStream) -> Result<(), Failure> {
    let (qpn, initiator_qpn) = (learn(&mut peer)?, learn(&mut peer)?);
    let Err(taken) = Xrcd::open(device, file, OpenXrcd::Make) else { return Err("nobody has the domain".into()) };
    println!("{taken}");
    let domain = Xrcd::open(device, file, OpenXrcd::Join)?;
    let Err(none) = XrcTarget::open(&domain, initiator_qpn) else { return Err("an initiator was opened".into()) };
    println!("{none}");
    let target = XrcTarget::open(&domain, qpn)?;
    let found = target.query()?;
    println!("target {qpn:#x} of the other process is in {}", found.state);
    expect(found.remote_qpn == initiator_qpn && found.next_rcv_psn == PSN, "the target is another one")?;

    let pd = Pd::alloc(device)?;
    let region = MemoryRegion::allocate(&pd, MESSAGES.len() * ROOM, AccessFlags::LOCAL_WRITE)?;
    let mut receiver = XrcReceiver::new(&pd, &domain, SrqOptions::default().wqes(3), CqOptions::default().events())?;
    for buffer in region.buffers(ROOM)?.into_iter().take(MESSAGES.len()) {
        receiver.receive(buffer)?;
    }
    tell(&mut peer, receiver.srqn())?;
    for message in MESSAGES {
        receiver.wait(PATIENCE)?;
        let done = receiver.poll()?.ok_or("an event without a message")?;
        let (len, buffer) = (done.result?.byte_len as usize, done.buffer.ok_or("a receive without a buffer")?);
        let mut bytes = vec![0; len];
        buffer.read(0, &mut bytes);
        expect(bytes == message, "another message came")?;
        println!("received: {}", String::from_utf8_lossy(&bytes));
    }
    learn(&mut peer)?;
    target.to_error()?;
    expect(target.query()?.state == mlx5_prm::values::QpState::Err, "the target is not in ERR")?;
    if let Err(refused) = target.ready_to_send(&RtsAttributes::new(PSN)) {
        println!("{refused}");
    }
    drop(receiver);
    XrcTarget::destroy(target).map_err(|error| error.to_string())?;
    Xrcd::destroy(domain).map_err(|error| error.to_string())?;
    tell(&mut peer, 0)?;
    println!("joined, and received by a target of two processes");
    Ok(())
}
