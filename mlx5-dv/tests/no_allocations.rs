//! Messages need no allocation after set-up: a ping-pong with an allocator that counts per thread.

#[allow(dead_code, reason = "shared with the tests of frames")]
#[path = "ethernet/ends.rs"]
mod ends;
mod game;
#[allow(dead_code, reason = "shared with the tests of frames")]
#[path = "ethernet/sender.rs"]
mod sender;

use std::hint::black_box;
use std::time::Instant;

use ends::{EthernetEnd, SOON};
use etherparse::{PacketBuilder, TcpHeader};
use game::Game;
use game::frames::Frames;
use mlx5_dv::objects::{AccessFlags, Buffer, Compression, ExclusiveRegion, LroOptions, MemoryRegion, Pd};
use mlx5_dv::queue::ethernet::{EthernetOptions, EthernetQueue, FrameFlags, StridingOptions, StridingQueue};
use mlx5_dv::queue::{Connection, ConnectionOptions, Side};
use mlx5_open::Sim;
use mlx5_sim::dma::Purpose;
use mlx5_sim::profile::Profile;
use sender::Sender;

const EXCHANGES: u64 = 10_000;

#[test]
fn messages_allocate_nothing() {
    let mut game = Game::new().expect("a game");
    game.play(100).expect("a warm-up");
    let mut outcome = Ok(());
    let counted = allocation_counter::measure(|| outcome = game.play(EXCHANGES));
    outcome.expect("a game to the end");
    assert_eq!(counted.count_total, 0, "in {EXCHANGES} exchanges: {counted:?}");
    assert_eq!(counted.count_current, 0, "and nothing is freed either: {counted:?}");
}

/// Sends `buffer`, waits for its arrival, and returns it.
fn pass(here: &mut EthernetEnd, there: &mut EthernetEnd, buffer: Buffer) -> Buffer {
    here.queue.send(buffer, FrameFlags::L4_CHECKSUM).unwrap();
    let buffer = here.queue.wait(SOON).unwrap().buffer;
    let heard = there.queue.wait(SOON).unwrap();
    assert_eq!(heard.result.unwrap().byte_len, 100);
    there.queue.receive(heard.buffer.unwrap()).unwrap();
    buffer.unwrap()
}

#[test]
fn frames_allocate_nothing() {
    let (_sim, mut here, mut there) = ends::two();
    there.post(8);
    let mut buffer = here.buffer(31);
    buffer.write(0, &here.frame(there.device.mac(), &[0; 86]));
    buffer.set_len(100);
    let mut buffer = Some(pass(&mut here, &mut there, buffer));
    let counted = allocation_counter::measure(|| {
        for _ in 0..1000 {
            buffer = buffer.take().map(|buffer| pass(&mut here, &mut there, buffer));
        }
    });
    assert_eq!((counted.count_total, counted.count_current), (0, 0), "{counted:?}");
}

/// A vector of one frame, and of several, keeps its memory for the next.
#[test]
fn vectors_of_frames_allocate_nothing() {
    play_vectors(Profile::default(), EthernetOptions::default());
}

/// As above, where every other frame is copied: by multi-packet work requests, and on a card that has none.
#[test]
fn vectors_of_frames_that_are_copied_by_length_allocate_nothing() {
    let mut without = Profile::default();
    without.ethernet.w().enhanced_multi_pkt_send_wqe(false);
    for profile in [Profile::default(), without] {
        play_vectors(profile, EthernetOptions::default().inline_up_to(60));
    }
}

/// Vectors of one frame to eight, of 60 and 100 bytes in turn.
fn play_vectors(profile: Profile, options: EthernetOptions) {
    let (_sim, mut here, mut there) = ends::two_of(Sim::builder().profile(profile), options);
    there.post(8);
    let frame = here.frame(there.device.mac(), &[0; 86]);
    let mut free: Vec<Buffer> = (24..32).map(|index| here.buffer(index)).collect();
    free.iter_mut().zip([60, 100].into_iter().cycle()).for_each(|(buffer, len)| {
        buffer.write(0, &frame);
        buffer.set_len(len);
    });
    let (mut next, mut received, mut posts) = (Vec::with_capacity(8), Vec::with_capacity(8), Vec::with_capacity(8));
    let mut play = |rounds: usize| {
        for count in (0..rounds).map(|round| round % 8 + 1) {
            next.extend(free.drain(8 - count..));
            here.queue.batch().send_each(&mut next, FrameFlags::L4_CHECKSUM).unwrap();
            let deadline = Instant::now() + SOON;
            while received.len() < count || free.len() < 8 {
                assert!(Instant::now() < deadline, "{} of {count} frames came", received.len());
                assert!(there.queue.poll_into(&mut received, &mut posts, 8).unwrap().is_none());
                assert!(here.queue.poll_into(&mut received, &mut free, 8).unwrap().is_none());
            }
            posts.extend(received.drain(..).map(|frame| frame.buffer));
            there.queue.receives().receive_each(&mut posts).unwrap();
        }
    };
    play(8);
    let counted = allocation_counter::measure(|| play(1000));
    assert_eq!((counted.count_total, counted.count_current), (0, 0), "{counted:?}");
}

#[test]
fn bursts_of_frames_to_a_striding_queue_and_replies_allocate_nothing() {
    let mut frames = Frames::new().unwrap();
    frames.play(100).unwrap();
    let mut outcome = Ok(());
    let counted = allocation_counter::measure(|| outcome = frames.play(2000));
    outcome.unwrap();
    assert_eq!((counted.count_total, counted.count_current), (0, 0), "{counted:?}");
}

/// Completions of each compressed form, read one by one, in bursts and in vectors.
#[test]
fn compressed_completions_allocate_nothing() {
    const BURST: usize = 16;
    for form in [
        Compression::Hash,
        Compression::Checksum,
        Compression::FlowTag,
        Compression::ChecksumStride,
        Compression::HeaderType,
    ] {
        let sim = Sim::builder().functions(2).build().unwrap();
        let mut options = EthernetOptions::default();
        (options.inline_bytes, options.send_depth) = (64, 2 * BURST as u32);
        let mut here = EthernetEnd::new(&sim, 0, options);
        let pd = Pd::alloc(&sim.open(1).unwrap()).unwrap();
        let mut there = StridingQueue::compressed(&pd, StridingOptions::default(), form).unwrap();
        there.listen(&[]).unwrap();
        let frame = here.frame(there.device().mac(), &[7; 46]);
        let mut packets = Vec::with_capacity(BURST);
        let mut play = |rounds: usize| {
            for round in 0..rounds {
                let mut batch = here.queue.batch();
                (0..BURST).for_each(|_| _ = batch.send_inline(&frame, FrameFlags::empty()).unwrap());
                batch.ring();
                let (mut sent, mut heard, deadline) = (0, 0, Instant::now() + SOON);
                while sent < BURST || heard < BURST {
                    assert!(Instant::now() < deadline, "{heard} of {BURST} frames came");
                    sent += usize::from(here.queue.poll().unwrap().is_some());
                    match round % 4 {
                        0 => heard += usize::from(there.poll().unwrap().is_some_and(|packet| packet[..] == frame[..])),
                        1 => heard += there.burst(5).unwrap().filter(|packet| packet[..] == frame[..]).count(),
                        2 => heard += there.take_each(5, |packet| assert_eq!(packet[..], frame[..])).unwrap(),
                        _ => {
                            heard += there.poll_into(&mut packets, 7).unwrap();
                            packets.drain(..).for_each(|packet| assert_eq!(packet[..], frame[..]));
                        }
                    }
                }
            }
        };
        play(10);
        let counted = allocation_counter::measure(|| play(200));
        assert_eq!((counted.count_total, counted.count_current), (0, 0), "{form:?}: {counted:?}");
        let (rqn, traffic) = (there.rq().rqn(), sim.handle(1).traffic());
        let queue = traffic.queues.iter().find(|queue| (queue.kind, queue.number) == ("RQ", rqn)).unwrap();
        let entries = queue.traffic.of(Purpose::Cqe).writes;
        assert!(entries < 210 * BURST as u64 / 2, "{form:?}: {entries} entries are hardly compressed");
    }
}

/// Several frames in one work request: copied one by one or all at once, and by pointer, with and without a source.
#[test]
fn multi_packet_work_requests_allocate_nothing() {
    const FRAME: usize = 60;
    let sim = Sim::builder().functions(2).build().unwrap();
    let (mut here, mut there) = (Sender::new(&sim, 64), EthernetEnd::listening(&sim, 1, EthernetOptions::default()));
    there.post(8);
    let pool = MemoryRegion::allocate(&here.pd, 4096, AccessFlags::LOCAL_WRITE).unwrap();
    let source = here.queue.sq().source(&pool).unwrap();
    let frame = there.frame(there.device.mac(), &[3; FRAME - 14]);
    pool.write(0, &frame);
    let (elements, inline) = ([(); 4].map(|()| pool.segment(0..FRAME)), [&frame[..]; 4]);
    let mut play = |rounds: u64| {
        for round in 0..rounds {
            let mut batch = here.queue.batch();
            match round % 4 {
                0 => {
                    let mut copies = batch.copies(round, FrameFlags::SIGNALLED).unwrap();
                    inline.iter().for_each(|frame| copies.push(frame).unwrap());
                    copies.end();
                }
                1 => batch.send_several_inline(round, FrameFlags::SIGNALLED, &inline).unwrap(),
                2 => {
                    let mut pointers = batch.pointers(&source, round, FrameFlags::SIGNALLED).unwrap();
                    inline.iter().for_each(|_| pointers.push(0..FRAME).unwrap());
                    pointers.end();
                }
                // SAFETY: the region outlives the queue.
                _ => unsafe { batch.send_several(round, FrameFlags::SIGNALLED, &elements).unwrap() },
            }
            batch.ring();
            for _ in 0..4 {
                let heard = there.queue.wait(SOON).unwrap();
                assert_eq!(heard.result.unwrap().byte_len as usize, FRAME);
                there.queue.receive(heard.buffer.unwrap()).unwrap();
            }
            here.completes(round);
        }
    };
    play(8);
    let counted = allocation_counter::measure(|| play(1000));
    assert_eq!((counted.count_total, counted.count_current), (0, 0), "{counted:?}");
}

/// A packet that one card divides into frames, and the other joins again where its timer leaves it time to.
#[test]
fn packets_that_cards_divide_and_join_allocate_nothing() {
    const SEGMENTS: usize = 4;
    // More than the least that a card joins.
    const MSS: usize = 1400;
    let sim = Sim::builder().functions(2).build().unwrap();
    let pds = [0, 1].map(|function| Pd::alloc(&sim.open(function).unwrap()).unwrap());
    let mut options = EthernetOptions::default();
    (options.inline_bytes, options.recv_depth) = (100, 8);
    let mut here = EthernetQueue::new(&pds[0], options.clone()).unwrap();
    let lro = LroOptions::default().frame_bytes(16_000).timeout_usecs(1024);
    let mut there = EthernetQueue::new(&pds[1], options.lro(lro)).unwrap();
    there.listen(&[]).unwrap();
    for buffer in ExclusiveRegion::allocate(&pds[1], 8 << 14).unwrap().buffers(1 << 14).unwrap() {
        there.receive(buffer).unwrap();
    }
    let mut header = TcpHeader::new(1000, 2000, 7, 500);
    (header.ack, header.psh) = (true, true);
    let (mut packet, builder) =
        (Vec::new(), PacketBuilder::ethernet2(pds[0].device().mac().0, pds[1].device().mac().0));
    builder.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).tcp_header(header).write(&mut packet, &[5; SEGMENTS * MSS]).unwrap();
    let headers = packet.len() - SEGMENTS * MSS;
    let region = MemoryRegion::allocate(&pds[0], 1 << 14, AccessFlags::LOCAL_WRITE).unwrap();
    region.write(0, &packet);
    let mut buffer = Some(region.buffer(0..packet.len()).unwrap());
    let mut joined = 0;
    let mut play = |rounds: usize| {
        for _ in 0..rounds {
            here.send_large(buffer.take().unwrap(), headers, MSS as u16).unwrap();
            let done = here.wait(SOON).unwrap();
            assert_eq!(done.result.unwrap().work.side, Side::Send);
            buffer = done.buffer;
            let mut payload = 0;
            while payload < SEGMENTS * MSS {
                let done = there.wait(SOON).unwrap();
                let completion = done.result.as_ref().unwrap();
                joined += usize::from(completion.joined().is_some_and(|joined| joined.segments > 1));
                payload += completion.byte_len as usize - headers;
                there.receive(done.buffer.unwrap()).unwrap();
            }
        }
    };
    play(10);
    let counted = allocation_counter::measure(|| play(500));
    assert_eq!((counted.count_total, counted.count_current), (0, 0), "{counted:?}");
    assert!(joined > 0, "no packet was joined");
}

#[test]
fn quiet_writes_of_several_buffers_allocate_nothing() {
    let sim = Sim::builder().build().unwrap();
    let pd = Pd::alloc(&sim.open(0).unwrap()).unwrap();
    let mut options = ConnectionOptions::default();
    (options.send_depth, options.send_sges) = (16, 4);
    let mut a = Connection::new(&pd, options.clone()).unwrap();
    let mut b = Connection::new(&pd, options).unwrap();
    a.connect(&b.local().unwrap()).unwrap();
    b.connect(&a.local().unwrap()).unwrap();
    let rights = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
    let remote = MemoryRegion::allocate(&pd, 4096, rights).unwrap().remote();
    let mut buffers = ExclusiveRegion::allocate(&pd, 64 * 60).unwrap().buffers(60).unwrap();
    let mut message = Vec::with_capacity(4);
    let mut play = |exchanges| {
        for _ in 0..exchanges {
            let mut batch = a.batch();
            batch.quiet();
            for _ in 0..8 {
                message.extend(buffers.drain(buffers.len() - 4..));
                batch.write_all(&mut message, remote).unwrap();
            }
            batch.nop().unwrap();
            batch.signalled();
            batch.nop().unwrap();
            batch.ring();
            buffers.extend((0..34).filter_map(|_| a.wait(SOON).unwrap().buffer));
        }
    };
    play(10);
    let counted = allocation_counter::measure(|| play(1000));
    assert_eq!((counted.count_total, counted.count_current), (0, 0), "{counted:?}");
}

#[test]
fn one_allocation_would_be_seen() {
    let counted = allocation_counter::measure(|| drop(black_box(Box::new(7u64))));
    assert_eq!((counted.count_total, counted.bytes_total), (1, 8));
}
