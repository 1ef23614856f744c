//! One end of a ping-pong. The client sends first; the server sends back what it received.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mlx5_dv::memory::{HostMemory, PageSize, Pages};
use mlx5_dv::objects::{
    AccessFlags, Advice, Buffer, ImplicitRegion, MemoryRegion, Pd, QueuePair, RtrAttributes, RtsAttributes,
};
use mlx5_dv::queue::{Connected, Connection, ConnectionOptions, Done, EventQueue, EventSource, Messages, Ticket};
use mlx5_dv::{Device, Mac};
use mlx5_open::watchdog::{SILENCE, Watchdog};
use mlx5_prm::values::PathMtu;

use crate::exchange::Address;

/// What an example may fail with.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Checks that `found` is what it must be; the error says `what` is not.
pub fn is<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, expected: &T) -> Result<(), Failure> {
    if found == expected { Ok(()) } else { Err(format!("{what}: {found:x?} instead of {expected:x?}").into()) }
}

/// Upper limit on the total size of posted receive buffers.
const RECEIVE_MEMORY: usize = 64 << 20;

/// Parameters of both ends.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Message size in bytes.
    pub size: usize,
    /// Path MTU in bytes.
    pub mtu: u32,
    /// Receives to keep posted.
    pub rx_depth: usize,
    /// Number of exchanges.
    pub iters: u64,
    /// Service level.
    pub service_level: u8,
    /// Sleep on completion events instead of polling.
    pub events: bool,
    /// Sleep on an event queue of this end's own: that of vector 1 for the client, of vector 2 for the server.
    pub own_events: bool,
    /// Index of the local GID.
    pub gid_index: u16,
    /// Check every byte received.
    pub check: bool,
    /// Keep messages in pages of this size, or fail; by default in the largest available.
    pub page_size: Option<PageSize>,
    /// Keep rings and doorbell records in pages of this size, or fail; by default in the largest available.
    pub ring_pages: Option<PageSize>,
    /// Pages of messages come when the card needs them, and are not pinned.
    pub on_demand: Option<OnDemand>,
    /// Of such memory: bring it before the first message.
    pub prefetch: bool,
}

/// How memory is registered whose pages come when the card needs them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDemand {
    /// As a region of its own.
    Explicit,
    /// As a part of one region of all addresses.
    Implicit,
}

/// Who sends first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Sends first, and knows the expected answer.
    Client,
    /// Sends back what it received.
    Server,
}

impl Role {
    /// Completion vector of its own event queue.
    fn vector(self) -> u32 {
        match self {
            Role::Client => 1,
            Role::Server => 2,
        }
    }
}

/// Byte `at` of message `number`. `ibv_rc_pingpong -c` checks only the first byte of each page, which is 0.
fn pattern(number: u64, at: usize) -> u8 {
    if at.is_multiple_of(4096) {
        return 0;
    }
    (number as usize).wrapping_mul(31).wrapping_add(at).wrapping_add(at >> 8) as u8
}

/// The path MTU of `bytes`.
pub fn path_mtu(bytes: u32) -> Result<PathMtu, Failure> {
    let path_mtu = PathMtu::from_bytes(bytes);
    path_mtu.ok_or_else(|| format!("{bytes} is not a path MTU: 256, 512, 1024, 2048 or 4096").into())
}

/// At least `len` bytes for messages.
fn memory(pd: &Arc<Pd>, len: usize, setup: &Setup) -> Result<Arc<MemoryRegion>, mlx5_dv::Error> {
    let access = AccessFlags::LOCAL_WRITE;
    if let Some(how) = setup.on_demand {
        // Of pages that nobody has touched yet.
        let memory = HostMemory::of(vec![0u8; len])?;
        let region = match how {
            OnDemand::Explicit => MemoryRegion::register_on_demand(pd, memory, access)?,
            OnDemand::Implicit => MemoryRegion::register_in(&ImplicitRegion::register(pd)?, memory)?,
        };
        if setup.prefetch {
            region.advise(Advice::PrefetchWrite, 0..len)?;
        }
        return Ok(region);
    }
    match setup.page_size {
        Some(size) => MemoryRegion::register(pd, HostMemory::allocate_in(len, Pages::Exactly(size))?, access),
        None => MemoryRegion::allocate(pd, len, access),
    }
}

/// One end: its queue pair and its buffers.
#[derive(Debug)]
pub struct Player<S: Connected = Messages> {
    device: Arc<Device>,
    setup: Setup,
    role: Role,
    region: Arc<MemoryRegion>,
    connection: Connection<S>,
    /// What it sleeps on, if that is its own.
    own_events: Option<EventQueue>,
    /// The client's message, while it is not in flight.
    message: Option<Buffer>,
    /// Sends in flight, oldest first. The next message may arrive before the acknowledgement of the last send.
    sending: VecDeque<Ticket>,
    /// The client waits for an answer before it sends again.
    answer_due: bool,
    sent: u64,
    received: u64,
}

impl Player {
    /// As [`of_service`](Self::of_service), over a reliable connection.
    pub fn new(device: &Arc<Device>, setup: &Setup, role: Role) -> Result<Self, Failure> {
        Self::of_service(device, setup, role)
    }
}

impl<S: Connected> Player<S> {
    /// Creates a queue pair, ready to connect, with its receives posted.
    pub fn of_service(device: &Arc<Device>, setup: &Setup, role: Role) -> Result<Self, Failure> {
        let depth = setup.rx_depth.min(RECEIVE_MEMORY / setup.size).max(2);
        let mut pd = Pd::alloc(device)?;
        if let Some(size) = setup.ring_pages {
            pd = pd.alloc_parent(move |len| HostMemory::allocate_in(len, Pages::Exactly(size)));
        }
        let mut options = ConnectionOptions::default();
        options.send_depth = 4;
        options.recv_depth = u32::try_from(depth)?;
        options.events = setup.events;
        let own_events = setup.own_events.then(|| EventQueue::take(device, role.vector())).transpose()?;
        options.vector = own_events.as_ref().map_or(0, EventQueue::vector);
        options.gid_index = u8::try_from(setup.gid_index)?;
        options.service_level = setup.service_level;
        options.path_mtu = Some(path_mtu(setup.mtu)?);
        // Memory first: when a process dies, the kernel destroys its newest objects first, and the queue pair must go
        // before the memory key.
        let region = memory(&pd, (depth + 1) * setup.size, setup)?;
        let mut connection = Connection::of_service(&pd, options)?;
        let part = |i: usize| region.buffer(i * setup.size..(i + 1) * setup.size);
        let mut buffers = (0..=depth).map(part).collect::<Result<Vec<Buffer>, _>>()?;
        let message = buffers.pop().filter(|_| role == Role::Client);
        for buffer in buffers {
            connection.receive(buffer)?;
        }
        Ok(Player {
            device: device.clone(),
            setup: setup.clone(),
            role,
            region,
            connection,
            own_events,
            message,
            sending: VecDeque::with_capacity(4),
            answer_due: false,
            sent: 0,
            received: 0,
        })
    }

    /// The address to send to the other end.
    pub fn address(&self) -> Result<Address, Failure> {
        Ok(self.connection.local()?.into())
    }

    /// The memory of its messages.
    pub fn region(&self) -> &MemoryRegion {
        &self.region
    }

    /// Its queue pair.
    pub fn queue_pair(&self) -> &QueuePair {
        self.connection.queue_pair()
    }

    /// Connects to the other end. `mac` is its MAC address, unless the driver derives it from the GID.
    pub fn connect(&mut self, remote: &Address, mac: Option<Mac>) -> Result<(), Failure> {
        Ok(self.connection.connect(&remote.peer(mac))?)
    }

    /// As [`connect`](Self::connect), by what a connection manager says.
    pub fn connect_by(&mut self, rtr: &RtrAttributes, rts: &RtsAttributes) -> Result<(), Failure> {
        Ok(self.connection.connect_by(rtr, rts)?)
    }

    /// Runs all exchanges on this thread.
    pub fn play(&mut self) -> Result<(), Failure> {
        self.begin()?;
        if self.setup.events {
            while !self.is_done() {
                let done = self.connection.wait(SILENCE)?;
                self.handle(done)?;
            }
            return Ok(());
        }
        if self.own_events.is_some() {
            return self.play_by_own_events();
        }
        let mut watchdog = Watchdog::new(&self.device);
        while !self.is_done() {
            let moved = self.turn()?;
            watchdog.check(moved)?;
        }
        Ok(())
    }

    fn play_by_own_events(&mut self) -> Result<(), Failure> {
        loop {
            while self.turn()? {}
            if self.is_done() {
                return Ok(());
            }
            self.connection.request_event()?;
            // One that came before the queue was armed raises no event.
            if self.turn()? {
                continue;
            }
            let Some(events) = &mut self.own_events else { return Err("there is no event queue".into()) };
            let cqn = events.wait(SILENCE)?;
            if cqn != self.connection.cqn() {
                return Err(format!("an event of CQ {cqn:#x}, which is not this connection's").into());
            }
            self.connection.count_event();
        }
    }

    /// Sends the first message, if this is the client.
    pub fn begin(&mut self) -> Result<(), Failure> {
        match self.role {
            Role::Client => self.send_message(),
            Role::Server => Ok(()),
        }
    }

    /// Polls and handles one completion. Returns whether there was one.
    #[inline]
    pub fn turn(&mut self) -> Result<bool, Failure> {
        match self.connection.poll()? {
            Some(done) => self.handle(done).map(|()| true),
            None => Ok(false),
        }
    }

    /// Whether all messages were sent and answered.
    pub fn is_done(&self) -> bool {
        self.sent == self.setup.iters && self.received == self.setup.iters
    }

    fn handle(&mut self, done: Done) -> Result<(), Failure> {
        let completion = done.result?;
        let buffer = done.buffer.ok_or("completion without a buffer")?;
        if self.sending.front() == Some(&done.ticket) {
            self.sending.pop_front();
            self.sent += 1;
            match self.role {
                Role::Client => self.message = Some(buffer),
                Role::Server => self.post(buffer)?,
            }
        } else {
            self.handle_message(buffer, completion.byte_len as usize)?;
        }
        if self.role == Role::Client && self.message.is_some() && !self.answer_due && self.sent < self.setup.iters {
            self.send_message()?;
        }
        Ok(())
    }

    fn handle_message(&mut self, buffer: Buffer, len: usize) -> Result<(), Failure> {
        self.received += 1;
        if self.setup.check {
            self.check(&buffer, len)?;
        }
        match self.role {
            Role::Client => {
                self.answer_due = false;
                self.post(buffer)
            }
            Role::Server => {
                self.sending.push_back(self.connection.send(buffer)?);
                Ok(())
            }
        }
    }

    fn post(&mut self, buffer: Buffer) -> Result<(), Failure> {
        self.connection.receive(buffer)?;
        Ok(())
    }

    fn send_message(&mut self) -> Result<(), Failure> {
        let mut buffer = self.message.take().ok_or("the message is still in flight")?;
        if self.setup.check {
            let bytes: Vec<u8> = (0..self.setup.size).map(|at| pattern(self.sent, at)).collect();
            buffer.write(0, &bytes);
        }
        self.answer_due = true;
        self.sending.push_back(self.connection.send(buffer)?);
        Ok(())
    }

    /// Checks a received message. The client knows every byte; the server, whose client may be `ibv_rc_pingpong`, only
    /// the first of each page.
    fn check(&self, buffer: &Buffer, len: usize) -> Result<(), Failure> {
        if len != self.setup.size {
            return Err(
                format!("message {}: received {len} bytes instead of {}", self.received, self.setup.size).into()
            );
        }
        let mut bytes = vec![0; len];
        buffer.read(0, &mut bytes);
        let step = if self.role == Role::Client { 1 } else { 4096 };
        let number = self.received - 1;
        match (0..len).step_by(step).find(|at| bytes[*at] != pattern(number, *at)) {
            None => Ok(()),
            Some(at) => {
                let (found, expected) = (bytes[at], pattern(number, at));
                Err(format!("message {}: byte {at} is {found:#04x} instead of {expected:#04x}", self.received).into())
            }
        }
    }
}

/// Byte `at` of every message of an end that has one buffer for all. rdma-core's ping-pongs check the first byte of
/// each page, which is 0.
pub fn one_pattern(at: usize) -> u8 {
    if at.is_multiple_of(4096) { 0 } else { (at.wrapping_mul(31) + (at >> 8)) as u8 }
}

/// Checks every `step`th byte of such a message.
pub fn check_one_pattern(bytes: &[u8], step: usize) -> Result<(), Failure> {
    match (0..bytes.len()).step_by(step).find(|at| bytes[*at] != one_pattern(*at)) {
        None => Ok(()),
        Some(at) => Err(format!("byte {at} is {:#04x} instead of {:#04x}", bytes[at], one_pattern(at)).into()),
    }
}

/// Runs two ends on one card, in turn on this thread.
pub fn in_turn<E>(
    device: &Arc<Device>,
    [one, other]: [&mut E; 2],
    is_done: impl Fn(&E) -> bool,
    turn: impl Fn(&mut E) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let mut watchdog = Watchdog::new(device);
    while !(is_done(one) && is_done(other)) {
        let moved = turn(one)? | turn(other)?;
        watchdog.check(moved)?;
    }
    Ok(())
}

/// How long `play` takes.
pub fn timed(play: impl FnOnce() -> Result<(), Failure>) -> Result<Duration, Failure> {
    let start = Instant::now();
    play()?;
    Ok(start.elapsed())
}

/// Prints the rates of `iters` exchanges of `size` bytes each way in `elapsed`, as rdma-core's ping-pongs do.
pub fn print_result(device: &str, size: u32, iters: u64, elapsed: Duration) {
    let bytes = 2 * u64::from(size) * iters;
    let seconds = elapsed.as_secs_f64();
    println!("{bytes} bytes in {seconds:.2} seconds = {:.2} Mbit/sec", bytes as f64 * 8.0 / seconds / 1e6);
    println!("{iters} iters in {seconds:.2} seconds = {:.2} usec/iter", seconds * 1e6 / iters as f64);
    if device.starts_with("sim") {
        println!("(on the software card: not a card's figures)");
    }
}
