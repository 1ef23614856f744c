//! Messages need no system call after set-up: a thread runs under a seccomp filter that kills the process on any system
//! call.

#![cfg(target_os = "linux")]

mod game;
mod under_filter;

use game::Game;
use game::frames::Frames;
use under_filter::{assert_a_call_is_seen, assert_no_call};

/// Number of round trips: 100 000 in all.
const EXCHANGES: u64 = 50_000;
/// Bursts of four frames, each of which is answered by one.
const BURSTS: u64 = 20_000;

/// Runs in the child process of the other tests.
#[test]
#[ignore = "not a test: a child process of the others"]
fn child() {
    under_filter::child(|role| match role {
        "frames" => {
            let mut frames = Frames::new().expect("two ends");
            frames.play(1000).expect("a warm-up");
            Box::new(move || frames.play(BURSTS).is_ok())
        }
        _ => {
            let mut game = Game::new().expect("a game");
            game.play(1000).expect("a warm-up");
            Box::new(move || game.play(EXCHANGES).is_ok())
        }
    });
}

#[test]
fn a_hundred_thousand_messages_make_no_system_call() {
    assert_no_call("play");
}

#[test]
fn a_hundred_thousand_frames_make_no_system_call() {
    assert_no_call("frames");
}

#[test]
fn one_system_call_would_be_seen() {
    assert_a_call_is_seen();
}
