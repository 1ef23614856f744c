//! Frames in tunnels: checksums inside of them, and packets that the card divides.

use std::sync::Arc;

use mlx5_dv::objects::{
    AccessFlags, Buffer, FlowActions, FlowGroup, FlowMatch, FlowRule, FlowRules, FlowRulesOptions, FlowTable,
    MemoryRegion, Rqt, RssOptions, Tir, Traffic, TunnelHeaders, TunnelKind, VxlanPort,
};
use mlx5_dv::queue::ethernet::{EthernetOptions, FrameFlags, RssHash};
use mlx5_dv::queue::{PostError, Refused, RefusedReason, Ticket};
use mlx5_open::Sim;
use mlx5_prm::cqe::{L3Header, L4Header, RssIp, RssL4};
use mlx5_sim::ethernet::tunnel_offsets;
use mlx5_sim::profile::Profile;
use proptest::prelude::*;

use crate::ends::{EthernetEnd, SOON, content, end, refusal, two_of};
use crate::large::{be16, ethernet, is_checked, sum, tcp, udp};
use crate::spread::{EXAMPLES, TCP, ipv4};

/// Bytes of headers of IPv4, IPv6, UDP and TCP as the tests have them.
const ETHERNET: usize = 14;
const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP: usize = 8;

/// A tunnel, and its frames' headers with those of the inner packet.
struct Case {
    name: &'static str,
    kind: TunnelKind,
    headers: Vec<u8>,
    /// Offsets of outer and inner network header, and whether they are IPv6.
    outer: (usize, bool),
    inner: (usize, bool),
    /// Offset of the outer UDP header.
    datagram: Option<usize>,
}

fn ip(protocol: u8) -> Vec<u8> {
    vec![0x45, 0, 0, 0, 0x43, 0x21, 0x40, 0, 64, protocol, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]
}

fn ipv6(protocol: u8) -> Vec<u8> {
    [&[0x60, 0, 0, 0, 0, 0, protocol, 64][..], &[0xfd; 16], &[0xfc; 16]].concat()
}

/// A UDP header without a checksum.
fn datagram(port: u16) -> Vec<u8> {
    [&[0x30, 0x39][..], &port.to_be_bytes(), &[0; 4]].concat()
}

/// One of each tunnel, of IPv4 and of IPv6 around, and of TCP and UDP inside.
fn cases(here: &EthernetEnd, there: &EthernetEnd) -> [Case; 6] {
    let mac = there.device.mac();
    let around = |kind: u16, ip: Vec<u8>, rest: &[u8]| [&ethernet(here, mac, kind)[..], &ip, rest].concat();
    let (inner_tcp, inner_udp) = (tcp(here, mac), udp(here, mac));
    let case = |name, kind, around: Vec<u8>, skipped: usize, inner: &[u8], is_v6: [bool; 2], is_udp: bool| Case {
        name,
        kind,
        outer: (ETHERNET, is_v6[0]),
        inner: (around.len() + ETHERNET - skipped, is_v6[1]),
        datagram: is_udp.then_some(ETHERNET + if is_v6[0] { IPV6 } else { IPV4 }),
        headers: [&around[..], &inner[skipped..]].concat(),
    };
    let vxlan = [datagram(4789), vec![8, 0, 0, 0, 0, 0, 77, 0]].concat();
    let geneve = [datagram(6081), vec![2, 0, 0x65, 0x58, 0, 0, 78, 0, 1, 2, 3, 1, 9, 9, 9, 9]].concat();
    let keyed = [0x20, 0, 0x65, 0x58, 0, 0, 0, 5];
    use TunnelKind::{Geneve, Gre, IpInIp, Vxlan};
    [
        case("vxlan", Vxlan, around(0x0800, ip(17), &vxlan), 0, &inner_tcp, [false; 2], true),
        case("vxlan over IPv6", Vxlan, around(0x86dd, ipv6(17), &vxlan), 0, &inner_udp, [true; 2], true),
        case("geneve", Geneve, around(0x0800, ip(17), &geneve), 0, &inner_tcp, [false; 2], true),
        case("gre of frames", Gre, around(0x0800, ip(47), &keyed), 0, &inner_udp, [false, true], false),
        case("gre", Gre, around(0x86dd, ipv6(47), &[0, 0, 8, 0]), ETHERNET, &inner_tcp, [true, false], false),
        case("ip in ip", IpInIp, around(0x0800, ip(4), &[]), ETHERNET, &inner_tcp, [false; 2], false),
    ]
}

fn options() -> EthernetOptions {
    let mut options = EthernetOptions::default();
    options.inline_bytes = 200;
    options
}

/// The two ways of cards: told where headers are, or looking for them.
fn ways() -> [Profile; 2] {
    let told = Profile::connectx5();
    let mut looks = Profile::connectx5();
    looks.ethernet.w().swp(false).swp_csum(false).swp_lso(false);
    [told, looks]
}

fn posted(
    here: &mut EthernetEnd,
    bytes: &[u8],
    post: impl FnOnce(&mut EthernetEnd, Buffer) -> Result<Ticket, Refused>,
) -> Result<(), Refused> {
    let region = MemoryRegion::allocate(&here.pd, 1 << 16, AccessFlags::LOCAL_WRITE).unwrap();
    let mut buffer = region.buffer(0..bytes.len()).unwrap();
    buffer.write(0, bytes);
    let ticket = post(here, buffer)?;
    let done = here.queue.wait(SOON).unwrap();
    assert_eq!((done.ticket, done.result.map(|_| ())), (ticket, Ok(())));
    Ok(())
}

/// Checks lengths and checksums of a network header at `at` and of the transport header behind it. Returns the number
/// of its packet where it is IPv4.
fn check(name: &str, frame: &[u8], (at, is_v6): (usize, bool)) -> Option<usize> {
    let packet = &frame[at..];
    let (ip, addresses, protocol) = if is_v6 {
        assert_eq!(be16(packet, 4), packet.len() - IPV6, "{name}");
        (IPV6, 8..IPV6, packet[6])
    } else {
        assert_eq!((be16(packet, 2), sum(&packet[..IPV4])), (packet.len(), 0xffff), "{name}");
        (IPV4, 12..IPV4, packet[9])
    };
    let segment = &packet[ip..];
    if protocol == 17 {
        assert_eq!(be16(segment, 4), segment.len(), "{name}");
    }
    if matches!(protocol, 6 | 17) {
        assert!(is_checked(&packet[addresses], protocol, segment), "{name}: {frame:02x?}");
    }
    (!is_v6).then(|| be16(packet, 4))
}

#[test]
fn a_packet_in_a_tunnel_becomes_frames_with_all_headers_right() {
    for profile in ways() {
        let (sim, mut here, mut there) = two_of(Sim::builder().profile(profile), options());
        let bytes: Vec<u8> = (0..3300u32).map(|at| (at * 7) as u8).collect();
        for (case, checks_around) in cases(&here, &there).iter().flat_map(|case| [(case, false), (case, true)]) {
            let tunnel = TunnelHeaders::of(&case.headers).unwrap();
            assert_eq!((tunnel.kind(), tunnel.len()), (case.kind, case.headers.len()), "{}", case.name);
            // What is inside over IPv6 is UDP, whose datagrams have one length.
            let payload = &bytes[..if case.inner.1 { 3000 } else { 3300 }];
            there.post(payload.len().div_ceil(1000));
            let flags = if checks_around { FrameFlags::L4_CHECKSUM } else { FrameFlags::empty() };
            posted(&mut here, &[&case.headers[..], payload].concat(), |here, buffer| {
                here.queue.send_large_in_tunnel(buffer, flags, &tunnel, 1000)
            })
            .unwrap();
            for (number, part) in payload.chunks(1000).enumerate() {
                let frame = there.heard();
                assert_eq!(&frame[case.headers.len()..], part, "{}, frame {number}", case.name);
                let inner = check(case.name, &frame, case.inner);
                assert!(inner.is_none_or(|id| id == 0x1234 + number), "{}", case.name);
                match case.datagram.filter(|_| !checks_around) {
                    Some(at) => assert_eq!((be16(&frame, at + 4), be16(&frame, at + 6)), (frame.len() - at, 0)),
                    None => _ = check(case.name, &frame, case.outer),
                }
            }
        }
        end(sim, [here, there], &[]);
    }
}

#[test]
fn checksums_are_filled_in_around_a_tunnel_and_inside_of_it() {
    for profile in ways() {
        let (sim, mut here, mut there) = two_of(Sim::builder().profile(profile), options());
        for case in &cases(&here, &there) {
            let tunnel = TunnelHeaders::of(&case.headers).unwrap();
            let mut frame = [&case.headers[..], &[0x5a; 333]].concat();
            let len = frame.len();
            for (at, is_v6) in [case.outer, case.inner] {
                let (place, given) = if is_v6 { (at + 4, len - at - IPV6) } else { (at + 2, len - at) };
                frame[place..place + 2].copy_from_slice(&(given as u16).to_be_bytes());
                let next = at + if is_v6 { IPV6 } else { IPV4 };
                if frame[if is_v6 { at + 6 } else { at + 9 }] == 17 {
                    frame[next + 4..next + 6].copy_from_slice(&((len - next) as u16).to_be_bytes());
                }
            }
            there.post(1);
            let flags = FrameFlags::L3_CHECKSUM | FrameFlags::L4_CHECKSUM | FrameFlags::INNER;
            posted(&mut here, &frame, |here, buffer| here.queue.send_in_tunnel(buffer, flags, &tunnel)).unwrap();
            let heard = there.heard();
            check(case.name, &heard, case.outer);
            check(case.name, &heard, case.inner);
            assert_eq!(heard[case.headers.len()..], frame[case.headers.len()..], "{}", case.name);
        }
        end(sim, [here, there], &[]);
    }
}

#[test]
fn a_card_without_a_tunnel_says_so_by_its_capability() {
    let mut profile = Profile::connectx5();
    profile.ethernet.w().swp_csum(false).swp_lso(false);
    profile.ethernet.w().tunnel_stateless_vxlan(false).tunnel_stateless_geneve_tx(false).tunnel_stateless_gre(false);
    profile.ethernet.w().tunnel_stateless_ip_over_ip(false).tunnel_stateless_ip_over_ip_tx(false);
    let (sim, mut here, there) = two_of(Sim::builder().profile(profile), options());
    for case in &cases(&here, &there) {
        let tunnel = TunnelHeaders::of(&case.headers).unwrap();
        let packet = [&case.headers[..], &[7; 2000]].concat();
        let large = posted(&mut here, &packet, |here, buffer| {
            here.queue.send_large_in_tunnel(buffer, FrameFlags::empty(), &tunnel, 1000)
        });
        let small = posted(&mut here, &packet[..1000], |here, buffer| {
            here.queue.send_in_tunnel(buffer, FrameFlags::INNER, &tunnel)
        });
        for refused in [large.unwrap_err(), small.unwrap_err()] {
            let is_named = refused.to_string().contains(case.kind.capability());
            assert!(is_named && refused.to_string().contains("swp"), "{refused}");
        }
    }
    let refused = posted(&mut here, &[7; 100], |here, buffer| here.queue.send(buffer, FrameFlags::INNER)).unwrap_err();
    assert_eq!(refused.reason, RefusedReason::Post(PostError::NoTunnel));
    drop(refused);
    end(sim, [here, there], &[]);
}

#[test]
fn what_is_in_no_tunnel_has_no_headers_of_one() {
    let (sim, here, there) = two_of(Sim::builder(), options());
    let mac = there.device.mac();
    for (headers, why) in [
        (tcp(&here, mac), "TCP"),
        (udp(&here, mac), "UDP of another port"),
        (cases(&here, &there)[0].headers[..60].to_vec(), "cut short"),
        (vec![], "nothing"),
    ] {
        assert_eq!(TunnelHeaders::of(&headers), None, "{why}");
    }
    let fragment = {
        let mut headers = cases(&here, &there)[5].headers.clone();
        headers[ETHERNET + 6] = 0x20;
        headers
    };
    assert_eq!(TunnelHeaders::of(&fragment), None, "a fragment around");
    let mut headers = cases(&here, &there)[5].headers.clone();
    headers[ETHERNET + IPV4 + 6] = 0x20;
    let inner = TunnelHeaders::of(&headers).unwrap();
    assert_eq!((inner.has_transport(), inner.len()), (false, ETHERNET + 2 * IPV4));
    assert!(inner.len() + UDP < headers.len());
    end(sim, [here, there], &[]);
}

/// `frame` in a VXLAN tunnel, behind these outer headers.
fn in_vxlan(around: &[u8], frame: &[u8]) -> Vec<u8> {
    let mut all = [around, frame].concat();
    let len = all.len();
    let put = |all: &mut Vec<u8>, at: usize, number: u16| all[at..at + 2].copy_from_slice(&number.to_be_bytes());
    put(&mut all, ETHERNET + 2, (len - ETHERNET) as u16);
    put(&mut all, ETHERNET + IPV4 + 4, (len - ETHERNET - IPV4) as u16);
    let check = !sum(&all[ETHERNET..ETHERNET + IPV4]) as u16;
    put(&mut all, ETHERNET + 10, check);
    all
}

/// Two functions; the second's receives are spread by what is in tunnels over UDP, as long as the rule exists.
fn hashed_inside() -> (Sim, EthernetEnd, EthernetEnd, FlowRule) {
    let sim = Sim::builder().functions(2).build().unwrap();
    let (here, mut there) = (EthernetEnd::new(&sim, 0, options()), EthernetEnd::new(&sim, 1, options()));
    there.post(8);
    let rqt = Rqt::create(&[Arc::clone(there.queue.rq())]).unwrap();
    let inner = RssOptions::new(Traffic::TcpIpv4).inner(true);
    let tir = Tir::create_rss(there.queue.tir().transport_domain(), &rqt, inner).unwrap();
    let matched = FlowMatch::new().ipv4().protocol(17);
    let table = FlowTable::create(&there.device, 0, 2).unwrap();
    let group = FlowGroup::create(&table, 0..2, &matched).unwrap();
    let rule = FlowRule::create(&group, &matched, &tir).unwrap();
    table.set_root().unwrap();
    (sim, here, there, rule)
}

#[test]
fn what_is_in_a_tunnel_is_hashed_and_checked() {
    let (sim, mut here, mut there, rule) = hashed_inside();
    let case = &cases(&here, &there)[0];
    let around = &case.headers[..case.inner.0 - ETHERNET];
    let head = ethernet(&here, there.device.mac(), 0x0800);
    for (source, destination, ports, value, _) in EXAMPLES {
        let mut frame = ipv4(&head[..ETHERNET], TCP, source, destination, ports);
        let mut heard = |frame: &[u8]| {
            here.send(&in_vxlan(around, frame));
            let done = there.queue.wait(SOON).unwrap();
            there.queue.receive(done.buffer.unwrap()).unwrap();
            done.result.unwrap()
        };
        let told = heard(&frame);
        assert_eq!(told.rss_hash(), Some(RssHash { value, ip: RssIp::Ipv4, l4: RssL4::Tcp }));
        assert_eq!((told.is_tunneled(), told.l3(), told.l4()), (true, L3Header::Ipv4, L4Header::TcpNoAck));
        assert!(told.l3_checksum_ok() && !told.l4_checksum_ok(), "TCP's checksum is 0");
        frame[ETHERNET + 10] ^= 1;
        assert!(!heard(&frame).l3_checksum_ok(), "the inner header's checksum is wrong");
    }
    drop(rule);
    end(sim, [here, there], &[]);
}

#[test]
fn datagrams_to_a_vxlan_port_are_looked_into_while_it_is_one() {
    const PORT: u16 = 8472;
    let (sim, mut here, mut there, rule) = hashed_inside();
    let case = &cases(&here, &there)[0];
    let mut around = case.headers[..case.inner.0 - ETHERNET].to_vec();
    around[ETHERNET + IPV4 + 2..][..2].copy_from_slice(&PORT.to_be_bytes());
    assert_eq!(TunnelHeaders::of(&[&around[..], &tcp(&here, there.device.mac())].concat()), None);
    let found = TunnelHeaders::of_ports(&[&around[..], &tcp(&here, there.device.mac())].concat(), &[1, PORT]).unwrap();
    assert_eq!((found.kind(), found.len()), (case.kind, case.headers.len()));

    let head = ethernet(&here, there.device.mac(), 0x0800);
    let (source, destination, ports, value, _) = EXAMPLES[0];
    let frame = in_vxlan(&around, &ipv4(&head[..ETHERNET], TCP, source, destination, ports));
    let inside = RssHash { value, ip: RssIp::Ipv4, l4: RssL4::Tcp };
    let mut looks_inside = || {
        here.send(&frame);
        let done = there.queue.wait(SOON).unwrap();
        there.queue.receive(done.buffer.unwrap()).unwrap();
        let told = done.result.unwrap();
        assert_eq!(told.is_tunneled(), told.rss_hash() == Some(inside), "{:?}", told.rss_hash());
        told.is_tunneled()
    };
    assert!(!looks_inside());
    let port = VxlanPort::add(&there.device, PORT).unwrap();
    assert_eq!(port.port(), PORT);
    assert!(looks_inside());
    drop(port);
    assert!(!looks_inside());
    let port = VxlanPort::add(&there.device, PORT).unwrap();
    assert!(looks_inside());
    VxlanPort::destroy(port).unwrap();
    assert!(!looks_inside());
    drop(rule);
    end(sim, [here, there], &[]);
}

#[test]
fn a_rule_matches_what_is_in_vxlan_at_another_port() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let (mut here, mut there) = (EthernetEnd::new(&sim, 0, options()), EthernetEnd::new(&sim, 1, options()));
    let port = VxlanPort::add(&there.device, 5000).unwrap();
    let rules = FlowRules::create(&there.device, FlowRulesOptions::default()).unwrap();
    let inside = FlowMatch::new().vxlan_at(port.port(), 77).inner(FlowMatch::new().tcp_destination_port(80));
    let actions = FlowActions::forward(there.queue.tir()).tag(5);
    let rule = rules.add(0, &inside, actions).unwrap();
    rules.start().unwrap();
    there.post(3);
    let head = ethernet(&here, there.device.mac(), 0x0800);
    let inner = |port| ipv4(&head[..ETHERNET], TCP, [192, 0, 2, 1], [192, 0, 2, 2], (9, port));
    let case = &cases(&here, &there)[0];
    let mut around = case.headers[..case.inner.0 - ETHERNET].to_vec();
    let mut send = |outer: u16, port| {
        around[ETHERNET + IPV4 + 2..][..2].copy_from_slice(&outer.to_be_bytes());
        let frame = in_vxlan(&around, &inner(port));
        here.send(&frame);
        frame
    };
    // The rule's frames alone arrive: others of another port inside, or around.
    let first = send(5000, 80);
    send(5000, 81);
    send(4789, 80);
    let last = send(5000, 80);
    for frame in [first, last] {
        let done = there.queue.wait(SOON).unwrap();
        assert_eq!(done.result.as_ref().unwrap().work.qpn, 5, "its tag");
        assert_eq!(content(done), frame);
    }
    drop((rule, rules, port));
    end(sim, [here, there], &[]);
}

#[test]
fn vxlan_ports_beyond_the_cards_are_refused_by_name_and_number() {
    let (sim, here, there) = two_of(Sim::builder(), options());
    let add = |port| VxlanPort::add(&here.device, port);
    let ports: Vec<_> = (5000..5003).map(|port| add(port).unwrap()).collect();
    let text = refusal(add(5003));
    assert!(
        text.contains("VXLAN ports beside 4789 is 4") && text.contains("at most 3 (max_vxlan_udp_ports)"),
        "{text}"
    );
    // The other function has a list of its own.
    drop(VxlanPort::add(&there.device, 5003).unwrap());
    assert!(refusal(add(5001)).contains("UDP port 5001 is taken by another VxlanPort"));
    assert!(refusal(add(4789)).contains("UDP port 4789 is taken by the standard"));
    drop(ports);
    drop(add(5003).unwrap());
    end(sim, [here, there], &[]);

    let mut none = Profile::connectx5();
    none.ethernet.w().max_vxlan_udp_ports(0);
    let mut blind = Profile::connectx5();
    blind.ethernet.w().tunnel_stateless_vxlan(false);
    for (profile, capability) in [(none, "max_vxlan_udp_ports"), (blind, "tunnel_stateless_vxlan")] {
        let (sim, here, there) = two_of(Sim::builder().profile(profile), options());
        let text = refusal(VxlanPort::add(&here.device, 5000));
        assert!(text.contains(capability), "{text}");
        end(sim, [here, there], &[]);
    }
}

/// Makes random bytes a frame in a tunnel of a kind: IP around, the tunnel's header, and what is inside begins.
fn dress(frame: &mut [u8], kind: u8, is_v4: bool) -> Option<()> {
    let (protocol, port) = [(17, 4789_u16), (17, 6081), (47, 0), (4, 0)][usize::from(kind % 4)];
    frame.get_mut(12..14)?.copy_from_slice(if is_v4 { &[0x08, 0x00] } else { &[0x86, 0xdd] });
    let ip = frame.get_mut(ETHERNET..)?;
    let (len, next) = (ip.len() as u16, if is_v4 { IPV4 } else { IPV6 });
    *ip.first_mut()? = if is_v4 { 0x45 } else { 0x60 };
    if is_v4 {
        ip.get_mut(2..4)?.copy_from_slice(&len.to_be_bytes());
        ip.get_mut(6..8)?.fill(0);
        *ip.get_mut(9)? = protocol;
    } else {
        ip.get_mut(4..6)?.copy_from_slice(&len.saturating_sub(IPV6 as u16).to_be_bytes());
        *ip.get_mut(6)? = protocol;
    }
    let rest = ip.get_mut(next..)?;
    let len = rest.len() as u16;
    match protocol {
        47 => rest.get_mut(..4)?.copy_from_slice(&[0, 0, 8, 0]),
        17 => {
            rest.get_mut(2..4)?.copy_from_slice(&port.to_be_bytes());
            rest.get_mut(4..6)?.copy_from_slice(&len.to_be_bytes());
            rest.get_mut(8..12)?.copy_from_slice(if port == 4789 { &[8, 0, 0, 0] } else { &[1, 0, 8, 0] });
        }
        _ => {}
    }
    let inner = rest.get_mut(
        match (protocol, port) {
            (47, _) => 4,
            (_, 4789) => 30,
            (_, 6081) => 20,
            _ => 0,
        }..,
    )?;
    let len = inner.len() as u16;
    inner.get_mut(..4)?.copy_from_slice(&[0x45, 0, (len >> 8) as u8, len as u8]);
    inner.get_mut(6..8)?.fill(0);
    if port == 4789 {
        rest.get_mut(28..30)?.copy_from_slice(&[8, 0]);
    }
    Some(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    /// Driver and card look for the headers in different ways, and find the same; bytes that lie make neither panic.
    #[test]
    fn headers_of_any_frame_are_where_the_card_finds_them(
        mut frame in prop::collection::vec(any::<u8>(), 0..240),
        is_dressed in any::<bool>(),
        kind in any::<u8>(),
        is_v4 in any::<bool>(),
        protocol in prop::option::of(prop::sample::select(vec![6u8, 17])),
    ) {
        if is_dressed {
            let _ = dress(&mut frame, kind, is_v4);
        }
        if let (Some([_, _, at, _]), Some(protocol)) = (tunnel_offsets(&frame), protocol) {
            let place = at + if frame[at] >> 4 == 4 { 9 } else { 6 };
            frame[place] = protocol;
        }
        let card = tunnel_offsets(&frame);
        if let Some(found) = TunnelHeaders::of(&frame) {
            prop_assert!(found.len() <= frame.len());
            prop_assert_eq!(TunnelHeaders::of(&frame[..found.len()]), Some(found));
            // The card leaves out what the packet's length leaves no room for.
            for (at, card) in found.offsets().into_iter().zip(card.unwrap_or_default()) {
                prop_assert!(card == 0 || at == card, "{:?} {:?}", found, frame);
            }
        }
    }
}
