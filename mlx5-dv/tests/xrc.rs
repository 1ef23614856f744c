//! Extended reliable connections on the software card: one pair of queue pairs, many shared receive queues.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mlx5_dv::objects::{
    AccessFlags, AddressPath, AnyDoorbell, CqOptions, InitAttributes, MemoryRegion, MemoryWindow, OpenXrcd, Pd,
    QpOptions, QueuePair, RtrAttributes, RtsAttributes, Srq, SrqOptions, Uar, UmrKey, UmrKeyOptions, WindowType,
    XrcTarget, Xrcd,
};
use mlx5_dv::queue::{
    Completion, CompletionQueue, ConnectionOptions, Done, ExtendedMessages, FastKey, KeyMemory, MaskedAdd, MaskedSwap,
    Operation, PostError, Refused, RefusedReason, Registration, RemoteSrq, SendBatch, SharedReceiveQueue, Ticket,
    WorkError, WrFlags, XrcConnection, XrcReceiver, XrcSendQueue,
};
use mlx5_dv::{Device, Error};
use mlx5_open::Sim;
use mlx5_prm::cqe::CqeSyndrome;
use mlx5_prm::eqe::{EventType, QpEvent};
use mlx5_prm::layout::Layout;
use mlx5_prm::values::QpState;
use mlx5_prm::wqe::WqeOpcode;
use mlx5_sim::profile::Profile;

/// How long anything may take that is to succeed.
const SOON: Duration = Duration::from_secs(20);
const ROOM: usize = 64;
const RECEIVES: usize = 7;

/// A process of the receiving side: its own protection domain, memory, completion queue and shared receive queue.
struct Receiver {
    srq: SharedReceiveQueue,
    cq: CompletionQueue,
    region: Arc<MemoryRegion>,
    pd: Arc<Pd>,
}

impl Receiver {
    fn new(stage: &Stage, domain: &Arc<Xrcd>, user_index: u32) -> Receiver {
        let pd = Pd::alloc(&stage.device).unwrap();
        let all = AccessFlags::LOCAL_WRITE
            | AccessFlags::REMOTE_WRITE
            | AccessFlags::REMOTE_READ
            | AccessFlags::REMOTE_ATOMIC;
        let region = MemoryRegion::allocate(&pd, (RECEIVES + 1) * ROOM, all).unwrap();
        let cq = CompletionQueue::create(&stage.uar, CqOptions::default()).unwrap();
        let options = SrqOptions::default().wqes(RECEIVES as u32).user_index(user_index);
        let srq = Srq::create_xrc(&pd, domain, cq.cq(), options).unwrap().receive_queue().unwrap();
        let mut receiver = Receiver { srq, cq, region, pd };
        (0..RECEIVES as u64).for_each(|wr_id| receiver.post(wr_id));
        receiver
    }

    fn post(&mut self, wr_id: u64) {
        let at = wr_id as usize * ROOM;
        let mut batch = self.srq.batch();
        // SAFETY: the region goes after the queues, and is read after completions only.
        unsafe { batch.receive(wr_id, &[self.region.segment(at..at + ROOM)]).unwrap() };
        batch.ring();
    }

    /// The next message, whose receive is posted again.
    fn message(&mut self) -> (Vec<u8>, Completion) {
        let completion = next(&mut self.cq).unwrap();
        let wr_id = self.srq.retire(&completion.work).unwrap();
        let mut bytes = vec![0; completion.byte_len as usize];
        self.region.read(wr_id as usize * ROOM, &mut bytes);
        self.post(wr_id);
        (bytes, completion)
    }

    fn number(&self) -> RemoteSrq {
        RemoteSrq::new(self.srq.srq().srqn()).unwrap()
    }
}

type Batch<'a> = SendBatch<'a, AnyDoorbell, ExtendedMessages>;

/// A connection of `pd` from a domain of its own into `domain`.
fn connected(pd: &Arc<Pd>, uar: &Arc<Uar>, cq: &CompletionQueue, domain: &Arc<Xrcd>) -> (XrcSendQueue, Arc<XrcTarget>) {
    let own = Xrcd::alloc(pd.device()).unwrap();
    let options = QpOptions::default().wqes(16, 0).sges(2, 1).inline_bytes(44).xrc_initiator(&own);
    let initiator = QueuePair::create(pd, uar, cq.cq(), cq.cq(), options).unwrap();
    let target = XrcTarget::create(pd, uar, cq.cq(), domain).unwrap();
    let path = AddressPath::link_local(pd.device().gids()[0].address.octets()).unwrap();
    let remote_access = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_ATOMIC;
    let init = InitAttributes { remote_access, ..InitAttributes::default() };
    initiator.init(&init).unwrap();
    initiator.ready_to_receive(&RtrAttributes::new(target.qpn(), 5, path)).unwrap();
    target.init(&init).unwrap();
    target.ready_to_receive(&RtrAttributes::new(initiator.qpn(), 5, path)).unwrap();
    // A target works from RTR on.
    initiator.ready_to_send(&RtsAttributes::new(5)).unwrap();
    (initiator.xrc_send_queue().unwrap(), target)
}

/// Posts what `post` says, and waits for its end.
fn work(
    queue: &mut XrcSendQueue,
    cq: &mut CompletionQueue,
    post: impl FnOnce(&mut Batch<'_>),
) -> Result<Completion, WorkError> {
    let mut batch = queue.batch();
    post(&mut batch);
    batch.ring();
    let result = next(cq);
    let work = match &result {
        Ok(completion) => completion.work,
        Err(error) => error.work,
    };
    queue.retire(&work).unwrap();
    result
}

/// A card, and on it a connection into a domain.
struct Stage {
    send: XrcSendQueue<AnyDoorbell>,
    target: Arc<XrcTarget>,
    sent: CompletionQueue,
    region: Arc<MemoryRegion>,
    domain: Arc<Xrcd>,
    uar: Arc<Uar>,
    pd: Arc<Pd>,
    device: Arc<Device>,
    sim: Sim,
}

impl Stage {
    fn new() -> Stage {
        let sim = Sim::builder().build().unwrap();
        let device = sim.open(0).unwrap();
        let pd = Pd::alloc(&device).unwrap();
        let uar = Uar::alloc(&device).unwrap();
        let domain = Xrcd::alloc(&device).unwrap();
        let sent = CompletionQueue::create(&uar, CqOptions::default()).unwrap();
        let (send, target) = connected(&pd, &uar, &sent, &domain);
        let region = MemoryRegion::allocate(&pd, 4096, AccessFlags::LOCAL_WRITE).unwrap();
        Stage { send, target, sent, region, domain, uar, pd, device, sim }
    }

    /// Posts what `post` says, and waits for its end.
    fn work(&mut self, post: impl FnOnce(&mut Batch<'_>)) -> Result<Completion, WorkError> {
        work(&mut self.send, &mut self.sent, post)
    }

    fn send(&mut self, to: RemoteSrq, bytes: &[u8]) -> Result<Completion, WorkError> {
        self.work(|batch| batch.send_inline(1, WrFlags::SIGNALLED, to, bytes).unwrap())
    }

    /// Everything is gone, and the card has nothing to complain about.
    fn end(self, receivers: Vec<Receiver>) {
        self.end_after(receivers, &[]);
    }

    /// As [`end`](Self::end) of a test that did something wrong on purpose: the card complains of `rules` alone.
    fn end_after(self, receivers: Vec<Receiver>, rules: &[&str]) {
        for Receiver { srq, cq, region, pd } in receivers {
            let object = Arc::clone(srq.srq());
            drop(srq);
            Srq::destroy(object).unwrap();
            cq.destroy().unwrap();
            MemoryRegion::destroy(region).unwrap();
            Pd::destroy(pd).unwrap();
        }
        let Stage { send, target, sent, region, domain, uar, pd, device, sim } = self;
        drop((send, target));
        Xrcd::destroy(domain).unwrap();
        sent.destroy().unwrap();
        MemoryRegion::destroy(region).unwrap();
        Uar::destroy(uar).unwrap();
        Pd::destroy(pd).unwrap();
        let handle = sim.handle(0);
        drop(device);
        let counts = handle.counts();
        assert_eq!((counts.qps, counts.cqs, counts.mkeys, counts.umems, counts.uars), (0, 0, 0, 0, 0), "{counts:?}");
        let broken: Vec<_> = sim.violations().iter().map(|violation| violation.rule).collect();
        assert_eq!(broken, rules);
    }
}

fn next(cq: &mut CompletionQueue) -> Result<Completion, WorkError> {
    let deadline = Instant::now() + SOON;
    loop {
        if let Some(result) = cq.poll() {
            return result;
        }
        assert!(Instant::now() < deadline, "no completion");
        std::thread::yield_now();
    }
}

#[test]
fn each_message_reaches_the_queue_that_it_names() {
    let mut stage = Stage::new();
    let mut receivers: Vec<_> = (0..3).map(|at| Receiver::new(&stage, &stage.domain, 0x50 + at)).collect();
    for round in 0..60usize {
        let at = round * 5 % 3;
        let bytes = vec![round as u8; 1 + round % 20];
        stage.send(receivers[at].number(), &bytes).unwrap();
        let (received, completion) = receivers[at].message();
        assert_eq!((received, completion.user_index), (bytes, 0x50 + at as u32));
        assert_eq!(completion.work.qpn, stage.target.qpn());
    }
    let status = receivers[0].srq.srq().query().unwrap();
    assert_eq!((status.hw_counter, status.sw_counter), (20, 20 + RECEIVES as u32));
    stage.end(receivers);
}

#[test]
fn writes_reads_and_atomics_are_of_the_protection_domain_of_the_queue() {
    let mut stage = Stage::new();
    let mut receiver = Receiver::new(&stage, &stage.domain, 7);
    let (to, remote) = (receiver.number(), receiver.region.remote_at(RECEIVES * ROOM));
    stage.region.write(0, &5u64.to_ne_bytes());
    let (five, answer) = (stage.region.segment(0..8), stage.region.segment(8..16));
    let signalled = WrFlags::SIGNALLED;
    // SAFETY: the region goes after the queues, and is read after completions only.
    stage.work(|batch| unsafe { batch.write_imm(1, signalled, to, remote, 0xabc, &[five]).unwrap() }).unwrap();
    assert_eq!(receiver.message().1.operation, Operation::WrittenImm(0xabc));
    // SAFETY: as above.
    stage.work(|batch| unsafe { batch.fetch_add(1, signalled, to, remote, 4, answer).unwrap() }).unwrap();
    let answered = |stage: &Stage| {
        let mut bytes = [0; 8];
        stage.region.read(8, &mut bytes);
        u64::from_ne_bytes(bytes)
    };
    assert_eq!(answered(&stage), 5);
    // SAFETY: as above.
    stage.work(|batch| unsafe { batch.compare_swap(1, signalled, to, remote, [9, 77], answer).unwrap() }).unwrap();
    assert_eq!(answered(&stage), 9);
    let add = MaskedAdd { add: 1u64, boundaries: 0 };
    // SAFETY: as above.
    stage.work(|batch| unsafe { batch.masked_fetch_add(1, signalled, to, remote, add, answer).unwrap() }).unwrap();
    let swap = MaskedSwap { compare: 78u64, compare_mask: u64::MAX, swap: 77, swap_mask: u64::MAX };
    // SAFETY: as above.
    stage.work(|batch| unsafe { batch.masked_compare_swap(1, signalled, to, remote, swap, answer).unwrap() }).unwrap();
    assert_eq!(answered(&stage), 78);
    // SAFETY: as above.
    stage.work(|batch| unsafe { batch.read(1, signalled, to, remote, &[answer]).unwrap() }).unwrap();
    assert_eq!(answered(&stage), 77);
    // SAFETY: as above.
    let sent = stage.work(|batch| unsafe { batch.send_imm(1, signalled, to, 3, &[five, answer]).unwrap() });
    assert!(sent.is_ok());
    let (bytes, completion) = receiver.message();
    assert_eq!((bytes, completion.imm()), ([5u64.to_ne_bytes(), 77u64.to_ne_bytes()].concat(), Some(3)));
    // A key of another protection domain than the queue's.
    let other = Receiver::new(&stage, &stage.domain, 8);
    let foreign = other.region.remote();
    // SAFETY: as above.
    let refused = stage.work(|batch| unsafe { batch.write(1, signalled, to, foreign, &[five]).unwrap() });
    assert_eq!(refused.unwrap_err().syndrome(), Some(CqeSyndrome::RemoteAccess));
    stage.end_after(vec![receiver, other], &["key does not allow the access"]);
}

#[test]
fn inline_data_goes_with_every_operation() {
    let mut stage = Stage::new();
    let mut receiver = Receiver::new(&stage, &stage.domain, 7);
    let (to, at, signalled) = (receiver.number(), RECEIVES * ROOM, WrFlags::SIGNALLED);
    let remote = receiver.region.remote_at(at);
    stage.work(|batch| batch.send_imm_inline(1, signalled, to, 7, b"a word").unwrap()).unwrap();
    let (bytes, completion) = receiver.message();
    assert_eq!((&bytes[..], completion.operation), (&b"a word"[..], Operation::ReceivedImm(7)));
    stage.work(|batch| batch.write_inline(1, signalled, to, remote, b"written").unwrap()).unwrap();
    let mut bytes = [0; 7];
    receiver.region.read(at, &mut bytes);
    assert_eq!(&bytes, b"written");
    stage.work(|batch| batch.write_imm_inline(1, signalled, to, remote, 8, b"over").unwrap()).unwrap();
    assert_eq!(receiver.message().1.operation, Operation::WrittenImm(8));
    receiver.region.read(at, &mut bytes);
    assert_eq!(&bytes, b"overten");
    let nop = stage.work(|batch| batch.nop(9, signalled).unwrap()).unwrap();
    assert_eq!(nop.operation, Operation::Sent(WqeOpcode::Nop));
    stage.end(vec![receiver]);
}

#[test]
fn inline_data_of_several_parts_goes_with_every_operation() {
    let mut stage = Stage::new();
    let mut receiver = Receiver::new(&stage, &stage.domain, 7);
    let (to, at, signalled) = (receiver.number(), RECEIVES * ROOM, WrFlags::SIGNALLED);
    let remote = receiver.region.remote_at(at);
    let data: Vec<u8> = (1..=44).collect();
    for len in 0..=data.len() {
        let (first, second) = data[..len].split_at(len / 3);
        let parts = [first, &[], second];
        stage.work(|batch| batch.send_inline_all(1, signalled, to, &parts).unwrap()).unwrap();
        assert_eq!(receiver.message().0, data[..len]);
        stage.work(|batch| batch.send_imm_inline_all(1, signalled, to, 7, &parts).unwrap()).unwrap();
        let (bytes, completion) = receiver.message();
        assert_eq!((&bytes[..], completion.operation), (&data[..len], Operation::ReceivedImm(7)));
        let written = || {
            let mut bytes = [0xee; 44];
            receiver.region.read(at, &mut bytes);
            bytes
        };
        receiver.region.write(at, &[0xee; 44]);
        stage.work(|batch| batch.write_inline_all(1, signalled, to, remote, &parts).unwrap()).unwrap();
        let expected: Vec<u8> = data[..len].iter().copied().chain((len..44).map(|_| 0xee)).collect();
        assert_eq!(written()[..], expected);
        receiver.region.write(at, &[0xee; 44]);
        stage.work(|batch| batch.write_imm_inline_all(1, signalled, to, remote, 8, &parts).unwrap()).unwrap();
        assert_eq!(written()[..], expected);
        assert_eq!(receiver.message().1.operation, Operation::WrittenImm(8));
    }
    let free = stage.send.free();
    let mut batch = stage.send.batch();
    let (refused, long) = (Err(PostError::InlineTooLong { given: 45, most: 44 }), [&data[..], &[9]]);
    assert_eq!(batch.send_inline_all(1, signalled, to, &long), refused);
    assert_eq!(batch.send_imm_inline_all(1, signalled, to, 7, &long), refused);
    assert_eq!(batch.write_inline_all(1, signalled, to, remote, &long), refused);
    assert_eq!(batch.write_imm_inline_all(1, signalled, to, remote, 7, &long), refused);
    assert!(batch.is_empty());
    batch.ring();
    assert_eq!(stage.send.free(), free);
    // What stands in the ring afterwards is whole.
    stage.send(to, b"next").unwrap();
    assert_eq!(receiver.message().0, b"next");
    stage.end(vec![receiver]);
}

#[test]
fn keys_and_windows_of_the_queue_s_protection_domain_are_changed_by_it_and_invalidated_by_remotes() {
    let mut stage = Stage::new();
    let mut receiver = Receiver::new(&stage, &stage.domain, 7);
    let mut changed = CompletionQueue::create(&stage.uar, CqOptions::default()).unwrap();
    let (mut queue, target) = connected(&receiver.pd, &stage.uar, &changed, &stage.domain);
    let key = UmrKey::create(&receiver.pd, UmrKeyOptions::default()).unwrap();
    let window = MemoryWindow::alloc(&receiver.pd, WindowType::One).unwrap();
    let (to, at, signalled) = (receiver.number(), RECEIVES * ROOM, WrFlags::SIGNALLED);
    let parts = [receiver.region.segment(at..at + 8)];
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
    let open = |variant| Registration { variant, access, start: 0x1000, memory: KeyMemory::Parts(&parts) };
    for variant in 1..=2 {
        let mut remote = None;
        // SAFETY: the region goes after the queues, and is read after completions only.
        work(&mut queue, &mut changed, |batch| unsafe {
            remote = Some(batch.register(1, signalled, &key, &open(variant)).unwrap());
        })
        .unwrap();
        let remote = remote.unwrap();
        stage.work(|batch| batch.write_inline(1, signalled, to, remote, &[variant; 8]).unwrap()).unwrap();
        let mut bytes = [0; 8];
        receiver.region.read(at, &mut bytes);
        assert_eq!(bytes, [variant; 8]);
        if variant == 1 {
            let sent = stage.work(|batch| batch.send_invalidate_inline(1, signalled, to, remote.rkey, b"so").unwrap());
            sent.unwrap();
            assert_eq!(receiver.message().1.operation, Operation::ReceivedInvalidate(remote.rkey));
        } else {
            work(&mut queue, &mut changed, |batch| batch.local_invalidate(1, signalled, remote.rkey).unwrap()).unwrap();
        }
    }
    let mut bound = None;
    // SAFETY: as above.
    work(&mut queue, &mut changed, |batch| unsafe {
        bound =
            Some(batch.bind_window(1, signalled, &window, &Registration { start: parts[0].addr, ..open(3) }).unwrap());
    })
    .unwrap();
    stage.work(|batch| batch.write_inline(1, signalled, to, bound.unwrap(), b"window").unwrap()).unwrap();
    work(&mut queue, &mut changed, |batch| batch.unbind_window(1, signalled, &window, 3).unwrap()).unwrap();
    let closed = stage.work(|batch| batch.write_inline(1, signalled, to, bound.unwrap(), b"closed").unwrap());
    assert_eq!(closed.unwrap_err().syndrome(), Some(CqeSyndrome::RemoteAccess));
    drop((queue, target));
    changed.destroy().unwrap();
    drop((key, window));
    stage.end_after(vec![receiver], &["key does not allow the access"]);
}

/// Two connections that own their buffers, between two domains of a card, and a receiver of both.
struct Owning {
    near: XrcConnection,
    far: XrcConnection,
    receiver: XrcReceiver,
    region: Arc<MemoryRegion>,
    pd: Arc<Pd>,
    sim: Sim,
}

impl Owning {
    fn new() -> Owning {
        let sim = Sim::builder().build().unwrap();
        let device = sim.open(0).unwrap();
        let (pd, domain) = (Pd::alloc(&device).unwrap(), Xrcd::alloc(&device).unwrap());
        let all = AccessFlags::LOCAL_WRITE
            | AccessFlags::REMOTE_WRITE
            | AccessFlags::REMOTE_READ
            | AccessFlags::REMOTE_ATOMIC;
        let region = MemoryRegion::allocate(&pd, 4096, all).unwrap();
        let receives = SrqOptions::default().wqes(7);
        let receiver = XrcReceiver::new(&pd, &domain, receives, CqOptions::default()).unwrap();
        let mut options = ConnectionOptions::default();
        (options.remote_access, options.inline_bytes) = (all.difference(AccessFlags::LOCAL_WRITE), 44);
        let near = XrcConnection::new(&pd, &domain, options.clone()).unwrap();
        let far = XrcConnection::new(&pd, &domain, options).unwrap();
        let mut all = Owning { near, far, receiver, region, pd, sim };
        all.connect();
        all
    }

    fn connect(&mut self) {
        self.near.connect(&self.far.local().unwrap()).unwrap();
        self.far.connect(&self.near.local().unwrap()).unwrap();
    }

    fn to(&self) -> RemoteSrq {
        RemoteSrq::new(self.receiver.srqn()).unwrap()
    }

    fn end(self) {
        drop((self.near, self.far, self.receiver));
        assert_eq!(self.sim.violations(), []);
    }
}

/// The next completion.
fn done(connection: &mut XrcConnection) -> Done {
    connection.wait(SOON).unwrap();
    connection.poll().unwrap().unwrap()
}

#[test]
fn a_connection_s_batch_reports_quiet_work_and_changes_keys() {
    let mut all = Owning::new();
    let to = all.to();
    for slot in 0..3 {
        all.receiver.receive(all.region.buffer(1024 + 8 * slot..1032 + 8 * slot).unwrap()).unwrap();
    }
    let mut key = FastKey::create(&all.pd, UmrKeyOptions::default().entries(1)).unwrap();
    key.push(all.region.buffer(2048..2056).unwrap()).unwrap();
    let mut batch = all.near.batch();
    batch.quiet();
    let first = batch.send_inline(to, &1u64.to_ne_bytes()).unwrap();
    let (registered, remote) = batch.register(&mut key, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE).unwrap();
    let second = batch.send_inline(to, &2u64.to_ne_bytes()).unwrap();
    batch.signalled();
    let last = batch.nop().unwrap();
    batch.ring();
    assert_eq!(all.near.in_flight(), 4);
    for ticket in [first, registered, second, last] {
        let done = done(&mut all.near);
        assert_eq!((done.ticket, done.result.is_ok()), (ticket, true));
        assert_eq!(key.settle(&done), ticket == registered);
    }
    let heard: Vec<_> = (0..2).map(|_| received(&mut all.receiver).1.unwrap()).collect();
    assert_eq!(heard, [1, 2]);
    // The other end writes by the key, and closes it.
    all.far.write_inline(to, b"by a key", remote).unwrap();
    done(&mut all.far).result.unwrap();
    let mut bytes = [0; 8];
    all.region.read(2048, &mut bytes);
    assert_eq!(&bytes, b"by a key");
    all.far.batch().send_invalidate_inline(to, b"so long.", remote.rkey).unwrap();
    done(&mut all.far).result.unwrap();
    all.receiver.wait(SOON).unwrap();
    assert!(key.settle(&all.receiver.poll().unwrap().unwrap()) && key.is_free());
    drop(key);
    all.end();
}

#[test]
fn messages_are_received_several_at_a_time_and_their_buffers_posted_again_at_once() {
    const RECEIVES: usize = 7;
    let mut all = Owning::new();
    let to = all.to();
    let mut buffers: Vec<_> = (0..=RECEIVES).map(|slot| all.region.buffer(8 * slot..8 * slot + 8).unwrap()).collect();
    // One more than there is room for.
    let refused = all.receiver.receive_each(&mut buffers);
    assert!(matches!(refused, Err(RefusedReason::Post(PostError::Full(_)))), "{refused:?}");
    assert_eq!((buffers.len(), all.receiver.in_flight()), (1, RECEIVES));
    let mut messages = Vec::new();
    let mut heard = 0;
    for round in 0..10u64 {
        for number in 0..5 {
            all.near.send_inline(to, &(round * 5 + number).to_ne_bytes()).unwrap();
        }
        (0..5).for_each(|_| _ = done(&mut all.near).result.unwrap());
        while heard < (round + 1) * 5 {
            all.receiver.wait(SOON).unwrap();
            let count = all.receiver.poll_into(&mut messages, 3).unwrap();
            assert!((1..=3).contains(&count) && count == messages.len(), "{count} messages");
            buffers.clear();
            for message in messages.drain(..) {
                assert_eq!(message.result.unwrap().byte_len, 8);
                let (buffer, mut bytes) = (message.buffer.unwrap(), [0; 8]);
                buffer.read(0, &mut bytes);
                assert_eq!(u64::from_ne_bytes(bytes), heard);
                heard += 1;
                buffers.push(buffer);
            }
            all.receiver.receive_each(&mut buffers).unwrap();
            assert!(buffers.is_empty());
            assert_eq!(all.receiver.in_flight(), RECEIVES);
        }
    }
    assert_eq!(all.receiver.poll_into(&mut messages, 3).unwrap(), 0);
    all.end();
}

#[test]
fn a_connection_is_connected_again_after_a_reset_that_returns_what_was_in_flight() {
    let mut all = Owning::new();
    let to = all.to();
    for round in 0..3u64 {
        // Nothing is posted for it: it is tried again and again.
        all.region.write(0, &round.to_ne_bytes());
        all.near.send(to, all.region.buffer(0..8).unwrap()).unwrap();
        let buffers = all.near.reset().unwrap();
        assert_eq!((buffers.len(), buffers[0].len(), all.near.in_flight()), (1, 8, 0));
        assert!(all.far.reset().unwrap().is_empty());
        let refused = all.near.send_inline(to, b"too soon").unwrap_err();
        assert_eq!(refused.reason, RefusedReason::NotConnected);
        all.connect();
        all.receiver.receive(all.region.buffer(1024..1032).unwrap()).unwrap();
        all.near.send_inline(to, &(10 + round).to_ne_bytes()).unwrap();
        done(&mut all.near).result.unwrap();
        assert_eq!(received(&mut all.receiver).1, Some(10 + round));
    }
    all.end();
}

#[test]
fn a_connection_that_owns_its_buffers_has_every_operation() {
    let Owning { mut near, far, mut receiver, region, sim, pd: _pd } = Owning::new();
    let buffer = |at: usize| region.buffer(at..at + 8).unwrap();
    let number = |at: usize| {
        let mut bytes = [0; 8];
        region.read(at, &mut bytes);
        u64::from_ne_bytes(bytes)
    };
    for slot in 0..6 {
        receiver.receive(buffer(1024 + 8 * slot)).unwrap();
    }
    let to = RemoteSrq::new(receiver.srqn()).unwrap();
    let remote = region.remote_at(2048);
    let done = |near: &mut XrcConnection, ticket: Result<Ticket, Refused>| {
        let done = done(near);
        assert_eq!(done.ticket, ticket.unwrap());
        done.result.unwrap();
    };
    region.write(0, &40u64.to_ne_bytes());
    let posted = near.write(to, buffer(0), remote);
    done(&mut near, posted);
    let posted = near.fetch_add(to, buffer(8), remote, 2);
    done(&mut near, posted);
    let posted = near.compare_swap(to, buffer(16), remote, [42, 50]);
    done(&mut near, posted);
    let posted = near.masked_fetch_add(to, buffer(24), remote, MaskedAdd { add: 1u64, boundaries: 0 });
    done(&mut near, posted);
    let swap = MaskedSwap { compare: 51u64, compare_mask: u64::MAX, swap: 0xff, swap_mask: 0xf };
    let posted = near.masked_compare_swap(to, buffer(32), remote, swap);
    done(&mut near, posted);
    let posted = near.read(to, buffer(40), remote);
    done(&mut near, posted);
    assert_eq!([8, 16, 24, 32, 40].map(number), [40, 42, 50, 51, 0x3f]);
    let posted = near.write_inline(to, &7u64.to_ne_bytes(), remote);
    done(&mut near, posted);
    assert_eq!(number(2048), 7);
    let posted = near.write_imm(to, buffer(0), remote, 3);
    done(&mut near, posted);
    let posted = near.send_imm(to, buffer(0), 4);
    done(&mut near, posted);
    let posted = near.batch().send_imm_inline(to, &9u64.to_ne_bytes(), 5);
    done(&mut near, posted);
    let posted = near.batch().write_imm_inline(to, &8u64.to_ne_bytes(), remote, 3);
    done(&mut near, posted);
    assert_eq!(number(2048), 8);
    let posted = near.batch().send_inline_all(to, &[&[1, 0, 0], &[0, 0], &[0, 0, 2]]);
    done(&mut near, posted);
    let posted = near.batch().write_inline_all(to, &[&[3, 0, 0, 0], &[0, 0, 0, 4]], remote);
    done(&mut near, posted);
    assert_eq!(number(2048), u64::from_ne_bytes([3, 0, 0, 0, 0, 0, 0, 4]));
    let refused = near.batch().send_inline_all(to, &[&[0; 40], &[0; 5]]).unwrap_err();
    assert_eq!(refused.reason, RefusedReason::Post(PostError::InlineTooLong { given: 45, most: 44 }));
    assert_eq!(near.in_flight(), 0);
    let heard: Vec<_> = (0..5).map(|_| received(&mut receiver)).collect();
    let (written, imm) = ((Operation::WrittenImm(3), None), Operation::ReceivedImm);
    let of_parts = (Operation::Received, Some(u64::from_ne_bytes([1, 0, 0, 0, 0, 0, 0, 2])));
    assert_eq!(heard, [written, (imm(4), Some(40)), (imm(5), Some(9)), written, of_parts]);
    receiver.receive(buffer(1024)).unwrap();
    let posted = near.batch().send_imm_inline_all(to, &[&[5, 0, 0], &[0, 0, 0, 0, 6]], 6);
    done(&mut near, posted);
    let posted = near.batch().write_imm_inline_all(to, &[&[7, 0], &[0, 0, 0, 0, 0, 8]], remote, 3);
    done(&mut near, posted);
    assert_eq!(number(2048), u64::from_ne_bytes([7, 0, 0, 0, 0, 0, 0, 8]));
    let of_parts = (imm(6), Some(u64::from_ne_bytes([5, 0, 0, 0, 0, 0, 0, 6])));
    assert_eq!([received(&mut receiver), received(&mut receiver)], [of_parts, written]);
    drop((near, far, receiver));
    assert_eq!(sim.violations(), []);
}

/// The next message: how it came, and the number in it.
fn received(receiver: &mut XrcReceiver) -> (Operation, Option<u64>) {
    receiver.wait(SOON).unwrap();
    let done = receiver.poll().unwrap().unwrap();
    let (completion, buffer) = (done.result.unwrap(), done.buffer.unwrap());
    let mut bytes = [0; 8];
    buffer.read(0, &mut bytes);
    (completion.operation, (completion.operation != Operation::WrittenImm(3)).then(|| u64::from_ne_bytes(bytes)))
}

#[test]
fn a_queue_of_another_domain_is_out_of_reach() {
    let mut stage = Stage::new();
    let domain = Xrcd::alloc(&stage.device).unwrap();
    let receiver = Receiver::new(&stage, &domain, 7);
    let error = stage.send(receiver.number(), b"not for you").unwrap_err();
    assert!(error.syndrome().is_some() && !error.is_flush(), "{error}");
    assert_eq!(stage.target.query().unwrap().state, QpState::Err);
    drop(domain);
    stage.end(vec![receiver]);
}

#[test]
fn the_limit_event_of_a_domain_s_queue_names_it() {
    let mut stage = Stage::new();
    let events = stage.device.async_events().events;
    let mut receiver = Receiver::new(&stage, &stage.domain, 7);
    let srq = Arc::clone(receiver.srq.srq());
    srq.arm_limit(RECEIVES as u16).unwrap();
    assert_eq!(srq.query().unwrap().limit, RECEIVES as u16);
    stage.send(receiver.number(), b"one less").unwrap();
    receiver.message();
    let event = events.iter().find(|event| event.event_type == EventType::SrqLimit).unwrap();
    assert_eq!(QpEvent::read(&event.data).unwrap().qp_srq_n(), srq.srqn());
    drop(srq);
    stage.end(vec![receiver]);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let stage = Stage::new();
    let receiver = Receiver::new(&stage, &stage.domain, 7);
    let create = |options| QueuePair::create(&stage.pd, &stage.uar, stage.sent.cq(), stage.sent.cq(), options);
    let says = |error: Error, words: &[&str]| {
        let text = error.to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    };
    let mut without = QpOptions::default();
    without.service = mlx5_prm::values::ServiceType::Xrc;
    says(create(without).unwrap_err(), &["QpOptions::xrc_initiator"]);
    says(create(QpOptions::default().srq(receiver.srq.srq())).unwrap_err(), &["XRC domain", "XrcTarget"]);
    let skipped = stage.target.init(&InitAttributes::default()).unwrap_err();
    says(skipped, &["RTR", "init needs RST"]);
    let file = std::fs::File::open("/dev/null").unwrap();
    says(Xrcd::open(&stage.device, &file, OpenXrcd::Join).unwrap_err(), &["XRC domain of several processes", "devx:"]);
    says(XrcTarget::open(&stage.domain, 0x43).unwrap_err(), &["target of several processes", "devx:"]);
    assert_eq!((RemoteSrq::new(1 << 24), RemoteSrq::new(0xff_ffff).is_some()), (None, true));
    let bad = SrqOptions::default().user_index(1 << 24);
    says(Srq::create_xrc(&stage.pd, &stage.domain, stage.sent.cq(), bad).unwrap_err(), &["user_index", "24 bits"]);
    stage.end(vec![receiver]);
    let mut profile = Profile::connectx5();
    profile.general_current.w().xrc(false);
    let sim = Sim::builder().profile(profile).build().unwrap();
    let error = Xrcd::alloc(&sim.open(0).unwrap()).unwrap_err();
    assert!(matches!(error, Error::Unsupported { capability: "xrc", .. }), "{error}");
}
