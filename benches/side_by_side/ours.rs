//! What posting and polling cost by mlx5-dv: `side_by_side_ours DEVICE plain|blueflame`.
//!
//! Does what verbs.c does, in the same order, and prints the same lines: "row api instructions-an-operation". The time stamp
//! counter is taken for a counter of instructions, which it is where QEMU runs with `-icount`.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence};
use std::thread::sleep;
use std::time::{Duration, Instant};

use mlx5_dv::Device;
use mlx5_dv::objects::{
    AccessFlags, AddressHandle, AddressPath, CqOptions, DatagramAttributes, DoorbellMode, InitAttributes, MemoryRegion,
    Pd, QpOptions, QueuePair, RtrAttributes, RtsAttributes, Sq, SqOptions, Tis, TransportDomain, Uar,
};
use mlx5_dv::queue::ethernet::{EthernetSendBatch, EthernetSendQueue, FrameFlags};
use mlx5_dv::queue::{
    BlueFlame, CompletionQueue, DataSegment, DatagramSendBatch, DatagramSendQueue, GRH, Plain, PostError, ReceiveQueue,
    RemoteAddress, RetireError, SendBatch, SendDoorbell, SendQueue, Side, Work, WrFlags,
};

type Failure = Box<dyn std::error::Error>;

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

/// A send queue of any kind.
trait Sender {
    type Batch<'a>
    where
        Self: 'a;

    fn batch(&mut self) -> Self::Batch<'_>;
    fn ring(batch: Self::Batch<'_>);
    fn retire(&mut self, work: &Work) -> Result<u64, RetireError>;
    fn is_idle(&self) -> bool;
}

macro_rules! senders {
    ($($Queue:ident, $Batch:ident;)*) => {$(
        impl<D: SendDoorbell> Sender for $Queue<D> {
            type Batch<'a> = $Batch<'a, D> where D: 'a;

            #[inline(always)]
            fn batch(&mut self) -> $Batch<'_, D> {
                self.batch()
            }

            #[inline(always)]
            fn ring(batch: $Batch<'_, D>) {
                batch.ring();
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

senders! {
    SendQueue, SendBatch;
    DatagramSendQueue, DatagramSendBatch;
    EthernetSendQueue, EthernetSendBatch;
}

/// What a work request does, posted to a `Q`.
trait Operation<Q: Sender> {
    const NAME: &'static str;
    /// Whether the remote must have posted a receive.
    const RECEIVED: bool = false;

    fn post(batch: &mut Q::Batch<'_>, wr_id: u64, flags: WrFlags, request: &Request) -> Result<(), PostError>;
}

macro_rules! operations {
    ($($Queue:ident, $Batch:ident, $Name:ident, $name:literal, $received:literal:
        |$batch:ident, $id:ident, $flags:ident, $request:ident| $post:expr;)*) => {$(
        struct $Name;

        impl<D: SendDoorbell> Operation<$Queue<D>> for $Name {
            const NAME: &'static str = $name;
            const RECEIVED: bool = $received;

            #[inline(always)]
            fn post(
                $batch: &mut $Batch<'_, D>,
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
    SendQueue, SendBatch, WriteInline, "write_inline", false:
        |batch, id, flags, request| batch.write_inline(id, flags, request.remote, &request.data);
    SendQueue, SendBatch, Write, "write", false:
        // SAFETY: registered memory that lives as long as the queues, which nobody writes or relies on.
        |batch, id, flags, request| unsafe { batch.write(id, flags, request.remote, &[request.local]) };
    SendQueue, SendBatch, SendInline, "send_inline", true:
        |batch, id, flags, request| batch.send_inline(id, flags, &request.data);
    SendQueue, SendBatch, Send, "send", true:
        // SAFETY: as above.
        |batch, id, flags, request| unsafe { batch.send(id, flags, &[request.local]) };
    SendQueue, SendBatch, Read, "read", false:
        // SAFETY: as above.
        |batch, id, flags, request| unsafe { batch.read(id, flags, request.remote, &[request.local]) };
    DatagramSendQueue, DatagramSendBatch, DatagramInline, "ud_inline", true:
        |batch, id, flags, request| batch.send_inline(id, flags, &request.to, &request.data);
    DatagramSendQueue, DatagramSendBatch, Datagram, "ud", true:
        // SAFETY: as above.
        |batch, id, flags, request| unsafe { batch.send(id, flags, &request.to, &[request.local]) };
    EthernetSendQueue, EthernetSendBatch, FrameInline, "frame_inline", false:
        |batch, id, flags, request| batch.send_inline(id, frame_flags(flags), &request.data);
    EthernetSendQueue, EthernetSendBatch, Frame, "frame", false:
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
fn post<O: Operation<Q>, Q: Sender>(
    queue: &mut Q,
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
        Q::ring(some);
        first += batch;
    }
    Ok(ticks() - start)
}

#[inline(never)]
fn post_receives(queue: &mut ReceiveQueue, requests: &[Request; REQUESTS], batch: usize) -> Result<u64, PostError> {
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

/// Ticks of [`POSTS`] completions, `width` at a time, each given back to its queue by `retire`; `None` where one was not there
/// yet.
#[inline(always)]
fn poll(queue: &mut CompletionQueue, width: usize, mut retire: impl FnMut(&Work) -> Option<u64>) -> Option<u64> {
    let mut sum = 0u64;
    let start = ticks();
    let mut left = POSTS;
    while left > 0 {
        let mut some = 0;
        for completion in queue.poll_batch(width) {
            let completion = completion.ok()?;
            sum = sum.wrapping_add(retire(&completion.work)?).wrapping_add(u64::from(completion.byte_len));
            some += 1;
        }
        if some != width {
            return None;
        }
        left -= width;
    }
    black_box(sum);
    Some(ticks() - start)
}

/// As [`poll`], one at a time.
#[inline(always)]
fn poll_singly(queue: &mut CompletionQueue, mut retire: impl FnMut(&Work) -> Option<u64>) -> Option<u64> {
    let mut sum = 0u64;
    let start = ticks();
    for _ in 0..POSTS {
        let completion = queue.poll()?.ok()?;
        sum = sum.wrapping_add(retire(&completion.work)?).wrapping_add(u64::from(completion.byte_len));
    }
    black_box(sum);
    Some(ticks() - start)
}

#[inline(never)]
fn poll_sends<Q: Sender>(queue: &mut CompletionQueue, width: usize, sender: &mut Q) -> Option<u64> {
    match width {
        1 => poll_singly(queue, |work| sender.retire(work).ok()),
        _ => poll(queue, width, |work| sender.retire(work).ok()),
    }
}

#[inline(never)]
fn poll_receives(queue: &mut CompletionQueue, width: usize, receiver: &mut ReceiveQueue) -> Option<u64> {
    match width {
        1 => poll_singly(queue, |work| receiver.retire(work).ok()),
        _ => poll(queue, width, |work| receiver.retire(work).ok()),
    }
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

    /// Messages to queue pair `qpn`, whose receives are of `room` bytes.
    fn requests(&self, qpn: u32, room: usize) -> Result<Box<[Request; REQUESTS]>, Failure> {
        let to = AddressHandle::new(&self.device, &self.path, qpn, QKEY)?;
        let memory = &self.memory;
        let request = |i: usize| {
            let (from, target) = (i * BYTES, 2048 + i * BYTES);
            Request {
                remote: memory.remote_at(target),
                local: memory.segment(from..from + BYTES),
                behind_header: memory.segment(from + HEADER..from + BYTES),
                target: memory.segment(target..target + room),
                to,
                data: std::array::from_fn(|j| (from + j) as u8),
            }
        };
        Ok(black_box(Box::new(std::array::from_fn(request))))
    }
}

/// A send queue, and the receive queue that it sends to, where there is one.
struct Bench<'a, Q> {
    sender: Q,
    receiver: Option<ReceiveQueue>,
    sent: CompletionQueue,
    received: CompletionQueue,
    requests: Box<[Request; REQUESTS]>,
    /// Ticks between two looks at the counter.
    nothing: u64,
    /// What a round waits before it polls.
    pause: Duration,
    common: &'a Common,
}

impl<'a, D: DoorbellMode> Bench<'a, SendQueue<D>> {
    /// Two connected queue pairs, the first sending to the second.
    fn connected(common: &'a Common) -> Result<Self, Failure> {
        let (sent, received) = (common.cq()?, common.cq()?);
        let options = QpOptions::default().wqes(DEPTH, DEPTH).inline_bytes(BYTES as u16);
        let create_qp = || QueuePair::create(&common.pd, &common.uar, sent.cq(), received.cq(), options.clone());
        let (sender, receiver) = (create_qp()?, create_qp()?);
        for (ours, theirs) in [(&sender, &receiver), (&receiver, &sender)] {
            ours.init(&InitAttributes::default())?;
            ours.ready_to_receive(&RtrAttributes::new(theirs.qpn(), 0, common.path))?;
            ours.ready_to_send(&RtsAttributes::new(0))?;
        }
        let requests = common.requests(receiver.qpn(), BYTES)?;
        Ok(Bench::new(common, sender.send_queue()?, Some(receiver.receive_queue()?), sent, received, requests))
    }
}

impl<'a, D: DoorbellMode> Bench<'a, DatagramSendQueue<D>> {
    /// Two queue pairs of datagrams.
    fn datagrams(common: &'a Common) -> Result<Self, Failure> {
        let (sent, received) = (common.cq()?, common.cq()?);
        let options = QpOptions::default().datagrams().wqes(DEPTH, DEPTH).inline_bytes(BYTES as u16);
        let create_qp = || QueuePair::create(&common.pd, &common.uar, sent.cq(), received.cq(), options.clone());
        let (sender, receiver) = (create_qp()?, create_qp()?);
        for qp in [&sender, &receiver] {
            qp.activate(&DatagramAttributes::new(QKEY))?;
        }
        let requests = common.requests(receiver.qpn(), GRH + BYTES)?;
        let (sender, receiver) = (sender.datagram_send_queue()?, receiver.receive_queue()?);
        Ok(Bench::new(common, sender, Some(receiver), sent, received, requests))
    }
}

impl<'a, D: DoorbellMode> Bench<'a, EthernetSendQueue<D>> {
    /// A send queue of frames that nobody hears.
    fn frames(common: &'a Common) -> Result<Self, Failure> {
        let (sent, received) = (common.cq()?, common.cq()?);
        let tis = Tis::create(&TransportDomain::alloc(&common.device)?, 0)?;
        let options = SqOptions::default().wqes(DEPTH).inline_bytes(BYTES as u16);
        let sq = Sq::create(&common.pd, &common.uar, &tis, sent.cq(), options)?;
        sq.ready()?;
        Ok(Bench::new(common, sq.send_queue()?, None, sent, received, common.requests(0, BYTES)?))
    }
}

impl<'a, Q: Sender> Bench<'a, Q> {
    fn new(
        common: &'a Common,
        sender: Q,
        receiver: Option<ReceiveQueue>,
        sent: CompletionQueue,
        received: CompletionQueue,
        requests: Box<[Request; REQUESTS]>,
    ) -> Self {
        let nothing = ticks();
        let nothing = ticks() - nothing;
        let pause = Duration::from_millis(1);
        Bench { sender, receiver, sent, received, requests, nothing, pause, common }
    }

    fn is_idle(&self) -> bool {
        let received = self.receiver.as_ref().is_none_or(|receiver| receiver.free() == receiver.capacity());
        received && self.sender.is_idle()
    }

    /// Takes completions until all that was posted has completed, on both sides.
    fn drain(&mut self) -> Result<(), Failure> {
        let deadline = Instant::now() + PATIENCE;
        while !self.is_idle() {
            let mut none = true;
            for queue in [&mut self.sent, &mut self.received] {
                let Some(completion) = queue.poll() else { continue };
                none = false;
                let work = completion?.work;
                match (work.side, &mut self.receiver) {
                    (Side::Send, _) => self.sender.retire(&work)?,
                    (Side::Receive, Some(receiver)) => receiver.retire(&work)?,
                    (Side::Receive, None) => return Err("a receive of nobody's".into()),
                };
            }
            if none {
                if Instant::now() > deadline {
                    return Err("completions do not come".into());
                }
                sleep(Duration::from_micros(100));
            }
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
        let receiver = self.receiver.as_mut().ok_or("nobody receives")?;
        Ok(post_receives(receiver, &self.requests, batch)?)
    }

    fn measure_post<O: Operation<Q>>(&mut self) -> Result<(), Failure> {
        for batch in [1, 4, 16, 64] {
            for signal in [1, POSTS] {
                let mut samples = Vec::with_capacity(WARM_UP + ROUNDS);
                while samples.len() < WARM_UP + ROUNDS {
                    if O::RECEIVED {
                        self.receive(1)?;
                    }
                    samples.push(post::<O, Q>(&mut self.sender, &self.requests, batch, signal - 1)?);
                    self.drain()?;
                }
                self.report(&format!("{}/{batch}/{signal}", O::NAME), samples);
            }
        }
        Ok(())
    }

    /// Receives, each of which is used up by an `O`.
    fn measure_receive<O: Operation<Q>>(&mut self) -> Result<(), Failure> {
        for batch in [1, 4, 16, 64] {
            let mut samples = Vec::with_capacity(WARM_UP + ROUNDS);
            while samples.len() < WARM_UP + ROUNDS {
                samples.push(self.receive(batch)?);
                post::<O, Q>(&mut self.sender, &self.requests, 64, 0)?;
                self.drain()?;
            }
            self.report(&format!("receive/{batch}"), samples);
        }
        Ok(())
    }

    /// `poll` takes that many at a time. Rounds in which a completion came late do not count.
    fn measure_poll<O: Operation<Q>>(
        &mut self,
        row: &str,
        poll: fn(&mut Self, usize) -> Option<u64>,
    ) -> Result<(), Failure> {
        for width in [1, 16] {
            let mut samples = Vec::with_capacity(WARM_UP + ROUNDS);
            let deadline = Instant::now() + PATIENCE;
            while samples.len() < WARM_UP + ROUNDS {
                self.receive(1)?;
                post::<O, Q>(&mut self.sender, &self.requests, 64, 0)?;
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
    let mut connected = Bench::<SendQueue<D>>::connected(common)?;
    connected.measure_post::<WriteInline>()?;
    connected.measure_post::<Write>()?;
    connected.measure_post::<SendInline>()?;
    connected.measure_post::<Send>()?;
    connected.measure_post::<Read>()?;
    connected.measure_receive::<Send>()?;
    connected
        .measure_poll::<Send>("poll_send", |bench, width| poll_sends(&mut bench.sent, width, &mut bench.sender))?;
    connected.measure_poll::<Send>("poll_receive", |bench, width| {
        poll_receives(&mut bench.received, width, bench.receiver.as_mut()?)
    })?;
    drop(connected);
    let mut datagrams = Bench::<DatagramSendQueue<D>>::datagrams(common)?;
    datagrams.measure_post::<DatagramInline>()?;
    datagrams.measure_post::<Datagram>()?;
    drop(datagrams);
    let mut frames = Bench::<EthernetSendQueue<D>>::frames(common)?;
    frames.measure_post::<FrameInline>()?;
    frames.measure_post::<Frame>()
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
