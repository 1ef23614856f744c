//! Frames that are received, and frames that are not.

use std::time::Duration;

use mlx5_dv::Mac;
use mlx5_dv::queue::ethernet::{EthernetOptions, FrameFlags};
use mlx5_open::Sim;
use mlx5_sim::profile::Profile;

use crate::ends::{BUFFER, EthernetEnd, SOON, end, two, two_of};

#[test]
fn frames_of_every_length_arrive_whole() {
    let (sim, mut here, mut there) = two();
    there.post(8);
    let to = there.device.mac();
    for len in [14, 15, 60, 64, 1000, 1514] {
        let payload: Vec<u8> = (0..len - 14).map(|at| (at * 7) as u8).collect();
        let frame = here.frame(to, &payload);
        here.send(&frame);
        assert_eq!(there.heard(), frame);
    }
    end(sim, [here, there], &[]);
}

#[test]
fn a_frame_in_the_work_request_needs_no_memory() {
    // A ring of 16 WQEBBs, so that some WQEs wrap.
    let mut options = EthernetOptions::default();
    (options.inline_bytes, options.send_depth) = (200, 3);
    let (sim, mut here, mut there) = two_of(Sim::builder(), options);
    there.post(30);
    for (number, len) in
        [14, 200, 16, 200, 17, 200, 32, 200, 33, 200, 100, 200].into_iter().cycle().take(30).enumerate()
    {
        let payload: Vec<u8> = (14..len).map(|at| (at * 7 + number) as u8).collect();
        let frame = here.frame(there.device.mac(), &payload);
        here.queue.send_inline(&frame, FrameFlags::empty()).unwrap();
        here.queue.wait(SOON).unwrap().result.unwrap();
        assert_eq!(there.heard(), frame);
    }
    end(sim, [here, there], &[]);
}

#[test]
fn many_frames_go_round_the_rings_and_buffers_come_back_to_be_used_again() {
    let mut options = EthernetOptions::default();
    (options.send_depth, options.recv_depth, options.events) = (4, 8, true);
    let (sim, mut here, mut there) = two_of(Sim::builder(), options);
    there.post(8);
    for number in 0..100u8 {
        let frame = here.frame(there.device.mac(), &[number; 100]);
        here.send(&frame);
        let done = there.queue.wait(SOON).unwrap();
        assert_eq!(done.result.unwrap().byte_len, 114);
        let buffer = done.buffer.unwrap();
        let mut last = [0];
        buffer.read(113, &mut last);
        assert_eq!(last, [number]);
        there.queue.receive(buffer).unwrap();
    }
    assert_eq!((here.queue.in_flight(), there.queue.in_flight()), ((0, 0), (0, 8)));
    end(sim, [here, there], &[]);
}

#[test]
fn only_what_is_listened_to_is_heard() {
    let (sim, mut here, mut there) = two();
    there.post(8);
    let group = Mac::of_group("ff02::1:ff00:1".parse().unwrap());
    let stranger = Mac([2, 0, 0, 0, 0, 0x77]);
    let silent = Duration::from_millis(20);
    for mac in [group, stranger] {
        here.send(&here.frame(mac, b"not for you"));
    }
    here.send(&here.frame(Mac::BROADCAST, b"to all"));
    assert_eq!(there.heard()[14..], *b"to all", "and not what was sent before");
    there.queue.listen(&[group]).unwrap();
    here.send(&here.frame(group, b"to some"));
    assert_eq!(there.heard()[14..], *b"to some");
    there.queue.listen(&[]).unwrap();
    here.send(&here.frame(group, b"to others"));
    here.send(&here.frame(there.device.mac(), b"to you"));
    assert_eq!(there.heard()[14..], *b"to you");
    assert!(there.queue.wait(silent).is_err());
    end(sim, [here, there], &[]);
}

#[test]
fn checksums_are_filled_in_where_that_is_asked_for() {
    let (sim, mut here, mut there) = two();
    there.post(2);
    let (to, from) = (there.device.mac().0, here.device.mac().0);
    let mut right = Vec::new();
    let builder = etherparse::PacketBuilder::ethernet2(from, to).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(1000, 2000);
    builder.write(&mut right, b"protected").unwrap();
    let mut wiped = right.clone();
    wiped[24..26].fill(0);
    wiped[40..42].fill(0);
    let mut buffer = here.buffer(30);
    buffer.write(0, &wiped);
    buffer.set_len(wiped.len());
    here.queue.send(buffer, FrameFlags::L3_CHECKSUM | FrameFlags::L4_CHECKSUM).unwrap();
    assert_eq!(there.heard(), right);
    end(sim, [here, there], &[]);
}

/// A card that requires the Ethernet header in the WQE.
pub fn with_inlined_header() -> Profile {
    let mut profile = Profile::default();
    profile.ethernet.w().wqe_inline_mode(0);
    profile
}

#[test]
fn headers_are_inlined_where_the_card_insists() {
    let (sim, mut here, mut there) = two_of(Sim::builder().profile(with_inlined_header()), EthernetOptions::default());
    there.post(4);
    for len in [14, 17, 19, 1514] {
        let frame = here.frame(there.device.mac(), &vec![9; len - 14]);
        here.send(&frame);
        assert_eq!(there.heard(), frame);
    }
    end(sim, [here, there], &[]);
}

#[test]
fn a_function_does_not_hear_its_own_groups() {
    let (sim, mut here, there) = two();
    here.queue.listen(&[]).unwrap();
    here.post(1);
    here.send(&here.frame(Mac::BROADCAST, b"hello"));
    assert!(here.queue.wait(Duration::from_millis(20)).is_err());
    end(sim, [here, there], &[]);
}

#[test]
fn frames_while_connections_are_at_work_reach_their_own_queue() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let mut options = EthernetOptions::default();
    options.recv_depth = 4;
    let (mut here, mut there) = (EthernetEnd::new(&sim, 0, options.clone()), EthernetEnd::new(&sim, 1, options));
    there.queue.listen(&[]).unwrap();
    there.post(4);
    let mut a = mlx5_dv::queue::Connection::new(&here.pd, Default::default()).unwrap();
    let mut b = mlx5_dv::queue::Connection::new(&there.pd, Default::default()).unwrap();
    b.connect(&a.local().unwrap()).unwrap();
    a.connect(&b.local().unwrap()).unwrap();
    for number in 0..4 {
        b.receive(there.buffer(10 + number)).unwrap();
        let mut message = here.buffer(number);
        message.set_len(100);
        a.send_blocking(message, SOON).unwrap();
        assert_eq!(b.wait(SOON).unwrap().result.unwrap().byte_len, 100);
        let frame = here.frame(there.device.mac(), &[number as u8; BUFFER / 2]);
        here.send(&frame);
        assert_eq!(there.heard(), frame);
    }
    drop((a, b));
    end(sim, [here, there], &[]);
}
