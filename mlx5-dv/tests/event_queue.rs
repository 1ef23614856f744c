//! Event queues that threads of the user's own read, on the software card.

use std::sync::Arc;
use std::time::Duration;

use mlx5_dv::objects::{
    AccessFlags, AddressHandle, AddressPath, AnyDoorbell, Buffer, CqOptions, DcTarget, DctOptions, InitAttributes,
    MemoryRegion, Pd, QpOptions, QueuePair, RtrAttributes, RtsAttributes, SrqOptions, Uar, Xrcd,
};
use mlx5_dv::queue::ethernet::{EthernetOptions, EthernetQueue, FrameFlags, StridingOptions, StridingQueue};
use mlx5_dv::queue::{
    CompletionQueue, Connection, ConnectionOptions, DatagramEndpoint, DatagramOptions, DcInitiator, DcReceiver,
    Endpoint, EventQueue, EventSource, Hub, HubOptions, RemoteSrq, SendQueue, WrFlags, XrcConnection, XrcReceiver,
};
use mlx5_dv::{Death, Device, Error, Options};
use mlx5_open::Sim;
use mlx5_sim::fault::{Fault, Times};

/// How long anything may take that is to succeed.
const SOON: Duration = Duration::from_secs(20);
/// The first vector of event queues to take, behind that of all other completions.
const OWN: u32 = 1;

fn open(sim: &Sim, own: u32) -> Result<Arc<Device>, Error> {
    let mut options = Options::default();
    options.own_event_queues = own;
    sim.open_with(0, options)
}

/// Writes, whose completions come to a queue on a vector.
struct Writer {
    queue: SendQueue<AnyDoorbell>,
    region: Arc<MemoryRegion>,
    _far: Arc<QueuePair>,
}

impl Writer {
    fn new(device: &Arc<Device>, vector: u32) -> (Writer, CompletionQueue) {
        let (pd, uar) = (Pd::alloc(device).unwrap(), Uar::alloc(device).unwrap());
        let cq = CompletionQueue::create(&uar, CqOptions::default().vector(vector)).unwrap();
        let qp = || QueuePair::create(&pd, &uar, cq.cq(), cq.cq(), QpOptions::default().wqes(16, 1)).unwrap();
        let (near, far) = (qp(), qp());
        let path = AddressPath::link_local(device.gids()[0].address.octets()).unwrap();
        for (one, other) in [(&near, &far), (&far, &near)] {
            one.init(&InitAttributes::default()).unwrap();
            one.ready_to_receive(&RtrAttributes::new(other.qpn(), 0, path)).unwrap();
        }
        near.ready_to_send(&RtsAttributes::new(0)).unwrap();
        let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
        let region = MemoryRegion::allocate(&pd, 4096, access).unwrap();
        (Writer { queue: near.send_queue().unwrap(), region, _far: far }, cq)
    }

    fn write(&mut self) {
        let mut batch = self.queue.batch();
        batch.write_inline(1, WrFlags::SIGNALLED, self.region.remote_at(0), &[7; 8]).unwrap();
        batch.ring();
    }
}

#[test]
fn an_event_names_its_completion_queue_to_the_thread_that_took_the_event_queue() {
    const QUEUES: usize = 20;
    let sim = Sim::builder().build().unwrap();
    let device = open(&sim, 2).unwrap();
    let mut events = EventQueue::take(&device, OWN + 1).unwrap();
    let mut both: Vec<_> = (0..QUEUES).map(|_| Writer::new(&device, OWN + 1)).collect();
    assert_eq!(events.poll().unwrap(), None, "nothing is armed");
    // More events than the queue has room for, so that it goes around.
    let rounds = events.capacity() / QUEUES + 2;
    for round in 0..rounds {
        for (writer, cq) in &mut both {
            cq.arm(false).unwrap();
            writer.write();
        }
        let mut named = vec![];
        for _ in 0..QUEUES {
            let cqn = events.wait(SOON).unwrap();
            let (writer, cq) = both.iter_mut().find(|(_, cq)| cq.cq().cqn() == cqn).unwrap();
            cq.count_event();
            let completion = cq.poll().unwrap().unwrap();
            writer.queue.retire(&completion.work).unwrap();
            named.push(cqn);
        }
        named.sort_unstable();
        named.dedup();
        assert_eq!(named.len(), QUEUES, "round {round}: each queue once");
    }
    assert_eq!(sim.violations(), []);
}

#[test]
fn threads_sleep_each_on_an_event_queue_of_its_own() {
    const MESSAGES: usize = 300;
    let sim = Sim::builder().build().unwrap();
    let device = open(&sim, 3).unwrap();
    std::thread::scope(|scope| {
        for vector in OWN..OWN + 3 {
            let (mut writer, mut cq) = Writer::new(&device, vector);
            let mut events = EventQueue::take(&device, vector).unwrap();
            let (posted, next) = std::sync::mpsc::channel();
            scope.spawn(move || {
                for _ in 0..MESSAGES {
                    writer.write();
                    let work = next.recv_timeout(SOON).unwrap();
                    writer.queue.retire(&work).unwrap();
                }
            });
            scope.spawn(move || {
                let mut done = 0;
                while done < MESSAGES {
                    cq.arm(false).unwrap();
                    // One that came before the queue was armed raises no event.
                    if let Some(completion) = cq.poll() {
                        posted.send(completion.unwrap().work).unwrap();
                        done += 1;
                        continue;
                    }
                    assert_eq!(events.wait(SOON).unwrap(), cq.cq().cqn());
                    cq.count_event();
                }
            });
        }
    });
    assert_eq!(sim.violations(), []);
}

#[test]
fn an_event_queue_is_taken_once_at_a_time() {
    let sim = Sim::builder().build().unwrap();
    let device = open(&sim, 1).unwrap();
    let says = |error: Error, words: &[&str]| {
        let text = error.to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    };
    assert_eq!(device.access().completion_vectors(), 2);
    let first = EventQueue::take(&device, OWN).unwrap();
    says(EventQueue::take(&device, OWN).unwrap_err(), &["vector 1 is taken", "drop that one first"]);
    drop(first);
    let second = EventQueue::take(&device, OWN).unwrap();
    says(EventQueue::take(&device, 0).unwrap_err(), &["completion vector", "Options::own_event_queues"]);
    let uar = Uar::alloc(&device).unwrap();
    let refused = CompletionQueue::create(&uar, CqOptions::default().vector(OWN).events()).unwrap_err();
    says(refused, &["events on vector 1", "a thread's own"]);
    drop((second, uar, device));
    let none = sim.open(0).unwrap();
    says(EventQueue::take(&none, 0).unwrap_err(), &["completion vector", "Options::own_event_queues"]);
    drop(none);
    says(open(&sim, 100_000).unwrap_err(), &["own_event_queues", "MSI-X vectors"]);
    assert_eq!(sim.violations(), []);
}

#[test]
fn a_dead_card_wakes_who_sleeps_on_an_event_queue() {
    let sim = Sim::builder().build().unwrap();
    let device = open(&sim, 1).unwrap();
    let mut events = EventQueue::take(&device, OWN).unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(move || events.wait(Duration::MAX));
        sim.handle(0).faults().inject(Fault::SurpriseRemoval, Times::Always);
        let error = waiter.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::Dead(Death::Vanished)), "{error}");
    });
}

#[test]
fn a_wait_for_an_event_that_does_not_come_ends_in_time() {
    let sim = Sim::builder().build().unwrap();
    let device = open(&sim, 1).unwrap();
    let error = EventQueue::take(&device, OWN).unwrap().wait(Duration::from_millis(20)).unwrap_err();
    assert!(error.to_string().contains("an event of completion vector 1 took longer"), "{error}");
}

/// The event queue of vector `OWN` tells who sleeps on it that there is something to `poll` after `post`.
fn wakes<S: EventSource>(
    events: &mut EventQueue,
    source: &mut S,
    post: impl FnOnce(&mut S),
    poll: impl Fn(&mut S) -> bool,
) {
    source.request_event().unwrap();
    assert!(!poll(source), "nothing was posted yet");
    assert_eq!(events.poll().unwrap(), None);
    post(source);
    assert_eq!(events.wait(SOON).unwrap(), source.cqn());
    source.count_event();
    assert!(poll(source), "woken for nothing");
    assert!(source.fd().is_none() && source.take_events() == 0, "a descriptor belongs to the other style");
}

/// What the holders of this file use.
struct Stage {
    events: EventQueue,
    region: Arc<MemoryRegion>,
    pd: Arc<Pd>,
    device: Arc<Device>,
    sim: Sim,
}

impl Stage {
    fn new() -> Stage {
        let sim = Sim::builder().build().unwrap();
        let device = open(&sim, 1).unwrap();
        let pd = Pd::alloc(&device).unwrap();
        let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
        let region = MemoryRegion::allocate(&pd, 1 << 16, access).unwrap();
        Stage { events: EventQueue::take(&device, OWN).unwrap(), region, pd, device, sim }
    }

    /// A buffer of 4 KiB.
    fn buffer(&self, slot: usize) -> Buffer {
        self.region.buffer(slot << 12..(slot + 1) << 12).unwrap()
    }

    /// The path to this function itself.
    fn path(&self) -> AddressPath {
        AddressPath::link_local(self.device.gids()[0].address.octets()).unwrap()
    }
}

fn on_own_vector() -> ConnectionOptions {
    let mut options = ConnectionOptions::default();
    options.vector = OWN;
    options
}

#[test]
fn connections_and_hubs_are_waited_for_by_an_event_queue() {
    let Stage { mut events, region, pd, sim, .. } = Stage::new();
    let mut near = Connection::new(&pd, on_own_vector()).unwrap();
    let mut far = Connection::new(&pd, ConnectionOptions::default()).unwrap();
    near.connect(&far.local().unwrap()).unwrap();
    far.connect(&near.local().unwrap()).unwrap();
    far.receive(region.buffer(0..64).unwrap()).unwrap();
    let post = |near: &mut Connection| {
        near.send_inline(b"one").unwrap();
    };
    wakes(&mut events, &mut near, post, |near| near.poll().unwrap().is_some());

    let mut near = Endpoint::new(&region, on_own_vector()).unwrap();
    let mut far = Endpoint::new(&region, ConnectionOptions::default()).unwrap();
    near.connect(&far.local().unwrap()).unwrap();
    far.connect(&near.local().unwrap()).unwrap();
    let remote = region.remote_at(0);
    let post = |near: &mut Endpoint| {
        let mut sends = near.sends().unwrap();
        sends.write_inline(1, WrFlags::SIGNALLED, b"two", remote).unwrap();
        sends.ring();
    };
    wakes(&mut events, &mut near, post, |near| near.poll().unwrap().is_some());

    let mut options = HubOptions::default();
    (options.connections, options.receives, options.spares, options.each) = (2, 7, 1, on_own_vector());
    let mut hub = Hub::new(&pd, options).unwrap();
    let (one, other) = (hub.join("one").unwrap(), hub.join("other").unwrap());
    hub.connect(one, &hub.local(other).unwrap()).unwrap();
    hub.connect(other, &hub.local(one).unwrap()).unwrap();
    let post = |hub: &mut Hub<_>| {
        hub.send_inline(one, b"three").unwrap();
    };
    wakes(&mut events, &mut hub, post, |hub| hub.poll().unwrap().is_some());
    drop((near, far, hub));
    assert_eq!(sim.violations(), []);
}

#[test]
fn who_receives_datagrams_or_by_shared_queues_is_waited_for_by_an_event_queue() {
    let mut stage = Stage::new();
    let mut options = DatagramOptions::new(0x11);
    options.vector = OWN;
    let mut ud = DatagramEndpoint::new(&stage.region, &options).unwrap();
    let to = AddressHandle::new(&stage.device, &stage.path(), ud.queue_pair().qpn(), 0x11).unwrap();
    let post = |ud: &mut DatagramEndpoint| {
        let mut sends = ud.sends().unwrap();
        sends.send_inline(1, WrFlags::SIGNALLED, &to, b"datagram").unwrap();
        sends.ring();
    };
    wakes(&mut stage.events, &mut ud, post, |ud| ud.poll().unwrap().is_some());

    let (receives, vector) = (SrqOptions::default().wqes(7), CqOptions::default().vector(OWN));
    let domain = Xrcd::alloc(&stage.device).unwrap();
    let mut receiver = XrcReceiver::new(&stage.pd, &domain, receives.clone(), vector.clone()).unwrap();
    let mut options = ConnectionOptions::default();
    let mut near = XrcConnection::new(&stage.pd, &domain, options.clone()).unwrap();
    options.vector = OWN;
    let mut far = XrcConnection::new(&stage.pd, &domain, options).unwrap();
    near.connect(&far.local().unwrap()).unwrap();
    far.connect(&near.local().unwrap()).unwrap();
    (0..2).for_each(|slot| {
        receiver.receive(stage.buffer(slot)).unwrap();
    });
    let srq = RemoteSrq::new(receiver.srqn()).unwrap();
    let post = |_: &mut XrcReceiver| {
        near.send_inline(srq, b"first").unwrap();
    };
    wakes(&mut stage.events, &mut receiver, post, |receiver| receiver.poll().unwrap().is_some());
    let post = |far: &mut XrcConnection| {
        far.send_inline(srq, b"second").unwrap();
    };
    wakes(&mut stage.events, &mut far, post, |far| far.poll().unwrap().is_some());

    let mut receiver = DcReceiver::new(&stage.pd, &DctOptions::new(7), receives, vector).unwrap();
    (2..4).for_each(|slot| {
        receiver.receive(stage.buffer(slot)).unwrap();
    });
    let target = DcTarget::new(&stage.device, &stage.path(), receiver.dct().dctn(), 7).unwrap();
    let mut plain = DcInitiator::new(&stage.pd, &ConnectionOptions::default()).unwrap();
    let post = |_: &mut DcReceiver| {
        plain.send_inline(&target, b"third").unwrap();
    };
    wakes(&mut stage.events, &mut receiver, post, |receiver| receiver.poll().unwrap().is_some());
    let mut initiator = DcInitiator::new(&stage.pd, &on_own_vector()).unwrap();
    let post = |initiator: &mut DcInitiator| {
        initiator.send_inline(&target, b"fourth").unwrap();
    };
    wakes(&mut stage.events, &mut initiator, post, |initiator| initiator.poll().unwrap().is_some());
    drop((ud, near, far, plain, initiator, receiver));
    assert_eq!(stage.sim.violations(), []);
}

#[test]
fn who_receives_frames_is_waited_for_by_an_event_queue() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let mut options = EthernetOptions::default();
    (options.vector, options.inline_bytes) = (OWN, 64);
    let device = open(&sim, 1).unwrap();
    let mut events = EventQueue::take(&device, OWN).unwrap();
    let pd = Pd::alloc(&device).unwrap();
    let mut here = EthernetQueue::new(&pd, options.clone()).unwrap();
    let far = Pd::alloc(&sim.open(1).unwrap()).unwrap();
    options.vector = 0;
    let mut there = EthernetQueue::new(&far, options).unwrap();
    let frame = |to: &Device, from: &Device| [&to.mac().0[..], &from.mac().0, &[0x88, 0xb5], &[7; 46]].concat();

    let sent = frame(there.device(), &device);
    let post = |here: &mut EthernetQueue| {
        here.send_inline(&sent, FrameFlags::empty()).unwrap();
    };
    wakes(&mut events, &mut here, post, |here| here.poll().unwrap().is_some());
    drop(here);

    let mut options = StridingOptions::default();
    options.vector = OWN;
    let mut receiver = StridingQueue::new(&pd, options).unwrap();
    receiver.listen(&[]).unwrap();
    let sent = frame(&device, there.device());
    let post = |_: &mut StridingQueue| {
        there.send_inline(&sent, FrameFlags::empty()).unwrap();
    };
    wakes(&mut events, &mut receiver, post, |receiver| receiver.poll().unwrap().is_some());
    drop((receiver, there));
    assert_eq!(sim.violations(), []);
}
