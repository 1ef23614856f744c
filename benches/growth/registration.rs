//! Cost of registering memory, by size and page size.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use mlx5_benches::{Failure, median};
use mlx5_dv::Options;
use mlx5_dv::access::trace::{CommandRecord, Direction};
use mlx5_dv::memory::{HostMemory, PageSize, Pages};
use mlx5_dv::objects::{AccessFlags, MemoryRegion, Pd};
use mlx5_open::Sim;

use super::extent::Extent;

const SIZES: [usize; 6] = [1 << 20, 16 << 20, 256 << 20, 1 << 30, 4 << 30, 8 << 30];
const WARM_UP: usize = 20;
const RUNS: usize = 101;
/// Offset of memory that does not start on a large page.
const ODD: usize = 5 * 4096;

/// Kind of pages and position.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Ours(PageSize),
    /// The user's memory, aligned to 4 KiB only.
    Odd,
}

impl Kind {
    fn name(self) -> String {
        match self {
            Kind::Ours(page) => format!("{page}"),
            Kind::Odd => "4 KiB, the user's, at any address".into(),
        }
    }
}

/// Prints the table.
pub fn measure(extent: Extent) -> Result<(), Failure> {
    let (sizes, runs) = if extent == Extent::Full { (&SIZES[..], RUNS) } else { (&SIZES[..2], 1) };
    let sim = Sim::builder().strict(false).build()?;
    let sent = Arc::new(AtomicU64::new(0));
    let mut options = Options::default();
    let count = Arc::clone(&sent);
    options.observers.push(Arc::new(move |record: &CommandRecord| {
        if record.direction == Direction::Input {
            count.fetch_add(record.data.len() as u64, Ordering::Relaxed);
        }
    }));
    let pd = Pd::alloc(&sim.open_with(0, options)?)?;
    println!("| pages | bytes | register us | deregister us | the card's pages | bytes of commands |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: |");
    let kinds = [Kind::Ours(PageSize::BASE), Kind::Odd, Kind::Ours(PageSize::HUGE_2M), Kind::Ours(PageSize::HUGE_1G)];
    for kind in kinds {
        for &len in sizes.iter().filter(|len| fits(kind, **len)) {
            if let Err(error) = row(&pd, kind, len, runs, &sent) {
                // A progress bar would start at the left column.
                let error = error.to_string().replace('|', "\\|");
                println!("| {} | {} | {error} | | | |", kind.name(), size(len));
                break;
            }
        }
    }
    Ok(())
}

/// Whether the pages are used to at least half.
fn fits(kind: Kind, len: usize) -> bool {
    !matches!(kind, Kind::Ours(page) if len < page.bytes() / 2)
}

fn row(pd: &Arc<Pd>, kind: Kind, len: usize, runs: usize, sent: &AtomicU64) -> Result<(), Failure> {
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
    let (mut made, mut gone) = (Vec::new(), Vec::new());
    let (mut page, mut bytes) = (0, 0);
    for run in 0..WARM_UP + runs {
        let (whole, memory) = memory(kind, len)?;
        sent.store(0, Ordering::Relaxed);
        let started = Instant::now();
        let region = MemoryRegion::register(pd, memory, access)?;
        let registered = started.elapsed();
        (page, bytes) = (region.card_page_size(), sent.load(Ordering::Relaxed));
        let started = Instant::now();
        region.destroy().map_err(|refused| refused.to_string())?;
        let deregistered = started.elapsed();
        drop(whole);
        if run >= WARM_UP {
            made.push(registered.as_secs_f64() * 1e6);
            gone.push(deregistered.as_secs_f64() * 1e6);
        }
    }
    let (made, gone) = (median(&mut made), median(&mut gone));
    println!("| {} | {} | {made:.0} | {gone:.0} | {} | {bytes} |", kind.name(), size(len), size(page));
    Ok(())
}

/// Memory to register, and its owner if it is part of other memory.
fn memory(kind: Kind, len: usize) -> Result<(Option<HostMemory>, HostMemory), Failure> {
    let page = match kind {
        Kind::Ours(page) => return Ok((None, HostMemory::allocate_in(len, Pages::Exactly(page))?)),
        Kind::Odd => PageSize::HUGE_2M.bytes(),
    };
    let whole = HostMemory::allocate_in(len + 2 * page, Pages::Exactly(PageSize::BASE))?;
    let start = (whole.address().as_ptr() as usize).next_multiple_of(page) + ODD;
    let address = NonNull::new(start as *mut u8).ok_or("memory at address zero")?;
    // SAFETY: inside of `whole`, which the caller keeps for longer, and which nobody else uses.
    let memory = unsafe { HostMemory::from_raw_parts(address, len, PageSize::BASE)? };
    Ok((Some(whole), memory))
}

fn size(bytes: usize) -> String {
    match bytes {
        bytes if bytes >= 1 << 30 => format!("{} GiB", bytes >> 30),
        bytes if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        bytes => format!("{} KiB", bytes >> 10),
    }
}
