//! Each header field that flow rules change, on frames that are received and on frames that are sent.
//!
//! What must arrive is built by etherparse from the new values, so its checksums are not those of the code under test.

use etherparse::{
    IpDscp, IpEcn, IpHeaders, IpNumber, Ipv4Extensions, Ipv4Header, Ipv6Extensions, Ipv6FlowLabel, Ipv6Header,
    Ipv6RawExtHeader, PacketBuilder, SingleVlanHeader, TcpHeader, VlanHeader, VlanId, VlanPcp, ip_number,
};
use mlx5_dv::Mac;
use mlx5_dv::objects::{
    Direction, FlowActions, FlowMatch, FlowRules, FlowRulesOptions, HeaderChanges, HeaderField, ModifyHeader,
};
use mlx5_dv::queue::ethernet::EthernetOptions;
use mlx5_open::Sim;

use crate::ends::{EthernetEnd, end, refusal};

const SIX: [[u8; 16]; 2] = [[0xfd; 16], [0xfc; 16]];
/// All words differ from each other, and from those of `SIX`.
const OTHER_SIX: [u8; 16] =
    [0x20, 1, 0xd, 0xb8, 0x11, 0x12, 0x13, 0x14, 0x21, 0x22, 0x23, 0x24, 0x31, 0x32, 0x33, 0x34];
const FOUR: [[u8; 4]; 2] = [[10, 0, 0, 1], [10, 0, 0, 2]];

/// Transport header and its payload.
#[derive(Debug, Clone)]
enum L4 {
    Tcp(TcpHeader),
    Udp { source: u16, destination: u16 },
    Other(IpNumber),
}

/// What a frame is made of.
#[derive(Debug, Clone)]
struct Parts {
    macs: [Mac; 2],
    /// Priority, drop eligibility and VLAN of each tag.
    tags: Vec<(u8, bool, u16)>,
    ip: IpHeaders,
    l4: L4,
    payload: Vec<u8>,
}

impl Parts {
    fn bytes(&self) -> Vec<u8> {
        let Parts { macs: [from, to], tags, ip, l4, payload } = self.clone();
        let tag = |(priority, dei, vlan): (u8, bool, u16)| SingleVlanHeader {
            pcp: VlanPcp::try_new(priority).unwrap(),
            drop_eligible_indicator: dei,
            vlan_id: VlanId::try_new(vlan).unwrap(),
            ..Default::default()
        };
        let builder = PacketBuilder::ethernet2(from.0, to.0);
        let step = match *tags {
            [] => builder.ip(ip),
            [one] => builder.vlan(VlanHeader::Single(tag(one))).ip(ip),
            [outer, inner] => {
                let both = etherparse::DoubleVlanHeader { outer: tag(outer), inner: tag(inner) };
                builder.vlan(VlanHeader::Double(both)).ip(ip)
            }
            _ => panic!("{tags:?}"),
        };
        let mut frame = Vec::new();
        match l4 {
            L4::Tcp(header) => step.tcp_header(header).write(&mut frame, &payload),
            L4::Udp { source, destination } => step.udp(source, destination).write(&mut frame, &payload),
            L4::Other(number) => step.write(&mut frame, number, &payload),
        }
        .unwrap();
        frame
    }
}

/// IPv4 with a DSCP, ECN, options and everything else that must stay.
fn ipv4(protocol: IpNumber) -> Ipv4Header {
    Ipv4Header {
        dscp: IpDscp::try_new(0x2a).unwrap(),
        ecn: IpEcn::try_new(3).unwrap(),
        identification: 0x4321,
        dont_fragment: true,
        time_to_live: 64,
        protocol,
        source: FOUR[0],
        destination: FOUR[1],
        options: [1; 8].as_slice().try_into().unwrap(),
        ..Default::default()
    }
}

fn ipv6() -> Ipv6Header {
    Ipv6Header {
        traffic_class: 0xab,
        flow_label: Ipv6FlowLabel::try_new(0xc_def0).unwrap(),
        hop_limit: 64,
        source: SIX[0],
        destination: SIX[1],
        ..Default::default()
    }
}

fn tcp() -> L4 {
    let mut header = TcpHeader::new(1000, 2000, 0xffff_fff0, 7);
    (header.ack, header.psh, header.ns, header.acknowledgment_number) = (true, true, true, 0x1234_5678);
    header.set_options_raw(&[1, 1, 1, 1]).unwrap();
    L4::Tcp(header)
}

fn udp() -> L4 {
    L4::Udp { source: 1000, destination: 2000 }
}

/// A case: how the parts of a frame become others, and the changes that say the same.
struct Case {
    name: &'static str,
    before: Parts,
    changes: HeaderChanges,
    after: Parts,
}

struct Cases {
    macs: [Mac; 2],
    all: Vec<Case>,
}

impl Cases {
    /// What the changes do is said by `other`.
    fn add(&mut self, name: &'static str, before: &Parts, changes: HeaderChanges, other: impl Fn(&mut Parts)) {
        let (before, mut after) = (before.clone(), before.clone());
        other(&mut after);
        self.all.push(Case { name, before, changes, after });
    }

    fn parts(&self, ip: IpHeaders, l4: L4) -> Parts {
        // Of an odd length.
        Parts { macs: self.macs, tags: vec![], ip, l4, payload: b"what is carried".to_vec() }
    }

    fn v4(&self, l4: L4) -> Parts {
        self.parts(IpHeaders::Ipv4(ipv4(ip_number::UDP), Ipv4Extensions::default()), l4)
    }

    fn v6(&self, l4: L4) -> Parts {
        self.parts(IpHeaders::Ipv6(ipv6(), Ipv6Extensions::default()), l4)
    }

    /// IPv6 with two extension headers before the transport header.
    fn extended(&self, l4: L4) -> Parts {
        // Six bytes of padding.
        let padding = || Some(Ipv6RawExtHeader::new_raw(ip_number::UDP, &[1, 4, 0, 0, 0, 0]).unwrap());
        let extensions = Ipv6Extensions {
            hop_by_hop_options: padding(),
            destination_options: padding(),
            ..Ipv6Extensions::default()
        };
        self.parts(IpHeaders::Ipv6(ipv6(), extensions), l4)
    }
}

/// The IPv4 header of parts that have one.
fn four(parts: &mut Parts) -> &mut Ipv4Header {
    match &mut parts.ip {
        IpHeaders::Ipv4(header, _) => header,
        IpHeaders::Ipv6(..) => panic!("IPv6"),
    }
}

fn six(parts: &mut Parts) -> &mut Ipv6Header {
    match &mut parts.ip {
        IpHeaders::Ipv6(header, _) => header,
        IpHeaders::Ipv4(..) => panic!("IPv4"),
    }
}

fn of_tcp(parts: &mut Parts) -> &mut TcpHeader {
    match &mut parts.l4 {
        L4::Tcp(header) => header,
        other => panic!("{other:?}"),
    }
}

/// The changes of single fields, and of several.
fn cases(macs: [Mac; 2]) -> Vec<Case> {
    let mut cases = Cases { macs, all: Vec::new() };
    let change = HeaderChanges::new;
    for l4 in [tcp(), udp()] {
        let (v4, v6, extended) = (cases.v4(l4.clone()), cases.v6(l4.clone()), cases.extended(l4));
        for before in [&v6, &extended] {
            cases.add("IPv6 source", before, change().ipv6_source(OTHER_SIX.into()), |p| six(p).source = OTHER_SIX);
            cases.add("IPv6 destination", before, change().ipv6_destination(OTHER_SIX.into()), |p| {
                six(p).destination = OTHER_SIX;
            });
            let swapped = change().ipv6_source(SIX[1].into()).ipv6_destination(SIX[0].into());
            cases.add("IPv6 both", before, swapped, |p| (six(p).source, six(p).destination) = (SIX[1], SIX[0]));
            cases.add("hop limit", before, change().hop_limit(3), |p| six(p).hop_limit = 3);
            cases.add("hop limit less one", before, change().decrement_hop_limit(), |p| six(p).hop_limit = 63);
            cases.add("DSCP of IPv6", before, change().dscp(0x15), |p| six(p).traffic_class = 0x15 << 2 | 3);
            cases.add("TTL of IPv6", before, change().ttl(3).decrement_ttl(), |_| {});
            cases.add("IPv4 addresses of IPv6", before, change().ipv4_source([1; 4].into()), |_| {});
        }
        cases.add("IPv4 source", &v4, change().ipv4_source([192, 0, 2, 77].into()), |p| {
            four(p).source = [192, 0, 2, 77];
        });
        cases.add("IPv4 destination", &v4, change().ipv4_destination([192, 0, 2, 77].into()), |p| {
            four(p).destination = [192, 0, 2, 77];
        });
        cases.add("DSCP of IPv4", &v4, change().dscp(0x15), |p| four(p).dscp = IpDscp::try_new(0x15).unwrap());
        cases.add("TTL", &v4, change().ttl(200), |p| four(p).time_to_live = 200);
        cases.add("TTL less one", &v4, change().decrement_ttl(), |p| four(p).time_to_live = 63);
        cases.add("hop limit of IPv4", &v4, change().hop_limit(3).ipv6_source(OTHER_SIX.into()), |_| {});
        cases.add("VLAN of an untagged frame", &v4, change().vlan(5), |_| {});
    }
    for before in [cases.v4(tcp()), cases.v6(tcp()), cases.extended(tcp())] {
        cases.add("TCP source port", &before, change().tcp_source_port(0xabcd), |p| of_tcp(p).source_port = 0xabcd);
        cases.add("TCP destination port", &before, change().tcp_destination_port(0xabcd), |p| {
            of_tcp(p).destination_port = 0xabcd;
        });
        cases.add("sequence number", &before, change().add_tcp_sequence(0x20), |p| of_tcp(p).sequence_number = 0x10);
        cases.add("acknowledgement", &before, change().add_tcp_acknowledgement(0u32.wrapping_sub(0x78)), |p| {
            of_tcp(p).acknowledgment_number = 0x1234_5600;
        });
        let ports = change().copy(HeaderField::TcpSourcePort, HeaderField::TcpDestinationPort);
        cases.add("TCP port copied", &before, ports, |p| of_tcp(p).destination_port = 1000);
        cases.add("UDP ports of TCP", &before, change().udp_source_port(1).udp_destination_port(2), |_| {});
    }
    for before in [cases.v4(udp()), cases.v6(udp()), cases.extended(udp())] {
        let swapped = change().udp_source_port(2000).udp_destination_port(999);
        cases.add("UDP ports", &before, swapped, |p| p.l4 = L4::Udp { source: 2000, destination: 999 });
        let of_tcp = change().tcp_source_port(1).add_tcp_sequence(1).add_tcp_acknowledgement(1);
        cases.add("TCP fields of UDP", &before, of_tcp, |_| {});
    }
    for (tags, after) in [
        (vec![(5, true, 0x123)], vec![(5, true, 0xedc)]),
        (vec![(5, true, 0x123), (2, false, 0x456)], vec![(5, true, 0xedc), (2, false, 0x456)]),
    ] {
        let before = Parts { tags, ..cases.v6(udp()) };
        cases.add("VLAN", &before, change().vlan(0xedc), |p| p.tags.clone_from(&after));
        let both = change().vlan(0xedc).ipv6_source(OTHER_SIX.into()).udp_source_port(9);
        cases.add("fields behind tags", &before, both, |p| {
            p.tags.clone_from(&after);
            six(p).source = OTHER_SIX;
            p.l4 = L4::Udp { source: 9, destination: 2000 };
        });
    }
    let icmp = cases.v4(L4::Other(ip_number::ICMP));
    cases.add("IPv4 addresses of ICMP", &icmp, change().ipv4_source([1; 4].into()), |p| four(p).source = [1; 4]);
    let all = change()
        .ipv6_source(OTHER_SIX.into())
        .ipv6_destination(SIX[0].into())
        .dscp(1)
        .decrement_hop_limit()
        .tcp_source_port(1)
        .tcp_destination_port(2)
        .add_tcp_sequence(1)
        .add_tcp_acknowledgement(1);
    let before = cases.v6(tcp());
    cases.add("all at once", &before, all, |p| {
        *six(p) = Ipv6Header { source: OTHER_SIX, destination: SIX[0], hop_limit: 63, traffic_class: 7, ..ipv6() };
        let header = of_tcp(p);
        (header.source_port, header.destination_port) = (1, 2);
        header.sequence_number += 1;
        header.acknowledgment_number += 1;
    });
    cases.all
}

fn two() -> (Sim, EthernetEnd, EthernetEnd) {
    let sim = Sim::builder().functions(2).build().unwrap();
    let [here, there] = [0, 1].map(|function| EthernetEnd::new(&sim, function, EthernetOptions::default()));
    (sim, here, there)
}

fn rules(end: &EthernetEnd, direction: Direction) -> FlowRules {
    let mut options = FlowRulesOptions::default();
    options.direction = direction;
    let rules = FlowRules::create(&end.device, options).unwrap();
    rules.start().unwrap();
    rules
}

/// Sends each frame by a rule with the changes, and checks what arrives.
fn check(direction: Direction, each: impl FnOnce([Mac; 2]) -> Vec<(String, Vec<u8>, HeaderChanges, Vec<u8>)>) {
    let (sim, mut here, mut there) = two();
    let tir = there.queue.tir().clone();
    let into = rules(&there, Direction::Receive);
    let out = rules(&here, Direction::Transmit);
    let (rules, device) = match direction {
        Direction::Receive => (&into, there.device.clone()),
        Direction::Transmit => (&out, here.device.clone()),
    };
    let rest = into.add(1, &FlowMatch::new().destination_mac(there.device.mac()), &tir).unwrap();
    for (name, before, changes, after) in each([here.device.mac(), there.device.mac()]) {
        there.post(1);
        let modify = ModifyHeader::create(&device, direction, &changes).unwrap();
        let actions = match direction {
            Direction::Receive => FlowActions::forward(&tir),
            Direction::Transmit => FlowActions::send(),
        };
        let all = FlowMatch::new().destination_mac(there.device.mac());
        let rule = rules.add(0, &all, actions.modify(&modify)).unwrap();
        here.send(&before);
        assert_eq!(there.heard(), after, "{name}, {direction:?}");
        rule.delete().unwrap();
        ModifyHeader::destroy(modify).unwrap();
    }
    drop((rest, into, out, tir, device));
    end(sim, [here, there], &[]);
}

#[test]
fn each_field_changes_alone_and_all_checksums_stay_right() {
    for direction in [Direction::Receive, Direction::Transmit] {
        check(direction, |macs| {
            let each = cases(macs).into_iter();
            each.map(|case| (case.name.into(), case.before.bytes(), case.changes, case.after.bytes())).collect()
        });
    }
}

/// Where the checksum is, of a frame without tags or extension headers.
fn l4_checksum(parts: &Parts) -> usize {
    let ip = if matches!(parts.ip, IpHeaders::Ipv4(..)) { 28 } else { 40 };
    14 + ip + if matches!(parts.l4, L4::Tcp(_)) { 16 } else { 6 }
}

#[test]
fn a_wrong_checksum_stays_wrong_and_an_absent_one_absent() {
    check(Direction::Receive, |macs| {
        let cases = Cases { macs, all: Vec::new() };
        let mut all = Vec::new();
        for (parts, changes) in [
            (cases.v4(udp()), HeaderChanges::new().ipv4_source([9; 4].into()).udp_source_port(2)),
            (cases.v4(tcp()), HeaderChanges::new().ipv4_source([9; 4].into()).add_tcp_sequence(2)),
            (cases.v6(tcp()), HeaderChanges::new().ipv6_source([9; 16].into()).tcp_source_port(2)),
        ] {
            let mut after = parts.clone();
            match &mut after.ip {
                IpHeaders::Ipv4(header, _) => header.source = [9; 4],
                IpHeaders::Ipv6(header, _) => header.source = [9; 16],
            }
            match (&mut after.l4, &parts.ip) {
                (L4::Udp { source, .. }, _) => *source = 2,
                (L4::Tcp(header), IpHeaders::Ipv4(..)) => header.sequence_number = 0xffff_fff2,
                (L4::Tcp(header), _) => header.source_port = 2,
                (other, _) => panic!("{other:?}"),
            }
            let at = l4_checksum(&parts);
            let (mut before, mut after) = (parts.bytes(), after.bytes());
            // A byte of the payload is not what it was when the sum was made.
            let last = before.len() - 1;
            before[last] ^= 0x40;
            after[last] ^= 0x40;
            all.push((format!("damaged at {at}"), before.clone(), changes.clone(), after.clone()));
            if matches!(parts.l4, L4::Udp { .. }) {
                before[at..at + 2].fill(0);
                after[at..at + 2].fill(0);
                all.push(("without a checksum".into(), before, changes, after));
            }
        }
        all
    });
}

#[test]
fn a_checksum_of_udp_that_becomes_zero_is_written_as_ones() {
    check(Direction::Receive, |macs| {
        let cases = Cases { macs, all: Vec::new() };
        let found = [cases.v4(udp()), cases.v6(udp())].map(|parts| {
            let at = l4_checksum(&parts);
            let with = |port| Parts { l4: L4::Udp { source: port, destination: 2000 }, ..parts.clone() }.bytes();
            let port = (1..=u16::MAX).find(|port| with(*port)[at..at + 2] == [0xff; 2]).unwrap();
            let changes = HeaderChanges::new().udp_source_port(port);
            (format!("port {port}"), parts.bytes(), changes, with(port))
        });
        found.into()
    });
}

#[test]
fn changes_that_a_field_has_no_room_for_are_refused() {
    let (sim, here, there) = two();
    let create = |changes| ModifyHeader::create(&here.device, Direction::Receive, &changes);
    let text = refusal(create(HeaderChanges::new().dscp(64)));
    assert!(text.contains("DSCP is 0x40"), "{text}");
    let text = refusal(create(HeaderChanges::new().vlan(4096)));
    assert!(text.contains("VLAN is 0x1000"), "{text}");
    let text = refusal(create(HeaderChanges::new()));
    assert!(text.contains("without changes"), "{text}");
    end(sim, [here, there], &[]);
}
