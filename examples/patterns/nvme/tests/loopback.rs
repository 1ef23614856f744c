//! Host and target on two software cards in virtual time, over a cable that loses frames.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use mlx5_cm::ManagerError;
use mlx5_dv::Device;
use mlx5_nvme::{
    Completed, Controller, ControllerOptions, DataPlacement, Disk, FileDisk, FileQueue, Host, HostError, HostOptions,
    IoBuffer, IoQueue, Namespace, RamDisk, Status, SubmitError, Target, TargetError, TargetOptions, TargetStatistics,
};
use mlx5_open::virtual_time::World;
use mlx5_sim::card::{Card, SteppedCard};
use mlx5_sim::fault::{Fault, Times};
use mlx5_sim::world::Conditions;
use rustix::fs::{Mode, OFlags};

const NQN: &str = "nqn.2014-08.example:disk";
const BLOCK: usize = 512;
const BLOCKS: usize = 16384;
/// Longer than anything takes.
const LONG: Duration = Duration::from_secs(600);

struct Pair {
    world: World,
    cards: [Arc<SteppedCard>; 2],
    /// `None` once it is killed.
    target: Arc<Mutex<Option<Target>>>,
    host: Host,
    remote: SocketAddr,
}

impl Pair {
    fn new(seed: u64, loss: u32, options: TargetOptions) -> Self {
        Self::with_disk(seed, loss, options, Box::new(RamDisk::new(BLOCKS, BLOCK as u32).unwrap()))
    }

    fn with_disk(seed: u64, loss: u32, options: TargetOptions, disk: Box<dyn Disk>) -> Self {
        let world = World::new(seed);
        let conditions = Conditions { loss, duplication: loss / 2, reordering: loss / 2, ..Conditions::default() };
        let (cards, _) = world.simulated().joined([Card::builder(), Card::builder()], conditions).unwrap();
        let [near, far]: [Arc<Device>; 2] = cards.each_ref().map(|card| world.open(card).unwrap());
        let remote = SocketAddr::new(far.gids()[0].address.into(), options.port);
        let target = Target::new(&far, None, options, vec![disk]).unwrap();
        let target = Arc::new(Mutex::new(Some(target)));
        let mut with = HostOptions::default();
        let (clock, served) = (world.clock().clone(), Arc::clone(&target));
        with.idle = Some(Box::new(move || {
            if let Some(target) = &mut *served.lock().unwrap() {
                target.poll().unwrap();
            }
            clock.pause(Duration::from_micros(50));
        }));
        with.timeout = LONG;
        let host = Host::new(&near, None, with).unwrap();
        Pair { world, cards, target, host, remote }
    }

    fn plain() -> Self {
        Self::new(1, 0, TargetOptions::new(NQN))
    }

    fn target(&self) -> MutexGuard<'_, Option<Target>> {
        self.target.lock().unwrap()
    }

    fn statistics(&self) -> TargetStatistics {
        self.target().as_ref().unwrap().statistics()
    }

    fn connect(&mut self, options: ControllerOptions) -> (Controller, Namespace) {
        let mut controller = self.host.connect(self.remote, NQN, options).unwrap();
        let namespaces = controller.namespaces(&mut self.host).unwrap();
        assert_eq!(namespaces.len(), 1);
        assert_eq!((namespaces[0].blocks, namespaces[0].block_size), (BLOCKS as u64, BLOCK as u32));
        (controller, namespaces[0])
    }

    /// The target's turn, and the wire's.
    fn turn(&mut self) {
        if let Some(target) = &mut *self.target() {
            target.poll().unwrap();
        }
        self.host.turn().unwrap();
        self.world.clock().pause(Duration::from_micros(50));
    }

    fn wait(&mut self, queue: &mut IoQueue) -> Result<Completed, HostError> {
        let end = self.world.clock().now() + LONG;
        while self.world.clock().now() < end {
            if let Some(completed) = queue.poll()? {
                return Ok(completed);
            }
            self.turn();
        }
        panic!("no answer; {:?}", self.target());
    }

    /// Until nothing of the host is left at the target.
    fn await_quiet(&mut self) {
        let end = self.world.clock().now() + LONG;
        while self.statistics().queues > 0 && self.world.clock().now() < end {
            self.turn();
        }
        let left = self.statistics();
        assert_eq!((left.queues, left.controllers, left.chunks_in_use), (0, 0, 0), "{left:?}");
        for card in &self.cards {
            assert_eq!(card.function(0).strict().take(), []);
        }
    }
}

fn options(placement: DataPlacement, in_capsule: bool) -> ControllerOptions {
    let mut options = ControllerOptions::default();
    (options.placement, options.in_capsule, options.depth) = (placement, in_capsule, 32);
    options
}

/// Bytes that differ by place and by use.
fn fill(buffer: &mut IoBuffer, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let bytes: Vec<u8> = (0..buffer.len())
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect();
    buffer.write(0, &bytes);
    bytes
}

/// Random writes, reads and zeros with many commands under way, each part of the disk compared with what was written.
fn exercise(seed: u64, loss: u32, placement: DataPlacement, in_capsule: bool, operations: u64) {
    let pair = Pair::new(seed, loss, TargetOptions::new(NQN));
    exercise_pair(pair, seed, options(placement, in_capsule), operations);
}

/// As [`exercise`], on a target that is there. Returns what each of the disk's parts, of equal size, holds.
fn exercise_pair(mut pair: Pair, seed: u64, options: ControllerOptions, operations: u64) -> Vec<Vec<u8>> {
    const PARTS: usize = 24;
    let (mut controller, namespace) = pair.connect(options);
    let mut queue = controller.io_queue(&mut pair.host).unwrap();
    let part = BLOCKS / PARTS;
    let mut buffers: VecDeque<IoBuffer> = queue.buffers(PARTS, part * BLOCK).unwrap().into();
    let mut expected = vec![vec![0u8; part * BLOCK]; PARTS];
    // Parts with a command under way: what it is, and what it reads or writes.
    let mut state = seed | 1;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) as usize % below
    };
    let mut idle: Vec<usize> = (0..PARTS).collect();
    let (mut submitted, mut done) = (0, 0);
    let mut reading = vec![None; PARTS];
    // Reads, writes, write zeroes, flushes.
    let mut asked = [0; 4];
    while done < operations {
        while submitted < operations && !idle.is_empty() {
            let at = idle.swap_remove(random(idle.len()));
            let blocks = 1 + random(part);
            let first = random(part - blocks + 1);
            let lba = (at * part + first) as u64;
            let range = first * BLOCK..(first + blocks) * BLOCK;
            match random(8) {
                0 => {
                    asked[2] += 1;
                    queue.write_zeroes(&namespace, lba, blocks as u32, at as u64).unwrap();
                    expected[at][range].fill(0);
                }
                1 => {
                    asked[3] += 1;
                    queue.flush(&namespace, at as u64).unwrap();
                }
                2..=4 => {
                    asked[1] += 1;
                    let mut buffer = buffers.pop_front().unwrap();
                    buffer.set_len(range.len());
                    expected[at][range].copy_from_slice(&fill(&mut buffer, submitted));
                    queue.write(&namespace, lba, buffer, at as u64).unwrap();
                }
                _ => {
                    asked[0] += 1;
                    let mut buffer = buffers.pop_front().unwrap();
                    buffer.set_len(range.len());
                    buffer.write(0, &vec![0xa5; range.len()]);
                    reading[at] = Some(range);
                    queue.read(&namespace, lba, buffer, at as u64).unwrap();
                }
            }
            submitted += 1;
        }
        let completed = pair.wait(&mut queue).unwrap();
        assert!(completed.status.is_success(), "{}", completed.status);
        let at = completed.user as usize;
        if let Some(buffer) = completed.buffer {
            if let Some(range) = reading[at].take() {
                let mut found = vec![0; range.len()];
                buffer.read(0, &mut found);
                assert!(found == expected[at][range.clone()], "part {at}, bytes {range:?}");
            }
            buffers.push_back(buffer);
        }
        idle.push(at);
        done += 1;
    }
    assert_eq!((queue.under_way(), buffers.len()), (0, PARTS));
    assert_eq!(queue.close().len(), 0);
    controller.disconnect(&mut pair.host).unwrap();
    pair.await_quiet();
    let seen = pair.statistics();
    assert_eq!(seen.commands, operations);
    assert_eq!([seen.reads, seen.writes, seen.write_zeroes, seen.flushes], asked);
    expected
}

/// A file of `BLOCKS` blocks behind a target, exercised.
fn exercise_file(seed: u64, loss: u32, way: ControllerOptions, open: impl Fn(FileDisk) -> FileDisk) {
    let file = tempfile::NamedTempFile::new().unwrap();
    // A rest that is no whole block.
    file.as_file().set_len((BLOCKS * BLOCK + 100) as u64).unwrap();
    let disk = open(FileDisk::open(file.path(), BLOCK as u32).unwrap());
    if let Some(refusal) = disk.blocks_by() {
        eprintln!("io_uring is refused here: {refusal}");
    }
    // Few chunks: commands wait for them, also those whose data came in the capsule.
    let mut few = TargetOptions::new(NQN);
    (few.chunk, few.chunks) = (64 << 10, 16);
    let pair = Pair::with_disk(seed, loss, few, Box::new(disk));
    let parts = exercise_pair(pair, seed, way, 200);
    let bytes = std::fs::read(file.path()).unwrap();
    for (number, part) in parts.iter().enumerate() {
        assert!(bytes[number * part.len()..][..part.len()] == part[..], "part {number}");
    }
}

#[test]
fn a_file_holds_what_was_written() {
    exercise_file(6, 0, options(DataPlacement::StandingKey, true), |disk| disk);
    exercise_file(7, 50_000, options(DataPlacement::FastKey, false), |disk| disk);
}

/// The flags of all descriptors by which this process has `path` open, as the kernel tells them.
fn open_flags(path: &Path) -> Vec<OFlags> {
    let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let ours = all.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|link| link == path));
    ours.map(|fd| {
        let info = std::fs::read_to_string(Path::new("/proc/self/fdinfo").join(fd.file_name())).unwrap();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
        OFlags::from_bits_retain(u32::from_str_radix(flags, 8).unwrap())
    })
    .collect()
}

#[test]
fn a_file_is_open_for_direct_io_where_its_file_system_has_that() {
    // Beside the program: /tmp may be a tmpfs, of which few kernels have it.
    let folder = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let file = tempfile::NamedTempFile::new_in(folder).unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let path = file.path().canonicalize().unwrap();
    let has_it = rustix::fs::open(&path, OFlags::RDWR | OFlags::DIRECT, Mode::empty()).is_ok();
    if !has_it {
        eprintln!("{}: its file system has no direct I/O", path.display());
    }
    assert!(open_flags(&path).iter().all(|flags| !flags.contains(OFlags::DIRECT)), "before a disk has it");
    let disk = FileDisk::open(&path, BLOCK as u32).unwrap();
    assert_eq!(disk.is_direct(), has_it);
    let direct = open_flags(&path).iter().filter(|flags| flags.contains(OFlags::DIRECT)).count();
    // The disk's own, and that of its queue.
    let descriptors = 1 + usize::from(disk.blocks_by().is_none());
    assert_eq!(direct, if has_it { descriptors } else { 0 });
}

#[test]
fn a_file_without_io_uring_holds_what_was_written() {
    exercise_file(6, 0, options(DataPlacement::StandingKey, true), FileDisk::blocking);
}

#[test]
fn what_was_written_is_read_by_standing_keys_and_in_capsules() {
    exercise(1, 0, DataPlacement::StandingKey, true, 600);
    exercise(2, 0, DataPlacement::StandingKey, false, 300);
}

#[test]
fn what_was_written_is_read_by_keys_registered_for_each_command() {
    exercise(3, 0, DataPlacement::FastKey, true, 400);
}

#[test]
fn what_was_written_is_read_by_standing_keys_over_a_cable_that_loses_frames() {
    exercise(4, 50_000, DataPlacement::StandingKey, true, 300);
}

#[test]
fn what_was_written_is_read_by_registered_keys_over_a_cable_that_loses_frames() {
    exercise(5, 50_000, DataPlacement::FastKey, true, 300);
}

#[test]
fn discovery_tells_of_the_subsystem() {
    let mut pair = Pair::plain();
    let found = pair.host.discover(pair.remote).unwrap();
    assert_eq!(found.len(), 1);
    let service = pair.remote.port().to_string();
    assert_eq!((found[0].nqn.as_str(), &found[0].service, found[0].is_discovery), (NQN, &service, false));
    assert_eq!(found[0].address, pair.remote.ip().to_string());
    pair.await_quiet();
}

#[test]
fn wrong_names_queues_and_options_are_refused_with_their_reason() {
    let mut with = TargetOptions::new(NQN);
    with.hosts = vec!["nqn.2014-08.example:other".into()];
    let mut pair = Pair::new(1, 0, with);
    let error = pair.host.connect(pair.remote, NQN, ControllerOptions::default()).unwrap_err().to_string();
    assert!(error.starts_with("CONNECT failed: host not allowed"), "{error}");
    let error =
        pair.host.connect(pair.remote, "nqn.2014-08.example:no", ControllerOptions::default()).unwrap_err().to_string();
    assert!(error.contains("invalid connect parameter") && error.contains("the subsystem's NQN"), "{error}");
    let mut options = ControllerOptions::default();
    options.depth = 1;
    let error = pair.host.connect(pair.remote, NQN, options).unwrap_err().to_string();
    assert_eq!(error, "depth is 1: it must be 2 to 1024");
    pair.remote.set_port(1);
    let error = pair.host.connect(pair.remote, NQN, ControllerOptions::default()).unwrap_err();
    assert!(matches!(error, HostError::Rejected { queue: 0, status: None, .. }), "{error}");
    pair.await_quiet();
}

#[test]
fn a_target_says_which_option_does_not_do() {
    let world = World::new(1);
    let device = world.open(&world.simulated().card(Card::builder()).unwrap()).unwrap();
    let refused = |change: &dyn Fn(&mut TargetOptions)| {
        let mut options = TargetOptions::new(NQN);
        change(&mut options);
        Target::new(&device, None, options, Vec::new()).unwrap_err().to_string()
    };
    assert!(refused(&|options| options.nqn = "disk".into()).starts_with("nqn is disk: it must start with"));
    assert_eq!(refused(&|options| options.depth = 4), "depth is 4: it must be 32 to 1024");
    assert_eq!(refused(&|options| options.io_queues = 0), "io_queues is 0: it must be 1 or more");
    assert!(refused(&|options| options.in_capsule = 100).starts_with("in_capsule is 100: it must be a multiple of 16"));
    assert!(refused(&|options| options.chunk = 100).starts_with("chunk is 100: "));
    assert!(refused(&|options| options.chunks = 1).starts_with("chunks is 1: "));
}

#[test]
fn commands_that_cannot_be_are_refused_here_or_there_and_disturb_nothing() {
    let mut pair = Pair::plain();
    let (mut controller, namespace) = pair.connect(options(DataPlacement::StandingKey, true));
    let mut queue = controller.io_queue(&mut pair.host).unwrap();
    let error = controller.io_queue(&mut pair.host).unwrap_err().to_string();
    assert_eq!(error, "the target gives 1 I/O queues, and all are in use");
    let mut buffers = queue.buffers(2, 4096).unwrap();
    let mut odd = buffers.pop().unwrap();
    odd.set_len(100);
    let refused = queue.write(&namespace, 0, odd, 0).unwrap_err();
    assert!(matches!(refused.reason, SubmitError::Length { len: 100, block: 512, .. }), "{refused}");
    assert!(queue.write_zeroes(&namespace, 0, 0, 0).is_err());

    let mut buffer = buffers.pop().unwrap();
    for (namespace, lba, status) in [
        (namespace, BLOCKS as u64 - 7, Status::LBA_OUT_OF_RANGE),
        (namespace, u64::MAX, Status::LBA_OUT_OF_RANGE),
        (Namespace { nsid: 2, ..namespace }, 0, Status::INVALID_NAMESPACE),
        // What the host takes for 8 blocks are 4 of the disk's.
        (Namespace { block_size: 1024, ..namespace }, 0, Status::INVALID_SGL_LENGTH),
    ] {
        queue.read(&namespace, lba, buffer, 9).unwrap();
        let completed = pair.wait(&mut queue).unwrap();
        assert_eq!((completed.status.code(), completed.status.may_retry()), (status.code(), false));
        buffer = completed.buffer.unwrap();
    }
    let kept: Vec<_> = (0..queue.depth()).map(|user| queue.flush(&namespace, user as u64)).collect();
    assert!(kept.iter().all(Result::is_ok));
    assert!(matches!(queue.flush(&namespace, 0).unwrap_err().reason, SubmitError::Full { depth: 32, .. }));
    for _ in kept {
        assert!(pair.wait(&mut queue).unwrap().status.is_success());
    }
    queue.read(&namespace, 0, buffer, 1).unwrap();
    assert!(pair.wait(&mut queue).unwrap().status.is_success());
    queue.close();
    controller.disconnect(&mut pair.host).unwrap();
    pair.await_quiet();
}

/// The host posts receives again several at a time, and yet has one for each answer.
#[test]
fn a_queue_of_two_commands_is_answered_as_long_as_it_asks() {
    let mut pair = Pair::plain();
    let mut with = options(DataPlacement::StandingKey, true);
    with.depth = 2;
    let (mut controller, namespace) = pair.connect(with);
    let mut queue = controller.io_queue(&mut pair.host).unwrap();
    for _ in 0..50 {
        for user in 0..2 {
            queue.flush(&namespace, user).unwrap();
        }
        for _ in 0..2 {
            assert!(pair.wait(&mut queue).unwrap().status.is_success());
        }
    }
    queue.close();
    controller.disconnect(&mut pair.host).unwrap();
    pair.await_quiet();
}

#[test]
fn commands_wait_for_chunks_and_all_are_answered() {
    let mut with = TargetOptions::new(NQN);
    // Room for one transfer of the longest.
    (with.chunk, with.chunks) = (64 << 10, 16);
    let mut pair = Pair::new(1, 0, with);
    let (mut controller, namespace) = pair.connect(options(DataPlacement::StandingKey, true));
    let mut queue = controller.io_queue(&mut pair.host).unwrap();
    assert_eq!(queue.most_bytes(), 1 << 20);
    for (user, mut buffer) in queue.buffers(8, 1 << 20).unwrap().into_iter().enumerate() {
        fill(&mut buffer, user as u64);
        let lba = (user * (1 << 20) / BLOCK) as u64;
        if user % 2 == 0 {
            queue.write(&namespace, lba, buffer, user as u64).unwrap();
        } else {
            queue.read(&namespace, lba, buffer, user as u64).unwrap();
        }
    }
    for _ in 0..8 {
        assert!(pair.wait(&mut queue).unwrap().status.is_success());
    }
    queue.close();
    controller.disconnect(&mut pair.host).unwrap();
    pair.await_quiet();
}

#[test]
fn a_target_that_goes_breaks_the_queues_and_every_buffer_comes_back() {
    for placement in [DataPlacement::StandingKey, DataPlacement::FastKey] {
        let mut pair = Pair::plain();
        let (mut controller, namespace) = pair.connect(options(placement, true));
        let mut queue = controller.io_queue(&mut pair.host).unwrap();
        let buffers = queue.buffers(6, 16384).unwrap();
        for (user, mut buffer) in buffers.into_iter().enumerate() {
            buffer.set_len(if user % 2 == 0 { 4096 } else { 16384 });
            match user % 3 {
                0 => queue.read(&namespace, 0, buffer, user as u64).unwrap(),
                _ => queue.write(&namespace, 64, buffer, user as u64).unwrap(),
            }
        }
        // Killed: no message says so. What the host notices is that its keep-alive is not answered.
        *pair.target() = None;
        let end = pair.world.clock().now() + LONG;
        let error = loop {
            match controller.turn(&mut pair.host) {
                Err(error) => break error,
                Ok(()) => pair.world.clock().pause(Duration::from_millis(10)),
            }
            assert!(pair.world.clock().now() < end, "the host notices nothing");
        };
        assert!(matches!(error, HostError::Broken { queue: 0, .. } | HostError::Timeout { queue: 0, .. }), "{error}");
        let mut users: Vec<_> = queue.close().into_iter().map(|left| (left.user, left.buffer.is_some())).collect();
        users.sort();
        assert_eq!(users, (0..6).map(|user| (user, true)).collect::<Vec<_>>());
        assert!(controller.disconnect(&mut pair.host).is_err());
    }
}

#[test]
fn a_target_that_shuts_down_tells_its_hosts() {
    let mut pair = Pair::plain();
    let (controller, _) = pair.connect(options(DataPlacement::StandingKey, true));
    let target = pair.target().take().unwrap();
    target.shut_down(LONG).unwrap();
    let end = pair.world.clock().now() + LONG;
    let mut controller = controller;
    let error = loop {
        match controller.turn(&mut pair.host) {
            Err(error) => break error,
            Ok(()) => pair.world.clock().pause(Duration::from_millis(1)),
        }
        assert!(pair.world.clock().now() < end, "the host notices nothing");
    };
    assert_eq!(error.to_string(), "queue 0: the target has disconnected");
}

/// Calls of set-up poll the admin queue, too, and meet the answers to keep-alives.
#[test]
fn a_keep_alive_that_a_call_sees_answered_is_answered() {
    let mut pair = Pair::plain();
    let (mut controller, _) = pair.connect(ControllerOptions::default());
    let pass = |pair: &mut Pair, time: Duration| {
        let end = pair.world.clock().now() + time;
        while pair.world.clock().now() < end {
            pair.turn();
            pair.world.clock().pause(Duration::from_millis(100));
        }
    };
    // Half of the keep-alive timeout, of 15 s, and then more than all of it.
    pass(&mut pair, Duration::from_secs(8));
    controller.turn(&mut pair.host).unwrap();
    controller.namespaces(&mut pair.host).unwrap();
    pass(&mut pair, Duration::from_secs(16));
    controller.turn(&mut pair.host).unwrap();
    controller.disconnect(&mut pair.host).unwrap();
    pair.await_quiet();
}

#[test]
fn an_answer_that_comes_late_is_not_taken_for_that_of_the_next_call() {
    let world = World::new(1);
    let (cards, _) = world.simulated().joined([Card::builder(), Card::builder()], Conditions::default()).unwrap();
    let [near, far]: [Arc<Device>; 2] = cards.each_ref().map(|card| world.open(card).unwrap());
    let options = TargetOptions::new(NQN);
    let remote = SocketAddr::new(far.gids()[0].address.into(), options.port);
    let disk = RamDisk::new(BLOCKS, BLOCK as u32).unwrap();
    let mut target = Target::new(&far, None, options, vec![Box::new(disk)]).unwrap();
    let (clock, stands) = (world.clock().clone(), Arc::new(AtomicBool::new(false)));
    let is_still = Arc::clone(&stands);
    let mut with = HostOptions::default();
    with.timeout = Duration::from_secs(1);
    with.idle = Some(Box::new(move || {
        if !is_still.load(Ordering::Relaxed) {
            target.poll().unwrap();
        }
        clock.pause(Duration::from_micros(50));
    }));
    let mut host = Host::new(&near, None, with).unwrap();
    let mut controller = host.connect(remote, NQN, ControllerOptions::default()).unwrap();
    stands.store(true, Ordering::Relaxed);
    assert!(matches!(controller.io_queue(&mut host), Err(HostError::Timeout { .. })));
    stands.store(false, Ordering::Relaxed);
    assert_eq!(controller.namespaces(&mut host).unwrap().len(), 1);
    controller.io_queue(&mut host).unwrap();
}

#[test]
fn a_host_that_falls_silent_is_forgotten_with_its_queues() {
    let mut pair = Pair::plain();
    let (mut controller, _) = pair.connect(options(DataPlacement::StandingKey, true));
    let _queue = controller.io_queue(&mut pair.host).unwrap();
    assert_eq!((pair.statistics().controllers, pair.statistics().queues), (1, 2));
    // Nobody polls the host, and it sends no keep-alive.
    let silence = pair.world.clock().now() + Duration::from_secs(60);
    while pair.world.clock().now() < silence {
        pair.target().as_mut().unwrap().poll().unwrap();
        pair.world.clock().pause(Duration::from_millis(10));
    }
    assert_eq!((pair.statistics().controllers, pair.statistics().queues), (0, 0));
}

#[test]
fn the_death_of_a_card_is_told_at_the_next_turn() {
    let mut pair = Pair::plain();
    let (mut controller, _) = pair.connect(options(DataPlacement::StandingKey, true));
    for card in &pair.cards {
        card.function(0).faults().inject(Fault::Health { syndrome: 0x8 }, Times::Always);
    }
    let clock = pair.world.clock().clone();
    let missed = clock.now() + ControllerOptions::default().keep_alive;
    // Until the driver has read the card's health.
    while controller.turn(&mut pair.host).is_ok() || pair.target().as_mut().unwrap().poll().is_ok() {
        assert!(clock.now() < missed, "the keep-alive would be missed");
        clock.pause(Duration::from_millis(5));
    }
    let error = controller.turn(&mut pair.host).expect_err("a turn by a dead card");
    assert!(error.is_dead_device(), "{error}");
    let error = pair.host.connect(pair.remote, NQN, ControllerOptions::default()).expect_err("a dead card connects");
    assert!(error.is_dead_device(), "{error}");
    let error = pair.target().as_mut().unwrap().poll().expect_err("a poll of a dead card");
    assert!(matches!(error, TargetError::Manager(ManagerError::Device(error)) if error.is_dead()));
}

/// A disk that only reads, from a pipe: it answers when somebody has written to that.
struct PipeDisk(FileQueue);

impl Disk for PipeDisk {
    fn block_size(&self) -> u32 {
        BLOCK as u32
    }

    fn blocks(&self) -> u64 {
        BLOCKS as u64
    }

    fn read(&mut self, _: u64, _: &mut [u8]) -> io::Result<()> {
        unreachable!("it has a queue")
    }

    fn write(&mut self, _: u64, _: &[u8]) -> io::Result<()> {
        unreachable!("it has a queue")
    }

    fn write_zeroes(&mut self, _: u64, _: u64) -> io::Result<()> {
        unreachable!("it has a queue")
    }

    fn flush(&mut self) -> io::Result<()> {
        unreachable!("it has a queue")
    }

    fn queue(&mut self) -> Option<&mut FileQueue> {
        Some(&mut self.0)
    }
}

#[test]
fn a_disk_that_does_not_answer_shows_in_the_targets_statistics() {
    let (reader, mut writer) = io::pipe().unwrap();
    let disk = PipeDisk(FileQueue::new(File::from(OwnedFd::from(reader)), 4).unwrap());
    let mut pair = Pair::with_disk(1, 0, TargetOptions::new(NQN), Box::new(disk));
    let (mut controller, namespace) = pair.connect(options(DataPlacement::StandingKey, true));
    let mut queue = controller.io_queue(&mut pair.host).unwrap();
    let buffer = queue.buffers(1, BLOCK).unwrap().pop().unwrap();
    queue.read(&namespace, 0, buffer, 1).unwrap();
    let end = pair.world.clock().now() + LONG;
    while pair.statistics().at_disks == 0 && pair.world.clock().now() < end {
        pair.turn();
    }
    let silence = Duration::from_secs(11);
    let end = pair.world.clock().now() + silence;
    while pair.world.clock().now() < end {
        pair.turn();
        pair.world.clock().pause(Duration::from_millis(10));
    }
    let waiting = pair.statistics();
    assert!(waiting.at_disks == 1 && waiting.longest_at_disk >= silence, "{waiting:?}");
    writer.write_all(&[7; BLOCK]).unwrap();
    let completed = pair.wait(&mut queue).unwrap();
    let mut found = [0; BLOCK];
    completed.buffer.unwrap().read(0, &mut found);
    assert_eq!((completed.status, found), (Status::SUCCESS, [7; BLOCK]));
    let done = pair.statistics();
    assert_eq!((done.at_disks, done.longest_at_disk), (0, Duration::ZERO));
    assert_eq!(queue.close().len(), 0);
    controller.disconnect(&mut pair.host).unwrap();
    pair.await_quiet();
}
