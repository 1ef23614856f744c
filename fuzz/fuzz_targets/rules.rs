//! Sets of flow rules, made by the driver's typed builder, and frames: the card does with each what the first rule by
//! priority says whose fields it has, by a matcher that knows no more than what the frame was made of. Bytes that are
//! no such frames panic nowhere.

#![no_main]

use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use etherparse::{
    IpDscp, IpEcn, IpHeaders, Ipv4Header, Ipv6Extensions, Ipv6FragmentHeader, Ipv6Header, PacketBuilder, TcpHeader,
    ip_number,
};
use libfuzzer_sys::fuzz_target;
use mlx5_dv::Mac;
use mlx5_dv::objects::{AccessFlags, FlowActions, FlowMatch, FlowRules, FlowRulesOptions, MemoryRegion, Pd};
use mlx5_dv::queue::ethernet::{EthernetOptions, EthernetQueue, FrameFlags};
use mlx5_open::Sim;

/// Rules of an input, and its frames.
const MOST: usize = 8;
/// Bytes of a buffer: more than of any frame.
const BUFFER: usize = 512;
const PRIORITIES: usize = 3;
/// EtherTypes of frames that are no packets, and of that which is sent after all others.
const OTHER: u16 = 0x88b5;
const LAST: u16 = 0x88b6;
const LIMIT: Duration = Duration::from_secs(5);

/// The values of fields: few, so that rules and frames meet.
const SOURCES: [Mac; 2] = [Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 1, 0, 1])];
const FOUR: [[u8; 4]; 2] = [[10, 0, 0, 1], [10, 0, 1, 1]];
const SIX: [[u8; 16]; 2] = [[0xfd; 16], [0xfc; 16]];
const VLANS: [u16; 2] = [5, 0xa05];
const PRIORITY: [u8; 2] = [1, 6];
const DSCPS: [u8; 2] = [10, 46];
const ECNS: [u8; 2] = [1, 2];
const HOPS: [u8; 2] = [1, 64];
const PORTS: [u16; 2] = [53, 80];
const FLAGS: [u16; 2] = [2, 0x12];
const SEQUENCES: [u32; 2] = [7, 0xffff_0007];
const ICMP: [u8; 2] = [8, 3];
const ECHOES: [u32; 2] = [0x1234_0005, 0x1234_0006];
const NETWORKS: [u32; 2] = [5, 0xa0_0005];
const LABELS: [u32; 2] = [7, 0xf_0007];
const FLOWS: [u8; 2] = [9, 0x29];
const VXLAN: u16 = 4789;
const GTPU: u16 = 2152;
const VXLAN_GPE: u16 = 4790;
const MPLS: u16 = 6635;

/// Choices that the input makes.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    /// A number below `count`; 0 after the end.
    fn below(&mut self, count: usize) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(*first) % count
    }

    fn one<T: Copy>(&mut self, of: [T; 2]) -> T {
        of[self.below(2)]
    }

    fn is_so(&mut self) -> bool {
        self.below(2) != 0
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Net {
    None,
    V4,
    V6,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum L4 {
    Tcp,
    Udp,
    Icmp,
    /// With MPLS in it.
    Gre,
}

/// What UDP carries.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Behind {
    Nothing,
    Vxlan,
    VxlanGpe,
    Gtpu,
    Mpls,
}

/// A VLAN tag.
#[derive(Debug, Clone, Copy)]
struct Tag {
    is_service: bool,
    priority: u8,
    vlan: u16,
}

/// What a frame is made of.
#[derive(Debug, Clone)]
struct Recipe {
    source: Mac,
    /// The outer one first.
    tags: Vec<Tag>,
    net: Net,
    /// Which source and destination.
    addresses: [usize; 2],
    dscp: u8,
    ecn: u8,
    hops: u8,
    is_fragment: bool,
    l4: L4,
    ports: [u16; 2],
    flags: u16,
    sequence: u32,
    icmp: u8,
    /// What follows the checksum of ICMP.
    echo: u32,
    /// What UDP carries, if that is the transport.
    behind: Behind,
    /// Of VXLAN, VXLAN-GPE or GTP-U.
    network: u32,
    /// Destination port of UDP in VXLAN.
    inner_port: u16,
    label: u32,
    /// QoS flow of GTP-U, which is the next protocol of VXLAN-GPE, too.
    flow: u8,
}

impl Recipe {
    fn chosen(choices: &mut Choices) -> Self {
        let tag = |choices: &mut Choices| Tag {
            is_service: choices.is_so(),
            priority: choices.one(PRIORITY),
            vlan: choices.one(VLANS),
        };
        Recipe {
            source: choices.one(SOURCES),
            tags: (0..choices.below(3)).map(|_| tag(choices)).collect(),
            net: [Net::V4, Net::V6, Net::V4, Net::None][choices.below(4)],
            addresses: [choices.below(2), choices.below(2)],
            dscp: choices.one(DSCPS),
            ecn: choices.one(ECNS),
            hops: choices.one(HOPS),
            is_fragment: choices.below(8) == 7,
            l4: [L4::Tcp, L4::Udp, L4::Icmp, L4::Gre, L4::Udp][choices.below(5)],
            ports: [choices.one(PORTS), choices.one(PORTS)],
            flags: choices.one(FLAGS),
            sequence: choices.one(SEQUENCES),
            icmp: choices.one(ICMP),
            echo: choices.one(ECHOES),
            behind: [Behind::Nothing, Behind::Vxlan, Behind::VxlanGpe, Behind::Gtpu, Behind::Mpls][choices.below(5)],
            network: choices.one(NETWORKS),
            inner_port: choices.one(PORTS),
            label: choices.one(LABELS),
            flow: choices.one(FLOWS),
        }
    }

    /// The frame, to `destination`, with `number` at its end.
    fn bytes(&self, destination: Mac, number: u8) -> Vec<u8> {
        let mut frame = Vec::new();
        let mut payload = vec![0xa5, number];
        let entry = (self.label << 12 | 0x140).to_be_bytes();
        payload = match self.behind_udp() {
            Behind::Nothing if self.is_ip() && self.l4 == L4::Gre => {
                [&[0, 0, 0x88, 0x47][..], &entry, &payload].concat()
            }
            Behind::Nothing => payload,
            Behind::Vxlan => {
                let mut inner = Vec::new();
                let builder = PacketBuilder::ethernet2(SOURCES[0].0, SOURCES[1].0).ipv4(FOUR[0], FOUR[0], 9);
                builder.udp(9, self.inner_port).write(&mut inner, &payload).expect("room");
                [&[8, 0, 0, 0][..], &(self.network << 8).to_be_bytes(), &inner].concat()
            }
            Behind::VxlanGpe => [&[0xc, 0, 0, self.flow][..], &(self.network << 8).to_be_bytes(), &payload].concat(),
            Behind::Gtpu => {
                let session = [0, 0, 0, 0x85, 1, 0x10, self.flow, 0];
                [&[0x34, 255, 0, 10][..], &self.network.to_be_bytes(), &session, &payload].concat()
            }
            Behind::Mpls => [&entry[..], &payload].concat(),
        };
        if self.net == Net::None {
            frame = [&destination.0[..], &self.source.0, &OTHER.to_be_bytes(), &payload].concat();
        } else {
            let step = PacketBuilder::ethernet2(self.source.0, destination.0).ip(self.ip());
            let port = self.destination_port();
            match self.l4 {
                L4::Tcp => {
                    let mut header = TcpHeader::new(self.ports[0], port, self.sequence, 5);
                    (header.syn, header.ack) = (self.flags & 2 != 0, self.flags & 0x10 != 0);
                    step.tcp_header(header).write(&mut frame, &payload)
                }
                L4::Udp => step.udp(self.ports[0], port).write(&mut frame, &payload),
                L4::Icmp if self.net == Net::V4 => {
                    step.icmpv4_raw(self.icmp, 0, self.echo.to_be_bytes()).write(&mut frame, &payload)
                }
                L4::Icmp => step.icmpv6_raw(self.icmp, 0, self.echo.to_be_bytes()).write(&mut frame, &payload),
                L4::Gre => step.write(&mut frame, ip_number::GRE, &payload),
            }
            .expect("room");
        }
        for Tag { is_service, priority, vlan } in self.tags.iter().rev() {
            let kind: u16 = if *is_service { 0x88a8 } else { 0x8100 };
            let tci = u16::from(*priority) << 13 | vlan;
            frame.splice(12..12, [kind.to_be_bytes(), tci.to_be_bytes()].concat());
        }
        frame
    }

    fn ip(&self) -> IpHeaders {
        let [source, destination] = self.addresses;
        if self.net == Net::V4 {
            let header = Ipv4Header {
                dscp: IpDscp::try_new(self.dscp).expect("6 bits"),
                ecn: IpEcn::try_new(self.ecn).expect("2 bits"),
                more_fragments: self.is_fragment,
                time_to_live: self.hops,
                source: FOUR[source],
                destination: FOUR[destination],
                ..Default::default()
            };
            return IpHeaders::Ipv4(header, Default::default());
        }
        let fragment = self.is_fragment.then(|| Ipv6FragmentHeader::new(ip_number::UDP, Default::default(), true, 7));
        let extensions = Ipv6Extensions { fragment, ..Default::default() };
        let header = Ipv6Header {
            traffic_class: self.dscp << 2 | self.ecn,
            hop_limit: self.hops,
            source: SIX[source],
            destination: SIX[destination],
            ..Default::default()
        };
        IpHeaders::Ipv6(header, extensions)
    }

    fn is_ip(&self) -> bool {
        self.net != Net::None
    }

    /// Whether IP says that `l4` is inside, and where no fragment is in the way, that it is there.
    fn carries(&self, l4: L4, whole: bool) -> bool {
        self.is_ip() && self.l4 == l4 && !(whole && self.is_fragment)
    }

    /// What UDP carries, where the frame has that header.
    fn behind_udp(&self) -> Behind {
        if self.is_ip() && self.l4 == L4::Udp { self.behind } else { Behind::Nothing }
    }

    /// Whether UDP carries this, and no fragment is in the way.
    fn is_in_udp(&self, behind: Behind) -> bool {
        self.behind_udp() == behind && !self.is_fragment
    }

    fn destination_port(&self) -> u16 {
        match self.behind_udp() {
            Behind::Nothing => self.ports[1],
            Behind::Vxlan => VXLAN,
            Behind::VxlanGpe => VXLAN_GPE,
            Behind::Gtpu => GTPU,
            Behind::Mpls => MPLS,
        }
    }

    fn ether_type(&self) -> u16 {
        match self.net {
            Net::None => OTHER,
            Net::V4 => 0x0800,
            Net::V6 => 0x86dd,
        }
    }

    fn outer(&self) -> Option<Tag> {
        self.tags.first().copied()
    }
}

/// Adds a field to a match; whether a frame has it.
type Field = (fn(FlowMatch, usize) -> FlowMatch, fn(&Recipe, usize) -> bool);

fn address(is_v4: bool, which: usize) -> IpAddr {
    if is_v4 { FOUR[which].into() } else { SIX[which].into() }
}

/// Each field with either of two values.
#[rustfmt::skip]
const FIELDS: &[Field] = &[
    (|m, n| m.source_mac(SOURCES[n]), |r, n| r.source == SOURCES[n]),
    (|m, n| m.source_mac_masked(SOURCES[n], Mac([0, 0, 0, 1, 0, 0])), |r, n| r.source == SOURCES[n]),
    (|m, n| m.ethertype([OTHER, 0x0800][n]), |r, n| r.ether_type() == [OTHER, 0x0800][n]),
    (|m, n| m.vlan(VLANS[n]), |r, n| r.outer().is_some_and(|tag| !tag.is_service && tag.vlan == VLANS[n])),
    (|m, n| m.service_vlan(VLANS[n]), |r, n| r.outer().is_some_and(|tag| tag.is_service && tag.vlan == VLANS[n])),
    (|m, n| m.inner_vlan(VLANS[n]), |r, n| r.tags.get(1).is_some_and(|tag| !tag.is_service && tag.vlan == VLANS[n])),
    (|m, n| m.vlan_priority(PRIORITY[n]), |r, n| r.outer().is_some_and(|tag| tag.priority == PRIORITY[n])),
    (|m, n| m.inner_vlan_priority(PRIORITY[n]),
     |r, n| r.tags.get(1).is_some_and(|tag| !tag.is_service && tag.priority == PRIORITY[n])),
    (|m, _| m.untagged(), |r, _| r.tags.is_empty()),
    (|m, n| if n == 0 { m.ipv4() } else { m.ipv6() }, |r, n| r.net == [Net::V4, Net::V6][n]),
    (|m, n| m.source_ip(address(true, n)), |r, n| r.net == Net::V4 && r.addresses[0] == n),
    (|m, n| m.destination_ip(address(true, n)), |r, n| r.net == Net::V4 && r.addresses[1] == n),
    (|m, n| m.source_ip(address(false, n)), |r, n| r.net == Net::V6 && r.addresses[0] == n),
    (|m, n| m.destination_ip(address(false, n)), |r, n| r.net == Net::V6 && r.addresses[1] == n),
    (|m, n| m.destination_net(address(true, 0), [16, 24][n]), |r, n| r.net == Net::V4 && (n == 0 || r.addresses[1] == 0)),
    (|m, n| m.source_net(address(false, 1), [7, 8][n]), |r, n| r.net == Net::V6 && (n == 0 || r.addresses[0] == 1)),
    (|m, n| m.protocol([6, 17][n]), |r, n| r.carries([L4::Tcp, L4::Udp][n], false)),
    (|m, n| if n == 0 { m.tcp() } else { m.udp() }, |r, n| r.carries([L4::Tcp, L4::Udp][n], false)),
    (|m, n| m.dscp(DSCPS[n]), |r, n| r.is_ip() && r.dscp == DSCPS[n]),
    (|m, n| m.ecn(ECNS[n]), |r, n| r.is_ip() && r.ecn == ECNS[n]),
    (|m, n| m.hop_limit(HOPS[n]), |r, n| r.is_ip() && r.hops == HOPS[n]),
    (|m, n| m.fragments(n != 0), |r, n| (r.is_ip() && r.is_fragment) == (n != 0)),
    (|m, n| m.tcp_source_port(PORTS[n]), |r, n| r.carries(L4::Tcp, true) && r.ports[0] == PORTS[n]),
    (|m, n| m.tcp_destination_port(PORTS[n]), |r, n| r.carries(L4::Tcp, true) && r.ports[1] == PORTS[n]),
    (|m, n| m.udp_source_port(PORTS[n]), |r, n| r.carries(L4::Udp, true) && r.ports[0] == PORTS[n]),
    (|m, n| m.udp_destination_port(PORTS[n]), |r, n| r.carries(L4::Udp, true) && r.destination_port() == PORTS[n]),
    (|m, n| m.tcp_flags(FLAGS[n], 0x12), |r, n| r.carries(L4::Tcp, true) && r.flags == FLAGS[n]),
    (|m, n| m.tcp_sequence(SEQUENCES[n]), |r, n| r.carries(L4::Tcp, true) && r.sequence == SEQUENCES[n]),
    (|m, n| m.icmp_type(ICMP[n]), |r, n| r.net == Net::V4 && r.carries(L4::Icmp, true) && r.icmp == ICMP[n]),
    (|m, n| m.icmpv6_type(ICMP[n]), |r, n| r.net == Net::V6 && r.carries(L4::Icmp, true) && r.icmp == ICMP[n]),
    (|m, n| m.icmp_header_data(ECHOES[n], 0xffff),
     |r, n| r.net == Net::V4 && r.carries(L4::Icmp, true) && r.echo == ECHOES[n]),
    (|m, n| m.icmpv6_header_data(ECHOES[n], u32::MAX),
     |r, n| r.net == Net::V6 && r.carries(L4::Icmp, true) && r.echo == ECHOES[n]),
    (|m, n| m.vxlan(NETWORKS[n]), |r, n| r.is_in_udp(Behind::Vxlan) && r.network == NETWORKS[n]),
    (|m, n| m.inner(FlowMatch::new().udp_destination_port(PORTS[n])),
     |r, n| r.is_in_udp(Behind::Vxlan) && r.inner_port == PORTS[n]),
    (|m, n| m.vxlan_gpe(NETWORKS[n]), |r, n| r.is_in_udp(Behind::VxlanGpe) && r.network == NETWORKS[n]),
    (|m, n| m.vxlan_gpe_flags([0, 0xc][n], 0xf), |r, n| r.is_in_udp(Behind::VxlanGpe) && n == 1),
    (|m, n| m.vxlan_gpe_next_protocol(FLOWS[n]), |r, n| r.is_in_udp(Behind::VxlanGpe) && r.flow == FLOWS[n]),
    (|m, n| m.gtpu_teid(NETWORKS[n]), |r, n| r.is_in_udp(Behind::Gtpu) && r.network == NETWORKS[n]),
    (|m, n| m.gtpu_has_extension(n != 0), |r, n| r.is_in_udp(Behind::Gtpu) && n == 1),
    (|m, n| m.gtpu_qfi(FLOWS[n]), |r, n| r.is_in_udp(Behind::Gtpu) && r.flow == FLOWS[n]),
    (|m, n| m.mpls_over_udp_label(LABELS[n]), |r, n| r.is_in_udp(Behind::Mpls) && r.label == LABELS[n]),
    (|m, n| m.mpls_over_udp_bottom_of_stack(n != 0), |r, n| r.is_in_udp(Behind::Mpls) && n == 1),
    (|m, n| m.mpls_over_gre_label(LABELS[n]), |r, n| r.carries(L4::Gre, true) && r.label == LABELS[n]),
    (|m, n| m.gre(if n == 0 { 0x8847 } else { 0x0800 }), |r, n| r.carries(L4::Gre, true) && n == 0),
];

/// A rule of an input.
#[derive(Debug)]
struct Rule {
    priority: usize,
    /// Of which field, and which of its values.
    fields: Vec<(usize, usize)>,
    drops: bool,
}

impl Rule {
    fn chosen(choices: &mut Choices) -> Self {
        Rule {
            priority: choices.below(PRIORITIES),
            drops: choices.below(4) == 3,
            fields: (0..choices.below(4)).map(|_| (choices.below(FIELDS.len()), choices.below(2))).collect(),
        }
    }

    fn matched(&self) -> FlowMatch {
        self.fields.iter().fold(FlowMatch::new(), |matched, (field, n)| FIELDS[*field].0(matched, *n))
    }

    fn is_for(&self, frame: &Recipe) -> bool {
        self.fields.iter().all(|(field, n)| FIELDS[*field].1(frame, *n))
    }
}

/// Two functions of a card: frames go from one to the other.
struct Pair {
    here: EthernetQueue,
    there: EthernetQueue,
    regions: [Arc<MemoryRegion>; 2],
    _sim: Sim,
}

impl Pair {
    fn new() -> Self {
        let sim = Sim::builder().functions(2).build().expect("a card");
        let pds = [0, 1].map(|function| Pd::alloc(&sim.open(function).expect("a function")).expect("a domain"));
        let regions = pds
            .each_ref()
            .map(|pd| MemoryRegion::allocate(pd, 2 * (MOST + 1) * BUFFER, AccessFlags::LOCAL_WRITE).expect("memory"));
        let [here, mut there] =
            pds.each_ref().map(|pd| EthernetQueue::new(pd, EthernetOptions::default()).expect("a queue"));
        for at in 0..2 * (MOST + 1) {
            there.receive(regions[1].buffer(at * BUFFER..(at + 1) * BUFFER).expect("a buffer")).expect("room");
        }
        Pair { here, there, regions, _sim: sim }
    }

    fn send(&mut self, frame: &[u8]) {
        let mut buffer = self.regions[0].buffer(0..BUFFER).expect("a buffer");
        buffer.write(0, frame);
        buffer.set_len(frame.len());
        self.here.send(buffer, FrameFlags::empty()).expect("room");
        self.here.wait(LIMIT).expect("a completion").result.expect("a frame that is sent");
    }

    /// The next frame, and its tag.
    fn hear(&mut self) -> (Vec<u8>, u32) {
        let deadline = Instant::now() + LIMIT;
        let done = loop {
            match self.there.poll().expect("completions that are right") {
                Some(done) => break done,
                None => assert!(Instant::now() < deadline, "the last frame did not come"),
            }
        };
        let (completion, buffer) = (done.result.expect("a frame"), done.buffer.expect("its buffer"));
        let mut frame = vec![0; completion.byte_len as usize];
        buffer.read(0, &mut frame);
        let tag = completion.work.qpn;
        self.there.receive(buffer).expect("room");
        (frame, tag)
    }
}

thread_local! {
    /// Never dropped: at the end of the process the card's thread is gone.
    static PAIR: RefCell<&'static mut Pair> = RefCell::new(Box::leak(Box::new(Pair::new())));
}

fn play(pair: &mut Pair, bytes: &[u8]) {
    let mut choices = Choices(bytes);
    let planned: Vec<_> = (0..choices.below(MOST + 1)).map(|_| Rule::chosen(&mut choices)).collect();
    let (device, tir) = (Arc::clone(pair.there.device()), Arc::clone(pair.there.tir()));
    let mut options = FlowRulesOptions::default();
    (options.priorities, options.entries) = (PRIORITIES as u8 + 1, 1024);
    let rules = FlowRules::create(&device, options).expect("tables");
    let _last = rules.add(0, &FlowMatch::new().ethertype(LAST), &tir).expect("a rule");
    let mut made = Vec::new();
    for (number, rule) in planned.iter().enumerate() {
        // Tags from 1 on.
        let actions = match rule.drops {
            true => FlowActions::drop(),
            false => FlowActions::forward(&tir).tag(number as u32 + 1),
        };
        let matched = rule.matched();
        let added = rules.add(rule.priority as u8 + 1, &matched, actions);
        // What contradicts itself is refused, and no more.
        assert_eq!(added.is_ok(), matched.check().is_ok(), "{rule:?}: {:?}", added.err());
        made.extend(added.ok().map(|added| (number, added)));
    }
    rules.start().expect("the root");

    let to = device.mac();
    let frames: Vec<_> = (0..choices.below(MOST) + 1).map(|_| Recipe::chosen(&mut choices)).collect();
    let mut sent: Vec<_> = (0..).zip(&frames).map(|(number, frame)| frame.bytes(to, number)).collect();
    // What is left is a frame, too, and no rule's matcher knows what of.
    let is_free = choices.0.len() >= 2 && choices.0[..2] != LAST.to_be_bytes();
    if is_free {
        let rest = &choices.0[..choices.0.len().min(BUFFER - 12)];
        sent.push([&to.0[..], &SOURCES[0].0, rest].concat());
    }
    let last = [&to.0[..], &SOURCES[0].0, &LAST.to_be_bytes(), &[0; 46]].concat();
    sent.iter().chain([&last]).for_each(|frame| pair.send(frame));

    let mut heard = Vec::new();
    loop {
        let next = pair.hear();
        if next.0 == last {
            break;
        }
        heard.push(next);
    }
    let mut heard = heard.into_iter().peekable();
    for (frame, bytes) in frames.iter().zip(&sent) {
        let came = heard.next_if(|(heard, _)| heard == bytes).map(|(_, tag)| tag as usize - 1);
        let meets = |number: &usize| planned[*number].is_for(frame);
        let all: Vec<_> = made.iter().map(|(number, _)| *number).filter(meets).collect();
        let first = all.iter().map(|number| planned[*number].priority).min();
        // Of one priority with different fields, any may apply.
        let apply: Vec<_> = all.into_iter().filter(|number| Some(planned[*number].priority) == first).collect();
        let is_right = match came {
            Some(number) => apply.contains(&number) && !planned[number].drops,
            None => apply.is_empty() || apply.iter().any(|number| planned[*number].drops),
        };
        assert!(is_right, "{frame:?}: came by {came:?}, rules {apply:?} of {planned:?}");
    }
    // Nothing but what is left of the input, if that.
    assert!(heard.count() <= usize::from(is_free));
}

fuzz_target!(|bytes: &[u8]| PAIR.with_borrow_mut(|pair| play(pair, bytes)));
