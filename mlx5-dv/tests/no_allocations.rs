//! Messages need no allocation after set-up: a ping-pong with an allocator that counts per thread.

#[allow(dead_code, reason = "shared with the tests of frames")]
#[path = "ethernet/ends.rs"]
mod ends;
mod game;

use std::hint::black_box;

use ends::{EthernetEnd, SOON};
use game::Game;
use mlx5_dv::objects::Buffer;
use mlx5_dv::queue::ethernet::FrameFlags;

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

#[test]
fn one_allocation_would_be_seen() {
    let counted = allocation_counter::measure(|| drop(black_box(Box::new(7u64))));
    assert_eq!((counted.count_total, counted.bytes_total), (1, 8));
}
