//! The ends: queues and their threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use mlx5_dv::objects::{Buffer, ExclusiveRegion, Pd, QueueCounter};
use mlx5_dv::queue::ethernet::{EthernetOptions, EthernetQueue, FrameFlags, ReceivedFrame, Spread, SpreadOptions};
use mlx5_dv::queue::{PostError, RefusedReason, Side};
use mlx5_dv::{ClockRate, Device, Mac, Timestamp};

use super::report::Row;
use crate::output::Failure;
use crate::perf::report::Latencies;

/// Buffers of a queue, of each direction.
const DEPTH: u32 = 512;
/// Bytes of the check sequence, which the port adds.
const CHECK: usize = 4;
/// Timeout of anything that must happen.
const PATIENCE: Duration = Duration::from_secs(60);
/// Without the other end in this process: how long nothing may arrive until the stream counts as ended.
const IDLE: Duration = Duration::from_secs(2);
/// Empty polls between two reads of the clock.
const POLLS: u32 = 1024;
/// Where the UDP source port, which names the flow, is in a frame.
const SOURCE_PORT: usize = 34;

/// The frames of a measurement.
pub struct Load {
    /// Bytes of a frame, with its check sequence.
    pub size: usize,
    /// Their number.
    pub frames: u64,
    /// Frames with one doorbell.
    pub burst: usize,
    /// UDP flows.
    pub flows: u16,
}

impl Load {
    /// The frames of queue `index`, of `count`.
    fn share(&self, index: usize, count: u64) -> u64 {
        self.frames / count + u64::from((index as u64) < self.frames % count)
    }
}

/// How threads that receive know the end.
#[derive(Default)]
pub struct Stop {
    /// Frames that have arrived, on all queues.
    arrived: AtomicU64,
    /// Frames that were not sent back, as there was no room.
    dropped: AtomicU64,
    /// The sender is in this process and has told the end.
    is_over: AtomicBool,
    /// It is in this process.
    is_told: bool,
}

/// A queue and its buffers.
struct TestQueue {
    queue: EthernetQueue,
    /// Buffers that are in no queue, and of these the next to be posted or sent.
    free: Vec<Buffer>,
    next: Vec<Buffer>,
    /// The flow of the next frame that is sent.
    flow: u16,
    received: Vec<ReceivedFrame>,
    /// Receives to keep posted.
    receives: usize,
}

/// An end: queues of one function.
pub struct End {
    queues: Vec<TestQueue>,
    // Before what it names.
    _spread: Spread,
    counter: Arc<QueueCounter>,
    rate: ClockRate,
    mac: Mac,
}

/// What one thread counted.
#[derive(Default, Clone, Copy)]
struct Counted {
    frames: u64,
    /// Times of the first and the last completion.
    times: Option<(Timestamp, Timestamp)>,
}

impl Counted {
    #[inline(always)]
    fn add(&mut self, time: Timestamp) {
        self.frames += 1;
        let (first, _) = self.times.unwrap_or((time, time));
        self.times = Some((first, time));
    }
}

impl End {
    /// `count` queues of `device`, with receives posted.
    pub fn new(device: &Arc<Device>, count: usize, load: &Load) -> Result<Self, Failure> {
        let pd = Pd::alloc(device)?;
        let counter = QueueCounter::alloc(device)?;
        let mut options = EthernetOptions::default();
        (options.send_depth, options.recv_depth) = (DEPTH, DEPTH);
        options.counter = Some(Arc::clone(&counter));
        let queues = EthernetQueue::several(&pd, count, &options)?;
        let longest = queues.first().map_or(0, |queue| queue.sq().longest_frame());
        if load.size - CHECK > longest {
            let most = longest + CHECK;
            return Err(format!("-s {}: frames of this port have up to {most} bytes (its MTU)", load.size).into());
        }
        let spread = Spread::listen(&queues, &[], SpreadOptions::default())?;
        let queues = queues.into_iter().map(|queue| TestQueue::new(&pd, queue)).collect::<Result<_, _>>()?;
        Ok(End { queues, _spread: spread, counter, rate: device.clock_rate()?, mac: device.mac() })
    }

    /// Runs `work` on a thread for each queue.
    fn each(
        &mut self,
        work: impl Fn(usize, &mut TestQueue) -> Result<Counted, Failure> + Sync,
    ) -> Result<Vec<Counted>, Failure> {
        let work = &work;
        std::thread::scope(|scope| {
            let queues = self.queues.iter_mut().enumerate();
            let threads: Vec<_> = queues.map(|(index, queue)| scope.spawn(move || work(index, queue))).collect();
            threads.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked")?).collect()
        })
    }

    fn row(&self, load: &Load, counted: &[Counted]) -> Row {
        let frames = counted.iter().map(|counted| counted.frames).sum();
        // The earliest first and the latest last: clocks of one card.
        let times = counted.iter().filter_map(|counted| counted.times);
        let all = times.reduce(|(first, last), (other, end)| (first.min(other), last.max(end)));
        let seconds = all.map_or(0.0, |(first, last)| self.rate.between(first, last).as_secs_f64());
        Row { size: load.size, frames, lost: None, seconds, latency: None }
    }

    /// Sends all frames.
    pub fn transmit(mut self, to: Mac, load: &Load) -> Result<Row, Failure> {
        let (count, mac) = (self.queues.len() as u64, self.mac);
        let frame = frame(to, mac, load.size);
        let counted = self.each(|index, queue| queue.transmit(&frame, load.share(index, count), load))?;
        Ok(self.row(load, &counted))
    }

    /// Sends all frames, and takes those that come back.
    fn bounce(&mut self, to: Mac, load: &Load, stop: &Stop) -> Result<Vec<Counted>, Failure> {
        let (count, mac) = (self.queues.len() as u64, self.mac);
        let frame = frame(to, mac, load.size);
        self.each(|index, queue| queue.bounce(&frame, load.share(index, count), load, stop))
    }

    /// Receives until the end.
    pub fn receive(mut self, load: &Load, stop: &Stop) -> Result<Row, Failure> {
        let before = self.counter.out_of_buffer()?;
        let counted = self.each(|_, queue| queue.take(load, stop, false))?;
        let lost = self.counter.out_of_buffer()?.wrapping_sub(before);
        Ok(Row { lost: Some(lost.into()), ..self.row(load, &counted) })
    }

    /// Sends back what arrives. What it had no room to send counts as lost, too.
    pub fn forward(mut self, load: &Load, stop: &Stop) -> Result<Row, Failure> {
        let before = self.counter.out_of_buffer()?;
        let counted = self.each(|_, queue| queue.take(load, stop, true))?;
        let lost = u64::from(self.counter.out_of_buffer()?.wrapping_sub(before));
        let dropped = stop.dropped.load(Ordering::Relaxed);
        Ok(Row { lost: Some(lost + dropped), ..self.row(load, &counted) })
    }

    /// Sends frames one by one, each of which comes back.
    pub fn latency(mut self, to: Mac, load: &Load) -> Result<Row, Failure> {
        let (rate, mac) = (self.rate, self.mac);
        let mut times = Histogram::new(3)?;
        let queue = self.queues.first_mut().ok_or("no queue")?;
        let mut counted = Counted::default();
        let frame = frame(to, mac, load.size);
        for _ in 0..load.frames {
            let (sent, back) = queue.exchange(&frame)?;
            times.record(rate.between(sent, back).as_nanos() as u64)?;
            counted.add(back);
        }
        let latency = Some(Latencies::of(load.size, &times, 1)?);
        Ok(Row { latency, ..self.row(load, &[counted]) })
    }
}

/// One end sends, the other receives.
pub fn stream(sender: End, receiver: End, to: Mac, load: &Load) -> Result<Row, Failure> {
    let stop = Stop { is_told: true, ..Stop::default() };
    let counter = Arc::clone(&receiver.counter);
    let before = counter.out_of_buffer()?;
    std::thread::scope(|scope| {
        let receiving = scope.spawn(|| receiver.receive(load, &stop));
        let sent = sender.transmit(to, load);
        // Each frame has arrived, or was counted as lost.
        let begin = Instant::now();
        while sent.is_ok() && begin.elapsed() < PATIENCE && !receiving.is_finished() {
            let lost = counter.out_of_buffer()?.wrapping_sub(before);
            if stop.arrived.load(Ordering::Relaxed) + u64::from(lost) >= load.frames {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        stop.is_over.store(true, Ordering::Relaxed);
        let row = receiving.join().map_err(|_| "the receiver panicked")?;
        sent?;
        row
    })
}

/// One end sends as fast as it can, the other sends back. Counts what comes back, and as lost what does not.
pub fn reflect(mut sender: End, other: End, to: Mac, load: &Load) -> Result<Row, Failure> {
    let told = || Stop { is_told: true, ..Stop::default() };
    let (there, back) = (told(), told());
    let counters = [&sender, &other].map(|end| Arc::clone(&end.counter));
    let lost = || counters.iter().map(|counter| counter.out_of_buffer()).sum::<Result<u32, _>>();
    let before = lost()?;
    let (sender, counted) = std::thread::scope(|scope| {
        let forwarding = scope.spawn(|| other.forward(load, &there));
        let sending = scope.spawn(|| sender.bounce(to, load, &back).map(|counted| (sender, counted)));
        let gone = || Ok::<_, Failure>(u64::from(lost()?.wrapping_sub(before)) + there.dropped.load(Ordering::Relaxed));
        let watched = watch(
            load.frames,
            || sending.is_finished() || forwarding.is_finished(),
            || Ok(back.arrived.load(Ordering::Relaxed) + gone()?),
        );
        for stop in [&there, &back] {
            stop.is_over.store(true, Ordering::Relaxed);
        }
        let counted = sending.join().map_err(|_| "the sender panicked")?;
        forwarding.join().map_err(|_| "the other end panicked")??;
        watched.and(counted)
    })?;
    let row = sender.row(load, &counted);
    // On a wire, frames of others may look like ours.
    Ok(Row { lost: Some(load.frames.saturating_sub(row.frames)), ..row })
}

/// Waits until `count` has reached `frames`, or has not moved for [`IDLE`] after it first did: a wire loses frames that
/// no card counts. Ends early when it `is_over`.
fn watch(frames: u64, is_over: impl Fn() -> bool, count: impl Fn() -> Result<u64, Failure>) -> Result<(), Failure> {
    let (mut last, mut moved) = (0, Instant::now());
    loop {
        let now = count()?;
        if now > last {
            (last, moved) = (now, Instant::now());
        }
        let patience = if last == 0 { PATIENCE } else { IDLE };
        if now >= frames || is_over() || moved.elapsed() > patience {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// One end sends, the other sends back.
pub fn ping_pong(sender: End, other: End, to: Mac, load: &Load) -> Result<Row, Failure> {
    let stop = Stop { is_told: true, ..Stop::default() };
    std::thread::scope(|scope| {
        let forwarding = scope.spawn(|| other.forward(load, &stop));
        let row = sender.latency(to, load);
        stop.is_over.store(true, Ordering::Relaxed);
        forwarding.join().map_err(|_| "the other end panicked")??;
        row
    })
}

impl Stop {
    /// Whether a thread ends that has received nothing since `last`, the time of its last frame.
    fn is_now(&self, load: &Load, last: Option<Instant>, begin: Instant) -> Result<bool, Failure> {
        if self.is_over.load(Ordering::Relaxed) {
            return Ok(true);
        }
        let arrived = self.arrived.load(Ordering::Relaxed);
        match (self.is_told, arrived, last) {
            (true, ..) => Ok(false),
            (false, 0, _) if begin.elapsed() > PATIENCE => {
                Err(format!("no frame arrived within {} s", PATIENCE.as_secs()).into())
            }
            (false, 0, _) => Ok(false),
            (false, ..) => Ok(arrived >= load.frames || last.unwrap_or(begin).elapsed() > IDLE),
        }
    }
}

impl TestQueue {
    fn new(pd: &Arc<Pd>, queue: EthernetQueue) -> Result<Self, Failure> {
        let len = queue.sq().longest_frame().next_multiple_of(64);
        let mut free = ExclusiveRegion::allocate(pd, 2 * DEPTH as usize * len)?.buffers(len)?;
        free.truncate(2 * DEPTH as usize);
        let mut this =
            TestQueue { queue, free, next: Vec::new(), flow: 0, received: Vec::new(), receives: DEPTH as usize };
        this.post()?;
        Ok(this)
    }

    /// Posts receives up to their number.
    fn post(&mut self) -> Result<(), Failure> {
        let missing = self.receives - self.queue.in_flight().1;
        self.take_next(missing);
        Ok(self.queue.receives().receive_each(&mut self.next)?)
    }

    /// Makes up to `count` free buffers the next.
    fn take_next(&mut self, count: usize) {
        let left = self.free.len().saturating_sub(count);
        self.next.extend(self.free.drain(left..));
    }

    /// Sends `frame` `count` times, of each flow in turn.
    fn transmit(&mut self, frame: &[u8], count: u64, load: &Load) -> Result<Counted, Failure> {
        self.fill(frame);
        let (mut sent, mut counted, mut last) = (0, Counted::default(), Instant::now());
        while counted.frames < count {
            sent += self.send_burst(count - sent, load)?;
            let before = counted.frames;
            while let Some(done) = self.queue.poll()? {
                let told = done.result?;
                if told.work.side == Side::Send {
                    counted.add(told.timestamp);
                    self.free.extend(done.buffer);
                } else if let Some(buffer) = done.buffer {
                    // Broadcasts of others.
                    self.queue.receive(buffer)?;
                }
            }
            if counted.frames > before {
                last = Instant::now();
            } else if last.elapsed() > PATIENCE {
                return Err(format!("{} of {sent} frames that were sent completed", counted.frames).into());
            }
        }
        Ok(counted)
    }

    /// Sends `frame` as [`transmit`](Self::transmit) does, and takes what comes back until the end. Returns what has
    /// come back.
    fn bounce(&mut self, frame: &[u8], count: u64, load: &Load, stop: &Stop) -> Result<Counted, Failure> {
        self.fill(frame);
        let (mut left, mut completed, mut counted, mut last) = (count, 0, Counted::default(), Instant::now());
        loop {
            left -= self.send_burst(left, load)?;
            let before = (completed, counted.frames);
            while let Some(mut done) = self.queue.poll()? {
                let is_back = done.received().is_some_and(|frame| is_ours(frame, load));
                let (told, buffer) = (done.result?, done.buffer.take());
                if told.work.side == Side::Send {
                    completed += 1;
                    self.free.extend(buffer);
                } else if let Some(buffer) = buffer {
                    if is_back {
                        counted.add(told.timestamp);
                    }
                    self.queue.receive(buffer)?;
                }
            }
            stop.arrived.fetch_add(counted.frames - before.1, Ordering::Relaxed);
            if (completed, counted.frames) != before {
                last = Instant::now();
            } else if completed == count && stop.is_over.load(Ordering::Relaxed) {
                return Ok(counted);
            } else if last.elapsed() > PATIENCE {
                return Err(format!("{completed} of {count} frames were sent within {} s", PATIENCE.as_secs()).into());
            }
        }
    }

    /// Writes `frame` to the free buffers. What tells the flows apart is written when it is sent: the buffers may be
    /// fewer, and are not used in turn.
    fn fill(&mut self, frame: &[u8]) {
        self.flow = 0;
        for buffer in &mut self.free {
            buffer.set_len(frame.len());
            buffer.as_mut_slice().copy_from_slice(frame);
        }
    }

    /// Sends a burst of the `left` frames, if there is room for a whole one or the last, and returns its frames.
    fn send_burst(&mut self, left: u64, load: &Load) -> Result<u64, Failure> {
        let burst = load.burst;
        let room = (DEPTH as usize - self.queue.in_flight().0).min(self.free.len()).min(burst);
        let now = room.min(usize::try_from(left).unwrap_or(usize::MAX));
        if now == 0 || now < burst && (now as u64) < left {
            return Ok(0);
        }
        self.take_next(now);
        for buffer in &mut self.next {
            buffer.as_mut_slice()[SOURCE_PORT..SOURCE_PORT + 2].copy_from_slice(&source_port(self.flow));
            self.flow = if self.flow + 1 < load.flows { self.flow + 1 } else { 0 };
        }
        self.queue.batch().send_each(&mut self.next, FrameFlags::empty())?;
        Ok(now as u64)
    }

    /// Takes frames until the end, and sends them back if it `forwards`.
    fn take(&mut self, load: &Load, stop: &Stop, forwards: bool) -> Result<Counted, Failure> {
        let (mut counted, begin) = (Counted::default(), Instant::now());
        let (mut last, mut empty) = (None, 0);
        loop {
            let before = counted.frames;
            if let Some(failed) = self.queue.poll_into(&mut self.received, &mut self.free, load.burst)? {
                failed.result?;
            }
            for ReceivedFrame { mut buffer, completion } in self.received.drain(..) {
                let is_ours = is_ours(buffer.as_slice(), load);
                if is_ours {
                    counted.add(completion.timestamp);
                }
                if is_ours && forwards {
                    let (to, from) = buffer.as_mut_slice().split_at_mut(6);
                    to.swap_with_slice(&mut from[..6]);
                    self.next.push(buffer);
                } else {
                    self.free.push(buffer);
                }
            }
            match self.queue.batch().send_each(&mut self.next, FrameFlags::empty()) {
                Ok(()) => {}
                // What finds no room does not come back.
                Err(RefusedReason::Post(PostError::Full(_))) => {
                    stop.dropped.fetch_add(self.next.len() as u64, Ordering::Relaxed);
                    self.free.append(&mut self.next);
                }
                Err(refused) => return Err(refused.into()),
            }
            self.post()?;
            if counted.frames > before {
                stop.arrived.fetch_add(counted.frames - before, Ordering::Relaxed);
                (last, empty) = (None, 0);
                continue;
            }
            empty += 1;
            if empty % POLLS == 0 {
                let since = *last.get_or_insert_with(Instant::now);
                if stop.is_now(load, Some(since), begin)? {
                    return Ok(counted);
                }
                std::thread::yield_now();
            }
        }
    }

    /// Sends `frame`, and waits until it comes back: when the card had sent it, and when it had it again.
    fn exchange(&mut self, frame: &[u8]) -> Result<(Timestamp, Timestamp), Failure> {
        let mut buffer = self.free.pop().ok_or("no buffer")?;
        buffer.set_len(frame.len());
        buffer.as_mut_slice().copy_from_slice(frame);
        self.queue.send(buffer, FrameFlags::empty())?;
        let (mut sent, mut back, begin) = (None, None, Instant::now());
        let mut empty = 0;
        loop {
            let Some(done) = self.queue.poll()? else {
                empty += 1;
                if empty % POLLS == 0 && begin.elapsed() > PATIENCE {
                    return Err(format!("a frame did not come back within {} s", PATIENCE.as_secs()).into());
                }
                std::hint::spin_loop();
                continue;
            };
            let told = done.result?;
            match told.work.side {
                Side::Send => sent = Some(told.timestamp),
                Side::Receive if done.received().is_some_and(|heard| heard.get(12..) == frame.get(12..)) => {
                    back = Some(told.timestamp);
                }
                Side::Receive => {}
            }
            self.free.extend(done.buffer);
            self.post()?;
            if let (Some(sent), Some(back)) = (sent, back) {
                return Ok((sent, back));
            }
        }
    }
}

/// Whether it is a frame of the measurement, or what else may be on a wire.
fn is_ours(frame: &[u8], load: &Load) -> bool {
    frame.len() == load.size - CHECK && frame.get(12..14) == Some(&[8, 0])
}

/// The UDP source port of a flow, as frames have it.
fn source_port(flow: u16) -> [u8; 2] {
    (1024 + flow).to_be_bytes()
}

/// A frame of `size` bytes with its check sequence, of the first flow: a UDP datagram over IPv4, without a checksum of
/// its own.
fn frame(to: Mac, from: Mac, size: usize) -> Vec<u8> {
    let ip_len = (size - CHECK - 14) as u16;
    let mut ip = [0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1];
    ip[2..4].copy_from_slice(&ip_len.to_be_bytes());
    let sum: u32 = ip.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut frame = [&to.0[..], &from.0, &[8, 0], &ip, &[0, 0, 0, 9], &(ip_len - 20).to_be_bytes(), &[0, 0]].concat();
    frame.resize(size - CHECK, 0x5a);
    frame[SOURCE_PORT..SOURCE_PORT + 2].copy_from_slice(&source_port(0));
    frame
}
