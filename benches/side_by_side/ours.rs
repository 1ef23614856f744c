//! What posting and polling cost by mlx5-dv: `side_by_side_ours DEVICE plain|blueflame`.
//!
//! Does what verbs.c does, in the same order, and prints the same lines: "row api instructions-an-operation". The time
//! stamp counter is taken for a counter of instructions, which it is where QEMU runs with `-icount`.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence};
use std::thread::sleep;
use std::time::{Duration, Instant};

use mlx5_benches::{Failure, completion, connect};
use mlx5_dv::objects::{
    AccessFlags, AddressHandle, AddressPath, CqOptions, DatagramAttributes, DoorbellMode, FlowMatcher, FlowRule,
    MemoryRegion, Pd, QpOptions, QueuePair, Rq, RqOptions, Sq, SqOptions, Tir, Tis, TransportDomain, Uar,
};
use mlx5_dv::queue::ethernet::{EthernetReceiveQueue, FrameFlags, Frames};
use mlx5_dv::queue::{
    BlueFlame, Completion, CompletionQueue, DataSegment, Datagrams, GRH, Messages, Plain, PostError, ReceiveBatch,
    ReceiveQueue, RemoteAddress, RetireError, SendBatch, SendDoorbell, SendQueue, Service, Work, WorkError, WrFlags,
};
use mlx5_dv::{Device, Mac};
use mlx5_prm::flow::FteMatchSetLyr24;
use mlx5_prm::values::PathMtu;

/// Work requests of a round.
const POSTS: usize = 64;
/// Different ones, used in turn.
const REQUESTS: usize = 16;
/// Bytes of a message.
const BYTES: usize = 64;
const WARM_UP: usize = 3;
const ROUNDS: usize = 15;
const DEPTH: u32 = 128;
/// Of a frame, what lies in its WQE, as libmlx5 has it.
const HEADER: usize = 18;
const QKEY: u32 = 0x1111_1111;
/// Of frames: one for experiments.
const ETHERTYPE: u16 = 0x88b5;
const PATIENCE: Duration = Duration::from_secs(60);

#[inline(always)]
fn ticks() -> u64 {
    compiler_fence(Ordering::SeqCst);
    // SAFETY: every x86-64 processor has the instruction, and Linux lets programs use it.
    let now = unsafe { std::arch::x86_64::_rdtsc() };
    compiler_fence(Ordering::SeqCst);
    now
}

/// One message: from where to where.
struct Request {
    remote: RemoteAddress,
    local: DataSegment,
    /// The same, behind what a frame has in its WQE.
    behind_header: DataSegment,
    target: DataSegment,
    to: AddressHandle,
    data: [u8; BYTES],
}

/// A receive queue of any kind.
trait Receiver {
    fn batch(&mut self) -> ReceiveBatch<'_>;
    fn retire(&mut self, work: &Work) -> Result<u64, RetireError>;
    fn is_idle(&self) -> bool;
}

macro_rules! receivers {
    ($($Queue:ident)*) => {$(
        impl Receiver for $Queue {
            #[inline(always)]
            fn batch(&mut self) -> ReceiveBatch<'_> {
                self.batch()
            }

            #[inline(always)]
            fn retire(&mut self, work: &Work) -> Result<u64, RetireError> {
                self.retire(work)
            }

            fn is_idle(&self) -> bool {
                self.free() == self.capacity()
            }
        }
    )*};
}

receivers! { ReceiveQueue EthernetReceiveQueue }

/// What a work request does, posted to a queue of service `S`.
trait Operation<S: Service> {
    const NAME: &'static str;
    /// Whether the remote must have posted a receive.
    const RECEIVED: bool;

    fn post<D: SendDoorbell>(
        batch: &mut SendBatch<'_, D, S>,
        wr_id: u64,
        flags: WrFlags,
        request: &Request,
    ) -> Result<(), PostError>;
}

macro_rules! operations {
    ($($Service:ident, $Name:ident, $name:literal, $received:literal:
        |$batch:ident, $id:ident, $flags:ident, $request:ident| $post:expr;)*) => {$(
        struct $Name;

        impl Operation<$Service> for $Name {
            const NAME: &'static str = $name;
            const RECEIVED: bool = $received;

            #[inline(always)]
            fn post<D: SendDoorbell>(
                $batch: &mut SendBatch<'_, D, $Service>,
                $id: u64,
                $flags: WrFlags,
                $request: &Request,
            ) -> Result<(), PostError> {
                $post
            }
        }
    )*};
}

operations! {
    Messages, WriteInline, "write_inline", false:
        |batch, id, flags, request| batch.write_inline(id, flags, request.remote, &request.data);
    Messages, Write, "write", false:
        // SAFETY: registered memory that lives as long as the queues, which nobody writes or relies on.
        |batch, id, flags, request| unsafe { batch.write(id, flags, request.remote, &[request.local]) };
    Messages, SendInline, "send_inline", true:
        |batch, id, flags, request| batch.send_inline(id, flags, &request.data);
    Messages, Send, "send", true:
        // SAFETY: as above.
        |batch, id, flags, request| unsafe { batch.send(id, flags, &[request.local]) };
    Messages, Read, "read", false:
        // SAFETY: as above.
        |batch, id, flags, request| unsafe { batch.read(id, flags, request.remote, &[request.local]) };
    Datagrams, DatagramInline, "ud_inline", true:
        |batch, id, flags, request| batch.send_inline(id, flags, &request.to, &request.data);
    Datagrams, Datagram, "ud", true:
        // SAFETY: as above.
        |batch, id, flags, request| unsafe { batch.send(id, flags, &request.to, &[request.local]) };
    Frames, FrameInline, "frame_inline", true:
        |batch, id, flags, request| batch.send_inline(id, frame_flags(flags), &request.data);
    Frames, Frame, "frame", true:
        // SAFETY: as above.
        |batch, id, flags, request| unsafe {
            batch.send(id, frame_flags(flags), &request.data[..HEADER], &[request.behind_header])
        };
}

#[inline(always)]
fn frame_flags(flags: WrFlags) -> FrameFlags {
    if flags.contains(WrFlags::SIGNALLED) { FrameFlags::SIGNALLED } else { FrameFlags::empty() }
}

/// Ticks of [`POSTS`] work requests, `batch` a doorbell, of which those are signalled whose number has all bits of
/// `unsignalled`.
#[inline(never)]
fn post<O: Operation<S>, S: Service, D: SendDoorbell>(
    queue: &mut SendQueue<D, S>,
    requests: &[Request; REQUESTS],
    batch: usize,
    unsignalled: usize,
) -> Result<u64, PostError> {
    let start = ticks();
    let mut first = 0;
    while first < POSTS {
        let mut some = queue.batch();
        for i in first..first + batch {
            let flags = if i & unsignalled == unsignalled { WrFlags::SIGNALLED } else { WrFlags::empty() };
            O::post(&mut some, i as u64, flags, &requests[i % REQUESTS])?;
        }
        some.ring();
        first += batch;
    }
    Ok(ticks() - start)
}

#[inline(never)]
fn post_receives<R: Receiver>(queue: &mut R, requests: &[Request; REQUESTS], batch: usize) -> Result<u64, PostError> {
    let start = ticks();
    let mut first = 0;
    while first < POSTS {
        let mut some = queue.batch();
        for i in first..first + batch {
            // SAFETY: registered memory that lives as long as the queues, which nobody relies on.
            unsafe { some.receive(i as u64, &[requests[i % REQUESTS].target])? };
        }
        some.ring();
        first += batch;
    }
    Ok(ticks() - start)
}

/// Ticks of [`POSTS`] completions, `width` at a time, each given back to its queue by `retire`; `None` where one was
/// not there yet.
#[inline(always)]
fn poll(queue: &mut CompletionQueue, width: usize, mut retire: impl FnMut(&Work) -> Option<u64>) -> Option<u64> {
    let mut sum = 0u64;
    let mut take = |completion: Result<Completion, WorkError>| {
        let completion = completion.ok()?;
        sum = sum.wrapping_add(retire(&completion.work)?).wrapping_add(u64::from(completion.byte_len));
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

#[inline(never)]
fn poll_sends<S: Service, D: SendDoorbell>(
    queue: &mut CompletionQueue,
    width: usize,
    sender: &mut SendQueue<D, S>,
) -> Option<u64> {
    poll(queue, width, |work| sender.retire(work).ok())
}

#[inline(never)]
fn poll_receives<R: Receiver>(queue: &mut CompletionQueue, width: usize, receiver: &mut R) -> Option<u64> {
    poll(queue, width, |work| receiver.retire(work).ok())
}

/// What all queues share.
struct Common {
    device: Arc<Device>,
    uar: Arc<Uar>,
    pd: Arc<Pd>,
    memory: Arc<MemoryRegion>,
    path: AddressPath,
    /// The column of the table that these figures are for.
    doorbell: String,
}

impl Common {
    fn new(device: &Arc<Device>, uar: Arc<Uar>, doorbell: &str) -> Result<Self, Failure> {
        let pd = Pd::alloc(device)?;
        let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
        let memory = MemoryRegion::allocate(&pd, 4096, access)?;
        let gid = device.gids().first().ok_or("the card has no GID")?;
        let path = AddressPath::new(gid.address.octets(), gid.mac);
        Ok(Common { device: Arc::clone(device), uar, pd, memory, path, doorbell: doorbell.to_owned() })
    }

    fn cq(&self) -> Result<CompletionQueue, Failure> {
        Ok(CompletionQueue::create(&self.uar, CqOptions::default().entries(2 * POSTS as u32))?)
    }

    /// Messages that begin with `start`, to queue pair `qpn`, whose receives are of `room` bytes.
    fn requests(&self, start: &[u8], qpn: u32, room: usize) -> Result<Box<[Request; REQUESTS]>, Failure> {
        let to = AddressHandle::new(&self.device, &self.path, qpn, QKEY)?;
        let memory = &self.memory;
        let request = |i: usize| {
            let (from, target) = (i * BYTES, 2048 + i * BYTES);
            let data = std::array::from_fn(|j| start.get(j).copied().unwrap_or((from + j) as u8));
            memory.write(from, &data);
            Request {
                remote: memory.remote_at(target),
                local: memory.segment(from..from + BYTES),
                behind_header: memory.segment(from + HEADER..from + BYTES),
                target: memory.segment(target..target + room),
                to,
                data,
            }
        };
        Ok(black_box(Box::new(std::array::from_fn(request))))
    }
}

/// A send queue, and the receive queue that it sends to.
struct Bench<'a, S: Service, D: SendDoorbell, R> {
    sender: SendQueue<D, S>,
    receiver: R,
    sent: CompletionQueue,
    received: CompletionQueue,
    requests: Box<[Request; REQUESTS]>,
    /// Ticks between two looks at the counter.
    nothing: u64,
    /// What a round waits before it polls.
    pause: Duration,
    common: &'a Common,
    /// What brings frames to the receiver.
    _rule: Option<FlowRule>,
}

impl<'a, D: DoorbellMode> Bench<'a, Messages, D, ReceiveQueue> {
    /// Two connected queue pairs, the first sending to the second.
    fn connected(common: &'a Common) -> Result<Self, Failure> {
        let (sent, received) = (common.cq()?, common.cq()?);
        let options = QpOptions::default().wqes(DEPTH, DEPTH).inline_bytes(BYTES as u16);
        let create_qp = || QueuePair::create(&common.pd, &common.uar, sent.cq(), received.cq(), options.clone());
        let (sender, receiver) = (create_qp()?, create_qp()?);
        connect(&sender, receiver.qpn(), PathMtu::Mtu1024)?;
        connect(&receiver, sender.qpn(), PathMtu::Mtu1024)?;
        let requests = common.requests(&[], receiver.qpn(), BYTES)?;
        Ok(Bench::new(common, sender.send_queue()?, receiver.receive_queue()?, sent, received, requests))
    }
}

impl<'a, D: DoorbellMode> Bench<'a, Datagrams, D, ReceiveQueue> {
    /// Two queue pairs of datagrams.
    fn datagrams(common: &'a Common) -> Result<Self, Failure> {
        let (sent, received) = (common.cq()?, common.cq()?);
        let options = QpOptions::default().datagrams().wqes(DEPTH, DEPTH).inline_bytes(BYTES as u16);
        let create_qp = || QueuePair::create(&common.pd, &common.uar, sent.cq(), received.cq(), options.clone());
        let (sender, receiver) = (create_qp()?, create_qp()?);
        for qp in [&sender, &receiver] {
            qp.activate(&DatagramAttributes::new(QKEY))?;
        }
        let requests = common.requests(&[], receiver.qpn(), GRH + BYTES)?;
        let (sender, receiver) = (sender.datagram_send_queue()?, receiver.receive_queue()?);
        Ok(Bench::new(common, sender, receiver, sent, received, requests))
    }
}

impl<'a, D: DoorbellMode> Bench<'a, Frames, D, EthernetReceiveQueue> {
    /// A send queue of frames, of a transport domain of its own, as a domain does not hear itself, and a receive queue.
    fn frames(common: &'a Common) -> Result<Self, Failure> {
        let (sent, received) = (common.cq()?, common.cq()?);
        let domain = || TransportDomain::alloc(&common.device);
        let options = SqOptions::default().wqes(DEPTH).inline_bytes(BYTES as u16);
        let sq = Sq::create(&common.pd, &common.uar, &Tis::create(&domain()?, 0)?, sent.cq(), options)?;
        let rq = Rq::create(&common.pd, received.cq(), RqOptions::default().wqes(DEPTH))?;
        sq.ready()?;
        rq.ready()?;
        let rule = steer(&Tir::create(&domain()?, &rq)?)?;
        let mac = common.device.mac().0;
        let header = [&mac[..], &mac, &ETHERTYPE.to_be_bytes()].concat();
        let requests = common.requests(&header, 0, BYTES)?;
        let bench = Bench::new(common, sq.send_queue()?, rq.receive_queue()?, sent, received, requests);
        Ok(Bench { _rule: Some(rule), ..bench })
    }
}

/// Frames of our type to the device's own address go to `tir`.
fn steer(tir: &Arc<Tir>) -> Result<FlowRule, Failure> {
    let headers = |mac: Mac, ethertype: u16| {
        let [a, b, c, d, e, f] = mac.0;
        let mut headers = FteMatchSetLyr24::ZERO;
        headers.w().dmac_47_16(u32::from_be_bytes([a, b, c, d])).dmac_15_0(u16::from_be_bytes([e, f]));
        headers.w().ethertype(ethertype);
        headers
    };
    let matcher = FlowMatcher::create(tir.device(), 0, &headers(Mac::BROADCAST, 0xffff))?;
    Ok(FlowRule::beside_kernel(&matcher, &headers(tir.device().mac(), ETHERTYPE), tir)?)
}

impl<'a, S: Service, D: SendDoorbell, R: Receiver> Bench<'a, S, D, R> {
    fn new(
        common: &'a Common,
        sender: SendQueue<D, S>,
        receiver: R,
        sent: CompletionQueue,
        received: CompletionQueue,
        requests: Box<[Request; REQUESTS]>,
    ) -> Self {
        let nothing = ticks();
        let nothing = ticks() - nothing;
        let pause = Duration::from_millis(1);
        Bench { sender, receiver, sent, received, requests, nothing, pause, common, _rule: None }
    }

    /// Takes completions until all that was posted has completed, on both sides.
    fn drain(&mut self) -> Result<(), Failure> {
        while self.sender.free() < self.sender.capacity() {
            self.sender.retire(&completion(&mut self.sent)?.work)?;
        }
        while !self.receiver.is_idle() {
            self.receiver.retire(&completion(&mut self.received)?.work)?;
        }
        Ok(())
    }

    /// The median of all rounds, for one operation.
    fn report(&self, row: &str, mut samples: Vec<u64>) {
        samples.drain(..WARM_UP);
        samples.sort_unstable();
        let ticks = samples[ROUNDS / 2] - self.nothing;
        println!("{row} {} {:.2}", self.common.doorbell, ticks as f64 / POSTS as f64);
    }

    /// [`POSTS`] receives, `batch` a doorbell record: the ticks.
    fn receive(&mut self, batch: usize) -> Result<u64, Failure> {
        Ok(post_receives(&mut self.receiver, &self.requests, batch)?)
    }

    fn measure_post<O: Operation<S>>(&mut self) -> Result<(), Failure> {
        for batch in [1, 4, 16, 64] {
            for signal in [1, POSTS] {
                let mut samples = Vec::with_capacity(WARM_UP + ROUNDS);
                while samples.len() < WARM_UP + ROUNDS {
                    if O::RECEIVED {
                        self.receive(1)?;
                    }
                    samples.push(post::<O, S, D>(&mut self.sender, &self.requests, batch, signal - 1)?);
                    self.drain()?;
                }
                self.report(&format!("{}/{batch}/{signal}", O::NAME), samples);
            }
        }
        Ok(())
    }

    /// Receives, each of which is used up by an `O`.
    fn measure_receive<O: Operation<S>>(&mut self, row: &str) -> Result<(), Failure> {
        for batch in [1, 4, 16, 64] {
            let mut samples = Vec::with_capacity(WARM_UP + ROUNDS);
            while samples.len() < WARM_UP + ROUNDS {
                samples.push(self.receive(batch)?);
                post::<O, S, D>(&mut self.sender, &self.requests, 64, 0)?;
                self.drain()?;
            }
            self.report(&format!("{row}/{batch}"), samples);
        }
        Ok(())
    }

    /// `poll` takes that many at a time. Rounds in which a completion came late do not count.
    fn measure_poll<O: Operation<S>>(
        &mut self,
        row: &str,
        poll: fn(&mut Self, usize) -> Option<u64>,
    ) -> Result<(), Failure> {
        for width in [1, 16] {
            let mut samples = Vec::with_capacity(WARM_UP + ROUNDS);
            let deadline = Instant::now() + PATIENCE;
            while samples.len() < WARM_UP + ROUNDS {
                self.receive(1)?;
                post::<O, S, D>(&mut self.sender, &self.requests, 64, 0)?;
                sleep(self.pause);
                match poll(self, width) {
                    Some(ticks) => samples.push(ticks),
                    None if Instant::now() > deadline => return Err("completions are always late".into()),
                    None => self.pause = (self.pause * 2).min(Duration::from_millis(100)),
                }
                self.drain()?;
            }
            self.report(&format!("{row}/{width}"), samples);
        }
        Ok(())
    }
}

fn measure_all<D: DoorbellMode>(common: &Common) -> Result<(), Failure> {
    let mut connected = Bench::<Messages, D, _>::connected(common)?;
    connected.measure_post::<WriteInline>()?;
    connected.measure_post::<Write>()?;
    connected.measure_post::<SendInline>()?;
    connected.measure_post::<Send>()?;
    connected.measure_post::<Read>()?;
    connected.measure_receive::<Send>("receive")?;
    connected
        .measure_poll::<Send>("poll_send", |bench, width| poll_sends(&mut bench.sent, width, &mut bench.sender))?;
    connected.measure_poll::<Send>("poll_receive", |bench, width| {
        poll_receives(&mut bench.received, width, &mut bench.receiver)
    })?;
    drop(connected);
    let mut datagrams = Bench::<Datagrams, D, _>::datagrams(common)?;
    datagrams.measure_post::<DatagramInline>()?;
    datagrams.measure_post::<Datagram>()?;
    drop(datagrams);
    let mut frames = Bench::<Frames, D, _>::frames(common)?;
    frames.measure_post::<FrameInline>()?;
    frames.measure_post::<Frame>()?;
    frames.measure_receive::<Frame>("receive_frame")?;
    frames.measure_poll::<Frame>("poll_frame", |bench, width| {
        poll_receives(&mut bench.received, width, &mut bench.receiver)
    })
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [device, doorbell] = &arguments[..] else {
        return Err("usage: side_by_side_ours DEVICE plain|blueflame".into());
    };
    let device = mlx5_open::open(device)?;
    match doorbell.as_str() {
        "plain" => measure_all::<Plain>(&Common::new(&device, Uar::alloc(&device)?, doorbell)?),
        "blueflame" => measure_all::<BlueFlame>(&Common::new(&device, Uar::alloc_write_combining(&device)?, doorbell)?),
        other => Err(format!("{other:?} is no doorbell: plain or blueflame").into()),
    }
}
