//! Two functions of a software card find each other, and say so when they do not.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use mlx5_dv::{Device, Mac};
use mlx5_neighbours::groups::Notice;
use mlx5_neighbours::{Error, Ipv4Cidr, Neighbours, address_of};
use mlx5_open::Sim;
use mlx5_sim::fault::{Fault, FrameFate, Times};
use mlx5_smoltcp::{Phy, PhyOptions};
use smoltcp::phy::{Device as _, RxToken as _};

/// How long anything may take that is to succeed.
const SOON: Duration = Duration::from_secs(20);

fn start(device: &Arc<Device>, ipv4: &str) -> Neighbours {
    Neighbours::start(device, Some(ipv4.parse().unwrap())).unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn two_functions_find_each_other_by_both_families() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let devices = [sim.open(0).unwrap(), sim.open(1).unwrap()];
    let (first, second) = (start(&devices[0], "10.0.0.4/24"), start(&devices[1], "10.0.0.5/24"));
    assert_eq!(first.resolve(ip("10.0.0.5"), SOON).unwrap(), devices[1].mac());
    let link_local = devices[0].mac().link_local();
    assert_eq!(second.resolve(link_local.into(), SOON).unwrap(), devices[0].mac());
    drop((first, second, devices));
    assert_eq!(sim.violations(), []);
}

#[test]
fn addresses_of_an_ipv6_network_are_found_and_others_are_behind_its_gateway() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let devices = [sim.open(0).unwrap(), sim.open(1).unwrap()];
    let (first, second) = (start(&devices[0], "2001:db8::4/64"), start(&devices[1], "2001:db8::5/64,2001:db8::4"));
    assert_eq!(first.resolve(ip("2001:db8::5"), SOON).unwrap(), devices[1].mac());
    assert_eq!(first.resolve(devices[1].mac().link_local().into(), SOON).unwrap(), devices[1].mac());
    let error = first.resolve(ip("2001:db8:0:1::9"), SOON).unwrap_err().to_string();
    assert!(error.contains("2001:db8:0:1::9 is not on 2001:db8::4/64") && error.contains("gateway"), "{error}");
    assert!(matches!(first.resolve(ip("10.0.0.5"), SOON), Err(Error::NotOnLink { .. })));
    assert_eq!(second.resolve(ip("2001:db8:0:1::9"), SOON).unwrap(), devices[0].mac());
    drop((first, second, devices));
    assert_eq!(sim.violations(), []);
}

#[test]
fn lost_requests_are_sent_again() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let devices = [sim.open(0).unwrap(), sim.open(1).unwrap()];
    let (first, _second) = (start(&devices[0], "10.0.0.4/24"), start(&devices[1], "10.0.0.5/24"));
    let lost = Fault::Frame { fate: FrameFate::Lost, per_million: 1_000_000 };
    sim.handle(0).faults().inject(lost, Times::Count(2));
    assert_eq!(first.resolve(ip("10.0.0.5"), SOON).unwrap(), devices[1].mac());
}

#[test]
fn an_address_that_nobody_has_is_named_in_time() {
    let sim = Sim::builder().build().unwrap();
    let device = sim.open(0).unwrap();
    let neighbours = start(&device, "10.0.0.4/24");
    for nobody in ["10.0.0.9", "fe80::77"] {
        let error = neighbours.resolve(ip(nobody), Duration::from_millis(50)).unwrap_err();
        assert!(matches!(error, Error::NoAnswer { .. }) && error.to_string().contains(nobody), "{error}");
    }
}

#[test]
fn what_cannot_be_on_the_wire_is_refused_at_once() {
    let sim = Sim::builder().build().unwrap();
    let device = sim.open(0).unwrap();
    let neighbours = start(&device, "10.0.0.4/24");
    let error = neighbours.resolve(ip("10.0.1.3"), SOON).unwrap_err().to_string();
    assert!(error.contains("10.0.1.3 is not on 10.0.0.4/24") && error.contains("gateway"), "{error}");
    assert!(matches!(neighbours.resolve(ip("ff02::1"), SOON), Err(Error::NotUnicast(_))));
    let error = Neighbours::start(&device, None).unwrap_err().to_string();
    assert!(error.contains("flow table"), "one a function: {error}");
    drop(neighbours);
    let group = Ipv4Cidr::new([224, 0, 0, 1].into(), 24);
    let error = Neighbours::start(&device, Some(group.into())).unwrap_err().to_string();
    assert!(error.contains("224.0.0.1"), "{error}");
    let neighbours = Neighbours::start(&device, None).unwrap();
    let error = neighbours.resolve(ip("10.0.0.3"), SOON).unwrap_err().to_string();
    assert!(error.contains("no address but the link-local one"), "{error}");
}

#[test]
fn addresses_of_other_networks_are_reached_by_the_gateway() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let devices = [sim.open(0).unwrap(), sim.open(1).unwrap()];
    let (first, _router) = (start(&devices[0], "10.0.0.4/24,10.0.0.1"), start(&devices[1], "10.0.0.1/24"));
    assert_eq!(first.look_up(ip("10.1.0.2")).unwrap(), None);
    first.forget(ip("10.1.0.2"));
    for far in ["10.1.0.2", "192.0.2.1"] {
        assert_eq!(first.resolve(ip(far), SOON).unwrap(), devices[1].mac());
    }
    assert_eq!(first.look_up(ip("10.1.0.3")).unwrap(), Some(devices[1].mac()));
    assert!(matches!(first.resolve(ip("224.0.0.1"), SOON), Err(Error::NotUnicast(_))));
}

#[test]
fn a_gateway_that_is_not_there_is_named() {
    let sim = Sim::builder().build().unwrap();
    let device = sim.open(0).unwrap();
    let neighbours = start(&device, "10.0.0.4/24,10.0.0.1");
    let error = neighbours.resolve(ip("10.1.0.2"), Duration::from_millis(50)).unwrap_err().to_string();
    assert!(error.starts_with("no answer for 10.0.0.1, the gateway to 10.1.0.2 ("), "{error}");
}

#[test]
fn a_card_that_is_gone_ends_every_wait() {
    let sim = Sim::builder().build().unwrap();
    let device = sim.open(0).unwrap();
    let neighbours = start(&device, "10.0.0.4/24");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| neighbours.resolve(ip("10.0.0.9"), Duration::MAX));
        sim.handle(0).faults().inject(Fault::SurpriseRemoval, Times::Always);
        let error = waiting.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::Queue(_)), "{error}");
    });
}

#[test]
fn a_gid_is_an_address() {
    let mapped = "::ffff:10.0.0.3".parse::<Ipv6Addr>().unwrap().octets();
    assert_eq!(address_of(mapped), ip("10.0.0.3"));
    let link_local: Ipv6Addr = "fe80::1".parse().unwrap();
    assert_eq!(address_of(link_local.octets()), ip("fe80::1"));
}

/// The next frame that is no ARP.
fn next_message(phy: &mut Phy) -> Vec<u8> {
    let end = std::time::Instant::now() + SOON;
    loop {
        phy.wait(Duration::from_millis(100)).unwrap();
        while let Some((frame, _)) = phy.receive(smoltcp::time::Instant::ZERO) {
            let frame = frame.consume(<[u8]>::to_vec);
            if frame[12..14] != [8, 6] {
                return frame;
            }
        }
        assert!(std::time::Instant::now() < end, "nothing is said");
    }
}

/// A query about all groups of IPv4, to be answered within 0.1 s.
const QUERY: [u8; 46] = [
    0x01, 0x00, 0x5e, 0, 0, 1, 2, 0, 0, 0, 0, 9, 8, 0, 0x46, 0, 0, 32, 0, 0, 0, 0, 1, 2, 0, 0, 10, 0, 0, 9, 224, 0, 0,
    1, 0x94, 4, 0, 0, 0x11, 1, 0xee, 0xfe, 0, 0, 0, 0,
];

#[test]
fn the_network_is_told_of_members_and_asks_for_them() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let devices = [sim.open(0).unwrap(), sim.open(1).unwrap()];
    let first = start(&devices[0], "10.0.0.4/24");
    let (group, own) = (ip("239.1.2.3"), Some([10, 0, 0, 4].into()));
    let all_routers = Mac([0x01, 0x00, 0x5e, 0, 0, 2]);
    let mut network = Phy::listen(&devices[1], &[Mac::of_group(group), all_routers], PhyOptions::default()).unwrap();
    let said = |notice: Notice| notice.message(devices[0].mac(), own, group);

    let (joined, again) = (first.join(group).unwrap(), first.join(group).unwrap());
    // Unasked, as one may be lost.
    assert_eq!(next_message(&mut network), said(Notice::Report));
    assert_eq!(next_message(&mut network), said(Notice::Report));
    network.send(&QUERY);
    assert_eq!(next_message(&mut network), said(Notice::Report));
    drop(joined);
    network.send(&QUERY);
    assert_eq!(next_message(&mut network), said(Notice::Report), "one holder is left");
    drop(again);
    assert_eq!(next_message(&mut network), said(Notice::Leave));
    assert!(matches!(first.join(ip("10.0.0.1")), Err(Error::NotMulticast(_))));
    drop((network, first, devices));
    assert_eq!(sim.violations(), []);
}

/// The last word is on the wire before the queue that sends it is gone.
#[test]
fn who_ends_in_a_group_tells_that_it_leaves() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let devices = [sim.open(0).unwrap(), sim.open(1).unwrap()];
    let (group, own) = (ip("239.1.2.3"), Some([10, 0, 0, 4].into()));
    let all_routers = Mac([0x01, 0x00, 0x5e, 0, 0, 2]);
    let mut network = Phy::listen(&devices[1], &[all_routers], PhyOptions::default()).unwrap();
    for _ in 0..200 {
        let first = start(&devices[0], "10.0.0.4/24");
        drop(first.join(group).unwrap());
        drop(first);
        assert_eq!(next_message(&mut network), Notice::Leave.message(devices[0].mac(), own, group));
    }
}

/// More than there are buffers for at once.
const MANY: u8 = 40;

#[test]
fn of_many_groups_each_is_reported_and_left() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let devices = [sim.open(0).unwrap(), sim.open(1).unwrap()];
    let own = Some([10, 0, 0, 4].into());
    let groups = (1..=MANY).map(|number| IpAddr::from([239, 1, 2, number])).collect::<Vec<_>>();
    let all_routers = Mac([0x01, 0x00, 0x5e, 0, 0, 2]);
    let listened: Vec<_> = groups.iter().copied().map(Mac::of_group).chain([all_routers]).collect();
    let mut network = Phy::listen(&devices[1], &listened, PhyOptions::default()).unwrap();
    let first = start(&devices[0], "10.0.0.4/24");
    let joined: Vec<_> = groups.iter().map(|group| first.join(*group).unwrap()).collect();
    let all_say = |network: &mut Phy, notice: Notice| {
        let mut missing: Vec<_> = groups.iter().map(|group| notice.message(devices[0].mac(), own, *group)).collect();
        let end = std::time::Instant::now() + SOON;
        while !missing.is_empty() {
            let said = next_message(network);
            missing.retain(|message| *message != said);
            assert!(std::time::Instant::now() < end, "{} are missing", missing.len());
        }
    };
    all_say(&mut network, Notice::Report);
    network.send(&QUERY);
    all_say(&mut network, Notice::Report);
    drop((joined, first));
    all_say(&mut network, Notice::Leave);
}

#[test]
fn addresses_that_nobody_has_do_not_keep_others_from_being_asked_for() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let devices = [sim.open(0).unwrap(), sim.open(1).unwrap()];
    let mut network = Phy::listen(&devices[1], &[], PhyOptions::default()).unwrap();
    let first = start(&devices[0], "10.0.0.4/24");
    let mut missing: Vec<_> = (100..100 + MANY).map(|number| [10, 0, 0, number]).collect();
    for address in &missing {
        assert_eq!(first.look_up((*address).into()).unwrap(), None);
    }
    let end = std::time::Instant::now() + SOON;
    while !missing.is_empty() {
        network.wait(Duration::from_millis(100)).unwrap();
        while let Some((frame, _)) = network.receive(smoltcp::time::Instant::ZERO) {
            // The target's address in a request of ARP.
            frame.consume(|bytes| missing.retain(|address| bytes.get(38..42) != Some(&address[..])));
        }
        assert!(std::time::Instant::now() < end, "{missing:?} are not asked for");
    }
}

/// An answer of ARP to `to`: `from` has the address `own`.
fn arp_reply((from, own): (Mac, [u8; 4]), to: Mac) -> Vec<u8> {
    let head = [&to.0[..], &from.0, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 2], &from.0, &own].concat();
    [&head[..], &to.0, &[10, 0, 0, 4]].concat()
}

/// The second one of two may come while the first one is read.
#[test]
fn an_answer_that_comes_while_another_is_read_is_learned_from() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let devices = [sim.open(0).unwrap(), sim.open(1).unwrap()];
    let mut network = Phy::listen(&devices[1], &[], PhyOptions::default()).unwrap();
    let first = start(&devices[0], "10.0.0.4/8");
    let [us, them] = [devices[0].mac(), devices[1].mac()];
    for round in 0..=255 {
        let hosts = [[10, 1, round, 1], [10, 1, round, 2]];
        hosts.iter().for_each(|own| assert!(network.send(&arp_reply((them, *own), us))));
        network.wait(Duration::ZERO).unwrap();
        while network.receive(smoltcp::time::Instant::ZERO).is_some() {}
        for own in hosts {
            // Nobody answers requests: what was missed never comes.
            assert_eq!(first.resolve(own.into(), Duration::from_secs(5)).map_err(|error| error.to_string()), Ok(them));
        }
    }
}
