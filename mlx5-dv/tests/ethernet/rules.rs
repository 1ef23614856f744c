//! Flow rules: which frames they are for, what they do with them, and what they count.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use etherparse::PacketBuilder;
use mlx5_dv::objects::{
    AccessFlags, Counted, Direction, FlowActions, FlowAging, FlowCounter, FlowCounters, FlowDestination, FlowGroup,
    FlowMatch, FlowRule, FlowRules, FlowRulesOptions, FlowTable, FlowTableOptions, HeaderChanges, HeaderField,
    MemoryRegion, ModifyHeader, PacketReformat, Pd, Rq, RqOptions, Strides, Tir, TransportDomain, Uar, VlanTag,
    VxlanTunnel,
};
use mlx5_dv::queue::ethernet::{EthernetOptions, FrameCompletion};
use mlx5_dv::queue::{CompletionQueue, RetireError, WorkError};
use mlx5_dv::{Device, Mac};
use mlx5_open::Sim;
use mlx5_open::virtual_time::World;
use mlx5_sim::card::Card;
use mlx5_sim::world::Conditions;

use crate::ends::{EthernetEnd, SOON, content, end, of_small_strides, refusal};

const HERE: [u8; 4] = [10, 0, 0, 1];
const THERE: [u8; 4] = [10, 0, 0, 2];

/// Two functions; the second listens to nothing yet.
fn two() -> (Sim, EthernetEnd, EthernetEnd) {
    let sim = Sim::builder().functions(2).build().unwrap();
    let [here, mut there] = [0, 1].map(|function| EthernetEnd::new(&sim, function, EthernetOptions::default()));
    there.post(16);
    (sim, here, there)
}

fn rules(device: &Arc<Device>) -> FlowRules {
    let rules = FlowRules::create(device, FlowRulesOptions::default()).unwrap();
    rules.start().unwrap();
    rules
}

/// A UDP frame between the functions, with correct checksums.
fn udp(from: Mac, to: Mac, ttl: u8, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2(from.0, to.0).ipv4(HERE, THERE, ttl).udp(ports.0, ports.1);
    builder.write(&mut frame, payload).unwrap();
    frame
}

fn between(here: &EthernetEnd, there: &EthernetEnd, port: u16) -> Vec<u8> {
    udp(here.device.mac(), there.device.mac(), 64, (7, port), b"payload of a datagram")
}

/// The next frame, with its tag.
fn heard(end: &mut EthernetEnd) -> (Vec<u8>, u32) {
    let done = end.queue.wait(SOON).unwrap();
    let tag = done.result.as_ref().unwrap().work.qpn;
    (content(done), tag)
}

/// Nothing but `last` arrives, which is sent after all else.
fn only(here: &mut EthernetEnd, there: &mut EthernetEnd, last: &[u8]) {
    here.send(last);
    assert_eq!(heard(there).0, last);
}

#[test]
fn each_frame_meets_the_first_rule_that_is_for_it_and_is_counted() {
    let (sim, mut here, mut there) = two();
    let rules = rules(&there.device);
    let counters = [(); 3].map(|()| FlowCounter::create(&there.device).unwrap());
    let to_us = FlowMatch::new().destination_mac(there.device.mac());
    let tir = there.queue.tir().clone();
    let port = |port| to_us.clone().udp_destination_port(port);
    let away = rules.add(0, &port(53), FlowActions::drop().count(&counters[0])).unwrap();
    let tagged = rules.add(0, &port(80), FlowActions::forward(&tir).tag(0x77).count(&counters[1])).unwrap();
    let rest = rules.add(1, &to_us, FlowActions::forward(&tir).count(&counters[2])).unwrap();
    let (dns, web, other) = (between(&here, &there, 53), between(&here, &there, 80), between(&here, &there, 9));
    for frame in [&dns, &web, &dns, &other] {
        here.send(frame);
    }
    assert_eq!(heard(&mut there), (web.clone(), 0x77));
    assert_eq!(heard(&mut there), (other.clone(), there.queue.rq().rqn()));
    let len = dns.len() as u64;
    let counted = |packets| Counted { packets, bytes: packets * len };
    assert_eq!(counters.each_ref().map(|counter| counter.read().unwrap()), [counted(2), counted(1), counted(1)]);
    assert_eq!(counters[0].take().unwrap(), counted(2));
    assert_eq!(counters[0].read().unwrap(), counted(0));
    // Without the first rule, the next is for its frames.
    away.delete().unwrap();
    only(&mut here, &mut there, &dns);
    drop((tagged, rest, rules, tir));
    FlowCounters::destroy(counters.into_iter().next().unwrap().counters().clone()).unwrap_err();
    end(sim, [here, there], &[]);
}

#[test]
fn frames_are_matched_by_every_header() {
    let (sim, mut here, mut there) = two();
    let (from, to) = (here.device.mac(), there.device.mac());
    let rules = rules(&there.device);
    let plain = between(&here, &there, 80);
    let mut tagged = plain.clone();
    tagged.splice(12..12, [0x81, 0, 0xa0, 5]);
    let mut twice = plain.clone();
    twice.splice(12..12, [0x88, 0xa8, 0, 9, 0x81, 0, 0, 6]);
    let mut tcp = Vec::new();
    let builder = PacketBuilder::ethernet2(from.0, to.0).ipv4(HERE, THERE, 3).tcp(1, 2, 3, 4).syn();
    builder.write(&mut tcp, b"").unwrap();
    let mut six = Vec::new();
    let builder = PacketBuilder::ethernet2(from.0, to.0).ipv6([0xfd; 16], [0xfe; 16], 9).udp(1, 2);
    builder.write(&mut six, b"six").unwrap();
    let mut marked = plain.clone();
    marked[15] = 46 << 2 | 1;
    let vxlan = udp(from, to, 64, (1, 4789), &[&[8, 0, 0, 0, 0, 0, 77, 0][..], &tcp].concat());
    let all = FlowMatch::new;
    let inside = all().vxlan(77).inner(all().tcp_destination_port(2).destination_ip(Ipv4Addr::from(THERE).into()));
    let cases = [
        (all().destination_mac(to).untagged().udp_destination_port(80).dscp(0), &plain),
        (all().source_mac(from).vlan(5).vlan_priority(5), &tagged),
        (all().service_vlan(9).inner_vlan(6), &twice),
        (all().tcp_flags(2, 0x12).hop_limit(3).tcp_source_port(1), &tcp),
        (all().source_net([0xfd; 16].into(), 8).udp_source_port(1).fragments(false), &six),
        (all().dscp(46).ecn(1).destination_net(Ipv4Addr::new(10, 0, 0, 77).into(), 24), &marked),
        (inside, &vxlan),
    ];
    let tir = there.queue.tir().clone();
    let made: Vec<_> = (1..)
        .zip(&cases)
        .map(|(tag, (matched, _))| rules.add(0, matched, FlowActions::forward(&tir).tag(tag)).unwrap())
        .collect();
    for (tag, (_, frame)) in (1..).zip(&cases) {
        here.send(frame);
        assert_eq!(heard(&mut there), (frame.to_vec(), tag), "by exactly one of the rules");
    }
    here.send(&between(&here, &there, 81));
    only(&mut here, &mut there, &plain);
    drop((made, rules, tir));
    end(sim, [here, there], &[]);
}

#[test]
fn headers_change_on_the_way_to_the_queue() {
    let (sim, mut here, mut there) = two();
    let rules = rules(&there.device);
    let (from, to) = (here.device.mac(), there.device.mac());
    let other = Mac([2, 9, 9, 9, 9, 9]);
    let changes = HeaderChanges::new()
        .destination_mac(other)
        .decrement_ttl()
        .udp_destination_port(99)
        .copy(HeaderField::UdpDestinationPort, HeaderField::UdpSourcePort);
    let modify = ModifyHeader::create(&there.device, Direction::Receive, &changes).unwrap();
    let tir = there.queue.tir().clone();
    let to_us = FlowMatch::new().destination_mac(to).udp_destination_port(80);
    let mut rule = rules.add(0, &to_us, FlowActions::forward(&tir).modify(&modify)).unwrap();
    let frame = between(&here, &there, 80);
    here.send(&frame);
    let changed = udp(from, other, 63, (99, 99), b"payload of a datagram");
    assert_eq!(heard(&mut there).0, changed, "with checksums as another's code computes them");
    // The same rule with other actions.
    rule.set_actions(FlowActions::forward(&tir).push_vlan(VlanTag { priority: 3, ..VlanTag::new(7) })).unwrap();
    here.send(&frame);
    let mut tagged = frame.clone();
    tagged.splice(12..12, [0x81, 0, 0x60, 7]);
    assert_eq!(heard(&mut there).0, tagged);
    rule.set_actions(FlowActions::forward(&tir).pop_vlan()).unwrap();
    here.send(&tagged);
    assert_eq!(heard(&mut there).0, frame);
    rule.set_actions(&tir).unwrap();
    only(&mut here, &mut there, &frame);
    ModifyHeader::destroy(modify).unwrap();
    drop((rule, rules, tir));
    end(sim, [here, there], &[]);
}

#[test]
fn tables_follow_each_other_and_metadata_goes_along() {
    let (sim, mut here, mut there) = two();
    let device = there.device.clone();
    let tir = there.queue.tir().clone();
    // Another way to the same queue.
    let again = Tir::create(tir.transport_domain(), there.queue.rq()).unwrap();
    let second = FlowTable::create(&device, 1, 4).unwrap();
    let metadata = FlowMatch::new().metadata(2, 0x1234, u32::MAX);
    let group = FlowGroup::create(&second, 0..4, &metadata).unwrap();
    let marked = mlx5_dv::objects::FlowRule::create(&group, &metadata, &tir).unwrap();
    let first = FlowTable::create(&device, 0, 4).unwrap();
    let port = |port| FlowMatch::new().udp_destination_port(port);
    let ports = FlowGroup::create(&first, 0..4, &port(0)).unwrap();
    let marks = ModifyHeader::create(&device, Direction::Receive, &HeaderChanges::new().metadata(2, 0x1234)).unwrap();
    let create =
        |matched: &FlowMatch, actions: FlowActions| mlx5_dv::objects::FlowRule::create(&ports, matched, actions);
    let mut made = [
        create(&port(80), FlowActions::table(&second).modify(&marks)).unwrap(),
        create(&port(81), FlowActions::table(&second)).unwrap(),
        create(&port(82), FlowActions::several([&tir, &again].map(|tir| FlowDestination::Tir(tir.clone())))).unwrap(),
    ];
    first.set_root().unwrap();
    let [known, unknown, doubled] = [80, 81, 82].map(|port| between(&here, &there, port));
    here.send(&unknown);
    here.send(&known);
    assert_eq!(heard(&mut there).0, known, "what has no metadata is dropped in the second table");
    here.send(&doubled);
    assert_eq!([heard(&mut there).0, heard(&mut there).0], [doubled.clone(), doubled]);
    let text = refusal(mlx5_dv::objects::FlowRule::create(&group, &metadata, &first));
    assert!(text.starts_with("level is 0"), "{text}");
    let text = refusal(create(&port(5), FlowActions::several([])));
    assert!(text.contains("without destinations"), "{text}");
    let many = (0..65).map(|_| FlowDestination::Tir(tir.clone()));
    let text = refusal(create(&port(5), FlowActions::several(many)));
    assert!(text.contains("log_max_destination = 6"), "{text}");
    let [to_tir, to_table] = [FlowDestination::Tir(tir.clone()), FlowDestination::Table(second.clone())];
    for (twice, name) in [(&to_tir, format!("TIR {:#x}", tir.tirn())), (&to_table, "flow table 0x".into())] {
        // Not only neighbours in the list are the same.
        let again = FlowDestination::Tir(again.clone());
        let text = refusal(create(&port(5), FlowActions::several([twice.clone(), again, twice.clone()])));
        assert!(text.contains(&name) && text.ends_with("twice: leave one of them out"), "{text}");
    }
    made[2].set_actions(FlowActions::several([to_tir.clone(), to_table])).unwrap();
    let text = refusal(made[2].set_actions(FlowActions::several([to_tir.clone(), to_tir])));
    assert!(text.ends_with("twice: leave one of them out"), "{text}");
    let text = refusal(create(&port(5), FlowActions::kernel()));
    assert!(text.contains("where no kernel has"), "{text}");
    let text = refusal(create(&port(5), FlowActions::send()));
    assert!(text.contains("needs a table of frames that are sent"), "{text}");
    let text = refusal(create(&port(5), FlowActions::forward(&tir).decap()));
    assert!(text.contains("FlowTableOptions::tunnels"), "{text}");
    let text = refusal(create(&port(5), FlowActions::forward(&tir).tag(1 << 24)));
    assert!(text.contains("flow tag is 0x1000000"), "{text}");
    drop((made, marked, ports, group, marks, again));
    FlowTable::destroy(first).unwrap();
    FlowTable::destroy(second).unwrap();
    drop((tir, device));
    end(sim, [here, there], &[]);
}

#[test]
fn a_tunnel_is_entered_where_a_frame_is_sent_and_left_where_it_is_received() {
    let (sim, mut here, mut there) = two();
    let options = |direction| {
        let mut options = FlowRulesOptions::default();
        (options.direction, options.tunnels, options.priorities) = (direction, true, 1);
        options
    };
    let tunnel = VxlanTunnel {
        source_mac: here.device.mac(),
        destination_mac: there.device.mac(),
        source: HERE.into(),
        destination: THERE.into(),
        source_port: 5555,
        vni: 0x1234,
    };
    let encap = PacketReformat::vxlan(&here.device, &tunnel).unwrap();
    let out = FlowRules::create(&here.device, options(Direction::Transmit)).unwrap();
    out.start().unwrap();
    let inner_mac = Mac([2, 1, 1, 1, 1, 1]);
    let to_inner = FlowMatch::new().destination_mac(inner_mac);
    let sent = FlowCounter::create(&here.device).unwrap();
    let into = out.add(0, &to_inner, FlowActions::send().encap(&encap).count(&sent)).unwrap();
    let silent = out.add(0, &FlowMatch::new().ethertype(0x88b6), FlowActions::drop()).unwrap();

    let rules = FlowRules::create(&there.device, options(Direction::Receive)).unwrap();
    rules.start().unwrap();
    let tir = there.queue.tir().clone();
    let rest = rules.add(0, &FlowMatch::new().ethertype(0x0800), &tir).unwrap();
    let frame = udp(here.device.mac(), inner_mac, 64, (1, 2), b"in a tunnel");
    here.send(&frame);
    // As it was on the wire.
    let (outside, _) = heard(&mut there);
    let wanted = etherparse::SlicedPacket::from_ethernet(&outside).unwrap();
    let Some(etherparse::TransportSlice::Udp(outer)) = wanted.transport else { panic!("{outside:02x?}") };
    assert_eq!((outer.source_port(), outer.destination_port()), (5555, 4789));
    assert_eq!(usize::from(outer.length()), 8 + 8 + frame.len());
    let Some(etherparse::NetSlice::Ipv4(ip)) = wanted.net else { panic!("{outside:02x?}") };
    assert_eq!(ip.header().to_header().calc_header_checksum(), ip.header().header_checksum());
    assert_eq!(usize::from(ip.header().total_len()), 20 + 8 + 8 + frame.len());
    assert_eq!(outside[42..50], [8, 0, 0, 0, 0, 0x12, 0x34, 0]);
    assert_eq!(outside[50..], frame);
    // With a rule that takes it out.
    drop(rest);
    let from = FlowMatch::new().vxlan(0x1234).inner(FlowMatch::new().destination_mac(inner_mac));
    let from = rules.add(0, &from, FlowActions::forward(&tir).decap()).unwrap();
    here.send(&[&there.device.mac().0[..], &here.device.mac().0, &[0x88, 0xb6], &[0; 46]].concat());
    only(&mut here, &mut there, &frame);
    assert_eq!(sent.read().unwrap(), Counted { packets: 2, bytes: 2 * frame.len() as u64 });

    let text = refusal(out.add(0, &to_inner, &tir));
    assert!(text.contains("one device"), "{text}");
    let text = refusal(out.add(0, &to_inner, here.queue.tir()));
    assert!(text.contains("needs a table of received frames"), "{text}");
    let text = refusal(PacketReformat::tunnel(&here.device, &[0; 129]));
    assert!(text.contains("max_encap_header_size"), "{text}");
    let text = refusal(PacketReformat::vxlan(&here.device, &VxlanTunnel { vni: 1 << 24, ..tunnel }));
    assert!(text.contains("VXLAN network is 0x1000000"), "{text}");
    let changes = (0..33).fold(HeaderChanges::new(), |changes, _| changes.ttl(1));
    let text = refusal(ModifyHeader::create(&here.device, Direction::Transmit, &changes));
    assert!(text.contains("max_modify_header_actions"), "{text}");
    drop((into, silent, from, encap, out, rules, tir, sent));
    end(sim, [here, there], &[]);
}

#[test]
fn actions_without_effect_are_refused_with_what_makes_them_so() {
    let (sim, here, there) = two();
    let options = |direction| {
        let mut options = FlowRulesOptions::default();
        (options.direction, options.tunnels) = (direction, true);
        options
    };
    let rules = FlowRules::create(&there.device, options(Direction::Receive)).unwrap();
    let encap = PacketReformat::tunnel(&there.device, &[0; 50]).unwrap();
    let changes = HeaderChanges::new().decrement_ttl();
    let modify = ModifyHeader::create(&there.device, Direction::Receive, &changes).unwrap();
    let add = |actions| rules.add(0, &FlowMatch::new().udp(), actions);
    let mut rule = add(FlowActions::drop()).unwrap();
    for (actions, name) in [
        (FlowActions::drop().tag(5), "a flow tag"),
        (FlowActions::drop().encap(&encap), "putting into a tunnel"),
        (FlowActions::drop().decap(), "taking out of a tunnel"),
        (FlowActions::drop().modify(&modify), "changing headers"),
        (FlowActions::drop().pop_vlan(), "removing a VLAN tag"),
        (FlowActions::drop().push_vlan(VlanTag::new(5)), "adding a VLAN tag"),
    ] {
        let text = format!("{name} has no effect in a rule that drops frames: leave one of them out");
        assert!(refusal(add(actions.clone())).contains(&text));
        assert!(refusal(rule.set_actions(actions)).contains(&text));
    }
    let text = refusal(add(FlowActions::kernel().tag(5)));
    assert!(text.contains("a flow tag has no effect in a rule that leaves frames to the kernel"), "{text}");

    let out = FlowRules::create(&here.device, options(Direction::Transmit)).unwrap();
    let text = refusal(out.add(0, &FlowMatch::new().udp(), FlowActions::send().tag(5)));
    assert!(text.contains("a flow tag has no effect in a rule that sends frames"), "{text}");
    let mut lower = FlowTableOptions::default();
    (lower.direction, lower.level, lower.entries) = (Direction::Transmit, 9, 1);
    let next = FlowTable::with_options(&here.device, lower).unwrap();
    let text = refusal(out.add(0, &FlowMatch::new().udp(), FlowActions::table(&next).tag(5)));
    assert!(text.contains("a flow tag has no effect in a rule that is for frames that are sent"), "{text}");
    drop((rule, encap, modify, rules, next, out));
    end(sim, [here, there], &[]);
}

#[test]
fn rules_of_many_fields_and_numbers_share_the_tables() {
    let (sim, mut here, mut there) = two();
    let mut options = FlowRulesOptions::default();
    (options.priorities, options.entries) = (1, 256);
    let rules = FlowRules::create(&there.device, options).unwrap();
    rules.start().unwrap();
    let tir = there.queue.tir().clone();
    let port = |port| FlowMatch::new().udp_destination_port(port);
    let mut made: Vec<_> = (0..200).map(|number| rules.add(0, &port(1000 + number), &tir).unwrap()).collect();
    let text = refusal(rules.add(0, &FlowMatch::new().tcp(), &tir).and_then(|_| {
        (0..100)
            .map(|number| rules.add(0, &FlowMatch::new().tcp_source_port(number), &tir))
            .collect::<Result<Vec<_>, _>>()
    }));
    assert!(text.contains("FlowRulesOptions::entries"), "{text}");
    let text = refusal(rules.add(1, &port(1), &tir));
    assert!(text.starts_with("priority is 1"), "{text}");
    let frame = between(&here, &there, 1150);
    only(&mut here, &mut there, &frame);
    drop(made.remove(150));
    let last = between(&here, &there, 1199);
    here.send(&frame);
    only(&mut here, &mut there, &last);
    // Its place is free again.
    made.push(rules.add(0, &port(1150), &tir).unwrap());
    only(&mut here, &mut there, &frame);
    drop((made, rules, tir));
    end(sim, [here, there], &[]);
}

#[test]
fn hundreds_of_counters_are_read_at_once_and_tell_which_rules_are_idle() {
    let (sim, mut here, mut there) = two();
    let rules = rules(&there.device);
    let tir = there.queue.tir().clone();
    let counters = FlowCounters::create(&there.device, 300).unwrap();
    assert_eq!(counters.len(), 384, "three times 128");
    let made: Vec<_> = (0..300u16)
        .map(|number| {
            let counter = counters.counter(number.into()).unwrap();
            let matched = FlowMatch::new().udp_destination_port(2000 + number);
            rules.add(0, &matched, FlowActions::forward(&tir).count(&counter)).unwrap()
        })
        .collect();
    let mut aging = FlowAging::new(&counters, Duration::ZERO).unwrap();
    for port in [2007, 2007, 2299] {
        let frame = between(&here, &there, port);
        only(&mut here, &mut there, &frame);
    }
    let read = counters.read().unwrap();
    assert_eq!(read.len(), 384);
    let busy: Vec<_> = read.iter().enumerate().filter(|(_, counted)| counted.packets > 0).collect();
    assert_eq!(busy.iter().map(|(index, counted)| (*index, counted.packets)).collect::<Vec<_>>(), [(7, 2), (299, 1)]);
    let idle = aging.idle().unwrap();
    assert_eq!(idle.len(), 382);
    assert!(!idle.contains(&7) && !idle.contains(&299) && idle.contains(&8));
    assert_eq!(aging.idle().unwrap().len(), 384, "now they are, too");
    let mut patient = FlowAging::new(&counters, Duration::from_secs(3600)).unwrap();
    assert!(patient.idle().unwrap().is_empty());
    assert!(refusal(counters.counter(384)).contains("index is 384"));
    assert!(refusal(FlowCounters::create(&there.device, 0)).contains("flow_counter_bulk_alloc"));
    assert!(refusal(FlowCounters::create(&there.device, 1921)).contains("1 to 1920 (flow_counter_bulk_alloc)"));
    let held = FlowCounters::destroy(counters).unwrap_err();
    drop((made, aging, patient));
    FlowCounters::destroy(held.object).unwrap();
    drop((rules, tir));
    end(sim, [here, there], &[]);
}

/// Two receive queues of a function with one completion queue, each for datagrams to a port of its own.
struct Sharing {
    rules: (Vec<FlowRule>, FlowRules),
    rqs: Vec<Arc<Rq>>,
    cq: CompletionQueue,
    region: Arc<MemoryRegion>,
}

/// The ports of the queues.
const PORTS: [u16; 2] = [80, 81];

impl Sharing {
    /// The first queue's frames have a tag, and the second's one that is the first one's number.
    fn new(device: &Arc<Device>, options: &RqOptions) -> Self {
        let pd = Pd::alloc(device).unwrap();
        let cq = CompletionQueue::create(&Uar::alloc(device).unwrap(), Default::default()).unwrap();
        let region = MemoryRegion::allocate(&pd, 1 << 14, AccessFlags::LOCAL_WRITE).unwrap();
        let domain = TransportDomain::alloc(device).unwrap();
        let rqs: Vec<_> = PORTS.iter().map(|_| Rq::create(&pd, cq.cq(), options.clone()).unwrap()).collect();
        let rules = rules(device);
        let rule = |rq: &Arc<Rq>, at: u16, tag| {
            rq.ready().unwrap();
            let tir = Tir::create(&domain, rq).unwrap();
            let matched = FlowMatch::new().destination_mac(device.mac()).udp_destination_port(at);
            rules.add(0, &matched, FlowActions::forward(&tir).tag(tag)).unwrap()
        };
        let each = vec![rule(&rqs[0], PORTS[0], 0x77), rule(&rqs[1], PORTS[1], rqs[0].rqn())];
        Sharing { rules: (each, rules), rqs, cq, region }
    }

    /// The next completion, of a frame that comes to `port`.
    fn hears(&mut self, here: &mut EthernetEnd, port: u16) -> Result<FrameCompletion, WorkError> {
        let to = self.rqs[0].device().mac();
        here.send(&udp(here.device.mac(), to, 64, (7, port), b"payload of a datagram"));
        let deadline = Instant::now() + SOON;
        loop {
            if let Some(result) = self.cq.poll_frame() {
                return result;
            }
            assert!(Instant::now() < deadline, "no completion");
            std::thread::yield_now();
        }
    }
}

fn is_of_another<T>(retired: Result<T, RetireError>) -> bool {
    matches!(retired, Err(RetireError::OtherQueue { .. }))
}

#[test]
fn a_frame_is_retired_on_the_queue_that_it_came_to_whatever_its_tag() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let mut here = EthernetEnd::new(&sim, 0, EthernetOptions::default());
    let mut there = Sharing::new(&sim.open(1).unwrap(), &RqOptions::default());
    let mut queues: Vec<_> = there.rqs.iter().map(|rq| rq.receive_queue().unwrap()).collect();
    for (queue, first) in queues.iter_mut().zip([0, 10]) {
        let mut batch = queue.batch();
        for at in 0..2 {
            let element = there.region.segment(2048 * (at + first / 5)..2048 * (at + first / 5 + 1));
            // SAFETY: nobody depends on the content of the region, which lives as long as the queues.
            unsafe { batch.receive((first + at) as u64, &[element]).unwrap() };
        }
        batch.ring();
    }
    let second = there.hears(&mut here, PORTS[1]);
    assert_eq!(second.as_ref().unwrap().work.qpn, there.rqs[0].rqn(), "the tag");
    assert!(is_of_another(queues[0].take(&second)));
    assert_eq!(queues[1].take(&second), Ok(10));

    let first = there.hears(&mut here, PORTS[0]);
    let work = first.as_ref().unwrap().work;
    assert_eq!(work.qpn, 0x77, "the tag");
    assert!(queues.iter_mut().all(|queue| is_of_another(queue.retire(&work))), "the tag does not say whose it is");
    assert!(is_of_another(queues[1].take(&first)));
    assert_eq!(queues[0].take(&first), Ok(0));

    // Alone on its completion queue, all tags are its.
    drop((queues.pop(), there.rules.0.pop(), there.rqs.pop()));
    let first = there.hears(&mut here, PORTS[0]);
    assert_eq!(queues[0].retire(&first.unwrap().work), Ok(1));
    drop((queues, there));
    ends(sim, here);
}

#[test]
fn a_packet_is_taken_by_the_striding_queue_that_it_came_to_whatever_its_tag() {
    let sim = Sim::builder().functions(2).profile(of_small_strides()).build().unwrap();
    let mut here = EthernetEnd::new(&sim, 0, EthernetOptions::default());
    let strides = Strides::new(64, 32);
    let mut there = Sharing::new(&sim.open(1).unwrap(), &RqOptions::default().strides(strides));
    let mut queues: Vec<_> = there.rqs.iter().map(|rq| rq.striding_receive_queue().unwrap()).collect();
    for (at, queue) in queues.iter_mut().enumerate() {
        let buffer = there.region.segment(at * strides.buffer()..(at + 1) * strides.buffer());
        // SAFETY: as above.
        unsafe { queue.receive(at as u64, &buffer).unwrap() };
        queue.ring();
    }
    for (at, other) in [(0, 1), (1, 0)] {
        let result = there.hears(&mut here, PORTS[at]);
        assert!(is_of_another(queues[other].take(&result)), "{result:?}");
        assert_eq!(queues[at].take(&result).unwrap().wr_id, at as u64);
    }
    drop((queues, there));
    ends(sim, here);
}

/// Checks that all objects are destroyed, and that the card reports no rule.
fn ends(sim: Sim, here: EthernetEnd) {
    drop(here);
    assert_eq!(sim.violations(), []);
    for function in 0..2 {
        let counts = sim.handle(function).counts();
        assert_eq!((counts.cqs, counts.mkeys, counts.umems, counts.dma_ranges), (0, 0, 0, 0), "{counts:?}");
    }
}

/// The order of the commands that end the groups is part of a run, too.
#[test]
fn rules_of_several_kinds_end_in_the_same_order_in_each_run() {
    let run = || {
        let world = World::new(1);
        let builders = [Card::builder(), Card::builder()];
        let (cards, _) = world.simulated().joined(builders, Conditions::default()).unwrap();
        let device = world.open(&cards[0]).unwrap();
        let rules = FlowRules::create(&device, FlowRulesOptions::default()).unwrap();
        let kinds = [
            FlowMatch::new().ethertype(0x88b5),
            FlowMatch::new().udp_source_port(7),
            FlowMatch::new().vlan(5),
            FlowMatch::new().ipv4().dscp(3),
            FlowMatch::new().ipv6(),
        ];
        let held: Vec<_> = kinds.iter().map(|kind| rules.add(0, kind, FlowActions::drop()).unwrap()).collect();
        drop((held, rules, device));
        world.simulated().record().hash
    };
    let first = run();
    assert!((0..5).all(|_| run() == first));
}
