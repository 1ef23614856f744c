//! A context of two processes: one opens the card, and gives it, a protection domain, a memory region and memory on the
//! card to another, which does RC traffic with them. Only the kernel's devices (`devx:`) can be shared.
//!
//! `shared -d devx:mlx5_0 --socket PATH` exports; `shared --import --socket PATH` imports. Either may be a program on
//! libibverbs: the descriptor is its `cmd_fd`, the handles are its `handle`s.

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use mlx5_dv::objects::{
    AccessFlags, DeviceMemory, DeviceMemoryHandle, DeviceMemoryRegion, DeviceMemoryRegionHandle, ImportedRegion,
    MemoryRegion, Pd, PdHandle, RegionHandle,
};
use mlx5_dv::queue::{Connection, ConnectionOptions, RemoteAddress};
use mlx5_dv::{Device, Options as DeviceOptions};
use mlx5_examples::pingpong::Failure;
use mlx5_open::program;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

/// How long a work request may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of the region; either process writes one half.
const LENGTH: usize = 4096;
const HALF: usize = LENGTH / 2;
/// Bytes on the card.
const ON_CARD: usize = 256;
/// What the other process may do.
const ACCESS: AccessFlags = AccessFlags::LOCAL_WRITE.union(AccessFlags::REMOTE_WRITE).union(AccessFlags::REMOTE_READ);

/// Shares a card with another process.
#[derive(Debug, Parser)]
#[command(name = "shared")]
struct Options {
    /// Import what the other process exports.
    #[arg(long)]
    import: bool,
    /// Where the two meet: a Unix socket.
    #[arg(short, long)]
    socket: PathBuf,
    /// Device to export: devx:mlx5_0.
    #[arg(short = 'd', long = "ib-dev", default_value = "devx:mlx5_0")]
    device: String,
}

fn main() -> ExitCode {
    let options = Options::parse();
    program::run("shared", || match options.import {
        true => import(UnixStream::connect(&options.socket)?),
        false => export(&mlx5_open::open(&options.device)?, &options.socket),
    })
}

/// What a process writes on its turn.
fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 5 + (i >> 8) + seed * 37 + 1) as u8).collect()
}

fn say(peer: &mut UnixStream, turn: u8) -> Result<(), Failure> {
    Ok(peer.write_all(&[turn])?)
}

fn hear(peer: &mut UnixStream, turn: u8) -> Result<(), Failure> {
    let mut said = [0];
    peer.read_exact(&mut said)?;
    expect(said == [turn], "the other process is at another step")
}

fn expect(holds: bool, otherwise: &str) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(otherwise.into()) }
}

/// What the exporter names to the importer, and where its region starts.
#[derive(Debug, Clone, Copy)]
struct Handles {
    pd: PdHandle,
    region: RegionHandle,
    memory: DeviceMemoryHandle,
    memory_region: DeviceMemoryRegionHandle,
    addr: u64,
}

impl Handles {
    /// Big-endian.
    const BYTES: usize = 24;

    fn to_bytes(self) -> Vec<u8> {
        let words = [self.pd.0, self.region.0, self.memory.0, self.memory_region.0];
        [&words.map(u32::to_be_bytes).concat()[..], &self.addr.to_be_bytes()].concat()
    }

    fn of_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let word = |at: usize| bytes[at..at + 4].iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
        Handles {
            pd: PdHandle(word(0)),
            region: RegionHandle(word(4)),
            memory: DeviceMemoryHandle(word(8)),
            memory_region: DeviceMemoryRegionHandle(word(12)),
            addr: u64::from(word(16)) << 32 | u64::from(word(20)),
        }
    }
}

/// Sends the context's descriptor along with the handles.
fn give(peer: &UnixStream, context: &OwnedFd, handles: Handles) -> Result<(), Failure> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let (mut along, descriptors, bytes) = (SendAncillaryBuffer::new(&mut room), [context.as_fd()], handles.to_bytes());
    expect(along.push(SendAncillaryMessage::ScmRights(&descriptors)), "no room for a descriptor")?;
    let sent = sendmsg(peer, &[IoSlice::new(&bytes)], &mut along, SendFlags::empty())?;
    expect(sent == bytes.len(), "the handles were cut short")
}

fn take(peer: &UnixStream) -> Result<(OwnedFd, Handles), Failure> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let (mut along, mut bytes) = (RecvAncillaryBuffer::new(&mut room), [0; Handles::BYTES]);
    let received = recvmsg(peer, &mut [IoSliceMut::new(&mut bytes)], &mut along, RecvFlags::WAITALL)?;
    expect(received.bytes == bytes.len(), "the handles were cut short")?;
    let descriptor = along.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok((descriptor.ok_or("no descriptor came along")?, Handles::of_bytes(&bytes)))
}

fn export(device: &Arc<Device>, socket: &Path) -> Result<(), Failure> {
    let pd = Pd::alloc(device)?;
    let region = MemoryRegion::allocate(&pd, LENGTH, ACCESS)?;
    let memory = DeviceMemory::alloc(device, ON_CARD)?;
    let memory_region = DeviceMemoryRegion::register(&pd, &memory, 0..ON_CARD, ACCESS)?;
    let handles = Handles {
        pd: pd.handle()?,
        region: region.handle()?,
        memory: memory.handle()?,
        memory_region: memory_region.handle()?,
        addr: region.addr(),
    };
    memory.write(0, &pattern(ON_CARD, 3))?;

    let (mut peer, _) = UnixListener::bind(socket)?.accept()?;
    give(&peer, &device.export()?, handles)?;
    hear(&mut peer, b'w')?;
    let mut found = vec![0; HALF];
    region.read(0, &mut found);
    expect(found == pattern(HALF, 1), "what the importer wrote is not here")?;
    region.write(HALF, &pattern(HALF, 2));
    say(&mut peer, b'r')?;
    hear(&mut peer, b'd')?;
    let mut found = vec![0; ON_CARD];
    memory.read(0, &mut found)?;
    expect(found == pattern(ON_CARD, 4), "what the importer wrote is not on the card")?;

    // Both count at one place, without a queue pair.
    memory.write(0, &[0; 4])?;
    memory.map_increment()?.add(0, 0x1fffe)?;
    say(&mut peer, b'o')?;
    hear(&mut peer, b'p')?;
    let mut found = [0; 4];
    memory.read(0, &mut found)?;
    expect(found == [0, 0, 0, 1], "the importer has set no number")?;

    // This process's own: the importer finds its keys closed.
    MemoryRegion::destroy(region).map_err(|error| error.to_string())?;
    DeviceMemoryRegion::destroy(memory_region).map_err(|error| error.to_string())?;
    DeviceMemory::destroy(memory).map_err(|error| error.to_string())?;
    let Err(kept) = Pd::destroy(pd) else { return Err("a domain was freed that the importer uses".into()) };
    println!("{kept}");
    say(&mut peer, b'x')?;
    hear(&mut peer, b'u')?;
    Pd::destroy(kept.object).map_err(|error| error.to_string())?;
    println!("exported, and read what was written");
    Ok(())
}

/// Two connections of the imported domain, to each other.
fn connections(pd: &Arc<Pd>) -> Result<[Connection; 2], Failure> {
    let mut ends =
        [Connection::new(pd, ConnectionOptions::default())?, Connection::new(pd, ConnectionOptions::default())?];
    let [near, far] = &mut ends;
    far.connect(&near.local()?)?;
    near.connect(&far.local()?)?;
    Ok(ends)
}

/// Writes `bytes` to `remote` by way of `own`.
fn write(near: &mut Connection, own: &Arc<MemoryRegion>, bytes: &[u8], remote: RemoteAddress) -> Result<(), Failure> {
    own.write(0, bytes);
    near.write_blocking(own.buffer(0..bytes.len())?, remote, PATIENCE)?;
    Ok(())
}

fn import(mut peer: UnixStream) -> Result<(), Failure> {
    let (context, handles) = take(&peer)?;
    let device = Device::import(context, DeviceOptions::default())?;
    for refused in [Pd::import(&device, PdHandle(77777)).err(), Pd::import(&device, PdHandle(handles.region.0)).err()] {
        println!("{}", refused.ok_or("a handle that is no domain's was taken")?);
    }
    let pd = Pd::import(&device, handles.pd)?;
    let region = ImportedRegion::import(&pd, handles.region)?;
    let memory = DeviceMemory::import(&device, handles.memory)?;
    let memory_region = ImportedRegion::import_device_memory(&pd, handles.memory_region)?;
    expect((region.addr(), region.len()) == (handles.addr, LENGTH as u64), "the region is another one")?;
    let own = MemoryRegion::allocate(&pd, LENGTH, ACCESS)?;
    let [mut near, far] = connections(&pd)?;

    write(&mut near, &own, &pattern(HALF, 1), region.remote_at(0))?;
    say(&mut peer, b'w')?;
    hear(&mut peer, b'r')?;
    near.read_blocking(own.buffer(0..HALF)?, region.remote_at(HALF as u64), PATIENCE)?;
    let mut found = vec![0; HALF];
    own.read(0, &mut found);
    expect(found == pattern(HALF, 2), "what the exporter wrote was not read")?;

    let mut found = vec![0; ON_CARD];
    memory.read(0, &mut found)?;
    expect(found == pattern(ON_CARD, 3), "what the exporter stored is not on the card")?;
    write(&mut near, &own, &pattern(ON_CARD, 4), memory_region.remote_at(0))?;
    memory.read(0, &mut found)?;
    expect(found == pattern(ON_CARD, 4), "what was written is not on the card")?;
    say(&mut peer, b'd')?;
    hear(&mut peer, b'o')?;
    memory.map_increment()?.add(0, 3)?;
    let lock = memory.map_test_and_set()?;
    expect((lock.test_and_set(0)?, lock.test_and_set(0)?) == (0x20001, 1), "the two have not counted together")?;
    say(&mut peer, b'p')?;
    hear(&mut peer, b'x')?;
    // Its owner has deregistered it.
    let refused = write(&mut near, &own, &[0; 64], region.remote_at(0));
    println!("{}", refused.err().ok_or("a deregistered key was taken")?);
    drop((lock, near, far, own, memory, pd, region, memory_region, device));
    say(&mut peer, b'u')?;
    println!("imported, and a deregistered key is refused");
    Ok(())
}
