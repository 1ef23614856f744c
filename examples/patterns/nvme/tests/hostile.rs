//! Hosts that break the protocol at a target, beside one that keeps it; and targets that break it at a host. Private
//! data, capsules, keys and answers are random. Nothing panics or hangs, nothing is lost, nobody else is disturbed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use mlx5_cm::{ConnectionId, ConnectionManager, Event, Parameters, Route, Service};
use mlx5_dv::Device;
use mlx5_dv::clock::Clock;
use mlx5_dv::objects::{AccessFlags, Buffer, MemoryRegion, Pd};
use mlx5_dv::queue::{Connection, ConnectionOptions, Side};
use mlx5_files::FileQueue;
use mlx5_nvme::wire::{
    self, CmReply, CmRequest, Command, Completion, Connect, ConnectData, KeyedSgl, OffsetSgl, PropertySet, ReadWrite,
};
use mlx5_nvme::{
    ControllerOptions, DataPlacement, Disk, FileDisk, Host, HostError, HostOptions, RamDisk, Status, Target,
    TargetOptions,
};
use mlx5_open::virtual_time::World;
use mlx5_sim::card::Card;
use mlx5_sim::world::Conditions;
use zerocopy::{FromBytes, IntoBytes};

const NQN: &str = "nqn.2014-08.example:disk";
/// Bytes of a buffer of ours.
const BUFFER: usize = 8192;
const LONG: Duration = Duration::from_secs(600);

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 8) % limit
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.next() as u8)
    }

    fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize]
    }
}

/// An end that speaks the connection manager's protocol well, and sends what a test likes.
struct Raw {
    manager: ConnectionManager,
    pd: Arc<Pd>,
    region: Arc<MemoryRegion>,
    connection: Option<Connection>,
}

impl Raw {
    fn new(device: &Arc<Device>) -> Self {
        let pd = Pd::alloc(device).unwrap();
        let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE;
        let region = MemoryRegion::allocate(&pd, 64 * BUFFER, access).unwrap();
        Raw { manager: ConnectionManager::new(device, None).unwrap(), pd, region, connection: None }
    }

    /// The target's next answer, if it has come.
    fn answer(&mut self) -> Option<Completion> {
        let done = self.connection.as_mut().unwrap().poll().unwrap()?;
        if done.result.as_ref().unwrap().work.side != Side::Receive {
            return None;
        }
        let mut bytes = [0; 16];
        done.buffer.unwrap().read(0, &mut bytes);
        Some(Completion::read_from_bytes(&bytes).unwrap())
    }

    /// A connection with receives, in INIT.
    fn fresh(&mut self) -> &mut Connection {
        self.connection = None;
        let mut options = ConnectionOptions::default();
        options.inline_bytes = 64;
        let mut connection = Connection::new(&self.pd, options).unwrap();
        for number in 0..32 {
            let buffer = self.region.buffer(number * BUFFER..(number + 1) * BUFFER).unwrap();
            connection.receive(buffer).unwrap();
        }
        self.connection.insert(connection)
    }

    fn call(&mut self, remote: SocketAddr, private_data: &[u8]) -> ConnectionId {
        let qpn = self.fresh().queue_pair().qpn();
        let parameters = Parameters::new(qpn, 0).private_data(private_data);
        self.manager.connect(remote, Route::default(), &parameters).unwrap()
    }

    /// Connects the queue pair that the connection manager has agreed on.
    fn connect(&mut self, id: ConnectionId) {
        let (rtr, rts) = self.manager.attributes(id).unwrap();
        self.connection.as_mut().unwrap().connect_by(&rtr, &rts).unwrap();
    }

    /// A buffer to send from.
    fn spare(&self) -> Buffer {
        self.region.buffer(32 * BUFFER..33 * BUFFER).unwrap()
    }
}

/// A target with a disk, its address, and a raw end on another card.
fn target_and_raw(seed: u64) -> (World, Target, SocketAddr, Raw) {
    let world = World::new(seed);
    let (cards, _) = world.simulated().joined([Card::builder(), Card::builder()], Conditions::default()).unwrap();
    let devices = cards.each_ref().map(|card| world.open(card).unwrap());
    let options = TargetOptions::new(NQN);
    let remote = SocketAddr::new(devices[0].gids()[0].address.into(), options.port);
    let disk = RamDisk::new(64, 512).unwrap();
    let target = Target::new(&devices[0], None, options, vec![Box::new(disk)]).unwrap();
    (world, target, remote, Raw::new(&devices[1]))
}

/// A good CONNECT for queue `qid` of `size` commands, with its data in the capsule. Queue 0 makes a controller, whose
/// number the others name.
fn connect_capsule(qid: u16, size: u16, cntlid: u16) -> Vec<u8> {
    connect_capsule_to(NQN, (qid, size, cntlid))
}

fn connect_capsule_to(subsystem: &str, (qid, size, cntlid): (u16, u16, u16)) -> Vec<u8> {
    let mut data = ConnectData { cntlid: cntlid.into(), ..ConnectData::default() };
    wire::put_text(&mut data.subsystem, subsystem);
    wire::put_text(&mut data.host, "nqn.2014-08.example:hostile");
    let length = (data.as_bytes().len() as u32).into();
    let sgl = OffsetSgl { length, kind: wire::sgl_type::IN_CAPSULE, ..OffsetSgl::default() };
    let connect = Connect {
        fctype: wire::fabric::CONNECT,
        qid: qid.into(),
        sqsize: (size - 1).into(),
        ..Command::new(wire::fabric::COMMAND).data(sgl).form()
    };
    [connect.as_bytes(), data.as_bytes()].concat()
}

fn admin_capsule() -> Vec<u8> {
    connect_capsule(0, 32, 0xffff)
}

/// Random capsules: some bytes as a host has them, others not.
fn capsule(random: &mut Random, raw: &Raw) -> Vec<u8> {
    if random.below(6) == 0 {
        let len = random.below(100) as usize;
        return (0..len).map(|_| random.next() as u8).collect();
    }
    if random.below(5) == 0 {
        return admin_capsule();
    }
    let mut command = Command::read_from_bytes(&random.bytes::<64>()).unwrap();
    command.opcode = random.one_of(&[0x00, 0x01, 0x02, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x18, 0x7f, command.opcode]);
    command.flags = random.one_of(&[0x40, 0x40, 0x40, command.flags]);
    command.nsid = random.one_of(&[0, 1, 1, 4, 0xffff_ffff, command.nsid.get()]).into();
    if random.below(2) == 0 {
        command.cdw10 = random.one_of(&[0, 1, 2, 3, 7, 0x0f]).into();
        (command.cdw11, command.cdw12) = (0.into(), 0.into());
    }
    let remote = raw.region.remote_at(40 * BUFFER);
    let length = random.one_of(&[0, 512, 4096, 65536, 1 << 20, 0xff_ffff]);
    let keyed = |key, kind| KeyedSgl::new(remote.addr, length, key, kind);
    let command = match random.below(6) {
        0 => command,
        1 => command.data(OffsetSgl { length: length.into(), kind: 1, ..OffsetSgl::default() }),
        2 => command.data(keyed(0xdead, wire::sgl_type::KEYED)),
        3 => command.data(keyed(0xdead, wire::sgl_type::KEYED_INVALIDATE)),
        _ => command.data(keyed(remote.rkey, wire::sgl_type::KEYED)),
    };
    let mut bytes = command.as_bytes().to_vec();
    bytes.resize(64 + random.below(4) as usize * 512, 0x5a);
    bytes
}

/// Private data of a REQ: good, wrong in a field, short, or random.
fn request(random: &mut Random) -> Vec<u8> {
    let mut request = CmRequest { qid: 0.into(), hrqsize: 32.into(), hsqsize: 31.into(), ..CmRequest::default() };
    match random.below(8) {
        0 => request.recfmt = 1.into(),
        1 => request.qid = (random.next() as u16).into(),
        2 => request.hsqsize = random.one_of(&[0, 32, 0xffff]).into(),
        3 => request.hrqsize = 1.into(),
        4 => return random.bytes::<32>().to_vec(),
        _ => {}
    }
    request.as_bytes().to_vec()
}

#[test]
fn hosts_that_break_the_protocol_disturb_nobody() {
    let world = World::new(7);
    let cards = [Card::builder(), Card::builder().functions(2)];
    let (cards, _) = world.simulated().joined(cards, Conditions::default()).unwrap();
    let far = world.open(&cards[0]).unwrap();
    let near = [0, 1].map(|index| world.open_with(&cards[1], index, mlx5_dv::Options::default()).unwrap());
    let mut options = TargetOptions::new(NQN);
    (options.chunk, options.chunks) = (64 << 10, 32);
    let remote = SocketAddr::new(far.gids()[0].address.into(), options.port);
    let disk = RamDisk::new(4096, 512).unwrap();
    let target = std::sync::Mutex::new(Target::new(&far, None, options, vec![Box::new(disk)]).unwrap());
    let target = Arc::new(target);

    let mut with = HostOptions::default();
    let (clock, served) = (world.clock().clone(), Arc::clone(&target));
    with.idle = Some(Box::new(move || {
        served.lock().unwrap().poll().unwrap();
        clock.pause(Duration::from_micros(50));
    }));
    let mut host = Host::new(&near[0], None, with).unwrap();
    let mut controller = host.connect(remote, NQN, ControllerOptions::default()).unwrap();
    let namespace = controller.namespaces(&mut host).unwrap()[0];
    let mut queue = controller.io_queue(&mut host).unwrap();
    let mut buffer = queue.buffers(1, 4096).unwrap().pop().unwrap();
    buffer.write(0, &[0x77; 4096]);
    // Blocks that no hostile WRITE names: they all start at what a random number, or 0 to 15, gives.
    queue.write(&namespace, 4000, buffer, 0).unwrap();

    let mut raw = Raw::new(&near[1]);
    let mut random = Random(0x1234_5678_9abc_def1);
    let (mut ended, mut refused, mut goods) = (0, 0, 0);
    for round in 0..60 {
        let id = raw.call(remote, &request(&mut random));
        let mut connected = false;
        let mut sent = 0;
        for _ in 0..400 {
            target.lock().unwrap().poll().unwrap();
            controller.turn(&mut host).unwrap();
            if let Some(done) = queue.poll().unwrap() {
                assert!(done.status.is_success(), "{}", done.status);
                let buffer = done.buffer.unwrap();
                if done.user == 1 {
                    let mut found = [0; 4096];
                    buffer.read(0, &mut found);
                    assert!(found == [0x77; 4096], "round {round}");
                    goods += 1;
                }
                queue.read(&namespace, 4000, buffer, 1).unwrap();
            }
            match raw.manager.poll().unwrap() {
                Some((of, Event::ConnectResponse { .. })) if of == id => {
                    raw.connect(id);
                    raw.manager.ready(id, &[]).unwrap();
                    connected = true;
                }
                Some((of, event)) if of == id && event.is_last() => break,
                _ => {}
            }
            if connected && sent < 24 {
                let bytes = if sent == 0 && round % 3 == 0 { admin_capsule() } else { capsule(&mut random, &raw) };
                let mut buffer = raw.spare();
                buffer.set_len(bytes.len().max(1));
                buffer.write(0, &bytes);
                let connection = raw.connection.as_mut().unwrap();
                if connection.send(buffer).is_ok() {
                    sent += 1;
                }
                while connection.poll().is_ok_and(|done| done.is_some()) {
                    world.clock().pause(Duration::from_micros(5));
                }
            }
            world.clock().pause(Duration::from_micros(200));
            // The one buffer to send from comes back.
            while raw.region.buffer(32 * BUFFER..33 * BUFFER).is_err() {
                let _ = raw.connection.as_mut().unwrap().poll();
                target.lock().unwrap().poll().unwrap();
                world.clock().pause(Duration::from_micros(50));
            }
        }
        if connected {
            ended += 1
        } else {
            refused += 1
        }
        let _ = raw.manager.destroy(id);
        raw.connection = None;
        for _ in 0..2000 {
            let _ = raw.manager.poll();
            target.lock().unwrap().poll().unwrap();
            world.clock().pause(Duration::from_millis(1));
            controller.turn(&mut host).unwrap();
        }
    }
    assert!(ended > 10 && refused > 10 && goods > 100, "{ended} queues, {refused} refused, {goods} reads beside");
    let end = world.clock().now() + LONG;
    while target.lock().unwrap().statistics().queues > 2 && world.clock().now() < end {
        target.lock().unwrap().poll().unwrap();
        controller.turn(&mut host).unwrap();
        let _ = queue.poll().unwrap();
        world.clock().pause(Duration::from_millis(10));
    }
    let left = target.lock().unwrap().statistics();
    assert_eq!((left.queues, left.controllers), (2, 1), "{left:?}");
}

#[test]
fn a_flood_of_connections_is_answered_some_at_a_turn() {
    const REQUESTS: usize = 40;
    let (world, mut target, remote, mut raw) = target_and_raw(4);
    let mut connections = Vec::new();
    for _ in 0..REQUESTS {
        let connection = Connection::new(&raw.pd, ConnectionOptions::default()).unwrap();
        // Of no format that there is.
        let parameters = Parameters::new(connection.queue_pair().qpn(), 0).private_data(&[0xff; 32]);
        raw.manager.connect(remote, Route::default(), &parameters).unwrap();
        connections.push(connection);
    }
    let answered = |raw: &mut Raw| {
        let mut answered = 0;
        for _ in 0..4 * REQUESTS {
            answered += usize::from(raw.manager.poll().unwrap().is_some_and(|(_, event)| event.is_last()));
            world.clock().pause(Duration::from_micros(50));
        }
        answered
    };
    assert_eq!(answered(&mut raw), 0, "all are on their way");
    assert!(target.poll().unwrap());
    let first = answered(&mut raw);
    assert!((1..=REQUESTS / 2).contains(&first), "{first} answered at once");
    let (mut all, mut turns) = (first, 1);
    while all < REQUESTS {
        assert!(turns < REQUESTS, "{all} answered in {turns} turns");
        assert!(target.poll().unwrap());
        (all, turns) = (all + answered(&mut raw), turns + 1);
    }
}

/// Lets the target work, and the connection manager of the raw end, until that has an event.
fn event(world: &World, target: &mut Target, raw: &mut Raw) -> Event {
    let end = world.clock().now() + LONG;
    while world.clock().now() < end {
        if let Some((_, event)) = raw.manager.poll().unwrap() {
            return event;
        }
        target.poll().unwrap();
        world.clock().pause(Duration::from_micros(50));
    }
    panic!("no event; {target:?}");
}

/// Until then the connection manager has nothing to end, and afterwards no queue knows the connection.
#[test]
fn a_queue_that_ends_before_its_host_is_ready_leaves_no_connection() {
    let (world, mut target, remote, mut raw) = target_and_raw(5);
    let request = CmRequest { qid: 0.into(), hrqsize: 32.into(), hsqsize: 31.into(), ..CmRequest::default() };
    let id = raw.call(remote, request.as_bytes());
    assert!(matches!(event(&world, &mut target, &mut raw), Event::ConnectResponse { .. }));
    raw.connect(id);
    // Too short for a command.
    raw.connection.as_mut().unwrap().send_inline_unreported(&[0; 16]).unwrap();
    let end = world.clock().now() + LONG;
    while target.statistics().broken == 0 && world.clock().now() < end {
        target.poll().unwrap();
        world.clock().pause(Duration::from_micros(50));
    }
    assert_eq!((target.statistics().broken, target.statistics().queues), (1, 0));
    raw.manager.ready(id, &[]).unwrap();
    assert!(matches!(event(&world, &mut target, &mut raw), Event::Disconnected { .. }));
}

#[test]
fn a_host_of_discovery_that_vanishes_is_forgotten() {
    let (world, mut target, remote, mut raw) = target_and_raw(6);
    let capsule = connect_capsule_to(wire::DISCOVERY, (0, 32, 0xffff));
    join(&world, &mut target, (&mut raw, remote), &capsule);
    let begin = world.clock().now();
    while target.statistics().controllers > 0 && world.clock().now() < begin + LONG {
        let _ = raw.manager.poll().unwrap();
        target.poll().unwrap();
        world.clock().pause(Duration::from_millis(100));
    }
    assert_eq!((target.statistics().controllers, target.statistics().queues), (0, 0));
    // Linux gives it 120 s.
    assert!(world.clock().now() - begin > Duration::from_secs(120));
}

/// Lets the target work until it has answered.
fn answered(world: &World, target: &mut Target, raw: &mut Raw) -> Completion {
    for _ in 0..10_000 {
        target.poll().unwrap();
        world.clock().pause(Duration::from_micros(50));
        if let Some(completion) = raw.answer() {
            assert_eq!(completion.status.get() >> 1, 0);
            return completion;
        }
    }
    panic!("no answer");
}

/// Makes the queue that `capsule`, a good CONNECT, asks for. Returns the controller's number.
fn join(world: &World, target: &mut Target, (raw, remote): (&mut Raw, SocketAddr), capsule: &[u8]) -> u16 {
    let (connect, _) = Connect::read_from_prefix(capsule).unwrap();
    let request = CmRequest { qid: connect.qid, hrqsize: 32.into(), hsqsize: connect.sqsize, ..CmRequest::default() };
    let id = raw.call(remote, request.as_bytes());
    let mut turns = 0..10_000;
    while !matches!(raw.manager.poll().unwrap(), Some((_, Event::ConnectResponse { .. }))) {
        turns.next().expect("no response");
        target.poll().unwrap();
        world.clock().pause(Duration::from_micros(50));
    }
    raw.connect(id);
    raw.manager.ready(id, &[]).unwrap();
    let mut buffer = raw.spare();
    buffer.set_len(capsule.len());
    buffer.write(0, capsule);
    raw.connection.as_mut().unwrap().send(buffer).unwrap();
    answered(world, target, raw).result.get() as u16
}

/// Lets as much time pass as a card waits before it sends again what met no receive.
fn pass(clock: &Clock) {
    let end = clock.now() + Duration::from_millis(10);
    while clock.now() < end {
        clock.pause(Duration::from_millis(1));
    }
}

/// A target of `disks`, and two raw ends: the queues of a controller, the second an I/O queue of `size` commands.
fn target_with_queue(world: &World, disks: Vec<Box<dyn Disk>>, size: u16) -> (Target, [Raw; 2]) {
    let cards = [Card::builder(), Card::builder().functions(2)];
    let (cards, _) = world.simulated().joined(cards, Conditions::default()).unwrap();
    let device = world.open(&cards[0]).unwrap();
    let options = TargetOptions::new(NQN);
    let remote = SocketAddr::new(device.gids()[0].address.into(), options.port);
    let mut target = Target::new(&device, None, options, disks).unwrap();
    let [mut admin, mut raw] =
        [0, 1].map(|index| Raw::new(&world.open_with(&cards[1], index, mlx5_dv::Options::default()).unwrap()));
    let cntlid = join(world, &mut target, (&mut admin, remote), &admin_capsule());
    let enable = PropertySet {
        fctype: wire::fabric::PROPERTY_SET,
        offset: wire::property::CC.into(),
        value: u64::from(wire::property::CC_ENABLE | wire::property::CC_IOSQES | wire::property::CC_IOCQES).into(),
        ..Command::new(wire::fabric::COMMAND).form()
    };
    admin.connection.as_mut().unwrap().send_inline_unreported(enable.as_bytes()).unwrap();
    answered(world, &mut target, &mut admin);
    join(world, &mut target, (&mut raw, remote), &connect_capsule(1, size, cntlid));
    (target, [admin, raw])
}

/// A disk in a file whose flush by the target's thread is told.
struct Told(FileDisk, Arc<AtomicBool>);

impl Disk for Told {
    fn block_size(&self) -> u32 {
        self.0.block_size()
    }

    fn blocks(&self) -> u64 {
        self.0.blocks()
    }

    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> std::io::Result<()> {
        self.0.read(offset, bytes)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> std::io::Result<()> {
        self.0.write(offset, bytes)
    }

    fn write_zeroes(&mut self, offset: u64, len: u64) -> std::io::Result<()> {
        self.0.write_zeroes(offset, len)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.1.store(true, Ordering::Relaxed);
        self.0.flush()
    }

    fn queue(&mut self) -> Option<&mut FileQueue> {
        self.0.queue()
    }
}

#[test]
fn a_flush_of_all_namespaces_does_not_stop_the_target() {
    let world = World::new(7);
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let (by_thread, in_memory) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let told = Arc::clone(&in_memory);
    let mut disk = FileDisk::open(file.path(), 512).unwrap();
    let has_queue = disk.queue().is_some();
    let disks: Vec<Box<dyn Disk>> = vec![
        Box::new(Nothing(move || told.store(true, Ordering::Relaxed))),
        Box::new(Told(disk, Arc::clone(&by_thread))),
    ];
    let (mut target, [_admin, mut raw]) = target_with_queue(&world, disks, 4);
    let mut flush = Command::new(wire::io::FLUSH);
    flush.nsid = u32::MAX.into();
    raw.connection.as_mut().unwrap().send_inline_unreported(flush.as_bytes()).unwrap();
    let failed = target.statistics().failed;
    // The file's flush takes real time.
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    loop {
        target.poll().unwrap();
        world.clock().pause(Duration::from_micros(50));
        let done = raw.connection.as_mut().unwrap().poll().unwrap();
        if done.is_some_and(|done| done.result.as_ref().unwrap().work.side == Side::Receive) {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "no answer: {:?}", target.statistics());
        std::thread::sleep(Duration::from_micros(100));
    }
    assert_eq!((target.statistics().failed, target.statistics().at_disks), (failed, 0));
    assert!(in_memory.load(Ordering::Relaxed));
    assert_ne!(by_thread.load(Ordering::Relaxed), has_queue);
}

/// A disk that counts its flushes. Its queue, if it has one, is of a file that takes all writes and no flush.
struct Cached {
    has_write_cache: bool,
    flushes: Arc<AtomicUsize>,
    queue: Option<FileQueue>,
}

impl Disk for Cached {
    fn block_size(&self) -> u32 {
        512
    }

    fn blocks(&self) -> u64 {
        64
    }

    fn has_write_cache(&self) -> bool {
        self.has_write_cache
    }

    fn read(&mut self, _: u64, _: &mut [u8]) -> std::io::Result<()> {
        Ok(())
    }

    fn write(&mut self, _: u64, _: &[u8]) -> std::io::Result<()> {
        Ok(())
    }

    fn write_zeroes(&mut self, _: u64, _: u64) -> std::io::Result<()> {
        Ok(())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn queue(&mut self) -> Option<&mut FileQueue> {
        self.queue.as_mut()
    }
}

/// The status of an I/O command of one block.
fn status_of(world: &World, target: &mut Target, raw: &mut Raw, (opcode, control): (u8, u16)) -> u16 {
    let names = ReadWrite { nsid: 1.into(), control: control.into(), ..Command::new(opcode).form() };
    let command = Command::of(&names);
    let remote = raw.region.remote_at(40 * BUFFER);
    let command = match opcode {
        wire::io::WRITE => command.data(OffsetSgl { length: 512.into(), kind: 1, ..OffsetSgl::default() }),
        wire::io::READ => command.data(KeyedSgl::new(remote.addr, 512, remote.rkey, wire::sgl_type::KEYED)),
        _ => command,
    };
    let mut capsule = raw.spare();
    capsule.set_len(64 + if opcode == wire::io::WRITE { 512 } else { 0 });
    capsule.write(0, command.as_bytes());
    raw.connection.as_mut().unwrap().send(capsule).unwrap();
    // The file's work takes real time.
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    loop {
        target.poll().unwrap();
        world.clock().pause(Duration::from_micros(50));
        if let Some(completion) = raw.answer() {
            return completion.status.get() >> 1;
        }
        assert!(std::time::Instant::now() < deadline, "no answer: {:?}", target.statistics());
    }
}

#[test]
fn a_write_with_force_unit_access_is_answered_when_it_is_durable() {
    let fua = wire::control::FUA;
    let commands = [
        (wire::io::WRITE, 0),
        (wire::io::WRITE, fua),
        (wire::io::WRITE_ZEROES, 0),
        (wire::io::WRITE_ZEROES, fua),
        (wire::io::READ, fua),
    ];
    for (has_write_cache, expected) in [(true, [0, 1, 1, 2, 2]), (false, [0; 5])] {
        let world = World::new(8);
        let flushes = Arc::new(AtomicUsize::new(0));
        let disk = Cached { has_write_cache, flushes: Arc::clone(&flushes), queue: None };
        let (mut target, [_admin, mut raw]) = target_with_queue(&world, vec![Box::new(disk)], 4);
        let flushed = commands.map(|command| {
            assert_eq!(status_of(&world, &mut target, &mut raw, command), 0, "{command:?}");
            flushes.load(Ordering::Relaxed)
        });
        assert_eq!(flushed, expected, "write cache: {has_write_cache}");
    }
}

/// That its flush fails shows that there was one, and that it was waited for.
#[test]
fn a_write_with_force_unit_access_fails_if_the_disk_cannot_make_it_durable() {
    let null = std::fs::OpenOptions::new().write(true).open("/dev/null").unwrap();
    let Ok(queue) = FileQueue::new(null, 4) else { return };
    let world = World::new(9);
    let disk = Cached { has_write_cache: true, flushes: Arc::default(), queue: Some(queue) };
    let (mut target, [_admin, mut raw]) = target_with_queue(&world, vec![Box::new(disk)], 4);
    assert_eq!(status_of(&world, &mut target, &mut raw, (wire::io::WRITE, 0)), 0);
    let fault = status_of(&world, &mut target, &mut raw, (wire::io::WRITE, wire::control::FUA));
    assert_eq!(fault, Status::WRITE_FAULT.0);
    let left = target.statistics();
    assert_eq!((left.at_disks, left.chunks_in_use, left.flushes), (0, 0, 0));
}

/// Each flush takes so long that the next one comes, for which the target has posted a receive by then.
#[test]
fn a_flood_of_commands_is_served_some_at_a_turn() {
    const SIZE: u16 = 4;
    const COMMANDS: u64 = 24;
    let world = World::new(6);
    let clock = world.clock().clone();
    let disk = Nothing(move || pass(&clock));
    let (mut target, [_admin, mut raw]) = target_with_queue(&world, vec![Box::new(disk)], SIZE);
    let mut flush = Command::new(wire::io::FLUSH);
    flush.nsid = 1.into();
    for _ in 0..COMMANDS {
        raw.connection.as_mut().unwrap().send_inline_unreported(flush.as_bytes()).unwrap();
    }
    pass(world.clock());
    let (before, mut turns) = (target.statistics().commands, 0);
    while target.statistics().commands < before + COMMANDS {
        let served = target.statistics().commands;
        target.poll().unwrap();
        let served = target.statistics().commands - served;
        assert!(served <= SIZE.into(), "{served} in a turn");
        turns += 1;
        assert!(turns <= COMMANDS, "{:?}", target.statistics());
    }
    assert_eq!(turns, COMMANDS / u64::from(SIZE), "more came than a turn serves");
}

/// Its card says of each answer that it has no receive, for ever, and its commands go on.
#[test]
fn a_host_that_takes_no_answers_loses_its_queue() {
    let (world, mut target, remote, mut raw) = target_and_raw(3);
    let mut without_receives = ConnectionOptions::default();
    without_receives.inline_bytes = 64;
    let connection = raw.connection.insert(Connection::new(&raw.pd, without_receives).unwrap());
    let request = CmRequest { qid: 0.into(), hrqsize: 32.into(), hsqsize: 31.into(), ..CmRequest::default() };
    let mut parameters = Parameters::new(connection.queue_pair().qpn(), 0).private_data(request.as_bytes());
    parameters.rnr_retry_count = 7;
    let id = raw.manager.connect(remote, Route::default(), &parameters).unwrap();
    let (mut connected, mut sent) = (false, 0);
    while target.statistics().broken == 0 && sent < 1000 {
        target.poll().unwrap();
        if let Some((_, Event::ConnectResponse { .. })) = raw.manager.poll().unwrap() {
            raw.connect(id);
            raw.manager.ready(id, &[]).unwrap();
            connected = true;
        }
        let connection = raw.connection.as_mut().filter(|_| connected);
        if let Some(connection) = connection {
            let command = Command::new(wire::fabric::COMMAND);
            sent += usize::from(connection.send_inline(command.as_bytes()).is_ok());
            while connection.poll().unwrap().is_some() {}
        }
        world.clock().pause(Duration::from_micros(50));
    }
    let ended = target.statistics();
    assert_eq!((ended.broken, ended.queues), (1, 0), "after {sent} commands");
}

/// It says that the target is to wait for it without limit: for a receive, or for an acknowledgement.
#[test]
fn a_host_that_asks_for_endless_patience_loses_its_queue_all_the_same() {
    for vanishes in [false, true] {
        let (world, mut target, remote, mut raw) = target_and_raw(3);
        let mut one_receive = ConnectionOptions::default();
        one_receive.inline_bytes = 64;
        let mut connection = Connection::new(&raw.pd, one_receive).unwrap();
        connection.receive(raw.region.buffer(0..BUFFER).unwrap()).unwrap();
        let request = CmRequest { qid: 0.into(), hrqsize: 32.into(), hsqsize: 31.into(), ..CmRequest::default() };
        let mut parameters = Parameters::new(connection.queue_pair().qpn(), 0).private_data(request.as_bytes());
        parameters.rnr_retry_count = 7;
        raw.connection = Some(connection);
        let route = Route { local_ack_timeout: if vanishes { 31 } else { 14 }, ..Route::default() };
        let id = raw.manager.connect(remote, route, &parameters).unwrap();
        assert!(matches!(event(&world, &mut target, &mut raw), Event::ConnectResponse { .. }));
        raw.connect(id);
        raw.manager.ready(id, &[]).unwrap();
        let mut capsule = raw.spare();
        capsule.set_len(admin_capsule().len());
        capsule.write(0, &admin_capsule());
        raw.connection.as_mut().unwrap().send(capsule).unwrap();
        // It takes the one receive. From now on the controller is one that no keep-alive is asked of.
        answered(&world, &mut target, &mut raw);
        let command = Command::new(wire::fabric::COMMAND);
        raw.connection.as_mut().unwrap().send_inline_unreported(command.as_bytes()).unwrap();
        pass(world.clock());
        if vanishes {
            raw.connection = None;
        }
        let end = world.clock().now() + LONG;
        while target.statistics().broken == 0 && world.clock().now() < end {
            let _ = raw.manager.poll().unwrap();
            target.poll().unwrap();
            world.clock().pause(Duration::from_millis(1));
        }
        assert_eq!((target.statistics().broken, target.statistics().queues), (1, 0), "vanishes: {vanishes}");
    }
}

/// A namespace of which there is nothing but its number, and what a flush does.
struct Nothing<F>(F);

impl<F: FnMut() + Send> Disk for Nothing<F> {
    fn block_size(&self) -> u32 {
        512
    }

    fn blocks(&self) -> u64 {
        0
    }

    fn read(&mut self, _: u64, _: &mut [u8]) -> std::io::Result<()> {
        Err(std::io::Error::other("no blocks"))
    }

    fn write(&mut self, _: u64, _: &[u8]) -> std::io::Result<()> {
        Err(std::io::Error::other("no blocks"))
    }

    fn write_zeroes(&mut self, _: u64, _: u64) -> std::io::Result<()> {
        Err(std::io::Error::other("no blocks"))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        (self.0)();
        Ok(())
    }
}

/// More of them than a list holds: the next one goes on behind the last number of the list before.
#[test]
fn lists_of_namespaces_without_blocks_come_to_an_end() {
    const NAMESPACES: usize = 1030;
    let world = World::new(4);
    let (cards, _) = world.simulated().joined([Card::builder(), Card::builder()], Conditions::default()).unwrap();
    let devices = cards.each_ref().map(|card| world.open(card).unwrap());
    let options = TargetOptions::new(NQN);
    let remote = SocketAddr::new(devices[0].gids()[0].address.into(), options.port);
    let mut disks: Vec<Box<dyn Disk>> = (1..NAMESPACES).map(|_| Box::new(Nothing(|| ())) as _).collect();
    disks.push(Box::new(RamDisk::new(64, 512).unwrap()));
    let mut target = Target::new(&devices[0], None, options, disks).unwrap();
    let (clock, mut turns) = (world.clock().clone(), 0);
    let mut with = HostOptions::default();
    with.idle = Some(Box::new(move || {
        turns += 1;
        assert!(turns < 100 * NAMESPACES, "it asks for ever");
        target.poll().unwrap();
        clock.pause(Duration::from_micros(50));
    }));
    let mut host = Host::new(&devices[1], None, with).unwrap();
    let mut controller = host.connect(remote, NQN, ControllerOptions::default()).unwrap();
    let found = controller.namespaces(&mut host).unwrap();
    assert_eq!(found.iter().map(|namespace| namespace.nsid).collect::<Vec<_>>(), [NAMESPACES as u32]);
}

/// What a hostile target answers.
fn answer(random: &mut Random, command: &Command) -> Vec<u8> {
    let mut completion = Completion { command_id: command.command_id, ..Completion::default() };
    match random.below(5) {
        0 => completion.command_id = (random.next() as u16).into(),
        1 => completion.status = (random.next() as u16).into(),
        2 => completion.result = random.next().into(),
        3 => {
            let len = random.below(64) as usize + 1;
            return (0..len).map(|_| random.next() as u8).collect();
        }
        _ => {}
    }
    completion.as_bytes().to_vec()
}

#[test]
fn a_target_that_breaks_the_protocol_is_an_error_of_the_host() {
    for seed in 1..=40u64 {
        let world = World::new(seed);
        let (cards, _) = world.simulated().joined([Card::builder(), Card::builder()], Conditions::default()).unwrap();
        let devices = cards.each_ref().map(|card| world.open(card).unwrap());
        let remote = SocketAddr::new(devices[1].gids()[0].address.into(), 4420);
        let mut raw = Raw::new(&devices[1]);
        raw.manager.listen(Service::tcp(4420)).unwrap();
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let clock = world.clock().clone();
        let mut with = HostOptions::default();
        with.timeout = Duration::from_secs(2);
        with.idle = Some(Box::new(move || {
            clock.pause(Duration::from_micros(50));
            if let Some((id, Event::ConnectRequest { .. })) = raw.manager.poll().unwrap() {
                raw.fresh();
                raw.connect(id);
                let reply = CmReply { crqsize: random.one_of(&[32, 32, 32, 1]).into(), ..CmReply::default() };
                let qpn = raw.connection.as_ref().unwrap().queue_pair().qpn();
                raw.manager.accept(id, &Parameters::new(qpn, 0).private_data(reply.as_bytes())).unwrap();
            }
            let Some(connection) = &mut raw.connection else { return };
            while let Ok(Some(done)) = connection.poll() {
                let Some(buffer) = done.buffer.filter(|_| done.result.is_ok()) else { continue };
                let mut bytes = [0; 64];
                buffer.read(0, &mut bytes);
                let command = Command::read_from_bytes(&bytes).unwrap();
                let _ = connection.send_inline(&answer(&mut random, &command));
            }
        }));
        let mut host = Host::new(&devices[0], None, with).unwrap();
        let mut options = ControllerOptions::default();
        options.placement = if seed % 2 == 0 { DataPlacement::FastKey } else { DataPlacement::StandingKey };
        match host.connect(remote, NQN, options) {
            // All answers happened to be good: then the controller's own page is not.
            Ok(_) => panic!("seed {seed}: nothing was noticed"),
            Err(
                HostError::Protocol { .. }
                | HostError::Failed { .. }
                | HostError::Timeout { .. }
                | HostError::Unsupported { .. }
                | HostError::Broken { .. }
                | HostError::Disconnected { .. },
            ) => {}
            Err(other) => panic!("seed {seed}: {other}"),
        }
    }
}
