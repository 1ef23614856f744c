//! Memory of a dma-buf, which another process hands over by a descriptor: a remote writes and reads it, and the process
//! that has it sees what was written. Only the kernel's devices (`devx:`) can map a dma-buf.
//!
//! `dma_buf -d devx:mlx5_0 --socket PATH` takes the descriptor from the Unix socket PATH.

use std::fs::File;
use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use mlx5_dv::Device;
use mlx5_dv::objects::{AccessFlags, DmaBufRegion, MemoryRegion, Pd};
use mlx5_dv::queue::{Connection, ConnectionOptions};
use mlx5_examples::pingpong::Failure;
use mlx5_open::program;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

/// How long a work request may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes that are registered, from `FIRST` on: not whole pages.
const LENGTH: usize = 40_000;
const FIRST: u64 = 4096 + 512;
const HALF: usize = LENGTH / 2;
/// The address of the first byte for work requests: at the same place in a page.
const ADDRESS: u64 = (1 << 40) + 512;
const ACCESS: AccessFlags = AccessFlags::LOCAL_WRITE.union(AccessFlags::REMOTE_WRITE).union(AccessFlags::REMOTE_READ);

/// Writes and reads a dma-buf of another process by RDMA.
#[derive(Debug, Parser)]
#[command(name = "dma_buf")]
struct Options {
    /// Where the other process hands its dma-buf over: a Unix socket.
    #[arg(short, long)]
    socket: PathBuf,
    /// Device.
    #[arg(short = 'd', long = "ib-dev", default_value = "devx:mlx5_0")]
    device: String,
}

fn main() -> ExitCode {
    let options = Options::parse();
    program::run("dma_buf", || run(&mlx5_open::open(&options.device)?, UnixStream::connect(&options.socket)?))
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 5 + (i >> 8) + seed * 37 + 1) as u8).collect()
}

/// The descriptor that comes along with one byte.
fn take(peer: &UnixStream) -> Result<OwnedFd, Failure> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let (mut along, mut byte) = (RecvAncillaryBuffer::new(&mut room), [0]);
    recvmsg(peer, &mut [IoSliceMut::new(&mut byte)], &mut along, RecvFlags::WAITALL)?;
    let descriptor = along.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(descriptor.ok_or("no descriptor came along")?)
}

/// Two connections of the domain, to each other.
fn connections(pd: &Arc<Pd>) -> Result<[Connection; 2], Failure> {
    let mut ends =
        [Connection::new(pd, ConnectionOptions::default())?, Connection::new(pd, ConnectionOptions::default())?];
    let [near, far] = &mut ends;
    far.connect(&near.local()?)?;
    near.connect(&far.local()?)?;
    Ok(ends)
}

fn run(device: &Arc<Device>, mut peer: UnixStream) -> Result<(), Failure> {
    let pd = Pd::alloc(device)?;
    let range = FIRST..FIRST + LENGTH as u64;
    let other = DmaBufRegion::register(&pd, File::open("/dev/null")?, 0..4096, 0, ACCESS);
    println!("{}", other.err().ok_or("what is no dma-buf was registered")?);
    let buffer = take(&peer)?;
    let beyond = DmaBufRegion::register(&pd, &buffer, FIRST..1 << 30, ADDRESS, ACCESS);
    println!("{}", beyond.err().ok_or("more than there is was registered")?);
    let region = DmaBufRegion::register(&pd, buffer, range, ADDRESS, ACCESS)?;
    let own = MemoryRegion::allocate(&pd, LENGTH, ACCESS)?;
    let [mut near, far] = connections(&pd)?;

    own.write(0, &pattern(HALF, 1));
    near.write_blocking(own.buffer(0..HALF)?, region.remote_at(0), PATIENCE)?;
    peer.write_all(b"w")?;
    peer.read_exact(&mut [0])?;
    near.read_blocking(own.buffer(0..HALF)?, region.remote_at(HALF as u64), PATIENCE)?;
    let mut found = vec![0; HALF];
    own.read(0, &mut found);
    if found != pattern(HALF, 2) {
        return Err("what the other process wrote was not read".into());
    }
    DmaBufRegion::destroy(region).map_err(|error| error.to_string())?;
    drop((near, far, own));
    peer.write_all(b"d")?;
    println!("{LENGTH} bytes of a dma-buf were written and read");
    Ok(())
}
