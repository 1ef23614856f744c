//! Cost of registering memory with mlx5-dv: `registration_ours DEVICE FILE BYTES RUNS`.
//!
//! Does the same as verbs.c, and prints the same lines, one for each run: "instructions to register, nanoseconds of it,
//! instructions to deregister, nanoseconds of it". The thread's processor time serves as instruction count, as it does
//! under QEMU's `-icount`; the nanoseconds include waiting for the card.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::ptr::NonNull;

use memmap2::{MmapOptions, MmapRaw};
use mlx5_dv::memory::{HostMemory, PageSize};
use mlx5_dv::objects::{AccessFlags, MemoryRegion, Pd};

type Failure = Box<dyn std::error::Error>;

/// Both clocks.
struct Instant {
    instructions: i64,
    nanoseconds: i64,
}

impl Instant {
    fn now() -> Self {
        Instant { instructions: clock(libc::CLOCK_THREAD_CPUTIME_ID), nanoseconds: clock(libc::CLOCK_MONOTONIC) }
    }

    fn since(&self, earlier: &Instant) -> String {
        format!("{} {}", self.instructions - earlier.instructions, self.nanoseconds - earlier.nanoseconds)
    }
}

fn clock(which: libc::clockid_t) -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it fills in what it is given a pointer to. Both clocks are in every Linux.
    unsafe { libc::clock_gettime(which, &mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// The file's mapped and populated memory, and its page size.
fn map(path: &str, bytes: usize) -> Result<(MmapRaw, PageSize), Failure> {
    let file = File::options().read(true).write(true).open(path)?;
    // A file system of huge pages reports the page size as block size.
    let bytes_a_page = file.metadata()?.blksize();
    let known = [PageSize::BASE, PageSize::HUGE_2M, PageSize::HUGE_1G];
    let page = known.into_iter().find(|page| page.bytes() as u64 == bytes_a_page);
    let page = page.ok_or_else(|| format!("{path}: pages of {bytes_a_page} bytes"))?;
    let mapping = MmapOptions::new().len(bytes).populate().map_raw(&file)?;
    for at in (0..bytes).step_by(4096) {
        // SAFETY: inside of the mapping, which nobody else knows.
        unsafe { mapping.as_mut_ptr().add(at).write_volatile(1) };
    }
    Ok((mapping, page))
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [device, path, bytes, runs] = &arguments[..] else {
        return Err("usage: registration_ours DEVICE FILE BYTES RUNS".into());
    };
    let pd = Pd::alloc(&mlx5_open::open(device)?)?;
    let bytes = bytes.parse()?;
    let (mapping, page) = map(path, bytes)?;
    let address = NonNull::new(mapping.as_mut_ptr()).ok_or("memory at address zero")?;
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
    for _ in 0..runs.parse()? {
        let start = Instant::now();
        // SAFETY: the mapping is of such pages, and outlives the region.
        let memory = unsafe { HostMemory::from_raw_parts(address, bytes, page)? };
        let region = MemoryRegion::register(&pd, memory, access)?;
        let registered = Instant::now();
        region.destroy().map_err(|refused| refused.to_string())?;
        let gone = Instant::now();
        println!("{} {}", registered.since(&start), gone.since(&registered));
    }
    Ok(())
}
