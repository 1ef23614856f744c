use etherparse::PacketBuilder;

use mlx5_prm::cqe::{RssIp, RssL4};
use mlx5_prm::ctx::RxHashFn;
use mlx5_prm::flow::{FlowContext, FlowTableContext, FteMatchParam, FteMatchSetLyr24};

use super::hash::{Hash, Hashing};
use super::*;

/// The key of the examples in Microsoft's RSS specification.
const KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b,
    0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac,
    0x01, 0xfa,
];

/// `selected_fields`: both addresses and both ports.
const PORTS: u32 = 0xf;

fn tcp(source: [u8; 4], destination: [u8; 4], ports: (u16, u16)) -> Headers {
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ipv4(source, destination, 64)
        .tcp(ports.0, ports.1, 0, 0);
    let mut frame = Vec::new();
    builder.write(&mut frame, b"x").unwrap();
    Headers::of(&frame)
}

fn hashing(fields: u32) -> Hashing {
    Hashing { function: RxHashFn::Toeplitz, key: KEY, is_symmetric: false, is_v6: false, is_udp: false, fields }
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
            .write(
                &mut frame,
                etherparse::ip_number::ENCAPSULATING_SECURITY_PAYLOAD,
                &[&spi.to_be_bytes()[..], &[0; 20]].concat(),
            )
            .unwrap();
        Headers::of(&frame)
    };
    let with_spi = hashing(3 | 1 << 4);
    assert_eq!(with_spi.of(&esp(7)).l4, RssL4::Ipsec);
    assert_ne!(with_spi.of(&esp(7)).value, with_spi.of(&esp(8)).value);
    assert_eq!(with_spi.of(&tcp([1; 4], [2; 4], (1, 2))), Hash::NONE);
}

/// A table of level `level`, with one group of 16 entries for each mask.
fn table(level: u8, miss: Miss, masks: &[FteMatchSetLyr24]) -> FlowTable {
    let mut context = FlowTableContext::ZERO;
    context.w().level(level).log_size(8);
    let mut table = FlowTable::new(context, miss);
    for (number, mask) in (0u32..).zip(masks) {
        let mut criteria = FteMatchParam::ZERO;
        criteria.w().outer_headers(mask);
        assert!(table.add_group(number + 1, FlowGroup::new(number * 16, number * 16 + 15, 1, criteria)));
    }
    table
}

fn entry(group: u32, value: &FteMatchSetLyr24, destinations: &[Destination], counters: &[u32]) -> FlowEntry {
    FlowEntry {
        group,
        value: key::bytes(value),
        destinations: destinations.to_vec(),
        counters: counters.to_vec(),
        tag: group,
        context: FlowContext::ZERO,
        list: Vec::new(),
    }
}

fn set(fill: impl FnOnce(&mut FteMatchSetLyr24)) -> FteMatchSetLyr24 {
    let mut set = FteMatchSetLyr24::ZERO;
    fill(&mut set);
    set
}

#[test]
fn the_lowest_entry_that_matches_decides_and_counts() {
    let port = set(|set| _ = set.w().tcp_dport(0xffff));
    let anything = FteMatchSetLyr24::ZERO;
    let mut first = table(0, Miss::Drop, &[port, anything]);
    let eighty = set(|set| _ = set.w().tcp_dport(80));
    first.set_entry(20, entry(2, &anything, &[Destination::Tir(9)], &[]));
    first.set_entry(3, entry(1, &eighty, &[Destination::Tir(7), Destination::Tir(8)], &[1]));
    first.set_entry(4, entry(1, &eighty, &[Destination::Tir(6)], &[]));
    let mut steering = Steering::new(&Profile::connectx5());
    steering.root = Some(steering.tables.insert(first).unwrap());
    assert_eq!(steering.counters.insert(FlowCounter::default()).unwrap(), 1);
    let web = tcp([1, 1, 1, 1], [2, 2, 2, 2], (1, 80));
    let mail = tcp([1, 1, 1, 1], [2, 2, 2, 2], (1, 25));
    let deliveries = |tirs: &[u32], tag| tirs.iter().map(|tirn| Delivery { tirn: *tirn, tag }).collect::<Vec<_>>();
    assert_eq!(steering.lookup(&web, 60), deliveries(&[7, 8], 1));
    assert_eq!(steering.lookup(&mail, 60), deliveries(&[9], 2));
    assert_eq!(*steering.counters.get(1).unwrap(), FlowCounter { packets: 1, bytes: 60 });
    // With the lowest removed, the next of the same value decides.
    assert!(steering.tables.get_mut(1).unwrap().remove_entry(3));
    assert_eq!(steering.lookup(&web, 60), deliveries(&[6], 1));
}

#[test]
fn a_frame_that_nothing_matches_goes_where_the_table_says() {
    let vlan = set(|set| _ = set.w().cvlan_tag(true));
    let mut steering = Steering::new(&Profile::connectx5());
    let mut last = table(1, Miss::Drop, &[FteMatchSetLyr24::ZERO]);
    last.set_entry(0, entry(1, &FteMatchSetLyr24::ZERO, &[Destination::Tir(3)], &[]));
    let last = steering.tables.insert(last).unwrap();
    let mut first = table(0, Miss::Table(last), &[vlan]);
    first.set_entry(0, entry(1, &vlan, &[], &[]));
    steering.root = Some(steering.tables.insert(first).unwrap());
    let mut headers = tcp([1, 1, 1, 1], [2, 2, 2, 2], (1, 80));
    assert_eq!(steering.lookup(&headers, 60), [Delivery { tirn: 3, tag: 1 }]);
    headers.tag = Some(crate::ethernet::headers::Tag { is_service: false, tci: 5 });
    assert_eq!(steering.lookup(&headers, 60), [], "no destination: dropped");
    assert!(steering.forwards_to(last) && steering.forwards_to_tir(3) && !steering.forwards_to_tir(4));
}

#[test]
fn groups_do_not_overlap() {
    let mut table = table(0, Miss::Drop, &[FteMatchSetLyr24::ZERO]);
    let group = |first, last| FlowGroup::new(first, last, 0, FteMatchParam::ZERO);
    assert!(!table.add_group(9, group(15, 20)));
    assert!(table.add_group(9, group(16, 20)));
    assert!(table.remove_group(9) && !table.remove_group(9));
}

#[test]
fn every_field_of_a_key_is_supported() {
    let mut headers = tcp([255; 4], [255; 4], (0xffff, 0xffff));
    headers.tag = Some(crate::ethernet::headers::Tag { is_service: true, tci: 0xffff });
    let key = key::of(&headers);
    assert_eq!(key::masked(&key, &key::supported()), key);
}
