//! Shared receive queues on the software card.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mlx5_dv::Device;
use mlx5_dv::access::AsyncEvent;
use mlx5_dv::objects::{
    AccessFlags, AddressHandle, AddressPath, AnyDoorbell, CqOptions, DatagramAttributes, DestroyReason, InitAttributes,
    MemoryRegion, Pd, QpOptions, QueuePair, RtrAttributes, RtsAttributes, Srq, SrqOptions, Uar,
};
use mlx5_dv::queue::{Completion, CompletionQueue, GRH, PostError, SendQueue, SharedReceiveQueue, WorkError, WrFlags};
use mlx5_open::Sim;
use mlx5_prm::eqe::{EventType, QpEvent};
use mlx5_prm::layout::Layout;
use mlx5_sim::profile::Profile;

/// Limit for everything that must succeed.
const SOON: Duration = Duration::from_secs(20);
/// Size of a receive in bytes.
const ROOM: usize = 64;
const RECEIVES: usize = 15;

/// A card with a shared receive queue, its completion queue and memory.
struct Stage {
    srq: SharedReceiveQueue,
    cq: CompletionQueue,
    region: Arc<MemoryRegion>,
    uar: Arc<Uar>,
    pd: Arc<Pd>,
    device: Arc<Device>,
    sim: Sim,
}

impl Stage {
    fn new() -> Stage {
        let sim = Sim::builder().profile(Profile::connectx5()).build().unwrap();
        let device = sim.open(0).unwrap();
        let pd = Pd::alloc(&device).unwrap();
        let uar = Uar::alloc(&device).unwrap();
        let cq = CompletionQueue::create(&uar, CqOptions::default()).unwrap();
        let region = MemoryRegion::allocate(&pd, RECEIVES * (GRH + ROOM), AccessFlags::LOCAL_WRITE).unwrap();
        let srq = Srq::create(&pd, SrqOptions::default().wqes(RECEIVES as u32)).unwrap();
        Stage { srq: srq.receive_queue().unwrap(), cq, region, uar, pd, device, sim }
    }

    /// Posts part `wr_id` of the region.
    fn post(&mut self, wr_id: u64) -> Result<(), PostError> {
        let at = wr_id as usize * (GRH + ROOM);
        let mut batch = self.srq.batch();
        // SAFETY: the region is dropped after the queues, and is read only after completions.
        unsafe { batch.receive(wr_id, &[self.region.segment(at..at + GRH + ROOM)])? };
        batch.ring();
        Ok(())
    }

    fn received(&self, wr_id: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.region.read(wr_id as usize * (GRH + ROOM), &mut bytes);
        bytes
    }

    /// A sender with its own queues, connected to a queue pair on the shared receives.
    fn pair(&self, user_index: u32) -> Pair {
        let options = QpOptions::default().wqes(16, 1);
        let sent = CompletionQueue::create(&self.uar, CqOptions::default()).unwrap();
        let qp =
            |cq: &CompletionQueue, options| QueuePair::create(&self.pd, &self.uar, cq.cq(), cq.cq(), options).unwrap();
        let from = qp(&sent, options.clone());
        let to = qp(&self.cq, options.srq(self.srq.srq()).user_index(user_index));
        self.connect(&from, &to);
        self.connect(&to, &from);
        Pair { queue: from.send_queue().unwrap(), sent, to, user_index }
    }

    fn connect(&self, qp: &QueuePair, to: &QueuePair) {
        qp.init(&InitAttributes::default()).unwrap();
        let path = AddressPath::link_local(self.device.gids()[0].address.octets()).unwrap();
        let mut rtr = RtrAttributes::new(to.qpn(), 5, path);
        rtr.min_rnr_timer = 1;
        qp.ready_to_receive(&rtr).unwrap();
        qp.ready_to_send(&RtsAttributes::new(5)).unwrap();
    }

    fn next(&mut self) -> Result<Completion, WorkError> {
        next(&mut self.cq)
    }

    /// The next message: `wr_id`, bytes, and the receiving queue pair.
    fn message(&mut self) -> (u64, Vec<u8>, u32) {
        let completion = self.next().unwrap();
        let wr_id = self.srq.retire(&completion.work).unwrap();
        (wr_id, self.received(wr_id, completion.byte_len as usize), completion.user_index)
    }

    /// Checks that all objects are destroyed and that the card reports no violation.
    fn end(self) {
        let Stage { srq, cq, region, uar, pd, device, sim } = self;
        let object = Arc::clone(srq.srq());
        drop(srq);
        Srq::destroy(object).unwrap();
        cq.destroy().unwrap();
        MemoryRegion::destroy(region).unwrap();
        Uar::destroy(uar).unwrap();
        Pd::destroy(pd).unwrap();
        let handle = sim.handle(0);
        drop(device);
        let counts = handle.counts();
        assert_eq!((counts.qps, counts.cqs, counts.mkeys, counts.umems, counts.uars), (0, 0, 0, 0, 0), "{counts:?}");
        assert_eq!(sim.violations(), []);
    }
}

/// A sender to the shared receives.
struct Pair {
    queue: SendQueue<AnyDoorbell>,
    sent: CompletionQueue,
    to: Arc<QueuePair>,
    user_index: u32,
}

impl Pair {
    /// Sends, and waits for the acknowledgement.
    fn send(&mut self, bytes: &[u8]) {
        let mut batch = self.queue.batch();
        batch.send_inline(1, WrFlags::SIGNALLED, bytes).unwrap();
        batch.ring();
        self.queue.retire(&next(&mut self.sent).unwrap().work).unwrap();
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

/// Waits for the event of `event_type`; returns the number in it.
fn event(events: &std::sync::mpsc::Receiver<AsyncEvent>, event_type: EventType) -> u32 {
    loop {
        let event = events.recv_timeout(SOON).unwrap();
        if event.event_type == event_type {
            return QpEvent::read(&event.data).unwrap().qp_srq_n();
        }
    }
}

#[test]
fn queue_pairs_take_turns_and_completions_say_whose_they_are() {
    let mut stage = Stage::new();
    let mut pairs: Vec<Pair> = (0..5).map(|i| stage.pair(0x40_0000 + i)).collect();
    (0..RECEIVES as u64).for_each(|wr_id| stage.post(wr_id).unwrap());
    assert!(matches!(stage.post(0), Err(PostError::Full(_))));
    for round in 0..200u32 {
        let pair = &mut pairs[(round * 7 % 5) as usize];
        let bytes = [round as u8; 20];
        pair.send(&bytes);
        let (wr_id, received, user_index) = stage.message();
        assert_eq!((received, user_index), (bytes.to_vec(), pair.user_index));
        stage.post(wr_id).unwrap();
    }
    let status = stage.srq.srq().query().unwrap();
    assert_eq!((status.hw_counter, status.sw_counter), (200, 200 + RECEIVES as u32));
    drop(pairs);
    stage.end();
}

#[test]
fn receives_come_back_in_any_order() {
    let mut stage = Stage::new();
    let (mut a, mut b) = (stage.pair(1), stage.pair(2));
    (0..4).for_each(|wr_id| stage.post(wr_id).unwrap());
    for _ in 0..2 {
        a.send(b"a");
        b.send(b"b");
    }
    let mut works: Vec<_> = (0..4).map(|_| stage.next().unwrap().work).collect();
    works.swap(0, 3);
    let ids: Vec<u64> = works.iter().map(|work| stage.srq.retire(work).unwrap()).collect();
    assert_eq!(ids, [3, 1, 2, 0]);
    assert!(works.iter().all(|work| stage.srq.retire(work).is_err()), "twice");
    // Posted in the order in which they became free.
    ids.iter().for_each(|id| stage.post(*id).unwrap());
    a.send(b"next");
    assert_eq!(stage.message(), (3, b"next".to_vec(), 1));
    drop((a, b));
    stage.end();
}

#[test]
fn a_sender_waits_for_the_next_receive() {
    let mut stage = Stage::new();
    let mut pair = stage.pair(1);
    let sender = std::thread::spawn(move || {
        pair.send(b"patience");
        pair
    });
    std::thread::sleep(Duration::from_millis(5));
    stage.post(3).unwrap();
    assert_eq!(stage.message(), (3, b"patience".to_vec(), 1));
    drop(sender.join().unwrap());
    stage.end();
}

#[test]
fn the_limit_event_comes_once_and_again_when_asked_for() {
    let mut stage = Stage::new();
    let events = stage.device.async_events().events;
    let mut pair = stage.pair(1);
    (0..8).for_each(|wr_id| stage.post(wr_id).unwrap());
    let srq = Arc::clone(stage.srq.srq());
    for limit in [6, 3] {
        srq.arm_limit(limit).unwrap();
        assert_eq!(srq.query().unwrap().limit, limit);
        let left = |stage: &Stage| stage.srq.capacity() - stage.srq.free();
        while left(&stage) >= usize::from(limit) {
            assert!(events.try_iter().all(|event| event.event_type != EventType::SrqLimit), "too early");
            pair.send(b"one less");
            stage.message();
        }
        assert_eq!(event(&events, EventType::SrqLimit), srq.srqn());
        assert_eq!(srq.query().unwrap().limit, 0, "it comes once");
    }
    let text = srq.arm_limit(16).unwrap_err().to_string();
    assert!(text.contains("limit") && text.contains("15"), "{text}");
    drop((pair, srq));
    stage.end();
}

#[test]
fn messages_outlive_the_queue_pair_that_took_them() {
    for is_destroyed in [false, true] {
        let mut stage = Stage::new();
        let events = stage.device.async_events().events;
        let mut pair = stage.pair(1);
        (0..3).for_each(|wr_id| stage.post(wr_id).unwrap());
        pair.send(b"of old");
        let to = Arc::clone(&pair.to);
        to.to_error().unwrap();
        assert_eq!(event(&events, EventType::SrqLastWqe), to.qpn());
        to.reset().unwrap();
        drop((pair, to));
        if is_destroyed {
            // Its number is reused.
            drop(stage.pair(2));
        }
        assert_eq!(stage.message(), (0, b"of old".to_vec(), 1));
        assert!(stage.cq.poll().is_none());
        let mut pair = stage.pair(3);
        pair.send(b"of now");
        assert_eq!(stage.message(), (1, b"of now".to_vec(), 3));
        drop(pair);
        stage.end();
    }
}

#[test]
fn datagrams_are_received_too() {
    let mut stage = Stage::new();
    let qkey = 0x1111_1111;
    let sent = CompletionQueue::create(&stage.uar, CqOptions::default()).unwrap();
    let options = QpOptions::default().datagrams().wqes(4, 0);
    let qp =
        |cq: &CompletionQueue, options| QueuePair::create(&stage.pd, &stage.uar, cq.cq(), cq.cq(), options).unwrap();
    let from = qp(&sent, options.clone());
    let to = qp(&stage.cq, options.srq(stage.srq.srq()).user_index(9));
    [&from, &to].into_iter().for_each(|qp| qp.activate(&DatagramAttributes::new(qkey)).unwrap());
    stage.post(4).unwrap();
    let path = AddressPath::link_local(stage.device.gids()[0].address.octets()).unwrap();
    let to_them = AddressHandle::new(&stage.device, &path, to.qpn(), qkey).unwrap();
    let mut queue = from.datagram_send_queue::<AnyDoorbell>().unwrap();
    let mut batch = queue.batch();
    batch.send_inline(1, WrFlags::SIGNALLED, &to_them, b"datagram").unwrap();
    batch.ring();
    let (wr_id, bytes, user_index) = stage.message();
    assert_eq!((wr_id, &bytes[GRH..], user_index), (4, &b"datagram"[..], 9));
    drop((queue, from, to, sent));
    stage.end();
}

#[test]
fn what_makes_no_sense_is_refused() {
    let stage = Stage::new();
    let pair = stage.pair(1);
    let object = Arc::clone(stage.srq.srq());
    let says = |error: mlx5_dv::Error, words: &[&str]| {
        let text = error.to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    };
    says(pair.to.receive_queue().unwrap_err(), &["SRQ", "post its receives there"]);
    says(object.receive_queue().unwrap_err(), &["SharedReceiveQueue", "handed out already"]);
    let qp = |options| QueuePair::create(&stage.pd, &stage.uar, stage.cq.cq(), stage.cq.cq(), options).unwrap_err();
    says(qp(QpOptions::default().user_index(1 << 24)), &["user_index", "24 bits"]);
    says(qp(QpOptions::default().user_index(0xff_ffff)), &["user_index", "at most 16777214"]);
    says(Srq::create(&stage.pd, SrqOptions::default().wqes(1 << 20)).unwrap_err(), &["wqes", "log_max_srq_sz"]);
    let other = Stage::new();
    says(qp(QpOptions::default().srq(other.srq.srq())), &["one device"]);
    let error = Srq::destroy(object).unwrap_err();
    assert!(matches!(error.reason, DestroyReason::InUse(2)), "{error}");
    drop((pair, error, other));
    stage.end();
}
