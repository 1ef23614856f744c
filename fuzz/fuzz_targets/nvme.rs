//! What strangers send over NVMe over RDMA: private data and capsules of a host to a target, and answers and pages of a
//! target to a host, by whole cards in virtual time. None panics or hangs, and the target keeps nothing of them.
//!
//! The first byte selects the side. The cards live as long as the process: an input starts a connection of its own.

#![no_main]

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use mlx5_cm::{ConnectionId, ConnectionManager, Event, Parameters, Route, Service};
use mlx5_dv::Device;
use mlx5_dv::memory::RemoteAddress;
use mlx5_dv::objects::{AccessFlags, MemoryRegion, Pd};
use mlx5_dv::queue::{Connection, ConnectionOptions};
use mlx5_nvme::wire::{self, CmReply, CmRequest, Command, Completion, Connect, ConnectData, KeyedSgl, OffsetSgl};
use mlx5_nvme::wire::{PropertySet, property};
use mlx5_nvme::{ControllerOptions, DataPlacement, Host, HostOptions, RamDisk, Target, TargetOptions};
use mlx5_open::virtual_time::World;
use mlx5_sim::card::Card;
use mlx5_sim::world::Conditions;
use zerocopy::{FromBytes, IntoBytes};

const NQN: &str = "nqn.2014-08.example:disk";
const BUFFER: usize = 8192;
const RECEIVES: usize = 16;
const STEP: Duration = Duration::from_micros(50);

/// An end that speaks the connection manager's protocol well, and sends what the fuzzer likes.
struct Raw {
    manager: ConnectionManager,
    pd: Arc<Pd>,
    region: Arc<MemoryRegion>,
    connection: Option<Connection>,
}

impl Raw {
    fn new(device: &Arc<Device>) -> Self {
        let pd = Pd::alloc(device).expect("a protection domain");
        let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE;
        let region = MemoryRegion::allocate(&pd, (RECEIVES + 2) * BUFFER, access).expect("memory");
        let manager = ConnectionManager::new(device, None).expect("a connection manager");
        Raw { manager, pd, region, connection: None }
    }

    /// A connection with receives, in INIT; its number.
    fn fresh(&mut self) -> u32 {
        self.connection = None;
        let mut options = ConnectionOptions::default();
        options.inline_bytes = 64;
        let mut connection = Connection::new(&self.pd, options).expect("a connection");
        for number in 0..RECEIVES {
            let buffer = self.region.buffer(number * BUFFER..(number + 1) * BUFFER).expect("a free buffer");
            connection.receive(buffer).expect("room for receives");
        }
        self.connection.insert(connection).queue_pair().qpn()
    }

    /// Connects the queue pair that the connection manager has agreed on.
    fn connect(&mut self, id: ConnectionId) {
        let (rtr, rts) = self.manager.attributes(id).expect("attributes");
        if let Some(connection) = &mut self.connection {
            connection.connect_by(&rtr, &rts).expect("attributes that are good");
        }
    }

    /// Sends `bytes`, or writes them, if the one buffer for that is free.
    fn post(&mut self, bytes: &[u8], to: Option<RemoteAddress>) {
        let start = RECEIVES * BUFFER;
        let Ok(mut buffer) = self.region.buffer(start..start + bytes.len().clamp(1, BUFFER)) else { return };
        buffer.write(0, &bytes[..bytes.len().min(BUFFER)]);
        let Some(connection) = &mut self.connection else { return };
        let _ = match to {
            Some(remote) => connection.write(buffer, remote),
            None => connection.send(buffer),
        };
    }
}

/// A target, and a hostile host.
struct AtTarget {
    world: World,
    target: Target,
    remote: SocketAddr,
    raw: Raw,
}

impl AtTarget {
    fn new() -> Self {
        let world = World::new(1);
        let (cards, _) =
            world.simulated().joined([Card::builder(), Card::builder()], Conditions::default()).expect("cards");
        let [near, far] = cards.each_ref().map(|card| world.open(card).expect("a card"));
        let mut options = TargetOptions::new(NQN);
        (options.chunk, options.chunks, options.depth) = (64 << 10, 16, 32);
        let remote = SocketAddr::new(far.gids()[0].address.into(), options.port);
        let disks: Vec<Box<dyn mlx5_nvme::Disk>> = vec![Box::new(RamDisk::new(256, 512).expect("a disk"))];
        let target = Target::new(&far, None, options, disks).expect("a target");
        AtTarget { raw: Raw::new(&near), world, target, remote }
    }

    fn turn(&mut self) {
        self.target.poll().expect("a card that works");
        if let Some(connection) = &mut self.raw.connection {
            while connection.poll().is_ok_and(|done| done.is_some()) {}
        }
        self.world.clock().pause(STEP);
    }

    fn run(&mut self, how: u8, bytes: &[u8]) {
        let good = CmRequest { hrqsize: 32.into(), hsqsize: 31.into(), ..CmRequest::default() };
        let private = if how & 2 == 0 { good.as_bytes() } else { &bytes[..bytes.len().min(32)] };
        let qpn = self.raw.fresh();
        let parameters = Parameters::new(qpn, 0).private_data(private);
        let id = self.raw.manager.connect(self.remote, Route::default(), &parameters).expect("a free connection");
        let mut connected = false;
        for _ in 0..200 {
            self.turn();
            match self.raw.manager.poll().expect("a card that works") {
                Some((of, Event::ConnectResponse { .. })) if of == id => {
                    self.raw.connect(id);
                    let _ = self.raw.manager.ready(id, &[]);
                    connected = true;
                    break;
                }
                Some((of, event)) if of == id && event.is_last() => break,
                _ => {}
            }
        }
        if connected {
            self.talk(how, bytes);
        }
        let _ = self.raw.manager.disconnect(id, &[]);
        self.raw.connection = None;
        for _ in 0..20_000 {
            let left = self.target.statistics();
            if (left.queues, left.controllers, left.chunks_in_use) == (0, 0, 0) && self.raw.manager.state(id).is_none()
            {
                return;
            }
            self.turn();
            let _ = self.raw.manager.poll();
            self.world.clock().pause(Duration::from_millis(1));
        }
        panic!("the target keeps {:?}", self.target.statistics());
    }

    /// Capsules: each its length, in units of 8 bytes, and its bytes.
    fn talk(&mut self, how: u8, mut bytes: &[u8]) {
        if how & 4 == 0 {
            for capsule in [connect_capsule(), enable_capsule()] {
                self.raw.post(&capsule, None);
                (0..4).for_each(|_| self.turn());
            }
        }
        while let Some((&length, rest)) = bytes.split_first() {
            let (capsule, rest) = rest.split_at(rest.len().min(usize::from(length) * 8));
            let mut capsule = capsule.to_vec();
            // Most SGL descriptors would name no memory otherwise.
            if let (Some(sgl), true) = (capsule.get_mut(24..40), how & 8 == 0) {
                let remote = self.raw.region.remote_at(0);
                let length = u32::from_le_bytes([sgl[8], sgl[9], sgl[10] & 1, 0]);
                let kind = if sgl[15] & 1 == 0 { wire::sgl_type::KEYED } else { wire::sgl_type::KEYED_INVALIDATE };
                sgl.copy_from_slice(KeyedSgl::new(remote.addr, length, remote.rkey, kind).as_bytes());
            }
            self.raw.post(&capsule, None);
            (0..3).for_each(|_| self.turn());
            bytes = rest;
        }
    }
}

/// A good CONNECT for queue 0, with its data in the capsule.
fn connect_capsule() -> Vec<u8> {
    let mut data = ConnectData { cntlid: 0xffff.into(), ..ConnectData::default() };
    wire::put_text(&mut data.subsystem, NQN);
    wire::put_text(&mut data.host, "nqn.2014-08.example:hostile");
    let length = (data.as_bytes().len() as u32).into();
    let sgl = OffsetSgl { length, kind: wire::sgl_type::IN_CAPSULE, ..OffsetSgl::default() };
    let command = Command::new(wire::fabric::COMMAND).data(sgl);
    let connect = Connect { fctype: wire::fabric::CONNECT, sqsize: 31.into(), ..command.form() };
    [connect.as_bytes(), data.as_bytes()].concat()
}

/// PROPERTY SET that enables the controller.
fn enable_capsule() -> Vec<u8> {
    let command = Command::new(wire::fabric::COMMAND).without_data();
    let set = PropertySet {
        fctype: wire::fabric::PROPERTY_SET,
        offset: property::CC.into(),
        value: u64::from(property::CC_ENABLE).into(),
        ..command.form()
    };
    set.as_bytes().to_vec()
}

/// A host, and a hostile target whose answers are taken from `script`.
struct AtHost {
    host: Host,
    remote: SocketAddr,
    script: Arc<Mutex<Vec<u8>>>,
}

impl AtHost {
    fn new() -> Self {
        let world = World::new(2);
        let (cards, _) =
            world.simulated().joined([Card::builder(), Card::builder()], Conditions::default()).expect("cards");
        let [near, far] = cards.each_ref().map(|card| world.open(card).expect("a card"));
        let remote = SocketAddr::new(far.gids()[0].address.into(), 4420);
        let mut raw = Raw::new(&far);
        raw.manager.listen(Service::tcp(4420)).expect("a listener");
        let script = Arc::new(Mutex::new(Vec::new()));
        let script_of = Arc::clone(&script);
        let mut with = HostOptions::default();
        with.timeout = Duration::from_millis(100);
        with.idle = Some(Box::new(move || {
            world.clock().pause(STEP);
            if let Ok(mut script) = script_of.lock() {
                serve(&mut raw, &mut script);
            }
        }));
        AtHost { host: Host::new(&near, None, with).expect("a host"), remote, script }
    }

    fn run(&mut self, how: u8, bytes: &[u8]) {
        if let Ok(mut script) = self.script.lock() {
            // Taken from the end.
            script.clear();
            script.extend(bytes.iter().rev());
        }
        if how & 2 == 0 {
            let _ = self.host.discover(self.remote);
        } else {
            let mut options = ControllerOptions::default();
            options.placement = if how & 4 == 0 { DataPlacement::FastKey } else { DataPlacement::StandingKey };
            if let Ok(mut controller) = self.host.connect(self.remote, NQN, options) {
                let _ = controller.namespaces(&mut self.host);
                let _ = controller.io_queue(&mut self.host);
            }
        }
        let _ = self.host.turn();
    }
}

/// One turn of a hostile target.
fn serve(raw: &mut Raw, script: &mut Vec<u8>) {
    if let Ok(Some((id, Event::ConnectRequest { .. }))) = raw.manager.poll() {
        let qpn = raw.fresh();
        raw.connect(id);
        let reply = CmReply { crqsize: 32.into(), ..CmReply::default() };
        let _ = raw.manager.accept(id, &Parameters::new(qpn, 0).private_data(reply.as_bytes()));
    }
    loop {
        let Some(connection) = &mut raw.connection else { return };
        let Ok(Some(done)) = connection.poll() else { return };
        let Some(buffer) = done.buffer.filter(|_| done.result.is_ok()) else { continue };
        let mut bytes = [0; 64];
        buffer.read(0, &mut bytes);
        drop(buffer);
        let Ok(command) = Command::read_from_bytes(&bytes) else { continue };
        answer(raw, script, &command);
    }
}

/// Answers a command: its data, if it wants some, and a completion, good or not.
fn answer(raw: &mut Raw, script: &mut Vec<u8>, command: &Command) {
    let Some(how) = script.pop() else { return };
    let sgl = KeyedSgl::read_from_bytes(&command.data).unwrap_or_default();
    if !sgl.is_empty() && sgl.kind & 0xf0 == 0x40 {
        let page: Vec<u8> = (0..sgl.len().min(BUFFER as u32)).map(|_| script.pop().unwrap_or(how)).collect();
        raw.post(&page, Some(RemoteAddress { addr: sgl.address.get(), rkey: sgl.key.get() }));
    }
    let mut completion = Completion { command_id: command.command_id, ..Completion::default() };
    let mut word = || u16::from_le_bytes([script.pop().unwrap_or(0), script.pop().unwrap_or(0)]);
    match how % 8 {
        0 => completion.command_id = word().into(),
        1 => completion.status = word().into(),
        2 => completion.result = (u64::from(word()) << 32 | u64::from(word())).into(),
        // CAP or CSTS of a controller that is good.
        3 => completion.result = (1 << 37 | 31).into(),
        4 => completion.result = 1.into(),
        _ => {}
    }
    let length = if how == 7 { usize::from(word() % 17) } else { wire::COMPLETION };
    if let Some(connection) = &mut raw.connection {
        let _ = connection.send_inline(&completion.as_bytes()[..length.max(1).min(wire::COMPLETION)]);
    }
}

thread_local! {
    static TARGET: RefCell<AtTarget> = RefCell::new(AtTarget::new());
    static HOST: RefCell<AtHost> = RefCell::new(AtHost::new());
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&how, rest)) = bytes.split_first() else { return };
    if how & 1 == 0 {
        TARGET.with_borrow_mut(|stage| stage.run(how, rest));
    } else {
        HOST.with_borrow_mut(|stage| stage.run(how, rest));
    }
});
