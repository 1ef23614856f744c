//! Asynchronous events as typed values, and the descriptor that tells of them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mlx5_dv::access::{Function, FunctionParts, Irq, Notices};
use mlx5_dv::objects::{
    AccessFlags, AddressPath, AnyDoorbell, CqOptions, InitAttributes, MemoryRegion, Pd, QpOptions, QueuePair,
    RtrAttributes, RtsAttributes, Uar,
};
use mlx5_dv::queue::{CompletionQueue, Hub, HubOptions, SendQueue, WrFlags};
use mlx5_dv::{Death, Device, Error, Event, EventQueue, Events, Options};
use mlx5_open::Sim;
use mlx5_open::virtual_time::World;
use mlx5_prm::eqe::EventQueueType;
use mlx5_sim::card::Card;
use mlx5_sim::fault::{Fault, Times};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

const SOON: Duration = Duration::from_secs(20);

/// Whether the descriptor is readable within `limit`.
fn is_readable(events: &Events, limit: Duration) -> bool {
    let timeout = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
    let fd = events.as_fd();
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)).unwrap() == 1
}

#[test]
fn the_descriptor_is_readable_while_there_are_events() {
    let sim = Sim::builder().build().unwrap();
    let device = sim.open(0).unwrap();
    let pd = Pd::alloc(&device).unwrap();
    let (events, late) = (device.events().unwrap(), device.events().unwrap());
    let mut hub: Hub<()> = Hub::new(&pd, HubOptions::default()).unwrap();
    let ids = [hub.join(()).unwrap(), hub.join(()).unwrap()];
    let [a, b] = ids.map(|id| hub.local(id).unwrap());
    hub.connect(ids[0], &b).unwrap();
    hub.connect(ids[1], &a).unwrap();
    assert!(!is_readable(&events, Duration::ZERO) && events.poll().unwrap().is_none());
    // Both queue pairs say, on their way to reset, that they take no more receives.
    for id in ids {
        hub.leave(id).unwrap();
    }
    for number in [a.qpn, b.qpn] {
        assert!(is_readable(&events, SOON));
        let last = EventQueue { kind: EventQueueType::Qp, number };
        assert_eq!(events.wait(SOON).unwrap(), Event::LastWqeReached(last));
    }
    assert_eq!(events.poll().unwrap(), None);
    assert!(!is_readable(&events, Duration::ZERO), "all were read");
    // Another listener has its own.
    let all: Vec<_> = std::iter::from_fn(|| late.poll().unwrap()).collect();
    assert_eq!(all.len(), 2);
    let error = events.wait(Duration::from_millis(5)).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
}

#[test]
fn a_dead_card_keeps_the_descriptor_readable_and_ends_each_wait() {
    let sim = Sim::builder().build().unwrap();
    let device = sim.open(0).unwrap();
    let events = device.events().unwrap();
    sim.handle(0).faults().inject(Fault::SurpriseRemoval, Times::Always);
    let begin = Instant::now();
    assert!(is_readable(&events, SOON), "waits for nothing");
    for _ in 0..3 {
        assert!(events.poll().unwrap_err().is_dead());
        assert!(events.wait(SOON).unwrap_err().is_dead() && is_readable(&events, Duration::ZERO));
    }
    let late = device.events().unwrap();
    assert!(is_readable(&late, Duration::ZERO) && late.wait(SOON).unwrap_err().is_dead());
    assert!(begin.elapsed() < SOON);
}

/// The software card's interrupts, and a system that has something to say beside them.
#[derive(Debug)]
struct Noticed {
    irq: Box<dyn Irq>,
    wanted_back: OwnedFd,
    bus_error: OwnedFd,
}

impl Irq for Noticed {
    fn vectors(&self) -> u32 {
        self.irq.vectors()
    }

    fn enable(&self, count: u32) -> io::Result<Vec<OwnedFd>> {
        self.irq.enable(count)
    }

    fn disable(&self) -> io::Result<()> {
        self.irq.disable()
    }

    fn notices(&self) -> io::Result<Notices> {
        let copy = |fd: &OwnedFd| fd.try_clone().map(Some);
        Ok(Notices { wanted_back: copy(&self.wanted_back)?, bus_error: copy(&self.bus_error)? })
    }
}

/// A device whose system signals by the two descriptors: that it wants the function back, and an error of the bus.
fn noticed(sim: &Sim) -> (Arc<Device>, [OwnedFd; 2]) {
    let new = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    let (wanted_back, bus_error) = (new(), new());
    let signals = [&wanted_back, &bus_error].map(|fd| fd.try_clone().unwrap());
    let FunctionParts { name, bar, dma, irq } = sim.function(0).into_parts();
    let irq = Box::new(Noticed { irq, wanted_back, bus_error });
    // SAFETY: the parts are those of one function, the interrupts in a wrapper.
    let function = unsafe { Function::new(name, bar, dma, irq) };
    (Device::open(function, Options::default()).unwrap(), signals)
}

fn signal(fd: &OwnedFd) {
    rustix::io::write(fd, &1u64.to_ne_bytes()).unwrap();
}

#[test]
fn that_the_system_wants_the_function_back_is_told_once_to_each_listener() {
    let sim = Sim::builder().build().unwrap();
    let (device, [wanted_back, _]) = noticed(&sim);
    let events = [device.events().unwrap(), device.events().unwrap()];
    assert!(!device.is_wanted_back());
    signal(&wanted_back);
    for events in &events {
        assert_eq!(events.wait(SOON).unwrap(), Event::WantedBack);
        assert_eq!(events.poll().unwrap(), None);
    }
    // The kernel repeats itself while it waits.
    signal(&wanted_back);
    let late = device.events().unwrap();
    assert!(is_readable(&late, SOON) && device.is_wanted_back());
    assert_eq!(late.poll().unwrap(), Some(Event::WantedBack));
    assert!(!is_readable(&late, Duration::ZERO));
    assert_eq!(events[0].poll().unwrap(), None);
    assert!(device.death().is_none() && device.port().is_ok(), "it works until it is closed");
    drop((events, late, device));
    assert_eq!(sim.violations(), []);
}

#[test]
fn an_error_of_the_bus_is_the_end_of_the_card() {
    let sim = Sim::builder().build().unwrap();
    let (device, [_, bus_error]) = noticed(&sim);
    let events = device.events().unwrap();
    signal(&bus_error);
    let error = events.wait(SOON).unwrap_err();
    assert!(matches!(error, Error::Dead(Death::BusError)), "{error}");
    assert!(error.to_string().contains("PCI Express AER"), "{error}");
}

#[test]
fn who_reads_the_events_of_a_thousand_queue_pairs_too_late_is_told_how_many_were_lost() {
    const PAIRS: usize = 1100;
    /// Events that wait for who listens to them.
    const ROOM: usize = 1024;
    let world = World::new(1);
    let card = world.simulated().card(Card::builder().strict(true)).unwrap();
    let device = world.open_with(&card, 0, Options::default()).unwrap();
    let (pd, uar) = (Pd::alloc(&device).unwrap(), Uar::alloc(&device).unwrap());
    let cq = CompletionQueue::create(&uar, CqOptions::default()).unwrap();
    let path = AddressPath::link_local(device.gids()[0].address.octets()).unwrap();
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
    let region = MemoryRegion::allocate(&pd, 4096, access).unwrap();
    let qp = || QueuePair::create(&pd, &uar, cq.cq(), cq.cq(), QpOptions::default().wqes(1, 1)).unwrap();
    let pairs: Vec<_> = (0..PAIRS).map(|_| (qp(), qp())).collect();
    let mut queues: Vec<SendQueue<AnyDoorbell>> = vec![];
    for (near, far) in &pairs {
        for (one, other) in [(near, far), (far, near)] {
            one.init(&InitAttributes::default()).unwrap();
            one.ready_to_receive(&RtrAttributes::new(other.qpn(), 0, path)).unwrap();
        }
        near.ready_to_send(&RtsAttributes::new(0)).unwrap();
        queues.push(near.send_queue().unwrap());
    }
    let events = device.events().unwrap();
    for queue in &mut queues {
        let mut batch = queue.batch();
        batch.write_inline(1, WrFlags::empty(), region.remote_at(0), &[7; 8]).unwrap();
        batch.ring();
    }
    for _ in 0..PAIRS {
        world.clock().pause(Duration::from_millis(1));
    }
    assert!(is_readable(&events, Duration::ZERO));
    assert_eq!(events.wait(SOON).unwrap(), Event::Lost { count: (PAIRS - ROOM) as u64 });
    for _ in 0..ROOM {
        assert!(is_readable(&events, Duration::ZERO));
        assert!(matches!(events.poll().unwrap(), Some(Event::CommunicationEstablished(_))));
    }
    assert_eq!((events.poll().unwrap(), is_readable(&events, Duration::ZERO)), (None, false));
    assert!(device.port().is_ok() && device.death().is_none());
    assert_eq!(card.function(0).strict().take(), []);
}
