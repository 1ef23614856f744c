//! One end of a ping-pong: the client sends first, the server sends back what it received.

use std::collections::VecDeque;
use std::sync::Arc;

use mlx5_dv::memory::{HostMemory, PageSize, Pages};
use mlx5_dv::objects::{AccessFlags, Buffer, MemoryRegion, Pd};
use mlx5_dv::queue::{Connection, ConnectionOptions, Done, Peer, Ticket};
use mlx5_dv::{Device, Mac};
use mlx5_open::watch::{SILENCE, Watch};
use mlx5_prm::values::PathMtu;

use crate::exchange::Address;

/// What an example may fail with.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Most bytes of posted receive buffers.
const RECEIVE_MEMORY: usize = 64 << 20;

/// What both ends agree on.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Bytes of the message.
    pub size: usize,
    /// Path MTU in bytes.
    pub mtu: u32,
    /// Receives to keep posted.
    pub rx_depth: usize,
    /// Exchanges.
    pub iters: u64,
    /// Service level.
    pub service_level: u8,
    /// Sleep on completion events instead of polling.
    pub events: bool,
    /// Index of the local GID.
    pub gid_index: u16,
    /// Check every byte received.
    pub check: bool,
    /// Keep messages in pages of this size, or fail; the largest that serve if not said.
    pub page_size: Option<PageSize>,
}

/// Who sends first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Sends first, and knows what must come back.
    Client,
    /// Sends back what came.
    Server,
}

/// Byte `at` of message `number`. The first byte of each page is 0, which is all that `ibv_rc_pingpong -c` looks at.
fn pattern(number: u64, at: usize) -> u8 {
    if at.is_multiple_of(4096) {
        return 0;
    }
    (number as usize).wrapping_mul(31).wrapping_add(at).wrapping_add(at >> 8) as u8
}

/// At least `len` bytes for messages.
fn memory(pd: &Arc<Pd>, len: usize, page_size: Option<PageSize>) -> Result<Arc<MemoryRegion>, mlx5_dv::Error> {
    let access = AccessFlags::LOCAL_WRITE;
    match page_size {
        Some(size) => MemoryRegion::register(pd, HostMemory::allocate_in(len, Pages::Exactly(size))?, access),
        None => MemoryRegion::allocate(pd, len, access),
    }
}

/// One end: its queue pair, and the buffers that go to and fro.
#[derive(Debug)]
pub struct Player {
    device: Arc<Device>,
    setup: Setup,
    role: Role,
    region: Arc<MemoryRegion>,
    connection: Connection,
    /// The client's message, while it is not on its way.
    message: Option<Buffer>,
    /// The sends under way, the oldest first. A message may come while the acknowledgement of the last one sent is lost.
    sending: VecDeque<Ticket>,
    /// The client's: an answer is due before the next message may go.
    answer_due: bool,
    sent: u64,
    received: u64,
}

impl Player {
    /// A queue pair ready to be connected, its receives posted.
    pub fn new(device: &Arc<Device>, setup: &Setup, role: Role) -> Result<Self, Failure> {
        let depth = setup.rx_depth.min(RECEIVE_MEMORY / setup.size).max(2);
        let pd = Pd::alloc(device)?;
        let mut options = ConnectionOptions::default();
        options.send_depth = 4;
        options.recv_depth = u32::try_from(depth)?;
        options.events = setup.events;
        options.gid_index = u8::try_from(setup.gid_index)?;
        options.service_level = setup.service_level;
        options.path_mtu = PathMtu::from_bytes(setup.mtu)
            .ok_or_else(|| format!("{} is no path MTU: 256, 512, ... 4096", setup.mtu))?;
        // The memory first: of a process that dies the kernel takes the newest objects back first, and no message may meet a
        // key that is gone.
        let region = memory(&pd, (depth + 1) * setup.size, setup.page_size)?;
        let mut connection = Connection::new(&pd, options)?;
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
            message,
            sending: VecDeque::with_capacity(4),
            answer_due: false,
            sent: 0,
            received: 0,
        })
    }

    /// What the other end needs to know.
    pub fn address(&self) -> Result<Address, Failure> {
        let local = self.connection.local()?;
        Ok(Address { lid: local.lid, qpn: local.qpn, psn: local.psn, gid: local.gid })
    }

    /// Where its messages are.
    pub fn region(&self) -> &MemoryRegion {
        &self.region
    }

    /// Connects to the other end, whose packets go to `mac` where its GID alone does not say whose they are.
    pub fn connect(&mut self, remote: &Address, mac: Option<Mac>) -> Result<(), Failure> {
        let peer = Peer { qpn: remote.qpn, psn: remote.psn, gid: remote.gid, lid: remote.lid, mac };
        Ok(self.connection.connect(&peer)?)
    }

    /// Plays the whole game on this thread.
    pub fn play(&mut self) -> Result<(), Failure> {
        self.begin()?;
        if self.setup.events {
            while !self.is_done() {
                let done = self.connection.wait(SILENCE)?;
                self.handle(done)?;
            }
            return Ok(());
        }
        let mut watch = Watch::new(&self.device);
        while !self.is_done() {
            let moved = self.turn()?;
            watch.check(moved)?;
        }
        Ok(())
    }

    /// The client sends its first message; the server waits for it.
    pub fn begin(&mut self) -> Result<(), Failure> {
        match self.role {
            Role::Client => self.send_message(),
            Role::Server => Ok(()),
        }
    }

    /// Handles one completion, if there is one.
    #[inline]
    pub fn turn(&mut self) -> Result<bool, Failure> {
        match self.connection.poll()? {
            Some(done) => self.handle(done).map(|()| true),
            None => Ok(false),
        }
    }

    /// Whether every message has gone out and come back.
    pub fn is_done(&self) -> bool {
        self.sent == self.setup.iters && self.received == self.setup.iters
    }

    fn handle(&mut self, done: Done) -> Result<(), Failure> {
        let completion = done.result?;
        let buffer = done.buffer.ok_or("a completion came without its buffer")?;
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
        let mut buffer = self.message.take().ok_or("the message is still on its way")?;
        if self.setup.check {
            let bytes: Vec<u8> = (0..self.setup.size).map(|at| pattern(self.sent, at)).collect();
            buffer.write(0, &bytes);
        }
        self.answer_due = true;
        self.sending.push_back(self.connection.send(buffer)?);
        Ok(())
    }

    /// The client knows every byte; the server, whose client may be `ibv_rc_pingpong`, the first of each page.
    fn check(&self, buffer: &Buffer, len: usize) -> Result<(), Failure> {
        if len != self.setup.size {
            return Err(format!("message {}: {len} bytes came instead of {}", self.received, self.setup.size).into());
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
