//! Extended reliable connections on the software card: one pair of queue pairs, many shared receive queues.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mlx5_dv::objects::{
    AccessFlags, AddressPath, AnyDoorbell, CqOptions, InitAttributes, MemoryRegion, OpenXrcd, Pd, QpOptions, QueuePair,
    RtrAttributes, RtsAttributes, Srq, SrqOptions, Uar, XrcTarget, Xrcd,
};
use mlx5_dv::queue::{
    Completion, CompletionQueue, MaskedAdd, MaskedSwap, Operation, RemoteSrq, SharedReceiveQueue, WorkError, WrFlags,
    XrcSendQueue,
};
use mlx5_dv::{Device, Error};
use mlx5_open::Sim;
use mlx5_prm::cqe::CqeSyndrome;
use mlx5_prm::eqe::{EventType, QpEvent};
use mlx5_prm::layout::Layout;
use mlx5_prm::values::QpState;
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
        let (domain, own) = (Xrcd::alloc(&device).unwrap(), Xrcd::alloc(&device).unwrap());
        let sent = CompletionQueue::create(&uar, CqOptions::default()).unwrap();
        let qp = |options| QueuePair::create(&pd, &uar, sent.cq(), sent.cq(), options).unwrap();
        let initiator = qp(QpOptions::default().wqes(16, 0).sges(2, 1).xrc_initiator(&own));
        let target = XrcTarget::create(&pd, &uar, sent.cq(), &domain).unwrap();
        let path = AddressPath::link_local(device.gids()[0].address.octets()).unwrap();
        let remote_access = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_ATOMIC;
        let init = InitAttributes { remote_access, ..InitAttributes::default() };
        initiator.init(&init).unwrap();
        initiator.ready_to_receive(&RtrAttributes::new(target.qpn(), 5, path)).unwrap();
        target.init(&init).unwrap();
        target.ready_to_receive(&RtrAttributes::new(initiator.qpn(), 5, path)).unwrap();
        // A target works from RTR on.
        initiator.ready_to_send(&RtsAttributes::new(5)).unwrap();
        let region = MemoryRegion::allocate(&pd, 4096, AccessFlags::LOCAL_WRITE).unwrap();
        let send = initiator.xrc_send_queue().unwrap();
        Stage { send, target, sent, region, domain, uar, pd, device, sim }
    }

    /// Posts what `post` says, and waits for its end.
    fn work(
        &mut self,
        post: impl FnOnce(&mut mlx5_dv::queue::SendBatch<'_, AnyDoorbell, mlx5_dv::queue::ExtendedMessages>),
    ) -> Result<Completion, WorkError> {
        let mut batch = self.send.batch();
        post(&mut batch);
        batch.ring();
        let result = next(&mut self.sent);
        let work = match &result {
            Ok(completion) => completion.work,
            Err(error) => error.work,
        };
        self.send.retire(&work).unwrap();
        result
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
    let events = stage.device.async_events();
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
