//! Event queues that threads of the user's own read, on the software card.

use std::sync::Arc;
use std::time::Duration;

use mlx5_dv::objects::{
    AccessFlags, AddressPath, AnyDoorbell, CqOptions, InitAttributes, MemoryRegion, Pd, QpOptions, QueuePair,
    RtrAttributes, RtsAttributes, Uar,
};
use mlx5_dv::queue::{CompletionQueue, EventQueue, SendQueue, WrFlags};
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
