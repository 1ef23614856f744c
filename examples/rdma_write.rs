//! The shortest useful program: one RDMA write between two buffers, over a connection of a card to itself.

use std::time::Duration;

use mlx5_dv::objects::{AccessFlags, MemoryRegion, Pd};
use mlx5_dv::queue::{Connection, ConnectionOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = mlx5_open::open("sim")?; // or vfio:0000:3b:00.0
    let pd = Pd::alloc(&device)?;
    let mut ours = Connection::new(&pd, ConnectionOptions::default())?;
    let mut theirs = Connection::new(&pd, ConnectionOptions::default())?;
    theirs.connect(&ours.local()?)?;
    ours.connect(&theirs.local()?)?;

    let source = MemoryRegion::allocate(&pd, 4096, AccessFlags::LOCAL_WRITE)?;
    let target = MemoryRegion::allocate(&pd, 4096, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE)?;
    source.write(0, b"hello, ConnectX");
    ours.write_blocking(source.buffer(0..15)?, target.remote(), Duration::from_secs(1))?;

    let mut text = [0; 15];
    target.read(0, &mut text);
    println!("{}", String::from_utf8_lossy(&text));
    Ok(())
}
