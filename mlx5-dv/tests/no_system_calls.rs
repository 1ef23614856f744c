//! Messages need no system call after set-up: a thread runs under a seccomp filter that kills the process on any system
//! call.
//!
//! The filter cannot be removed, and the kill must not end the test runner: the ping-pong runs in a child process,
//! which is this program again. The filter applies only to the thread that installs it, not to the card's.

#![cfg(target_os = "linux")]

mod game;

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use game::frames::Frames;
use game::{Foul, Game};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

/// Environment variable that selects the child's test.
const ROLE: &str = "MLX5_UNDER_THE_FILTER";
/// Exit code of a complete run. Not 0, which a test runner without a matching test returns, too.
const PLAYED: i32 = 42;
const FOUL: i32 = 43;
/// Number of round trips: 100 000 in all.
const EXCHANGES: u64 = 50_000;
/// Bursts of four frames, each of which is answered by one.
const BURSTS: u64 = 20_000;
const PATIENCE: Duration = Duration::from_secs(300);
/// The signal for a violation of the filter.
const SIGSYS: i32 = 31;

/// Kills the process on any system call of this thread.
fn install_filter() -> Result<(), Box<dyn std::error::Error>> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    // Without rules every call gets the default action: kill. The other action is never used.
    let filter = SeccompFilter::new(Default::default(), SeccompAction::KillProcess, SeccompAction::Allow, arch)?;
    Ok(seccompiler::apply_filter(&BpfProgram::try_from(filter)?)?)
}

/// Results that the filtered thread passes to the one that may make system calls.
static STAGE: AtomicU32 = AtomicU32::new(PREPARING);
const PREPARING: u32 = 0;
const PLAYING: u32 = 1;
const DONE: u32 = 2;
const FAILED: u32 = 3;

/// Never returns, since returning from a thread makes system calls.
fn say_for_good(stage: u32) -> ! {
    STAGE.store(stage, Ordering::Release);
    loop {
        std::hint::spin_loop();
    }
}

/// Runs in the child process of the other tests.
#[test]
#[ignore = "not a test: a child process of the others"]
fn child() {
    let role = std::env::var(ROLE).expect("a parent that names a role");
    let player = thread::spawn(move || match &role[..] {
        "frames" => {
            let mut frames = Frames::new().expect("two ends");
            frames.play(1000).expect("a warm-up");
            play(&role, || frames.play(BURSTS))
        }
        _ => {
            let mut game = Game::new().expect("a game");
            game.play(1000).expect("a warm-up");
            play(&role, || game.play(EXCHANGES))
        }
    });
    loop {
        match STAGE.load(Ordering::Acquire) {
            DONE => std::process::exit(PLAYED),
            FAILED => std::process::exit(FOUL),
            PREPARING if player.is_finished() => break,
            _ => thread::sleep(Duration::from_millis(1)),
        }
    }
    assert!(player.join().is_ok(), "no game was played");
}

/// Plays under the filter. Never returns.
fn play(role: &str, mut game: impl FnMut() -> Result<(), Foul>) {
    install_filter().expect("a filter");
    STAGE.store(PLAYING, Ordering::Release);
    if role == "call" {
        thread::yield_now();
    }
    match game() {
        Ok(()) => say_for_good(DONE),
        Err(_) => say_for_good(FAILED),
    }
}

/// Runs this program as the child, and waits for its exit.
fn run(role: &str) -> ExitStatus {
    let program = std::env::current_exe().expect("our own path");
    let mut child = Command::new(program)
        .args(["--exact", "child", "--ignored", "--nocapture"])
        .env(ROLE, role)
        .stdin(Stdio::null())
        .spawn()
        .expect("a child");
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().expect("the child's state") {
            return status;
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            panic!("the game was not over after {} s", PATIENCE.as_secs());
        }
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_hundred_thousand_messages_make_no_system_call() {
    let status = run("play");
    assert_eq!(status.code(), Some(PLAYED), "{status}; signal {SIGSYS} is a system call");
}

#[test]
fn a_hundred_thousand_frames_make_no_system_call() {
    let status = run("frames");
    assert_eq!(status.code(), Some(PLAYED), "{status}; signal {SIGSYS} is a system call");
}

#[test]
fn one_system_call_would_be_seen() {
    let status = run("call");
    assert_eq!(status.signal(), Some(SIGSYS), "the filter let a system call pass: {status}");
}
