//! Datagrams of several parts, such as a header and what follows it, which are copied into their work requests: by a
//! queue pair's own send queue, by a queue that owns buffers, and by one that uses a memory region.
//!
//! Without a host the receiver is in this process, on the same card. HOST runs a program that receives, and expects the
//! same datagrams. The two exchange three addresses each, with link-local GIDs, in the format of `ibv_rc_pingpong`: of
//! the three senders, and three times that of the receiver.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use mlx5_dv::Device;
use mlx5_dv::objects::{
    AccessFlags, AddressHandle, AddressPath, AnyDoorbell, CqOptions, DatagramAttributes, MemoryRegion, Pd, QpOptions,
    QueuePair, Uar,
};
use mlx5_dv::queue::{
    CompletionQueue, DatagramEndpoint, DatagramOptions, DatagramQueue, DatagramSendQueue, GRH, WrFlags,
};
use mlx5_examples::exchange::{self, Address};
use mlx5_examples::pingpong::{Failure, is};
use mlx5_open::program;

/// How long an end waits for the other.
const PATIENCE: Duration = Duration::from_secs(120);
const QKEY: u32 = 0x1111_1111;
/// Inline bytes of each send queue, to the end of a 64-byte block of its ring.
const INLINE: usize = 124;
/// Datagrams in flight: a ring of 8 such blocks.
const DEPTH: u32 = 2;
/// Lengths of the parts of a datagram. Each goes twice: without and with immediate data. The second one begins in block
/// 6 of the ring, takes 3 blocks, and wraps in its last part.
const PARTS: [[usize; 3]; 3] = [[1, 62, INLINE - 63], [50, 0, 40], [8, 12, 0]];

/// Datagrams of several parts.
#[derive(Debug, Parser)]
#[command(name = "datagrams")]
struct Options {
    /// Send to the program on this host. Without a host the receiver is in this process.
    host: Option<String>,
    /// TCP port of that program.
    #[arg(short, long, default_value_t = 18515)]
    port: u16,
    /// Device: sim, vfio:0000:3b:00.0, devx:mlx5_0, vfio-user:/run/nic.sock.
    #[arg(short = 'd', long = "ib-dev", default_value = "sim")]
    device: String,
}

fn main() -> ExitCode {
    let options = Options::parse();
    program::run("datagrams", || run(&options))
}

fn run(options: &Options) -> Result<(), Failure> {
    let device = mlx5_open::open(&options.device)?;
    let sent = match &options.host {
        Some(host) => send_to(&device, host, options.port)?,
        None => both_ends(&device)?,
    };
    println!("{sent} datagrams of several parts sent");
    Ok(())
}

/// Who sends.
enum Sender {
    Raw { qp: Arc<QueuePair>, queue: Box<DatagramSendQueue<AnyDoorbell>>, cq: CompletionQueue },
    Owning(Box<DatagramQueue>),
    Endpoint(Box<DatagramEndpoint>),
}

impl Sender {
    /// One of each kind.
    fn each(device: &Arc<Device>) -> Result<[Self; 3], Failure> {
        let (pd, uar) = (Pd::alloc(device)?, Uar::alloc(device)?);
        let cq = CompletionQueue::create(&uar, CqOptions::default().events())?;
        let options = QpOptions::default().datagrams().wqes(DEPTH, 0).inline_bytes(INLINE as u16);
        let qp = QueuePair::create(&pd, &uar, cq.cq(), cq.cq(), options)?;
        qp.activate(&DatagramAttributes::new(QKEY))?;
        let queue = Box::new(qp.datagram_send_queue()?);
        let options = DatagramOptions::new(QKEY).send_depth(DEPTH).recv_depth(0).inline_bytes(INLINE as u16).events();
        let region = MemoryRegion::allocate(&pd, 4096, AccessFlags::LOCAL_WRITE)?;
        let endpoint = DatagramEndpoint::new(&region, &options)?;
        let owning = DatagramQueue::new(&pd, options)?;
        Ok([Sender::Raw { qp, queue, cq }, Sender::Owning(owning.into()), Sender::Endpoint(endpoint.into())])
    }

    fn qpn(&self) -> u32 {
        match self {
            Sender::Raw { qp, .. } => qp.qpn(),
            Sender::Owning(queue) => queue.queue_pair().qpn(),
            Sender::Endpoint(endpoint) => endpoint.queue_pair().qpn(),
        }
    }

    /// Sends `parts` as one datagram, and waits until it has gone.
    fn send(&mut self, to: &AddressHandle, parts: &[&[u8]], imm: Option<u32>) -> Result<(), Failure> {
        match self {
            Sender::Raw { queue, cq, .. } => {
                let mut batch = queue.batch();
                match imm {
                    None => batch.send_inline_all(1, WrFlags::SIGNALLED, to, parts)?,
                    Some(imm) => batch.send_imm_inline_all(1, WrFlags::SIGNALLED, to, imm, parts)?,
                }
                batch.ring();
                cq.wait(PATIENCE)?;
                let done = cq.poll().ok_or("an event without a completion")??;
                queue.retire(&done.work)?;
            }
            Sender::Owning(queue) => {
                let mut batch = queue.batch().ok_or("no send queue")?;
                match imm {
                    None => batch.send_inline_all(to, parts)?,
                    Some(imm) => batch.send_imm_inline_all(to, parts, imm)?,
                };
                batch.ring();
                queue.wait(PATIENCE)?.result?;
            }
            Sender::Endpoint(endpoint) => {
                let mut batch = endpoint.sends().ok_or("no send queue")?;
                match imm {
                    None => batch.send_inline_all(1, WrFlags::SIGNALLED, to, parts)?,
                    Some(imm) => batch.send_imm_inline_all(1, WrFlags::SIGNALLED, to, imm, parts)?,
                }
                batch.ring();
                endpoint.wait(PATIENCE)?;
                endpoint.poll()?.ok_or("an event without a completion")?.result?;
            }
        }
        Ok(())
    }
}

/// The bytes of the datagram `number`, of all those sent, and its immediate data.
fn datagram(number: usize) -> (Vec<u8>, Option<u32>) {
    let len: usize = PARTS[number / 2 % PARTS.len()].iter().sum();
    let bytes = (0..len).map(|i| (i * 7 + number * 31 + 1) as u8).collect();
    (bytes, (number % 2 == 1).then_some(0x0102_0300 + number as u32))
}

/// Sends all datagrams of each of `senders`; `sent` is called after each with its number and sender. Returns their
/// number.
fn send_all(
    senders: &mut [Sender],
    to: &AddressHandle,
    mut sent: impl FnMut(usize, u32) -> Result<(), Failure>,
) -> Result<usize, Failure> {
    let each = 2 * PARTS.len();
    let all = each * senders.len();
    for number in 0..all {
        let sender = &mut senders[number / each];
        let ((bytes, imm), [first, second, _]) = (datagram(number), PARTS[number / 2 % PARTS.len()]);
        let (start, last) = bytes.split_at(first + second);
        let (first, second) = start.split_at(first);
        sender.send(to, &[first, second, last], imm)?;
        sent(number, sender.qpn())?;
    }
    Ok(all)
}

fn gid(device: &Device) -> Result<[u8; 16], Failure> {
    Ok(device.gids().first().ok_or("the port has no GID")?.address.octets())
}

fn handle(device: &Device, gid: [u8; 16], qpn: u32) -> Result<AddressHandle, Failure> {
    let path = AddressPath::link_local(gid).ok_or("the first GID is not link-local")?;
    Ok(AddressHandle::new(device, &path, qpn, QKEY)?)
}

fn send_to(device: &Arc<Device>, host: &str, port: u16) -> Result<usize, Failure> {
    let (mut senders, gid) = (Sender::each(device)?, gid(device)?);
    let local = senders.each_ref().map(|sender| Address { qpn: sender.qpn(), gid, ..Address::default() });
    let asked = exchange::ask(host, port, &local, PATIENCE)?;
    let [remote, ..] = asked.remote;
    let to = handle(device, remote.gid, remote.qpn)?;
    asked.finish()?;
    send_all(&mut senders, &to, |_, _| Ok(()))
}

fn both_ends(device: &Arc<Device>) -> Result<usize, Failure> {
    let pd = Pd::alloc(device)?;
    let region = MemoryRegion::allocate(&pd, GRH + INLINE, AccessFlags::LOCAL_WRITE)?;
    let mut receiver = DatagramQueue::new(&pd, DatagramOptions::new(QKEY).send_depth(0).recv_depth(1).events())?;
    receiver.receive(region.buffer(0..GRH + INLINE)?)?;
    let to = handle(device, gid(device)?, receiver.queue_pair().qpn())?;
    send_all(&mut Sender::each(device)?, &to, |number, sender| {
        let done = receiver.wait(PATIENCE)?;
        let (completion, buffer) = (done.result?, done.buffer.ok_or("a receive without its buffer")?);
        let (expected, imm) = datagram(number);
        let mut bytes = vec![0; completion.byte_len as usize];
        buffer.read(0, &mut bytes);
        is("a datagram's bytes", &bytes.get(GRH..), &Some(&expected[..]))?;
        is("its immediate data and sender", &(completion.imm(), completion.remote_qpn), &(imm, sender))?;
        receiver.receive(buffer)?;
        Ok(())
    })
}
