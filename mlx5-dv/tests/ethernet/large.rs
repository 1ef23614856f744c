//! Packets that the card divides into frames.

use mlx5_dv::Mac;
use mlx5_dv::objects::{AccessFlags, MemoryRegion};
use mlx5_dv::queue::ethernet::EthernetOptions;
use mlx5_dv::queue::{PostError, Refused, RefusedReason};
use mlx5_open::Sim;
use mlx5_sim::profile::Profile;

use crate::ends::{EthernetEnd, SOON, end, two_of};

/// Headers of Ethernet and IP.
const TO_IPV4: usize = 14 + 20;
const TO_IPV6: usize = 14 + 40;
/// Sequence number of the packet: the frames' go across the wrap.
const SEQUENCE: u32 = u32::MAX - 1500;
/// TCP's flags: ACK, PSH, FIN and CWR.
const FLAGS: u8 = 0x99;

pub fn options() -> EthernetOptions {
    let mut options = EthernetOptions::default();
    options.inline_bytes = 100;
    options
}

pub fn ethernet(here: &EthernetEnd, to: Mac, kind: u16) -> Vec<u8> {
    [&to.0[..], &here.device.mac().0, &kind.to_be_bytes()].concat()
}

/// Headers of a TCP packet over IPv4, with twelve bytes of TCP options.
pub fn tcp(here: &EthernetEnd, to: Mac) -> Vec<u8> {
    let mut ip = vec![0x45, 0, 0, 0, 0x12, 0x34, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    ip.extend([0x30, 0x39, 0, 80]);
    ip.extend(SEQUENCE.to_be_bytes());
    ip.extend([0, 0, 0, 7, 0x80, FLAGS, 1, 0, 0, 0, 0, 0]);
    ip.extend([1; 12]);
    [ethernet(here, to, 0x0800), ip].concat()
}

/// Headers of a UDP packet over IPv6.
pub fn udp(here: &EthernetEnd, to: Mac) -> Vec<u8> {
    let mut ip = vec![0x60, 0, 0, 0, 0, 0, 17, 64];
    ip.extend([0xfd; 32]);
    ip.extend([0x30, 0x39, 0x13, 0x89, 0, 0, 0, 0]);
    [ethernet(here, to, 0x86dd), ip].concat()
}

fn post(here: &mut EthernetEnd, packet: &[u8], headers: usize, mss: u16) -> Result<(), Refused> {
    let region = MemoryRegion::allocate(&here.pd, 1 << 16, AccessFlags::LOCAL_WRITE).unwrap();
    let mut buffer = region.buffer(0..packet.len()).unwrap();
    buffer.write(0, packet);
    let ticket = here.queue.send_large(buffer, headers, mss)?;
    let done = here.queue.wait(SOON).unwrap();
    assert_eq!((done.ticket, done.result.map(|_| ())), (ticket, Ok(())), "one completion for all");
    Ok(())
}

/// The one's complement sum of `bytes`.
pub fn sum(bytes: &[u8]) -> u32 {
    let pair = |pair: &[u8]| u32::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u32::from);
    let sum: u32 = bytes.chunks(2).map(pair).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    (folded & 0xffff) + (folded >> 16)
}

/// Whether the checksum of `segment`, behind addresses of `addresses` for `protocol`, is right.
pub fn is_checked(addresses: &[u8], protocol: u8, segment: &[u8]) -> bool {
    let len = (segment.len() as u32).to_be_bytes();
    sum(&[addresses, &len, &[0, 0, 0, protocol], segment].concat()) == 0xffff
}

pub fn be16(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
}

#[test]
fn a_tcp_packet_becomes_frames_in_sequence() {
    let (sim, mut here, mut there) = two_of(Sim::builder(), options());
    let headers = tcp(&here, there.device.mac());
    let payload: Vec<u8> = (0..5300u32).map(|at| (at * 7) as u8).collect();
    there.post(6);
    post(&mut here, &[&headers[..], &payload].concat(), headers.len(), 1000).unwrap();
    for (number, part) in payload.chunks(1000).enumerate() {
        let frame = there.heard();
        let (ip, tcp) = (&frame[14..TO_IPV4], &frame[TO_IPV4..]);
        assert_eq!((&frame[..14], &frame[headers.len()..]), (&headers[..14], part), "frame {number}");
        assert_eq!((be16(ip, 2), be16(ip, 4)), (frame.len() - 14, 0x1234 + number), "length and identification");
        assert_eq!(sum(ip), 0xffff);
        let sequence = SEQUENCE.wrapping_add(1000 * number as u32).to_be_bytes();
        assert_eq!((&tcp[4..8], &tcp[20..32]), (&sequence[..], &[1; 12][..]));
        let flags = match number {
            0 => 0x90,
            5 => 0x19,
            _ => 0x10,
        };
        assert_eq!(tcp[13], flags, "CWR in the first, PSH and FIN in the last");
        assert!(is_checked(&ip[12..20], 6, tcp));
    }
    end(sim, [here, there], &[]);
}

#[test]
fn a_udp_packet_becomes_datagrams_of_their_own() {
    let (sim, mut here, mut there) = two_of(Sim::builder(), options());
    let headers = udp(&here, there.device.mac());
    let payload: Vec<u8> = (0..4200u32).map(|at| (at * 3) as u8).collect();
    there.post(3);
    post(&mut here, &[&headers[..], &payload].concat(), headers.len(), 1400).unwrap();
    for part in payload.chunks(1400) {
        let frame = there.heard();
        let (ip, udp) = (&frame[14..TO_IPV6], &frame[TO_IPV6..]);
        assert_eq!((be16(ip, 4), be16(udp, 4), &udp[8..]), (udp.len(), udp.len(), part));
        assert!(is_checked(&ip[8..40], 17, udp));
    }
    end(sim, [here, there], &[]);
}

#[test]
fn what_cannot_be_divided_is_refused_by_name() {
    let (sim, mut here, there) = two_of(Sim::builder(), options());
    let headers = tcp(&here, there.device.mac());
    let (len, packet) = (headers.len(), [&headers[..], &[5; 3000]].concat());
    let most = here.queue.sq().longest_frame() - len;
    let mut refused = |packet: &[u8], headers, mss| match post(&mut here, packet, headers, mss).unwrap_err().reason {
        RefusedReason::Post(error) => error,
        reason => panic!("{reason}"),
    };
    for given in [0, 13, TO_IPV4, len - 1, len + 1, 139, 5000] {
        let error = refused(&packet, given, 1000);
        let is_named = matches!(error, PostError::LargeSendHeaders { .. } | PostError::FrameInlineTooLong { .. });
        assert!(is_named, "{given}: {error}");
    }
    for given in [0, most as u16 + 1, u16::MAX] {
        assert_eq!(refused(&packet, len, given), PostError::SegmentLength { given, most });
    }
    assert_eq!(refused(&headers, len, 1000), PostError::LargeSendLength { given: 0, most: 1 << 18 });
    let datagrams = udp(&there, there.device.mac());
    let unequal = PostError::UnequalDatagrams { given: 3000, mss: 1400 };
    assert_eq!(refused(&[&datagrams[..], &[5; 3000]].concat(), datagrams.len(), 1400), unequal);
    let arp = [&ethernet(&there, there.device.mac(), 0x0806)[..], &[0; 60]].concat();
    assert_eq!(refused(&arp, 18, 1000), PostError::LargeSendHeaders { given: 18 });
    end(sim, [here, there], &[]);
}

#[test]
fn a_card_that_divides_nothing_says_so() {
    let mut profile = Profile::connectx5();
    profile.ethernet.w().max_lso_cap(0);
    let (sim, mut here, there) = two_of(Sim::builder().profile(profile), options());
    let headers = tcp(&here, there.device.mac());
    let error = post(&mut here, &[&headers[..], &[5; 3000]].concat(), headers.len(), 1000).unwrap_err();
    assert_eq!(error.reason, RefusedReason::Post(PostError::NoLargeSend));
    assert!(error.to_string().contains("max_lso_cap"), "{error}");
    drop(error);
    end(sim, [here, there], &[]);
}
