//! Functions of one card, connected by its wire, each with raw Ethernet queues.

use std::sync::Arc;
use std::time::Duration;

use mlx5_dv::objects::{AccessFlags, Buffer, MemoryRegion, Pd};
use mlx5_dv::queue::Done;
use mlx5_dv::queue::ethernet::{EthernetOptions, EthernetQueue, FrameCompletion};
use mlx5_dv::{Device, Error, Mac};
use mlx5_open::{Builder, Sim};
use mlx5_sim::profile::Profile;

/// Limit for everything that must succeed.
pub const SOON: Duration = Duration::from_secs(20);
/// The UDP port of RoCE, whose packets are not for Ethernet queues.
pub const ROCE: u16 = 4791;
/// Size of a buffer in bytes: more than a frame with an MTU of 1500.
pub const BUFFER: usize = 2048;

/// A card whose striding queues take buffers of 512 bytes, which few frames fill.
pub fn of_small_strides() -> Profile {
    let mut profile = Profile::connectx5();
    profile.general_2.w().log_min_stride_wqe_sz(9);
    profile
}

/// A function with memory for frames.
pub struct EthernetEnd {
    pub queue: EthernetQueue,
    pub region: Arc<MemoryRegion>,
    pub pd: Arc<Pd>,
    pub device: Arc<Device>,
}

impl EthernetEnd {
    pub fn new(sim: &Sim, function: usize, options: EthernetOptions) -> Self {
        let device = sim.open(function).unwrap();
        let pd = Pd::alloc(&device).unwrap();
        let region = MemoryRegion::allocate(&pd, 32 * BUFFER, AccessFlags::LOCAL_WRITE).unwrap();
        let queue = EthernetQueue::new(&pd, options).unwrap();
        EthernetEnd { queue, region, pd, device }
    }

    /// An end that receives frames to its own address and to broadcast, but no multicast.
    pub fn listening(sim: &Sim, function: usize, options: EthernetOptions) -> Self {
        let mut end = EthernetEnd::new(sim, function, options);
        end.queue.listen(&[]).unwrap();
        end
    }

    /// The `index`th buffer.
    pub fn buffer(&self, index: usize) -> Buffer {
        self.region.buffer(index * BUFFER..(index + 1) * BUFFER).unwrap()
    }

    /// Posts the first `count` buffers.
    pub fn post(&mut self, count: usize) {
        for index in 0..count {
            let buffer = self.buffer(index);
            self.queue.receive(buffer).unwrap();
        }
    }

    /// Sends `frame` from the last buffer, and waits for the completion.
    pub fn send(&mut self, frame: &[u8]) {
        let mut buffer = self.buffer(31);
        buffer.write(0, frame);
        buffer.set_len(frame.len());
        let ticket = self.queue.send(buffer, mlx5_dv::queue::ethernet::FrameFlags::empty()).unwrap();
        let done = self.queue.wait(SOON).unwrap();
        assert_eq!((done.ticket, done.result.map(|_| ())), (ticket, Ok(())));
    }

    /// The next received frame.
    pub fn heard(&mut self) -> Vec<u8> {
        content(self.queue.wait(SOON).unwrap())
    }

    /// A frame from this end to `mac`.
    pub fn frame(&self, mac: Mac, payload: &[u8]) -> Vec<u8> {
        [&mac.0[..], &self.device.mac().0, &[0x88, 0xb5], payload].concat()
    }
}

/// The frame that was received.
pub fn content(done: Done<FrameCompletion>) -> Vec<u8> {
    let (completion, buffer) = (done.result.unwrap(), done.buffer.unwrap());
    let mut frame = vec![0; completion.byte_len as usize];
    buffer.read(0, &mut frame);
    frame
}

/// Two functions of a card. The second receives frames to its own address and to broadcast, but no multicast.
pub fn two() -> (Sim, EthernetEnd, EthernetEnd) {
    two_of(Sim::builder(), EthernetOptions::default())
}

pub fn two_of(builder: Builder, options: EthernetOptions) -> (Sim, EthernetEnd, EthernetEnd) {
    let sim = builder.functions(2).build().unwrap();
    let (here, there) = (EthernetEnd::new(&sim, 0, options.clone()), EthernetEnd::listening(&sim, 1, options));
    (sim, here, there)
}

/// Checks that all objects are destroyed, in any order, and that the card reports only `rules`.
pub fn end(sim: Sim, ends: [EthernetEnd; 2], rules: &[&str]) {
    drop(ends);
    let mut broken: Vec<_> = sim.violations().iter().map(|violation| violation.rule).collect();
    broken.sort_unstable();
    broken.dedup();
    assert_eq!(broken, rules);
    for function in 0..2 {
        let counts = sim.handle(function).counts();
        assert_eq!((counts.cqs, counts.mkeys, counts.umems, counts.uars), (0, 0, 0, 0), "{counts:?}");
        assert_eq!((counts.transport_domains, counts.dma_ranges, counts.pages_held), (0, 0, 0), "{counts:?}");
    }
}

/// Checks that with `ends` all objects are destroyed, and that the card reports nothing.
pub fn end_in_peace(sim: &Sim, ends: impl Sized) {
    drop(ends);
    assert_eq!(sim.violations(), []);
    for function in 0..2 {
        let counts = sim.handle(function).counts();
        assert_eq!((counts.cqs, counts.mkeys, counts.umems, counts.dma_ranges), (0, 0, 0, 0), "{counts:?}");
    }
}

/// The text of the error that `result` must be.
pub fn refusal<T>(result: Result<T, Error>) -> String {
    result.err().expect("a refusal").to_string()
}
