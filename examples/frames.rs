//! Sends frames of one Ethernet type to another function and back, through raw Ethernet queues and a flow rule.
//!
//! `frames` (two functions of the software card), or `frames -d DEVICE --peer DEVICE`. On an owned function the rule is
//! in a flow table that becomes its root. On `devx:` it is one of the kernel's rules; the network device keeps all
//! other frames.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use mlx5_dv::objects::{
    AnyDoorbell, BlueFlame, CqOptions, DoorbellMode, ExclusiveRegion, FlowGroup, FlowMatch, FlowMatcher, FlowRule,
    FlowTable, Pd, RateLimit, RateLimitOptions, Sq, SqOptions, Tir, Tis, TransportDomain, Uar,
};
use mlx5_dv::queue::CompletionQueue;
use mlx5_dv::queue::ethernet::{EthernetOptions, EthernetQueue, EthernetSendQueue, FrameFlags};
use mlx5_dv::{Device, Error, Mac};
use mlx5_examples::pingpong::Failure;
use mlx5_open::{Sim, program};

/// Frame size without the check sequence: the minimum.
const FRAME: usize = 60;
/// Receives posted at once.
const DEPTH: usize = 16;
/// Timeout of one frame.
const PATIENCE: Duration = Duration::from_secs(20);

/// Sends frames of one Ethernet type to another function, which sends each back.
#[derive(Debug, Parser)]
#[command(name = "frames")]
struct Arguments {
    /// Device: vfio:0000:3b:00.0, devx:mlx5_0, vfio-user:/run/nic.sock; by default two functions of a software card.
    #[arg(short, long, requires = "peer")]
    device: Option<String>,
    /// The device on the same wire that sends the frames back.
    #[arg(long, requires = "device")]
    peer: Option<String>,
    /// Number of frames.
    #[arg(short, long, default_value_t = 1000)]
    iters: u32,
    /// Ethernet type of the frames.
    #[arg(long, default_value_t = 0x88b5)]
    ethertype: u16,
    /// Ring by BlueFlame, on a page mapped write-combining where possible.
    #[arg(long)]
    blue_flame: bool,
    /// Hold the first sender to a rate, in kbit/s.
    #[arg(long)]
    rate: Option<u32>,
    /// Sleep on completion events instead of polling.
    #[arg(short, long)]
    events: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    program::run("frames", || match arguments.blue_flame {
        true => run::<BlueFlame>(&arguments, Uar::alloc_write_combining),
        false => run::<AnyDoorbell>(&arguments, Uar::alloc),
    })
}

fn run<D: DoorbellMode>(
    arguments: &Arguments,
    page: impl Fn(&Arc<Device>) -> Result<Arc<Uar>, Error>,
) -> Result<(), Failure> {
    let (near, far) = devices(arguments)?;
    let (mut here, mut there) = (FrameEnd::new(&near, arguments)?, FrameEnd::new(&far, arguments)?);
    let mut sender = Sender::<D>::new(page(&near)?, arguments.rate)?;
    let begin = Instant::now();
    for number in 0..arguments.iters {
        let frame = frame(far.mac(), near.mac(), arguments.ethertype, number);
        sender.send(&frame)?;
        let heard = there.hear()?;
        same(&heard, &frame)?;
        let answer = self::frame(near.mac(), far.mac(), arguments.ethertype, number);
        there.send(&answer)?;
        same(&here.hear()?, &answer)?;
    }
    let doorbell = match (arguments.blue_flame, sender.uar.is_write_combining()) {
        (true, true) => ", by BlueFlame, page mapped write-combining",
        (true, false) => ", by BlueFlame, page mapped uncached",
        (false, _) => "",
    };
    println!(
        "{} frames of type {:#06x} from {} to {} and back{doorbell}, in {} ms",
        arguments.iters,
        arguments.ethertype,
        near.name(),
        far.name(),
        begin.elapsed().as_millis()
    );
    Ok(())
}

fn devices(arguments: &Arguments) -> Result<(Arc<Device>, Arc<Device>), Failure> {
    match (&arguments.device, &arguments.peer) {
        (Some(near), Some(far)) => Ok((mlx5_open::open(near)?, mlx5_open::open(far)?)),
        _ => {
            let sim = Sim::builder().functions(2).build()?;
            Ok((sim.open(0)?, sim.open(1)?))
        }
    }
}

/// Destination, source, type, and a number in the payload.
fn frame(to: Mac, from: Mac, ethertype: u16, number: u32) -> Vec<u8> {
    let mut frame = [&to.0[..], &from.0, &ethertype.to_be_bytes(), &number.to_be_bytes()].concat();
    frame.resize(FRAME, number as u8);
    frame
}

fn same(heard: &[u8], sent: &[u8]) -> Result<(), Failure> {
    match heard == sent {
        true => Ok(()),
        false => Err(format!("received {heard:02x?} instead of {sent:02x?}").into()),
    }
}

/// One end: receives frames of the type to the device's own address, and sends.
struct FrameEnd {
    queue: EthernetQueue,
    _rule: FlowRule,
}

impl FrameEnd {
    fn new(device: &Arc<Device>, arguments: &Arguments) -> Result<Self, Failure> {
        let pd = Pd::alloc(device)?;
        let mut options = EthernetOptions::default();
        (options.inline_bytes, options.events) = (FRAME as u16, arguments.events);
        let mut queue = EthernetQueue::new(&pd, options)?;
        let len = queue.sq().longest_frame().next_multiple_of(64);
        let region = ExclusiveRegion::allocate(&pd, DEPTH * len)?;
        for buffer in region.buffers(len)?.into_iter().take(DEPTH) {
            queue.receive(buffer)?;
        }
        let rule = steer(queue.tir(), arguments.ethertype)?;
        Ok(FrameEnd { queue, _rule: rule })
    }

    /// Waits for the next frame.
    fn hear(&mut self) -> Result<Vec<u8>, Failure> {
        loop {
            let done = self.queue.wait(PATIENCE)?;
            done.result?;
            let Some(frame) = done.received().map(<[u8]>::to_vec) else { continue };
            if let Some(buffer) = done.buffer {
                self.queue.receive(buffer)?;
            }
            return Ok(frame);
        }
    }

    fn send(&mut self, frame: &[u8]) -> Result<(), Failure> {
        self.queue.send_inline(frame, FrameFlags::empty())?;
        Ok(())
    }
}

/// Steers frames of the type to the device's own address to `tir`.
fn steer(tir: &Arc<Tir>, ethertype: u16) -> Result<FlowRule, Failure> {
    let device = tir.device();
    let matched = FlowMatch::new().destination_mac(device.mac()).ethertype(ethertype);
    if !device.is_owned() {
        return Ok(FlowRule::beside_kernel(&FlowMatcher::create(device, 0, &matched)?, &matched, tir)?);
    }
    let table = FlowTable::create(device, 0, 1)?;
    let rule = FlowRule::create(&FlowGroup::create(&table, 0..1, &matched)?, &matched, tir)?;
    table.set_root()?;
    Ok(rule)
}

/// A send queue with a doorbell of the caller's choice.
struct Sender<D: DoorbellMode> {
    queue: EthernetSendQueue<D>,
    cq: CompletionQueue,
    uar: Arc<Uar>,
}

impl<D: DoorbellMode> Sender<D> {
    fn new(uar: Arc<Uar>, kbps: Option<u32>) -> Result<Self, Failure> {
        let device = Arc::clone(uar.device());
        // On a page of its own: CQ doorbells must not be combined.
        let cq = CompletionQueue::create(&Uar::alloc(&device)?, CqOptions::default().entries(DEPTH as u32))?;
        let tis = Tis::create(&TransportDomain::alloc(&device)?, 0)?;
        let options = SqOptions::default().wqes(DEPTH as u32).inline_bytes(FRAME as u16);
        let sq = Sq::create(&Pd::alloc(&device)?, &uar, &tis, cq.cq(), options)?;
        sq.ready()?;
        if let Some(kbps) = kbps {
            sq.set_rate_limit(Some(&RateLimit::create(&device, RateLimitOptions::new(kbps))?))?;
        }
        Ok(Sender { queue: sq.send_queue()?, cq, uar })
    }

    /// Sends a frame, and waits for its completion.
    fn send(&mut self, frame: &[u8]) -> Result<(), Failure> {
        let mut batch = self.queue.batch();
        batch.send_inline(0, FrameFlags::SIGNALLED, frame)?;
        batch.ring();
        let begin = Instant::now();
        let completion = loop {
            match self.cq.poll() {
                Some(result) => break result?,
                None if begin.elapsed() > PATIENCE => return Err("no completion of a sent frame".into()),
                None => std::thread::yield_now(),
            }
        };
        self.queue.retire(&completion.work)?;
        Ok(())
    }
}
