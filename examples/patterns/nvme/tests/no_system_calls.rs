//! I/O needs no system call after set-up: the thread of an I/O queue runs under a seccomp filter that kills the process
//! on any system call. Host, target and card run in one process.

#![cfg(target_os = "linux")]

#[path = "../../../../mlx5-dv/tests/under_filter/mod.rs"]
mod under_filter;

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use mlx5_nvme::{
    Controller, ControllerOptions, DataPlacement, Host, HostOptions, IoBuffer, IoQueue, Namespace, RamDisk, Target,
    TargetOptions,
};
use mlx5_open::Sim;
use under_filter::{assert_a_call_is_seen, assert_no_call};

const NQN: &str = "nqn.2014-08.example:disk";
const BLOCK: usize = 512;
const BYTES: usize = 4096;
/// Commands under way at once.
const DEPTH: usize = 16;
/// I/Os of 4 KiB under the filter, half of them writes.
const COMMANDS: u64 = 10_000;

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

/// Runs in the child process of the other tests.
#[test]
#[ignore = "not a test: a child process of the others"]
fn child() {
    under_filter::child(|role| {
        let (placement, in_capsule) = match role {
            "fast keys" => (DataPlacement::FastKey, false),
            _ => (DataPlacement::StandingKey, true),
        };
        let mut work = Work::new(placement, in_capsule);
        work.run(COMMANDS / 10).expect("a warm-up");
        Box::new(move || work.run(COMMANDS).is_some())
    });
}

#[test]
fn ten_thousand_reads_and_writes_of_4_kib_make_no_system_call() {
    assert_no_call("standing key");
}

#[test]
fn ten_thousand_reads_and_writes_by_keys_of_their_own_make_no_system_call() {
    assert_no_call("fast keys");
}

#[test]
fn one_system_call_would_be_seen() {
    assert_a_call_is_seen();
}
