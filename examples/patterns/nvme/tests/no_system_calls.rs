//! I/O needs no system call after set-up: the thread of an I/O queue runs under a seccomp filter that kills the process
//! on any system call.
//!
//! The filter cannot be removed, and the kill must not end the test runner: host, target and card run in a child
//! process, which is this program again. The filter applies only to the thread that installs it.

#![cfg(target_os = "linux")]

use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mlx5_nvme::{
    Controller, ControllerOptions, DataPlacement, Host, HostOptions, IoBuffer, IoQueue, Namespace, RamDisk, Target,
    TargetOptions,
};
use mlx5_open::Sim;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

/// Environment variable that selects what the child does.
const ROLE: &str = "MLX5_NVME_UNDER_THE_FILTER";
/// Exit code of a complete run. Not 0, which a test runner without a matching test returns, too.
const VERIFIED: i32 = 42;
const FAILED: i32 = 43;
const PATIENCE: Duration = Duration::from_secs(300);
/// The signal for a violation of the filter.
const SIGSYS: i32 = 31;

const NQN: &str = "nqn.2014-08.example:disk";
const BLOCK: usize = 512;
const BYTES: usize = 4096;
/// Commands under way at once.
const DEPTH: usize = 16;
/// I/Os of 4 KiB under the filter, half of them writes.
const COMMANDS: u64 = 10_000;

/// Kills the process on any system call of this thread.
fn install_filter() -> Result<(), Box<dyn std::error::Error>> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    // Without rules every call gets the default action: kill. The other action is never used.
    let filter = SeccompFilter::new(Default::default(), SeccompAction::KillProcess, SeccompAction::Allow, arch)?;
    Ok(seccompiler::apply_filter(&BpfProgram::try_from(filter)?)?)
}

/// An I/O queue, and what each place of its disk holds. The commands of a place are a write, a read, and so on.
struct Work {
    queue: IoQueue,
    namespace: Namespace,
    spare: Vec<IoBuffer>,
    /// Number of the last command of each place; the write's is what it wrote.
    commands: [u64; DEPTH],
    scratch: [u8; BYTES],
    // They keep the connection, and the card.
    _controller: Controller,
    _host: Host,
    _sim: Sim,
}

fn fill(bytes: &mut [u8; BYTES], place: usize, write: u64) {
    let base = (write << 8 | place as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for (number, word) in bytes.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&base.wrapping_add(number as u64).to_le_bytes());
    }
}

impl Work {
    /// A host of a target that another thread polls, connected.
    fn new(placement: DataPlacement, in_capsule: bool) -> Self {
        let sim = Sim::builder().functions(2).build().unwrap();
        let [near, far] = [0, 1].map(|function| sim.open(function).unwrap());
        let remote = SocketAddr::new(far.gids()[0].address.into(), mlx5_nvme::PORT);
        let disk = RamDisk::new(DEPTH * BYTES / BLOCK, BLOCK as u32).unwrap();
        let mut target = Target::new(&far, None, TargetOptions::new(NQN), vec![Box::new(disk)]).unwrap();
        thread::spawn(move || {
            loop {
                if !target.poll().unwrap() {
                    thread::yield_now();
                }
            }
        });
        let mut host = Host::new(&near, None, HostOptions::default()).unwrap();
        let mut options = ControllerOptions::default();
        (options.depth, options.placement, options.in_capsule) = (DEPTH as u16, placement, in_capsule);
        // Nobody looks after the controller while the thread is under the filter.
        options.keep_alive = Duration::ZERO;
        let mut controller = host.connect(remote, NQN, options).unwrap();
        let namespace = controller.namespaces(&mut host).unwrap()[0];
        let queue = controller.io_queue(&mut host).unwrap();
        let spare = queue.buffers(DEPTH, BYTES).unwrap();
        let (commands, scratch) = ([0; DEPTH], [0; BYTES]);
        Work { queue, namespace, spare, commands, scratch, _controller: controller, _host: host, _sim: sim }
    }

    /// The next command of a place.
    fn submit(&mut self, place: usize) -> Option<()> {
        let mut buffer = self.spare.pop()?;
        let (lba, user) = ((place * BYTES / BLOCK) as u64, place as u64);
        self.commands[place] += 1;
        let command = self.commands[place];
        if command.is_multiple_of(2) {
            return self.queue.read(&self.namespace, lba, buffer, user).ok();
        }
        fill(&mut self.scratch, place, command);
        buffer.write(0, &self.scratch);
        self.queue.write(&self.namespace, lba, buffer, user).ok()
    }

    /// Does `commands` commands, and compares what is read. `None`: something went wrong. A panic would make calls.
    fn run(&mut self, commands: u64) -> Option<()> {
        for place in 0..DEPTH {
            self.submit(place)?;
        }
        let (mut submitted, mut done) = (DEPTH as u64, 0);
        while done < submitted {
            let Some(completed) = self.queue.poll().ok()? else {
                std::hint::spin_loop();
                continue;
            };
            let (place, buffer) = (completed.user as usize, completed.buffer?);
            let command = self.commands[place];
            if !completed.status.is_success() {
                return None;
            }
            if command.is_multiple_of(2) {
                let mut expected = [0; BYTES];
                fill(&mut expected, place, command - 1);
                buffer.read(0, &mut self.scratch);
                if self.scratch != expected {
                    return None;
                }
            }
            self.spare.push(buffer);
            done += 1;
            if submitted < commands {
                submitted += 1;
                self.submit(place)?;
            }
        }
        Some(())
    }
}

/// Results that the filtered thread passes to the one that may make system calls.
static STAGE: AtomicU32 = AtomicU32::new(PREPARING);
const PREPARING: u32 = 0;
const UNDER_THE_FILTER: u32 = 1;
const DONE: u32 = 2;
const BROKEN: u32 = 3;

/// Runs in the child process of the other tests.
#[test]
#[ignore = "not a test: a child process of the others"]
fn child() {
    let role = std::env::var(ROLE).expect("a parent that names a role");
    let worker = thread::spawn(move || {
        let (placement, in_capsule) = match &role[..] {
            "fast keys" => (DataPlacement::FastKey, false),
            _ => (DataPlacement::StandingKey, true),
        };
        let mut work = Work::new(placement, in_capsule);
        work.run(COMMANDS / 10).expect("a warm-up");
        install_filter().expect("a filter");
        STAGE.store(UNDER_THE_FILTER, Ordering::Release);
        if role == "call" {
            thread::yield_now();
        }
        let ended = work.run(COMMANDS);
        STAGE.store(if ended.is_some() { DONE } else { BROKEN }, Ordering::Release);
        // Returning from a thread makes system calls.
        loop {
            std::hint::spin_loop();
        }
    });
    loop {
        match STAGE.load(Ordering::Acquire) {
            DONE => std::process::exit(VERIFIED),
            BROKEN => std::process::exit(FAILED),
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
            panic!("the I/O was not done after {} s", PATIENCE.as_secs());
        }
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn ten_thousand_reads_and_writes_of_4_kib_make_no_system_call() {
    let status = run("standing key");
    assert_eq!(status.code(), Some(VERIFIED), "{status}; signal {SIGSYS} is a system call");
}

#[test]
fn ten_thousand_reads_and_writes_by_keys_of_their_own_make_no_system_call() {
    let status = run("fast keys");
    assert_eq!(status.code(), Some(VERIFIED), "{status}; signal {SIGSYS} is a system call");
}

#[test]
fn one_system_call_would_be_seen() {
    let status = run("call");
    assert_eq!(status.signal(), Some(SIGSYS), "the filter let a system call pass: {status}");
}
