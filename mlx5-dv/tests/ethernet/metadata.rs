//! What the card says of frames that it receives, and what it does to those that it sends.

use std::sync::Arc;

use mlx5_dv::objects::{
    FlowGroup, FlowMatch, FlowRule, FlowTable, HashFields, HashFunction, Rqt, RssOptions, Tir, Traffic, VlanTag,
};
use mlx5_dv::queue::ethernet::{EthernetOptions, FrameCompletion, FrameFlags, RssHash};
use mlx5_dv::queue::{Operation, PostError, RefusedReason};
use mlx5_open::Sim;
use mlx5_prm::cqe::{L3Header, L4Header, RssIp, RssL4};
use mlx5_sim::profile::Profile;

use crate::ends::{EthernetEnd, SOON, content, end, refusal, two, two_of};
use crate::frames::with_inlined_header;
use crate::spread::{EXAMPLES, ICMP, TCP, UDP, ipv4};

/// Sends `frame`, and returns what the other end is told of it.
fn told(here: &mut EthernetEnd, there: &mut EthernetEnd, frame: &[u8]) -> FrameCompletion {
    here.send(frame);
    let done = there.queue.wait(SOON).unwrap();
    let told = done.result.unwrap();
    assert_eq!((told.operation, told.byte_len as usize), (Operation::Received, frame.len()));
    there.queue.receive(done.buffer.unwrap()).unwrap();
    told
}

#[test]
fn types_of_headers_and_verdicts_of_checksums_are_told() {
    let (sim, mut here, mut there) = two();
    there.post(8);
    let head = here.frame(there.device.mac(), &[]);
    let (source, destination, ports, ..) = EXAMPLES[0];
    let of = |protocol| ipv4(&head, protocol, source, destination, ports);

    let other = told(&mut here, &mut there, &[&head[..12], &[0x88, 0xb5], &[1; 60]].concat());
    assert_eq!((other.l3(), other.l4(), other.l4_checksum_ok()), (L3Header::None, L4Header::None, false));

    let datagram = told(&mut here, &mut there, &of(UDP));
    assert_eq!((datagram.l3(), datagram.l4()), (L3Header::Ipv4, L4Header::Udp));
    // UDP without a checksum is right.
    assert!(datagram.l3_checksum_ok() && datagram.l4_checksum_ok() && !datagram.is_fragment());
    assert_eq!((datagram.rss_hash(), datagram.stripped_vlan()), (None, None));
    assert_eq!(datagram.flow_tag(), there.queue.rq().rqn());

    let segment = told(&mut here, &mut there, &of(TCP));
    assert_eq!((segment.l3(), segment.l4()), (L3Header::Ipv4, L4Header::TcpNoAck));
    assert!(segment.l3_checksum_ok() && !segment.l4_checksum_ok(), "its checksum is 0");

    let echo = told(&mut here, &mut there, &of(ICMP));
    assert_eq!((echo.l3(), echo.l4()), (L3Header::Ipv4, L4Header::None));

    let mut wrong = of(UDP);
    wrong[24] ^= 1;
    let wrong = told(&mut here, &mut there, &wrong);
    assert!(!wrong.l3_checksum_ok(), "a wrong checksum of the header");

    let mut fragment = of(UDP);
    // More fragments; the header's sum is one less in its first byte.
    fragment[20] |= 0x20;
    fragment[24] = fragment[24].wrapping_sub(0x20);
    let fragment = told(&mut here, &mut there, &fragment);
    assert!(fragment.is_fragment() && !fragment.l4_checksum_ok(), "{fragment:?}");
    end(sim, [here, there], &[]);
}

/// Two functions of a card, the second without rules.
fn bare(options: EthernetOptions) -> (Sim, EthernetEnd, EthernetEnd) {
    let sim = Sim::builder().functions(2).build().unwrap();
    let (here, there) = (EthernetEnd::new(&sim, 0, EthernetOptions::default()), EthernetEnd::new(&sim, 1, options));
    (sim, here, there)
}

#[test]
fn the_hash_is_the_published_one_and_its_type_says_what_it_covers() {
    const OTHER: u8 = 0xfd;
    let (sim, mut here, mut there) = bare(EthernetOptions::default());
    there.post(8);
    let rqt = Rqt::create(&[Arc::clone(there.queue.rq())]).unwrap();
    let hashed = |options| Tir::create_rss(there.queue.tir().transport_domain(), &rqt, options).unwrap();
    let addresses = RssOptions::new(Traffic::Ipv4).fields(HashFields::ADDRESSES);
    let tirs = [
        (TCP, hashed(RssOptions::new(Traffic::TcpIpv4))),
        (UDP, hashed(RssOptions::new(Traffic::UdpIpv4))),
        (ICMP, hashed(addresses)),
        (OTHER, hashed(addresses.function(HashFunction::Xor))),
    ];
    let matched = |protocol| FlowMatch::new().ipv4().protocol(protocol);
    let table = FlowTable::create(&there.device, 0, 4).unwrap();
    let group = FlowGroup::create(&table, 0..4, &matched(TCP)).unwrap();
    let rules = tirs.map(|(protocol, tir)| FlowRule::create(&group, &matched(protocol), &tir).unwrap());
    table.set_root().unwrap();

    let head = here.frame(there.device.mac(), &[]);
    for (source, destination, ports, with_ports, without) in EXAMPLES {
        let sum = !source.iter().chain(&destination).fold(0, |all, byte| all ^ byte);
        for (protocol, value, l4) in [
            (TCP, with_ports, RssL4::Tcp),
            (UDP, with_ports, RssL4::Udp),
            (ICMP, without, RssL4::None),
            (OTHER, u32::from(sum), RssL4::None),
        ] {
            let frame = ipv4(&head, protocol, source, destination, ports);
            let told = told(&mut here, &mut there, &frame);
            assert_eq!(told.rss_hash(), Some(RssHash { value, ip: RssIp::Ipv4, l4 }), "{protocol}");
        }
    }
    drop((rules, group, table, rqt));
    end(sim, [here, there], &[]);
}

#[test]
fn a_tag_is_inserted_by_the_sender_and_stripped_by_the_receiver_that_asks_for_it() {
    let mut options = EthernetOptions::default();
    for (strip, tag) in [
        (false, VlanTag { ethertype: 0x8100, priority: 5, vlan: 0x123 }),
        (false, VlanTag { ethertype: 0x88a8, priority: 0, vlan: 4095 }),
        (true, VlanTag { ethertype: 0x8100, priority: 5, vlan: 0x123 }),
    ] {
        options.strip_vlan = strip;
        let (sim, mut here, mut there) = two_of(Sim::builder(), options.clone());
        there.post(2);
        assert!(here.queue.sq().inserts_vlan());
        let frame = here.frame(there.device.mac(), &[7; 60]);
        let mut buffer = here.buffer(31);
        buffer.write(0, &frame);
        buffer.set_len(frame.len());
        here.queue.send_tagged(buffer, FrameFlags::empty(), tag).unwrap();
        here.queue.wait(SOON).unwrap().result.unwrap();
        let done = there.queue.wait(SOON).unwrap();
        let (told, tci) = (done.result.unwrap(), u16::from(tag.priority) << 13 | tag.vlan);
        let bytes = [&frame[..12], &tag.ethertype.to_be_bytes(), &tci.to_be_bytes(), &frame[12..]].concat();
        match strip {
            true => assert_eq!((told.stripped_vlan(), content(done)), (Some(tci), frame)),
            false => assert_eq!((told.stripped_vlan(), content(done)), (None, bytes)),
        }
        end(sim, [here, there], &[]);
    }
}

#[test]
fn a_tag_that_there_is_not_or_that_the_card_does_not_insert_is_refused() {
    let good = VlanTag::new(5);
    let try_tag = |builder, tag| {
        let (sim, mut here, there) = two_of(builder, EthernetOptions::default());
        let buffer = here.buffer(31);
        let refused = here.queue.send_tagged(buffer, FrameFlags::empty(), tag).unwrap_err();
        let reason = refused.reason;
        drop(refused.buffer.unwrap());
        end(sim, [here, there], &[]);
        reason
    };
    for tag in [VlanTag { priority: 8, ..good }, VlanTag { vlan: 4096, ..good }, VlanTag { ethertype: 0x800, ..good }] {
        assert_eq!(try_tag(Sim::builder(), tag), RefusedReason::Post(PostError::VlanTag { tag }));
    }
    // Its headers must be in the work request.
    let inlined = Sim::builder().profile(with_inlined_header());
    assert_eq!(try_tag(inlined, good), RefusedReason::Post(PostError::NoVlanInsertion));
}

#[test]
fn hashing_inside_of_tunnels_is_refused_by_the_capability() {
    let mut profile = Profile::default();
    profile.ethernet.w().tunnel_stateless_vxlan(false).tunnel_stateless_gre(false);
    profile.ethernet.w().tunnel_stateless_geneve_rx(false).tunnel_stateless_ip_over_ip_rx(false);
    let (sim, here, there) = two_of(Sim::builder().profile(profile), EthernetOptions::default());
    let rqt = Rqt::create(&[Arc::clone(there.queue.rq())]).unwrap();
    let options = RssOptions::new(Traffic::TcpIpv4).inner(true);
    let text = refusal(Tir::create_rss(there.queue.tir().transport_domain(), &rqt, options));
    assert!(text.contains("tunnel_stateless_vxlan"), "{text}");
    drop(rqt);
    end(sim, [here, there], &[]);
}
