use etherparse::{IpHeaders, IpNumber, Ipv6FlowLabel, Ipv6Header, PacketBuilder, ip_number};
use mlx5_prm::caps::{FlowTableFieldsSupported, FlowTableFieldsSupported2};
use mlx5_prm::cqe::{RssIp, RssL4};
use mlx5_prm::ctx::RxHashFn;
use mlx5_prm::flow::{
    AddActionIn, CopyActionIn, FlowContext, FlowTableContext, FteMatchParam, FteMatchSetLyr24, FteMatchSetMisc,
    FteMatchSetMisc2, L4Type, L4TypeExt, ModifyActionType, ModifyField, ReformatType, SetActionIn,
    SetAddCopyActionInAuto,
};
use mlx5_prm::layout::Layout;
use proptest::prelude::*;

use super::hash::{Hash, Hashing};
use super::*;
use crate::ethernet::Headers;

/// The key of the examples in Microsoft's RSS specification.
const KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b,
    0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac,
    0x01, 0xfa,
];

/// `selected_fields`: both addresses and both ports.
const PORTS: u32 = 0xf;

fn tcp(source: [u8; 4], destination: [u8; 4], ports: (u16, u16)) -> Headers {
    Headers::of(&tcp_frame(source, destination, ports))
}

fn tcp_frame(source: [u8; 4], destination: [u8; 4], ports: (u16, u16)) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ipv4(source, destination, 64)
        .tcp(ports.0, ports.1, 0, 0);
    let mut frame = Vec::new();
    builder.write(&mut frame, b"x").unwrap();
    frame
}

fn hashing(fields: u32) -> Hashing {
    Hashing {
        function: RxHashFn::Toeplitz,
        key: KEY,
        is_symmetric: false,
        is_v6: false,
        is_udp: false,
        fields,
        is_inner: false,
    }
}

#[test]
fn the_hash_is_that_of_the_published_examples() {
    for (source, destination, ports, with_ports, without) in [
        ([66, 9, 149, 187], [161, 142, 100, 80], (2794, 1766), 0x51ccc178, 0x323e8fc2),
        ([199, 92, 111, 2], [65, 69, 140, 83], (14230, 4739), 0xc626b0ea, 0xd718262a),
        ([24, 19, 198, 95], [12, 22, 207, 184], (12898, 38024), 0x5c2b394a, 0xd2d0a5de),
    ] {
        let headers = tcp(source, destination, ports);
        assert_eq!(hashing(PORTS).of(&headers).value, with_ports);
        assert_eq!(hashing(3).of(&headers).value, without);
    }
}

#[test]
fn a_symmetric_hash_is_the_same_both_ways() {
    let (there, back) = (tcp([1, 2, 3, 4], [9, 8, 7, 6], (5, 99)), tcp([9, 8, 7, 6], [1, 2, 3, 4], (99, 5)));
    let symmetric = Hashing { is_symmetric: true, ..hashing(PORTS) };
    assert_eq!(symmetric.of(&there), symmetric.of(&back));
    assert_ne!(hashing(PORTS).of(&there), hashing(PORTS).of(&back));
}

#[test]
fn what_has_not_the_chosen_fields_has_no_hash() {
    let headers = tcp([1, 2, 3, 4], [9, 8, 7, 6], (5, 99));
    assert_eq!(Hashing { is_udp: true, ..hashing(PORTS) }.of(&headers), Hash::NONE);
    assert_eq!(Hashing { is_v6: true, ..hashing(3) }.of(&headers), Hash::NONE);
    let hash = hashing(PORTS).of(&headers);
    assert_eq!((hash.ip, hash.l4), (RssIp::Ipv4, RssL4::Tcp));
}

#[test]
fn the_index_of_ipsec_is_hashed_where_it_is_chosen() {
    let esp = |spi: u32| {
        let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]).ipv4([1; 4], [2; 4], 64);
        let mut frame = Vec::new();
        builder
            .write(&mut frame, ip_number::ENCAPSULATING_SECURITY_PAYLOAD, &[&spi.to_be_bytes()[..], &[0; 20]].concat())
            .unwrap();
        Headers::of(&frame)
    };
    let with_spi = hashing(3 | 1 << 4);
    assert_eq!(with_spi.of(&esp(7)).l4, RssL4::Ipsec);
    assert_ne!(with_spi.of(&esp(7)).value, with_spi.of(&esp(8)).value);
    assert_eq!(with_spi.of(&tcp([1; 4], [2; 4], (1, 2))), Hash::NONE);
}

/// A table of level `level`, with one group of 16 entries for each mask.
fn table(level: u8, miss: Miss, masks: &[FteMatchParam]) -> FlowTable {
    let mut context = FlowTableContext::ZERO;
    context.w().level(level).log_size(8);
    let mut table = FlowTable::new(FlowTableType::NicRx, context, miss);
    for (number, mask) in (0u32..).zip(masks) {
        assert!(table.add_group(number + 1, FlowGroup::new(number * 16, number * 16 + 15, key::PARTS, *mask)));
    }
    table
}

fn entry(group: u32, value: &FteMatchParam, destinations: &[Destination], counters: &[u32]) -> FlowEntry {
    FlowEntry {
        group,
        value: key::bytes(value),
        destinations: destinations.to_vec(),
        counters: counters.to_vec(),
        tag: group,
        metering: None,
        changes: Changes::default(),
        context: FlowContext::ZERO,
        list: Vec::new(),
    }
}

/// What is matched of the outer headers.
fn set(fill: impl FnOnce(&mut FteMatchSetLyr24)) -> FteMatchParam {
    let (mut set, mut all) = (FteMatchSetLyr24::ZERO, FteMatchParam::ZERO);
    fill(&mut set);
    all.w().outer_headers(&set);
    all
}

fn unchanged(tirs: &[u32], tag: u32) -> Vec<Delivery> {
    tirs.iter().map(|tirn| Delivery { tirn: Some(*tirn), tag, changed: None }).collect()
}

/// A frame that is received.
fn received() -> Entering {
    Entering { sqn: 0, metadata: 0, now: Instant::now() }
}

/// A steering whose first table is `table`, and its number.
fn steering(table: FlowTable) -> (Steering, u32) {
    let mut steering = Steering::new(&Profile::connectx5());
    let root = steering.tables.insert(table).unwrap();
    (steering, root)
}

#[test]
fn the_lowest_entry_that_matches_decides_and_counts() {
    let port = set(|set| _ = set.w().tcp_dport(0xffff));
    let anything = FteMatchParam::ZERO;
    let (mut steering, root) = steering(table(0, Miss::Default, &[port, anything]));
    let eighty = set(|set| _ = set.w().tcp_dport(80));
    steering.set_entry(root, 20, entry(2, &anything, &[Destination::Tir(9)], &[]));
    steering.set_entry(root, 3, entry(1, &eighty, &[Destination::Tir(7), Destination::Tir(8)], &[1]));
    steering.set_entry(root, 4, entry(1, &eighty, &[Destination::Tir(6)], &[]));
    assert_eq!(steering.counters.insert(FlowCounter::default()).unwrap(), 1);
    let web = tcp_frame([1, 1, 1, 1], [2, 2, 2, 2], (1, 80));
    let mail = tcp_frame([1, 1, 1, 1], [2, 2, 2, 2], (1, 25));
    assert_eq!(steering.steer(root, &web, received()).unwrap(), unchanged(&[7, 8], 1));
    assert_eq!(steering.steer(root, &mail, received()).unwrap(), unchanged(&[9], 2));
    let len = web.len() as u64;
    assert_eq!(*steering.counters.get(1).unwrap(), FlowCounter { packets: 1, bytes: len });
    assert_eq!(steering.entry_count(), 3);
    assert!(steering.is_used(Use::Counter(1)) && steering.is_used(Use::Tir(8)));
    // With the lowest removed, the next of the same value decides.
    assert!(steering.remove_entry(root, 3) && !steering.remove_entry(root, 3));
    assert_eq!(steering.steer(root, &web, received()).unwrap(), unchanged(&[6], 1));
    assert!(!steering.is_used(Use::Counter(1)) && !steering.is_used(Use::Tir(8)) && steering.is_used(Use::Tir(6)));
    // An entry that is set anew.
    steering.set_entry(root, 4, entry(1, &eighty, &[Destination::Tir(5)], &[]));
    assert_eq!(steering.steer(root, &web, received()).unwrap(), unchanged(&[5], 1));
    assert!(!steering.is_used(Use::Tir(6)));
    assert_eq!(steering.entry_count(), 2);
}

#[test]
fn a_frame_that_nothing_matches_goes_where_the_table_says() {
    let vlan = set(|set| _ = set.w().cvlan_tag(true));
    let anything = FteMatchParam::ZERO;
    let (mut steering, last) = steering(table(1, Miss::Default, &[anything]));
    steering.set_entry(last, 0, entry(1, &anything, &[Destination::Tir(3)], &[]));
    let first = steering.tables.insert(table(0, Miss::Table(last), &[vlan])).unwrap();
    steering.set_entry(first, 0, entry(1, &vlan, &[], &[]));
    let mut frame = tcp_frame([1, 1, 1, 1], [2, 2, 2, 2], (1, 80));
    assert_eq!(steering.steer(first, &frame, received()).unwrap(), unchanged(&[3], 1));
    ethernet::insert_tag(&mut frame, ethernet::C_VLAN, 5);
    assert_eq!(steering.steer(first, &frame, received()).unwrap(), [], "no destination: dropped");
    assert!(steering.is_used(Use::Table(last)) && steering.is_used(Use::Tir(3)) && !steering.is_used(Use::Tir(4)));
}

#[test]
fn frames_to_be_sent_go_out_where_no_entry_stops_them() {
    let port = set(|set| _ = set.w().tcp_dport(0xffff));
    let mut out = FlowTable::new(FlowTableType::NicTx, table(0, Miss::Default, &[]).context, Miss::Default);
    assert!(out.add_group(1, FlowGroup::new(0, 15, 1, port)));
    let (mut steering, root) = steering(out);
    let value = set(|set| _ = set.w().tcp_dport(80));
    steering.set_entry(root, 0, entry(1, &value, &[], &[]));
    let frame = |port| tcp_frame([1, 1, 1, 1], [2, 2, 2, 2], (1, port));
    assert_eq!(steering.steer(root, &frame(80), received()).unwrap(), []);
    assert_eq!(steering.steer(root, &frame(81), received()).unwrap(), [Delivery { tirn: None, tag: 0, changed: None }]);
}

/// `frame` in VXLAN of `vni`.
fn in_vxlan(frame: &[u8], vni: u32) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 3], [2, 0, 0, 0, 0, 4]).ipv4([10; 4], [11; 4], 64);
    let mut whole = Vec::new();
    let payload = [&[8, 0, 0, 0][..], &(vni << 8).to_be_bytes(), frame].concat();
    builder.udp(5555, 4789).write(&mut whole, &payload).unwrap();
    whole
}

#[test]
fn a_frame_in_a_tunnel_is_matched_by_its_inner_headers_and_taken_out() {
    let inner = tcp_frame([1, 1, 1, 1], [2, 2, 2, 2], (1, 80));
    let (mut mask, mut value) = (FteMatchParam::ZERO, FteMatchParam::ZERO);
    let (mut ports, mut misc) = (FteMatchSetLyr24::ZERO, FteMatchSetMisc::ZERO);
    ports.w().tcp_dport(0xffff);
    misc.w().vxlan_vni(0xff_ffff);
    mask.w().inner_headers(&ports).misc_parameters(&misc);
    ports.w().tcp_dport(80);
    misc.w().vxlan_vni(77);
    value.w().inner_headers(&ports).misc_parameters(&misc);
    let (mut steering, root) = steering(table(0, Miss::Default, &[mask]));
    let mut entry = entry(1, &value, &[Destination::Tir(3)], &[]);
    entry.changes.decapsulates = true;
    steering.set_entry(root, 0, entry);
    let there = [Delivery { tirn: Some(3), tag: 1, changed: Some(inner.clone()) }];
    assert_eq!(steering.steer(root, &in_vxlan(&inner, 77), received()).unwrap(), there);
    assert_eq!(steering.steer(root, &in_vxlan(&inner, 78), received()).unwrap(), []);
    assert_eq!(steering.steer(root, &inner, received()).unwrap(), []);
}

#[test]
fn a_frame_behind_a_header_has_its_lengths_and_checksum_filled_in() {
    let inner = tcp_frame([1, 1, 1, 1], [2, 2, 2, 2], (1, 80));
    let right = in_vxlan(&inner, 9);
    let mut header = right[..right.len() - inner.len()].to_vec();
    // IPv4's length and checksum, UDP's length.
    for at in [16, 24, 38] {
        header[at..at + 2].fill(0);
    }
    let mut frame = inner.clone();
    let reformat = Reformat { kind: ReformatKind::L2Tunnel, reformat_type: ReformatType::L2ToVxlan, header };
    assert!(reformat.encapsulate(&mut frame));
    // What UDP's checksum was, the header says.
    assert_eq!(frame, right);
    assert!(reformat::decapsulate(&mut frame, &VxlanPorts::default()));
    assert_eq!(frame, inner);
    assert!(!reformat::decapsulate(&mut frame, &VxlanPorts::default()), "it is in no tunnel any more");
}

/// A frame with a correct checksum, as another's code computes it.
fn written(source: [u8; 4], destination: [u8; 4], ttl: u8, ports: (u16, u16), mac: [u8; 6]) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], mac).ipv4(source, destination, ttl);
    builder.udp(ports.0, ports.1).write(&mut frame, b"payload").unwrap();
    frame
}

fn set_field(field: ModifyField, offset: u8, length: u8, data: u32) -> SetAddCopyActionInAuto {
    let (mut action, mut any) = (SetActionIn::ZERO, SetAddCopyActionInAuto::ZERO);
    action.w().action_type(ModifyActionType::Set).field(field).offset(offset).length(length).data(data);
    any.w().set_action_in(&action);
    any
}

fn add_to_field(field: ModifyField, data: u32) -> SetAddCopyActionInAuto {
    let (mut action, mut any) = (AddActionIn::ZERO, SetAddCopyActionInAuto::ZERO);
    action.w().action_type(ModifyActionType::Add).field(field).data(data);
    any.w().add_action_in(&action);
    any
}

fn copy_field(from: ModifyField, to: ModifyField, length: u8) -> SetAddCopyActionInAuto {
    let (mut action, mut any) = (CopyActionIn::ZERO, SetAddCopyActionInAuto::ZERO);
    action.w().action_type(ModifyActionType::Copy).src_field(from).dst_field(to).length(length);
    any.w().copy_action_in(&action);
    any
}

#[test]
fn headers_are_changed_and_checksums_with_them() {
    use ModifyField as F;
    let actions = [
        set_field(F::OutDmac4716, 0, 0, 0x0203_0405),
        set_field(F::OutDmac150, 0, 16, 0x0607),
        set_field(F::OutDipv4, 0, 0, 0x0a00_0009),
        set_field(F::OutSipv4, 8, 8, 7),
        add_to_field(F::OutIpTtl, u32::MAX),
        set_field(F::OutUdpDport, 0, 16, 99),
        copy_field(F::OutUdpDport, F::OutUdpSport, 16),
        copy_field(F::OutDipv4, F::MetadataRegC3, 0),
        // It has none of these.
        set_field(F::OutTcpDport, 0, 16, 1),
        set_field(F::OutIpv6Hoplimit, 0, 8, 1),
        set_field(F::OutFirstVid, 0, 12, 1),
    ];
    let modify = ModifyHeader::parse(FlowTableType::NicRx, &actions).unwrap();
    let mut frame = written([1, 2, 3, 4], [5, 6, 7, 8], 64, (10, 20), [2, 0, 0, 0, 0, 2]);
    let mut registers = Registers::default();
    modify.apply(&mut frame, &mut registers);
    assert_eq!(frame, written([1, 2, 7, 4], [10, 0, 0, 9], 63, (99, 99), [2, 3, 4, 5, 6, 7]));
    assert_eq!(registers.c[3], 0x0a00_0009);
    // A checksum that was wrong is no better afterwards.
    frame[40] ^= 0x10;
    modify.apply(&mut frame, &mut registers);
    let headers = Headers::of(&frame);
    let verdict = ethernet::checksum::verify(&frame, &headers);
    assert!(verdict.l3_ok && !verdict.l4_ok);
}

#[test]
fn bits_that_a_field_has_not_are_no_action() {
    use ModifyField as F;
    let parses = |action| ModifyHeader::parse(FlowTableType::NicRx, &[action]).is_some();
    assert!(parses(set_field(F::OutIpDscp, 0, 6, 1)) && !parses(set_field(F::OutIpDscp, 1, 6, 1)));
    assert!(!parses(set_field(F::OutIpDscp, 0, 0, 1)), "0 is 32 bits");
    assert!(!parses(set_field(F::IpsecSyndrome, 0, 8, 1)) && !parses(copy_field(F::OutIpTtl, F::MetadataRegC0, 9)));
    assert!(!parses(SetAddCopyActionInAuto::ZERO));
}

#[test]
fn a_register_that_one_table_sets_is_matched_in_the_next() {
    let (mut mask, mut value) = (FteMatchParam::ZERO, FteMatchParam::ZERO);
    let mut registers = FteMatchSetMisc2::ZERO;
    registers.w().metadata_reg_c_1(u32::MAX);
    mask.w().misc_parameters_2(&registers);
    registers.w().metadata_reg_c_1(5);
    value.w().misc_parameters_2(&registers);
    let (mut steering, next) = steering(table(1, Miss::Default, &[mask]));
    steering.set_entry(next, 0, entry(1, &value, &[Destination::Tir(3)], &[]));
    let root = steering.tables.insert(table(0, Miss::Table(next), &[FteMatchParam::ZERO])).unwrap();
    let action = set_field(ModifyField::MetadataRegC1, 0, 0, 5);
    let modify = ModifyHeader::parse(FlowTableType::NicRx, &[action]).unwrap();
    let number = steering.modify_headers.insert(modify).unwrap();
    let frame = tcp_frame([1, 1, 1, 1], [2, 2, 2, 2], (1, 80));
    assert_eq!(steering.steer(root, &frame, received()).unwrap(), []);
    let mut first = entry(1, &FteMatchParam::ZERO, &[Destination::Table(next)], &[]);
    first.changes.modify_header = Some(number);
    steering.set_entry(root, 0, first);
    assert!(steering.is_used(Use::ModifyHeader(number)));
    let there = Delivery { tirn: Some(3), tag: 1, changed: Some(frame.clone()) };
    assert_eq!(steering.steer(root, &frame, received()).unwrap(), [there]);
}

#[test]
fn groups_do_not_overlap() {
    let mut table = table(0, Miss::Default, &[FteMatchParam::ZERO]);
    let group = |first, last| FlowGroup::new(first, last, 0, FteMatchParam::ZERO);
    assert!(!table.add_group(9, group(15, 20)));
    assert!(table.add_group(9, group(16, 20)));
    assert!(table.remove_group(9) && !table.remove_group(9));
}

/// An option of GENEVE that one of them has.
const OPTION: GeneveOption = GeneveOption { class: 0xffff, kind: 0xff, words: 1 };

/// Of the last send queue.
fn beside() -> Beside {
    Beside { option: Some(OPTION), sqn: 0xff_ffff, ..Beside::default() }
}

/// Frames that between them have every field of a key, all bits of it set where the headers allow it; and whether they
/// have fields that a capability announces.
fn frames_of_all_fields() -> Vec<(Vec<u8>, bool)> {
    let builder = || PacketBuilder::ethernet2([255; 6], [255; 6]).ipv4([255; 4], [255; 4], 255);
    let of_protocol = |number: u8, payload: &[u8]| {
        let mut frame = Vec::new();
        builder().write(&mut frame, IpNumber(number), payload).unwrap();
        frame
    };
    let to_port = |port: u16, payload: &[u8]| {
        let mut frame = Vec::new();
        builder().udp(0xffff, port).write(&mut frame, payload).unwrap();
        frame
    };
    let mut tagged = tcp_frame([255; 4], [255; 4], (0xffff, 0xffff));
    ethernet::insert_tag(&mut tagged, ethernet::C_VLAN, 0xffff);
    ethernet::insert_tag(&mut tagged, ethernet::S_VLAN, 0xffff);
    let (mut six, ip) = (
        Vec::new(),
        Ipv6Header { flow_label: Ipv6FlowLabel::try_new(0xf_ffff).unwrap(), hop_limit: 255, ..Default::default() },
    );
    let packet = PacketBuilder::ethernet2([255; 6], [255; 6]).ip(IpHeaders::Ipv6(ip, Default::default()));
    packet.write(&mut six, ip_number::IPV6_ICMP, &[255; 8]).unwrap();
    let label = [&[255; 12][..], &[0x88, 0x47], &[255; 4]].concat();
    // Version 0, and all the rest set.
    let gre = [&[0xb0, 0][..], &[255; 14]].concat();
    let mut esp = Vec::new();
    builder().write(&mut esp, IpNumber(50), &[255; 24]).unwrap();
    let mpls_in_gre = [&[0xb0, 0, 0x88, 0x47][..], &[255; 16]].concat();
    let geneve = [&[0x3f, 0x80][..], &[255; 6]].concat();
    let geneve_option = [&[2, 0x80][..], &[255; 6], &[255, 255, 255, 1, 255, 255, 255, 255]].concat();
    vec![
        (in_vxlan(&tagged, 0xff_ffff), true),
        (tagged, false),
        (in_vxlan(&six, 1), true),
        (six, true),
        (in_vxlan(&label, 1), true),
        (in_vxlan(&esp, 1), true),
        (label, true),
        (of_protocol(47, &gre), true),
        (of_protocol(47, &mpls_in_gre), true),
        (to_port(6635, &[255; 8]), true),
        (of_protocol(50, &[255; 24]), true),
        (of_protocol(1, &[255; 8]), true),
        (to_port(6081, &geneve), true),
        (to_port(6081, &geneve_option), true),
        (to_port(4790, &[255; 8]), true),
        (to_port(4791, &[255; 12]), true),
        (to_port(2152, &[&[0x30][..], &[255; 7]].concat()), true),
        (to_port(2152, &[&[0x37][..], &[255; 15]].concat()), true),
    ]
}

#[test]
fn every_field_of_a_key_is_supported_as_far_as_it_is_announced() {
    let profile = Profile::connectx5();
    let mut fields_2 = *profile.flow_table.ft_field_support_2_nic_receive();
    fields_2.w().bth_opcode(profile.flow_table.ft_field_support_2_nic_transmit().bth_opcode());
    let announced = key::Announced {
        // That of frames to be sent has the queue pair of RoCE, too.
        fields: *profile.flow_table.flow_table_properties_nic_transmit().ft_field_support(),
        fields_2,
        protocols: profile.general_max.flex_parser_protocols(),
        metadata_a: profile.flow_table.flow_table_properties_nic_transmit().metadata_reg_a_width(),
    };
    let nothing = key::Announced { fields: FlowTableFieldsSupported::ZERO, protocols: 0, metadata_a: 0, ..announced };
    let no_second = key::Announced { fields_2: FlowTableFieldsSupported2::ZERO, ..announced };
    for (frame, needs) in frames_of_all_fields() {
        let key = key::of(&frame, &Registers { c: [u32::MAX; 8], a: u32::MAX }, &beside());
        let mut all = FteMatchParam::read(&[&key[..], &[0; FteMatchParam::SIZE - key::LEN]].concat()).unwrap();
        assert!(key::is_supported(&all, key::PARTS, &announced), "{frame:02x?}");
        assert!(!key::is_supported(&all, key::PARTS << 1, &announced));
        assert!(!key::is_supported(&all, key::PARTS, &nothing), "the send queue is announced");
        let mut misc = *all.misc_parameters();
        misc.w().source_sqn(0);
        all.w().misc_parameters(&misc);
        assert!(!key::is_supported(&all, key::PARTS, &nothing), "metadata of its sender is announced");
        let mut metadata = *all.misc_parameters_2();
        metadata.w().metadata_reg_a(0);
        all.w().misc_parameters_2(&metadata);
        assert_eq!(key::is_supported(&all, key::PARTS, &nothing), !needs, "{frame:02x?}");
        let headers = [all.outer_headers(), all.inner_headers()];
        let of_second = headers.iter().any(|set| set.ipv4_ihl() != 0 || set.l4_type_ext() != L4TypeExt::None);
        assert_eq!(key::is_supported(&all, key::PARTS, &no_second), !of_second, "{frame:02x?}");
    }
}

/// The key of a frame that is received.
fn key_of(frame: &[u8]) -> FteMatchParam {
    let key = key::of(frame, &Registers::default(), &Beside::default());
    FteMatchParam::read(&[&key[..], &[0; FteMatchParam::SIZE - key::LEN]].concat()).unwrap()
}

#[test]
fn the_type_of_the_transport_header_is_none_in_fragments_and_where_it_is_cut_off() {
    let types = |frame: &[u8]| {
        let key = key_of(frame);
        (key.outer_headers().l4_type(), key.outer_headers().l4_type_ext())
    };
    let tcp = tcp_frame([1, 1, 1, 1], [2, 2, 2, 2], (1, 80));
    let udp = written([1, 2, 3, 4], [5, 6, 7, 8], 64, (10, 20), [2, 0, 0, 0, 0, 2]);
    let ping = |len: usize| {
        let mut frame = Vec::new();
        let builder = PacketBuilder::ethernet2([2; 6], [2; 6]).ipv4([1; 4], [2; 4], 64);
        builder.write(&mut frame, ip_number::ICMP, &[8, 0, 0, 0, 0, 1, 0, 2][..len]).unwrap();
        frame
    };
    assert_eq!(types(&tcp), (L4Type::Tcp, L4TypeExt::Tcp));
    assert_eq!(types(&udp), (L4Type::Udp, L4TypeExt::Udp));
    assert_eq!(types(&ping(8)), (L4Type::None, L4TypeExt::Icmp));
    let mut fragment = tcp.clone();
    fragment[20] |= 0x20;
    for none in [fragment, ping(7), tcp[..38].to_vec(), udp[..14].to_vec()] {
        assert_eq!(types(&none), (L4Type::None, L4TypeExt::None), "{none:02x?}");
    }
    let inner = *key_of(&in_vxlan(&tcp, 5)).inner_headers();
    assert_eq!((inner.l4_type(), inner.l4_type_ext()), (L4Type::Tcp, L4TypeExt::Tcp));
}

#[test]
fn the_words_of_a_tunnels_header_end_with_it() {
    let words = |frame: &[u8]| {
        let misc = *key_of(frame).misc_parameters_5();
        [misc.tunnel_header_0(), misc.tunnel_header_1(), misc.tunnel_header_2(), misc.tunnel_header_3()]
    };
    let inner = tcp_frame([1, 1, 1, 1], [2, 2, 2, 2], (1, 80));
    let builder = || PacketBuilder::ethernet2([2; 6], [2; 6]).ipv4([1; 4], [2; 4], 64);
    let in_gre = |header: &[u8]| {
        let mut frame = Vec::new();
        builder().write(&mut frame, ip_number::GRE, &[header, &inner].concat()).unwrap();
        frame
    };
    let in_udp = |port: u16, header: &[u8]| {
        let mut frame = Vec::new();
        builder().udp(7, port).write(&mut frame, &[header, &inner].concat()).unwrap();
        frame
    };
    assert_eq!(words(&in_vxlan(&inner, 0x12_3456)), [0x0800_0000, 0x1234_5600, 0, 0]);
    assert_eq!(words(&in_gre(&[0x20, 0, 0x65, 0x58, 1, 2, 3, 4])), [0x2000_6558, 0x0102_0304, 0, 0]);
    assert_eq!(words(&in_gre(&[0, 0, 0x65, 0x58])), [0x6558, 0, 0, 0]);
    let geneve = [2, 0, 0x65, 0x58, 0, 0, 7, 0, 1, 2, 3, 1, 0xca, 0xfe, 0, 7];
    assert_eq!(words(&in_udp(6081, &geneve)), [0x0200_6558, 0x700, 0x0102_0301, 0xcafe_0007]);
    // No tunnel: another port, VXLAN without a network, no header of a tunnel at all.
    for none in [in_udp(4788, &[8, 0, 0, 0, 0, 0, 7, 0]), in_udp(4789, &[0, 0, 0, 0, 0, 0, 7, 0]), inner.clone()] {
        assert_eq!(words(&none), [0; 4]);
    }
}

proptest! {
    /// Headers that lie about lengths and versions, or that are cut off, give a key as others do.
    #[test]
    fn no_frame_panics(
        index in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        len in any::<prop::sample::Index>(),
    ) {
        let frames = frames_of_all_fields();
        let (mut frame, _) = index.get(&frames).clone();
        for (at, byte) in changes {
            *at.get_mut(&mut frame) = byte;
        }
        frame.truncate(len.index(frame.len() + 1));
        let key = key::of(&frame, &Registers::default(), &beside());
        // The first header is there as soon as it is whole.
        let destination: &[u8] = if frame.len() < 14 { &[0; 6] } else { &frame[..6] };
        prop_assert_eq!(&key[8..14], destination);
    }
}
