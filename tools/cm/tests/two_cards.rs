//! Connection managers on two software cards: in virtual time over a cable that loses frames, and by the wall clock
//! with neighbours.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use mlx5_cm::{
    CmRejectReason, Config, ConnectionId, ConnectionManager, Event, ManagerError, Parameters, Route, Service,
};
use mlx5_dv::objects::{AccessFlags, AddressHandle, AddressPath, ExclusiveRegion, MemoryRegion, Pd};
use mlx5_dv::queue::{Connection, ConnectionOptions, DatagramOptions, DatagramQueue, Hub, HubOptions};
use mlx5_dv::{Device, Options};
use mlx5_neighbours::Network;
use mlx5_open::Sim;
use mlx5_open::virtual_time::World;
use mlx5_prm::ib::GSI_QKEY;
use mlx5_sim::card::{Card, SteppedCard};
use mlx5_sim::fault::{Fault, Times};
use mlx5_sim::world::Conditions;

const PORT: u16 = 7174;
/// Longer than all repetitions of a message take.
const LONG: Duration = Duration::from_secs(600);

/// Two managers in one world, polled in turn.
struct Pair {
    world: World,
    cards: [Arc<SteppedCard>; 2],
    managers: [ConnectionManager; 2],
    devices: [Arc<Device>; 2],
}

impl Pair {
    fn new(seed: u64, loss: u32) -> Self {
        let world = World::new(seed);
        let conditions = Conditions { loss, duplication: 20_000, reordering: 20_000, ..Conditions::default() };
        let (cards, _) =
            world.simulated().joined([Card::builder().strict(true), Card::builder().strict(true)], conditions).unwrap();
        let devices = cards.each_ref().map(|card| world.open(card).unwrap());
        let mut managers = devices.each_ref().map(|device| ConnectionManager::new(device, None).unwrap());
        managers[1].listen(Service::tcp(PORT)).unwrap();
        managers[1].listen(Service::udp(PORT)).unwrap();
        Pair { world, cards, managers, devices }
    }

    /// The listener's address.
    fn remote(&self) -> SocketAddr {
        SocketAddr::new(self.devices[1].gids()[0].address.into(), PORT)
    }

    /// The next event, and whose it is.
    fn event(&mut self) -> Option<(usize, ConnectionId, Event)> {
        let clock = self.world.clock().clone();
        let end = clock.now() + LONG;
        while clock.now() < end {
            for (end, manager) in self.managers.iter_mut().enumerate() {
                if let Some((id, event)) = manager.poll().unwrap() {
                    return Some((end, id, event));
                }
            }
            clock.pause(Duration::from_millis(5));
            if self.managers.iter().all(|manager| manager.connections() == 0) {
                return None;
            }
        }
        None
    }
}

fn connection(device: &Arc<Device>) -> (Connection, Arc<MemoryRegion>) {
    let pd = Pd::alloc(device).unwrap();
    let region = MemoryRegion::allocate(&pd, 4096, AccessFlags::LOCAL_WRITE).unwrap();
    (Connection::new(&pd, ConnectionOptions::default()).unwrap(), region)
}

#[test]
fn no_more_reads_are_agreed_on_than_the_cards_can_have_in_flight() {
    let mut pair = Pair::new(4, 0);
    let (mut near, _near_region) = connection(&pair.devices[0]);
    let (mut far, _far_region) = connection(&pair.devices[1]);
    let wants = |qpn| Parameters { initiator_depth: 200, responder_resources: 200, ..Parameters::new(qpn, 0) };
    let remote = pair.remote();
    pair.managers[0].connect(remote, Route::default(), &wants(near.queue_pair().qpn())).unwrap();

    let (1, theirs, Event::ConnectRequest { .. }) = pair.event().unwrap() else { panic!() };
    let (rtr, rts) = pair.managers[1].attributes(theirs).unwrap();
    assert_eq!((rtr.max_dest_rd_atomic, rts.max_rd_atomic), (Some(16), Some(16)));
    far.connect_by(&rtr, &rts).unwrap();
    pair.managers[1].accept(theirs, &wants(far.queue_pair().qpn())).unwrap();

    let (0, ours, Event::ConnectResponse { .. }) = pair.event().unwrap() else { panic!() };
    let agreed = pair.managers[0].agreed(ours).unwrap();
    assert_eq!((agreed.responder_resources, agreed.initiator_depth), (16, 16));
    let (rtr, rts) = pair.managers[0].attributes(ours).unwrap();
    near.connect_by(&rtr, &rts).unwrap();
}

#[test]
fn queue_pairs_are_connected_by_what_both_agree_on_and_carry_messages() {
    for (seed, loss) in [(1, 0), (2, 50_000), (3, 200_000)] {
        let mut pair = Pair::new(seed, loss);
        let (mut near, near_region) = connection(&pair.devices[0]);
        let (mut far, far_region) = connection(&pair.devices[1]);
        far.receive(far_region.buffer(0..4096).unwrap()).unwrap();
        near.receive(near_region.buffer(0..4096).unwrap()).unwrap();
        let offer = Parameters { initiator_depth: 3, ..Parameters::new(near.queue_pair().qpn(), 0x123) };
        let remote = pair.remote();
        pair.managers[0].connect(remote, Route::default(), &offer.private_data(b"hello")).unwrap();

        let (1, theirs, Event::ConnectRequest { private_data, .. }) = pair.event().unwrap() else { panic!() };
        assert_eq!(&private_data[..6], b"hello\0");
        let (mut rtr, rts) = pair.managers[1].attributes(theirs).unwrap();
        assert_eq!((rtr.remote_qpn, rts.sq_psn, rtr.max_dest_rd_atomic), (near.queue_pair().qpn(), 0x123, Some(3)));
        rtr.rq_psn = 0x456;
        far.connect_by(&rtr, &rts).unwrap();
        pair.managers[1].accept(theirs, &Parameters::new(far.queue_pair().qpn(), 0x456)).unwrap();

        let (0, ours, Event::ConnectResponse { .. }) = pair.event().unwrap() else { panic!() };
        let (rtr, rts) = pair.managers[0].attributes(ours).unwrap();
        assert_eq!((rts.sq_psn, rtr.rq_psn, rts.max_rd_atomic), (0x456, 0x123, Some(3)));
        near.connect_by(&rtr, &rts).unwrap();
        pair.managers[0].ready(ours, &[]).unwrap();
        assert!(matches!(pair.event(), Some((1, id, Event::Established { .. })) if id == theirs));

        near.send_inline(b"ping").unwrap();
        assert_eq!(far.wait(LONG).unwrap().result.unwrap().byte_len, 4);
        far.send_inline(b"pong!").unwrap();
        while near.wait(LONG).unwrap().result.unwrap().byte_len != 5 {}
        let queue_pairs = [near, far].map(|connection| Arc::clone(connection.queue_pair()));
        pair.managers[1].disconnect(theirs, b"bye").unwrap();
        for (manager, (id, qp)) in pair.managers.iter_mut().zip([ours, theirs].into_iter().zip(&queue_pairs)) {
            manager.keep(id, qp);
        }
        let queue_pairs = queue_pairs.map(|qp| Arc::downgrade(&qp));
        let mut ended = Vec::new();
        while let Some((end, _, event)) = pair.event() {
            assert_eq!(queue_pairs[end].upgrade().is_none(), event.is_last(), "{event:?}");
            ended.push((end, matches!(event, Event::Disconnected { .. })));
        }
        ended.sort();
        assert_eq!(ended, [(0, false), (0, true), (1, false), (1, true)], "each is told, and when timewait is over");
    }
}

/// No event tells of the end of a connection that was destroyed.
#[test]
fn the_queue_pairs_of_destroyed_connections_are_not_kept_for_ever() {
    let mut pair = Pair::new(8, 0);
    let remote = pair.remote();
    let mut before = Weak::new();
    for round in 0..4 {
        pair.managers[0].connect(remote, Route::default(), &Parameters::new(7, 0)).unwrap();
        let Some((1, theirs, Event::ConnectRequest { .. })) = pair.event() else { panic!("round {round}") };
        let (far, _region) = connection(&pair.devices[1]);
        let queue_pair = Arc::downgrade(far.queue_pair());
        pair.managers[1].accept(theirs, &Parameters::new(far.queue_pair().qpn(), 0)).unwrap();
        pair.managers[1].destroy(theirs).unwrap();
        pair.managers[1].keep(theirs, far.queue_pair());
        drop(far);
        assert!(queue_pair.upgrade().is_some(), "its connection is not forgotten");
        assert!(before.upgrade().is_none(), "the queue pair of round {round} less one is there yet");
        before = queue_pair;
        while pair.event().is_some() {}
    }
}

/// A remote that sends faster than they are handled would keep a call for ever, and its answers would take all memory.
#[test]
fn a_flood_of_requests_is_handled_in_turns() {
    const REQUESTS: usize = 200;
    let mut pair = Pair::new(1, 0);
    let nobody = SocketAddr::new(pair.remote().ip(), PORT + 1);
    let clock = pair.world.clock().clone();
    for _ in 0..REQUESTS {
        pair.managers[0].connect(nobody, Route::default(), &Parameters::new(7, 0)).unwrap();
        assert!(pair.managers[0].poll().unwrap().is_none());
        clock.pause(Duration::from_micros(50));
    }
    for _ in 0..20 {
        assert!(pair.managers[0].poll().unwrap().is_none());
        clock.pause(Duration::from_millis(1));
    }
    let turns = (0..).take_while(|_| pair.managers[1].prepare_sleep().unwrap() == Some(Duration::ZERO)).count();
    assert_eq!(turns, REQUESTS / 64);
    let rejected = (0..REQUESTS).map_while(|_| pair.event());
    let rejected = rejected.filter(|(end, _, event)| *end == 0 && matches!(event, Event::Rejected { .. }));
    assert_eq!(rejected.count(), REQUESTS, "each is answered");
}

/// A remote may send what is longer than any message of the connection manager's.
#[test]
fn a_datagram_that_is_too_long_is_dropped() {
    let mut pair = Pair::new(6, 0);
    let pd = Pd::alloc(&pair.devices[0]).unwrap();
    let region = ExclusiveRegion::allocate(&pd, 4096).unwrap();
    let mut queue = DatagramQueue::new(&pd, DatagramOptions::new(GSI_QKEY)).unwrap();
    let path = AddressPath::link_local(pair.devices[1].gids()[0].address.octets()).unwrap();
    let to = AddressHandle::new(&pair.devices[0], &path, 1, GSI_QKEY).unwrap();
    for len in [257, 1024] {
        queue.send(&to, region.buffer(0..len).unwrap()).unwrap();
        queue.wait(LONG).unwrap().result.unwrap();
    }
    pair.world.clock().pause(Duration::from_millis(1));
    let remote = pair.remote();
    pair.managers[0].resolve(remote, b"who").unwrap();
    assert!(matches!(pair.event(), Some((1, _, Event::ResolveRequest { .. }))));
}

#[test]
fn a_queue_pair_1_that_failed_is_used_again() {
    let mut pair = Pair::new(7, 0);
    for (end, what) in [(0, "the request"), (1, "the answer")] {
        let error = Fault::CompletionError { qpn: None, syndrome: 0x04, vendor_syndrome: 0 };
        pair.cards[end].function(0).faults().inject(error, Times::Count(1));
        let remote = pair.remote();
        pair.managers[0].resolve(remote, b"who").unwrap();
        let Some((1, id, Event::ResolveRequest { .. })) = pair.event() else { panic!("{what}") };
        pair.managers[1].answer(id, 0x55, 7, &[]).unwrap();
        assert!(matches!(pair.event(), Some((0, _, Event::Resolved { .. }))), "{what} is sent again");
    }
}

#[test]
fn the_death_of_its_card_is_told_by_what_looks_for_events() {
    let mut pair = Pair::new(8, 0);
    let remote = pair.remote();
    pair.managers[0].resolve(remote, b"who").unwrap();
    pair.cards[0].function(0).faults().inject(Fault::Health { syndrome: 0x8 }, Times::Always);
    let clock = pair.world.clock().clone();
    let end = clock.now() + LONG;
    while pair.devices[0].death().is_none() && clock.now() < end {
        clock.pause(Duration::from_millis(5));
    }
    let manager = &mut pair.managers[0];
    let is_dead = |error| matches!(error, ManagerError::Device(error) if error.is_dead());
    assert!(is_dead(manager.poll().expect_err("an answer from a dead card")));
    assert!(is_dead(manager.wait(LONG).expect_err("an answer from a dead card")));
    assert!(is_dead(manager.prepare_sleep().expect_err("a sleep until a dead card wakes it")));
}

fn number_in(private_data: &[u8]) -> u32 {
    u32::from_be_bytes(*private_data.first_chunk().unwrap())
}

/// 1000 connections of queue pairs at once: a third is rejected, the others are made and ended. Then nothing of them is
/// left, in the managers or on the cards.
fn thousand(seed: u64) -> impl PartialEq + std::fmt::Debug {
    const ALL: u32 = 1000;
    let mut pair = Pair::new(seed, 50_000);
    let remote = pair.remote();
    // Made first: a manager that waits for the card meanwhile would miss messages.
    let hubs = pair.devices.each_ref().map(|device| {
        let mut options = HubOptions::default();
        (options.connections, options.each.send_depth) = (ALL, 1);
        let mut hub = Hub::new(&Pd::alloc(device).unwrap(), options).unwrap();
        for _ in 0..ALL {
            hub.join(()).unwrap();
        }
        hub
    });
    let qpns = hubs.each_ref().map(|hub| hub.connections().map(|id| hub.local(id).unwrap().qpn).collect::<Vec<_>>());
    let qpn = |end: usize, number: u32| qpns[end][number as usize];
    for number in 0..ALL {
        let offer = Parameters::new(qpn(0, number), 0).private_data(&number.to_be_bytes());
        pair.managers[0].connect(remote, Route::default(), &offer).unwrap();
    }
    let (mut rejected, mut made, mut ended) = (0, 0, [0; 2]);
    while let Some((end, id, event)) = pair.event() {
        let manager = &mut pair.managers[end];
        match (end, event) {
            (1, Event::ConnectRequest { private_data, .. }) if number_in(&private_data).is_multiple_of(3) => {
                manager.reject(id, &[]).unwrap()
            }
            (1, Event::ConnectRequest { private_data, .. }) => {
                manager.accept(id, &Parameters::new(qpn(1, number_in(&private_data)), 0)).unwrap();
            }
            (0, Event::ConnectResponse { .. }) => {
                made += 1;
                manager.ready(id, &[]).unwrap();
            }
            (1, Event::Established { .. }) => manager.disconnect(id, &[]).unwrap(),
            (0, Event::Rejected { reason: CmRejectReason::ConsumerDefined, .. }) => rejected += 1,
            (end, Event::Disconnected { confirmed: true, .. }) => ended[end] += 1,
            (_, Event::TimewaitExit) => {}
            (end, other) => panic!("end {end}: {other:?}"),
        }
    }
    assert_eq!((rejected, made, ended), (334, 666, [666; 2]));
    assert_eq!(pair.managers.each_ref().map(|manager| manager.connections()), [0, 0]);
    let Pair { world, cards, managers, devices } = pair;
    drop((hubs, managers, devices));
    // Strict mode tells of objects that are left when a card is closed.
    assert_eq!(cards.each_ref().map(|card| card.function(0).strict().take()), [vec![], vec![]]);
    world.simulated().record()
}

#[test]
fn a_thousand_connections_under_five_per_cent_loss_leave_nothing_and_each_run_is_the_same() {
    let another = std::thread::spawn(|| thousand(7));
    let one = thousand(7);
    assert_eq!(one, another.join().unwrap());
}

#[test]
fn the_queue_pair_of_a_datagram_service_is_found() {
    let mut pair = Pair::new(4, 50_000);
    let remote = pair.remote();
    pair.managers[0].resolve(remote, b"who").unwrap();
    let (1, id, Event::ResolveRequest { .. }) = pair.event().unwrap() else { panic!() };
    pair.managers[1].answer(id, 0x55, 0x0123_4567, &[]).unwrap();
    assert!(matches!(pair.event(), Some((0, _, Event::Resolved { qpn: 0x55, qkey: 0x0123_4567, .. }))));
    assert!(pair.event().is_none());
}

#[test]
fn a_function_has_one_connection_manager_and_reaches_what_it_has_an_address_for() {
    let mut pair = Pair::new(5, 0);
    let error = ConnectionManager::new(&pair.devices[0], None).unwrap_err();
    assert!(matches!(&error, ManagerError::Device(_)), "{error}");
    let error = pair.managers[0].connect("10.0.0.1:1".parse().unwrap(), Route::default(), &Parameters::new(1, 0));
    let text = error.unwrap_err().to_string();
    assert!(text.starts_with("no GID of the function reaches 10.0.0.1: its GIDs are fe80::"), "{text}");
    let [manager, _] = pair.managers;
    drop(manager);
    ConnectionManager::new(&pair.devices[0], None).unwrap();
}

#[test]
fn neighbours_find_the_way_over_both_families() {
    neighbours_find_the_way(["10.0.0.1/24", "10.0.0.2/24"]);
    neighbours_find_the_way(["2001:db8::1/64", "2001:db8::2/64"]);
}

fn neighbours_find_the_way(networks: [&str; 2]) {
    let sim = Sim::builder().functions(2).build().unwrap();
    let networks = networks.map(|network| network.parse::<Network>().unwrap());
    let [ours, theirs] = networks.map(|network| network.address());
    let mut managers = [0, 1].map(|index| {
        let network = networks[index];
        let device = sim.open_with(index, Options::default().ip(network.address())).unwrap();
        ConnectionManager::start(&device, Some(network)).unwrap()
    });
    managers[1].listen(Service::tcp(PORT)).unwrap();
    let [mut near, mut far] = managers;
    let server = std::thread::spawn(move || {
        let (id, event) = far.wait(LONG).unwrap();
        let Event::ConnectRequest { remote, .. } = event else { panic!("{event:?}") };
        assert_eq!(remote.ip(), ours);
        far.reject(id, b"not today").unwrap();
        assert!(matches!(far.wait(Duration::from_secs(2)), Err(ManagerError::Timeout(_))));
    });
    near.connect(SocketAddr::new(theirs, PORT), Route::default(), &Parameters::new(1, 0)).unwrap();
    let (_, event) = near.wait(LONG).unwrap();
    let Event::Rejected { reason, private_data, .. } = event else { panic!("{event:?}") };
    assert_eq!((reason, &private_data[..9]), (CmRejectReason::ConsumerDefined, &b"not today"[..]));
    server.join().unwrap();
    assert_eq!(sim.violations(), []);
}

/// A loop that sleeps on the descriptors of two managers wakes for messages, and for what is due without one.
#[test]
fn descriptors_wake_a_loop_for_messages_and_for_what_is_due() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let mut config = Config::default();
    // Nobody answers: each of three messages takes 4 ms.
    (config.response_timeout, config.packet_lifetime, config.retries) = (9, 7, 2);
    let devices = [0, 1].map(|index| sim.open(index).unwrap());
    let mut managers =
        devices.each_ref().map(|device| ConnectionManager::with_config(device, None, config.clone()).unwrap());
    let host = devices[1].gids()[0].address.into();
    managers[1].listen(Service::udp(PORT)).unwrap();
    managers[0].resolve(SocketAddr::new(host, PORT), b"who").unwrap();
    // A link-local address that nobody has.
    let nobody = SocketAddr::new("fe80::ff:fe00:99".parse().unwrap(), PORT);
    managers[0].connect(nobody, Route::default(), &Parameters::new(1, 0)).unwrap();
    let (mut resolved, mut unreachable, mut sleeps) = (false, false, 0);
    while !(resolved && unreachable) {
        while let Some((id, event)) = managers[1].poll().unwrap() {
            let Event::ResolveRequest { .. } = event else { panic!("{event:?}") };
            managers[1].answer(id, 0x55, 7, &[]).unwrap();
        }
        while let Some((_, event)) = managers[0].poll().unwrap() {
            match event {
                Event::Resolved { qpn: 0x55, .. } => resolved = true,
                Event::Unreachable => unreachable = true,
                other => panic!("{other:?}"),
            }
        }
        let limits = managers.each_mut().map(|manager| manager.prepare_sleep().unwrap());
        let [Some(near), Some(far)] = limits else { continue };
        let limit = rustix::event::Timespec::try_from(near.min(far).min(LONG)).unwrap();
        let mut fds = managers.each_ref().map(|manager| {
            rustix::event::PollFd::from_borrowed_fd(manager.fd().unwrap(), rustix::event::PollFlags::IN)
        });
        rustix::event::poll(&mut fds, Some(&limit)).unwrap();
        sleeps += 1;
    }
    assert!(sleeps < 1000, "{sleeps} sleeps: it did not sleep");
}
