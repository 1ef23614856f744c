//! Several hosts at one target at once, in virtual time: each verifies what it reads, and one of them is killed.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mlx5_dv::Options;
use mlx5_nvme::{
    Controller, ControllerOptions, DataPlacement, Host, HostOptions, IoBuffer, IoQueue, Namespace, RamDisk, Target,
    TargetOptions, TargetStatistics,
};
use mlx5_open::virtual_time::World;
use mlx5_sim::card::{Card, SteppedCard};
use mlx5_sim::world::Conditions;

const NQN: &str = "nqn.2014-08.example:disk";
const BLOCK: usize = 512;
const HOSTS: usize = 3;
/// Of each host.
const QUEUES: usize = 3;
/// Parts of a queue's share of the disk; one command of each is under way.
const PARTS: usize = 6;
/// Blocks of a part: longer than what goes in a capsule.
const PART: usize = 40;
/// Longer than anything takes.
const LONG: Duration = Duration::from_secs(600);

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) as usize % limit
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.below(256) as u8).collect()
    }
}

/// A command under way: the bytes of its part, and what they are after a write.
struct Doing {
    range: Range<usize>,
    written: Option<Vec<u8>>,
}

struct Part {
    first: u64,
    /// What it holds, as far as that was answered.
    bytes: Vec<u8>,
    doing: Option<Doing>,
}

/// A queue, and its share of the disk.
struct Work {
    queue: IoQueue,
    parts: Vec<Part>,
    buffers: Vec<IoBuffer>,
    done: usize,
}

impl Work {
    fn new(queue: IoQueue, share: usize) -> Self {
        let first = |part: usize| ((share * PARTS + part) * PART) as u64;
        let part = |part| Part { first: first(part), bytes: vec![0; PART * BLOCK], doing: None };
        let buffers = queue.buffers(PARTS, PART * BLOCK).unwrap();
        Work { queue, parts: (0..PARTS).map(part).collect(), buffers, done: 0 }
    }

    /// Has a command under way in each part.
    fn submit(&mut self, namespace: &Namespace, random: &mut Random) {
        for (user, part) in self.parts.iter_mut().enumerate().filter(|(_, part)| part.doing.is_none()) {
            let blocks = 1 + random.below(PART);
            let first = random.below(PART - blocks + 1);
            let range = first * BLOCK..(first + blocks) * BLOCK;
            let (lba, what) = (part.first + first as u64, random.below(8));
            if what == 0 {
                self.queue.write_zeroes(namespace, lba, blocks as u32, user as u64).unwrap();
                part.doing = Some(Doing { written: Some(vec![0; range.len()]), range });
                continue;
            }
            let mut buffer = self.buffers.pop().unwrap();
            buffer.set_len(range.len());
            if what < 4 {
                buffer.write(0, &vec![0xa5; range.len()]);
                self.queue.read(namespace, lba, buffer, user as u64).unwrap();
                part.doing = Some(Doing { range, written: None });
            } else {
                let bytes = random.bytes(range.len());
                buffer.write(0, &bytes);
                self.queue.write(namespace, lba, buffer, user as u64).unwrap();
                part.doing = Some(Doing { range, written: Some(bytes) });
            }
        }
    }

    /// Takes the answers that have come, and compares what was read.
    fn poll(&mut self) {
        while let Some(completed) = self.queue.poll().unwrap() {
            assert!(completed.status.is_success(), "{}", completed.status);
            let part = &mut self.parts[completed.user as usize];
            let Doing { range, written } = part.doing.take().unwrap();
            match (written, &completed.buffer) {
                (Some(written), _) => part.bytes[range].copy_from_slice(&written),
                (None, Some(buffer)) => {
                    let mut found = vec![0; range.len()];
                    buffer.read(0, &mut found);
                    assert!(found == part.bytes[range.clone()], "bytes {range:?} of the part at {}", part.first);
                }
                (None, None) => panic!("a read without its buffer"),
            }
            self.buffers.extend(completed.buffer);
            self.done += 1;
        }
    }
}

struct Client {
    host: Host,
    controller: Controller,
    namespace: Namespace,
    works: Vec<Work>,
    random: Random,
}

impl Client {
    fn turn(&mut self, submits: bool) {
        self.controller.turn(&mut self.host).unwrap();
        for work in &mut self.works {
            if submits {
                work.submit(&self.namespace, &mut self.random);
            }
            work.poll();
        }
    }

    fn done(&self) -> usize {
        self.works.iter().map(|work| work.done).sum()
    }

    fn is_idle(&self) -> bool {
        self.works.iter().all(|work| work.queue.under_way() == 0)
    }
}

struct Setup {
    world: World,
    cards: [Arc<SteppedCard>; 2],
    target: Arc<Mutex<Target>>,
    remote: SocketAddr,
}

impl Setup {
    fn new(seed: u64, loss: u32) -> Self {
        let world = World::new(seed);
        let conditions = Conditions { loss, duplication: loss / 2, reordering: loss / 2, ..Conditions::default() };
        // One more: nothing gives back what a dead process has of its function.
        let builders = [Card::builder().functions(HOSTS + 1), Card::builder()];
        let (cards, _) = world.simulated().joined(builders, conditions).unwrap();
        let far = world.open(&cards[1]).unwrap();
        let options = TargetOptions::new(NQN);
        let remote = SocketAddr::new(far.gids()[0].address.into(), options.port);
        let disk = RamDisk::new(HOSTS * QUEUES * PARTS * PART, BLOCK as u32).unwrap();
        let target = Target::new(&far, None, options, vec![Box::new(disk)]).unwrap();
        Setup { world, cards, target: Arc::new(Mutex::new(target)), remote }
    }

    /// Host `number`, on `function`.
    fn host(&self, number: usize, function: usize) -> Host {
        let device = self.world.open_with(&self.cards[0], function, Options::default()).unwrap();
        let (clock, target) = (self.world.clock().clone(), Arc::clone(&self.target));
        let mut with = HostOptions::default();
        with.nqn = Some(format!("nqn.2014-08.example:host-{number}"));
        with.id = Some([number as u8 + 1; 16]);
        with.timeout = LONG;
        with.idle = Some(Box::new(move || {
            target.lock().unwrap().poll().unwrap();
            clock.pause(Duration::from_micros(50));
        }));
        Host::new(&device, None, with).unwrap()
    }

    fn connect(&self, (number, function): (usize, usize), placement: DataPlacement) -> Client {
        let mut host = self.host(number, function);
        let mut options = ControllerOptions::default();
        (options.io_queues, options.depth, options.placement) = (QUEUES as u16, PARTS as u16, placement);
        let mut controller = host.connect(self.remote, NQN, options).unwrap();
        let namespace = controller.namespaces(&mut host).unwrap()[0];
        let mut work = |queue| Work::new(controller.io_queue(&mut host).unwrap(), number * QUEUES + queue);
        let works = (0..QUEUES).map(&mut work).collect();
        Client { host, controller, namespace, works, random: Random(number as u64) }
    }

    fn statistics(&self) -> TargetStatistics {
        self.target.lock().unwrap().statistics()
    }

    /// Turns until `is_done`; time goes by `step` in each.
    fn run(
        &self,
        what: &str,
        clients: &mut [&mut Client],
        (submits, step): (bool, Duration),
        mut is_done: impl FnMut(&Self, &[&mut Client]) -> bool,
    ) {
        let end = self.world.clock().now() + LONG;
        while !is_done(self, clients) {
            clients.iter_mut().for_each(|client| client.turn(submits));
            self.target.lock().unwrap().poll().unwrap();
            self.world.clock().pause(step);
            assert!(self.world.clock().now() < end, "never: {what}; {:?}", self.statistics());
        }
    }
}

const SHORT: Duration = Duration::from_micros(50);

/// Three hosts of three queues work until one of them dies, with commands under way in all queues of all hosts. Each
/// does `commands` before that, and the others as many afterwards.
fn one_of_three_dies(seed: u64, loss: u32, placement: DataPlacement, commands: usize) {
    let setup = Setup::new(seed, loss);
    let [mut first, mut second, mut third] = std::array::from_fn(|number| setup.connect((number, number), placement));
    let all = HOSTS * (1 + QUEUES);
    assert_eq!((setup.statistics().controllers, setup.statistics().queues), (HOSTS, all));
    setup.run("all work", &mut [&mut first, &mut second, &mut third], (true, SHORT), |_, clients| {
        let busy = |client: &&mut Client| client.works.iter().all(|work| work.queue.under_way() > 0);
        clients.iter().all(|client| client.done() >= commands) && clients.iter().all(busy)
    });

    // As VFIO ends a function whose process is gone: nobody is told.
    let Client { host, controller, works, .. } = second;
    let mut lost = Vec::new();
    for Work { queue, parts, buffers, .. } in works {
        assert!(queue.under_way() > 0);
        std::mem::forget((queue, buffers));
        lost.extend(parts);
    }
    std::mem::forget((host, controller));
    setup.cards[0].function(1).abandon();

    let before = [first.done(), third.done()];
    setup.run("the others go on", &mut [&mut first, &mut third], (true, SHORT), |_, clients| {
        clients.iter().zip(before).all(|(client, before)| client.done() >= before + commands)
    });
    setup.run("the others are answered", &mut [&mut first, &mut third], (false, SHORT), |_, clients| {
        clients.iter().all(|client| client.is_idle())
    });
    // The dead one is noticed, and the others stay.
    let left = (HOSTS - 1, all - 1 - QUEUES);
    let slow = (false, Duration::from_millis(10));
    setup.run("the dead host is forgotten", &mut [&mut first, &mut third], slow, |setup, _| {
        let now = setup.statistics();
        (now.controllers, now.queues) == left && now.chunks_in_use == 0
    });

    // It comes back, on another function: each block holds what was answered last, or what a write under way left.
    let mut again = setup.connect((1, HOSTS), placement);
    let queue = &mut again.works[0];
    for part in &lost {
        let buffer = queue.buffers.pop().unwrap();
        queue.queue.read(&again.namespace, part.first, buffer, 0).unwrap();
        let buffer = loop {
            if let Some(completed) = queue.queue.poll().unwrap() {
                assert!(completed.status.is_success(), "{}", completed.status);
                break completed.buffer.unwrap();
            }
            let mut turns = 0;
            setup.run("it reads", &mut [&mut first, &mut third], (false, SHORT), |_, _| {
                turns += 1;
                turns > 1
            });
        };
        let mut found = vec![0; PART * BLOCK];
        buffer.read(0, &mut found);
        queue.buffers.push(buffer);
        let mut other = part.bytes.clone();
        if let Some(Doing { range, written: Some(written) }) = &part.doing {
            other[range.clone()].copy_from_slice(written);
        }
        let both = part.bytes.chunks(BLOCK).zip(other.chunks(BLOCK));
        for (number, (block, (old, new))) in found.chunks(BLOCK).zip(both).enumerate() {
            assert!(block == old || block == new, "block {}", part.first + number as u64);
        }
    }

    let before = [first.done(), third.done()];
    setup.run("the others still work", &mut [&mut first, &mut third], (true, SHORT), |_, clients| {
        clients.iter().zip(before).all(|(client, before)| client.done() >= before + commands / 4)
    });
    setup.run("the last are answered", &mut [&mut first, &mut third], (false, SHORT), |_, clients| {
        clients.iter().all(|client| client.is_idle())
    });
    let mut hosts = Vec::new();
    for Client { mut host, controller, works, .. } in [first, again, third] {
        assert!(works.into_iter().all(|work| work.queue.close().is_empty()));
        controller.disconnect(&mut host).unwrap();
        hosts.push(host);
    }
    let end = setup.world.clock().now() + LONG;
    while setup.statistics().queues > 0 && setup.world.clock().now() < end {
        hosts.iter_mut().for_each(|host| host.turn().unwrap());
        setup.target.lock().unwrap().poll().unwrap();
        setup.world.clock().pause(SHORT);
    }
    let last = setup.statistics();
    assert_eq!((last.controllers, last.queues, last.chunks_in_use), (0, 0, 0), "{last:?}");
    for function in 0..=HOSTS {
        assert_eq!(setup.cards[0].function(function).strict().take(), []);
    }
    assert_eq!(setup.cards[1].function(0).strict().take(), []);
}

#[test]
fn hosts_read_what_they_wrote_while_another_is_killed() {
    one_of_three_dies(1, 0, DataPlacement::StandingKey, 200);
}

#[test]
fn hosts_read_what_they_wrote_over_a_cable_that_loses_frames_while_another_is_killed() {
    one_of_three_dies(2, 20_000, DataPlacement::FastKey, 100);
}
