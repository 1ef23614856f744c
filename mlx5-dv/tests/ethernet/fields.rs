//! Each header field that flow rules match, by itself: frames that differ in nothing else, and cards that lack it.

use etherparse::{
    IpHeaders, IpNumber, Ipv4Header, Ipv6FlowLabel, Ipv6Header, PacketBuilder, SingleVlanHeader, VlanHeader, VlanId,
    VlanPcp, ip_number,
};
use mlx5_dv::objects::{
    Direction, FlowActions, FlowCounter, FlowGroup, FlowMatch, FlowRules, FlowRulesOptions, FlowTable, L4Type,
    L4TypeExt,
};
use mlx5_dv::queue::ethernet::{EthernetOptions, EthernetQueue, FrameFlags};
use mlx5_open::Sim;
use mlx5_prm::caps::{CmdHcaCap, FlowTableFieldsSupported, FlowTableFieldsSupported2};
use mlx5_sim::profile::Profile;

use crate::ends::{EthernetEnd, ROCE, SOON, end, refusal, two_of};

/// Addresses; those of Ethernet become the functions'.
pub(crate) const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
pub(crate) const HERE: [u8; 4] = [10, 0, 0, 1];
pub(crate) const THERE: [u8; 4] = [10, 0, 0, 2];
/// UDP's destination ports.
pub(crate) const VXLAN: u16 = 4789;
const VXLAN_GPE: u16 = 4790;
const GENEVE: u16 = 6081;
pub(crate) const GTPU: u16 = 2152;
const MPLS: u16 = 6635;

/// A field: what is matched, and a frame, for a value of it.
struct Case {
    name: &'static str,
    /// Two values, each with every bit that the other has not, where the field has room.
    values: [u32; 2],
    matched: fn(u32) -> FlowMatch,
    frame: fn(u32) -> Vec<u8>,
}

pub(crate) fn all() -> FlowMatch {
    FlowMatch::new()
}

pub(crate) fn ipv4(protocol: IpNumber, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2(MAC, MAC).ipv4(HERE, THERE, 64).write(&mut frame, protocol, payload).unwrap();
    frame
}

pub(crate) fn ipv6(flow_label: u32, protocol: IpNumber, payload: &[u8]) -> Vec<u8> {
    let flow_label = Ipv6FlowLabel::try_new(flow_label).unwrap();
    let header =
        Ipv6Header { flow_label, hop_limit: 9, source: [0xfd; 16], destination: [0xfe; 16], ..Default::default() };
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2(MAC, MAC).ip(IpHeaders::Ipv6(header, Default::default()));
    builder.write(&mut frame, protocol, payload).unwrap();
    frame
}

pub(crate) fn udp(port: u16, payload: &[&[u8]]) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2(MAC, MAC).ipv4(HERE, THERE, 64).udp(7, port);
    builder.write(&mut frame, &payload.concat()).unwrap();
    frame
}

pub(crate) fn tcp(sequence: u32, acknowledgement: u32) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2(MAC, MAC).ipv4(HERE, THERE, 64).tcp(1, 2, sequence, 4);
    builder.ack(acknowledgement).write(&mut frame, b"").unwrap();
    frame
}

/// An IPv4 packet with this many words of header.
pub(crate) fn with_options(words: u32) -> Vec<u8> {
    let options = vec![1; 4 * (words as usize - 5)];
    let options = options.as_slice().try_into().unwrap();
    let header = Ipv4Header { time_to_live: 9, source: HERE, destination: THERE, options, ..Default::default() };
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2(MAC, MAC).ip(IpHeaders::Ipv4(header, Default::default()));
    builder.udp(1, 2).write(&mut frame, b"options").unwrap();
    frame
}

/// A frame with tags, of priority, drop eligibility and VLAN.
pub(crate) fn tagged(tags: &[(u32, u32, u16)]) -> Vec<u8> {
    let header = |(priority, dei, vlan): (u32, u32, u16)| SingleVlanHeader {
        pcp: VlanPcp::try_new(priority as u8).unwrap(),
        drop_eligible_indicator: dei != 0,
        vlan_id: VlanId::try_new(vlan).unwrap(),
        ..Default::default()
    };
    let (mut frame, builder) = (Vec::new(), PacketBuilder::ethernet2(MAC, MAC));
    let tags = match *tags {
        [one] => VlanHeader::Single(header(one)),
        [outer, inner] => {
            VlanHeader::Double(etherparse::DoubleVlanHeader { outer: header(outer), inner: header(inner) })
        }
        _ => panic!("{tags:?}"),
    };
    builder.vlan(tags).ipv4(HERE, THERE, 64).udp(1, 2).write(&mut frame, b"tags").unwrap();
    // etherparse gives the outer tag of two the type of a service tag.
    frame[12..14].copy_from_slice(&[0x81, 0]);
    frame
}

pub(crate) fn vxlan(frame: &[u8]) -> Vec<u8> {
    udp(VXLAN, &[&[8, 0, 0, 0, 0, 0, 77, 0], frame])
}

/// GRE of a frame: with a checksum and sequence number where told, and a key if there is one.
pub(crate) fn gre(has_checksum: bool, key: Option<u32>, has_sequence: bool, protocol: u16) -> Vec<u8> {
    let flags = u8::from(has_checksum) << 7 | u8::from(key.is_some()) << 5 | u8::from(has_sequence) << 4;
    let mut bytes = vec![flags, 0];
    bytes.extend(protocol.to_be_bytes());
    bytes.extend(has_checksum.then_some([0; 4]).iter().flatten());
    bytes.extend(key.map(u32::to_be_bytes).iter().flatten());
    bytes.extend(has_sequence.then_some([0, 0, 0, 1]).iter().flatten());
    bytes.extend(udp(9, &[b"inside"]));
    ipv4(ip_number::GRE, &bytes)
}

/// GENEVE with options of this many words.
pub(crate) fn geneve(vni: u32, words: u32, is_oam: bool, protocol: u16) -> Vec<u8> {
    let head = [words as u8, u8::from(is_oam) << 7];
    let options: Vec<u8> = (0..words).flat_map(|_| [1, 2, 3, 0]).collect();
    let inside = udp(9, &[b"inside"]);
    udp(GENEVE, &[&head, &protocol.to_be_bytes(), &(vni << 8).to_be_bytes(), &options, &inside])
}

pub(crate) fn mpls(entry: u32) -> Vec<u8> {
    let packet = &udp(9, &[b"behind a label"])[14..];
    [&MAC[..], &MAC, &[0x88, 0x47], &entry.to_be_bytes(), packet].concat()
}

pub(crate) fn mpls_over_udp(entry: u32) -> Vec<u8> {
    udp(MPLS, &[&entry.to_be_bytes(), &udp(9, &[b"behind a label"])[14..]])
}

/// MPLS over GRE with a key.
pub(crate) fn mpls_over_gre(entry: u32) -> Vec<u8> {
    let packet = &udp(9, &[b"behind a label"])[14..];
    ipv4(ip_number::GRE, &[&[0x20, 0, 0x88, 0x47, 0, 0, 0, 5][..], &entry.to_be_bytes(), packet].concat())
}

pub(crate) fn gtpu(kind: u8, teid: u32) -> Vec<u8> {
    let packet = &udp(9, &[b"of a user"])[14..];
    udp(GTPU, &[&[0x30, kind], &(packet.len() as u16).to_be_bytes(), &teid.to_be_bytes(), packet])
}

/// GTP-U with these flags, sequence number, N-PDU number and extension header: its type, and a word.
pub(crate) fn gtpu_of(flags: u8, sequence: u16, n_pdu: u8, extension: (u8, u32)) -> Vec<u8> {
    let packet = &udp(9, &[b"of a user"])[14..];
    let options = [&sequence.to_be_bytes()[..], &[n_pdu, extension.0], &extension.1.to_be_bytes()].concat();
    let options = if flags & 4 != 0 { &options[..] } else { &options[..4] };
    let length = (options.len() + packet.len()) as u16;
    udp(GTPU, &[&[0x30 | flags, 255], &length.to_be_bytes(), &[0, 0, 0, 7], options, packet])
}

pub(crate) fn vxlan_gpe(next: u8, vni: u32) -> Vec<u8> {
    vxlan_gpe_of(0x0c, next, vni)
}

fn vxlan_gpe_of(flags: u8, next: u8, vni: u32) -> Vec<u8> {
    udp(VXLAN_GPE, &[&[flags, 0, 0, next], &(vni << 8).to_be_bytes(), &udp(9, &[b"inside"])])
}

/// A frame in VXLAN whose header is these two words.
pub(crate) fn vxlan_of(words: [u32; 2]) -> Vec<u8> {
    udp(VXLAN, &[&words[0].to_be_bytes(), &words[1].to_be_bytes(), &udp(9, &[b"inside"])])
}

/// GENEVE with these words of options.
fn geneve_with(options: &[u32]) -> Vec<u8> {
    let options: Vec<u8> = options.iter().copied().flat_map(u32::to_be_bytes).collect();
    udp(GENEVE, &[&[(options.len() / 4) as u8, 0, 0x65, 0x58, 0, 0, 7, 0], &options, &udp(9, &[b"inside"])])
}

pub(crate) fn esp(spi: u32) -> Vec<u8> {
    ipv4(ip_number::ENCAPSULATING_SECURITY_PAYLOAD, &[&spi.to_be_bytes()[..], &[0; 20]].concat())
}

/// A packet whose transport header is of this type.
fn of_l4_type(kind: u32) -> Vec<u8> {
    match kind {
        0 => ipv4(IpNumber(250), b"none of them"),
        1 => tcp(7, 8),
        2 => udp(9, &[b"datagram"]),
        _ => ipv4(ip_number::ICMP, &[8, 0, 0, 0, 0, 1, 0, 2]),
    }
}

fn of_version(version: u32) -> Vec<u8> {
    if version == 4 { udp(9, &[b"four"]) } else { ipv6(5, ip_number::UDP, &[0, 1, 0, 2, 0, 8, 0, 0]) }
}

pub(crate) fn with_ttl(ttl: u8) -> Vec<u8> {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2(MAC, MAC).ipv4(HERE, THERE, ttl).udp(1, 2).write(&mut frame, b"hops").unwrap();
    frame
}

/// A service tag inside another tag.
pub(crate) fn service_tag_inside(vlan: u16) -> Vec<u8> {
    let mut frame = tagged(&[(2, 0, 5), (3, 0, vlan)]);
    frame[16..18].copy_from_slice(&[0x88, 0xa8]);
    frame
}

/// A RoCE packet of this opcode to this queue pair, with room for its ICRC.
pub(crate) fn roce(opcode: u8, qpn: u32) -> Vec<u8> {
    udp(ROCE, &[&[opcode, 0, 0xff, 0xff], &qpn.to_be_bytes(), &[0; 4], b"data", &[0; 4]])
}

#[rustfmt::skip]
const CASES: &[Case] = &[
    Case { name: "GRE protocol", values: [0x6558, 0x9aa7], matched: |n| all().gre(n as u16),
           frame: |n| gre(false, None, false, n as u16) },
    Case { name: "GRE key", values: [0x1234_5678, 0xedcb_a987], matched: |n| all().gre_key(n),
           frame: |n| gre(false, Some(n), false, 0x6558) },
    Case { name: "GRE key behind a checksum", values: [0x1234_5678, 0xedcb_a987], matched: |n| all().gre_key(n),
           frame: |n| gre(true, Some(n), true, 0x6558) },
    Case { name: "GRE's key is there", values: [0, 1], matched: |n| all().gre_has_key(n != 0),
           frame: |n| gre(false, (n != 0).then_some(0), false, 0x6558) },
    Case { name: "GRE's checksum is there", values: [0, 1], matched: |n| all().gre_has_checksum(n != 0),
           frame: |n| gre(n != 0, None, false, 0x6558) },
    Case { name: "GRE's sequence is there", values: [0, 1], matched: |n| all().gre_has_sequence(n != 0),
           frame: |n| gre(false, None, n != 0, 0x6558) },
    Case { name: "GENEVE network", values: [0x12_3456, 0xed_cba9], matched: |n| all().geneve(n),
           frame: |n| geneve(n, 1, false, 0x6558) },
    Case { name: "GENEVE protocol", values: [0x6558, 0x9aa7], matched: |n| all().geneve_protocol(n as u16),
           frame: |n| geneve(5, 0, false, n as u16) },
    Case { name: "GENEVE options", values: [0x15, 0x2a], matched: |n| all().geneve_option_words(n as u8),
           frame: |n| geneve(5, n, false, 0x6558) },
    Case { name: "GENEVE OAM", values: [0, 1], matched: |n| all().geneve_oam(n != 0),
           frame: |n| geneve(5, 0, n != 0, 0x6558) },
    Case { name: "flow label", values: [0x1_2345, 0xe_dcba], matched: |n| all().flow_label(n),
           frame: |n| ipv6(n, ip_number::UDP, &[0, 1, 0, 2, 0, 8, 0, 0]) },
    Case { name: "inner flow label", values: [0x1_2345, 0xe_dcba], matched: |n| all().vxlan(77).inner(all().flow_label(n)),
           frame: |n| vxlan(&ipv6(n, ip_number::UDP, &[0, 1, 0, 2, 0, 8, 0, 0])) },
    Case { name: "ICMP type", values: [8, 0xf7], matched: |n| all().icmp_type(n as u8),
           frame: |n| ipv4(ip_number::ICMP, &[n as u8, 3, 0, 0, 0, 1, 0, 2]) },
    Case { name: "ICMP code", values: [3, 0xfc], matched: |n| all().icmp_type(3).icmp_code(n as u8),
           frame: |n| ipv4(ip_number::ICMP, &[3, n as u8, 0, 0, 0, 0, 0, 0]) },
    Case { name: "ICMPv6 type", values: [0x80, 0x7f], matched: |n| all().icmpv6_type(n as u8),
           frame: |n| ipv6(0, ip_number::IPV6_ICMP, &[n as u8, 3, 0, 0, 0, 1, 0, 2]) },
    Case { name: "ICMPv6 code", values: [4, 0xfb], matched: |n| all().icmpv6_type(1).icmpv6_code(n as u8),
           frame: |n| ipv6(0, ip_number::IPV6_ICMP, &[1, n as u8, 0, 0, 0, 0, 0, 0]) },
    Case { name: "ICMP header data", values: [0x1234_5678, 0xedcb_a987], matched: |n| all().icmp_header_data(n, u32::MAX),
           frame: |n| ipv4(ip_number::ICMP, &[&[8, 0, 0, 0][..], &n.to_be_bytes()].concat()) },
    Case { name: "number of an echo reply", values: [0x1234_0000, 0x1234_0001],
           matched: |n| all().icmp_type(0).icmp_header_data(n, 0xffff).fragments(false),
           frame: |n| ipv4(ip_number::ICMP, &[&[0, 0, 0, 0][..], &n.to_be_bytes()].concat()) },
    Case { name: "ICMPv6 header data", values: [0x1234_5678, 0xedcb_a987],
           matched: |n| all().icmpv6_header_data(n, u32::MAX),
           frame: |n| ipv6(0, ip_number::IPV6_ICMP, &[&[0x80, 0, 0, 0][..], &n.to_be_bytes()].concat()) },
    Case { name: "DEI", values: [0, 1], matched: |n| all().vlan(5).vlan_dei(n != 0), frame: |n| tagged(&[(2, n, 5)]) },
    Case { name: "inner VLAN", values: [0x123, 0xedc], matched: |n| all().inner_vlan(n as u16),
           frame: |n| tagged(&[(2, 0, 5), (3, 0, n as u16)]) },
    Case { name: "inner priority", values: [2, 5], matched: |n| all().inner_vlan_priority(n as u8),
           frame: |n| tagged(&[(7, 0, 5), (n, 0, 6)]) },
    Case { name: "inner DEI", values: [0, 1], matched: |n| all().inner_vlan_dei(n != 0),
           frame: |n| tagged(&[(2, 0, 5), (3, n, 6)]) },
    Case { name: "inner VLAN in VXLAN", values: [0x123, 0xedc], matched: |n| all().inner(all().inner_vlan(n as u16)),
           frame: |n| vxlan(&tagged(&[(2, 0, 5), (3, 0, n as u16)])) },
    Case { name: "inner priority in VXLAN", values: [2, 5],
           matched: |n| all().inner(all().vlan(5).inner_vlan_priority(n as u8)),
           frame: |n| vxlan(&tagged(&[(7, 0, 5), (n, 0, 6)])) },
    Case { name: "inner DEI in VXLAN", values: [0, 1], matched: |n| all().inner(all().inner_vlan_dei(n != 0)),
           frame: |n| vxlan(&tagged(&[(2, 0, 5), (3, n, 6)])) },
    Case { name: "sequence number", values: [0x1234_5678, 0xedcb_a987], matched: |n| all().tcp_sequence(n),
           frame: |n| tcp(n, 5) },
    Case { name: "acknowledgement", values: [0x1234_5678, 0xedcb_a987], matched: |n| all().tcp_acknowledgement(n),
           frame: |n| tcp(5, n) },
    Case { name: "inner sequence number", values: [0x1234_5678, 0xedcb_a987],
           matched: |n| all().inner(all().tcp_sequence(n)), frame: |n| vxlan(&tcp(n, 5)) },
    Case { name: "inner acknowledgement", values: [0x1234_5678, 0xedcb_a987],
           matched: |n| all().inner(all().tcp_acknowledgement(n)), frame: |n| vxlan(&tcp(5, n)) },
    Case { name: "MPLS label", values: [0x1_2345, 0xe_dcba], matched: |n| all().mpls_label(n),
           frame: |n| mpls(n << 12 | 0x140) },
    Case { name: "MPLS traffic class", values: [2, 5], matched: |n| all().mpls_traffic_class(n as u8),
           frame: |n| mpls(7 << 12 | n << 9 | 0x140) },
    Case { name: "MPLS bottom", values: [0, 1], matched: |n| all().mpls_bottom_of_stack(n != 0),
           frame: |n| mpls(7 << 12 | n << 8 | 0x40) },
    Case { name: "MPLS TTL", values: [0x40, 0xbf], matched: |n| all().mpls_ttl(n as u8), frame: |n| mpls(7 << 12 | n) },
    Case { name: "label over UDP", values: [0x1_2345, 0xe_dcba], matched: |n| all().mpls_over_udp_label(n),
           frame: |n| mpls_over_udp(n << 12 | 0x140) },
    Case { name: "traffic class over UDP", values: [2, 5],
           matched: |n| all().mpls_over_udp_traffic_class(n as u8), frame: |n| mpls_over_udp(7 << 12 | n << 9 | 0x140) },
    Case { name: "bottom over UDP", values: [0, 1], matched: |n| all().mpls_over_udp_bottom_of_stack(n != 0),
           frame: |n| mpls_over_udp(7 << 12 | n << 8 | 0x40) },
    Case { name: "TTL over UDP", values: [0x40, 0xbf], matched: |n| all().mpls_over_udp_ttl(n as u8),
           frame: |n| mpls_over_udp(7 << 12 | n) },
    Case { name: "label over GRE", values: [0x1_2345, 0xe_dcba], matched: |n| all().mpls_over_gre_label(n),
           frame: |n| mpls_over_gre(n << 12 | 0x140) },
    Case { name: "traffic class over GRE", values: [2, 5],
           matched: |n| all().mpls_over_gre_traffic_class(n as u8), frame: |n| mpls_over_gre(7 << 12 | n << 9 | 0x140) },
    Case { name: "bottom over GRE", values: [0, 1], matched: |n| all().mpls_over_gre_bottom_of_stack(n != 0),
           frame: |n| mpls_over_gre(7 << 12 | n << 8 | 0x40) },
    Case { name: "TTL over GRE", values: [0x40, 0xbf], matched: |n| all().mpls_over_gre_ttl(n as u8),
           frame: |n| mpls_over_gre(7 << 12 | n) },
    Case { name: "label over GRE with this key", values: [0, 0xf_ffff],
           matched: |n| all().mpls_over_gre_label(n).gre_key(5), frame: |n| mpls_over_gre(n << 12 | 0x140) },
    Case { name: "GTP-U TEID", values: [0x1234_5678, 0xedcb_a987], matched: |n| all().gtpu_teid(n),
           frame: |n| gtpu(255, n) },
    Case { name: "GTP-U type", values: [0xff, 0x1a], matched: |n| all().gtpu_message_type(n as u8),
           frame: |n| gtpu(n as u8, 5) },
    Case { name: "GTP-U length", values: [0x1234, 0xedcb], matched: |n| all().gtpu_length(n as u16),
           frame: |n| udp(GTPU, &[&[0x30, 255], &(n as u16).to_be_bytes(), &[0, 0, 0, 7], &[0; 40]]) },
    Case { name: "GTP-U flag E", values: [0, 1], matched: |n| all().gtpu_has_extension(n != 0),
           frame: |n| gtpu_of(1 | (n as u8) << 2, 0, 0, (0x85, 5)) },
    Case { name: "GTP-U flag S", values: [0, 1], matched: |n| all().gtpu_has_sequence(n != 0),
           frame: |n| gtpu_of(1 | (n as u8) << 1, 0, 0, (0, 5)) },
    Case { name: "GTP-U flag PN", values: [0, 1], matched: |n| all().gtpu_has_n_pdu(n != 0),
           frame: |n| gtpu_of(2 | n as u8, 0, 0, (0, 5)) },
    Case { name: "GTP-U sequence", values: [0x1234, 0xedcb], matched: |n| all().gtpu_sequence(n as u16),
           frame: |n| gtpu_of(2, n as u16, 0, (0, 5)) },
    Case { name: "GTP-U N-PDU", values: [0x12, 0xed], matched: |n| all().gtpu_n_pdu(n as u8),
           frame: |n| gtpu_of(1, 0, n as u8, (0, 5)) },
    Case { name: "type of the extension", values: [0x85, 0x7a], matched: |n| all().gtpu_extension(n as u8, 0, 0),
           frame: |n| gtpu_of(4, 0, 0, (n as u8, 0x0110_0900)) },
    Case { name: "word of the extension", values: [0x1234_5678, 0xedcb_a987],
           matched: |n| all().gtpu_extension(0x20, n, u32::MAX), frame: |n| gtpu_of(4, 0, 0, (0x20, n)) },
    Case { name: "PDU type", values: [5, 10], matched: |n| all().gtpu_pdu_type(n as u8),
           frame: |n| gtpu_of(4, 0, 0, (0x85, 0x0100_0900 | n << 20)) },
    Case { name: "QFI", values: [0x15, 0x2a], matched: |n| all().gtpu_qfi(n as u8),
           frame: |n| gtpu_of(4, 0, 0, (0x85, 0x0110_c000 | n << 8)) },
    Case { name: "VXLAN-GPE flags", values: [0x0c, 0xf3], matched: |n| all().vxlan_gpe_flags(n as u8, 0xff),
           frame: |n| vxlan_gpe_of(n as u8, 3, 7) },
    Case { name: "VXLAN-GPE OAM", values: [0x0c, 0x0d], matched: |n| all().vxlan_gpe_flags(n as u8, 1),
           frame: |n| vxlan_gpe_of(n as u8, 3, 7) },
    Case { name: "VXLAN-GPE network", values: [0x12_3456, 0xed_cba9], matched: |n| all().vxlan_gpe(n),
           frame: |n| vxlan_gpe(3, n) },
    Case { name: "VXLAN-GPE protocol", values: [3, 0xfc], matched: |n| all().vxlan_gpe_next_protocol(n as u8),
           frame: |n| vxlan_gpe(n as u8, 7) },
    Case { name: "IPv4 header words", values: [5, 10], matched: |n| all().ipv4_header_words(n as u8),
           frame: with_options },
    Case { name: "inner IPv4 header words", values: [5, 10],
           matched: |n| all().inner(all().ipv4_header_words(n as u8)), frame: |n| vxlan(&with_options(n)) },
    Case { name: "ESP SPI", values: [0x1234_5678, 0xedcb_a987], matched: |n| all().esp_spi(n),
           frame: esp },
    Case { name: "L4 type", values: [1, 2], matched: |n| all().l4_type(L4Type::from_number(n)), frame: of_l4_type },
    Case { name: "no L4 type", values: [0, 2], matched: |n| all().l4_type(L4Type::from_number(n)).ipv4(),
           frame: of_l4_type },
    Case { name: "extended L4 type", values: [2, 3], matched: |n| all().l4_type_ext(L4TypeExt::from_number(n)),
           frame: of_l4_type },
    Case { name: "inner L4 type", values: [1, 2], matched: |n| all().inner(all().l4_type(L4Type::from_number(n))),
           frame: |n| vxlan(&of_l4_type(n)) },
    Case { name: "inner extended L4 type", values: [1, 3],
           matched: |n| all().vxlan(77).inner(all().l4_type_ext(L4TypeExt::from_number(n))),
           frame: |n| vxlan(&of_l4_type(n)) },
    Case { name: "IP version", values: [4, 6], matched: |n| all().ip_version(n as u8), frame: of_version },
    Case { name: "inner IP version", values: [4, 6], matched: |n| all().inner(all().ip_version(n as u8)),
           frame: |n| vxlan(&of_version(n)) },
    Case { name: "inner hop limit", values: [0x40, 0xbf], matched: |n| all().vxlan(77).inner(all().hop_limit(n as u8)),
           frame: |n| vxlan(&with_ttl(n as u8)) },
    Case { name: "inner service VLAN", values: [0x123, 0xedc], matched: |n| all().inner_service_vlan(n as u16),
           frame: |n| service_tag_inside(n as u16) },
    Case { name: "inner service VLAN in VXLAN", values: [0x123, 0xedc],
           matched: |n| all().inner(all().inner_service_vlan(n as u16)),
           frame: |n| vxlan(&service_tag_inside(n as u16)) },
    Case { name: "label in VXLAN", values: [0x1_2345, 0xe_dcba],
           matched: |n| all().vxlan(77).inner(all().mpls_label(n)), frame: |n| vxlan(&mpls(n << 12 | 0x140)) },
    Case { name: "traffic class in VXLAN", values: [2, 5], matched: |n| all().inner(all().mpls_traffic_class(n as u8)),
           frame: |n| vxlan(&mpls(7 << 12 | n << 9 | 0x140)) },
    Case { name: "bottom in VXLAN", values: [0, 1], matched: |n| all().inner(all().mpls_bottom_of_stack(n != 0)),
           frame: |n| vxlan(&mpls(7 << 12 | n << 8 | 0x40)) },
    Case { name: "TTL of a label in VXLAN", values: [0x40, 0xbf], matched: |n| all().inner(all().mpls_ttl(n as u8)),
           frame: |n| vxlan(&mpls(7 << 12 | n)) },
    Case { name: "inner ESP SPI", values: [0x1234_5678, 0xedcb_a987], matched: |n| all().inner(all().esp_spi(n)),
           frame: |n| vxlan(&esp(n)) },
    Case { name: "word 0 of a tunnel", values: [0x0800_5678, 0x08ff_a987],
           matched: |n| all().tunnel_header(0, n, u32::MAX), frame: |n| vxlan_of([n, 0x4d00]) },
    Case { name: "a bit of word 0", values: [0x0800_0000, 0x0800_0001],
           matched: |n| all().vxlan(77).tunnel_header(0, n, 1), frame: |n| vxlan_of([n, 0x4d00]) },
    Case { name: "word 1 of a tunnel", values: [0x1234_5678, 0xedcb_a987],
           matched: |n| all().tunnel_header(1, n, u32::MAX), frame: |n| vxlan_of([0x0800_0000, n]) },
    Case { name: "word 2 of a tunnel", values: [0x0102_0301, 0x0203_0401],
           matched: |n| all().tunnel_header(2, n, u32::MAX), frame: |n| geneve_with(&[n, 0x55]) },
    Case { name: "word 3 of a tunnel", values: [0x1234_5678, 0xedcb_a987],
           matched: |n| all().tunnel_header(3, n, u32::MAX), frame: |n| geneve_with(&[0x0102_0301, n]) },
    Case { name: "word 1 of GRE", values: [0x1234_5678, 0xedcb_a987],
           matched: |n| all().gre(0x6558).tunnel_header(1, n, u32::MAX), frame: |n| gre(false, Some(n), false, 0x6558) },
];

/// As a frame from one function to the other.
pub(crate) fn between(here: &EthernetEnd, there: &EthernetEnd, mut frame: Vec<u8>) -> Vec<u8> {
    frame[..6].copy_from_slice(&there.device.mac().0);
    frame[6..12].copy_from_slice(&here.device.mac().0);
    frame
}

/// Room for rules of as many fields as there are.
pub(crate) fn for_many_fields() -> FlowRulesOptions {
    let mut options = FlowRulesOptions::default();
    options.entries = 1 << 16;
    options
}

#[test]
fn a_frame_that_differs_in_just_the_field_does_not_match() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let [mut here, mut there] = [0, 1].map(|function| EthernetEnd::new(&sim, function, EthernetOptions::default()));
    let rules = FlowRules::create(&there.device, for_many_fields()).unwrap();
    rules.start().unwrap();
    let tir = there.queue.tir().clone();
    for Case { name, values: [one, other], matched, frame } in CASES {
        for (mine, not_mine) in [(*one, *other), (*other, *one)] {
            let rule = rules.add(0, &matched(mine), &tir).unwrap_or_else(|error| panic!("{name}: {error}"));
            there.post(1);
            let [wanted, unwanted] = [mine, not_mine].map(|value| between(&here, &there, frame(value)));
            assert_ne!(wanted, unwanted, "{name}");
            here.send(&unwanted);
            here.send(&wanted);
            assert_eq!(there.heard(), wanted, "{name} {mine:#x}");
            rule.delete().unwrap();
        }
    }
    drop((rules, tir));
    end(sim, [here, there], &[]);
}

#[test]
fn headers_of_other_protocols_are_not_taken_for_the_fields() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let [mut here, mut there] = [0, 1].map(|function| EthernetEnd::new(&sim, function, EthernetOptions::default()));
    let rules = FlowRules::create(&there.device, FlowRulesOptions::default()).unwrap();
    rules.start().unwrap();
    let tir = there.queue.tir().clone();
    let mut fragment = ipv4(ip_number::ICMP, &[8, 0, 0, 0, 0, 1, 0, 2]);
    fragment[20] |= 0x20;
    let mut sum = 0;
    fragment[24..26].fill(0);
    for pair in fragment[14..34].as_chunks::<2>().0 {
        sum += u32::from(u16::from_be_bytes(*pair));
    }
    fragment[24..26].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
    let later_gre = [&[0x20, 1, 0x65, 0x58, 0, 0, 0, 5][..], &udp(9, &[b"inside"])].concat();
    let gtp_of_another_version = udp(GTPU, &[&[0x50, 255, 0, 4, 0, 0, 0, 7, 1, 2, 3, 4]]);
    let later_geneve = udp(GENEVE, &[&[0x40, 0, 0x65, 0x58, 0, 0, 7, 0], &udp(9, &[b"inside"])]);
    for (matched, other) in [
        (all().icmp_type(8), fragment.clone()),
        (all().icmp_header_data(0, u32::MAX).fragments(false), fragment),
        (all().icmp_header_data(0x1_0002, u32::MAX), ipv6(0, ip_number::IPV6_ICMP, &[128, 0, 0, 0, 0, 1, 0, 2])),
        (all().icmpv6_header_data(0x1_0002, u32::MAX), ipv4(ip_number::ICMP, &[8, 0, 0, 0, 0, 1, 0, 2])),
        (all().icmp_type(8), ipv4(ip_number::ICMP, &[8, 0, 0, 0, 0, 0, 0])),
        (all().gre_key(5), ipv4(ip_number::GRE, &later_gre)),
        (all().gre_key(0), gre(false, None, false, 0x6558)),
        (all().gtpu_teid(7), gtp_of_another_version),
        (all().gtpu_n_pdu(0), gtpu(255, 7)),
        (all().gtpu_sequence(0xabcd), gtpu_of(1, 0xabcd, 0, (0, 0))),
        (all().gtpu_qfi(0), gtpu_of(3, 0, 0, (0x85, 0))),
        (all().gtpu_qfi(0), gtpu_of(4, 0, 0, (0, 0))),
        (all().gtpu_qfi(5), gtpu_of(4, 0, 0, (0x20, 0x0110_0500))),
        (all().vxlan_gpe_flags(8, 0xff), vxlan(&udp(9, &[b"inside"]))),
        (all().geneve(7), later_geneve),
        (all().geneve(7), vxlan_gpe(3, 7)),
        (all().icmp_type(8), ipv6(0, ip_number::ICMP, &[8, 0, 0, 0, 0, 1, 0, 2])),
        (all().mpls_label(7), udp(9, &[b"no label"])),
        (all().mpls_label(7), mpls_over_udp(7 << 12)),
        (all().mpls_over_udp_label(7), mpls(7 << 12)),
        (all().mpls_over_udp_label(7), mpls_over_gre(7 << 12)),
        (all().mpls_over_udp_label(0), udp(MPLS - 1, &[&[0; 12]])),
        (all().mpls_over_gre_label(7), mpls_over_udp(7 << 12)),
        (all().mpls_over_gre_label(0), gre(false, None, false, 0x6558)),
    ] {
        let name = format!("{:?}", matched.value());
        let rule = rules.add(0, &matched, &tir).unwrap();
        let last = rules.add(1, &all().ethertype(0x88b5), &tir).unwrap();
        there.post(1);
        let end_of_case = here.frame(there.device.mac(), &[0; 46]);
        let other = between(&here, &there, other);
        here.send(&other);
        here.send(&end_of_case);
        assert_eq!(there.heard(), end_of_case, "{name}");
        drop((rule, last));
    }
    drop((rules, tir));
    end(sim, [here, there], &[]);
}

pub(crate) fn of_sent_frames() -> FlowRulesOptions {
    let mut options = FlowRulesOptions::default();
    options.direction = Direction::Transmit;
    options
}

#[test]
fn packets_of_roce_are_matched_where_they_are_sent() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let [mut here, there] = [0, 1].map(|function| EthernetEnd::new(&sim, function, EthernetOptions::default()));
    let rules = FlowRules::create(&here.device, of_sent_frames()).unwrap();
    rules.start().unwrap();
    /// What is matched, and a packet, for a value of a field.
    type Field = fn(u32) -> (FlowMatch, Vec<u8>);
    let to_queue_pair: Field = |qpn| (all().bth_destination_qp(qpn), roce(4, qpn));
    let of_opcode: Field = |opcode| (all().bth_opcode(opcode as u8), roce(opcode as u8, 5));
    let of_both: Field = |opcode| (all().bth_opcode(opcode as u8).bth_destination_qp(5), roce(opcode as u8, 5));
    let fields = [
        (to_queue_pair, [0x12_3456, 0xed_cba9]),
        (of_opcode, [0x81, 0x7e]),
        (of_opcode, [0, 0xff]),
        (of_both, [0x64, 0x81]),
    ];
    for (field, [one, another]) in fields {
        for (mine, other) in [(one, another), (another, one)] {
            let counter = FlowCounter::create(&here.device).unwrap();
            let (matched, frame) = field(mine);
            let rule = rules.add(0, &matched, FlowActions::drop().count(&counter)).unwrap();
            let [first, second] = [field(other).1, frame].map(|frame| between(&here, &there, frame));
            here.send(&first);
            assert_eq!(counter.read().unwrap().packets, 0, "{other:#x} for {mine:#x}");
            here.send(&second);
            assert_eq!(counter.read().unwrap().packets, 1, "{mine:#x}");
            drop(rule);
        }
    }
    drop(rules);
    end(sim, [here, there], &[]);
}

#[test]
fn frames_are_matched_by_the_queue_that_sends_them() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let [mut here, there] = [0, 1].map(|function| EthernetEnd::new(&sim, function, EthernetOptions::default()));
    let rules = FlowRules::create(&here.device, of_sent_frames()).unwrap();
    rules.start().unwrap();
    let mut second = EthernetQueue::new(&here.pd, EthernetOptions::default()).unwrap();
    let [first, other] = [here.queue.sq().sqn(), second.sq().sqn()];
    assert_ne!(first, other);
    let frame = between(&here, &there, udp(9, &[b"from one of two"]));
    let (counter, its) = (FlowCounter::create(&here.device).unwrap(), FlowCounter::create(&here.device).unwrap());
    let own_rule = rules.add(0, &all().source_sq(first), FlowActions::drop().count(&counter)).unwrap();
    let its_rule = rules.add(0, &all().source_sq(other), FlowActions::drop().count(&its)).unwrap();
    here.send(&frame);
    assert_eq!([&counter, &its].map(|counter| counter.read().unwrap().packets), [1, 0]);
    let mut buffer = here.buffer(0);
    buffer.write(0, &frame);
    buffer.set_len(frame.len());
    second.send(buffer, FrameFlags::empty()).unwrap();
    second.wait(SOON).unwrap().result.unwrap();
    assert_eq!([&counter, &its].map(|counter| counter.read().unwrap().packets), [1, 1]);
    drop((own_rule, its_rule, rules, second, counter, its));
    end(sim, [here, there], &[]);
}

/// A card that announces none of these fields.
fn blind() -> Profile {
    let mut profile = Profile::connectx5();
    let without = |fields: &FlowTableFieldsSupported| {
        let mut fields = *fields;
        fields.w().outer_gre_protocol(false).outer_gre_key(false).outer_geneve_vni(false).outer_geneve_oam(false);
        fields.w().outer_geneve_protocol_type(false).outer_geneve_opt_len(false).outer_esp_spi(false);
        fields.w().inner_second_prio(false).inner_second_cfi(false).inner_second_vid(false);
        fields.w().inner_first_mpls(0).inner_esp_spi(false).source_sqn(false).outer_ipv4_ttl(false);
        fields.w().outer_first_mpls(0).outer_first_mpls_over_gre(0).outer_first_mpls_over_udp(0).bth_dst_qp(false);
        fields
    };
    let mut receive = *profile.flow_table.flow_table_properties_nic_receive();
    let fields = without(receive.ft_field_support());
    receive.w().ft_field_support(&fields);
    let mut transmit = *profile.flow_table.flow_table_properties_nic_transmit();
    let fields = without(transmit.ft_field_support());
    transmit.w().ft_field_support(&fields);
    profile
        .flow_table
        .w()
        .flow_table_properties_nic_receive(&receive)
        .flow_table_properties_nic_transmit(&transmit)
        .ft_field_support_2_nic_receive(&FlowTableFieldsSupported2::ZERO)
        .ft_field_support_2_nic_transmit(&FlowTableFieldsSupported2::ZERO);
    let no_parsers = |caps: &mut CmdHcaCap| _ = caps.w().flex_parser_protocols(0);
    no_parsers(&mut profile.general_max);
    no_parsers(&mut profile.general_current);
    profile
}

#[test]
fn fields_that_a_card_does_not_announce_are_refused_by_name() {
    let (sim, here, there) = two_of(Sim::builder().profile(blind()), EthernetOptions::default());
    let sent = FlowRules::create(&here.device, of_sent_frames()).unwrap();
    for (matched, capability) in [
        (all().bth_destination_qp(5), "nic_transmit.ft_field_support.bth_dst_qp"),
        (all().bth_opcode(0x81), "ft_field_support_2_nic_transmit.bth_opcode"),
        (all().ipv4_header_words(6), "ft_field_support_2_nic_transmit.outer_ipv4_ihl"),
        (all().source_sq(5), "nic_transmit.ft_field_support.source_sqn"),
        (all().l4_type(L4Type::Tcp), "ft_field_support_2_nic_transmit.outer_l4_type"),
        (all().tunnel_header(1, 5, 0xff), "ft_field_support_2_nic_transmit.tunnel_header_0_1"),
    ] {
        let text = refusal(sent.add(0, &matched, FlowActions::drop()));
        assert!(text.contains(capability), "{capability}: {text}");
    }
    let table = FlowTable::create(&here.device, 3, 3).unwrap();
    let flex = |bit: u32| format!("bit {bit} of flex_parser_protocols");
    let field = |name: &str| format!("ft_field_support.{name}");
    let inner = |inner: FlowMatch| all().vxlan(7).inner(inner);
    for (matched, capability) in [
        (all().gre(0x6558), field("outer_gre_protocol")),
        (all().gre_key(5), field("outer_gre_key")),
        (all().geneve(5), field("outer_geneve_vni")),
        (all().geneve_protocol(5), field("outer_geneve_protocol_type")),
        (all().geneve_option_words(5), field("outer_geneve_opt_len")),
        (all().geneve_oam(false), field("outer_geneve_oam")),
        (all().esp_spi(5), field("outer_esp_spi")),
        (inner(all().inner_vlan(5)), field("inner_second_vid")),
        (inner(all().inner_vlan_priority(5)), field("inner_second_prio")),
        (inner(all().inner_vlan_dei(true)), field("inner_second_cfi")),
        (all().mpls_label(5), format!("bit 0 of flow_table_properties_nic_receive.{}", field("outer_first_mpls"))),
        (all().mpls_traffic_class(5), "bit 1 of ".into()),
        (all().mpls_bottom_of_stack(true), "bit 2 of ".into()),
        (all().mpls_ttl(5), "bit 3 of ".into()),
        (
            all().mpls_over_udp_label(5),
            format!("bit 0 of flow_table_properties_nic_receive.{}", field("outer_first_mpls_over_udp")),
        ),
        (all().mpls_over_udp_traffic_class(5), "bit 1 of ".into()),
        (all().mpls_over_udp_bottom_of_stack(true), "bit 2 of ".into()),
        (all().mpls_over_udp_ttl(5), flex(5)),
        (
            all().mpls_over_gre_label(5),
            format!("bit 0 of flow_table_properties_nic_receive.{}", field("outer_first_mpls_over_gre")),
        ),
        (all().mpls_over_gre_traffic_class(5), "bit 1 of ".into()),
        (all().mpls_over_gre_bottom_of_stack(true), "bit 2 of ".into()),
        (all().mpls_over_gre_ttl(5), flex(4)),
        (all().icmp_type(5), flex(8)),
        (all().icmp_code(5), flex(8)),
        (all().icmpv6_type(5), flex(9)),
        (all().icmpv6_code(5), flex(9)),
        (all().icmp_header_data(5, 0xff), flex(8)),
        (all().icmpv6_header_data(5, 0xff), flex(9)),
        (all().vxlan_gpe(5), flex(7)),
        (all().vxlan_gpe_next_protocol(5), flex(7)),
        (all().gtpu_teid(5), flex(11)),
        (all().gtpu_message_type(5), flex(11)),
        (all().vxlan_gpe_flags(0, 1), flex(7)),
        (all().gtpu_has_extension(false), flex(11)),
        (all().gtpu_sequence(5), flex(16)),
        (all().gtpu_n_pdu(5), flex(16)),
        (all().gtpu_qfi(5), flex(17)),
        (all().gtpu_length(5), flex(18)),
        (all().ipv4_header_words(6), "ft_field_support_2_nic_receive.outer_ipv4_ihl".into()),
        (inner(all().ipv4_header_words(6)), "ft_field_support_2_nic_receive.inner_ipv4_ihl".into()),
        (
            inner(all().mpls_label(5)),
            "bit 0 of flow_table_properties_nic_receive.ft_field_support.inner_first_mpls".into(),
        ),
        (inner(all().mpls_ttl(5)), "bit 3 of ".into()),
        (inner(all().esp_spi(5)), field("inner_esp_spi")),
        (inner(all().hop_limit(5)), field("outer_ipv4_ttl")),
        (all().source_sq(5), field("source_sqn")),
        (all().l4_type(L4Type::Tcp), "ft_field_support_2_nic_receive.outer_l4_type".into()),
        (all().l4_type_ext(L4TypeExt::Icmp), "ft_field_support_2_nic_receive.outer_l4_type_ext".into()),
        (inner(all().l4_type(L4Type::Tcp)), "ft_field_support_2_nic_receive.inner_l4_type".into()),
        (inner(all().l4_type_ext(L4TypeExt::Icmp)), "ft_field_support_2_nic_receive.inner_l4_type_ext".into()),
        (all().tunnel_header(0, 5, 0xff), "ft_field_support_2_nic_receive.tunnel_header_0_1".into()),
        (all().tunnel_header(3, 5, 0xff), "ft_field_support_2_nic_receive.tunnel_header_2_3".into()),
        (all().bth_destination_qp(5), field("bth_dst_qp")),
        (all().bth_opcode(5), "ft_field_support_2_nic_receive.bth_opcode".into()),
    ] {
        let text = refusal(FlowGroup::create(&table, 0..1, &matched));
        assert!(text.contains(&capability), "{capability}: {text}");
    }
    FlowTable::destroy(table).unwrap();
    drop(sent);
    end(sim, [here, there], &[]);
}

#[test]
fn values_that_are_too_wide_and_fields_that_tunnels_have_not_are_refused() {
    for (matched, bits) in [
        (all().flow_label(1 << 20), 20),
        (all().geneve(1 << 24), 24),
        (all().geneve_option_words(64), 6),
        (all().vxlan_gpe(1 << 24), 24),
        (all().gtpu_pdu_type(16), 4),
        (all().gtpu_qfi(64), 6),
        (all().bth_destination_qp(1 << 24), 24),
        (all().mpls_label(1 << 20), 20),
        (all().mpls_traffic_class(8), 3),
        (all().mpls_over_udp_label(1 << 20), 20),
        (all().mpls_over_udp_traffic_class(8), 3),
        (all().mpls_over_gre_label(1 << 20), 20),
        (all().mpls_over_gre_traffic_class(8), 3),
        (all().ipv4_header_words(16), 4),
        (all().inner_vlan_priority(8), 3),
        (all().inner_service_vlan(4096), 12),
        (all().source_sq(1 << 24), 24),
        (all().l4_type(L4Type::Unknown(4)), 2),
        (all().l4_type_ext(L4TypeExt::Unknown(16)), 4),
    ] {
        let text = refusal(matched.check());
        assert!(text.contains(&format!("{bits} bits")), "{text}");
    }
    for (matched, name) in [
        (all().inner(all().icmp_type(8)), "ICMP type 8"),
        (all().inner(all().icmp_header_data(8, 15)), "ICMP header data 0x8 of 0xf"),
        (all().inner(all().gre_key(8)), "GRE key 0x8"),
        (all().inner(all().gtpu_qfi(8)), "GTP-U QFI 8"),
        (all().inner(all().vxlan_gpe_flags(8, 8)), "VXLAN-GPE flags 0x8 of 0x8"),
        (all().inner(all().bth_opcode(0x81)), "RoCE opcode 0x81"),
        (all().inner(all().source_sq(8)), "send queue 8"),
        (all().inner(all().tunnel_header(1, 8, 8)), "word 1 of a tunnel's header of 0x8"),
        (all().inner(all().mpls_over_udp_ttl(8)), "MPLS over UDP time to live 8"),
        (all().inner(all().mpls_over_gre_label(8)), "MPLS over GRE label 8"),
    ] {
        assert_eq!(refusal(matched.check()), format!("{name} is no field that is matched inside a tunnel"));
    }
}
