//! Cost of posting and polling with mlx5-dv: `side_by_side_ours DEVICE plain|blueflame`.
//!
//! Does the same as verbs.c, in the same order, and prints the same lines: "row api instructions-per-operation". The
//! time stamp counter serves as an instruction counter, as it does under QEMU's `-icount`.

mod hub;
mod keys;
mod many;
mod stage;

use std::ops::Range;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use mlx5_benches::{Failure, completion, connect};
use mlx5_dv::objects::{
    CqOptions, DatagramAttributes, Dct, DctOptions, DoorbellMode, FlowMatch, FlowMatcher, FlowRule, InitAttributes,
    InitiatorAttributes, QpOptions, QueuePair, Rq, RqOptions, RtrAttributes, RtsAttributes, Sq, SqOptions, Srq,
    SrqOptions, Tir, Tis, TransportDomain, Uar, XrcTarget, Xrcd,
};
use mlx5_dv::queue;
use mlx5_dv::queue::ethernet::{EthernetReceiveQueue, FrameFlags, Frames};
use mlx5_dv::queue::{
    BlueFlame, CompletionQueue, Datagrams, DynamicMessages, ExtendedMessages, GRH, Messages, Plain, PostError,
    ReceiveQueue, RemoteSrq, RetireError, SendBatch, SendDoorbell, SendQueue, Service, Shared, SharedReceiveQueue,
    Work, WrFlags,
};
use mlx5_prm::values::PathMtu;

use stage::{
    ACCESS_KEY, BYTES, Common, DEPTH, ETHERTYPE, HEADER, PATIENCE, POSTS, QKEY, REQUESTS, ROUNDS, Request, WARM_UP,
    of_nothing, poll, report, ticks,
};

/// A receive queue of any kind.
trait Receiver {
    /// Posts receives of `requests` numbered `range`, and rings.
    ///
    /// # Safety
    /// As for [`ReceiveBatch::receive`](mlx5_dv::queue::ReceiveBatch::receive).
    unsafe fn post(&mut self, requests: &[Request; REQUESTS], range: Range<usize>) -> Result<(), PostError>;
    fn retire(&mut self, work: &Work) -> Result<u64, RetireError>;
    fn is_idle(&self) -> bool;
}

macro_rules! receivers {
    ($($Queue:ident)*) => {$(
        impl Receiver for $Queue {
            #[inline(always)]
            unsafe fn post(&mut self, requests: &[Request; REQUESTS], range: Range<usize>) -> Result<(), PostError> {
                let mut some = self.batch();
                for i in range {
                    // SAFETY: the caller's promise.
                    unsafe { some.receive(i as u64, &[requests[i % REQUESTS].target])? };
                }
                some.ring();
                Ok(())
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

receivers! { ReceiveQueue EthernetReceiveQueue SharedReceiveQueue }

/// An operation, posted to a queue of service `S`.
trait Operation<S: Service> {
    const NAME: &'static str;
    /// Whether it uses a receive of the remote end.
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
    Messages, FetchAdd, "fetch_add", false:
        // SAFETY: as above.
        |batch, id, flags, request| unsafe { batch.fetch_add(id, flags, request.remote, 1, request.found) };
    Messages, CompareSwap, "compare_swap", false:
        // SAFETY: as above.
        |batch, id, flags, request| unsafe { batch.compare_swap(id, flags, request.remote, 1, 2, request.found) };
    Messages, MaskedAdd, "masked_add", false:
        // SAFETY: as above.
        |batch, id, flags, request| unsafe {
            let add = queue::MaskedAdd { add: 1u64, boundaries: 1 << 31 };
            batch.masked_fetch_add(id, flags, request.remote, add, request.found)
        };
    Messages, MaskedSwap, "masked_swap", false:
        // SAFETY: as above.
        |batch, id, flags, request| unsafe {
            let swap = queue::MaskedSwap { compare: 1u64, compare_mask: 0xff, swap: 2, swap_mask: 0xff00 };
            batch.masked_compare_swap(id, flags, request.remote, swap, request.found)
        };
    Datagrams, DatagramInline, "ud_inline", true:
        |batch, id, flags, request| batch.send_inline(id, flags, &request.to, &request.data);
    Datagrams, Datagram, "ud", true:
        // SAFETY: as above.
        |batch, id, flags, request| unsafe { batch.send(id, flags, &request.to, &[request.local]) };
    DynamicMessages, DynamicInline, "dc_inline", false:
        |batch, id, flags, request| {
            batch.write_inline(id, flags, &request.target_of_dc, request.remote, &request.data)
        };
    DynamicMessages, Dynamic, "dc", false:
        // SAFETY: as above.
        |batch, id, flags, request| unsafe {
            batch.write(id, flags, &request.target_of_dc, request.remote, &[request.local])
        };
    ExtendedMessages, ExtendedInline, "xrc_inline", true:
        |batch, id, flags, request| batch.send_inline(id, flags, request.to_srq, &request.data);
    ExtendedMessages, Extended, "xrc", true:
        // SAFETY: as above.
        |batch, id, flags, request| unsafe { batch.send(id, flags, request.to_srq, &[request.local]) };
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

/// Ticks for [`POSTS`] work requests, with a doorbell for each `batch`. Signaled are those whose number has all bits of
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
        // SAFETY: registered memory that lives as long as the queues, which nobody relies on.
        unsafe { queue.post(requests, first..first + batch)? };
        first += batch;
    }
    Ok(ticks() - start)
}

#[inline(never)]
fn poll_sends<S: Service, D: SendDoorbell>(
    queue: &mut CompletionQueue,
    width: usize,
    sender: &mut SendQueue<D, S>,
) -> Option<u64> {
    poll(queue, width, |completion| sender.retire(&completion.work).ok())
}

#[inline(never)]
fn poll_receives<R: Receiver>(queue: &mut CompletionQueue, width: usize, receiver: &mut R) -> Option<u64> {
    poll(queue, width, |completion| receiver.retire(&completion.work).ok())
}

/// A send queue, and the receive queue that it sends to.
struct Bench<S: Service, D: SendDoorbell, R> {
    sender: SendQueue<D, S>,
    receiver: R,
    sent: CompletionQueue,
    received: CompletionQueue,
    requests: Box<[Request; REQUESTS]>,
    /// Ticks between two reads of the counter.
    nothing: u64,
    /// Wait of a round before it polls.
    pause: Duration,
    /// Flow rule that sends frames to the receiver.
    _rule: Option<FlowRule>,
    /// Whose messages the receiver takes, where that is not it.
    _receiver: Option<Arc<QueuePair>>,
    /// Target of dynamically connected messages.
    _target: Option<Arc<Dct>>,
    /// Target of an extended reliable connection.
    _extended: Option<Arc<XrcTarget>>,
}

impl<D: DoorbellMode> Bench<Messages, D, ReceiveQueue> {
    /// Two connected queue pairs, the first sending to the second.
    fn connected(common: &Common) -> Result<Self, Failure> {
        let (sent, received) = (common.cq()?, common.cq()?);
        let options = QpOptions::default().wqes(DEPTH, DEPTH).inline_bytes(BYTES as u16);
        let create_qp = || QueuePair::create(&common.pd, &common.uar, sent.cq(), received.cq(), options.clone());
        let (sender, receiver) = (create_qp()?, create_qp()?);
        connect(&sender, receiver.qpn(), PathMtu::Mtu1024)?;
        connect(&receiver, sender.qpn(), PathMtu::Mtu1024)?;
        let requests = common.requests(&[], receiver.qpn(), BYTES)?;
        Ok(Bench::new(sender.send_queue()?, receiver.receive_queue()?, sent, received, requests))
    }
}

impl<D: DoorbellMode> Bench<Messages, D, SharedReceiveQueue> {
    /// As [`Bench::connected`]; the receives are of a shared receive queue.
    fn sharing(common: &Common) -> Result<Self, Failure> {
        let (sent, received) = (common.cq()?, common.cq()?);
        let srq = Srq::create(&common.pd, SrqOptions::default().wqes(DEPTH - 1))?;
        let options = QpOptions::default().wqes(DEPTH, 0).inline_bytes(BYTES as u16).srq(&srq);
        let create_qp = || QueuePair::create(&common.pd, &common.uar, sent.cq(), received.cq(), options.clone());
        let (sender, receiver) = (create_qp()?, create_qp()?);
        connect(&sender, receiver.qpn(), PathMtu::Mtu1024)?;
        connect(&receiver, sender.qpn(), PathMtu::Mtu1024)?;
        let requests = common.requests(&[], receiver.qpn(), BYTES)?;
        let mut bench = Bench::new(sender.send_queue()?, srq.receive_queue()?, sent, received, requests);
        bench._receiver = Some(receiver);
        Ok(bench)
    }
}

impl<D: DoorbellMode> Bench<DynamicMessages, D, SharedReceiveQueue> {
    /// A dynamically connected initiator and its target.
    fn dynamic(common: &Common) -> Result<Self, Failure> {
        let (sent, received) = (common.cq()?, common.cq()?);
        let srq = Srq::create(&common.pd, SrqOptions::default().wqes(DEPTH - 1))?;
        let target = Dct::create(&common.pd, &srq, received.cq(), &DctOptions::new(ACCESS_KEY))?;
        let options = QpOptions::default().wqes(DEPTH, 0).inline_bytes(BYTES as u16).dc_initiator();
        let sender = QueuePair::create(&common.pd, &common.uar, sent.cq(), sent.cq(), options)?;
        sender.activate_initiator(&InitiatorAttributes::default())?;
        let requests = common.requests(&[], target.dctn(), BYTES)?;
        let bench = Bench::new(sender.dc_send_queue()?, srq.receive_queue()?, sent, received, requests);
        Ok(Bench { _target: Some(target), ..bench })
    }
}

impl<D: DoorbellMode> Bench<ExtendedMessages, D, SharedReceiveQueue> {
    /// An initiator, its target, and the shared receive queue that its messages name.
    fn extended(common: &Common) -> Result<Self, Failure> {
        let options = CqOptions::default().entries(2 * POSTS as u32).for_xrc();
        let (sent, received) = (common.cq()?, CompletionQueue::create(&common.uar, options)?);
        let domain = Xrcd::alloc(&common.device)?;
        let srq = Srq::create_xrc(&common.pd, &domain, received.cq(), SrqOptions::default().wqes(DEPTH - 1))?;
        let target = XrcTarget::create(&common.pd, &common.uar, received.cq(), &domain)?;
        let options = QpOptions::default().wqes(DEPTH, 0).inline_bytes(BYTES as u16).xrc_initiator(&domain);
        let sender = QueuePair::create(&common.pd, &common.uar, sent.cq(), sent.cq(), options)?;
        let rtr = |qpn| RtrAttributes { path_mtu: Some(PathMtu::Mtu1024), ..RtrAttributes::new(qpn, 0, common.path) };
        target.init(&InitAttributes::default())?;
        target.ready_to_receive(&rtr(sender.qpn()))?;
        sender.init(&InitAttributes::default())?;
        sender.ready_to_receive(&rtr(target.qpn()))?;
        sender.ready_to_send(&RtsAttributes::new(0))?;
        let mut requests = common.requests(&[], target.qpn(), BYTES)?;
        let to_srq = RemoteSrq::new(srq.srqn()).ok_or("an SRQ's number has 24 bits")?;
        requests.iter_mut().for_each(|request| request.to_srq = to_srq);
        let bench = Bench::new(sender.xrc_send_queue()?, srq.receive_queue()?, sent, received, requests);
        Ok(Bench { _extended: Some(target), ..bench })
    }
}

impl<D: DoorbellMode> Bench<Datagrams, D, ReceiveQueue> {
    /// Two UD queue pairs.
    fn datagrams(common: &Common) -> Result<Self, Failure> {
        let (sent, received) = (common.cq()?, common.cq()?);
        let options = QpOptions::default().datagrams().wqes(DEPTH, DEPTH).inline_bytes(BYTES as u16);
        let create_qp = || QueuePair::create(&common.pd, &common.uar, sent.cq(), received.cq(), options.clone());
        let (sender, receiver) = (create_qp()?, create_qp()?);
        for qp in [&sender, &receiver] {
            qp.activate(&DatagramAttributes::new(QKEY))?;
        }
        let requests = common.requests(&[], receiver.qpn(), GRH + BYTES)?;
        let (sender, receiver) = (sender.datagram_send_queue()?, receiver.receive_queue()?);
        Ok(Bench::new(sender, receiver, sent, received, requests))
    }
}

impl<D: DoorbellMode> Bench<Frames, D, EthernetReceiveQueue> {
    /// A send queue of frames, in its own transport domain, as a domain does not receive its own frames, and a receive
    /// queue.
    fn frames(common: &Common) -> Result<Self, Failure> {
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
        let bench = Bench::new(sq.send_queue()?, rq.receive_queue()?, sent, received, requests);
        Ok(Bench { _rule: Some(rule), ..bench })
    }
}

/// Steers frames of our type to the device's own address to `tir`.
fn steer(tir: &Arc<Tir>) -> Result<FlowRule, Failure> {
    let matched = FlowMatch::new().destination_mac(tir.device().mac()).ethertype(ETHERTYPE);
    let matcher = FlowMatcher::create(tir.device(), 0, &matched)?;
    Ok(FlowRule::beside_kernel(&matcher, &matched, tir)?)
}

impl<S: Service, D: SendDoorbell, R: Receiver> Bench<S, D, R> {
    fn new(
        sender: SendQueue<D, S>,
        receiver: R,
        sent: CompletionQueue,
        received: CompletionQueue,
        requests: Box<[Request; REQUESTS]>,
    ) -> Self {
        let nothing = of_nothing();
        let pause = Duration::from_millis(1);
        Bench {
            sender,
            receiver,
            sent,
            received,
            requests,
            nothing,
            pause,
            _rule: None,
            _receiver: None,
            _target: None,
            _extended: None,
        }
    }

    /// Polls until everything posted has completed, on both sides.
    fn drain(&mut self) -> Result<(), Failure> {
        while self.sender.free() < self.sender.capacity() {
            self.sender.retire(&completion(&mut self.sent)?.work)?;
        }
        while !self.receiver.is_idle() {
            self.receiver.retire(&completion(&mut self.received)?.work)?;
        }
        Ok(())
    }

    fn report(&self, row: &str, samples: Vec<u64>) {
        report(row, self.nothing, samples);
    }

    /// [`POSTS`] receives, with a doorbell record for each `batch`: the ticks.
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

    /// Receives, each used by an `O`.
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

    /// `poll` polls that many at a time. Rounds in which a completion is late do not count.
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

fn measure_all<D: DoorbellMode>(common: &Common) -> Result<(), Failure>
where
    Shared<D>: DoorbellMode,
{
    let mut connected = Bench::<Messages, D, _>::connected(common)?;
    connected.measure_post::<WriteInline>()?;
    connected.measure_post::<Write>()?;
    connected.measure_post::<SendInline>()?;
    connected.measure_post::<Send>()?;
    connected.measure_post::<Read>()?;
    connected.measure_post::<FetchAdd>()?;
    connected.measure_post::<CompareSwap>()?;
    connected.measure_post::<MaskedAdd>()?;
    connected.measure_post::<MaskedSwap>()?;
    connected.measure_receive::<Send>("receive")?;
    connected
        .measure_poll::<Send>("poll_send", |bench, width| poll_sends(&mut bench.sent, width, &mut bench.sender))?;
    connected.measure_poll::<Send>("poll_receive", |bench, width| {
        poll_receives(&mut bench.received, width, &mut bench.receiver)
    })?;
    drop(connected);
    let mut sharing = Bench::<Messages, D, _>::sharing(common)?;
    sharing.measure_receive::<Send>("receive_shared")?;
    sharing.measure_poll::<Send>("poll_receive_shared", |bench, width| {
        poll_receives(&mut bench.received, width, &mut bench.receiver)
    })?;
    drop(sharing);
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
    })?;
    drop(frames);
    let mut dynamic = Bench::<DynamicMessages, D, _>::dynamic(common)?;
    dynamic.measure_post::<DynamicInline>()?;
    dynamic.measure_post::<Dynamic>()?;
    drop(dynamic);
    let mut extended = Bench::<ExtendedMessages, D, _>::extended(common)?;
    extended.measure_post::<ExtendedInline>()?;
    extended.measure_post::<Extended>()?;
    extended.measure_receive::<Extended>("receive_extended")?;
    extended.measure_poll::<Extended>("poll_receive_extended", |bench, width| {
        poll_receives(&mut bench.received, width, &mut bench.receiver)
    })?;
    drop(extended);
    keys::measure::<D>(common)?;
    // After all that use it alone: a BlueFlame register that was shared stays so.
    for count in [1, 16, 256, 1024] {
        many::measure::<Shared<D>>(common, count)?;
    }
    for count in [1, 16, 256, 1024] {
        hub::measure(common, count)?;
    }
    Ok(())
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
        other => Err(format!("unknown doorbell {other:?}: plain or blueflame").into()),
    }
}
