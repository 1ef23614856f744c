//! Tunnels of frames and of packets that flow rules put frames into and take them out of.

use etherparse::{IpNumber, NetSlice, PacketBuilder, SlicedPacket, ip_number};
use mlx5_dv::Mac;
use mlx5_dv::objects::{
    Direction, FlowActions, FlowCounter, FlowMatch, FlowRule, FlowRules, FlowRulesOptions, PacketReformat, Tir,
};
use mlx5_dv::queue::ethernet::EthernetOptions;
use mlx5_open::{Builder, Sim};
use mlx5_prm::caps::FlowTablePropLayout;
use mlx5_sim::profile::Profile;

use crate::ends::{EthernetEnd, end, refusal};

const FOUR: [[u8; 4]; 2] = [[192, 0, 2, 1], [192, 0, 2, 2]];
const SIX: [[u8; 16]; 2] = [[0xfd; 16], [0xfc; 16]];
const INSIDE: [Mac; 2] = [Mac([2, 1, 1, 1, 1, 1]), Mac([2, 2, 2, 2, 2, 2])];

/// Two functions, with rules for what the first sends and the second receives; what no rule is for is dropped there.
struct Pair {
    sim: Sim,
    here: EthernetEnd,
    there: EthernetEnd,
    out: FlowRules,
    into: FlowRules,
}

impl Pair {
    fn new(builder: Builder) -> Self {
        let sim = builder.functions(2).build().unwrap();
        let [here, mut there] = [0, 1].map(|function| EthernetEnd::new(&sim, function, EthernetOptions::default()));
        there.post(1);
        let rules = |end: &EthernetEnd, direction| {
            let mut options = FlowRulesOptions::default();
            (options.direction, options.tunnels) = (direction, true);
            let rules = FlowRules::create(&end.device, options).unwrap();
            rules.start().unwrap();
            rules
        };
        let (out, into) = (rules(&here, Direction::Transmit), rules(&there, Direction::Receive));
        Pair { sim, here, there, out, into }
    }

    fn tir(&self) -> std::sync::Arc<Tir> {
        self.there.queue.tir().clone()
    }

    /// A rule for the frames that the second function receives.
    fn received(&self, actions: FlowActions) -> FlowRule {
        self.into.add(1, &FlowMatch::new().destination_mac(self.there.device.mac()), actions).unwrap()
    }

    /// An Ethernet header from one function to the other.
    fn ethernet(&self, ether_type: u16) -> Vec<u8> {
        [&self.there.device.mac().0[..], &self.here.device.mac().0, &ether_type.to_be_bytes()].concat()
    }

    fn hear(&mut self) -> Vec<u8> {
        let frame = self.there.heard();
        self.there.post(1);
        frame
    }

    /// Nothing arrives but a frame that is sent after all else.
    fn nothing_arrives(&mut self) {
        let last = [&self.ethernet(0x88b6)[..], &[7; 46]].concat();
        let rule = self.into.add(0, &FlowMatch::new().ethertype(0x88b6), &self.tir()).unwrap();
        self.here.send(&last);
        assert_eq!(self.hear(), last);
        rule.delete().unwrap();
    }

    fn end(self) {
        let Pair { sim, here, there, out, into } = self;
        drop((out, into));
        end(sim, [here, there], &[]);
    }
}

/// A frame of the tunnel's inside.
fn frame(is_v4: bool, tag: bool) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2(INSIDE[0].0, INSIDE[1].0);
    let payload = b"what is carried in a tunnel";
    match is_v4 {
        true => builder.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 9).udp(1, 2).write(&mut frame, payload),
        false => builder.ipv6([0xfa; 16], [0xfb; 16], 9).tcp(1, 2, 3, 4).write(&mut frame, payload),
    }
    .unwrap();
    if tag {
        frame.splice(12..12, [0x81, 0, 0xa1, 0x23]);
    }
    frame
}

/// IPv4's or IPv6's packet in a frame without tags.
fn packet(is_v4: bool) -> Vec<u8> {
    frame(is_v4, false).split_off(14)
}

/// What `around` is put around, as frame from one function to the other.
fn carried(pair: &Pair, is_v4: bool, protocol: IpNumber, payload: &[&[u8]]) -> Vec<u8> {
    let (mut frame, payload) = (Vec::new(), payload.concat());
    let builder = PacketBuilder::ethernet2(pair.here.device.mac().0, pair.there.device.mac().0);
    match is_v4 {
        true => builder.ipv4(FOUR[0], FOUR[1], 64).write(&mut frame, protocol, &payload),
        false => builder.ipv6(SIX[0], SIX[1], 64).write(&mut frame, protocol, &payload),
    }
    .unwrap();
    frame
}

fn datagram(pair: &Pair, is_v4: bool, port: u16, payload: &[&[u8]]) -> Vec<u8> {
    let (mut frame, payload) = (Vec::new(), payload.concat());
    let builder = PacketBuilder::ethernet2(pair.here.device.mac().0, pair.there.device.mac().0);
    match is_v4 {
        true => builder.ipv4(FOUR[0], FOUR[1], 64).udp(5555, port).write(&mut frame, &payload),
        false => builder.ipv6(SIX[0], SIX[1], 64).udp(5555, port).write(&mut frame, &payload),
    }
    .unwrap();
    frame
}

const VXLAN: &[u8] = &[8, 0, 0, 0, 0, 0, 77, 0];
/// With two words of options.
const GENEVE: &[u8] = &[2, 0, 0x65, 0x58, 0, 0, 78, 0, 1, 2, 3, 1, 9, 9, 9, 9];
/// GRE of frames with a key: the network and a flow.
const NVGRE: &[u8] = &[0x20, 0, 0x65, 0x58, 0, 0, 79, 5];

#[test]
fn a_frame_is_taken_out_of_each_tunnel_of_frames() {
    let mut pair = Pair::new(Sim::builder());
    let rule = pair.received(FlowActions::forward(&pair.tir()).decap());
    for is_v4 in [true, false] {
        let inside = frame(!is_v4, is_v4);
        for (name, around) in [
            ("VXLAN", datagram(&pair, is_v4, 4789, &[VXLAN, &inside])),
            ("GENEVE", datagram(&pair, is_v4, 6081, &[GENEVE, &inside])),
            ("NVGRE", carried(&pair, is_v4, ip_number::GRE, &[NVGRE, &inside])),
            ("GRE of frames", carried(&pair, is_v4, ip_number::GRE, &[&[0, 0, 0x65, 0x58], &inside])),
        ] {
            pair.here.send(&around);
            assert_eq!(pair.hear(), inside, "{name}, outside IPv4: {is_v4}");
        }
    }
    drop(rule);
    pair.end();
}

#[test]
fn a_packet_is_taken_out_of_each_tunnel_and_gets_an_ethernet_header() {
    let mut pair = Pair::new(Sim::builder());
    let tag = [0x81, 0, 0x20, 5];
    for inside_v4 in [true, false] {
        let (kind, number) = if inside_v4 { ([8, 0], ip_number::IPV4) } else { ([0x86, 0xdd], ip_number::IPV6) };
        let [untagged, tagged] = [&[][..], &tag].map(|tag| [&INSIDE[1].0[..], &INSIDE[0].0, tag, &kind].concat());
        for header in [untagged, tagged] {
            let reformat = PacketReformat::l3_tunnel_to_l2(&pair.there.device, &header).unwrap();
            let rule = pair.received(FlowActions::forward(&pair.tir()).decap_l3(&reformat));
            let (packet, inner_frame) = (packet(inside_v4), frame(inside_v4, true));
            let wanted = [&header[..], &packet].concat();
            for outside_v4 in [true, false] {
                let gre = [&[0, 0][..], &kind].concat();
                let keyed = [&[0xb0, 0][..], &kind, &[0; 4], &[0, 0, 0, 7], &[0, 0, 0, 1]].concat();
                for (name, around) in [
                    ("IP in IP", carried(&pair, outside_v4, number, &[&packet])),
                    ("GRE", carried(&pair, outside_v4, ip_number::GRE, &[&gre, &packet])),
                    ("GRE with all words", carried(&pair, outside_v4, ip_number::GRE, &[&keyed, &packet])),
                    ("VXLAN", datagram(&pair, outside_v4, 4789, &[VXLAN, &inner_frame])),
                ] {
                    pair.here.send(&around);
                    assert_eq!(pair.hear(), wanted, "{name}, inside {inside_v4}, outside {outside_v4}");
                }
            }
            rule.delete().unwrap();
            PacketReformat::destroy(reformat).unwrap();
        }
    }
    pair.end();
}

/// Checks the outer headers of a packet tunnel as another's code reads them, and returns what is behind them.
fn behind(frame: &[u8], protocol: IpNumber) -> &[u8] {
    let sliced = SlicedPacket::from_ethernet(frame).unwrap();
    let (payload, len) = match &sliced.net {
        Some(NetSlice::Ipv4(ip)) => {
            let header = ip.header();
            assert_eq!(header.to_header().calc_header_checksum(), header.header_checksum());
            (ip.payload(), usize::from(header.total_len()))
        }
        Some(NetSlice::Ipv6(ip)) => (ip.payload(), 40 + usize::from(ip.header().payload_length())),
        other => panic!("{other:?}"),
    };
    assert_eq!((payload.ip_number, 14 + len), (protocol, frame.len()));
    payload.payload
}

#[test]
fn a_packet_is_put_into_a_tunnel_without_its_ethernet_header() {
    let mut pair = Pair::new(Sim::builder());
    let rest = pair.received(FlowActions::forward(&pair.tir()));
    for (outside_v4, inside_v4, has_tag) in
        [(true, true, false), (true, false, true), (false, true, true), (false, false, false)]
    {
        let number = if inside_v4 { ip_number::IPV4 } else { ip_number::IPV6 };
        let kind = if inside_v4 { [8, 0] } else { [0x86, 0xdd] };
        let gre = [&[0x20, 0][..], &kind, &[0, 0, 0, 7]].concat();
        for (name, protocol, shim) in [("IP in IP", number, &[][..]), ("GRE", ip_number::GRE, &gre)] {
            let mut header = carried(&pair, outside_v4, protocol, &[shim]);
            // The card fills these in.
            if outside_v4 {
                header[16..18].fill(0);
                header[24..26].fill(0);
            } else {
                header[18..20].fill(0);
            }
            let reformat = PacketReformat::l2_to_l3_tunnel(&pair.here.device, &header).unwrap();
            let to_inside = FlowMatch::new().destination_mac(INSIDE[1]);
            let rule = pair.out.add(0, &to_inside, FlowActions::send().encap(&reformat)).unwrap();
            pair.here.send(&frame(inside_v4, has_tag));
            let heard = pair.hear();
            let wanted = [shim, &packet(inside_v4)].concat();
            assert_eq!(behind(&heard, protocol), wanted, "{name}, outside {outside_v4}, inside {inside_v4}");
            assert_eq!(heard[..12], header[..12]);
            rule.delete().unwrap();
            PacketReformat::destroy(reformat).unwrap();
        }
    }
    drop(rest);
    pair.end();
}

#[test]
fn what_is_in_no_tunnel_and_what_is_no_packet_is_counted_and_dropped() {
    let mut pair = Pair::new(Sim::builder());
    let header = pair.ethernet(0x0800);
    let leave = PacketReformat::l3_tunnel_to_l2(&pair.there.device, &header).unwrap();
    let packet = packet(true);
    let inside = frame(true, false);
    let counter = FlowCounter::create(&pair.there.device).unwrap();
    let gre = [0, 0, 8, 0];
    let no_packets = [
        ("no IP", [&pair.ethernet(0x88b5)[..], &[0; 46]].concat()),
        ("no tunnel", carried(&pair, true, ip_number::UDP, &[&[0; 8]])),
        ("IP in IP, cut off", carried(&pair, true, ip_number::IPV4, &[&packet[..19]])),
        ("GRE, cut off", carried(&pair, true, ip_number::GRE, &[&gre[..3]])),
        ("GRE of nothing", carried(&pair, true, ip_number::GRE, &[&gre])),
        ("GRE with words that are cut off", carried(&pair, true, ip_number::GRE, &[&[0xb0, 0, 8, 0, 0, 0]])),
        ("VXLAN of no IP", datagram(&pair, true, 4789, &[VXLAN, &pair.ethernet(0x88b5)])),
    ];
    let no_frames = [
        ("no IP", [&pair.ethernet(0x88b5)[..], &[0; 46]].concat()),
        ("no tunnel", datagram(&pair, true, 80, &[VXLAN, &inside])),
        ("a tunnel of packets", carried(&pair, true, ip_number::GRE, &[&gre, &packet])),
        ("IP in IP", carried(&pair, true, ip_number::IPV4, &[&packet])),
        ("VXLAN without a network", datagram(&pair, true, 4789, &[&[0; 8], &inside])),
        ("VXLAN, cut off", datagram(&pair, true, 4789, &[VXLAN, &inside[..13]])),
        ("GENEVE with options that are cut off", datagram(&pair, true, 6081, &[&GENEVE[..12]])),
    ];
    for (actions, frames) in [
        (FlowActions::forward(&pair.tir()).decap_l3(&leave), no_packets),
        (FlowActions::forward(&pair.tir()).decap(), no_frames),
    ] {
        let rule = pair.received(actions.count(&counter));
        for (name, frame) in frames {
            let before = counter.read().unwrap();
            pair.here.send(&frame);
            pair.nothing_arrives();
            let counted = counter.read().unwrap();
            let wanted = (before.packets + 1, before.bytes + frame.len() as u64);
            assert_eq!((counted.packets, counted.bytes), wanted, "{name}");
        }
        rule.delete().unwrap();
    }

    let rest = pair.received(FlowActions::forward(&pair.tir()));
    let around = carried(&pair, true, ip_number::GRE, &[&gre]);
    let enter = PacketReformat::l2_to_l3_tunnel(&pair.here.device, &around).unwrap();
    let sent = FlowCounter::create(&pair.here.device).unwrap();
    let to_there = FlowMatch::new().destination_mac(pair.there.device.mac());
    let last = pair.out.add(0, &FlowMatch::new().ethertype(0x88b6), FlowActions::send()).unwrap();
    let rule = pair.out.add(1, &to_there, FlowActions::send().encap(&enter).count(&sent)).unwrap();
    for (at, frame) in (1..).zip([
        [&pair.ethernet(0x88b5)[..], &[0; 46]].concat(),
        [&pair.ethernet(0x0800)[..], &packet[..19]].concat(),
        pair.ethernet(0x86dd),
    ]) {
        pair.here.send(&frame);
        pair.nothing_arrives();
        assert_eq!(sent.read().unwrap().packets, at);
    }
    drop((rule, last, rest, enter, leave, counter, sent));
    pair.end();
}

#[test]
fn headers_of_another_size_and_reformats_for_something_else_are_refused() {
    let pair = Pair::new(Sim::builder());
    let device = &pair.there.device;
    for len in [0, 1, 13, 15, 16, 17, 19, 128] {
        let text = refusal(PacketReformat::l3_tunnel_to_l2(device, &vec![0; len]));
        assert!(text.contains("needs an Ethernet header of 14 or 18 bytes"), "{len}: {text}");
    }
    for len in [0, 13, 129] {
        let text = refusal(PacketReformat::l2_to_l3_tunnel(device, &vec![0; len]));
        assert!(text.contains("14 to 128 (max_encap_header_size)"), "{len}: {text}");
    }
    let leave = PacketReformat::l3_tunnel_to_l2(device, &[0; 14]).unwrap();
    let [enter, enter_l3] = [PacketReformat::tunnel, PacketReformat::l2_to_l3_tunnel]
        .map(|create| create(device, &pair.ethernet(0x0800)).unwrap());
    let tir = pair.tir();
    let add = |actions| refusal(pair.into.add(0, &FlowMatch::new().udp(), actions));
    let forward = || FlowActions::forward(&tir);
    for other in [&enter, &enter_l3] {
        let text = add(forward().decap_l3(other));
        assert!(text.contains("decap_l3 needs a PacketReformat::l3_tunnel_to_l2"), "{text}");
    }
    let text = add(forward().encap(&leave));
    assert!(text.contains("encap needs a PacketReformat that puts into a tunnel"), "{text}");
    for actions in [forward().decap_l3(&leave).decap(), forward().decap_l3(&leave).encap(&enter)] {
        let text = add(actions);
        assert!(text.contains("needs a rule of its own"), "{text}");
    }
    let text = add(FlowActions::drop().decap_l3(&leave));
    assert!(text.contains("taking out of a tunnel has no effect"), "{text}");
    // The tables of received frames of this card, and those of frames that are sent.
    let text = add(forward().encap(&enter_l3));
    assert!(text.contains("reformat_l2_to_l3_tunnel"), "{text}");
    let leave_here = PacketReformat::l3_tunnel_to_l2(&pair.here.device, &[0; 14]).unwrap();
    let text = refusal(pair.out.add(0, &FlowMatch::new().udp(), FlowActions::send().decap_l3(&leave_here)));
    assert!(text.contains("reformat_l3_tunnel_to_l2"), "{text}");
    let text = refusal(pair.into.add(0, &FlowMatch::new().udp(), forward().decap_l3(&leave_here)));
    assert!(text.contains("one device"), "{text}");
    drop((leave, leave_here, enter, enter_l3, tir));
    pair.end();
}

/// A card whose tables, of received frames and of frames that are sent, are as `change` makes them.
fn with_tables(change: fn(&mut FlowTablePropLayout)) -> Builder {
    let mut profile = Profile::connectx5();
    let mut receive = *profile.flow_table.flow_table_properties_nic_receive();
    let mut transmit = *profile.flow_table.flow_table_properties_nic_transmit();
    change(&mut receive);
    change(&mut transmit);
    profile.flow_table.w().flow_table_properties_nic_receive(&receive).flow_table_properties_nic_transmit(&transmit);
    Sim::builder().profile(profile)
}

#[test]
fn what_a_card_cannot_reformat_is_refused_by_name() {
    let change = |tables: &mut FlowTablePropLayout| {
        tables.w().reformat_l2_to_l3_tunnel(false).reformat_l3_tunnel_to_l2(false).decap(false);
    };
    let pair = Pair::new(with_tables(change));
    let device = &pair.there.device;
    let text = refusal(PacketReformat::l2_to_l3_tunnel(device, &[0; 34]));
    assert!(text.contains("reformat_l2_to_l3_tunnel"), "{text}");
    let text = refusal(PacketReformat::l3_tunnel_to_l2(device, &[0; 14]));
    assert!(text.contains("reformat_l3_tunnel_to_l2"), "{text}");
    let actions = FlowActions::forward(&pair.tir()).decap();
    let text = refusal(pair.into.add(0, &FlowMatch::new().udp(), actions));
    assert!(text.contains("take frames out of tunnels") && text.contains("decap"), "{text}");
    pair.end();

    let change = |tables: &mut FlowTablePropLayout| _ = tables.w().reformat(false);
    let pair = Pair::new(with_tables(change));
    let text = refusal(PacketReformat::tunnel(&pair.here.device, &[0; 34]));
    assert!(text.contains("flow rules that put frames into tunnels") && text.contains("reformat"), "{text}");
    pair.end();

    // A card takes frames out of tunnels in tables of received frames alone, and needs no more for it.
    let mut profile = Profile::connectx5();
    let mut transmit = *profile.flow_table.flow_table_properties_nic_transmit();
    transmit.w().decap(false);
    let mut receive = *profile.flow_table.flow_table_properties_nic_receive();
    receive.w().reformat(false).reformat_l3_tunnel_to_l2(false);
    profile.flow_table.w().flow_table_properties_nic_receive(&receive).flow_table_properties_nic_transmit(&transmit);
    let mut pair = Pair::new(Sim::builder().profile(profile));
    let rule = pair.received(FlowActions::forward(&pair.tir()).decap());
    let inside = frame(true, false);
    let around = datagram(&pair, true, 4789, &[VXLAN, &inside]);
    pair.here.send(&around);
    assert_eq!(pair.hear(), inside);
    drop(rule);
    pair.end();

    let change = |tables: &mut FlowTablePropLayout| _ = tables.w().reformat(false).decap(false);
    let sim = with_tables(change).functions(2).build().unwrap();
    let [here, there] = [0, 1].map(|function| EthernetEnd::new(&sim, function, EthernetOptions::default()));
    for (direction, capability) in [(Direction::Receive, "decap"), (Direction::Transmit, "reformat")] {
        let mut options = FlowRulesOptions::default();
        (options.direction, options.tunnels) = (direction, true);
        let text = refusal(FlowRules::create(&here.device, options));
        assert!(text.contains("flow tables with tunnels") && text.contains(capability), "{text}");
    }
    end(sim, [here, there], &[]);
}
