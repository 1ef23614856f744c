//! After set-up no message costs a system call: a thread that plays under a seccomp filter which kills the process on
//! any system call lives.
//!
//! The filter cannot be taken off again, and the kill must not take the test runner along: the game is played in a
//! process of its own, which is this program again. The filter holds for the one thread that installs it, not for the
//! card's.

#![cfg(target_os = "linux")]

mod game;

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use game::Game;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

/// Tells this program that it is the child, and which.
const ROLE: &str = "MLX5_UNDER_THE_FILTER";
/// The child played to the end. Not 0, which a test runner without a matching test returns too.
const PLAYED: i32 = 42;
const FOUL: i32 = 43;
/// Messages there and back again: 100 000 in all.
const EXCHANGES: u64 = 50_000;
const PATIENCE: Duration = Duration::from_secs(300);
/// What the kernel sends whoever breaks the filter.
const SIGSYS: i32 = 31;

/// Kills the process on any system call of this thread.
fn install_filter() -> Result<(), Box<dyn std::error::Error>> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    // No rule: nothing matches, and what does not match kills. The other action is never taken.
    let filter = SeccompFilter::new(Default::default(), SeccompAction::KillProcess, SeccompAction::Allow, arch)?;
    Ok(seccompiler::apply_filter(&BpfProgram::try_from(filter)?)?)
}

/// What the playing thread has to say to the one that may make system calls.
static STAGE: AtomicU32 = AtomicU32::new(PREPARING);
const PREPARING: u32 = 0;
const PLAYING: u32 = 1;
const DONE: u32 = 2;
const FAILED: u32 = 3;

/// Never returns, since returning from a thread takes system calls.
fn say_for_good(stage: u32) -> ! {
    STAGE.store(stage, Ordering::Release);
    loop {
        std::hint::spin_loop();
    }
}

/// What the child process of the other tests runs.
#[test]
#[ignore = "not a test: a child process of the others"]
fn child() {
    let role = std::env::var(ROLE).expect("a parent that names a role");
    let player = thread::spawn(move || {
        let mut game = Game::new().expect("a game");
        game.play(1000).expect("a warm-up");
        install_filter().expect("a filter");
        STAGE.store(PLAYING, Ordering::Release);
        if role == "call" {
            thread::yield_now();
        }
        match game.play(EXCHANGES) {
            Ok(()) => say_for_good(DONE),
            Err(_) => say_for_good(FAILED),
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

/// Runs this program as the child, and waits for its end.
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
fn one_system_call_would_be_seen() {
    let status = run("call");
    assert_eq!(status.signal(), Some(SIGSYS), "the filter let a system call pass: {status}");
}
