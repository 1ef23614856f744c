//! Large receive offload: what one end's card divides, the other's joins, and each packet is one again.

use std::sync::Arc;
use std::time::Instant;

use etherparse::{Ipv4Header, PacketBuilder, TcpHeader, TcpOptionElement};
use mlx5_dv::objects::{AccessFlags, LroOptions, MemoryRegion, Pd, Rqt, RssOptions, Tir, Traffic};
use mlx5_dv::queue::ethernet::{EthernetOptions, EthernetQueue, FrameCompletion, StridingOptions, StridingQueue};
use mlx5_dv::{Device, Error};
use mlx5_open::Sim;
use mlx5_sim::profile::Profile;

use crate::ends::{EthernetEnd, SOON, refusal};

pub const MSS: u16 = 1448;
/// Headers of Ethernet, IPv4, and TCP with a timestamp.
pub const HEADERS: usize = 14 + 20 + 32;
/// Times that a packet is sent until it arrives in one piece: on a busy machine the card's timer may come between.
pub const TRIES: u32 = 200;

/// A TCP packet with right lengths and checksums, and the PSH flag.
pub fn packet(here: &EthernetEnd, to: &Device, data: &[u8]) -> Vec<u8> {
    let mut header = TcpHeader::new(1000, 2000, u32::MAX - 5000, 500);
    (header.acknowledgment_number, header.ack, header.psh) = (77, true, true);
    header.set_options(&[TcpOptionElement::Noop, TcpOptionElement::Noop, TcpOptionElement::Timestamp(3, 4)]).unwrap();
    let link = PacketBuilder::ethernet2(here.device.mac().0, to.mac().0);
    let mut bytes = Vec::new();
    link.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).tcp_header(header).write(&mut bytes, data).unwrap();
    bytes
}

pub fn send(here: &mut EthernetEnd, packet: &[u8]) {
    let region = MemoryRegion::allocate(&here.pd, 1 << 16, AccessFlags::LOCAL_WRITE).unwrap();
    let mut buffer = region.buffer(0..packet.len()).unwrap();
    buffer.write(0, packet);
    here.queue.send_large(buffer, HEADERS, MSS).unwrap();
    here.queue.wait(SOON).unwrap().result.unwrap();
}

/// Sends a packet that becomes `segments` frames until `next` has received them as one again; of pieces the checksums
/// must be right, too.
fn arrives(here: &mut EthernetEnd, to: &Device, segments: u8, mut next: impl FnMut() -> (Vec<u8>, FrameCompletion)) {
    let data: Vec<u8> = (0..usize::from(segments) * usize::from(MSS)).map(|at| (at * 7) as u8).collect();
    let sent = packet(here, to, &data);
    for _ in 0..TRIES {
        send(here, &sent);
        let mut heard = Vec::new();
        loop {
            let (frame, completion) = next();
            let (ip, _) = Ipv4Header::from_slice(&frame[14..]).unwrap();
            let (tcp, payload) = TcpHeader::from_slice(&frame[34..]).unwrap();
            assert_eq!((ip.header_checksum, usize::from(ip.total_len)), (ip.calc_header_checksum(), frame.len() - 14));
            assert_eq!(tcp.checksum, tcp.calc_checksum_ipv4_raw(ip.source, ip.destination, payload).unwrap());
            assert!(completion.l4_checksum_ok());
            heard.extend_from_slice(payload);
            if completion.joined().is_some_and(|joined| joined.segments == segments) {
                let joined = completion.joined().unwrap();
                assert_eq!(frame, sent, "the packet as it was before it was divided");
                assert_eq!((joined.is_pushed, joined.ack, joined.timestamp), (true, Some((77, 500)), Some((3, 4))));
                return;
            }
            if tcp.psh {
                break;
            }
        }
        assert_eq!(heard, data);
    }
    panic!("never in one piece");
}

pub fn ethernet(lro: LroOptions) -> EthernetOptions {
    let mut options = EthernetOptions::default();
    (options.inline_bytes, options.recv_depth) = (100, 8);
    options.lro(lro)
}

fn two() -> (Sim, EthernetEnd, Arc<Pd>) {
    let sim = Sim::builder().functions(2).build().unwrap();
    let mut options = EthernetOptions::default();
    options.inline_bytes = 100;
    let here = EthernetEnd::new(&sim, 0, options);
    let pd = Pd::alloc(&sim.open(1).unwrap()).unwrap();
    (sim, here, pd)
}

#[test]
fn what_the_card_divided_arrives_as_it_was() {
    let (sim, mut here, pd) = two();
    let lro = LroOptions::default().frame_bytes(16_000).timeout_usecs(1024);
    let mut there = EthernetQueue::new(&pd, ethernet(lro)).unwrap();
    assert_eq!(there.longest_received(), 16_000);
    there.listen(&[]).unwrap();
    let region = MemoryRegion::allocate(&pd, 8 << 14, AccessFlags::LOCAL_WRITE).unwrap();
    for buffer in 0..8 {
        there.receive(region.buffer(buffer << 14..(buffer + 1) << 14).unwrap()).unwrap();
    }
    for segments in [2, 3, 10] {
        let device = Arc::clone(there.device());
        arrives(&mut here, &device, segments, || {
            let done = there.wait(SOON).unwrap();
            let (completion, buffer) = (done.result.unwrap(), done.buffer.unwrap());
            let mut frame = vec![0; completion.byte_len as usize];
            buffer.read(0, &mut frame);
            there.receive(buffer).unwrap();
            (frame, completion)
        });
    }
    drop((there, here));
    assert_eq!(sim.violations(), []);
}

#[test]
fn a_slice_of_a_large_buffer_is_the_packet_as_it_was() {
    let (sim, mut here, pd) = two();
    let mut there = StridingQueue::new(&pd, StridingOptions::default().lro(LroOptions::default())).unwrap();
    there.listen(&[]).unwrap();
    let device = Arc::clone(there.device());
    // The 128 KiB of a buffer hold three of the largest and a part of a fourth.
    for segments in [20, 25, 2, 24] {
        arrives(&mut here, &device, segments, || {
            let packet = there.wait(SOON).unwrap();
            (packet.to_vec(), *packet.completion())
        });
    }
    drop((there, here));
    assert_eq!(sim.violations(), []);
}

/// Between others, which are as they were on the wire.
#[test]
fn a_burst_lends_joined_segments_as_one_packet() {
    let (sim, mut here, pd) = two();
    let lro = LroOptions::default().timeout_usecs(1024);
    let mut there = StridingQueue::new(&pd, StridingOptions::default().lro(lro)).unwrap();
    there.listen(&[]).unwrap();
    let data = vec![7; 5 * usize::from(MSS)];
    let (large, small) = (packet(&here, there.device(), &data), packet(&here, there.device(), &data[..MSS.into()]));
    let mut is_whole = false;
    for _ in 0..TRIES {
        for packet in [&small, &large, &small] {
            send(&mut here, packet);
        }
        let (mut heard, mut smalls, end) = (0, 0, Instant::now() + SOON);
        while heard < data.len() + 2 * usize::from(MSS) {
            assert!(Instant::now() < end, "only {heard} bytes came");
            for frame in there.burst(8).unwrap() {
                heard += frame.len() - HEADERS;
                smalls += usize::from(frame == small);
                is_whole |= frame == large;
            }
        }
        assert_eq!(smalls, 2);
        if is_whole {
            break;
        }
    }
    assert!(is_whole, "never in one piece");
    drop((there, here));
    assert_eq!(sim.violations(), []);
}

#[test]
fn what_the_card_cannot_do_is_refused_by_the_capabilitys_name() {
    let refuses = |mut profile: Profile, lro: LroOptions, named: &str| {
        if named == "lro_cap" {
            profile.ethernet.w().lro_cap(false);
        }
        let sim = Sim::builder().profile(profile).build().unwrap();
        let pd = Pd::alloc(&sim.open(0).unwrap()).unwrap();
        let result = EthernetQueue::new(&pd, ethernet(lro));
        assert_eq!(matches!(&result, Err(Error::Unsupported { .. })), named == "lro_cap");
        let text = refusal(result);
        assert!(text.contains(named), "{text}");
        let text = refusal(StridingQueue::new(&pd, StridingOptions::default().lro(lro)));
        assert!(text.contains(named), "{text}");
    };
    let all = LroOptions::default();
    refuses(Profile::connectx5(), all, "lro_cap");
    refuses(Profile::connectx6dx(), all.frame_bytes(LroOptions::MOST + 1), "lro_max_msg_sz_mode");
    refuses(Profile::connectx7(), all.frame_bytes(317), "frame_bytes");
    refuses(Profile::connectx5(), all.timeout_usecs(33), "lro_timer_supported_periods");
    refuses(Profile::connectx5(), all.ipv4(false).ipv6(false), "a kind of IP");
    let sim = Sim::builder().build().unwrap();
    let pd = Pd::alloc(&sim.open(0).unwrap()).unwrap();
    let queue = EthernetQueue::new(&pd, EthernetOptions::default()).unwrap();
    let (rqt, domain) = (Rqt::create(&[Arc::clone(queue.rq())]).unwrap(), queue.tir().transport_domain());
    assert!(refusal(Tir::create_rss(domain, &rqt, RssOptions::new(Traffic::UdpIpv4).lro(all))).contains("TCP"));
    let tir = Tir::create_rss(domain, &rqt, RssOptions::new(Traffic::TcpIpv6).lro(all)).unwrap();
    assert_eq!(tir.lro(), Some(all));
}
