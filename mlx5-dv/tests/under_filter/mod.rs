//! Work on a thread under a seccomp filter that kills the process on any system call of that thread.
//!
//! The filter cannot be removed, and the kill must not end the test runner: the work is done in a child process, which
//! is the test program again. The filter applies only to the thread that installs it, not to the card's.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

/// Environment variable that tells the child what to do.
const ROLE: &str = "MLX5_UNDER_THE_FILTER";
/// The role whose thread makes one system call.
const CALL: &str = "call";
/// Exit code if all work was right. Not 0, which a test runner without a matching test returns, too.
const RIGHT: i32 = 42;
const WRONG: i32 = 43;
const PATIENCE: Duration = Duration::from_secs(300);
/// The signal for a violation of the filter.
const SIGSYS: i32 = 31;

/// What is done under the filter. Returns whether it was right: a panic would make system calls.
pub type Work = Box<dyn FnMut() -> bool>;

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
const UNDER_THE_FILTER: u32 = 1;
const DONE: u32 = 2;
const FAILED: u32 = 3;

/// The child process: does under the filter what `prepare` returns, which gets the role. To be called by an ignored
/// test with the name `child`.
pub fn child(prepare: impl FnOnce(&str) -> Work + Send + 'static) {
    let role = std::env::var(ROLE).expect("a parent that names a role");
    let worker = thread::spawn(move || {
        let mut work = prepare(&role);
        install_filter().expect("a filter");
        STAGE.store(UNDER_THE_FILTER, Ordering::Release);
        if role == CALL {
            thread::yield_now();
        }
        STAGE.store(if work() { DONE } else { FAILED }, Ordering::Release);
        // Returning from a thread makes system calls, and so does dropping the work.
        loop {
            std::hint::spin_loop();
        }
    });
    loop {
        match STAGE.load(Ordering::Acquire) {
            DONE => std::process::exit(RIGHT),
            FAILED => std::process::exit(WRONG),
            PREPARING if worker.is_finished() => break,
            _ => thread::sleep(Duration::from_millis(1)),
        }
    }
    assert!(worker.join().is_ok(), "nothing was done");
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
            panic!("the work was not done after {} s", PATIENCE.as_secs());
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Fails unless the work of `role` is right, and makes no system call.
#[track_caller]
pub fn assert_no_call(role: &str) {
    let status = run(role);
    assert_eq!(status.code(), Some(RIGHT), "{status}; signal {SIGSYS} is a system call");
}

/// Fails unless the filter sees a system call.
#[track_caller]
pub fn assert_a_call_is_seen() {
    let status = run(CALL);
    assert_eq!(status.signal(), Some(SIGSYS), "the filter let a system call pass: {status}");
}
