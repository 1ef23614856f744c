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
    AccessFlags, AddressPath, CqOptions, DoorbellMode, InitAttributes, MemoryRegion, Pd, QpOptions, QueuePair,
    RtrAttributes, RtsAttributes, Uar,
};
use mlx5_dv::queue::{
    BlueFlame, CompletionQueue, DataSegment, Plain, PostError, ReceiveQueue, RemoteAddress, SendBatch, SendDoorbell,
    SendQueue, Side, WrFlags,
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
    target: DataSegment,
    data: [u8; BYTES],
}

/// What a work request does.
trait Operation {
    const NAME: &'static str;
    /// Whether the remote must have posted a receive.
    const RECEIVED: bool = false;

    fn post<D: SendDoorbell>(
        batch: &mut SendBatch<'_, D>,
        wr_id: u64,
        flags: WrFlags,
        request: &Request,
    ) -> Result<(), PostError>;
}

macro_rules! operations {
    ($($Name:ident, $name:literal, $received:literal: |$batch:ident, $id:ident, $flags:ident, $request:ident| $post:expr;)*) => {$(
        struct $Name;

        impl Operation for $Name {
            const NAME: &'static str = $name;
            const RECEIVED: bool = $received;

            #[inline(always)]
            fn post<D: SendDoorbell>(
                $batch: &mut SendBatch<'_, D>,
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
    WriteInline, "write_inline", false: |batch, id, flags, request| batch.write_inline(id, flags, request.remote, &request.data);
    // SAFETY: registered memory that lives as long as the queues, which nobody writes or relies on.
    Write, "write", false: |batch, id, flags, request| unsafe { batch.write(id, flags, request.remote, &[request.local]) };
    SendInline, "send_inline", true: |batch, id, flags, request| batch.send_inline(id, flags, &request.data);
    // SAFETY: as above.
    Send, "send", true: |batch, id, flags, request| unsafe { batch.send(id, flags, &[request.local]) };
    // SAFETY: as above.
    Read, "read", false: |batch, id, flags, request| unsafe { batch.read(id, flags, request.remote, &[request.local]) };
}

/// Ticks of [`POSTS`] work requests, `batch` a doorbell, of which those are signalled whose number has all bits of
/// `unsignalled`.
#[inline(never)]
fn post<O: Operation, D: SendDoorbell>(
    queue: &mut SendQueue<D>,
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

/// Ticks of [`POSTS`] completions, each given back to its queue by `retire`; `None` where one was not there yet.
#[inline(always)]
fn poll(queue: &mut CompletionQueue, mut retire: impl FnMut(&mlx5_dv::queue::Work) -> Option<u64>) -> Option<u64> {
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
fn poll_sends<D: SendDoorbell>(queue: &mut CompletionQueue, sender: &mut SendQueue<D>) -> Option<u64> {
    poll(queue, |work| sender.retire(work).ok())
}

#[inline(never)]
fn poll_receives(queue: &mut CompletionQueue, receiver: &mut ReceiveQueue) -> Option<u64> {
    poll(queue, |work| receiver.retire(work).ok())
}

/// Two connected queue pairs, the first sending to the second.
struct Bench<D: DoorbellMode> {
    sender: SendQueue<D>,
    receiver: ReceiveQueue,
    sent: CompletionQueue,
    received: CompletionQueue,
    requests: Box<[Request; REQUESTS]>,
    /// The column of the table that these figures are for.
    doorbell: String,
    /// Ticks between two looks at the counter.
    nothing: u64,
    /// What a round waits before it polls.
    pause: Duration,
    _memory: Arc<MemoryRegion>,
}

impl<D: DoorbellMode> Bench<D> {
    fn new(device: &Arc<Device>, uar: &Arc<Uar>, doorbell: &str) -> Result<Self, Failure> {
        let pd = Pd::alloc(device)?;
        let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
        let memory = MemoryRegion::allocate(&pd, 4096, access)?;
        let create_cq = || CompletionQueue::create(uar, CqOptions::default().entries(2 * POSTS as u32));
        let (sent, received) = (create_cq()?, create_cq()?);
        let options = QpOptions::default().wqes(DEPTH, DEPTH).inline_bytes(BYTES as u16);
        let create_qp = || QueuePair::create(&pd, uar, sent.cq(), received.cq(), options.clone());
        let (sender, receiver) = (create_qp()?, create_qp()?);
        let gid = device.gids().first().ok_or("the card has no GID")?;
        let path = AddressPath::new(gid.address.octets(), gid.mac);
        for (ours, theirs) in [(&sender, &receiver), (&receiver, &sender)] {
            ours.init(&InitAttributes::default())?;
            ours.ready_to_receive(&RtrAttributes::new(theirs.qpn(), 0, path))?;
            ours.ready_to_send(&RtsAttributes::new(0))?;
        }
        let request = |i: usize| {
            let (from, to) = (i * BYTES, 2048 + i * BYTES);
            Request {
                remote: memory.remote_at(to),
                local: memory.segment(from..from + BYTES),
                target: memory.segment(to..to + BYTES),
                data: std::array::from_fn(|j| (from + j) as u8),
            }
        };
        let requests = black_box(Box::new(std::array::from_fn(request)));
        let nothing = ticks();
        let nothing = ticks() - nothing;
        let (sender, receiver) = (sender.send_queue()?, receiver.receive_queue()?);
        let pause = Duration::from_millis(1);
        let doorbell = doorbell.to_owned();
        Ok(Bench { sender, receiver, sent, received, requests, doorbell, nothing, pause, _memory: memory })
    }

    /// Takes completions until all that was posted has completed, on both sides.
    fn drain(&mut self) -> Result<(), Failure> {
        let deadline = Instant::now() + PATIENCE;
        while self.sender.free() < self.sender.capacity() || self.receiver.free() < self.receiver.capacity() {
            let mut none = true;
            for queue in [&mut self.sent, &mut self.received] {
                let Some(completion) = queue.poll() else { continue };
                none = false;
                let work = completion?.work;
                match work.side {
                    Side::Send => self.sender.retire(&work)?,
                    Side::Receive => self.receiver.retire(&work)?,
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
        println!("{row} {} {:.2}", self.doorbell, (samples[ROUNDS / 2] - self.nothing) as f64 / POSTS as f64);
    }

    fn measure_post<O: Operation>(&mut self) -> Result<(), Failure> {
        for batch in [1, 4, 16, 64] {
            for signal in [1, POSTS] {
                let mut samples = Vec::with_capacity(WARM_UP + ROUNDS);
                while samples.len() < WARM_UP + ROUNDS {
                    if O::RECEIVED {
                        post_receives(&mut self.receiver, &self.requests, 1)?;
                    }
                    samples.push(post::<O, D>(&mut self.sender, &self.requests, batch, signal - 1)?);
                    self.drain()?;
                }
                self.report(&format!("{}/{batch}/{signal}", O::NAME), samples);
            }
        }
        Ok(())
    }

    fn measure_receive(&mut self) -> Result<(), Failure> {
        for batch in [1, 4, 16, 64] {
            let mut samples = Vec::with_capacity(WARM_UP + ROUNDS);
            while samples.len() < WARM_UP + ROUNDS {
                samples.push(post_receives(&mut self.receiver, &self.requests, batch)?);
                post::<Send, D>(&mut self.sender, &self.requests, 64, 0)?;
                self.drain()?;
            }
            self.report(&format!("receive/{batch}"), samples);
        }
        Ok(())
    }

    /// Rounds in which a completion came late do not count.
    fn measure_poll(&mut self, row: &str, poll: fn(&mut Self) -> Option<u64>) -> Result<(), Failure> {
        let mut samples = Vec::with_capacity(WARM_UP + ROUNDS);
        let deadline = Instant::now() + PATIENCE;
        while samples.len() < WARM_UP + ROUNDS {
            post_receives(&mut self.receiver, &self.requests, 1)?;
            post::<Send, D>(&mut self.sender, &self.requests, 64, 0)?;
            sleep(self.pause);
            match poll(self) {
                Some(ticks) => samples.push(ticks),
                None if Instant::now() > deadline => return Err("completions are always late".into()),
                None => self.pause = (self.pause * 2).min(Duration::from_millis(100)),
            }
            self.drain()?;
        }
        self.report(row, samples);
        Ok(())
    }

    fn measure_all(&mut self) -> Result<(), Failure> {
        self.measure_post::<WriteInline>()?;
        self.measure_post::<Write>()?;
        self.measure_post::<SendInline>()?;
        self.measure_post::<Send>()?;
        self.measure_post::<Read>()?;
        self.measure_receive()?;
        for width in [1, 16] {
            self.measure_poll(&format!("poll_send/{width}"), |bench| poll_sends(&mut bench.sent, &mut bench.sender))?;
        }
        for width in [1, 16] {
            self.measure_poll(&format!("poll_receive/{width}"), |bench| {
                poll_receives(&mut bench.received, &mut bench.receiver)
            })?;
        }
        Ok(())
    }
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [device, doorbell] = &arguments[..] else {
        return Err("usage: side_by_side_ours DEVICE plain|blueflame".into());
    };
    let device = mlx5_open::open(device)?;
    match doorbell.as_str() {
        "plain" => Bench::<Plain>::new(&device, &Uar::alloc(&device)?, doorbell)?.measure_all(),
        "blueflame" => Bench::<BlueFlame>::new(&device, &Uar::alloc_write_combining(&device)?, doorbell)?.measure_all(),
        other => Err(format!("{other:?} is no doorbell: plain or blueflame").into()),
    }
}
