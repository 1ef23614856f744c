use etherparse::{IpHeaders, IpNumber, PacketBuilder, PacketBuilderStep, SlicedPacket, TransportSlice};
use proptest::prelude::*;

use super::headers::Tag;
use super::segment::{Indivisible, Segments};
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

/// Divides a packet that is in no tunnel.
fn divide(header: &[u8], payload: &[u8], size: usize, sink: impl FnMut(Vec<u8>)) -> Result<(), Indivisible> {
    let layers = Layers::outer_of(header).ok_or(Indivisible::Headers)?;
    let packet = [header, payload].concat();
    Segments::new(layers, packet, header.len(), size, false).map(|segments| segments.for_each(sink))
}

/// Divides a packet with whatever header into what it can be divided into.
fn divide_any(layers: Layers, header: &[u8]) {
    let packet = [header, &[1; 100]].concat();
    if let Ok(segments) = Segments::new(layers, packet, header.len(), 30, true) {
        segments.for_each(drop);
    }
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

/// A frame of IPv6 with the extension headers `extensions`, of which the first has number `first`.
fn extended(first: u8, extensions: &[u8]) -> Vec<u8> {
    let mut frame = [&[2; 12][..], &[0x86, 0xdd]].concat();
    frame.extend([0x60, 0, 0, 0, 0, extensions.len() as u8, first, 64]);
    frame.extend([1; 32]);
    frame.extend(extensions);
    frame
}

#[test]
fn an_authentication_header_is_found_behind_other_extensions() {
    // Destination options, then AH of 12 bytes and 4 of authentication, of a TCP packet.
    let options = [51, 0, 1, 4, 0, 0, 0, 0];
    let authentication = [6, 2, 0, 0, 0xa1, 0xa2, 0xa3, 0xa4, 0, 0, 0, 1, 9, 9, 9, 9];
    let headers = Headers::of(&extended(60, &[&options[..], &authentication].concat()));
    assert_eq!((headers.spi, headers.ip.unwrap().protocol), (Some(0xa1a2_a3a4), 51));
}

#[test]
fn a_packet_that_ends_amid_its_extensions_is_read_no_further() {
    // Options, routing and AH that are longer than what is left, and a header out of its place.
    for (first, extensions) in [
        (60, &[6, 9, 1, 4, 0, 0, 0, 0][..]),
        (43, &[6, 0, 0]),
        (60, &[51, 0, 1, 4, 0, 0, 0, 0, 6, 200, 0, 0]),
        (60, &[0, 0, 1, 4, 0, 0, 0, 0]),
        (44, &[]),
    ] {
        let headers = Headers::of(&extended(first, extensions));
        assert_eq!((headers.spi, headers.l4), (None, None), "{first} {extensions:?}");
    }
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
fn ipv4_segments_are_numbered_and_udp_segments_keep_their_length() {
    let mut frames = Vec::new();
    // A header with the length of a segment.
    divide(&udp(&[7; 10])[..42], &[7; 30], 10, |frame| frames.push(frame)).unwrap();
    let ids: Vec<_> = frames.iter().map(|frame| u16::from_be_bytes([frame[18], frame[19]])).collect();
    assert_eq!(ids, [0, 1, 2]);
    let lengths: Vec<_> = frames.iter().map(|frame| u16::from_be_bytes([frame[38], frame[39]])).collect();
    assert_eq!(lengths, [18; 3]);
}

#[test]
fn what_cannot_be_divided_is_refused() {
    assert_eq!(divide(&tcp(false, b""), b"data", 0, |_| ()), Err(Indivisible::Size));
    assert_eq!(divide(&tcp(false, b"x"), b"data", 4, |_| ()), Err(Indivisible::Headers));
    assert_eq!(divide(&[0; 14], b"data", 4, |_| ()), Err(Indivisible::Headers));
}

/// A frame in a tunnel that another implementation built as far as it can: outer headers, what is behind them.
fn in_tunnel(around: PacketBuilderStep<IpHeaders>, next: Next, header: &[u8], inner: &[u8]) -> Vec<u8> {
    let (mut frame, payload) = (Vec::new(), [header, inner].concat());
    match next {
        Next::Udp(port) => around.udp(1000, port).write(&mut frame, &payload).unwrap(),
        Next::Protocol(number) => around.write(&mut frame, IpNumber(number), &payload).unwrap(),
    }
    frame
}

/// What follows the outer network header.
#[derive(Clone, Copy)]
enum Next {
    Udp(u16),
    Protocol(u8),
}

#[test]
fn what_is_in_a_tunnel_has_its_headers_in_the_outer_frame() {
    let inner = tcp(false, b"data");
    let mut ports = VxlanPorts::default();
    assert!(ports.add(8472, 2) && ports.add(8472, 2) && ports.add(4789, 2) && !ports.add(1, 2));
    for (next, header, skipped, vni) in [
        (Next::Udp(4789), &[8, 0, 0, 0, 0, 1, 2, 0][..], 0, Some(0x102)),
        (Next::Udp(8472), &[8, 0, 0, 0, 0, 0, 9, 0], 0, Some(9)),
        (Next::Udp(6081), &[1, 0, 0x65, 0x58, 0, 0, 9, 0, 0, 0, 0, 0], 0, None),
        (Next::Udp(6081), &[0, 0, 8, 0, 0, 0, 9, 0], HEADER, None),
        (Next::Protocol(47), &[0xb0, 0, 0x65, 0x58, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2], 0, None),
        (Next::Protocol(47), &[0, 0, 8, 0], HEADER, None),
        (Next::Protocol(4), &[], HEADER, None),
    ] {
        for v6 in [false, true] {
            let link = PacketBuilder::ethernet2(MACS.0, MACS.1);
            let around = if v6 { link.ipv6([3; 16], [4; 16], 9) } else { link.ipv4([1; 4], [2; 4], 9) };
            let frame = in_tunnel(around, next, header, &inner[skipped..]);
            let tunnel = Tunnel::of(&frame, &Headers::of(&frame), &ports).unwrap();
            let at = frame.len() - inner.len() + skipped;
            assert_eq!((tunnel.inner_at, tunnel.is_frame, tunnel.vni), (at, skipped == 0, vni));
            assert_eq!(frame[tunnel.inner.l4.unwrap().at..], inner[HEADER + 20..]);
            assert_eq!(checksum::verify(&frame, &tunnel.inner), checksum::Verdict { l3_ok: true, l4_ok: true });
            let has_default = !matches!(next, Next::Udp(8472));
            let known = Tunnel::of(&frame, &Headers::of(&frame), &VxlanPorts::default());
            assert_eq!(known.is_some(), has_default);
        }
    }
    assert!(ports.remove(8472) && !ports.remove(8472) && ports.remove(4789) && ports.contains(4789));
}

proptest! {
    /// No frame from the wire, and no header that software gives, makes the card panic, in tunnels as well.
    #[test]
    fn no_frame_in_a_tunnel_panics(
        header in proptest::collection::vec(any::<u8>(), 0..24),
        inner in proptest::collection::vec(any::<u8>(), 0..120),
        kind in 0..6usize,
        v6 in any::<bool>(),
        offsets in any::<[u8; 4]>(),
        cut in 0..200usize,
    ) {
        let link = PacketBuilder::ethernet2(MACS.0, MACS.1);
        let around = if v6 { link.ipv6([3; 16], [4; 16], 9) } else { link.ipv4([1; 4], [2; 4], 9) };
        let next = [Next::Udp(4789), Next::Udp(6081), Next::Protocol(47), Next::Protocol(4), Next::Protocol(41),
            Next::Protocol(6)][kind];
        let whole = tcp(!v6, &inner);
        let inner = if offsets[0] & 1 == 0 { inner } else { whole };
        let mut frame = in_tunnel(around, next, &header, &inner);
        frame.truncate(cut.max(HEADER));
        let headers = Headers::of(&frame);
        if let Some(tunnel) = Tunnel::of(&frame, &headers, &VxlanPorts::default()) {
            prop_assert!(tunnel.inner_at <= frame.len());
            checksum::verify(&frame, &tunnel.inner);
        }
        if let Some(layers) = Layers::of(&frame, &VxlanPorts::default()) {
            divide_any(layers, &frame);
        }
        let [a, b, c, d] = offsets.map(usize::from);
        let told = [Layer::told(&frame, a / 4, v6, b / 2, c & 1 == 0), Layer::told(&frame, c, !v6, d, d & 1 == 0)];
        if let [Some(outer), inner] = told {
            divide_any(Layers { outer, inner }, &frame);
        }
    }

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
