//! Header fields that flow rules match in part: frames that differ in a bit of the mask, and in all others.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::{IpNumber, Ipv6Header, PacketBuilder, ip_number};
use mlx5_dv::objects::{FlowActions, FlowCounter, FlowMatch, FlowRules, FlowRulesOptions};
use mlx5_dv::queue::ethernet::EthernetOptions;
use mlx5_open::Sim;

use crate::ends::{EthernetEnd, end, refusal};
use crate::fields::*;

/// A field in part: what is matched for a value and a mask, and a frame for a value.
struct Masked {
    name: &'static str,
    /// Bits of the field.
    width: u32,
    value: u32,
    matched: fn(u32, u32) -> FlowMatch,
    frame: fn(u32) -> Vec<u8>,
}

fn service_tagged(vlan: u16) -> Vec<u8> {
    let mut frame = tagged(&[(0, 0, vlan)]);
    frame[12..14].copy_from_slice(&[0x88, 0xa8]);
    frame
}

/// An IPv6 packet of this traffic class.
fn with_class(class: u32) -> Vec<u8> {
    let mut frame = ipv6(0, ip_number::UDP, &[0, 1, 0, 2, 0, 8, 0, 0]);
    let mut header = Ipv6Header::from_slice(&frame[14..]).unwrap().0;
    header.traffic_class = class as u8;
    frame[14..54].copy_from_slice(&header.to_bytes());
    frame
}

fn tcp_ports(source: u16, destination: u16) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2(MAC, MAC).ipv4(HERE, THERE, 64).tcp(source, destination, 3, 4);
    builder.write(&mut frame, b"").unwrap();
    frame
}

fn udp_ports(source: u16, destination: u16) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2(MAC, MAC).ipv4(HERE, THERE, 64).udp(source, destination);
    builder.write(&mut frame, b"ports").unwrap();
    frame
}

#[rustfmt::skip]
const CASES: &[Masked] = &[
    Masked { name: "EtherType", width: 16, value: 0x88b5,
             matched: |n, m| all().ethertype_masked(n as u16, m as u16),
             frame: |n| [&MAC[..], &MAC, &(n as u16).to_be_bytes(), &[0; 46]].concat() },
    Masked { name: "VLAN", width: 12, value: 0x123,
             matched: |n, m| all().vlan_masked(n as u16, m as u16), frame: |n| tagged(&[(0, 0, n as u16)]) },
    Masked { name: "service VLAN", width: 12, value: 0x123,
             matched: |n, m| all().service_vlan_masked(n as u16, m as u16), frame: |n| service_tagged(n as u16) },
    Masked { name: "inner VLAN", width: 12, value: 0x123,
             matched: |n, m| all().inner_vlan_masked(n as u16, m as u16),
             frame: |n| tagged(&[(2, 0, 5), (3, 0, n as u16)]) },
    Masked { name: "inner service VLAN", width: 12, value: 0x123,
             matched: |n, m| all().inner_service_vlan_masked(n as u16, m as u16),
             frame: |n| service_tag_inside(n as u16) },
    Masked { name: "VLAN priority", width: 3, value: 5,
             matched: |n, m| all().vlan_priority_masked(n as u8, m as u8), frame: |n| tagged(&[(n, 0, 5)]) },
    Masked { name: "inner priority", width: 3, value: 5,
             matched: |n, m| all().inner_vlan_priority_masked(n as u8, m as u8),
             frame: |n| tagged(&[(7, 0, 5), (n, 0, 6)]) },
    Masked { name: "protocol", width: 8, value: 0xfd,
             matched: |n, m| all().protocol_masked(n as u8, m as u8),
             frame: |n| ipv4(IpNumber(n as u8), b"of this protocol") },
    Masked { name: "DSCP", width: 6, value: 0x2a,
             matched: |n, m| all().dscp_masked(n as u8, m as u8), frame: |n| with_class(n << 2) },
    Masked { name: "ECN", width: 2, value: 2,
             matched: |n, m| all().ecn_masked(n as u8, m as u8), frame: |n| with_class(n) },
    Masked { name: "hop limit", width: 8, value: 0xa5,
             matched: |n, m| all().hop_limit_masked(n as u8, m as u8), frame: |n| with_ttl(n as u8) },
    Masked { name: "IPv4 header words", width: 4, value: 10,
             matched: |n, m| all().ipv4_header_words_masked(n as u8, m as u8), frame: with_options },
    Masked { name: "flow label", width: 20, value: 0x12345,
             matched: |n, m| all().flow_label_masked(n, m),
             frame: |n| ipv6(n, ip_number::UDP, &[0, 1, 0, 2, 0, 8, 0, 0]) },
    Masked { name: "TCP source port", width: 16, value: 0x1234,
             matched: |n, m| all().tcp_source_port_masked(n as u16, m as u16), frame: |n| tcp_ports(n as u16, 2) },
    Masked { name: "TCP destination port", width: 16, value: 0x1234,
             matched: |n, m| all().tcp_destination_port_masked(n as u16, m as u16), frame: |n| tcp_ports(1, n as u16) },
    Masked { name: "UDP source port", width: 16, value: 0x1234,
             matched: |n, m| all().udp_source_port_masked(n as u16, m as u16), frame: |n| udp_ports(n as u16, 2) },
    Masked { name: "UDP destination port", width: 16, value: 0x1234,
             matched: |n, m| all().udp_destination_port_masked(n as u16, m as u16), frame: |n| udp_ports(1, n as u16) },
    Masked { name: "inner UDP source port", width: 16, value: 0x1234,
             matched: |n, m| all().vxlan(77).inner(all().udp_source_port_masked(n as u16, m as u16)),
             frame: |n| vxlan(&udp_ports(n as u16, 2)) },
    Masked { name: "sequence number", width: 32, value: 0x12345678,
             matched: |n, m| all().tcp_sequence_masked(n, m), frame: |n| tcp(n, 5) },
    Masked { name: "acknowledgement", width: 32, value: 0x12345678,
             matched: |n, m| all().tcp_acknowledgement_masked(n, m), frame: |n| tcp(5, n) },
    Masked { name: "ICMP type", width: 8, value: 0xa5,
             matched: |n, m| all().icmp_type_masked(n as u8, m as u8),
             frame: |n| ipv4(ip_number::ICMP, &[n as u8, 3, 0, 0, 0, 1, 0, 2]) },
    Masked { name: "ICMP code", width: 8, value: 0xa5,
             matched: |n, m| all().icmp_code_masked(n as u8, m as u8),
             frame: |n| ipv4(ip_number::ICMP, &[3, n as u8, 0, 0, 0, 0, 0, 0]) },
    Masked { name: "ICMPv6 type", width: 8, value: 0xa5,
             matched: |n, m| all().icmpv6_type_masked(n as u8, m as u8),
             frame: |n| ipv6(0, ip_number::IPV6_ICMP, &[n as u8, 3, 0, 0, 0, 1, 0, 2]) },
    Masked { name: "ICMPv6 code", width: 8, value: 0xa5,
             matched: |n, m| all().icmpv6_code_masked(n as u8, m as u8),
             frame: |n| ipv6(0, ip_number::IPV6_ICMP, &[1, n as u8, 0, 0, 0, 0, 0, 0]) },
    Masked { name: "ESP SPI", width: 32, value: 0x12345678,
             matched: |n, m| all().esp_spi_masked(n, m), frame: esp },
    Masked { name: "GRE protocol", width: 16, value: 0x6558,
             matched: |n, m| all().gre_masked(n as u16, m as u16), frame: |n| gre(false, None, false, n as u16) },
    Masked { name: "GRE key", width: 32, value: 0x12345678,
             matched: |n, m| all().gre_key_masked(n, m), frame: |n| gre(true, Some(n), true, 0x6558) },
    Masked { name: "VXLAN network", width: 24, value: 0x123456,
             matched: |n, m| all().vxlan_masked(n, m), frame: |n| vxlan_of([0x0800_0000, n << 8]) },
    Masked { name: "VXLAN network at a port", width: 24, value: 0x123456,
             matched: |n, m| all().vxlan_at_masked(VXLAN, n, m), frame: |n| vxlan_of([0x0800_0000, n << 8]) },
    Masked { name: "GENEVE network", width: 24, value: 0x123456,
             matched: |n, m| all().geneve_masked(n, m), frame: |n| geneve(n, 1, false, 0x6558) },
    Masked { name: "GENEVE protocol", width: 16, value: 0x6558,
             matched: |n, m| all().geneve_protocol_masked(n as u16, m as u16),
             frame: |n| geneve(5, 0, false, n as u16) },
    Masked { name: "GENEVE options", width: 6, value: 0x15,
             matched: |n, m| all().geneve_option_words_masked(n as u8, m as u8),
             frame: |n| geneve(5, n, false, 0x6558) },
    Masked { name: "VXLAN-GPE network", width: 24, value: 0x123456,
             matched: |n, m| all().vxlan_gpe_masked(n, m), frame: |n| vxlan_gpe(3, n) },
    Masked { name: "VXLAN-GPE protocol", width: 8, value: 0xa5,
             matched: |n, m| all().vxlan_gpe_next_protocol_masked(n as u8, m as u8), frame: |n| vxlan_gpe(n as u8, 7) },
    Masked { name: "GTP-U TEID", width: 32, value: 0x12345678,
             matched: |n, m| all().gtpu_teid_masked(n, m), frame: |n| gtpu(255, n) },
    Masked { name: "GTP-U type", width: 8, value: 0xa5,
             matched: |n, m| all().gtpu_message_type_masked(n as u8, m as u8), frame: |n| gtpu(n as u8, 5) },
    Masked { name: "GTP-U length", width: 16, value: 0x1234,
             matched: |n, m| all().gtpu_length_masked(n as u16, m as u16),
             frame: |n| udp(GTPU, &[&[0x30, 255], &(n as u16).to_be_bytes(), &[0, 0, 0, 7], &[0; 40]]) },
    Masked { name: "GTP-U sequence", width: 16, value: 0x1234,
             matched: |n, m| all().gtpu_sequence_masked(n as u16, m as u16),
             frame: |n| gtpu_of(2, n as u16, 0, (0, 5)) },
    Masked { name: "GTP-U N-PDU", width: 8, value: 0xa5,
             matched: |n, m| all().gtpu_n_pdu_masked(n as u8, m as u8), frame: |n| gtpu_of(1, 0, n as u8, (0, 5)) },
    Masked { name: "GTP-U extension type", width: 8, value: 0xa5,
             matched: |n, m| all().gtpu_extension_type_masked(n as u8, m as u8),
             frame: |n| gtpu_of(4, 0, 0, (n as u8, 5)) },
    Masked { name: "PDU type", width: 4, value: 10,
             matched: |n, m| all().gtpu_pdu_type_masked(n as u8, m as u8),
             frame: |n| gtpu_of(4, 0, 0, (0x85, 0x0100_0900 | n << 20)) },
    Masked { name: "QFI", width: 6, value: 0x2a,
             matched: |n, m| all().gtpu_qfi_masked(n as u8, m as u8),
             frame: |n| gtpu_of(4, 0, 0, (0x85, 0x0110_c000 | n << 8)) },
    Masked { name: "label", width: 20, value: 0x12345,
             matched: |n, m| all().mpls_label_masked(n, m), frame: |n| mpls(n << 12 | 0x140) },
    Masked { name: "traffic class, label", width: 3, value: 5,
             matched: |n, m| all().mpls_traffic_class_masked(n as u8, m as u8),
             frame: |n| mpls(7 << 12 | n << 9 | 0x140) },
    Masked { name: "time to live, label", width: 8, value: 0xa5,
             matched: |n, m| all().mpls_ttl_masked(n as u8, m as u8), frame: |n| mpls(7 << 12 | n) },
    Masked { name: "label over UDP", width: 20, value: 0x12345,
             matched: |n, m| all().mpls_over_udp_label_masked(n, m), frame: |n| mpls_over_udp(n << 12 | 0x140) },
    Masked { name: "traffic class, label over UDP", width: 3, value: 5,
             matched: |n, m| all().mpls_over_udp_traffic_class_masked(n as u8, m as u8),
             frame: |n| mpls_over_udp(7 << 12 | n << 9 | 0x140) },
    Masked { name: "time to live, label over UDP", width: 8, value: 0xa5,
             matched: |n, m| all().mpls_over_udp_ttl_masked(n as u8, m as u8), frame: |n| mpls_over_udp(7 << 12 | n) },
    Masked { name: "label over GRE", width: 20, value: 0x12345,
             matched: |n, m| all().mpls_over_gre_label_masked(n, m), frame: |n| mpls_over_gre(n << 12 | 0x140) },
    Masked { name: "traffic class, label over GRE", width: 3, value: 5,
             matched: |n, m| all().mpls_over_gre_traffic_class_masked(n as u8, m as u8),
             frame: |n| mpls_over_gre(7 << 12 | n << 9 | 0x140) },
    Masked { name: "time to live, label over GRE", width: 8, value: 0xa5,
             matched: |n, m| all().mpls_over_gre_ttl_masked(n as u8, m as u8), frame: |n| mpls_over_gre(7 << 12 | n) },
];

/// The bits of a field, and those of its upper half.
fn masks(width: u32) -> (u32, u32) {
    let full = u32::MAX >> (32 - width);
    (full, full >> (width / 2) << (width / 2))
}

#[test]
fn bits_outside_the_mask_are_not_looked_at_and_those_in_it_are() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let [mut here, mut there] = [0, 1].map(|function| EthernetEnd::new(&sim, function, EthernetOptions::default()));
    let rules = FlowRules::create(&there.device, for_many_fields()).unwrap();
    rules.start().unwrap();
    let tir = there.queue.tir().clone();
    for Masked { name, width, value, matched, frame } in CASES {
        let (full, mask) = masks(*width);
        let rule = rules.add(0, &matched(*value, mask), &tir).unwrap_or_else(|error| panic!("{name}: {error}"));
        there.post(1);
        // The lowest bit of the mask differs in one, and all outside of it in the other.
        let (wrong, right) = (value ^ mask & mask.wrapping_neg(), value ^ full & !mask);
        let [wanted, unwanted] = [right, wrong].map(|value| between(&here, &there, frame(value)));
        here.send(&unwanted);
        here.send(&wanted);
        assert_eq!(there.heard(), wanted, "{name}");
        rule.delete().unwrap();
    }
    drop((rules, tir));
    end(sim, [here, there], &[]);
}

#[test]
fn bits_of_roce_are_matched_where_it_is_sent() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let [mut here, there] = [0, 1].map(|function| EthernetEnd::new(&sim, function, EthernetOptions::default()));
    let rules = FlowRules::create(&here.device, of_sent_frames()).unwrap();
    rules.start().unwrap();
    for (matched, wrong, right) in [
        (all().bth_destination_qp_masked(0x12_3456, 0xff_f000), roce(4, 0x12_2456), roce(4, 0x12_3fff)),
        (all().bth_opcode_masked(0x81, 0xe0), roce(0xa1, 5), roce(0x9f, 5)),
    ] {
        let counter = FlowCounter::create(&here.device).unwrap();
        let rule = rules.add(0, &matched, FlowActions::drop().count(&counter)).unwrap();
        let [wrong, right] = [wrong, right].map(|frame| between(&here, &there, frame));
        here.send(&wrong);
        assert_eq!(counter.read().unwrap().packets, 0);
        here.send(&right);
        assert_eq!(counter.read().unwrap().packets, 1);
        drop(rule);
    }
    drop(rules);
    end(sim, [here, there], &[]);
}

#[test]
fn addresses_are_matched_by_any_of_their_bits() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let [mut here, mut there] = [0, 1].map(|function| EthernetEnd::new(&sim, function, EthernetOptions::default()));
    let rules = FlowRules::create(&there.device, FlowRulesOptions::default()).unwrap();
    rules.start().unwrap();
    let tir = there.queue.tir().clone();
    let four = |source: [u8; 4], destination: [u8; 4]| {
        let mut frame = Vec::new();
        PacketBuilder::ethernet2(MAC, MAC).ipv4(source, destination, 9).udp(1, 2).write(&mut frame, b"four").unwrap();
        frame
    };
    let six = |source: [u8; 16], destination: [u8; 16]| {
        let mut frame = Vec::new();
        PacketBuilder::ethernet2(MAC, MAC).ipv6(source, destination, 9).udp(1, 2).write(&mut frame, b"six").unwrap();
        frame
    };
    let of_four = |a, b, c, d| IpAddr::from(Ipv4Addr::new(a, b, c, d));
    let (mut near, mut far) = ([0xfd; 16], [0xfd; 16]);
    (near[3], far[15]) = (1, 1);
    let last: IpAddr = Ipv6Addr::from(1).into();
    let of_six = IpAddr::from([0xfd; 16]);
    for (matched, wrong, right) in [
        (
            all().source_ip_masked(of_four(10, 9, 0, 1), of_four(255, 0, 0, 1)),
            four([10, 9, 0, 2], THERE),
            four([10, 7, 7, 7], THERE),
        ),
        (
            all().destination_ip_masked(of_four(10, 9, 0, 1), of_four(0, 0, 0, 3)),
            four(HERE, [10, 9, 0, 2]),
            four(HERE, [8, 8, 8, 5]),
        ),
        (all().source_ip_masked(of_six, last), six([0xfc; 16], near), six(near, far)),
        (all().destination_ip_masked(of_six, last), six(near, [0xfc; 16]), six([0xfc; 16], near)),
    ] {
        let rule = rules.add(0, &matched, &tir).unwrap();
        there.post(1);
        let [wrong, right] = [wrong, right].map(|frame| between(&here, &there, frame));
        here.send(&wrong);
        here.send(&right);
        assert_eq!(there.heard(), right);
        rule.delete().unwrap();
    }
    drop((rules, tir));
    end(sim, [here, there], &[]);
    let mixed = all().source_ip_masked(of_four(1, 2, 3, 4), last);
    assert_eq!(refusal(mixed.check()), "::1 is no mask of an address of this version of IP");
}

#[test]
fn values_and_masks_that_are_too_wide_are_refused() {
    for (matched, bits) in [
        (all().vlan_masked(4096, 0xf), 12),
        (all().vlan_masked(5, 0x1fff), 12),
        (all().dscp_masked(5, 0xff), 6),
        (all().vxlan_masked(1 << 24, 0xff), 24),
        (all().mpls_label_masked(5, u32::MAX), 20),
    ] {
        let text = refusal(matched.check());
        assert!(text.contains(&format!("{bits} bits")), "{text}");
    }
    let (web, part) = (all().tcp_destination_port(80), all().tcp_destination_port_masked(0x100, 0xff00));
    assert_eq!(
        refusal(web.clone().inner(part.clone()).tcp_destination_port_masked(0x100, 0xff00).check()),
        "no frame has both TCP destination port 80 and TCP destination port 0x100 of 0xff00"
    );
    web.tcp_destination_port_masked(0x50, 0xf0).check().unwrap();
    assert!(refusal(all().vlan_priority_masked(1, 6).check()).contains("needs vlan()"));
    assert!(refusal(all().untagged().vlan_masked(5, 7).check()).contains("no VLAN tag"));
    assert!(refusal(all().inner(all().gre_key_masked(8, 8)).check()).contains("GRE key 0x8 of 0x8"));
    part.check().unwrap();
}
