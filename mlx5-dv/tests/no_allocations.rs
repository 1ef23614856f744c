//! After set-up no message allocates: a ping-pong under an allocator that counts, a count a thread.

mod game;

use std::hint::black_box;

use game::Game;

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

#[test]
fn one_allocation_would_be_seen() {
    let counted = allocation_counter::measure(|| drop(black_box(Box::new(7u64))));
    assert_eq!((counted.count_total, counted.bytes_total), (1, 8));
}
