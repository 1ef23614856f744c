use etherparse::{PacketBuilder, SlicedPacket, TransportSlice};
use proptest::prelude::*;

use super::headers::Tag;
use super::segment::{Indivisible, divide};
use super::*;

const MACS: ([u8; 6], [u8; 6]) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);

/// A TCP packet built by another implementation, with checksums.
fn tcp(v6: bool, payload: &[u8]) -> Vec<u8> {
    let link = PacketBuilder::ethernet2(MACS.0, MACS.1);
    let ip = if v6 { link.ipv6([1; 16], [2; 16], 9) } else { link.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 9) };
    let builder = ip.tcp(1000, 80, 7, 512).psh().ack(5).fin();
    let mut bytes = Vec::new();
    builder.write(&mut bytes, payload).unwrap();
    bytes
}

fn udp(payload: &[u8]) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2(MACS.0, MACS.1).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 9).udp(1000, 53);
    let mut bytes = Vec::new();
    builder.write(&mut bytes, payload).unwrap();
    bytes
}

#[test]
fn a_frame_with_a_tag_is_taken_apart() {
    let mut frame = udp(b"hello");
    insert_tag(&mut frame, C_VLAN, 5 << 13 | 42);
    let headers = Headers::of(&frame);
    assert_eq!((headers.source, headers.destination), MACS);
    assert_eq!(headers.tag, Some(Tag { is_service: false, tci: 5 << 13 | 42 }));
    assert_eq!(headers.ether_type, 0x0800);
    let (ip, l4) = (headers.ip.unwrap(), headers.l4.unwrap());
    assert_eq!((ip.at, ip.header_len, ip.len), (18, 20, 33));
    assert_eq!((l4.at, l4.source_port, l4.destination_port, l4.is_tcp), (38, 1000, 53, false));
    assert_eq!(strip_tag(&mut frame), Some(5 << 13 | 42));
    assert_eq!(frame, udp(b"hello"));
    assert_eq!(strip_tag(&mut frame), None);
}

#[test]
fn a_fragment_has_no_ports() {
    let mut frame = udp(b"hello");
    frame[20] |= 0x20; // more fragments
    let headers = Headers::of(&frame);
    assert!(headers.ip.unwrap().is_fragment);
    assert_eq!(headers.l4, None);
}

#[test]
fn padding_belongs_to_the_frame_and_not_to_the_packet() {
    let mut frame = udp(b"x");
    frame.resize(60, 0xee);
    let headers = Headers::of(&frame);
    assert_eq!(headers.ip.unwrap().len, 29);
    assert_eq!(checksum::verify(&frame, &headers), checksum::Verdict { l3_ok: true, l4_ok: true });
}

#[test]
fn checksums_of_another_implementation_are_found_right_and_their_damage_is_seen() {
    for mut frame in [tcp(false, b"some data"), tcp(true, b"odd"), udp(b"more")] {
        let headers = Headers::of(&frame);
        assert_eq!(checksum::verify(&frame, &headers), checksum::Verdict { l3_ok: true, l4_ok: true });
        *frame.last_mut().unwrap() ^= 1;
        assert_eq!(checksum::verify(&frame, &headers), checksum::Verdict { l3_ok: true, l4_ok: false });
        if headers.ip.unwrap().is_v4 {
            frame[22] ^= 1; // time to live
            assert!(!checksum::verify(&frame, &headers).l3_ok);
        }
    }
}

#[test]
fn checksums_put_in_are_those_of_another_implementation() {
    for frame in [tcp(false, b"some data"), tcp(true, b"odd"), udp(b"more")] {
        let headers = Headers::of(&frame);
        let (ip, l4) = (headers.ip.unwrap(), headers.l4.unwrap());
        let mut wiped = frame.clone();
        wiped[l4.checksum_at()..l4.checksum_at() + 2].fill(0xaa);
        if ip.is_v4 {
            wiped[24..26].fill(0xbb);
        }
        assert_eq!(checksum::insert_l3(&mut wiped, &ip), ip.is_v4);
        assert!(checksum::insert_l4(&mut wiped, &ip, &l4));
        assert_eq!(wiped, frame);
    }
}

#[test]
fn a_udp_packet_without_checksum_is_right_over_ipv4() {
    let mut frame = udp(b"more");
    frame[40..42].fill(0);
    assert!(checksum::verify(&frame, &Headers::of(&frame)).l4_ok);
}

#[test]
fn the_whole_sum_is_that_of_all_words_behind_the_header() {
    let mut frame = vec![0; HEADER];
    frame.extend_from_slice(&[0xff, 0xff, 0x00, 0x02, 0x01]);
    // 0xffff + 0x0002 + 0x0100, carries added back.
    assert_eq!(checksum::whole(&frame), 0x0102);
}

#[test]
fn a_large_packet_becomes_segments_that_another_implementation_accepts() {
    for v6 in [false, true] {
        let header = tcp(v6, b"");
        let payload: Vec<u8> = (0..3500u32).map(|at| at as u8).collect();
        let mut frames = Vec::new();
        divide(&header, &payload, 1000, |frame| frames.push(frame)).unwrap();
        assert_eq!(frames.len(), 4);
        let mut joined = Vec::new();
        for (number, frame) in frames.iter().enumerate() {
            let verdict = checksum::verify(frame, &Headers::of(frame));
            assert_eq!(verdict, checksum::Verdict { l3_ok: true, l4_ok: true });
            let sliced = SlicedPacket::from_ethernet(frame).unwrap();
            let Some(TransportSlice::Tcp(segment)) = sliced.transport else { panic!("segment {number}") };
            assert_eq!(segment.sequence_number(), 7 + 1000 * number as u32);
            assert_eq!((segment.psh(), segment.fin(), segment.ack()), (number == 3, number == 3, true));
            joined.extend_from_slice(segment.payload());
        }
        assert_eq!(joined, payload);
    }
}

#[test]
fn ipv4_segments_are_numbered_and_udp_segments_know_their_lengths() {
    let mut frames = Vec::new();
    divide(&udp(b""), &[7; 25], 10, |frame| frames.push(frame)).unwrap();
    let ids: Vec<_> = frames.iter().map(|frame| u16::from_be_bytes([frame[18], frame[19]])).collect();
    assert_eq!(ids, [0, 1, 2]);
    let lengths: Vec<_> = frames.iter().map(|frame| u16::from_be_bytes([frame[38], frame[39]])).collect();
    assert_eq!(lengths, [18, 18, 13]);
}

#[test]
fn what_cannot_be_divided_is_refused() {
    assert_eq!(divide(&tcp(false, b""), b"data", 0, |_| ()), Err(Indivisible::Size));
    assert_eq!(divide(&tcp(false, b"x"), b"data", 4, |_| ()), Err(Indivisible::Headers));
    assert_eq!(divide(&[0; 14], b"data", 4, |_| ()), Err(Indivisible::Headers));
}

proptest! {
    #[test]
    fn no_frame_panics(mut frame in proptest::collection::vec(any::<u8>(), 0..200), kind in 0..4u8) {
        if frame.len() > 14 && kind < 3 {
            frame[12..14].copy_from_slice(&[[8, 0], [0x86, 0xdd], [0x81, 0]][usize::from(kind)]);
        }
        let headers = Headers::of(&frame);
        checksum::verify(&frame, &headers);
        checksum::whole(&frame);
        let _ = divide(&frame, &[1; 100], 30, |_| ());
        let mut copy = frame.clone();
        if let (Some(ip), Some(l4)) = (headers.ip, headers.l4) {
            checksum::insert_l3(&mut copy, &ip);
            checksum::insert_l4(&mut copy, &ip, &l4);
        }
        strip_tag(&mut copy);
        insert_tag(&mut copy, C_VLAN, 1);
    }
}
