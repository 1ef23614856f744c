//! What all rows have: requests, the counter, and how figures are reported.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use mlx5_benches::Failure;
pub use mlx5_benches::ticks::{of_nothing, ticks};
use mlx5_dv::Device;
use mlx5_dv::objects::{AccessFlags, AddressHandle, AddressPath, CqOptions, DcTarget, MemoryRegion, Pd, Uar};
use mlx5_dv::queue::{Completion, CompletionQueue, DataSegment, RemoteAddress, RemoteSrq, WorkError};

/// Work requests in a round.
pub const POSTS: usize = 64;
/// Number of different work requests, used in turn.
pub const REQUESTS: usize = 16;
/// Message size in bytes.
pub const BYTES: usize = 64;
pub const WARM_UP: usize = 3;
pub const ROUNDS: usize = 15;
pub const DEPTH: u32 = 128;
/// Bytes of a frame that are inline in its WQE, as in libmlx5.
pub const HEADER: usize = 18;
pub const QKEY: u32 = 0x1111_1111;
/// Of a dynamically connected target.
pub const ACCESS_KEY: u64 = 0x123_4567;
/// Ethernet type of the frames: one for experiments.
pub const ETHERTYPE: u16 = 0x88b5;
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The median of all rounds, for each operation.
pub fn report(row: &str, nothing: u64, mut samples: Vec<u64>) {
    samples.drain(..WARM_UP);
    samples.sort_unstable();
    let ticks = samples[ROUNDS / 2] - nothing;
    println!("{row} ours {:.2}", ticks as f64 / POSTS as f64);
}

/// Source and destination of one message.
pub struct Request {
    pub remote: RemoteAddress,
    pub local: DataSegment,
    /// What an atomic found.
    pub found: DataSegment,
    /// The same, without the bytes of a frame that are inline.
    pub behind_header: DataSegment,
    pub target: DataSegment,
    pub to: AddressHandle,
    pub target_of_dc: DcTarget,
    /// Shared receive queue that XRC messages name.
    pub to_srq: RemoteSrq,
    pub data: [u8; BYTES],
}

/// Ticks for [`POSTS`] completions, polled `width` at a time, each given back to its queue by `retire`; `None` if one
/// was not there yet.
#[inline(always)]
pub fn poll(
    queue: &mut CompletionQueue,
    width: usize,
    mut retire: impl FnMut(&Completion) -> Option<u64>,
) -> Option<u64> {
    let mut sum = 0u64;
    let mut take = |completion: Result<Completion, WorkError>| {
        let completion = completion.ok()?;
        sum = sum.wrapping_add(retire(&completion)?).wrapping_add(u64::from(completion.byte_len));
        Some(())
    };
    let start = ticks();
    if width == 1 {
        for _ in 0..POSTS {
            take(queue.poll()?)?;
        }
    } else {
        let mut left = POSTS;
        while left > 0 {
            let mut some = 0;
            for completion in queue.poll_batch(width) {
                take(completion)?;
                some += 1;
            }
            if some != width {
                return None;
            }
            left -= width;
        }
    }
    black_box(sum);
    Some(ticks() - start)
}

/// Shared by all queues.
pub struct Common {
    pub device: Arc<Device>,
    pub uar: Arc<Uar>,
    pub pd: Arc<Pd>,
    pub memory: Arc<MemoryRegion>,
    pub path: AddressPath,
    /// `plain` or `blueflame`.
    pub doorbell: String,
}

impl Common {
    pub fn new(device: &Arc<Device>, uar: Arc<Uar>, doorbell: &str) -> Result<Self, Failure> {
        let pd = Pd::alloc(device)?;
        let remote = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_ATOMIC;
        let access = AccessFlags::LOCAL_WRITE | remote;
        let memory = MemoryRegion::allocate(&pd, 4096, access)?;
        let gid = device.gids().first().copied().ok_or("the card has no GID")?;
        let path = AddressPath::new(gid.address.octets(), gid.mac);
        Ok(Common { device: Arc::clone(device), uar, pd, memory, path, doorbell: doorbell.to_owned() })
    }

    pub fn cq(&self) -> Result<CompletionQueue, Failure> {
        Ok(CompletionQueue::create(&self.uar, CqOptions::default().entries(2 * POSTS as u32))?)
    }

    /// Messages that begin with `start`, to queue pair `qpn`, whose receives have `room` bytes.
    pub fn requests(&self, start: &[u8], qpn: u32, room: usize) -> Result<Box<[Request; REQUESTS]>, Failure> {
        let to = AddressHandle::new(&self.device, &self.path, qpn, QKEY)?;
        let target_of_dc = DcTarget::new(&self.device, &self.path, qpn, ACCESS_KEY)?;
        let to_srq = RemoteSrq::new(0).ok_or("0 has 24 bits")?;
        let memory = &self.memory;
        let request = |i: usize| {
            let (from, target) = (i * BYTES, 2048 + i * BYTES);
            let data = std::array::from_fn(|j| start.get(j).copied().unwrap_or((from + j) as u8));
            memory.write(from, &data);
            Request {
                remote: memory.remote_at(target),
                local: memory.segment(from..from + BYTES),
                found: memory.segment(from..from + size_of::<u64>()),
                behind_header: memory.segment(from + HEADER..from + BYTES),
                target: memory.segment(target..target + room),
                to,
                target_of_dc,
                to_srq,
                data,
            }
        };
        Ok(black_box(Box::new(std::array::from_fn(request))))
    }
}
