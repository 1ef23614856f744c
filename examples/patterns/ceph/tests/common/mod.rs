//! Two cards in virtual time, over a cable that may lose frames, and exchanges without TCP.

// Each test program uses a part of this.
#![allow(dead_code)]

pub mod stranger;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use mlx5_ceph::stack::{Lines, LinkId, Received, StackOptions};
use mlx5_ceph::wire::Line;
use mlx5_dv::Device;
use mlx5_open::virtual_time::World;
use mlx5_sim::card::{Card, SteppedCard};
use mlx5_sim::world::Conditions;

/// The server's address.
pub const SERVER: &str = "10.0.0.1:6800";
/// Longer than anything takes, in virtual time.
pub const LONG: Duration = Duration::from_secs(3600);

/// One direction of a link.
#[derive(Debug, Default)]
struct Way {
    lines: VecDeque<[u8; Line::BYTES]>,
    is_closed: bool,
}

/// What the two ends share: links have two ways, from the client and from the server.
#[derive(Debug, Default)]
pub struct Net {
    links: HashMap<LinkId, [Way; 2]>,
    calls: VecDeque<(LinkId, SocketAddr)>,
    next: LinkId,
    is_listening: bool,
}

/// One end's lines.
#[derive(Debug, Clone)]
pub struct MemoryLines {
    net: Arc<Mutex<Net>>,
    /// Which of each link's ways is its own: 0 for a client.
    side: usize,
}

impl MemoryLines {
    /// The ends of a client and of a server.
    pub fn pair() -> [Self; 2] {
        let net = Arc::new(Mutex::new(Net::default()));
        [0, 1].map(|side| MemoryLines { net: Arc::clone(&net), side })
    }

    fn net(&self) -> MutexGuard<'_, Net> {
        self.net.lock().unwrap()
    }

    /// Sends a line in the name of this end: of a peer that lies.
    pub fn say(&self, link: LinkId, line: [u8; Line::BYTES]) {
        self.net().links.get_mut(&link).unwrap()[self.side].lines.push_back(line);
    }

    /// Calls the server, as a stranger does.
    pub fn call(&self, from: SocketAddr) -> LinkId {
        let mut net = self.net();
        net.next += 1;
        let link = net.next;
        net.links.insert(link, Default::default());
        net.calls.push_back((link, from));
        link
    }
}

impl Lines for MemoryLines {
    fn listen(&mut self, address: SocketAddr) -> io::Result<SocketAddr> {
        self.net().is_listening = true;
        Ok(address)
    }

    fn dial(&mut self, _: SocketAddr) -> io::Result<LinkId> {
        if !self.net().is_listening {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        Ok(self.call("10.0.0.2:40000".parse().unwrap()))
    }

    fn accept(&mut self) -> Option<(LinkId, SocketAddr)> {
        self.net().calls.pop_front()
    }

    fn send(&mut self, link: LinkId, line: &[u8; Line::BYTES]) -> io::Result<bool> {
        self.say(link, *line);
        Ok(true)
    }

    fn receive(&mut self, link: LinkId) -> io::Result<Received> {
        let mut net = self.net();
        let ways = net.links.get_mut(&link).ok_or(io::ErrorKind::NotConnected)?;
        let way = &mut ways[1 - self.side];
        Ok(match way.lines.pop_front() {
            Some(line) => Received::Line(line),
            None if way.is_closed => Received::Closed,
            None => Received::Nothing,
        })
    }

    fn close(&mut self, link: LinkId) {
        if let Some(ways) = self.net().links.get_mut(&link) {
            ways[self.side].is_closed = true;
        }
    }
}

/// Two cards and a cable.
pub struct Pair {
    pub world: World,
    pub cards: [Arc<SteppedCard>; 2],
    pub devices: [Arc<Device>; 2],
    pub lines: [MemoryLines; 2],
}

impl Pair {
    /// A cable that loses `loss` of a million frames, and doubles and reorders half as many.
    pub fn new(seed: u64, loss: u32) -> Self {
        Self::with(seed, Conditions { loss, duplication: loss / 2, reordering: loss / 2, ..Conditions::default() })
    }

    pub fn with(seed: u64, conditions: Conditions) -> Self {
        let world = World::new(seed);
        let (cards, _) = world.simulated().joined([Card::builder(), Card::builder()], conditions).unwrap();
        let devices = cards.each_ref().map(|card| world.open(card).unwrap());
        Pair { world, cards, devices, lines: MemoryLines::pair() }
    }

    pub fn now(&self) -> Duration {
        self.world.clock().now()
    }

    /// Lets time pass: more, if nothing happened.
    pub fn pause(&self, moved: bool) {
        self.world.clock().pause(Duration::from_micros(if moved { 20 } else { 500 }));
    }

    /// Fails if strict mode found anything.
    pub fn assert_lawful(&self) {
        for card in &self.cards {
            assert_eq!(card.function(0).strict().take(), []);
        }
    }
}

/// Small chunks, so that little data takes many.
pub fn small() -> StackOptions {
    let mut options = StackOptions::default();
    (options.buffer_size, options.send_buffers, options.receive_queue_len) = (1024, 32, 63);
    (options.streams, options.send_depth) = (16, 8);
    options
}

/// Bytes that differ by place and by kind.
pub fn pattern(kind: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * (2 * kind + 3) + (at >> 8) + 7 * kind) as u8).collect()
}
