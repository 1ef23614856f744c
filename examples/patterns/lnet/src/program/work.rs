//! The node that asks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use mlx5_dv::objects::{AccessFlags, Buffer, MemoryRegion};
use mlx5_lnet::{Event, Lnet, Match, Nid, Payload, TRANSFER_BYTES, TransferId, ping as lnet_ping};

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The portal of `lnet brw`.
pub(crate) const BRW_PORTAL: u32 = 50;
/// Places for what it writes, at the other end.
pub(crate) const PLACES: usize = 16;
/// LNet's fragments.
const PAGE: usize = 4096;
/// How long a transfer may take. The driver gives up before.
const PATIENCE: Duration = Duration::from_secs(120);

/// What is written and read.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Brw {
    /// Bytes of a transfer, up to 1 MiB.
    #[arg(short, long, default_value_t = TRANSFER_BYTES as u32, value_parser = clap::value_parser!(u32).range(1..=TRANSFER_BYTES as i64))]
    pub(crate) size: u32,
    /// Transfers in each direction.
    #[arg(short = 'n', long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) count: u32,
    /// Leave gaps between the fragments of 4 KiB: keys are indirect then.
    #[arg(long)]
    pub(crate) gaps: bool,
}

impl Default for Brw {
    fn default() -> Self {
        Brw { size: TRANSFER_BYTES as u32, count: 64, gaps: false }
    }
}

/// Asks `peer` for its interfaces.
pub(crate) fn ping(lnet: &mut Lnet, peer: Nid) -> Result<(), Failure> {
    let region = MemoryRegion::allocate(lnet.pd(), PAGE, AccessFlags::LOCAL_WRITE)?;
    let payload = Payload::new(vec![region.buffer(0..lnet_ping::BYTES)?])?;
    let of = Match { portal: lnet_ping::PORTAL, match_bits: lnet_ping::MATCH_BITS, ..Match::default() };
    let id = lnet.get(peer, of, payload)?;
    let (payload, len) = wait(lnet, id)?;
    let mut bytes = vec![0; len];
    payload.read(&mut bytes);
    for interface in lnet_ping::read(&bytes)? {
        println!("{interface}");
    }
    Ok(())
}

/// Writes to `peer`, reads back, and compares.
pub(crate) fn brw(lnet: &mut Lnet, peer: Nid, with: &Brw) -> Result<(), Failure> {
    let size = with.size as usize;
    let region = MemoryRegion::allocate(lnet.pd(), 2 * TRANSFER_BYTES + PAGE, AccessFlags::LOCAL_WRITE)?;
    let before = lnet.statistics().registrations;
    let begin = Instant::now();
    for number in 0..with.count {
        let to = Match { portal: BRW_PORTAL, match_bits: u64::from(number) % PLACES as u64, ..Match::default() };
        let data: Vec<u8> = (0..size).map(|at| (at as u32 ^ at as u32 >> 8 ^ number.wrapping_mul(97)) as u8).collect();
        let mut payload = Payload::new(fragments(&region, size, with.gaps)?)?;
        payload.write(&data);
        let id = lnet.put(peer, to, payload)?;
        let (mut payload, _) = wait(lnet, id)?;
        payload.write(&vec![0; size]);
        let id = lnet.get(peer, to, payload)?;
        let (payload, len) = wait(lnet, id)?;
        let mut came = vec![0; size];
        payload.read(&mut came);
        if len != size || came != data {
            return Err(format!("transfer {number}: {len} bytes came back, or others than were written").into());
        }
    }
    let (seconds, registered) = (begin.elapsed().as_secs_f64(), lnet.statistics().registrations - before);
    let gaps = if with.gaps { "with gaps" } else { "without gaps" };
    println!(
        "{} writes and as many reads of {size} bytes {gaps}: all bytes compared, {registered} registrations, {seconds:.2} s",
        with.count
    );
    Ok(())
}

/// Fragments of 4 KiB: pages of a region, or with gaps between them.
fn fragments(region: &Arc<MemoryRegion>, size: usize, gaps: bool) -> Result<Vec<Buffer>, mlx5_dv::Error> {
    let distance = if gaps { PAGE + 64 } else { PAGE };
    let fragment = |number: usize| {
        let at = number * distance;
        region.buffer(at..at + PAGE.min(size - number * PAGE))
    };
    (0..size.div_ceil(PAGE)).map(fragment).collect()
}

/// Waits for a transfer: its memory, and the bytes.
fn wait(lnet: &mut Lnet, id: TransferId) -> Result<(Payload, usize), Failure> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        match lnet.poll()? {
            Some(Event::Done { transfer, payload, result }) if transfer == id => {
                return Ok((payload.ok_or("the memory of a transfer is lost")?, result?));
            }
            Some(_) => {}
            None => std::hint::spin_loop(),
        }
    }
    Err(format!("no answer in {} s", PATIENCE.as_secs()).into())
}
