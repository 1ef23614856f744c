//! Messages need no allocation after set-up: a ping-pong with an allocator that counts per thread.

#[allow(dead_code, reason = "shared with the tests of frames")]
#[path = "ethernet/ends.rs"]
mod ends;
mod game;

use std::hint::black_box;
use std::time::Instant;

use ends::{EthernetEnd, SOON};
use game::Game;
use game::frames::Frames;
use mlx5_dv::objects::{AccessFlags, Buffer, ExclusiveRegion, MemoryRegion, Pd};
use mlx5_dv::queue::ethernet::{EthernetOptions, FrameFlags};
use mlx5_dv::queue::{Connection, ConnectionOptions};
use mlx5_open::Sim;
use mlx5_sim::profile::Profile;

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
